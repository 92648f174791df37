// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "grid.hpp"

#include "emulated/block.hpp"
#include "fibers.hpp"

#include <link.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulated {
namespace {

enum class State : unsigned char { ready, waits_for_warp, waits_for_block, done };

struct Copy {
  void* to;
  void const* from;
  unsigned bytes, source_bytes;
};

struct Thread {
  State state = State::ready;
  uint3 position{};
  LaneCall* call = nullptr;
  char const* barrier = nullptr;
  std::source_location where;
  int value = 0;
  std::vector<std::vector<Copy>> groups;  ///< of asynchronous copies, closed ones, the oldest first
  std::vector<Copy> open;
  bool waited = false;  ///< for the kernel before this one
};

std::string place(std::source_location where) {
  std::string file = where.file_name();
  if (auto const slash = file.rfind('/'); slash != std::string::npos) file.erase(0, slash + 1);
  return file + ":" + std::to_string(where.line());
}

/// Static shared arrays are variables of this thread: where they lie, of the running program, without those that begin
/// with a value (a shared array cannot).
std::pair<char*, std::size_t> static_shared() {
  std::pair<char*, std::size_t> found{nullptr, 0};
  ::dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* result) {
        for (int index = 0; index < program->dlpi_phnum; ++index) {
          auto const& part = program->dlpi_phdr[index];
          if (part.p_type != PT_TLS || program->dlpi_tls_data == nullptr) continue;
          *static_cast<std::pair<char*, std::size_t>*>(result) = {
              static_cast<char*>(program->dlpi_tls_data) + part.p_filesz, part.p_memsz - part.p_filesz};
        }
        return 1;  // the first is the program itself
      },
      &found);
  return found;
}

/// The block that runs.
class Block {
 public:
  std::string run(Grid const& grid, Dice& dice, std::pair<char*, std::size_t> shared, uint3 index) {
    grid_ = &grid;
    count_ = grid.block.x * grid.block.y * grid.block.z;
    if (threads_.size() < count_) threads_.resize(count_);
    unsigned linear = 0;
    for (unsigned z = 0; z < grid.block.z; ++z)
      for (unsigned y = 0; y < grid.block.y; ++y)
        for (unsigned x = 0; x < grid.block.x; ++x, ++linear) {
          Thread& thread = threads_[linear];
          thread.state = State::ready;
          thread.position = {x, y, z};
          thread.call = nullptr;
          thread.groups.clear();
          thread.waited = false;
          thread.open.clear();
        }
    waiting_ = done_ = 0;
    failure_.clear();
    position.block = index;
    position.block_size = grid.block;
    position.grid_size = grid.size;
    if (shared.second != 0) std::memset(shared.first, poison, shared.second);
    reserve(grid.shared_bytes);

    fibers_.start(count_, [](unsigned thread) { the_block->body(thread); });
    unsigned const warps = (count_ + warp_size - 1) / warp_size;
    std::vector<unsigned> order(warps), lanes;
    for (unsigned warp = 0; warp < warps; ++warp) order[warp] = warp;
    while (done_ < count_ && failure_.empty()) {
      dice.shuffle(order);
      bool progress = false;
      for (unsigned const warp : order) progress = run_warp(warp, dice, lanes) || progress;
      if (!progress && failure_.empty()) failure_ = stuck();
    }
    return std::exchange(failure_, {});
  }

  // ---- Called by fibers ----
  void body(unsigned thread) {
    grid_->body();
    threads_[thread].state = State::done;
    ++done_;
  }

  void warp_together(LaneCall& call) {
    unsigned const warp = running_ / warp_size, lane = running_ % warp_size;
    if ((call.mask >> lane & 1u) == 0)
      fail(std::string(call.name) + ": lane " + std::to_string(lane) + " is not in its own mask", call.where);
    LaneCall* calls[warp_size] = {};
    threads_[running_].call = &call;
    bool complete = true;
    for (unsigned other = 0; other < warp_size; ++other) {
      if ((call.mask >> other & 1u) == 0) continue;
      unsigned const index = warp * warp_size + other;
      if (index >= count_ || threads_[index].state == State::done)
        fail(std::string(call.name) + ": the mask names lane " + std::to_string(other) + ", which " +
                 (index >= count_ ? "the block does not have" : "has left the kernel"),
             call.where);
      calls[other] = threads_[index].call;
      if (calls[other] == nullptr || calls[other]->mask != call.mask) complete = false;
      else if (std::strcmp(calls[other]->name, call.name) != 0)
        fail(std::string(call.name) + " meets " + calls[other]->name + " of " + place(calls[other]->where), call.where);
      else if (call.aligned && calls[other]->where.line() != call.where.line())
        fail(std::string(call.name) + " of two places: the other is " + place(calls[other]->where), call.where);
    }
    if (!complete) {
      threads_[running_].state = State::waits_for_warp;
      fibers_.leave();
      return;
    }
    call.complete(calls, call.mask);
    for (unsigned other = 0; other < warp_size; ++other) {
      if ((call.mask >> other & 1u) == 0) continue;
      Thread& thread = threads_[warp * warp_size + other];
      thread.call = nullptr;
      thread.state = State::ready;
    }
  }

  int block_together(char const* name, int value, int combine, std::source_location where) {
    Thread& mine = threads_[running_];
    mine.barrier = name;
    mine.where = where;
    mine.value = value;
    if (done_ != 0) fail(std::string(name) + " after other threads of the block have left the kernel", where);
    if (waiting_ == 0) first_waiting_ = running_;
    Thread const& other = threads_[first_waiting_];  // those that wait agree with each other
    if (std::strcmp(other.barrier, name) != 0 || other.where.line() != where.line() ||
        std::strcmp(other.where.file_name(), where.file_name()) != 0)
      fail(std::string(name) + " diverges: another thread waits in " + other.barrier + " of " + place(other.where),
           where);
    if (++waiting_ < count_) {
      mine.state = State::waits_for_block;
      fibers_.leave();
      return combined_;
    }
    int result = combine == 2;
    for (unsigned index = 0; index < count_; ++index) {
      int const one = threads_[index].value;
      result = combine == 1 ? result | one : combine == 2 ? result & one : result + one;
      threads_[index].state = State::ready;
    }
    waiting_ = 0;
    return combined_ = result;  // overwritten only once all have come to the next one
  }

  [[noreturn]] void fail(std::string text, std::source_location where) {
    uint3 const block = position.block, thread = position.thread;
    auto const triple = [](uint3 p) {
      return "(" + std::to_string(p.x) + ", " + std::to_string(p.y) + ", " + std::to_string(p.z) + ")";
    };
    failure_ = std::move(text) + " (" + place(where) + ", block " + triple(block) + ", thread " + triple(thread) + ")";
    fibers_.leave(true);
    std::abort();
  }

  Thread& running() { return threads_[running_]; }
  unsigned running_lane() const { return running_ % warp_size; }
  void* shared_memory() const { return shared_; }

  static inline Block* the_block = nullptr;

 private:
  /// Until every lane waits for the block or is done, or the warp is stuck. Whether any lane ran.
  bool run_warp(unsigned warp, Dice& dice, std::vector<unsigned>& lanes) {
    unsigned const first = warp * warp_size, end = std::min(first + warp_size, count_);
    lanes.clear();
    for (unsigned thread = first; thread < end; ++thread) lanes.push_back(thread);
    bool any = false;
    for (bool progress = true; progress && failure_.empty();) {
      progress = false;
      dice.shuffle(lanes);
      for (unsigned const thread : lanes) {
        if (threads_[thread].state != State::ready) continue;
        running_ = thread;
        position.thread = threads_[thread].position;
        fibers_.enter(thread);
        progress = any = true;
        if (!failure_.empty()) break;
      }
      // Now and then another warp gets its turn while this one is between two of its waits.
      if (!dice.idle() && dice.below(4) == 0) break;
    }
    return any;
  }

  std::string stuck() const {
    std::string text = "no thread can go on: ";
    for (unsigned index = 0; index < count_; ++index) {
      Thread const& thread = threads_[index];
      if (thread.state == State::waits_for_warp)
        return text + "thread " + std::to_string(index) + " waits in " + thread.call->name + " of " +
               place(thread.call->where) + " for lanes of its mask that do not come";
    }
    Thread const& thread = threads_[first_waiting_];
    return text + std::to_string(waiting_) + " threads wait in " + thread.barrier + " of " + place(thread.where) +
           ", " + std::to_string(done_) + " of " + std::to_string(count_) + " have left the kernel";
  }

  void reserve(std::size_t bytes) {
    constexpr std::size_t all = std::size_t{256} << 10;
    if (!memory_) memory_.reset(static_cast<char*>(std::aligned_alloc(1024, all)));
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(memory_.get(), all);
#endif
    shared_ = memory_.get();
    std::memset(shared_, poison, bytes);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION(shared_ + bytes, all - bytes);
#endif
  }

  struct Free {
    void operator()(char* memory) const {
#if defined(__SANITIZE_ADDRESS__)
      ASAN_UNPOISON_MEMORY_REGION(memory, std::size_t{256} << 10);
#endif
      std::free(memory);
    }
  };

  Grid const* grid_ = nullptr;
  Fibers fibers_;
  std::vector<Thread> threads_;
  std::unique_ptr<char, Free> memory_;
  char* shared_ = nullptr;
  unsigned count_ = 0, running_ = 0, waiting_ = 0, first_waiting_ = 0, done_ = 0;
  int combined_ = 0;
  std::string failure_;
};

}  // namespace

std::string run_grid(Grid const& grid, Dice& dice) {
  static Block block;
  static std::pair<char*, std::size_t> const shared = static_shared();
  Block::the_block = &block;
  std::vector<unsigned> order(std::size_t{grid.size.x} * grid.size.y * grid.size.z);
  for (unsigned index = 0; index < order.size(); ++index) order[index] = index;
  dice.shuffle(order);
  for (unsigned const index : order) {
    uint3 const at{index % grid.size.x, index / grid.size.x % grid.size.y, index / grid.size.x / grid.size.y};
    if (std::string failure = block.run(grid, dice, shared, at); !failure.empty()) return failure;
  }
  return {};
}

// ---- What kernels call ----

void warp_together(LaneCall& call) { Block::the_block->warp_together(call); }
int block_together(char const* name, int value, int combine, std::source_location where) {
  return Block::the_block->block_together(name, value, combine, where);
}
void fail(char const* text, std::source_location where) { Block::the_block->fail(text, where); }
void* dynamic_shared_memory() { return Block::the_block->shared_memory(); }
unsigned lane() { return Block::the_block->running_lane(); }

void copy_later(void* to, void const* from, unsigned bytes, unsigned source_bytes, std::source_location where) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    fail("an asynchronous copy that is not aligned", where);
  std::memset(to, poison, bytes);  // between now and the wait it may hold anything
  Block::the_block->running().open.push_back({to, from, bytes, source_bytes});
}
void waited_for_previous() { Block::the_block->running().waited = true; }
bool has_waited_for_previous() { return Block::the_block->running().waited; }
void copies_close_group() {
  Thread& thread = Block::the_block->running();
  thread.groups.push_back(std::move(thread.open));
  thread.open.clear();
}
void copies_wait(unsigned pending) {
  auto& groups = Block::the_block->running().groups;
  while (groups.size() > pending) {
    for (Copy const& copy : groups.front()) {
      if (copy.source_bytes != 0) std::memcpy(copy.to, copy.from, copy.source_bytes);
      std::memset(static_cast<char*>(copy.to) + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
    }
    groups.erase(groups.begin());
  }
}

}  // namespace emulated

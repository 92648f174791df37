// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `StagedJob`: a collective on memory that the backend does not reach, such as a device's under MPI. It goes in parts
/// through pinned host memory, several of them under way: while one is copied in, another is on its way between the
/// ranks and a third is copied out.
///
/// A part is the same range of elements of every block, so that parts never overlap, in place neither. The parts of a
/// call start one after another on every rank, and what is called later starts after them.

#include <tutti/comm/collective_job.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/staging.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::comm {

/// `From` and `To` are where the call's buffers live.
template <Backend B, Device From, Device To>
class StagedJob : public QueuedJob<B> {
  using Queued = QueuedJob<B>;
  using Queued::core_;
  using typename Queued::Comparer;

 public:
  /// `make` gives the Call, with the devices' addresses; not of a _v kind.
  StagedJob(Core<B>& core, char const* operation, From const& from, To const& to, FunctionRef<Call()> make)
      : Queued(core, operation), from_(from), to_(to), whole_(make().collective), number_(core.next_number()),
        flight_(core.flight_recorder.begin(whole_, number_)), counted_(core.tally.begin(operation)) {
    whole_.wire = counted_.wire();
    whole_.staged_count = whole_.count;
    std::int64_t const element = whole_.element_bytes();
    bool const blocked = gives_blocks(whole_.kind) || takes_blocks(whole_.kind);
    // Where a block's part would be a small message, it is one of 4 KiB.
    std::int64_t const bytes =
        capability::staging_bytes(core.backend) / (blocked ? core.backend.size() : whole_.contributions);
    step_ = (bytes < least_bytes ? least_bytes : bytes) / element;
    if (step_ > 16) step_ -= step_ % 16;
    if (step_ < 1) step_ = 1;
    if (step_ > whole_.count) step_ = whole_.count > 0 ? whole_.count : 1;
    parts_ = whole_.count == 0 ? 1 : (whole_.count - 1) / step_ + 1;
    in_place_ = std::is_same_v<From, To> && whole_.from == whole_.to && !blocked;
    if (core.backend.size() > 1) this->stand_in_line();
    try {
      compare();
      for (int& tag : tags_) tag = core.next_tag();
      static_cast<void>(move_on());
    } catch (...) {
      this->postpone();
    }
  }
  /// Staging memory that a peer may still reach is given up. The caller's memory is safe unless the device has failed,
  /// which then may go on with a copy.
  bool abandon() noexcept override {
    core_.flight_recorder.fail(flight_);
    bool copied = true;
    for (Owner<Part>& part : under_way_) {
      bool safe = part->job == nullptr || part->job->give_up();
      try {
        while (!part->in.done() || !part->out.done()) exec::relax();
      } catch (...) {
        copied = safe = false;
      }
      if (!safe) static_cast<void>(part.release());
    }
    under_way_.clear();
    if (comparison_ && !comparison_->abandon()) static_cast<void>(comparison_.release());
    return copied;
  }
  std::string awaiting() const override {
    if (std::string const text = capability::roll_call(core_.backend, number_); !text.empty()) return text;
    if (comparison_) return comparison_->awaiting();
    if (this->waits_in_line()) return core_.start_queue.awaiting();
    for (Owner<Part> const& part : under_way_)
      if (part->job != nullptr && part->stage == Stage::between_ranks) return part->job->awaiting();
    return "copies between the host and the device";
  }

 protected:
  bool advance() override {
    if (!move_on()) return false;
    core_.flight_recorder.complete(flight_);
    if (counted_.row != nullptr) counted_.complete(asked_bytes(whole_, core_.backend.size()));
    return true;
  }

 private:
  enum class Stage : std::uint8_t { copied_in, between_ranks, copied_out };
  struct Part {
    Part(From const& source, To const& target) : in(source), out(target) {}
    Stage stage = Stage::copied_in;
    std::int64_t number = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::byte* from = nullptr;  // in the memory of one of the two blocks, or nothing
    std::byte* to = nullptr;
    Owner<StagingPool::Block> from_memory;
    Owner<StagingPool::Block> to_memory;
    Copies<From> in;
    Copies<To> out;
    Owner<CollectiveJob<B>> job;
  };
  /// Parts under way: one copied in, one copied out, and two between the ranks, which are seldom all there at once.
  static constexpr int depth = 4;
  static constexpr std::int64_t least_bytes = 4096;
  static constexpr std::int64_t most_kept_bytes = 1 << 20;
  static constexpr std::int64_t block_bytes = 64 << 10;  // so that blocks of small calls serve larger ones too

  void compare() {
    Comparer const by = this->comparer(is_native(way_of_whole(core_.backend, whole_)));
    compares_in_turn_ = by == Comparer::backend_in_turn;
    if (by != Comparer::messages) return;
    comparison_ = make_owner<Comparison<B>>(core_, whole_);
    comparison_->begin();
  }

  std::int64_t blocks_of_from() const noexcept { return comm::blocks_of_from(whole_, core_.backend.size()); }
  std::int64_t blocks_of_to() const noexcept { return comm::blocks_of_to(whole_, core_.backend.size()); }
  /// Whether the call writes to this rank's `to`.
  bool writes() const noexcept {
    int const rank = core_.backend.rank();
    return whole_.to != nullptr && !(whole_.kind == Kind::broadcast && rank == whole_.root) &&
           !(whole_.kind == Kind::exscan && rank == 0);
  }

  /// True when all parts are complete.
  bool move_on() {
    if (comparison_ && comparison_->advance()) comparison_ = nullptr;
    bool const first = !this->is_held_up();
    if (first && compares_in_turn_) {
      compares_in_turn_ = false;
      comparison_ = make_owner<Comparison<B>>(core_, whole_);
    }
    for (bool moves = true; moves;) {
      moves = false;
      // Not before the part whose tag comes round again is complete.
      while (begun_ < parts_ && (under_way_.empty() || begun_ - under_way_.front()->number < depth)) {
        copy_in();
        moves = true;
      }
      for (Owner<Part>& part : under_way_) {
        if (part->stage == Stage::copied_in && first && !comparison_ && part->number == started_ && part->in.done()) {
          start(*part);
          moves = true;
        }
        if (part->stage == Stage::between_ranks && part->job->poll()) {
          copy_out(*part);
          moves = true;
        }
      }
      std::size_t const before = under_way_.size();
      under_way_.erase_if([&](Owner<Part>& part) {
        if (part->stage != Stage::copied_out || !part->out.done()) return false;
        give_back(*part);
        return true;
      });
      moves = moves || under_way_.size() != before;
    }
    if (started_ == parts_) this->leave_line();
    return started_ == parts_ && under_way_.empty() && !comparison_;
  }

  void copy_in() {
    Owner<Part> owned = make_owner<Part>(from_, to_);
    Part& part = *owned;
    part.number = begun_++;
    part.begin = part.number * step_;
    part.count = whole_.count - part.begin < step_ ? whole_.count - part.begin : step_;
    std::int64_t const element = whole_.element_bytes();
    std::int64_t const bytes = part.count * element;
    if (blocks_of_from() != 0) {
      part.from_memory = take(from_, step_ * element * blocks_of_from());
      part.from = part.from_memory->data();
    }
    if (in_place_) {
      part.to = part.from;
    } else if (blocks_of_to() != 0) {
      part.to_memory = take(to_, step_ * element * blocks_of_to());
      part.to = part.to_memory->data();
    }
    under_way_.push_back(std::move(owned));
    for (std::int64_t block = 0; block < blocks_of_from(); ++block)
      part.in.to_host(part.from + block * bytes,
                      static_cast<std::byte const*>(whole_.from) + block * whole_.block_bytes() + part.begin * element,
                      static_cast<std::size_t>(bytes));
  }
  void start(Part& part) {
    Collective call = whole_;
    call.count = part.count;
    call.from = part.from;
    call.to = part.to;
    part.stage = Stage::between_ranks;
    part.job = make_owner<CollectiveJob<B>>(core_, call, PartOf{number_, tags_[started_++ % depth]});
  }
  void copy_out(Part& part) {
    part.stage = Stage::copied_out;
    std::int64_t const element = whole_.element_bytes();
    std::int64_t const bytes = part.count * element;
    for (std::int64_t block = 0; writes() && block < blocks_of_to(); ++block)
      part.out.from_host(static_cast<std::byte*>(whole_.to) + block * whole_.block_bytes() + part.begin * element,
                         part.to + block * bytes, static_cast<std::size_t>(bytes));
  }

  template <Device D>
  Owner<StagingPool::Block> take(D const& device, std::int64_t bytes) {
    auto const wanted = static_cast<std::size_t>(bytes < block_bytes ? block_bytes : bytes);
    return core_.staging.take(device, wanted, [&](std::size_t room) { return heap_memory(core_, room); });
  }
  void give_back(Part& part) {
    std::int64_t const own = capability::staging_bytes(core_.backend);
    auto const most = static_cast<std::size_t>(own < most_kept_bytes ? most_kept_bytes : own);
    if (part.from_memory) core_.staging.give_back(std::move(part.from_memory), most);
    if (part.to_memory) core_.staging.give_back(std::move(part.to_memory), most);
  }

  From from_;
  To to_;
  Collective whole_;
  std::uint64_t number_;
  FlightRecorder::Ticket flight_;
  Tally::Ticket counted_;
  Owner<Comparison<B>> comparison_;
  int tags_[depth] = {};
  bool compares_in_turn_ = false;
  bool in_place_ = false;
  std::int64_t step_ = 1;     // elements of a block in a part
  std::int64_t parts_ = 1;
  std::int64_t begun_ = 0;    // parts, as is the next
  std::int64_t started_ = 0;  // between the ranks
  List<Owner<Part>> under_way_;
};

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Memory that the ranks of one node share: one POSIX shared memory object, mapped by each, with a portion for each
/// rank, from which it allocates without asking the others. Address space is reserved generously; pages are backed
/// before they are used, so that a full /dev/shm is an answer and not a signal, and are huge where the system can make
/// them so: a rank that touches another one's memory for the first time then takes one fault for 512 pages.

#include <tutti/backend/mpi/error.hpp>
#include <tutti/comm/shared/board.hpp>
#include <tutti/comm/shared/holders.hpp>
#include <tutti/comm/shared/remote.hpp>
#include <tutti/comm/shared/space.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/tensor/storage.hpp>

#include <mpi.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tutti::mpi {

class Segment {
 public:
  /// Collective over `node`, whose ranks must be able to share memory. Null, on all ranks, where the system does not
  /// let them; `reason` then says why.
  static Shared<Segment> create(MPI_Comm node, std::string& reason) {
    auto segment = make_shared_owner<Segment>();
    std::string const why = segment->open(node);
    char text[200] = {};
    int rank = 0, size = 1, own = why.empty() ? 0 : 1;
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    int first = own != 0 ? rank : size;
    check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
    if (first == size) return segment;
    std::strncpy(text, why.c_str(), sizeof text - 1);
    check(MPI_Bcast(text, sizeof text, MPI_CHAR, first, node), "MPI_Bcast");
    reason = text;
    return {};
  }

  Segment() = default;
  Segment(Segment const&) = delete;
  Segment& operator=(Segment const&) = delete;
  ~Segment() {
    if (base_ != nullptr) ::munmap(base_, reach_);
    if (file_ >= 0) ::close(file_);
  }

  std::byte* base() const noexcept { return base_; }
  std::uint64_t reach() const noexcept { return reach_; }
  /// This process, for the others.
  comm::shared::Origin origin() const noexcept { return here_.origin(); }
  /// Whether its ranks can read the memory of each other's processes, as they have found out together.
  bool readable() const noexcept { return readable_; }
  void set_readable(bool readable) noexcept { readable_ = readable; }
  /// Fails every communicator on this memory.
  comm::shared::Alarm& alarm() const noexcept { return *reinterpret_cast<comm::shared::Alarm*>(base_); }

  /// From this rank's portion, 64-byte aligned, backed. Null when the system has no pages left.
  std::byte* allocate(std::uint64_t bytes) {
    Guard const guard(mutex_);
    reclaim();
    std::uint64_t const at = space_.allocate(bytes);
    if (at == comm::shared::Space::none) return nullptr;
    if (!back(at + bytes)) {
      space_.release(at, bytes);
      return nullptr;
    }
    return base_ + portion_ + at;
  }
  void release(std::byte* memory, std::uint64_t bytes) noexcept {
    Guard const guard(mutex_);
    give_back(memory, bytes);
  }
  /// Gives back a board that others may still look at, once none of them touches it any more.
  void retire(comm::shared::Board board, std::byte* memory, std::uint64_t bytes) {
    Guard const guard(mutex_);
    retired_.push_back({board, nullptr, nullptr, memory, bytes});
  }
  /// The same of a block that others may still hold.
  void retire(comm::shared::Holders const* holders, std::byte* memory, std::uint64_t bytes) {
    Guard const guard(mutex_);
    retired_.push_back({{}, holders, nullptr, memory, bytes});
  }
  /// The same of a message that its receiver may still hold, and does not once `held` is 0.
  void retire(std::atomic<std::uint32_t> const& held, std::byte* memory, std::uint64_t bytes) {
    Guard const guard(mutex_);
    retired_.push_back({{}, nullptr, &held, memory, bytes});
  }

 private:
  struct Retired {
    comm::shared::Board board;
    comm::shared::Holders const* holders = nullptr;    ///< of a block
    std::atomic<std::uint32_t> const* held = nullptr;  ///< of a message
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;

    bool unused() const {
      if (holders != nullptr) return holders->none();
      if (held != nullptr) return held->load(std::memory_order_acquire) == 0;
      return board.all_detached();
    }
  };
  static constexpr std::uint64_t page = 4096;
  static constexpr std::uint64_t step = std::uint64_t{2} << 20;  // a huge page of x86-64 and of most others
  static constexpr std::uint64_t header = step;                  // of which only the alarm's pages are backed

  /// Empty when this rank has the memory, else why not. Every rank takes part in all exchanges.
  std::string open(MPI_Comm node) {
    int rank = 0, size = 1;
    check(MPI_Comm_rank(node, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(node, &size), "MPI_Comm_size");
    std::uint64_t portion =
        static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::uint64_t most = (std::uint64_t{1} << 44) / static_cast<std::uint64_t>(size);
    std::uint64_t longest = ~std::uint64_t{0};  // file: beyond it is a signal
    if (rlimit limit{}; ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      longest = limit.rlim_cur;
      std::uint64_t const files = longest > header ? longest - header : 0;
      most = files / static_cast<std::uint64_t>(size) < most ? files / static_cast<std::uint64_t>(size) : most;
    }
    portion = (portion < most ? portion : most) / step * step;
    reach_ = header + portion * static_cast<std::uint64_t>(size);
    check(MPI_Bcast(&reach_, sizeof reach_, MPI_BYTE, 0, node), "MPI_Bcast");
    portion = (reach_ - header) / static_cast<std::uint64_t>(size);
    portion_ = header + portion * static_cast<std::uint64_t>(rank);
    portion_size_ = portion;
    space_ = comm::shared::Space(portion);

    char name[64] = {};
    std::string why;
    if (rank == 0) {
      timespec now{};
      ::clock_gettime(CLOCK_REALTIME, &now);
      for (int attempt = 0; attempt < 16 && file_ < 0; ++attempt) {
        std::snprintf(name, sizeof name, "/tutti-%d-%lld-%d", static_cast<int>(::getpid()),
                      static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec, attempt);
        file_ = ::shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (file_ < 0 && errno != EEXIST) break;
      }
      if (file_ < 0) why = native("shm_open");
      else if (reach_ > longest) why = "files may be " + std::to_string(longest) + " bytes long";
      else if (::ftruncate(file_, static_cast<off_t>(reach_)) != 0) why = native("ftruncate");
      else if (!allocate_pages(0, sizeof(comm::shared::Alarm))) why = "no space in /dev/shm";
      if (!why.empty() && file_ >= 0) ::shm_unlink(name);
      if (!why.empty()) name[0] = 0;
    }
    check(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, node), "MPI_Bcast");
    if (name[0] != 0) {
      if (rank != 0) file_ = ::shm_open(name, O_RDWR | O_CLOEXEC, 0600);
      if (file_ < 0) {
        why = native("shm_open");
      } else {
        map();
        if (base_ == nullptr) why = native("mmap");
      }
      if (rank == 0 && base_ != nullptr) ::new (base_) comm::shared::Alarm();
      check(MPI_Barrier(node), "MPI_Barrier");
      if (rank == 0) ::shm_unlink(name);  // all that could open it have: nothing is left behind, whoever is killed
    } else if (rank != 0) {
      why = "the node's first rank could not create it";
    }
    return rank != 0 && name[0] == 0 ? std::string() : why;  // the first rank tells the reason
  }
  static std::string native(char const* call) { return std::string(call) + ": " + std::strerror(errno); }

  /// Maps the object where huge pages of it can be huge pages of the process.
  void map() {
    void* const reserved =
        ::mmap(nullptr, reach_ + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return;
    auto* const begin = static_cast<std::byte*>(reserved);
    std::uint64_t const before = (step - reinterpret_cast<std::uintptr_t>(begin) % step) % step;
    void* const memory = ::mmap(begin + before, reach_, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file_, 0);
    if (memory == MAP_FAILED) return;  // and the addresses with it: what is reserved there is not known
    if (before != 0) ::munmap(begin, before);
    ::munmap(begin + before + reach_, step - before);
    base_ = begin + before;
  }

  bool allocate_pages(std::uint64_t from, std::uint64_t bytes) const noexcept {
    int code;
    do code = ::posix_fallocate(file_, static_cast<off_t>(from), static_cast<off_t>(bytes));
    while (code == EINTR);
    return code == 0;
  }
  /// Huge pages for whole steps, as far as the system makes them: of each its first page, which is then collapsed with
  /// the holes behind it. Linux 6.1 does that unless huge pages of shared memory are denied. That page is written
  /// first: where the mount makes it huge by itself, nobody else clears it before a peer does, over what this rank has
  /// written.
  void make_huge(std::uint64_t from, std::uint64_t bytes) const noexcept {
#if defined(MADV_COLLAPSE)
    constexpr int collapse = MADV_COLLAPSE;
#else
    constexpr int collapse = 25;
#endif
    if (from % step != 0 || bytes % step != 0) return;
    for (std::uint64_t at = from; at < from + bytes; at += step) {
      if (!allocate_pages(at, page)) return;
      *const_cast<std::byte volatile*>(base_ + at) = std::byte{0};
    }
    ::madvise(base_ + from, bytes, collapse);
  }
  /// Pages for everything below `high` of this rank's portion.
  bool back(std::uint64_t high) {
    if (high <= backed_) return true;
    std::uint64_t end = (high + step - 1) / step * step;
    if (end > portion_size_) end = portion_size_;
    make_huge(portion_ + backed_, end - backed_);
    if (!allocate_pages(portion_ + backed_, end - backed_)) {  // what is not huge
      ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(portion_ + backed_),
                  static_cast<off_t>(end - backed_));
      end = (high + page - 1) / page * page;  // the last pages that there are
      if (!allocate_pages(portion_ + backed_, end - backed_)) return false;
    }
    backed_ = end;
    return true;
  }
  void give_back(std::byte* memory, std::uint64_t bytes) noexcept {
    space_.release(static_cast<std::uint64_t>(memory - base_) - portion_, bytes);
  }
  void reclaim() {
    retired_.erase_if([&](Retired const& one) {
      if (!one.unused()) return false;
      give_back(one.memory, one.bytes);
      return true;
    });
  }

  int file_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t reach_ = 0;
  std::uint64_t portion_ = 0;  // of this rank: offset and size
  std::uint64_t portion_size_ = 0;
  std::uint64_t backed_ = 0;
  Mutex mutex_;  // tensors are freed by any thread
  comm::shared::Space space_;
  List<Retired> retired_;
  comm::shared::OwnOrigin here_;
  bool readable_ = false;
};

}  // namespace tutti::mpi

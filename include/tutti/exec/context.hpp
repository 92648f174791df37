// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a rank computes with: its thread team and instruction set. Passed explicitly; nothing is global.

#include <tutti/core/concat.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/isa.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/exec/scratch.hpp>
#include <tutti/exec/team.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::exec {

struct ContextOptions {
  int threads = 0;        ///< 0: as many as the process may use, divided by `ranks_on_node`
  int ranks_on_node = 1;  ///< ranks that share this node's processors
  Isa isa = isa_from_environment();
};

/// Not copyable; one per rank, used by one thread at a time.
class Context {
 public:
  template <class = void>
  explicit Context(ContextOptions options = {})
      : isa_(checked(options.isa)),
        team_(threads_of(options), policy_of(threads_of(options), options.ranks_on_node)),
        scratch_(static_cast<std::size_t>(team_.size())) {}

  int threads() const noexcept { return team_.size(); }
  Isa isa() const noexcept { return isa_; }

  /// f(thread) on every thread of the team; returns when all are done.
  template <class F>
  void parallel(F&& f) {
    team_.run(f);
  }
  /// Inside `parallel`: a barrier of the whole team.
  void barrier() noexcept { team_.barrier(); }

  /// f(begin, end) on contiguous parts of [0, count), one part a thread, bounds at multiples of `grain`. Work of at
  /// most one grain, and empty work, stays on the caller. The split depends on count, grain and the number of threads
  /// alone.
  template <class F>
  void parallel_for(std::int64_t count, std::int64_t grain, F&& f) {
    if (count <= 0) return;
    grain = std::max<std::int64_t>(grain, 1);
    std::int64_t const grains = count / grain + (count % grain != 0);
    std::int64_t const parts = std::min<std::int64_t>(threads(), grains);
    if (parts == 1) {
      f(std::int64_t{0}, count);
      return;
    }
    team_.run([&](int thread) {
      if (thread >= parts) return;
      std::int64_t const begin = grains / parts * thread + std::min<std::int64_t>(thread, grains % parts);
      std::int64_t const end = begin + grains / parts + (thread < grains % parts);
      f(begin * grain, end == grains ? count : end * grain);
    });
  }

  /// Working memory of one thread of the team for the kernel that runs now: at least `bytes`, aligned to 64, contents
  /// undefined. Valid until the next call for that thread. Errors: out_of_memory.
  template <class = void>
  void* scratch(int thread, std::size_t bytes) { return scratch_[static_cast<std::size_t>(thread)].reserve(bytes); }

 private:
  template <class = void>
  static Isa checked(Isa isa) {
    if (available(isa)) return isa;
    throw Error(ErrorKind::unavailable, "Context", concat("this processor cannot run ", name(isa)));
  }
  template <class = void>
  static int threads_of(ContextOptions const& options) {
    if (options.threads < 0)
      throw Error(
          ErrorKind::invalid_argument, "Context",
          concat(options.threads, " threads are impossible. Use 0 for as many as the process may use"));
    if (options.threads > 0) return options.threads;
    return std::max(1, available_processors() / std::max(1, options.ranks_on_node));
  }
  template <class = void>
  static WaitPolicy policy_of(int threads, int ranks_on_node) {
    WaitPolicy policy;
    if (threads * std::max(1, ranks_on_node) > available_processors()) policy.spins = 0;
    return policy;
  }

  Isa isa_;
  Team team_;
  Array<Scratch> scratch_;
};

}  // namespace tutti::exec

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Every crew's ranks on the same processors, one each while there are enough. Left to the system, two ranks of one
/// crew share a processor as soon as anything else runs, and launchers differ in what they bind.

#include <sched.h>

namespace tutti::bench {

/// What the process may use, as it was when this was first called: before anything is bound.
inline cpu_set_t const& processors_at_start() {
  static cpu_set_t const mask = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  return mask;
}

/// Binds the calling thread. To be called when the rank has its communicator, which looks at the processors itself.
inline void bind_rank(int rank, int ranks) {
  cpu_set_t const& all = processors_at_start();
  if (ranks > CPU_COUNT(&all)) return;
  for (int processor = 0, seen = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(static_cast<unsigned>(processor), &all) && seen++ == rank) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<unsigned>(processor), &one);
      ::sched_setaffinity(0, sizeof(one), &one);
      return;
    }
}
/// A thread that starts others has its creator's processor taken off it.
inline void unbind() { ::sched_setaffinity(0, sizeof(cpu_set_t), &processors_at_start()); }

}  // namespace tutti::bench

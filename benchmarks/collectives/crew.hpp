// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A crew: ranks that carry out commands together and sleep in between, so that crews of threads, of processes and of
/// another MPI library can take turns on the same processors.

#include "round.hpp"
#include "verify.hpp"

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

namespace tutti::bench {

class Crew {
 public:
  Crew() = default;
  Crew(Crew const&) = delete;
  Crew& operator=(Crew const&) = delete;
  virtual ~Crew() = default;
  /// Called by one thread of one process; blocks until every rank is done.
  virtual Result run(Command const& command) = 0;
};

/// A rank's contenders by name.
using Find = std::function<Call(Contender, Case const&)>;

inline void sleep_us(long us) {
  timespec const time{us / 1'000'000, us % 1'000'000 * 1000};
  ::nanosleep(&time, nullptr);
}

/// A barrier has no result: it is right when nobody leaves before the last one, who is late on purpose, has come.
template <class Team>
std::int64_t barrier_wrong(Team& team, Call const& call, int rank) {
  team.sync();
  sleep_us(500L * rank);
  double const entered = now();
  call({});
  double const left = now();
  return left < team.max(entered);
}

/// A command on one rank. The result counts on rank 0.
template <class Team>
Result execute(Team& team, int rank, Arena& arena, Find const& find, Command const& command) {
  Result result;
  if (command.action == Action::prepare) {
    arena.prepare(command.what);
    team.sync();
    return result;
  }
  Call const call = find(command.contender, command.what);
  result.exists = static_cast<bool>(call);
  if (!result.exists) return result;
  if (command.action == Action::verify) {
    std::int64_t wrong = 0;
    if (command.what.collective == Collective::barrier) {
      wrong = barrier_wrong(team, call, rank);
    } else {
      Slot const slot = arena.next(command.what);
      Operands where = operands(command.what, slot, rank);
      // MPI's in-place reduce-scatter leaves its result at the beginning of the buffer.
      bool const scatters = command.what.collective == Collective::reduce_scatter ||
                            command.what.collective == Collective::reduce_scatter_v;
      if (command.contender == Contender::raw && scatters && command.what.in_place)
        where.to = where.from;
      fill(command.what, where, rank);
      team.sync();
      call(slot);
      team.sync();  // nobody's memory changes while a slower rank may still read it
      wrong = count_wrong(command.what, where, rank);
    }
    result.wrong = team.sum(wrong);
    return result;
  }
  result.plan = command.plan;
  result.seconds = measure(team, arena, call, command.what, result.plan);
  team.slowest(result.seconds);
  return result;
}

}  // namespace tutti::bench

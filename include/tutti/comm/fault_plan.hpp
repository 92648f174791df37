// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `FaultPlan`: which operations of which rank go wrong, and how, see comm/fault_injector.hpp.

#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/list.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

enum class Fault : std::uint8_t {
  none,
  delay,    ///< the rank stalls before the operation is started
  drop,     ///< the operation is never started, nor what would slip into its place: see FaultInjector
  kill,     ///< the rank throws an Error, here and at whatever it starts or tests afterwards; or dies of SIGKILL
  corrupt,  ///< one bit of what is sent is flipped; an operation that sends nothing stays as it is
};

constexpr std::string_view name(Fault fault) noexcept {
  switch (fault) {
    case Fault::none: return "none";
    case Fault::delay: return "delay";
    case Fault::drop: return "drop";
    case Fault::kill: return "kill";
    case Fault::corrupt: return "corrupt";
  }
  return "unknown";
}

struct PlannedFault {
  int rank = 0;
  std::int64_t operation = 0;  ///< of this rank, from 0, in the order in which it starts them
  Fault fault = Fault::none;
  friend bool operator==(PlannedFault const&, PlannedFault const&) = default;
};

/// Which operations of which rank go wrong: a function of the seed, the rank and the operation's number alone.
struct FaultPlan {
  std::uint64_t seed = 0;
  /// Probability of each for every operation; their sum is at most 1.
  double delay = 0;
  double drop = 0;
  double kill = 0;
  double corrupt = 0;
  List<PlannedFault> faults;     ///< beside them, and before them
  double delay_seconds = 0.001;  ///< how long a delay takes
  bool kill_process = false;     ///< kill raises SIGKILL: for ranks that are processes

  Fault at(int rank, std::int64_t operation) const noexcept {
    for (PlannedFault const& planned : faults)
      if (planned.rank == rank && planned.operation == operation) return planned.fault;
    double chance = static_cast<double>(random(rank, operation, 0) >> 11) * 0x1p-53;
    chance -= delay;
    if (chance < 0) return Fault::delay;
    chance -= drop;
    if (chance < 0) return Fault::drop;
    chance -= kill;
    if (chance < 0) return Fault::kill;
    return chance - corrupt < 0 ? Fault::corrupt : Fault::none;
  }
  /// Errors     invalid_argument.
  void check() const {
    for (double const chance : {delay, drop, kill, corrupt, delay + drop + kill + corrupt})
      if (!(chance >= 0 && chance <= 1))
        throw Error(ErrorKind::invalid_argument, "FaultPlan",
                    "a probability, or the sum of them, is " + std::to_string(chance) + ". Keep it between 0 and 1");
    if (!(delay_seconds >= 0 && delay_seconds < 1e6))
      throw Error(ErrorKind::invalid_argument, "FaultPlan",
                  "delay_seconds is " + std::to_string(delay_seconds) + ". Give a time from 0 to a million seconds");
  }
  std::uint64_t random(int rank, std::int64_t operation, std::uint64_t purpose) const noexcept {
    std::uint64_t const key[] = {static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(operation), purpose};
    return hash_bytes(std::as_bytes(std::span(key)), seed);
  }
};

}  // namespace tutti

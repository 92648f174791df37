// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a federated run is, and the rules by which its shepherd decides.

#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>
#include <tutti/parallel/outer_gradient.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::federate {

/// Time since a moment that stays the same within a process. The state machines are told it and never ask.
using Instant = std::chrono::nanoseconds;

constexpr Instant seconds(double value) noexcept { return Instant(static_cast<std::int64_t>(value * 1e9)); }
constexpr double in_seconds(Instant time) noexcept { return static_cast<double>(time.count()) * 1e-9; }

/// Sizes that the shepherd and its workers must agree on; every message is measured against them.
struct Facts {
  std::uint64_t run = 0;        ///< tells one run from another; the same after a restart of its shepherd
  std::int64_t parameters = 0;  ///< float32 numbers of the model
  /// Their number in each fragment that is averaged at times of its own, one behind another; empty: all at once.
  std::vector<std::int64_t> fragments{};
  /// With fragments: the share of a worker's own parameters when it takes over what all agree on.
  double mix = 0.5;
  parallel::OuterBits bits = parallel::OuterBits::float32;  ///< of outer gradients on their way to the shepherd
  std::int64_t batch = 1;                                   ///< samples of an inner step
  std::int64_t sequence = 1;                                ///< tokens of a sample
  std::int64_t samples = 0;  ///< of the whole run: numbers 0 to samples - 1, each learned from once
  std::string program;       ///< what a worker builds its step from; the state machines do not read it

  bool streams() const noexcept { return !fragments.empty(); }
  int fragment_count() const noexcept { return streams() ? static_cast<int>(fragments.size()) : 1; }
  /// The fragment that round `round` is about, the place of its first parameter, and how many it has.
  int fragment_of(std::int64_t round) const noexcept { return static_cast<int>(round % fragment_count()); }
  std::int64_t first_of(std::int64_t round) const noexcept {
    std::int64_t first = 0;
    for (int f = 0; f < fragment_of(round); ++f) first += fragments[static_cast<std::size_t>(f)];
    return first;
  }
  std::int64_t size_of(std::int64_t round) const noexcept {
    return streams() ? fragments[static_cast<std::size_t>(fragment_of(round))] : parameters;
  }
  /// Of a round's outer gradient on its way, and of all parameters on theirs.
  std::int64_t gradient_bytes(std::int64_t round) const noexcept {
    return parallel::encoded_bytes(bits, size_of(round));
  }
  std::int64_t parameter_bytes() const noexcept { return 4 * parameters; }
};

/// Refuses what cannot be. Errors: configuration.
inline void validate(Facts const& facts) {
  auto const refuse = [](std::string const& what) { throw Error(ErrorKind::configuration, "federate", what); };
  if (facts.parameters < 1 || facts.parameters > std::int64_t{1} << 40)
    refuse("a model of " + std::to_string(facts.parameters) + " parameters cannot be trained");
  if (facts.streams()) {
    std::int64_t together = 0;
    for (std::int64_t const size : facts.fragments) {
      if (size < 1 || size > facts.parameters - together) refuse("fragments that are not the parameters");
      together += size;
    }
    if (together != facts.parameters || facts.fragments.size() > 4096) refuse("fragments that are not the parameters");
    if (!(facts.mix >= 0 && facts.mix <= 1)) refuse("the mix of own and common parameters must be from 0 to 1");
  }
  if (facts.batch < 1 || facts.sequence < 1) refuse("batch and sequence must be at least 1");
  if (facts.samples < facts.batch || facts.samples % facts.batch != 0)
    refuse("a run of " + std::to_string(facts.samples) + " samples is not a multiple of the batch of " +
           std::to_string(facts.batch) + ". Choose another number of steps");
  static_cast<void>(checked_multiply(facts.samples, facts.sequence));
}

/// The shepherd's rules. Fractions are of 1.
/// Source    heartbeats, quorum, grace: the report of INTELLECT-1 (arXiv 2412.01152) and Decoupled DiLoCo (2604.21428);
/// the defaults are ours.
struct Policy {
  std::int64_t workers = 1;              ///< to wait for before the first round
  std::int64_t inner_steps = 30;         ///< of a worker in a round, on average over workers
  double slowest = 0.25, fastest = 4.0;  ///< bounds of a worker's steps, as multiples of inner_steps
  double quorum = 0.5;                   ///< of those that work on a round: from then on the others get a grace window
  double grace = 0;            ///< seconds, from the quorum or from when the round should be done, which is later; 0:
                               ///< half of the time that the quorum took, at least one heartbeat
  std::int64_t staleness = 1;  ///< rounds by which a contribution may be late; 0, and with fragments, refuses late ones
  double discount = 0.5;       ///< weight of a late contribution, for every round that it is late
  double norm_limit = 10;      ///< times the round's median norm; a longer contribution is refused. 0: no limit
  double trim = 0;             ///< share of the values of each parameter that is left out at either end
  std::int64_t refusals = 3;   ///< in a row, through its own fault, until a worker is sent away
  /// A relay: its samples are lent to it, by another shepherd (ShepherdCore::lend), and all of them are no run's end.
  bool relays = false;
  Instant heartbeat = seconds(2);
  Instant lost_after = seconds(10);
  std::int64_t chunk_bytes = std::int64_t{1} << 20;
  std::int64_t window = 4;  ///< chunks that are asked for and not yet there, for each transfer
};

/// The rules by which a relay deals out what is lent to it: all at once, by speed alone, and waiting for everybody,
/// since the grace window of the shepherd above it is for the group.
inline Policy of_relay(Policy policy) {
  policy.relays = true;
  policy.quorum = 1;
  policy.staleness = 0;
  policy.slowest = 1e-6, policy.fastest = 64;
  return policy;
}

/// Errors: configuration, by the name of the flag.
inline void validate(Policy const& p) {
  auto const require = [](bool holds, char const* flag, char const* what) {
    if (!holds) throw Error(ErrorKind::configuration, "federate", std::string("--") + flag + " must be " + what);
  };
  require(p.workers >= 1 && p.workers <= 4096, "workers", "between 1 and 4096");
  require(p.inner_steps >= 1 && p.inner_steps <= 1'000'000, "inner-steps", "between 1 and 1000000");
  require(p.slowest > 0 && p.slowest <= 1 && p.fastest >= 1 && p.fastest <= 64, "pace", "(0, 1] and [1, 64]");
  require(p.quorum > 0 && p.quorum <= 1, "quorum", "above 0 and at most 1");
  require(p.grace >= 0 && p.grace <= 86400, "grace", "between 0 and 86400 seconds");
  require(p.staleness >= 0 && p.staleness <= 100, "staleness", "between 0 and 100 rounds");
  require(p.discount > 0 && p.discount <= 1, "discount", "above 0 and at most 1");
  require(p.norm_limit == 0 || (p.norm_limit > 1 && p.norm_limit <= 1e6), "norm-limit", "0, or above 1");
  require(p.trim >= 0 && p.trim < 0.5, "trim", "at least 0 and below 0.5");
  require(p.refusals >= 1 && p.refusals <= 1000, "refusals", "between 1 and 1000");
  require(p.heartbeat >= seconds(0.01) && p.heartbeat <= seconds(3600), "heartbeat", "between 0.01 and 3600 seconds");
  require(p.lost_after >= 2 * p.heartbeat && p.lost_after <= seconds(86400), "lost-after",
          "at least two heartbeats, and at most a day");
  require(p.chunk_bytes >= 4 && p.chunk_bytes <= (std::int64_t{1} << 26), "chunk", "between 4 bytes and 64 MiB");
  require(p.window >= 1 && p.window <= 1024, "window", "between 1 and 1024");
}

}  // namespace tutti::federate

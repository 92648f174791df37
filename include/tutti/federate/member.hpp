// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd knows of a worker.

#include <tutti/federate/assembly.hpp>
#include <tutti/federate/message.hpp>
#include <tutti/federate/outer_moves.hpp>
#include <tutti/federate/pacing.hpp>
#include <tutti/federate/policy.hpp>
#include <tutti/federate/shepherd_actions.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tutti::federate {

struct Member {
  std::optional<PeerId> peer;  ///< none while its connection is lost, and it is not yet
  WorkerState state = WorkerState::joining;
  Instant heard{0};
  Instant assigned{0};
  bool ready = false, leaving = false;
  std::uint64_t lease = 0;    ///< that it has yet to deliver
  std::uint64_t next = 0;     ///< with fragments: the one after it
  bool synchronised = false;  ///< with fragments: it has the parameters, and hears how they move
  std::shared_ptr<Whole const> whole{};  ///< with fragments: the parameters that it fetches
  std::int64_t step = 0;      ///< inner steps of it, as last heard
  std::string device;
  double cpu = -1;
  std::int64_t memory = -1;
  std::int64_t done = -1;     ///< the round that it has delivered for
  std::int64_t refusals = 0;  ///< in a row
  Pace pace;
  Settled settled;  ///< the latest, should it not have heard of it
  Offer offer;
  std::optional<Assembly> incoming;  ///< of the offer

  /// Whether it can be given work in `round`.
  bool idle(std::int64_t round) const noexcept { return ready && !leaving && peer && lease == 0 && done != round; }
  /// With fragments: whether it can be given leases.
  bool usable() const noexcept { return ready && synchronised && !leaving && peer; }
};

/// Why a shepherd does not take part with one who greets so, or nothing.
inline std::string objection_to(Hello const& hello, Facts const& facts) {
  if (hello.version != protocol_version)
    return "it speaks version " + std::to_string(hello.version) + " of the protocol, this shepherd " +
           std::to_string(protocol_version) + ". Use programs of one release";
  if (hello.worker == 0) return "it has no number";
  if (hello.run != 0 && hello.run != facts.run)
    return "it belongs to another run. Start it again to take part in this one";
  return {};
}

inline Welcome welcome_of(Facts const& facts, Policy const& policy) {
  return {facts.run,    facts.parameters,   facts.batch,   facts.sequence,           facts.samples,
          facts.bits,   policy.chunk_bytes, policy.window, policy.heartbeat.count(), policy.lost_after.count(),
          facts.program, facts.fragments,   facts.mix};
}

}  // namespace tutti::federate

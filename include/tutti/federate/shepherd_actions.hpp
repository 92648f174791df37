// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a ShepherdCore works on and through: the model that it moves, and what it asks of the world around it.

#include <tutti/core/hash.hpp>
#include <tutti/federate/history.hpp>
#include <tutti/federate/message.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace tutti::federate {

/// A connection, for as long as it lasts. Numbers are never used again.
using PeerId = std::uint64_t;

/// The parameters that all agree on, and the outer optimizer. One flat vector each.
class OuterModel {
 public:
  OuterModel() = default;
  OuterModel(OuterModel const&) = delete;
  OuterModel& operator=(OuterModel const&) = delete;
  virtual ~OuterModel() = default;
  /// Valid as long as the model; written by `step` and by who restores a snapshot.
  virtual std::span<float> parameters() = 0;
  virtual std::span<float> momentum() = 0;
  /// Of one fragment, or of fragment 0, which is everything where all parameters are averaged at once.
  virtual void step(int fragment, std::span<float const> outer_gradient) = 0;

  /// Of a snapshot.
  std::uint64_t checksum() { return hash_bytes(std::as_bytes(momentum()), hash_bytes(std::as_bytes(parameters()))); }
};

/// Samples of a run that are learned from before and after something.
struct Learned {
  std::int64_t before = 0, after = 0;
};

/// What came of a round, for people.
struct RoundReport {
  std::int64_t round = 0;      ///< outer steps done with it
  std::int64_t committed = 0;  ///< samples, of the whole run
  std::int64_t samples = 0;    ///< of this round
  double loss = 0;             ///< mean over the inner steps, by samples
  int workers = 0;             ///< whose contributions are in
  int late = 0;                ///< of them, from an earlier round
  int members = 0;             ///< that are connected
  int trainers = 0;            ///< that train: of a relay those behind it
  double seconds = 0;
  double training = 0;         ///< seconds of inner steps, of all whose contributions are in
};

/// How far the open round is.
struct RoundProgress {
  std::int64_t delivered = 0;  ///< contributions that wait for it to close
  std::int64_t working = 0;    ///< workers that have yet to deliver
  std::int64_t quorum = 0;     ///< contributions, from which on the others get a grace window
};

enum class WorkerEvent : unsigned char { joined, ready, left, lost, refused, late, expelled };
constexpr char const* name(WorkerEvent event) noexcept {
  constexpr char const* names[] = {"joined", "ready", "left", "lost", "refused", "late", "expelled"};
  return names[static_cast<int>(event)];
}

/// Called by a ShepherdCore, in the order in which things must happen. None of them may call the core. What one throws
/// leaves the core unfit for anything but its end; the log tells how to go on.
class ShepherdActions {
 public:
  ShepherdActions() = default;
  ShepherdActions(ShepherdActions const&) = delete;
  ShepherdActions& operator=(ShepherdActions const&) = delete;
  virtual ~ShepherdActions() = default;
  /// Borrowed: what the message refers to is valid during the call.
  virtual void send(PeerId peer, Message const& message) = 0;
  /// Once what was sent is gone. No more events of this peer are expected, nor do they matter.
  virtual void close(PeerId peer) = 0;
  /// `durable`: with everything before it, before the call returns.
  virtual void append(Record const& record, bool durable) = 0;
  /// Keeps the model's parameters and momentum as those after `rounds` outer steps, durably. A record with their
  /// checksum follows; until it is there, the snapshot before this one must stay.
  virtual void save(std::int64_t rounds) = 0;
  virtual void closed(RoundReport const&) {}
  virtual void told(WorkerEvent, std::uint64_t /*worker*/, std::string const& /*why*/) {}
};

}  // namespace tutti::federate

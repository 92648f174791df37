// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd and a worker say to each other, as plain values. protocol.capnp is the same for the wire.
///
/// Whoever wants bytes asks for them, a few chunks ahead: the sender of a tensor remembers nothing, and after a lost
/// connection the receiver asks on where it was.

#include <tutti/federate/ledger.hpp>
#include <tutti/parallel/outer_gradient.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tutti::federate {

inline constexpr std::uint32_t protocol_version = 3;
/// The reason of a Bye when there is nothing more to learn.
inline constexpr char run_complete[] = "the run is complete";
/// In Ask::of: what is asked for is the outer step to round `of` without it.
inline constexpr std::uint64_t of_move = std::uint64_t{1} << 63;

enum class WorkerState : unsigned char { joining, compiling, fetching, training, sending, draining, lost };
inline constexpr int worker_states = 7;
constexpr char const* name(WorkerState state) noexcept {
  constexpr char const* names[] = {"joining", "compiling", "fetching", "training", "sending", "draining", "lost"};
  return names[static_cast<int>(state)];
}

// ---- Of a worker ----

/// The first message of every connection: everything that the shepherd may have forgotten.
struct Hello {
  std::uint32_t version = protocol_version;
  std::uint64_t worker = 0;  ///< chosen at random by the process, never 0
  std::uint64_t run = 0;     ///< 0 for a worker that was welcomed by none
  std::uint64_t lease = 0;   ///< what it works on, or has to deliver; 0: nothing
  bool ready = false;        ///< whether its program is built
  double speed = 0;          ///< inner steps a second, as measured
  std::string device{};      ///< what it computes with, for people
  std::uint64_t newest = 0;   ///< with fragments: the last of the leases that it has, of which `lease` is the first
  std::int64_t held = -1;     ///< with fragments: outer steps that are in its parameters; -1: it has none
};
struct Ready {
  double speed = 0;
  std::int64_t held = -1;  ///< with fragments: as in Hello; it is told again once parameters were fetched
};
struct Heartbeat {
  WorkerState state = WorkerState::joining;
  std::int64_t step = 0;  ///< inner steps done of the present lease
  double cpu = -1;        ///< processors busy with it; negative: not known, as the next
  std::int64_t memory = -1;
  std::int64_t workers = 1;  ///< that train: those behind a relay
};
/// Asks for a part of a tensor: of the parameters of round `of`, of an outer step, or of the contribution of lease
/// `of`.
struct Ask {
  std::uint64_t of = 0;
  std::int64_t offset = 0, bytes = 0;
};
/// A contribution is there to be asked for.
struct Offer {
  std::uint64_t lease = 0;
  std::int64_t round = 0;    ///< whose parameters it began from
  std::int64_t samples = 0;  ///< learned from: the first so many of the lease
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< hash_bytes of all
  double seconds = 0;          ///< of its inner steps
  double loss = 0;             ///< mean over its inner steps
  bool last = false;           ///< with fragments: the worker leaves, and begins with no other lease
};
/// Goes, and keeps nothing that it would have to deliver. The reason is empty when it was asked to go.
struct Leave {
  std::string reason;
};

// ---- Of the shepherd ----

struct Welcome {
  std::uint64_t run = 0;
  std::int64_t parameters = 0, batch = 0, sequence = 0, samples = 0;
  parallel::OuterBits bits = parallel::OuterBits::float32;
  std::int64_t chunk_bytes = 0, window = 0, heartbeat_ns = 0, lost_after_ns = 0;
  std::string program;
  std::vector<std::int64_t> fragments{};
  double mix = 0.5;
};
/// Train from the parameters of `round` on the samples of `ranges`, in their order. With fragments: from what the lease
/// before it came to; the checksum is 0 then.
struct Assign {
  std::uint64_t lease = 0;
  std::int64_t round = 0;
  std::vector<Range> ranges;
  std::uint64_t checksum = 0;       ///< of the parameters
  std::int64_t begin = 0, end = 0;  ///< samples of the run that are learned from before and after this round
};
/// With fragments: outer step number `round`, counted from 1, is there to be asked for; or `whole`: the worker forgets
/// its leases, and asks for all parameters after so many outer steps.
struct Moved {
  std::int64_t round = 0;
  bool whole = false;
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;
};
/// What became of a contribution: part of an outer step, or not, and why.
struct Settled {
  std::uint64_t lease = 0;
  bool accepted = false;
  std::string reason;
};
/// The connection ends. A worker comes again only when it is told to.
struct Bye {
  bool again = false;
  bool failed = false;
  std::string reason;
};

// ---- Of both ----

/// Bytes of a tensor, borrowed: they are valid for the call that hands them over.
struct Chunk {
  std::uint64_t of = 0;
  std::int64_t offset = 0;
  std::uint64_t checksum = 0;
  std::span<std::byte const> bytes;
};

using Message = std::variant<Hello, Ready, Heartbeat, Ask, Offer, Leave, Welcome, Assign, Moved, Settled, Bye, Chunk>;

}  // namespace tutti::federate

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd does where fragments of the model are averaged at times of their own, so that nobody waits for what
/// is on its way.
///
/// Round r is about one fragment, number r modulo their count, and as many inner steps as the count divides those of
/// a round of all parameters by. A worker has the lease of the next round before it is done with that of the present
/// one, and goes on at once: its outer gradient travels meanwhile, and what became of it comes back before the worker
/// is done with the next lease. There it is merged, so what is learned does not depend on how long messages take.
///   synchronised  the worker has the parameters, and hears of every outer step: it can be given leases
///   started anew  it is late, or was refused, or comes back after its leases went to others: all that it has is
///                 returned, and it fetches the parameters whole

#include <tutti/federate/shepherd_core.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::federate {

inline void ShepherdCore::return_leases(Member& member, std::string const& why) {
  for (std::uint64_t* const lease : {&member.lease, &member.next})
    if (std::uint64_t const id = std::exchange(*lease, 0); id != 0) note(Returned{id, why}, false);
  member.incoming.reset();
}

inline void ShepherdCore::send_whole(Member& member) {
  if (!member.whole) member.whole = moves_.whole(model_.parameters(), round());
  if (!member.peer) return;
  actions_.send(*member.peer, Moved{member.whole->round, true, facts_.parameter_bytes(), member.whole->checksum});
  send_moves(member, member.whole->round);
}

inline void ShepherdCore::send_moves(Member& member, std::int64_t version) {
  if (!moves_.reach(version, round())) return;
  for (std::int64_t next = version + 1; next <= round(); ++next) {
    auto const& move = *moves_.find(next);
    actions_.send(*member.peer, Moved{next, false, static_cast<std::int64_t>(move.bytes.size()), move.checksum});
  }
}

inline void ShepherdCore::start_anew(Member& member, std::string const& why) {
  return_leases(member, why);
  member.synchronised = false;
  member.whole.reset();
  if (member.ready) send_whole(member);
}

inline void ShepherdCore::synchronise(Member& member, std::int64_t version, Instant now) {
  member.ready = true;
  if (moves_.reach(version, round())) {
    member.synchronised = true;
    member.whole.reset();
  } else {
    if (version >= 0) member.whole.reset();  // it took too long: what has happened since is kept no more
    send_whole(member);
  }
  proceed(now);
}

inline void ShepherdCore::take_up(Member& member, Hello const& hello, Instant now) {
  auto const known = [&](std::uint64_t lease) {
    return lease == 0 || lease == member.lease || lease == member.next || open_.holds(lease) ||
           (lease == member.settled.lease && member.settled.accepted);
  };
  member.ready = hello.ready;
  bool const ours = known(hello.lease) && known(hello.newest);
  if (!ours) settle(member, known(hello.lease) ? hello.newest : hello.lease, false, "its samples were given to others");
  bool const holds = member.lease != 0 || hello.lease != 0;
  if (!ours || (holds && !moves_.reach(hello.held, round()))) {
    start_anew(member, "its worker came back without what it had");
    return proceed(now);
  }
  if (member.settled.lease != 0) actions_.send(*member.peer, member.settled);
  if (hello.held >= 0) send_moves(member, hello.held);
  for (std::uint64_t const lease : {member.lease, member.next})
    if (lease != 0) send_lease(member, lease);
  if (hello.ready) synchronise(member, hello.held, now);
}

inline void ShepherdCore::serve_part(Member& member, Ask const& ask) {
  std::span<std::byte const> bytes;
  if ((ask.of & of_move) != 0) {
    if (auto const* move = moves_.find(static_cast<std::int64_t>(ask.of & ~of_move))) bytes = move->bytes;
  } else if (member.whole && ask.of == static_cast<std::uint64_t>(member.whole->round)) {
    bytes = std::as_bytes(std::span(member.whole->parameters));
  }
  if (bytes.empty()) {  // kept no more
    if (member.synchronised || member.whole) start_anew(member, "it fell behind");
    return;
  }
  if (auto const chunk = answer(ask, bytes, policy_.chunk_bytes)) return actions_.send(*member.peer, *chunk);
  dismiss(*member.peer, "it asks for bytes that the parameters do not have");
}

inline void ShepherdCore::send_lease(Member& member, std::uint64_t id) {
  Lease const& lease = *ledger().find(id);
  Span const& span = spans_[lease.round % 2];
  if (member.peer) actions_.send(*member.peer, Assign{id, lease.round, lease.ranges, 0, span.begin, span.end});
}

inline void ShepherdCore::give(std::int64_t target, Instant now) {
  std::vector<Pace> paces;
  std::vector<std::pair<std::uint64_t, Pace>> idle;
  for (auto const& [worker, member] : members_) {
    if (!member.usable()) continue;
    paces.push_back(member.pace);
    std::uint64_t const newest = member.next != 0 ? member.next : member.lease;
    if (newest == 0 || ledger().find(newest)->round < target) idle.emplace_back(worker, member.pace);
  }
  if (idle.empty() || ledger().free() == 0) return;
  Policy part = policy_;
  part.inner_steps = std::max<std::int64_t>(1, policy_.inner_steps / facts_.fragment_count());
  Shares const shares = share_ahead(paces, idle, ledger().free(), facts_, part);
  planned_ = shares.seconds;
  if (target == round()) open_.open(now, planned_);
  Span& span = spans_[target % 2];
  if (span.round != target) span = {target, ledger().committed() + ledger().leased(), 0};
  started_ = true;
  std::vector<std::pair<Member*, std::uint64_t>> given;
  for (auto const& [worker, samples] : shares.samples) {
    if (ledger().free() == 0) break;
    Member& member = members_.at(worker);
    std::uint64_t const id = (history_.begun_with().incarnation << 32) + ++leases_;
    note(Leased{id, worker, target, ledger().lowest_free(samples)}, false);
    (member.lease == 0 ? member.lease : member.next) = id;
    given.emplace_back(&member, id);
  }
  span.end = std::max(span.begin, ledger().committed() + ledger().leased());
  for (auto const& [member, id] : given) send_lease(*member, id);
}

inline void ShepherdCore::assign_ahead(Instant now) {
  if (!started_ && ready() < policy_.workers) return;
  if (paused_) return;
  if (open_.empty() && pending() == 0) {
    // Nobody is left of this round. Whoever is ahead of it waits for a step that does not come.
    for (auto& [worker, member] : members_)
      if (member.lease != 0) {
        settle(member, member.lease, false, "nobody is left of the round before it");
        start_anew(member, "nobody is left of the round before it");
      }
    give(round(), now);
  }
  if (!open_.empty() || pending() > 0) give(round() + 1, now);
}

inline void ShepherdCore::tell_moved(Instant now) {
  open_.open(now, planned_);
  auto const& move = *moves_.find(round());
  for (auto const& [worker, member] : members_)
    if (member.peer && (member.synchronised || member.whole))
      actions_.send(*member.peer, Moved{round(), false, static_cast<std::int64_t>(move.bytes.size()), move.checksum});
}

}  // namespace tutti::federate

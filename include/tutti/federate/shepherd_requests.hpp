// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd answers: to a worker that joins, asks for parameters, offers a contribution, and sends it.

#include <tutti/federate/shepherd_core.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace tutti::federate {

inline void ShepherdCore::greet(PeerId peer, Hello const& hello, Instant now) {
  std::string const objection = peers_[peer].worker != 0 ? "it greets twice" : objection_to(hello, facts_);
  if (!objection.empty()) return dismiss(peer, objection);
  if (expelled_.contains(hello.worker)) return dismiss(peer, "its contributions were refused too often");
  bool const is_new = !members_.contains(hello.worker);
  Member& member = members_[hello.worker];
  if (member.peer) {  // its old connection, which it has given up
    actions_.close(*member.peer);
    peers_.erase(*member.peer);
  }
  peers_[peer].worker = hello.worker;
  member.peer = peer;
  member.heard = now;
  member.device = hello.device.substr(0, 200);
  if (member.incoming) member.incoming->resume();
  Welcome welcome = welcome_of(facts_, policy_);
  if (hello.run == facts_.run) welcome.program.clear();  // which it has, and which may be large
  actions_.send(peer, welcome);
  if (is_new) actions_.told(WorkerEvent::joined, hello.worker, "");
  if (finished_) {
    actions_.send(peer, Bye{false, false, run_complete});
    return actions_.close(peer);
  }
  if (facts_.streams()) return take_up(member, hello, now);
  if (hello.lease != 0 && hello.lease != member.lease && !open_.holds(hello.lease)) {
    if (member.settled.lease == hello.lease) actions_.send(peer, member.settled);
    else settle(member, hello.lease, false, "its samples were given to others");
  }
  if (member.lease != 0 && hello.lease != member.lease) send_assignment(member);
  member.ready = false;
  if (hello.ready) make_ready(member, {hello.speed}, now);
}

inline void ShepherdCore::serve(Member& member, Ask const& ask) {
  if (facts_.streams()) return serve_part(member, ask);
  std::span<float const> parameters;
  if (ask.of == static_cast<std::uint64_t>(round())) parameters = model_.parameters();
  else if (ask.of + 1 == static_cast<std::uint64_t>(round()) && !former_.empty()) parameters = former_;
  if (parameters.empty()) {  // they are gone: it begins from the newest
    if (member.lease == 0) return;
    return send_assignment(member);
  }
  if (auto const chunk = answer(ask, std::as_bytes(parameters), policy_.chunk_bytes))
    return actions_.send(*member.peer, *chunk);
  dismiss(*member.peer, "it asks for bytes that the parameters do not have");
}

inline void ShepherdCore::consider(std::uint64_t worker, Member& member, Offer const& offer, Instant now) {
  if (open_.holds(offer.lease)) return;
  if (offer.lease != 0 && offer.lease == member.settled.lease) return actions_.send(*member.peer, member.settled);
  if (offer.lease == 0 || offer.lease != member.lease)
    return settle(member, offer.lease, false, "its samples were given to others");
  if (!fits_lease(offer, samples_of(ledger().find(offer.lease)->ranges), round(), facts_))
    return refuse(worker, member, member.lease, "its offer does not fit its lease", true, now);
  if (round() - offer.round > policy_.staleness)
    return refuse(worker, member, member.lease, "it is too late", false, now);
  if (!member.incoming || member.offer.lease != offer.lease || member.offer.checksum != offer.checksum)
    member.incoming.emplace(offer.lease, offer.bytes, offer.checksum, policy_.chunk_bytes, policy_.window);
  else member.incoming->resume();
  member.offer = offer;
  ask_on(member);
}

inline void ShepherdCore::take(std::uint64_t worker, Member& member, Chunk const& chunk, Instant now) {
  if (!member.incoming) return;  // of a lease that was returned meanwhile
  if (!member.incoming->arrive(chunk)) return;
  if (member.incoming->damaged() > 16)
    return refuse(worker, member, member.lease, "its bytes arrive damaged", true, now);
  if (!member.incoming->complete()) return ask_on(member);
  auto examined = examine(worker, member.offer, *member.incoming, facts_);
  if (auto const* why = std::get_if<std::string>(&examined))
    return refuse(worker, member, member.lease, *why, true, now);
  Contribution& one = std::get<Contribution>(examined);
  // With fragments nobody waits for what is on its way.
  member.pace.measure(one.steps, member.offer.seconds,
                      facts_.streams() ? member.offer.seconds : in_seconds(now - member.assigned));
  member.incoming.reset();
  member.lease = std::exchange(member.next, 0);
  if (one.round == round()) member.done = round();
  open_.add(std::move(one));
  if (member.leaving && (member.lease == 0 || member.offer.last)) return let_go(worker, member, now);
  proceed(now);
}

}  // namespace tutti::federate

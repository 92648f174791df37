// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The shepherd's decisions, without clock, thread or socket: events come in with their time, actions go out. The same
/// events give the same actions, in a simulation as over a network.
///
/// A contribution belongs to a lease, and is in an outer step or in none:
///   leased     its worker trains, and may be gone for `lost_after` before the samples are free again
///   delivered  all of it is here and was looked at; it waits for the round to close
///   committed  by the Closed record, at one moment for all contributions of an outer step
///   returned   by a Returned record: refused, lost, late by more than the policy allows. Whatever arrives for this
///              lease later is refused, since its samples may be another's by then
/// A round closes when nobody works on it any more, or a grace window after the quorum has delivered. Who is late then
/// keeps the lease: the contribution is part of the next outer step at a discount, up to `staleness` rounds.

#include <tutti/core/concat.hpp>
#include <tutti/federate/delivery.hpp>
#include <tutti/federate/history.hpp>
#include <tutti/federate/member.hpp>
#include <tutti/federate/message.hpp>
#include <tutti/federate/policy.hpp>
#include <tutti/federate/round.hpp>
#include <tutti/federate/shares.hpp>
#include <tutti/federate/shepherd_actions.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::federate {

class ShepherdCore {
 public:
  /// Goes on where `history` ends; the model has the parameters of that moment. Borrows model and actions.
  /// Errors: configuration; format, when the history is of another run.
  ShepherdCore(Facts facts, Policy const& policy, OuterModel& model, ShepherdActions& actions, History history,
               Instant now)
      : facts_(std::move(facts)),
        policy_(policy),
        model_(model),
        actions_(actions),
        history_(std::move(history)),
        open_(policy),
        last_tick_(now) {
    validate(facts_);
    validate(policy_);
    if (static_cast<std::int64_t>(model.parameters().size()) != facts_.parameters)
      throw Error(ErrorKind::configuration, "ShepherdCore", "the model and the facts differ in their parameters");
    if (history_.round() > 0 && model.checksum() != history_.checksum())
      throw Error(ErrorKind::format, "ShepherdCore",
                  "the parameters are not those after outer step " + std::to_string(history_.round()) +
                      " of the log. Restore its snapshot");
    note(Started{facts_.run, history_.begun_with().incarnation + 1, facts_.samples, facts_.parameters, facts_.batch},
         true);
    if (facts_.streams()) policy_.staleness = 0;  // a late one is of another fragment
    if (policy_.relays) history_.lend({});
    started_ = history_.worked();
    open_.open(now, 0);
    begin_ = end_ = ledger().committed();
    checksum_ = hash_bytes(std::as_bytes(model.parameters()));
    for (std::uint64_t const lease : superseded(ledger(), facts_.streams()))
      note(Returned{lease, "its shepherd ended before the round did"}, false);
    for (auto const& [id, lease] : ledger().leases()) {  // their workers may come back
      members_[lease.worker].lease = id;
      members_[lease.worker].heard = now;
    }
    finished_ = !policy_.relays && ledger().complete();
  }

  Ledger const& ledger() const noexcept { return history_.ledger(); }
  std::int64_t round() const noexcept { return history_.round(); }  ///< outer steps done
  std::map<std::uint64_t, Member> const& members() const noexcept { return members_; }
  /// All samples are committed, and workers were told to go.
  bool finished() const noexcept { return finished_; }
  /// When `tick` is due next, at the latest.
  Instant next_tick(Instant now) const {
    Instant next = last_beat_ + policy_.heartbeat;
    if (auto const deadline = open_.deadline()) next = std::min(next, *deadline);
    return std::max(next, now);
  }

  void connected(PeerId peer, Instant now) { peers_[peer] = {0, now}; }
  /// The worker is not lost by this; it may connect again.
  void disconnected(PeerId peer, Instant) {
    auto const at = peers_.find(peer);
    if (at == peers_.end()) return;
    if (auto const member = members_.find(at->second.worker); member != members_.end() && member->second.peer == peer) {
      member->second.peer.reset();
      if (member->second.incoming) member->second.incoming->resume();
    }
    peers_.erase(at);
  }
  void receive(PeerId peer, Message const& message, Instant now) {
    auto const at = peers_.find(peer);
    if (at == peers_.end()) return;
    if (auto const* hello = std::get_if<Hello>(&message)) return greet(peer, *hello, now);
    std::uint64_t const worker = at->second.worker;
    auto const found = members_.find(worker);
    if (found == members_.end()) return dismiss(peer, "its first message was no greeting");
    Member& member = found->second;
    member.heard = now;
    if (auto const* ready = std::get_if<Ready>(&message)) make_ready(member, *ready, now);
    else if (auto const* beat = std::get_if<Heartbeat>(&message)) hear(worker, member, *beat, now);
    else if (auto const* ask = std::get_if<Ask>(&message)) serve(member, *ask);
    else if (auto const* offer = std::get_if<Offer>(&message)) consider(worker, member, *offer, now);
    else if (auto const* chunk = std::get_if<Chunk>(&message)) take(worker, member, *chunk, now);
    else if (auto const* leave = std::get_if<Leave>(&message)) remove(worker, WorkerEvent::left, leave->reason, now);
    else dismiss(peer, "it says what only a shepherd says");
  }
  void tick(Instant now) {
    if (finished_) return;
    // What this program has slept through, or spent on an outer step, is nobody's silence.
    if (Instant const away = now - last_tick_ - policy_.heartbeat; away > Instant(0))
      for (auto& [worker, member] : members_) member.heard = std::min(now, member.heard + away);
    last_tick_ = now;
    std::vector<std::uint64_t> lost, leaving;
    for (auto const& [worker, member] : members_) {
      if (now - member.heard >= policy_.lost_after) lost.push_back(worker);
      else if (member.leaving && member.lease == 0 && member.peer) leaving.push_back(worker);
    }
    for (std::uint64_t worker : leaving)
      if (members_.contains(worker)) let_go(worker, members_.at(worker), now);
    for (std::uint64_t worker : lost)
      if (members_.contains(worker)) remove(worker, WorkerEvent::lost, "it was not heard of in time", now);
    std::vector<PeerId> silent;
    for (auto const& [peer, greeted] : peers_)
      if (greeted.worker == 0 && now - greeted.since >= policy_.lost_after) silent.push_back(peer);
    for (PeerId peer : silent) dismiss(peer, "it did not greet in time", true);
    if (now - last_beat_ >= policy_.heartbeat) {
      last_beat_ = now;
      for (auto const& [worker, member] : members_)
        if (member.peer) actions_.send(*member.peer, Heartbeat{});
    }
    proceed(now);
  }
  /// The worker gets no more work, and is told to go once what it has is delivered, at a tick. Nothing for a stranger.
  void drain(std::uint64_t worker) {
    if (auto const found = members_.find(worker); found != members_.end()) found->second.leaving = true;
  }
  /// While it is so nobody is given work. What is under way is delivered, and merged.
  void pause(bool paused, Instant now) {
    paused_ = paused;
    proceed(now);
  }
  /// Of a relay: its workers learn from these samples, and no others, beginning with the model's parameters, which the
  /// caller has set. `learned`: of the run, before and after. What was lent before is taken back, and contributions to
  /// it count for nothing, unless the ledger says that all of it is committed.
  void lend(std::vector<Range> const& ranges, Learned learned, Instant now);
  /// Workers that can be given work, or have some; of a relay those behind it.
  std::int64_t ready() const;
  bool started() const noexcept { return started_; }  ///< work was given
  RoundProgress progress() const {
    std::int64_t const working = pending();
    return {open_.delivered(), working, open_.quorum(working)};
  }
  /// Everybody is told to go; to come again, where this shepherd is only to be replaced.
  void stop(std::string const& reason, bool again) {
    for (auto const& [peer, greeted] : std::exchange(peers_, {}))
      actions_.send(peer, Bye{again, false, reason}), actions_.close(peer);
    for (auto& [worker, member] : members_) member.peer.reset();
  }

 private:
  struct Greeted {
    std::uint64_t worker = 0;
    Instant since{0};
  };

  void note(Record const& record, bool durable) {
    history_.add(record);  // first: what would contradict the log is not written
    actions_.append(record, durable);
  }
  void dismiss(PeerId peer, std::string const& reason, bool again = false) {
    actions_.send(peer, Bye{again, !again, reason});
    actions_.close(peer);
    if (auto const member = members_.find(peers_[peer].worker); member != members_.end() && member->second.peer == peer)
      member->second.peer.reset();
    peers_.erase(peer);
  }
  void settle(Member& member, std::uint64_t lease, bool accepted, std::string const& reason) {
    member.settled = {lease, accepted, reason};
    if (member.peer) actions_.send(*member.peer, member.settled);
  }
  /// Workers that have yet to deliver.
  std::int64_t pending() const {
    return std::count_if(members_.begin(), members_.end(), [&](auto const& m) {
      return m.second.lease != 0 && (!facts_.streams() || ledger().find(m.second.lease)->round == round());
    });
  }

  // ---- Who is there ----

  void greet(PeerId peer, Hello const& hello, Instant now);
  void make_ready(Member& member, Ready const& ready, Instant now) {
    double const speed = ready.speed;
    if (std::isfinite(speed) && speed > 0 && speed < 1e9 && member.pace.speed == 0) member.pace.speed = speed;
    if (facts_.streams()) return synchronise(member, ready.held, now);
    if (member.ready) return;
    member.ready = true;
    proceed(now);
  }
  void hear(std::uint64_t worker, Member& member, Heartbeat const& beat, Instant now) {
    member.state = beat.state;
    member.step = beat.step;
    member.cpu = beat.cpu, member.memory = beat.memory;
    member.pace.workers = static_cast<double>(std::clamp<std::int64_t>(beat.workers, 1, 4096));
    if (beat.state != WorkerState::draining) return;
    member.leaving = true;
    if (member.lease == 0) let_go(worker, member, now);
  }
  /// A worker that leaves, and owes nothing.
  void let_go(std::uint64_t worker, Member& member, Instant now) {
    if (member.peer) actions_.send(*member.peer, Bye{false, false, "all that it had is delivered"});
    remove(worker, WorkerEvent::left, "", now);
  }
  /// Its samples are free again, but for those of a contribution that is here already.
  void remove(std::uint64_t worker, WorkerEvent event, std::string const& why, Instant now) {
    Member& member = members_.at(worker);
    return_leases(member, std::string(name(event)) + ": " + why);
    std::optional<PeerId> const peer = member.peer;
    members_.erase(worker);
    actions_.told(event, worker, why);
    if (peer) {
      if (event == WorkerEvent::lost) actions_.send(*peer, Bye{true, false, why});
      if (event == WorkerEvent::expelled) actions_.send(*peer, Bye{false, true, why});
      actions_.close(*peer);
      peers_.erase(*peer);
    }
    proceed(now);
  }

  // ---- Parameters go, contributions come ----

  void serve(Member& member, Ask const& ask);
  void consider(std::uint64_t worker, Member& member, Offer const& offer, Instant now);
  void ask_on(Member& member) {
    while (auto const ask = member.incoming->next()) actions_.send(*member.peer, *ask);
  }
  void take(std::uint64_t worker, Member& member, Chunk const& chunk, Instant now);
  /// `fault`: it is the worker's own. The lease may be one that it had delivered before the one it works on.
  void refuse(std::uint64_t worker, Member& member, std::uint64_t lease, std::string const& why, bool fault,
              Instant now) {
    if (member.lease == lease) {
      member.lease = 0;
      member.incoming.reset();
    }
    note(Returned{lease, "refused: " + why}, false);
    settle(member, lease, false, why);
    if (facts_.streams()) start_anew(member, why);
    actions_.told(fault ? WorkerEvent::refused : WorkerEvent::late, worker, why);
    if (fault && ++member.refusals >= policy_.refusals) {
      expelled_.insert(worker);
      return remove(worker, WorkerEvent::expelled, "its contributions were refused too often: " + why, now);
    }
    proceed(now);
  }

  // ---- Rounds ----

  void send_assignment(Member& member) {
    if (!member.peer) return;
    Lease const& lease = *ledger().find(member.lease);
    history_.rebase(member.lease, round());
    actions_.send(*member.peer, Assign{lease.id, round(), lease.ranges, checksum_, begin_, end_});
  }
  /// What follows from what has just happened. Refused contributions and rounds that close make work for others, who
  /// are seen to in the same loop: no event waits for the next tick.
  void proceed(Instant now) {
    if (finished_ || proceeding_) return;
    proceeding_ = true;
    do facts_.streams() ? assign_ahead(now) : assign(now);
    while (close_if_due(now));
    proceeding_ = false;
  }
  void assign(Instant now) {
    bool const idle =
        std::any_of(members_.begin(), members_.end(), [&](auto const& m) { return m.second.idle(round()); });
    if (!started_ && ready() < policy_.workers) return;
    if (paused_ || !idle || ledger().free() == 0) return;
    bool const opens = open_.empty() && (opening_ || pending() == 0);
    double const left = opens ? 1 : open_.left(now);
    if (left < 0.5) return;  // the next round is sooner than it would be done
    Shares const shares = share_out(members_, round(), opens, left, ledger().free(), facts_, policy_);
    if (opens) open_.open(now, shares.seconds);
    started_ = true;
    opening_ = false;
    std::vector<Member*> given;
    for (auto const& [worker, samples] : shares.samples) {
      if (ledger().free() == 0) break;
      Member& member = members_.at(worker);
      member.lease = (history_.begun_with().incarnation << 32) + ++leases_;
      member.assigned = now;
      given.push_back(&member);
      note(Leased{member.lease, worker, round(), ledger().lowest_free(samples)}, false);
    }
    if (opens) begin_ = position(ledger().committed()), end_ = position(ledger().committed() + ledger().leased());
    for (Member* member : given) send_assignment(*member);
  }
  std::int64_t position(std::int64_t committed) const;
  /// Returns whether the round closed.
  bool close_if_due(Instant now) {
    if (!open_.due(pending(), now)) return false;
    for (Contribution const& one : open_.take_too_long()) {
      std::string const why = concat("it is more than ", policy_.norm_limit, " times as long as others");
      auto const found = members_.find(one.worker);
      if (found == members_.end()) {
        note(Returned{one.lease, "refused: " + why}, false);
        continue;
      }
      found->second.done = -1;
      refuse(one.worker, found->second, one.lease, why, true, now);
    }
    Round::Outcome out = open_.outcome(round(), facts_, now);
    if (policy_.staleness > 0) former_.assign(model_.parameters().begin(), model_.parameters().end());
    if (facts_.streams()) moves_.step(model_, facts_, round(), out.gradient);
    else model_.step(0, out.gradient);
    if (!finite_norm(model_.parameters()))
      throw Error(ErrorKind::invalid_argument, "federate",
                  "the parameters are not finite after outer step " + std::to_string(round() + 1) +
                      ": training has diverged. Lower --learning-rate or --outer-learning-rate, and begin anew");
    checksum_ = hash_bytes(std::as_bytes(model_.parameters()));
    out.record.checksum = model_.checksum();
    actions_.save(round() + 1);
    note(out.record, true);
    for (Contribution const& one : open_.close()) {
      auto const member = members_.find(one.worker);
      if (member == members_.end()) continue;
      member->second.refusals = 0;
      settle(member->second, one.lease, true, "");
    }
    out.report.committed = ledger().committed();
    for (auto const& [worker, member] : members_)
      if (member.peer) ++out.report.members, out.report.trainers += static_cast<int>(member.pace.workers);
    actions_.closed(out.report);
    opening_ = true;
    if (facts_.streams()) tell_moved(now);
    if (ledger().complete()) {
      if (policy_.relays) return false;
      finished_ = true;
      stop(run_complete, false);
      return false;
    }
    for (auto& [worker, member] : members_)  // refusing what is no fault removes nobody
      if (member.lease != 0 && round() - ledger().find(member.lease)->round > policy_.staleness)
        refuse(worker, member, member.lease, "it is too late", false, now);
    return true;
  }

  // ---- Rounds of fragments: shepherd_streaming.hpp ----

  void return_leases(Member& member, std::string const& why);
  void take_up(Member& member, Hello const& hello, Instant now);
  void synchronise(Member& member, std::int64_t version, Instant now);
  void start_anew(Member& member, std::string const& why);
  void send_whole(Member& member);
  void send_moves(Member& member, std::int64_t version);
  void send_lease(Member& member, std::uint64_t id);
  void serve_part(Member& member, Ask const& ask);
  void assign_ahead(Instant now);
  void give(std::int64_t target, Instant now);
  void tell_moved(Instant now);

  /// Samples of the run that are learned from before and after a round.
  struct Span {
    std::int64_t round = -1, begin = 0, end = 0;
  };

  Facts facts_;
  Policy policy_;
  OuterModel& model_;
  ShepherdActions& actions_;
  History history_;
  std::map<PeerId, Greeted> peers_;
  std::map<std::uint64_t, Member> members_;  // by worker: in this order everything is done
  std::set<std::uint64_t> expelled_;
  Round open_;
  std::vector<float> former_;  // the parameters before the latest outer step
  std::uint64_t checksum_ = 0, leases_ = 0;
  Instant last_beat_{0}, last_tick_;
  Learned learned_;
  std::int64_t begin_ = 0, end_ = 0;  // see Assign
  OuterMoves moves_;                  // with fragments, as the next two
  Span spans_[2];                     // of the present round and the next, by number
  double planned_ = 0;                // seconds of a round
  bool started_ = false, opening_ = true, proceeding_ = false, finished_ = false, paused_ = false;
};

}  // namespace tutti::federate

// What follows belongs to the class.
#include <tutti/federate/shepherd_lending.hpp>
#include <tutti/federate/shepherd_requests.hpp>
#include <tutti/federate/shepherd_streaming.hpp>

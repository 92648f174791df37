// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The worker's decisions, without clock, thread or socket. It holds on to what it works on while its shepherd is gone:
/// a contribution is given up only when the shepherd has said what became of it.

#include <tutti/federate/assembly.hpp>
#include <tutti/federate/message.hpp>
#include <tutti/federate/policy.hpp>
#include <tutti/federate/replica.hpp>
#include <tutti/federate/worker_actions.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::federate {

class WorkerCore {
 public:
  /// `worker`: a number that no other worker has, not 0. It ends when it has heard of no shepherd for `patience`.
  /// Borrows the actions, and connects.
  WorkerCore(std::uint64_t worker, Instant patience, WorkerActions& actions, Instant now)
      : worker_(worker),
        patience_(patience),
        actions_(actions),
        back_off_(worker),
        heard_(now),
        last_tick_(now),
        reconnect_(now) {
    connecting_ = true;
    actions_.connect();
  }

  // ---- What can be asked ----

  WorkerState state() const noexcept {
    if (ended_) return WorkerState::lost;
    if (draining_) return WorkerState::draining;
    if (run_ == 0) return WorkerState::joining;
    if (!ready_) return WorkerState::compiling;
    if (busy_ != 0) return WorkerState::training;
    return contribution_.empty() ? WorkerState::fetching : WorkerState::sending;
  }
  bool ended() const noexcept { return ended_; }
  /// Whether it ended through something that somebody must mend; and what for.
  bool failed() const noexcept { return failed_; }
  std::string const& reason() const noexcept { return reason_; }
  Facts const& facts() const noexcept { return facts_; }
  /// When `tick` is due next, at the latest.
  Instant next_tick(Instant now) const {
    Instant next = connected_ ? last_beat_ + heartbeat_ : connecting_ ? now + heartbeat_ : reconnect_;
    return std::clamp(next, now, now + heartbeat_);
  }

  // ---- Events of the connection ----

  void connected(Instant now) {
    if (ended_) return;
    connecting_ = false;
    connected_ = true;
    since_ = now;
    actions_.send(greeting());
  }
  void disconnected(Instant now) {
    if (ended_) return;
    connecting_ = connected_ = welcomed_ = false;
    reconnect_ = now + back_off_.next();
    if (incoming_) incoming_->resume();
  }
  void receive(Message const& message, Instant now) {
    if (ended_ || !connected_) return;
    heard_ = now;
    if (auto const* welcome = std::get_if<Welcome>(&message)) return enter(*welcome);
    if (auto const* bye = std::get_if<Bye>(&message)) return part(*bye, now);
    if (!welcomed_) return drop(now, "the shepherd did not welcome it first");
    if (auto const* assign = std::get_if<Assign>(&message)) begin(*assign, now);
    else if (auto const* chunk = std::get_if<Chunk>(&message)) take(*chunk, now);
    else if (auto const* ask = std::get_if<Ask>(&message)) serve(*ask);
    else if (auto const* settled = std::get_if<Settled>(&message)) settle(*settled);
    else if (auto const* moved = std::get_if<Moved>(&message); moved != nullptr && facts_.streams())
      follow(*moved, now);
    else if (!std::holds_alternative<Heartbeat>(message)) drop(now, "the shepherd says what only a worker says");
  }
  void tick(Instant now) {
    if (ended_) return;
    // What this program has slept through is nobody's silence.
    if (Instant const away = now - last_tick_ - heartbeat_; away > Instant(0)) heard_ = std::min(now, heard_ + away);
    last_tick_ = now;
    if (draining_ && now - heard_ >= lost_after_)
      return end("it leaves, and no shepherd is there to take what it has", false);
    if (now - heard_ >= patience_)
      return end("no shepherd was heard of for " + std::to_string((now - heard_) / seconds(1)) +
                     " s. Start it again once there is one",
                 true);
    // A welcome, which nothing overtakes, may bring a large program over a slow link.
    if (connected_ && now - std::max(heard_, since_) >= (welcomed_ ? 1 : 20) * lost_after_)
      return drop(now, "the shepherd is silent");
    if (connected_ && now - last_beat_ >= heartbeat_) beat(now);
    if (connecting_ && now - reconnect_ >= lost_after_) return drop(now, "no connection came about");
    if (!connected_ && !connecting_ && now >= reconnect_) {
      connecting_ = true;
      reconnect_ = now;
      actions_.connect();
    }
  }

  // ---- Events of the work ----

  /// The program is built; `speed` inner steps a second, or 0 where nothing was measured.
  void compiled(double speed) {
    if (ended_) return;
    ready_ = true;
    speed_ = speed;
    if (welcomed_) {
      tell_state();  // a relay says how many it is
      actions_.send(Ready{speed_, replica_.version()});
    }
    train();
  }
  void trained(Trained const& result) {
    if (ended_) return;
    std::uint64_t const done = std::exchange(busy_, 0);
    if (facts_.streams()) return trained_ahead(result, done);
    if (!assignment_ || assignment_->lease != done) return train();  // of a lease that is no longer its own
    if (result.samples == 0) {
      if (draining_) return leave("");
      return failed("no inner step was done");
    }
    // Where nothing is rounded nothing is left over for the next time.
    bool const rounded = facts_.bits != parallel::OuterBits::float32;
    if (rounded && residual_.empty()) residual_.resize(held_.size());
    for (std::size_t i = 0; i < held_.size(); ++i) held_[i] -= result.parameters[i];
    contribution_.resize(static_cast<std::size_t>(facts_.gradient_bytes(0)));
    if (rounded) parallel::encode_with_feedback(facts_.bits, held_, residual_, contribution_);
    else parallel::encode(facts_.bits, held_, contribution_);
    held_round_ = -1;  // what it held is the gradient now
    offer_ = {done,           assignment_->round, result.samples, facts_.gradient_bytes(0), hash_bytes(contribution_),
              result.seconds, result.loss};
    if (welcomed_) actions_.send(offer_);
  }
  /// The program cannot be built, or a step failed. Ends.
  void failed(std::string const& why) {
    if (ended_) return;
    if (welcomed_) actions_.send(Leave{why});
    end(why, true);
  }
  /// Goes, once what it has is delivered: a job under way ends after its present step, and counts as far as it came.
  void drain(Instant now) {
    if (ended_ || draining_) return;
    draining_ = true;
    if (busy_ != 0) actions_.stop_training();
    if (busy_ == 0 && contribution_.empty() && !finished_) return leave("");
    if (connected_) beat(now);
  }

 private:
  void beat(Instant now) {
    last_beat_ = now;
    tell_state();
  }
  void tell_state() {
    WorkerUse const use = actions_.use();
    actions_.send(Heartbeat{state(), busy_ != 0 ? actions_.steps_done() : 0, use.cpu, use.memory, use.workers});
  }
  void end(std::string const& why, bool failed) {
    ended_ = true;
    failed_ = failed;
    reason_ = why;
    if (busy_ != 0) actions_.stop_training();
    if (connected_) actions_.close();
    connected_ = false;
  }
  void leave(std::string const& why) {
    if (welcomed_) actions_.send(Leave{why});
    end(why, false);
  }
  void drop(Instant now, std::string const& why) {
    actions_.told(why);
    actions_.close();
    disconnected(now);
  }

  void enter(Welcome const& w) {
    if (welcomed_) return;
    Facts const facts{w.run,   w.parameters, w.fragments, w.mix,    w.bits,
                      w.batch, w.sequence,   w.samples,   w.program};
    try {
      validate(facts);
      Policy limits;
      limits.heartbeat = Instant(w.heartbeat_ns);
      limits.lost_after = Instant(w.lost_after_ns);
      limits.chunk_bytes = w.chunk_bytes;
      limits.window = w.window;
      validate(limits);
    } catch (Error const& error) {
      return end("the shepherd's welcome makes no sense: " + error.message(), true);
    }
    heartbeat_ = Instant(w.heartbeat_ns);
    lost_after_ = Instant(w.lost_after_ns);
    chunk_bytes_ = w.chunk_bytes;
    window_ = w.window;
    welcomed_ = true;
    back_off_.reset();
    if (run_ == 0) {
      run_ = w.run;
      facts_ = facts;
      return actions_.compile(facts_);
    }
    if (w.run != run_) return end("the shepherd is of another run. Start this worker again", true);
    if (facts.bits != facts_.bits || facts.fragments != facts_.fragments)
      return end("this shepherd takes contributions of other sizes than the one before. Start this worker again", true);
    if (draining_) actions_.send(Heartbeat{WorkerState::draining, 0});
    if (!contribution_.empty()) actions_.send(offer_);
    if (incoming_) ask_on();
  }
  void part(Bye const& bye, Instant now) {
    if (!bye.again || draining_) return end(bye.reason, bye.failed);
    actions_.told("the shepherd says: " + bye.reason);
    actions_.close();
    disconnected(now);
  }

  bool sensible(Assign const& assign) const {
    std::int64_t total = 0;
    for (Range const& range : assign.ranges) {
      if (range.first < 0 || range.count < 1 || range.first > facts_.samples - range.count) return false;
      total += range.count;
      if (total > facts_.samples) return false;
    }
    return assign.lease != 0 && assign.round >= 0 && total > 0 && total % facts_.batch == 0 && assign.begin >= 0 &&
           assign.begin <= assign.end && assign.end <= facts_.samples;
  }
  void begin(Assign const& assign, Instant now) {
    if (!sensible(assign)) return drop(now, "the shepherd gives work that makes no sense");
    if (facts_.streams()) return queue(assign);
    if (assignment_ && assignment_->lease == assign.lease) {
      // Said again. It is news only where the parameters are still awaited, and those asked for are gone.
      bool const awaits = busy_ == 0 && contribution_.empty() && incoming_;
      if (!awaits || incoming_->of() == static_cast<std::uint64_t>(assign.round)) return;
    } else forget();
    assignment_ = assign;
    incoming_.reset();
    if (draining_) return leave("");
    if (held_round_ != assign.round || held_checksum_ != assign.checksum) {
      incoming_.emplace(static_cast<std::uint64_t>(assign.round), facts_.parameter_bytes(), assign.checksum,
                        chunk_bytes_, window_);
      return ask_on();
    }
    train();
  }
  void ask_on() {
    while (welcomed_) {
      auto const ask = incoming_->next();
      if (!ask) return;
      actions_.send(*ask);
    }
  }
  void take(Chunk const& chunk, Instant now) {
    if (!incoming_ || !incoming_->arrive(chunk)) return;
    if (incoming_->damaged() > 16) {
      if (facts_.streams()) forget_all();
      incoming_.reset();
      assignment_.reset();  // greeting without it brings it again
      return drop(now, "the parameters arrive damaged");
    }
    if (!incoming_->complete()) return ask_on();
    if (facts_.streams()) return arrive(now);
    if (!incoming_->intact()) {
      assignment_.reset();
      incoming_.reset();
      return drop(now, "the parameters are not what their checksum says");
    }
    held_round_ = static_cast<std::int64_t>(incoming_->of());
    held_checksum_ = incoming_->checksum();
    held_.resize(static_cast<std::size_t>(facts_.parameters));
    std::memcpy(held_.data(), incoming_->bytes().data(), incoming_->bytes().size());
    incoming_.reset();
    train();
  }
  /// Where everything is there for it.
  void train() {
    if (!ready_ || busy_ != 0 || !assignment_ || incoming_ || !contribution_.empty()) return;
    busy_ = assignment_->lease;
    actions_.train({busy_, assignment_->round, held_, assignment_->ranges, assignment_->begin, assignment_->end});
  }
  void serve(Ask const& ask) {
    if (contribution_.empty() || ask.of != offer_.lease) return;
    if (auto const chunk = answer(ask, contribution_, chunk_bytes_)) actions_.send(*chunk);
  }
  void settle(Settled const& settled) {
    if (facts_.streams()) return settle_part(settled);
    if (!assignment_ || assignment_->lease != settled.lease) return;
    if (!settled.accepted) actions_.told("a contribution was refused: " + settled.reason);
    forget();
    if (draining_) leave("");
  }
  /// Nothing is owed to anybody any more.
  void forget() {
    if (busy_ != 0) actions_.stop_training();
    assignment_.reset();
    incoming_.reset();
    contribution_.clear();
  }

  // ---- Fragments at times of their own: worker_streaming.hpp ----

  struct Finished {
    Assign lease;
    std::int64_t samples = 0;
    double seconds = 0, loss = 0;
  };
  Hello greeting() const;
  std::vector<std::uint64_t> leases_held() const;
  bool has(std::uint64_t lease) const;
  void forget_all();
  void queue(Assign const& assign);
  void follow(Moved const& moved, Instant now);
  void fetch_next();
  void arrive(Instant now);
  void go_on();
  void trained_ahead(Trained const& result, std::uint64_t done);
  void settle_part(Settled const& settled);

  std::uint64_t worker_;
  Instant patience_;
  WorkerActions& actions_;
  BackOff back_off_;
  Facts facts_;
  std::uint64_t run_ = 0;  // of the first welcome
  std::int64_t chunk_bytes_ = 0, window_ = 0;
  Instant heartbeat_ = seconds(2), lost_after_ = seconds(10);
  Instant heard_, last_tick_, since_{0}, last_beat_{0};
  Instant reconnect_;  // the next attempt, or the one under way
  bool connecting_ = false, connected_ = false, welcomed_ = false;
  bool ready_ = false, draining_ = false, ended_ = false, failed_ = false;
  double speed_ = 0;
  std::optional<Assign> assignment_;
  std::optional<Assembly> incoming_;  // parameters
  std::uint64_t busy_ = 0;            // the lease of the job under way
  std::vector<float> held_, residual_;
  std::int64_t held_round_ = -1;
  std::uint64_t held_checksum_ = 0;
  std::vector<std::byte> contribution_;
  Offer offer_;
  std::string reason_;
  // With fragments:
  Replica replica_;
  std::deque<Assign> leases_;         // not begun
  std::optional<Assign> current_;     // of the job under way
  std::optional<Finished> finished_;  // trained, and not yet offered
  std::deque<Moved> moves_;           // told of, and not yet asked for
  std::deque<std::vector<std::byte>> arrived_;
  std::int64_t latest_ = 0;  // outer step told of
  bool told_version_ = false;
};

}  // namespace tutti::federate

// What follows belongs to the class.
#include <tutti/federate/worker_streaming.hpp>

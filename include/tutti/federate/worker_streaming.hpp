// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a worker does where fragments are averaged at times of their own: it goes from lease to lease without a pause,
/// and between two of them, never within one, takes over what the others have done.

#include <tutti/federate/worker_core.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::federate {

inline Hello WorkerCore::greeting() const {
  Hello hello{protocol_version, worker_, run_, assignment_ ? assignment_->lease : 0, ready_, speed_, actions_.device()};
  if (!facts_.streams()) return hello;
  hello.held = replica_.version();
  std::vector<std::uint64_t> const held = leases_held();
  hello.lease = held.empty() ? 0 : held.front();
  hello.newest = held.empty() ? 0 : held.back();
  return hello;
}

/// In the order in which they were given: what is to be settled, what is being learned, what is next.
inline std::vector<std::uint64_t> WorkerCore::leases_held() const {
  std::vector<std::uint64_t> held;
  if (!contribution_.empty()) held.push_back(offer_.lease);
  if (finished_) held.push_back(finished_->lease.lease);
  if (current_) held.push_back(current_->lease);
  for (Assign const& lease : leases_) held.push_back(lease.lease);
  return held;
}
inline bool WorkerCore::has(std::uint64_t lease) const {
  std::vector<std::uint64_t> const held = leases_held();
  return std::find(held.begin(), held.end(), lease) != held.end();
}

/// It begins anew, from whole parameters.
inline void WorkerCore::forget_all() {
  if (busy_ != 0) actions_.stop_training();
  current_.reset(), finished_.reset(), incoming_.reset();
  leases_.clear(), moves_.clear(), arrived_.clear(), contribution_.clear();
  replica_.clear();
  told_version_ = false;
}

inline void WorkerCore::queue(Assign const& assign) {
  if (replica_.version() < 0 || draining_ || has(assign.lease)) return;
  leases_.push_back(assign);
  go_on();
}

inline void WorkerCore::follow(Moved const& moved, Instant now) {
  std::int64_t const bytes = moved.whole       ? facts_.parameter_bytes()
                             : moved.round > 0 ? facts_.gradient_bytes(moved.round - 1)
                                               : 0;
  if (moved.round < 0 || moved.bytes != bytes) return drop(now, "the shepherd tells of a step that makes no sense");
  auto const of = static_cast<std::uint64_t>(moved.round);
  if (moved.whole) {
    if (incoming_ && incoming_->of() == of && incoming_->checksum() == moved.checksum) return ask_on();  // said again
    forget_all();
    if (draining_) return leave("");
    incoming_.emplace(of, moved.bytes, moved.checksum, chunk_bytes_, window_);
    latest_ = moved.round;
    return ask_on();
  }
  if (moved.round <= latest_ || (replica_.version() < 0 && !incoming_)) return;
  if (moved.round > latest_ + 1) return drop(now, "an outer step was not told of");
  latest_ = moved.round;
  moves_.push_back(moved);
  fetch_next();
}

inline void WorkerCore::fetch_next() {
  if (incoming_ || moves_.empty()) return;
  Moved const next = moves_.front();
  moves_.pop_front();
  incoming_.emplace(of_move | static_cast<std::uint64_t>(next.round), next.bytes, next.checksum, chunk_bytes_, window_);
  ask_on();
}

/// All of `incoming_` is here.
inline void WorkerCore::arrive(Instant now) {
  if (!incoming_->intact()) {
    forget_all();
    return drop(now, "the parameters are not what their checksum says");
  }
  bool const whole = (incoming_->of() & of_move) == 0;
  if (whole) replica_.set(facts_, incoming_->bytes(), static_cast<std::int64_t>(incoming_->of()));
  else arrived_.push_back(incoming_->take());
  incoming_.reset();
  fetch_next();
  go_on();
}

/// Between two leases: merges what has come, offers what was learned, and begins with what is next.
inline void WorkerCore::go_on() {
  if (ended_ || !ready_ || busy_ != 0 || replica_.version() < 0) return;
  try {
    for (; !arrived_.empty(); arrived_.pop_front()) replica_.move(facts_, arrived_.front());
    if (finished_) {
      // What the others did in the round before is to be part of it first.
      if (replica_.version() < finished_->lease.round || !contribution_.empty()) return;
      Assign const& lease = finished_->lease;
      contribution_ = replica_.gradient(facts_, lease.round);
      offer_ = {lease.lease,
                lease.round,
                finished_->samples,
                facts_.gradient_bytes(lease.round),
                hash_bytes(contribution_),
                finished_->seconds,
                finished_->loss,
                draining_};
      finished_.reset();
      if (welcomed_) actions_.send(offer_);
    }
  } catch (Error const& error) {
    return failed(error.message());
  }
  if (!told_version_ && welcomed_ && !incoming_ && moves_.empty()) {
    told_version_ = true;
    actions_.send(Ready{speed_, replica_.version()});
  }
  if (draining_) {
    if (contribution_.empty()) leave("");
    return;
  }
  if (leases_.empty()) return;
  current_ = leases_.front();
  leases_.pop_front();
  busy_ = current_->lease;
  actions_.train({busy_, current_->round, replica_.local(), current_->ranges, current_->begin, current_->end});
}

inline void WorkerCore::trained_ahead(Trained const& result, std::uint64_t done) {
  if (!current_ || current_->lease != done) return go_on();  // of a lease that is no longer its own
  if (result.samples == 0) {
    current_.reset();
    if (draining_) return go_on();
    return failed("no inner step was done");
  }
  replica_.train(result.parameters);
  finished_ = Finished{*current_, result.samples, result.seconds, result.loss};
  current_.reset();
  go_on();
}

inline void WorkerCore::settle_part(Settled const& settled) {
  if (!has(settled.lease)) return;
  if (!settled.accepted) {
    actions_.told("a contribution was refused: " + settled.reason);
    forget_all();
  } else if (!contribution_.empty() && offer_.lease == settled.lease) {
    contribution_.clear();
  }
  if (draining_ && busy_ == 0 && !finished_ && contribution_.empty()) return leave("");
  go_on();
}

}  // namespace tutti::federate

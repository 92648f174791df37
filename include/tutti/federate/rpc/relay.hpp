// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A relay: workers that connect to it train as one worker of another shepherd, so that its link carries one
/// contribution for all of them. Relays may stand behind relays: contributions go through a tree.

#include <tutti/federate/rpc/shepherd.hpp>
#include <tutti/federate/trainer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::federate {

struct RelayOptions {
  ShepherdOptions at;                ///< where its workers connect; without a folder
  std::int64_t workers = 1;          ///< to wait for before it takes part
  Instant lost_after = seconds(10);  ///< without a sign of a worker, or without any worker to do what there is to do
  /// What its own workers are told of the run, given what the shepherd tells: sizes of their contributions may differ,
  /// the rest is to be the same. Null: all of it, without fragments.
  std::function<Facts(Facts)> facts_for_workers{};
};

/// Called from the relay's own thread.
struct RelayCallbacks {
  std::function<void(int port)> listening;
  std::function<void(std::string const&)> told;  ///< for people
};

/// A lease of the shepherd is a round of the group: the relay's workers share its samples by their speed, begin from
/// the parameters that the shepherd gave, and the mean of what they learned, by tokens, is what the relay has learned.
/// Of samples that are lost with a worker there is a further, smaller round. A lease that is given up before all of it
/// is learned counts as far as the rounds that are done.
class Relay final : public Trainer {
 public:
  Relay(RelayOptions options, RelayCallbacks callbacks)
      : options_(std::move(options)), callbacks_(std::move(callbacks)) {
    options_.at.folder.clear();
  }
  /// Its workers are told to come again, here or to another address that they have.
  ~Relay() noexcept override { end("the relay has ended", true); }

  std::string device() const override { return "relay"; }
  /// To and from its workers. From any thread.
  std::int64_t bytes_sent() const noexcept { return sent_; }
  std::int64_t bytes_received() const noexcept { return received_; }
  std::int64_t workers() const override { return std::max<std::int64_t>(workers_, 1); }

  /// Listens, and blocks until as many workers as the options say are ready. Errors: those of Shepherd.
  double prepare(Facts const& told) override {
    Facts facts = told;
    if (options_.facts_for_workers) facts = options_.facts_for_workers(std::move(facts));
    facts.fragments.clear();
    batch_ = facts.batch;
    model_.at.assign(static_cast<std::size_t>(facts.parameters), 0.0f);
    thread_ = std::thread([this, facts = std::move(facts)] { lead(facts); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return workers_ >= options_.workers || failure_ || cancelled_; });
    if (failure_) std::rethrow_exception(failure_);
    return speed_;
  }

  Trained train(Job const& job, std::span<float> parameters, JobControl& control) override {
    Instant const began = clock_now();
    std::unique_lock lock(mutex_);
    work_.emplace(Work{&job, parameters});
    while (!work_->done && !failure_ && !cancelled_) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      control.steps = steps_.load();
      work_->stop = control.stop;
    }
    Work const work = *std::exchange(work_, std::nullopt);
    if (failure_) std::rethrow_exception(failure_);
    return {job.lease, work.samples, in_seconds(clock_now() - began),
            work.samples > 0 ? work.loss / static_cast<double>(work.samples) : 0.0, parameters};
  }

  /// Its workers are told to go; `again`: to come back, here or to another address that they have. From any thread.
  void end(std::string const& reason, bool again) noexcept {
    {
      std::lock_guard const lock(mutex_);
      if (!std::exchange(ending_, true)) farewell_ = reason, again_ = again;
    }
    if (thread_.joinable()) thread_.join();
  }
  void cancel() noexcept override {
    std::lock_guard const lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }
  /// What it does next throws this. From any thread.
  void fail(std::exception_ptr failure) noexcept {
    std::lock_guard const lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }

 private:
  struct Work {
    Job const* job = nullptr;
    std::span<float> parameters{};
    bool begun = false, stop = false, done = false;
    std::int64_t samples = 0;
    double loss = 0;  // times samples
  };

  void lead(Facts const& facts) {
    try {
      Policy policy = of_relay({});
      policy.workers = options_.workers;
      policy.lost_after = options_.lost_after;
      policy.heartbeat = std::min(policy.heartbeat, options_.lost_after / 5);
      Shepherd shepherd(
          options_.at, facts, policy, model_,
          {.listening =
               [this](int port) {
                 if (callbacks_.listening) callbacks_.listening(port);
               },
           .round = [&](RoundReport const& report) { closed(shepherd, report); },
           .worker = [this](WorkerEvent event, std::uint64_t, std::string const& why) { tell(event, why); },
           .stop = [&] { return look(shepherd); }});
      static_cast<void>(shepherd.run());
    } catch (...) {
      fail(std::current_exception());
    }
  }
  void tell(WorkerEvent event, std::string const& why) {
    if (callbacks_.told)
      callbacks_.told(std::string("a worker behind the relay: ") + name(event) + (why.empty() ? "" : ", " + why));
  }
  /// Between two events of the shepherd's thread: what the trainer's asks for. Returns whether to end.
  bool look(Shepherd& shepherd) {
    std::lock_guard const lock(mutex_);
    ShepherdCore const& core = shepherd.core();
    std::int64_t workers = 0, steps = 0;
    double speed = 0;
    for (auto const& [worker, member] : core.members()) {
      if (!member.peer || !member.ready) continue;
      workers += static_cast<std::int64_t>(member.pace.workers);
      speed += member.pace.speed;
      if (member.lease != 0) steps += member.step;
    }
    steps_ = steps + core.ledger().committed() / batch_;
    if (workers_.exchange(workers) != workers) changed_.notify_all();
    sent_ = shepherd.bytes_sent(), received_ = shepherd.bytes_received();
    speed_ = speed;
    if (ending_) {
      shepherd.part(farewell_, again_);
      return true;
    }
    Instant const now = clock_now();
    if (workers > 0 || !work_ || work_->done) attended_ = now;
    if (now - attended_ > options_.lost_after)
      throw Error(ErrorKind::communication, "federate", "no worker is left behind the relay");
    if (!work_ || work_->done) return false;
    if (work_->stop) {
      work_->samples = work_->begun ? core.ledger().committed_first(work_->job->ranges) : 0;
      if (work_->samples == 0) work_->loss = 0;
      deliver();
      shepherd.lend({}, {});
    } else if (!work_->begun) {
      work_->begun = true;
      std::copy(work_->parameters.begin(), work_->parameters.end(), model_.at.begin());
      shepherd.lend(work_->job->ranges, {work_->job->begin, work_->job->end});
    }
    return false;
  }
  /// A round is done, of the work that there is.
  void closed(Shepherd& shepherd, RoundReport const& report) {
    std::lock_guard const lock(mutex_);
    if (!work_ || work_->done) return;
    work_->loss += report.loss * static_cast<double>(report.samples);
    if (!shepherd.core().ledger().complete()) return;
    work_->samples = shepherd.core().ledger().samples();
    deliver();
  }
  void deliver() {
    std::copy(model_.at.begin(), model_.at.end(), work_->parameters.begin());
    work_->done = true;
    changed_.notify_all();
  }

  RelayOptions options_;
  RelayCallbacks callbacks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Work> work_;
  std::exception_ptr failure_;
  std::int64_t batch_ = 1;
  Instant attended_{0};  // when there was a worker, or nothing to do
  double speed_ = 0;     // inner steps a second, of all
  bool ending_ = false, again_ = true, cancelled_ = false;
  std::string farewell_;
  std::atomic<std::int64_t> workers_{0}, steps_{0}, sent_{0}, received_{0};
  MeanModel model_;  // the shepherd's thread's, but for its size
  std::thread thread_;
};

}  // namespace tutti::federate

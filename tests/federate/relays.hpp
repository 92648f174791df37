// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
// A relay in a simulated network: a worker of one shepherd and the shepherd of others. What each of its leases came to
// is computed again from what its own shepherd wrote down.
#include "federate/federation.hpp"

namespace federation {

/// What relays came to, by lease of their shepherd.
using Results = std::map<std::uint64_t, std::vector<float>>;

class Relay final : public ShepherdActions, public WorkerActions {
 public:
  Relay(SimulatedClock& clock, Network& network, std::vector<Network::Node> shepherds, std::uint64_t id,
        Results& results)
      : clock_(clock),
        network_(network),
        uplink_(clock, network, std::move(shepherds), [this] { return alive_ ? worker_.get() : nullptr; }),
        id_(id),
        results_(results) {
    down_ = network_.add(
        {[this](auto c) { below([&] { shepherd_->connected(c, clock_.now()); }); },
         [this](auto c) { below([&] { shepherd_->disconnected(c, clock_.now()); }); },
         [this](auto c, Parcel const& p) { below([&] { shepherd_->receive(c, p.read(), clock_.now()); }); }});
    network_.kill(down_);  // it listens once it knows the run
    worker_ = std::make_unique<WorkerCore>(id, seconds(3600), *this, clock_.now());
    wake();
  }
  Network::Node node() const { return down_; }  ///< that its workers connect to
  bool alive() const { return alive_ && !worker_->ended(); }
  WorkerCore const& core() const { return *worker_; }
  void kill() {
    alive_ = false;
    network_.kill(uplink_.node());
    network_.kill(down_);
  }
  void drain() {
    drained_ = true;
    if (alive()) worker_->drain(clock_.now());
  }
  static constexpr char const* deserted = "no worker is left behind it";
  std::string broken;
  std::int64_t rounds = 0, leases = 0, partly = 0;

  // Of the worker:
  void connect() override { uplink_.connect(); }
  void close() override { uplink_.close(); }
  void send(Message const& message) override { uplink_.send(message); }
  void compile(Facts const& facts) override {
    Facts whole = facts;
    whole.fragments.clear();
    whole.bits = tutti::parallel::OuterBits::float32;
    model_.at.resize(static_cast<std::size_t>(whole.parameters));
    Policy policy = of_relay(policy_of(1));
    policy.norm_limit = 0;
    shepherd_ = std::make_unique<ShepherdCore>(
        whole, policy, model_, *this,
        History(Started{whole.run, 100 + id_, whole.samples, whole.parameters, whole.batch}), clock_.now());
    network_.revive(down_);
    wait_for_workers();
  }
  void train(Job const& job) override {
    job_ = job;
    start_.assign(job.parameters.begin(), job.parameters.end());
    later([this, lease = job.lease] {
      if (job_.lease != lease || finished_ == lease) return;
      records_.clear();
      model_.at = start_;
      shepherd_->lend(job_.ranges, {job_.begin, job_.end}, clock_.now());
    });
    began_ = clock_.now();
  }
  void stop_training() override {
    later([this, lease = job_.lease] {
      if (job_.lease != lease || finished_ == lease) return;
      finish(shepherd_->ledger().committed_first(job_.ranges));
    });
  }
  WorkerUse use() override { return {-1, -1, std::max<std::int64_t>(ready(), 1)}; }

  // Of the shepherd:
  void send(PeerId peer, Message const& message) override { network_.send(peer, down_, Parcel(message)); }
  void close(PeerId peer) override { network_.close(peer, down_); }
  void append(Record const& record, bool) override { records_.push_back(record); }
  void save(std::int64_t) override {}
  void closed(RoundReport const&) override {
    ++rounds;
    if (!shepherd_->ledger().complete()) return;
    later([this, lease = job_.lease] {
      if (job_.lease == lease && finished_ != lease && shepherd_->ledger().complete())
        finish(shepherd_->ledger().samples());
    });
  }
  using ShepherdActions::told;
  using WorkerActions::told;

 private:
  template <class F>
  void below(F&& what) {
    if (alive_ && shepherd_ && !parted_) what();
  }
  template <class F>
  void later(F what) {
    clock_.in(Instant(0), [this, what = std::move(what)] {
      if (alive_) what();
    });
  }
  std::int64_t ready() const {
    if (!shepherd_) return 0;
    auto const& members = shepherd_->members();
    return std::count_if(members.begin(), members.end(), [](auto const& m) { return m.second.ready && m.second.peer; });
  }
  void wait_for_workers() {
    if (!alive()) return;
    if (ready() > 0) {
      double speed = 0;
      for (auto const& [id, member] : shepherd_->members()) speed += member.pace.speed;
      return worker_->compiled(speed);
    }
    clock_.in(seconds(0.2), [this] { wait_for_workers(); });
  }
  void finish(std::int64_t samples) {
    finished_ = job_.lease;
    ++leases;
    if (samples > 0 && samples < samples_of(job_.ranges)) ++partly;
    if (samples > 0) check(samples);
    std::vector<float> const result = model_.at;
    if (samples > 0) results_[job_.lease] = result;
    if (samples < samples_of(job_.ranges)) shepherd_->lend({}, {}, clock_.now());
    worker_->trained({job_.lease, samples, in_seconds(clock_.now() - began_), 1, result});
  }
  /// The present lease's result from its records alone.
  void check(std::int64_t samples) {
    std::map<std::uint64_t, std::vector<Range>> leased;
    std::map<std::int64_t, int> learned;
    std::vector<float> at = start_;
    for (Record const& record : records_) {
      if (auto const* lease = std::get_if<Leased>(&record)) leased[lease->lease] = lease->ranges;
      auto const* closed = std::get_if<Closed>(&record);
      if (closed == nullptr) continue;
      std::vector<double> sum(dimensions);
      double weights = 0;
      for (Merged const& merged : closed->merged) {
        Job job;
        job.ranges = leased.at(merged.lease);
        std::vector<float> local = at;
        for (std::int64_t k = 0; k < merged.samples; ++k) ++learned[job.sample(k)], learn(local, job.sample(k));
        if (auto const found = results_.find(merged.lease); found != results_.end()) local = found->second;
        weights += static_cast<double>(merged.samples);
        for (std::size_t i = 0; i < local.size(); ++i)
          sum[i] += static_cast<double>(merged.samples) * (static_cast<double>(at[i]) - static_cast<double>(local[i]));
      }
      for (std::size_t i = 0; i < at.size(); ++i)
        at[i] = static_cast<float>(static_cast<double>(at[i]) - sum[i] / weights);
    }
    for (std::size_t i = 0; i < at.size(); ++i)
      if (!(std::abs(at[i] - model_.at[i]) < 1e-4f)) broken = "a relay came to other parameters than its records say. ";
    bool once = static_cast<std::int64_t>(learned.size()) == samples;
    for (std::int64_t k = 0; k < samples; ++k) once = once && learned[job_.sample(k)] == 1;
    if (!once) broken = "a relay learned from other samples than it says. ";
  }
  void wake() {
    if (!alive_) return;
    if (!worker_->ended()) worker_->tick(clock_.now());
    if (worker_->ended() && shepherd_ && !parted_) {
      parted_ = true;
      shepherd_->stop(worker_->reason(), drained_ || worker_->failed());
      clock_.in(seconds(5), [this] { kill(); });
      return;
    }
    below([&] { shepherd_->tick(clock_.now()); });
    if (ready() > 0 || worker_->state() != WorkerState::training) attended_ = clock_.now();
    else if (clock_.now() - attended_ > seconds(10)) worker_->failed(deserted);
    clock_.in(seconds(0.05), [this] { wake(); });
  }
  SimulatedClock& clock_;
  Network& network_;
  Uplink uplink_;
  bool alive_ = true, parted_ = false, drained_ = false;
  Network::Node down_ = 0;
  std::uint64_t id_;
  Results& results_;
  MeanModel model_;
  std::unique_ptr<WorkerCore> worker_;
  std::unique_ptr<ShepherdCore> shepherd_;
  Job job_;
  std::uint64_t finished_ = 0;
  std::vector<float> start_;
  std::vector<Record> records_;
  Instant began_{0}, attended_{0};
};

}  // namespace federation

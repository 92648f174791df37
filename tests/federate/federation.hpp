// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
// A shepherd and its workers in a simulated network, with a cheap function in the place of training, and an oracle that
// computes every outer step again from the log alone.
#include <tutti/federate/log_text.hpp>
#include <tutti/federate/shepherd_core.hpp>
#include <tutti/federate/worker_core.hpp>
#include <tutti/testing/simulated_network.hpp>

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <sstream>

namespace federation {

using namespace tutti::federate;
using tutti::testing::Dice;
using tutti::testing::SimulatedClock;

inline constexpr std::int64_t dimensions = 37;  // odd, several chunks of 64 bytes

/// Of a run of so many samples, two in a step.
inline Facts facts_of(std::int64_t samples) {
  Facts facts;
  facts.run = 99;
  facts.parameters = dimensions;
  facts.batch = 2;
  facts.sequence = 8;
  facts.samples = samples;
  return facts;
}
/// The parameters in so many fragments of uneven sizes.
inline std::vector<std::int64_t> fragments_of(std::int64_t count) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), dimensions / count - 1);
  sizes.back() = dimensions - (count - 1) * sizes.front();
  return sizes;
}
inline Policy policy_of(std::int64_t workers) {
  Policy policy;
  policy.workers = workers;
  policy.inner_steps = 10;
  policy.chunk_bytes = 64;
  policy.window = 2;
  return policy;
}

/// What learning from one sample does to parameters: a pull towards a point of that sample.
inline void learn(std::span<float> parameters, std::int64_t sample) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    float const target = std::sin(static_cast<float>(sample % 1009) + 0.7f * static_cast<float>(i));
    parameters[i] -= 0.02f * (parameters[i] - target);
  }
}

/// Outer Nesterov momentum, by hand.
struct Outer final : OuterModel {
  std::vector<float> at = std::vector<float>(dimensions), velocity = std::vector<float>(dimensions);
  std::span<float> parameters() override { return at; }
  std::span<float> momentum() override { return velocity; }
  std::vector<std::int64_t> fragments{dimensions};
  void step(int fragment, std::span<float const> gradient) override {
    std::int64_t first = 0;
    for (int f = 0; f < fragment; ++f) first += fragments[static_cast<std::size_t>(f)];
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      auto const i = static_cast<std::size_t>(first) + k;
      velocity[i] = 0.9f * velocity[i] + gradient[k];
      at[i] -= 0.7f * (gradient[k] + 0.9f * velocity[i]);
    }
  }
};

/// A message with what it refers to.
struct Parcel {
  Message message;
  std::vector<std::byte> bytes;
  explicit Parcel(Message const& from) : message(from) {
    if (auto const* chunk = std::get_if<Chunk>(&from)) bytes.assign(chunk->bytes.begin(), chunk->bytes.end());
  }
  Message read() const {
    Message copy = message;
    if (auto* chunk = std::get_if<Chunk>(&copy)) chunk->bytes = bytes;
    return copy;
  }
};
using Network = tutti::testing::SimulatedNetwork<Parcel>;
struct Crash {};

/// What outlives a shepherd.
struct Disk {
  std::string log;
  std::size_t durable = 0;
  std::map<std::int64_t, std::pair<std::vector<float>, std::vector<float>>> snapshots;
};

class Shepherd final : public ShepherdActions {
 public:
  Shepherd(SimulatedClock& clock, Network& network, Dice& dice, Facts facts, Policy policy)
      : clock_(clock), network_(network), dice_(dice), facts_(std::move(facts)), policy_(policy) {
    node_ =
        network_.add({[this](auto c) { event([&] { core_->connected(c, clock_.now()); }); },
                      [this](auto c) { event([&] { core_->disconnected(c, clock_.now()); }); },
                      [this](auto c, Parcel const& p) { event([&] { core_->receive(c, p.read(), clock_.now()); }); }});
    start();
    wake();
  }
  Network::Node node() const { return node_; }
  bool alive() const { return core_ != nullptr; }
  bool finished() const { return core_ && core_->finished(); }
  ShepherdCore const& core() const { return *core_; }
  /// Ends before or behind the so many-th of its actions from now on.
  void crash_after(std::int64_t actions) { countdown_ = actions; }
  Disk const& disk() const { return disk_; }
  void drain(std::uint64_t worker) {
    event([&] { core_->drain(worker); });
  }
  void pause(bool paused) {
    event([&] { core_->pause(paused, clock_.now()); });
  }
  std::vector<RoundReport> reports;
  std::map<WorkerEvent, int> events;
  int restarts = 0;
  std::string broken;  // a promise that was not kept

  void send(PeerId peer, Message const& message) override {
    act([&] { network_.send(peer, node_, Parcel(message)); });
  }
  void close(PeerId peer) override {
    act([&] { network_.close(peer, node_); });
  }
  void append(Record const& record, bool durable) override {
    act([&] {
      disk_.log += to_line(record);
      if (!durable) return;
      disk_.durable = disk_.log.size();
      if (auto const* closed = std::get_if<Closed>(&record))
        std::erase_if(disk_.snapshots, [&](auto const& one) { return one.first <= closed->round; });
    });
  }
  void save(std::int64_t rounds) override {
    act([&] { disk_.snapshots[rounds] = {model_->at, model_->velocity}; });
  }
  void closed(RoundReport const& report) override { reports.push_back(report); }
  void told(WorkerEvent event, std::uint64_t, std::string const&) override { ++events[event]; }

 private:
  template <class F>
  void act(F&& what) {
    bool const now = countdown_ > 0 && --countdown_ == 0;
    if (now && dice_.happens(0.5)) throw Crash();
    what();
    if (now) throw Crash();
  }
  template <class F>
  void event(F&& what) {
    if (!core_) return;
    try {
      what();
    } catch (Crash const&) {
      crash();
    }
  }
  void start() {
    model_ = std::make_unique<Outer>();
    if (facts_.streams()) model_->fragments = facts_.fragments;
    LogText log = parse_log(disk_.log, "the log");
    disk_.log.resize(log.whole);
    std::int64_t const rounds = log.history.round();
    if (rounds < static_cast<std::int64_t>(told_)) broken = "a restart lost an outer step that was done";
    if (rounds > 0) {
      if (!disk_.snapshots.contains(rounds)) throw std::runtime_error("the snapshot of the log's last step is gone");
      std::tie(model_->at, model_->velocity) = disk_.snapshots.at(rounds);
    }
    core_ = std::make_unique<ShepherdCore>(facts_, policy_, *model_, *this, std::move(log.history), clock_.now());
    disk_.durable = disk_.log.size();
  }
  void crash() {
    told_ = reports.empty() ? 0 : static_cast<std::size_t>(reports.back().round);
    core_.reset();
    countdown_ = 0;
    network_.kill(node_);
    // Of what was not synced some may be lost, in the middle of a line too.
    if (dice_.happens(0.3))
      disk_.log.resize(disk_.durable + static_cast<std::size_t>(dice_.below(
                                           static_cast<std::int64_t>(disk_.log.size() - disk_.durable) + 1)));
    clock_.in(seconds(dice_.uniform(0.5, 20)), [this] {
      network_.revive(node_);
      ++restarts;
      try {
        start();
      } catch (Crash const&) {  // while it begins
        crash();
      }
    });
  }
  void wake() {
    event([&] { core_->tick(clock_.now()); });
    Instant const next = core_ ? core_->next_tick(clock_.now()) : clock_.now() + seconds(0.5);
    clock_.at(std::max(next, clock_.now() + seconds(0.01)), [this] { wake(); });
  }

  SimulatedClock& clock_;
  Network& network_;
  Dice& dice_;
  Facts facts_;
  Policy policy_;
  Disk disk_;
  std::unique_ptr<Outer> model_;
  std::unique_ptr<ShepherdCore> core_;
  Network::Node node_ = 0;
  std::int64_t countdown_ = 0;
  std::size_t told_ = 0;
};

inline void print(std::map<WorkerEvent, int> const& events) {
  for (auto const& [event, count] : events) std::printf("  %s %d\n", name(event), count);
}

/// A worker's end of its connections: to the next shepherd where one cannot be reached.
class Uplink {
 public:
  /// `core` gives the worker's state machine; null once it is no more.
  Uplink(SimulatedClock& clock, Network& network, std::vector<Network::Node> shepherds,
         std::function<WorkerCore*()> core)
      : network_(network), shepherds_(std::move(shepherds)) {
    auto const event = [this, core = std::move(core)](Network::Connection connection, auto&& what) {
      if (connection != connection_) return;
      if (WorkerCore* const worker = core()) what(*worker);
    };
    node_ = network_.add({[this, event, &clock](auto c) {
                            event(c, [&](WorkerCore& worker) {
                              opened_ = true;
                              worker.connected(clock.now());
                            });
                          },
                          [this, event, &clock](auto c) {
                            event(c, [&](WorkerCore& worker) {
                              connection_ = 0;
                              if (!opened_) ++at_;
                              worker.disconnected(clock.now());
                            });
                          },
                          [event, &clock](auto c, Parcel const& p) {
                            event(c, [&](WorkerCore& worker) { worker.receive(p.read(), clock.now()); });
                          }});
  }
  Uplink(Uplink const&) = delete;
  Uplink& operator=(Uplink const&) = delete;
  Network::Node node() const { return node_; }
  void connect() {
    opened_ = false;
    connection_ = network_.connect(node_, shepherds_[at_ % shepherds_.size()]);
  }
  void close() { network_.close(std::exchange(connection_, 0), node_); }
  void send(Message const& message) { network_.send(connection_, node_, Parcel(message)); }

 private:
  Network& network_;
  std::vector<Network::Node> shepherds_;
  std::size_t at_ = 0;
  bool opened_ = false;
  Network::Node node_ = 0;
  Network::Connection connection_ = 0;
};

enum class Kind { honest, sends_nan, sends_too_much };

class Worker final : public WorkerActions {
 public:
  Worker(SimulatedClock& clock, Network& network, Network::Node shepherd, std::uint64_t id, double speed,
         Kind kind = Kind::honest, bool knows_speed = false)
      : Worker(clock, network, std::vector{shepherd}, id, speed, kind, knows_speed) {}
  /// `shepherds`: the next one is tried where one cannot be reached.
  Worker(SimulatedClock& clock, Network& network, std::vector<Network::Node> shepherds, std::uint64_t id, double speed,
         Kind kind = Kind::honest, bool knows_speed = false)
      : clock_(clock),
        network_(network),
        uplink_(clock, network, std::move(shepherds), [this] { return alive_ ? core_.get() : nullptr; }),
        id_(id),
        speed_(speed),
        kind_(kind),
        knows_speed_(knows_speed) {
    core_ = std::make_unique<WorkerCore>(id, seconds(3600), *this, clock_.now());
    wake();
  }
  Network::Node node() const { return uplink_.node(); }
  std::uint64_t id() const { return id_; }
  bool alive() const { return alive_ && !core_->ended(); }
  Kind kind() const { return kind_; }
  WorkerCore const& core() const { return *core_; }
  void kill() {
    alive_ = false;
    network_.kill(node());
  }
  void drain() {
    if (alive()) core_->drain(clock_.now());
  }
  void slow_down(double factor) { speed_ /= factor; }
  double trained = 0;  // seconds

  void connect() override { uplink_.connect(); }
  void close() override { uplink_.close(); }
  void send(Message const& message) override { uplink_.send(message); }
  void compile(Facts const& facts) override {
    batch_ = facts.batch;
    clock_.in(seconds(0.5), [this] {
      if (alive_) core_->compiled(knows_speed_ ? speed_ : 0);
    });
  }
  void train(Job const& job) override {
    job_ = job;
    parameters_.assign(job.parameters.begin(), job.parameters.end());
    began_ = clock_.now();
    finish_in(job.steps(batch_));
  }
  void stop_training() override {
    auto const done = static_cast<std::int64_t>(in_seconds(clock_.now() - began_) * speed_);
    finish_in(std::min(done + 1, job_.steps(batch_)));
  }

 private:
  void finish_in(std::int64_t steps) {
    Instant const end = began_ + seconds(static_cast<double>(steps) / speed_);
    clock_.at(end, [this, steps, order = ++order_] {
      if (order != order_ || !alive_) return;  // another end was set since
      double const took = in_seconds(clock_.now() - began_);
      for (std::int64_t k = 0; k < steps * batch_; ++k) learn(parameters_, job_.sample(k));
      if (kind_ == Kind::sends_nan) parameters_[3] = std::numeric_limits<float>::quiet_NaN();
      if (kind_ == Kind::sends_too_much)
        for (float& value : parameters_) value += 1000;
      trained += took;
      core_->trained({job_.lease, steps * batch_, took, 1, parameters_});
    });
  }
  void wake() {
    if (!alive_ || core_->ended()) return;
    core_->tick(clock_.now());
    clock_.at(std::max(core_->next_tick(clock_.now()), clock_.now() + seconds(0.01)), [this] { wake(); });
  }

  SimulatedClock& clock_;
  Network& network_;
  Uplink uplink_;
  std::uint64_t id_;
  double speed_;  // steps a second
  Kind kind_;
  bool knows_speed_;
  std::unique_ptr<WorkerCore> core_;
  bool alive_ = true;
  std::int64_t batch_ = 1, order_ = 0;
  Job job_;
  std::vector<float> parameters_;
  Instant began_{0};
};

/// What is wrong with what a log says that was done, or nothing: every sample committed once, every outer step made of
/// whole contributions, nothing of any other, in the snapshot that is left. `relayed`: what relays came to, by lease.
inline std::string wrong_with(Disk const& disk, Facts const& facts,
                              std::map<std::uint64_t, std::vector<float>> const& relayed = {}) {
  std::ostringstream wrong;
  LogText const log = parse_log(disk.log, "the log");
  if (log.whole != disk.log.size()) wrong << "the log ends in the middle of a record. ";
  std::vector<int> committed(static_cast<std::size_t>(facts.samples));
  std::map<std::uint64_t, std::vector<Range>> leases;
  std::vector<std::vector<float>> history{std::vector<float>(dimensions)};
  std::vector<double> velocity(dimensions);
  for (Record const& record : log.records) {
    if (auto const* leased = std::get_if<Leased>(&record)) leases[leased->lease] = leased->ranges;
    auto const* closed = std::get_if<Closed>(&record);
    if (closed == nullptr) continue;
    std::vector<double> sum(dimensions);
    double weights = 0;
    for (Merged const& merged : closed->merged) {
      Job job;
      job.ranges = leases.at(merged.lease);
      std::vector<float> local = history.at(static_cast<std::size_t>(merged.round));
      for (std::int64_t k = 0; k < merged.samples; ++k) {
        ++committed[static_cast<std::size_t>(job.sample(k))];
        learn(local, job.sample(k));
      }
      if (auto const found = relayed.find(merged.lease); found != relayed.end()) local = found->second;
      double const late = static_cast<double>(closed->round - merged.round);
      if (std::abs(merged.weight - static_cast<double>(merged.samples * facts.sequence) * std::pow(0.5, late)) > 1e-9)
        wrong << "a weight of round " << closed->round << " is not that of its tokens and lateness. ";
      weights += merged.weight;
      for (std::size_t i = 0; i < local.size(); ++i)
        sum[i] += merged.weight * (static_cast<double>(history[static_cast<std::size_t>(merged.round)][i]) -
                                   static_cast<double>(local[i]));
    }
    history.push_back(history.back());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double const gradient = sum[i] / weights;
      velocity[i] = 0.9 * velocity[i] + gradient;
      history.back()[i] =
          static_cast<float>(static_cast<double>(history.back()[i]) - 0.7 * (gradient + 0.9 * velocity[i]));
    }
    // What the shepherd rounds in float is taken over where it can be looked at, so that errors do not add up.
  }
  for (std::size_t g = 0; g < committed.size(); ++g)
    if (committed[g] != 1) {
      wrong << "sample " << g << " is committed " << committed[g] << " times. ";
      break;
    }
  if (!log.history.ledger().complete()) wrong << "the ledger is not complete. ";
  std::int64_t const rounds = log.history.round();
  if (facts.streams()) {  // what a worker came to is not told by one lease alone
    for (std::vector<float>& at : history) at = disk.snapshots.contains(rounds) ? disk.snapshots.at(rounds).first : at;
  }
  if (!disk.snapshots.contains(rounds)) wrong << "there is no snapshot of the last step. ";
  else
    for (std::size_t i = 0; i < dimensions; ++i)
      if (double const off = std::abs(static_cast<double>(disk.snapshots.at(rounds).first[i]) -
                                      static_cast<double>(history.back()[i]));
          !(off < 1e-4)) {
        wrong << "parameter " << i << " is off by " << off << " after " << rounds << " outer steps. ";
        break;
      }
  if (disk.snapshots.size() > 1) wrong << "old snapshots were kept. ";
  return wrong.str();
}

}  // namespace federation

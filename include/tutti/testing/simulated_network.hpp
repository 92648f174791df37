// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A network and a clock that exist only in memory: the same seed gives the same schedule, however unlikely. For state
/// machines that are told what happens and when, and say what to send.
///
/// As with TCP, messages of one connection arrive in order and whole, or the connection ends and what was under way is
/// lost. Whether the other end hears of that end is a matter of luck, as it is with machines that lose their power.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace tutti::testing {

/// Numbers by seed: the same everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform(double low, double high) noexcept {
    return low + (high - low) * static_cast<double>(next() >> 11) / 9007199254740992.0;
  }
  std::int64_t below(std::int64_t end) noexcept {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(end));
  }
  bool happens(double probability) noexcept { return uniform(0, 1) < probability; }

 private:
  std::uint64_t state_;
};

/// What is to happen, in the order of its time; what is due at one time in the order in which it was said.
class SimulatedClock {
 public:
  using Time = std::chrono::nanoseconds;
  Time now() const noexcept { return now_; }
  void at(Time when, std::function<void()> what) { events_.push({std::max(when, now_), ++count_, std::move(what)}); }
  void in(Time delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  /// Until `done()`, or nothing is to happen any more, or the time is up. Returns done().
  template <class Done>
  bool run(Time until, Done&& done) {
    while (!done() && !events_.empty() && events_.top().when <= until) {
      auto const what = std::move(const_cast<Event&>(events_.top()).what);
      now_ = events_.top().when;
      events_.pop();
      what();
    }
    return done();
  }

 private:
  struct Event {
    Time when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(Event const& other) const { return std::pair(other.when, other.order) < std::pair(when, order); }
  };
  Time now_{0};
  std::uint64_t count_ = 0;
  std::priority_queue<Event> events_;
};

/// `Message` owns what it carries.
template <class Message>
class SimulatedNetwork {
 public:
  using Time = SimulatedClock::Time;
  using Connection = std::uint64_t;
  using Node = int;
  /// What a node is told. Each is called from the clock, never from within a call of the network.
  struct Handlers {
    std::function<void(Connection)> connected;  ///< at either end
    std::function<void(Connection)> disconnected;
    std::function<void(Connection, Message const&)> received;
  };

  SimulatedNetwork(SimulatedClock& clock, Dice& dice) : clock_(clock), dice_(dice) {}
  /// Of one way, for every message: uniformly between these.
  void set_delays(Time least, Time most) { least_ = least, most_ = most; }

  Node add(Handlers handlers) {
    nodes_.push_back({std::move(handlers), true, Time{0}});
    return static_cast<Node>(nodes_.size()) - 1;
  }
  /// Both hear of it, or `from` hears that it failed.
  Connection connect(Node from, Node to) {
    Connection const id = ++count_;
    links_[id] = {from, to, {clock_.now(), clock_.now()}};
    clock_.at(passage(from, to), [this, id] {
      auto const link = links_.find(id);
      if (link == links_.end()) return;
      if (!at(link->second.to).alive) return lose(id, true, false);
      tell(link->second.to, [id](Handlers const& h) { h.connected(id); });
      if (links_.contains(id)) tell(link->second.from, [id](Handlers const& h) { h.connected(id); });
    });
    return id;
  }
  void send(Connection id, Node from, Message message) {
    auto const link = links_.find(id);
    if (link == links_.end()) return;
    Node const to = from == link->second.from ? link->second.to : link->second.from;
    Time& last = link->second.last[from == link->second.from ? 0 : 1];
    last = std::max(last, passage(from, to));
    clock_.at(last, [this, id, to, message = std::move(message)] {
      if (links_.contains(id)) tell(to, [&](Handlers const& h) { h.received(id, message); });
    });
  }
  /// Behind what this end has sent, the other end hears of the end. What it sends from now on is lost.
  void close(Connection id, Node from) {
    auto const link = links_.find(id);
    if (link == links_.end()) return;
    Node const to = from == link->second.from ? link->second.to : link->second.from;
    clock_.at(std::max(link->second.last[from == link->second.from ? 0 : 1], passage(from, to)), [this, id, to] {
      if (links_.erase(id) > 0) tell(to, [id](Handlers const& h) { h.disconnected(id); });
    });
  }
  /// The connection fails: what is under way is lost.
  void cut(Connection id) { lose(id, true, true); }
  /// A node ends at once. The others hear of it, or not.
  void kill(Node node) {
    at(node).alive = false;
    std::vector<Connection> gone;
    for (auto const& [id, link] : links_)
      if (link.from == node || link.to == node) gone.push_back(id);
    for (Connection id : gone) lose(id, dice_.happens(0.7), dice_.happens(0.7));
  }
  void revive(Node node) { at(node).alive = true; }
  /// Nothing passes to or from the node until then; connections last, and messages arrive late.
  void partition(Node node, Time until) { at(node).cut_until = std::max(at(node).cut_until, until); }
  std::vector<Connection> connections() const {
    std::vector<Connection> all;
    for (auto const& [id, link] : links_) all.push_back(id);
    return all;
  }

 private:
  struct NodeState {
    Handlers handlers;
    bool alive = true;
    Time cut_until{0};
  };
  struct Link {
    Node from = 0, to = 0;
    Time last[2];
  };

  Time passage(Node from, Node to) {
    Time const delay(dice_.below((most_ - least_).count() + 1));
    return std::max({clock_.now(), at(from).cut_until, at(to).cut_until}) + least_ + delay;
  }
  NodeState& at(Node node) { return nodes_[static_cast<std::size_t>(node)]; }
  template <class F>
  void tell(Node node, F&& f) {
    if (at(node).alive) f(at(node).handlers);
  }
  void lose(Connection id, bool from_hears, bool to_hears) {
    auto const found = links_.find(id);
    if (found == links_.end()) return;
    Link const link = found->second;
    links_.erase(found);
    if (from_hears)
      clock_.at(passage(link.from, link.to),
                [this, id, link] { tell(link.from, [id](Handlers const& h) { h.disconnected(id); }); });
    if (to_hears)
      clock_.at(passage(link.from, link.to),
                [this, id, link] { tell(link.to, [id](Handlers const& h) { h.disconnected(id); }); });
  }

  SimulatedClock& clock_;
  Dice& dice_;
  Time least_{1'000'000}, most_{50'000'000};
  std::deque<NodeState> nodes_;
  std::map<Connection, Link> links_;
  Connection count_ = 0;
};

}  // namespace tutti::testing

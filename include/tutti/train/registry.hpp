// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What is known of a run while it runs, in one place: `metrics.jsonl`, TensorBoard files, the console and dashboards
/// subscribe to it, and know nothing of each other.

#include <nlohmann/json.hpp>

#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::train {

/// A number of a step. Where a series was thinned out, the mean of the steps up to this one.
struct Point {
  std::int64_t step = 0;
  double value = 0;
};

/// A curve of bounded size: when it is full, neighbours become their mean, and from then on each point is the mean of
/// twice as many numbers. What is not finite leaves no point.
class Series {
 public:
  explicit Series(std::size_t most = 1024) : most_(most < 2 ? 2 : most) {}

  void add(std::int64_t step, double value) {
    if (!std::isfinite(value)) return;
    if (!empty() && step <= last_.step) drop_from(step);
    sum_ += value;
    last_ = {step, value};
    if (++pending_ < stride_) return;
    points_.push_back({step, sum_ / static_cast<double>(pending_)});
    sum_ = 0, pending_ = 0;
    if (points_.size() < most_) return;
    for (std::size_t i = 0; i + 1 < points_.size(); i += 2)
      points_[i / 2] = {points_[i + 1].step, (points_[i].value + points_[i + 1].value) / 2};
    points_.resize(points_.size() / 2);
    stride_ *= 2;
  }
  /// In order of their steps, the latest number last, whole.
  std::vector<Point> points() const {
    std::vector<Point> all = points_;
    if (pending_ > 0) all.push_back(last_);
    return all;
  }
  bool empty() const noexcept { return points_.empty() && pending_ == 0; }
  Point last() const noexcept { return last_; }

 private:
  /// A run that goes on from an earlier step has another history from there on.
  void drop_from(std::int64_t step) {
    while (!points_.empty() && points_.back().step >= step) points_.pop_back();
    sum_ = 0, pending_ = 0;
  }

  std::size_t most_, stride_ = 1, pending_ = 0;
  double sum_ = 0;
  Point last_;
  std::vector<Point> points_;
};

/// What subscribers hear of. The texts and the object are valid during the call.
struct RegistryEvent {
  enum class Kind : unsigned char {
    record,  ///< something happened: an object with its `type`, most with a `step`
    value,   ///< `name` is `json` now
    line,    ///< `name` is a text for people
  };
  Kind kind;
  std::string name;
  nlohmann::json json;
};

/// Thread-safe. Events reach every subscriber in the order in which they were published, one at a time. They are
/// handed on by a thread that publishes, outside of any lock: a subscriber may publish, ask, subscribe and
/// unsubscribe; what it publishes follows after the event at hand. Two threads that publish at once: one hands on what
/// both have said, and the other goes on at once.
class Registry {
 public:
  using Json = nlohmann::json;
  using Subscriber = std::function<void(RegistryEvent const&)>;

  Registry() : state_(std::make_shared<State>()) {}
  Registry(Registry const&) = delete;
  Registry& operator=(Registry const&) = delete;

  /// Something happened. Numbers in the object also become points of the series TYPE/KEY, where it has a `step`.
  /// Errors: what a subscriber throws, once all have heard; the first.
  void record(Json object) { publish({RegistryEvent::Kind::record, {}, std::move(object)}); }
  /// The present value of `name`; the one before is forgotten. Errors: as `record`.
  void set(std::string name, Json value) { publish({RegistryEvent::Kind::value, std::move(name), std::move(value)}); }
  /// A number of `step`, for its series, and the present value of `name`. Errors: as `record`.
  void set(std::string const& name, std::int64_t step, double value) {
    {
      std::lock_guard const guard(state_->mutex);
      state_->series[name].add(step, value);
    }
    set(name, value);
  }
  /// A text for people. Errors: as `record`.
  void line(std::string text) { publish({RegistryEvent::Kind::line, std::move(text), {}}); }

  /// The present value, or the latest number of a series; null where there is none.
  Json get(std::string const& name) const {
    std::lock_guard const guard(state_->mutex);
    if (auto const at = state_->values.find(name); at != state_->values.end()) return at->second;
    if (auto const at = state_->series.find(name); at != state_->series.end() && !at->second.empty())
      return at->second.last().value;
    return {};
  }
  std::vector<Point> series(std::string const& name) const {
    std::lock_guard const guard(state_->mutex);
    auto const at = state_->series.find(name);
    return at == state_->series.end() ? std::vector<Point>() : at->second.points();
  }
  /// All present values, by name.
  Json values() const {
    std::lock_guard const guard(state_->mutex);
    return Json(state_->values);
  }

 private:
  struct Listener {
    Subscriber hear;
    bool gone = false, hearing = false;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable heard;
    std::map<std::string, Json> values;
    std::map<std::string, Series> series;
    std::vector<std::shared_ptr<Listener>> listeners;
    std::deque<RegistryEvent> waiting;
    std::thread::id speaker{};  ///< who hands events on, or nobody
  };

 public:
  /// Hears until it is destroyed; it is then sure to hear nothing more, unless it is destroyed from within a call,
  /// which ends as it is. It may outlive the registry.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&& other) noexcept
        : state_(std::move(other.state_)), listener_(std::exchange(other.listener_, nullptr)) {}
    Subscription& operator=(Subscription&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(listener_, other.listener_);
      return *this;
    }
    ~Subscription() {
      if (!listener_) return;
      std::unique_lock lock(state_->mutex);
      listener_->gone = true;
      std::erase(state_->listeners, listener_);
      if (state_->speaker == std::this_thread::get_id()) return;  // this is a call of a subscriber
      state_->heard.wait(lock, [this] { return !listener_->hearing; });
    }

   private:
    friend class Registry;
    Subscription(std::shared_ptr<State> state, std::shared_ptr<Listener> listener)
        : state_(std::move(state)), listener_(std::move(listener)) {}
    std::shared_ptr<State> state_;
    std::shared_ptr<Listener> listener_;
  };

  /// Of all that is published from now on.
  [[nodiscard]] Subscription subscribe(Subscriber hear) {
    auto listener = std::make_shared<Listener>(Listener{std::move(hear)});
    std::lock_guard const guard(state_->mutex);
    state_->listeners.push_back(listener);
    return {state_, std::move(listener)};
  }

 private:
  static void note(State& state, RegistryEvent const& event) {
    if (event.kind == RegistryEvent::Kind::value) state.values[event.name] = event.json;
    if (event.kind != RegistryEvent::Kind::record || !event.json.is_object()) return;
    auto const type = event.json.find("type"), step = event.json.find("step");
    if (type == event.json.end() || !type->is_string() || step == event.json.end() || !step->is_number()) return;
    for (auto const& [key, value] : event.json.items())
      if (value.is_number() && key != "step")
        state.series[type->get<std::string>() + "/" + key].add(step->get<std::int64_t>(), value.get<double>());
  }
  void publish(RegistryEvent&& event) {
    std::shared_ptr<State> const state = state_;  // a subscriber may destroy the registry's owner
    std::unique_lock lock(state->mutex);
    note(*state, event);
    state->waiting.push_back(std::move(event));
    if (state->speaker != std::thread::id()) return;
    state->speaker = std::this_thread::get_id();
    std::exception_ptr failure;
    while (!state->waiting.empty()) {
      RegistryEvent const now = std::move(state->waiting.front());
      state->waiting.pop_front();
      auto const listeners = state->listeners;
      for (auto const& listener : listeners) {
        if (listener->gone) continue;
        listener->hearing = true;
        lock.unlock();
        try {
          listener->hear(now);
        } catch (...) {
          if (!failure) failure = std::current_exception();
        }
        lock.lock();
        listener->hearing = false;
        state->heard.notify_all();
      }
    }
    state->speaker = {};
    lock.unlock();
    if (failure) std::rethrow_exception(failure);
  }

  std::shared_ptr<State> state_;
};

}  // namespace tutti::train

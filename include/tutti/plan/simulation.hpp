// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A discrete-event simulation: tasks that take a resource for some time once others are done. Devices and links are
/// resources, steps and transfers are tasks.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::plan {

/// A resource does one task at a time: of those that wait for it the one that became ready first, of several the one
/// that was added first.
/// Determinism  the same tasks in the same order give the same times.
class Simulation {
 public:
  using Resource = int;
  using Task = int;
  /// What becomes of a task in pictures.
  enum class Kind : unsigned char { forward, backward, head, update, wait, transfer };

  struct Span {
    Resource resource = 0;
    Kind kind{};
    double begin = 0, end = 0;  ///< seconds
  };

  Resource resource(std::string name) {
    resources_.push_back(std::move(name));
    return static_cast<Resource>(resources_.size()) - 1;
  }
  /// A task that begins when all of `after` are done; negative ones do not count. Errors: invalid_argument, for a task
  /// that is not there yet: so there are no cycles.
  Task task(Resource resource, double seconds, Kind kind, std::span<Task const> after) {
    Task const id = static_cast<Task>(tasks_.size());
    tasks_.push_back({.resource = resource, .kind = kind, .seconds = seconds});
    for (Task const other : after) {
      if (other < 0) continue;
      if (other >= id)
        throw Error(ErrorKind::invalid_argument, "plan::Simulation", "a task waits for one that is not there yet");
      follow_.push_back({other, id});
      ++tasks_.back().waits_for;
    }
    return id;
  }
  Task task(Resource resource, double seconds, Kind kind, std::initializer_list<Task> after = {}) {
    return task(resource, seconds, kind, std::span<Task const>(after.begin(), after.size()));
  }
  /// A further condition of a task that is there, on one that came later. `run` finds cycles.
  void order(Task before, Task after) {
    follow_.push_back({before, after});
    ++tasks_[static_cast<std::size_t>(after)].waits_for;
  }

  /// Seconds from the first task's begin to the last one's end. Errors: invalid_argument, for tasks that wait for each
  /// other in a circle.
  double run() {
    std::size_t const count = tasks_.size();
    std::vector<std::size_t> first(count + 1, 0);
    for (auto const& [before, after] : follow_) ++first[static_cast<std::size_t>(before) + 1];
    for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
    std::vector<Task> next(follow_.size());
    std::vector<std::size_t> fill(first.begin(), first.end() - (count > 0 ? 1 : 0));
    for (auto const& [before, after] : follow_) next[fill[static_cast<std::size_t>(before)]++] = after;

    using Ready = std::pair<double, Task>;
    std::vector<std::priority_queue<Ready, std::vector<Ready>, std::greater<>>> waiting(resources_.size());
    std::vector<bool> taken(resources_.size(), false);
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> events;  // ends of tasks
    auto const start = [&](std::size_t resource, double now) {
      if (taken[resource] || waiting[resource].empty()) return;
      Task const id = waiting[resource].top().second;
      waiting[resource].pop();
      taken[resource] = true;
      Entry& entry = tasks_[static_cast<std::size_t>(id)];
      entry.begin = now;
      entry.end = now + entry.seconds;
      events.push({entry.end, id});
    };
    for (std::size_t id = 0; id < count; ++id)
      if (tasks_[id].waits_for == 0)
        waiting[static_cast<std::size_t>(tasks_[id].resource)].push({0.0, static_cast<Task>(id)});
    for (std::size_t r = 0; r < resources_.size(); ++r) start(r, 0);
    std::size_t done = 0;
    double end = 0;
    std::vector<std::size_t> touched;
    while (!events.empty()) {
      // All that ends now, before anything begins: who became ready at one moment waits in the order of adding.
      double const now = events.top().first;
      touched.clear();
      while (!events.empty() && events.top().first == now) {
        Task const id = events.top().second;
        events.pop();
        ++done;
        end = std::max(end, now);
        Entry const& entry = tasks_[static_cast<std::size_t>(id)];
        taken[static_cast<std::size_t>(entry.resource)] = false;
        touched.push_back(static_cast<std::size_t>(entry.resource));
        for (std::size_t i = first[static_cast<std::size_t>(id)]; i < first[static_cast<std::size_t>(id) + 1]; ++i) {
          Entry& follower = tasks_[static_cast<std::size_t>(next[i])];
          if (--follower.waits_for > 0) continue;
          waiting[static_cast<std::size_t>(follower.resource)].push({now, next[i]});
          touched.push_back(static_cast<std::size_t>(follower.resource));
        }
      }
      for (std::size_t const r : touched) start(r, now);
    }
    if (done != count)
      throw Error(ErrorKind::invalid_argument, "plan::Simulation",
                  concat(count - done, " of ", count, " tasks wait for each other"));
    return end;
  }

  double begin(Task task) const { return tasks_[static_cast<std::size_t>(task)].begin; }
  double end(Task task) const { return tasks_[static_cast<std::size_t>(task)].end; }
  /// Seconds in which a resource does something.
  double busy(Resource resource) const {
    double seconds = 0;
    for (Entry const& entry : tasks_) seconds += entry.resource == resource ? entry.seconds : 0;
    return seconds;
  }
  double busy(Resource resource, Kind kind) const {
    double seconds = 0;
    for (Entry const& entry : tasks_) seconds += entry.resource == resource && entry.kind == kind ? entry.seconds : 0;
    return seconds;
  }
  std::vector<std::string> const& resources() const noexcept { return resources_; }
  std::size_t size() const noexcept { return tasks_.size(); }
  /// Of a run, in the order of adding; what takes no time is left out.
  std::vector<Span> spans() const {
    std::vector<Span> all;
    for (Entry const& entry : tasks_)
      if (entry.seconds > 0) all.push_back({entry.resource, entry.kind, entry.begin, entry.end});
    return all;
  }

 private:
  struct Entry {
    Resource resource = 0;
    Kind kind{};
    double seconds = 0, begin = 0, end = 0;
    int waits_for = 0;
  };
  std::vector<std::string> resources_;
  std::vector<Entry> tasks_;
  std::vector<std::pair<Task, Task>> follow_;
};

}  // namespace tutti::plan

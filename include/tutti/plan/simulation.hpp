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
  /// Of all resources that share no more than `capacity` work at full speed at once: where more do, each is slower by
  /// as much. As ranks that have fewer processors.
  void share(Resource resource, double capacity) {
    shares_.resize(resources_.size(), false);
    shares_[static_cast<std::size_t>(resource)] = true;
    capacity_ = capacity;
  }
  /// While both work, `burden` is the share of its time that `device` has not for its own tasks, and those of `link`
  /// take `stretch` times as long. As processors that make transfers themselves, between steps.
  void overlap(Resource link, Resource device, double burden, double stretch) {
    overlaps_.push_back({link, device, burden, stretch});
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
    std::vector<Task> working(resources_.size(), -1);
    shares_.resize(resources_.size(), false);
    std::vector<double> slowness(resources_.size(), 1.0);
    auto const start = [&](std::size_t resource, double now) {
      if (working[resource] >= 0 || waiting[resource].empty()) return;
      Task const id = working[resource] = waiting[resource].top().second;
      waiting[resource].pop();
      Entry& entry = tasks_[static_cast<std::size_t>(id)];
      entry.begin = now;
      entry.end = now + entry.seconds * slowness[resource];
    };
    auto const works = [&](std::size_t resource) {
      return working[resource] >= 0 && tasks_[static_cast<std::size_t>(working[resource])].seconds > 0;
    };
    auto const slow_down = [&](double now) {
      double active = 0;
      for (std::size_t r = 0; r < working.size(); ++r) active += shares_[r] && works(r) ? 1 : 0;
      double const crowded = capacity_ > 0 ? std::max(1.0, active / capacity_) : 1;
      for (std::size_t r = 0; r < working.size(); ++r) {
        double left = 1, stretch = 1;
        for (Overlap const& one : overlaps_) {
          auto const link = static_cast<std::size_t>(one.link), device = static_cast<std::size_t>(one.device);
          if (device == r && works(link)) left -= one.burden;
          if (link == r && works(device)) stretch = one.stretch;
        }
        double const slower = (shares_[r] ? crowded : 1) * stretch / std::max(left, 0.05);
        if (slower == slowness[r]) continue;
        if (working[r] >= 0)
          if (double& ends = tasks_[static_cast<std::size_t>(working[r])].end; ends > now)
            ends = now + (ends - now) * slower / slowness[r];
        slowness[r] = slower;
      }
    };
    for (std::size_t id = 0; id < count; ++id)
      if (tasks_[id].waits_for == 0)
        waiting[static_cast<std::size_t>(tasks_[id].resource)].push({0.0, static_cast<Task>(id)});
    for (std::size_t r = 0; r < resources_.size(); ++r) start(r, 0);
    slow_down(0);
    std::size_t done = 0;
    double now = 0;
    std::vector<Task> ended;
    std::vector<std::size_t> touched;
    while (true) {
      // All that ends now, before anything begins: who became ready at one moment waits in the order of adding.
      ended.clear();
      for (Task const id : working) {
        if (id < 0) continue;
        double const ends = tasks_[static_cast<std::size_t>(id)].end;
        if (ended.empty() || ends < now) now = ends, ended.clear();
        if (ends == now) ended.push_back(id);
      }
      if (ended.empty()) break;
      std::sort(ended.begin(), ended.end());
      touched.clear();
      for (Task const id : ended) {
        ++done;
        Entry const& entry = tasks_[static_cast<std::size_t>(id)];
        working[static_cast<std::size_t>(entry.resource)] = -1;
        touched.push_back(static_cast<std::size_t>(entry.resource));
        for (std::size_t i = first[static_cast<std::size_t>(id)]; i < first[static_cast<std::size_t>(id) + 1]; ++i) {
          Entry& follower = tasks_[static_cast<std::size_t>(next[i])];
          if (--follower.waits_for > 0) continue;
          waiting[static_cast<std::size_t>(follower.resource)].push({now, next[i]});
          touched.push_back(static_cast<std::size_t>(follower.resource));
        }
      }
      for (std::size_t const r : touched) start(r, now);
      slow_down(now);
    }
    if (done != count)
      throw Error(ErrorKind::invalid_argument, "plan::Simulation",
                  concat(count - done, " of ", count, " tasks wait for each other"));
    return now;
  }

  double begin(Task task) const { return tasks_[static_cast<std::size_t>(task)].begin; }
  double end(Task task) const { return tasks_[static_cast<std::size_t>(task)].end; }
  /// Seconds of a run in which a resource does something.
  double busy(Resource resource) const {
    double seconds = 0;
    for (Entry const& entry : tasks_) seconds += entry.resource == resource ? entry.end - entry.begin : 0;
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
  struct Overlap {
    Resource link = 0, device = 0;
    double burden = 0, stretch = 1;
  };
  std::vector<std::string> resources_;
  std::vector<Overlap> overlaps_;
  std::vector<bool> shares_;  // by resource
  double capacity_ = 0;       // of those that share
  std::vector<Entry> tasks_;
  std::vector<std::pair<Task, Task>> follow_;
};

}  // namespace tutti::plan

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Who learns from which samples. Every sample of a run is free, leased to one worker, or committed, and goes from one
/// to the next by three operations alone.

#include <tutti/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::federate {

/// Samples first to first + count - 1.
struct Range {
  std::int64_t first = 0, count = 0;

  friend bool operator==(Range const&, Range const&) = default;
};

inline std::int64_t samples_of(std::vector<Range> const& ranges) noexcept {
  std::int64_t total = 0;
  for (Range const& range : ranges) total += range.count;
  return total;
}

/// A set of samples as disjoint ranges, neighbours joined.
class RangeSet {
 public:
  std::int64_t size() const noexcept { return size_; }
  std::map<std::int64_t, std::int64_t> const& ranges() const noexcept { return ranges_; }

  /// False, with nothing changed, when a sample is in the set already.
  bool add(Range range) {
    if (range.count <= 0) return range.count == 0;
    auto const after = ranges_.lower_bound(range.first);
    if (after != ranges_.end() && after->first < range.first + range.count) return false;
    if (after != ranges_.begin()) {
      auto const before = std::prev(after);
      if (before->first + before->second > range.first) return false;
    }
    size_ += range.count;
    auto at = ranges_.emplace(range.first, range.count).first;
    if (auto const next = std::next(at); next != ranges_.end() && at->first + at->second == next->first) {
      at->second += next->second;
      ranges_.erase(next);
    }
    if (at != ranges_.begin()) {
      auto const before = std::prev(at);
      if (before->first + before->second == at->first) {
        before->second += at->second;
        ranges_.erase(at);
      }
    }
    return true;
  }
  /// False, with nothing changed, when a sample is not in the set.
  bool remove(Range range) {
    if (range.count <= 0) return range.count == 0;
    auto at = ranges_.upper_bound(range.first);
    if (at == ranges_.begin()) return false;
    --at;
    auto const [first, count] = *at;
    if (range.first + range.count > first + count) return false;
    ranges_.erase(at);
    if (range.first > first) ranges_.emplace(first, range.first - first);
    if (std::int64_t const rest = first + count - range.first - range.count; rest > 0)
      ranges_.emplace(range.first + range.count, rest);
    size_ -= range.count;
    return true;
  }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;  // first to count
  std::int64_t size_ = 0;
};

struct Lease {
  std::uint64_t id = 0;
  std::uint64_t worker = 0;
  std::int64_t round = 0;     ///< whose parameters the worker begins from
  std::vector<Range> ranges;  ///< in the order in which they are learned from
};

/// Errors     internal, from every operation that would break what the file says; nothing is changed then.
class Ledger {
 public:
  explicit Ledger(std::int64_t samples) : samples_(samples) { static_cast<void>(free_.add({0, samples})); }
  /// Of these samples alone.
  explicit Ledger(std::vector<Range> const& ranges) : samples_(samples_of(ranges)) {
    for (Range const& range : ranges) put(free_, range);
  }

  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t free() const noexcept { return free_.size(); }
  std::int64_t committed() const noexcept { return committed_.size(); }
  std::int64_t leased() const noexcept { return samples_ - free() - committed(); }
  bool complete() const noexcept { return committed() == samples_; }
  std::map<std::uint64_t, Lease> const& leases() const noexcept { return leases_; }
  Lease const* find(std::uint64_t id) const noexcept {
    auto const at = leases_.find(id);
    return at == leases_.end() ? nullptr : &at->second;
  }

  /// Whether the first samples of the ranges are committed, and no others; then how many, else 0.
  std::int64_t committed_first(std::vector<Range> const& ranges) const {
    std::int64_t first = 0;
    for (Range const& range : ranges) {
      auto at = committed_.ranges().upper_bound(range.first);
      std::int64_t const end = at == committed_.ranges().begin() ? 0 : (--at)->first + at->second;
      std::int64_t const here = std::clamp<std::int64_t>(end - range.first, 0, range.count);
      first += here;
      if (here < range.count) break;
    }
    return first == committed() ? first : 0;
  }
  /// The lowest free samples, at most so many: what comes back is learned from before what is new.
  std::vector<Range> lowest_free(std::int64_t most) const {
    std::vector<Range> found;
    for (auto const& [first, count] : free_.ranges()) {
      if (most <= 0) break;
      found.push_back({first, std::min(count, most)});
      most -= found.back().count;
    }
    return found;
  }
  void lease(Lease lease) {
    if (lease.id == 0 || leases_.contains(lease.id)) broken("lease " + std::to_string(lease.id) + " is given twice");
    RangeSet left = free_;
    for (Range const& range : lease.ranges)
      if (range.count < 1 || !left.remove(range)) broken(told(range) + " is leased and was not free");
    if (lease.ranges.empty()) broken("a lease of nothing");
    free_ = std::move(left);
    leases_.emplace(lease.id, std::move(lease));
  }
  /// The first `used` samples of the lease are committed, the others are free again.
  void commit(std::uint64_t id, std::int64_t used) {
    Lease const lease = at(id);
    if (used < 1 || used > samples_of(lease.ranges))
      broken("lease " + std::to_string(id) + " commits " + std::to_string(used) + " samples, which it does not have");
    leases_.erase(id);
    for (Range range : lease.ranges) {
      std::int64_t const here = std::min(used, range.count);
      used -= here;
      put(committed_, {range.first, here});
      put(free_, {range.first + here, range.count - here});
    }
  }
  void release(std::uint64_t id) {
    Lease const lease = at(id);
    leases_.erase(id);
    for (Range const& range : lease.ranges) put(free_, range);
  }
  /// The worker of a lease begins from newer parameters.
  void rebase(std::uint64_t id, std::int64_t round) {
    static_cast<void>(at(id));
    leases_.at(id).round = round;
  }

 private:
  [[noreturn]] static void broken(std::string const& what) { throw Error(ErrorKind::internal, "Ledger", what); }
  static std::string told(Range const& range) {
    return "[" + std::to_string(range.first) + ", " + std::to_string(range.first + range.count) + ")";
  }
  Lease const& at(std::uint64_t id) const {
    auto const found = leases_.find(id);
    if (found == leases_.end()) broken("lease " + std::to_string(id) + " is not outstanding");
    return found->second;
  }
  static void put(RangeSet& set, Range const& range) {
    if (!set.add(range)) broken(told(range) + " is in two places");
  }

  std::int64_t samples_;
  RangeSet free_, committed_;
  std::map<std::uint64_t, Lease> leases_;
};

/// Of workers with several leases, those before the newest: a worker comes back with one, and what it had delivered
/// before that is gone with the shepherd that had it. `all`: every lease, where one is worth nothing without the
/// others.
inline std::vector<std::uint64_t> superseded(Ledger const& ledger, bool all) {
  std::map<std::uint64_t, std::uint64_t> newest;
  std::vector<std::uint64_t> found;
  for (auto const& [id, lease] : ledger.leases())
    if (all) found.push_back(id);
    else if (std::uint64_t const former = std::exchange(newest[lease.worker], id); former != 0) found.push_back(former);
  return found;
}

}  // namespace tutti::federate

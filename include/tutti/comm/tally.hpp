// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Tally`: counts what a rank's operations on one communicator add up to. comm/statistics.hpp combines the ranks' and
/// prints them.
///
/// Bytes on the wire are payload: elements, and the cards by which calls are compared; no arrival words, no headers.
///   messages, comparison   sent: what was passed to the backend's sends; received: what its receives brought
///   library                sent: this rank's contribution, in place or not, that the transport's call was given;
///                          received: its result. What the transport makes of it is its own business
///   shared, all three      sent: what this rank has written for others, to the board, to staging memory or to their
///                          buffers; received: what it has read of others', there or in their buffers. Its own buffers,
///                          where it reads or writes them itself, do not count
/// The backend's own messages when something takes long or fails are counted beside the operations, as notices. What a
/// backend exchanges while communicators are made, by split too, and while `launch` ends is not counted.

#include <tutti/comm/collective.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/wait.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

/// Counts of times in nanoseconds, in fixed memory for all of them: a bucket for each below 16, then 16 to each
/// doubling.
class TimeHistogram {
 public:
  /// Of `quantile`.
  static constexpr double relative_error = 1.0 / 32;
  static constexpr int buckets = 16 * 60;

  void add(std::int64_t ns) noexcept { ++counts_[bucket(ns)]; }
  std::int64_t count() const noexcept {
    std::int64_t all = 0;
    for (std::int64_t const count : counts_) all += count;
    return all;
  }
  /// The smallest time that is not below a share of all, 0 to 1; 0 when there is none.
  template <class = void>
  double quantile(double share) const noexcept {
    double const wanted = share * static_cast<double>(count());
    std::int64_t seen = 0;
    for (int i = 0; i < buckets; ++i) {
      seen += counts_[i];
      if (seen != 0 && static_cast<double>(seen) >= wanted) return middle(i);
    }
    return 0;
  }
  std::int64_t* data() noexcept { return counts_; }
  std::int64_t const* data() const noexcept { return counts_; }

 private:
  static constexpr int bucket(std::int64_t ns) noexcept {
    if (ns < 16) return ns < 0 ? 0 : static_cast<int>(ns);
    int const doublings = 59 - __builtin_clzll(static_cast<unsigned long long>(ns));
    return 16 * doublings + static_cast<int>(ns >> doublings);
  }

  static double middle(int bucket) noexcept {
    if (bucket < 32) return bucket;
    int const doublings = bucket / 16 - 1;
    auto const width = static_cast<double>(std::int64_t{1} << doublings);
    return (bucket % 16 + 16.5) * width - 0.5;
  }

  std::int64_t counts_[buckets] = {};
};

/// Of the operations of one name.
struct OperationStatistics {
  char const* operation = "";   ///< "all_reduce", "send"
  std::int64_t calls = 0;       ///< completed
  std::int64_t bytes = 0;       ///< asked for, see `comm::asked_bytes`; of a message its payload
  std::int64_t time_ns = 0;     ///< from the call until it was seen to be complete
  std::int64_t exposed_ns = 0;  ///< in blocking calls, and in waits on requests
  comm::WireTraffic wire[comm::algorithm_count]{};
  TimeHistogram times{};        ///< of the calls in `time_ns`

  comm::WireTraffic const& by(comm::Algorithm algorithm) const noexcept { return wire[static_cast<int>(algorithm)]; }
};

struct Statistics;  // comm/statistics.hpp

namespace comm {

/// Operations by number: collectives by their kind, then these.
inline constexpr char const* message_operations[] = {"send", "recv", "send_recv", "probe", "match"};
inline constexpr int operation_count = kind_count + 5;
constexpr char const* operation_name(int number) noexcept {
  return number < kind_count ? name(static_cast<Kind>(number)).data() : message_operations[number - kind_count];
}

/// The size of a call, as nccl-tests count it: the larger of a rank's two buffers. Of the _v kinds the larger sum of
/// the blocks that this rank knows of, and of all_reduce_contributions the result.
template <class = void>
std::int64_t asked_bytes(Collective const& call, int ranks) noexcept {
  bool const blocks = gives_blocks(call.kind) || takes_blocks(call.kind);
  std::int64_t elements = call.kind == Kind::barrier ? 0 : call.count * (blocks ? ranks : 1);
  std::int64_t from = 0, to = 0;
  for (std::int64_t const count : call.from_counts) from += count;
  for (std::int64_t const count : call.to_counts) to += count;
  if (elements < from) elements = from;
  if (elements < to) elements = to;
  return elements * call.element_bytes();
}

/// Written by the rank's thread alone. Costs a branch an operation until it is started.
class Tally {
 public:
  /// An operation under way; default constructed none, or none that is counted.
  struct Ticket {
    OperationStatistics* row = nullptr;
    std::int64_t begin = 0;
    /// For Collective::wire.
    WireTraffic* wire() const noexcept { return row != nullptr ? row->wire : nullptr; }
    void count(Algorithm algorithm, std::int64_t sent, std::int64_t received) const noexcept {
      if (row != nullptr) Tally::count(row->wire, algorithm, sent, received);
    }
    void complete(std::int64_t bytes) const noexcept {
      if (row == nullptr) return;
      std::int64_t const time = exec::now_ns() - begin;
      ++row->calls;
      row->bytes += bytes;
      row->time_ns += time;
      row->times.add(time);
    }
  };
  /// One operation of an algorithm. `wire` may be null.
  static void count(WireTraffic* wire, Algorithm algorithm, std::int64_t sent, std::int64_t received) noexcept {
    if (wire != nullptr) wire[static_cast<int>(algorithm)].add(sent, received);
  }

  /// A scope in which the caller only waits for an operation. Scopes inside of it are part of it.
  class Exposed {
   public:
    template <class = void>
    Exposed(Tally& tally, char const* operation) : tally_(tally) {
      if (!tally.on_ || tally.exposed_) return;
      ticket_ = tally.open(operation);
      tally.exposed_ = ticket_.row != nullptr;
    }
    Exposed(Exposed const&) = delete;
    Exposed& operator=(Exposed const&) = delete;
    ~Exposed() {
      if (ticket_.row == nullptr) return;
      ticket_.row->exposed_ns += exec::now_ns() - ticket_.begin;
      tally_.exposed_ = false;
    }

   private:
    Tally& tally_;
    Ticket ticket_;
  };

  bool on() const noexcept { return on_; }
  /// From now on, from zero. What is under way and was counted before will count with its whole time.
  template <class = void>
  void start() {
    for (auto& row : rows_)
      if (row != nullptr) *row = {.operation = row->operation};
    notices = {};
    on_ = true;
    begin_ = exec::now_ns();
  }
  template <class = void>
  Ticket begin(char const* operation) { return on_ ? open(operation) : Ticket{}; }

  /// Nanoseconds since the start.
  std::int64_t wall_ns() const noexcept { return exec::now_ns() - begin_; }
  /// Calls f(operation) for all that there were: collectives, then messages.
  template <class F>
  void visit(F&& f) const {
    for (auto const& row : rows_)
      if (row != nullptr && is_used(*row)) f(*row);
  }

  WireTraffic notices;  ///< of the backend, which adds to it

 private:
  template <class = void>
  Ticket open(char const* operation) {
    int number = 0;
    while (number < operation_count && std::string_view(operation) != operation_name(number)) ++number;
    if (number == operation_count) return {};
    if (rows_[number] == nullptr) rows_[number] = make_owner<OperationStatistics>();
    rows_[number]->operation = operation_name(number);
    return {rows_[number].get(), exec::now_ns()};
  }
  template <class = void>
  static bool is_used(OperationStatistics const& row) noexcept {
    for (WireTraffic const& traffic : row.wire)
      if (traffic.operations != 0) return true;
    return row.calls != 0 || row.exposed_ns != 0;
  }

  bool on_ = false;
  bool exposed_ = false;
  std::int64_t begin_ = 0;
  Owner<OperationStatistics> rows_[operation_count];
};

}  // namespace comm
}  // namespace tutti

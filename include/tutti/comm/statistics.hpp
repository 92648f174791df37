// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Statistics`: what `Communicator::statistics` returns; the ranks' statistics in one; as a table and as JSON.
/// comm/tally.hpp says what counts as sent, received and exposed.

#include <tutti/comm/bandwidth.hpp>
#include <tutti/comm/communicator.hpp>
#include <tutti/comm/flight_recorder.hpp>
#include <tutti/comm/statistics_text.hpp>
#include <tutti/comm/tally.hpp>
#include <tutti/core/list.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// Of one rank, or of several: then sums over them.
struct Statistics {
  struct Share {
    double value = 0;
    int rank = 0;
  };
  std::string communicator;  ///< as the flight recorder names it
  int rank = 0;              ///< -1: of several
  int ranks = 1;             ///< of how many
  int size = 1;              ///< of the communicator
  std::int64_t wall_ns = 0;  ///< since the statistics began
  Share least_exposed;       ///< of the ranks
  Share most_exposed;
  comm::WireTraffic notices;             ///< the backend's own messages, of no operation
  List<OperationStatistics> operations;  ///< those that there were: collectives, then messages

  static Statistics of(comm::Tally const& tally, FlightRecorder::Identity const& who) {
    Statistics result;
    result.communicator = who.communicator;
    result.rank = who.rank;
    result.size = who.size;
    result.wall_ns = tally.wall_ns();
    result.notices = tally.notices;
    tally.visit([&](OperationStatistics const& operation) { result.operations.push_back(operation); });
    result.least_exposed = result.most_exposed = {result.exposed_share(), result.rank};
    return result;
  }

  /// Null where there was none. Not of a temporary, with which it would go.
  OperationStatistics const* find(std::string_view operation) const& noexcept {
    for (OperationStatistics const& one : operations)
      if (one.operation == operation) return &one;
    return nullptr;
  }
  OperationStatistics const* find(std::string_view operation) && = delete;
  /// The part of the time in which the program did nothing but communicate; of several ranks, their mean.
  double exposed_share() const noexcept {
    std::int64_t exposed_ns = 0;
    for (OperationStatistics const& one : operations) exposed_ns += one.exposed_ns;
    return share(exposed_ns);
  }
  double exposed_share(OperationStatistics const& operation) const noexcept { return share(operation.exposed_ns); }
  /// Bytes a second: those asked for over the time of the calls, 0 where nothing was timed. Calls that were under way
  /// together each count with their whole time.
  static double algorithm_bandwidth(OperationStatistics const& operation) noexcept {
    return operation.time_ns > 0 ? 1e9 * static_cast<double>(operation.bytes) / static_cast<double>(operation.time_ns)
                                 : 0;
  }
  /// The same times `comm::bus_factor`, which is 1 for messages.
  double bus_bandwidth(OperationStatistics const& operation) const noexcept {
    double factor = 1;
    for (int kind = 0; kind < comm::kind_count; ++kind)
      if (std::string_view(operation.operation) == name(static_cast<comm::Kind>(kind)))
        factor = comm::bus_factor(static_cast<comm::Kind>(kind), size);
    return factor * algorithm_bandwidth(operation);
  }

 private:
  double share(std::int64_t ns) const noexcept {
    return wall_ns > 0 ? static_cast<double>(ns) / static_cast<double>(wall_ns) : 0;
  }
};

namespace comm {

constexpr std::string_view name(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::shared_board: return "shared in board";
    case Algorithm::shared_one_pass: return "shared one-pass";
    case Algorithm::shared_staged: return "shared staged";
    case Algorithm::library: return "library";
    case Algorithm::messages: return "messages";
    case Algorithm::comparison: return "comparison";
    case Algorithm::exchange: return "exchange";
  }
  return "unknown";
}

namespace detail {

/// Calls f(counter) for all the counters of an operation.
template <class F>
void for_each_counter(OperationStatistics& one, F&& f) {
  for (std::int64_t* counter : {&one.calls, &one.bytes, &one.time_ns, &one.exposed_ns}) f(*counter);
  for (WireTraffic& traffic : one.wire)
    for (std::int64_t* counter : {&traffic.operations, &traffic.sent, &traffic.received}) f(*counter);
  for (int i = 0; i < TimeHistogram::buckets; ++i) f(one.times.data()[i]);
}

inline std::string to_json(WireTraffic const& traffic) {
  return "{\"operations\": " + std::to_string(traffic.operations) + ", \"sent\": " + std::to_string(traffic.sent) +
         ", \"received\": " + std::to_string(traffic.received) + "}";
}
inline std::string to_json(Statistics::Share const& share) {
  return "{\"share\": " + number(share.value) + ", \"rank\": " + std::to_string(share.rank) + "}";
}

}  // namespace detail

/// The statistics of all ranks in one: counters and times of all, and which rank was exposed least and most. The same
/// on every rank; what it exchanges itself is counted by later ones.
/// Ranks      all, each with its own `mine`; blocks.
/// Errors     invalid_argument: `mine` is not this rank's of a communicator of this size; and what `comm` throws.
template <Backend B>
Statistics reduced(Communicator<B>& comm, Statistics const& mine,
                   std::source_location where = std::source_location::current()) {
  static_assert(B::Device::host_accessible, "tutti: statistics are counted in host memory. Print those of each rank");
  bool const own = mine.size == comm.size() && mine.rank == comm.rank() && mine.ranks == 1;
  if (!comm.all_reduce(own, logical_and, where))
    throw Error(ErrorKind::invalid_argument, "reduced",
                "some rank passes statistics which are not its own on " + std::to_string(comm.size()) +
                    " ranks. Pass the statistics() of this communicator, or of one with the same ranks",
                where)
        .with_rank(comm.rank());
  std::array<std::uint32_t, 1> used{};
  for (int i = 0; i < operation_count; ++i)
    if (mine.find(operation_name(i)) != nullptr) used[0] |= std::uint32_t{1} << i;
  comm.all_reduce(used, bitwise_or, where);

  Statistics all = mine;
  all.rank = -1;
  all.ranks = comm.size();
  all.operations.clear();
  for (int i = 0; i < operation_count; ++i) {
    if ((used[0] >> i & 1u) == 0) continue;
    OperationStatistics const* const one = mine.find(operation_name(i));
    all.operations.push_back(one != nullptr ? *one : OperationStatistics{.operation = operation_name(i)});
  }
  std::vector<std::int64_t> counters;
  auto const for_each = [&](auto&& f) {
    for (std::int64_t* counter : {&all.wall_ns, &all.notices.operations, &all.notices.sent, &all.notices.received})
      f(*counter);
    for (OperationStatistics& one : all.operations) detail::for_each_counter(one, f);
  };
  for_each([&](std::int64_t counter) { counters.push_back(counter); });
  comm.all_reduce(counters, sum, where);
  for_each([next = counters.begin()](std::int64_t& counter) mutable { counter = *next++; });

  auto const shares = comm.all_gather(std::array<double, 1>{mine.exposed_share()}, where);
  for (int r = 0; r < comm.size(); ++r) {
    Statistics::Share const share{shares.data()[r], r};
    if (r == 0 || share.value < all.least_exposed.value) all.least_exposed = share;
    if (r == 0 || share.value > all.most_exposed.value) all.most_exposed = share;
  }
  return all;
}

/// A table for people: operations, and under each by which algorithms it went.
inline std::string to_table(Statistics const& statistics) {
  std::string text = "communicator " + statistics.communicator + ", ";
  if (statistics.ranks > 1) text += "sums over " + std::to_string(statistics.ranks) + " ranks";
  else text += "rank " + std::to_string(statistics.rank) + " of " + std::to_string(statistics.size);
  text += ", " + detail::time_text(static_cast<double>(statistics.wall_ns) / statistics.ranks) + ", exposed " +
          detail::percent(statistics.exposed_share());
  if (statistics.ranks > 1)
    text += " (rank " + std::to_string(statistics.least_exposed.rank) + " " +
            detail::percent(statistics.least_exposed.value) + " to rank " +
            std::to_string(statistics.most_exposed.rank) + " " + detail::percent(statistics.most_exposed.value) + ")";
  text += "\n" + detail::line("operation", {"calls", "bytes", "p50", "p99", "algbw/s", "busbw/s", "exposed"});
  for (OperationStatistics const& one : statistics.operations) {
    auto const bandwidth = [&](double value) { return one.bytes > 0 ? detail::bytes_text(value) : std::string("-"); };
    auto const quantile = [&](double share) {
      return one.calls > 0 ? detail::time_text(one.times.quantile(share)) : std::string("-");
    };
    text += detail::line(one.operation,
                         {std::to_string(one.calls), detail::bytes_text(static_cast<double>(one.bytes)), quantile(0.5),
                          quantile(0.99), bandwidth(Statistics::algorithm_bandwidth(one)),
                          bandwidth(statistics.bus_bandwidth(one)), detail::percent(statistics.exposed_share(one))});
    auto const wire = [](std::string const& label, WireTraffic const& traffic) {
      return detail::line(label, {std::to_string(traffic.operations),
                                  detail::bytes_text(static_cast<double>(traffic.sent)), "sent",
                                  detail::bytes_text(static_cast<double>(traffic.received)), "received"});
    };
    for (int a = 0; a < algorithm_count; ++a)
      if (one.wire[a].operations != 0) text += wire("  " + std::string(name(static_cast<Algorithm>(a))), one.wire[a]);
  }
  return text;
}

/// One object. Bytes, nanoseconds, bytes a second; quantiles within TimeHistogram::relative_error; "rank" is null where
/// several ranks are summed.
inline std::string to_json(Statistics const& statistics) {
  using detail::number;
  std::string text = "{\"tutti_statistics\": 1, \"communicator\": " + detail::quoted(statistics.communicator) +
                     ", \"rank\": " + (statistics.rank < 0 ? "null" : std::to_string(statistics.rank)) +
                     ", \"ranks\": " + std::to_string(statistics.ranks) +
                     ", \"size\": " + std::to_string(statistics.size) +
                     ", \"wall_ns\": " + std::to_string(statistics.wall_ns) +
                     ", \"exposed_share\": " + number(statistics.exposed_share()) +
                     ", \"least_exposed\": " + detail::to_json(statistics.least_exposed) +
                     ", \"most_exposed\": " + detail::to_json(statistics.most_exposed) +
                     ", \"notices\": " + detail::to_json(statistics.notices) + ", \"operations\": [";
  bool first = true;
  for (OperationStatistics const& one : statistics.operations) {
    text += std::string(first ? "\n" : ",\n") + "{\"operation\": " + detail::quoted(one.operation) +
            ", \"calls\": " + std::to_string(one.calls) + ", \"bytes\": " + std::to_string(one.bytes) +
            ", \"time_ns\": " + std::to_string(one.time_ns) + ", \"p50_ns\": " + number(one.times.quantile(0.5)) +
            ", \"p99_ns\": " + number(one.times.quantile(0.99)) +
            ", \"algorithm_bandwidth\": " + number(Statistics::algorithm_bandwidth(one)) +
            ", \"bus_bandwidth\": " + number(statistics.bus_bandwidth(one)) +
            ", \"exposed_ns\": " + std::to_string(one.exposed_ns) +
            ", \"exposed_share\": " + number(statistics.exposed_share(one)) + ", \"wire\": {";
    bool first_wire = true;
    for (int a = 0; a < algorithm_count; ++a) {
      if (one.wire[a].operations == 0) continue;
      text += std::string(first_wire ? "" : ", ") + detail::quoted(name(static_cast<Algorithm>(a))) + ": " +
              detail::to_json(one.wire[a]);
      first_wire = false;
    }
    text += "}}";
    first = false;
  }
  return text + "]}\n";
}

}  // namespace comm
}  // namespace tutti

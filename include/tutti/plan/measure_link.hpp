// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Measures links: collectives between ranks that are there, what they and a rank that computes cost each other, and
/// the memory that they take.

#include <tutti/comm/port.hpp>
#include <tutti/core/pages.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/plan/cluster.hpp>
#include <tutti/plan/collective_cost.hpp>
#include <tutti/train/process_use.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <utility>
#include <vector>

namespace tutti::plan {

namespace detail {

/// Some tenths of a millisecond of arithmetic on one processor.
class BitOfWork {
 public:
  BitOfWork() {
    while (passes_ < 1 << 20 && time(1) < 3e-4) passes_ *= 2;
  }
  void operator()() noexcept {
    for (int pass = 0; pass < passes_; ++pass)
      for (float& number : numbers_) number = number * 0.5f + 1.0f;
  }
  /// Seconds of one, in a row of `times`.
  double time(int times) noexcept {
    std::int64_t const begin = exec::now_ns();
    for (int i = 0; i < times; ++i) (*this)();
    return static_cast<double>(exec::now_ns() - begin) / 1e9 / times;
  }

 private:
  std::vector<float> numbers_ = std::vector<float>(4096);
  int passes_ = 1;
};

/// What a share of `times` is at most.
inline double quantile(std::vector<double> times, double share) {
  auto const place = times.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(times.size()));
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

/// What a transfer and a rank that computes meanwhile cost each other.
struct Overlap {
  double burden = 0;   ///< share of the rank's time
  double stretch = 1;  ///< how much longer the transfer takes
};

/// `start` starts a transfer, which takes `alone` seconds where a rank only waits for it; here the rank looks after it
/// between two bits of work, as a step does. Ranks: all of the port.
template <class F>
Overlap measure_overlap(comm::Port& port, double alone, F const& start, int runs, std::source_location where) {
  BitOfWork work;
  std::vector<double> shares, times;
  for (int run = 0; run < runs; ++run) {
    port.barrier(where);
    double const bit = work.time(20);
    port.barrier(where);
    std::int64_t const begin = exec::now_ns();
    comm::Port::Ticket const ticket = start();
    int bits = 0;
    while (!port.test(ticket)) work(), ++bits;
    times.push_back(static_cast<double>(exec::now_ns() - begin) / 1e9);
    shares.push_back(1 - bits * bit / times.back());
  }
  return {std::clamp(quantile(std::move(shares), 0.5), 0.0, 0.95),
          std::clamp(quantile(std::move(times), 0.5) / alone, 1.0, 20.0)};
}

/// Bytes that the library of this rank keeps for each byte of `places` collectives that are under way at once,
/// `bytes` together; `start(i)` starts one. Measured in the process's memory, so the most of some tries; 0 where the
/// system does not tell. Ranks: all of the port.
template <class F>
double measure_held(comm::Port& port, int places, double bytes, F const& start, std::source_location where) {
  std::int64_t most = 0;
  std::vector<comm::Port::Ticket> tickets;
  for (int attempt = 0; attempt < 3; ++attempt) {
    pages::return_free_heap();
    bool const forgotten = train::ProcessUse::forget_peak();
    std::int64_t const before = train::ProcessUse::peak_memory();
    port.barrier(where);
    for (int i = 0; i < places; ++i) tickets.push_back(start(i));
    for (comm::Port::Ticket const ticket : tickets) port.wait(ticket);
    tickets.clear();
    if (forgotten) most = std::max(most, train::ProcessUse::peak_memory() - before);
  }
  return static_cast<double>(most) / bytes;
}

/// Bytes a second of a message of `bytes` from rank 0 to rank 1, and back, while no others are under way, on these two;
/// 0 on others. In the fastest quarter of `runs`. Ranks: all of the port, two at least.
inline double measure_message(comm::Port& port, std::int64_t bytes, int runs, std::source_location where) {
  std::vector<char> data(static_cast<std::size_t>(bytes));
  std::vector<double> seconds;
  int const rank = port.rank(), other = 1 - rank;
  auto const send = [&] { port.wait(port.start_send(data.data(), bytes, other, 0, where)); };
  auto const receive = [&] { port.wait(port.start_receive(data.data(), bytes, other, 0, where)); };
  for (int run = 0; run <= runs; ++run) {
    port.barrier(where);
    if (rank > 1) continue;
    std::int64_t const begin = exec::now_ns();
    if (rank == 0) send(), receive();
    else receive(), send();
    if (run > 0) seconds.push_back(static_cast<double>(exec::now_ns() - begin) / 2e9);
  }
  return rank > 1 ? 0 : static_cast<double>(bytes) / quantile(std::move(seconds), 0.25);
}

}  // namespace detail

/// The link that explains how long sums, gathers and scattered sums over the ranks of `port` take, small ones and some
/// of `bytes`, `runs` of each: the median where they share memory, the lower quartile where they send messages, which
/// come late at times; of a single message; and what part of its time messages cost a rank that computes meanwhile.
/// Sums are of memory that the ranks share, where they have some, as gradients are; the others of memory of their own
/// that no cache holds, as parts of parameters are. Ranks: all. Blocking.
inline Link measure_link(comm::Port& port, bool shared_memory, std::int64_t bytes = std::int64_t{4} << 20, int runs = 9,
                         std::source_location where = std::source_location::current()) {
  std::int64_t const ranks = port.size(), count = bytes / 4 / ranks * ranks;
  int run = 0;
  detail::Overlap overlap{0, shared_memory ? 1.0 : 0.0};  // mean of the three kinds, where no memory is shared
  auto const time = [&](auto const& start) {
    std::vector<double> seconds;
    for (run = 0; run <= runs; ++run) {
      port.barrier(where);
      std::int64_t const begin = exec::now_ns();
      port.wait(start());
      if (run > 0) seconds.push_back(static_cast<double>(exec::now_ns() - begin) / 1e9);
    }
    return detail::quantile(std::move(seconds), shared_memory ? 0.5 : 0.25);
  };
  auto const time_and_overlap = [&](auto const& start) {
    double const alone = time(start);
    if (!shared_memory) {
      detail::Overlap const one = detail::measure_overlap(port, alone, start, runs, where);
      overlap.burden += one.burden / 3, overlap.stretch += one.stretch / 3;
    }
    return alone;
  };
  void* const together = port.allocate(static_cast<std::size_t>(bytes));
  std::memset(together, 0, static_cast<std::size_t>(bytes));
  auto const sum = [&](std::int64_t elements) {
    return
        [&, elements] { return port.start_all_reduce(together, elements, DType::float32, comm::PortOp::sum, where); };
  };
  double const small = time(sum(2)), large = time_and_overlap(sum(count));
  port.release(together);
  constexpr int places = 8;
  std::vector<float> wholes(static_cast<std::size_t>(places * count)), parts(wholes.size() / port.size());
  auto const whole = [&] { return wholes.data() + run % places * count; };
  auto const part = [&] { return parts.data() + run % places * (count / ranks); };
  double const gather =
      time_and_overlap([&] { return port.start_all_gather(part(), whole(), count / ranks, DType::float32, where); });
  double const scatter = time_and_overlap([&] {
    return port.start_reduce_scatter(whole(), part(), count / ranks, DType::float32, comm::PortOp::sum, where);
  });
  double const all = static_cast<double>(count) * 4;
  int const stages = std::max(1, ring(Collective::all_reduce, all, port.size()).stages);
  double const latency = shared_memory ? small : small / stages;
  auto const rate = [&](Collective kind, double seconds) {
    Ring const way = ring(kind, all, port.size());
    double const first = shared_memory ? small : way.stages * latency;
    // Where something else took its time of the small ones, a twentieth is left.
    return (!shared_memory                   ? way.bytes()
            : kind == Collective::all_reduce ? all
                                             : all / 2) /
           std::max(seconds - first, seconds / 20);
  };
  return {.bandwidth = rate(Collective::all_reduce, large),
          .latency = latency,
          .gather = rate(Collective::all_gather, gather),
          .scatter = rate(Collective::reduce_scatter, scatter),
          .message = shared_memory ? 0 : detail::measure_message(port, bytes / 4, runs, where),
          .burden = overlap.burden,
          .stretch = overlap.stretch,
          .shared_memory = shared_memory};
}

/// Measures what the library keeps in memory for messages over the link: `held` and its kin. Last of all, since it may
/// go on keeping what it once had. Ranks: all of the port. Blocking.
inline void measure_held(Link& link, comm::Port& port, std::source_location where = std::source_location::current()) {
  constexpr int places = 8;
  std::int64_t const ranks = port.size(), count = (std::int64_t{1} << 20) / ranks * ranks;
  std::vector<float> wholes(static_cast<std::size_t>(places * count)), parts(wholes.size() / port.size());
  auto const whole = [&](int i) { return wholes.data() + i * count; };
  auto const part = [&](int i) { return parts.data() + i * (count / ranks); };
  auto const held = [&](auto const& start) {
    return detail::measure_held(port, places, static_cast<double>(places * count) * sizeof(float), start, where);
  };
  link.held =
      held([&](int i) { return port.start_all_reduce(whole(i), count, DType::float32, comm::PortOp::sum, where); });
  link.gather_held =
      held([&](int i) { return port.start_all_gather(part(i), whole(i), count / ranks, DType::float32, where); });
  link.scatter_held = held([&](int i) {
    float* const mine = whole(i) + port.rank() * (count / ranks);  // in place, as of shared moments
    return port.start_reduce_scatter(whole(i), mine, count / ranks, DType::float32, comm::PortOp::sum, where);
  });
}

}  // namespace tutti::plan

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of buffers on a device: every operation gives there what it gives in host memory, bit for bit, and the
/// result lives where the buffer does. For communicators that take both.

#include <tutti/testing/laws/report.hpp>

#include <tutti/tensor/copy.hpp>

namespace tutti::laws {

/// Elements around the ends of the parts in which device memory passes through the host, of 4 and of 64 KiB.
inline std::vector<std::int64_t> device_sizes() { return {0, 1, 3, 129, 1023, 1024, 1025, 5000, 66000}; }

/// The one of this rank.
template <Device D, class Comm>
D device_here(Comm& comm) {
  if constexpr (requires { D(comm.backend().accelerator()); }) return comm.backend().accelerator();
  else return D{};
}

/// Calls `call` with a function that brings host tensors to where it is to work, once for the host and once for the
/// device, and compares what it returns.
template <Device D, class Call>
void expect_as_on_host(Report& report, D const& device, std::string const& what, Call&& call) {
  auto const expected = call([]<class T>(Tensor<T> const& x) { return clone(x); });
  auto const found = call([&]<class T>(Tensor<T> const& x) { return to_device(x, device); });
  static_assert(std::same_as<DeviceOf<decltype(found)>, D>, "the result is not where the buffer is");
  auto const here = to_host(found);
  if (!(here.shape() == expected.shape()))
    return report.expect(false, what + ": shape " + to_string(here.shape()) + " instead of " +
                                    to_string(expected.shape()));
  auto const bytes = static_cast<std::size_t>(here.size()) * sizeof(*here.data());
  report.expect(bytes == 0 || std::memcmp(here.data(), expected.data(), bytes) == 0,
                what + " differs between device and host");
}

/// The collectives with blocks of one size: in place, into another buffer, with a result of their own, as requests; of
/// every size, from every root.
template <Device D, Element T, class Comm>
void device_collectives(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  auto const device = device_here<D>(comm);
  for (std::int64_t const size : device_sizes()) {
    int const root = static_cast<int>(size % ranks);
    bool const here = rank == root;
    auto const x = filled<T>(size, rank);
    auto const big = filled<T>(size * ranks, rank, 1);
    auto const none = filled<T>(0, rank);
    auto const empty = zeros<T>(Shape{size});
    auto const empty_big = zeros<T>(Shape{size * ranks});
    auto const law = [&](char const* operation, auto&& call) {
      expect_as_on_host(report, device, title<T>(operation, size, ranks), call);
    };
    law("broadcast", [&](auto place) {
      auto a = place(x);
      comm.broadcast(a, root);
      return a;
    });
    law("broadcast_async", [&](auto place) { return comm.broadcast_async(place(x), root).wait(); });
    law("gather", [&](auto place) { return comm.gather(place(x), root); });
    law("all_gather", [&](auto place) { return comm.all_gather(place(x)); });
    law("all_gather_async", [&](auto place) { return comm.all_gather_async(place(x)).wait(); });
    law("all_gather in place", [&](auto place) {
      auto a = place(big);
      auto mine = a.view().slice(0, rank * size, (rank + 1) * size);
      comm.all_gather(mine, a);
      return a;
    });
    law("scatter", [&](auto place) {
      auto from = place(here ? big : none);
      auto a = place(empty);
      comm.scatter(from, a, root);
      return a;
    });
    law("all_to_all", [&](auto place) { return comm.all_to_all(place(big)); });
    law("all_to_all in place", [&](auto place) {
      auto a = place(big);
      comm.all_to_all(a, a);
      return a;
    });
    if constexpr (!std::same_as<T, bool>) {
      law("all_reduce", [&](auto place) {
        auto a = place(x);
        comm.all_reduce(a, sum);
        return a;
      });
      law("all_reduce into another", [&](auto place) {
        auto const a = place(x);
        auto b = place(empty);
        comm.all_reduce(a, b, max);
        return b;
      });
      law("all_reduce_async", [&](auto place) { return comm.all_reduce_async(place(x), prod).wait(); });
      law("all_reduce by a callable", [&](auto place) {
        auto a = place(x);
        comm.all_reduce(a, [](T p, T q) { return q < p ? p : q; });
        return a;
      });
      law("reduce", [&](auto place) {
        auto a = place(x);
        auto b = place(empty);
        comm.reduce(a, b, sum, root);
        return b;
      });
      law("reduce_scatter", [&](auto place) { return comm.reduce_scatter(place(big), sum); });
      law("reduce_scatter in place", [&](auto place) {
        auto a = place(big);
        auto mine = a.view().slice(0, rank * size, (rank + 1) * size);
        comm.reduce_scatter(a, mine, sum);
        return clone(mine);
      });
      law("scan", [&](auto place) {
        auto a = place(x);
        comm.scan(a, sum);
        return a;
      });
      law("exscan", [&](auto place) {
        auto const a = place(x);
        auto b = place(empty);
        comm.exscan(a, b, sum);
        return b;
      });
      law("all_reduce_contributions", [&](auto place) {
        auto const rows = place(filled<T>(size * 3, rank));
        return comm.all_reduce_contributions(rows.reshape({3, size}), sum);
      });
    }
    law("all_gather_plan", [&](auto place) {
      auto a = place(x);
      auto b = place(empty_big);
      auto plan = comm.all_gather_plan(a, b);
      for (int round = 0; round < 2; ++round) {
        plan.start();
        plan.wait();
      }
      return b;
    });
  }
}

/// Every operator of the type on device memory: in place, into another buffer, at a root, of blocks.
template <Device D, Element T, class Comm>
void device_reductions(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  auto const device = device_here<D>(comm);
  for (std::int64_t const size : {std::int64_t{1}, std::int64_t{1003}}) {
    auto const x = filled<T>(size, rank);
    auto const big = filled<T>(size * ranks, rank, 1);
    auto const empty = zeros<T>(Shape{size});
    auto const with = [&](auto const& op) {
      if constexpr (comm::reducible<T, std::remove_cvref_t<decltype(op)>>()) {
        auto const law = [&](char const* operation, auto&& call) {
          expect_as_on_host(report, device,
                            title<T>(operation, size, ranks) + " with " +
                                std::string(name(comm::operator_kind<std::remove_cvref_t<decltype(op)>>())),
                            call);
        };
        law("all_reduce", [&](auto place) {
          auto a = place(x);
          comm.all_reduce(a, op);
          return a;
        });
        law("all_reduce_async into another", [&](auto place) {
          auto const a = place(x);
          return comm.all_reduce_async(a, place(empty), op).wait();
        });
        law("reduce in place", [&](auto place) {
          auto a = place(x);
          comm.reduce(a, op, ranks - 1);
          return a;
        });
        law("reduce_scatter_async", [&](auto place) { return comm.reduce_scatter_async(place(big), op).wait(); });
        law("all_reduce_plan", [&](auto place) {
          auto a = place(x);
          auto plan = comm.all_reduce_plan(a, op);
          plan.start();
          plan.wait();
          return a;
        });
      }
    };
    with(sum);
    with(prod);
    with(min);
    with(max);
    with(logical_or);
    with(bitwise_xor);
    if constexpr (comm::reducible<T, Avg>()) {
      // An average may be made of contributions that were divided before: one rounding more for each.
      auto a = to_device(x, device);
      comm.all_reduce(a, avg);
      auto expected = clone(x);
      comm.all_reduce(expected, avg);
      auto const found = to_host(a);
      bool near = true;
      for (std::int64_t i = 0; i < size; ++i) {
        auto const wanted = static_cast<double>(expected.data()[i]);
        double const difference = static_cast<double>(found.data()[i]) - wanted;
        double const bound = is_floating(dtype_of<T>) && sizeof(T) >= 4 ? 1e-6 * (wanted < 0 ? -wanted : wanted) : 0;
        near = near && difference <= bound && -difference <= bound;
      }
      report.expect(near, title<T>("all_reduce with avg", size, ranks));
    }
  }
}

/// Views with gaps, numbers with a location, and what has been dropped.
template <Device D, class Comm>
void device_forms(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  auto const device = device_here<D>(comm);
  auto const matrix = clone(filled<float>(7 * 9, rank).reshape({7, 9}));
  expect_as_on_host(report, device, "the sum of a column", [&](auto place) {
    auto a = place(matrix);
    comm.all_reduce(a.view().slice(1, 2, 4), sum);
    return a;
  });
  Tensor<Located<double>> located({5000});
  for (std::int64_t i = 0; i < 5000; ++i) located.data()[i] = {element<double>(rank, i), rank};
  expect_as_on_host(report, device, "maxima with their rank", [&](auto place) {
    auto a = place(located);
    comm.all_reduce(a, max_location);
    return a;
  });
  auto const wide = filled<float>(40000, rank);
  expect_as_on_host(report, device, "sums of different calls in flight", [&](auto place) {
    auto first = comm.all_reduce_async(place(wide), sum);
    auto second = comm.all_gather_async(place(wide));
    comm.barrier();  // begins after them
    int const third = comm.all_reduce(rank, sum);
    report.expect(third == ranks * (ranks - 1) / 2, "a number beside parts");
    auto b = second.wait();
    auto const a = first.wait();
    comm.all_reduce(b, a.size() == 40000 ? sum : sum);
    return b;
  });
  expect_as_on_host(report, device, "a sum behind one whose request is dropped", [&](auto place) {
    static_cast<void>(comm.all_reduce_async(place(wide), sum));
    return comm.all_reduce_async(place(wide), max).wait();
  });
}

/// The collectives with a block size for each rank, known and found out.
template <Device D, Element T, class Comm>
void device_vectors(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  auto const device = device_here<D>(comm);
  for (std::int64_t const unit : {std::int64_t{0}, std::int64_t{1}, std::int64_t{700}}) {
    std::vector<std::int64_t> counts, sent, received;
    std::int64_t total = 0;
    for (int r = 0; r < ranks; ++r) {
      counts.push_back(unit * r + r % 2);
      sent.push_back(unit * ((rank + r) % 3));
      received.push_back(unit * ((rank + r) % 3));
      total += counts.back();
    }
    auto const own = counts[static_cast<std::size_t>(rank)];
    std::int64_t sends = 0;
    for (std::int64_t const count : sent) sends += count;
    int const root = ranks - 1;
    auto const x = filled<T>(own, rank);
    auto const all = filled<T>(total, rank, 2);
    auto const none = filled<T>(0, rank);
    auto const exchange = filled<T>(sends, rank, 1);
    auto const law = [&](char const* operation, auto&& call) {
      expect_as_on_host(report, device, title<T>(operation, unit, ranks), call);
    };
    law("gather_v", [&](auto place) {
      auto to = place(rank == root ? zeros<T>(Shape{total}) : clone(none));
      comm.gather_v(place(x), to, counts, root);
      return to;
    });
    law("all_gather_v", [&](auto place) {
      auto to = place(zeros<T>(Shape{total}));
      comm.all_gather_v(place(x), to, counts);
      return to;
    });
    law("all_gather_v inferred", [&](auto place) { return clone(comm.all_gather_v(place(x)).values()); });
    law("gather_v inferred", [&](auto place) { return clone(comm.gather_v(place(x), root).values()); });
    law("scatter_v", [&](auto place) {
      auto to = place(zeros<T>(Shape{own}));
      comm.scatter_v(place(rank == root ? all : none), to, counts, root);
      return to;
    });
    law("scatter_v inferred",
        [&](auto place) { return comm.scatter_v(place(rank == root ? all : none), counts, root); });
    law("reduce_scatter_v", [&](auto place) { return comm.reduce_scatter_v(place(all), counts, sum); });
    law("all_to_all_v", [&](auto place) {
      auto to = place(zeros<T>(Shape{sends}));
      comm.all_to_all_v(place(exchange), to, sent, received);
      return to;
    });
    law("all_to_all_v inferred", [&](auto place) { return clone(comm.all_to_all_v(place(exchange), sent).values()); });
    law("all_gather_v_plan", [&](auto place) {
      auto const a = place(x);
      auto to = place(zeros<T>(Shape{total}));
      auto plan = comm.all_gather_v_plan(a, to, counts);
      for (int round = 0; round < 2; ++round) {
        plan.start();
        plan.wait();
      }
      return to;
    });
  }
}

/// A message is the same from and to every kind of memory: between devices, and between a device and the host.
template <Device D, Element T, class Comm>
void device_messages(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  auto const device = device_here<D>(comm);
  int const next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  for (std::int64_t const size : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, std::int64_t{70001}}) {
    auto const what = [&](char const* operation) { return title<T>(operation, size, ranks); };
    auto const expect = [&](Tensor<T> const& x, char const* operation) {
      expect_elements<T>(report, x, size, what(operation), [&](std::int64_t i) { return element<T>(last, i); });
    };
    auto const mine = to_device(filled<T>(size, rank), device);
    auto const empty = to_device(zeros<T>(Shape{size}), device);
    {
      auto to = clone(empty);
      auto sent = comm.send_async(mine, next, 1);
      auto const info = comm.recv(to, last, 1);
      sent.wait();
      report.expect(info.template count<T>() == size && info.source == last, what("recv tells of"));
      expect(to_host(to), "recv");
    }
    {
      auto sent = comm.send_async(clone(mine), next, 2);
      auto const to = comm.template recv<T, D>(last, 2);
      sent.wait();
      expect(to_host(to), "recv<T, D>");
    }
    {
      auto sent = comm.send_async(mine, next, 3);
      auto const to = comm.template recv<T>(last, 3);
      sent.wait();
      expect(to, "recv in host memory");
      auto host = comm.send_async(filled<T>(size, rank), next, 4);
      auto message = comm.match(last, 4);
      expect(to_host(comm.template recv<T, D>(std::move(message))), "recv of a message from host memory");
      host.wait();
    }
    {
      auto to = clone(empty);
      auto sent = comm.send_async(mine, next, 5);
      auto message = comm.match(last, 5);
      comm.recv(std::move(message), to);
      sent.wait();
      expect(to_host(to), "recv of a matched message");
    }
    expect(to_host(comm.send_recv(mine, next, last)), "send_recv");
    {
      auto to = clone(empty);
      auto group = comm.group();
      group.send(mine, next);
      group.recv(to, last);
      group.wait();
      expect(to_host(to), "group");
    }
    {
      auto request = comm.recv_async(clone(empty), last, 6);
      comm.send(mine, next, 6);
      expect(to_host(request.wait()), "recv_async");
    }
  }
}

/// One buffer on the device, the other in host memory; and what is refused.
template <Device D, class Comm>
void device_mixtures(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  auto const device = device_here<D>(comm);
  auto const x = filled<float>(5000, rank);
  auto expected = clone(x);
  comm.all_reduce(expected, sum);
  auto const same_as_expected = [&](Tensor<float> const& found, char const* what) {
    expect_elements<float>(report, found, 5000, what, expected.data());
  };
  auto to = to_device(zeros<float>(Shape{5000}), device);
  comm.all_reduce(x, to, sum);
  same_as_expected(to_host(to), "all_reduce from host to device");
  auto back = zeros<float>(Shape{5000});
  comm.all_reduce(to_device(x, device), back, sum);
  same_as_expected(back, "all_reduce from device to host");

  auto a = to_device(filled<float>(10 * ranks, rank), device);
  expect_error(report, ErrorKind::invalid_argument, "overlap",
               [&] { comm.all_reduce(a.view().slice(0, 0, 6), a.view().slice(0, 3, 9), sum); });
  expect_error(report, ErrorKind::shape, "must be equal",
               [&] { comm.all_reduce(a, to_device(x, device), sum); });
  expect_error(report, ErrorKind::invalid_argument, "overlap", [&] {
    std::vector<std::int64_t> const counts(static_cast<std::size_t>(ranks), 2);
    comm.all_gather_v(a.view().slice(0, 0, 2), a.view().slice(0, 1, 1 + 2 * ranks), counts);
  });
}

}  // namespace tutti::laws

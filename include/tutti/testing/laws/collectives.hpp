// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of a communicator's first vocabulary, written once for every backend. Each law runs on all ranks and notes
/// what is wrong in its rank's `Report`; nobody leaves early, and no test macro is used, so that a failure on one rank
/// can neither hang nor hide. Above 400 lines because the laws of one interface belong together.

#include <tutti/comm.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/core/function_ref.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::laws {

/// What one rank found.
struct Report {
  int checks = 0;
  int failures = 0;
  std::string text;  ///< of the first few failures

  void expect(bool holds, std::string const& what) {
    ++checks;
    if (holds) return;
    if (++failures <= 5) text += (text.empty() ? "" : "\n") + what;
  }
};

/// Zero, one, odd, around a vector register, around what is sent inline, and large.
inline std::vector<std::int64_t> sizes() { return {0, 1, 3, 17, 64, 129, 1001, 4099, 70001}; }

/// Element i of rank r's buffer: small, so that sums and products of four ranks are exact in every type.
template <Element T>
T element(int rank, std::int64_t i, int salt = 0) {
  auto const n = (static_cast<std::int64_t>(rank) * 5 + i * 3 + i / 7 + salt) % 3 + 1;  // 1, 2, 3
  if constexpr (std::same_as<T, bool>) return n != 2;
  else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) return T(static_cast<float>(n));
  else return static_cast<T>(n);
}

template <Element T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <Element T>
Tensor<T> filled(std::int64_t size, int rank, int salt = 0) {
  Tensor<T> x(Shape{size});
  for (std::int64_t i = 0; i < size; ++i) x.data()[i] = element<T>(rank, i, salt);
  return x;
}

/// x[i] == of(i) for every i, bit for bit.
template <Element T>
void expect_elements(Report& report, Tensor<T> const& x, std::int64_t size, std::string const& what,
                     FunctionRef<T(std::int64_t)> of) {
  if (x.size() != size) {
    report.expect(false, what + ": " + std::to_string(x.size()) + " elements instead of " + std::to_string(size));
    return;
  }
  for (std::int64_t i = 0; i < size; ++i)
    if (!same<T>(x.data()[i], of(i))) {
      report.expect(false, what + ": element " + std::to_string(i) + " of " + std::to_string(size) + " is wrong");
      return;
    }
  report.expect(true, what);
}

template <Element T>
std::string title(char const* operation, std::int64_t size, int ranks) {
  return std::string(operation) + " of " + std::to_string(size) + " " + std::string(name(dtype_of<T>)) + " on " +
         std::to_string(ranks) + " ranks";
}

// --- Movement --------------------------------------------------------------------------------------------------------

/// broadcast, gather, all_gather, scatter, all_to_all: what arrives is what was sent, for every root; blocking,
/// asynchronous, in place; scatter then gather, and all_to_all twice, are the identity.
template <Element T, class Comm>
void movement(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : sizes()) {
    auto const called = [&](char const* operation) { return title<T>(operation, n, ranks); };
    int const root = static_cast<int>(n % ranks);
    auto const gathered = [&](std::int64_t i) { return n == 0 ? T{} : element<T>(static_cast<int>(i / n), i % n); };

    auto x = filled<T>(n, rank);
    comm.broadcast(x, root);
    expect_elements<T>(report, x, n, called("broadcast"), [&](std::int64_t i) { return element<T>(root, i); });
    x = comm.broadcast_async(filled<T>(n, rank, 1), root).wait();
    expect_elements<T>(report, x, n, called("broadcast_async"), [&](std::int64_t i) { return element<T>(root, i, 1); });

    x = filled<T>(n, rank);
    Tensor<T> all = comm.all_gather(x);
    report.expect(all.shape() == Shape{ranks, n}, called("all_gather: shape"));
    expect_elements<T>(report, all, n * ranks, called("all_gather"), gathered);
    all = comm.all_gather_async(x).wait();
    expect_elements<T>(report, all, n * ranks, called("all_gather_async"), gathered);
    all.fill(T{});
    std::copy_n(x.data(), n, all[rank].data());
    comm.all_gather(all[rank], all);
    expect_elements<T>(report, all, n * ranks, called("all_gather in place"), gathered);

    Tensor<T> at_root = comm.gather(x, root);
    report.expect(at_root.shape() == Shape{rank == root ? ranks : 0, n}, called("gather: shape"));
    if (rank == root) expect_elements<T>(report, at_root, n * ranks, called("gather"), gathered);
    at_root = comm.gather_async(x.clone(), root).wait();
    if (rank == root) {
      expect_elements<T>(report, at_root, n * ranks, called("gather_async"), gathered);
      at_root.fill(T{});
      std::copy_n(x.data(), n, at_root[rank].data());
      comm.gather(at_root[rank], at_root, root);
      expect_elements<T>(report, at_root, n * ranks, called("gather in place"), gathered);
    } else {
      comm.gather(x, at_root, root);
    }

    Tensor<T> part(Shape{n});
    part.fill(T{});
    comm.scatter(at_root, part, root);
    expect_elements<T>(report, part, n, called("scatter of gather"),
                       [&](std::int64_t i) { return element<T>(rank, i); });
    part.fill(T{});
    comm.scatter_async(at_root, part, root).wait();
    expect_elements<T>(report, part, n, called("scatter_async"), [&](std::int64_t i) { return element<T>(rank, i); });
    if (rank == root) {
      auto const before = at_root.clone();
      comm.scatter(at_root, at_root[rank], root);
      expect_elements<T>(report, at_root, n * ranks, called("scatter in place"),
                         [&](std::int64_t i) { return before.data()[i]; });
    } else {
      comm.scatter(at_root, part, root);
      expect_elements<T>(report, part, n, called("scatter, root in place"),
                         [&](std::int64_t i) { return element<T>(rank, i); });
    }

    auto const exchanged = [&](std::int64_t i) {
      return n == 0 ? T{} : element<T>(static_cast<int>(i / n), n * rank + i % n);
    };
    auto const mine = filled<T>(n * ranks, rank);
    Tensor<T> exchange = comm.all_to_all(mine);
    expect_elements<T>(report, exchange, n * ranks, called("all_to_all"), exchanged);
    exchange = comm.all_to_all_async(mine).wait();
    expect_elements<T>(report, exchange, n * ranks, called("all_to_all_async"), exchanged);
    comm.all_to_all(exchange, exchange);
    expect_elements<T>(report, exchange, n * ranks, called("all_to_all twice, in place"),
                       [&](std::int64_t i) { return mine.data()[i]; });
  }
}

// --- Reduction -------------------------------------------------------------------------------------------------------

/// The exact result for element i, rounded once.
template <Element T, class Op>
T reduced(Op const&, int ranks, std::int64_t i, int salt = 0) {
  auto const bits = [](double number) { return static_cast<std::int64_t>(number); };
  double result = static_cast<double>(element<T>(0, i, salt));
  for (int r = 1; r < ranks; ++r) {
    auto const next = static_cast<double>(element<T>(r, i, salt));
    switch (comm::operator_kind<Op>()) {
      case Operator::sum: case Operator::avg: case Operator::callable: case Operator::none: result += next; break;
      case Operator::prod: result *= next; break;
      case Operator::min: result = next < result ? next : result; break;
      case Operator::max: result = next > result ? next : result; break;
      case Operator::logical_and: result = result != 0 && next != 0; break;
      case Operator::logical_or: result = result != 0 || next != 0; break;
      case Operator::logical_xor: result = (result != 0) != (next != 0); break;
      case Operator::bitwise_and: result = static_cast<double>(bits(result) & bits(next)); break;
      case Operator::bitwise_or: result = static_cast<double>(bits(result) | bits(next)); break;
      case Operator::bitwise_xor: result = static_cast<double>(bits(result) ^ bits(next)); break;
      case Operator::min_location:
      case Operator::max_location: break;  // of Located, which have laws of their own
    }
  }
  constexpr bool logical = comm::is_logical(comm::operator_kind<Op>());
  if (logical && ranks == 1) return static_cast<T>(element<T>(0, i, salt));
  if constexpr (comm::operator_kind<Op>() == Operator::avg) {
    if constexpr (is_floating(dtype_of<T>))
      return static_cast<T>(static_cast<comm::Accumulator<T>>(result) / static_cast<comm::Accumulator<T>>(ranks));
    else return static_cast<T>(static_cast<std::int64_t>(result) / ranks);
  } else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) {
    return T(static_cast<float>(result));
  } else {
    return static_cast<T>(result);
  }
}

/// all_reduce, reduce, reduce_scatter with one operator: against the oracle for every form, and against each other:
/// reduce then broadcast, and reduce_scatter then all_gather, equal all_reduce bit for bit.
template <Element T, class Comm, class Op>
void reduction(Comm& comm, Report& report, Op const& op) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : sizes()) {
    auto const called = [&](char const* operation) {
      return title<T>(operation, n, ranks) + " with " + std::string(name(comm::operator_kind<Op>()));
    };
    auto const exact = [&](std::int64_t i) { return reduced<T>(op, ranks, i); };
    int const root = static_cast<int>((n + 1) % ranks);
    auto const mine = filled<T>(n, rank);
    auto const untouched = [&](std::int64_t i) { return mine.data()[i]; };

    auto all = mine.clone();
    comm.all_reduce(all, op);
    expect_elements<T>(report, all, n, called("all_reduce in place"), exact);
    Tensor<T> out(Shape{n});
    comm.all_reduce(mine, out, op);
    expect_elements<T>(report, out, n, called("all_reduce"), exact);
    out = comm.all_reduce_async(mine.clone(), op).wait();
    expect_elements<T>(report, out, n, called("all_reduce_async"), exact);

    auto at_root = mine.clone();
    comm.reduce(at_root, op, root);
    if (rank == root) expect_elements<T>(report, at_root, n, called("reduce in place"), exact);
    else expect_elements<T>(report, at_root, n, called("reduce in place, not root"), untouched);
    comm.broadcast(at_root, root);
    expect_elements<T>(report, at_root, n, called("reduce then broadcast"),
                       [&](std::int64_t i) { return all.data()[i]; });
    if (n != 0) std::memset(static_cast<void*>(out.data()), 1, static_cast<std::size_t>(n) * sizeof(T));
    auto const before = out.clone();
    comm.reduce(mine, out, op, root);
    if (rank == root) expect_elements<T>(report, out, n, called("reduce"), exact);
    else
      expect_elements<T>(report, out, n, called("reduce, not root"), [&](std::int64_t i) { return before.data()[i]; });
    at_root = comm.reduce_async(mine.clone(), op, root).wait();
    if (rank == root) expect_elements<T>(report, at_root, n, called("reduce_async"), exact);

    auto const whole = filled<T>(n * ranks, rank);
    auto const own = [&](std::int64_t i) { return reduced<T>(op, ranks, n * rank + i); };
    Tensor<T> part = comm.reduce_scatter(whole, op);
    report.expect(part.shape() == Shape{n}, called("reduce_scatter: shape"));
    expect_elements<T>(report, part, n, called("reduce_scatter"), own);
    part = comm.reduce_scatter_async(whole.clone(), op).wait();
    expect_elements<T>(report, part, n, called("reduce_scatter_async"), own);
    auto in_place = whole.clone();
    comm.reduce_scatter(in_place, in_place.slice(0, n * rank, n * (rank + 1)), op);
    comm.all_gather(in_place.slice(0, n * rank, n * (rank + 1)), in_place);
    expect_elements<T>(report, in_place, n * ranks, called("reduce_scatter then all_gather, in place"),
                       [&](std::int64_t i) { return reduced<T>(op, ranks, i); });
  }
}

/// Every operator that the type has.
template <Element T, class Comm>
void reductions(Comm& comm, Report& report) {
  if constexpr (comm::reducible<T, Sum>()) reduction<T>(comm, report, sum);
  if constexpr (comm::reducible<T, Prod>()) reduction<T>(comm, report, prod);
  if constexpr (comm::reducible<T, Min>()) reduction<T>(comm, report, min);
  if constexpr (comm::reducible<T, Max>()) reduction<T>(comm, report, max);
  if constexpr (comm::reducible<T, Avg>()) reduction<T>(comm, report, avg);
  if constexpr (comm::reducible<T, LogicalAnd>()) reduction<T>(comm, report, logical_and);
  if constexpr (comm::reducible<T, LogicalOr>()) reduction<T>(comm, report, logical_or);
  if constexpr (comm::reducible<T, LogicalXor>()) reduction<T>(comm, report, logical_xor);
  if constexpr (comm::reducible<T, BitwiseAnd>()) reduction<T>(comm, report, bitwise_and);
  if constexpr (comm::reducible<T, BitwiseOr>()) reduction<T>(comm, report, bitwise_or);
  if constexpr (comm::reducible<T, BitwiseXor>()) reduction<T>(comm, report, bitwise_xor);
}

/// Callables: with captured state, without commutativity, and on types that have no operators.
template <class Comm>
void callables(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::vector<std::int64_t> const state(1000, 10);
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{5}, std::int64_t{3001}}) {
    // a * 10 + b in rank order writes the ranks as digits: 123 on ranks 1, 2, 3.
    auto const digits = [&state](std::int64_t a, std::int64_t b) { return a * state[7] + b; };
    std::int64_t expected = 1;
    for (int r = 1; r < ranks; ++r) expected = expected * 10 + r + 1;
    Tensor<std::int64_t> x(Shape{n});
    x.fill(rank + 1);
    comm.all_reduce(x, digits);
    expect_elements<std::int64_t>(report, x, n,
                                  "all_reduce of " + std::to_string(n) + " with a capturing callable, in rank order",
                                  [&](std::int64_t) { return expected; });
    x.fill(rank + 1);
    comm.reduce(x, digits, ranks - 1);
    expect_elements<std::int64_t>(report, x, n, "reduce with a callable",
                                  [&](std::int64_t) { return rank == ranks - 1 ? expected : rank + 1; });
    Tensor<std::int64_t> whole(Shape{n * ranks});
    whole.fill(rank + 1);
    auto pending = comm.reduce_scatter_async(whole, digits);
    auto const part = pending.wait();
    expect_elements<std::int64_t>(report, part, n, "reduce_scatter_async with a callable",
                                  [&](std::int64_t) { return expected; });
    Tensor<std::byte> bytes(Shape{n});
    bytes.fill(static_cast<std::byte>(1 << rank));
    comm.all_reduce(bytes, [](std::byte a, std::byte b) { return a | b; });
    expect_elements<std::byte>(report, bytes, n, "all_reduce of bytes with or",
                               [&](std::int64_t) { return static_cast<std::byte>((1 << ranks) - 1); });
  }
}

/// 256, 1, 1, 1: a bfloat16 accumulator would stay at 256. The sum is taken in float and rounded once.
template <class Comm>
void narrow_sums(Comm& comm, Report& report) {
  for (std::int64_t const n : {std::int64_t{1}, std::int64_t{70001}}) {
    Tensor<bfloat16> x(Shape{n});
    x.fill(bfloat16(comm.rank() == 0 ? 256.0f : 1.0f));
    comm.all_reduce(x, sum);
    bfloat16 const expected(256.0f + static_cast<float>(comm.size() - 1));
    expect_elements<bfloat16>(report, x, n, "all_reduce of bfloat16 rounds once",
                              [&](std::int64_t) { return expected; });
    Tensor<float16> y(Shape{n});
    y.fill(float16(comm.rank() == 0 ? 2048.0f : 1.0f));
    comm.all_reduce(y, [](float a, float b) { return a + b; });
    float16 const wanted(2048.0f + static_cast<float>(comm.size() - 1));
    expect_elements<float16>(report, y, n, "all_reduce of float16 with a callable on float rounds once",
                             [&](std::int64_t) { return wanted; });
  }
}

/// All ranks hold the same bits, and a second run gives them again, for sums that round.
template <class Comm>
void determinism(Comm& comm, Report& report) {
  for (std::int64_t const n : {std::int64_t{7}, std::int64_t{5000}, std::int64_t{100003}}) {
    Tensor<float> x(Shape{n});
    auto const fill = [&] {
      for (std::int64_t i = 0; i < n; ++i)
        x.data()[i] = 1.0f / static_cast<float>(1 + (i * 37 + comm.rank() * 101) % 997);
    };
    fill();
    comm.all_reduce(x, sum);
    auto const first = x.clone();
    auto const rank_0 = [&] {
      auto y = x.clone();
      comm.broadcast(y, 0);
      return y;
    }();
    expect_elements<float>(report, x, n, "all_reduce gives the same bits on every rank",
                           [&](std::int64_t i) { return rank_0.data()[i]; });
    fill();
    comm.all_reduce(x, sum);
    expect_elements<float>(report, x, n, "all_reduce gives the same bits again",
                           [&](std::int64_t i) { return first.data()[i]; });
    if (!comm::compares(comm.backend())) continue;  // there an MPI library combines in an order of its own
    fill();
    comm.reduce(x, sum, comm.size() - 1);
    comm.broadcast(x, comm.size() - 1);
    expect_elements<float>(report, x, n, "all_reduce gives the bits of reduce",
                           [&](std::int64_t i) { return first.data()[i]; });
    expect_elements<float>(report, x, n, "all_reduce combines in rank order", [&](std::int64_t i) {
      float total = 1.0f / static_cast<float>(1 + (i * 37) % 997);
      for (int r = 1; r < comm.size(); ++r) total += 1.0f / static_cast<float>(1 + (i * 37 + r * 101) % 997);
      return total;
    });
  }
}

// --- Forms -----------------------------------------------------------------------------------------------------------

/// Views with gaps, spans, vectors, arrays and single numbers are as good as tensors.
template <class Comm>
void forms(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  Tensor<float> x(Shape{6, 5});
  for (int i = 0; i < 30; ++i) x.data()[i] = static_cast<float>(i);
  comm.all_reduce(x.slice(1, 1, 3), sum);  // two columns
  for (int i = 0; i < 30; ++i) {
    bool const inside = i % 5 == 1 || i % 5 == 2;
    report.expect(x.data()[i] == static_cast<float>(inside ? i * ranks : i),
                  "all_reduce of columns touches them alone");
  }
  auto y = comm.all_gather(x.transpose());
  report.expect(y.shape() == Shape{ranks, 5, 6}, "all_gather of a transposed view: shape");
  for (int i = 0; i < 30; ++i)
    report.expect(y.data()[30 * rank + i] == x(i % 6, i / 6), "all_gather of a transposed view");
  Tensor<float> columns(Shape{4, ranks});
  columns.fill(-1.0f);
  std::vector<float> const mine(4, static_cast<float>(rank));
  comm.all_gather_async(mine, columns.transpose()).wait();
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < 4; ++i)
      report.expect(columns(i, r) == static_cast<float>(r), "all_gather_async into a transposed view");
  std::vector<std::int32_t> numbers{rank, 2 * rank};
  comm.all_reduce(numbers, max);
  report.expect(numbers[0] == ranks - 1 && numbers[1] == 2 * (ranks - 1), "all_reduce of a std::vector");
  std::array<double, 2> pair{1.0, 2.0};
  comm.all_reduce(std::span<double>(pair).subspan(1), sum);
  report.expect(pair[0] == 1.0 && pair[1] == 2.0 * ranks, "all_reduce of a std::span");
  report.expect(comm.all_reduce(rank + 1, sum) == ranks * (ranks + 1) / 2, "all_reduce of a number");
  report.expect(comm.broadcast(rank, ranks - 1) == ranks - 1, "broadcast of a number");
  double number = rank + 0.5;
  comm.broadcast(number, ranks - 1);
  report.expect(number == ranks - 0.5, "broadcast changes a variable in place");
  report.expect(comm.broadcast_value(number, 0) == number && comm.all_reduce_value(number, sum) == ranks * number &&
                    number == ranks - 0.5,
                "broadcast_value and all_reduce_value leave it as it is");
  comm.all_reduce(number, sum);
  report.expect(number == ranks * (ranks - 0.5), "all_reduce changes a variable in place");
  int reduced = rank + 1;
  comm.reduce(reduced, sum, ranks - 1);
  report.expect(reduced == (rank == ranks - 1 ? ranks * (ranks + 1) / 2 : rank + 1),
                "reduce changes the root's variable in place");
  auto const all = comm.all_gather(rank + 0.5);
  report.expect(all.shape() == Shape{ranks} && all(rank) == rank + 0.5 && all(0) == 0.5, "all_gather of a number");
  auto const some = comm.gather(rank + 0.5, ranks - 1);
  report.expect(some.size() == (rank == ranks - 1 ? ranks : 0) && (some.size() == 0 || some(ranks - 1) == ranks - 0.5),
                "gather of a number");
  report.expect(comm.all_reduce(true, logical_and) && comm.all_reduce(rank == 0, logical_or) &&
                    comm.all_reduce(rank == 0, logical_and) == (ranks == 1),
                "bool by logical operators");
  auto on_heap = tensor<float>(comm, {3});
  on_heap.fill(1.0f);
  comm.all_reduce(on_heap, sum);
  report.expect(on_heap(2) == static_cast<float>(ranks), "all_reduce on the communicator's heap");
  auto const node = comm.all_gather(std::array<std::int32_t, 3>{comm.node(), comm.local_rank(), comm.local_size()});
  int peers = 0;
  for (int r = 0; r < ranks; ++r) peers += node(r, 0) == comm.node();
  report.expect(peers == comm.local_size() && comm.local_rank() < comm.local_size() && node(0, 0) == 0,
                "node, local rank and size fit together");
}

/// Many operations in flight, finished in another order, dropped, and blocking ones between them.
template <class Comm>
void in_flight(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::vector<Request<Tensor<float>>> pending;
  for (int k = 0; k < 40; ++k) {  // more than any ring of slots
    Tensor<float> x(Shape{k % 3 == 0 ? 5000 : 7});
    x.fill(static_cast<float>(rank + k));
    if (k % 4 == 3) pending.push_back(comm.all_gather_async(std::move(x)));
    else pending.push_back(comm.all_reduce_async(std::move(x), sum));
  }
  comm.barrier();
  for (int k = 39; k >= 0; --k) {  // backwards, and by turns with test
    auto& request = pending[static_cast<std::size_t>(k)];
    if (k % 2 == 0)
      while (!request.test()) {}
    auto const x = request.wait();
    float const expected = k % 4 == 3 ? static_cast<float>(k) : static_cast<float>(ranks * (ranks - 1) / 2 + ranks * k);
    report.expect(x.data()[0] == expected && !request.valid(), "operation " + std::to_string(k) + " of many in flight");
  }
  Tensor<bfloat16> narrow(Shape{3000});
  narrow.fill(bfloat16(1.0f));
  auto derived = comm.all_reduce_async(narrow, sum);  // derived from messages on MPI, and overtaken by others here
  auto second = comm.all_reduce_async(full<bfloat16>(Shape{3000}, bfloat16(2.0f)), sum);
  report.expect(comm.all_reduce(1, sum) == ranks, "blocking between asynchronous");
  report.expect(static_cast<float>(second.wait()(2999)) == static_cast<float>(2 * ranks), "second of two derived");
  report.expect(static_cast<float>(derived.wait()(17)) == static_cast<float>(ranks), "first of two derived");
  for (int k = 0; k < 5; ++k) {
    auto dropped = comm.all_reduce_async(full<float>(Shape{k % 2 == 0 ? 3 : 3000}, 1.0f), sum);
    static_cast<void>(dropped.test());
  }
  comm.barrier_async().wait();
  Request<void> replaced = comm.barrier_async();
  replaced = comm.barrier_async();
  replaced.wait();
}

/// barrier: nobody leaves before everybody has come. Seen through the order of messages: all notes that were sent
/// before the barrier can be received right after it.
template <class Comm>
void barriers(Comm& comm, Report& report) {
  int const ranks = comm.size();
  report.expect(ranks > 0, "there are ranks");
  for (int round = 0; round < 20; ++round) {
    for (int r = 0; r < ranks; ++r)
      if (r != comm.rank()) comm.send(std::array<int, 1>{round}, r, 5);
    comm.barrier();
    for (int r = 0; r < ranks; ++r) {
      if (r == comm.rank()) continue;
      std::array<int, 1> note{-1};
      comm.recv(note, r, 5);
      report.expect(note[0] == round, "messages before a barrier arrive in order");
    }
  }
}

// --- Messages --------------------------------------------------------------------------------------------------------

template <Element T, class Comm>
void messages(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  int const last = (rank + ranks - 1) % ranks;
  for (std::int64_t const n : sizes()) {
    auto const called = [&](char const* operation) { return title<T>(operation, n, ranks); };
    auto const mine = filled<T>(n, rank);
    auto const theirs = [&](std::int64_t i) { return element<T>(last, i); };
    Tensor<T> in(Shape{n});
    auto const info = comm.send_recv(mine, next, in, last, 3);
    report.expect(info.source == last && info.tag == 3 && info.template count<T>() == n, called("send_recv: info"));
    expect_elements<T>(report, in, n, called("send_recv around a ring"), theirs);
    in = comm.send_recv(mine, next, last);
    expect_elements<T>(report, in, n, called("send_recv, result returned"), theirs);
    Tensor<T> out = comm.send_recv_async(mine, next, Tensor<T>(Shape{n}), last, 4).wait();
    expect_elements<T>(report, out, n, called("send_recv_async"), theirs);

    auto sending = comm.send_async(mine.clone(), next, 7);
    Tensor<T> sized = comm.template recv<T>(last, 7);
    expect_elements<T>(report, sized, n, called("receive with the size inferred"), theirs);
    auto const back = sending.wait();
    expect_elements<T>(report, back, n, called("send_async hands its tensor back"),
                       [&](std::int64_t i) { return mine.data()[i]; });

    auto receiving = comm.template recv_async<T>(any_source, 8);
    auto into = comm.recv_async(Tensor<T>(Shape{n}), last, 9);
    auto second = comm.send_async(mine, next, 9);
    auto first = comm.send_async(mine, next, 8);
    expect_elements<T>(report, receiving.wait(), n, called("recv_async with the size inferred"), theirs);
    expect_elements<T>(report, into.wait(), n, called("recv_async"), theirs);
    first.wait();
    second.wait();

    auto probed = comm.send_async(mine, next, 11);
    auto message = comm.match(any_source, any_tag);
    report.expect(message.source() == last && message.tag() == 11 && message.template count<T>() == n &&
                      message.bytes() == n * std::int64_t{sizeof(T)},
                  called("match"));
    if (n % 2 == 0)
      expect_elements<T>(report, comm.template recv<T>(std::move(message)), n, called("receive of a matched message"),
                         theirs);
    else {
      comm.recv(std::move(message), in);
      expect_elements<T>(report, in, n, called("receive of a matched message into a buffer"), theirs);
    }
    probed.wait();
    comm.barrier();
    report.expect(!comm.try_probe().has_value(), called("try_probe when there is nothing"));
    comm.barrier();  // a fast neighbour's next message must not come before the slow one's look
  }
}

/// Tags choose, order holds within one tag, and a matched message is out of everybody else's reach.
template <class Comm>
void matching(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  int const last = (rank + ranks - 1) % ranks;
  std::vector<Request<TensorView<int const>>> sends;
  std::vector<std::array<int, 1>> values;
  for (int k = 0; k < 30; ++k) values.push_back({k});
  for (int k = 0; k < 30; ++k) sends.push_back(comm.send_async(values[static_cast<std::size_t>(k)], next, k % 3));
  std::array<int, 1> got{};
  for (int tag = 2; tag >= 0; --tag)
    for (int k = tag; k < 15; k += 3) {
      comm.recv(got, last, tag);
      report.expect(got[0] == k, "messages of one tag arrive in order, whatever other tags do");
    }
  auto taken = comm.match(last, 0);
  comm.recv(got, last, 0);
  report.expect(got[0] == 18, "a matched message is out of reach of other receives");
  report.expect(comm.template recv<int>(std::move(taken))(0) == 15, "and is received as such");
  for (int k = 0; k < 30; ++k) {
    if (k < 15 || k == 15 || k == 18) continue;
    comm.recv(got, last, k % 3);
  }
  for (auto& send : sends) send.wait();
  // Receives match in the order they were started, also when they could take each other's messages.
  std::array<int, 1> a{};
  std::array<int, 1> b{};
  auto first = comm.recv_async(a, any_source, any_tag);
  auto second = comm.recv_async(b, last, 21);
  std::array<int, 2> const numbers{1, 2};
  auto one = comm.send_async(std::span(numbers).subspan(0, 1), next, 21);
  auto two = comm.send_async(std::span(numbers).subspan(1, 1), next, 21);
  second.wait();
  first.wait();
  one.wait();
  two.wait();
  report.expect(a[0] == 1 && b[0] == 2, "receives match in the order they were started");
  // Large messages to oneself, and both ways at once.
  auto const big = filled<float>(300'000, rank);
  Tensor<float> in(Shape{300'000});
  comm.send_recv(big, rank, in, rank, 1);
  expect_elements<float>(report, in, 300'000, "send_recv with oneself", [&](std::int64_t i) { return big.data()[i]; });
}

// --- Groups ----------------------------------------------------------------------------------------------------------

/// split: ranks ordered by key, groups independent of each other and of the parent, nested, alive after the parent's
/// next uses.
template <class Comm>
void groups(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto parity = comm.split(rank % 2);
  int const expected_size = rank % 2 == 0 ? (ranks + 1) / 2 : ranks / 2;
  report.expect(parity.size() == expected_size && parity.rank() == rank / 2,
                "split by parity keeps the order of ranks");
  auto reversed = comm.split(0, -rank);
  report.expect(reversed.size() == ranks && reversed.rank() == ranks - 1 - rank, "split orders by key");
  auto pending = parity.all_reduce_async(full<int>(Shape{2000}, rank), sum);
  report.expect(reversed.broadcast(rank, 0) == ranks - 1, "the reversed group's rank 0 is the last");
  report.expect(comm.all_reduce(1, sum) == ranks, "the parent works while a group has operations in flight");
  int exact = 0;
  for (int r = rank % 2; r < ranks; r += 2) exact += r;
  report.expect(pending.wait()(1999) == exact, "a group reduces its own ranks");
  auto alone = reversed.split(reversed.rank());
  report.expect(
      alone.size() == 1 && alone.all_reduce(41, sum) == 41 && alone.all_gather(std::array<int, 2>{1, 2}).size() == 2,
      "a group of one");
  std::array<int, 1> const seven{7};
  auto sent = comm.send_async(seven, rank, 2);
  report.expect(!reversed.try_probe().has_value(), "messages stay within their communicator");
  std::array<int, 1> note{};
  comm.recv(note, rank, 2);
  sent.wait();
  report.expect(note[0] == 7, "message to oneself");
  {
    auto temporary = comm.split(rank / 2);
    report.expect(temporary.all_reduce(1, sum) == temporary.size(), "a group for a while");
  }
  comm.barrier();
}

/// What is in flight on one communicator moves on while the rank waits on another.
template <class Comm>
void relatives(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto other = comm.duplicate();
  for (std::int64_t const n : {1, 100'000}) {
    auto x = filled<float>(n, rank);
    auto pending = comm.all_reduce_async(x, sum);
    if (rank % 2 == 0) {  // the others cannot reach the barrier before these have done their share
      other.barrier();
      pending.wait();
    } else {
      pending.wait();
      other.barrier();
    }
    expect_elements<float>(report, x, n, title<float>("all_reduce during another's barrier", n, ranks),
                           [&](std::int64_t i) {
                             float total = 0;
                             for (int r = 0; r < ranks; ++r) total += element<float>(r, i);
                             return total;
                           });
    auto const sent = filled<double>(n, rank, 1);
    Tensor<double> received(Shape{n});
    if (rank == 0) {
      auto receive = ranks > 1 ? comm.recv_async(received, 1, 5) : comm.recv_async(received, 0, 5);
      if (ranks == 1) comm.send(sent, 0, 5);
      other.barrier();
      receive.wait();
      expect_elements<double>(report, received, n, "a message during another's barrier",
                              [&](std::int64_t i) { return element<double>(ranks > 1 ? 1 : 0, i, 1); });
    } else {
      if (rank == 1) comm.send(sent, 0, 5);
      other.barrier();
    }
  }
}

// --- Port ------------------------------------------------------------------------------------------------------------

template <class Comm>
void ports(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto const port = comm::port(comm);
  report.expect(port->rank() == rank && port->size() == ranks, "a port knows its rank and size");
  auto const where = std::source_location::current();
  std::vector<float> x(1001, static_cast<float>(rank + 1));
  std::vector<bfloat16> y(5000, bfloat16(static_cast<float>(rank + 1)));
  std::vector<std::int32_t> all(static_cast<std::size_t>(3 * ranks));
  std::vector<std::int32_t> const mine(3, rank);
  std::vector<double> whole(static_cast<std::size_t>(4 * ranks), 1.0 + rank);
  std::vector<double> part(4);
  std::vector<std::uint8_t> bytes(9, static_cast<std::uint8_t>(rank));
  auto const total = static_cast<float>(ranks * (ranks + 1) / 2);
  auto const a = port->start_all_reduce(x.data(), 1001, DType::float32, comm::PortOp::sum, where);
  auto const b = port->start_all_reduce(y.data(), 5000, DType::bfloat16, comm::PortOp::avg, where);
  auto const c = port->start_all_gather(mine.data(), all.data(), 3, DType::int32, where);
  auto const d = port->start_reduce_scatter(whole.data(), part.data(), 4, DType::float64, comm::PortOp::max, where);
  auto const e = port->start_broadcast(bytes.data(), 9, DType::uint8, ranks - 1, where);
  while (!port->test(e)) {}
  port->wait(b);
  port->wait(a);
  port->wait(d);
  port->wait(c);
  report.expect(x[1000] == total, "all_reduce through a port");
  report.expect(static_cast<float>(y[4999]) == static_cast<float>(bfloat16(total / static_cast<float>(ranks))),
                "avg of bfloat16 through a port");
  bool gathered = true;
  for (int r = 0; r < ranks; ++r) gathered = gathered && all[static_cast<std::size_t>(3 * r)] == r;
  report.expect(gathered, "all_gather through a port");
  report.expect(part[3] == static_cast<double>(ranks), "reduce_scatter through a port");
  report.expect(bytes[8] == ranks - 1, "broadcast through a port");
  auto* const memory = static_cast<float*>(port->allocate(64));
  memory[0] = 1.0f;
  auto const cancelled = port->start_all_reduce(memory, 16, DType::float32, comm::PortOp::sum, where);
  port->cancel(cancelled);
  bool refused = false;
  try {
    port->wait(cancelled);
  } catch (Error const& error) {
    refused = error.kind() == ErrorKind::invalid_argument;
  }
  report.expect(refused, "a cancelled ticket is refused");
  refused = false;
  bool flag = true;
  try {
    static_cast<void>(port->start_all_reduce(&flag, 1, DType::boolean, comm::PortOp::sum, where));
  } catch (Error const& error) {
    refused = error.kind() == ErrorKind::dtype;
  }
  report.expect(refused, "bool has no sum through a port either");

  // A block of all ranks: each writes its element, after a barrier all see them.
  auto* const block = static_cast<std::int32_t*>(port->share(static_cast<std::size_t>(ranks) * 4 + 1, where));
  double meets = 0;
  auto const barrier = [&] { port->wait(port->start_all_reduce(&meets, 1, DType::float64, comm::PortOp::sum, where)); };
  meets = block == nullptr ? 0 : 1;
  barrier();
  report.expect(meets == 0 || meets == ranks, "all ranks share a block, or none");
  if (block == nullptr) return;
  block[comm.rank()] = comm.rank() + 7;
  barrier();
  bool seen = reinterpret_cast<std::uintptr_t>(block) % 64 == 0;
  for (int r = 0; r < ranks; ++r) seen = seen && block[r] == r + 7;
  report.expect(seen, "a shared block holds what every rank wrote, and begins at a cache line");
  barrier();
  if (comm.rank() == ranks - 1) port->release(block);  // one of them early: the others may go on
  else report.expect(block[ranks - 1] == ranks + 6, "a shared block lives as long as somebody holds it");
  auto* const second = static_cast<std::int32_t*>(port->share(static_cast<std::size_t>(ranks) * 4 + 1, where));
  report.expect(comm.rank() == ranks - 1 || second != block, "a block that is held is not given out again");
  barrier();
  port->release(second);
  if (comm.rank() != ranks - 1) port->release(block);
}

// --- Local refusals --------------------------------------------------------------------------------------------------

template <class F>
void expect_error(Report& report, ErrorKind kind, std::string const& part, F&& f) {
  try {
    f();
    report.expect(false, "no error with \"" + part + "\"");
  } catch (Error const& error) {
    report.expect(error.kind() == kind && std::string(error.what()).find(part) != std::string::npos,
                  "instead of \"" + part + "\": " + error.what());
  }
}

/// What one rank can see alone is refused before anything is started: the communicator stays usable.
template <class Comm>
void refusals(Comm& comm, Report& report) {
  int const ranks = comm.size();
  Tensor<float> x = zeros<float>(Shape{12 * 3 + 1});
  Tensor<float> y = zeros<float>(Shape{2, 3});
  auto const out_of_range = std::to_string(ranks);
  expect_error(report, ErrorKind::invalid_argument, "root " + out_of_range + " does not exist",
               [&] { comm.broadcast(x, ranks); });
  expect_error(report, ErrorKind::invalid_argument, "root -1 does not exist", [&] { comm.reduce(x, sum, -1); });
  expect_error(report, ErrorKind::shape, "shapes are (37,) and (2, 3)", [&] { comm.all_reduce(x, y, sum); });
  expect_error(report, ErrorKind::shape, "once for each rank", [&] { comm.all_gather(x, y); });
  Tensor<float> const eight_axes(Shape{1, 1, 1, 1, 1, 1, 1, 1});
  expect_error(report, ErrorKind::shape, "gather", [&] { static_cast<void>(comm.gather(eight_axes)); });
  try {
    static_cast<void>(comm.all_gather(eight_axes));
    report.expect(false, "a result of nine axes");
  } catch (Error const& error) {
    std::string const what = error.what();
    report.expect(what.find("a tensor at most 8. Reshape the buffer") != std::string::npos &&
                      error.rank() == comm.rank() && int(error.where().line()) == __LINE__ - 5,
                  "a result of nine axes: " + what);
  }
  if (ranks > 1) {
    expect_error(report, ErrorKind::shape, "does not divide",
                 [&] { static_cast<void>(comm.reduce_scatter(zeros<float>(Shape{ranks + 1}), sum)); });
    expect_error(report, ErrorKind::shape, "does not divide into",
                 [&] { static_cast<void>(comm.all_to_all(zeros<float>(Shape{ranks + 1}))); });
    expect_error(report, ErrorKind::invalid_argument, "overlap",
                 [&] { comm.all_reduce(x.slice(0, 0, 20), x.slice(0, 10, 30), sum); });
  }
  expect_error(report, ErrorKind::invalid_argument, "destination rank " + out_of_range, [&] { comm.send(x, ranks); });
  expect_error(report, ErrorKind::invalid_argument, "source rank -3", [&] { comm.recv(x, -3); });
  expect_error(report, ErrorKind::invalid_argument, "tag 32768", [&] { comm.send(x, 0, 32768); });
  expect_error(report, ErrorKind::invalid_argument, "color -1", [&] { static_cast<void>(comm.split(-1)); });
  expect_error(report, ErrorKind::invalid_argument, "no operation", [&] { Request<void>().wait(); });
  expect_error(report, ErrorKind::invalid_argument, "deadline", [&] { comm.set_deadline_seconds(0); });
  expect_error(report, ErrorKind::invalid_argument, "the buffers overlap. Pass disjoint ones",
               [&] { comm.send_recv(x, comm.rank(), x, comm.rank()); });
  expect_error(report, ErrorKind::invalid_argument, "the buffers overlap", [&] {
    comm.send_recv(x.slice(0, 0, 20), comm.rank(), x.slice(0, 10, 30), comm.rank());
  });
  // A message of another size: the receiver is told, the sender is done.
  std::array<float, 2> const two_floats{1, 2};
  auto floats = comm.send_async(two_floats, comm.rank(), 1);
  expect_error(report, ErrorKind::shape, "8 bytes, the buffer 148", [&] { comm.recv(x, comm.rank(), 1); });
  floats.wait();
  std::array<char, 3> const three_letters{'a', 'b', 'c'};
  auto letters = comm.send_async(three_letters, comm.rank(), 1);
  expect_error(report, ErrorKind::dtype, "no whole number of float32",
               [&] { static_cast<void>(comm.template recv<float>(comm.rank(), 1)); });
  letters.wait();
  // Of another type of that size: seen where messages tell their type.
  std::array<std::int32_t, 2> integers{};
  auto again = comm.send_async(two_floats, comm.rank(), 1);
  try {
    report.expect(!comm.recv(integers, comm.rank(), 1).has_dtype, "an int32 buffer takes a message of float32");
  } catch (Error const& error) {
    report.expect(error.kind() == ErrorKind::dtype &&
                      std::string(error.what()).find("holds float32, the buffer int32") != std::string::npos,
                  error.what());
  }
  again.wait();
  again = comm.send_async(two_floats, comm.rank(), 1);
  MessageInfo const told = comm.recv(x.slice(0, 0, 2), comm.rank(), 1);
  report.expect(!told.has_dtype || told.dtype == DType::float32, "the type that a message carries");
  again.wait();
  // Several indices of the target reach one element.
  auto const sliding = TensorView<float>::strided(x.data(), Shape{4, 3}, {1, 1});
  expect_error(report, ErrorKind::invalid_argument, "several indices of the receive buffer",
               [&] { comm.broadcast(sliding); });
  expect_error(report, ErrorKind::invalid_argument, "view of shape (4, 3), reach one element",
               [&] { comm.all_reduce(zeros<float>(Shape{4, 3}), sliding, sum); });
  expect_error(report, ErrorKind::invalid_argument, "several indices of the receive buffer",
               [&] { comm.recv(sliding, comm.rank(), 1); });
  report.expect(comm.all_reduce(1, sum) == ranks, "after refusals the communicator works");
}

}  // namespace tutti::laws

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws for what is made of elements: complex numbers, described structs, values with a location.

#include <tutti/testing/laws/report.hpp>

#include <complex>

namespace tutti::laws {

enum class Colour : std::uint8_t { red, green, blue };

struct Point {
  BOOST_HANA_DEFINE_STRUCT(Point, (double, x), (double, y));
  friend bool operator==(Point const&, Point const&) = default;
};
/// With padding behind `kind`, behind `hits`, and inside of `Tag`.
struct Tag {
  BOOST_HANA_DEFINE_STRUCT(Tag, (char, letter), (std::int32_t, number));
  friend bool operator==(Tag const&, Tag const&) = default;
};
struct Particle {
  BOOST_HANA_DEFINE_STRUCT(Particle, (bool, kind), (Point, position), (std::array<std::int16_t, 3>, hits), (Tag, tag),
                           (Colour, colour), (std::complex<double>, phase));
  friend bool operator==(Particle const&, Particle const&) = default;
};
static_assert(!comm::is_padded<Point> && comm::wire_bytes<Tag>() == 5 && sizeof(Tag) == 8);
static_assert(comm::is_padded<Particle> && comm::wire_bytes<Particle>() == 1 + 16 + 6 + 5 + 1 + 16);

inline Particle particle(int rank, std::int64_t i) {
  Particle p{};
  p.kind = (rank + i) % 2 == 0;
  p.position = {rank + 0.5, static_cast<double>(i)};
  p.hits = {static_cast<std::int16_t>(i), static_cast<std::int16_t>(rank), -1};
  p.tag.letter = static_cast<char>('a' + rank);
  p.tag.number = static_cast<std::int32_t>(i * 10 + rank);
  p.colour = static_cast<Colour>(i % 3);
  p.phase = {static_cast<double>(rank), static_cast<double>(i)};
  return p;
}

/// Elements are compared as values: padding is nobody's.
template <class X, class Of>
void expect_values(Report& report, X const& x, std::int64_t size, std::string const& what, Of&& of) {
  bool right = static_cast<std::int64_t>(x.size()) == size;
  for (std::int64_t i = 0; right && i < size; ++i) right = x.data()[i] == of(i);
  report.expect(right, what + " of " + std::to_string(size));
}

/// Every kind of movement carries structs with padding, from and to tensors, vectors, spans and single values.
template <class Comm>
void structs(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  int const last = (rank + ranks - 1) % ranks;
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{77}, std::int64_t{5003}}) {
    int const root = static_cast<int>(n % ranks);
    std::vector<Particle> mine;
    for (std::int64_t i = 0; i < n; ++i) mine.push_back(particle(rank, i));
    auto const gathered = [&](std::int64_t i) { return particle(static_cast<int>(i / n), i % n); };

    std::vector<Particle> x = mine;
    comm.broadcast(x, root);
    expect_values(report, std::span(x), n, "broadcast of structs", [&](std::int64_t i) { return particle(root, i); });
    Tensor<Particle> const all = comm.all_gather(mine);
    report.expect(all.shape() == Shape{ranks, n}, "all_gather of structs: shape");
    expect_values(report, all, n * ranks, "all_gather of structs", gathered);
    expect_values(report, comm.all_gather_async(mine).wait(), n * ranks, "all_gather_async of structs", gathered);
    auto in_place = all.clone();
    comm.all_gather(in_place[rank], in_place);
    expect_values(report, in_place, n * ranks, "all_gather of structs in place", gathered);
    auto const at_root = comm.gather(mine, root);
    if (rank == root) expect_values(report, at_root, n * ranks, "gather of structs", gathered);
    std::vector<Particle> part(static_cast<std::size_t>(n));
    comm.scatter(at_root, part, root);
    expect_values(report, std::span(part), n, "scatter of structs", [&](std::int64_t i) { return particle(rank, i); });
    auto const exchanged = comm.all_to_all(all);
    expect_values(report, exchanged, n * ranks, "all_to_all of structs",
                  [&](std::int64_t i) { return particle(rank, i % n); });

    auto const some = std::span(mine).first(static_cast<std::size_t>(rank % 2 == 0 ? n : n / 2));
    auto const ragged = comm.all_gather_v(some);
    bool right = ragged.blocks() == ranks;
    for (int r = 0; right && r < ranks; ++r) {
      auto const block = ragged.block(r);
      right = block.size() == (r % 2 == 0 ? n : n / 2);
      for (std::int64_t i = 0; right && i < block.size(); ++i) right = block(i) == particle(r, i);
    }
    report.expect(right, "all_gather_v of structs");

    auto sending = comm.send_async(mine, next, 3);
    MessageInfo info;
    if (n % 2 == 0) {
      info = comm.recv(part, last, 3);
    } else {
      auto message = comm.match(last, 3);
      info = message.info();
      Tensor<Particle> const sized = comm.template recv<Particle>(std::move(message));
      report.expect(sized.size() == n, "receive of structs with the size inferred");
      std::copy(sized.data(), sized.data() + n, part.begin());
    }
    sending.wait();
    expect_values(report, std::span(part), n, "message of structs", [&](std::int64_t i) { return particle(last, i); });
    report.expect(info.bytes == n * comm::wire_bytes<Particle>() && info.template count<Particle>() == n,
                  "padding is not sent");
  }
  report.expect(comm.broadcast(particle(rank, 5), ranks - 1) == particle(ranks - 1, 5), "broadcast of one struct");

  // Bytes of padding keep what they had on the side that receives.
  Particle received;
  std::memset(static_cast<void*>(&received), 0x5a, sizeof received);
  if (rank == 0) received = particle(0, 9);
  Particle reference;
  std::memset(static_cast<void*>(&reference), 0x5a, sizeof reference);
  auto const source = particle(0, 9);
  std::array<std::byte, static_cast<std::size_t>(comm::wire_bytes<Particle>())> packed;
  comm::pack(source, packed.data());
  comm::unpack(packed.data(), reference);
  comm.broadcast(std::span(&received, 1), 0);
  report.expect(received == source, "a struct arrives");
  if (rank != 0)
    report.expect(std::memcmp(&received, &reference, sizeof received) == 0, "padding of a struct is not written");
}

/// Callables reduce structs in rank order, in every kind of reduction.
template <class Comm>
void struct_reductions(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  double const factor = 2.0;
  auto const merge = [&factor](Particle a, Particle const& b) {
    a.position.x += b.position.x;
    a.hits[1] = static_cast<std::int16_t>(a.hits[1] * 10 + b.hits[1]);  // the order of the ranks as digits
    a.phase = a.phase + factor * b.phase;
    return a;
  };
  auto const merged = [&](int count, std::int64_t i) {
    Particle p = particle(0, i);
    for (int r = 1; r < count; ++r) p = merge(p, particle(r, i));
    return p;
  };
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{301}}) {
    Tensor<Particle> mine(Shape{n});
    for (std::int64_t i = 0; i < n; ++i) mine.data()[i] = particle(rank, i);
    auto x = mine.clone();
    comm.all_reduce(x, merge);
    expect_values(report, x, n, "all_reduce of structs", [&](std::int64_t i) { return merged(ranks, i); });
    x = comm.scan_async(mine.clone(), non_commutative(merge)).wait();
    expect_values(report, x, n, "scan of structs", [&](std::int64_t i) { return merged(rank + 1, i); });
    x = mine.clone();
    comm.reduce(mine, x, merge, ranks - 1);
    expect_values(report, x, n, "reduce of structs",
                  [&](std::int64_t i) { return rank == ranks - 1 ? merged(ranks, i) : particle(rank, i); });
    Tensor<Particle> whole(Shape{n * ranks});
    for (std::int64_t i = 0; i < n * ranks; ++i) whole.data()[i] = particle(rank, i);
    expect_values(report, comm.reduce_scatter(whole, merge), n, "reduce_scatter of structs",
                  [&](std::int64_t i) { return merged(ranks, n * rank + i); });
  }
  Point const total = comm.all_reduce(Point{1.0, static_cast<double>(rank)}, commutative([](Point a, Point b) {
                                        return Point{a.x + b.x, a.y + b.y};
                                      }));
  report.expect(total == Point{static_cast<double>(ranks), ranks * (ranks - 1) / 2.0}, "all_reduce of one struct");
}

/// sum, prod and avg of complex numbers, and their movement.
template <class T, class Comm>
void complex_numbers(Comm& comm, Report& report) {
  using Z = std::complex<T>;
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto const number = [](int r, std::int64_t i) {
    return Z(static_cast<T>((r + i) % 3 - 1), static_cast<T>((2 * r + i) % 3));
  };
  for (std::int64_t const n : sizes()) {
    auto const mine = [&] {
      Tensor<Z> x(Shape{n});
      for (std::int64_t i = 0; i < n; ++i) x.data()[i] = number(rank, i);
      return x;
    };
    auto const expected = [&](int count, std::int64_t i, bool product) {
      Z z = number(0, i);
      for (int r = 1; r < count; ++r) z = product ? z * number(r, i) : z + number(r, i);
      return z;
    };
    auto x = mine();
    comm.all_reduce(x, sum);
    expect_values(report, x, n, "all_reduce of complex numbers with sum",
                  [&](std::int64_t i) { return expected(ranks, i, false); });
    x = comm.all_reduce_async(mine(), prod).wait();
    expect_values(report, x, n, "all_reduce_async of complex numbers with prod",
                  [&](std::int64_t i) { return expected(ranks, i, true); });
    x = mine();
    comm.all_reduce(x, avg);
    expect_values(report, x, n, "all_reduce of complex numbers with avg", [&](std::int64_t i) {
      Z const z = expected(ranks, i, false);
      return Z(z.real() / static_cast<T>(ranks), z.imag() / static_cast<T>(ranks));
    });
    x = mine();
    comm.scan(x, sum);
    expect_values(report, x, n, "scan of complex numbers",
                  [&](std::int64_t i) { return expected(rank + 1, i, false); });
    expect_values(report, comm.all_gather(mine()), n * ranks, "all_gather of complex numbers",
                  [&](std::int64_t i) { return number(static_cast<int>(i / n), i % n); });
    expect_values(report, comm.all_gather_v(mine()).values(), n * ranks, "all_gather_v of complex numbers",
                  [&](std::int64_t i) { return number(static_cast<int>(i / n), i % n); });
  }
  report.expect(comm.all_reduce(Z(1, 2), sum) == Z(static_cast<T>(ranks), static_cast<T>(2 * ranks)),
                "all_reduce of one complex number");
}

/// The extreme value with its index; the lowest index among equals, whatever rank holds it.
template <Element T, class Comm>
void locations(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{130}, std::int64_t{4001}}) {
    // Higher ranks have lower indices, so that rank order and index order differ.
    auto const at = [&](int r, std::int64_t i) { return Located<T>{element<T>(r, i), 100 - r}; };
    auto const best = [&](std::int64_t i, bool least) {
      Located<T> found = at(0, i);
      for (int r = 1; r < ranks; ++r) {
        Located<T> const next = at(r, i);
        if (next.value == found.value ? next.index < found.index : (next.value < found.value) == least) found = next;
      }
      return found;
    };
    std::vector<Located<T>> mine;
    for (std::int64_t i = 0; i < n; ++i) mine.push_back(at(rank, i));
    auto x = mine;
    comm.all_reduce(x, min_location);
    expect_values(report, std::span(x), n, "all_reduce with min_location",
                  [&](std::int64_t i) { return best(i, true); });
    x = mine;
    comm.all_reduce_async(x, max_location).wait();
    expect_values(report, std::span(x), n, "all_reduce_async with max_location",
                  [&](std::int64_t i) { return best(i, false); });
  }
  auto const winner = comm.all_reduce(Located<T>{static_cast<T>(3), rank}, max_location);
  report.expect(winner.value == static_cast<T>(3) && winner.index == 0, "all ranks equal: the lowest index");
}

/// Ranks holding 256, 1, 1, 1 have the sum 260 and ranks holding 2048, 1, 1, 1 the sum 2051 in every reduction.
template <class Comm>
void narrow_reductions(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto const check = [&]<class T>(T first, char const* what) {
    T const mine(rank == 0 ? static_cast<float>(first) : 1.0f);
    T const total(static_cast<float>(first) + static_cast<float>(ranks - 1));
    report.expect(comm.all_reduce(mine, sum) == total, std::string("all_reduce of ") + what);
    Tensor<T> x = full<T>(Shape{ranks, 777}, mine);
    report.expect(comm.reduce_scatter(x, sum)(0, 776) == total, std::string("reduce_scatter of ") + what);
    std::vector<std::int64_t> const rows(static_cast<std::size_t>(ranks), 1);
    report.expect(comm.reduce_scatter_v(x, rows, sum)(0, 0) == total, std::string("reduce_scatter_v of ") + what);
    comm.reduce(x, sum, ranks - 1);
    report.expect(x(0, 5) == (rank == ranks - 1 ? total : mine), std::string("reduce of ") + what);
    T const before = comm.scan(mine, sum);
    report.expect(before == T(static_cast<float>(first) + static_cast<float>(rank)), std::string("scan of ") + what);
    T const mean = comm.all_reduce(mine, avg);
    report.expect(mean == T((static_cast<float>(first) + static_cast<float>(ranks - 1)) / static_cast<float>(ranks)),
                  std::string("avg of ") + what);
  };
  check(bfloat16(256.0f), "bfloat16");
  check(float16(2048.0f), "float16");
}

}  // namespace tutti::laws

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws for what programs do every day: single numbers as messages, structs without a description, containers that
/// are moved in, partners that do not exist, ranks that join no part of a split, neighbours of a mesh, and windows.

#include <tutti/comm/window.hpp>
#include <tutti/testing/laws/report.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::laws {

enum class Suit : std::int16_t { hearts = 3, spades = -4 };
struct Sample {
  double weight;
  char kind;
  std::array<std::int32_t, 2> at;
  float history[3];
};

/// Numbers, enumerations, pairs and plain structs, alone and in containers.
template <class Comm>
void plain_values(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const next = (rank + 1) % comm.size();
  int const last = (rank + comm.size() - 1) % comm.size();
  auto const sample = [](int r) {
    return Sample{r + 0.5, static_cast<char>('a' + r), {r, -r}, {static_cast<float>(r), 2, 3}};
  };
  auto const same = [](Sample const& a, Sample const& b) {
    return a.weight == b.weight && a.kind == b.kind && a.at == b.at && a.history[0] == b.history[0] &&
           a.history[2] == b.history[2];
  };
  if (comm.size() > 1) {
    if (rank == 0) {
      comm.send(2.5, 1);
      comm.send(Suit::spades, 1, 7);
      comm.send(std::pair<int, double>{3, 0.25}, 1);
      comm.send(sample(0), 1);
    } else if (rank == 1) {
      double number = 0;
      MessageInfo const info = comm.recv(number, 0);
      report.expect(number == 2.5 && info.source == 0 && info.bytes == 8, "a number is received in place");
      Suit suit{};
      comm.recv(suit, any_source, 7);
      report.expect(suit == Suit::spades, "an enumeration is received in place");
      std::pair<int, double> pair;
      comm.recv(pair, 0);
      report.expect(pair == std::pair<int, double>{3, 0.25}, "a pair is received in place");
      auto const got = recv<Sample>(comm, 0);
      report.expect(got.size() == 1 && same(got(0), sample(0)), "a plain struct is received with its size inferred");
    }
  }
  std::vector<std::pair<std::int8_t, std::int64_t>> pairs(5);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    pairs[i] = {static_cast<std::int8_t>(rank), static_cast<std::int64_t>(i) << 33};
  std::vector<std::pair<std::int8_t, std::int64_t>> theirs(5);
  comm.send_recv(pairs, next, theirs, last);
  bool right = true;
  for (std::size_t i = 0; i < theirs.size(); ++i)
    right = right && theirs[i].first == last && theirs[i].second == static_cast<std::int64_t>(i) << 33;
  report.expect(right, "pairs travel without their padding");

  auto const samples = comm.all_gather(sample(rank));
  std::vector<std::array<Suit, 2>> suits(3, {rank == 0 ? Suit::hearts : Suit::spades, Suit::spades});
  comm.broadcast(suits, 0);
  right = samples.size() == comm.size();
  for (int r = 0; right && r < comm.size(); ++r) right = same(samples(r), sample(r));
  report.expect(right, "all_gather of a plain struct");
  report.expect(suits[2][0] == Suit::hearts, "broadcast of arrays of enumerations");
  // a reduction takes a callable, as that of described structs does
  Sample heaviest = sample(rank);
  comm.all_reduce(heaviest, [](Sample a, Sample b) { return a.weight < b.weight ? b : a; });
  report.expect(same(heaviest, sample(comm.size() - 1)), "all_reduce of a plain struct by a callable");
}

/// The whole range of integers, in which an unsigned number is not a signed one.
template <class T, class Comm>
void whole_range(Comm& comm, Report& report) {
  constexpr T least = std::numeric_limits<T>::min();
  constexpr T greatest = std::numeric_limits<T>::max();
  for (std::size_t const n : {std::size_t{1}, std::size_t{9}, std::size_t{20'000}}) {
    bool const last = comm.rank() + 1 == comm.size();
    std::vector<T> const mine(n, last ? greatest : least);
    std::vector<T> x = mine;
    comm.all_reduce(x, max);
    report.expect(x == std::vector<T>(n, greatest), "the greatest of the whole range");
    x = mine;
    comm.all_reduce(x, min);
    report.expect(x == std::vector<T>(n, comm.size() == 1 ? greatest : least), "the least of the whole range");
    x = mine;
    comm.reduce(x, max, 0);
    if (comm.rank() == 0) report.expect(x == std::vector<T>(n, greatest), "reduce to the greatest");
    auto const part =
        comm.reduce_scatter(full<T>(Shape{comm.size(), 3}, last ? static_cast<T>(greatest - 1) : T{1}), max);
    report.expect(part(0, 2) == static_cast<T>(greatest - 1), "reduce_scatter to the greatest");
  }
}

/// A request owns a container that is moved into it, and gives it back.
template <class Comm>
void moved_containers(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const next = (rank + 1) % comm.size();
  int const last = (rank + comm.size() - 1) % comm.size();
  for (std::size_t const n : {std::size_t{0}, std::size_t{3}, std::size_t{70'000}}) {
    std::vector<std::int32_t> mine(n, rank);
    auto const* const memory = mine.data();
    auto sent = comm.send_async(std::move(mine), next, 3);
    auto received = comm.recv_async(std::vector<std::int32_t>(n, -1), last, 3);
    std::vector<std::int32_t> const got = received.wait();
    report.expect(got == std::vector<std::int32_t>(n, last), "a moved vector is filled");
    std::vector<std::int32_t> const back = sent.wait();
    report.expect(back.data() == memory && back.size() == n, "a vector that was sent comes back");
    std::vector<std::int32_t> const total = comm.all_reduce_async(std::vector<std::int32_t>(n, 1), sum).wait();
    report.expect(total == std::vector<std::int32_t>(n, comm.size()), "all_reduce_async of a moved vector");
  }
  auto text = comm.broadcast_async(std::string(rank == 0 ? "tutti" : "-----")).wait();
  report.expect(text == "tutti", "a short string, whose letters lie inside of it, is moved in");
  auto const copy = static_cast<std::vector<std::int32_t>>(comm.all_gather(std::int32_t{rank}));
  bool right = static_cast<int>(copy.size()) == comm.size();
  for (int r = 0; right && r < comm.size(); ++r) right = copy[static_cast<std::size_t>(r)] == r;
  report.expect(right, "a tensor becomes a vector");
}

/// Nothing is sent to proc_null, and what comes from it is nothing.
template <class Comm>
void absent_partners(Comm& comm, Report& report) {
  std::vector<float> x(3, 5.0f);
  comm.send(x, proc_null);
  comm.send(1.0f, proc_null, 9);
  MessageInfo info = comm.recv(x, proc_null);
  report.expect(x == std::vector<float>(3, 5.0f), "a receive from proc_null leaves its buffer");
  report.expect(info.source == proc_null && info.tag == any_tag && info.bytes == 0, "and says that nothing came");
  std::pair<char, double> padded{'a', 1.0};
  comm.recv(padded, proc_null);
  report.expect(padded.first == 'a' && padded.second == 1.0, "also one that is unpacked");
  Tensor<float> square = full<float>(Shape{4, 4}, 2.0f);
  comm.recv_async(square.view().slice(1, 1, 2), proc_null, 4).wait();
  report.expect(square(2, 1) == 2.0f, "also a view with gaps");
  report.expect(recv<double>(comm, proc_null).size() == 0, "recv<T> from proc_null is empty");
  report.expect(comm.probe(proc_null).source == proc_null, "a probe of proc_null is complete");
  report.expect(comm.try_probe(proc_null).has_value(), "also without waiting");
  auto message = comm.match(proc_null);
  report.expect(message.source() == proc_null && comm.recv(std::move(message), x).bytes == 0 && x[0] == 5.0f,
                "a match of proc_null is received as nothing");
  // a line whose ends have one neighbour
  int const left = comm.rank() == 0 ? proc_null : comm.rank() - 1;
  int const right = comm.rank() + 1 == comm.size() ? proc_null : comm.rank() + 1;
  std::vector<std::int64_t> out(2, comm.rank());
  std::vector<std::int64_t> in(2, -7);
  info = comm.send_recv(out, right, in, left);
  report.expect(in == std::vector<std::int64_t>(2, left == proc_null ? -7 : left) && info.source == left,
                "a shift along a line");
  auto group = comm.group();
  group.recv(in, right);
  group.send(out, left);
  auto const infos = group.wait();
  report.expect(in[1] == (right == proc_null ? (left == proc_null ? -7 : left) : right) && infos[0].source == right,
                "and back, in a group");
}

/// A rank without a color gets no communicator, and the others one without it.
template <class Comm>
void split_without_color(Comm& comm, Report& report) {
  bool const in = comm.rank() % 2 == 1;
  auto part = comm.split(in ? std::optional<int>(0) : std::nullopt, -comm.rank());
  report.expect(part.has_value() == in, "who passes a color is in");
  if (part) {
    int count = 1;
    part->all_reduce(count, sum);
    report.expect(count == comm.size() / 2, "the part has the ranks that passed the color");
    report.expect(part->rank() == part->size() - 1 - comm.rank() / 2, "in the order of their keys");
  }
  comm.barrier();
  auto const nobody = comm.split(std::nullopt);
  report.expect(!nobody.has_value(), "a split in which nobody has a color");
}

/// Neighbours of a grid, periodic along one axis, and the exchange with all of them.
template <class Comm>
void neighbours(Comm& comm, Report& report) {
  int const rows = comm.size() % 2 == 0 ? 2 : 1;
  int const columns = comm.size() / rows;
  auto mesh = comm.mesh({{"row", rows}, {"column", columns, true}});
  int const row = mesh.coordinate("row");
  int const column = mesh.coordinate("column");
  auto const down = mesh.shift("row");
  report.expect(down.to == (row + 1 < rows ? row + 1 : proc_null) && down.from == (row > 0 ? row - 1 : proc_null),
                "an axis that is not periodic ends");
  auto const right = mesh.shift("column", 1 + 2 * columns);
  report.expect(right.to == (column + 1) % columns && right.from == (column + columns - 1) % columns,
                "a periodic one does not");
  report.expect(mesh.rank_at({row, column}) == comm.rank() && mesh.rank_at({row, column + columns}) == comm.rank() &&
                    mesh.rank_at({-1, 0}) == proc_null,
                "ranks by coordinates");
  // block k of a rank: rank * 10 + k
  Tensor<std::int32_t> out(Shape{4, 3});
  Tensor<std::int32_t> in = full<std::int32_t>(Shape{4, 3}, -1);
  for (int k = 0; k < 4; ++k) out.view()[k].elements()[0] = out(k, 1) = out(k, 2) = comm.rank() * 10 + k;
  mesh.neighbor_all_to_all(out, in);
  int const neighbours[4] = {mesh.rank_at({row - 1, column}), mesh.rank_at({row + 1, column}),
                             mesh.rank_at({row, column - 1}), mesh.rank_at({row, column + 1})};
  bool all = true;
  for (int k = 0; k < 4; ++k) {
    int const expected = neighbours[k] == proc_null ? -1 : neighbours[k] * 10 + (k ^ 1);
    for (int i = 0; i < 3; ++i) all = all && in(k, i) == expected;
  }
  report.expect(all, "each block comes from the neighbour on its side");
}

/// Elements that ranks read and write without their owner's help.
template <class Comm>
void windows(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  auto numbers = window<std::int64_t>(comm, 10 + rank);
  report.expect(numbers.part().size() == 10 + rank && numbers.size(next) == 10 + next, "parts of sizes of their own");
  report.expect(numbers.part()(9) == 0, "a window is zero at first");
  for (int epoch = 1; epoch <= 3; ++epoch) {
    std::vector<std::int64_t> const given(4, rank * 100 + epoch);
    numbers.put(given, next, 2);
    numbers.put(std::int64_t{7} * epoch, next);
    numbers.put(given, proc_null, 99);
    numbers.fence();
    int const last = (rank + ranks - 1) % ranks;
    auto const part = numbers.part();
    report.expect(part(0) == 7 * epoch && part(1) == 0 && part(2) == last * 100 + epoch &&
                      part(5) == last * 100 + epoch && part(6) == 0,
                  "put is there after the fence");
    std::vector<std::int64_t> got(3, -1);
    std::int64_t own[1] = {-1};
    numbers.get(got, next, 4);
    numbers.get(own, rank);
    std::int64_t one = -1, none = -1;
    numbers.get(one, next, 2);
    numbers.get(none, proc_null);
    numbers.fence();
    report.expect(got[0] == rank * 100 + epoch && got[2] == 0 && own[0] == 7 * epoch, "get reads another rank's part");
    report.expect(one == rank * 100 + epoch && none == -1, "get reads one element into a number");
    numbers.fence();
  }
  // sums in the order of the ranks: the bits are those of one addition after the other
  auto sums = window<float>(comm, 3);
  auto const addend = [](int r, int i) { return 1.0f / static_cast<float>(3 * r + i + 1); };
  for (int target = 0; target < ranks; ++target) {
    sums.accumulate(std::vector<float>{addend(rank, 0), addend(rank, 1)}, target);
    sums.accumulate(addend(rank, 2), target, 1);
    sums.accumulate(addend(rank, 0), target, 2, max);
  }
  sums.fence();
  float first = 0, second = 0;
  for (int r = 0; r < ranks; ++r) {
    first += addend(r, 0);
    second = second + addend(r, 1) + addend(r, 2);
  }
  auto const part = sums.part();
  report.expect(part(0) == first && part(1) == second && part(2) == 1.0f, "accumulate adds in the order of the ranks");
  auto const refused = [&](auto&& call, ErrorKind kind, std::string const& word) {
    try {
      call();
    } catch (Error const& error) {
      return error.kind() == kind && std::string(error.what()).find(word) != std::string::npos;
    }
    return false;
  };
  report.expect(refused([&] { sums.put(1.0f, rank, 3); }, ErrorKind::out_of_range, "elements [3, 4) are outside"),
                "elements that are not there are refused");
  report.expect(refused([&] { sums.put(1.0f, ranks, 0); }, ErrorKind::invalid_argument, "does not exist"),
                "a rank that does not exist is refused");
  auto moved = std::move(sums);
  moved.fence();
  auto none = window<double>(comm, 0);
  none.fence();
  report.expect(none.part().size() == 0, "a window without elements");
}

}  // namespace tutti::laws

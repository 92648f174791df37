// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of persistent collectives, groups of messages, probes that only look, duplicates and meshes.

#include <tutti/testing/laws/report.hpp>

namespace tutti::laws {

/// Every plan gives what the collective of its name gives, again and again, with the buffers' present contents.
template <class Comm>
void plans(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{33}, std::int64_t{3001}}) {
    auto const whole = n * ranks;
    Tensor<float> x(Shape{n});
    Tensor<float> y = zeros<float>(Shape{n});
    Tensor<float> big = zeros<float>(Shape{whole});
    Tensor<float> other = zeros<float>(Shape{whole});
    Tensor<bfloat16> narrow(Shape{n, 2});
    Tensor<Located<float>> located(Shape{n});
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), n);
    auto barrier = comm.barrier_plan();
    auto in_place = comm.all_reduce_plan(x, sum);
    auto all_reduce = comm.all_reduce_plan(x, y, max);
    auto reduce = comm.reduce_plan(x, y, sum, ranks - 1);
    auto broadcast = comm.broadcast_plan(x, ranks - 1);
    auto scan = comm.scan_plan(x, y, [](float a, float b) { return a + b; });
    auto exscan = comm.exscan_plan(x, sum);
    auto all_gather = comm.all_gather_plan(x, big);
    auto gather = comm.gather_plan(x, big);
    auto scatter = comm.scatter_plan(big, y);
    auto reduce_scatter = comm.reduce_scatter_plan(big, y, sum);
    auto all_to_all = comm.all_to_all_plan(big, other);
    auto all_gather_v = comm.all_gather_v_plan(x, big, counts);
    auto gather_v = comm.gather_v_plan(x, big, counts);
    auto scatter_v = comm.scatter_v_plan(big, y, counts);
    auto reduce_scatter_v = comm.reduce_scatter_v_plan(big, y, counts, sum);
    auto all_to_all_v = comm.all_to_all_v_plan(big, other, counts, counts);
    auto column = comm.all_reduce_plan(narrow.slice(1, 1, 2), sum);
    auto extreme = comm.all_reduce_plan(located, max_location);
    counts.assign(counts.size(), -7);  // the plans have their own

    for (int round = 0; round < 3; ++round) {
      auto const called = [&](char const* what) {
        return std::string(what) + " of " + std::to_string(n) + ", round " + std::to_string(round);
      };
      auto const mine = [&](int r, std::int64_t i) { return element<float>(r, i, round); };
      auto const fill = [&] {
        for (std::int64_t i = 0; i < n; ++i) x.data()[i] = mine(rank, i);
        for (std::int64_t i = 0; i < whole; ++i) big.data()[i] = mine(rank, i);
      };
      auto const total = [&](int count, std::int64_t i) {
        float t = 0;
        for (int r = 0; r < count; ++r) t += mine(r, i);
        return t;
      };
      auto const joined = [&](std::int64_t i) { return mine(static_cast<int>(i / n), i % n); };
      auto const run = [](auto& plan) {
        plan.start();
        plan.wait();
      };
      run(barrier);
      fill();
      run(in_place);
      expect_elements<float>(report, x, n, called("all_reduce_plan in place"),
                             [&](std::int64_t i) { return total(ranks, i); });
      fill();
      run(all_reduce);
      expect_elements<float>(report, y, n, called("all_reduce_plan"), [&](std::int64_t i) {
        float most = mine(0, i);
        for (int r = 1; r < ranks; ++r) most = mine(r, i) > most ? mine(r, i) : most;
        return most;
      });
      run(reduce);
      if (rank == ranks - 1)
        expect_elements<float>(report, y, n, called("reduce_plan"), [&](std::int64_t i) { return total(ranks, i); });
      run(scan);
      expect_elements<float>(report, y, n, called("scan_plan"), [&](std::int64_t i) { return total(rank + 1, i); });
      run(all_gather);
      expect_elements<float>(report, big, whole, called("all_gather_plan"), joined);
      run(scatter);
      expect_elements<float>(report, y, n, called("scatter_plan"), [&](std::int64_t i) { return mine(rank, i); });
      run(scatter_v);
      expect_elements<float>(report, y, n, called("scatter_v_plan"), [&](std::int64_t i) { return mine(rank, i); });
      fill();
      run(gather);
      if (rank == 0) expect_elements<float>(report, big, whole, called("gather_plan"), joined);
      fill();
      run(gather_v);
      if (rank == 0) expect_elements<float>(report, big, whole, called("gather_v_plan"), joined);
      fill();
      run(all_gather_v);
      expect_elements<float>(report, big, whole, called("all_gather_v_plan"), joined);
      fill();
      run(reduce_scatter);
      expect_elements<float>(report, y, n, called("reduce_scatter_plan"),
                             [&](std::int64_t i) { return total(ranks, n * rank + i); });
      y.fill(0.0f);
      run(reduce_scatter_v);
      expect_elements<float>(report, y, n, called("reduce_scatter_v_plan"),
                             [&](std::int64_t i) { return total(ranks, n * rank + i); });
      auto const exchanged = [&](std::int64_t i) { return mine(static_cast<int>(i / n), n * rank + i % n); };
      run(all_to_all);
      expect_elements<float>(report, other, whole, called("all_to_all_plan"), exchanged);
      other.fill(0.0f);
      run(all_to_all_v);
      expect_elements<float>(report, other, whole, called("all_to_all_v_plan"), exchanged);
      run(exscan);
      if (rank != 0)
        expect_elements<float>(report, x, n, called("exscan_plan"), [&](std::int64_t i) { return total(rank, i); });
      fill();
      run(broadcast);
      expect_elements<float>(report, x, n, called("broadcast_plan"),
                             [&](std::int64_t i) { return mine(ranks - 1, i); });

      narrow.fill(bfloat16(static_cast<float>(round + 1)));
      run(column);
      for (std::int64_t i = 0; i < n; i += 100)
        report.expect(static_cast<float>(narrow(i, 1)) == static_cast<float>((round + 1) * ranks) &&
                          static_cast<float>(narrow(i, 0)) == static_cast<float>(round + 1),
                      called("all_reduce_plan of a column"));
      located.fill({static_cast<float>((rank + round) % ranks), rank});
      run(extreme);
      for (std::int64_t i = 0; i < n; i += 100)
        report.expect(
            located(i).value == static_cast<float>(ranks - 1) && (located(i).index + round) % ranks == ranks - 1,
            called("all_reduce_plan of structs with padding"));
    }
  }
}

/// Misuse is an Error; plans in flight together, moved, and dropped under way.
template <class Comm>
void plan_misuse(Comm& comm, Report& report) {
  int const ranks = comm.size();
  std::vector<float> x(1000, 1.0f);
  std::vector<float> y(3, 1.0f);
  auto plan = comm.all_reduce_plan(x, sum);
  expect_error(report, ErrorKind::invalid_argument, "not under way: all_reduce(sum, float32, count 1000)",
               [&] { plan.wait(); });
  expect_error(report, ErrorKind::invalid_argument, "Call start() first", [&] { static_cast<void>(plan.test()); });
  plan.start();
  expect_error(report, ErrorKind::invalid_argument, "Wait before starting it again", [&] { plan.start(); });
  auto second = comm.all_reduce_plan(y, max);
  second.start();
  report.expect(plan.started() && second.started(), "two plans are under way");
  auto moved = std::move(plan);
  second.wait();
  while (!moved.test()) {
  }
  moved.wait();
  report.expect(!moved.started() && x[999] == static_cast<float>(ranks) && y[2] == 1.0f, "both are complete");
  expect_error(report, ErrorKind::shape, "shapes are (1000,) and (3,)",
               [&] { static_cast<void>(comm.all_reduce_plan(x, y, sum)); });
  {
    auto copy = comm.duplicate();  // completes in its destructor what was dropped
    auto dropped = copy.all_reduce_plan(x, sum);
    dropped.start();
  }
  report.expect(x[0] == static_cast<float>(ranks * ranks), "a plan dropped under way is completed");
  report.expect(comm.all_reduce(1, sum) == ranks, "after misuse the communicator works");
}

/// Sends and receives in any order in one group, also to oneself; received infos in the order of the receives.
template <class Comm>
void message_groups(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{70001}}) {
    auto const mine = filled<float>(n, rank);
    std::vector<Tensor<float>> in;
    for (int r = 0; r < ranks; ++r) in.push_back(zeros<float>(Shape{n}));
    auto group = comm.group();
    for (int r = 0; r < ranks; ++r) {
      if (r % 2 == 0) group.send(mine, r, 2);
      group.recv(in[static_cast<std::size_t>(r)], r, 2);
      if (r % 2 == 1) group.send(mine.clone(), r, 2);
    }
    report.expect(group.size() == static_cast<std::size_t>(2 * ranks), "a group counts its operations");
    auto const received = group.wait();
    report.expect(received.size() == static_cast<std::size_t>(ranks) && group.size() == 0, "a group is done");
    for (int r = 0; r < ranks; ++r) {
      auto const& info = received[static_cast<std::size_t>(r)];
      report.expect(info.source == r && info.tag == 2 && info.template count<float>() == n, "infos of a group");
      expect_elements<float>(report, in[static_cast<std::size_t>(r)], n, "a group exchanges with everybody",
                             [&](std::int64_t i) { return element<float>(r, i); });
    }
    // Again with the same group, received into a view with gaps.
    Tensor<float> table = zeros<float>(Shape{n, 2});
    group.recv(table.slice(1, 1, 2), (rank + 1) % ranks, 3);
    group.send(mine, (rank + ranks - 1) % ranks, 3);
    group.wait();
    bool right = true;
    for (std::int64_t i = 0; i < n; ++i)
      right = right && table(i, 1) == element<float>((rank + 1) % ranks, i) && table(i, 0) == 0.0f;
    report.expect(right, "a group receives into a view with gaps");
  }
  auto group = comm.group();
  std::array<float, 2> const two{1, 2};
  std::array<float, 3> three{};
  expect_error(report, ErrorKind::invalid_argument, "destination rank", [&] { group.send(two, ranks); });
  group.send(two, rank, 4);
  group.recv(three, rank, 4);
  expect_error(report, ErrorKind::shape, "has 8 bytes, the buffer 12", [&] { group.wait(); });
  report.expect(group.size() == 0, "a group that failed is empty");
  report.expect(comm.all_reduce(1, sum) == ranks, "and the communicator works");
}

/// A probe leaves the message where it is, whatever else comes, and in its order.
template <class Comm>
void probes(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  int const last = (rank + ranks - 1) % ranks;
  std::array<int, 2> const first{10 * rank, 1};
  std::array<int, 1> const second{20 * rank};
  std::array<int, 2> const third{30 * rank, 3};
  auto a = comm.send_async(first, next, 6);
  auto b = comm.send_async(second, next, 7);
  auto c = comm.send_async(third, next, 6);
  auto const info = comm.probe(last, 6);
  report.expect(info.source == last && info.tag == 6 && info.bytes == 8 && info.template count<int>() == 2,
                "probe tells source, tag, bytes and count");
  report.expect(comm.probe(any_source, 6).bytes == 8, "a probed message can be probed again");
  report.expect(comm.probe(last, 7).bytes == 4, "probe by tag");
  auto const seen = comm.try_probe(last, 7);
  report.expect(seen.has_value() && seen->bytes == 4, "try_probe sees what has come");
  report.expect(!comm.try_probe(last, 8).has_value(), "try_probe sees nothing else");
  std::array<int, 2> pair{};
  comm.recv(pair, last, 6);
  report.expect(pair[0] == 10 * last && pair[1] == 1, "a receive gets the probed message");
  auto taken = comm.match(last, 7);
  report.expect(taken.bytes() == 4, "match takes a probed message");
  report.expect(!comm.try_probe(last, 7).has_value() && !comm.try_match(last, 7).has_value(), "and nobody else can");
  report.expect(comm.template recv<int>(std::move(taken))(0) == 20 * last, "but through it");
  auto const sized = comm.template recv<int>(any_source, any_tag);
  report.expect(sized.size() == 2 && sized(0) == 30 * last, "the rest comes in order");
  a.wait();
  b.wait();
  c.wait();
  auto later = comm.send_async(second, next, 9);
  auto waiting = comm.recv_async(std::span(pair).first(1), last, 9);
  waiting.wait();
  later.wait();
  report.expect(!comm.try_probe().has_value(), "a receive that waits is served before probes");
  comm.barrier();
  auto d = comm.send_async(first, next, 5);
  auto e = comm.send_async(second, next, 3);
  report.expect(comm.probe(last, 3).bytes == 4, "a probe comes past messages with other tags");
  report.expect(comm.template recv<int>(last).size() == 2, "which a receive of any tag still gets first");
  report.expect(comm.template recv<int>(last).size() == 1, "and then the probed one");
  d.wait();
  e.wait();
  comm.barrier();
}

/// duplicate has the same ranks and traffic of its own; a mesh has a line along each axis through every rank.
template <class Comm>
void meshes(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto copy = comm.duplicate();
  report.expect(copy.rank() == rank && copy.size() == ranks, "duplicate keeps ranks");
  std::array<int, 1> const note{rank};
  auto sent = comm.send_async(note, (rank + 1) % ranks, 1);
  report.expect(!copy.try_probe().has_value(), "messages of the original are not seen");
  auto pending = copy.all_reduce_async(full<int>(Shape{2000}, 1), sum);
  report.expect(comm.all_reduce(2, sum) == 2 * ranks, "the original works while the duplicate is busy");
  report.expect(pending.wait()(5) == ranks, "duplicate reduces");
  std::array<int, 1> got{};
  comm.recv(got, any_source, 1);
  sent.wait();

  int const rows = ranks % 2 == 0 ? 2 : 1;
  int const columns = ranks / rows;
  auto mesh = comm.mesh({{"data", rows}, {"tensor", columns}, {"pipe", 1}});
  report.expect(
      mesh.axes() == 3 && mesh.size("data") == rows && mesh.size("tensor") == columns && mesh.size("pipe") == 1,
      "a mesh has the sizes it was given");
  report.expect(mesh.coordinate("data") == rank / columns && mesh.coordinate("tensor") == rank % columns,
                "ranks run along the last axes first");
  auto& data = mesh["data"];
  auto& tensor = mesh["tensor"];
  report.expect(data.size() == rows && data.rank() == rank / columns && tensor.size() == columns &&
                    tensor.rank() == rank % columns && mesh["pipe"].size() == 1,
                "lines along the axes");
  int down = 0;
  for (int r = rank % columns; r < ranks; r += columns) down += r;
  int across = 0;
  for (int r = rank / columns * columns; r < (rank / columns + 1) * columns; ++r) across += r;
  report.expect(data.all_reduce(rank, sum) == down, "reduction along one axis");
  report.expect(tensor.all_reduce(rank, sum) == across, "reduction along the other");
  expect_error(report, ErrorKind::invalid_argument, "does not hold the " + std::to_string(ranks) + " ranks", [&] {
    static_cast<void>(comm.mesh({{"data", ranks + 1}}));
  });
  if (ranks > 1) {
    std::string_view const first = rank == 0 ? "rows" : "columns";
    std::string_view const second = rank == 0 ? "columns" : "rows";
    expect_error(report, ErrorKind::invalid_argument, "different meshes",
                 [&] { static_cast<void>(comm.mesh({{first, ranks}, {second, 1}})); });
  }
  expect_error(report, ErrorKind::invalid_argument, "mesh a 1 x b 1", [&] {
    static_cast<void>(comm.split(rank).mesh({{"a", 1}, {"b", 1}, {"c", 2}}));
  });
  expect_error(report, ErrorKind::invalid_argument, "two axes are named \"a\"", [&] {
    static_cast<void>(comm.mesh({{"a", 1}, {"a", ranks}}));
  });
  expect_error(report, ErrorKind::invalid_argument, "The least is 1", [&] {
    static_cast<void>(comm.mesh({{"a", 0}, {"b", ranks}}));
  });
  expect_error(report, ErrorKind::invalid_argument, "no name", [&] { static_cast<void>(comm.mesh({{"", ranks}})); });
  expect_error(report, ErrorKind::invalid_argument, "There are: data, tensor, pipe",
               [&] { static_cast<void>(mesh["batch"]); });
}

}  // namespace tutti::laws

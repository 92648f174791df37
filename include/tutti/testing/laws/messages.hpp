// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of messages between two ranks.

#include <tutti/testing/laws/report.hpp>

#include <array>
#include <cstdint>
#include <ctime>
#include <span>
#include <utility>
#include <vector>

namespace tutti::laws {

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
    expect_elements<T>(report, back, n, called("send_async hands its tensor back"), mine.data());

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
  expect_elements<float>(report, in, 300'000, "send_recv with oneself", big.data());
}

/// Blocking calls in every mixture: of messages that pass at once and of those that do not, behind receives that were
/// started before, behind probes, out of order, and of senders that come late. Each leaves one record.
template <class Comm>
void blocking_messages(Comm& comm, Report& report) {
  constexpr std::array<std::int64_t, 8> extents{0, 1, 8, 100, 1000, 8216, 8217, 20'000};
  constexpr std::size_t eager = 1000;  // larger ones may wait for their receiver, who sends first too
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  int const last = (rank + ranks - 1) % ranks;
  std::uint64_t const before = comm.flight_recorder().operations();
  std::uint64_t calls = 0;
  std::uint64_t random = 1;
  auto const draw = [&](std::uint64_t below) {  // the same on all ranks
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % below;
  };
  bool right = true, named = true;
  for (int round = 0; round < 300; ++round) {
    auto const count = static_cast<int>(1 + draw(3));
    std::array<std::int64_t, 3> bytes{};
    for (std::int64_t& n : bytes) n = extents[draw(extents.size())];
    auto const value = [&](int source, int k) { return static_cast<std::byte>(round * 31 + k * 7 + source); };
    bool const backwards = draw(2) != 0, early = draw(4) == 0, anything = draw(2) != 0;
    bool const probed = draw(4) == 0 && (!early || count > 1);  // which would wait for what that receive takes
    std::vector<std::byte> first(static_cast<std::size_t>(bytes[0]));
    Request<TensorView<std::byte>> started;
    if (early) started = comm.recv_async(first, last, 0);
    if (round % 50 == 49 && rank == 0) {
      timespec const pause{0, 1'000'000};
      ::nanosleep(&pause, nullptr);
    }
    std::vector<std::vector<std::byte>> sent;
    std::vector<Request<TensorView<std::byte const>>> sends;
    for (int k = 0; k < count; ++k) {
      sent.emplace_back(static_cast<std::size_t>(bytes[static_cast<std::size_t>(k)]), value(rank, k));
      if (sent.back().size() > eager || ranks == 1)  // as those to oneself may
        sends.push_back(comm.send_async(sent.back(), next, k));
      else comm.send(sent.back(), next, k);
    }
    if (probed) static_cast<void>(comm.probe(last));
    for (int i = 0; i < count; ++i) {
      int const k = backwards ? count - 1 - i : i;
      std::vector<std::byte> got(static_cast<std::size_t>(bytes[static_cast<std::size_t>(k)]));
      if (k == 0 && early) {
        started.wait();
        got = first;
      } else {
        bool const in_order = !backwards && anything;
        MessageInfo const info = comm.recv(got, in_order ? any_source : last, in_order ? any_tag : k);
        named = named && info.source == last && info.tag == k && info.bytes == std::int64_t(got.size());
      }
      for (std::byte const each : got) right = right && each == value(last, k);
    }
    for (auto& send : sends) send.wait();
    calls += static_cast<std::uint64_t>(2 * count + (probed ? 1 : 0));
    if (round % 20 == 19) comm.barrier(), ++calls;
  }
  report.expect(right, "every message has the contents that were sent");
  report.expect(named, "every message is told of as it was sent");
  report.expect(comm.flight_recorder().operations() - before == calls, "every call leaves one record");
  bool closed = true;
  for (FlightRecord const& record : comm.flight_recorder().records())
    closed = closed && record.state == FlightRecord::State::completed && record.end >= record.begin;
  report.expect(closed, "every record is of an operation that was completed");
}

}  // namespace tutti::laws

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Waits and tests that are refused because another thread is in a call.

#include <tutti/comm.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

/// What `call` throws while another thread is in a call of the communicator; "" when it throws nothing.
template <class Comm, class Call>
std::string refused(Comm& comm, Call&& call) {
  std::atomic<bool> inside{false}, over{false};
  std::thread other([&] {
    auto const stay = comm.core()->visit("all_gather", std::source_location::current());
    inside = true;
    while (!over) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  std::string text;
  try {
    call();
  } catch (Error const& error) {
    text = error.what();
  }
  over = true;
  other.join();
  return text;
}

/// What is refused goes on as if nobody had asked for it, on all ranks; what is wrong, in words.
template <class Comm>
std::string refuse_waits(Comm& comm) {
  std::string wrong;
  auto const expect = [&](bool holds, char const* what) { wrong += holds ? "" : std::string(what) + "\n"; };
  auto const is_refused = [&](char const* what, auto&& call) {
    std::string const text = refused(comm, call);
    if (text.find("another thread is in all_gather at refused_waits.hpp:") == std::string::npos)
      wrong += std::string(what) + ": " + text + "\n";
  };
  int const size = comm.size(), right = (comm.rank() + 1) % size, left = (comm.rank() + size - 1) % size;
  std::vector<float> const ones(100'000, 1);
  std::vector<float> got(ones.size()), reduced(100, 1);

  auto sum_of_ones = comm.all_reduce_async(full<float>({4}, 1.0f), sum);
  is_refused("all_reduce_async, wait", [&] { static_cast<void>(sum_of_ones.wait()); });
  is_refused("all_reduce_async, test", [&] { static_cast<void>(sum_of_ones.test()); });
  expect(sum_of_ones.valid() && sum_of_ones.wait()(3) == static_cast<float>(size), "the sum");

  auto sent = comm.send_async(ones, right, 3);
  auto received = comm.template recv_async<float>(left, 3);
  is_refused("send_async", [&] { sent.wait(); });
  is_refused("recv_async", [&] { static_cast<void>(received.test()); });
  expect(received.valid() && received.wait()(99'999) == 1, "the message of any size");
  sent.wait();

  auto plan = comm.all_reduce_plan(reduced, sum);
  plan.start();
  is_refused("plan, test", [&] { static_cast<void>(plan.test()); });
  is_refused("plan, wait", [&] { plan.wait(); });
  expect(plan.started(), "the plan is under way");
  plan.wait();
  expect(reduced[99] == static_cast<float>(size), "the plan's sum");

  auto group = comm.group();
  group.recv(got, left, 4);
  group.send(ones, right, 4);
  is_refused("group", [&] { static_cast<void>(group.wait()); });
  expect(group.size() == 2 && group.wait()[0].bytes == 400'000 && got[99'999] == 1, "the group's message");

  is_refused("probe", [&] { static_cast<void>(comm.probe(left, 5)); });
  is_refused("all_gather_v", [&] { static_cast<void>(comm.all_gather_v(reduced)); });
  is_refused("start_statistics", [&] { comm.start_statistics(); });
  is_refused("set_deadline_seconds", [&] { comm.set_deadline_seconds(3); });
  return wrong;
}

}  // namespace tutti::test

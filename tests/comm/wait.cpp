// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Waiting for several requests of different results at once.
// Covers: <tutti/comm/wait.hpp>

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm.hpp>
#include <tutti/comm/wait.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;

TEST_CASE("wait_all completes requests of different results, which are taken afterwards") {
  std::vector<int> numbers(3);
  std::vector<double> sums(3);
  threads::run(3, [&](Communicator<Threads>& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto x = full<double>({5}, comm.rank() + 1.0);
    std::vector<int> const mine{comm.rank()};
    auto sent = comm.send_async(mine, (comm.rank() + 1) % 3, 4);
    auto received = comm.recv_async<int>((comm.rank() + 2) % 3, 4);
    auto sum_of = comm.all_reduce_async(std::move(x), sum);
    wait_all({sent, received, sum_of});
    numbers[rank] = received.wait()(0);
    sums[rank] = sum_of.wait()(4);
    wait_all({received, sum_of});  // taken: nothing is left to wait for
    sent.wait();
  });
  CHECK(numbers == std::vector<int>{2, 0, 1});
  CHECK(sums == std::vector<double>{6, 6, 6});
}

TEST_CASE("wait_any gives every request once while its result is taken, in the order in which they come") {
  std::vector<int> order;
  int left = 0;
  threads::run(3, [&](Communicator<Threads>& comm) {
    std::vector<int> word{10 * comm.rank()};
    if (comm.rank() == 0) {
      std::vector<Request<Tensor<int, Cpu>>> requests;
      for (int from : {1, 2}) requests.push_back(comm.recv_async<int>(from, 7));
      for (int next = 0; (next = wait_any(requests)) >= 0;) {
        order.push_back(requests[static_cast<std::size_t>(next)].wait()(0));
        if (order.size() == 1) comm.send(word, 1, 8);  // rank 1 sends after rank 2
      }
      left = wait_any(requests);
      return;
    }
    std::vector<int> turn(1);
    if (comm.rank() == 1) comm.recv(turn, 0, 8);
    comm.send(word, 0, 7);
  });
  CHECK(order == std::vector<int>{20, 10});
  CHECK(left == -1);
}

TEST_CASE("wait_some gives all that are complete, and none of an empty list") {
  std::vector<int> seen;
  bool none = false;
  threads::run(2, [&](Communicator<Threads>& comm) {
    std::vector<int> word(1);
    if (comm.rank() == 1) {
      for (int tag : {0, 1, 2, 3}) {
        if (tag == 3) comm.recv(word, 0, 9);
        word[0] = tag;
        comm.send(word, 0, tag);
      }
      return;
    }
    std::vector<Request<Tensor<int, Cpu>>> requests;
    for (int tag : {0, 1, 2, 3}) requests.push_back(comm.recv_async<int>(1, tag));
    for (int taken = 0; taken < 4;)
      for (int const place : wait_some(requests)) {
        seen.push_back(requests[static_cast<std::size_t>(place)].wait()(0));
        if (++taken == 3) comm.send(word, 1, 9);
      }
    none = wait_some(requests).empty() && wait_some({}).empty();
  });
  REQUIRE(seen.size() == 4);
  CHECK(seen.back() == 3);  // sent when the others had been taken, in whatever order these were seen
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<int>{0, 1, 2, 3});
  CHECK(none);
}

TEST_CASE("a wait for several ends at its deadline with the words of the one that is awaited") {
  std::vector<std::string> texts;
  threads::run(2, [&](Communicator<Threads>& comm) {
    if (comm.rank() == 1) return comm.barrier();
    auto never = comm.recv_async<int>(1, 5);
    auto also = comm.recv_async<float>(1, 6);
    auto third = comm.recv_async<int>(1, 7);
    auto const text_of = [&](auto&& wait) {
      try {
        wait();
      } catch (Error const& error) {
        texts.push_back(error.what());
      }
    };
    text_of([&] { static_cast<void>(wait_any({never, also}, within(0.2))); });
    text_of([&] { wait_all({also, third}, within(0.2)); });
    comm.barrier();
  });
  REQUIRE(texts.size() == 2);
  CHECK(test::contains(texts[0], "not complete after 0.2 s"));
  for (std::string const& text : texts) {
    CAPTURE(text);
    CHECK(test::contains(text, "not complete after 0."));  // of wait_all what was left for the one that is awaited
    CHECK(test::contains(text, "rank 1"));
    CHECK(test::contains(text, "wait.cpp:"));
  }
}

TEST_CASE("what one of several requests throws comes out of the wait") {
  std::vector<std::string> texts(2);
  threads::run(
      2,
      [&](Communicator<Threads>& comm) {
        auto const rank = static_cast<std::size_t>(comm.rank());
        auto fails = comm.all_reduce_async(Tensor<int, Cpu>(Shape{comm.rank() + 2}), sum);
        try {
          wait_all({fails});
        } catch (Error const& error) {
          texts[rank] = error.what();
        }
      },
      {.deadline_seconds = 5});
  for (std::string const& text : texts) CHECK(test::contains(text, "ranks disagree"));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Operations whose requests go away before they are complete: what ends at once, and what is told of it.
// Covers: <tutti/comm/dropped.hpp>

#include "comm/failing_ranks.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tutti;
using test::contains;

TEST_CASE("a mistake that one rank sees alone is told to others only where they cannot go on, with its sentence") {
  for (int const ranks : {2, 3}) {
    std::vector<std::string> wrong(3);
    threads::run(ranks, [&](auto& comm) { wrong[static_cast<std::size_t>(comm.rank())] = test::fail_alone(comm); });
    CHECK(wrong[0] + wrong[1] + wrong[2] == "");
  }
}

TEST_CASE("a receive that is dropped without its message ends at once, and is told at the end") {
  auto const told = [](auto&& drop) {
    return test::in_child({}, [&] {
      auto const begin = std::chrono::steady_clock::now();
      threads::run(2, drop);
      return std::string(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20) ? "soon" : "late");
    }, test::Errors::capture);
  };
  std::string const one = "rank 1 dropped 1 operation before completion, the first with: ";
  // Rank 0 may have left before.
  std::string const borrowed = told([](auto& comm) {
    std::vector<float> x(4);
    if (comm.rank() == 1) static_cast<void>(comm.recv_async(x, 0, 5));
  });
  CAPTURE(borrowed);
  CHECK(contains(borrowed, one));
  CHECK((contains(borrowed, one + "no message from rank 0 with tag 5") ||
         contains(borrowed, one + "rank 0 has left the communicator")));
  std::string const owned = told([](auto& comm) {
    if (comm.rank() == 1) static_cast<void>(comm.template recv_async<float>(0, 4));
    comm.barrier();
  });
  CAPTURE(owned);
  CHECK(contains(owned, one + "no message from rank 0 with tag 4"));
  CHECK(contains(owned, "soon"));
  std::string const moved_in = told([](auto& comm) {
    if (comm.rank() == 1) static_cast<void>(comm.recv_async(Tensor<float>({4}), 0, 4));
    comm.barrier();
  });
  CAPTURE(moved_in);
  CHECK(contains(moved_in, one + "no message from rank 0 with tag 4"));
  CHECK(contains(moved_in, "soon"));
}

TEST_CASE("the error that passes is the latest one that is there") {
  std::string seen;
  struct Ends {
    std::string& seen;
    ~Ends() { seen = comm::passing_error(); }
  };
  try {
    Ends const ends{seen};
    throw Error(ErrorKind::internal, "test", "first").with_rank(3);
  } catch (Error const&) {
  }
  CHECK(contains(seen, "tutti::test [rank 3]: first (dropped.cpp:"));
  try {
    Ends const ends{seen};
    throw std::runtime_error("second");
  } catch (std::exception const&) {
  }
  CHECK(seen.empty());
  { Ends const ends{seen}; }
  CHECK(seen.empty());
  try {
    throw Error(ErrorKind::internal, "test", "third");
  } catch (Error const&) {
    seen = comm::passing_error();
  }
  CHECK(seen == "third");
}

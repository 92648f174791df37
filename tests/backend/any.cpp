// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Backends by name in a program that is built without MPI.

#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/backend/any.hpp>

#include <string>
#include <type_traits>

using namespace tutti;
using test::contains;
using test::in_child;

static_assert(TUTTI_WITH_MPI == 0);

TEST_CASE("without MPI, auto means threads, and the function gets their communicator") {
  char program[] = "program";
  char ranks[] = "--ranks=3";
  char* arguments[] = {program, ranks, nullptr};
  for (char const* name : {"auto", "threads"}) {
    int const code = with_backend(name, 2, arguments, [](auto& comm) {
      static_assert(std::is_same_v<decltype(comm), Communicator<Threads>&>);
      return comm.all_reduce(comm.rank(), sum) + comm.size();
    });
    CHECK(code == 6);
  }
}

TEST_CASE("what is not in the program is listed and refused with the way to get it") {
  auto const list = backends();
  REQUIRE(list.size() == 3);
  CHECK((list[0].name == "threads" && list[0].available));
  CHECK((list[1].name == "mpi" && !list[1].available));
  CHECK((list[2].name == "nccl" && !list[2].available));
  REQUIRE_ERROR(choose_backend("mpi"), ErrorKind::unavailable,
                "mpi: this program is built without MPI. Install one (Debian: mpich libmpich-dev)");
  REQUIRE_ERROR(choose_backend("nccl"), ErrorKind::unavailable, "nccl: this program is built without NCCL");
  std::string const text = in_child({}, [] {
    int const code = with_backend("mpi", 0, nullptr, [](auto&) { return 0; });
    return "code " + std::to_string(code);
  }, test::Errors::capture);
  INFO(text);
  CHECK(contains(text, "tutti::with_backend: mpi: this program is built without MPI"));
  CHECK(contains(text, "code 2"));
}

TEST_CASE("a launcher's ranks are no reason to start a world in each of them") {
  std::string const text = in_child({{"PMI_SIZE", "2"}}, [] {
    int const code = with_backend("auto", 0, nullptr, [](auto&) { return 0; });
    return "code " + std::to_string(code);
  }, test::Errors::capture);
  INFO(text);
  CHECK(contains(text, "the launcher started 2 ranks (PMI_SIZE)"));
  CHECK(contains(text, "mpi: this program is built without MPI"));
  CHECK(contains(text, "code 2"));
}

TEST_CASE("a name that is null is no backend's") {
  std::string const text = in_child({}, [] {
    char const* const name = nullptr;
    return "code " + std::to_string(with_backend(name, {.ranks = 1}, [](auto&) { return 0; }));
  }, test::Errors::capture);
  INFO(text);
  CHECK(contains(text, "code 2"));
  CHECK(contains(text, "(null)"));
}

TEST_CASE("arguments that are null are refused with a sentence, and options take their place") {
  char program[] = "program";
  char* short_of_one[] = {program, nullptr};
  for (char** words : {static_cast<char**>(nullptr), static_cast<char**>(short_of_one)}) {
    std::string const text = in_child({}, [words] {
      auto const never = [](auto&) { return 9; };
      return "codes " + std::to_string(with_backend("auto", 2, words, never)) + " " +
             std::to_string(launch<Threads>(2, words, never));
    }, test::Errors::capture);
    INFO(text);
    CHECK(contains(text, words == nullptr ? "tutti::with_backend: argc is 2 and argv null. Pass those of main"
                                          : "tutti::with_backend: argc is 2 and argv[1] null. Pass those of main"));
    CHECK(contains(text, "tutti::launch: argc is 2"));
    CHECK(contains(text, "(any.cpp:"));
    CHECK(!contains(text, ".hpp:"));
    CHECK(contains(text, "codes 2 2"));
  }
  auto const ranks = [](auto& comm) { return comm.all_reduce(1, sum); };
  CHECK(with_backend("auto", BackendOptions{.ranks = 3}, ranks) == 3);
  CHECK(with_backend("threads", {}, ranks) >= 1);
  std::string const text = in_child({}, [&] {
    return "codes " + std::to_string(with_backend("auto", BackendOptions{.ranks = -1}, ranks)) + " " +
           std::to_string(with_backend("other", BackendOptions{}, ranks));
  }, test::Errors::capture);
  INFO(text);
  CHECK(contains(text, "BackendOptions::ranks is -1. Give a number from 1"));
  CHECK(contains(text, "there is no backend 'other'"));
  CHECK(contains(text, "(any.cpp:"));
  CHECK(!contains(text, ".hpp:"));
  CHECK(contains(text, "codes 2 2"));
}

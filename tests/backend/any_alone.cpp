// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Backends by name in a program that is built with MPI and started without a launcher.
// Covers: <tutti/backend/any.hpp>

#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/backend/any.hpp>

#include <mpi.h>

#include <string>
#include <type_traits>

using namespace tutti;
using test::contains;
using test::in_child;

static_assert(TUTTI_WITH_MPI == 1);

namespace {

std::string run(char const* name, test::Errors errors = test::Errors::pass) {
  return in_child({}, [name] {
    char program[] = "program";
    char ranks[] = "--ranks=2";
    char* arguments[] = {program, ranks, nullptr};
    std::string text;
    int const code = with_backend(name, 2, arguments, [&](auto& comm) {
      constexpr bool mpi = std::is_same_v<decltype(comm), Communicator<Mpi>&>;
      if (comm.rank() == 0) text = std::string(mpi ? "mpi" : "threads") + " " + std::to_string(comm.size());
      return comm.all_reduce(1, sum) == comm.size() ? 0 : 1;
    });
    return text + " " + std::to_string(code);
  }, errors);
}

}  // namespace

TEST_CASE("alone, auto takes threads, and mpi is a world of one rank") {
  CHECK(run("auto") == "threads 2 0");
  CHECK(run("threads") == "threads 2 0");
  CHECK(run("mpi") == "mpi 1 0");
  CHECK(contains(run("nccl", test::Errors::capture), "nccl: this program is built without NCCL"));
}

TEST_CASE("alone, more than one rank of mpi is refused with the way to get them") {
  std::string const text = in_child({}, [] {
    auto const f = [](auto& comm) { return comm.size(); };
    return "codes " + std::to_string(with_backend("mpi", BackendOptions{.ranks = 3}, f)) + " " +
           std::to_string(with_backend("auto", BackendOptions{.ranks = 3}, f));
  }, test::Errors::capture);
  INFO(text);
  CHECK(contains(text, "BackendOptions::ranks is 3, and ranks of mpi are processes"));
  CHECK(contains(text, "mpiexec -n 3"));
  CHECK(contains(text, "(any_alone.cpp:"));
  CHECK(contains(text, "codes 2 3"));
}

TEST_CASE("asking what there is does not start MPI") {
  auto const list = backends();
  REQUIRE(list.size() == 3);
  CHECK((list[1].name == "mpi" && list[1].available && list[1].processes));
  CHECK(contains(list[1].text, mpi::library()));
  CHECK(list[1].priority < list[0].priority);
  CHECK(choose_backend("auto") == "threads");
  int initialised = 1;
  MPI_Initialized(&initialised);
  CHECK(initialised == 0);
}

TEST_CASE("after MPI was finalised its backend is not available") {
  CHECK(contains(in_child({},
                          [] {
                            { mpi::Environment const environment; }
                            return choose_backend("mpi");
                          }),
                 "mpi: MPI was finalised in this process"));
}

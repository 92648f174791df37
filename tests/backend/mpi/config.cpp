// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Where values come from, what is refused and how it is printed. What the keys do is observed in environment.cpp,
/// backend.cpp and start.cpp.

#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/backend/mpi/config.hpp>

#include <cmath>
#include <limits>
#include <string>

using namespace tutti;
using test::contains;
using test::in_child;

TEST_CASE("a key set in code wins over the environment, the environment over the default") {
  CHECK(MpiConfig{}.resolved().check_level == mpi::CheckLevel::cheap);
  CHECK(in_child({{"TUTTI_MPI_CHECK_LEVEL", "full"}}, [] { return to_string(MpiConfig{}.resolved()); })
            .find("check_level = full (TUTTI_MPI_CHECK_LEVEL)\n") != std::string::npos);
  CHECK(contains(in_child({{"TUTTI_MPI_CHECK_LEVEL", "full"}},
                          [] { return to_string(MpiConfig{.check_level = mpi::CheckLevel::off}.resolved()); }),
                 "check_level = off (code)\n"));
  CHECK(contains(in_child({{"TUTTI_MPI_CHECK_LEVEL", ""}}, [] { return to_string(MpiConfig{}.resolved()); }),
                 "check_level = cheap (default)\n"));
}

TEST_CASE("a configuration that is copied or resolved twice keeps where its values come from") {
  CHECK(contains(in_child({{"TUTTI_MPI_WAIT", "sleep"}},
                          [] {
                            MpiConfig first = MpiConfig{.deadline_seconds = 5}.resolved();
                            MpiConfig second = first;  // from an lvalue that is not const
                            second = second.resolved();
                            return to_string(second);
                          }),
                 "wait = sleep (TUTTI_MPI_WAIT)\ncheck_level = cheap (default)\ndeadline_seconds = 5 (code)\n"));
}

TEST_CASE("every key has a line, and each line's text is what its variable takes") {
  std::string keys;
  MpiConfig config;
  mpi::for_each_key(config, [&](char const* name, auto const&) { keys += std::string(name) + " "; });
  CHECK(
      keys ==
      "thread_level profiling tuning cuda_aware wait check_level deadline_seconds node_shared node_ranks staging_bytes "
      "copy_bytes count_limit "
      "print_config ");
  test::Variables const all = {{"TUTTI_MPI_THREAD_LEVEL", "serialized"},
                               {"TUTTI_MPI_PROFILING", "detailed"},
                               {"TUTTI_MPI_TUNING", "MPIR_CVAR_A=1 OMPI_MCA_b=x,y=z"},
                               {"TUTTI_MPI_CUDA_AWARE", "off"},
                               {"TUTTI_MPI_WAIT", "10,20,3000"},
                               {"TUTTI_MPI_CHECK_LEVEL", "full"},
                               {"TUTTI_MPI_DEADLINE_SECONDS", "2.5"},
                               {"TUTTI_MPI_NODE_SHARED", "on"},
                               {"TUTTI_MPI_NODE_RANKS", "2"},
                               {"TUTTI_MPI_COPY_BYTES", "0"},
                               {"TUTTI_MPI_COUNT_LIMIT", "1000"},
                               {"TUTTI_MPI_PRINT_CONFIG", "1"}};
  CHECK(in_child(all, [] { return to_string(MpiConfig{}.resolved()); }) ==
        "thread_level = serialized (TUTTI_MPI_THREAD_LEVEL)\n"
        "profiling = detailed (TUTTI_MPI_PROFILING)\n"
        "tuning = MPIR_CVAR_A=1 OMPI_MCA_b=x,y=z (TUTTI_MPI_TUNING)\n"
        "cuda_aware = off (TUTTI_MPI_CUDA_AWARE)\n"
        "wait = 10,20,3000 (TUTTI_MPI_WAIT)\n"
        "check_level = full (TUTTI_MPI_CHECK_LEVEL)\n"
        "deadline_seconds = 2.5 (TUTTI_MPI_DEADLINE_SECONDS)\n"
        "node_shared = on (TUTTI_MPI_NODE_SHARED)\n"
        "node_ranks = 2 (TUTTI_MPI_NODE_RANKS)\n"
        "staging_bytes = 262144 (default)\n"
        "copy_bytes = 0 (TUTTI_MPI_COPY_BYTES)\n"
        "count_limit = 1000 (TUTTI_MPI_COUNT_LIMIT)\n"
        "print_config = 1 (TUTTI_MPI_PRINT_CONFIG)\n");
}

TEST_CASE("a value that is not allowed is refused with the variable, the value and what is allowed") {
  struct Case {
    char const* variable;
    char const* value;
    char const* sentence;
  };
  for (auto const& [variable, value, sentence] : {
           Case{"TUTTI_MPI_THREAD_LEVEL", "MULTIPLE", "Use single, funneled, serialized or multiple"},
           Case{"TUTTI_MPI_PROFILING", "yes", "Use library, off, on or detailed"},
           Case{"TUTTI_MPI_TUNING", "fast", "Use auto, library, latency or bandwidth"},
           Case{"TUTTI_MPI_TUNING", "MPIR_CVAR_A", "a list NAME=VALUE"},
           Case{"TUTTI_MPI_TUNING", "PATH=/tmp", "begin with MPIR_CVAR_"},
           Case{"TUTTI_MPI_TUNING", " ", "a list NAME=VALUE"},
           Case{"TUTTI_MPI_CUDA_AWARE", "1", "Use auto, on or off"},
           Case{"TUTTI_MPI_WAIT", "1,2", "SPINS,YIELDS,SLEEP_NS"},
           Case{"TUTTI_MPI_WAIT", "1,2,3,4", "SPINS,YIELDS,SLEEP_NS"},
           Case{"TUTTI_MPI_WAIT", "-1,2,3", "0 to 1000000000"},
           Case{"TUTTI_MPI_WAIT", "1,2,0", "1 to 999999999"},
           Case{"TUTTI_MPI_WAIT", "1,,3", "SPINS,YIELDS,SLEEP_NS"},
           Case{"TUTTI_MPI_CHECK_LEVEL", "ful", "Use off, cheap or full"},
           Case{"TUTTI_MPI_DEADLINE_SECONDS", "0", "above 0"},
           Case{"TUTTI_MPI_DEADLINE_SECONDS", "nan", "above 0"},
           Case{"TUTTI_MPI_DEADLINE_SECONDS", "5s", "Give seconds"},
           Case{"TUTTI_MPI_NODE_SHARED", "On", "Use auto, on or off"},
           Case{"TUTTI_MPI_NODE_RANKS", "-1", "Give 0 for nodes as MPI tells them"},
           Case{"TUTTI_MPI_NODE_RANKS", "2147483648", "from 1 to 2147483647"},
           Case{"TUTTI_MPI_NODE_RANKS", "two", "ranks of a node"},
           Case{"TUTTI_MPI_COPY_BYTES", "-1", "Give 0 or bytes"},
           Case{"TUTTI_MPI_COPY_BYTES", "4K", "Give 0 or bytes"},
           Case{"TUTTI_MPI_COUNT_LIMIT", "0", "at least 1"},
           Case{"TUTTI_MPI_COPY_BYTES", "99999999999999999999", "Give 0 or bytes"},
           Case{"TUTTI_MPI_DEADLINE_SECONDS", "0x10", "Give seconds"},
           Case{"TUTTI_MPI_DEADLINE_SECONDS", " 5", "Give seconds"},
           Case{"TUTTI_MPI_COUNT_LIMIT", "1e3", "at least 1"},
           Case{"TUTTI_MPI_COUNT_LIMIT", " 3", "at least 1"},
           Case{"TUTTI_MPI_PRINT_CONFIG", "true", "Use 1 or 0"},
       }) {
    std::string const message = in_child({{variable, value}}, [] { return to_string(MpiConfig{}.resolved()); });
    INFO(message);
    CHECK(contains(message, "error: tutti::MpiConfig: " + std::string(variable) + " is '" + value + "'. "));
    CHECK(contains(message, sentence));
  }
}

TEST_CASE("a value from code is checked too, and named by its key") {
  REQUIRE_ERROR(MpiConfig{.deadline_seconds = -1.0}.resolved(), ErrorKind::configuration, "deadline_seconds is -1. ");
  REQUIRE_ERROR(MpiConfig{.deadline_seconds = std::numeric_limits<double>::infinity()}.resolved(),
                ErrorKind::configuration, "deadline_seconds is inf. Give seconds");
  REQUIRE_ERROR(MpiConfig{.staging_bytes = std::int64_t{4100}}.resolved(), ErrorKind::configuration,
                "staging_bytes is 4100. Give bytes, from 4096 to 1073741824 and a multiple of 64");
  REQUIRE_ERROR(MpiConfig{.node_ranks = std::int64_t{-2}}.resolved(), ErrorKind::configuration,
                "node_ranks is -2. Give 0");
  REQUIRE_ERROR(MpiConfig{.count_limit = std::int64_t{0}}.resolved(), ErrorKind::configuration, "count_limit is 0. ");
  REQUIRE_ERROR(MpiConfig{.tuning = "quick"}.resolved(), ErrorKind::configuration,
                "tuning is quick. Use auto, library");
  REQUIRE_ERROR((MpiConfig{.wait = exec::WaitPolicy{-1, 0, 1}}.resolved()), ErrorKind::configuration, "wait is -1,0,1");
  REQUIRE_ERROR(MpiConfig{.check_level = static_cast<mpi::CheckLevel>(7)}.resolved(), ErrorKind::configuration,
                "check_level is 7. Use off");
}

TEST_CASE("a variable that is no key is refused, with the keys there are") {
  std::string const message =
      in_child({{"TUTTI_MPI_CHEK_LEVEL", "off"}}, [] { return to_string(MpiConfig{}.resolved()); });
  INFO(message);
  CHECK(contains(message, "TUTTI_MPI_CHEK_LEVEL is no key. There are TUTTI_MPI_THREAD_LEVEL, "));
  CHECK(contains(message, "TUTTI_MPI_CHECK_LEVEL"));
}

TEST_CASE("an automatic wait spins only while the node's ranks have processors of their own") {
  mpi::Wait const automatic;
  CHECK(automatic.on(false).spins > 0);
  CHECK(automatic.on(true).spins == 0);
  CHECK(automatic.on(true).yields == mpi::Wait::sleep.yields);
  CHECK(automatic.on(false).yields > automatic.on(true).yields);
  mpi::Wait const chosen = mpi::Wait::spin;  // who asks for it gets it
  CHECK(chosen.on(true).spins == mpi::Wait::spin.spins);
}

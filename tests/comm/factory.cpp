// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/comm/factory.hpp>
// Covers: <tutti/comm/launcher.hpp>

#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/comm/factory.hpp>

#include <string>
#include <string_view>

using namespace tutti;
using comm::BackendInfo;
using test::contains;
using test::in_child;

namespace {

List<BackendInfo> three() {
  return {{.name = "slow", .priority = 1, .text = "always there"},
          {.name = "fast", .priority = 9, .text = "ranks are tasks"},
          {.name = "absent", .available = false, .priority = 99, .text = "no device was found. Plug one in"}};
}

struct One {
  static constexpr std::string_view name = "one";
  template <class F>
  static int launch(int argc, char**, F& f) {
    return f(1) + argc;
  }
};
struct Two {
  static constexpr std::string_view name = "two";
  template <class F>
  static int launch(int argc, char**, F& f) {
    return f(2.5) + argc;
  }
};

// Outside any launcher, whatever started the test.
template <class F>
std::string alone(F&& f) {
  return in_child({}, [&] {
    for (char const* name : {"PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK"})
      ::unsetenv(name);
    return f();
  });
}

}  // namespace

TEST_CASE("auto takes the available backend of the highest priority, a name takes that backend") {
  CHECK(alone([] { return comm::choose_backend(three(), "auto"); }) == "fast");
  CHECK(comm::choose_backend(three(), "slow") == "slow");
}

TEST_CASE("a backend that is not there is refused with the way to get it, an unknown one with the names there are") {
  REQUIRE_ERROR(comm::choose_backend(three(), "absent"), ErrorKind::unavailable,
                "absent: no device was found. Plug one in");
  REQUIRE_ERROR(comm::choose_backend(three(), "tcp"), ErrorKind::configuration,
                "there is no backend 'tcp'. There are auto, slow, fast, absent (not available)");
  REQUIRE_ERROR(comm::choose_backend(three(), ""), ErrorKind::configuration, "there is no backend ''");
  CHECK(contains(alone([] {
                   return comm::choose_backend({{.name = "absent", .available = false, .text = "get it"}}, "auto");
                 }),
                 "no backend is available; absent: get it"));
}

TEST_CASE("under a launcher auto does not make a world of each process") {
  auto const choose = [] { return comm::choose_backend(three(), "auto"); };
  CHECK(contains(in_child({{"PMI_SIZE", "2"}}, choose),
                 "the launcher started 2 ranks (PMI_SIZE), and no backend whose ranks are processes is available"));
  CHECK(contains(in_child({{"PMI_SIZE", "2"}}, choose), "absent: no device was found"));
  CHECK(in_child({{"PMI_SIZE", "1"}}, choose) == "fast");
  CHECK(in_child({{"PMI_SIZE", "2"}}, [] {
          List<BackendInfo> infos = three();
          infos.push_back({.name = "job", .priority = 20, .processes = true});
          return comm::choose_backend(infos, "auto");
        }) == "job");
}

TEST_CASE("launchers are told by their variables") {
  auto const seen = [] {
    comm::Announced const announced = comm::announced_ranks();
    return std::string(announced.variable) + " " + std::to_string(announced.ranks) +
           (announced.launched() ? " yes" : " no");
  };
  CHECK(alone(seen) == " 0 no");
  for (char const* variable : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"})
    CHECK(alone([&] {
            ::setenv(variable, "3", 1);
            return seen();
          }) == std::string(variable) + " 3 yes");
  CHECK(alone([&] {
          ::setenv("PMIX_RANK", "0", 1);
          return seen();
        }) == "PMIX_RANK 0 yes");
  CHECK(alone([&] {
          ::setenv("PMI_SIZE", "many", 1);
          return seen();
        }) == " 0 no");
}

TEST_CASE("the function is launched by the named type, with that type's argument") {
  auto f = [](auto x) { return static_cast<int>(10 * x); };
  CHECK(comm::launch_named<One, Two>("one", 0, nullptr, f) == 10);
  CHECK(comm::launch_named<One, Two>("two", 3, nullptr, f) == 28);
}

TEST_CASE("what there is can be listed") {
  CHECK(comm::to_string(three()) ==
        "slow: always there\nfast: ranks are tasks\nabsent: not available. no device was found. Plug one in\n");
}

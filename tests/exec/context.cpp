// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/context.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <sched.h>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;
using exec::Context;
using exec::ContextOptions;

namespace {

/// Sets TUTTI_ISA for its own life.
struct Environment {
  std::string before;
  bool was_set = false;
  explicit Environment(char const* value) {
    if (char const* const old = std::getenv("TUTTI_ISA")) {
      before = old;
      was_set = true;
    }
    if (value == nullptr) ::unsetenv("TUTTI_ISA");
    else ::setenv("TUTTI_ISA", value, 1);
  }
  ~Environment() {
    if (was_set) ::setenv("TUTTI_ISA", before.c_str(), 1);
    else ::unsetenv("TUTTI_ISA");
  }
};

}  // namespace

TEST_CASE("parallel_for covers every index once, at bounds of the grain, for random counts") {
  std::uint64_t state = 99;
  auto const below = [&](std::int64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(bound));
  };
  for (int threads : {1, 2, 3, 4, 8}) {
    Context context({.threads = threads});
    CHECK(context.threads() == threads);
    for (int trial = 0; trial < 150; ++trial) {
      std::int64_t const count = trial < 20 ? trial : below(3000);
      std::int64_t const grain = trial % 3 == 0 ? 1 : below(200) - 2;  // below one counts as one
      CAPTURE(threads, count, grain);
      std::vector<int> visits(static_cast<std::size_t>(count));
      std::mutex mutex;
      std::vector<std::pair<std::int64_t, std::int64_t>> parts;
      context.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        std::lock_guard const lock(mutex);
        parts.emplace_back(begin, end);
      });
      bool once = true;
      for (int visit : visits) once = once && visit == 1;
      REQUIRE(once);
      REQUIRE(parts.size() <= static_cast<std::size_t>(threads));
      std::int64_t const unit = std::max<std::int64_t>(grain, 1);
      bool bounded = true;
      for (auto [begin, end] : parts)
        bounded = bounded && begin < end && begin % unit == 0 && (end % unit == 0 || end == count);
      REQUIRE(bounded);
      std::int64_t const grains = (count + unit - 1) / unit;
      REQUIRE(static_cast<std::int64_t>(parts.size()) == std::min<std::int64_t>(threads, grains));
    }
  }
}

TEST_CASE("parallel_for of extreme counts and grains does not overflow") {
  constexpr std::int64_t high = std::numeric_limits<std::int64_t>::max();
  Context context({.threads = 3});
  std::mutex mutex;
  for (std::int64_t grain : {std::int64_t{1}, std::int64_t{1000}, high / 2, high - 1, high}) {
    std::uint64_t covered = 0;
    context.parallel_for(high, grain, [&](std::int64_t begin, std::int64_t end) {
      std::lock_guard const lock(mutex);
      covered += static_cast<std::uint64_t>(end - begin);
    });
    CHECK(covered == static_cast<std::uint64_t>(high));
  }
  bool called = false;
  context.parallel_for(0, 1, [&](std::int64_t, std::int64_t) { called = true; });
  context.parallel_for(-5, 1, [&](std::int64_t, std::int64_t) { called = true; });
  CHECK(!called);
}

TEST_CASE("work of at most one grain stays on the caller, even inside a region") {
  Context context({.threads = 2});
  std::vector<std::int64_t> ends(2);
  context.parallel([&](int thread) {
    context.parallel_for(5, 5, [&](std::int64_t, std::int64_t end) { ends[static_cast<std::size_t>(thread)] = end; });
  });
  CHECK(ends == std::vector<std::int64_t>{5, 5});
}

TEST_CASE("an exception of a part arrives at the caller") {
  Context context({.threads = 4});
  for (std::int64_t bad : {0, 49, 99})
    REQUIRE_ERROR(context.parallel_for(100, 1,
                                       [&](std::int64_t begin, std::int64_t end) {
                                         if (begin <= bad && bad < end)
                                           throw Error(ErrorKind::internal, "part", "failed");
                                       }),
                  ErrorKind::internal, "failed");
}

TEST_CASE("a context takes as many threads as the process may use, shared by the ranks of a node") {
  int const usable = exec::available_processors();
  CHECK(Context().threads() == usable);
  CHECK(Context({.ranks_on_node = 1000}).threads() == 1);
  CHECK(Context({.threads = 3, .ranks_on_node = 2}).threads() == 3);
  CHECK(Context({.ranks_on_node = 0}).threads() == usable);
  REQUIRE_ERROR(Context({.threads = -1}), ErrorKind::invalid_argument, "-1 threads are impossible");
}

TEST_CASE("a process bound to one processor gets one thread") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  int const bound = Context().threads();
  int const counted = exec::available_processors();
  Context several({.threads = 3});  // more threads than processors still finish
  std::vector<int> where(3, -1);
  for (int i = 0; i < 20; ++i)
    several.parallel([&](int thread) {
      several.barrier();
      where[static_cast<std::size_t>(thread)] = ::sched_getcpu();
    });
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(bound == 1);
  CHECK(counted == 1);
  CHECK(where == std::vector<int>(3, first));  // workers inherit the mask of the thread that made them
}

TEST_CASE("a context runs every instruction set that the machine has and refuses the others") {
  for (exec::Isa isa : exec::all_isas) {
    if (exec::available(isa)) {
      CHECK(Context({.threads = 1, .isa = isa}).isa() == isa);
    } else {
      REQUIRE_ERROR(Context({.threads = 1, .isa = isa}), ErrorKind::unavailable, "this processor cannot run");
    }
  }
}

TEST_CASE("a context takes the instruction set that TUTTI_ISA names, or says why not") {
  {
    Environment const unset(nullptr);
    CHECK(Context({.threads = 1}).isa() == exec::best_isa());
  }
  {
    Environment const empty("");
    CHECK(Context({.threads = 1}).isa() == exec::best_isa());
  }
  for (exec::Isa isa : exec::all_isas) {
    Environment const forced(std::string(exec::name(isa)).c_str());
    if (exec::available(isa)) {
      CHECK(Context({.threads = 1}).isa() == isa);
    } else {
      REQUIRE_ERROR(ContextOptions{}, ErrorKind::unavailable, "but this processor has only");
    }
  }
  for (char const* value : {"AVX2", "avx", "sse", "scalar "}) {
    Environment const forced(value);
    REQUIRE_ERROR(ContextOptions{}, ErrorKind::configuration, std::string("TUTTI_ISA=") + value + " is unknown");
  }
}

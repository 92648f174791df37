// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/signals.hpp>

#include <sys/wait.h>

using tutti::train::StopSignals;

TEST_CASE("the first signal is remembered, and the former handlers come back") {
  std::signal(SIGTERM, SIG_IGN);
  {
    StopSignals const signals;
    CHECK(StopSignals::received() == 0);
    std::raise(SIGTERM);
    CHECK(StopSignals::received() == SIGTERM);
  }
  std::raise(SIGTERM);  // ignored again: this process lives
  {
    StopSignals const signals;
    CHECK(StopSignals::received() == 0);  // a new run starts without the old request
    std::raise(SIGINT);
    CHECK(StopSignals::received() == SIGINT);
  }
  std::signal(SIGTERM, SIG_DFL);
}

TEST_CASE("the second signal ends the process at once with 128 plus its number") {
  pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    StopSignals const signals;
    std::raise(SIGINT);
    std::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
}

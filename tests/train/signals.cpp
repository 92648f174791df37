// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/signals.hpp>

#include <sys/wait.h>

#include <chrono>
#include <thread>

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

TEST_CASE("ranks of one process share the handlers: no request is lost, and the last one restores") {
  std::signal(SIGTERM, SIG_IGN);
  {
    StopSignals const first;
    std::raise(SIGTERM);
    {
      StopSignals const second(true);
      CHECK(StopSignals::received() == SIGTERM);
    }
    struct sigaction now {};
    ::sigaction(SIGTERM, nullptr, &now);
    CHECK(now.sa_handler == &tutti::train::detail::on_stop_signal);
  }
  std::raise(SIGTERM);  // ignored again
  std::signal(SIGTERM, SIG_DFL);
}

TEST_CASE("the rank that speaks answers the first signal at once, once") {
  for (bool const speaks : {false, true}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      StopSignals const silent, signals(speaks);
      std::raise(SIGTERM);
      ::_exit(StopSignals::received() == SIGTERM ? 0 : 1);
    }
    ::close(ends[1]);
    char text[200] = {};
    ssize_t size = 0;
    for (ssize_t got = 1; got > 0; size += got)
      got = ::read(ends[0], text + size, sizeof(text) - 1 - std::size_t(size));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(std::string(text) == (speaks ? "stopping after this step; another signal stops at once\n" : ""));
  }
}

TEST_CASE("the second signal ends the process at once with 128 plus its number") {
  pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    StopSignals const signals;
    std::raise(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    std::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
}

TEST_CASE("a request that comes twice within milliseconds is one, and nobody who reads is none") {
  pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    StopSignals const signals;
    std::raise(SIGTERM);
    std::raise(SIGTERM);
    std::raise(SIGPIPE);
    ::_exit(StopSignals::received() == SIGTERM ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

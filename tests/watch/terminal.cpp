// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/watch/terminal.hpp> <tutti/watch/any.hpp>
// On a terminal, tests/watch/dashboards.py sees them.
#include "support/catch.hpp"

#include <tutti/watch/any.hpp>

#include <unistd.h>

using namespace tutti;
using namespace tutti::watch;

TEST_CASE("a program has the views that it is built with, and without a terminal none is drawn") {
  train::Viewers const made = viewers();
  CHECK(static_cast<bool>(made.terminal));
  CHECK(static_cast<bool>(made.page) == (TUTTI_WITH_HTTP == 1));
  if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) return;  // by hand
  train::Registry registry;
  train::Commands commands;
  LiveSource source({registry, commands, ""});
  REQUIRE_ERROR(watch_on_terminal(source, {}), ErrorKind::unavailable, "no terminal");
  REQUIRE_ERROR(made.terminal({registry, commands, ""}), ErrorKind::unavailable, "no terminal");
  registry.line("and nobody is left who listens");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The views with which a program is built: the terminal where TUTTI_WITH_TERMINAL is 1, the page where TUTTI_WITH_HTTP
/// is.

#include <tutti/train/viewers.hpp>
#if TUTTI_WITH_TERMINAL
#include <tutti/watch/terminal.hpp>
#endif
#if TUTTI_WITH_HTTP
#include <tutti/watch/http/server.hpp>
#endif

#include <memory>

namespace tutti::watch {

/// For train_model and ModelShepherd. Included by the source with `main` alone: programs of sources that are built with
/// different sets would otherwise share one instance of this function.
static inline train::Viewers viewers() {
  train::Viewers made;
#if TUTTI_WITH_TERMINAL
  made.terminal = [](train::WatchedRun const& run) { return std::make_shared<LiveTerminal>(run); };
#endif
#if TUTTI_WITH_HTTP
  made.page = [](train::WatchedRun const& run, int port) { return std::make_shared<LivePage>(run, port); };
#endif
  return made;
}

}  // namespace tutti::watch

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What both test programs' `main` share: own options, the watchdog, the Catch2 session.

#include "support/catch.hpp"
#include "support/watchdog.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#if defined(__SANITIZE_THREAD__)
/// The counter of an exception that threads share is in libstdc++, which is built without the sanitizer: it sees the
/// last owner free what another has read, and not that the counter orders the two.
extern "C" [[gnu::used]] inline char const* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

namespace tutti::test {

inline Watchdog* watchdog = nullptr;

/// Tells the watchdog which test case runs.
#if TUTTI_CATCH == 3
struct CaseListener : Catch::EventListenerBase {
  using EventListenerBase::EventListenerBase;
#else
struct CaseListener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
#endif
  void testCaseStarting(Catch::TestCaseInfo const& info) override {
    if (watchdog != nullptr) watchdog->running(info.name);
  }
};

/// Options of ours, taken out of the command line before Catch2 sees it.
struct Options {
  int ranks = 0;            ///< --ranks=P: the world size that the test asked for; 0 when not given
  int limit_seconds = 600;  ///< --limit=S: the watchdog's limit
  std::vector<char*> rest;
};

inline Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 0; i < argc; ++i) {
    if (std::strncmp(argv[i], "--ranks=", 8) == 0) options.ranks = std::atoi(argv[i] + 8);
    else if (std::strncmp(argv[i], "--limit=", 8) == 0) options.limit_seconds = std::atoi(argv[i] + 8);
    else options.rest.push_back(argv[i]);
  }
  return options;
}

/// Runs the selected test cases. Every file's name is a tag: `[#bfloat16]` selects those of bfloat16.cpp. A selection
/// that matches nothing is a failure, so that a renamed file cannot pass by running no test.
inline int run_session(Options& options, int rank, int ranks) {
  Watchdog guard(std::chrono::seconds(options.limit_seconds), rank, ranks);
  watchdog = &guard;
  Catch::Session session;
  int result = session.applyCommandLine(static_cast<int>(options.rest.size()), options.rest.data());
  if (result == 0) {
    session.configData().filenamesAsTags = true;
#if TUTTI_CATCH == 2
    session.configData().warnings = Catch::WarnAbout::What(session.configData().warnings | Catch::WarnAbout::NoTests);
#endif
    result = session.run();
  }
  watchdog = nullptr;
  return result;
}

}  // namespace tutti::test

using TuttiCaseListener = tutti::test::CaseListener;  // the macro pastes the name
CATCH_REGISTER_LISTENER(TuttiCaseListener)

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// SIGINT and SIGTERM as a polite request: the first asks the loop to stop, the second ends the process at once.

#include <atomic>
#include <csignal>
#include <unistd.h>

namespace tutti::train {

namespace detail {
/// Signal handlers can reach nothing but a static.
inline std::atomic<int> stop_signal{0};

inline void on_stop_signal(int signal) {
  if (stop_signal.exchange(signal) != 0) ::_exit(128 + signal);
}
}  // namespace detail

/// Installs the handlers for its lifetime and restores the former ones. One at a time in a process.
class StopSignals {
 public:
  StopSignals() noexcept {
    struct sigaction action {};
    action.sa_handler = &detail::on_stop_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    detail::stop_signal = 0;
    ::sigaction(SIGINT, &action, &former_interrupt_);
    ::sigaction(SIGTERM, &action, &former_terminate_);
  }
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;
  ~StopSignals() {
    ::sigaction(SIGINT, &former_interrupt_, nullptr);
    ::sigaction(SIGTERM, &former_terminate_, nullptr);
  }

  /// The signal that asked to stop, or 0.
  static int received() noexcept { return detail::stop_signal.load(std::memory_order_relaxed); }

 private:
  struct sigaction former_interrupt_ {};
  struct sigaction former_terminate_ {};
};

}  // namespace tutti::train

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// SIGINT and SIGTERM as a polite request: the first asks the loop to stop, the second ends the process at once.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <unistd.h>

namespace tutti::train {

namespace detail {
/// Signal handlers can reach nothing but a static.
inline std::atomic<int> stop_signal{0};
inline std::atomic<char const*> stop_notice{nullptr};

inline void on_stop_signal(int signal) {
  if (stop_signal.exchange(signal) != 0) ::_exit(128 + signal);
  int const error = errno;
  if (char const* const notice = stop_notice)  // at once: the step in progress may be long
    static_cast<void>(!::write(STDERR_FILENO, notice, std::strlen(notice)));
  errno = error;
}
}  // namespace detail

/// Installs the handlers for its lifetime. The ranks of a process have one each: the first installs, the last restores
/// the former handlers.
class StopSignals {
 public:
  /// `speaks`: the first signal is answered on the error stream. One rank of a job says so.
  explicit StopSignals(bool speaks = false) {
    std::lock_guard const guard(mutex_);
    if (speaks)  // a progress bar leaves the cursor behind it
      detail::stop_notice = ::isatty(STDERR_FILENO) != 0 ? "\nstopping after this step; another signal stops at once\n"
                                                         : "stopping after this step; another signal stops at once\n";
    if (users_++ > 0) return;
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
    std::lock_guard const guard(mutex_);
    if (--users_ > 0) return;
    ::sigaction(SIGINT, &former_interrupt_, nullptr);
    ::sigaction(SIGTERM, &former_terminate_, nullptr);
    detail::stop_notice = nullptr;
  }

  /// The signal that asked to stop, or 0.
  static int received() noexcept { return detail::stop_signal.load(std::memory_order_relaxed); }

 private:
  inline static std::mutex mutex_;
  inline static int users_ = 0;
  inline static struct sigaction former_interrupt_ {};
  inline static struct sigaction former_terminate_ {};
};

}  // namespace tutti::train

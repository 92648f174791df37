// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// SIGINT and SIGTERM as a polite request: the first asks the loop to stop, the second ends the process at once. Who no
/// longer reads what a run prints does not end it: SIGPIPE is ignored.

#include <tutti/exec/wait.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unistd.h>

namespace tutti::train {

namespace detail {
/// Signal handlers can reach nothing but a static.
inline std::atomic<int> stop_signal{0};
inline std::atomic<std::int64_t> stopped_ns{0};
inline std::atomic<char const*> stop_notice{nullptr};
inline std::atomic<void (*)()> before_end{nullptr};

/// One request may come twice: `timeout` signals its child and then its child's group.
inline constexpr std::int64_t same_request_ns = 10'000'000;

inline void on_stop_signal(int signal) {
  int const error = errno;
  std::int64_t const ns = exec::now_ns();
  int none = 0;
  if (!stop_signal.compare_exchange_strong(none, signal)) {
    errno = error;
    if (ns - stopped_ns < same_request_ns) return;
    if (auto const call = before_end.load()) call();
    ::_exit(128 + signal);
  }
  stopped_ns = ns;
  if (char const* const notice = stop_notice)  // at once: the step in progress may be long
    static_cast<void>(!::write(STDERR_FILENO, notice, std::strlen(notice)));
  errno = error;
}
}  // namespace detail

/// Installs the handlers for its lifetime. A program has one from its first line on and never destroys it, so that no
/// signal comes too early or too late; the ranks of a process have one each: the first installs, the last restores the
/// former handlers.
class StopSignals {
 public:
  /// `speaks`: the first signal is answered on the error stream. One rank of a job says so.
  explicit StopSignals(bool speaks = false) : speaks_(speaks) {
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
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, &former_pipe_);
  }
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;
  ~StopSignals() {
    std::lock_guard const guard(mutex_);
    if (speaks_) detail::stop_notice = nullptr;  // what comes now comes after the last step
    if (--users_ > 0) return;
    ::sigaction(SIGINT, &former_interrupt_, nullptr);
    ::sigaction(SIGTERM, &former_terminate_, nullptr);
    ::sigaction(SIGPIPE, &former_pipe_, nullptr);
  }

  /// One more that asks to stop, from now on, unless who started the program has it ignored (nohup).
  static void add(int signal) noexcept {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
    action.sa_handler = &detail::on_stop_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
  /// From now on nobody is answered on the error stream: the terminal is a view's, which shows it.
  static void silence() noexcept { detail::stop_notice = nullptr; }
  /// What is done before a second signal ends the process; only what a signal handler may do. Null: nothing.
  static void before_end(void (*call)()) noexcept { detail::before_end = call; }
  /// The signal that asked to stop, or 0.
  static int received() noexcept { return detail::stop_signal.load(std::memory_order_relaxed); }

 private:
  bool speaks_;
  inline static std::mutex mutex_;
  inline static int users_ = 0;
  inline static struct sigaction former_interrupt_ {};
  inline static struct sigaction former_terminate_ {};
  inline static struct sigaction former_pipe_ {};
};

}  // namespace tutti::train

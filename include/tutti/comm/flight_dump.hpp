// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A flight recorder as JSON, for `tutti-doctor`: as text, into its file after an error, into the files of all ranks of
/// the process on a signal. Nothing here allocates but `to_json`, so that a signal handler can do the same.

#include <tutti/comm/flight_json.hpp>
#include <tutti/comm/flight_recorder.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace tutti::comm {

/// PREFIX of TUTTI_FLIGHT_RECORD=PREFIX; empty where it is not set.
inline std::string_view flight_record_prefix() noexcept {
  char const* const value = std::getenv("TUTTI_FLIGHT_RECORD");
  return value == nullptr ? std::string_view() : value;
}

/// `reason` says why it is asked for: the text of an error, the name of a signal.
template <class = void>
std::string to_json(FlightRecorder const& recorder, std::string_view reason = "") {
  std::string text;
  auto sink = [&](std::string_view part) { text += part; };
  FlightJson<decltype(sink)>(sink).write(recorder, reason);
  return text;
}

/// Writes the recorder's file, where it has one. A file that cannot be written is told on the error stream: the error
/// that led here is more important.
template <class = void>
void dump(FlightRecorder const& recorder, std::string_view reason) noexcept {
  struct File {
    int handle;
    std::size_t used = 0;
    bool good = true;
    char buffer[4096] = {};
    void flush() noexcept {
      for (std::size_t at = 0; good && at < used;) {
        ssize_t const written = ::write(handle, buffer + at, used - at);
        if (written > 0) at += static_cast<std::size_t>(written);
        else good = written < 0 && errno == EINTR;
      }
      used = 0;
    }
    void operator()(std::string_view text) noexcept {
      while (!text.empty()) {
        if (used == sizeof buffer) flush();
        std::size_t const part = text.size() < sizeof buffer - used ? text.size() : sizeof buffer - used;
        std::memcpy(buffer + used, text.data(), part);
        used += part;
        text.remove_prefix(part);
      }
    }
  };
  if (recorder.path().empty()) return;
  int const before = errno;
  File file{::open(recorder.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.handle >= 0) {
    FlightJson<File>(file).write(recorder, reason);
    file.flush();
    ::close(file.handle);
  }
  if (file.handle < 0 || !file.good) {
    File errors{STDERR_FILENO};
    errors("tutti: the flight record could not be written to ");
    errors(recorder.path());
    errors(". Name a prefix in a folder that exists and has room: TUTTI_FLIGHT_RECORD=FOLDER/NAME\n");
    errors.flush();
  }
  errno = before;
}

/// Called from a handler: dumps with the text of its exception.
template <class = void>
void dump_failure(FlightRecorder const& recorder) noexcept {
  if (recorder.path().empty()) return;
  try {
    throw;
  } catch (std::exception const& error) {
    dump(recorder, error.what());
  } catch (...) {
    dump(recorder, "an exception of unknown type");
  }
}

/// Recorders that a signal dumps. Handlers can reach nothing but a static; without the environment variable it stays
/// empty.
struct FlightSignals {
  static constexpr int capacity = 1024;  ///< communicators of the process; those beyond are not dumped by signals
  std::atomic<FlightRecorder const*> recorders[capacity] = {};
  std::atomic<int> readers{0};
  struct sigaction former_user {};
  struct sigaction former_terminate {};

  template <class = void>
  static FlightSignals& instance() noexcept {
    static constinit FlightSignals signals;
    return signals;
  }
  /// Its place; -1: no place was left.
  template <class = void>
  int add(FlightRecorder const& recorder) noexcept {
    for (int i = 0; i < capacity; ++i) {
      FlightRecorder const* none = nullptr;
      if (recorders[i].compare_exchange_strong(none, &recorder)) return i;
    }
    return -1;
  }
  /// Returns when no handler reads it any more. A handler on this very thread has returned before.
  template <class = void>
  void remove(int place) noexcept {
    if (place < 0) return;
    recorders[place].store(nullptr);
    while (readers.load() != 0) exec::relax();
  }
  template <class = void>
  void dump_all(std::string_view reason) noexcept {
    readers.fetch_add(1);
    for (auto const& entry : recorders)
      if (FlightRecorder const* const recorder = entry.load(); recorder != nullptr) dump(*recorder, reason);
    readers.fetch_sub(1);
  }
  template <class = void>
  static void handle(int signal, siginfo_t* info, void* context) noexcept {
    FlightSignals& self = instance();
    self.dump_all(signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM");
    struct sigaction const& former = signal == SIGUSR1 ? self.former_user : self.former_terminate;
    if ((former.sa_flags & SA_SIGINFO) != 0) return former.sa_sigaction(signal, info, context);
    if (former.sa_handler == SIG_IGN) return;
    if (former.sa_handler != SIG_DFL) return former.sa_handler(signal);
    if (signal == SIGUSR1) return;  // whoever asks for a dump wants the program to go on
    ::sigaction(signal, &former, nullptr);
    ::raise(signal);
  }
};

/// From now on SIGUSR1 dumps the recorders of all ranks in this process that have a file, and the program goes on;
/// SIGTERM dumps them and then does what it did before. `launch` calls it where TUTTI_FLIGHT_RECORD is set. A second
/// call changes nothing.
template <class = void>
void dump_on_signal() noexcept {
  FlightSignals& signals = FlightSignals::instance();
  struct sigaction action {};
  action.sa_sigaction = &FlightSignals::handle<>;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaddset(&action.sa_mask, SIGTERM);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  auto const install = [&](int signal, struct sigaction& former) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_sigaction == action.sa_sigaction) return;
    former = now;
    ::sigaction(signal, &action, nullptr);
  };
  install(SIGUSR1, signals.former_user);
  install(SIGTERM, signals.former_terminate);
}

}  // namespace tutti::comm

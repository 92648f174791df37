// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A flight recorder as JSON, for `tutti-doctor`: as text, into its file after an error, into the files of all ranks of
/// the process on a signal. Nothing here allocates but `to_json`, so that a signal handler can do the same.

#include <tutti/comm/flight_recorder.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
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

/// What a record is of: "all_reduce", "send".
template <class = void>
constexpr std::string_view operation_name(FlightRecord const& record) noexcept {
  switch (record.what) {
    case FlightRecord::What::collective: return name(record.kind);
    case FlightRecord::What::send: return "send";
    case FlightRecord::What::recv: return "recv";
    case FlightRecord::What::probe: return "probe";
    case FlightRecord::What::match: return "match";
  }
  return "unknown";
}
template <class = void>
constexpr std::string_view name(FlightRecord::State state) noexcept {
  switch (state) {
    case FlightRecord::State::started: return "started";
    case FlightRecord::State::completed: return "completed";
    case FlightRecord::State::failed: return "failed";
    case FlightRecord::State::refused: return "refused";
  }
  return "unknown";
}

/// Members of JSON objects, passed to `sink(text)` piece by piece.
template <class Sink>
class FlightJson {
 public:
  explicit FlightJson(Sink& sink) noexcept : sink_(sink) {}

  void write(FlightRecorder const& recorder, std::string_view reason) {
    FlightRecorder::Identity const& who = recorder.identity();
    sink_("{");
    member("tutti_flight_record", 1);
    member("communicator", who.communicator);
    member("rank", who.rank);
    member("size", who.size);
    member("world_rank", who.world_rank);
    member("pid", ::getpid());
    member("operations", static_cast<std::int64_t>(recorder.operations()));
    member("reason", reason);
    sink_(", \"records\": [");
    bool first = true;
    recorder.visit([&](FlightRecord const& record) {
      sink_(first ? "\n{" : ",\n{");
      first = false;
      first_ = true;
      write(record);
      sink_("}");
    });
    sink_("]}\n");
  }

 private:
  void write(FlightRecord const& record) {
    member("operation", operation_name(record));
    member("number", static_cast<std::int64_t>(record.number));
    if (record.what == FlightRecord::What::collective) {
      if (reduces(record.kind)) member("operator", tutti::name(record.op));
      if (record.kind != Kind::barrier) {
        member("dtype", tutti::name(record.dtype));
        member("element_bytes", record.element_bytes);
        member("count", record.count);
      }
      if (record.peer >= 0) member("root", record.peer);
    } else {
      member("peer", record.peer);
      member("tag", record.tag);
    }
    member("bytes", record.bytes());
    member("file", record.file);
    member("line", std::int64_t{record.line});
    member("begin_ns", record.begin);
    member("end_ns", record.end);
    member("state", name(record.state));
  }

  void key(std::string_view text) {
    sink_(first_ ? "\"" : ", \"");
    first_ = false;
    sink_(text);
    sink_("\": ");
  }
  void member(std::string_view name, std::int64_t value) {
    key(name);
    char digits[24];
    char* at = digits + sizeof digits;
    std::uint64_t rest = value < 0 ? -static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    do *--at = static_cast<char>('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0) *--at = '-';
    sink_(std::string_view(at, static_cast<std::size_t>(digits + sizeof digits - at)));
  }
  void member(std::string_view name, std::string_view value) {
    key(name);
    sink_("\"");
    std::size_t plain = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      auto const c = static_cast<unsigned char>(value[i]);
      if (c >= 0x20 && c != '"' && c != '\\') continue;
      sink_(value.substr(plain, i - plain));
      char const escape[] = {'\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
      sink_(std::string_view(escape, sizeof escape));
      plain = i + 1;
    }
    sink_(value.substr(plain));
    sink_("\"");
  }

  Sink& sink_;
  bool first_ = true;
};

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

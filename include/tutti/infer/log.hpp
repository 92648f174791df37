// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lines of a log: to standard error or a file, never to standard output, which belongs to the text.

#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>
#include <tutti/io/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

namespace tutti {
namespace infer {

enum class LogLevel : unsigned char { debug, info, warn, error, fatal, none };
enum class LogFormat : unsigned char { text, json };

}  // namespace infer

template <>
inline constexpr auto setting::spelling<infer::LogLevel> =
    std::array<std::string_view, 6>{"debug", "info", "warn", "error", "fatal", "none"};
template <>
inline constexpr auto setting::spelling<infer::LogFormat> = std::array<std::string_view, 2>{"text", "json"};

namespace infer {

struct LogOptions {
  LogLevel level = LogLevel::warn;  ///< the least that is written
  LogFormat format = LogFormat::text;
  bool timestamps = true;  ///< UTC
  bool colors = false;     ///< on a terminal
  std::string path{};      ///< appended to; empty: standard error
  bool follow_links = false;
  bool reopen = false;  ///< the file was moved away, and another one is to have its name
};

/// Thread-safe. A line is written by one call, so that lines of several processes do not mix.
class Log {
 public:
  Log() = default;
  Log(Log const&) = delete;
  Log& operator=(Log const&) = delete;
  ~Log() { close(); }

  /// Errors: invalid_argument, when the file cannot be opened or is none; the log stays as it was.
  void configure(LogOptions const& options) {
    std::string const& path = options.path;
    std::lock_guard const guard(mutex_);
    if (path != path_ || options.reopen) {
      int const flags =
          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | (options.follow_links ? 0 : O_NOFOLLOW);
      int const file = path.empty() ? -1 : ::open(path.c_str(), flags, 0644);
      if (!path.empty() && file < 0)
        throw Error(ErrorKind::invalid_argument, "Log",
                    "the log '" + path + "' cannot be opened: " + std::strerror(errno));
      struct stat facts {};
      if (file >= 0 && (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))) {
        ::close(file);
        throw Error(ErrorKind::invalid_argument, "Log", "the log '" + path + "' is no regular file");
      }
      close();
      file_ = file, path_ = path;
    }
    level_ = options.level, format_ = options.format, timestamps_ = options.timestamps;
    colors_ = options.colors && file_ < 0 && ::isatty(2) == 1;
  }

  /// Whether such a line is written.
  bool writes(LogLevel level) const noexcept {
    std::lock_guard const guard(mutex_);
    return level >= level_ && level_ != LogLevel::none;
  }
  void operator()(LogLevel level, std::string_view text) noexcept try {
    std::lock_guard const guard(mutex_);
    if (level < level_ || level_ == LogLevel::none) return;
    std::string const name(setting::spelling<LogLevel>[static_cast<std::size_t>(level)]);
    char time[32] = "";
    if (timestamps_) {
      std::time_t const now = std::time(nullptr);
      std::tm parts{};
      ::gmtime_r(&now, &parts);
      std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    std::string line;
    if (format_ == LogFormat::json) {
      line = "{";
      if (timestamps_) line += "\"time\": \"" + std::string(time) + "\", ";
      line += "\"level\": \"" + name + "\", \"text\": " + io::quote_json(text) + "}";
    } else {
      if (timestamps_) line = std::string(time) + " ";
      char const* const color = level >= LogLevel::error ? "\033[31m" : level == LogLevel::warn ? "\033[33m" : "";
      line += "tutti " + (colors_ && *color != 0 ? color + name + "\033[0m" : name) + ": ";
      for (char const c : text)
        line +=
            static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? ' ' : c;  // what others say cannot look like a line
    }
    line += '\n';
    for (std::string_view rest = line; !rest.empty();) {
      ::ssize_t const written = ::write(file_ >= 0 ? file_ : 2, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;  // a log that is full stops nothing
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  } catch (...) {  // no memory for a line
  }

 private:
  void close() noexcept {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  mutable std::mutex mutex_;
  int file_ = -1;
  std::string path_;
  LogLevel level_ = LogLevel::warn;
  LogFormat format_ = LogFormat::text;
  bool timestamps_ = true, colors_ = false;
};

}  // namespace infer
}  // namespace tutti

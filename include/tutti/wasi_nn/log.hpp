// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lines of a log: to standard error or a file, never to standard output, which belongs to the guest.

#include <tutti/io/json.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

namespace tutti::wasi_nn {

/// Thread-safe. A line is written by one call, so that lines of several processes do not mix.
class Log {
 public:
  Log() = default;
  Log(Log const&) = delete;
  Log& operator=(Log const&) = delete;
  ~Log() { close(); }

  /// `path` is where the host allows it to be; empty: standard error.
  /// Errors: Failure (invalid_argument), when the file cannot be opened; the log stays as it was.
  void configure(Settings const& settings, std::string const& path) {
    std::lock_guard const guard(mutex_);
    if (path != path_) {
      int const file = path.empty() ? -1
                                    : ::open(path.c_str(),
                                             O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
      if (!path.empty() && file < 0)
        throw Failure(Code::invalid_argument, "the log '" + path + "' cannot be opened: " + std::strerror(errno));
      struct stat facts {};
      if (file >= 0 && (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))) {
        ::close(file);
        throw Failure(Code::invalid_argument, "the log '" + path + "' is no regular file");
      }
      close();
      file_ = file, path_ = path;
    }
    level_ = settings.log_debug ? LogLevel::debug : static_cast<LogLevel>(settings.log_level);
    format_ = settings.log_format, timestamps_ = settings.log_timestamps;
    colors_ = settings.log_colors && file_ < 0 && ::isatty(2) == 1;
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
            static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? ' ' : c;  // what guests say cannot look like a line
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

  std::mutex mutex_;
  int file_ = -1;
  std::string path_;
  LogLevel level_ = LogLevel::warn;
  LogFormat format_ = LogFormat::text;
  bool timestamps_ = true, colors_ = false;
};

}  // namespace tutti::wasi_nn

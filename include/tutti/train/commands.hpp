// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What those who watch a run may ask of it. A run looks at safe moments (between two steps, between two events of a
/// shepherd) and does what it can.

#include <tutti/io/file.hpp>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

struct Command {
  enum class Kind : unsigned char {
    pause,       ///< after the present step, until `go_on`
    go_on,
    checkpoint,  ///< after the present step
    stop,        ///< as the first Ctrl-C
    drain,       ///< a worker of a shepherd: it delivers what it works on, and leaves
  };
  Kind kind = Kind::pause;
  std::string worker{};  ///< of `drain`
  friend bool operator==(Command const&, Command const&) = default;
};

/// "pause", "continue", "checkpoint", "stop" or "drain WORKER"; nothing for another text.
inline std::optional<Command> parse_command(std::string_view text) {
  if (text == "pause") return Command{Command::Kind::pause};
  if (text == "continue") return Command{Command::Kind::go_on};
  if (text == "checkpoint") return Command{Command::Kind::checkpoint};
  if (text == "stop") return Command{Command::Kind::stop};
  constexpr std::string_view drain = "drain ";
  if (!text.starts_with(drain) || text.size() > drain.size() + 64) return {};
  text.remove_prefix(drain.size());
  if (text.empty() || text.find_first_not_of("0123456789abcdef") != text.npos) return {};
  return Command{Command::Kind::drain, std::string(text)};
}
inline std::string to_text(Command const& command) {
  constexpr char const* names[] = {"pause", "continue", "checkpoint", "stop", "drain "};
  return names[static_cast<int>(command.kind)] + command.worker;
}

/// Thread-safe: from views to the run.
class Commands {
 public:
  void ask(Command command) {
    std::lock_guard const guard(mutex_);
    if (waiting_.size() < most) waiting_.push_back(std::move(command));  // who hammers is not heard
  }
  /// In the order in which they were asked.
  std::vector<Command> take() {
    std::lock_guard const guard(mutex_);
    return std::exchange(waiting_, {});
  }

 private:
  static constexpr std::size_t most = 1000;
  std::mutex mutex_;
  std::vector<Command> waiting_;
};

/// The file `commands` in a run's folder, a line for each: the way for who may write in that folder, from another
/// process or another machine.
class CommandFile {
 public:
  CommandFile() = default;
  /// Forgets what an earlier run was asked. Never throws.
  explicit CommandFile(std::string folder) : path_(path_in(folder)) { ::unlink(path_.c_str()); }

  static std::string path_in(std::string const& folder) { return folder + "/commands"; }
  /// Adds a line to the file of a run. Errors: io.
  static void ask(std::string const& folder, Command const& command) {
    std::string const path = path_in(folder), line = to_text(command) + "\n";
    io::detail::Descriptor const file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (file.get() < 0 || ::write(file.get(), line.data(), line.size()) != static_cast<::ssize_t>(line.size()))
      io::detail::throw_errno("CommandFile", "'" + path + "' cannot be written, by which the run is asked");
  }

  /// Lines that came since the last call. A file that cannot be read is as one that is not there. Never throws.
  void poll(Commands& to) {
    if (path_.empty()) return;
    io::detail::Descriptor const file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() < 0) return;
    char bytes[4096];
    ::ssize_t const got = ::pread(file.get(), bytes, sizeof bytes, static_cast<::off_t>(read_));
    if (got <= 0) return;
    std::string_view text(bytes, static_cast<std::size_t>(got));
    if (text.size() == sizeof bytes && text.find('\n') == text.npos) read_ += text.size();  // no command is so long
    for (std::size_t end = 0; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1), read_ += end + 1)
      if (auto const command = parse_command(text.substr(0, end))) to.ask(*command);
  }

 private:
  std::string path_;
  std::size_t read_ = 0;
};

}  // namespace tutti::train

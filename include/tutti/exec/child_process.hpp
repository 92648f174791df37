// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A program that this one starts and talks with: bytes both ways over one socket, every wait bounded, and no process
/// left behind.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/wait.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <source_location>
#include <span>
#include <spawn.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace tutti::exec {

/// The program finds the socket as its standard input, to read from and to write to; what it prints goes where errors
/// of this process go. It has a process group of its own, so that an interrupt from the terminal is this process' to
/// handle. It is expected to end when the socket's other end closes, which also a process that was killed does.
/// Blocking   as each function says. Not for several threads at a time.
class ChildProcess {
 public:
  ChildProcess() = default;
  /// `words[0]` is looked for along PATH where it has no slash. Errors: io, where it cannot be started.
  template <class = void>
  explicit ChildProcess(List<std::string> const& words,
                        std::source_location where = std::source_location::current()) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair", errno, where);
    socket_ = ends[0];
    List<char*> arguments;
    for (std::string const& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    sigset_t none;
    sigemptyset(&none);  // threads of this process may have blocked some
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    int const code = ::posix_spawnp(&process_, words[0].c_str(), &actions, &attributes, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    ::close(ends[1]);
    if (code == 0) return;
    process_ = -1;
    ::close(std::exchange(socket_, -1));
    fail(words[0], code, where);
  }
  ChildProcess(ChildProcess&& other) noexcept
      : process_(std::exchange(other.process_, -1)), socket_(std::exchange(other.socket_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(process_, other.process_);
    std::swap(socket_, other.socket_);
    return *this;
  }
  ~ChildProcess() { close(); }

  bool running() const noexcept { return process_ > 0; }
  pid_t id() const noexcept { return process_; }

  /// Closes the socket, gives the program `patience_ns` to end by itself, then kills its process group. Blocking.
  /// Returns what waitpid gave, 0 where there is no program.
  int close(std::int64_t patience_ns = 2'000'000'000) noexcept {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    if (process_ <= 0) return 0;
    // A program that has ended keeps its number, and its group's, until it is waited for: nobody else's is killed.
    siginfo_t info{};
    for (std::int64_t const end = now_ns() + patience_ns; now_ns() < end; ::usleep(1000)) {
      info.si_pid = 0;
      int const found = ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
      if ((found == 0 && info.si_pid == process_) || (found < 0 && errno != EINTR)) break;
    }
    ::kill(-process_, SIGKILL);  // it, or whom it started and left
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

  /// Blocking, until all is written, or until `deadline_ns` of exec::now_ns. Errors: timeout; io, where the program has
  /// ended.
  template <class = void>
  void write(std::span<std::byte const> bytes, std::int64_t deadline_ns,
             std::source_location where = std::source_location::current()) {
    while (!bytes.empty()) {
      await(POLLOUT, deadline_ns, where);
      ssize_t const sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EINTR && errno != EAGAIN) ended(where);
      if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
  /// Likewise, until all of `bytes` was read.
  template <class = void>
  void read(std::span<std::byte> bytes, std::int64_t deadline_ns,
            std::source_location where = std::source_location::current()) {
    while (!bytes.empty()) {
      await(POLLIN, deadline_ns, where);
      ssize_t const got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) ended(where);
      if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
  }

 private:
  void await(short event, std::int64_t deadline_ns, std::source_location where) {
    if (socket_ < 0) throw Error(ErrorKind::io, "ChildProcess", "the program was closed", where);
    for (;;) {
      std::int64_t const left = deadline_ns - now_ns();
      if (left <= 0) {
        close(0);
        throw Error(ErrorKind::timeout, "ChildProcess", "the program did not answer in time and was ended", where);
      }
      pollfd one{socket_, event, 0};
      int const ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left / 1'000'000 + 1, 60'000)));
      if (ready > 0) return;  // a closed end is found by send or recv
      if (ready < 0 && errno != EINTR) fail("poll", errno, where);
    }
  }
  [[noreturn]] void ended(std::source_location where) {
    int const status = close();
    std::string const how = WIFSIGNALED(status) ? concat("by signal ", WTERMSIG(status))
                                                : concat("with status ", WEXITSTATUS(status));
    throw Error(ErrorKind::io, "ChildProcess", concat("the program ended ", how), where);
  }
  [[noreturn]] static void fail(std::string const& what, int code, std::source_location where) {
    throw Error(ErrorKind::io, "ChildProcess", concat(what, ": ", std::strerror(code)), where);
  }

  pid_t process_ = -1;
  int socket_ = -1;
};

}  // namespace tutti::exec

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A crew in another job: the server that was built with the other MPI library (other_mpi.cpp) and takes commands from
/// one named pipe and answers on a second one. Both ends are built from the same headers for the same machine.

#include "crew.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tutti::bench {

/// One end of a named pipe, for whole objects.
class Pipe {
 public:
  /// Opened for both directions, so that nobody waits for the other end here.
  explicit Pipe(std::string const& path) : path_(path), file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (file_ < 0) throw std::runtime_error("cannot open the pipe " + path + ": " + std::strerror(errno));
  }
  Pipe(Pipe const&) = delete;
  Pipe& operator=(Pipe const&) = delete;
  ~Pipe() { ::close(file_); }

  void write(void const* data, std::size_t bytes) {
    for (auto at = static_cast<char const*>(data); bytes > 0;) {
      ssize_t const wrote = ::write(file_, at, bytes);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) throw std::runtime_error("cannot write to " + path_ + ": " + std::strerror(errno));
      at += wrote, bytes -= static_cast<std::size_t>(wrote);
    }
  }
  /// Waits at most so long for each piece; negative: without bound.
  void read(void* data, std::size_t bytes, int seconds) {
    for (auto at = static_cast<char*>(data); bytes > 0;) {
      pollfd ready{file_, POLLIN, 0};
      int const polled = ::poll(&ready, 1, seconds < 0 ? -1 : seconds * 1000);
      if (polled < 0 && errno == EINTR) continue;
      if (polled == 0)
        throw std::runtime_error("the other MPI's job has not answered on " + path_ + " for " +
                                 std::to_string(seconds) + " s. See its messages above, or leave out --other-mpi");
      ssize_t const got = ::read(file_, at, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw std::runtime_error("cannot read from " + path_ + ": " + std::strerror(errno));
      at += got, bytes -= static_cast<std::size_t>(got);
    }
  }

 private:
  std::string path_;
  int file_;
};

/// The fixed part of an answer; the samples follow.
struct Answer {
  std::int32_t exists = 1;
  std::int32_t samples = 0;
  std::int64_t wrong = 0;
  Plan plan{};
};
/// What the server says first; the size of its arenas is the reply.
struct Greeting {
  std::int32_t ranks = 0;
  char library[256] = {};
};

class RemoteCrew : public Crew {
 public:
  RemoteCrew(std::string const& commands, std::string const& answers, std::int64_t arena_bytes)
      : commands_(commands), answers_(answers) {
    answers_.read(&greeting_, sizeof(greeting_), 60);
    commands_.write(&arena_bytes, sizeof(arena_bytes));
  }
  ~RemoteCrew() override {
    try {
      Command const stop;
      commands_.write(&stop, sizeof(stop));
    } catch (std::exception const&) {  // the job is gone already
    }
  }
  std::string library() const { return greeting_.library; }
  int ranks() const { return greeting_.ranks; }

  Result run(Command const& command) override {
    commands_.write(&command, sizeof(command));
    Answer answer;
    answers_.read(&answer, sizeof(answer), 60);
    Result result{answer.exists != 0, answer.wrong, answer.plan,
                  std::vector<double>(static_cast<std::size_t>(answer.samples))};
    answers_.read(result.seconds.data(), result.seconds.size() * sizeof(double), 60);
    return result;
  }

 private:
  Pipe commands_, answers_;
  Greeting greeting_;
};

}  // namespace tutti::bench

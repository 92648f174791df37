// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/exec/child_process.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <fcntl.h>
#include <string>
#include <vector>

using namespace tutti;
using exec::ChildProcess;

namespace {

std::int64_t seconds(std::int64_t count) { return exec::now_ns() + count * 1'000'000'000; }

std::string answer(ChildProcess& child, std::string const& said) {
  child.write(std::as_bytes(std::span(said.data(), said.size())), seconds(20));
  std::string got(said.size(), ' ');
  child.read(std::as_writable_bytes(std::span(got.data(), got.size())), seconds(20));
  return got;
}

}  // namespace

TEST_CASE("a program answers over the socket that is its standard input", "[exec]") {
  ChildProcess child({"sh", "-c", "exec cat >&0"});
  CHECK(child.running());
  CHECK(answer(child, "hello") == "hello");
  CHECK(answer(child, std::string(100'000, 'x')) == std::string(100'000, 'x'));
  ChildProcess moved = std::move(child);
  CHECK_FALSE(child.running());
  CHECK(answer(moved, "again") == "again");
  CHECK(moved.close() == 0);  // cat ends with its input
  CHECK_FALSE(moved.running());
  CHECK(moved.close() == 0);
}

TEST_CASE("a program that ended is told of, waited for, and no signal comes of it", "[exec]") {
  ChildProcess child({"sh", "-c", "exit 3"});
  pid_t const id = child.id();
  std::vector<std::byte> some(1 << 20);
  REQUIRE_ERROR(child.read(some, seconds(20)), ErrorKind::io, "ended with status 3");
  CHECK_FALSE(child.running());
  CHECK(::waitpid(id, nullptr, WNOHANG) == -1);  // nothing is left of it
  REQUIRE_ERROR(child.write(some, seconds(20)), ErrorKind::io, "was closed");
  ChildProcess other({"sh", "-c", "exec <&-; exec sleep 60"});  // it hangs up, and stays
  REQUIRE_ERROR(other.write(some, seconds(20)), ErrorKind::io, "by signal 9");
}

TEST_CASE("a program that does not answer is ended in time, with whom it started", "[exec]") {
  ChildProcess child({"sh", "-c", "sleep 60 & echo $! >&0; sleep 60"});
  char text[16] = {};
  for (char& c : text) {
    child.read(std::as_writable_bytes(std::span(&c, 1)), seconds(20));
    if (c == '\n') break;
  }
  pid_t const grandchild = static_cast<pid_t>(std::atoi(text));
  REQUIRE(grandchild > 0);
  CHECK(::kill(grandchild, 0) == 0);
  std::byte one{};
  REQUIRE_ERROR(child.read({&one, 1}, exec::now_ns() + 50'000'000), ErrorKind::timeout, "did not answer in time");
  CHECK_FALSE(child.running());
  bool gone = false;  // whoever adopted it has to wait for it, where anybody does: it may be there as a zombie
  for (std::int64_t const end = seconds(20); !gone && exec::now_ns() < end; ::usleep(10'000)) {
    char path[64], line[256] = {};
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(grandchild));
    int const file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) gone = true;
    else {
      gone = ::read(file, line, sizeof line - 1) <= 0 || std::strstr(line, ") Z ") != nullptr;
      ::close(file);
    }
  }
  CHECK(gone);
}

TEST_CASE("a program that there is not is refused by name", "[exec]") {
  REQUIRE_ERROR(ChildProcess({"/nowhere/at/all"}), ErrorKind::io, "/nowhere/at/all: ");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/file.hpp>
#include <tutti/io/npy.hpp>
#include <tutti/io/safetensors.hpp>
#include <tutti/io/token_shard.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

using namespace tutti;

TEST_CASE("a written file holds the bytes and leaves nothing else behind") {
  test::ScratchFolder const folder;
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65535}, std::size_t{300001}}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + 7);
    io::write_file(folder / "a", bytes);
    CHECK(io::read_file(folder / "a") == bytes);
    Storage<Cpu> const mapped = io::map_file(folder / "a");
    CHECK(mapped.bytes() == size);
    CHECK((size == 0 || std::memcmp(mapped.data(), bytes.data(), size) == 0));
  }
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("two names exchange what they stand for, folders and files") {
  test::ScratchFolder const folder;
  io::make_folder(folder / "a");
  io::make_folder(folder / "b");
  io::write_file(folder / "a/x", "first");
  if (io::exchange_names(folder / "a", folder / "b")) {
    CHECK(io::read_file(folder / "b/x") == "first");
    CHECK(!io::file_exists(folder / "a/x"));
    REQUIRE_ERROR(io::exchange_names(folder / "a", folder / "none"), ErrorKind::io, "none");
  } else CHECK(io::read_file(folder / "a/x") == "first");
}

TEST_CASE("a write that is not committed keeps the old file and removes its own") {
  test::ScratchFolder const folder;
  io::write_file(folder / "a", "old");
  {
    io::AtomicFile file(folder / "a");
    file.write("new");
    CHECK(folder.names().size() == 2);
    CHECK(io::read_file(folder / "a") == "old");
  }
  CHECK(io::read_file(folder / "a") == "old");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("two writers of one name do not meet; the last to commit wins") {
  test::ScratchFolder const folder;
  io::AtomicFile first(folder / "a"), second(folder / "a");
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  CHECK(io::read_file(folder / "a") == "first");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("a new file has the permissions that the process gives to files") {
  test::ScratchFolder const folder;
  mode_t const old = ::umask(027);
  io::write_file(folder / "a", "x");
  ::umask(old);
  struct stat facts {};
  REQUIRE(::stat((folder / "a").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0640);
}

TEST_CASE("refusals of the operating system name the path and the reason") {
  test::ScratchFolder const folder;
  REQUIRE_ERROR(io::read_file(folder / "none"), ErrorKind::io, "none");
  REQUIRE_ERROR(io::read_file(folder / "none"), ErrorKind::io, "No such file");
  REQUIRE_ERROR(io::map_file(folder / "none"), ErrorKind::io, "No such file");
  REQUIRE_ERROR(io::map_file(folder.path()), ErrorKind::io, "not a regular file");
  REQUIRE_ERROR(io::write_file(folder.path(), "x"), ErrorKind::io, "not a regular file");
  REQUIRE_ERROR(io::write_file(folder / "none/a", "x"), ErrorKind::io, "No such file");
}

TEST_CASE("files that cannot be opened are told of at the line of who asked for them") {
  test::ScratchFolder const folder;
  auto const at_this_line = [](auto&& ask, unsigned line) {
    try {
      ask();
    } catch (Error const& error) {
      CAPTURE(error.what());
      CHECK(test::contains(error.where().file_name(), "file.cpp"));
      CHECK(error.where().line() == line);
      return;
    }
    FAIL("must be refused");
  };
  std::string const none = folder / "none";
  at_this_line([&] { io::map_file(none); }, __LINE__);
  at_this_line([&] { io::load_file(none); }, __LINE__);
  at_this_line([&] { io::read_file(none); }, __LINE__);
  at_this_line([&] { io::map_file(folder.path()); }, __LINE__);
  at_this_line([&] { io::write_file(none + "/a", "x"); }, __LINE__);
  at_this_line([&] { io::write_file(folder.path(), "x"); }, __LINE__);
  at_this_line([&] { io::read_npy<float>(none); }, __LINE__);
  at_this_line([&] { io::read_npy_header(none); }, __LINE__);
  at_this_line([&] { io::write_npy(none + "/a", Tensor<float>({1})); }, __LINE__);
  at_this_line([&] { io::Safetensors(std::string(none)); }, __LINE__);
  at_this_line([&] { io::TokenShard(std::string(none)); }, __LINE__);
}

TEST_CASE("a write that the system cuts short is an error that leaves the old file") {
  test::ScratchFolder const folder;
  io::write_file(folder / "a", "old");
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  auto const old_action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = old_limit;
  limit.rlim_cur = 4096;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  bool refused = false;
  try {
    io::write_file(folder / "a", std::string(10000, 'x'));
  } catch (Error const& error) {
    refused = error.kind() == ErrorKind::io && test::contains(error.what(), "untouched");
  }
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_action);
  CHECK(refused);
  CHECK(io::read_file(folder / "a") == "old");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("folders are made with those above them, and may exist") {
  test::ScratchFolder const folder;
  io::make_folder(folder / "a/b/c");
  io::make_folder(folder / "a/b/c");
  io::make_folder(folder / "a/b/d/");
  io::write_file(folder / "a/b/c/file", "x");
  CHECK(io::file_exists(folder / "a/b/c/file"));
  CHECK(io::file_exists(folder / "a/b/d"));
  CHECK(io::folder_exists(folder / "a/b/d"));
  CHECK(!io::folder_exists(folder / "a/b/c/file"));
  CHECK(!io::folder_exists(std::string(5000, 'x')));
  REQUIRE_ERROR(io::make_folder(folder / "a/b/c/file"), ErrorKind::io, "not a folder");
  REQUIRE_ERROR(io::make_folder(folder / "a/b/c/file/d"), ErrorKind::io, "file");
  REQUIRE_ERROR(io::make_folder("/proc/foo"), ErrorKind::io, "Choose a place that may be written");
}

TEST_CASE("a pipe can be read to its end") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], "hello", 5) == 5);
  ::close(ends[1]);
  CHECK(io::read_file("/dev/fd/" + std::to_string(ends[0])) == "hello");
  ::close(ends[0]);
}

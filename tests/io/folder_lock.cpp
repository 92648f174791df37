// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/folder_lock.hpp>

#include "scratch_folder.hpp"
#include "support/catch.hpp"

#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <utility>

using namespace tutti;

TEST_CASE("a folder is held by one, until it is let go, and nothing is left in it") {
  test::ScratchFolder const folder;
  std::string const path = folder / "run";
  io::make_folder(path);
  {
    io::FolderLock held(path);
    REQUIRE_ERROR(io::FolderLock(path), ErrorKind::io, "another program is at work in '" + path + "'");
    io::FolderLock moved;
    moved = std::move(held);
    REQUIRE_ERROR(io::FolderLock(path), ErrorKind::io, "choose another folder");
  }
  io::FolderLock const again(path);
  CHECK(std::filesystem::is_empty(path));
  REQUIRE_ERROR(io::FolderLock(folder / "none"), ErrorKind::io, "cannot open folder");
}

TEST_CASE("a process that dies lets its folder go") {
  test::ScratchFolder const folder;
  std::string const path = folder / "run";
  io::make_folder(path);
  pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    io::FolderLock const held(path);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK_NOTHROW(io::FolderLock(path));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/train/commands.hpp>

#include <fstream>

using namespace tutti;
using namespace tutti::train;
using Kind = Command::Kind;

TEST_CASE("commands are words, and nothing else is one") {
  for (char const* text : {"pause", "continue", "checkpoint", "stop", "drain 00ff"})
    CHECK(to_text(parse_command(text).value()) == text);
  CHECK(parse_command("drain 00ff")->worker == "00ff");
  for (char const* text : {"", "pause ", "Pause", "drain", "drain ", "drain ../x", "drain 1 2", "rm -rf"})
    CHECK(!parse_command(text));
  CHECK(!parse_command("drain " + std::string(65, 'a')));
}

TEST_CASE("a run is asked by a file in its folder: each line once, in order, and not what an earlier run was asked") {
  test::ScratchFolder const folder;
  std::string const out = folder / ".";
  CommandFile::ask(out, {Kind::stop});
  CommandFile file(out);
  Commands commands;
  file.poll(commands);
  CHECK(commands.take().empty());
  CommandFile::ask(out, {Kind::pause});
  CommandFile::ask(out, {Kind::drain, "a1"});
  std::ofstream(CommandFile::path_in(out), std::ios::app) << "nonsense\ncheck";
  file.poll(commands);
  CHECK(commands.take() == std::vector<Command>{{Kind::pause}, {Kind::drain, "a1"}});
  std::ofstream(CommandFile::path_in(out), std::ios::app) << "point\n";
  file.poll(commands);
  file.poll(commands);
  CHECK(commands.take() == std::vector<Command>{{Kind::checkpoint}});
  std::ofstream(CommandFile::path_in(out), std::ios::app) << std::string(10000, 'x') << "\nstop\n";
  for (int i = 0; i < 5; ++i) file.poll(commands);
  CHECK(commands.take() == std::vector<Command>{{Kind::stop}});
  REQUIRE_ERROR(CommandFile::ask("/nonexistent", {Kind::stop}), ErrorKind::io, "/nonexistent/commands");
}

TEST_CASE("who hammers commands is bounded") {
  Commands commands;
  for (int i = 0; i < 5000; ++i) commands.ask({Kind::pause});
  CHECK(commands.take().size() == 1000);
  CHECK(commands.take().empty());
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/metrics.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sys/resource.h>

using namespace tutti;
using train::Metrics;

namespace {

std::filesystem::path file() {
  return std::filesystem::temp_directory_path() / ("tutti-metrics-" + std::to_string(::getpid()) + ".jsonl");
}

std::vector<Metrics::Json> lines() {
  std::vector<Metrics::Json> all;
  std::ifstream in(file());
  for (std::string line; std::getline(in, line);) all.push_back(Metrics::Json::parse(line));
  return all;
}

}  // namespace

TEST_CASE("every object is one line, in order, readable at once") {
  {
    Metrics metrics(file(), -1);
    metrics.write({{"type", "step"}, {"step", 1}, {"loss", 2.5}});
    CHECK(lines().size() == 1);  // flushed before the next write and before the end
    metrics.write({{"type", "sample"}, {"step", 1}, {"text", "two\nlines \xff"}});
  }
  auto const all = lines();
  REQUIRE(all.size() == 2);
  CHECK(all[0]["type"] == "step");
  CHECK(all[1]["text"].get<std::string>().starts_with("two\nlines "));
  CHECK(all[0]["loss"] == 2.5);
  std::filesystem::remove(file());
}

TEST_CASE("numbers that are not finite become null") {
  { Metrics(file(), -1).write({{"type", "step"}, {"loss", std::numeric_limits<double>::quiet_NaN()}}); }
  CHECK(lines().at(0)["loss"].is_null());
  std::filesystem::remove(file());
}

TEST_CASE("resuming keeps the history up to the checkpoint, without what came after, the end line and a torn line") {
  {
    Metrics metrics(file(), -1);
    for (int step = 0; step <= 6; ++step) metrics.write({{"type", "step"}, {"step", step}});
    metrics.write({{"type", "end"}, {"step", 3}});
  }
  // What another program left there is no history, and no reason to fail.
  std::ofstream(file(), std::ios::app) << "3\n[]\n{\"type\":\"step\",\"step\":\"one\"}\n{\"type\":\"step\",\"st";
  { Metrics(file(), 3).write({{"type", "step"}, {"step", 4}}); }
  auto const all = lines();
  REQUIRE(all.size() == 5);
  for (int step = 0; step <= 4; ++step) CHECK(all[static_cast<std::size_t>(step)]["step"] == step);
  std::filesystem::remove(file());
}

TEST_CASE("a line that does not fit is taken back: what follows it is a line of its own") {
  struct rlimit former {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &former) == 0);
  auto const handler = std::signal(SIGXFSZ, SIG_IGN);
  Metrics metrics(file(), -1);
  metrics.write({{"type", "step"}, {"step", 1}});
  struct rlimit small = former;
  small.rlim_cur = std::filesystem::file_size(file()) + 10;  // as a disk with so much room
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  bool refused = false;
  try {
    metrics.write({{"type", "step"}, {"step", 2}});
  } catch (Error const& error) {
    refused = error.kind() == ErrorKind::io;
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &former) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(refused);
  metrics.write({{"type", "end"}, {"step", 2}});
  auto const all = lines();
  REQUIRE(all.size() == 2);
  CHECK(all[1]["type"] == "end");
  std::filesystem::remove(file());
}

TEST_CASE("without a path nothing is written, and an impossible path gets a sentence") {
  Metrics().write({{"type", "step"}});
  REQUIRE_ERROR(Metrics("/nonexistent/metrics.jsonl", -1), ErrorKind::io, "choose another --out");
}

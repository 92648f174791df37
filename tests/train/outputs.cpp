// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/outputs.hpp> <tutti/train/run_outputs.hpp> <tutti/train/viewers.hpp>
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/io/json.hpp>
#include <tutti/train/run_outputs.hpp>

using namespace tutti;
using namespace tutti::train;
using Json = Registry::Json;

namespace {

Json start_of(std::int64_t steps) {
  return {{"type", "start"}, {"step", 0}, {"steps", steps}, {"tokens_per_step", 100}};
}
Json step_of(std::int64_t step, double speed) {
  return {{"type", "step"}, {"step", step},  {"loss", 2.5},         {"grad_norm", 1.0},
          {"lr", 1e-3},     {"ms", 10.0},    {"mfu", 0.5},          {"tokens_per_second", speed},
          {"exposed_comm_ms", 1.0}};
}

}  // namespace

TEST_CASE("step lines come from records alone: the first step's speed does not count, and time is left for the rest") {
  StepLines lines;
  lines.begin(start_of(10));
  CHECK(lines.report(step_of(1, 50)).tokens_per_second == 50);  // as there is no other
  StepReport const second = lines.report(step_of(2, 100));
  CHECK(second.tokens_per_second == Approx(100));
  CHECK(second.seconds_left == Approx(8.0));
  CHECK(lines.report(step_of(3, 200)).tokens_per_second == Approx((0.95 * 100 + 200) / 1.95));
  Json unknown = step_of(4, 100);
  unknown["loss"] = nullptr;
  CHECK(std::isnan(lines.report(unknown).loss));
  lines.begin(start_of(10));  // resumed
  CHECK(lines.report(step_of(1, 70)).tokens_per_second == 70);
}

TEST_CASE("one run feeds the log, metrics, status and TensorBoard, and each has what is its own") {
  test::ScratchFolder const folder;
  {
    RunOutputs outputs;
    outputs.open({.out = folder.path(), .tensorboard = true}, {});
    CHECK(!outputs.drawn());
    outputs.line("a line of outputs.cpp");
    outputs.record(start_of(3));
    outputs.phase("training");
    outputs.record(step_of(1, 50));
    {
      InPhase const phase(outputs, "validating");
      CHECK(outputs.registry().get("phase") == "validating");
      outputs.record({{"type", "validation"}, {"step", 1}, {"loss", 2.25}, {"bits_per_byte", nullptr}});
    }
    outputs.record({{"type", "sample"}, {"step", 1}, {"text", "words"}});
    CHECK(outputs.registry().get("phase") == "training");
    CHECK(outputs.registry().get("step/loss") == 2.5);
  }
  std::string const metrics = io::read_file(folder / "metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 4);
  CHECK(!test::contains(metrics, "a line of"));
  Json const status = io::parse_json(io::read_file(folder / "status.json"), "status.json");
  CHECK(status.at("phase") == "training");
  CHECK(status.at("time").get<double>() > 1.6e9);
  std::string events;
  for (auto const& entry : std::filesystem::directory_iterator(folder / "tensorboard"))
    events += io::read_file(entry.path().string());
  for (char const* tag : {"train/loss", "train/tokens_per_second", "validation/loss", "sample"}) {
    INFO(tag);
    CHECK(test::contains(events, tag));
  }
  for (char const* tag : {"bits_per_byte", "start/", "train/step"}) CHECK(!test::contains(events, tag));
}

TEST_CASE("what watchers ask for arrives, by the file and by the program") {
  test::ScratchFolder const folder;
  RunOutputs outputs;
  Commands* commands = nullptr;
  Viewers viewers;
  viewers.page = [&](WatchedRun const& run, int port) {
    commands = &run.commands;
    CHECK(port == 0);
    CHECK(run.folder == folder.path());
    return std::make_shared<int>(1);
  };
  outputs.open({.out = folder.path(), .dashboard_port = 0}, viewers);
  REQUIRE(commands != nullptr);
  using Kind = Command::Kind;
  commands->ask({Kind::pause});
  commands->ask({Kind::checkpoint});
  CommandFile::ask(folder.path(), {Kind::drain, "ab"});
  outputs.poll();
  CHECK(outputs.paused());
  CHECK(outputs.registry().get("paused") == true);
  CHECK(outputs.take_checkpoint());
  CHECK(!outputs.take_checkpoint());
  CHECK(outputs.take_drains() == std::vector<std::string>{"ab"});
  commands->ask({Kind::go_on});
  commands->ask({Kind::stop});
  outputs.poll();
  CHECK(!outputs.paused());
  CHECK(outputs.stop());
}

TEST_CASE("a view with which the program was not built gets a sentence, and nothing is begun") {
  test::ScratchFolder const folder;
  RunOutputs outputs;
  REQUIRE_ERROR(outputs.open({.out = folder.path(), .dashboard = true}, {}), ErrorKind::unavailable,
                "--dashboard: this program was built without ncurses");
  REQUIRE_ERROR(outputs.open({.out = folder.path(), .dashboard_port = 0}, {}), ErrorKind::unavailable, "cpp-httplib");
  CHECK(folder.names().empty());
}

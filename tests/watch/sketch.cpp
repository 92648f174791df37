// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/watch/sketch.hpp> <tutti/watch/picture.hpp> <tutti/watch/source.hpp>
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/train/outputs.hpp>
#include <tutti/watch/source.hpp>

#include <fstream>
#include <random>

using namespace tutti;
using namespace tutti::watch;
using Json = nlohmann::json;

namespace {

/// As a trainer's run has written them: tests/train/trainer.py makes sure that it does.
char const* const trainers[] = {
    R"({"algorithm":"diloco","backend":"mpi","device":"cpu","isa":"avx2","micro_steps":1,)"
    R"("model":{"channels":32,"heads":4,"layers":2},"parameters":29248,"peak_gflops":100.5,)"
    R"("processor":"Xeon","prompt":"","ranks":2,"rows":2,"seed":42,"step":0,"steps":10,"threads":1,)"
    R"("tokens_per_step":128,"type":"start"})",
    R"({"bits_per_byte":2.5,"loss":4.25,"predictions":256,"step":0,"type":"validation"})",
    R"({"exposed_comm_ms":0.5,"grad_norm":1.5,"loss":4.0,"lr":0.001,"mfu":0.1,"ms":20.0,"step":1,)"
    R"("tokens_per_second":6400.0,"type":"step"})",
    R"({"exposed_comm_ms":0.5,"grad_norm":1.4,"loss":3.5,"lr":0.002,"mfu":0.2,"ms":10.0,"step":2,)"
    R"("tokens_per_second":12800.0,"type":"step"})",
    R"({"path":"runs/x/checkpoints/step_00000002","step":2,"type":"checkpoint"})",
    R"({"step":2,"text":"two\nlines \u001b[31m","type":"sample"})"};
char const* const end = R"({"reason":"done","seconds":1.5,"step":10,"stopped":false,"type":"end"})";

char const* const shepherds[] = {
    R"({"model":{"architecture":"gpt2","layers":2},"parameters":1000,"port":8080,"prompt":"",)"
    R"("samples":100,"seed":1,"step":0,"type":"start","workers":2})",
    R"({"event":"joined","step":0,"type":"worker","why":"","worker":"00000000deadbeef"})",
    R"({"bytes_received":100,"bytes_sent":200,"late":0,"loss":3.0,"members":2,"samples":25,)"
    R"("seconds":2.0,"step":1,"tokens_per_second":500.0,"type":"outer_step","workers":2})",
    R"({"bytes_received":300,"bytes_sent":400,"late":1,"loss":2.5,"members":2,"samples":50,)"
    R"("seconds":2.0,"step":2,"tokens_per_second":500.0,"type":"outer_step","workers":2})"};

}  // namespace

TEST_CASE("a trainer's records become its picture") {
  Sketch sketch("runs/x");
  for (char const* line : trainers) sketch.record(Json::parse(line));
  sketch.value("phase", "training");
  sketch.value("inner", {{"steps", 4}});
  sketch.value("machine", {{"cpu", 1.5}, {"memory", 2e9}, {"available", 8e9}});
  sketch.value("workers", Json::array({{{"name", "rank 0"}, {"cpu", 0.75}, {"device", "cpu"}}, 7, "no object"}));
  Picture const p = sketch.picture();
  CHECK(p.name == "runs/x");
  CHECK(p.model == "gpt2, 2 layers, 32 channels, 29,248 parameters");
  CHECK(p.place == "2 ranks of 1 thread by mpi, diloco, cpu, Xeon");
  CHECK((p.step == 2 && p.steps == 10 && !p.federated && !p.ended));
  CHECK(p.done == Approx(0.2));
  CHECK(p.loss == 3.5);
  CHECK(p.validation_loss == 4.25);
  CHECK(p.tokens_per_second == Approx(12800));  // the first step's does not count
  CHECK(p.seconds_left == Approx(8 * 128 / 12800.0));
  CHECK(p.trained_seconds == Approx(0.03));
  CHECK((p.inner_step == 2 && p.inner_steps == 4 && p.outer_step == 0));
  CHECK(p.cpu == 1.5);
  REQUIRE(p.workers.size() == 1);
  CHECK((p.workers[0].name == "rank 0" && p.workers[0].cpu == 0.75 && p.workers[0].memory == -1));
  CHECK(p.losses.size() == 2);
  CHECK(p.validations.size() == 1);
  REQUIRE(p.events.size() == 4);
  sketch.value("compiled", {{"seconds", 0.0125}, {"workspace", 2e6}});
  CHECK(sketch.picture().events.at(1) == "compiled in 12.5 ms, 2.0 MB of workspace a rank");
  CHECK(p.events[1] == "step 0: validation loss 4.2500, 2.5000 bits per byte");
  CHECK(p.events[3] == "step 2: sample: two lines  [31m");  // nothing that a terminal obeys
  sketch.value("paused", true);
  sketch.value("paused", true);
  sketch.record(Json::parse(end));
  Picture const last = sketch.picture();
  CHECK((last.paused && last.ended && last.reason == "done"));
  CHECK(last.events.size() == 7);
}

TEST_CASE("a shepherd's records become its picture, with the time that is left by samples") {
  Sketch sketch("runs/f");
  for (char const* line : shepherds) sketch.record(Json::parse(line));
  sketch.value("round", {{"delivered", 1}, {"working", 3}, {"quorum", 2}});
  Picture const p = sketch.picture();
  CHECK(p.federated);
  CHECK((p.step == 2 && p.loss == 2.5 && p.sent == 400 && p.received == 300));
  CHECK(p.done == Approx(0.5));
  CHECK(p.seconds_left == Approx(4.0));
  CHECK((p.delivered == 1 && p.working == 3 && p.quorum == 2));
  CHECK(p.events[1] == "worker beef joined");
  CHECK(p.events.back() == "outer step 2: 1 of 2 contributions were late");
}

TEST_CASE("a run that goes on draws its curve from there again") {
  Sketch sketch;
  auto const step = [&](int at, double loss) { sketch.record({{"type", "step"}, {"step", at}, {"loss", loss}}); };
  for (int at = 1; at <= 6; ++at) step(at, 5.0);
  sketch.record({{"type", "start"}, {"step", 3}, {"steps", 10}});
  step(4, 2.0);
  auto const points = sketch.picture().losses;
  REQUIRE(points.size() == 4);
  CHECK((points[3].step == 4 && points[3].value == 2.0));
}

TEST_CASE("a picture travels as JSON and arrives as it was") {
  Sketch sketch("runs/x");
  for (char const* line : trainers) sketch.record(Json::parse(line));
  sketch.value("workers", Json::array({{{"name", "ab12"}, {"sent", 5}, {"step", 3}}}));
  Json const sent = Json::parse(to_json(sketch.picture()).dump());
  CHECK(to_json(picture_of(sent)) == sent);
  CHECK(picture_of(sent).workers.at(0).step == 3);
}

TEST_CASE("no JSON makes a picture throw: what is of another type, missing, endless or not finite is as unknown") {
  std::mt19937 random(7);
  auto const damaged = [&](Json row) {
    Json const others[] = {nullptr, true, -1e300, 1e300, "text", Json::array({1, Json::object()}), Json::object(), -1,
                           std::uint64_t{1} << 63, std::string(100000, 'x'), "\xff\xfe", Json::array()};
    for (auto& [key, value] : row.items())
      if (key != "type" && random() % 2 == 0) value = others[random() % std::size(others)];
    return row;
  };
  Sketch sketch;
  for (int i = 0; i < 500; ++i) {
    for (char const* line : trainers) sketch.record(damaged(Json::parse(line)));
    for (char const* line : shepherds) sketch.record(damaged(Json::parse(line)));
    sketch.record(damaged(Json::parse(end)));
    for (char const* name : {"phase", "paused", "stopping", "time", "workers", "machine", "inner", "round", "traffic",
                             "compiled"})
      sketch.value(name, damaged({{"x", 1}}).at("x"));
    sketch.value("machine", damaged({{"cpu", 1}, {"memory", 2}}));
    sketch.value("workers", Json::array({damaged({{"name", "a"}, {"cpu", 1}, {"step", 2}})}));
    Json json = to_json(sketch.picture());
    static_cast<void>(picture_of(damaged(json)));
  }
  for (Json const& row : {Json(), Json(3), Json::array(), Json::object(), Json{{"type", 3}}}) sketch.record(row);
  static_cast<void>(picture_of(Json::array()));
  CHECK(sketch.picture().events.size() <= 200);
  CHECK(sketch.picture().losses.size() <= 512);
}

TEST_CASE(
    "a folder is followed while it is written: half lines wait, a run that goes on is read anew, status is seen") {
  test::ScratchFolder const folder;
  REQUIRE_ERROR(FolderSource(folder / "none"), ErrorKind::io, "there is no folder");
  REQUIRE_ERROR(FolderSource(folder.path()), ErrorKind::io, "holds no metrics.jsonl");
  {
    train::Metrics metrics(folder / "metrics.jsonl", -1);
    for (char const* line : trainers) metrics.write(Json::parse(line));
  }
  FolderSource source(folder.path());
  CHECK(source.picture().step == 2);
  std::string const more = R"({"type":"step","step":3,"loss":3.25,"ms":1.0})";
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << more.substr(0, 20);
  CHECK(source.picture().step == 2);
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << more.substr(20) << "\nno JSON\n";
  CHECK(source.picture().step == 3);
  CHECK(source.picture().phase.empty());
  {
    train::Registry registry;
    train::StatusFile const status(registry, folder / "status.json");
    registry.set("phase", "validating");
    Picture const p = source.picture();
    CHECK(p.phase == "validating");
    CHECK(p.time > 1.6e9);
  }
  { train::Metrics(folder / "metrics.jsonl", 1).write({{"type", "start"}, {"step", 1}, {"steps", 10}}); }
  CHECK(source.picture().step == 1);
  CHECK(source.picture().losses.size() == 1);
  source.ask({train::Command::Kind::pause});
  CHECK(io::read_file(folder / "commands") == "pause\n");
}

TEST_CASE("a run of this program is followed, and asked") {
  train::Registry registry;
  train::Commands commands;
  LiveSource source({registry, commands, "runs/x"});
  for (char const* line : trainers) registry.record(Json::parse(line));
  registry.set("phase", "training");
  registry.line("WARNING: little data");
  registry.line("any other line");
  Picture const p = source.picture();
  CHECK((p.step == 2 && p.phase == "training" && p.name == "runs/x"));
  CHECK(p.events.back() == "WARNING: little data");
  CHECK(source.hidden_lines() == std::vector<std::string>{"WARNING: little data", "any other line"});
  source.ask({train::Command::Kind::stop});
  CHECK(commands.take() == std::vector<train::Command>{{train::Command::Kind::stop}});
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/checkpoint_folders.hpp> <tutti/train/stored_checkpoint.hpp> <tutti/train/tensor_hashes.hpp>
// Covers: <tutti/train/checkpoint_writer.hpp>
// Covers: <tutti/train/checkpoint_parts.hpp>
// Covers: <tutti/train/state_files.hpp>
#include "support/catch.hpp"

#include <tutti/graph/builder.hpp>
#include <tutti/graph/ops.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/checkpoint_parts.hpp>
#include <tutti/train/checkpoint_writer.hpp>
#include <tutti/train/state_files.hpp>

#include <sys/resource.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

using namespace tutti;
using namespace tutti::train;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tutti-checkpoint-" + std::to_string(::getpid()));
  Folder() { fs::remove_all(path); fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

struct Contents {
  Tensor<float> weight = full<float>({2, 3}, 1.5f), moment = full<float>({2, 3}, 0.25f);
  CheckpointContents at(std::int64_t step) {
    weight(0, 0) = float(step);
    return {.step = step,
            .parameters = {io::named("weight", weight.view())},
            .optimizer = {io::named("m.weight", moment.view())},
            .facts = {{"model", {{"layers", 2}}}},
            .tokenizer = "{}"};
  }
};

void flip_byte(fs::path const& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  int const byte = file.get();
  file.seekp(-from_end, std::ios::end);
  file.put(char(byte ^ 0x10));
}

}  // namespace

TEST_CASE("what was saved comes back, and only so many checkpoints stay") {
  Folder folder;
  Contents contents;
  for (std::int64_t step : {10, 20, 30, 40}) save_checkpoint(folder.path, contents.at(step), 2);
  CHECK(!fs::exists(folder.path / "checkpoints" / "step_00000020"));
  for (std::int64_t step : {30, 40}) {
    Checkpoint const checkpoint(find_checkpoint(folder.path, std::to_string(step)));
    CHECK(checkpoint.step() == step);
    CHECK(checkpoint.parameters().view<float>("weight")(0, 0) == float(step));
    CHECK(checkpoint.optimizer().view<float>("m.weight")(1, 2) == 0.25f);
    CHECK(checkpoint.facts().at("model").at("layers") == 2);
    CHECK(io::read_file((checkpoint.folder() / "tokenizer.json").string()) == "{}");
  }
  CHECK(Checkpoint(find_checkpoint(folder.path, "latest")).step() == 40);
  CHECK(Checkpoint(find_checkpoint({}, (folder.path / "checkpoints" / "step_00000030").string())).step() == 30);
}

TEST_CASE("what a crash left while checkpoints were written or removed goes with the next one") {
  Folder folder;
  Contents contents;
  save_checkpoint(folder.path, contents.at(5), 2);
  for (char const* name : {".step_00000003.partial", ".step_00000007.partial"})
    fs::create_directories(folder.path / "checkpoints" / name / "inside");
  save_checkpoint(folder.path, contents.at(10), 2);
  std::set<std::string> names;
  for (auto const& entry : fs::directory_iterator(folder.path / "checkpoints"))
    names.insert(entry.path().filename().string());
  CHECK(names == std::set<std::string>{"step_00000005", "step_00000010"});
}

TEST_CASE("saving a step again replaces it") {
  Folder folder;
  Contents contents;
  save_checkpoint(folder.path, contents.at(5), 3);
  contents.moment.fill(8.0f);
  save_checkpoint(folder.path, contents.at(5), 3);
  CHECK(Checkpoint(find_checkpoint(folder.path, "5")).optimizer().view<float>("m.weight")(0, 0) == 8.0f);
}

TEST_CASE("while a step is saved again there is a complete checkpoint of it at every moment") {
  Folder folder;
  Contents contents;
  fs::path const target = save_checkpoint(folder.path, contents.at(5), 3);
  // Where names cannot be exchanged, a search finds the former folder between two renames instead.
  for (char const* name : {"one", "other"}) fs::create_directory(folder.path / name);
  bool const exchanges = io::exchange_names((folder.path / "one").string(), (folder.path / "other").string());
  std::atomic<bool> over{false};
  std::int64_t looked = 0, absent = 0;
  std::thread reader([&] {
    for (; !over; ++looked) {
      std::error_code ignored;
      absent +=
          !fs::exists(target / "COMPLETE", ignored) &&
          (exchanges || (!fs::exists(folder.path / "checkpoints" / ".step_00000005.former" / "COMPLETE", ignored) &&
                         !fs::exists(target / "COMPLETE", ignored)));
    }
  });
  for (int i = 0; i < 30; ++i) save_checkpoint(folder.path, contents.at(5), 3);
  over = true;
  reader.join();
  INFO("looked " << looked << " times");
  CHECK(looked > 30);
  CHECK(absent == 0);
}

TEST_CASE("a checkpoint whose replacement was cut short between two renames is found, saved again and removed") {
  Folder folder;
  Contents contents;
  save_checkpoint(folder.path, contents.at(4), 0);
  fs::path const target = save_checkpoint(folder.path, contents.at(5), 0);
  fs::path const former = target.parent_path() / ".step_00000005.former";
  fs::rename(target, former);
  CHECK(find_checkpoint(folder.path, "latest") == former);
  CHECK(Checkpoint(find_checkpoint(folder.path, "5")).step() == 5);
  fs::create_directory(target);  // as an interrupted program of an earlier version left it
  CHECK(find_checkpoint(folder.path, "latest") == former);
  contents.moment.fill(8.0f);
  save_checkpoint(folder.path, contents.at(5), 0);
  CHECK(find_checkpoint(folder.path, "latest") == target);
  CHECK(Checkpoint(target).optimizer().view<float>("m.weight")(0, 0) == 8.0f);
  CHECK(!fs::exists(former));
  fs::rename(target, former);
  save_checkpoint(folder.path, contents.at(6), 1);
  CHECK(!fs::exists(former));
}

TEST_CASE("what lies beyond the step that a run goes on from is set aside, whole, and found by its path alone") {
  Folder folder;
  Contents contents;
  for (std::int64_t step : {1, 2, 3}) save_checkpoint(folder.path, contents.at(step), 0);
  CHECK(set_checkpoints_aside(folder.path, 3).empty());
  CHECK(set_checkpoints_aside(folder.path, 1) ==
        std::vector<std::string>{"superseded_step_00000002", "superseded_step_00000003"});
  CHECK(Checkpoint(find_checkpoint(folder.path, "latest")).step() == 1);
  save_checkpoint(folder.path, contents.at(2), 0);
  CHECK(set_checkpoints_aside(folder.path, 0).back() == "superseded_step_00000002_2");
  REQUIRE_ERROR(find_checkpoint(folder.path, "latest"), ErrorKind::io, "no complete checkpoint");
  for (char const* name : {"superseded_step_00000002", "superseded_step_00000002_2"})
    CHECK(Checkpoint(find_checkpoint({}, (folder.path / "checkpoints" / name).string())).step() == 2);
  save_checkpoint(folder.path, contents.at(9), 0);
  remove_checkpoints(folder.path);
  CHECK(!fs::exists(folder.path / "checkpoints" / "step_00000009"));
  CHECK(fs::exists(folder.path / "checkpoints" / "superseded_step_00000003"));
}

TEST_CASE("a checkpoint that cannot be written leaves nothing behind and takes no other away") {
  Folder folder;
  Contents contents;
  fs::path const first = save_checkpoint(folder.path, contents.at(1), 1);
  CheckpointContents broken = contents.at(2);
  io::NamedTensor twice = broken.parameters.front();
  broken.optimizer.push_back(twice);
  broken.optimizer.push_back(twice);  // a name stands in a file once
  CHECK_THROWS_AS(save_checkpoint(folder.path, broken, 1), Error);
  CHECK(Checkpoint(first).step() == 1);
  std::vector<std::string> names;
  for (auto const& entry : fs::directory_iterator(folder.path / "checkpoints"))
    names.push_back(entry.path().filename().string());
  CHECK(names == std::vector<std::string>{"step_00000001"});
}

TEST_CASE("an interrupted, damaged, foreign or missing checkpoint gets a sentence") {
  Folder folder;
  Contents contents;
  REQUIRE_ERROR(find_checkpoint(folder.path, "latest"), ErrorKind::io, "no complete checkpoint");
  fs::path const first = save_checkpoint(folder.path, contents.at(1), 0);
  fs::path const second = save_checkpoint(folder.path, contents.at(2), 0);
  fs::create_directories(folder.path / "checkpoints" / "step_9");  // no name that a run gives
  std::ofstream(folder.path / "checkpoints" / "step_9" / "COMPLETE") << "";
  CHECK(find_checkpoint(folder.path, "latest") == second);
  REQUIRE_ERROR(find_checkpoint(folder.path, "7"), ErrorKind::io, "1, 2");
  REQUIRE_ERROR(find_checkpoint(folder.path, "99999999999999999999"), ErrorKind::io, "not among");
  REQUIRE_ERROR(find_checkpoint(folder.path, "elsewhere"), ErrorKind::io, "not the folder of a checkpoint");

  fs::remove(second / "COMPLETE");
  REQUIRE_ERROR(find_checkpoint(folder.path, second.string()), ErrorKind::io, "interrupted");
  REQUIRE_ERROR(find_checkpoint({}, folder.path.string()), ErrorKind::io, "is the folder of a run");
  fs::path const other = folder.path / "other";
  fs::create_directory(other);
  REQUIRE_ERROR(find_checkpoint({}, other.string()), ErrorKind::io, "is not a checkpoint: there is no checkpoint.json");
  REQUIRE_ERROR(find_checkpoint({}, "-1"), ErrorKind::io, "'-1' is not the folder of a checkpoint");
  CHECK(find_checkpoint(folder.path, "latest") == first);

  flip_byte(first / "optimizer.safetensors", 2);
  REQUIRE_ERROR(Checkpoint(first), ErrorKind::format, "damaged: optimizer");
  flip_byte(first / "optimizer.safetensors", 2);
  CHECK(Checkpoint(first).step() == 1);
  fs::resize_file(first / "parameters.safetensors", fs::file_size(first / "parameters.safetensors") - 1);
  REQUIRE_ERROR(Checkpoint(first), ErrorKind::format, "parameters.safetensors");
  save_checkpoint(folder.path, contents.at(1), 0);

  for (auto [text, part] : std::initializer_list<std::pair<char const*, char const*>>{
           {"not json", "checkpoint.json"},
           {"{}", "lacks a fact"},
           {R"({"format": "other", "version": 1, "step": 1})", "not a checkpoint of tutti"},
           {R"({"format": "tutti checkpoint", "version": 99, "step": 1})", "version 99"}}) {
    io::write_file((first / "checkpoint.json").string(), text);
    REQUIRE_ERROR(Checkpoint(first), ErrorKind::format, part);
  }
}

TEST_CASE("a description, a marker or a tokenizer that was changed, and a folder under another name, are refused") {
  Folder folder;
  Contents contents;
  fs::path const saved = save_checkpoint(folder.path, contents.at(3), 0);
  std::string const good = io::read_file((saved / "checkpoint.json").string());
  auto const changed = [&](std::string const& from, std::string const& to, char const* part) {
    std::string bad = good;
    REQUIRE(bad.find(from) != std::string::npos);
    bad.replace(bad.find(from), from.size(), to);
    io::write_file((saved / "checkpoint.json").string(), bad);
    REQUIRE_ERROR(Checkpoint(saved), ErrorKind::format, part);
    io::write_file((saved / "checkpoint.json").string(), good);
  };
  changed("\"step\": 3", "\"step\": 900", "checkpoint.json is not what was saved");
  changed("\"layers\": 2", "\"layers\": 4", "checkpoint.json is not what was saved");
  changed("}\n", "}", "checkpoint.json is not what was saved");
  changed("}\n", std::string("}\0trailing junk {", 16), "zero byte");
  io::write_file((saved / "tokenizer.json").string(), "[]");
  REQUIRE_ERROR(Checkpoint(saved), ErrorKind::format, "tokenizer.json is not what was saved");
  fs::remove(saved / "tokenizer.json");
  REQUIRE_ERROR(Checkpoint(saved), ErrorKind::format, "tokenizer.json is not what was saved");
  io::write_file((saved / "tokenizer.json").string(), "{}");
  CHECK(Checkpoint(saved).tokenizer() == "{}");

  fs::copy(saved, saved.parent_path() / "step_00000900");
  REQUIRE_ERROR(Checkpoint(find_checkpoint(folder.path, "latest")), ErrorKind::format, "holds step 3");
  fs::rename(saved.parent_path() / "step_00000900", folder.path / "kept");
  CHECK(Checkpoint(find_checkpoint({}, (folder.path / "kept").string())).step() == 3);
  io::write_file((saved / "COMPLETE").string(), "");
  REQUIRE_ERROR(Checkpoint(saved), ErrorKind::format, "checkpoint.json is not what was saved");
}

TEST_CASE("tensors that are loaded one at a time make the checkpoint of those in memory, beside training too") {
  Folder folder;
  Contents contents;
  save_checkpoint(folder.path, contents.at(1), 0);
  auto const load = [&](io::NamedTensor const& tensor) -> void const* {
    if (tensor.name == "broken") throw Error(ErrorKind::communication, "load", "nobody has it");
    return tensor.name == "weight" ? contents.weight.data() : contents.moment.data();
  };
  auto const without_data = [&](std::int64_t step) {
    CheckpointContents made = contents.at(step);
    for (auto* const list : {&made.parameters, &made.optimizer})
      for (io::NamedTensor& tensor : *list) tensor.data = nullptr;
    made.load = load;
    return made;
  };
  auto const bytes = [](fs::path const& path) {
    return io::read_file((path / "parameters.safetensors").string()) +
           io::read_file((path / "optimizer.safetensors").string()) +
           io::read_file((path / "checkpoint.json").string());
  };
  std::string const wanted = bytes(find_checkpoint(folder.path, "1"));
  CHECK(bytes(save_checkpoint(folder.path, without_data(1), 0)) == wanted);
  CheckpointWriter writer;
  writer.begin(folder.path, without_data(1), 0);
  contents.weight.fill(-1);
  CHECK(bytes(writer.finish()->folder) == wanted);
  CheckpointContents broken = without_data(2);
  broken.optimizer.push_back({"broken", DType::float32, Shape{2}, nullptr});
  REQUIRE_ERROR(save_checkpoint(folder.path, broken, 0), ErrorKind::communication, "nobody has it");
  CHECK(train::detail::complete_steps(folder.path) == std::vector<std::int64_t>{1});
}

TEST_CASE("a failed save leaves the older checkpoint as it was") {
  Folder folder;
  Contents contents;
  save_checkpoint(folder.path, contents.at(1), 1);
  auto bad = contents.at(2);
  bad.parameters.push_back(bad.parameters.front());  // the same name twice
  CHECK_THROWS_AS(save_checkpoint(folder.path, bad, 1), Error);
  CHECK(Checkpoint(find_checkpoint(folder.path, "latest")).step() == 1);
}

TEST_CASE("a checkpoint that is written beside training has what was there when it began") {
  Folder folder;
  Contents contents;
  CheckpointWriter writer;
  CHECK(!writer.ready());
  CHECK(!writer.finish());
  for (std::int64_t step : {10, 20}) {
    writer.begin(folder.path, contents.at(step), 0);
    contents.at(99);  // training goes on
    REQUIRE_ERROR(writer.begin(folder.path, contents.at(step + 1), 0), ErrorKind::invalid_argument,
                  "Call finish first");
    while (!writer.ready()) std::this_thread::yield();
    std::optional<CheckpointWriter::Written> const written = writer.finish();
    REQUIRE(written);
    CHECK(written->step == step);
    CHECK(written->folder == folder.path / "checkpoints" / ("step_000000" + std::to_string(step)));
    Checkpoint const checkpoint(written->folder);
    CHECK(checkpoint.parameters().view<float>("weight")(0, 0) == float(step));
    CHECK(checkpoint.optimizer().view<float>("m.weight")(1, 2) == 0.25f);
    CHECK(!writer.finish());
  }
  std::ofstream(folder.path / "file") << "no folder";
  writer.begin(folder.path / "file", contents.at(30), 0);
  REQUIRE_ERROR(writer.finish(), ErrorKind::io, "file");
  writer.begin(folder.path, contents.at(40), 0);
  CHECK(writer.finish()->step == 40);
}

namespace {

/// The runs of rank `rank` of two, which take turns at every four bytes.
std::vector<CheckpointRun> every_other_word(CheckpointContents const& contents, int rank) {
  std::vector<CheckpointRun> runs;
  for (int file = 0; file < 2; ++file) {
    auto const& tensors = contents.tensors(file);
    auto const begins = io::safetensors_places(tensors).begins;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      for (std::int64_t at = 4 * rank; at < static_cast<std::int64_t>(tensors[i].bytes()); at += 8)
        runs.push_back({file, begins[i] + static_cast<std::uint64_t>(at),
                        static_cast<std::byte const*>(tensors[i].data) + at, 4});
  }
  return runs;
}

}  // namespace

TEST_CASE("a checkpoint that ranks write in parts has the bytes of one that a single rank writes") {
  Folder const folder;
  Contents contents;
  fs::path const whole = save_checkpoint(folder.path / "whole", contents.at(7), 0);
  for (bool const beside : {false, true}) {
    fs::path const out = folder.path / (beside ? "beside" : "at once");
    CheckpointContents const described = contents.at(7);
    UnfinishedCheckpoint aside(out, 7);
    make_room(aside, described);
    aside.sign("17");
    CheckpointPart parts[2];
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(parts[rank].open(aside.folder(), "17"));
      parts[rank].write(every_other_word(described, rank), beside);
    }
    // What was copied is the caller's again.
    if (beside) std::fill(contents.weight.begin(), contents.weight.end(), -1.0f);
    for (CheckpointPart& part : parts) {
      part.finish();
      CHECK(part.status() == CheckpointPart::Status::idle);
    }
    CHECK(train::detail::complete_steps(out).empty());
    fs::path const saved = complete_parts(aside, described, 0);
    CHECK(saved == out / "checkpoints" / "step_00000007");
    CHECK(Checkpoint(saved).step() == 7);
    for (auto const& entry : fs::directory_iterator(whole)) {
      INFO(entry.path().filename());
      CHECK(io::read_file(entry.path().string()) == io::read_file((saved / entry.path().filename()).string()));
    }
  }
}

TEST_CASE("a rank that does not see the folder, or cannot write its part, says so, and nothing stays") {
  Folder const folder;
  Contents contents;
  CheckpointContents const described = contents.at(3);
  CheckpointPart part;
  CHECK_FALSE(part.open(folder.path / "elsewhere", "17"));
  {
    UnfinishedCheckpoint aside(folder.path, 3);
    make_room(aside, described);
    CHECK_FALSE(part.open(aside.folder(), "17"));
    aside.sign("16");  // as a killed run left it on a disk of this rank's
    CHECK_FALSE(part.open(aside.folder(), "17"));
    aside.sign("17");
    REQUIRE(part.open(aside.folder(), "17"));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit former{};
    ::getrlimit(RLIMIT_FSIZE, &former);
    rlimit const small{64, former.rlim_max};  // as a disk that is full
    ::setrlimit(RLIMIT_FSIZE, &small);
    part.write(every_other_word(described, 0), true);
    while (part.writing()) std::this_thread::yield();
    ::setrlimit(RLIMIT_FSIZE, &former);
    CHECK(part.status() == CheckpointPart::Status::failed);
    REQUIRE_ERROR(part.finish(), ErrorKind::io, "cannot write this rank's part of");
  }
  CHECK(fs::is_empty(folder.path / "checkpoints"));
  save_checkpoint(folder.path, described, 0);
  CHECK(train::detail::complete_steps(folder.path).size() == 1);
}

TEST_CASE("replicas of ranks join the checkpoint, and one that was changed or written elsewhere is told of") {
  Folder folder;
  Contents contents;
  CheckpointContents saved = contents.at(3);
  Tensor<float> own = full<float>({4}, 0.0f);
  std::vector<io::NamedTensor> const tensors{io::named("replica.weight", own.view())};
  for (int rank = 0; rank < 3; ++rank) {
    own(1) = float(rank);
    saved.replicas.push_back(save_replica(folder.path, 3, rank, tensors));
  }
  fs::path const at = save_checkpoint(folder.path, saved, 0);
  Checkpoint const back(at);
  CHECK(back.replicas() == 3);
  for (int rank = 0; rank < 3; ++rank) CHECK(back.replica(rank).view<float>("replica.weight")(1) == float(rank));
  CHECK(!fs::exists(folder.path / "checkpoints" / ".step_00000003.replicas"));

  fs::remove(at / "replica_00002.safetensors");
  fs::copy_file(at / "replica_00001.safetensors", at / "replica_00002.safetensors");
  CHECK_THROWS_WITH(back.replica(2), Catch::Contains("replica_00002.safetensors does not hold what was saved"));

  CheckpointContents later = contents.at(4);
  later.replicas = saved.replicas;
  save_replica(folder.path, 4, 0, tensors);  // the others' files are on other machines
  CHECK_THROWS_WITH(save_checkpoint(folder.path, later, 0),
                    Catch::Contains("the replica of rank 1 was written elsewhere"));
  CHECK(find_checkpoint(folder.path, "latest").filename() == "step_00000003");

  save_replica(folder.path, 5, 0, tensors);  // and the run was killed
  save_checkpoint(folder.path, contents.at(6), 0);
  CHECK(!fs::exists(folder.path / "checkpoints" / ".step_00000005.replicas"));
  CHECK(Checkpoint(find_checkpoint(folder.path, "latest")).replicas() == 0);
}

TEST_CASE("a state goes into a checkpoint without sums between micro-steps, and its moments come back by name") {
  Folder folder;
  graph::State state;
  state.add("weight", DType::float32, {2})->parameter = true;
  for (char const* name : {"v.weight", "m.weight", "accumulated.weight"}) state.add(name, DType::float32, {2});
  state["m.weight"](1) = 7;
  CheckpointContents contents = contents_of(state, 9);
  REQUIRE(contents.parameters.size() == 1);
  REQUIRE(contents.optimizer.size() == 2);
  CHECK(contents.optimizer[0].name == "m.weight");
  Checkpoint const saved(save_checkpoint(folder.path, contents, 0));
  state["m.weight"](1) = 0;
  read_moments(saved, state);
  CHECK(state["m.weight"](1) == 7);

  graph::State wider;
  wider.add("m.weight", DType::float32, {3});
  CHECK_THROWS_WITH(read_moments(saved, wider),
                    Catch::Contains("'m.weight' is float32 (2,), the model needs float32 (3,)"));
}

TEST_CASE("a program's state is saved and loaded by one call each") {
  Folder const folder;
  std::string const path = folder.path / "state.safetensors";
  auto const program = [](std::int64_t width) {
    graph::Builder b;
    graph::Var const w = b.parameter("w", {2, width}, graph::normal(1));
    graph::Var const seen = b.state("seen", {}, graph::StateUpdate::replicated);
    b.update(seen, seen + 1.0f);
    b.output("y", w * w);
    return b.graph();
  };
  graph::State one(program(3)), other(program(3));
  one.initialise(7);
  one.at("seen").view<float>()() = 5;
  train::save_state(path, one);
  train::load_state(path, other);
  CHECK(other.at("seen").view<float>()() == 5);
  CHECK(other.at("w").view<float>()(1, 2) == one.at("w").view<float>()(1, 2));
  graph::State wider(program(4));
  REQUIRE_ERROR(train::load_state(path, wider), ErrorKind::format,
                "holds 'w' as float32 (2, 3), and it is float32 (2, 4)");
  graph::State none(graph::Graph{});
  REQUIRE_ERROR(train::load_state(path, none), ErrorKind::format, "which is no field here");
  io::write_safetensors(path, std::vector<io::NamedTensor>{});
  REQUIRE_ERROR(train::load_state(path, other), ErrorKind::format, "holds no 'w'");
  REQUIRE_ERROR(train::load_state(path + ".none", other), ErrorKind::io, "(checkpoint.cpp:");

  struct Step {  // what load_state sees of a TrainStep
    graph::State of;
    std::int64_t done = 0;
    graph::State& state() { return of; }
    std::int64_t updates() const { return done; }
    void set_updates(std::int64_t number) { done = number; }
  };
  Step trained{.of = graph::State(program(3)), .done = 12}, fresh{.of = graph::State(program(3))};
  trained.of.initialise(9);
  train::save_state(path, trained);
  train::load_state(path, fresh);
  CHECK(fresh.done == 12);
  CHECK(fresh.of.at("w").view<float>()(0, 1) == trained.of.at("w").view<float>()(0, 1));
  REQUIRE_ERROR(train::load_state(path, other), ErrorKind::format, "Load it into the step, not into its state");
  train::save_state(path, trained.of);
  REQUIRE_ERROR(train::load_state(path, fresh), ErrorKind::format, "Save the step, not its state");
}

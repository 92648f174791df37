// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/choices.hpp> <tutti/train/command_line.hpp> <tutti/train/value_checks.hpp>
// Covers: <tutti/train/options.hpp> <tutti/train/layout_checks.hpp> <tutti/train/algorithm_checks.hpp>
#include "support/catch.hpp"

#include <tutti/train/command_line.hpp>

#include <filesystem>

using namespace tutti;
using namespace tutti::train;

namespace {

Parsed parse_words(std::vector<char const*> words) {
  words.insert(words.begin(), "train_gpt2");
  return parse(static_cast<int>(words.size()), words.data());
}

std::string config_file(std::string const& text) {
  auto const path =
      (std::filesystem::temp_directory_path() / ("tutti-options-" + std::to_string(::getpid()) + ".json")).string();
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("flags reach their options, with a blank or an equals sign") {
  Options const o = parse_words({"--data", "a*.bin", "--steps=7", "--learning-rate", "1e-3", "--layers", "2",
                                 "--channels=64", "--heads", "4"})
                        .options;
  CHECK(o.data == "a*.bin");
  CHECK(o.steps == 7);
  CHECK(o.learning_rate == 1e-3);
  CHECK(o.channels == 64);
  CHECK(o.given.contains("steps"));
  CHECK(!o.given.contains("batch"));
  CHECK(parse_words({"--data", "x", "--steps", "010"}).options.steps == 10);
  CHECK(parse_words({"--data", "x", "--warmup=+000"}).options.warmup == 0);
  CHECK(parse_words({"--data", "x", "--steps=08", "--learning-rate", "00.5"}).options.steps == 8);
}

TEST_CASE("--schedule with a pipeline's name is --pipeline-schedule, in a file too") {
  Options const o = parse_words({"--data", "x", "--pipeline-parallel", "2", "--schedule", "zero-bubble",
                                 "--schedule=linear"}).options;
  CHECK(o.pipeline_schedule == parallel::PipelineSchedule::zero_bubble);
  CHECK(o.schedule == optim::ScheduleKind::linear);
  std::string const path = config_file(R"({"data": "x", "schedule": "gpipe", "pipeline-parallel": 2})");
  CHECK(parse_words({"--config", path.c_str()}).options.pipeline_schedule == parallel::PipelineSchedule::gpipe);
}

TEST_CASE("a device of IREE's is its backend and its target") {
  Options const o = parse_words({"--data", "x", "--device", "iree:rocm:gfx942"}).options;
  CHECK(o.device == DeviceName::iree);
  CHECK(o.device.text() == "iree:rocm:gfx942");
  CHECK(o.device.target() == "rocm:gfx942");
  Options const gpu = parse_words({"--data", "x", "--device=cuda"}).options,
                none = parse_words({"--data", "x"}).options;
  CHECK(gpu.device == DeviceName::cuda);
  CHECK(gpu.device.text() == "cuda");
  CHECK(none.device == DeviceName::cpu);
  CHECK(none.device.text() == "cpu");
  std::string const path = config_file(R"({"data": "x", "device": "iree:llvm-cpu"})");
  CHECK(parse_words({"--config", path.c_str()}).options.device.target() == "llvm-cpu");
}

TEST_CASE("--gradient-clip is --clip: the last of two counts, both names together are refused") {
  CHECK(parse_words({"--data", "x", "--gradient-clip", "0.5"}).options.clip == 0.5);
  CHECK(parse_words({"--data", "x", "--clip", "0.5", "--clip=2"}).options.clip == 2);
  for (auto const& words : std::vector<std::vector<char const*>>{
           {"--data", "x", "--clip", "0.5", "--gradient-clip", "2"}, {"--data", "x", "--gradient-clip=1", "--clip=1"}})
    REQUIRE_ERROR(parse_words(words), ErrorKind::configuration,
                  "--clip and --gradient-clip are two names of one flag. Give one of them");
  std::string const both = config_file(R"({"data": "x", "clip": 1, "gradient-clip": 1})");
  REQUIRE_ERROR(parse_words({"--config", both.c_str()}), ErrorKind::configuration, "'clip' and 'gradient-clip'");
  // The command line wins over the file under either name.
  std::string const one = config_file(R"({"data": "x", "clip": 1})");
  CHECK(parse_words({"--config", one.c_str(), "--gradient-clip", "2"}).options.clip == 2);
  config_file(R"({"data": "x", "gradient-clip": -1})");
  REQUIRE_ERROR(parse_words({"--config", one.c_str()}), ErrorKind::configuration,
                "--gradient-clip -1: must be between 0 and 1e+30 (it stands in --config " + one + ")");
}

TEST_CASE("an empty value is empty, and takes no word that follows") {
  Options const typed = parse_words({"--data", "x", "--sample-prompt=", "--steps", "7"}).options;
  CHECK(typed.sample_prompt.empty());
  CHECK(typed.steps == 7);
  std::string const path = config_file(R"({"data": "x", "sample-prompt": "", "schedule": "constant", "steps": 3})");
  Options const filed = parse_words({"--config", path.c_str()}).options;
  CHECK(filed.sample_prompt.empty());
  CHECK(filed.schedule == optim::ScheduleKind::constant);
  CHECK(filed.steps == 3);
}

TEST_CASE("a file says the same names, and the command line wins over it") {
  std::string const path = config_file(R"({"data": "x", "steps": 5, "learning-rate": 0.01})");
  Options const o = parse_words({"--config", path.c_str(), "--steps", "9"}).options;
  CHECK(o.steps == 9);
  CHECK(o.learning_rate == 0.01);
  CHECK(o.given.contains("learning-rate"));
}

TEST_CASE("a file with an unknown key, a wrong type or damaged text gets a sentence") {
  REQUIRE_ERROR(parse_words({"--config", config_file(R"({"data": "x", "stepz": 5})").c_str()}),
                ErrorKind::configuration, "key 'stepz' is no flag");
  for (auto const& [entry, part] : std::vector<std::pair<char const*, char const*>>{
           {R"("data": ["x"])", "key 'data' must be a string, not an array"},
           {R"("data": 3)", "key 'data' must be a string, not 3"},
           {R"("resume": true)", "key 'resume' must be a string, not true"},
           {R"("steps": "7")", "key 'steps' must be a whole number, not the string \"7\""},
           {R"("steps": 1.5)", "key 'steps' must be a whole number, not 1.5"},
           {R"("steps": true)", "key 'steps' must be a whole number, not true"},
           {R"("threads": {})", "key 'threads' must be a whole number, not an object"},
           {R"("learning-rate": "1e-3")", "key 'learning-rate' must be a number, not the string"},
           {R"("gradient-clip": null)", "key 'gradient-clip' must be a number, not null"},
           {R"("overwrite": 1)", "key 'overwrite' must be true or false, not 1"},
           {R"("overwrite": "true")", "key 'overwrite' must be true or false, not the string"}}) {
    std::string const path = config_file("{" + std::string(entry) + "}");
    REQUIRE_ERROR(parse_words({"--config", path.c_str()}), ErrorKind::configuration, "--config " + path + ": " + part);
  }
  CHECK(parse_words({"--config", config_file(R"({"data": "x", "learning-rate": 1})").c_str()})
            .options.learning_rate == 1);
  REQUIRE_ERROR(parse_words({"--config", config_file("{").c_str()}), ErrorKind::configuration, "its JSON is damaged");
  REQUIRE_ERROR(parse_words({"--config", config_file("[1]").c_str()}), ErrorKind::configuration, "object");
  REQUIRE_ERROR(parse_words({"--config", "/nonexistent.json"}), ErrorKind::configuration, "cannot open");
}

TEST_CASE("a file may say what a flag without a value says, and what is wrong in it is said of the file") {
  CHECK(parse_words({"--config", config_file(R"({"data": "x", "no-final-checkpoint": true})").c_str()})
            .options.no_final_checkpoint);
  CHECK(!parse_words({"--config", config_file(R"({"data": "x", "no-final-checkpoint": false})").c_str()})
             .options.no_final_checkpoint);
  std::string const path = config_file(R"({"data": "x", "threads": 4294967297})");
  Parsed const large = parse_words({"--config", path.c_str(), "--threads", "3"});
  CHECK(large.code == 2);
  CHECK(test::contains(large.text, path));
  CHECK(test::contains(large.text, "--threads: '4294967297' is not between"));
  config_file(R"({"data": "x", "batch": 0})");
  REQUIRE_ERROR(parse_words({"--config", path.c_str()}), ErrorKind::configuration, "--batch 0");
  REQUIRE_ERROR(parse_words({"--config", path.c_str()}), ErrorKind::configuration, path);
  REQUIRE_ERROR(parse_words({"--config", path.c_str(), "--batch", "-2"}), ErrorKind::configuration,
                "--batch -2: must be at least 1");
}

TEST_CASE("numbers that do not fit are refused by the flag as it was spelled") {
  for (auto const& [words, part] : std::vector<std::pair<std::vector<char const*>, char const*>>{
           {{"--data", "x", "--seed", "99999999999999999999"}, "--seed: '99999999999999999999' is not between"},
           {{"--data", "x", "--steps", "9223372036854775808"}, "--steps: '9223372036854775808' is not between"},
           {{"--data", "x", "--steps", "2", "--steps", "1e3"}, "--steps: '1e3' is not a whole number"},
           {{"--data", "x", "--threads", "4294967297"}, "--threads: '4294967297' is not between"},
           {{"--data", "x", "--gradient-clip", "x"}, "--gradient-clip: 'x' is not a number"},
           {{"--data", "x", "--clip", "x"}, "--clip: 'x' is not a number"}}) {
    Parsed const parsed = parse_words(words);
    INFO(parsed.text);
    CHECK(parsed.code == 2);
    CHECK(test::contains(parsed.text, part));
  }
}

TEST_CASE("unknown flags and values that are no numbers leave with code 2 and the name") {
  for (auto words : std::vector<std::vector<char const*>>{
           {"--data", "x", "--stepz", "3"}, {"--data", "x", "--steps", "three"}, {"--data", "x", "stray"}}) {
    Parsed const parsed = parse_words(words);
    CHECK(parsed.leave);
    CHECK(parsed.code == 2);
    CHECK((test::contains(parsed.text, "step") || test::contains(parsed.text, "stray")));
  }
}

TEST_CASE("a program is called what it was started as, in sentences and in --help") {
  auto const text = [](std::vector<char const*> words) {
    words.insert(words.begin(), "/somewhere/my_trainer");
    return parse(static_cast<int>(words.size()), words.data()).text;
  };
  std::string const refused = text({"--stepz", "3"}), help = text({"--help"});
  CHECK(refused.starts_with("my_trainer: "));
  CHECK(test::contains(refused, "See my_trainer --help for the flags."));
  CHECK(test::contains(help, "my_trainer [OPTIONS]"));
  CHECK(!test::contains(refused + help, "train_gpt2"));
  CHECK(!test::contains(help, "Trains a GPT-2"));
  std::string const file = config_file(R"({"stepz": 5})");
  REQUIRE_ERROR(text({"--config", file.c_str()}), ErrorKind::configuration, "is no flag of my_trainer. See my_trainer");
  REQUIRE_ERROR(text({"--data", "x", "--steps", "-1"}), ErrorKind::configuration, "tutti::train_model: ");
}

TEST_CASE("--help names every flag and leaves with code 0") {
  Parsed const parsed = parse_words({"--help"});
  CHECK(parsed.leave);
  CHECK(parsed.code == 0);
  for (char const* flag : {"--model",
                           "--layers",
                           "--channels",
                           "--heads",
                           "--vocabulary",
                           "--data",
                           "--validation-data",
                           "--batch",
                           "--sequence",
                           "--total-tokens",
                           "--steps",
                           "--learning-rate",
                           "--warmup",
                           "--schedule",
                           "--optimizer",
                           "--momentum",
                           "--nesterov",
                           "--muon-scale",
                           "--groups",
                           "--compress",
                           "--dropout",
                           "--attention-dropout",
                           "--weight-decay",
                           "--clip",
                           "--gradient-clip",
                           "--validate-every",
                           "--sample-every",
                           "--checkpoint-every",
                           "--gradient-statistics",
                           "--keep",
                           "--resume",
                           "--seed",
                           "--threads",
                           "--backend",
                           "--ranks",
                           "--out",
                           "--sync-freq",
                           "--config"}) {
    INFO(flag);
    CHECK(test::contains(parsed.text, flag));
  }
}

TEST_CASE("every flag is remembered by a checkpoint, a fact of its model, or said anew on purpose") {
  Options o;
  CLI::App app;
  train::detail::declare(app, o);
  std::set<std::string> flags;
  for (auto const* group : app.get_subcommands([](CLI::App const*) { return true; }))
    for (CLI::Option const* option : group->get_options()) flags.insert(option->get_lnames().front());
  std::set<std::string> accounted{"model", "layers", "channels", "heads", "vocabulary",   // the checkpoint's model
                                  "architecture", "kv-heads", "hidden", "untied",
                                  "sync-freq",                                            // its micro-steps
                                  "backend", "device", "ranks", "threads",                // where it runs
                                  "data-parallel", "tensor-parallel", "pipeline-parallel", "pipeline-schedule",
                                  "virtual-stages", "stage-layers",
                                  "sequence-parallel", "zero", "bucket-bytes", "offload-optimizer",
                                  "config", "help", "resume", "out", "overwrite",            // this call
                                  "no-final-checkpoint", "async-checkpoint", "profile", "dry-run", "keep-packed",
                                  "replicas-per-rank", "autotune", "restart-ranks",
                                  "tensorboard", "dashboard", "dashboard-port",                // and who watches it
                                  "recompute"};
  for_each_setting(o, [&](std::string const& name, auto const&) {
    INFO(name);
    CHECK(accounted.insert(name).second);
  });
  CHECK(flags == accounted);
}

TEST_CASE("impossible values are refused by the name of their flag") {
  std::vector<std::pair<std::vector<char const*>, char const*>> const cases{
      {{"--data", "x", "--steps", "0"}, "--steps 0"},
      {{"--data", "x", "--batch", "0"}, "--batch 0"},
      {{"--data", "x", "--sequence", "-3"}, "--sequence -3"},
      {{"--data", "x", "--learning-rate", "nan"}, "--learning-rate"},
      {{"--data", "x", "--clip", "-1"}, "--clip -1"},
      {{"--data", "x", "--gradient-clip", "-1"}, "--gradient-clip -1"},
      {{"--data", "x", "--beta1", "1"}, "--beta1 1: must be at least 0 and below 1"},
      {{"--data", "x", "--beta2", "-0.1"}, "--beta2 -0.1: must be at least 0 and below 1"},
      {{"--data", "x", "--beta2", "nan"}, "--beta2 nan"},
      {{"--data", "x", "--optimizer", "lion"}, "--optimizer lion: use adamw, sgd or muon"},
      {{"--data", "x", "--momentum", "0.9"}, "--momentum: is of --optimizer sgd or muon"},
      {{"--data", "x", "--optimizer", "sgd", "--momentum", "1"}, "--momentum 1: must be at least 0 and below 1"},
      {{"--data", "x", "--optimizer", "sgd", "--beta1", "0.9"}, "--beta1: is of --optimizer adamw or muon"},
      {{"--data", "x", "--optimizer", "muon", "--nesterov"}, "--nesterov: is of --optimizer sgd"},
      {{"--data", "x", "--optimizer", "sgd", "--muon-scale", "spectral"}, "--muon-scale: is of --optimizer muon"},
      {{"--data", "x", "--dropout", "1"}, "--dropout 1: must be at least 0 and below 1"},
      {{"--data", "x", "--architecture", "llama", "--dropout", "0.1"}, "--dropout: is of --architecture gpt2"},
      {{"--data", "x", "--muon-scale", "rms"}, "--muon-scale rms: use adamw or spectral"},
      {{"--data", "x", "--groups", "wte"}, "--groups 'wte': a group is PATTERN:SETTING"},
      {{"--data", "x", "--groups", "wte:frozen; *:cold"}, "--groups '*:cold': 'cold' is none of decay=NUMBER"},
      {{"--data", "x", "--groups", "wte:rate=-1"}, "--groups 'wte:rate=-1': rate=-1 must be a number between 0 and"},
      {{"--data", "x", "--compress", "fp4"}, "--compress fp4: use none, bf16, int8, topk:SHARE or powersgd:RANK"},
      {{"--data", "x", "--compress", "topk:2"}, "--compress topk:2: the share must be above 0 and at most 1"},
      {{"--data", "x", "--compress", "powersgd:x"}, "--compress powersgd:x: behind the colon there is no number"},
      {{"--data", "x", "--compress", "int8", "--algorithm", "diloco"},
       "--compress int8: is of --algorithm ddp; diloco's averages travel as --outer-bits says"},
      {{"--data", "x", "--compress", "int8", "--tensor-parallel", "2"},
       "--compress int8: is not with --tensor-parallel 2, whose ranks have parts of gradients"},
      {{"--data", "x", "--compress", "int8", "--device", "cuda"}, "--compress int8: is done by processors alone"},
      {{"--data", "x", "--zero", "4"}, "--zero 4: must be at most 3"},
      {{"--data", "x", "--zero", "3", "--optimizer", "muon"}, "--zero 3: divides matrices, of which muon needs the"},
      {{"--data", "x", "--zero", "2", "--compress", "int8"}, "--zero 2: sends gradients as they are"},
      {{"--data", "x", "--zero", "2", "--keep-packed"}, "--zero 2: keeps no packed weights"},
      {{"--data", "x", "--zero", "3", "--gradient-statistics", "1"}, "--zero 3: has no statistics of gradients"},
      {{"--data", "x", "--zero", "1", "--algorithm", "diloco"}, "--zero 1: is for --algorithm ddp"},
      {{"--data", "x", "--zero", "1", "--optimizer", "sgd"}, "--zero 1: shares out adamw's moments, of which"},
      {{"--data", "x", "--zero", "1", "--device", "iree:llvm-cpu"}, "--zero 1: is for --device cpu and cuda"},
      {{"--data", "x", "--zero", "1", "--device", "cuda", "--optimizer", "muon"},
       "Use --optimizer adamw or sgd, or leave out --zero"},
      {{"--data", "x", "--batch", "4000000000000000000"}, "--batch 4000000000000000000"},
      {{"--data", "x", "--total-tokens", "9223372036854775807"}, "--total-tokens 9223372036854775807"},
      {{"--data", "x", "--sequence", "3000000000"}, "--sequence 3000000000"},
      {{"--data", "x", "--vocabulary", "9223372036854775807"}, "--vocabulary 9223372036854775807"},
      {{"--data", "x", "--layers", "9223372036854775807", "--channels", "2", "--heads", "1"},
       "--layers 9223372036854775807"},
      {{"--data", "x", "--resume", ""}, "--resume ''"},
      {{"--data", "x", "--resume", "5"}, "--resume 5: is a step and needs --out"},
      {{"--data", "caf\xe9"}, "is not UTF-8"},
      {{"--data", "x", "--sample-prompt", "caf\xe9"}, "--sample-prompt caf\xe9: is not UTF-8"},
      {{"--data", "x", "--out", ""}, "--out ''"},
      {{"--data", "x", "--config", ""}, "--config ''"},
      {{"--data", "x", "--pack", "tokens"}, "--pack tokens: use none or documents"},
      {{"--data", "x", "--recompute", "some"}, "--recompute some: use none, pointwise or block"},
      {{"--data", "x", "--schedule", "cubic"}, "--schedule cubic: use cosine, linear, constant or wsd"},
      {{"--data", "x", "--backend", "smoke"}, "--backend smoke"},
      {{"--data", "x", "--ranks", "0"}, "--ranks 0: must be at least 1"},
      {{"--data", "x", "--tensor-parallel", "0"}, "--tensor-parallel 0: must be at least 1"},
      {{"--data", "x", "--data-parallel", "0"}, "--data-parallel 0: must be at least 1"},
      {{"--data", "x", "--model-parallel", "2", "--tensor-parallel", "2"}, "two names of one flag"},
      {{"--data", "x", "--tensor-parallel", "2", "--algorithm", "diloco"},
       "--tensor-parallel 2: is for --algorithm ddp, which averages gradients every step"},
      {{"--data", "x", "--model-parallel", "2", "--optimizer", "muon"},
       "--tensor-parallel 2: divides matrices, of which muon needs the whole"},
      {{"--data", "x", "--tensor-parallel", "2", "--attention-dropout", "0.1"},
       "--tensor-parallel 2: divides heads, and --attention-dropout draws its masks over all of them"},
      {{"--data", "x", "--sequence-parallel"}, "--sequence-parallel: is of the ranks of --tensor-parallel. Add that"},
      {{"--data", "x", "--sequence-parallel", "--tensor-parallel", "4", "--sequence", "66"},
       "and --sequence 66 does not divide among the 4 ranks of --tensor-parallel. Choose a length that does"},
      {{"--data", "x", "--pipeline-parallel", "2", "--device", "iree:cuda"},
       "--pipeline-parallel 2: is for --device cpu"},
      {{"--data", "x", "--pipeline-parallel", "2", "--algorithm", "diloco"}, "2: is for --algorithm ddp"},
      {{"--data", "x", "--pipeline-parallel", "2", "--keep-packed"}, "Leave out --keep-packed"},
      {{"--data", "x", "--pipeline-parallel", "2", "--gradient-statistics", "1"}, "has no statistics of gradients"},
      {{"--data", "x", "--pipeline-parallel", "0"}, "--pipeline-parallel 0: must be at least 1"},
      {{"--data", "x", "--pipeline-parallel", "2", "--pipeline-schedule", "chimera"},
       "--pipeline-schedule chimera: use 1f1b, gpipe, interleaved or zero-bubble"},
      {{"--data", "x", "--pipeline-parallel", "2", "--virtual-stages", "2"},
       "--virtual-stages 2: is of --pipeline-schedule interleaved. Add that, or leave it out"},
      {{"--data", "x", "--stage-layers", "1,1"}, "--stage-layers 1,1: is of --pipeline-parallel"},
      {{"--data", "x", "--pipeline-schedule", "gpipe"}, "is of --pipeline-parallel. Add that, or leave it out"},
      {{"--data", "x", "--schedule", "gpipe"}, "--pipeline-schedule gpipe: is of --pipeline-parallel. Add that, or"},
      {{"--data", "x", "--device", "tpu"}, "--device tpu: use cpu, cuda or iree:TARGET, as in iree:llvm-cpu"},
      {{"--data", "x", "--device", "iree"}, "--device iree: use cpu"},
      {{"--data", "x", "--device", "iree:rocm"}, "--device iree:rocm: name the GPU that it compiles for"},
      {{"--data", "x", "--device", "iree:tpu"}, "--device iree:tpu: IREE has no backend 'tpu'"},
      {{"--data", "x", "--device", "iree:llvm-cpu", "--profile"}, "--device iree:llvm-cpu: does not say where"},
      {{"--data", "x", "--device", "iree:llvm-cpu", "--autotune"}, "--autotune: is of GPUs"},
      {{"--data", "x", "--device", "iree:llvm-cpu", "--keep-packed"}, "keeps no packed weights"},
      {{"--data", "x", "--tensor-parallel", "2", "--device", "iree:llvm-cpu"}, "2: is for --device cpu and cuda"},
      {{"--data", "x", "--ranks", "-2"}, "--ranks -2: must be at least 1"},
      {{"--data", "x", "--steps", "-2"}, "--steps -2: must be at least 1"},
      {{"--data", "x", "--sync-freq", "0"}, "--sync-freq 0"},
      {{"--data", "x", "--layers", "2"}, "all three"},
      {{"--data", "x", "--layers", "2", "--channels", "65", "--heads", "4"}, "--channels 65"},
      {{"--data", "x", "--model", "d12", "--layers", "2"}, "--model d12"},
      {{"--steps", "3"}, "--data"},
      {{"--resume", "latest"}, "--out"}};
  for (auto const& [words, part] : cases) REQUIRE_ERROR(parse_words(words), ErrorKind::configuration, part);
}

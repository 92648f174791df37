// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/memory_needs.hpp>
// Covers: <tutti/train/model_choice.hpp> <tutti/train/module_choice.hpp>
// Covers: <tutti/train/model_facts.hpp>
// Covers: <tutti/train/pipeline_choice.hpp>
#include "support/catch.hpp"

#include <tutti/data/bpe_trainer.hpp>
#include <tutti/train/command_line.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/setup.hpp>

#include <algorithm>
#include <map>

using namespace tutti;
using namespace tutti::train;
namespace fs = std::filesystem;

namespace {

struct OwnConfig {  // of a model from outside the library
  std::int64_t vocabulary = 257;
};
struct ApartConfig {
  std::int64_t document_mark = -1;
};

struct Data {
  fs::path folder = fs::temp_directory_path() / ("tutti-setup-" + std::to_string(::getpid()));
  Data() {
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::vector<std::uint16_t> tokens(1000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i % 50);
    io::write_token_shard((folder / "train.bin").string(), tokens);
    io::write_token_shard((folder / "validation.bin").string(), std::span(tokens).first(100));
  }
  ~Data() { fs::remove_all(folder); }

  Setup with(std::vector<std::string> words, int ranks = 1) const {
    words.insert(words.begin(), {"train_gpt2", "--data", folder.string(), "--layers", "1", "--channels", "8", "--heads",
                                 "2", "--vocabulary", "60"});
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    Parsed const parsed = parse(static_cast<int>(argv.size()), argv.data());
    INFO(parsed.text);
    REQUIRE(!parsed.leave);
    return make_setup(parsed.options, ranks);
  }
};

}  // namespace

TEST_CASE("a folder stands for its token files") {
  Data const data;
  Setup const s = data.with({"--sequence", "16"});
  CHECK(s.train->corpus().tokens() == 1000);
  REQUIRE(s.validation);
  CHECK(s.validation->predictions() == 99);
  CHECK(s.model.vocabulary == 60);
  CHECK(s.model.json.at("padded_vocabulary") == 128);
  CHECK(s.model.max_tokens == 16);
}

TEST_CASE("several sets share the samples by their weights, and each is measured; the same settings come back") {
  Data const data;
  std::string const train = (data.folder / "train.bin").string(), short_one = (data.folder / "validation.bin").string(),
                    sets = train + ":0.75," + short_one + ":0.25";
  Setup const s = data.with({"--sequence", "16", "--data", sets, "--validation-data", short_one + "," + train});
  CHECK(s.train->sets() == 2);
  CHECK(s.train->share(1) == 0.25);
  CHECK(s.train->name(1) == short_one);
  CHECK(s.train->tokens() == 1100);
  CHECK(s.validation->predictions() == 99);
  REQUIRE(s.further_validation.size() == 1);
  CHECK(s.further_validation[0].predictions() == 999);
  CHECK(checkpoint_facts(s, 1, 1).at("settings").at("data") == sets);
  // A folder is its files, those that are held out included.
  std::string const folder = data.folder.string();
  Setup const folders = data.with({"--sequence", "16", "--data", folder + ":2," + folder + ":1"});
  CHECK(folders.train->share(0) == Approx(2 / 3.0));
  CHECK(folders.further_validation.size() == 1);
  REQUIRE_ERROR(data.with({"--data", train + "," + short_one}), ErrorKind::configuration, "has no weight");
  REQUIRE_ERROR(data.with({"--data", train + ":1,nothing.bin:1"}), ErrorKind::io, "nothing.bin");
  REQUIRE_ERROR(data.with({"--sequence", "16", "--data", train + ":1," + short_one + ":5000"}),
                ErrorKind::invalid_argument, "one sample in 2000");
}

TEST_CASE("whole documents need a tokenizer, and what cannot keep them apart is refused") {
  Data const data;
  REQUIRE_ERROR(data.with({"--pack", "documents"}), ErrorKind::configuration,
                "--pack documents needs a tokenizer.json");
  data::Tokenizer const tokenizer = data::train_bpe({}, {.vocabulary = 257});
  data::write_tokenizer((data.folder / "tokenizer.json").string(), tokenizer);
  std::vector<std::uint16_t> tokens(1000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = i % 10 == 0 ? std::uint16_t{256} : std::uint16_t{7};
  io::write_token_shard((data.folder / "train.bin").string(), tokens);
  auto const with = [&](std::vector<std::string> words, int ranks = 1) {
    words.insert(words.begin(), {"--vocabulary", "257", "--sequence", "16", "--pack", "documents"});
    return data.with(words, ranks);
  };
  Setup s = with({});
  CHECK(s.document_mark == 256);
  REQUIRE(s.train->loader(0).packing() != nullptr);
  CHECK(s.train->loader(0).packing()->documents() == 100);
  CHECK(s.train->leaves_out_targets());
  CHECK(std::get<nn::Gpt2Config>(choose_model(s).config).document_mark == 256);
  CHECK(checkpoint_facts(s, 1, 1).at("settings").at("pack") == "documents");
  require_documents_apart(s, ApartConfig{.document_mark = 256});
  REQUIRE_ERROR(require_documents_apart(s, OwnConfig{}), ErrorKind::configuration, "has no document_mark");
  REQUIRE_ERROR(require_documents_apart(s, ApartConfig{}), ErrorKind::configuration, "document_mark is not 256");
  REQUIRE_ERROR(with({"--attention-dropout", "0.1"}), ErrorKind::configuration, "with --attention-dropout");
  REQUIRE_ERROR(with({"--tensor-parallel", "2"}, 2), ErrorKind::configuration, "for --tensor-parallel");
}

TEST_CASE("ranks that have one model together share one part of the batch; meshes that do not fit are refused") {
  Data const data;
  for (auto const& [words, mesh] : std::vector<std::pair<std::vector<std::string>, parallel::MeshSizes>>{
           {{}, {4, 1}},
           {{"--tensor-parallel", "2"}, {2, 2}},
           {{"--model-parallel", "4"}, {1, 4}},
           {{"--model-parallel", "4", "--sequence-parallel"}, {1, 4}},
           {{"--zero", "3"}, {4, 1}},
           {{"--data-parallel", "4"}, {4, 1}},
           {{"--data-parallel", "2", "--tensor-parallel", "2"}, {2, 2}},
           {{"--pipeline-parallel", "2"}, {2, 1, 2}},
           {{"--pipeline-parallel", "2", "--tensor-parallel", "2"}, {1, 2, 2}},
           {{"--pipeline-parallel", "4", "--micro-batches", "1"}, {1, 1, 4}}}) {
    std::vector<std::string> all{"--batch", "3", "--sequence", "16"};
    all.insert(all.end(), words.begin(), words.end());
    Setup const s = data.with(all, 4);
    CHECK(s.mesh.data == mesh.data);
    CHECK(s.mesh.tensor == mesh.tensor);
    CHECK(s.mesh.pipeline == mesh.pipeline);
    CHECK(s.rows == 3);
    CHECK(s.global_rows == 3 * mesh.data);
    CHECK(checkpoint_facts(s, 1, s.mesh.data).at("settings").contains("tensor-parallel") == false);
    CHECK(checkpoint_facts(s, 1, s.mesh.data).at("settings").contains("pipeline-parallel") == false);
    CHECK(checkpoint_facts(s, 1, s.mesh.data).at("settings").contains("sequence-parallel") == false);
    CHECK(checkpoint_facts(s, 1, s.mesh.data).at("settings").contains("zero") == false);
  }
  Setup const staged =
      data.with({"--batch", "1", "--sequence", "16", "--micro-batches", "8", "--pipeline-parallel", "2"}, 2);
  CHECK(staged.micro_steps == 8);
  CHECK(staged.global_rows == 8);
  auto const warned = [](Setup const& s) {
    return std::any_of(s.warnings.begin(), s.warnings.end(), [](std::string const& warning) {
      return warning == "--pipeline-parallel 2 with 1 micro-batch a step: each stage waits 50 % of the time. Give at "
                        "least 8 --micro-batches";
    });
  };
  CHECK(!warned(staged));
  CHECK(warned(data.with({"--sequence", "16", "--pipeline-parallel", "2"}, 2)));
  std::vector<std::string> const parts{"--batch", "1", "--sequence", "16", "--pipeline-parallel", "2",
                                       "--pipeline-schedule", "interleaved", "--micro-batches"};
  auto const with = [&](std::vector<std::string> const& more) {
    std::vector<std::string> all = parts;
    all.insert(all.end(), more.begin(), more.end());
    Setup const s = data.with(all, 2);
    return train::pipeline_layout(s.options, s.mesh.pipeline, 1);
  };
  CHECK(with({"4"}).parts() == 4);
  CHECK(with({"4", "--virtual-stages", "3", "--stage-layers", "4,3,2"}).layers == List<std::int64_t>{4, 3, 2});
  REQUIRE_ERROR(with({"3"}), ErrorKind::configuration,
                "--pipeline-schedule interleaved: the interleaved schedule takes micro-batches in groups of as many as "
                "there are stages, and 3 are not a multiple of 2. Use 2 or 4 micro-batches");
  REQUIRE_ERROR(with({"4", "--stage-layers", "4,,2"}), ErrorKind::configuration,
                "--stage-layers 4,,2: '' is no number of layers. Write one for each stage, as in 4,4,3, or balanced");
  REQUIRE_ERROR(data.with({"--tensor-parallel", "3"}, 4), ErrorKind::configuration,
                "is not the number of ranks, 4. These fit, data x tensor: 4 x 1, 2 x 2, 1 x 4");
  REQUIRE_ERROR(data.with({"--data-parallel", "2"}, 4), ErrorKind::configuration,
                "--data-parallel 2 x --tensor-parallel 1 is not the number of ranks, 4");
  REQUIRE_ERROR(data.with({"--data-parallel", "3", "--tensor-parallel", "2"}, 6 - 2), ErrorKind::configuration,
                "--data-parallel 3 x --tensor-parallel 2 is not the number of ranks, 4");
  // What a run could not go on with is refused before it begins.
  REQUIRE_ERROR(
      data.with({"--tensor-parallel", "4", "--restart-ranks", "2"}, 4), ErrorKind::configuration,
      "--restart-ranks 2 could not go on with this run: --data-parallel (any) x --tensor-parallel 4 is not the "
      "number of ranks, 2");
  REQUIRE_ERROR(data.with({"--batch", "2", "--sync-freq", "2", "--restart-ranks", "1"}, 2), ErrorKind::configuration,
                "--restart-ranks 1 could not go on with this run: --total-tokens");
  REQUIRE_ERROR(data.with({"--batch", "4", "--rank-shares", "2,1", "--restart-ranks", "1"}, 2),
                ErrorKind::configuration,
                "--restart-ranks 1 could not go on with this run: --rank-shares 2,1 has 2 numbers, and 1 rank does");
  CHECK(data.with({"--tensor-parallel", "2", "--restart-ranks", "2"}, 4).options.restart_ranks == 2);
  REQUIRE_ERROR(data.with({"--zero", "3", "--bucket-bytes", "1000"}, 4), ErrorKind::configuration,
                "--zero 3: scatters every parameter's gradient by itself");
}

TEST_CASE("the batch is divided by ranks and micro-steps, whichever way it is said") {
  Data const data;
  struct Row {
    std::vector<std::string> words;
    int ranks;
    std::int64_t rows, micro_steps, global_rows;
  };
  for (Row const& row : std::vector<Row>{{{"--batch", "3"}, 2, 3, 1, 6},
                                         {{"--batch", "3", "--sync-freq", "4"}, 2, 3, 4, 24},
                                         {{"--batch", "2", "--total-tokens", "192"}, 2, 2, 3, 12},
                                         {{"--total-tokens", "192", "--sync-freq", "2"}, 2, 3, 2, 12},
                                         {{"--total-tokens", "192"}, 3, 4, 1, 12},
                                         {{"--total-tokens", "112"}, 1, 1, 7, 7},
                                         // Shares that differ: 2 + 1 + 1; 4 x (2 + 1); 2 x (2 + 2 + 1); 3 + 2 + 2.
                                         {{"--total-tokens", "64"}, 3, 2, 1, 4},
                                         {{"--total-tokens", "192", "--sync-freq", "4"}, 2, 2, 4, 12},
                                         {{"--total-tokens", "160", "--batch", "2"}, 3, 2, 2, 10},
                                         {{"--total-tokens", "112"}, 3, 3, 1, 7}}) {
    std::vector<std::string> words{"--sequence", "16"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    Setup const s = data.with(words, row.ranks);
    INFO(row.words.back() << " on " << row.ranks);
    CHECK(s.rows == row.rows);
    CHECK(s.micro_steps == row.micro_steps);
    CHECK(s.global_rows == row.global_rows);
    CHECK(s.micro_rows * s.micro_steps == row.global_rows);
    CHECK(s.tokens_per_step() == row.global_rows * 16);
  }
}

TEST_CASE("a warm-up that cannot do its work gets a warning with the rates") {
  Data const data;
  auto const warnings = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--sequence", "16"});
    std::vector<std::string> found = data.with(words).warnings;
    std::erase_if(found, [](std::string const& warning) { return !warning.starts_with("--warmup"); });
    return found;
  };
  CHECK(warnings({"--steps", "10", "--warmup", "10"}).empty());  // the last step has the peak
  CHECK(warnings({"--steps", "10"}).empty());
  CHECK(warnings({"--steps", "10", "--warmup", "40", "--learning-rate", "1e-3"}) ==
        std::vector<std::string>{"--warmup 40 is longer than the run of 10 steps: the learning rate never reaches its "
                                 "peak of 0.001, it ends at 0.00025"});
  CHECK(warnings({"--steps", "10", "--warmup", "40", "--schedule", "constant"}) ==
        std::vector<std::string>{"--warmup 40 does nothing: --schedule constant has none"});
}

TEST_CASE("validation measures whole steps' sequences, the same for every layout of a step") {
  Data const data;  // 99 predictions held out: 7 windows of 16
  for (auto const& [batches, windows] : std::vector<std::pair<char const*, std::int64_t>>{
           {"0", 7}, {"1", 4}, {"2", 7}, {"3", 7}, {"9223372036854775807", 7}})
    for (auto const& [layout, ranks] :
         std::vector<std::pair<std::vector<std::string>, int>>{{{"--batch", "4"}, 1},
                                                               {{"--batch", "2"}, 2},
                                                               {{"--batch", "1"}, 4},
                                                               {{"--batch", "1", "--sync-freq", "2"}, 2},
                                                               {{"--total-tokens", "64", "--batch", "2"}, 3}}) {
      std::vector<std::string> words{"--sequence", "16", "--validation-batches", batches};
      words.insert(words.end(), layout.begin(), layout.end());
      INFO(batches << " batches on " << ranks << " ranks");
      CHECK(data.with(words, ranks).validation_windows() == windows);
    }
}

TEST_CASE("little data gets a warning with its size and the passes over it") {
  Data const data;  // 1000 tokens are 62 windows of 16; 100 are held out
  auto const warnings = [&](char const* steps, char const* batch) {
    return data.with({"--sequence", "16", "--steps", steps, "--batch", batch}).warnings;
  };
  std::string const held_out =
      "--validation-data " + (data.folder / "validation.bin").string() + " has only 99 tokens to predict: their loss "
      "says little";
  CHECK(warnings("40", "62") == std::vector<std::string>{held_out});
  CHECK(warnings("41", "62") ==
        std::vector<std::string>{"--data " + (data.folder / "train*.bin").string() +
                                     " has only 1,000 tokens, and 41 steps are 41 passes over them: the model learns "
                                     "them by heart. Use more text, or fewer --steps",
                                 held_out});
}

TEST_CASE("a number that the user did not type is said with the file where it stands") {
  Data const data;
  fs::path const config = data.folder / "config.json";
  std::ofstream(config) << R"({"total-tokens": 2048})";
  std::string const stands = " (it stands in --config " + config.string() + ")";
  REQUIRE_ERROR(data.with({"--config", config.string(), "--sequence", "500000"}), ErrorKind::configuration,
                "--total-tokens 2048" + stands +
                    " is not a multiple of --sequence 500000. Give a --total-tokens that "
                    "is, as 500000");
  REQUIRE_ERROR(data.with({"--config", config.string(), "--total-tokens", "100", "--sequence", "16"}),
                ErrorKind::configuration, "--total-tokens 100 is not a multiple of --sequence 16");
  std::ofstream(config) << R"({"total-tokens": 2048, "sequence": 300})";
  REQUIRE_ERROR(data.with({"--config", config.string()}), ErrorKind::configuration,
                "of --sequence 300" + stands + ". Give a --total-tokens that is, as 2100");

  Setup const s = data.with({"--sequence", "16", "--steps", "9", "--total-tokens", "160"});
  fs::path const out = data.folder / "run";
  CheckpointContents contents;
  contents.step = 2;
  Json settings = Json::object();
  for_each_setting(s.options, [&](char const* name, auto const& value) { settings[name] = value; });
  contents.facts = {{"model", s.model.json}, {"settings", settings}};
  save_checkpoint(out, contents, 0);
  char const* const words[] = {"train_gpt2", "--resume", "latest", "--out", out.c_str(), "--sequence", "12"};
  REQUIRE_ERROR(make_setup(parse(7, words).options, 1), ErrorKind::configuration,
                "--total-tokens 160 (it stands in the checkpoint " + out.string());
}

TEST_CASE("without --steps a run is one pass over the data") {
  Data const data;
  Setup const s = data.with({"--sequence", "16", "--batch", "4"});
  CHECK(s.steps == s.train->windows() / 4);
}

TEST_CASE("what does not fit is refused by flag and number") {
  Data const data;
  auto const refuse = [&](std::vector<std::string> words, int ranks, char const* part) {
    REQUIRE_ERROR(data.with(words, ranks), ErrorKind::configuration, part);
  };
  refuse({"--sequence", "16", "--total-tokens", "100"}, 1, "--total-tokens 100 is not a multiple of --sequence 16");
  refuse({"--sequence", "16", "--total-tokens", "48"}, 4, "is 3 sequences a step, fewer than the 4 ranks");
  refuse({"--sequence", "16", "--total-tokens", "96", "--sync-freq", "3"}, 4, "is 2 sequences a micro-step");
  refuse({"--sequence", "16", "--total-tokens", "112", "--batch", "2"}, 3, "a batch of 3");
  refuse({"--sequence", "16", "--total-tokens", "96", "--batch", "4"}, 1, "--batch 4 does not divide");
  refuse({"--sequence", "16", "--total-tokens", "96", "--sync-freq", "4"}, 1, "--sync-freq 4 does not divide");
  refuse({"--sequence", "16", "--total-tokens", "96", "--sync-freq", "2", "--batch", "4"}, 1, "needs --batch 3");
  refuse({"--sequence", "16", "--ranks", "3"}, 2, "--ranks 3: there are 2 ranks");
  refuse({"--sequence", "16", "--ranks", "2"}, 1, "--ranks 2: there is 1 rank");
  refuse({"--sequence", "16", "--batch", "2000000000", "--sync-freq", "2000000000"}, 2,
         "--sync-freq 2000000000 is more than");
  refuse({"--sequence", "1", "--total-tokens", "1099511627773", "--batch", "4"}, 2, "2 ranks do 7 at a time");
  refuse({"--sequence", "16", "--sample-every", "5"}, 1, "--sample-every 5 needs a tokenizer.json");
}

TEST_CASE("a file that cannot be used is said of its flag, and the data before what depends on it") {
  Data const data;
  REQUIRE_ERROR(data.with({"--data", "nowhere", "--sample-every", "5"}), ErrorKind::io,
                "--data: no file matches 'nowhere'");
  REQUIRE_ERROR(data.with({"--validation-data", "nowhere"}), ErrorKind::io, "--validation-data: no file matches");
  REQUIRE_ERROR(data.with({"--tokenizer", "nowhere"}), ErrorKind::io, "--tokenizer: cannot open 'nowhere'");
  REQUIRE_ERROR(data.with({"--vocabulary", "20", "--sequence", "16"}), ErrorKind::format, "--data: token 20 at");
}

TEST_CASE("what memory cannot hold is refused before any of it is asked for") {
  Data const data;
  std::int64_t const memory = std::int64_t{16} << 30;
  CHECK_NOTHROW(require_memory(data.with({"--sequence", "16"}), 1, false, memory));
  CHECK_NOTHROW(require_memory(data.with({"--sequence", "16"}), 1, false, 0));  // the system does not say
  auto const refuse = [&](std::vector<std::string> words, char const* part) {
    words.insert(words.end(), {"--sequence", "16", "--steps", "1"});
    REQUIRE_ERROR(require_memory(data.with(words), 1, false, memory), ErrorKind::configuration, part);
  };
  refuse({"--vocabulary", "2000000000"}, "192.0 GB parameters and moments");
  refuse({"--layers", "2147483647"}, "TB parameters and moments");
  refuse({"--layers", "2147483647", "--channels", "2147483646"}, "on this machine, which has 17.2 GB");
  refuse({"--batch", "100000000"}, "--batch 100000000");
  // 3 GB of parameters, moments and gradients: one rank fits, a node of six does not.
  Setup const s = data.with({"--sequence", "16", "--steps", "1", "--vocabulary", "23000000"});
  CHECK_NOTHROW(require_memory(s, 1, false, memory));
  REQUIRE_ERROR(require_memory(s, 6, false, memory), ErrorKind::configuration, "fewer ranks");
}

TEST_CASE("a resumed run takes over every setting; the command line wins over it, and it over --config") {
  Data const data;
  fs::path const out = data.folder / "run", config = data.folder / "config.json";
  // A value that is neither the default nor the one of --config, which is not the default either.
  std::map<std::string, nlohmann::json> recorded{{"data", (data.folder / "train.bin").string()},
                                                 {"validation-data", (data.folder / "validation.bin").string()},
                                                 {"tokenizer", ""},
                                                 {"schedule", "wsd"},
                                                 {"compute", "bfloat16"},
                                                 {"algorithm", "diloco"},
                                                 {"outer-bits", "int8"},
                                                 {"optimizer", "muon"},
                                                 {"muon-scale", "spectral"},
                                                 {"nesterov", true},
                                                 {"pack", "none"},  // documents need a tokenizer
                                                 {"groups", "*:rate=0.5"},
                                                 {"compress", "none"},
                                                 {"rank-shares", "auto"},
                                                 {"sample-every", 0}};
  std::map<std::string, nlohmann::json> filed{{"schedule", "linear"}, {"compute", "float32"}, {"algorithm", "ddp"},
                                              {"outer-bits", "int4"}, {"optimizer", "sgd"},   {"muon-scale", "adamw"},
                                              {"nesterov", false}, {"groups", "*:decay=0"}, {"pack", "documents"},
                                              {"compress", "int8"}, {"rank-shares", "even"}};
  Options defaults;
  Json settings = Json::object(), file = Json::object();
  for_each_setting(defaults, [&](std::string const& name, auto const& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    auto const other = [&](int by) -> nlohmann::json {
      if constexpr (std::is_same_v<Value, std::string>) return "setting " + std::to_string(by);
      else if constexpr (std::is_floating_point_v<Value>) return value + 0.001 * by;
      else if constexpr (std::is_arithmetic_v<Value>) return value + by;
      else return nullptr;  // a choice: see above
    };
    settings[name] = recorded.contains(name) ? recorded[name] : other(1);
    if (name != "tokenizer") file[name] = filed.contains(name) ? filed[name] : other(2);
  });
  settings["beta2"] = 0.9;
  settings["total-tokens"] = 5 * 65;  // batch x sequence
  settings["steps"] = 9;
  std::ofstream(config) << file;

  nn::Gpt2Config const model{.layers = 1, .heads = 2, .channels = 8, .vocabulary = 60, .padded_vocabulary = 128,
                             .max_tokens = 128};
  CheckpointContents contents;
  contents.step = 2;
  contents.facts = {{"model", to_json(model)}, {"settings", settings}};
  save_checkpoint(out, contents, 0);
  auto const resumed = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"train_gpt2", "--resume", "latest", "--out", out.string(), "--config", config.string()});
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    Parsed const parsed = parse(static_cast<int>(argv.size()), argv.data());
    INFO(parsed.text);
    REQUIRE(!parsed.leave);
    return make_setup(parsed.options, 1);
  };
  Setup const silent = resumed({});
  CHECK(silent.changes.empty());
  for_each_setting(silent.options, [&](std::string const& name, auto const& value) {
    INFO(name);
    CHECK(settings.at(name) == Json(value));
  });
  Setup const told = resumed({"--validation-batches", "7", "--keep=9", "--learning-rate", "0.5"});
  CHECK(told.options.validation_batches == 7);
  CHECK(told.options.keep == 9);
  CHECK(told.options.learning_rate == 0.5);
  CHECK(told.options.validate_every == 101);
  CHECK(told.changes == std::vector<std::string>{"learning-rate 0.0013 -> 0.5", "validation-batches 1 -> 7",
                                                 "keep 4 -> 9"});
  CHECK(resumed({"--optimizer", "muon"}).options.optimizer == OptimizerName::muon);
  REQUIRE_ERROR(resumed({"--optimizer", "sgd"}), ErrorKind::configuration,
                "was trained with muon, whose state another optimizer cannot go on with. Leave out --optimizer");
}

TEST_CASE("a model that is given a second time must be the same") {
  Data const data;
  fs::path const out = data.folder / "run";
  Json settings = Json::object();
  Options recorded = data.with({"--sequence", "16", "--steps", "9"}).options;
  for_each_setting(recorded, [&](char const* name, auto const& value) { settings[name] = value; });
  nn::Gpt2Config const model{.layers = 1, .heads = 2, .channels = 8, .vocabulary = 60, .padded_vocabulary = 128,
                             .max_tokens = 16};
  CheckpointContents contents;
  contents.step = 2;
  contents.facts = {{"model", to_json(model)}, {"settings", settings}};
  save_checkpoint(out, contents, 0);
  auto const resumed = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"train_gpt2", "--resume", "latest", "--out", out.string()});
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    return make_setup(parse(static_cast<int>(argv.size()), argv.data()).options, 1);
  };
  CHECK(resumed({}).first_step == 2);
  CHECK(resumed({"--vocabulary", "60"}).model.vocabulary == 60);
  REQUIRE_ERROR(resumed({"--vocabulary", "77"}), ErrorKind::configuration, "--vocabulary 77");
  REQUIRE_ERROR(resumed({"--model", "d48"}), ErrorKind::configuration,
                "--model d48: the checkpoint's model has 1 layers");
  REQUIRE_ERROR(resumed({"--model", "weights.bin"}), ErrorKind::configuration, "--model weights.bin");

  Gpt2Model const weights(model);
  write_llmc_gpt2((data.folder / "weights.bin").string(), weights.weights());
  auto const from_file = [&](std::string const& vocabulary) {
    std::vector<std::string> const words{"train_gpt2",   "--data",     (data.folder / "train.bin").string(),
                                         "--sequence",   "16",         "--model",
                                         (data.folder / "weights.bin").string(), "--vocabulary", vocabulary};
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    return make_setup(parse(static_cast<int>(argv.size()), argv.data()).options, 1);
  };
  CHECK(from_file("60").model.vocabulary == 60);
  REQUIRE_ERROR(from_file("1000"), ErrorKind::configuration, "--vocabulary 1000");
}

TEST_CASE("a model from outside the library is described by what its configuration says") {
  struct Tokens {
    std::int64_t vocabulary = 256;
  };
  struct Positions {
    std::int64_t vocabulary = 9, max_tokens = 32;
  };
  struct Nothing {};
  CHECK(facts_of(Tokens()).origin == "this program");
  CHECK(facts_of(Tokens()).sizes == "vocabulary 256");
  CHECK(facts_of(Positions()).sizes == "vocabulary 9, 32 positions");
  CHECK(facts_of(Nothing()).sizes == "sizes of its own");
}

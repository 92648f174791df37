// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/data/dataset.hpp>
#include <tutti/train/command_line.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/setup.hpp>

using namespace tutti;
using namespace tutti::train;
namespace fs = std::filesystem;

namespace {

std::string repeated(std::string const& words, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += words + std::to_string(i) + ".\n\n";
  return text;
}

/// Folders of two texts, `cats` and `hens`, each with a vocabulary of its own, and `cats_again`, prepared from the
/// first text again.
struct Texts {
  fs::path folder = fs::temp_directory_path() / ("tutti-data-files-" + std::to_string(::getpid()));
  Texts() {
    fs::remove_all(folder);
    data::DatasetOptions const options{.vocabulary = 270};
    std::string const cats = repeated("the cat sat on the mat ", 200);
    data::prepare_dataset(cats, path("cats"), "cats", options);
    data::prepare_dataset(cats, path("cats_again"), "cats", options);
    data::prepare_dataset(repeated("our hen ran by our box ", 200), path("hens"), "hens", options);
  }
  ~Texts() { fs::remove_all(folder); }
  std::string path(std::string const& name) const { return (folder / name).string(); }

  Setup with(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train_gpt2", "--sequence", "16", "--steps", "9"});
    std::vector<char const*> argv;
    for (std::string const& word : words) argv.push_back(word.c_str());
    Parsed const parsed = parse(static_cast<int>(argv.size()), argv.data());
    INFO(parsed.text);
    REQUIRE(!parsed.leave);
    return make_setup(parsed.options, 1);
  }
  Setup fresh(std::vector<std::string> words) const {
    words.insert(words.end(), {"--layers", "1", "--channels", "8", "--heads", "2"});
    return with(words);
  }
  /// Leaves a checkpoint of step 2 as a run of `s` would.
  void save(Setup const& s) const {
    CheckpointContents contents;
    contents.step = 2;
    if (s.tokenizer) contents.tokenizer = s.tokenizer->text;
    Json settings = Json::object();
    for_each_setting(s.options, [&](char const* name, auto const& value) { settings[name] = value; });
    contents.facts = {{"model", s.model.json}, {"settings", settings}};
    save_checkpoint(path("run"), contents, 0);
  }
  Setup resumed(std::vector<std::string> words) const {
    words.insert(words.end(), {"--resume", "latest", "--out", path("run")});
    return with(words);
  }
};

}  // namespace

TEST_CASE("data whose documents hold the mark of documents too are not kept apart") {
  Texts const texts;
  CHECK(texts.fresh({"--data", texts.path("cats"), "--pack", "documents"}).train->loader(0).packing()->documents() >
        100);
  std::string const path = texts.path("cats") + "/dataset.json", text = io::read_file(path);
  std::size_t const at = text.find("\"documents\": ");
  REQUIRE(at != std::string::npos);
  io::write_file(path, text.substr(0, at + 13) + "1, \"were\": " + text.substr(at + 13));
  REQUIRE_ERROR(texts.fresh({"--data", texts.path("cats"), "--pack", "documents"}), ErrorKind::configuration,
                "has 1 documents, and <|endoftext|>, with which they begin, stands");
  static_cast<void>(texts.fresh({"--data", texts.path("cats")}));
}

TEST_CASE("a resumed run keeps its data and its tokenizer, and takes the same data from elsewhere") {
  Texts const texts;
  texts.save(texts.fresh({"--data", texts.path("cats")}));
  Setup const kept = texts.resumed({});
  CHECK(kept.options.data == texts.path("cats") + "/train*.bin");
  CHECK(kept.options.validation_data == texts.path("cats") + "/validation.bin");
  CHECK(kept.changes.empty());
  Setup const moved = texts.resumed({"--data", texts.path("cats_again")});
  CHECK(moved.options.validation_data == texts.path("cats_again") + "/validation.bin");
  // The checkpoint carries its tokenizer: the file may be gone.
  fs::remove(texts.folder / "cats" / "tokenizer.json");
  Setup const alone = texts.resumed({});
  REQUIRE(alone.tokenizer);
  CHECK(alone.tokenizer->tokenizer.decode(alone.tokenizer->tokenizer.encode("the cat")) == "the cat");
}

TEST_CASE("data made with another tokenizer than the checkpoint's is refused, whichever flag brings it") {
  Texts const texts;
  texts.save(texts.fresh({"--data", texts.path("cats")}));
  auto const refuse = [&](std::vector<std::string> words, std::string const& part) {
    REQUIRE_ERROR(texts.resumed(words), ErrorKind::configuration, part);
  };
  std::string const hens = texts.path("hens");
  refuse({"--data", hens}, "--data " + hens + "/train*.bin was made with another tokenizer (" + hens);
  refuse({"--data", hens + "/train.bin"}, "than the checkpoint's (" + texts.path("run"));
  refuse({"--validation-data", hens + "/validation.bin"}, "--validation-data " + hens);
  refuse({"--tokenizer", hens + "/tokenizer.json"}, "is not the checkpoint's");
  data::prepare_dataset(repeated("our hen ran by our box ", 200), texts.path("cats"), "hens", {.vocabulary = 270});
  refuse({}, "--data " + texts.path("cats"));  // prepared again from another text, under the same name
}

TEST_CASE("data that says nothing of its tokenizer continues a run with a warning") {
  Texts const texts;
  texts.save(texts.fresh({"--data", texts.path("cats")}));
  auto const warned = [](Setup const& setup) {
    return std::any_of(setup.warnings.begin(), setup.warnings.end(),
                       [](std::string const& text) { return text.find("no tokenizer.json in ") != text.npos; });
  };
  CHECK(!warned(texts.resumed({"--data", texts.path("cats_again")})));
  fs::remove(texts.folder / "hens" / "tokenizer.json");
  CHECK(warned(texts.resumed({"--data", texts.path("hens")})));
  fs::remove(texts.folder / "cats" / "tokenizer.json");
  CHECK(!warned(texts.resumed({})));  // what the run had is known
}

TEST_CASE("a text made with a checkpoint's tokenizer continues its run, and one with another tokenizer starts none") {
  Texts const texts;
  Setup const cats = texts.fresh({"--data", texts.path("cats")});
  texts.save(cats);
  data::prepare_dataset(repeated("our hen ran by our box ", 200), texts.path("fit"), "hens", {},
                        &cats.tokenizer->tokenizer);
  CHECK(texts.resumed({"--data", texts.path("fit")}).train->corpus().tokens() > 1000);
  REQUIRE_ERROR(texts.fresh({"--data", texts.path("cats"), "--tokenizer", texts.path("hens") + "/tokenizer.json"}),
                ErrorKind::configuration, "than --tokenizer " + texts.path("hens"));
}

TEST_CASE("the first prompt is of the held-out text") {
  Texts const texts;
  auto const words = [&](std::string const& name) {
    data::TokenCorpus const corpus(texts.path(name) + "/validation.bin");
    return train::detail::opening_words(corpus, data::read_tokenizer(texts.path(name) + "/tokenizer.json"));
  };
  CHECK(words("cats") == "the cat sat");
  CHECK(words("hens") == "our hen ran");
  data::prepare_dataset(repeated("7 8 9 ", 400), texts.path("numbers"), "numbers", {.vocabulary = 270});
  CHECK(words("numbers").empty());
}

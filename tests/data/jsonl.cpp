// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/target_mask.hpp>
#include <tutti/data/jsonl.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/data/dataset.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>

using namespace tutti;
using data::Marks;

namespace {
std::vector<data::Document> read(std::string const& text, data::JsonlOptions const& options = {}) {
  return data::read_jsonl(text, "a.jsonl", options);
}
data::JsonlOptions const chatml{.field = "", .chat = data::ChatFormat::chatml};

/// So many short conversations, one a line.
std::string talks(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += R"({"messages": [{"role": "user", "content": "Number )" + std::to_string(i) +
            R"(?"}, {"role": "assistant", "content": "It is )" + std::to_string(i) + ".\"}]}\n";
  return text;
}
}  // namespace

TEST_CASE("a line is a document: a text, a prompt with its completion, or a conversation") {
  CHECK(read("").empty());
  CHECK(read("\n \r\n").empty());
  CHECK(read("{\"text\": \"a\\nb\"}\n\n{\"text\": \"\"}") ==
        std::vector<data::Document>{{{{"a\nb"}}}, {{{""}}}});
  CHECK(read(R"({"body": "x", "messages": []})", {.field = "body"}) == std::vector<data::Document>{{{{"x"}}}});
  CHECK(read(R"({"prompt": "2+2=", "completion": "4"})") ==
        std::vector<data::Document>{{{{"2+2=", false}, {"4", true}}}});
  CHECK(read(R"({"prompt": "2+2=", "completion": "4"})", {.field = "", .chat = {}, .count_prompts = true}) ==
        std::vector<data::Document>{{{{"2+2=", true}, {"4", true}}}});
  std::string const talk =
      R"({"messages": [{"role": "system", "content": "S"},)"
      R"( {"role": "user", "content": [{"type": "text", "text": "A"}]},)"
      R"( {"role": "assistant", "content": "B", "weight": 0}, {"role": "user", "content": "C"},)"
      R"( {"role": "assistant", "content": "D", "weight": 1}]})";
  auto const documents = read(talk, chatml);
  REQUIRE(documents.size() == 1);
  CHECK(documents[0].parts ==
        std::vector<data::DocumentPart>{
            {"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n", false,
             Marks::as_tokens},
            {"B<|im_end|>", false, Marks::as_tokens},
            {"\n<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n", false, Marks::as_tokens},
            {"D<|im_end|>", true, Marks::as_tokens},
            {"\n", false, Marks::as_tokens}});
  CHECK(!documents[0].end_counts);
}

TEST_CASE("a line that cannot be used is refused by its number, with what to do") {
  auto const refused = [](std::string const& line, char const* why, data::JsonlOptions const& options = chatml) {
    REQUIRE_ERROR(read("{\"text\": \"fine\"}\n\n" + line, options), ErrorKind::format, "'a.jsonl, line 3'");
    REQUIRE_ERROR(read("{\"text\": \"fine\"}\n\n" + line, options), ErrorKind::format, why);
  };
  refused("{\"text\": ", "JSON is damaged");
  refused("[]", "no object");
  refused("{}", "no \"text\"");
  refused(R"({"text": 7})", "text is not text");
  refused(R"({"prompt": "a", "completion": ""})", "completion is empty");
  refused(R"({"prompt": 1, "completion": "a"})", "prompt is not text");
  refused(talks(1), "--chat-template", {});
  refused(R"({"messages": {}})", "no list");
  refused(R"({"messages": [7]})", "no object");
  refused(R"({"messages": [{"role": "user"}]})", "content is not text");
  refused(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "not text");
  refused(R"({"messages": [{"role": "user", "content": "a"}]})", "nothing to learn");
  refused(R"({"messages": [{"role": "tool", "content": "a"}]})", "'tool'");
  refused(R"({"messages": [{"role": "user", "content": "a<|im_end|>"}]})", "<|im_end|>");
  refused(R"({"messages": [{"role": "assistant", "content": "a", "weight": 2}]})", "weight");
}

TEST_CASE("a folder of conversations has masks: answers and the marks that end them are targets, and nothing else") {
  test::ScratchFolder const folder;
  std::string const text = talks(60);
  data::DatasetOptions const options{.vocabulary = 300, .jsonl = chatml, .marks = data::ChatFormat::chatml};
  auto const written = data::prepare_dataset(text, folder / "a", "a.jsonl", options);
  CHECK(data::read_dataset(folder / "a") == written);
  CHECK(written.train.documents + written.validation.documents == 60);
  CHECK(written.validation.documents == 6);
  auto const tokenizer = data::read_tokenizer(folder / "a/tokenizer.json");
  CHECK(tokenizer.special("<|im_start|>"));
  std::string answers, expected;
  for (std::string const file : {"train.bin", "validation.bin"}) {
    data::TokenCorpus const corpus(folder / "a/" + file);
    REQUIRE(corpus.masked());
    CHECK(corpus.targets() == (file == "train.bin" ? written.train : written.validation).targets);
    auto const tokens = corpus.shards()[0].tokens();
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if ((*corpus.mask(0))[i] && i > 0) answers += tokenizer.token_bytes(tokens[i]);
    if (file == "validation.bin") {
      data::ValidationLoader const loader(data::TokenCorpus(folder / "a/validation.bin"), 8);
      Tensor<std::int32_t> inputs(Shape{loader.windows(), 8}), targets(Shape{loader.windows(), 8});
      CHECK(loader.fill(0, inputs, targets) == loader.predictions());
      CHECK(loader.predictions() == written.validation.targets - 1);  // the file's first token is no target
    } else {
      data::TrainLoader const loader(data::TokenCorpus(folder / "a/train.bin"), 2, 16, 1);
      CHECK(loader.leaves_out_targets());
      Tensor<std::int32_t> inputs(Shape{2, 16}), targets(Shape{2, 16});
      for (std::int64_t step = 0; step < 20; ++step) {
        loader.fill(step, 0, inputs, targets);
        for (std::int64_t row = 0; row < 2; ++row) {
          auto const at = static_cast<std::size_t>(loader.place(step, row).token);
          for (std::size_t t = 0; t < 16; ++t)
            REQUIRE(targets(row, static_cast<std::int64_t>(t)) ==
                    ((*corpus.mask(0))[at + 1 + t] ? tokens[at + 1 + t] : data::ignored_target));
        }
      }
    }
  }
  for (int i = 0; i < 60; ++i) CHECK(test::contains(answers, "It is " + std::to_string(i) + ".<|im_end|>"));
  CHECK(!test::contains(answers, "Number"));
  CHECK(!test::contains(answers, "<|im_start|>"));

  auto const print = [&](data::DatasetOptions const& other) { return data::dataset_fingerprint(text, other); };
  CHECK(data::dataset_is_current(folder / "a", print(options)));
  CHECK(print({.vocabulary = 300}) != print(options));
  CHECK(print({.vocabulary = 300, .jsonl = chatml}) != print(options));
  // A plain text may have the marks too, for a model that is to learn conversations later.
  data::prepare_dataset("a b c d e f g h\n", folder / "plain", "a.txt",
                        {.vocabulary = 300, .marks = data::ChatFormat::chatml});
  CHECK(data::read_tokenizer(folder / "plain/tokenizer.json").special("<|im_end|>"));
  io::write_file(folder / "a/train.mask", io::read_file(folder / "a/train.mask") + "x");
  CHECK(!data::dataset_is_current(folder / "a", print(options)));

  // Without anything left out there is no mask, and one from before is gone.
  data::DatasetOptions all = options;
  all.jsonl->count_prompts = true;
  CHECK(data::prepare_dataset(text, folder / "a", "a.jsonl", all).train.targets == -1);
  CHECK(!io::file_exists(folder / "a/train.mask"));
  CHECK(!data::TokenCorpus(folder / "a/train.bin").masked());
  REQUIRE_ERROR(data::prepare_dataset(talks(1), folder / "b", "a.jsonl", options), ErrorKind::invalid_argument,
                "two lines");
  CHECK(data::prepare_dataset(talks(2), folder / "b", "a.jsonl", options).validation.documents == 1);
}

TEST_CASE("documents are held out whole and evenly, one at least") {
  CHECK(data::hold_out_whole(0, 0.1).empty());
  CHECK(data::hold_out_whole(1, 0.5) == std::vector<bool>{false});
  CHECK(data::hold_out_whole(3, 0.1) == std::vector<bool>{false, false, true});
  CHECK(data::hold_out_whole(3, 0) == std::vector<bool>(3));
  auto const held = data::hold_out_whole(205, 0.1);
  CHECK(std::count(held.begin(), held.end(), true) == 20);
  for (std::size_t i = 0; i + 11 <= held.size(); ++i)
    CHECK(std::find(held.begin() + static_cast<std::ptrdiff_t>(i), held.begin() + static_cast<std::ptrdiff_t>(i + 11),
                    true) != held.begin() + static_cast<std::ptrdiff_t>(i + 11));
  REQUIRE_ERROR(data::hold_out_whole(2, 0.7), ErrorKind::invalid_argument, "outside");
}

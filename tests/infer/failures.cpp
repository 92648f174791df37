// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/service.hpp>
// Every allocation, start of a thread and opening of a file fails once in turn while a model is loaded, served and
// asked: an error comes back, nothing is kept, and the next call works.
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/failing.hpp"

#include <tutti/infer/model_file.hpp>
#include <tutti/infer/service.hpp>

#include <string>

using namespace tutti;
using namespace tutti::infer;

namespace {

struct File {
  test::ScratchFolder folder;
  std::string path = folder / "tiny.gguf";
  File() { test::write_tiny_gguf(path, test::tiny_byte_model(128)); }
};

Request asked(data::Tokenizer const& tokenizer) {
  Request request;
  request.prompt = tokenizer.encode_complete("Hello there");
  request.sampling.temperature = 0;
  request.sampling.repeat_penalty = 1.1;
  request.sampling.repeat_last_n = 8;
  request.stop.max_tokens = 6;
  request.stop.texts = {"never to be"};
  request.grammar = "root ::= [a-z0-9 ]*";
  request.session = "one whose name is longer than a string has room for";
  return request;
}

}  // namespace

TEST_CASE("A model is loaded, served and asked, and whatever fails once is an error and no more") {
  File const file;
  std::string text;
  test::each_fails_once(
      [&] {
        LoadedModel const loaded = load_model_file(file.path, io::Loading::mapped);
        exec::Context context({.threads = 2});
        Service service(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
        return service.submit(asked(loaded.tokenizer))->wait().text;
      },
      [&](std::string const& answer) {
        if (text.empty()) text = answer;
        REQUIRE(answer.size() == 6);
        REQUIRE(answer == text);
      });
}

TEST_CASE("A service that runs answers the next request after any failure") {
  File const file;
  LoadedModel const loaded = load_model_file(file.path, io::Loading::read);
  exec::Context context({.threads = 2});
  Service service(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 2, .capacity = 64}});
  std::string text;
  test::each_fails_once([&] { return service.submit(asked(loaded.tokenizer))->wait().text; },
                        [&](std::string const& answer) {
                          if (text.empty()) text = answer;
                          REQUIRE(answer == text);
                        });
}

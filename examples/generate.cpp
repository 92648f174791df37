// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes text with a trained GPT-2: a checkpoint of train_gpt2, or an llm.c model file with a tokenizer.json.

#include <tutti/data/stream_decoder.hpp>
#include <tutti/data/tokenizer_json.hpp>
#include <tutti/infer/generate.hpp>
#include <tutti/infer/gpt2_decoder.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gpt2_files.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

int main(int argc, char** argv) {
  using tutti::train::must_be;
  constexpr std::int64_t most_tokens = std::int64_t{1} << 40;
  std::string checkpoint, prompt, tokenizer_path;
  std::int64_t count = 200;
  int threads = 0;
  bool to_the_end = false, quiet = false;
  tutti::infer::SamplerOptions sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.95};

  CLI::App app{"Continues a prompt with a trained GPT-2; the text is printed as it is drawn.", "generate"};
  app.add_option("--checkpoint", checkpoint,
                 "folder of a checkpoint, --out folder of a run (its latest), or llm.c model file")
      ->required();
  app.add_option("--prompt", prompt, "text to continue (default: the beginning of a document)");
  tutti::train::add_number(app, "--tokens", count, "most tokens to write")
      ->capture_default_str()
      ->check(must_be<std::int64_t>("between 1 and 1099511627776", [](auto n) { return n >= 1 && n <= most_tokens; }));
  tutti::infer::for_each_sampler_setting(sampling,
                                         [&](std::string flag, auto& value, auto const& may, char const* help) {
                                           std::replace(flag.begin(), flag.end(), '_', '-');
                                           tutti::train::add_setting(app, "--" + flag, value, may, help);
                                         });
  tutti::train::add_number(app, "--seed", sampling.seed, "the same seed gives the same text")->capture_default_str();
  tutti::train::add_number(app, "--threads", threads, "0: all processors of this process")
      ->capture_default_str()
      ->check(must_be<int>("between 0 and 1024", [](int n) { return n >= 0 && n <= 1024; }));
  app.add_option("--tokenizer", tokenizer_path, "tokenizer.json (default: the checkpoint's)");
  app.add_flag("--past-end", to_the_end, "go on when the model ends the document");
  app.add_flag("--quiet", quiet, "print the new text alone, without the prompt");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  try {
    auto const model = tutti::train::Gpt2Model::load(checkpoint);
    if (tokenizer_path.empty()) {
      bool const folder = tutti::io::folder_exists(checkpoint);
      std::filesystem::path const beside =
          folder ? tutti::train::Gpt2Model::folder(checkpoint) : std::filesystem::path(checkpoint).parent_path();
      tokenizer_path = (beside / "tokenizer.json").string();
    }
    tutti::data::Tokenizer const tokenizer = tutti::data::read_tokenizer(tokenizer_path);
    if (tokenizer.vocabulary() > model.weights().config.vocabulary)
      throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                         tokenizer_path + " has " + std::to_string(tokenizer.vocabulary()) + " tokens, the model " +
                             std::to_string(model.weights().config.vocabulary) + ". Give the model's own --tokenizer");

    tutti::exec::Context context({.threads = threads});
    tutti::infer::SequenceBreakers breakers;
    if (sampling.dry_multiplier > 0) {
      std::vector<std::string> pieces;
      for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id)
        pieces.emplace_back(tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id));
      std::string const ends[] = {"\n", ":", "\"", "*"};
      breakers = {ends, pieces, [&](std::string_view text) { return tokenizer.encode(text); }};
    }
    tutti::infer::Sampler sampler(sampling, std::move(breakers));
    tutti::infer::Gpt2Decoder decoder(context, model.weights());
    std::int32_t const end = tokenizer.end_of_text();
    std::vector<std::int32_t> tokens{end};  // every document of the training data begins with it
    tokenizer.encode_to(tokens, prompt);

    tutti::data::StreamDecoder text(tokenizer);
    if (!quiet) std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    tutti::infer::generate(decoder, sampler, tokens, count, to_the_end ? -1 : end, [&](std::int32_t token) {
      // A model may have more classes than its tokenizer has tokens; those mean nothing.
      std::string const piece = token < tokenizer.vocabulary() ? text.push(token) : std::string();
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    });
    std::string const rest = text.finish();
    std::fwrite(rest.data(), 1, rest.size(), stdout);
    std::puts("");
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tutti::Error(tutti::ErrorKind::io, "generate", "the text could not be written. Free space there");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return 1;
  }
}

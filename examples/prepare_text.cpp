// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A text file or JSON lines, plain or compressed by gzip (a dictd dictionary is), become a folder to train on: a
/// vocabulary learned from them, token files of the part to learn and of the part held out, masks of targets.

#include <tutti/data.hpp>
#include <tutti/train/flags.hpp>

#include <fmt/core.h>
#include <zlib.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace {

/// The text of a file; zlib passes what is not compressed through as it is.
std::string read_text(std::string const& path) {
  gzFile const file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return tutti::io::read_file(path);  // says why it cannot be opened
  gzbuffer(file, 1u << 18);
  std::string text;
  int got = 0;
  do {
    std::size_t const used = text.size();
    text.resize(used + (std::size_t{1} << 20));
    got = gzread(file, text.data() + used, 1u << 20);
    text.resize(used + static_cast<std::size_t>(got > 0 ? got : 0));
  } while (got > 0);
  int code = Z_OK;
  std::string const reason = gzerror(file, &code);
  gzclose(file);
  if (code == Z_ERRNO) return tutti::io::read_file(path);  // a folder, say: the operating system's words are better
  if (code != Z_OK)
    throw tutti::Error(tutti::ErrorKind::format, "prepare_text",
                       "'" + path + "' is a damaged gzip file. Fetch it again")
        .with_native(reason);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  using tutti::train::must_be;
  std::string input, folder, tokenizer_path, format = "auto", chat;
  tutti::data::JsonlOptions jsonl;
  tutti::data::DatasetOptions options;
  bool force = false;
  CLI::App app(
      "Makes a vocabulary and token files from a text: tokenizer.json, train.bin, validation.bin, dataset.json.",
      "prepare_text");
  app.add_option("--input", input, "text file or JSON lines, plain or gzip (dictd's .dict.dz too)")->required();
  app.add_option("--out", folder, "folder to write")->required();
  auto* const vocabulary =
      tutti::train::add_number(app, "--vocabulary", options.vocabulary, "tokens in the vocabulary");
  vocabulary->capture_default_str()->check(
      must_be<std::int32_t>("between 257 and 65536", [](auto n) { return n >= 257 && n <= 65536; }));
  tutti::train::add_number(app, "--validation-fraction", options.validation_fraction,
                           "part of the text that is held out")
      ->capture_default_str()
      ->check(must_be<double>("between 0.001 and 0.5", [](double part) { return part >= 0.001 && part <= 0.5; }));
  app.add_option("--tokenizer", tokenizer_path,
                 "tokenizer.json to use, as that of a checkpoint, or vocab.json with merges.txt beside it, instead of "
                 "learning a "
                 "vocabulary from the text")
      ->excludes(vocabulary);
  app.add_option("--format", format, "text; jsonl: a document in each line; auto: jsonl where the name says .jsonl")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "text", "jsonl"}));
  app.add_option("--text-field", jsonl.field,
                 "of a line's object, its text (default: messages, prompt with completion, or text, which it has)");
  app.add_option(
      "--chat-template", chat,
      "how conversations are written: chatml, or a name of ./tutti chat; of a text: whose marks the vocabulary "
      "is to have, for conversations to come");
  app.add_flag("--count-prompts", jsonl.count_prompts, "prompts are targets too, not the assistant's answers alone");
  app.add_flag("--force", force, "write the folder even when it is up to date");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;
  try {
    bool const named = input.ends_with(".jsonl") || input.ends_with(".jsonl.gz");
    if (!chat.empty()) options.marks = jsonl.chat = tutti::data::choose_chat_template("", chat).format;
    if (format == "jsonl" || (format == "auto" && named)) options.jsonl = jsonl;
    else if (!jsonl.field.empty() || jsonl.count_prompts)
      throw tutti::Error(tutti::ErrorKind::configuration, "prepare_text",
                         "--text-field and --count-prompts are of JSON lines, and --input " + input +
                             " is taken for plain text. Leave them out, or add --format jsonl");
    std::string const text = read_text(input);
    std::optional<tutti::data::Tokenizer> tokenizer;
    if (!tokenizer_path.empty()) tokenizer.emplace(tutti::data::read_tokenizer_file(tokenizer_path));
    auto const* const known = tokenizer ? &*tokenizer : nullptr;
    if (!force && tutti::data::dataset_is_current(folder, tutti::data::dataset_fingerprint(text, options, known))) {
      fmt::print("{} is up to date\n", folder);
      return 0;
    }
    tutti::data::Dataset const dataset = tutti::data::prepare_dataset(text, folder, input, options, known);
    fmt::print("{}: vocabulary {}\n", folder, dataset.vocabulary);
    for (auto const& part : {dataset.train, dataset.validation}) {
      fmt::print("  {:<15}{:>9} tokens {:>10} bytes {:>7} documents, {:.3f} bytes per token\n", part.file, part.tokens,
                 part.text_bytes, part.documents,
                 static_cast<double>(part.text_bytes) / static_cast<double>(part.tokens));
      if (part.targets >= 0)
        fmt::print("  {:<15}{:>9} tokens are targets\n", tutti::io::mask_path(part.file), part.targets);
    }
    if (known != nullptr && jsonl.chat)
      for (std::string const& mark : tutti::data::chat_marks(*jsonl.chat))
        if (!known->special(mark))
          fmt::print("WARNING: the vocabulary has no token {}: its letters stand for it. A --chat-template of the "
                     "model's own suits better\n",
                     mark);
  } catch (std::exception const& error) {
    fmt::print(stderr, "prepare_text: {}\n", error.what());
    return 1;
  }
}

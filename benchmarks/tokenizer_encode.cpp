// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes texts for benchmarks/tokenizer.py. Standard input: the bytes of a text behind their number (32 bits, little
// endian), again and again; standard output: the ids of each text behind their number. With --repeat, seconds of each
// pass over all texts go to the standard error stream.

#include <tutti/data/tokenizer_json.hpp>
#include <tutti/data/vocabulary_files.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace {

using namespace tutti;

std::string standard_input() {
  std::string text;
  char part[1 << 16];
  for (std::size_t got; (got = std::fread(part, 1, sizeof part, stdin)) != 0;) text.append(part, got);
  return text;
}

/// The members of a GGUF file's vocabulary as JSON, under the names of `GgufVocabulary`.
data::Tokenizer read_members(std::string const& path) {
  auto const json = io::parse_json(io::read_file(path), path);
  data::GgufVocabulary from;
  from.model = json.at("model");
  from.pre = json.at("pre");
  from.tokens = json.at("tokens").get<std::vector<std::string>>();
  from.scores = json.at("scores").get<std::vector<float>>();
  from.types = json.at("types").get<std::vector<std::int32_t>>();
  from.merges = json.at("merges").get<std::vector<std::string>>();
  auto const id = [&](char const* key, auto& to) {
    if (json.contains(key) && !json[key].is_null())
      to = json[key].get<typename std::decay_t<decltype(to)>::value_type>();
  };
  id("bos", from.bos), id("eos", from.eos), id("unknown", from.unknown);
  id("add_bos", from.add_bos), id("add_space_prefix", from.add_space_prefix);
  return data::make_tokenizer(from, path);
}

}  // namespace

int main(int argc, char** argv) {
  std::string kind, path, second, pre;
  std::vector<std::string> specials;
  int repeat = 0;
  bool marks = false;
  CLI::App app{"Encodes texts from standard input.", "tokenizer_encode"};
  app.add_option("kind", kind)->required()->check(CLI::IsMember({"json", "ranks", "gpt2", "llmc", "members"}));
  app.add_option("file", path)->required();
  app.add_option("second", second, "gpt2: encoder.json, behind vocab.bpe");
  app.add_option("--pre", pre, "ranks: name of the pre-tokenizer, or cl100k");
  app.add_option("--special", specials, "ranks: MARK=ID");
  app.add_flag("--marks", marks, "marks in the text are tokens");
  app.add_option("--repeat", repeat, "timed passes");
  CLI11_PARSE(app, argc, argv);
  try {
    data::RankOptions options;
    if (!pre.empty() && pre != "cl100k") options.patterns = data::patterns_named(pre).patterns;
    for (std::string const& special : specials) {
      auto const at = special.rfind('=');
      options.specials.push_back({special.substr(0, at), std::stoi(special.substr(at + 1))});
    }
    data::Tokenizer const tokenizer = kind == "json"    ? data::read_tokenizer(path)
                                      : kind == "ranks" ? data::read_ranks(path, options)
                                      : kind == "gpt2"  ? data::read_gpt2_vocabulary(path, second)
                                      : kind == "llmc"  ? data::read_llmc_tokenizer(path)
                                                        : read_members(path);
    std::string const input = standard_input();
    std::vector<std::string_view> texts;
    for (std::string_view left = input; !left.empty();) {
      std::uint32_t size = 0;
      if (left.size() < 4) throw Error(ErrorKind::format, "tokenizer_encode", "the input is cut off. Give whole texts");
      std::memcpy(&size, left.data(), 4);
      texts.push_back(left.substr(4, size));
      left.remove_prefix(std::min(left.size(), std::size_t{size} + 4));
    }
    data::Marks const how = marks ? data::Marks::as_tokens : data::Marks::as_text;
    std::vector<std::int32_t> ids;
    for (std::string_view const text : texts) {
      ids.clear();
      tokenizer.encode_to(ids, text, how);
      auto const count = static_cast<std::uint32_t>(ids.size());
      std::fwrite(&count, 4, 1, stdout);
      std::fwrite(ids.data(), 4, ids.size(), stdout);
    }
    for (int pass = 0; pass < repeat; ++pass) {
      auto const begin = std::chrono::steady_clock::now();
      std::size_t total = 0;
      for (std::string_view const text : texts) {
        ids.clear();
        tokenizer.encode_to(ids, text, how);
        total += ids.size();
      }
      double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      std::fprintf(stderr, "%.6f %zu\n", seconds, total);
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "tokenizer_encode: %s\n", error.what());
    return 1;
  }
}

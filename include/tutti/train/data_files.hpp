// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The token files and the tokenizer of a run, and whether they belong together: token ids mean something else to
/// another tokenizer, and nothing in a file of tokens shows it.

#include <tutti/data/dataset.hpp>
#include <tutti/data/loader.hpp>
#include <tutti/data/tokenizer_files.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/data_sets.hpp>
#include <tutti/train/options.hpp>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// A tokenizer, its text, and what people know it by: a flag with its file, or the checkpoint that carries it.
struct RunTokenizer {
  data::Tokenizer tokenizer;
  std::string text;
  std::string origin;
};

namespace detail {

/// f(), whose errors are said of a flag.
template <class F>
auto said_of(std::string const& flag, F&& f) {
  try {
    return f();
  } catch (Error const& error) {
    throw Error(error.kind(), "train_model", flag + ": " + error.message()).with_native(error.native());
  }
}

/// The tokenizer.json that prepare_text puts beside token files, or what a model's folder has in its place, or nothing.
inline std::string tokenizer_beside(std::filesystem::path const& folder) { return data::tokenizer_in(folder.string()); }

/// Whether `--model` is a folder or a GGUF file, whose weights a run starts with. A size as d12 stays one.
inline bool starts_from_files(std::string const& model) {
  bool const size = model.starts_with('d') && model.find_first_not_of("0123456789", 1) == std::string::npos;
  return model.ends_with(".gguf") || (!model.empty() && !size && io::folder_exists(model));
}

/// A folder stands for the files that prepare_text put there. A model's folder brings the tokenizer whose ids it knows.
/// Errors: configuration.
inline void expand_data_folder(Options& o) {
  namespace fs = std::filesystem;
  if (o.tokenizer.empty() && o.resume.empty() && starts_from_files(o.model)) o.tokenizer = tokenizer_beside(o.model);
  std::vector<DataSet> sets = parse_data_sets("--data", o.data), held_out;
  for (DataSet& set : sets) {
    fs::path folder = fs::path(set.path).parent_path();
    if (io::folder_exists(set.path)) {
      folder = set.path;
      if (io::file_exists((folder / "validation.bin").string()))
        held_out.push_back({(folder / "validation.bin").string()});
      set.path = (folder / "train*.bin").string();
    }
    if (o.tokenizer.empty()) o.tokenizer = tokenizer_beside(folder);
  }
  o.data = text_of(sets);
  if (!o.validation_data.empty() || held_out.empty()) return;
  o.validation_data = text_of(held_out);
  if (o.typed.contains("data")) o.typed.insert("validation-data");  // a folder that was typed means both
}

/// The tokenizer of a run: the one that --tokenizer names, else a resumed checkpoint's own, else the one beside the
/// data. Errors: io, format; configuration, when --tokenizer is not the checkpoint's.
inline std::optional<RunTokenizer> choose_tokenizer(Options const& o, std::optional<Checkpoint> const& resume) {
  std::optional<RunTokenizer> saved, given;
  if (resume && !resume->tokenizer().empty()) {
    std::string const path = (resume->folder() / "tokenizer.json").string();
    saved = RunTokenizer{data::parse_tokenizer(resume->tokenizer(), path), resume->tokenizer(),
                         "the checkpoint's (" + path + ")"};
    if (!o.typed.contains("tokenizer")) return saved;
  }
  if (o.tokenizer.empty()) return given;
  said_of("--tokenizer", [&] {
    std::string const text = data::tokenizer_text(o.tokenizer);
    given = RunTokenizer{data::parse_tokenizer(text, o.tokenizer), text, "--tokenizer " + o.tokenizer};
  });
  if (saved && data::tokenizer_to_json(saved->tokenizer) != data::tokenizer_to_json(given->tokenizer))
    throw Error(
        ErrorKind::configuration, "train_model",
        given->origin + " is not " + saved->origin + ", with which the model has learned. Leave out --tokenizer");
  return given;
}

/// Refuses token files beside which lies another tokenizer than the run's: with that one they were made.
/// Gives a folder of them that has no tokenizer.json, with which nothing can be compared; empty where all have one.
/// Errors: configuration, naming flag and files; format, for a tokenizer.json that cannot be read.
inline std::string require_data_of_tokenizer(std::string const& flag, data::TokenCorpus const& corpus,
                                      RunTokenizer const& run) {
  std::set<std::filesystem::path> folders;
  std::string without;
  for (io::TokenShard const& shard : corpus.shards()) folders.insert(std::filesystem::path(shard.path()).parent_path());
  for (std::filesystem::path const& folder : folders) {
    std::string const beside = tokenizer_beside(folder);
    if (beside.empty()) {
      without = folder.empty() ? std::string(".") : folder.string();
      continue;
    }
    data::Tokenizer const made = said_of(flag, [&] { return data::read_tokenizer_file(beside); });
    if (data::tokenizer_to_json(made) != data::tokenizer_to_json(run.tokenizer))
      throw Error(ErrorKind::configuration, "train_model",
                  flag + " " + corpus.pattern() + " was made with another tokenizer (" + beside + ") than " +
                      run.origin +
                      ": from another text, or with another vocabulary. Its token ids mean something else "
                      "to this model. Make it with that tokenizer (prepare_text --tokenizer FILE), or start a new run");
  }
  return without;
}

/// Refuses to keep documents apart where the token that begins them stands within them too, as </s> ends turns in
/// some chat templates. Only a description beside token files tells. Errors: configuration.
inline void require_documents(std::string const& flag, data::TokenCorpus const& corpus, std::int64_t found,
                              std::string const& mark) {
  std::int64_t documents = 0;
  for (io::TokenShard const& shard : corpus.shards()) {
    auto const described = data::describe_shard(shard);
    if (!described) return;
    documents += described->documents;
  }
  if (documents != found)
    throw Error(ErrorKind::configuration, "train_model",
                "--pack documents: " + flag + " " + corpus.pattern() + " has " + std::to_string(documents) +
                    " documents, and " + mark + ", with which they begin, stands " + std::to_string(found) +
                    " times: within them too. Leave out --pack, or make the data with another --chat-template");
}

/// Three words in a row from the beginning of held-out text, for a first prompt; empty where there are none.
inline std::string opening_words(data::TokenCorpus const& corpus, data::Tokenizer const& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::int32_t const token : corpus.shards().front().tokens().first(2000))
    if (token >= 0 && token < tokenizer.vocabulary() && !tokenizer.is_special(token)) ids.push_back(token);
  std::string const text = tokenizer.decode(ids);
  auto const letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0; };
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size() && words.size() < 3;) {
    std::size_t const begin = text.find_first_not_of(" \t\r\n", at), end = text.find_first_of(" \t\r\n", begin);
    if (begin == std::string::npos || end == std::string::npos) break;  // the last word may be cut
    std::string const word = text.substr(begin, end - begin);
    if (std::all_of(word.begin(), word.end(), letter)) words.push_back(word);
    else words.clear();
    at = end;
  }
  return words.size() < 3 ? std::string() : words[0] + " " + words[1] + " " + words[2];
}

}  // namespace detail
}  // namespace tutti::train

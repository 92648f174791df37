// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A folder that a trainer can be pointed at: tokenizer.json, train.bin, validation.bin, and dataset.json, which says
/// what they are and is written last.

#include <tutti/core/hash.hpp>
#include <tutti/data/bpe_trainer.hpp>
#include <tutti/data/corpus.hpp>
#include <tutti/data/jsonl.hpp>
#include <tutti/data/loader.hpp>
#include <tutti/data/tokenizer_json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

/// What one token file of a dataset stands for.
struct DatasetSplit {
  std::string file;         ///< name inside the dataset's folder
  std::int64_t tokens = 0;  ///< with the <|endoftext|> before each document
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
  std::int64_t targets = -1;  ///< tokens that count as targets, where a mask beside the file says which; -1: all

  friend bool operator==(DatasetSplit const&, DatasetSplit const&) = default;
};

struct Dataset {
  std::string input;              ///< name of the text, for people
  std::uint64_t fingerprint = 0;  ///< of the text and of the options
  std::uint64_t contents = 0;     ///< hash of the three files; 0 where the description does not say
  std::int32_t vocabulary = 0;
  std::int32_t end_of_text = 0;
  DatasetSplit train, validation;

  friend bool operator==(Dataset const&, Dataset const&) = default;
};

struct DatasetOptions {
  std::int32_t vocabulary = 1024;  ///< small texts are learned best in short tokens
  double validation_fraction = 0.1;
  std::optional<JsonlOptions> jsonl{};  ///< how to read the text as JSON lines; else it is plain text
  std::optional<ChatFormat> marks{};    ///< whose marks a learned vocabulary has as tokens, for conversations to come
};

/// Ids of a vocabulary, at most.
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 22;

inline std::string dataset_to_json(Dataset const& dataset) {
  auto const split = [](DatasetSplit const& part) {
    return "{\"file\": " + io::quote_json(part.file) + ", \"tokens\": " + std::to_string(part.tokens) +
           ", \"documents\": " + std::to_string(part.documents) +
           ", \"text_bytes\": " + std::to_string(part.text_bytes) +
           (part.targets < 0 ? "" : ", \"targets\": " + std::to_string(part.targets)) + "}";
  };
  return "{\n  \"format\": \"tutti dataset\",\n  \"version\": 1,\n  \"input\": " + io::quote_json(dataset.input) +
         ",\n  \"fingerprint\": \"" + std::to_string(dataset.fingerprint) +
         "\",\n  \"contents\": \"" + std::to_string(dataset.contents) +
         "\",\n  \"tokenizer\": \"tokenizer.json\",\n  \"vocabulary\": " + std::to_string(dataset.vocabulary) +
         ",\n  \"end_of_text\": " + std::to_string(dataset.end_of_text) + ",\n  \"train\": " + split(dataset.train) +
         ",\n  \"validation\": " + split(dataset.validation) + "\n}\n";
}

/// Errors: io; format, naming file and key.
inline Dataset read_dataset(std::string const& folder) {
  std::string const path = folder + "/dataset.json";
  nlohmann::json const json = io::parse_json(io::read_file(path), path, "read_dataset");
  auto const refuse = [&](std::string const& why) -> Error {
    return Error(
        ErrorKind::format, "read_dataset",
        "'" + path + "' is not a usable dataset description: " + why + ". Make the dataset again with prepare_text");
  };
  if (!json.is_object() || json.value("format", nlohmann::json()) != "tutti dataset")
    throw refuse("its format is not \"tutti dataset\"");
  if (json.value("version", nlohmann::json()) != 1) throw refuse("its version is not 1");
  auto const count = [&](nlohmann::json const& object, char const* key, std::int64_t most) {
    if (!object.contains(key) || !object[key].is_number_unsigned() ||
        object[key].get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      throw refuse(std::string(key) + " is not a count up to " + std::to_string(most));
    return object[key].get<std::int64_t>();
  };
  auto const text = [&](nlohmann::json const& object, char const* key) {
    if (!object.contains(key) || !object[key].is_string()) throw refuse(std::string(key) + " is not text");
    return object[key].get<std::string>();
  };
  auto const split = [&](char const* key) {
    if (!json.contains(key) || !json[key].is_object()) throw refuse(std::string(key) + " is missing");
    auto const& part = json[key];
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    return DatasetSplit{text(part, "file"), count(part, "tokens", most), count(part, "documents", most),
                        count(part, "text_bytes", most), part.contains("targets") ? count(part, "targets", most) : -1};
  };
  Dataset dataset;
  dataset.input = text(json, "input");
  auto const hash = [&](char const* key) {
    std::string const digits = text(json, key);
    if (digits.empty() || digits.size() > 20 || digits.find_first_not_of("0123456789") != std::string::npos)
      throw refuse(std::string(key) + " is not a number");
    std::uint64_t value = 0;
    for (char const digit : digits) value = value * 10 + static_cast<std::uint64_t>(digit - '0');
    return value;
  };
  dataset.fingerprint = hash("fingerprint");
  if (json.contains("contents")) dataset.contents = hash("contents");
  dataset.vocabulary = static_cast<std::int32_t>(count(json, "vocabulary", most_tokens));
  dataset.end_of_text = static_cast<std::int32_t>(count(json, "end_of_text", most_tokens - 1));
  dataset.train = split("train");
  dataset.validation = split("validation");
  return dataset;
}

/// What the dataset description beside a token file says of it; nothing when there is none or it speaks of another
/// file.
inline std::optional<DatasetSplit> describe_shard(io::TokenShard const& shard) {
  std::string const folder = io::detail::folder_of(shard.path());
  if (!io::file_exists(folder + "/dataset.json")) return std::nullopt;
  Dataset const dataset = read_dataset(folder);
  auto const slash = shard.path().rfind('/');
  std::string const file = slash == std::string::npos ? shard.path() : shard.path().substr(slash + 1);
  for (DatasetSplit const& split : {dataset.train, dataset.validation})
    if (split.file == file && split.tokens == static_cast<std::int64_t>(shard.tokens().size())) return split;
  return std::nullopt;
}

namespace detail {
inline std::string words_of(DatasetOptions const& options) {
  std::string words = options.marks ? " marks " + std::string(name_of(*options.marks)) : "";
  if (!options.jsonl) return words;
  JsonlOptions const& jsonl = *options.jsonl;
  return words + " jsonl " + io::quote_json(jsonl.field) + (jsonl.chat ? std::string(name_of(*jsonl.chat)) : "") +
         (jsonl.count_prompts ? " prompts" : "");
}
}  // namespace detail

/// What `prepare_dataset` would record for this text, these options and this tokenizer.
inline std::uint64_t dataset_fingerprint(std::string_view text, DatasetOptions const& options,
                                         Tokenizer const* tokenizer = nullptr) {
  std::string const words = "tutti dataset 1 " +
                            (tokenizer ? tokenizer_to_json(*tokenizer) : std::to_string(options.vocabulary)) + " " +
                            std::to_string(options.validation_fraction) + detail::words_of(options);
  return hash_bytes(std::as_bytes(std::span(words)), hash_bytes(std::as_bytes(std::span(text))));
}

namespace detail {
/// Hash of the files that a dataset consists of, beside its description. Errors: io.
inline std::uint64_t hash_contents(std::string const& folder, Dataset const& dataset) {
  std::uint64_t hash = 0;
  std::vector<std::string> files{"tokenizer.json", dataset.train.file, dataset.validation.file};
  for (DatasetSplit const& split : {dataset.train, dataset.validation})
    if (split.targets >= 0) files.push_back(io::mask_path(split.file));
  for (std::string const& file : files) hash = io::hash_file(folder + "/" + file, hash);
  return hash;
}
}  // namespace detail

/// Whether `folder` holds, complete and undamaged, what these inputs would give.
inline bool dataset_is_current(std::string const& folder, std::uint64_t expected_fingerprint) {
  try {
    Dataset const dataset = read_dataset(folder);
    return dataset.fingerprint == expected_fingerprint &&
           dataset.contents == detail::hash_contents(folder, dataset);
  } catch (Error const&) {
    return false;
  }
}

namespace detail {

/// What is learned from, and what is held out, of JSON lines.
struct HeldOutDocuments {
  std::vector<Document> train, validation;
};
inline HeldOutDocuments hold_out_lines(std::string_view text, std::string const& input, DatasetOptions const& options) {
  HeldOutDocuments parts;
  std::vector<Document> all = read_jsonl(text, input, *options.jsonl);
  std::vector<bool> const held = hold_out_whole(all.size(), options.validation_fraction);
  for (std::size_t i = 0; i < all.size(); ++i)
    (held[i] ? parts.validation : parts.train).push_back(std::move(all[i]));
  return parts;
}

/// Tokens, and of each whether it is a target (empty: all are). Gives the bytes of text.
inline std::int64_t encode(Tokenizer const& tokenizer, std::vector<std::string_view> const& documents,
                           std::int32_t before, std::vector<std::int32_t>& ids, std::vector<bool>&) {
  std::int64_t bytes = 0;
  tokenizer.encode_documents(ids, documents, before);
  for (std::string_view const document : documents) bytes += static_cast<std::int64_t>(document.size());
  return bytes;
}
inline std::int64_t encode(Tokenizer const& tokenizer, std::vector<Document> const& documents, std::int32_t before,
                           std::vector<std::int32_t>& ids, std::vector<bool>& counts) {
  bool end_counts = true;
  tokenizer.encode_parts(ids, [&](auto const& part_to_ids) {
    for (Document const& document : documents) {
      ids.push_back(before);
      counts.push_back(std::exchange(end_counts, document.end_counts));
      for (DocumentPart const& part : document.parts) {
        part_to_ids(part.text, part.marks);
        counts.resize(ids.size(), part.counts);
      }
    }
  });
  std::int64_t bytes = 0;
  for (std::int32_t const id : ids)
    if (!tokenizer.is_special(id)) bytes += static_cast<std::int64_t>(tokenizer.token_bytes(id).size());
  return bytes;
}

inline Tokenizer learn_vocabulary(std::vector<std::string_view> const& documents, DatasetOptions const& options) {
  BpeOptions bpe{.vocabulary = options.vocabulary};
  if (options.marks)
    for (std::string const& mark : chat_marks(*options.marks)) bpe.specials.push_back(mark);
  return train_bpe(documents, bpe);
}

inline Tokenizer learn_vocabulary(std::vector<Document> const& documents, DatasetOptions const& options) {
  std::vector<std::string_view> texts;
  for (Document const& document : documents)
    for (DocumentPart const& part : document.parts) texts.push_back(part.text);
  return learn_vocabulary(texts, options);
}

/// Parts of a HeldOut or of HeldOutDocuments.
template <class Parts>
Dataset write_dataset(Parts const& parts, std::uint64_t fingerprint, std::string const& folder, std::string input,
                      DatasetOptions const& options, Tokenizer const* known, std::size_t bytes) {
  if (parts.train.empty() || (options.validation_fraction > 0 && parts.validation.empty()))
    throw Error(ErrorKind::invalid_argument, "prepare_dataset",
                "a text of " + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes") +
                    " is too short to hold out a part of it. Use more text" +
                    (options.jsonl ? ", two lines or more" : ""));
  std::optional<Tokenizer> learned;
  if (known == nullptr) learned.emplace(learn_vocabulary(parts.train, options));
  Tokenizer const& tokenizer = known ? *known : *learned;

  io::make_folder(folder);
  Dataset dataset;
  dataset.input = std::move(input);
  dataset.fingerprint = fingerprint;
  dataset.vocabulary = tokenizer.vocabulary();
  dataset.end_of_text = tokenizer.end_of_text();
  auto const write = [&](auto const& documents, std::string const& file) {
    DatasetSplit split{file, 0, static_cast<std::int64_t>(documents.size()), 0};
    std::vector<std::int32_t> ids;
    std::vector<bool> counts;
    split.text_bytes = encode(tokenizer, documents, dataset.end_of_text, ids, counts);
    split.tokens = static_cast<std::int64_t>(ids.size());
    std::string const path = folder + "/" + file;
    static_cast<void>(std::remove(io::mask_path(path).c_str()));  // of what was there before
    if (tokenizer.vocabulary() > 65536) io::write_wide_token_shard(path, ids);
    else io::write_token_shard(path, std::vector<std::uint16_t>(ids.begin(), ids.end()));
    if (std::find(counts.begin(), counts.end(), false) != counts.end()) {
      split.targets = std::count(counts.begin(), counts.end(), true);
      io::write_target_mask(path, counts);
    }
    return split;
  };
  write_tokenizer(folder + "/tokenizer.json", tokenizer);
  dataset.train = write(parts.train, "train.bin");
  dataset.validation = write(parts.validation, "validation.bin");
  dataset.contents = hash_contents(folder, dataset);
  io::write_file(folder + "/dataset.json", dataset_to_json(dataset));
  return dataset;
}

}  // namespace detail

/// Text to tokens: cuts `text` into documents, holds some out, learns a vocabulary on the others alone, unless there is
/// a tokenizer already, and writes the folder: tokens of 16 bits, or of 32 for a vocabulary beyond 65536. Every
/// document begins with <|endoftext|>. Of JSON lines whose prompts are no targets a mask stands beside each token file
/// (io/target_mask.hpp).
/// Determinism: the same text, options and tokenizer give the same bytes.
/// Errors: invalid_argument, for impossible options or a text too short to hold anything out; format, naming a line;
/// io.
inline Dataset prepare_dataset(std::string_view text, std::string const& folder, std::string input,
                               DatasetOptions const& options = {}, Tokenizer const* known = nullptr) {
  if (std::int32_t const size = known ? known->vocabulary() : options.vocabulary; size > most_tokens)
    throw Error(ErrorKind::invalid_argument, "prepare_dataset",
                "a vocabulary of " + std::to_string(size) + " is too large. Use at most " +
                    std::to_string(most_tokens));
  std::uint64_t const print = dataset_fingerprint(text, options, known);
  if (options.jsonl) {
    auto const parts = detail::hold_out_lines(text, input, options);
    return detail::write_dataset(parts, print, folder, std::move(input), options, known, text.size());
  }
  HeldOut const parts = hold_out(split_documents(text), options.validation_fraction);
  return detail::write_dataset(parts, print, folder, std::move(input), options, known, text.size());
}

}  // namespace tutti::data

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model of any file that is read here, in one form for all that is made of it: other files, and runs that start with
/// its weights. Tensors stay in the memory of the mapped files and are read row after row.

#include <tutti/data/chat_template.hpp>
#include <tutti/data/tokenizer_files.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/llama_files.hpp>
#include <tutti/train/source_matrix.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::train {

/// A model and what is known beside its weights.
struct ModelSource {
  nn::StoredModel model;       ///< every row of the embedding that is no mere padding is a token of its configuration
  bool turned = false;         ///< matrices of GPT-2's blocks lie as (inputs, outputs)
  bool begins_texts = false;   ///< texts began with the mark between documents in training
  std::string name;            ///< for people
  std::string folder;          ///< of a model as Hugging Face publishes them; else empty
  std::shared_ptr<io::Gguf const> gguf{};  ///< a GGUF file; else nothing
  std::optional<data::Tokenizer> tokenizer{};
  std::string
      tokenizer_text{};  ///< tokenizer.json as it is, or made of vocab.json; empty: `tokenizer` is of a GGUF file
  std::string chat_template{};

  bool gpt2() const noexcept { return std::holds_alternative<nn::Gpt2Config>(model.config); }
  nn::Gpt2Config const& gpt2_config() const { return std::get<nn::Gpt2Config>(model.config); }
  nn::LlamaConfig const& llama_config() const { return std::get<nn::LlamaConfig>(model.config); }
  /// Rows of embedding and head.
  std::int64_t classes() const { return model.vocabulary(); }
  /// Of the matrices, where it is one that safetensors have; else float32.
  BlockType type() const {
    nn::StoredTensor const* const table = model.find("token_embd.weight");
    return table == nullptr || is_quantised(table->type) ? BlockType::f32 : table->type;
  }
};

/// Finds the tensors of a source by GGUF's names, of the sizes that its configuration wants. Errors: format.
class SourceTensors {
 public:
  explicit SourceTensors(ModelSource const& source) : source_(source) {}

  /// The first `rows` of the embedding or the head, and so many in all.
  SourceMatrix table(std::string const& name, std::int64_t padded) const {
    nn::StoredTensor const* const found = source_.model.find(name);
    std::int64_t const rows = source_.classes(), columns = source_.model.channels();
    SourceMatrix matrix{columns, {{&source_.model.at(name, found == nullptr ? rows : found->rows, columns), 0, rows}}};
    if (matrix.parts[0].tensor->rows < rows) static_cast<void>(source_.model.at(name, rows, columns));
    if (padded > rows) matrix.parts.push_back({nullptr, 0, padded - rows});
    return matrix;
  }
  SourceMatrix matrix(std::string const& name, std::int64_t rows, std::int64_t columns) const {
    bool const turned = source_.turned && name.starts_with("blk.");
    nn::StoredTensor const& tensor =
        source_.model.at(name, turned ? columns : rows, turned ? rows : columns);
    return {columns, {{&tensor, 0, rows, turned}}};
  }
  SourceMatrix vector(std::string const& name, std::int64_t size) const {
    return {1, {{&source_.model.at(name, 1, size), 0, size}}};
  }

  /// Queries, keys or values (0, 1, 2) of a LLaMA's layer, or their bias, in the wanted pairing. Errors: configuration,
  /// where a part of each head alone is rotated and the pairing is another.
  SourceMatrix heads(std::int64_t layer, int which, bool bias, kernel::RotaryPairing wanted) const {
    nn::LlamaConfig const& c = source_.llama_config();
    std::int64_t const q = c.heads * c.head_size, kv = c.kv_heads * c.head_size, rows = which == 0 ? q : kv,
                       first = which == 0 ? 0 : q + (which - 1) * kv;
    std::string const block = "blk." + std::to_string(layer) + ".";
    std::string const own = block + (which == 0 ? "attn_q.weight" : which == 1 ? "attn_k.weight" : "attn_v.weight");
    SourceMatrix result{1, {}};
    if (bias) {
      result.parts.push_back({&source_.model.at(block + "attn_qkv.bias", 1, q + 2 * kv), first, rows});
    } else if (source_.model.find(own) != nullptr) {
      result = matrix(own, rows, c.channels);
    } else {
      result = {c.channels, {{&source_.model.at(block + "attn_qkv.weight", q + 2 * kv, c.channels), first, rows}}};
    }
    if (which == 2 || c.pairing == wanted) return result;
    if (static_cast<std::int64_t>(source_.model.rotation.frequencies.size()) * 2 != c.head_size)
      throw Error(ErrorKind::configuration, "convert",
                  "'" + source_.model.source +
                      "' rotates a part of each head alone, which this target cannot say. Choose another");
    result.parts[0].head = c.head_size;
    result.parts[0].halves = wanted == kernel::RotaryPairing::half;
    return result;
  }

 private:
  ModelSource const& source_;
};

/// Whether folders and GGUF files say a model's stretched rotations by their kind and its numbers. One list of factors
/// alone, as LLaMA 3.1 has, is no kind.
inline bool said_by_kind(nn::Rotation const& rotation) {
  nn::RotationScaling const& s = rotation.scaling;
  bool const lists = !s.short_factors.empty() && s.short_factors.size() == s.long_factors.size() &&
                     (s.short_factors != s.long_factors || rotation.magnitude != 1);
  return s.kind == "yarn" || s.kind == "linear" || (s.kind == "longrope" && lists);
}
/// Whether all pairs of a head are rotated as rotary_base alone says: nothing is stretched for long texts.
inline bool rotates_plainly(ModelSource const& source) {
  nn::LlamaConfig const& c = source.llama_config();
  nn::Rotation const plain = nn::rotation_of(c.head_size, c.head_size, c.rotary_base, {}, c.max_tokens);
  nn::Rotation const& has = source.model.rotation;
  if (has.frequencies.size() != plain.frequencies.size() || has.magnitude != 1) return false;
  for (std::size_t i = 0; i < plain.frequencies.size(); ++i)
    if (std::abs(has.frequencies[i] / plain.frequencies[i] - 1) > 1e-6) return false;
  return true;
}

namespace detail {

inline bool begins_with(std::string const& path, std::string_view bytes) {
  std::string begin(bytes.size(), '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == bytes;
}
/// Rows behind the tokens are padding in a file of this library's; elsewhere they may be anything, and stay.
inline void count_every_row(nn::StoredModel& model) {
  std::visit([](auto& c) { c.vocabulary = c.padded_vocabulary; }, model.config);
}
inline void take_tokenizer(ModelSource& source, std::string const& path, std::string const& text) {
  source.tokenizer = data::parse_tokenizer(text, path);
  source.tokenizer_text = text;
}

/// A vocabulary with ChatML's marks that was learned here is of a model that knows conversations in it, or is to.
inline void know_conversations(ModelSource& source) {
  auto const start = source.tokenizer->special("<|im_start|>"), end = source.tokenizer->special("<|im_end|>");
  if (source.chat_template.empty() && start && end) source.chat_template = data::chatml_template;
  auto const known = data::recognise_chat_template(source.chat_template);
  if (!known || known->format != data::ChatFormat::chatml || !end || source.tokenizer->roles().end_of_turn) return;
  data::TokenizerParts parts = source.tokenizer->parts();
  parts.roles.end_of_turn = end;
  source.tokenizer = data::Tokenizer(std::move(parts));
}

inline void open_onnx(ModelSource& source, std::string const& path) {
  auto const file = std::make_shared<io::Onnx const>(path);
  source.model = infer::read_onnx_model(file);
  source.chat_template = infer::onnx_chat_template(*file);
  source.tokenizer = infer::onnx_tokenizer(*file);
  if (std::string const* const text = file->find_metadata("tutti.tokenizer")) source.tokenizer_text = *text;
}

}  // namespace detail

/// `path` is a GGUF file, an ONNX file that this library wrote, an llm.c model file, a checkpoint or the `--out` folder
/// of a run (its latest), or a folder as Hugging Face publishes models. `tokenizer`: a file of data::tokenizer_text in
/// the place of the model's own; a model need not have one. Errors: io, format; configuration, for what is none of
/// these.
inline ModelSource open_model(std::string const& path, std::string const& tokenizer = "") {
  namespace fs = std::filesystem;
  ModelSource source;
  auto const refuse = [&](std::string const& why) {
    throw Error(ErrorKind::configuration, "open_model",
                "'" + path + "' " + why +
                    ". Pass a GGUF file, an ONNX file of this program, an llm.c model file, a checkpoint, the folder "
                    "of a run, or a folder with config.json and safetensors");
  };
  if (!io::file_exists(path)) refuse("does not exist");
  if (std::string const what = io::foreign_model_at(path); !what.empty() && !infer::is_hugging_face(path))
    throw Error(ErrorKind::configuration, "open_model", io::foreign_model_sentence(path, what));
  fs::path beside = fs::path(path).parent_path();
  if (io::folder_exists(path)) {
    beside = path;
    if (infer::is_hugging_face(path)) {
      source.folder = path;
      source.model = infer::stored_hugging_face(path);
      source.turned = source.gpt2();
      source.chat_template = infer::detail::hugging_face_chat_template(path);
    } else if (fs::exists(beside / "checkpoints") || fs::exists(beside / "checkpoint.json")) {
      beside = Gpt2Model::folder(path);
      auto const checkpoint = std::make_shared<Checkpoint const>(beside);
      source.model = architecture_of(*checkpoint) == "llama" ? stored_llama(checkpoint) : stored_gpt2(checkpoint);
      source.begins_texts = checkpoint->facts().value("begins_texts", true);  // false: of a model of others, converted
      source.chat_template = checkpoint->chat_template();
    } else {
      refuse("is a folder without config.json and without checkpoints");
    }
  } else if (detail::begins_with(path, "GGUF")) {
    source.gguf = std::make_shared<io::Gguf const>(path);
    source.model = infer::read_gguf_model(source.gguf);
    detail::count_every_row(source.model);
    if (!tokenizer.empty())
      throw Error(ErrorKind::configuration, "open_model", "a GGUF file has its own tokenizer. Leave --tokenizer out");
    data::GgufVocabulary const vocabulary = infer::gguf_vocabulary(*source.gguf);
    source.tokenizer = data::make_tokenizer(vocabulary, path);
    source.chat_template = vocabulary.chat_template;
  } else if (infer::is_onnx(path)) {
    detail::open_onnx(source, path);
  } else if (std::int32_t const magic = 20240326;
             detail::begins_with(path, {reinterpret_cast<char const*>(&magic), sizeof magic})) {
    source.model = stored_gpt2(std::make_shared<io::LlmcModel const>(path));
    source.begins_texts = true;
  } else {
    refuse(path.ends_with(".safetensors") ? "is one of the files of a model. Pass its folder"
                                          : "is neither a GGUF nor an ONNX file nor an llm.c model file");
  }
  source.name = (fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path()).stem().string();
  if (std::string const file = tokenizer.empty() ? data::tokenizer_in(beside.string()) : tokenizer;
      !source.gguf && !file.empty() && (!tokenizer.empty() || !source.tokenizer)) {
    detail::take_tokenizer(source, file, data::tokenizer_text(file));
    if (!source.folder.empty() && tokenizer.empty()) source.tokenizer = infer::detail::hugging_face_tokenizer(path);
  }
  if (source.begins_texts && source.tokenizer) detail::know_conversations(source);
  if (source.tokenizer && source.tokenizer->vocabulary() > source.classes())
    throw Error(ErrorKind::configuration, "open_model",
                "the tokenizer has " + std::to_string(source.tokenizer->vocabulary()) + " tokens, the model " +
                    std::to_string(source.classes()) + ". Use that of the model");
  return source;
}

/// What infer::load_model takes, or a checkpoint or the folder of a run, whose texts begin with the mark between its
/// documents, as those of a GGUF file that is made of it, unless the model of others was converted to it. Errors: of
/// infer::load_model and open_model; configuration: a run without a tokenizer.
inline infer::LoadedModel load_model_or_run(std::string const& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(fs::path(path) / "checkpoints") && !fs::exists(fs::path(path) / "checkpoint.json"))
    return infer::load_model(path);
  ModelSource source = open_model(path);
  if (!source.tokenizer)
    throw Error(ErrorKind::configuration, "load_model_or_run",
                "'" + path + "' has no tokenizer.json: it was trained on tokens alone. Use another model");
  data::TokenizerParts parts = source.tokenizer->parts();
  if (auto const mark = source.tokenizer->document_mark(); mark && source.begins_texts)
    parts.roles.begin = parts.roles.end = mark, parts.roles.add_begin = true;
  return {std::move(source.model), data::Tokenizer(std::move(parts)), source.chat_template};
}

}  // namespace tutti::train

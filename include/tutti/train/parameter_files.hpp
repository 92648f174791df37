// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The library's own parameters from a model of any file: for a run that starts with them, as a checkpoint, and as a
/// model file of llm.c.

#include <tutti/graph/state.hpp>
#include <tutti/io/atomic_folder.hpp>
#include <tutti/io/llmc_model.hpp>
#include <tutti/io/safetensors_writer.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/model_tensors.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::train {

/// The sizes with which a model of a source is trained: tables padded to a multiple of 128 rows, rotations between
/// neighbours.
inline std::variant<nn::Gpt2Config, nn::LlamaConfig> training_config(ModelSource const& source) {
  auto config = source.model.config;
  std::visit([](auto& c) { c.padded_vocabulary = nn::padded_vocabulary(c.vocabulary); }, config);
  if (auto* const llama = std::get_if<nn::LlamaConfig>(&config)) llama->pairing = kernel::RotaryPairing::interleaved;
  return config;
}

/// Copies the weights of a source into a state of training_config(source). Errors: format; configuration, for a model
/// that training does not have.
inline void fill_parameters(ModelSource const& source, graph::State& state) {
  for (ExportedTensor const& tensor : parameter_tensors(source)) {
    TensorView<float> const view = state.at(tensor.name).view<float>();
    if (view.shape() != tensor.shape)
      throw Error(ErrorKind::format, "fill_parameters",
                  "tensor '" + tensor.name + "' of '" + source.model.source + "' has shape " +
                      to_string(tensor.shape) + ", the model needs " + to_string(view.shape()));
    read_rows(tensor.from, 0, tensor.from.rows(), view.data());
  }
}

/// A run's folder whose only checkpoint, of step 0, has the weights and no moments: for `generate` and `convert`, and
/// for runs that start with it. No folder appears before it is whole. Errors: configuration, format, io.
inline void write_checkpoint(std::string const& path, ModelSource const& source, ModelExport const& options = {}) {
  std::vector<ExportedTensor> const tensors = parameter_tensors(source);
  io::AtomicFolder folder(path);
  std::vector<io::NamedTensor> plan;
  for (ExportedTensor const& tensor : tensors) plan.push_back({tensor.name, DType::float32, tensor.shape, nullptr});
  std::string const aside = folder.path() + "/aside";
  io::make_folder(aside);
  {
    io::SafetensorsWriter writer(aside, plan, {}, ~std::uint64_t{0});
    std::vector<ExportedTensor const*> order;
    for (io::NamedTensor const& next : writer.tensors())
      for (ExportedTensor const& tensor : tensors)
        if (tensor.name == next.name) order.push_back(&tensor);
    detail::stream_tensors(
        order, options, [](ExportedTensor const&) { return BlockType::f32; },
        [&](void const* data, std::size_t bytes) { writer.write(data, bytes); });
    writer.commit();
  }
  {
    io::Safetensors const file(aside + "/model.safetensors");  // mapped: memory stays small
    CheckpointContents contents;
    contents.parameters = detail::listed(file);
    Json const model = std::visit([](auto const& c) { return to_json(c); }, training_config(source));
    contents.facts = {{"model", model}, {"converted_from", source.name}, {"begins_texts", source.begins_texts}};
    if (!source.chat_template.empty()) contents.facts["chat_template"] = source.chat_template;
    if (source.tokenizer)
      contents.tokenizer =
          source.tokenizer_text.empty() ? data::tokenizer_to_json(*source.tokenizer) : source.tokenizer_text;
    save_checkpoint(folder.path(), contents, 0);
  }
  std::filesystem::remove_all(aside);
  folder.commit();
}

/// A GPT-2 as a model file of llm.c, version 3 for float32 and 5 for bfloat16. The file has no tokenizer. It is
/// complete or absent. Errors: configuration, for what such a file cannot hold; format, io.
inline void write_llmc(std::string const& path, ModelSource const& source, ModelExport const& options) {
  auto const refuse = [&](std::string const& why, char const* advice) {
    throw Error(ErrorKind::configuration, "write_llmc", "'" + source.model.source + "' " + why + ". " + advice);
  };
  if (!source.gpt2())
    refuse("is a model of LLaMA's family, and llm.c's files hold GPT-2 alone", "Choose FILE.gguf or a folder");
  if (options.type != BlockType::f32 && options.type != BlockType::bf16)
    refuse("cannot become a file of llm.c in " + std::string(name(options.type)), "There are --type F32 and BF16");
  nn::Gpt2Config const c = std::get<nn::Gpt2Config>(training_config(source));
  if (c.epsilon != 1e-5f)
    refuse("has norms with another epsilon than 1e-5, which llm.c's files mean", "Choose FILE.gguf or a folder");
  std::vector<ExportedTensor> const tensors = parameter_tensors(source);
  auto const word = [](std::int64_t value) { return checked_cast<std::int32_t>(value); };
  io::LlmcConfig const sizes{.max_sequence = word(c.max_tokens),
                             .vocabulary = word(c.vocabulary),
                             .layers = word(c.layers),
                             .heads = word(c.heads),
                             .channels = word(c.channels),
                             .padded_vocabulary = word(c.padded_vocabulary)};
  DType const dtype = options.type == BlockType::f32 ? DType::float32 : DType::bfloat16;
  io::AtomicFile file(path);
  auto const header = io::detail::llmc_header(sizes, dtype);
  file.write(header.data(), io::detail::llmc_header_bytes);
  detail::stream_tensors(
      detail::in_order(tensors), options, [&](ExportedTensor const&) { return options.type; },
      [&](void const* data, std::size_t bytes) { file.write(data, bytes); });
  file.commit();
}

}  // namespace tutti::train

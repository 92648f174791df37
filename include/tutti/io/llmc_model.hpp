// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GPT-2 model files of llm.c, byte for byte: 256 words of header, then 16 tensors, each stacked over the layers.
/// The structure here is neutral: sizes and named tensors, no model type.

#include <tutti/core/bfloat16.hpp>
#include <tutti/io/named_tensor.hpp>
#include <tutti/io/token_shard.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::io {

/// Sizes in a model file.
struct LlmcConfig {
  std::int32_t max_sequence = 0;
  std::int32_t vocabulary = 0;
  std::int32_t layers = 0;
  std::int32_t heads = 0;
  std::int32_t channels = 0;
  std::int32_t padded_vocabulary = 0;  ///< rows of wte; those from `vocabulary` on are zero

  friend bool operator==(LlmcConfig const&, LlmcConfig const&) = default;
};

inline constexpr std::size_t llmc_tensor_count = 16;
inline constexpr std::array<std::string_view, llmc_tensor_count> llmc_tensor_names = {
    "wte",  "wpe",  "ln1w", "ln1b", "qkvw",    "qkvb",    "attprojw", "attprojb",
    "ln2w", "ln2b", "fcw",  "fcb",  "fcprojw", "fcprojb", "lnfw",     "lnfb"};

/// Shapes of the 16 tensors in file order; linear weights are (out, in), rows of qkvw are all of Q, then K, then V.
/// Errors: invalid_argument, when a size is not positive or does not fit the others.
inline std::array<Shape, llmc_tensor_count> llmc_shapes(LlmcConfig const& config,
                                                        std::source_location where = std::source_location::current()) {
  std::int64_t const L = config.layers, C = config.channels, V = config.padded_vocabulary, T = config.max_sequence;
  std::string why;
  if (L <= 0 || C <= 0 || V <= 0 || T <= 0 || config.heads <= 0 || config.vocabulary <= 0)
    why = "a size is not positive";
  else if (C % config.heads != 0)
    why = std::to_string(C) + " channels do not divide into " + std::to_string(config.heads) + " heads";
  else if (V < config.vocabulary)
    why =
        "the padded vocabulary " + std::to_string(V) + " is below the vocabulary " + std::to_string(config.vocabulary);
  if (!why.empty()) throw Error(ErrorKind::invalid_argument, "llmc_shapes", why + ". Correct the model's sizes", where);
  return {Shape{V, C}, {T, C}, {L, C},        {L, C},     {L, 3 * C, C}, {L, 3 * C}, {L, C, C}, {L, C},
          {L, C},      {L, C}, {L, 4 * C, C}, {L, 4 * C}, {L, C, 4 * C}, {L, C},     {C},       {C}};
}

/// A model file, mapped read-only. Version 3 holds float, version 5 bfloat16.
class LlmcModel {
 public:
  /// Errors: io; format, with the file, what is wrong with it and what to do.
  explicit LlmcModel(std::string path) : path_(std::move(path)), storage_(map_file(path_)) {
    detail::LlmcHeader const header = detail::read_llmc_header(storage_);
    if (storage_.bytes() < detail::llmc_header_bytes)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes, fewer than a header of 1024");
    if (header[0] != 20240326) refuse("its first word is " + std::to_string(header[0]) + ", not 20240326");
    if (header[1] == 1 || header[1] == 2)
      refuse("it has version " + std::to_string(header[1]) +
             ", from before the vocabulary was padded; export the model again with a current train_gpt2.py to get "
             "version 3");
    if (header[1] != 3 && header[1] != 5)
      refuse("it has version " + std::to_string(header[1]) + "; versions 3 (float) and 5 (bfloat16) are read");
    dtype_ = header[1] == 3 ? DType::float32 : DType::bfloat16;
    config_ = {header[2], header[3], header[4], header[5], header[6], header[7]};
    std::array<Shape, llmc_tensor_count> shapes;
    std::int64_t total = static_cast<std::int64_t>(detail::llmc_header_bytes);
    try {
      shapes = llmc_shapes(config_);
      for (Shape const& shape : shapes)
        total = checked_add(total, checked_multiply(shape.size(), static_cast<std::int64_t>(size_of(dtype_))));
    } catch (Error const& error) {
      refuse("its sizes are impossible (" + error.message() + ")");
    }
    if (storage_.bytes() != static_cast<std::size_t>(total))
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes and its sizes need " + std::to_string(total));
    auto const* next = static_cast<char const*>(storage_.data()) + detail::llmc_header_bytes;
    for (std::size_t i = 0; i < llmc_tensor_count; ++i) {
      tensors_[i] = {std::string(llmc_tensor_names[i]), dtype_, shapes[i], next};
      next += tensors_[i].bytes();
    }
  }

  std::string const& path() const noexcept { return path_; }
  LlmcConfig const& config() const noexcept { return config_; }
  DType dtype() const noexcept { return dtype_; }
  /// In file order; `data` points into the mapping.
  std::array<NamedTensor, llmc_tensor_count> const& tensors() const noexcept { return tensors_; }

  /// Tensor `index` in file order. Errors: dtype, unless T is the file's type.
  template <Element T>
  TensorView<T const> view(std::size_t index, std::source_location where = std::source_location::current()) const {
    if (index >= llmc_tensor_count)
      throw Error(ErrorKind::out_of_range, "LlmcModel::view",
                  "tensor " + std::to_string(index) + " of 16 does not exist", where);
    if (dtype_of<T> != dtype_)
      throw Error(ErrorKind::dtype, "LlmcModel::view",
                  "'" + path_ + "' holds " + std::string(name(dtype_)) + ", not " + std::string(name(dtype_of<T>)),
                  where);
    return {static_cast<T const*>(tensors_[index].data), tensors_[index].shape};
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "LlmcModel",
                "'" + path_ + "' is not a usable llm.c model file: " + why + ". Fetch or export the file again");
  }

  std::string path_;
  Storage<Cpu> storage_;
  LlmcConfig config_;
  DType dtype_ = DType::float32;
  std::array<NamedTensor, llmc_tensor_count> tensors_;
};

namespace detail {
inline LlmcHeader llmc_header(LlmcConfig const& config, DType dtype) {
  LlmcHeader header{};
  header[0] = 20240326;
  header[1] = dtype == DType::float32 ? 3 : 5;
  std::int32_t const sizes[] = {config.max_sequence, config.vocabulary, config.layers,
                                config.heads,        config.channels,   config.padded_vocabulary};
  std::copy(std::begin(sizes), std::end(sizes), header.begin() + 2);
  return header;
}
}  // namespace detail

/// Writes version 3 (float tensors) or 5 (bfloat16): `tensors` in file order with the shapes of `llmc_shapes`; their
/// names are not looked at. The file is complete or absent. Errors: shape, dtype, naming the tensor; invalid_argument;
/// io.
inline void write_llmc_model(std::string const& path, LlmcConfig const& config, std::span<NamedTensor const> tensors,
                             std::source_location where = std::source_location::current()) {
  std::array<Shape, llmc_tensor_count> const shapes = llmc_shapes(config, where);
  if (tensors.size() != llmc_tensor_count)
    throw Error(ErrorKind::invalid_argument, "write_llmc_model",
                "a model file has 16 tensors, " + std::to_string(tensors.size()) + " were given", where);
  for (std::size_t i = 0; i < llmc_tensor_count; ++i) {
    std::string const who = "tensor " + std::to_string(i) + " (" + std::string(llmc_tensor_names[i]) + ")";
    if (tensors[i].shape != shapes[i])
      throw Error(ErrorKind::shape, "write_llmc_model",
                  who + " has shape " + to_string(tensors[i].shape) + ", the sizes ask for " + to_string(shapes[i]),
                  where);
    if (tensors[i].dtype != tensors[0].dtype ||
        (tensors[i].dtype != DType::float32 && tensors[i].dtype != DType::bfloat16))
      throw Error(ErrorKind::dtype, "write_llmc_model",
                  who + " holds " + std::string(name(tensors[i].dtype)) + "; a file is all float32 or all bfloat16",
                  where);
  }
  detail::LlmcHeader const header = detail::llmc_header(config, tensors[0].dtype);
  AtomicFile file(path);
  file.write(header.data(), detail::llmc_header_bytes);
  for (NamedTensor const& tensor : tensors) file.write(tensor.data, tensor.bytes());
  file.commit();
}

}  // namespace tutti::io

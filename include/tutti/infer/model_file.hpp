// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model from wherever it lies: what `--model` of the programs means.

#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/hugging_face.hpp>
#include <tutti/infer/onnx/model.hpp>
#include <tutti/io/model_format.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::infer {

namespace detail {

/// Errors: format, for what another program's file is.
inline void refuse_foreign(std::string const& source, std::string const& what) {
  if (!what.empty()) throw Error(ErrorKind::format, "load_model", io::foreign_model_sentence(source, what));
}

}  // namespace detail

/// Whether the file is an ONNX model, by its name or its first bytes.
inline bool is_onnx(std::string const& path) {
  return path.ends_with(".onnx") || io::begins_as_onnx(io::first_bytes(path, 8));
}

/// Of a GGUF file, or the first part of one, or of an ONNX file that this library wrote.
/// Errors    io, format, out_of_memory
inline LoadedModel load_model_file(std::string const& path, io::Loading loading = io::Loading::mapped) {
  detail::refuse_foreign(path, io::foreign_model_at(path));
  if (!is_onnx(path)) return load_gguf(path, loading);
  return load_onnx(std::make_shared<io::Onnx const>(path, loading));
}

/// Of such a file, or of a folder as Hugging Face publishes models.
/// Errors    as above; configuration: a folder of something else
inline LoadedModel load_model(std::string const& path) {
  if (is_hugging_face(path)) return load_hugging_face(path);
  if (io::folder_exists(path)) {
    detail::refuse_foreign(path, io::foreign_model_at(path));
    throw Error(ErrorKind::configuration, "load_model",
                "folder '" + path + "' has no config.json. Pass a GGUF file, or the folder of a model in safetensors");
  }
  return load_model_file(path);
}

/// Of the bytes of a GGUF or ONNX file, which are copied. `name` stands for the path in messages. Errors: as above.
inline LoadedModel load_model(std::span<std::byte const> bytes, std::string const& name) {
  std::string_view const text(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  detail::refuse_foreign(name, io::foreign_model(text));
  if (!io::begins_as_onnx(text)) return load_gguf(std::make_shared<io::Gguf const>(bytes, name));
  return load_onnx(std::make_shared<io::Onnx const>(bytes, name));
}

}  // namespace tutti::infer

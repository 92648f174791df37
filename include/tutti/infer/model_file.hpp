// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model from wherever it lies: what `--model` of the programs means.

#include <tutti/config.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/hugging_face.hpp>
#include <tutti/io/model_format.hpp>
#if TUTTI_WITH_ONNX
#include <tutti/infer/onnx/model.hpp>
#endif

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::infer {

namespace detail {

/// Of programs that are built without protobuf.
[[noreturn]] inline void refuse_onnx(std::string const& source) {
  throw Error(ErrorKind::unavailable, "load_model",
              "'" + source +
                  "' is an ONNX model, and this program was built without protobuf. Install libprotobuf-dev and "
                  "protobuf-compiler and build it again, or pass a GGUF file");
}
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
/// Errors    io, format, out_of_memory; unavailable: ONNX without protobuf
inline LoadedModel load_model_file(std::string const& path, io::Loading loading = io::Loading::mapped) {
  detail::refuse_foreign(path, io::foreign_model_at(path));
  if (!is_onnx(path)) return load_gguf(path, loading);
#if TUTTI_WITH_ONNX
  return load_onnx(std::make_shared<io::Onnx const>(path, loading));
#else
  detail::refuse_onnx(path);
#endif
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
#if TUTTI_WITH_ONNX
  return load_onnx(std::make_shared<io::Onnx const>(bytes, name));
#else
  detail::refuse_onnx(name);
#endif
}

}  // namespace tutti::infer

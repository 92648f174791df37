// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model from wherever it lies: what `--model` of the programs means.

#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/hugging_face.hpp>

#include <string>

namespace tutti::infer {

/// Of a GGUF file, or the first part of one, or of a folder as Hugging Face publishes models.
/// Errors    io, format, out_of_memory; configuration: a folder of something else
inline LoadedModel load_model(std::string const& path) {
  if (!io::folder_exists(path)) return load_gguf(path);
  if (is_hugging_face(path)) return load_hugging_face(path);
  throw Error(ErrorKind::configuration, "load_model",
              "folder '" + path + "' has no config.json. Pass a GGUF file, or the folder of a model in safetensors");
}

}  // namespace tutti::infer

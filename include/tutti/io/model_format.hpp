// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Files of models by their first bytes, and what to do with those that are not read here.

#include <tutti/core/concat.hpp>
#include <tutti/io/file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::io {

/// Whether a message of ONNX begins so: a version of the format from 3 to 99, and a field of a model behind it. (A
/// model that TensorFlow saved begins with version 1.)
inline bool begins_as_onnx(std::string_view bytes) noexcept {
  if (bytes.size() < 4 || bytes[0] != '\x08' || bytes[1] < 3 || bytes[1] > 99) return false;
  auto const key = static_cast<unsigned char>(bytes[2]);
  for (unsigned const known : {0x12u, 0x1au, 0x22u, 0x28u, 0x32u, 0x3au, 0x42u, 0x72u})
    if (key == known) return true;
  return false;
}

/// What a model of another program's is, "a TensorFlow Lite model", by the first bytes of its file; empty: not known.
inline std::string foreign_model(std::string_view bytes) {
  auto const at = [&](std::size_t place, std::string_view text) {
    return bytes.size() >= place + text.size() && bytes.substr(place, text.size()) == text;
  };
  if (at(4, "TFL3")) return "a TensorFlow Lite model";
  if (at(0, "\x89HDF\r\n\x1a\n")) return "a Keras or HDF5 model of TensorFlow";
  if (at(0, std::string_view("\x08\x01\x12", 3))) return "a SavedModel of TensorFlow";
  std::string_view const begin = bytes.substr(0, 4096);
  if (begin.find("<net ") != std::string_view::npos && begin.find('<') < 8) return "a model of OpenVINO";
  if (at(0, "PK\x03\x04")) return "a PyTorch or Keras archive";
  if (at(0, std::string_view("\x80\x02", 2)) || at(0, std::string_view("\x80\x04", 2))) return "a pickle of PyTorch";
  if (at(0, "\x0a") && begin.find("\x12\x0bPlaceholder") != std::string_view::npos) return "a graph of TensorFlow";
  return {};
}

/// At most so many bytes of a regular file, and none of what is no such file or cannot be read: a pipe would wait.
inline std::string first_bytes(std::string const& path, std::size_t count) {
  detail::Descriptor const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  std::string bytes(count, '\0');
  ::ssize_t const got = ::pread(file.get(), bytes.data(), count, 0);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

/// The same of a file or folder, which its name or what lies in it may tell too.
inline std::string foreign_model_at(std::string const& path) {
  auto const there = [&](char const* file) { return file_exists(path + "/" + file); };
  if (there("saved_model.pb")) return "a SavedModel of TensorFlow";
  if (there("openvino_model.xml")) return "a model of OpenVINO";
  if (there("tf_model.h5")) return "a Keras or HDF5 model of TensorFlow";
  if (there("pytorch_model.bin") || there("pytorch_model.bin.index.json")) return "a pickle of PyTorch";
  if (std::string known = foreign_model(first_bytes(path, 4096)); !known.empty()) return known;
  if (path.ends_with(".pb")) return "a graph of TensorFlow";
  if (path.ends_with(".tflite")) return "a TensorFlow Lite model";
  if (path.ends_with(".h5") || path.ends_with(".keras")) return "a Keras or HDF5 model of TensorFlow";
  if (path.ends_with(".bin") && file_exists(path.substr(0, path.size() - 4) + ".xml"))
    return "the weights of a model of OpenVINO";
  return {};
}

/// "'x.tflite' is a TensorFlow Lite model, which is not read here. Export ...".
inline std::string foreign_model_sentence(std::string const& source, std::string const& what) {
  return concat("'", source, "' is ", what,
                ", which is not read here. Save the model that it was made of as a folder of safetensors "
                "(transformers: save_pretrained), or as GGUF, and pass that");
}

}  // namespace tutti::io

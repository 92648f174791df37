// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Hashes of tensors, by which a checkpoint knows what was saved.

#include <tutti/core/hash.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/safetensors.hpp>

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace tutti::train {

/// A hash of tensors goes on with one: its name, type, shape and bytes, which are at `data`.
inline std::uint64_t hash_tensor(io::NamedTensor const& tensor, void const* data, std::uint64_t hash) {
  std::string const head = tensor.name + std::string(name(tensor.dtype)) + to_string(tensor.shape);
  hash = hash_bytes(std::as_bytes(std::span(head)), hash);
  return hash_bytes({static_cast<std::byte const*>(data), tensor.bytes()}, hash);
}
/// Of all of them, in the order given.
inline std::uint64_t hash_tensors(std::span<io::NamedTensor const> tensors) {
  std::uint64_t hash = 0;
  for (io::NamedTensor const& tensor : tensors) hash = hash_tensor(tensor, tensor.data, hash);
  return hash;
}
/// The same of all of a file, of which no more than a tensor is in memory at a time.
inline std::uint64_t hash_file(io::Safetensors const& file) {
  std::uint64_t hash = 0;
  for (auto const& [name, tensor] : file.tensors()) {
    hash = hash_tensor(tensor, tensor.data, hash);
    io::forget_pages(tensor.data, tensor.bytes());
  }
  return hash;
}

inline std::string to_hex(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash);
  return text;
}

namespace detail {

inline std::string hash_text(std::string_view text) { return to_hex(hash_bytes(std::as_bytes(std::span(text)))); }

}  // namespace detail
}  // namespace tutti::train

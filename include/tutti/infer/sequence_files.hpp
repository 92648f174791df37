// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the cache of a sequence holds, kept in a file: a long text need not be read again in another process.

#include <tutti/core/hash.hpp>
#include <tutti/infer/cache_moves.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/io/safetensors.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Tells models apart: sizes, rotations, names and types of the tensors, and numbers from all over each. It does not
/// read the whole of large files.
inline std::string model_fingerprint(nn::StoredModel const& model) {
  std::uint64_t hash = 0;
  auto const add = [&](void const* data, std::size_t bytes) {
    hash = hash_bytes({static_cast<std::byte const*>(data), bytes}, hash);
  };
  std::int64_t const sizes[] = {model.layers(),     model.channels(),  model.vocabulary(),
                                model.max_tokens(), model.kv_heads(), model.head_size()};
  add(sizes, sizeof sizes);
  add(model.rotation.frequencies.data(), model.rotation.frequencies.size() * sizeof(double));
  add(&model.rotation.magnitude, sizeof model.rotation.magnitude);
  for (nn::StoredTensor const& tensor : model.tensors) {
    std::string const head = concat(tensor.name, " ", name(tensor.type), " ", tensor.rows, " ", tensor.columns);
    add(head.data(), head.size());
    auto const bytes = static_cast<std::size_t>(tensor.bytes());
    constexpr std::size_t places = 64, length = 64;
    for (std::size_t place = 0; place < places; ++place) {
      std::size_t const first = bytes <= length ? 0 : (bytes - length) / (places - 1) * place;
      add(tensor.data + first, std::min(length, bytes));
    }
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

namespace detail {

/// Of tokens, keys and values, in the order of the cache: where row(part, head) begins `length` rows.
template <class Row>
std::string sequence_hash(std::span<std::int32_t const> tokens, std::vector<CachePart> const& cache, Row&& row) {
  std::uint64_t hash = hash_bytes(std::as_bytes(tokens));
  for (CachePart const& part : cache)
    for (std::int64_t head = 0; head < part.heads; ++head)
      hash = hash_bytes({row(part, head), tokens.size() * static_cast<std::size_t>(part.columns) * size_of(part.dtype)},
                        hash);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

}  // namespace detail

/// Writes tokens, keys and values of a sequence as a safetensors file, complete or absent. Blocking: until the device
/// has the bytes. Errors: io.
inline void save_sequence(std::string const& path, Sequence& sequence) {
  std::int64_t const length = sequence.length();
  std::vector<CachePart> const cache = sequence.decoder().cache(sequence.slot());
  std::vector<io::NamedTensor> plan{{"tokens", DType::int32, {length}, sequence.tokens().data()}};
  for (CachePart const& part : cache)
    plan.push_back({part.name, part.dtype, {part.heads, length, part.columns}, part.data});
  std::vector<io::NamedTensor const*> order;
  for (std::size_t const i : io::detail::safetensors_order(plan, std::source_location::current()))
    order.push_back(&plan[i]);
  io::AtomicFile file(path);
  std::string const hash =
      detail::sequence_hash(sequence.tokens(), cache, [](CachePart const& part, std::int64_t head) {
        return static_cast<std::byte const*>(detail::cached_row(part, head, 0));
      });
  file.write(io::detail::safetensors_header(
      order, {{"format", "tutti sequence"}, {"hash", hash}, {"model", model_fingerprint(sequence.decoder().model())}}));
  for (io::NamedTensor const* tensor : order) {
    if (tensor == plan.data()) {
      file.write(tensor->data, tensor->bytes());
      continue;
    }
    CachePart const& part = cache[static_cast<std::size_t>(tensor - plan.data()) - 1];
    auto const row = static_cast<std::size_t>(part.columns) * size_of(part.dtype);
    for (std::int64_t head = 0; head < part.heads; ++head)  // each has room for the whole capacity
      file.write(part.data + static_cast<std::size_t>(head * part.capacity) * row,
                 static_cast<std::size_t>(length) * row);
  }
  file.commit();
}

/// Puts what save_sequence wrote into a sequence, in the place of what it holds; what follows has the same bits as in
/// the sequence that was saved. Of a text longer than the capacity the beginning is taken. Errors: io; format, for
/// another or a damaged file, or one of another model or type of cache, and the sequence is as it was.
inline void restore_sequence(std::string const& path, Sequence& sequence) {
  io::Safetensors const file(path);
  auto const refuse = [&](std::string const& why) {
    throw Error(ErrorKind::format, "restore_sequence", "'" + path + "' " + why + ". Remove it: the text is read again");
  };
  auto const said = [&](char const* key) {
    auto const found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (said("format") != "tutti sequence") refuse("keeps no sequence");
  if (said("model") != model_fingerprint(sequence.decoder().model())) refuse("is of another model");
  TensorView<std::int32_t const> const tokens = file.view<std::int32_t>("tokens");
  std::int64_t const length = tokens.shape().size();
  std::vector<CachePart> const cache = sequence.decoder().cache(sequence.slot());
  for (CachePart const& part : cache) {
    io::NamedTensor const& tensor = file.at(part.name);
    if (tensor.dtype != part.dtype)
      refuse(concat("keeps its cache in ", name(tensor.dtype), ", not ", name(part.dtype)));
    if (tensor.shape != Shape{part.heads, length, part.columns}) refuse("has a cache of another shape");
  }
  std::string const hash =
      detail::sequence_hash(tokens.elements(), cache, [&](CachePart const& part, std::int64_t head) {
        return static_cast<std::byte const*>(file.at(part.name).data) +
               static_cast<std::size_t>(head * length * part.columns) * size_of(part.dtype);
      });
  if (said("hash") != hash) refuse("is damaged, or of an older version");
  for (std::int32_t const token : tokens.elements())
    if (token < 0 || token >= sequence.decoder().vocabulary()) refuse("has a token that the model lacks");
  std::int64_t const kept = std::min(length, sequence.capacity());
  for (CachePart const& part : cache) {
    auto const row = static_cast<std::size_t>(part.columns) * size_of(part.dtype);
    auto const* from = static_cast<std::byte const*>(file.at(part.name).data);
    for (std::int64_t head = 0; kept > 0 && head < part.heads; ++head, from += static_cast<std::size_t>(length) * row)
      std::memcpy(part.data + static_cast<std::size_t>(head * part.capacity) * row, from,
                  static_cast<std::size_t>(kept) * row);
  }
  sequence.decoder().cache_written(sequence.slot());
  sequence.adopt({tokens.data(), tokens.data() + kept});
}

}  // namespace tutti::infer

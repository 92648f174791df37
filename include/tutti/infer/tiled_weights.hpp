// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model's weights once more, in the order in which this processor multiplies them fastest (core/block_tiles.hpp).

#include <tutti/core/block_tiles.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/io/file.hpp>
#include <tutti/kernel/cpu/entries.hpp>
#include <tutti/nn/stored_model.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace tutti::infer {

/// Whether products with this tensor are faster from tiles.
inline bool wants_tiles(nn::StoredTensor const& tensor, exec::Isa isa) {
  return !tensor.tiled && tensor.rows > 0 && tensor.rows % 32 == 0 && kernel::cpu::tiles_weights(isa, tensor.type);
}
namespace detail {
/// Of a tensor among others, each of which begins at the bounds of a cache line.
inline std::int64_t room_for_tiles(nn::StoredTensor const& tensor) { return (tensor.bytes() + 63) / 64 * 64; }
}  // namespace detail

/// Of memory that `tiled_model` takes.
inline std::int64_t tiled_bytes(nn::StoredModel const& model, exec::Isa isa) {
  std::int64_t bytes = 0;
  for (nn::StoredTensor const& tensor : model.tensors)
    if (wants_tiles(tensor, isa)) bytes += detail::room_for_tiles(tensor);
  return bytes;
}
/// The model with copies of such tensors; others are those of `model`, whose memory it shares. Pages of files that were
/// copied leave this process's memory. `like`: the level, and how many threads; its own may be at work for others.
/// `shared`: of calls for the same memory, one at a time, that share a copy while anybody has it; null: a copy of its
/// own.
/// Errors    out_of_memory; unavailable (threads)
/// Cost      reads and writes these weights once
inline nn::StoredModel tiled_model(exec::Context const& like, nn::StoredModel const& model,
                                   std::weak_ptr<graph::Memory>* shared = nullptr) {
  nn::StoredModel result = model;
  std::int64_t const bytes = tiled_bytes(model, like.isa());
  if (bytes == 0) return result;
  std::shared_ptr<graph::Memory> memory = shared == nullptr ? nullptr : shared->lock();
  std::optional<exec::Context> copies;  // those that are not there
  if (memory == nullptr) {
    memory = std::make_shared<graph::Memory>(bytes);
    copies.emplace(exec::ContextOptions{.threads = bytes < (1 << 20) ? 1 : like.threads()});
  }
  std::byte* to = memory->data();
  for (nn::StoredTensor& tensor : result.tensors) {
    if (!wants_tiles(tensor, like.isa())) continue;
    if (copies) {
      copies->parallel_for(tensor.rows / block_tile_rows, 4, [&](std::int64_t begin, std::int64_t end) {
        make_tiles(tensor.type, tensor.columns, tensor.data, to, begin, end);
      });
      if (model.mapped) io::forget_pages(tensor.data, static_cast<std::size_t>(tensor.bytes()));
    }
    tensor.data = to;
    tensor.tiled = true;
    to += detail::room_for_tiles(tensor);
  }
  if (shared != nullptr) *shared = memory;
  result.keep.push_back(std::move(memory));
  return result;
}

}  // namespace tutti::infer

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model's weights once more, in the order in which this processor multiplies them fastest (core/block_tiles.hpp).

#include <tutti/core/block_tiles.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/io/file.hpp>
#include <tutti/kernel/cpu/entries.hpp>
#include <tutti/nn/stored_model.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Whether products with this tensor are faster from tiles.
inline bool wants_tiles(nn::StoredTensor const& tensor, exec::Isa isa) {
  return !tensor.tiled && tensor.rows > 0 && tensor.rows % 32 == 0 && kernel::cpu::tiles_weights(isa, tensor.type);
}
namespace detail {
/// Of a tensor among others, each of which begins at the bounds of a cache line.
inline std::int64_t room_for_tiles(nn::StoredTensor const& tensor) { return (tensor.bytes() + 63) / 64 * 64; }
/// Where a tensor lies that is copied, and how much of it.
using CopiedTensors = std::vector<std::pair<std::byte const*, std::int64_t>>;
/// Copies that decoders have, by the tensors, which they have too: so nothing else lies there.
struct TiledCopies {
  Mutex mutex;
  std::map<CopiedTensors, std::weak_ptr<graph::Memory>> of;
  static TiledCopies& of_process() {
    static TiledCopies one;
    return one;
  }
};
}  // namespace detail

/// Of memory that `tiled_model` takes.
inline std::int64_t tiled_bytes(nn::StoredModel const& model, exec::Isa isa) {
  std::int64_t bytes = 0;
  for (nn::StoredTensor const& tensor : model.tensors)
    if (wants_tiles(tensor, isa)) bytes += detail::room_for_tiles(tensor);
  return bytes;
}
/// The model with copies of such tensors; others are those of `model`, whose memory it shares. Decoders of the same
/// memory share a copy. Pages of files that were copied leave this process's memory. `like`: the level, and how many
/// threads; its own may be at work for others. Thread-safe.
/// Errors    out_of_memory; unavailable (threads)
/// Cost      reads and writes these weights once, unless somebody has done
inline nn::StoredModel tiled_model(exec::Context const& like, nn::StoredModel const& model) {
  nn::StoredModel result = model;
  std::int64_t const bytes = tiled_bytes(model, like.isa());
  if (bytes == 0) return result;
  detail::CopiedTensors tensors;
  for (nn::StoredTensor const& tensor : model.tensors)
    if (wants_tiles(tensor, like.isa())) tensors.emplace_back(tensor.data, tensor.bytes());
  auto& copies = detail::TiledCopies::of_process();
  Guard const guard(copies.mutex);  // who asks meanwhile waits and has them
  std::erase_if(copies.of, [](auto const& one) { return one.second.expired(); });
  std::weak_ptr<graph::Memory>& place = copies.of[tensors];
  std::shared_ptr<graph::Memory> memory = place.lock();
  bool const there = memory != nullptr;
  if (!there) memory = std::make_shared<graph::Memory>(bytes);
  std::byte* to = memory->data();
  std::optional<exec::Context> context;
  if (!there) context.emplace(exec::ContextOptions{.threads = bytes < (1 << 20) ? 1 : like.threads()});
  for (nn::StoredTensor& tensor : result.tensors) {
    if (!wants_tiles(tensor, like.isa())) continue;
    std::byte const* const from = tensor.data;
    if (context) {
      context->parallel_for(tensor.rows / block_tile_rows, 4, [&](std::int64_t begin, std::int64_t end) {
        make_tiles(tensor.type, tensor.columns, from, to, begin, end);
      });
      if (model.mapped) io::forget_pages(from, static_cast<std::size_t>(tensor.bytes()));
    }
    tensor.data = to;
    tensor.tiled = true;
    to += detail::room_for_tiles(tensor);
  }
  place = memory;
  result.keep.push_back(memory);
  return result;
}

}  // namespace tutti::infer

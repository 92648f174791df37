// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What caches hold, put where another prompt can use it: the beginning of one copied to another, runs of tokens moved
/// to new positions.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>
#include <tutti/infer/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::infer {

/// Tokens of a cache that go from one position to another.
struct CacheMove {
  std::int64_t from = 0, to = 0, count = 0;
};

namespace detail {

inline std::byte* cached_row(CachePart const& part, std::int64_t head, std::int64_t position) {
  return part.data + static_cast<std::size_t>((head * part.capacity + position) * part.columns) * size_of(part.dtype);
}

/// Cosine and sine of every pair for so many positions.
inline std::vector<std::pair<float, float>> turn_of(nn::Rotation const& rotation, std::int64_t positions) {
  std::vector<std::pair<float, float>> turn;
  for (double const frequency : rotation.frequencies) {
    double const angle = static_cast<double>(positions) * frequency;
    turn.emplace_back(static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle)));
  }
  return turn;
}
inline void rotate(std::span<float> head, std::span<std::pair<float, float> const> turn, bool halves) {
  for (std::size_t i = 0; i < turn.size(); ++i) {
    float& a = head[halves ? i : 2 * i];
    float& b = head[halves ? i + turn.size() : 2 * i + 1];
    float const x = a;
    a = x * turn[i].first - b * turn[i].second;
    b = x * turn[i].second + b * turn[i].first;
  }
}

}  // namespace detail

/// The first `count` positions of one sequence's cache become another's. Blocking. Errors: out_of_range.
inline void copy_cached(Decoder& decoder, std::int32_t from, std::int32_t to, std::int64_t count) {
  if (count < 0 || count > decoder.capacity())
    throw Error(ErrorKind::out_of_range, "copy_cached", concat(count, " of ", decoder.capacity(), " positions"));
  std::vector<CachePart> const source = decoder.cache(from), target = decoder.cache(to);
  for (std::size_t i = 0; i < source.size() && count > 0; ++i)
    for (std::int64_t head = 0; head < source[i].heads; ++head)
      std::memcpy(detail::cached_row(target[i], head, 0), detail::cached_row(source[i], head, 0),
                  static_cast<std::size_t>(count * source[i].columns) * size_of(source[i].dtype));
  decoder.cache_written(to);
}

/// Whether a model's keys can be moved: their positions are rotations.
inline bool movable_positions(nn::StoredModel const& model) noexcept { return !model.learned_positions(); }

/// Moves tokens of a sequence's cache, in order, each to a position not above its own: values as they are, keys rotated
/// by the distance. What is overwritten is gone. Blocking.
/// Numerics  keys are rounded once more. Keys and values of layers above the first know what stood before the tokens
///           where they came from: what follows them is near to what the model would say, not the same.
/// Errors    out_of_range (positions), invalid_argument (a model with learned positions); nothing is moved then
inline void move_cached(Decoder& decoder, std::int32_t slot, std::span<CacheMove const> moves) {
  nn::StoredModel const& model = decoder.model();
  if (!movable_positions(model))
    throw Error(ErrorKind::invalid_argument, "move_cached",
                "the model has learned its positions: keys cannot be moved");
  for (CacheMove const& move : moves)
    if (move.to < 0 || move.count < 0 || move.to > move.from || move.from > decoder.capacity() - move.count)
      throw Error(ErrorKind::out_of_range, "move_cached",
                  concat(move.count, " tokens cannot go from position ", move.from, " to ", move.to, " of ",
                         decoder.capacity()));
  bool const halves = std::get<nn::LlamaConfig>(model.config).pairing == kernel::RotaryPairing::half;
  BlockType const type = decoder.options().cache;
  std::vector<CachePart> const parts = decoder.cache(slot);
  std::vector<float> row(static_cast<std::size_t>(model.head_size()));
  for (CacheMove const& move : moves) {
    auto const turn = detail::turn_of(model.rotation, move.to - move.from);
    for (std::size_t i = 0; i < parts.size() && move.to != move.from; ++i)
      for (std::int64_t head = 0; head < parts[i].heads; ++head) {
        std::byte *from = detail::cached_row(parts[i], head, move.from),
                  *to = detail::cached_row(parts[i], head, move.to);
        auto const bytes = static_cast<std::size_t>(parts[i].columns) * size_of(parts[i].dtype);
        if (i % 2 == 1) {  // values
          std::memmove(to, from, static_cast<std::size_t>(move.count) * bytes);
          continue;
        }
        for (std::int64_t t = 0; t < move.count; ++t, from += bytes, to += bytes) {
          dequantise(type, from, model.head_size(), row.data());
          detail::rotate(row, turn, halves);
          quantise(type, row.data(), model.head_size(), to);
        }
      }
  }
  decoder.cache_written(slot);
}

}  // namespace tutti::infer

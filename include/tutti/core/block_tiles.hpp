// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Weights in tiles: blocks of sixteen rows lie side by side, so that a vector register has words of sixteen outputs,
/// which one instruction multiplies by a word of the input. As many bytes as before: of each sixteen blocks the codes,
/// four bytes of one row, four of the next; behind them the scales, and behind these the mins.

#include <tutti/core/block_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti {

inline constexpr int block_tile_rows = 16;

/// Whether blocks of this type have tiles: codes that are whole words.
constexpr bool has_tiles(BlockType type) noexcept {
  return type == BlockType::q4_0 || type == BlockType::q4_1 || type == BlockType::q8_0;
}

namespace blocks {

/// Block i of row `row` of a matrix in tiles, whose rows have `count` blocks.
template <class Block>
Block of_tiles(std::byte const* data, std::int64_t count, std::int64_t row, std::int64_t i) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Block));
  constexpr int codes = sizeof(Block::q);
  std::byte const* const tile = data + (row / block_tile_rows * count + i) * block_tile_rows * size;
  auto const place = row % block_tile_rows;
  Block block;
  for (int word = 0; word < codes / 4; ++word)
    std::memcpy(block.q + 4 * word, tile + (word * block_tile_rows + place) * 4, 4);
  std::byte const* const numbers = tile + block_tile_rows * codes;
  std::memcpy(&block.d, numbers + 2 * place, 2);
  if constexpr (requires { block.m; }) std::memcpy(&block.m, numbers + 2 * (block_tile_rows + place), 2);
  return block;
}

/// Tile `tile` of a matrix whose rows have `count` blocks, from where its rows lie one behind the other.
template <class Block>
void make_tile(std::byte const* rows, std::int64_t count, std::int64_t tile, std::byte* tiles) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Block));
  constexpr int codes = sizeof(Block::q);
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* const to = tiles + (tile * count + i) * block_tile_rows * size;
    std::byte* const numbers = to + block_tile_rows * codes;
    for (int place = 0; place < block_tile_rows; ++place) {
      Block block;
      std::memcpy(&block, rows + ((tile * block_tile_rows + place) * count + i) * size, sizeof(Block));
      for (int word = 0; word < codes / 4; ++word)
        std::memcpy(to + (word * block_tile_rows + place) * 4, block.q + 4 * word, 4);
      std::memcpy(numbers + 2 * place, &block.d, 2);
      if constexpr (requires { block.m; }) std::memcpy(numbers + 2 * (block_tile_rows + place), &block.m, 2);
    }
  }
}

/// f(Block()) of a type that has tiles.
template <class F>
decltype(auto) with_tiled_block(BlockType type, F&& f) {
  switch (type) {
    case BlockType::q4_1: return f(Q4_1());
    case BlockType::q8_0: return f(Q8_0());
    default: return f(Q4_0());
  }
}

}  // namespace blocks

/// Tiles [begin, end) of a matrix of a type that has_tiles, of a multiple of sixteen rows of `columns` numbers.
inline void make_tiles(BlockType type, std::int64_t columns, std::byte const* rows, std::byte* tiles,
                       std::int64_t begin, std::int64_t end) {
  blocks::with_tiled_block(type, [&](auto block) {
    for (std::int64_t tile = begin; tile < end; ++tile)
      blocks::make_tile<decltype(block)>(rows, columns / block_elements(type), tile, tiles);
  });
}

/// A matrix in tiles as files have it.
inline std::vector<std::byte> rows_of_tiles(BlockType type, std::int64_t columns, std::vector<std::byte> const& tiles) {
  std::vector<std::byte> rows(tiles.size());
  blocks::with_tiled_block(type, [&](auto block) {
    std::int64_t const count = columns / block_elements(type);
    for (std::size_t at = 0; at + sizeof block <= rows.size(); at += sizeof block) {
      auto const i = static_cast<std::int64_t>(at / sizeof block);
      block = blocks::of_tiles<decltype(block)>(tiles.data(), count, i / count, i % count);
      std::memcpy(rows.data() + at, &block, sizeof block);
    }
  });
  return rows;
}

}  // namespace tutti

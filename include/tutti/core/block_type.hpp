// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Types of the weights of a quantised model, beside DType: numbers are stored in blocks that share a scale.

#include <tutti/core/checked.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>

namespace tutti {

/// How a row of numbers is stored. The values are the identifiers of the GGUF format. core/block_layout.hpp has the
/// bytes of each.
enum class BlockType : std::uint8_t {
  f32 = 0, f16 = 1,
  q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8,
  q2_k = 10, q3_k = 11, q4_k = 12, q5_k = 13, q6_k = 14,
  iq4_nl = 20, iq4_xs = 23,
  bf16 = 30,
};

namespace detail {

struct BlockFacts {
  BlockType type;
  std::string_view name;
  int elements;
  int bytes;
};
inline constexpr BlockFacts block_facts[] = {
    {BlockType::f32, "F32", 1, 4},       {BlockType::f16, "F16", 1, 2},         {BlockType::bf16, "BF16", 1, 2},
    {BlockType::q4_0, "Q4_0", 32, 18},   {BlockType::q4_1, "Q4_1", 32, 20},     {BlockType::q5_0, "Q5_0", 32, 22},
    {BlockType::q5_1, "Q5_1", 32, 24},   {BlockType::q8_0, "Q8_0", 32, 34},     {BlockType::q2_k, "Q2_K", 256, 84},
    {BlockType::q3_k, "Q3_K", 256, 110}, {BlockType::q4_k, "Q4_K", 256, 144},   {BlockType::q5_k, "Q5_K", 256, 176},
    {BlockType::q6_k, "Q6_K", 256, 210}, {BlockType::iq4_nl, "IQ4_NL", 32, 18}, {BlockType::iq4_xs, "IQ4_XS", 256, 136},
};

constexpr BlockFacts const* find_block(std::uint32_t identifier) noexcept {
  for (BlockFacts const& facts : block_facts)
    if (static_cast<std::uint32_t>(facts.type) == identifier) return &facts;
  return nullptr;
}

}  // namespace detail

/// Numbers in a block: 1, 32 or 256.
constexpr int block_elements(BlockType type) noexcept {
  return detail::find_block(static_cast<std::uint32_t>(type))->elements;
}
/// Bytes of a block.
constexpr int block_bytes(BlockType type) noexcept {
  return detail::find_block(static_cast<std::uint32_t>(type))->bytes;
}
/// As GGUF tools write it: "Q4_K".
constexpr std::string_view name(BlockType type) noexcept {
  return detail::find_block(static_cast<std::uint32_t>(type))->name;
}
/// Whether numbers are stored in blocks with scales, not one by one.
constexpr bool is_quantised(BlockType type) noexcept { return block_elements(type) != 1; }

/// The type of this name, whatever the case of its letters.
constexpr std::optional<BlockType> find_block_type(std::string_view wanted) noexcept {
  auto const upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  for (detail::BlockFacts const& facts : detail::block_facts) {
    bool same = facts.name.size() == wanted.size();
    for (std::size_t i = 0; same && i < wanted.size(); ++i) same = upper(wanted[i]) == facts.name[i];
    if (same) return facts.type;
  }
  return std::nullopt;
}

/// Bytes of `elements` numbers that follow one another, such as a row. Errors: shape, unless they fill whole blocks;
/// overflow.
template <class = void>
constexpr std::int64_t row_bytes(BlockType type, std::int64_t elements,
                                 std::source_location where = std::source_location::current()) {
  if (elements < 0 || elements % block_elements(type) != 0)
    throw Error(ErrorKind::shape, "row_bytes",
                concat("a row of ", elements, " numbers has no whole blocks of ", name(type), ", which hold ",
                       block_elements(type), " each. Choose another type for it, such as F16"),
                where);
  return checked_multiply(elements / block_elements(type), block_bytes(type), where);
}

}  // namespace tutti

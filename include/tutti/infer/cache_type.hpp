// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a cache of keys and values is kept in, as people say it.

#include <tutti/core/block_type.hpp>
#include <tutti/core/setting.hpp>

#include <array>
#include <string_view>

namespace tutti {
namespace infer {

enum class CacheType : unsigned char {
  f32,
  f16,
  bf16,
  q8_0,  ///< 8 bits with a scale for each 32: heads of a multiple of 32 elements
};

constexpr BlockType block_type(CacheType type) noexcept {
  switch (type) {
    case CacheType::f16: return BlockType::f16;
    case CacheType::bf16: return BlockType::bf16;
    case CacheType::q8_0: return BlockType::q8_0;
    default: return BlockType::f32;
  }
}

}  // namespace infer

template <>
inline constexpr auto setting::spelling<infer::CacheType> =
    std::array<std::string_view, 4>{"f32", "f16", "bf16", "q8_0"};

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The emulated twin of the library's header of this name, found first on the include path: the same functions in C++.

#include <tutti/core/bfloat16.hpp>

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <source_location>

namespace tutti::kernel::cuda {
namespace emulated_fragments {

struct Product {
  float (*d)[4];
  std::uint32_t const* a;
  std::uint32_t const* b;
};

inline float half_word(std::uint32_t word, int index) {
  return bfloat16::from_bits(static_cast<std::uint16_t>(word >> (16 * index)));
}

/// Tensor cores ignore the lower 13 bits.
inline float tf32_word(std::uint32_t word) { return std::bit_cast<float>(word & 0xffffe000u); }

/// Gathers a (16, depth) and b (depth, 8) of a warp, multiplies, and adds to the fragments of d.
template <int depth, class GatherA, class GatherB>
void multiply(emulated::LaneCall* const (&lanes)[32], GatherA gather_a, GatherB gather_b) {
  float a[16][depth], b[depth][8];
  for (int lane = 0; lane < 32; ++lane) {
    auto const& product = *static_cast<Product*>(lanes[lane]->data);
    gather_a(product.a, lane / 4, lane % 4, a);
    gather_b(product.b, lane / 4, lane % 4, b);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int index = 0; index < 4; ++index) {
      int const row = lane / 4 + index / 2 * 8, column = lane % 4 * 2 + index % 2;
      double sum = 0;
      for (int k = 0; k < depth; ++k) sum += static_cast<double>(a[row][k]) * b[k][column];
      float& d = (*static_cast<Product*>(lanes[lane]->data)->d)[index];
      d = static_cast<float>(d + sum);
    }
}

struct Load {
  std::uint32_t* words;
  unsigned char const* row;
};

template <bool transposed>
void load(emulated::LaneCall* const (&lanes)[32], unsigned) {
  auto const element = [&](int matrix, int row, int column) {
    std::uint16_t value;
    __builtin_memcpy(&value, static_cast<Load*>(lanes[8 * matrix + row]->data)->row + 2 * column, 2);
    return std::uint32_t{value};
  };
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      int const g = lane / 4, t = lane % 4;
      static_cast<Load*>(lanes[lane]->data)->words[matrix] =
          transposed ? element(matrix, 2 * t, g) | element(matrix, 2 * t + 1, g) << 16
                     : element(matrix, g, 2 * t) | element(matrix, g, 2 * t + 1) << 16;
    }
}

inline void together(char const* name, void* data, void (*complete)(emulated::LaneCall* const (&)[32], unsigned),
                     std::source_location where) {
  emulated::LaneCall call{name, 0xffffffffu, where, data, complete, true};
  emulated::warp_together(call);
}

inline void* aligned_row(void const* row, std::source_location where) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    emulated::fail("ldmatrix: a row that is not aligned to 16", where);
  return const_cast<void*>(row);
}

}  // namespace emulated_fragments

inline void mma_bfloat16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2],
                         std::source_location where = std::source_location::current()) {
  namespace e = emulated_fragments;
  e::Product mine{&d, a, b};
  e::together(
      "mma_bfloat16", &mine,
      [](emulated::LaneCall* const(&lanes)[32], unsigned) {
        e::multiply<16>(
            lanes,
            [](std::uint32_t const* words, int g, int t, float(&to)[16][16]) {
              for (int word = 0; word < 4; ++word)
                for (int half = 0; half < 2; ++half)
                  to[g + word % 2 * 8][2 * t + word / 2 * 8 + half] = e::half_word(words[word], half);
            },
            [](std::uint32_t const* words, int g, int t, float(&to)[16][8]) {
              for (int word = 0; word < 2; ++word)
                for (int half = 0; half < 2; ++half) to[2 * t + word * 8 + half][g] = e::half_word(words[word], half);
            });
      },
      where);
}

inline void mma_tf32(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2],
                     std::source_location where = std::source_location::current()) {
  namespace e = emulated_fragments;
  e::Product mine{&d, a, b};
  e::together(
      "mma_tf32", &mine,
      [](emulated::LaneCall* const(&lanes)[32], unsigned) {
        e::multiply<8>(
            lanes,
            [](std::uint32_t const* words, int g, int t, float(&to)[16][8]) {
              for (int word = 0; word < 4; ++word) to[g + word % 2 * 8][t + word / 2 * 4] = e::tf32_word(words[word]);
            },
            [](std::uint32_t const* words, int g, int t, float(&to)[8][8]) {
              for (int word = 0; word < 2; ++word) to[t + word * 4][g] = e::tf32_word(words[word]);
            });
      },
      where);
}

inline void load_matrices(std::uint32_t (&words)[4], void const* row,
                          std::source_location where = std::source_location::current()) {
  namespace e = emulated_fragments;
  e::Load mine{words, static_cast<unsigned char const*>(e::aligned_row(row, where))};
  e::together("load_matrices", &mine, e::load<false>, where);
}
inline void load_matrices_transposed(std::uint32_t (&words)[4], void const* row,
                                     std::source_location where = std::source_location::current()) {
  namespace e = emulated_fragments;
  e::Load mine{words, static_cast<unsigned char const*>(e::aligned_row(row, where))};
  e::together("load_matrices_transposed", &mine, e::load<true>, where);
}

inline void copy_async(void* shared, void const* global, unsigned source_bytes = 16,
                       std::source_location where = std::source_location::current()) {
  if (source_bytes > 16) emulated::fail("copy_async: more than 16 bytes", where);
  emulated::copy_later(shared, global, 16, source_bytes, where);
}
inline void copy_async_commit() { emulated::copies_close_group(); }
template <int pending>
void copy_async_wait() {
  emulated::copies_wait(pending);
}

inline std::uint32_t pack_bfloat16(float low, float high) {
  constexpr auto bits = [](float value) {
    return std::uint32_t{value != value ? std::uint16_t{0x7fff} : bfloat16(value).bits};
  };
  return bits(low) | bits(high) << 16;
}
inline std::uint32_t to_tf32(float value) {
  auto const word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7f800000u) == 0x7f800000u) return (word & 0x007fffffu) != 0 ? 0x7fffe000u : word;
  return (word + 0x1000u) & 0xffffe000u;
}
inline float exp2_approximate(float x) {
  float const result = std::exp2(x);
  return result < 0x1p-126f ? 0.0f : result;
}
inline void let_next_kernel_start() {}
inline void wait_for_previous_kernel() { emulated::waited_for_previous(); }
inline void begin_kernel() {
  let_next_kernel_start();
  wait_for_previous_kernel();
}
inline void hand_on(unsigned* turn, unsigned value) { *turn = value; }
/// Blocks run one after another: whoever is waited for has run, or never will.
inline void wait_for_turn(unsigned const* turn, unsigned value,
                          std::source_location where = std::source_location::current()) {
  if (*turn != value) emulated::fail("wait_for_turn: for a block that has not begun", where);
}
inline int computed_anew(int value) { return value; }

}  // namespace tutti::kernel::cuda

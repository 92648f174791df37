// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Mersenne Twister with the draws that PyTorch's CPU generator makes from it, bit for bit as llm.c's C version of
/// them. PyTorch itself gives the same uniforms and, from 16 elements on, the same normals when it runs its portable
/// code; its vector code approximates logarithm and sine differently in the last bits, and below 16 elements it
/// computes in double where llm.c uses float. Everything that needs no such agreement uses `CounterRandom`.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti {

/// MT19937 with 32-bit output. Copyable: a copy continues on its own.
/// Determinism: integers and uniforms are exact everywhere. Normals take logf, cosf and sinf from the platform, as the
/// original does; on one machine they agree bit for bit.
class Mt19937 {
 public:
  /// Everything needed to continue later; plain data for checkpoints.
  struct State {
    std::array<std::uint32_t, 624> words{};
    std::uint32_t used = 0;  ///< words of this block that were handed out, at most 624
    friend bool operator==(State const& a, State const& b) noexcept {
      if (a.used != b.used) return false;
      for (std::size_t i = 0; i < a.words.size(); ++i)
        if (a.words[i] != b.words[i]) return false;
      return true;
    }
  };

  explicit Mt19937(std::uint32_t seed = 5489) noexcept {
    state_.words[0] = seed;
    for (std::uint32_t i = 1; i < size; ++i) {
      std::uint32_t const before = state_.words[i - 1];
      state_.words[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    state_.used = size;
  }
  explicit Mt19937(State const& state) noexcept : state_(state) {
    if (state_.used > size) state_.used = size;
  }
  State const& state() const noexcept { return state_; }

  std::uint32_t next() noexcept {
    if (state_.used == size) refill();
    std::uint32_t y = state_.words[state_.used++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }
  /// Two draws, the first one in the upper half.
  std::uint64_t next64() noexcept {
    std::uint64_t const upper = next();
    return (upper << 32) | next();
  }
  /// In [0, 1): the low 24 bits of a draw.
  float uniform_float() noexcept { return static_cast<float>(next() & 0xffffffu) * 0x1p-24f; }
  /// In [0, 1): the low 53 bits of two draws.
  double uniform_double() noexcept { return static_cast<double>(next64() & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53; }

  /// One draw an element.
  void fill_uniform(std::span<float> values, float low = 0, float high = 1) noexcept {
    float const width = high - low;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = separate(uniform_float() * width) + low;
  }

  /// From 16 elements on: uniforms everywhere, then each block of 16 becomes normal in place; when the size is no
  /// multiple of 16, the last 16 elements are drawn again. Fewer elements use pairs of 53-bit draws.
  void fill_normal(std::span<float> values, float mean = 0, float deviation = 1) noexcept {
    if (values.size() < block) {
      fill_normal_short(values, mean, deviation);
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = uniform_float();
    for (std::size_t first = 0; first + block <= values.size(); first += block)
      to_normal(values.data() + first, mean, deviation);
    if (values.size() % block != 0) {
      float* const tail = values.data() + values.size() - block;
      for (std::size_t i = 0; i < block; ++i) tail[i] = uniform_float();
      to_normal(tail, mean, deviation);
    }
  }

  /// As if `count` words had been drawn.
  void discard(std::uint64_t count) noexcept {
    while (count > 0) {
      if (state_.used == size) refill();
      std::uint64_t const here = size - state_.used, taken = count < here ? count : here;
      state_.used += static_cast<std::uint32_t>(taken);
      count -= taken;
    }
  }
  /// As if `fill_normal` had filled `count` elements.
  void skip_normal(std::size_t count) noexcept {
    float few[block];
    if (count < block) fill_normal_short({few, count}, 0, 1);
    else discard(count + (count % block != 0 ? block : 0));
  }

  /// Fisher-Yates from the end; the partner is a draw modulo the number of elements left. At most 2^32 - 1 elements.
  template <class T>
  void shuffle(std::span<T> values) noexcept {
    for (std::size_t i = values.size(); i-- > 1;) {
      std::size_t const partner = next() % static_cast<std::uint32_t>(i + 1);
      std::swap(values[i], values[partner]);
    }
  }

 private:
  static constexpr std::uint32_t size = 624;
  static constexpr std::uint32_t offset = 397;
  static constexpr std::size_t block = 16;
  static constexpr float epsilon = 1e-12f;
  static constexpr double two_pi = 6.283185307179586;

  /// Keeps the compiler from fusing a product with the sum that follows, which would round once instead of twice.
  static float separate(float product) noexcept {
    asm("" : "+m"(product));
    return product;
  }

  /// Box-Muller: element t goes with element t + 8.
  static void to_normal(float* values, float mean, float deviation) noexcept {
    for (std::size_t t = 0; t < 8; ++t) {
      float const u1 = 1.0f - values[t];
      float const radius = std::sqrt(-2.0f * std::log(u1 + epsilon));
      float const angle = static_cast<float>(two_pi * static_cast<double>(values[t + 8]));
      values[t] = separate(radius * std::cos(angle) * deviation) + mean;
      values[t + 8] = separate(radius * std::sin(angle) * deviation) + mean;
    }
  }
  void fill_normal_short(std::span<float> values, float mean, float deviation) noexcept {
    for (std::size_t i = 0; i < values.size(); i += 2) {
      float const u1 = static_cast<float>(uniform_double());
      float const u2 = static_cast<float>(uniform_double());
      float const radius = std::sqrt(-2.0f * std::log(1.0f - u2 + epsilon));
      float const angle = static_cast<float>(two_pi * static_cast<double>(u1));
      values[i] = separate(radius * std::cos(angle) * deviation) + mean;
      if (i + 1 == values.size()) break;
      // The partner waits in a double, so its product and sum are rounded there first.
      double partner = static_cast<double>(radius * std::sin(angle)) * static_cast<double>(deviation);
      asm("" : "+m"(partner));
      values[i + 1] = static_cast<float>(partner + static_cast<double>(mean));
    }
  }

  void refill() noexcept {
    auto& w = state_.words;
    for (std::uint32_t i = 0; i < size; ++i) {
      std::uint32_t const y = (w[i] & 0x80000000u) | (w[(i + 1) % size] & 0x7fffffffu);
      w[i] = w[(i + offset) % size] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
    }
    state_.used = 0;
  }

  State state_;
};

}  // namespace tutti

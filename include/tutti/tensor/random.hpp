// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Random numbers without state: Philox4x32-10 turns (seed, stream, index) into bits, so that any rank, thread or
/// vector lane computes any element alone, and a resumed run needs nothing but its step.

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// Ten rounds of Philox on four 32-bit words.
/// Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011).
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53u} * counter[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// A sequence that is a pure function of its seed, its stream and the index. Streams of one seed are independent:
/// give each tensor, step or purpose its own. Indices run to 2^64 - 1.
struct CounterRandom {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  constexpr CounterRandom() = default;
  /// Of whole numbers of any type; negative ones count back from 2^64, as conversion to unsigned has it.
  template <std::integral Seed, std::integral Stream>
  constexpr CounterRandom(Seed seed_, Stream stream_) noexcept
      : seed(static_cast<std::uint64_t>(seed_)), stream(static_cast<std::uint64_t>(stream_)) {}

  /// 32 random bits.
  constexpr std::uint32_t bits(std::uint64_t index) const noexcept {
    return block(index / 4)[static_cast<std::size_t>(index % 4)];
  }
  /// In [0, 1), a multiple of 2^-24.
  constexpr float uniform(std::uint64_t index) const noexcept { return to_uniform(bits(index)); }
  /// Standard normal. Computed in double, so that it does not depend on how a platform's float functions round.
  template <class = void>
  float normal(std::uint64_t index) const noexcept {
    return normals(block(index / 4))[static_cast<std::size_t>(index % 4)];
  }

  /// values[i] = low + (high - low) * uniform(first + i).
  template <class = void>
  void fill_uniform(std::span<float> values, float low = 0, float high = 1, std::uint64_t first = 0) const noexcept {
    fill(values, first, [=](std::array<std::uint32_t, 4> const& words) {
      std::array<float, 4> result;
      for (std::size_t i = 0; i < 4; ++i)
        result[i] = static_cast<float>(low + (static_cast<double>(high) - low) * to_uniform(words[i]));
      return result;
    });
  }
  /// values[i] = mean + deviation * normal(first + i).
  template <class = void>
  void fill_normal(std::span<float> values, float mean = 0, float deviation = 1,
                   std::uint64_t first = 0) const noexcept {
    fill(values, first, [=](std::array<std::uint32_t, 4> const& words) {
      std::array<float, 4> result = normals(words);
      for (float& value : result) value = static_cast<float>(mean + static_cast<double>(deviation) * value);
      return result;
    });
  }

  friend constexpr bool operator==(CounterRandom const&, CounterRandom const&) = default;

 private:
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t number) const noexcept {
    return philox4x32({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }
  static constexpr float to_uniform(std::uint32_t word) noexcept { return static_cast<float>(word >> 8) * 0x1p-24f; }
  /// Box-Muller on the words (0, 1) and (2, 3). The half keeps the logarithm's argument above zero.
  template <class = void>
  static std::array<float, 4> normals(std::array<std::uint32_t, 4> const& words) noexcept {
    std::array<float, 4> result;
    for (std::size_t i = 0; i < 4; i += 2) {
      double const radius = std::sqrt(-2 * std::log((words[i] + 0.5) * 0x1p-32));
      double const angle = 6.283185307179586 * (words[i + 1] * 0x1p-32);
      result[i] = static_cast<float>(radius * std::cos(angle));
      result[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    return result;
  }
  template <class Make>
  void fill(std::span<float> values, std::uint64_t first, Make make) const noexcept {
    float* const out = values.data();
    std::size_t const count = values.size();
    for (std::size_t i = 0; i < count;) {
      std::uint64_t const index = first + i;
      std::array<float, 4> const four = make(block(index / 4));
      for (std::size_t lane = index % 4; lane < 4 && i < count; ++lane) out[i++] = four[lane];
    }
  }
};

}  // namespace tutti

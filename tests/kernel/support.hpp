// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What kernel tests share: every instruction set of this machine on 1, 2 and 3 threads, random numbers, comparisons.

#include <tutti/exec/context.hpp>

#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tutti::test {

/// Made once per program: a team's threads are slow to start compared with a small kernel.
inline exec::Context& context_of(exec::Isa isa, int threads) {
  static std::unique_ptr<exec::Context> contexts[4][4];
  auto& context = contexts[static_cast<int>(isa)][threads];
  if (!context) context = std::make_unique<exec::Context>(exec::ContextOptions{.threads = threads, .isa = isa});
  return *context;
}

/// Uniform in [-1, 1).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform() { return static_cast<float>(static_cast<std::int64_t>(bits() >> 40) - (1 << 23)) * 0x1p-23f; }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(bound));
  }
  std::vector<float> floats(std::int64_t count, float scale = 1, float offset = 0) {
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& value : result) value = uniform() * scale + offset;
    return result;
  }

 private:
  std::uint64_t state_;
};

/// Of kernels that normalise rows: at and around vectors, blocks of rows, and nothing.
struct RowsShape {
  std::int64_t rows, channels;
};
inline std::vector<RowsShape> const rows_shapes{{0, 5},   {1, 1},    {3, 2},   {2, 7},   {5, 8},     {1, 15},
                                                {4, 16},  {3, 17},   {7, 31},  {2, 33},  {9, 64},    {3, 100},
                                                {5, 768}, {300, 65}, {3, 771}, {700, 3}, {1030, 16}, {2, 2500}};

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// f(context) returns what the kernel wrote; check(result) compares it with the oracle. Runs both for every instruction
/// set and requires that 2 and 3 threads write the same bits as 1.
template <class F, class Check>
void on_every_context(F&& f, Check&& check) {
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO("instruction set " << std::string(exec::name(isa)));
    auto const one = f(context_of(isa, 1));
    check(one);
    for (int threads : {2, 3}) {
      INFO("on " << threads << " threads");
      REQUIRE(same_bits(one, f(context_of(isa, threads))));
    }
  }
}

/// |value - exact| <= relative * scale, element by element. `scale` is the magnitude behind each element.
inline void require_close(float const* values, std::vector<double> const& exact, double relative, double scale,
                          char const* what) {
  std::size_t worst = 0;
  bool good = true;
  for (std::size_t index = 0; index < exact.size(); ++index)
    if (!close(values[index], exact[index], relative, std::max(scale, std::abs(exact[index])))) {
      good = false;
      worst = index;
      break;
    }
  if (good) return;
  INFO(what << "[" << worst << "] is " << values[worst] << ", expected " << exact[worst]);
  FAIL();
}

inline std::size_t length(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace tutti::test

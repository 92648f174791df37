// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cached_attention.hpp> <tutti/kernel/cpu/cached_attention.hpp>
#include <tutti/kernel/cpu/cached_attention.hpp>

#include "kernel/cached_attention_oracle.hpp"
#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using kernel::CachedAttention;
using kernel::RotaryPairing;

TEST_CASE("Attention over a cache agrees with double precision for prompts, single tokens and mixtures of sequences") {
  std::vector<CachedSizes> const all{{1, 1, 4, 2, 0},   {3, 1, 8, 4, 0, RotaryPairing::interleaved},
                               {4, 2, 64, 32, 0}, {6, 3, 20, 10, 0, RotaryPairing::interleaved, DType::float16},
                               {4, 4, 33, 0, 0},  {2, 1, 80, 20, 0, RotaryPairing::half, DType::bfloat16},
                               {4, 2, 16, 8, 7},  {2, 2, 64, 32, 150, RotaryPairing::half, DType::float16}};
  for (exec::Isa const isa : exec::all_isas)
    for (int const threads : {1, 3})
      for (CachedSizes const& s : all) {
        if (!exec::available(isa)) continue;
        exec::Context& context = context_of(isa, threads);
        std::int64_t const slots = 3, capacity = 400, width = (s.heads + 2 * s.kv_heads) * s.head_size;
        std::size_t const element = size_of(s.cache);
        std::vector<std::byte> keys(length(slots * s.kv_heads * capacity * s.head_size) * element), values(keys.size());
        // What was never written must not be looked at.
        std::fill(keys.begin(), keys.end(), std::byte{0xff});
        std::fill(values.begin(), values.end(), std::byte{0xff});
        CachedOracle oracle(s, slots);
        std::vector<std::int32_t> used(length(slots), 0);
        Random random(static_cast<std::uint64_t>(width + threads));
        // (sequence, tokens) of every call; -1: rows that fill up.
        std::vector<std::vector<std::pair<int, int>>> const calls{{{1, 130}},
                                                                  {{0, 3}, {1, 1}, {-1, 2}, {2, 1}},
                                                                  {{0, 1}, {1, 1}, {2, 1}},
                                                                  {{2, 37}, {0, 5}, {1, 150}, {-1, 1}},
                                                                  {{1, 1}}};
        for (auto const& call : calls) {
          std::vector<std::int32_t> slot, position;
          for (auto const& [sequence, tokens] : call)
            for (int t = 0; t < tokens; ++t) {
              slot.push_back(sequence);
              position.push_back(sequence < 0 ? 0 : used[length(sequence)]++);
            }
          std::int64_t const rows = static_cast<std::int64_t>(slot.size());
          auto const qkv = random.floats(rows * width);
          std::vector<float> cosine(length(rows * s.pairs)), sine(cosine.size()),
              out(length(rows * s.heads * s.head_size), NAN);
          for (std::int64_t i = 0; i < rows * s.pairs; ++i) {
            double const angle = double(position[length(i / s.pairs)]) / double(1 + i % s.pairs);
            cosine[length(i)] = static_cast<float>(std::cos(angle));
            sine[length(i)] = static_cast<float>(std::sin(angle));
          }
          CachedAttention const args{.rows = rows,
                                     .heads = s.heads,
                                     .kv_heads = s.kv_heads,
                                     .head_size = s.head_size,
                                     .scale = 0.25f,
                                     .window = s.window,
                                     .pairs = s.pairs,
                                     .pairing = s.pairing,
                                     .qkv = qkv.data(),
                                     .cosine = cosine.data(),
                                     .sine = sine.data(),
                                     .slot = slot.data(),
                                     .position = position.data(),
                                     .slots = slots,
                                     .capacity = capacity,
                                     .cache = s.cache,
                                     .keys = keys.data(),
                                     .values = values.data(),
                                     .out = out.data()};
          kernel::cpu::cached_attention(context, args);
          double worst = 0;
          for (std::int64_t row = 0; row < rows; ++row) {
            std::span<float const> const got =
                std::span(out).subspan(length(row * s.heads * s.head_size), length(s.heads * s.head_size));
            std::vector<double> expected(got.size(), 0.0);
            if (slot[length(row)] >= 0) {
              auto const part = [&](auto const& list, std::int64_t each) {
                return std::span<float const>(list).subspan(length(row * each), length(each));
              };
              oracle.add(length(slot[length(row)]), part(qkv, width), part(cosine, s.pairs), part(sine, s.pairs));
              expected = oracle.answer(length(slot[length(row)]));
            }
            for (std::size_t i = 0; i < got.size(); ++i) {
              double const off = std::abs(double{got[i]} - expected[i]);
              worst = off <= worst ? worst : off;  // NaN is worst
            }
          }
          CAPTURE(static_cast<int>(isa), threads, s.heads, s.head_size, s.window, rows, worst);
          REQUIRE(worst < (s.cache == DType::float32 ? 2e-5 : s.cache == DType::float16 ? 1e-3 : 1e-2));
        }
      }
}

TEST_CASE("Attention over a cache refuses slots and positions outside it, before it writes") {
  exec::Context context({.threads = 1});
  std::vector<float> qkv(12, 1.0f), keys(8, 7.0f), values(8, 7.0f), out(8, 7.0f);
  std::int32_t slot[2] = {0, 0}, position[2] = {0, 2};
  CachedAttention args{.rows = 2,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_size = 2,
                       .qkv = qkv.data(),
                       .slot = slot,
                       .position = position,
                       .slots = 2,
                       .capacity = 2,
                       .keys = keys.data(),
                       .values = values.data(),
                       .out = out.data()};
  REQUIRE_THROWS_AS(kernel::cpu::cached_attention(context, args), Error);
  position[1] = 1, slot[1] = 2;
  REQUIRE_THROWS_AS(kernel::cpu::cached_attention(context, args), Error);
  slot[1] = -2;
  REQUIRE_THROWS_AS(kernel::cpu::cached_attention(context, args), Error);
  args.kv_heads = 2, slot[1] = 1;
  REQUIRE_THROWS_AS(kernel::cpu::cached_attention(context, args), Error);
  REQUIRE(out == std::vector<float>(8, 7.0f));
  REQUIRE(keys == std::vector<float>(8, 7.0f));
}

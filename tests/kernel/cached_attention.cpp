// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cached_attention.hpp> <tutti/kernel/cpu/cached_attention.hpp>
#include <tutti/kernel/cpu/cached_attention.hpp>

#include "kernel/cached_attention_oracle.hpp"
#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using kernel::CachedAttention;
using kernel::RotaryPairing;

TEST_CASE("Attention over a cache agrees with double precision for prompts, single tokens and mixtures of sequences") {
  std::vector<CachedSizes> const all{{1, 1, 4, 2, 0},
                                     {3, 1, 8, 4, 0, RotaryPairing::interleaved},
                                     {4, 2, 64, 32, 0},
                                     {6, 3, 20, 10, 0, RotaryPairing::interleaved, BlockType::f16},
                                     {4, 4, 33, 0, 0},
                                     {2, 1, 80, 20, 0, RotaryPairing::half, BlockType::bf16},
                                     {4, 2, 64, 16, 0, RotaryPairing::half, BlockType::q8_0},
                                     {2, 1, 96, 48, 90, RotaryPairing::interleaved, BlockType::q8_0},
                                     {4, 2, 16, 8, 7},
                                     {2, 2, 64, 32, 150, RotaryPairing::half, BlockType::f16}};
  for (exec::Isa const isa : exec::all_isas)
    for (int const threads : {1, 3})
      for (CachedSizes const& s : all) {
        if (!exec::available(isa)) continue;
        exec::Context& context = context_of(isa, threads);
        std::int64_t const slots = 3, capacity = 400, width = (s.heads + 2 * s.kv_heads) * s.head_size;
        std::vector<std::byte> keys(length(slots * s.kv_heads * capacity * row_bytes(s.cache, s.head_size))),
            values(keys.size());
        // What was never written must not be looked at.
        std::fill(keys.begin(), keys.end(), std::byte{0xff});
        std::fill(values.begin(), values.end(), std::byte{0xff});
        CachedOracle oracle(s, slots);
        std::vector<std::int32_t> used(length(slots), 0);
        Random random(static_cast<std::uint64_t>(width + threads));
        std::vector<std::vector<std::pair<int, int>>> const calls{{{1, 130}},
                                                                  {{0, 3}, {1, 1}, {-1, 2}, {2, 1}},
                                                                  {{0, 1}, {1, 1}, {2, 1}},
                                                                  {{2, 37}, {0, 5}, {1, 150}, {-1, 1}},
                                                                  {{1, 1}}};
        for (auto const& call : calls) {
          CachedRows const rows(s, call, used);
          auto const qkv = random.floats(rows.count() * width);
          std::vector<float> out(length(rows.count() * s.heads * s.head_size), NAN);
          CachedAttention const args{.rows = rows.count(),
                                     .heads = s.heads,
                                     .kv_heads = s.kv_heads,
                                     .head_size = s.head_size,
                                     .scale = 0.25f,
                                     .window = s.window,
                                     .pairs = s.pairs,
                                     .pairing = s.pairing,
                                     .qkv = qkv.data(),
                                     .cosine = rows.cosine.data(),
                                     .sine = rows.sine.data(),
                                     .slot = rows.slot.data(),
                                     .position = rows.position.data(),
                                     .slots = slots,
                                     .capacity = capacity,
                                     .cache = s.cache,
                                     .keys = keys.data(),
                                     .values = values.data(),
                                     .out = out.data()};
          kernel::cpu::cached_attention(context, args);
          std::vector<double> const expected = oracle.answers(rows, qkv);
          double worst = 0;
          for (std::size_t i = 0; i < out.size(); ++i) {
            double const off = std::abs(double{out[i]} - expected[i]);
            worst = off <= worst ? worst : off;  // NaN is worst
          }
          CAPTURE(static_cast<int>(isa), threads, s.heads, s.head_size, s.window, rows.count(), worst);
          REQUIRE(worst < (s.cache == BlockType::f32 ? 2e-5 : s.cache == BlockType::f16 ? 1e-3 : 2e-2));
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
  slot[1] = 1, args.cache = BlockType::q8_0;
  REQUIRE_ERROR(kernel::cpu::cached_attention(context, args), ErrorKind::invalid_argument, "whole blocks of Q8_0");
  args.cache = BlockType::q4_0;
  REQUIRE_ERROR(kernel::cpu::cached_attention(context, args), ErrorKind::invalid_argument, "none of F32");
  args.cache = BlockType::f32, args.kv_heads = 2;
  REQUIRE_THROWS_AS(kernel::cpu::cached_attention(context, args), Error);
  REQUIRE(out == std::vector<float>(8, 7.0f));
  REQUIRE(keys == std::vector<float>(8, 7.0f));
}

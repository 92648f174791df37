// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/cached_attention.hpp>

#include "kernel/cached_attention_oracle.hpp"
#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

TEST_CASE("Attention over a cache on a device agrees with double precision for prompts, tokens and mixtures") {
  using kernel::RotaryPairing;
  std::vector<CachedSizes> const all{{1, 1, 4, 2, 0},
                                     {3, 1, 8, 4, 0, RotaryPairing::interleaved},
                                     {4, 2, 64, 32, 7},
                                     {6, 3, 20, 10, 0, RotaryPairing::interleaved, DType::float16},
                                     {2, 2, 33, 0, 0},
                                     {2, 1, 160, 20, 0, RotaryPairing::half, DType::bfloat16}};
  for (CachedSizes const& s : all) {
    std::int64_t const slots = 3, capacity = 40, width = (s.heads + 2 * s.kv_heads) * s.head_size;
    // What was never written must not be looked at.
    std::vector<std::uint8_t> const unwritten(length(slots * s.kv_heads * capacity * s.head_size) * size_of(s.cache),
                                              0xff);
    OnDevice const keys(unwritten), values(unwritten);
    CachedOracle oracle(s, slots);
    std::vector<std::int32_t> used(length(slots), 0);
    Random random(static_cast<std::uint64_t>(width));
    std::vector<std::vector<std::pair<int, int>>> const calls{
        {{1, 14}}, {{0, 3}, {1, 1}, {-1, 2}, {2, 1}}, {{0, 1}, {1, 1}, {2, 1}}};
    for (auto const& call : calls) {
      std::vector<std::int32_t> slot, position;
      for (auto const& [sequence, tokens] : call)
        for (int t = 0; t < tokens; ++t) {
          slot.push_back(sequence);
          position.push_back(sequence < 0 ? 0 : used[length(sequence)]++);
        }
      std::int64_t const rows = static_cast<std::int64_t>(slot.size());
      auto const qkv = random.floats(rows * width);
      std::vector<float> cosine(length(rows * s.pairs)), sine(cosine.size());
      for (std::int64_t i = 0; i < rows * s.pairs; ++i) {
        double const angle = double(position[length(i / s.pairs)]) / double(1 + i % s.pairs);
        cosine[length(i)] = static_cast<float>(std::cos(angle));
        sine[length(i)] = static_cast<float>(std::sin(angle));
      }
      OnDevice const on_qkv(qkv), on_cosine(cosine), on_sine(sine);
      OnDevice const on_slot(slot), on_position(position);
      OnDevice<float> const out(length(rows * s.heads * s.head_size));
      kernel::cuda::cached_attention(cuda_context(), {.rows = rows,
                                                      .heads = s.heads,
                                                      .kv_heads = s.kv_heads,
                                                      .head_size = s.head_size,
                                                      .scale = 0.25f,
                                                      .window = s.window,
                                                      .pairs = s.pairs,
                                                      .pairing = s.pairing,
                                                      .qkv = on_qkv.data(),
                                                      .cosine = on_cosine.data(),
                                                      .sine = on_sine.data(),
                                                      .slot = on_slot.data(),
                                                      .position = on_position.data(),
                                                      .slots = slots,
                                                      .capacity = capacity,
                                                      .cache = s.cache,
                                                      .keys = keys.data(),
                                                      .values = values.data(),
                                                      .out = out.data()});
      std::vector<double> expected;
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<double> one(length(s.heads * s.head_size), 0.0);
        if (slot[length(row)] >= 0) {
          auto const part = [&](auto const& list, std::int64_t each) {
            return std::span<float const>(list).subspan(length(row * each), length(each));
          };
          oracle.add(length(slot[length(row)]), part(qkv, width), part(cosine, s.pairs), part(sine, s.pairs));
          one = oracle.answer(length(slot[length(row)]));
        }
        expected.insert(expected.end(), one.begin(), one.end());
      }
      CAPTURE(s.heads, s.head_size, s.window, rows);
      require_close_on_device(out.read(), expected,
                              s.cache == DType::float32   ? 2e-5
                              : s.cache == DType::float16 ? 1e-3
                                                          : 1e-2,
                              1, "out");
    }
  }
}

TEST_CASE("Attention over a cache on a device refuses sizes and types that it lacks") {
  kernel::CachedAttention op{.rows = 1, .heads = 3, .kv_heads = 2, .head_size = 8, .slots = 1, .capacity = 4};
  REQUIRE_ERROR(kernel::cuda::cached_attention(cuda_context(), op), ErrorKind::invalid_argument, "evenly");
  op.heads = 2, op.head_size = 600;
  REQUIRE_ERROR(kernel::cuda::cached_attention(cuda_context(), op), ErrorKind::invalid_argument, "up to 512");
  op.head_size = 8, op.cache = DType::float64;
  REQUIRE_ERROR(kernel::cuda::cached_attention(cuda_context(), op), ErrorKind::invalid_argument, "float64");
}

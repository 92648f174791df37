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
                                     {6, 3, 20, 10, 0, RotaryPairing::interleaved, BlockType::f16},
                                     {2, 2, 33, 0, 0},
                                     {4, 2, 64, 32, 0, RotaryPairing::half, BlockType::q8_0},
                                     {2, 1, 160, 20, 0, RotaryPairing::half, BlockType::bf16}};
  for (CachedSizes const& s : all) {
    std::int64_t const slots = 3, capacity = 40, width = (s.heads + 2 * s.kv_heads) * s.head_size;
    // What was never written must not be looked at.
    std::vector<std::uint8_t> const unwritten(length(slots * s.kv_heads * capacity * row_bytes(s.cache, s.head_size)),
                                              0xff);
    OnDevice const keys(unwritten), values(unwritten);
    CachedOracle oracle(s, slots);
    std::vector<std::int32_t> used(length(slots), 0);
    Random random(static_cast<std::uint64_t>(width));
    std::vector<std::vector<std::pair<int, int>>> const calls{
        {{1, 14}}, {{0, 3}, {1, 1}, {-1, 2}, {2, 1}}, {{0, 1}, {1, 1}, {2, 1}}};
    for (auto const& call : calls) {
      CachedRows const rows(s, call, used);
      auto const qkv = random.floats(rows.count() * width);
      OnDevice const on_qkv(qkv), on_cosine(rows.cosine), on_sine(rows.sine);
      OnDevice const on_slot(rows.slot), on_position(rows.position);
      OnDevice<float> const out(length(rows.count() * s.heads * s.head_size));
      kernel::cuda::cached_attention(cuda_context(), {.rows = rows.count(),
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
      CAPTURE(s.heads, s.head_size, s.window, rows.count());
      require_close_on_device(out.read(), oracle.answers(rows, qkv),
                              s.cache == BlockType::f32   ? 2e-5
                              : s.cache == BlockType::f16 ? 1e-3
                                                          : 2e-2,
                              1, "out");
    }
  }
}

TEST_CASE("Attention over a cache on a device refuses sizes and types that it lacks") {
  kernel::CachedAttention op{.rows = 1, .heads = 3, .kv_heads = 2, .head_size = 8, .slots = 1, .capacity = 4};
  REQUIRE_ERROR(kernel::cuda::cached_attention(cuda_context(), op), ErrorKind::invalid_argument, "evenly");
  op.heads = 2, op.head_size = 600;
  REQUIRE_ERROR(kernel::cuda::cached_attention(cuda_context(), op), ErrorKind::invalid_argument, "up to 512");
  op.head_size = 8, op.cache = BlockType::q4_0;
  REQUIRE_ERROR(kernel::cuda::cached_attention(cuda_context(), op), ErrorKind::invalid_argument, "Q4_0");
}

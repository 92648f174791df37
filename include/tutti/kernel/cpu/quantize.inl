// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Rows [begin, end) to int8. Stamped per instruction set by quantize.hpp.

TUTTI_TARGET inline void quantize_rows(QuantizeRows const& args, std::int64_t begin, std::int64_t end) {
  constexpr int lanes = F32::lanes;
  for (std::int64_t i = begin; i < end; ++i) {
    float const* const x = args.x + i * args.x_row;
    std::int8_t* const q = args.q + i * args.q_row;
    // Magnitudes compare as their bits do, and there NaN is larger than all others.
    I32 largest = set_i32(0);
    for (std::int64_t p = 0; p < args.k; p += lanes) {
      int const left = static_cast<int>(args.k - p < lanes ? args.k - p : lanes);
      I32 const bits = as_i32(abs(left == lanes ? load(x + p) : load_partial(x + p, left)));
      largest = select(less(largest, bits), bits, largest);
    }
    std::int32_t each[lanes], most = 0;
    store(each, largest);
    for (std::int32_t const bits : each) most = most < bits ? bits : most;
    float const magnitude = std::bit_cast<float>(most);
    bool const zeros = magnitude < 0x1p-120f;
    args.scales[i] = zeros ? 0.0f : magnitude / 127.0f;
    F32 const factor = set(zeros ? 0.0f : 127.0f / magnitude);
    for (std::int64_t p = 0; p < args.k; p += lanes) {
      int const left = static_cast<int>(args.k - p < lanes ? args.k - p : lanes);
      if (left == lanes) store(q + p, to_i32(mul(factor, load(x + p))));
      else store_partial(q + p, to_i32(mul(factor, load_partial(x + p, left))), left);
    }
  }
}

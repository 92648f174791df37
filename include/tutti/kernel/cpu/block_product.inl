// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Products with weights in blocks, stamped per instruction set after gemm.inl.

/// x[r] . row o of the weight, which `scratch` takes as floats.
TUTTI_TARGET inline float block_dot(BlockMatrix const& w, std::int64_t o, float const* x, float* scratch, bool unpack) {
  if (unpack) dequantise(w.type, w.data + o * row_bytes(w.type, w.in), w.in, scratch);
  float out[1];
  dot_kernel<Words::plain, 1, 1>(w.in, x, 0, scratch, 0, out);
  return out[0];
}
/// Outputs [begin, end).
TUTTI_TARGET inline void block_product_part(BlockProduct const& p, std::int64_t begin, std::int64_t end,
                                            float* scratch) {
  for (std::int64_t o = begin; o < end; ++o)
    for (std::int64_t r = 0; r < p.rows; ++r) {
      float y = block_dot(p.weight, o, p.x + r * p.x_stride, scratch, r == 0);
      if (p.bias != nullptr) y += p.bias[o];
      if (p.residual != nullptr) y += p.residual[r * p.residual_stride + o];
      p.y[r * p.y_stride + o] = y;
    }
}
/// Outputs [begin, end).
TUTTI_TARGET inline void block_swiglu_part(BlockSwiGlu const& p, std::int64_t begin, std::int64_t end,
                                           float* scratch) {
  for (std::int64_t o = begin; o < end; ++o) {
    for (std::int64_t r = 0; r < p.rows; ++r)
      p.y[r * p.y_stride + o] = block_dot(p.gate, o, p.x + r * p.x_stride, scratch, r == 0);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      float const up = block_dot(p.up, o, p.x + r * p.x_stride, scratch, r == 0);
      float& y = p.y[r * p.y_stride + o];
      store_partial(&y, mul(silu(set(y)), set(up)), 1);
    }
  }
}

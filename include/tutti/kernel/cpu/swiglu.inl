// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The gate of SwiGLU, stamped per instruction set.

/// Elements [begin, end) of one row.
TUTTI_TARGET inline void swiglu_row(SwiGlu const& args, std::int64_t row, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t width = F32::lanes;
  float const* const gate = args.gate + row * args.gate_stride;
  float const* const up = args.up + row * args.up_stride;
  float* const y = args.y + row * args.y_stride;
  std::int64_t i = begin;
  for (; i + width <= end; i += width) store(y + i, mul(silu(load(gate + i)), load(up + i)));
  if (i < end) {
    int const rest = static_cast<int>(end - i);
    store_partial(y + i, mul(silu(load_partial(gate + i, rest)), load_partial(up + i, rest)), rest);
  }
}

/// Elements [begin, end) of one row.
TUTTI_TARGET inline void swiglu_gradient_row(SwiGluGradient const& args, std::int64_t row, std::int64_t begin,
                                             std::int64_t end) {
  constexpr std::int64_t width = F32::lanes;
  float const* const dy = args.dy + row * args.dy_stride;
  float const* const gate = args.gate + row * args.gate_stride;
  float const* const up = args.up + row * args.up_stride;
  float* const dgate = args.dgate == nullptr ? nullptr : args.dgate + row * args.dgate_stride;
  float* const dup = args.dup == nullptr ? nullptr : args.dup + row * args.dup_stride;
  for (std::int64_t i = begin; i < end; i += width) {
    bool const whole = end - i >= width;
    int const rest = whole ? static_cast<int>(width) : static_cast<int>(end - i);
    F32 const d = whole ? load(dy + i) : load_partial(dy + i, rest);
    F32 const u = whole ? load(up + i) : load_partial(up + i, rest);
    F32 slope;
    F32 const value = silu_and_gradient(whole ? load(gate + i) : load_partial(gate + i, rest), slope);
    F32 const to_gate = mul(mul(d, u), slope), to_up = mul(d, value);
    if (dgate != nullptr) {
      if (whole) store(dgate + i, to_gate);
      else store_partial(dgate + i, to_gate, rest);
    }
    if (dup != nullptr) {
      if (whole) store(dup + i, to_up);
      else store_partial(dup + i, to_up, rest);
    }
  }
}

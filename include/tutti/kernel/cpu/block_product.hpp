// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Products with weights in blocks on processors. Threads share the rows of the weight, so that each of its bytes is
/// read once.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/block_product.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/block_product.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

/// Errors: shape.
template <class = void>
void check_block_matrix(BlockMatrix const& w, std::int64_t rows, char const* operation) {
  if (rows < 0 || w.out < 0)
    throw Error(ErrorKind::shape, operation, concat(rows, " rows by ", w.out, " rows of weights: a size is negative"));
  row_bytes(w.type, w.in);
}
inline void block_product_part(exec::Isa isa, BlockProduct const& p, std::int64_t begin, std::int64_t end,
                               float* scratch) {
  TUTTI_DISPATCH(isa, block_product_part(p, begin, end, scratch));
}
inline void block_swiglu_part(exec::Isa isa, BlockSwiGlu const& p, std::int64_t begin, std::int64_t end,
                              float* scratch) {
  TUTTI_DISPATCH(isa, block_swiglu_part(p, begin, end, scratch));
}

/// f(begin, end, scratch) on every thread, for its share of [0, out), with `floats` of working memory.
template <class F>
void share_outputs(exec::Context& context, std::int64_t out, std::int64_t floats, F f) {
  std::size_t const bytes = static_cast<std::size_t>(floats) * sizeof(float);
  context.parallel([&](int thread) {
    std::int64_t const begin = out * thread / context.threads(), end = out * (thread + 1) / context.threads();
    if (begin < end) f(begin, end, static_cast<float*>(context.scratch(thread, bytes)));
  });
}

}  // namespace detail

/// Contract: tutti/kernel/block_product.hpp, of each of `count` products with the same rows, x, x_stride and in: one
/// parallel region for all, as for the projections to queries, keys and values. Errors: shape, also where those differ.
inline void block_products(exec::Context& context, BlockProduct const* products, int count) {
  std::int64_t out = 0;
  for (int i = 0; i < count; ++i) {
    BlockProduct const& p = products[i];
    detail::check_block_matrix(p.weight, p.rows, "block_products");
    if (p.rows != products->rows || p.x != products->x || p.x_stride != products->x_stride ||
        p.weight.in != products->weight.in)
      throw Error(ErrorKind::shape, "block_products",
                  concat("product ", i, " multiplies another x than product 0. Call block_product for it"));
    out += p.weight.out;
  }
  if (out == 0 || products->rows == 0) return;
  detail::share_outputs(context, out, products->weight.in, [&](std::int64_t begin, std::int64_t end, float* scratch) {
    for (int i = 0; i < count && end > 0; ++i) {
      std::int64_t const here = products[i].weight.out;
      if (begin < here) detail::block_product_part(context.isa(), products[i], begin, std::min(end, here), scratch);
      begin = std::max<std::int64_t>(begin - here, 0), end -= here;
    }
  });
}
/// Contract: tutti/kernel/block_product.hpp.
inline void block_product(exec::Context& context, BlockProduct const& product) { block_products(context, &product, 1); }

/// Contract: tutti/kernel/block_product.hpp.
inline void block_swiglu(exec::Context& context, BlockSwiGlu const& p) {
  detail::check_block_matrix(p.gate, p.rows, "block_swiglu");
  detail::check_block_matrix(p.up, p.rows, "block_swiglu");
  if (p.gate.out != p.up.out || p.gate.in != p.up.in)
    throw Error(ErrorKind::shape, "block_swiglu",
                concat("gate is ", p.gate.out, " x ", p.gate.in, ", up ", p.up.out, " x ", p.up.in,
                       ". They must have the same shape"));
  if (p.rows == 0 || p.gate.out == 0) return;
  detail::share_outputs(context, p.gate.out, p.gate.in, [&](std::int64_t begin, std::int64_t end, float* scratch) {
    detail::block_swiglu_part(context.isa(), p, begin, end, scratch);
  });
}

/// Contract: tutti/kernel/block_product.hpp.
inline void block_rows(exec::Context& context, BlockRows const& args) {
  detail::check_block_matrix(args.table, args.rows, "block_rows");
  std::int64_t const in = args.table.in, bytes = row_bytes(args.table.type, in);
  context.parallel_for(args.rows, 16384 / std::max<std::int64_t>(in, 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* const y = args.y + r * in;
      std::int64_t const token = args.tokens[r];
      if (token < 0 || token >= args.table.out) std::fill(y, y + in, 0.0f);
      else dequantise(args.table.type, args.table.data + token * bytes, in, y);
    }
  });
}

}  // namespace tutti::kernel::cpu

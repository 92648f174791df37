// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Products with weights in blocks on processors. Threads share the rows of the weight, so that each of its bytes is
/// read once.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/block_product.hpp>
#include <tutti/kernel/cpu/block_bodies.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cpu {

namespace detail {

/// Parts of a thread's working memory, one after the other, each aligned to 64 bytes. Counts without memory at first.
class Carver {
 public:
  explicit Carver(std::byte* memory = nullptr) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    T* const part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return part;
  }
  std::size_t used() const noexcept { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

/// A call with few rows, on one thread: the forms of x that its weights ask for.
struct FewRows {
  exec::Isa isa;
  std::int64_t rows, in;
  bool by_32 = false, by_256 = false;
  BlockRoundings rounded{};

  void take(BlockType type) noexcept {
    by_32 = by_32 || block_elements(type) == 32;
    by_256 = by_256 || block_elements(type) == 256;
  }
  void carve(Carver& memory) {
    int const copies = rounding_copies(isa);
    std::int64_t const values = copies * rows * (in / 32);
    if (by_32)
      rounded.by_32 = {memory.take<std::int8_t>(rows * in),
                       memory.take<float>(values),
                       memory.take<std::int32_t>(values),
                       memory.take<float>(values),
                       nullptr,
                       copies};
    if (by_256)
      rounded.by_256 = {memory.take<std::int8_t>(rows * in), memory.take<float>(rows * (in / 256)), nullptr, nullptr,
                        memory.take<std::int16_t>(rows * (in / 16))};
  }
};

/// A call with many rows, on one thread. Weights that are not multiplied in integers become float32 panels, some rows
/// of them at a time.
struct ManyRows {
  exec::Isa isa;
  std::int64_t rows, in, columns;  ///< of the weights that are taken at a time
  bool integers = false, floats = false;
  RoundedRows rounded{};
  float *panels = nullptr, *wide = nullptr, *scratch = nullptr, *ups = nullptr;

  ManyRows(exec::Isa level, std::int64_t rows_, std::int64_t in_, std::int64_t most)
      : isa(level), rows(rows_), in(in_) {
    // As many as gemm packs at a time: 3 MB.
    columns = std::min(std::max<std::int64_t>(32, (std::int64_t{3} << 18) / std::max<std::int64_t>(in, 1) / 32 * 32),
                       (most + 31) / 32 * 32);
  }
  void take(BlockType type) { (rounds_many(isa, type) ? integers : floats) = true; }
  Gemm product(float const* x, std::int64_t x_stride) const {
    Gemm g;
    g.m = rows, g.n = columns, g.k = in;
    g.a = x, g.a_row = x_stride;
    g.b_row = 1, g.b_column = in;
    return g;
  }
  /// What the threads of a call share.
  void carve_shared(Carver& memory) {
    if (!integers) return;
    rounded.q = memory.take<std::int8_t>(rows * in);
    rounded.scales = memory.take<float>(rows * (in / 32));
    rounded.sums = memory.take<std::int16_t>(rows * (in / 16));
  }
  void carve(Carver& memory, bool with_ups) {
    if (integers) {
      rounded.starts = memory.take<std::int32_t>(rows * (in / 16));
      rounded.scaled_sums = memory.take<float>(rows * (in / 16));
    }
    std::int64_t panel_floats = integers ? many_panel_floats(isa) : 0;
    std::int64_t wide_floats = integers ? many_wide_floats(isa) : 0;
    if (floats) {
      // What is multiplied from where it lies needs more than what comes as panels, and with c in the place of the
      // residual k is not split.
      Gemm g = product(nullptr, in);
      std::int64_t const whole = gemm_scratch(g, rows, columns);
      g.c = this;
      scratch = memory.take<float>(std::max(whole, gemm_scratch(g, rows, columns)));
      panel_floats = std::max(panel_floats, columns * in);
      wide_floats = std::max(wide_floats, 32 * in);
    }
    panels = memory.take<float>(panel_floats);
    wide = memory.take<float>(wide_floats);
    if (with_ups) ups = memory.take<float>(rows * columns);
  }
  /// p, of the rows [o, o + n) of its weight: y, bias and residual lie as those do.
  void multiply(BlockProduct const& p, std::int64_t o, std::int64_t n) const {
    BlockMatrix const& w = p.weight;
    if (rounds_many(isa, w.type)) return block_product_many(isa, p, o, n, rounded, wide, panels);
    Gemm g = product(p.x, p.x_stride);
    g.n = n;
    g.c = p.y, g.c_row = p.y_stride;
    g.epilogue.bias = p.bias, g.epilogue.residual = p.residual, g.epilogue.residual_stride = p.residual_stride;
    GemmPanels const packed{.words = panels, .k = in, .n = n, .product = Product::float32, .isa = isa};
    if (w.type == BlockType::f32 || w.type == BlockType::bf16) {
      g.b = w.data + o * in * block_bytes(w.type);
      g.b_dtype = w.type == BlockType::f32 ? DType::float32 : DType::bfloat16;
    } else {
      std::int64_t const width = panel_width(isa);
      Gemm few = g;
      few.b = wide;
      for (std::int64_t j = 0; j < n; j += width) {
        std::int64_t const here = std::min(width, n - j);
        for (std::int64_t i = 0; i < here; ++i) widen_row(isa, w, o + j + i, wide + i * in);
        if (rows > block_product_few_rows) {
          pack_right_panels(isa, few, 0, here, panels + j * in, nullptr);
          continue;
        }
        few.n = here;  // few rows, of tiles, are not multiplied from panels
        few.c = p.y + j;
        few.epilogue.bias = p.bias == nullptr ? nullptr : p.bias + j;
        few.epilogue.residual = p.residual == nullptr ? nullptr : p.residual + j;
        gemm_region<Product::float32>(isa, few, 0, rows, 0, here, scratch);
      }
      if (rows <= block_product_few_rows) return;
      g.b_panels = &packed;
    }
    gemm_region<Product::float32>(isa, g, 0, rows, 0, n, scratch);
  }
  void operator()(BlockProduct p, std::int64_t begin, std::int64_t end) const {
    float* const y = p.y;
    float const *const bias = p.bias, *const residual = p.residual;
    for (std::int64_t o = begin; o < end; o += columns) {
      p.y = y + o;
      if (bias != nullptr) p.bias = bias + o;
      if (residual != nullptr) p.residual = residual + o;
      multiply(p, o, std::min(columns, end - o));
    }
  }
  void operator()(BlockSwiGlu const& p, std::int64_t begin, std::int64_t end) const {
    BlockProduct half{.rows = rows, .x = p.x, .x_stride = p.x_stride};
    for (std::int64_t o = begin; o < end; o += columns) {
      std::int64_t const n = std::min(columns, end - o);
      half.weight = p.gate, half.y = p.y + o, half.y_stride = p.y_stride;
      multiply(half, o, n);
      half.weight = p.up, half.y = ups, half.y_stride = n;
      multiply(half, o, n);
      SwiGlu const gates{rows, n, p.y + o, p.y_stride, ups, n, p.y + o, p.y_stride};
      for (std::int64_t r = 0; r < rows; ++r) swiglu_part(isa, gates, r, 0, n);
    }
  }
};

/// f(begin, end, thread) on threads that share [0, out), bounds at multiples of `grain`.
template <class F>
void share_outputs(exec::Context& context, std::int64_t out, std::int64_t grain, double products, F f) {
  // Waking a team takes as long as some hundred thousand products.
  std::int64_t const grains = (out + grain - 1) / grain;
  std::int64_t const worth = static_cast<std::int64_t>(std::min(products / 131072, 1e6)) + 1;
  std::int64_t const threads = std::min({std::int64_t{context.threads()}, grains, worth});
  if (threads <= 1) return f(std::int64_t{0}, out, 0);
  context.parallel([&](int thread) {
    if (thread < threads)
      f(grains * thread / threads * grain, std::min(out, grains * (thread + 1) / threads * grain), thread);
  });
}
/// Working memory of a thread for what carve(carver) takes from it.
template <class F>
void carve_scratch(exec::Context& context, int thread, F carve) {
  Carver size;
  carve(size);
  Carver memory(static_cast<std::byte*>(context.scratch(thread, size.used())));
  carve(memory);
}
/// Memory, and x in the forms that weights ask for, of a thread of a call with few rows: `of_tiles` are those in tiles.
inline void prepare_rows(exec::Context& context, int thread, FewRows& x, ManyRows& of_tiles, float const* from,
                         std::int64_t stride, bool with_ups) {
  bool const any_tiles = of_tiles.integers || of_tiles.floats;
  carve_scratch(context, thread, [&](Carver& memory) {
    x.carve(memory);
    if (!any_tiles) return;
    of_tiles.carve_shared(memory);
    of_tiles.carve(memory, with_ups);
  });
  round_rows(x.isa, x.rows, x.in, from, stride, x.rounded);
  if (of_tiles.integers) round_many(x.isa, x.rows, x.in, from, stride, of_tiles.rounded, 0);
}
/// run(many, begin, end) on threads that share `out` outputs of a call with many rows, whose weights `call` has taken.
/// x is rounded once, for all threads, in memory of the first.
template <class F>
void share_many(exec::Context& context, ManyRows call, std::int64_t out, float const* x, std::int64_t x_stride,
                double work, bool with_ups, F run) {
  auto const carve = [&](ManyRows& many) {
    return [&](Carver& memory) {
      many.carve_shared(memory);
      many.carve(memory, with_ups);
    };
  };
  carve_scratch(context, 0, carve(call));  // `columns` is at least that of any thread: what comes fits
  if (call.integers)
    context.parallel_for(call.rows, 4096 / std::max<std::int64_t>(call.in, 1) + 1,
                         [&](std::int64_t begin, std::int64_t end) {
                           round_many(call.isa, end - begin, call.in, x, x_stride, call.rounded, begin);
                         });
  share_outputs(context, out, 32, work, [&](std::int64_t begin, std::int64_t end, int thread) {
    ManyRows many = call;
    if (thread != 0) carve_scratch(context, thread, [&](Carver& memory) { many.carve(memory, with_ups); });
    run(many, begin, end);
  });
}
inline double block_work(std::int64_t rows, std::int64_t out, std::int64_t in) noexcept {
  return static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
}

}  // namespace detail

/// Contract: tutti/kernel/block_product.hpp, of each of `count` products with the same rows, x, x_stride and in: one
/// parallel region for all, as for the projections to queries, keys and values. Errors: shape, also where those differ.
TUTTI_INLINE void block_products(exec::Context& context, BlockProduct const* products, int count) {
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
  std::int64_t const rows = products->rows, in = products->weight.in;
  bool tiled = false;
  for (int i = 0; i < count; ++i) tiled = tiled || products[i].weight.tiled;
  for (int i = 0; i < count && tiled && count > 1; ++i)  // tiles are shared out as wholes
    if (products[i].weight.out % 32 != 0) {
      for (int k = 0; k < count; ++k) block_products(context, products + k, 1);
      return;
    }
  double const work = detail::block_work(rows, out, in);
  // f(product, first, last) of the parts of products that outputs [begin, end) of them all are.
  auto const each = [&](std::int64_t begin, std::int64_t end, auto const& f) {
    std::int64_t before = 0;
    for (int i = 0; i < count; before += products[i++].weight.out) {
      std::int64_t const first = std::max<std::int64_t>(begin - before, 0);
      std::int64_t const last = std::min(end - before, products[i].weight.out);
      if (first < last) f(products[i], first, last);
    }
  };
  if (rows > block_product_few_rows) {
    detail::ManyRows many(context.isa(), rows, in, out);
    for (int i = 0; i < count; ++i) many.take(products[i].weight.type);
    return detail::share_many(context, many, out, products->x, products->x_stride, work, false,
                              [&](auto const& part, std::int64_t begin, std::int64_t end) { each(begin, end, part); });
  }
  detail::share_outputs(context, out, tiled ? 32 : 4, work, [&](std::int64_t begin, std::int64_t end, int thread) {
    detail::FewRows x{context.isa(), rows, in};
    detail::ManyRows of_tiles(context.isa(), rows, in, out);
    each(begin, end, [&](BlockProduct const& p, std::int64_t, std::int64_t) {
      p.weight.tiled ? of_tiles.take(p.weight.type) : x.take(p.weight.type);
    });
    detail::prepare_rows(context, thread, x, of_tiles, products->x, products->x_stride, false);
    each(begin, end, [&](BlockProduct const& p, std::int64_t first, std::int64_t last) {
      if (p.weight.tiled) of_tiles(p, first, last);
      else detail::block_product_few(x.isa, p, first, last, x.rounded);
    });
  });
}
/// Whether products with weights of this type are faster where these lie in tiles (core/block_tiles.hpp).
TUTTI_INLINE bool tiles_weights(exec::Isa isa, BlockType type) { return detail::tiles_weights(isa, type); }

/// Contract: tutti/kernel/block_product.hpp.
TUTTI_INLINE void block_product(exec::Context& context, BlockProduct const& product) {
  block_products(context, &product, 1);
}

/// Contract: tutti/kernel/block_product.hpp.
TUTTI_INLINE void block_swiglu(exec::Context& context, BlockSwiGlu const& p) {
  detail::check_block_matrix(p.gate, p.rows, "block_swiglu");
  detail::check_block_matrix(p.up, p.rows, "block_swiglu");
  std::int64_t const rows = p.rows, out = p.gate.out, in = p.gate.in;
  if (p.up.out != out || p.up.in != in)
    throw Error(
        ErrorKind::shape, "block_swiglu",
        concat("gate is ", out, " x ", in, ", up ", p.up.out, " x ", p.up.in, ". They must have the same shape"));
  if (rows == 0 || out == 0) return;
  double const work = 2 * detail::block_work(rows, out, in);
  if (rows > block_product_few_rows) {
    detail::ManyRows many(context.isa(), rows, in, out);
    many.take(p.gate.type);
    many.take(p.up.type);
    return detail::share_many(context, many, out, p.x, p.x_stride, work, true,
                              [&](auto const& part, std::int64_t begin, std::int64_t end) { part(p, begin, end); });
  }
  bool const tiled = p.gate.tiled || p.up.tiled;  // of one, both are multiplied as by many rows
  detail::share_outputs(context, out, tiled ? 32 : 4, work, [&](std::int64_t begin, std::int64_t end, int thread) {
    detail::FewRows x{context.isa(), rows, in};
    detail::ManyRows of_tiles(context.isa(), rows, in, out);
    for (BlockType const type : {p.gate.type, p.up.type}) tiled ? of_tiles.take(type) : x.take(type);
    detail::prepare_rows(context, thread, x, of_tiles, p.x, p.x_stride, true);
    if (tiled) of_tiles(p, begin, end);
    else detail::block_swiglu_few(x.isa, p, begin, end, x.rounded);
  });
}

/// Contract: tutti/kernel/block_product.hpp.
TUTTI_INLINE void block_rows(exec::Context& context, BlockRows const& args) {
  detail::check_block_matrix(args.table, args.rows, "block_rows");
  std::int64_t const in = args.table.in;
  context.parallel_for(args.rows, 16384 / std::max<std::int64_t>(in, 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::int64_t const token = args.tokens[r];
      if (token < 0 || token >= args.table.out) std::fill(args.y + r * in, args.y + (r + 1) * in, 0.0f);
      else detail::widen_row(context.isa(), args.table, token, args.y + r * in);
    }
  });
}

}  // namespace tutti::kernel::cpu

#endif

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The matrix product on processors. Threads own disjoint rectangles of the result and share nothing: packing the
/// smaller operand twice costs less than a barrier, and no sum depends on the number of threads.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/isa/levels.hpp>
#include <tutti/tensor/storage.hpp>
#include <tutti/kernel/cpu/packed_right.hpp>
#include <tutti/kernel/gemm.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <unistd.h>

namespace tutti::kernel::cpu {

inline bool gemm_is_skinny(Gemm const& g) noexcept {
  return g.m <= gemm_skinny_rows && g.b_row == 1 && g.b_column != 1 && g.b_panels == nullptr &&
         (g.product == Product::float32 || g.product == Product::bfloat16);
}
inline bool gemm_takes_right(Product product, DType b) noexcept {
  if (product == Product::int8) return b == DType::int8;
  if (product == Product::float64) return b == DType::float64;
  return b == DType::float32 || b == DType::bfloat16;
}
inline bool gemm_has_epilogue(Gemm const& g) noexcept {
  GemmEpilogue const& e = g.epilogue;
  return e.bias != nullptr || e.gelu || e.residual != nullptr || e.gelu_gradient != nullptr || e.row_sums != nullptr;
}
/// Whether k stays in one block, because c cannot hold partial sums: it is narrower than they are, or an operand of the
/// epilogue.
inline bool gemm_sums_at_once(Gemm const& g) noexcept {
  return g.epilogue.residual == g.c || g.epilogue.gelu_gradient == g.c || g.product == Product::int8 ||
         g.c_dtype == DType::bfloat16;
}

/// A word of a panel: how many terms it has, its size, and whether left operands in it are shifted (see pack.inl).
struct GemmWord {
  int terms = 1, bytes = 4;
  bool shifted = false;
};
/// Most floats of a sum over k that are packed together.
inline constexpr std::int64_t gemm_depth = 768;

/// What is packed at a time: mc x kc of the left operand, kc x nc of the right. kc counts terms.
struct GemmBlocking {
  std::int64_t mc = 0, nc = 0, kc = 0;
};
/// kc depends on the whole product alone. The left block takes half of the second-level cache, the right one 3 MB: a
/// part of the third, and little enough for many threads.
inline GemmBlocking gemm_blocking(Gemm const& g, std::int64_t m, std::int64_t n, GemmWord word) noexcept {
  static std::int64_t const level2 = [] {
#ifdef _SC_LEVEL2_CACHE_SIZE
    long const bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    long const bytes = 0;
#endif
    return bytes >= 262144 ? std::min<std::int64_t>(bytes, 2097152) : 524288;
  }();
  auto const even = [](std::int64_t extent, std::int64_t most, std::int64_t step) {
    most = std::max(most / step * step, step);
    std::int64_t const blocks = std::max<std::int64_t>(1, (extent + most - 1) / most);
    return std::max(step, ((extent + blocks - 1) / blocks + step - 1) / step * step);
  };
  GemmBlocking block;
  block.kc = gemm_sums_at_once(g) ? std::max<std::int64_t>(g.k, 1)
                                  : even(g.k, gemm_depth * 4 / word.bytes * word.terms, 8);
  std::int64_t const floats = (block.kc + word.terms - 1) / word.terms * word.bytes / 4;
  block.mc = even(m, level2 / 8 / floats, 12);
  block.nc = even(n, (std::int64_t{3} << 18) / floats, 32);
  return block;
}
/// Columns of the right operand that a call packs at a time.
inline std::int64_t gemm_packed_columns(Gemm const& g, GemmBlocking const& block) noexcept {
  return g.b_panels == nullptr ? block.nc : 0;
}
/// Whether the left operand of a skinny product is read as it is.
inline bool gemm_reads_rows(Gemm const& g) noexcept {
  return g.a_column == 1 && g.a_dtype == DType::float32 && g.product == Product::float32;
}

}  // namespace tutti::kernel::cpu

#define TUTTI_ISA_WITH_BF16
#define TUTTI_ISA_BODY <tutti/kernel/cpu/pack.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#define TUTTI_ISA_BODY <tutti/kernel/cpu/micro_kernel.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#define TUTTI_ISA_BODY <tutti/kernel/cpu/gemm.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#undef TUTTI_ISA_WITH_BF16

namespace tutti::kernel::cpu {

/// The word of a product at a level.
inline GemmWord gemm_word(exec::Isa isa, Product product) noexcept {
  switch (product) {
    case Product::float32: TUTTI_DISPATCH(isa, word_of_product<Product::float32>());
    case Product::bfloat16: TUTTI_DISPATCH_ALL(isa, word_of_product<Product::bfloat16>());
    case Product::int8: TUTTI_DISPATCH_ALL(isa, word_of_product<Product::int8>());
    case Product::float64: TUTTI_DISPATCH(isa, word_of_product<Product::float64>());
  }
  return {};
}
/// Floats of working memory for one thread that computes m x n outputs of the product, at any level.
inline std::int64_t gemm_scratch(Gemm const& g, std::int64_t m, std::int64_t n) noexcept {
  if (gemm_is_skinny(g)) return gemm_reads_rows(g) ? 0 : g.m * g.k;
  std::int64_t most = 0;
  for (exec::Isa const isa : {exec::Isa::scalar, exec::Isa::avx512_bf16}) {  // without and with the widest words
    GemmWord const word = gemm_word(isa, g.product);
    GemmBlocking const block = gemm_blocking(g, m, n, word);
    std::int64_t const packed = gemm_packed_columns(g, block), words = (block.kc + word.terms - 1) / word.terms;
    most = std::max(most, ((block.mc + packed + 16) * words + 64) * word.bytes / 4 + (word.shifted ? packed : 0));
  }
  return most;
}
/// One rectangle of a product of kind P, on the calling thread.
template <Product P>
void gemm_region(exec::Isa isa, Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1,
                 float* scratch) {
  if constexpr (P == Product::bfloat16 || P == Product::int8)
    TUTTI_DISPATCH_ALL(isa, gemm_region<P>(g, m0, m1, n0, n1, scratch));
  else TUTTI_DISPATCH(isa, gemm_region<P>(g, m0, m1, n0, n1, scratch));
}
/// The same of a float32 or bfloat16 product; for kernels that are inside a parallel region already.
inline void gemm_region(exec::Isa isa, Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                        std::int64_t n1, float* scratch) {
  if (g.product == Product::bfloat16) return gemm_region<Product::bfloat16>(isa, g, m0, m1, n0, n1, scratch);
  gemm_region<Product::float32>(isa, g, m0, m1, n0, n1, scratch);
}
/// Panels [first, end) of 32 columns of a right operand, whole k, for `gemm` of the same product and level.
inline void pack_right_panels(exec::Isa isa, Gemm const& g, std::int64_t first, std::int64_t end, void* to,
                              std::int32_t* shifts) {
  switch (g.product) {
    case Product::float32: TUTTI_DISPATCH(isa, pack_right_panels<Product::float32>(g, first, end, to, shifts));
    case Product::bfloat16: TUTTI_DISPATCH_ALL(isa, pack_right_panels<Product::bfloat16>(g, first, end, to, shifts));
    case Product::int8: TUTTI_DISPATCH_ALL(isa, pack_right_panels<Product::int8>(g, first, end, to, shifts));
    case Product::float64: TUTTI_DISPATCH(isa, pack_right_panels<Product::float64>(g, first, end, to, shifts));
  }
}
/// Columns of a panel.
inline std::int64_t panel_width(exec::Isa isa) noexcept { TUTTI_DISPATCH(isa, width_of_panels()); }

TUTTI_INLINE void PackedRight::pack(exec::Context& context, Gemm const& g) {
  if (!gemm_takes_right(g.product, g.b_dtype))
    throw Error(ErrorKind::invalid_argument, "PackedRight",
                concat("this product does not take B as ", name(g.b_dtype), ". See tutti/kernel/gemm.hpp"));
  std::int64_t const width = panel_width(context.isa()), count = (g.n + width - 1) / width;
  GemmWord const word = gemm_word(context.isa(), g.product);
  std::int64_t const panels = count * width * ((g.k + word.terms - 1) / word.terms) * word.bytes,
                     shifts = word.shifted ? count * width * 4 : 0;
  std::size_t const bytes = static_cast<std::size_t>(panels + shifts);
  if (memory_.bytes() != bytes) memory_ = Storage<Cpu>(Cpu{}, bytes);
  panels_ = {.words = memory_.data(), .k = g.k, .n = g.n, .product = g.product, .isa = context.isa()};
  auto* const after = reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(memory_.data()) + panels);
  if (word.shifted) panels_.shifts = after;
  context.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    pack_right_panels(context.isa(), g, begin * width, std::min(end * width, g.n), memory_.data(), after);
  });
}

/// The whole product on the calling thread, with gemm_scratch(g, g.m, g.n) floats.
inline void gemm_on_thread(exec::Isa isa, Gemm const& g, float* scratch) {
  if (g.m > 0 && g.n > 0) gemm_region(isa, g, 0, g.m, 0, g.n, scratch);
}

/// How many threads share the rows and how many the columns.
struct GemmSplit {
  std::int64_t rows = 1, columns = 1;
};
/// The grid with the least work for the busiest thread, packing of its operands included.
inline GemmSplit gemm_split(Gemm const& g, int threads) noexcept {
  // Waking a team costs some microseconds: about what a core does in this many multiplications.
  double const work =
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(std::max<std::int64_t>(g.k, 1));
  if (threads > 1 && work < 2e5 * threads)
    threads = static_cast<int>(work / 2e5) > 1 ? static_cast<int>(work / 2e5) : 1;
  bool const whole_rows = g.epilogue.row_sums != nullptr;  // whose order must not depend on threads
  if (gemm_is_skinny(g)) return {1, whole_rows ? 1 : std::min<std::int64_t>(threads, (g.n + 31) / 32)};
  GemmSplit best;
  double least = -1;
  for (std::int64_t r = 1; r <= threads; ++r) {
    std::int64_t const c = whole_rows ? 1 : threads / r;
    double const rows = static_cast<double>(((g.m + 11) / 12 + r - 1) / r * 12);
    double const columns = static_cast<double>(((g.n + 31) / 32 + c - 1) / c * 32);
    double const cost = rows * columns + 16 * rows + 32 * columns;
    if (least < 0 || cost < least) {
      least = cost;
      best = {r, c};
    }
  }
  return best;
}

/// Errors: invalid_argument.
template <class = void>
void check_gemm(exec::Context& context, Gemm const& g) {
  GemmEpilogue const& e = g.epilogue;
  bool const scales = e.row_scales != nullptr || e.column_scales != nullptr;
  auto const one_of = [](DType dtype, auto... allowed) { return ((dtype == allowed) || ...); };
  bool right = gemm_takes_right(g.product, g.b_dtype) && (e.saved == nullptr || e.gelu);
  switch (g.product) {
    case Product::float32:
    case Product::bfloat16:
      right = right && one_of(g.a_dtype, DType::float32, DType::bfloat16) &&
              one_of(g.c_dtype, DType::float32, DType::bfloat16) && !scales;
      break;
    case Product::int8:
      right = right && one_of(g.a_dtype, DType::int8, DType::uint8) &&
              (g.c_dtype == DType::int32
                   ? !scales && !gemm_has_epilogue(g) && g.alpha == 1.0f && (g.beta == 0.0f || g.beta == 1.0f)
                   : one_of(g.c_dtype, DType::float32, DType::bfloat16));
      break;
    case Product::float64:
      right = right && g.a_dtype == DType::float64 && g.c_dtype == DType::float64 && !scales && !gemm_has_epilogue(g);
      break;
  }
  if (!right)
    throw Error(ErrorKind::invalid_argument, "gemm",
                concat("this product does not take A as ", name(g.a_dtype), ", B as ", name(g.b_dtype), " and c as ",
                       name(g.c_dtype), " with such scales and epilogue. See tutti/kernel/gemm.hpp"));
  auto const strided = [](std::int64_t first, std::int64_t rows, std::int64_t second, std::int64_t columns) {
    return first != 1 && second != 1 && rows > 1 && columns > 1;
  };
  if (strided(g.a_row, g.m, g.a_column, g.k) || (g.b_panels == nullptr && strided(g.b_row, g.k, g.b_column, g.n)))
    throw Error(ErrorKind::invalid_argument, "gemm",
                concat("A has strides ", g.a_row, " and ", g.a_column, ", B ", g.b_row, " and ", g.b_column,
                       ": one of each must be 1. Copy what has none"));
  if (GemmPanels const* const p = g.b_panels; p != nullptr)
    if (p->k != g.k || p->n != g.n || p->product != g.product || p->isa != context.isa())
      throw Error(ErrorKind::invalid_argument, "gemm",
                  concat("b is packed as ", p->k, " x ", p->n, " for products on ", exec::name(p->isa),
                         ", and the product needs ", g.k, " x ", g.n, " on ", exec::name(context.isa()),
                         p->product != g.product ? ", rounded otherwise" : "", ". Pack it for what is multiplied"));
}
using GemmRegion = void(exec::Isa, Gemm const&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*);
/// The product as rectangles that threads compute with `region`.
template <class = void>
void gemm_by_regions(exec::Context& context, Gemm const& g, GemmRegion* region) {
  if (g.m <= 0 || g.n <= 0) return;
  check_gemm(context, g);
  GemmSplit const split = gemm_split(g, context.threads());
  auto const part = [](std::int64_t extent, std::int64_t step, std::int64_t parts, std::int64_t index) {
    std::int64_t const steps = (extent + step - 1) / step;
    return std::min(extent, (steps / parts * index + std::min(index, steps % parts)) * step);
  };
  std::int64_t const m = part(g.m, 12, split.rows, 1), n = part(g.n, 32, split.columns, 1);
  std::size_t const bytes = static_cast<std::size_t>(gemm_scratch(g, m, n)) * sizeof(float);
  if (split.rows * split.columns == 1)
    return region(context.isa(), g, 0, g.m, 0, g.n, static_cast<float*>(context.scratch(0, bytes)));
  context.parallel([&](int thread) {
    std::int64_t const r = thread / split.columns, c = thread % split.columns;
    if (r >= split.rows) return;
    std::int64_t const m0 = part(g.m, 12, split.rows, r), m1 = part(g.m, 12, split.rows, r + 1);
    std::int64_t const n0 = part(g.n, 32, split.columns, c), n1 = part(g.n, 32, split.columns, c + 1);
    if (m0 < m1 && n0 < n1)
      region(context.isa(), g, m0, m1, n0, n1, static_cast<float*>(context.scratch(thread, bytes)));
  });
}

/// Contract: tutti/kernel/gemm.hpp. This is for products in float32 and bfloat16; those of other kinds are compiled
/// where they are asked for, by `gemm<kernel::Product::int8>`.
TUTTI_INLINE void gemm(exec::Context& context, Gemm const& g) {
  if (g.product != Product::float32 && g.product != Product::bfloat16)
    throw Error(ErrorKind::invalid_argument, "gemm",
                "products in int8 and float64 are gemm<Product::int8> and gemm<Product::float64>");
  gemm_by_regions(context, g, static_cast<GemmRegion*>(gemm_region));
}
/// The same of products of kind P, which `g` says too. Errors: invalid_argument.
template <Product P>
void gemm(exec::Context& context, Gemm const& g) {
  if (g.product != P) throw Error(ErrorKind::invalid_argument, "gemm", "Gemm::product is another one than gemm's");
  gemm_by_regions(context, g, gemm_region<P>);
}

inline void column_sum_region(exec::Isa isa, ColumnSum const& s, std::int64_t n0, std::int64_t n1) {
  TUTTI_DISPATCH(isa, column_sum_region(s, n0, n1));
}
/// Contract: tutti/kernel/gemm.hpp.
TUTTI_INLINE void column_sum(exec::Context& context, ColumnSum const& s) {
  std::int64_t const grain = s.m * 64 < 32768 ? 32768 / std::max<std::int64_t>(s.m, 1) / 64 * 64 + 64 : 64;
  context.parallel_for(s.n, grain,
                       [&](std::int64_t begin, std::int64_t end) { column_sum_region(context.isa(), s, begin, end); });
}

}  // namespace tutti::kernel::cpu

#endif

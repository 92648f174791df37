// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The matrix product on processors. Threads own disjoint rectangles of the result and share nothing: packing the
/// smaller operand twice costs less than a barrier, and no sum depends on the number of threads.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/isa/levels.hpp>
#include <tutti/tensor/storage.hpp>
#include <tutti/kernel/gemm.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <unistd.h>

namespace tutti::kernel::cpu {

/// Rows up to which a product with K-contiguous operands streams b instead of packing it.
inline constexpr int gemm_skinny_rows = 8;
inline bool gemm_is_skinny(Gemm const& g) noexcept {
  return g.m <= gemm_skinny_rows && g.b_row == 1 && g.b_column != 1 && g.b_panels == nullptr;
}
inline bool gemm_has_epilogue(Gemm const& g) noexcept {
  GemmEpilogue const& e = g.epilogue;
  return e.bias != nullptr || e.gelu || e.residual != nullptr || e.gelu_gradient != nullptr;
}
/// An operand of the epilogue is c itself: c cannot hold partial sums, so k stays in one block.
inline bool gemm_in_place(Gemm const& g) noexcept {
  return g.epilogue.residual == g.c || g.epilogue.gelu_gradient == g.c;
}

/// Most words of a sum over k that are packed together.
inline constexpr std::int64_t gemm_depth = 768;

/// What is packed at a time: mc x kc of the left operand, kc x nc of the right. kc counts terms.
struct GemmBlocking {
  std::int64_t mc = 0, nc = 0, kc = 0;
};
/// kc depends on the whole product alone. The left block takes half of the second-level cache, the right one of the
/// third. `terms`: in a word of a panel.
inline GemmBlocking gemm_blocking(Gemm const& g, std::int64_t m, std::int64_t n, int terms) noexcept {
  static std::int64_t const level2 = [] {
    long const bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes >= 262144 ? std::min<std::int64_t>(bytes, 2097152) : 524288;
  }();
  auto const even = [](std::int64_t extent, std::int64_t most, std::int64_t step) {
    most = std::max(most / step * step, step);
    std::int64_t const blocks = std::max<std::int64_t>(1, (extent + most - 1) / most);
    return std::max(step, ((extent + blocks - 1) / blocks + step - 1) / step * step);
  };
  GemmBlocking block;
  block.kc = gemm_in_place(g) ? std::max<std::int64_t>(g.k, 1) : even(g.k, gemm_depth * terms, 8);
  std::int64_t const words = (block.kc + terms - 1) / terms;
  block.mc = even(m, level2 / 8 / words, 12);
  block.nc = even(n, (std::int64_t{3} << 19) / words, 32);
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
/// Floats of working memory for one thread that computes m x n outputs of the product, at any level.
inline std::int64_t gemm_scratch(Gemm const& g, std::int64_t m, std::int64_t n) noexcept {
  if (gemm_is_skinny(g)) return gemm_reads_rows(g) ? 0 : g.m * g.k;
  std::int64_t most = 0;
  for (int const terms : {1, 2}) {
    if (terms == 2 && g.product == Product::float32) break;
    GemmBlocking const block = gemm_blocking(g, m, n, terms);
    most = std::max(most, (block.mc + gemm_packed_columns(g, block) + 16) * ((block.kc + terms - 1) / terms) + 64);
  }
  return most;
}

}  // namespace tutti::kernel::cpu

#define TUTTI_ISA_WITH_BF16
#define TUTTI_ISA_BODY <tutti/kernel/cpu/pack.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#define TUTTI_ISA_BODY <tutti/kernel/cpu/gemm.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#undef TUTTI_ISA_WITH_BF16

namespace tutti::kernel::cpu {

/// One rectangle of the product, on the calling thread; for kernels that are inside a parallel region already.
inline void gemm_region(exec::Isa isa, Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                        std::int64_t n1, float* scratch) {
  if (g.product == Product::bfloat16) TUTTI_DISPATCH_ALL(isa, gemm_region_bfloat16(g, m0, m1, n0, n1, scratch));
  TUTTI_DISPATCH(isa, gemm_region(g, m0, m1, n0, n1, scratch));
}
/// Panels [first, end) of 32 columns of a right operand, whole k, for `gemm` of the same product and level.
inline void pack_right_panels(exec::Isa isa, Gemm const& g, std::int64_t first, std::int64_t end, float* to) {
  if (g.product == Product::bfloat16) TUTTI_DISPATCH_ALL(isa, pack_right_rounded(g, first, end, to));
  TUTTI_DISPATCH(isa, pack_right_plain(g, first, end, to));
}
/// Columns of a panel.
inline std::int64_t panel_width(exec::Isa isa) noexcept { TUTTI_DISPATCH(isa, width_of_panels()); }

/// The right operand of many products, packed once: what a call spends on packing is saved, about 10 % with 256 rows.
/// Holds k * n words (of bfloat16 pairs half as many), a little more where n is no multiple of 32.
class PackedRight {
 public:
  PackedRight() = default;
  /// Packs b of `g`, which has k, n, b and the product; nothing else of it counts. For contexts of this one's level.
  /// Errors    out_of_memory.
  PackedRight(exec::Context& context, Gemm const& g)
      : panels_{nullptr, g.k, g.n, g.product, context.isa()} {
    std::int64_t const width = panel_width(context.isa()), count = (g.n + width - 1) / width;
    bool const pairs = g.product == Product::bfloat16 && context.isa() == exec::Isa::avx512_bf16;
    std::int64_t const words = pairs ? (g.k + 1) / 2 : g.k;
    memory_ = Storage<Cpu>(Cpu{}, static_cast<std::size_t>(count * width * words) * sizeof(float));
    auto* const to = reinterpret_cast<float*>(memory_.data());
    context.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      pack_right_panels(context.isa(), g, begin * width, std::min(end * width, g.n), to);
    });
    panels_.words = to;
  }
  /// For Gemm::b_panels; valid as long as this object, moved or not.
  GemmPanels const& panels() const noexcept { return panels_; }
  std::size_t bytes() const noexcept { return memory_.bytes(); }

 private:
  GemmPanels panels_;
  Storage<Cpu> memory_;
};

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
  if (gemm_is_skinny(g)) return {1, std::min<std::int64_t>(threads, (g.n + 31) / 32)};
  GemmSplit best;
  double least = -1;
  for (std::int64_t r = 1; r <= threads; ++r) {
    std::int64_t const c = threads / r;
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

/// Contract: tutti/kernel/gemm.hpp.
inline void gemm(exec::Context& context, Gemm const& g) {
  if (g.m <= 0 || g.n <= 0) return;
  if (GemmPanels const* const p = g.b_panels; p != nullptr)
    if (p->k != g.k || p->n != g.n || p->product != g.product || p->isa != context.isa())
      throw Error(ErrorKind::invalid_argument, "gemm",
                  concat("b is packed as ", p->k, " x ", p->n, " for products on ", exec::name(p->isa),
                         ", and the product needs ", g.k, " x ", g.n, " on ", exec::name(context.isa()),
                         p->product != g.product ? ", rounded otherwise" : "", ". Pack it for what is multiplied"));
  GemmSplit const split = gemm_split(g, context.threads());
  auto const part = [](std::int64_t extent, std::int64_t step, std::int64_t parts, std::int64_t index) {
    std::int64_t const steps = (extent + step - 1) / step;
    return std::min(extent, (steps / parts * index + std::min(index, steps % parts)) * step);
  };
  std::int64_t const m = part(g.m, 12, split.rows, 1), n = part(g.n, 32, split.columns, 1);
  std::size_t const bytes = static_cast<std::size_t>(gemm_scratch(g, m, n)) * sizeof(float);
  if (split.rows * split.columns == 1)
    return gemm_region(context.isa(), g, 0, g.m, 0, g.n, static_cast<float*>(context.scratch(0, bytes)));
  context.parallel([&](int thread) {
    std::int64_t const r = thread / split.columns, c = thread % split.columns;
    if (r >= split.rows) return;
    std::int64_t const m0 = part(g.m, 12, split.rows, r), m1 = part(g.m, 12, split.rows, r + 1);
    std::int64_t const n0 = part(g.n, 32, split.columns, c), n1 = part(g.n, 32, split.columns, c + 1);
    if (m0 < m1 && n0 < n1)
      gemm_region(context.isa(), g, m0, m1, n0, n1, static_cast<float*>(context.scratch(thread, bytes)));
  });
}

inline void column_sum_region(exec::Isa isa, ColumnSum const& s, std::int64_t n0, std::int64_t n1) {
  TUTTI_DISPATCH(isa, column_sum_region(s, n0, n1));
}
/// Contract: tutti/kernel/gemm.hpp.
inline void column_sum(exec::Context& context, ColumnSum const& s) {
  std::int64_t const grain = s.m * 64 < 32768 ? 32768 / std::max<std::int64_t>(s.m, 1) / 64 * 64 + 64 : 64;
  context.parallel_for(s.n, grain,
                       [&](std::int64_t begin, std::int64_t end) { column_sum_region(context.isa(), s, begin, end); });
}

}  // namespace tutti::kernel::cpu

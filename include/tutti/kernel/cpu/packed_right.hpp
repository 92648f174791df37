// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The right operand of products on processors, packed for kernels.

#include <tutti/config.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/gemm.hpp>
#include <tutti/tensor/storage.hpp>

#include <cstddef>

namespace tutti::kernel::cpu {

/// Rows up to which a product with K-contiguous operands streams b instead of packing it.
inline constexpr int gemm_skinny_rows = 8;

/// The right operand of many products, packed once: what a call spends on packing is saved, about 10 % with 256 rows.
/// Holds k * n words (of bfloat16 pairs half as many, of bytes a quarter), a little more where n is no multiple of 32.
class PackedRight {
 public:
  PackedRight() = default;
  PackedRight(exec::Context& context, Gemm const& g) { pack(context, g); }
  /// Packs b of `g`, which has k, n, b and the product; nothing else of it counts. For contexts of this one's level.
  /// Memory of an earlier call is used again where it has the size.
  /// Errors    out_of_memory; invalid_argument: b has a type that the product does not take.
  void pack(exec::Context& context, Gemm const& g);
  /// For Gemm::b_panels; valid as long as this object, moved or not.
  GemmPanels const& panels() const noexcept { return panels_; }
  std::size_t bytes() const noexcept { return memory_.bytes(); }

 private:
  GemmPanels panels_;
  Storage<Cpu> memory_;
};

}  // namespace tutti::kernel::cpu

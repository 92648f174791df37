// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Right operands of products that several runs read before they change, kept in the order in which kernels read them.

#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cpu/packed_right.hpp>

#include <cstdint>

namespace tutti::graph {

/// One operand. A run that finds it expired packs it before the product, and the runs after it only read it.
class PackedOperand {
 public:
  /// The product as it is called: b where it lies, no panels.
  explicit PackedOperand(kernel::Gemm const& product) : product_(product) {}
  /// Valid until the operand expires. Errors: out_of_memory, at the first call.
  kernel::GemmPanels const& panels(exec::Context& context) {
    if (!current_) packed_.pack(context, product_);
    current_ = true;
    return packed_.panels();
  }
  void expire() noexcept { current_ = false; }
  /// Whether `product` reads the same operand in the same way.
  bool serves(kernel::Gemm const& product) const noexcept {
    return product.b == product_.b && product.b_row == product_.b_row && product.b_column == product_.b_column &&
           product.k == product_.k && product.n == product_.n && product.product == product_.product &&
           product.b_dtype == product_.b_dtype;
  }
  std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(packed_.bytes()); }

 private:
  kernel::Gemm product_;
  kernel::cpu::PackedRight packed_;
  bool current_ = false;
};

/// Those of the executors that share it, which run one at a time on one context.
class PackedOperands {
 public:
  /// The operand of `product`; made at its first use. The address stays.
  PackedOperand* of(kernel::Gemm const& product) {
    for (Owner<PackedOperand> const& one : operands_)
      if (one->serves(product)) return one.get();
    operands_.push_back(make_owner<PackedOperand>(product));
    return operands_.back().get();
  }
  /// Says that operands have been written, or may have been.
  void expire() noexcept {
    for (Owner<PackedOperand> const& one : operands_) one->expire();
  }
  /// What they hold now.
  std::int64_t bytes() const noexcept {
    std::int64_t total = 0;
    for (Owner<PackedOperand> const& one : operands_) total += one->bytes();
    return total;
  }

 private:
  List<Owner<PackedOperand>> operands_;
};

/// Whether the right operand of a step is one matrix of a field as it was before the run, so that it can be kept. Few
/// rows do not have it packed.
inline bool reads_kept_operand(StepList const& list, Step const& step) {
  if (step.kind != StepKind::gemm || step.reads[1].shape.rank() != 2) return false;
  if (step.reads[0].dtype != DType::float32 || step.reads[1].dtype != DType::float32 ||
      step.writes[0].dtype != DType::float32 || step.writes[0].shape[0] <= kernel::cpu::gemm_skinny_rows)
    return false;
  Buffer const& buffer = list[step.reads[1].buffer];
  return buffer.pool == Pool::state && buffer.part_of < 0 && buffer.over < 0;
}
/// Memory for all kept operands of these steps.
inline std::int64_t kept_bytes(StepList const& list) {
  List<Step const*> seen;
  std::int64_t total = 0;
  for (Step const& step : list.steps) {
    if (!reads_kept_operand(list, step)) continue;
    Ref const& right = step.reads[1];
    bool known = false;
    for (Step const* other : seen) {
      Ref const& before = other->reads[1];
      known = known || (before.buffer == right.buffer && before.offset == right.offset &&
                        before.strides == right.strides && before.shape == right.shape &&
                        other->product == step.product);
    }
    if (known) continue;
    seen.push_back(&step);
    total += right.shape.size() * static_cast<std::int64_t>(size_of(step.product));
  }
  return total;
}

}  // namespace tutti::graph

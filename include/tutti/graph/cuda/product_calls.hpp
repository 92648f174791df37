// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Calls of matrix products on a device: which operands the kernel takes, and when all of a batch are one call.

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/cuda/call.hpp>
#include <tutti/graph/operands.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cuda/gemm.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph::cuda {

namespace detail {

inline bool is_narrow(Ref const& ref) noexcept {
  return !ref || ref.dtype == DType::float32 || ref.dtype == DType::bfloat16;
}
inline bool all_narrow(Step const& step) noexcept {
  for (Ref const& ref : step.reads)
    if (!is_narrow(ref)) return false;
  return is_narrow(step.writes[0]);
}

/// Bytes between the products of a batch where they are evenly spaced; -1 where they are not.
inline std::int64_t batch_stride(Ref const& ref, Shape const& shape, int batch) {
  std::int64_t stride = 0, expected = 0;
  bool first = true;
  for (int axis = batch - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    std::int64_t const here = ref.strides[static_cast<std::size_t>(axis)];
    if (first) stride = expected = here;
    else if (here != expected) return -1;
    first = false;
    expected *= shape[axis];
  }
  return stride;
}

inline Owner<Call> bind_gemms(Operands const& call) {
  Step const& step = call.step;
  Ref const &a = step.reads[0], &b = step.reads[1], &c = step.writes[0];
  int const batch = c.shape.rank() - 2;
  List<kernel::Gemm> products = arguments::gemms(call);
  std::int64_t const a_batch = batch_stride(a, c.shape, batch), b_batch = batch_stride(b, c.shape, batch),
                     c_batch = batch_stride(c, c.shape, batch);
  bool const bare = call.read(2) == nullptr && call.read(3) == nullptr && call.read(4) == nullptr &&
                    call.write(1) == nullptr && call.write(2) == nullptr && !step.gelu;
  bool const one_type =
      a.dtype == b.dtype && step.product == a.dtype && (a.dtype != DType::float32 || c.dtype == a.dtype);
  if (products.size() > 1 && bare && one_type && products[0].k > 0 && a_batch >= 0 && b_batch >= 0 && c_batch >= 0) {
    kernel::cuda::GemmForms const forms{.batch = static_cast<std::int64_t>(products.size()),
                                        .a_batch = a_batch,
                                        .b_batch = b_batch,
                                        .c_batch = c_batch};
    return detail::call([gemm = products[0], forms](Blas& blas) { kernel::cuda::gemm(blas, gemm, forms); });
  }
  kernel::cuda::GemmForms forms;
  forms.left_sums = call.write<void>(2);
  if (call.read(2) != nullptr && step.reads[2].dtype == DType::bfloat16) {
    forms.bias = call.read<void>(2);
    for (kernel::Gemm& product : products) product.epilogue.bias = nullptr;
  }
  return detail::call([products = std::move(products), forms](Blas& blas) {
    for (kernel::Gemm const& product : products) kernel::cuda::gemm(blas, product, forms);
  });
}

/// One unit stride, and lines that do not overlap: what products take as it lies. Broadcast operands are not.
inline bool is_matrix(Ref const& ref) {
  int const rank = ref.shape.rank();
  std::int64_t const rows = ref.shape[rank - 2], columns = ref.shape[rank - 1];
  std::int64_t const row = ref.strides[static_cast<std::size_t>(rank - 2)],
                     column = ref.strides[static_cast<std::size_t>(rank - 1)];
  return (column == 1 && (row >= columns || rows == 1)) || (row == 1 && (column >= rows || columns == 1));
}

}  // namespace detail

}  // namespace tutti::graph::cuda

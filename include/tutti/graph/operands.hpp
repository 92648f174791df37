// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Arguments of kernels from a step's operands: what calls on every device have alike.

#include <tutti/core/list.hpp>
#include <tutti/graph/composite_arguments.hpp>
#include <tutti/graph/custom_arguments.hpp>
#include <tutti/graph/step_call.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/adamw.hpp>
#include <tutti/kernel/dropout.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/gemm.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::graph {

namespace arguments {

/// The products of a batch, in row-major order.
inline List<kernel::Gemm> gemms(Operands const& call) {
  Step const& step = call.step;
  Ref const &a = step.reads[0], &b = step.reads[1], &c = step.writes[0];
  int const batch = c.shape.rank() - 2;
  auto const row = static_cast<std::size_t>(batch), column = row + 1;
  std::int64_t count = 1;
  for (int axis = 0; axis < batch; ++axis) count *= c.shape[axis];
  auto const bytes = [](Ref const& ref) { return static_cast<std::int64_t>(size_of(ref.dtype)); };
  List<kernel::Gemm> products;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, from_a = 0, from_b = 0, to = 0;
    for (int axis = batch - 1; axis >= 0; --axis) {
      std::int64_t const index = rest % c.shape[axis];
      rest /= c.shape[axis];
      from_a += index * a.strides[static_cast<std::size_t>(axis)];
      from_b += index * b.strides[static_cast<std::size_t>(axis)];
      to += index * c.strides[static_cast<std::size_t>(axis)];
    }
    kernel::Gemm gemm;
    gemm.m = c.shape[batch];
    gemm.n = c.shape[batch + 1];
    gemm.k = a.shape[batch + 1];
    gemm.a = call.reads[0] + from_a * bytes(a);
    gemm.a_row = a.strides[row];
    gemm.a_column = a.strides[column];
    gemm.b = call.reads[1] + from_b * bytes(b);
    gemm.b_row = b.strides[row];
    gemm.b_column = b.strides[column];
    gemm.c = call.writes[0] + to * bytes(c);
    gemm.c_row = c.strides[row];
    gemm.alpha = detail::scale(call);
    gemm.epilogue.bias = call.read(2);  // float; a device's narrow one is given otherwise
    gemm.epilogue.residual = call.read<void>(3);
    gemm.epilogue.residual_stride = gemm.c_row;
    gemm.epilogue.gelu_gradient = call.read<void>(4);
    gemm.epilogue.saved = call.write<void>(1);
    gemm.epilogue.gelu = step.gelu;
    gemm.a_dtype = a.dtype;
    gemm.b_dtype = b.dtype;
    gemm.c_dtype = c.dtype;
    gemm.product = kernel::product_in(step.product);
    products.push_back(gemm);
  }
  return products;
}

inline List<kernel::StridedCopy> copies(Operands const& call) {
  Step const& step = call.step;
  List<kernel::StridedCopy> result;
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    result.push_back({step.writes[i].shape, static_cast<std::int64_t>(size_of(step.writes[i].dtype)), call.reads[i],
                      step.reads[i].strides, call.writes[i], step.writes[i].strides});
  return result;
}
/// What copies do not cover is filled first; null: they cover all.
inline std::byte* background(Operands const& call) {
  return call.step.writes.size() > call.step.reads.size() ? call.writes.back() : nullptr;
}

inline CustomArguments custom(Operands const& call) {
  CustomArguments args;
  for (std::size_t i = 0; i < call.reads.size(); ++i)
    args.operands.push_back({call.reads[i], call.step.reads[i].dtype, call.step.reads[i].shape});
  args.result = {call.writes[0], call.step.writes[0].dtype, call.step.writes[0].shape};
  args.reals = call.step.reals;
  return args;
}

/// A chain with the lists that it refers to.
struct Chain {
  Step const& step;
  List<kernel::ElementwiseInput> inputs{};
  List<kernel::ElementwiseOutput> outputs{};

  explicit Chain(Operands const& call) : step(call.step) {
    for (std::size_t i = 0; i < step.reads.size(); ++i)
      inputs.push_back({call.reads[i], step.reads[i].dtype, step.reads[i].strides});
    for (std::size_t i = 0; i < step.writes.size(); ++i)
      outputs.push_back({step.sources[i], call.writes[i], step.writes[i].dtype});
  }
  kernel::Elementwise view() const {
    return {step.writes[0].shape, inputs, step.instructions, outputs, step.registers == DType::float64};
  }
};

inline kernel::Dropout dropout(Operands const& call) {
  return {detail::shape(call, 0).size(), call.read(0),
          call.write(0),                 call.step.value,
          call.read<std::uint64_t>(1),   call.read<std::uint64_t>(2),
          call.read<std::uint64_t>(3),   call.read<std::uint64_t>(4)};
}

/// Without the step's scalars. Parts that lie one behind the other in all arrays are one.
inline List<kernel::AdamW> adamw(Operands const& call) {
  Step const& step = call.step;
  List<kernel::AdamW> parts;
  std::size_t const count = (step.reads.size() - 4) / 4;
  for (std::size_t i = 4; i + 3 < step.reads.size(); i += 4) {
    kernel::AdamW part;
    part.size = detail::shape(call, i).size();
    part.parameter = call.read(i);
    part.gradient = call.read(i + 1);
    part.m = call.read(i + 2);
    part.v = call.read(i + 3);
    part.beta1 = static_cast<float>(step.beta1);
    part.beta2 = static_cast<float>(step.beta2);
    part.eps = detail::eps(call);
    part.weight_decay = static_cast<float>(step.weight_decay);
    part.copy = call.write<bfloat16>(3 * count + i / 4 - 1);
    if (!parts.empty()) {
      kernel::AdamW& before = parts.back();
      if (before.parameter + before.size == part.parameter && before.gradient + before.size == part.gradient &&
          before.m + before.size == part.m && before.v + before.size == part.v &&
          (before.copy == nullptr ? part.copy == nullptr : before.copy + before.size == part.copy)) {
        before.size += part.size;
        continue;
      }
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace arguments

}  // namespace tutti::graph

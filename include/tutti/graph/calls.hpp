// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step bound to its memory: the call of its kernel with all arguments, made once. With the executor the only header
/// of the graph that compiles kernels of processors.

#include <tutti/graph/bind.hpp>

#if TUTTI_BODIES

#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/call.hpp>
#include <tutti/graph/generic_steps.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/graph/operands.hpp>
#include <tutti/graph/packed.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cpu/adamw.hpp>
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/copy.hpp>
#include <tutti/kernel/cpu/cross_entropy.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>
#include <tutti/kernel/cpu/dropout.hpp>
#include <tutti/kernel/cpu/embedding.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/layer_norm.hpp>
#include <tutti/kernel/cpu/reduce.hpp>
#include <tutti/kernel/cpu/rms_norm.hpp>
#include <tutti/kernel/cpu/rotary.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph::calls {

namespace detail {

inline Owner<Call> bind_gemms(Operands const& call, PackedOperands* packed) {
  List<kernel::Gemm> products = arguments::gemms(call);
  if (packed != nullptr)
    return detail::call([gemm = products[0], right = packed->of(products[0])](Context& context) {
      kernel::Gemm product = gemm;
      product.b_panels = &right->panels(context);
      kernel::cpu::gemm(context, product);
    });
  return detail::call([products = std::move(products)](Context& context) {
    for (kernel::Gemm const& gemm : products) kernel::cpu::gemm(context, gemm);
  });
}

inline Owner<Call> bind_copies(Operands const& call) {
  Step const& step = call.step;
  std::byte* const background = arguments::background(call);
  return detail::call([&step, background, copies = arguments::copies(call)](Context& context) {
    if (background != nullptr)
      generic::fill(context, step.writes.back().dtype, background, step.writes.back().shape.size(), step.value);
    for (kernel::StridedCopy const& copy : copies) kernel::cpu::strided_copy(context, copy);
  });
}

inline Owner<Call> bind_elementwise(Operands const& call) {
  arguments::Chain chain(call);
  if (is_integer(call.step.registers))
    return detail::call([reads = call.reads, chain = std::move(chain)](Context& context) {
      Step const& step = chain.step;
      if (step.registers == DType::int64)
        generic::integer_elementwise<std::int64_t>(context, step, reads, chain.outputs);
      else generic::integer_elementwise<std::uint64_t>(context, step, reads, chain.outputs);
    });
  return detail::call([chain = std::move(chain)](Context& context) {
    kernel::cpu::elementwise<ElementwiseFunctions>(context, chain.view());
  });
}

inline Owner<Call> bind_adamw(Operands const& call) {
  return detail::call([scalars = call.reads, parts = arguments::adamw(call)](Context& context) {
    auto const scalar = [&](std::size_t i) { return *reinterpret_cast<float const*>(scalars[i]); };
    for (kernel::AdamW part : parts) {
      part.learning_rate = scalar(0);
      part.correction1 = scalar(1);
      part.correction2 = scalar(2);
      part.gradient_scale = scalar(3);
      kernel::cpu::adamw(context, part);
    }
  });
}

inline Owner<Call> bind_square_sum(Operands const& call) {
  List<kernel::SquareSum> sums;
  for (std::size_t i = 1; i < call.step.reads.size(); ++i)
    sums.push_back({call.step.reads[i].shape.size(), call.read(i), call.write<double>(0), true});
  double const* const base = call.read<double>(0);
  double* const result = call.write<double>(0);
  return detail::call([base, result, sums = std::move(sums)](Context& context) {
    *result = base == nullptr ? 0.0 : *base;
    for (kernel::SquareSum const& sum : sums) kernel::cpu::square_sum(context, sum);
  });
}

/// The box of a dynamic slice: starts clamped so that it fits.
inline std::int64_t dynamic_offset(Operands const& call, Ref const& whole, Shape const& box, std::size_t first) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < whole.shape.rank(); ++axis) {
    std::size_t const i = first + static_cast<std::size_t>(axis);
    std::int64_t const start = generic::index_at(call.step.reads[i].dtype, call.reads[i], 0);
    offset += std::clamp<std::int64_t>(start, 0, whole.shape[axis] - box[axis]) *
              whole.strides[static_cast<std::size_t>(axis)];
  }
  return offset * static_cast<std::int64_t>(size_of(whole.dtype));
}

inline Owner<Call> bind_dynamic(Operands call) {
  if (call.step.kind == StepKind::dynamic_slice)
    return detail::call([call = std::move(call)](Context& context) {
      Ref const &x = call.step.reads[0], &y = call.step.writes[0];
      kernel::cpu::strided_copy(
          context, {y.shape, static_cast<std::int64_t>(size_of(y.dtype)),
                    call.reads[0] + dynamic_offset(call, x, y.shape, 1), x.strides, call.writes[0], y.strides});
    });
  return detail::call([call = std::move(call)](Context& context) {
    Ref const &update = call.step.reads[1], &y = call.step.writes[0];
    start_from(context, call.step.reads[0].bytes(), call.reads[0], call.writes[0]);
    kernel::cpu::strided_copy(
        context, {update.shape, static_cast<std::int64_t>(size_of(y.dtype)), call.reads[1], update.strides,
                  call.writes[0] + dynamic_offset(call, y, update.shape, 2), y.strides});
  });
}

}  // namespace detail

/// See tutti/graph/bind.hpp.
TUTTI_INLINE Owner<Call> bind(Operands const& call, PackedOperands* packed) {
  namespace cpu = kernel::cpu;
  Step const& s = call.step;
  switch (s.kind) {
    case StepKind::elementwise: return detail::bind_elementwise(call);
    case StepKind::copy: return detail::bind_copies(call);
    case StepKind::fill:
      return detail::call([&s, y = call.writes[0]](Context& context) {
        generic::fill(context, s.writes[0].dtype, y, s.writes[0].shape.size(), s.value);
      });
    case StepKind::gemm:
      if (all_float32(s)) return detail::bind_gemms(call, packed);
      return detail::call([&s, a = call.reads[0], b = call.reads[1], c = call.writes[0]](Context& context) {
        generic::product(context, s.reads[0], a, s.reads[1], b, s.writes[0], c);
      });
    case StepKind::reduce: {
      if (!all_float32(s))
        return detail::call([&s, x = call.reads[0], y = call.writes[0]](Context& context) {
          generic::reduce(context, s.reads[0], x, s.axes, s.maximum, s.writes[0].dtype, y);
        });
      kernel::Reduce const r{
          s.reads[0].shape, s.reads[0].strides, s.axes, s.maximum, call.read(0), call.write(0)};
      return detail::call([r](Context& context) { cpu::reduce(context, r); });
    }
    case StepKind::column_sum: {
      kernel::ColumnSum const c{s.reads[0].shape[0], s.reads[0].shape[1], call.read(0), call.write(0), 0};
      return detail::call([c](Context& context) { cpu::column_sum(context, c); });
    }
    case StepKind::layer_norm:
      return detail::call([args = arguments::layer_norm(call)](Context& context) { cpu::layer_norm(context, args); });
    case StepKind::layer_norm_gradient:
      return detail::call(
          [args = arguments::layer_norm_gradient(call)](Context& context) { cpu::layer_norm_gradient(context, args); });
    case StepKind::rms_norm:
      return detail::call([args = arguments::rms_norm(call)](Context& context) { cpu::rms_norm(context, args); });
    case StepKind::rms_norm_gradient:
      return detail::call(
          [args = arguments::rms_norm_gradient(call)](Context& context) { cpu::rms_norm_gradient(context, args); });
    case StepKind::rotary:
      return detail::call([args = arguments::rotary(call)](Context& context) { cpu::rotary(context, args); });
    case StepKind::swiglu:
      return detail::call([args = arguments::swiglu(call)](Context& context) { cpu::swiglu(context, args); });
    case StepKind::dropout:
      return detail::call([args = arguments::dropout(call)](Context& context) { cpu::dropout(context, args); });
    case StepKind::swiglu_gradient:
      return detail::call(
          [args = arguments::swiglu_gradient(call)](Context& context) { cpu::swiglu_gradient(context, args); });
    case StepKind::attention:
      return detail::call([args = arguments::attention(call)](Context& context) { cpu::attention(context, args); });
    case StepKind::attention_gradient:
      return detail::call(
          [args = arguments::attention_gradient(call)](Context& context) { cpu::attention_gradient(context, args); });
    case StepKind::embedding:
      return detail::call([args = arguments::embedding(call)](Context& context) { cpu::embedding(context, args); });
    case StepKind::embedding_gradient:
      return detail::call([args = arguments::embedding_gradient(call), bytes = s.reads[2].bytes(),
                           from = call.reads[2], to = call.writes[0]](Context& context) {
        detail::start_from(context, bytes, from, to);
        cpu::embedding_gradient(context, args);
      });
    case StepKind::linear_cross_entropy:
      return detail::call([args = arguments::linear_cross_entropy(call)](Context& context) {
        cpu::linear_cross_entropy(context, args);
      });
    case StepKind::cross_entropy:
      return detail::call(
          [args = arguments::cross_entropy(call)](Context& context) { cpu::cross_entropy(context, args); });
    case StepKind::square_sum: return detail::bind_square_sum(call);
    case StepKind::adamw: return detail::bind_adamw(call);
    case StepKind::gather:
      return detail::call([&s, table = call.reads[0], index = call.reads[1], y = call.writes[0]](Context& context) {
        generic::gather(context, s.reads[0], table, s.reads[1], index, y);
      });
    case StepKind::scatter_add:
      return detail::call([call](Context& context) {
        Step const& step = call.step;
        detail::start_from(context, step.reads[0].bytes(), call.reads[0], call.writes[0]);
        generic::scatter_add(context, step.reads[0], step.reads[1], call.reads[1], call.reads[2], call.writes[0]);
      });
    case StepKind::dynamic_slice: case StepKind::dynamic_update_slice: return detail::bind_dynamic(call);
    case StepKind::custom:
      return detail::call([call](Context& context) { call.step.custom->run(context, arguments::custom(call)); });
    case StepKind::iota:
      return detail::call(
          [&s, y = call.writes[0]](Context& context) { generic::iota(context, s.writes[0], y, s.axis); });
    case StepKind::cumsum:
      return detail::call([&s, x = call.reads[0], y = call.writes[0]](Context& context) {
        generic::cumsum(context, s.reads[0], x, y, s.axis, s.inverse);
      });
    case StepKind::random_bits: {
      std::uint64_t const *const seed = call.read<std::uint64_t>(0), *const step = call.read<std::uint64_t>(1),
                                 *const stream = call.read<std::uint64_t>(2),
                                 *const first = call.read<std::uint64_t>(3);
      return detail::call([&s, y = call.writes[0], seed, step, stream, first](Context& context) {
        generic::random_bits(context, y, s.writes[0].shape.size(), *seed, *step, *stream, first ? *first : 0);
      });
    }
    default: return nullptr;
  }
}

}  // namespace tutti::graph::calls

#endif

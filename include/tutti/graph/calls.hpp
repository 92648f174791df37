// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One step's call of its kernel. With the executor the only header of the graph that compiles kernels.

#include <tutti/exec/context.hpp>
#include <tutti/graph/bind.hpp>
#include <tutti/graph/fuse.hpp>
#include <tutti/graph/generic_steps.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cpu/adamw.hpp>
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/copy.hpp>
#include <tutti/kernel/cpu/cross_entropy.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>
#include <tutti/kernel/cpu/embedding.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/layer_norm.hpp>
#include <tutti/kernel/cpu/reduce.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <variant>

namespace tutti::graph::calls {

/// Copies what a step accumulates onto to its result, unless the planner made them one.
inline void start_from(exec::Context& context, Step const& step, std::size_t read, std::byte const* from,
                       std::byte* to) {
  if (from == to || from == nullptr) return;
  Ref const& ref = step.reads[read];
  context.parallel_for(ref.bytes(), 65536, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

/// The box of a dynamic slice: starts clamped so that it fits.
inline std::int64_t dynamic_offset(Call const& call, Ref const& whole, Shape const& box, std::size_t first) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < whole.shape.rank(); ++axis) {
    std::size_t const i = first + static_cast<std::size_t>(axis);
    std::int64_t const start = generic::integer_at(call.step->reads[i].dtype, call.reads[i], 0);
    offset += std::clamp<std::int64_t>(start, 0, whole.shape[axis] - box[axis]) *
              whole.strides[static_cast<std::size_t>(axis)];
  }
  return offset * static_cast<std::int64_t>(size_of(whole.dtype));
}

inline void run(exec::Context& context, Call& call) {
  namespace cpu = kernel::cpu;
  Step const& s = *call.step;
  switch (s.kind) {
    case StepKind::elementwise: {
      auto const& e = *std::get_if<Elementwise>(&call.arguments);
      Shape const& shape = s.writes[0].shape;
      if (lowering::elementwise_class(s) == lowering::ElementwiseClass::integer)
        generic::integer_elementwise(context, shape, s.reads, call.reads, s.instructions, e.outputs);
      else
        cpu::elementwise(context, {shape, e.inputs, s.instructions, e.outputs});
      break;
    }
    case StepKind::copy:
      if (s.writes.size() > s.reads.size())
        generic::fill(context, s.writes.back().dtype, call.writes.back(), s.writes.back().shape.size(), s.value);
      for (auto const& copy : std::get_if<Copies>(&call.arguments)->copies) cpu::strided_copy(context, copy);
      break;
    case StepKind::fill:
      generic::fill(context, s.writes[0].dtype, call.writes[0], s.writes[0].shape.size(), s.value);
      break;
    case StepKind::gemm:
      if (auto const* gemms = std::get_if<Gemms>(&call.arguments)) {
        for (auto const& gemm : gemms->products) cpu::gemm(context, gemm);
      } else {
        generic::product(context, s.reads[0], call.reads[0], s.reads[1], call.reads[1], s.writes[0], call.writes[0]);
      }
      break;
    case StepKind::reduce:
      if (auto const* reduce = std::get_if<kernel::Reduce>(&call.arguments))
        cpu::reduce(context, *reduce);
      else
        generic::reduce(context, s.reads[0], call.reads[0], s.axes, s.maximum, s.writes[0].dtype, call.writes[0]);
      break;
    case StepKind::column_sum: cpu::column_sum(context, *std::get_if<kernel::ColumnSum>(&call.arguments)); break;
    case StepKind::layer_norm: cpu::layer_norm(context, *std::get_if<kernel::LayerNorm>(&call.arguments)); break;
    case StepKind::layer_norm_gradient:
      cpu::layer_norm_gradient(context, *std::get_if<kernel::LayerNormGradient>(&call.arguments));
      break;
    case StepKind::attention: cpu::attention(context, *std::get_if<kernel::Attention>(&call.arguments)); break;
    case StepKind::attention_gradient:
      cpu::attention_gradient(context, *std::get_if<kernel::AttentionGradient>(&call.arguments));
      break;
    case StepKind::embedding: cpu::embedding(context, *std::get_if<kernel::Embedding>(&call.arguments)); break;
    case StepKind::embedding_gradient:
      if (call.writes[0] != nullptr) start_from(context, s, 2, call.reads[2], call.writes[0]);
      cpu::embedding_gradient(context, *std::get_if<kernel::EmbeddingGradient>(&call.arguments));
      break;
    case StepKind::linear_cross_entropy:
      cpu::linear_cross_entropy(context, *std::get_if<kernel::LinearCrossEntropy>(&call.arguments));
      break;
    case StepKind::cross_entropy:
      cpu::cross_entropy(context, *std::get_if<kernel::CrossEntropy>(&call.arguments));
      break;
    case StepKind::square_sum:
      *call.write<double>(0) = call.reads[0] == nullptr ? 0.0 : *call.read<double>(0);
      for (auto const& sum : std::get_if<SquareSums>(&call.arguments)->sums) cpu::square_sum(context, sum);
      break;
    case StepKind::adamw:
      for (kernel::AdamW part : std::get_if<Updates>(&call.arguments)->parts) {
        part.learning_rate = *call.read(0);
        part.correction1 = *call.read(1);
        part.correction2 = *call.read(2);
        part.gradient_scale = *call.read(3);
        cpu::adamw(context, part);
      }
      break;
    case StepKind::gather:
      generic::gather(context, s.reads[0], call.reads[0], s.reads[1], call.reads[1], call.writes[0]);
      break;
    case StepKind::scatter_add:
      start_from(context, s, 0, call.reads[0], call.writes[0]);
      generic::scatter_add(context, s.reads[0], s.reads[1], call.reads[1], call.reads[2], call.writes[0]);
      break;
    case StepKind::dynamic_slice:
      cpu::strided_copy(context, {s.writes[0].shape, static_cast<std::int64_t>(size_of(s.writes[0].dtype)),
                                  call.reads[0] + dynamic_offset(call, s.reads[0], s.writes[0].shape, 1),
                                  s.reads[0].strides, call.writes[0], s.writes[0].strides});
      break;
    case StepKind::dynamic_update_slice:
      start_from(context, s, 0, call.reads[0], call.writes[0]);
      cpu::strided_copy(
          context,
          {s.reads[1].shape, static_cast<std::int64_t>(size_of(s.writes[0].dtype)), call.reads[1], s.reads[1].strides,
           call.writes[0] + dynamic_offset(call, s.writes[0], s.reads[1].shape, 2), s.writes[0].strides});
      break;
    case StepKind::iota: generic::iota(context, s.writes[0], call.writes[0], s.axis); break;
    case StepKind::random_bits:
      generic::random_bits(context, call.writes[0], s.writes[0].shape.size(), *call.read<std::uint64_t>(0),
                           *call.read<std::uint64_t>(1), *call.read<std::uint64_t>(2));
      break;
    default: break;
  }
}

}  // namespace tutti::graph::calls

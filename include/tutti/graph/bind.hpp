// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step with its memory: the arguments of the kernel that it calls, filled in once.

#include <tutti/graph/steps.hpp>
#include <tutti/kernel/adamw.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/embedding.hpp>
#include <tutti/kernel/gemm.hpp>
#include <tutti/kernel/layer_norm.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::graph::calls {

struct Elementwise {
  std::vector<kernel::ElementwiseInput> inputs;
  std::vector<kernel::ElementwiseOutput> outputs;
};
struct Copies {
  std::vector<kernel::StridedCopy> copies;
};
struct Gemms {
  std::vector<kernel::Gemm> products;
};
struct SquareSums {
  std::vector<kernel::SquareSum> sums;
};
struct Updates {
  std::vector<kernel::AdamW> parts;
};

/// Everything that a step calls, but for collectives, which the executor makes itself.
struct Call {
  Step const* step = nullptr;
  std::vector<std::byte*> reads, writes;  ///< null where the operand is absent
  std::variant<std::monostate, Elementwise, Copies, Gemms, SquareSums, Updates, kernel::Reduce, kernel::ColumnSum,
               kernel::LayerNorm, kernel::LayerNormGradient, kernel::Attention, kernel::AttentionGradient,
               kernel::Embedding, kernel::EmbeddingGradient, kernel::LinearCrossEntropy, kernel::CrossEntropy>
      arguments;

  template <class T = float>
  T* read(std::size_t i) const noexcept { return i < reads.size() ? reinterpret_cast<T*>(reads[i]) : nullptr; }
  template <class T = float>
  T* write(std::size_t i) const noexcept { return i < writes.size() ? reinterpret_cast<T*>(writes[i]) : nullptr; }
};

namespace detail {

inline bool all_float32(Step const& step) {
  for (Ref const& ref : step.reads)
    if (ref && ref.dtype != DType::float32) return false;
  return step.writes[0].dtype == DType::float32;
}

inline Gemms bind_gemms(Call const& call) {
  Step const& step = *call.step;
  Ref const &a = step.reads[0], &b = step.reads[1], &c = step.writes[0];
  int const batch = c.shape.rank() - 2;
  auto const row = static_cast<std::size_t>(batch), column = row + 1;
  std::int64_t count = 1;
  for (int axis = 0; axis < batch; ++axis) count *= c.shape[axis];
  Gemms result;
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
    gemm.a = call.read(0) + from_a;
    gemm.a_row = a.strides[row];
    gemm.a_column = a.strides[column];
    gemm.b = call.read(1) + from_b;
    gemm.b_row = b.strides[row];
    gemm.b_column = b.strides[column];
    gemm.c = call.write(0) + to;
    gemm.c_row = c.strides[row];
    gemm.alpha = static_cast<float>(step.value);
    gemm.epilogue.bias = call.read(2);
    gemm.epilogue.residual = call.read(3);
    gemm.epilogue.residual_stride = gemm.c_row;
    gemm.epilogue.gelu_gradient = call.read(4);
    gemm.epilogue.saved = call.write(1);
    gemm.epilogue.gelu = step.gelu;
    result.products.push_back(gemm);
  }
  return result;
}

inline Copies bind_copies(Call const& call) {
  Step const& step = *call.step;
  Copies result;
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    result.copies.push_back({step.writes[i].shape, static_cast<std::int64_t>(size_of(step.writes[i].dtype)),
                             call.reads[i], step.reads[i].strides, call.writes[i], step.writes[i].strides});
  return result;
}

}  // namespace detail

/// `call` has its step and pointers; fills in the arguments.
inline void bind(Call& call) {
  Step const& s = *call.step;
  auto shape = [](Ref const& ref) -> Shape const& { return ref.shape; };
  auto rows = [](Ref const& ref) {
    return ref.shape.rank() == 0 || ref.shape[ref.shape.rank() - 1] == 0
               ? 0
               : ref.shape.size() / ref.shape[ref.shape.rank() - 1];
  };
  auto last = [](Ref const& ref) { return ref.shape[ref.shape.rank() - 1]; };
  switch (s.kind) {
    case StepKind::elementwise: {
      Elementwise e;
      for (std::size_t i = 0; i < s.reads.size(); ++i)
        e.inputs.push_back({call.reads[i], s.reads[i].dtype, s.reads[i].strides});
      for (std::size_t i = 0; i < s.writes.size(); ++i)
        e.outputs.push_back({s.sources[i], call.writes[i], s.writes[i].dtype});
      call.arguments = std::move(e);
      break;
    }
    case StepKind::copy: call.arguments = detail::bind_copies(call); break;
    case StepKind::gemm:
      if (detail::all_float32(s)) call.arguments = detail::bind_gemms(call);
      break;
    case StepKind::reduce:
      if (detail::all_float32(s))
        call.arguments =
            kernel::Reduce{shape(s.reads[0]), s.reads[0].strides, s.axes, s.maximum, call.read(0), call.write(0)};
      break;
    case StepKind::column_sum:
      call.arguments = kernel::ColumnSum{s.reads[0].shape[0], s.reads[0].shape[1], call.read(0), call.write(0), 0};
      break;
    case StepKind::layer_norm:
      call.arguments = kernel::LayerNorm{rows(s.reads[0]), last(s.reads[0]), static_cast<float>(s.eps),
                                         call.read(0),     call.read(1),     call.read(2),
                                         call.write(0),    call.write(1),    call.write(2)};
      break;
    case StepKind::layer_norm_gradient:
      call.arguments = kernel::LayerNormGradient{rows(s.reads[0]), last(s.reads[0]), call.read(0), call.read(1),
                                                 call.read(2),     call.read(3),     call.read(4), call.read(5),
                                                 call.write(0),    call.write(1),    call.write(2)};
      break;
    case StepKind::attention: {
      Shape const& qkv = shape(s.reads[0]);
      call.arguments = kernel::Attention{
          qkv[0],       qkv[1],        s.heads,      qkv[2] / 3 / s.heads, static_cast<float>(s.value),
          call.read(0), call.write(0), call.write(1)};
      break;
    }
    case StepKind::attention_gradient: {
      Shape const& qkv = shape(s.reads[1]);
      call.arguments = kernel::AttentionGradient{
          qkv[0],       qkv[1],       s.heads,      qkv[2] / 3 / s.heads, static_cast<float>(s.value),
          call.read(0), call.read(1), call.read(2), call.read(3),         call.write(0)};
      break;
    }
    case StepKind::embedding: {
      Shape const& out = shape(s.writes[0]);
      call.arguments = kernel::Embedding{
          out[0], out[1], out[2], s.vocabulary, call.read<std::int32_t>(0), call.read(1), call.read(2), call.write(0)};
      break;
    }
    case StepKind::embedding_gradient: {
      Shape const& dout = shape(s.reads[1]);
      kernel::EmbeddingGradient g{dout[0],      dout[1],       dout[2],       0,          0, call.read<std::int32_t>(0),
                                  call.read(1), call.write(0), call.write(1), !s.reads[2]};
      g.vocabulary = s.vocabulary;
      if (s.writes[1]) g.position_rows = shape(s.writes[1])[0];
      call.arguments = g;
      break;
    }
    case StepKind::linear_cross_entropy: {
      kernel::LinearCrossEntropy l;
      l.rows = shape(s.reads[2]).size();
      l.channels = last(s.reads[0]);
      l.vocabulary = s.vocabulary;
      l.padded_vocabulary = shape(s.reads[1])[0];
      l.ignored = s.ignored;
      l.scale = static_cast<float>(s.value);
      l.x = call.read(0);
      l.weight = call.read(1);
      l.targets = call.read<std::int32_t>(2);
      l.loss = call.write(0);
      l.dx = call.write(1);
      l.dweight = call.write(2);
      l.row_losses = call.write(3);
      l.workspace = call.write(4);
      call.arguments = l;
      break;
    }
    case StepKind::cross_entropy: {
      kernel::CrossEntropy l;
      l.rows = shape(s.reads[1]).size();
      l.vocabulary = last(s.reads[0]);
      l.ignored = s.ignored;
      l.scale = static_cast<float>(s.value);
      l.logits = call.read(0);
      l.targets = call.read<std::int32_t>(1);
      l.loss = call.write(0);
      l.dlogits = call.write(1);
      l.row_losses = call.write(2);
      call.arguments = l;
      break;
    }
    case StepKind::square_sum: {
      SquareSums sums;
      for (std::size_t i = 1; i < s.reads.size(); ++i)
        sums.sums.push_back({shape(s.reads[i]).size(), call.read(i), call.write<double>(0), true});
      call.arguments = std::move(sums);
      break;
    }
    case StepKind::adamw: {
      Updates updates;
      for (std::size_t i = 4; i + 3 < s.reads.size(); i += 4) {
        kernel::AdamW part;
        part.size = shape(s.reads[i]).size();
        part.parameter = call.read(i);
        part.gradient = call.read(i + 1);
        part.m = call.read(i + 2);
        part.v = call.read(i + 3);
        part.beta1 = static_cast<float>(s.beta1);
        part.beta2 = static_cast<float>(s.beta2);
        part.eps = static_cast<float>(s.eps);
        part.weight_decay = static_cast<float>(s.weight_decay);
        // Parts that lie one behind the other in all four are one.
        if (!updates.parts.empty()) {
          kernel::AdamW& before = updates.parts.back();
          if (before.parameter + before.size == part.parameter && before.gradient + before.size == part.gradient &&
              before.m + before.size == part.m && before.v + before.size == part.v) {
            before.size += part.size;
            continue;
          }
        }
        updates.parts.push_back(part);
      }
      call.arguments = std::move(updates);
      break;
    }
    default: break;
  }
}

}  // namespace tutti::graph::calls

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step bound to its memory: the call of its kernel with all arguments, made once. With the executor the only header
/// of the graph that compiles kernels. One switch over all kinds of steps, hence its length.

#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/fuse.hpp>
#include <tutti/graph/generic_steps.hpp>
#include <tutti/graph/packed.hpp>
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
#include <tutti/kernel/cpu/rms_norm.hpp>
#include <tutti/kernel/cpu/rotary.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tutti::graph::calls {

/// What one step does at every run. Outlived by the step and its memory.
class Call {
 public:
  virtual ~Call() = default;
  virtual void run(exec::Context& context) = 0;
};

namespace detail {

template <class F>
class CallOf final : public Call {
 public:
  explicit CallOf(F&& f) : f_(std::move(f)) {}
  void run(exec::Context& context) override { f_(context); }

 private:
  F f_;
};
template <class F>
Owner<Call> call(F f) {
  return make_owner<CallOf<F>>(std::move(f));
}

}  // namespace detail

/// The operands of a step as pointers, null where one is absent.
struct Operands {
  Step const& step;
  List<std::byte*> reads, writes;
  PackedOperands* packed = nullptr;  ///< where this product's right operand is kept; null: nowhere

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

inline Owner<Call> bind_gemms(Operands const& call) {
  Step const& step = call.step;
  Ref const &a = step.reads[0], &b = step.reads[1], &c = step.writes[0];
  int const batch = c.shape.rank() - 2;
  auto const row = static_cast<std::size_t>(batch), column = row + 1;
  std::int64_t count = 1;
  for (int axis = 0; axis < batch; ++axis) count *= c.shape[axis];
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
    gemm.product = kernel::product_in(step.product);
    products.push_back(gemm);
  }
  if (call.packed != nullptr)
    return detail::call([gemm = products[0], right = call.packed->of(products[0])](exec::Context& context) {
      kernel::Gemm product = gemm;
      product.b_panels = &right->panels(context);
      kernel::cpu::gemm(context, product);
    });
  return detail::call([products = std::move(products)](exec::Context& context) {
    for (kernel::Gemm const& gemm : products) kernel::cpu::gemm(context, gemm);
  });
}

inline Owner<Call> bind_copies(Operands const& call) {
  Step const& step = call.step;
  List<kernel::StridedCopy> copies;
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    copies.push_back({step.writes[i].shape, static_cast<std::int64_t>(size_of(step.writes[i].dtype)), call.reads[i],
                      step.reads[i].strides, call.writes[i], step.writes[i].strides});
  std::byte* const background = step.writes.size() > step.reads.size() ? call.writes.back() : nullptr;
  return detail::call([&step, background, copies = std::move(copies)](exec::Context& context) {
    if (background != nullptr)
      generic::fill(context, step.writes.back().dtype, background, step.writes.back().shape.size(), step.value);
    for (kernel::StridedCopy const& copy : copies) kernel::cpu::strided_copy(context, copy);
  });
}

inline Owner<Call> bind_elementwise(Operands const& call) {
  Step const& step = call.step;
  List<kernel::ElementwiseOutput> outputs;
  for (std::size_t i = 0; i < step.writes.size(); ++i)
    outputs.push_back({step.sources[i], call.writes[i], step.writes[i].dtype});
  if (is_integer(step.registers))
    return detail::call([&step, reads = call.reads, outputs = std::move(outputs)](exec::Context& context) {
      if (step.registers == DType::int64) generic::integer_elementwise<std::int64_t>(context, step, reads, outputs);
      else generic::integer_elementwise<std::uint64_t>(context, step, reads, outputs);
    });
  List<kernel::ElementwiseInput> inputs;
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    inputs.push_back({call.reads[i], step.reads[i].dtype, step.reads[i].strides});
  return detail::call([&step, inputs = std::move(inputs), outputs = std::move(outputs)](exec::Context& context) {
    kernel::cpu::elementwise(context, {step.writes[0].shape, inputs, step.instructions, outputs,
                                    step.registers == DType::float64});
  });
}

inline Owner<Call> bind_adamw(Operands const& call) {
  Step const& step = call.step;
  List<kernel::AdamW> parts;
  for (std::size_t i = 4; i + 3 < step.reads.size(); i += 4) {
    kernel::AdamW part;
    part.size = step.reads[i].shape.size();
    part.parameter = call.read(i);
    part.gradient = call.read(i + 1);
    part.m = call.read(i + 2);
    part.v = call.read(i + 3);
    part.beta1 = static_cast<float>(step.beta1);
    part.beta2 = static_cast<float>(step.beta2);
    part.eps = static_cast<float>(step.eps);
    part.weight_decay = static_cast<float>(step.weight_decay);
    // Parts that lie one behind the other in all four are one.
    if (!parts.empty()) {
      kernel::AdamW& before = parts.back();
      if (before.parameter + before.size == part.parameter && before.gradient + before.size == part.gradient &&
          before.m + before.size == part.m && before.v + before.size == part.v) {
        before.size += part.size;
        continue;
      }
    }
    parts.push_back(part);
  }
  return detail::call([scalars = call.reads, parts = std::move(parts)](exec::Context& context) {
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
  return detail::call([base, result, sums = std::move(sums)](exec::Context& context) {
    *result = base == nullptr ? 0.0 : *base;
    for (kernel::SquareSum const& sum : sums) kernel::cpu::square_sum(context, sum);
  });
}

/// The fields that the cross entropies share.
template <class Loss>
Loss cross_entropy_of(Step const& step) {
  Loss loss;
  loss.ignored = step.ignored;
  loss.scale = static_cast<float>(step.value);
  return loss;
}

/// Copies what a step accumulates onto to its result, unless the planner made them one.
inline void start_from(exec::Context& context, std::int64_t bytes, std::byte const* from, std::byte* to) {
  if (from == to || from == nullptr || to == nullptr) return;
  context.parallel_for(bytes, 65536, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
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
    return detail::call([call = std::move(call)](exec::Context& context) {
      Ref const &x = call.step.reads[0], &y = call.step.writes[0];
      kernel::cpu::strided_copy(
          context, {y.shape, static_cast<std::int64_t>(size_of(y.dtype)),
                    call.reads[0] + dynamic_offset(call, x, y.shape, 1), x.strides, call.writes[0], y.strides});
    });
  return detail::call([call = std::move(call)](exec::Context& context) {
    Ref const &update = call.step.reads[1], &y = call.step.writes[0];
    start_from(context, call.step.reads[0].bytes(), call.reads[0], call.writes[0]);
    kernel::cpu::strided_copy(
        context, {update.shape, static_cast<std::int64_t>(size_of(y.dtype)), call.reads[1], update.strides,
                  call.writes[0] + dynamic_offset(call, y, update.shape, 2), y.strides});
  });
}

}  // namespace detail

/// The call of a step whose memory is known; null for the collectives, which the executor makes itself.
inline Owner<Call> bind(Operands const& call) {
  namespace cpu = kernel::cpu;
  using exec::Context;
  Step const& s = call.step;
  auto shape = [&](std::size_t i) -> Shape const& { return s.reads[i].shape; };
  auto stride = [&](std::size_t i) { return s.reads[i].strides[0]; };
  auto last = [](Ref const& ref) { return ref.shape[ref.shape.rank() - 1]; };
  auto rows = [&](Ref const& ref) {
    return ref.shape.rank() == 0 || last(ref) == 0 ? 0 : ref.shape.size() / last(ref);
  };
  switch (s.kind) {
    case StepKind::elementwise: return detail::bind_elementwise(call);
    case StepKind::copy: return detail::bind_copies(call);
    case StepKind::fill:
      return detail::call([&s, y = call.writes[0]](Context& context) {
        generic::fill(context, s.writes[0].dtype, y, s.writes[0].shape.size(), s.value);
      });
    case StepKind::gemm:
      if (detail::all_float32(s)) return detail::bind_gemms(call);
      return detail::call([&s, a = call.reads[0], b = call.reads[1], c = call.writes[0]](Context& context) {
        generic::product(context, s.reads[0], a, s.reads[1], b, s.writes[0], c);
      });
    case StepKind::reduce: {
      if (!detail::all_float32(s))
        return detail::call([&s, x = call.reads[0], y = call.writes[0]](Context& context) {
          generic::reduce(context, s.reads[0], x, s.axes, s.maximum, s.writes[0].dtype, y);
        });
      kernel::Reduce const r{shape(0), s.reads[0].strides, s.axes, s.maximum, call.read(0), call.write(0)};
      return detail::call([r](Context& context) { cpu::reduce(context, r); });
    }
    case StepKind::column_sum: {
      kernel::ColumnSum const c{shape(0)[0], shape(0)[1], call.read(0), call.write(0), 0};
      return detail::call([c](Context& context) { cpu::column_sum(context, c); });
    }
    case StepKind::layer_norm: {
      kernel::LayerNorm const l{rows(s.reads[0]), last(s.reads[0]), static_cast<float>(s.eps),
                                call.read(0),     call.read(1),     call.read(2),
                                call.write(0),    call.write(1),    call.write(2)};
      return detail::call([l](Context& context) { cpu::layer_norm(context, l); });
    }
    case StepKind::layer_norm_gradient: {
      kernel::LayerNormGradient const g{rows(s.reads[0]), last(s.reads[0]), call.read(0), call.read(1),
                                        call.read(2),     call.read(3),     call.read(4), call.read(5),
                                        call.write(0),    call.write(1),    call.write(2)};
      return detail::call([g](Context& context) { cpu::layer_norm_gradient(context, g); });
    }
    case StepKind::rms_norm: {
      kernel::RmsNorm const n{rows(s.reads[0]), last(s.reads[0]), static_cast<float>(s.eps), call.read(0), call.read(1),
                              call.write(0),    call.write(1)};
      return detail::call([n](Context& context) { cpu::rms_norm(context, n); });
    }
    case StepKind::rms_norm_gradient: {
      kernel::RmsNormGradient const g{rows(s.reads[0]), last(s.reads[0]), call.read(0),  call.read(1), call.read(2),
                                      call.read(3),     call.read(4),     call.write(0), call.write(1)};
      return detail::call([g](Context& context) { cpu::rms_norm_gradient(context, g); });
    }
    case StepKind::rotary: {
      std::int64_t const tokens = shape(1)[0], size = 2 * shape(1)[1], channels = shape(0)[1];
      kernel::Rotary const r{shape(0)[0],  channels / size, size,      tokens,        s.pairing,
                             s.inverse,    tokens,          0,         nullptr,       call.read(1),
                             call.read(2), call.read(0),    stride(0), call.write(0), channels};
      return detail::call([r](Context& context) { cpu::rotary(context, r); });
    }
    case StepKind::swiglu: {
      std::int64_t const channels = shape(0)[1];
      kernel::SwiGlu const g{shape(0)[0],  channels,  call.read(0),  stride(0),
                             call.read(1), stride(1), call.write(0), channels};
      return detail::call([g](Context& context) { cpu::swiglu(context, g); });
    }
    case StepKind::swiglu_gradient: {
      std::int64_t const channels = shape(0)[1];
      kernel::SwiGluGradient const g{shape(0)[0],  channels,  call.read(0),  stride(0), call.read(1),  stride(1),
                                     call.read(2), stride(2), call.write(0), channels,  call.write(1), channels};
      return detail::call([g](Context& context) { cpu::swiglu_gradient(context, g); });
    }
    case StepKind::attention: {
      Shape const& qkv = shape(0);
      kernel::Attention const a{qkv[0],
                                qkv[1],
                                s.heads,
                                qkv[2] / (s.heads + 2 * s.kv_heads),
                                static_cast<float>(s.value),
                                call.read(0),
                                call.write(0),
                                call.write(1),
                                s.kv_heads,
                                kernel::product_in(s.product)};
      return detail::call([a](Context& context) { cpu::attention(context, a); });
    }
    case StepKind::attention_gradient: {
      Shape const& qkv = shape(1);
      kernel::AttentionGradient const g{
          qkv[0],       qkv[1],       s.heads,      qkv[2] / (s.heads + 2 * s.kv_heads), static_cast<float>(s.value),
          call.read(0), call.read(1), call.read(2), call.read(3),                        call.write(0),
          s.kv_heads,   kernel::product_in(s.product)};
      return detail::call([g](Context& context) { cpu::attention_gradient(context, g); });
    }
    case StepKind::embedding: {
      Shape const& out = s.writes[0].shape;
      kernel::Embedding const e{
          out[0], out[1], out[2], s.vocabulary, call.read<std::int32_t>(0), call.read(1), call.read(2), call.write(0)};
      return detail::call([e](Context& context) { cpu::embedding(context, e); });
    }
    case StepKind::embedding_gradient: {
      Shape const& dout = shape(1);
      kernel::EmbeddingGradient g{dout[0],      dout[1],       dout[2],       0,          0, call.read<std::int32_t>(0),
                                  call.read(1), call.write(0), call.write(1), !s.reads[2]};
      g.vocabulary = s.vocabulary;
      if (s.writes[1]) g.position_rows = s.writes[1].shape[0];
      return detail::call(
          [g, bytes = s.reads[2].bytes(), from = call.reads[2], to = call.writes[0]](Context& context) {
            detail::start_from(context, bytes, from, to);
            cpu::embedding_gradient(context, g);
          });
    }
    case StepKind::linear_cross_entropy: {
      auto l = detail::cross_entropy_of<kernel::LinearCrossEntropy>(s);
      l.rows = shape(2).size();
      l.channels = last(s.reads[0]);
      l.vocabulary = s.vocabulary;
      l.padded_vocabulary = shape(1)[0];
      l.x = call.read(0);
      l.weight = call.read(1);
      l.targets = call.read<std::int32_t>(2);
      l.loss = call.write(0);
      l.dx = call.write(1);
      l.dweight = call.write(2);
      l.row_losses = call.write(3);
      l.workspace = call.write(4);
      l.product = kernel::product_in(s.product);
      return detail::call([l](Context& context) { cpu::linear_cross_entropy(context, l); });
    }
    case StepKind::cross_entropy: {
      auto l = detail::cross_entropy_of<kernel::CrossEntropy>(s);
      l.rows = shape(1).size();
      l.vocabulary = last(s.reads[0]);
      l.logits = call.read(0);
      l.targets = call.read<std::int32_t>(1);
      l.loss = call.write(0);
      l.dlogits = call.write(1);
      l.row_losses = call.write(2);
      return detail::call([l](Context& context) { cpu::cross_entropy(context, l); });
    }
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
    case StepKind::iota:
      return detail::call(
          [&s, y = call.writes[0]](Context& context) { generic::iota(context, s.writes[0], y, s.axis); });
    case StepKind::random_bits: {
      std::uint64_t const *const seed = call.read<std::uint64_t>(0), *const step = call.read<std::uint64_t>(1),
                                 *const stream = call.read<std::uint64_t>(2);
      return detail::call([&s, y = call.writes[0], seed, step, stream](Context& context) {
        generic::random_bits(context, y, s.writes[0].shape.size(), *seed, *step, *stream);
      });
    }
    default: return nullptr;
  }
}

}  // namespace tutti::graph::calls

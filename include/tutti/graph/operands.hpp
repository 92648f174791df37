// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step's operands in memory, and from them the arguments of its kernel: what calls on every device have alike. `T`
/// and `Y` are the types of operands that kernels have in float and bfloat16.

#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/custom_arguments.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/adamw.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/dropout.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/kernel/embedding.hpp>
#include <tutti/kernel/gemm.hpp>
#include <tutti/kernel/layer_norm.hpp>
#include <tutti/kernel/rms_norm.hpp>
#include <tutti/kernel/rotary.hpp>
#include <tutti/kernel/swiglu.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph {

/// What one step does at every run, on a context of processors or with the libraries of a device. Outlived by the step
/// and its memory.
template <class Engine>
class CallOn {
 public:
  virtual ~CallOn() = default;
  virtual void run(Engine& engine) = 0;
};

/// A call of f(engine).
template <class Engine, class F>
Owner<CallOn<Engine>> call_on(F f) {
  class Call final : public CallOn<Engine> {
   public:
    explicit Call(F&& body) : f(std::move(body)) {}
    void run(Engine& engine) override { f(engine); }

   private:
    F f;
  };
  return make_owner<Call>(std::move(f));
}

/// The operands of a step as pointers, null where one is absent.
struct Operands {
  Step const& step;
  List<std::byte*> reads{}, writes{};

  template <class T = float>
  T* read(std::size_t i) const noexcept { return i < reads.size() ? reinterpret_cast<T*>(reads[i]) : nullptr; }
  template <class T = float>
  T* write(std::size_t i) const noexcept { return i < writes.size() ? reinterpret_cast<T*>(writes[i]) : nullptr; }
};

inline bool all_float32(Step const& step) noexcept {
  for (Ref const& ref : step.reads)
    if (ref && ref.dtype != DType::float32) return false;
  return step.writes[0].dtype == DType::float32;
}

namespace arguments {

namespace detail {

inline Shape const& shape(Operands const& call, std::size_t i) { return call.step.reads[i].shape; }
inline std::int64_t stride(Operands const& call, std::size_t i) { return call.step.reads[i].strides[0]; }
inline std::int64_t last(Operands const& call, std::size_t i) {
  Shape const& of = shape(call, i);
  return of[of.rank() - 1];
}
inline std::int64_t rows(Operands const& call, std::size_t i) {
  Shape const& of = shape(call, i);
  return of.rank() == 0 || last(call, i) == 0 ? 0 : of.size() / last(call, i);
}
inline float scale(Operands const& call) { return static_cast<float>(call.step.value); }
inline float eps(Operands const& call) { return static_cast<float>(call.step.eps); }

}  // namespace detail

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

/// Rows are float; what a normalisation gives, and its gradient, are Y.
template <class Y = float>
kernel::LayerNormOf<float, Y> layer_norm(Operands const& call) {
  return {detail::rows(call, 0), detail::last(call, 0), detail::eps(call), call.read(0), call.read(1), call.read(2),
          call.write<Y>(0),      call.write(1),         call.write(2)};
}
template <class Y = float>
kernel::LayerNormGradientOf<float, Y> layer_norm_gradient(Operands const& call) {
  return {detail::rows(call, 0), detail::last(call, 0), call.read<Y>(0), call.read(1),  call.read(2), call.read(3),
          call.read(4),          call.read(5),          call.write(0),   call.write(1), call.write(2)};
}
template <class Y = float>
kernel::RmsNormOf<float, Y> rms_norm(Operands const& call) {
  return {detail::rows(call, 0), detail::last(call, 0), detail::eps(call), call.read(0), call.read(1),
          call.write<Y>(0),      call.write(1)};
}
template <class Y = float>
kernel::RmsNormGradientOf<float, Y> rms_norm_gradient(Operands const& call) {
  return {detail::rows(call, 0), detail::last(call, 0), call.read<Y>(0), call.read(1), call.read(2), call.read(3),
          call.read(4),          call.write(0),         call.write(1)};
}

template <class T = float>
kernel::RotaryOf<T> rotary(Operands const& call) {
  std::int64_t const tokens = detail::shape(call, 1)[0], size = 2 * detail::shape(call, 1)[1],
                     channels = detail::shape(call, 0)[1];
  kernel::RotaryOf<T> r;
  r.rows = detail::shape(call, 0)[0];
  r.heads = channels / size;
  r.head_size = size;
  r.tokens = r.positions = tokens;
  r.pairing = call.step.pairing;
  r.inverse = call.step.inverse;
  r.cosine = call.read(1);
  r.sine = call.read(2);
  r.x = call.read<T>(0);
  r.x_stride = detail::stride(call, 0);
  r.y = call.write<T>(0);
  r.y_stride = channels;
  return r;
}

template <class T = float>
kernel::SwiGluOf<T> swiglu(Operands const& call) {
  std::int64_t const channels = detail::shape(call, 0)[1];
  return {detail::shape(call, 0)[0], channels,           call.read<T>(0), detail::stride(call, 0), call.read<T>(1),
          detail::stride(call, 1),   call.write<T>(0), channels};
}
template <class T = float>
kernel::SwiGluGradientOf<T> swiglu_gradient(Operands const& call) {
  std::int64_t const channels = detail::shape(call, 0)[1];
  return {detail::shape(call, 0)[0], channels,         call.read<T>(0),         detail::stride(call, 0),
          call.read<T>(1),           detail::stride(call, 1), call.read<T>(2),  detail::stride(call, 2),
          call.write<T>(0),          channels,         call.write<T>(1),        channels};
}

template <class T = float>
kernel::AttentionOf<T> attention(Operands const& call) {
  Step const& step = call.step;
  Shape const& qkv = detail::shape(call, 0);
  kernel::AttentionOf<T> a;
  a.batch = qkv[0];
  a.tokens = qkv[1];
  a.heads = step.heads;
  a.head_size = qkv[2] / (step.heads + 2 * step.kv_heads);
  a.scale = detail::scale(call);
  a.qkv = call.read<T>(0);
  a.out = call.write<T>(0);
  a.lse = call.write(1);
  a.kv_heads = step.kv_heads;
  a.product = kernel::product_in(step.product);
  return a;
}
template <class T = float>
kernel::AttentionGradientOf<T> attention_gradient(Operands const& call) {
  Step const& step = call.step;
  Shape const& qkv = detail::shape(call, 1);
  kernel::AttentionGradientOf<T> g;
  g.batch = qkv[0];
  g.tokens = qkv[1];
  g.heads = step.heads;
  g.head_size = qkv[2] / (step.heads + 2 * step.kv_heads);
  g.scale = detail::scale(call);
  g.dout = call.read<T>(0);
  g.qkv = call.read<T>(1);
  g.out = call.read<T>(2);
  g.lse = call.read(3);
  g.dqkv = call.write<T>(0);
  g.kv_heads = step.kv_heads;
  g.product = kernel::product_in(step.product);
  return g;
}

inline kernel::Embedding embedding(Operands const& call) {
  Shape const& out = call.step.writes[0].shape;
  return {out[0],       out[1],       out[2],       call.step.vocabulary, call.read<std::int32_t>(0), call.read(1),
          call.read(2), call.write(0)};
}
inline kernel::EmbeddingGradient embedding_gradient(Operands const& call) {
  Shape const& dout = detail::shape(call, 1);
  kernel::EmbeddingGradient g;
  g.batch = dout[0];
  g.tokens_per_row = dout[1];
  g.channels = dout[2];
  g.vocabulary = call.step.vocabulary;
  if (call.step.writes[1]) g.position_rows = call.step.writes[1].shape[0];
  g.tokens = call.read<std::int32_t>(0);
  g.dout = call.read(1);
  g.dtable = call.write(0);
  g.dpositions = call.write(1);
  g.zero_table = !call.step.reads[2];
  return g;
}

template <class T = float>
kernel::LinearCrossEntropyOf<T> linear_cross_entropy(Operands const& call) {
  kernel::LinearCrossEntropyOf<T> l;
  l.rows = detail::shape(call, 2).size();
  l.channels = detail::last(call, 0);
  l.vocabulary = call.step.vocabulary;
  l.padded_vocabulary = detail::shape(call, 1)[0];
  l.ignored = call.step.ignored;
  l.scale = detail::scale(call);
  l.x = call.read<T>(0);
  l.weight = call.read<T>(1);
  l.targets = call.read<std::int32_t>(2);
  l.loss = call.write(0);
  l.dx = call.write<T>(1);
  l.dweight = call.write(2);
  l.row_losses = call.write(3);
  l.workspace = call.write(4);
  l.product = kernel::product_in(call.step.product);
  return l;
}
inline kernel::CrossEntropy cross_entropy(Operands const& call) {
  kernel::CrossEntropy l;
  l.rows = detail::shape(call, 1).size();
  l.vocabulary = detail::last(call, 0);
  l.ignored = call.step.ignored;
  l.scale = detail::scale(call);
  l.logits = call.read(0);
  l.targets = call.read<std::int32_t>(1);
  l.loss = call.write(0);
  l.dlogits = call.write(1);
  l.row_losses = call.write(2);
  return l;
}

}  // namespace arguments

}  // namespace tutti::graph

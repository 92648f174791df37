// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Arguments of the kernels of composites, from a step's operands. `T` and `Y` are the types of operands that kernels
/// have in float and bfloat16.

#include <tutti/graph/step_call.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/embedding.hpp>
#include <tutti/kernel/layer_norm.hpp>
#include <tutti/kernel/rms_norm.hpp>
#include <tutti/kernel/rotary.hpp>
#include <tutti/kernel/swiglu.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::graph::arguments {

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

/// What attention and its gradient have alike; the packed projections are operand `qkv`.
template <class Kernel>
Kernel attention_sizes(Operands const& call, std::size_t qkv) {
  Step const& step = call.step;
  Shape const& packed = shape(call, qkv);
  Kernel sizes;
  sizes.batch = packed[0];
  sizes.tokens = packed[1];
  sizes.heads = step.heads;
  sizes.head_size = packed[2] / (step.heads + 2 * step.kv_heads);
  sizes.scale = scale(call);
  sizes.kv_heads = step.kv_heads;
  sizes.product = kernel::product_in(step.product);
  return sizes;
}

}  // namespace detail

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
  auto a = detail::attention_sizes<kernel::AttentionOf<T>>(call, 0);
  a.qkv = call.read<T>(0);
  a.out = call.write<T>(0);
  a.lse = call.write(1);
  return a;
}
template <class T = float>
kernel::AttentionGradientOf<T> attention_gradient(Operands const& call) {
  auto g = detail::attention_sizes<kernel::AttentionGradientOf<T>>(call, 1);
  g.dout = call.read<T>(0);
  g.qkv = call.read<T>(1);
  g.out = call.read<T>(2);
  g.lse = call.read(3);
  g.dqkv = call.write<T>(0);
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

}  // namespace tutti::graph::arguments

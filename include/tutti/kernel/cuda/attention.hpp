// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Causal attention on CUDA devices: forward, gradient, and one new position against a cache.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/cuda/attention_decode.hpp>
#include <tutti/kernel/cuda/attention_forward.hpp>
#include <tutti/kernel/cuda/attention_gradient.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tutti::kernel::cuda {

namespace detail {

/// f(std::integral_constant planes, std::integral_constant width) for the kernels of this element type.
template <class T, class F>
void with_attention_shape(Product product, std::int64_t head_size, F&& f) {
  using std::integral_constant;
  if constexpr (std::is_same_v<T, bfloat16>) {
    integral_constant<int, 1> const one;
    if (head_size <= 32) f(one, integral_constant<int, 32>{});
    else if (head_size <= 64) f(one, integral_constant<int, 64>{});
    else if (head_size <= 96) f(one, integral_constant<int, 96>{});
    else f(one, integral_constant<int, 128>{});
  } else {
    auto const with_width = [&](auto planes) {
      if (head_size <= 64) f(planes, integral_constant<int, 64>{});
      else f(planes, integral_constant<int, 128>{});
    };
    if (product == Product::bfloat16) with_width(integral_constant<int, 1>{});
    else with_width(integral_constant<int, 3>{});
  }
}

template <class A>
void check_attention(A const& a, char const* operation) {
  auto const refuse = [&](auto const&... words) {
    throw Error(ErrorKind::invalid_argument, operation, concat(words...));
  };
  if (a.kv_heads != 0 && (a.kv_heads < 0 || a.heads % a.kv_heads != 0))
    refuse(a.heads, " heads cannot share ", a.kv_heads, " heads of keys and values evenly");
  if (a.head_size % 8 != 0 || a.head_size > 128)
    refuse("heads of ", a.head_size, " elements are not among those of CUDA devices: multiples of 8 up to 128");
  if (!(a.scale > 0) || a.scale > std::numeric_limits<float>::max())
    refuse("the scale of scores must be positive and finite");
  if (a.product != Product::float32 && a.product != Product::bfloat16)
    refuse("products of attention are in float32 or bfloat16");
  constexpr std::int64_t most_blocks = 65535, least_rows = 64;  // along y, and of a block
  if (a.tokens > most_blocks * least_rows || a.batch * a.heads > std::numeric_limits<std::int32_t>::max())
    refuse(a.tokens, " tokens of ", a.batch * a.heads, " heads are more than one launch takes");
}

template <class A>
AttentionSizes attention_sizes(A const& a) {
  return {static_cast<int>(a.tokens), static_cast<int>(a.heads),
          static_cast<int>(a.kv_heads == 0 ? a.heads : a.kv_heads), static_cast<int>(a.head_size)};
}
inline dim3 attention_grid(std::int64_t heads, std::int64_t tokens, int rows) {
  return dim3(static_cast<unsigned>(heads), static_cast<unsigned>((tokens + rows - 1) / rows));
}

/// Parts of 64 keys and more: enough of them to keep every processor busy, and none beyond the cache.
inline std::int64_t decode_part_length(Context const& context, std::int64_t heads, std::int64_t capacity) {
  std::int64_t const wanted = 4 * context.properties().processors;
  std::int64_t part = 64;
  while (part < capacity && heads * ((capacity + part - 1) / part) > wanted) part *= 2;
  return part;
}
template <class A>
void check_attention_decode(A const& a, std::int32_t const* length) {
  if (a.head_size % 8 != 0 || a.head_size > decode_most_size)
    throw Error(ErrorKind::invalid_argument, "attention_decode",
                concat("heads of ", a.head_size, " elements are not among those of CUDA devices: multiples of 8 up to ",
                       decode_most_size));
  if (a.batch <= 0 || a.heads <= 0 || a.head_size <= 0) return;
  if (length == nullptr && (a.length < 1 || a.length > a.capacity))
    throw Error(ErrorKind::invalid_argument, "attention_decode",
                concat("a cache of ", a.capacity, " positions cannot hold ", a.length));
}
template <class T>
void launch_attention_decode(Context& context, AttentionDecodeOf<T> const& a, std::int32_t const* length,
                             std::int64_t part, float* sums) {
  AttentionDecodeArguments<T> const arguments{a.length,
                                              a.capacity,
                                              a.q_stride,
                                              length,
                                              static_cast<int>(a.heads),
                                              static_cast<int>(a.head_size),
                                              static_cast<int>(part),
                                              a.scale * log2_e,
                                              a.q,
                                              a.keys,
                                              a.values,
                                              a.out,
                                              sums};
  tutti::cuda::LaunchShape const shape{
      .grid = dim3(static_cast<unsigned>(a.batch * a.heads), static_cast<unsigned>((a.capacity + part - 1) / part)),
      .block = dim3(32 * decode_warps)};
  if (a.head_size <= 64) launch_own(context.stream(), shape, attention_decode_part<T, 64>, arguments);
  else if (a.head_size <= 128) launch_own(context.stream(), shape, attention_decode_part<T, 128>, arguments);
  else launch_own(context.stream(), shape, attention_decode_part<T, 256>, arguments);
}

}  // namespace detail

/// Contract: tutti/kernel/attention.hpp, for float and bfloat16.
/// Requires   head sizes in multiples of 8 up to 128; scale positive; pointers aligned to 16 bytes.
/// Numerics   products of float are of three bfloat16 planes each, as exact as fp32; fp32 sums by tensor cores. The
///            order depends on the shape alone.
/// Errors     invalid_argument.
template <class T>
void attention(Context& context, AttentionOf<T> const& a) {
  detail::check_attention(a, "attention");
  if (a.batch <= 0 || a.heads <= 0 || a.tokens <= 0 || a.head_size <= 0) return;
  detail::AttentionForwardArguments<T> const arguments{detail::attention_sizes(a), a.scale * detail::log2_e, a.qkv,
                                                       a.out, a.lse};
  detail::with_attention_shape<T>(a.product, a.head_size, [&](auto planes, auto width) {
    using Shape = detail::AttentionForwardShape<T, planes(), width()>;
    launch_own(context.stream(),
               {.grid = detail::attention_grid(a.batch * a.heads, a.tokens, Shape::queries),
                .block = dim3(32 * Shape::warps),
                .shared_bytes = Shape::shared},
               detail::attention_forward<T, planes(), width()>, arguments);
  });
}
inline void attention(Context& context, Attention const& a) { attention<float>(context, a); }

/// Contract, requirements, numerics and errors as above; the same bits every time.
/// Memory     working memory of 4 (1 + W) bytes for each token and head: W is the head size rounded up to a multiple of
///            32 (bfloat16) or 64 (float). Tokens of a sequence are rounded up to 32.
template <class T>
void attention_gradient(Context& context, AttentionGradientOf<T> const& a) {
  detail::check_attention(a, "attention_gradient");
  if (a.batch <= 0 || a.heads <= 0 || a.tokens <= 0 || a.head_size <= 0) return;
  std::int64_t const rows = a.batch * a.tokens, items = rows * a.heads;
  detail::AttentionSizes const sizes = detail::attention_sizes(a);
  detail::with_attention_shape<T>(a.product, a.head_size, [&](auto planes, auto width) {
    using Shape = detail::AttentionGradientShape<T, width()>;
    std::int64_t const tiles = a.batch * a.heads * Shape::tiles(a.tokens), turns = tiles + 1;
    std::int64_t const sums = tiles * Shape::walked * width(), dots = (items + 3) / 4 * 4;  // aligned to 16 bytes
    auto* const scratch = static_cast<float*>(context.scratch(static_cast<std::size_t>(sums + dots + turns) * 4));
    detail::AttentionGradientArguments<T> const arguments{sizes,
                                                          rows,
                                                          a.scale,
                                                          a.dout,
                                                          a.qkv,
                                                          a.out,
                                                          a.lse,
                                                          scratch + sums,
                                                          reinterpret_cast<float4*>(scratch),
                                                          reinterpret_cast<unsigned*>(scratch + sums + dots),
                                                          turns,
                                                          a.dqkv};
    std::int64_t const each = detail::row_dot_threads / detail::row_dot_lanes<T>(a.head_size);
    launch_own(context.stream(),
               {.grid = dim3(static_cast<unsigned>((items + each - 1) / each)), .block = dim3(detail::row_dot_threads)},
               detail::attention_row_dots<T>, arguments);
    launch_own(context.stream(),
               {.grid = detail::attention_grid(a.batch * sizes.kv_heads, a.tokens, Shape::owned),
                .block = dim3(32 * Shape::warps),
                .shared_bytes = Shape::shared},
               detail::attention_gradient_walk<T, planes(), width()>, arguments);
  });
}
inline void attention_gradient(Context& context, AttentionGradient const& a) { attention_gradient<float>(context, a); }

/// Contract: tutti/kernel/attention.hpp. With `length` in device memory the kernel reads how long the caches are when
/// it runs, and a.length does not count: for captured steps.
/// Requires   head sizes in multiples of 8 up to 256; strides and pointers in multiples of 16 bytes; 1 <= length <=
///            capacity.
/// Errors     invalid_argument.
template <class T>
void attention_decode(Context& context, AttentionDecodeOf<T> const& a, std::int32_t const* length = nullptr) {
  detail::check_attention_decode(a, length);
  if (a.batch <= 0 || a.heads <= 0 || a.head_size <= 0) return;
  std::int64_t const heads = a.batch * a.heads, part = detail::decode_part_length(context, heads, a.capacity);
  std::int64_t const parts = (a.capacity + part - 1) / part;
  auto* const sums = parts == 1 ? nullptr
                                : static_cast<float*>(context.scratch(
                                      static_cast<std::size_t>(heads * parts * (a.head_size + 2)) * sizeof(float)));
  detail::launch_attention_decode(context, a, length, part, sums);
  if (parts == 1) return;
  launch_own(context.stream(), {.grid = dim3(static_cast<unsigned>(heads)), .block = dim3(128)},
             detail::attention_decode_join<T>,
             detail::AttentionJoinArguments<T>{static_cast<int>(a.head_size), static_cast<int>(parts), sums, a.out});
}
inline void attention_decode(Context& context, AttentionDecode const& a, std::int32_t const* length = nullptr) {
  attention_decode<float>(context, a, length);
}

/// How a cache of this capacity is cut for attention_decode_parts; by the device and the shape.
struct AttentionParts {
  std::int64_t length = 0, count = 0;  ///< positions of a part, parts of a head

  AttentionParts(Context const& context, std::int64_t heads, std::int64_t capacity)
      : length(detail::decode_part_length(context, heads, capacity)), count((capacity + length - 1) / length) {}
  /// floats that the parts of all heads take.
  std::int64_t size(std::int64_t heads, std::int64_t head_size) const { return heads * count * (head_size + 2); }
};

/// The first half of attention_decode, for kernels that join the parts as they read them (JoinedRow of
/// row_product.hpp): a.out is not written. parts (B heads, count, head_size + 2): of each part the weighted sum of its
/// values, then its largest score in base 2 and the sum of its weights relative to that; -infinity and 0 of one behind
/// the length.
template <class T>
void attention_decode_parts(Context& context, AttentionDecodeOf<T> const& a, std::int32_t const* length,
                            AttentionParts const& cut, float* parts) {
  detail::check_attention_decode(a, length);
  if (a.batch <= 0 || a.heads <= 0 || a.head_size <= 0) return;
  detail::launch_attention_decode(context, a, length, cut.length, parts);
}

}  // namespace tutti::kernel::cuda

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention that appends to a cache of keys and values: what decoding puts in the place of graph::attention.

#include <tutti/graph/custom.hpp>
#include <tutti/kernel/cpu/entries.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::nn {

using graph::Var;

/// The tokens that a run adds, one a row: kernel::CachedAttention says what they are.
struct NewTokens {
  Var slot, position;  ///< int32 (rows)
  Var cosine, sine;    ///< float32 (rows, pairs), the rotation of each row's position; absent where none is rotated
  kernel::RotaryPairing pairing = kernel::RotaryPairing::half;
};
/// One layer's, (slots, kv_heads, capacity, head size) of float32, float16 or bfloat16: states of their own.
struct Cache {
  Var keys, values;
};
struct CachedHeads {
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t window = 0;  ///< 0: all positions before a token
};

namespace detail {

/// qkv, slot, position, keys, values [, cosine, sine]; <heads, kv_heads, window, pairing, scale> -> out
struct AppendAndAttend {
  static constexpr std::string_view name = "cached_attention";
  static constexpr std::uint32_t updates = 1u << 3 | 1u << 4;

  static graph::Type type(graph::OperandTypes const& in) {
    using graph::refuse;
    auto const op = in.draft.op;
    auto const heads = static_cast<std::int64_t>(in.real(0)), kv_heads = static_cast<std::int64_t>(in.real(1));
    Shape const& cache = in.shape(3);
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
      refuse(in.where, op, ErrorKind::invalid_argument, "the heads must share the heads of keys and values evenly");
    if (cache.rank() != 4 || cache[1] != kv_heads || in.shape(4) != cache || in.dtype(3) != in.dtype(4))
      refuse(in.where, op, "keys and values must be (slots, kv_heads, capacity, head size), both alike", cache,
             in.shape(4));
    std::int64_t const d = cache[3];
    if (in.dtype(0) != DType::float32 || in.shape(0).rank() != 2 || in.shape(0)[1] != (heads + 2 * kv_heads) * d)
      refuse(in.where, op, "qkv must be float32 (rows, (heads + 2 kv_heads) * head size)", in.shape(0), cache);
    Shape const rows{in.shape(0)[0]};
    if (in.dtype(1) != DType::int32 || in.dtype(2) != DType::int32 || in.shape(1) != rows || in.shape(2) != rows)
      refuse(in.where, op, "slot and position must be int32 (rows)", in.shape(1), in.shape(2));
    for (int i = 5; i < in.count(); ++i)
      if (in.dtype(i) != DType::float32 || in.shape(i).rank() != 2 || in.shape(i)[0] != rows[0] ||
          2 * in.shape(i)[1] > d || in.shape(i) != in.shape(5))
        refuse(in.where, op, "cosine and sine must be float32 (rows, pairs), a head having as many pairs", in.shape(i),
               cache);
    return {DType::float32, graph::Replication::replicated, {rows[0], heads * d}};
  }

  /// The states are not changed here: the interpreter gives values.
  static graph::naive::Values reference(graph::naive::Call const& call) {
    using graph::naive::at;
    auto const heads = static_cast<std::int64_t>(call.real(0)), kv_heads = static_cast<std::int64_t>(call.real(1)),
               window = static_cast<std::int64_t>(call.real(2));
    bool const half = call.real(3) == 0;
    std::int64_t const rows = call.shape(0)[0], capacity = call.shape(3)[2], d = call.shape(3)[3],
                       pairs = call.count() > 5 ? call.shape(5)[1] : 0, width = (heads + 2 * kv_heads) * d;
    graph::naive::Values qkv = call.in(0), keys = call.in(3), values = call.in(4), out(at(rows * heads * d));
    auto const cached = [&](std::int64_t slot, std::int64_t head, std::int64_t position) {
      return at(((slot * kv_heads + head) * capacity + position) * d);
    };
    auto const row_of = [&](int operand, std::int64_t row) {
      return static_cast<std::int64_t>(call.in(operand)[at(row)]);
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      if (row_of(1, row) < 0) continue;
      for (std::int64_t head = 0; head < heads + kv_heads; ++head)
        for (std::int64_t i = 0; i < pairs; ++i) {
          double& a = qkv[at(row * width + head * d + (half ? i : 2 * i))];
          double& b = qkv[at(row * width + head * d + (half ? i + pairs : 2 * i + 1))];
          double const c = call.in(5)[at(row * pairs + i)], s = call.in(6)[at(row * pairs + i)], x = a;
          a = x * c - b * s;
          b = x * s + b * c;
        }
      for (std::int64_t head = 0; head < kv_heads; ++head)
        for (std::int64_t c = 0; c < d; ++c) {
          std::size_t const to = cached(row_of(1, row), head, row_of(2, row)) + at(c);
          keys[to] = qkv[at(row * width + (heads + head) * d + c)];
          values[to] = qkv[at(row * width + (heads + kv_heads + head) * d + c)];
        }
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      if (row_of(1, row) < 0) continue;
      std::int64_t const end = row_of(2, row) + 1, first = window > 0 ? std::max<std::int64_t>(0, end - window) : 0;
      for (std::int64_t head = 0; head < heads; ++head) {
        std::vector<double> p;
        double total = 0;
        std::int64_t const shared = head / (heads / kv_heads);
        for (std::int64_t t = first; t < end; ++t) {
          double dot = 0;
          for (std::int64_t c = 0; c < d; ++c)
            dot += qkv[at(row * width + head * d + c)] * keys[cached(row_of(1, row), shared, t) + at(c)];
          p.push_back(dot * call.real(4));
        }
        double const top = *std::max_element(p.begin(), p.end());
        for (double& value : p) total += value = std::exp(value - top);
        for (std::int64_t t = first; t < end; ++t)
          for (std::int64_t c = 0; c < d; ++c)
            out[at((row * heads + head) * d + c)] +=
                p[at(t - first)] / total * values[cached(row_of(1, row), shared, t) + at(c)];
      }
    }
    return out;
  }

  static kernel::CachedAttention arguments(graph::CustomArguments const& args) {
    DType const dtype = args.operands[3].dtype;
    Shape const& cache = args.operands[3].shape;
    auto const floats = [&](std::size_t i) {
      return i < args.operands.size() ? reinterpret_cast<float const*>(args.operands[i].data) : nullptr;
    };
    auto const integers = [&](std::size_t i) { return reinterpret_cast<std::int32_t const*>(args.operands[i].data); };
    return {.rows = args.result.shape[0],
            .heads = static_cast<std::int64_t>(args.reals[0]),
            .kv_heads = static_cast<std::int64_t>(args.reals[1]),
            .head_size = cache[3],
            .scale = static_cast<float>(args.reals[4]),
            .window = static_cast<std::int64_t>(args.reals[2]),
            .pairs = args.operands.size() > 5 ? args.operands[5].shape[1] : 0,
            .pairing = static_cast<kernel::RotaryPairing>(static_cast<int>(args.reals[3])),
            .qkv = floats(0),
            .cosine = floats(5),
            .sine = floats(6),
            .slot = integers(1),
            .position = integers(2),
            .slots = cache[0],
            .capacity = cache[2],
            .cache = dtype,
            .keys = args.operands[3].data,
            .values = args.operands[4].data,
            .out = reinterpret_cast<float*>(args.result.data)};
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    kernel::cpu::cached_attention(context, arguments(args));
  }
};

}  // namespace detail

/// kernel::CachedAttention on packed projections qkv (rows, (heads + 2 kv_heads) * size); scores are scaled by
/// 1 / sqrt(size). The cache is changed in place and has no other use in the graph. Result (rows, heads * size).
inline Var cached_attention(Var qkv, NewTokens const& tokens, Cache const& cache, CachedHeads const& heads,
                            graph::Where where = graph::Where::current()) {
  List<Var> operands{qkv, tokens.slot, tokens.position, cache.keys, cache.values};
  if (tokens.cosine.builder != nullptr) {
    operands.push_back(tokens.cosine);
    operands.push_back(tokens.sine);
  }
  double const size = static_cast<double>(cache.keys.shape(where)[3]);
  return graph::custom<detail::AppendAndAttend>(
      operands,
      {static_cast<double>(heads.heads), static_cast<double>(heads.kv_heads), static_cast<double>(heads.window),
       static_cast<double>(tokens.pairing), 1 / std::sqrt(size)},
      where);
}

}  // namespace tutti::nn

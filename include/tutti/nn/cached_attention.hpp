// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention that appends to a cache of keys and values: what decoding puts in the place of graph::attention.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_type.hpp>
#include <tutti/core/dtype.hpp>
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
/// The numbers that a cache is kept in: F32, F16, BF16, or Q8_0, whose rows are bytes in a graph.
/// Errors    invalid_argument: any other
inline DType cache_dtype(BlockType type) {
  switch (type) {
    case BlockType::f32: return DType::float32;
    case BlockType::f16: return DType::float16;
    case BlockType::bf16: return DType::bfloat16;
    case BlockType::q8_0: return DType::uint8;
    default:
      throw Error(ErrorKind::invalid_argument, "cache_dtype",
                  concat("a cache of ", name(type), " is asked for. It can be F32, F16, BF16 or Q8_0"));
  }
}
inline BlockType cache_type(DType dtype) {
  return dtype == DType::uint8      ? BlockType::q8_0
         : dtype == DType::float16  ? BlockType::f16
         : dtype == DType::bfloat16 ? BlockType::bf16
                                    : BlockType::f32;
}
/// Elements of cache_dtype in a row of `head_size` numbers. Errors: those of cache_dtype and row_bytes.
inline std::int64_t cache_columns(BlockType type, std::int64_t head_size) {
  return row_bytes(type, head_size) / static_cast<std::int64_t>(size_of(cache_dtype(type)));
}

/// One layer's, (slots, kv_heads, capacity, cache_columns) of cache_dtype: states of their own.
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
      refuse(in.where, op, "keys and values must be (slots, kv_heads, capacity, columns), both alike", cache,
             in.shape(4));
    if (in.dtype(0) != DType::float32 || in.shape(0).rank() != 2 || in.shape(0)[1] % (heads + 2 * kv_heads) != 0)
      refuse(in.where, op, "qkv must be float32 (rows, (heads + 2 kv_heads) * head size)", in.shape(0), cache);
    std::int64_t const d = in.shape(0)[1] / (heads + 2 * kv_heads);
    BlockType const type = cache_type(in.dtype(3));
    if (in.dtype(3) != cache_dtype(type) || d % block_elements(type) != 0 || cache[3] != cache_columns(type, d))
      refuse(in.where, op, "rows of the cache must hold a head in F32, F16, BF16 or Q8_0", in.shape(0), cache);
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

  /// Of bytes in blocks of Q8_0.
  static graph::naive::Values numbers_of(graph::naive::Values const& bytes, std::int64_t d) {
    std::vector<std::byte> rows;
    for (double const byte : bytes) rows.push_back(static_cast<std::byte>(byte));
    auto const count = static_cast<std::int64_t>(rows.size()) / row_bytes(BlockType::q8_0, d) * d;
    std::vector<float> numbers(static_cast<std::size_t>(count));
    dequantise(BlockType::q8_0, rows.data(), count, numbers.data());
    return graph::naive::Values(numbers.begin(), numbers.end());
  }

  /// The states are not changed here: the interpreter gives values.
  static graph::naive::Values reference(graph::naive::Call const& call) {
    using graph::naive::at;
    auto const heads = static_cast<std::int64_t>(call.real(0)), kv_heads = static_cast<std::int64_t>(call.real(1)),
               window = static_cast<std::int64_t>(call.real(2));
    bool const half = call.real(3) == 0;
    std::int64_t const rows = call.shape(0)[0], capacity = call.shape(3)[2], width = call.shape(0)[1],
                       d = width / (heads + 2 * kv_heads), pairs = call.count() > 5 ? call.shape(5)[1] : 0;
    bool const blocks = call.shape(3)[3] != d;
    graph::naive::Values qkv = call.in(0), out(at(rows * heads * d)),
                         keys = blocks ? numbers_of(call.in(3), d) : call.in(3),
                         values = blocks ? numbers_of(call.in(4), d) : call.in(4);
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
    Shape const& cache = args.operands[3].shape;
    auto const floats = [&](std::size_t i) {
      return i < args.operands.size() ? reinterpret_cast<float const*>(args.operands[i].data) : nullptr;
    };
    auto const integers = [&](std::size_t i) { return reinterpret_cast<std::int32_t const*>(args.operands[i].data); };
    return {.rows = args.result.shape[0],
            .heads = static_cast<std::int64_t>(args.reals[0]),
            .kv_heads = static_cast<std::int64_t>(args.reals[1]),
            .head_size = args.operands[0].shape[1] / static_cast<std::int64_t>(args.reals[0] + 2 * args.reals[1]),
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
            .cache = cache_type(args.operands[3].dtype),
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
  double const size = static_cast<double>(qkv.shape(where)[1] / (heads.heads + 2 * heads.kv_heads));
  return graph::custom<detail::AppendAndAttend>(
      operands,
      {static_cast<double>(heads.heads), static_cast<double>(heads.kv_heads), static_cast<double>(heads.window),
       static_cast<double>(tokens.pairing), 1 / std::sqrt(size)},
      where);
}

}  // namespace tutti::nn

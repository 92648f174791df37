// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layers whose weights stay as a model file stores them, quantised or not: what decoding puts in the place of
/// nn::Linear and embeddings. Weights are states of bytes, (rows, bytes of a row).

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_tiles.hpp>
#include <tutti/graph/custom.hpp>
#include <tutti/graph/ops_indexing.hpp>
#include <tutti/kernel/cpu/entries.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::nn {

using graph::Var;

/// A matrix in the graph: `out` rows of `in` numbers.
struct StoredWeight {
  Var bytes;
  BlockType type = BlockType::f32;
  std::int64_t out = 0, in = 0;
  bool tiled = false;  ///< in tiles (core/block_tiles.hpp)
};

namespace detail {

/// How blocks lie stands in an operation's attributes with their type.
inline constexpr int tiled_mark = 256;
inline BlockType type_of(double attribute) { return static_cast<BlockType>(static_cast<int>(attribute) % tiled_mark); }
inline bool is_tiled(double attribute) { return static_cast<int>(attribute) >= tiled_mark; }

inline List<double> stored_reals(List<StoredWeight> const& weights) {
  List<double> reals{static_cast<double>(weights[0].in)};
  for (StoredWeight const& weight : weights) {
    reals.push_back(static_cast<double>(weight.type) + (weight.tiled ? tiled_mark : 0));
    reals.push_back(static_cast<double>(weight.out));
  }
  return reals;
}
inline kernel::BlockMatrix matrix_of(graph::CustomArguments const& args, std::size_t operand, std::size_t weight) {
  double const how = args.reals[1 + 2 * weight];
  return {type_of(how), static_cast<std::int64_t>(args.reals[2 + 2 * weight]), static_cast<std::int64_t>(args.reals[0]),
          args.operands[operand].data, is_tiled(how)};
}

/// The numbers of weight `weight`, operand `operand`, in the interpreter.
inline std::vector<float> reference_matrix(graph::naive::Call const& call, int operand, int weight) {
  std::vector<std::byte> bytes;
  for (double const byte : call.in(operand)) bytes.push_back(static_cast<std::byte>(static_cast<unsigned>(byte)));
  BlockType const type = type_of(call.real(1 + 2 * weight));
  auto const size = static_cast<std::int64_t>(call.real(2 + 2 * weight)) * static_cast<std::int64_t>(call.real(0));
  std::vector<float> values(static_cast<std::size_t>(size));
  if (is_tiled(call.real(1 + 2 * weight))) bytes = rows_of_tiles(type, static_cast<std::int64_t>(call.real(0)), bytes);
  dequantise(type, bytes.data(), size, values.data());
  return values;
}
/// x (rows, in) w^T, element (row, o).
inline double reference_dot(graph::naive::Call const& call, std::vector<float> const& w, std::int64_t row,
                            std::int64_t o) {
  auto const in = static_cast<std::int64_t>(call.real(0));
  double sum = 0;
  for (std::int64_t i = 0; i < in; ++i)
    sum += call.in(0)[static_cast<std::size_t>(row * in + i)] * double{w[static_cast<std::size_t>(o * in + i)]};
  return sum;
}

/// Refuses operands that are not x (rows, in) and weights that fit.
inline std::int64_t rows_of(graph::OperandTypes const& in, int weights, int bias) {
  using graph::refuse;
  if (in.dtype(0) != DType::float32 || in.shape(0).rank() != 2 ||
      in.shape(0)[1] != static_cast<std::int64_t>(in.real(0)))
    refuse(in.where, in.draft.op, "x must be float32 (rows, inputs of the weight)", in.shape(0));
  std::int64_t outs = 0;
  for (int i = 0; i < weights; ++i) {
    std::int64_t const bytes = row_bytes(type_of(in.real(1 + 2 * i)), in.shape(0)[1]);
    auto const out = static_cast<std::int64_t>(in.real(2 + 2 * i));
    outs += out;
    if (in.dtype(1 + i) != DType::uint8 || in.shape(1 + i) != Shape{out, bytes})
      refuse(in.where, in.draft.op, "a stored weight is uint8 (rows, bytes of a row)", in.shape(1 + i),
             Shape{out, bytes});
  }
  if (bias > 0 && (in.dtype(bias) != DType::float32 || in.shape(bias) != Shape{outs}))
    refuse(in.where, in.draft.op, "the bias has one float32 for each output", in.shape(bias), Shape{outs});
  return in.shape(0)[0];
}

/// x, weights... [, bias of all]; <in, type and out of each weight> -> (rows, all outs): x times each, side by side.
struct StoredProduct {
  static constexpr std::string_view name = "stored_product";
  static int weights(std::size_t reals) { return static_cast<int>(reals / 2); }

  static graph::Type type(graph::OperandTypes const& in) {
    int const count = weights(in.draft.reals.size());
    std::int64_t const rows = rows_of(in, count, in.count() > 1 + count ? 1 + count : 0);
    std::int64_t outs = 0;
    for (int i = 0; i < count; ++i) outs += static_cast<std::int64_t>(in.real(2 + 2 * i));
    return {DType::float32, graph::Replication::replicated, {rows, outs}};
  }
  static graph::naive::Values reference(graph::naive::Call const& call) {
    int const count = weights(call.graph.reals(call.id).size());
    std::int64_t const rows = call.out()[0], outs = call.out()[1];
    graph::naive::Values y(static_cast<std::size_t>(rows * outs));
    std::int64_t first = 0;
    for (int i = 0; i < count; ++i) {
      auto const w = reference_matrix(call, 1 + i, i);
      auto const out = static_cast<std::int64_t>(call.real(2 + 2 * i));
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < out; ++o)
          y[static_cast<std::size_t>(row * outs + first + o)] =
              reference_dot(call, w, row, o) +
              (call.count() > 1 + count ? call.in(1 + count)[static_cast<std::size_t>(first + o)] : 0.0);
      first += out;
    }
    return y;
  }
  static List<kernel::BlockProduct> products(graph::CustomArguments const& args) {
    auto const count = static_cast<std::size_t>(weights(args.reals.size()));
    float const* const bias =
        args.operands.size() > 1 + count ? reinterpret_cast<float const*>(args.operands[1 + count].data) : nullptr;
    std::int64_t const rows = args.result.shape[0], outs = args.result.shape[1];
    List<kernel::BlockProduct> products;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
      kernel::BlockMatrix const weight = matrix_of(args, 1 + i, i);
      products.push_back({rows, reinterpret_cast<float const*>(args.operands[0].data), weight.in, weight,
                          bias == nullptr ? nullptr : bias + first, nullptr, 0,
                          reinterpret_cast<float*>(args.result.data) + first, outs});
      first += weight.out;
    }
    return products;
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    List<kernel::BlockProduct> const all = products(args);
    kernel::cpu::block_products(context, all.data(), static_cast<int>(all.size()));
  }
};

/// x, gate, up; <in, types and outs> -> silu(x gate^T) * (x up^T).
struct StoredSwiGlu {
  static constexpr std::string_view name = "stored_swiglu";

  static graph::Type type(graph::OperandTypes const& in) {
    std::int64_t const rows = rows_of(in, 2, 0);
    if (in.real(2) != in.real(4))
      graph::refuse(in.where, in.draft.op, "gate and up must have equally many rows", in.shape(1), in.shape(2));
    return {DType::float32, graph::Replication::replicated, {rows, static_cast<std::int64_t>(in.real(2))}};
  }
  static graph::naive::Values reference(graph::naive::Call const& call) {
    auto const gate = reference_matrix(call, 1, 0), up = reference_matrix(call, 2, 1);
    std::int64_t const rows = call.out()[0], out = call.out()[1];
    graph::naive::Values y(static_cast<std::size_t>(rows * out));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t o = 0; o < out; ++o) {
        double const g = reference_dot(call, gate, row, o);
        y[static_cast<std::size_t>(row * out + o)] = g / (1 + std::exp(-g)) * reference_dot(call, up, row, o);
      }
    return y;
  }
  static kernel::BlockSwiGlu arguments(graph::CustomArguments const& args) {
    kernel::BlockMatrix const gate = matrix_of(args, 1, 0);
    return {args.result.shape[0], reinterpret_cast<float const*>(args.operands[0].data), gate.in, gate,
            matrix_of(args, 2, 1), reinterpret_cast<float*>(args.result.data), gate.out};
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    kernel::cpu::block_swiglu(context, arguments(args));
  }
};

/// tokens (rows) int32, table; <in, type, out> -> rows of the table, float32.
struct StoredRows {
  static constexpr std::string_view name = "stored_rows";

  static graph::Type type(graph::OperandTypes const& in) {
    auto const width = static_cast<std::int64_t>(in.real(0));
    Shape const table{static_cast<std::int64_t>(in.real(2)),
                      row_bytes(type_of(in.real(1)), width)};
    if (in.dtype(0) != DType::int32 || in.shape(0).rank() != 1)
      graph::refuse(in.where, in.draft.op, "tokens must be int32 (rows)", in.shape(0));
    if (in.dtype(1) != DType::uint8 || in.shape(1) != table)
      graph::refuse(in.where, in.draft.op, "a stored table is uint8 (rows, bytes of a row)", in.shape(1), table);
    return {DType::float32, graph::Replication::replicated, {in.shape(0)[0], width}};
  }
  static graph::naive::Values reference(graph::naive::Call const& call) {
    auto const table = reference_matrix(call, 1, 0);
    std::int64_t const rows = call.out()[0], width = call.out()[1];
    graph::naive::Values y(static_cast<std::size_t>(rows * width));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < width; ++i) {
        auto const token = static_cast<std::int64_t>(call.in(0)[static_cast<std::size_t>(row)]);
        bool const known = token >= 0 && token < static_cast<std::int64_t>(call.real(2));
        y[static_cast<std::size_t>(row * width + i)] =
            known ? double{table[static_cast<std::size_t>(token * width + i)]} : 0.0;
      }
    return y;
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    kernel::cpu::block_rows(context,
                            {args.result.shape[0], reinterpret_cast<std::int32_t const*>(args.operands[0].data),
                             matrix_of(args, 1, 0), reinterpret_cast<float*>(args.result.data)});
  }
};

}  // namespace detail

/// x (rows, in) times each weight, transposed, side by side; plus a bias of all outputs where it is there.
struct StoredLinear {
  List<StoredWeight> weights;
  Var bias{};
  bool addend = false;  ///< each rank of the tensor axis has columns of the weights: their sum is the product

  Var operator()(Var x, graph::Where where = graph::Where::current()) const {
    List<Var> operands{x};
    for (StoredWeight const& weight : weights) operands.push_back(weight.bytes);
    if (bias.builder != nullptr) operands.push_back(bias);
    Var const y = graph::custom<detail::StoredProduct>(operands, detail::stored_reals(weights), where);
    constexpr auto axis = graph::MeshAxis::tensor;
    return addend ? graph::all_reduce(graph::partial(y, axis, where), axis, comm::PortOp::sum, where) : y;
  }
};
/// silu(x gate^T) * (x up^T).
struct StoredGate {
  StoredWeight gate, up;

  Var operator()(Var x, graph::Where where = graph::Where::current()) const {
    return graph::custom<detail::StoredSwiGlu>({x, gate.bytes, up.bytes}, detail::stored_reals({gate, up}), where);
  }
};
/// Rows of the table for tokens (rows): float32 (rows, in). A token that the table lacks gives zeros.
inline Var stored_rows(StoredWeight const& table, Var tokens, graph::Where where = graph::Where::current()) {
  return graph::custom<detail::StoredRows>({tokens, table.bytes}, detail::stored_reals({table}), where);
}

}  // namespace tutti::nn

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Gradients in fewer bytes: bfloat16, int8, the largest values, and PowerSGD, each with what a rank did not send kept
/// for the next step (error feedback), as operations of a step's graph. They are models of optim::GradientCompressor,
/// as one of your own can be.
///
/// Ranks         any number; on one nothing travels and gradients lose the same, so that losses can be compared.
/// Determinism   the same bits on every rank, and from run to run on the same layout.
/// Devices       processors.

#include <tutti/core/concat.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/optim/gradient_compressor.hpp>
#include <tutti/parallel/compression_choice.hpp>
#include <tutti/parallel/gradient_codes.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::parallel {

using optim::GradientAverage;

/// Half the bytes: values, and the sums of the reduction, rounded to bfloat16. Every parameter's gradient.
struct Bfloat16Compressor {
  constexpr graph::Var average(GradientAverage const& g) const {
    return g.with_feedback([&](graph::Var sum) -> GradientAverage::Sent {
      graph::Var const said = convert(sum, DType::bfloat16, g.where);
      graph::Var const mean = all_reduce(said, comm::PortOp::avg, g.where);
      return {convert(mean, DType::float32, g.where), convert(said, DType::float32, g.where)};
    });
  }
  std::string describe() const { return "as bfloat16, with error feedback"; }
};

namespace detail {

/// Every rank's code is gathered, decoded and averaged in the order of ranks: of P ranks each gets P - 1 codes.
template <class Code>
constexpr graph::Var gathered_average(GradientAverage const& g, Code const& code) {
  Shape const shape = g.gradient.shape(g.where);
  if (g.rank() < 2) return g.exact();
  auto const size = static_cast<double>(shape.size());
  return g.with_feedback([&](graph::Var sum) -> GradientAverage::Sent {
    List<double> const reals{code.setting(), size};
    graph::Var const own = graph::custom<Encoded<Code>>({reshape(sum, {shape.size()}, g.where)}, reals, g.where);
    graph::Var const all = all_gather(own, g.ranks, g.where);
    auto const decoded = [&](graph::Var bytes) {
      return reshape(graph::custom<Decoded<Code>>({bytes}, reals, g.where), shape, g.where);
    };
    return {decoded(all), decoded(own)};
  });
}

}  // namespace detail

/// A quarter of the bytes: of every 128 values one scale, and a whole number in [-127, 127] for each, as
/// parallel/outer_gradient.hpp encodes them. Vectors, the axis of layers not counted, travel as they are.
/// Traffic   P - 1 codes to every one of P ranks, where an exact reduction has about two gradients: with eight ranks or
///           more it saves nothing
struct Int8Compressor {
  constexpr graph::Var average(GradientAverage const& g) const { return detail::gathered_average(g, Int8Code{}); }
  std::string describe() const { return "as int8, one scale for 128 values, with error feedback"; }
};

/// Of every 4096 values the largest `share`, as bfloat16 with 16 bits that say where. Vectors travel as they are.
/// Source    Aji, Heafield 2017 (arXiv 1704.05021); in chunks: SparseLoCo (arXiv 2508.15706). Traffic: as int8
struct TopKCompressor {
  double share = 0.01;  ///< in (0, 1]
  constexpr graph::Var average(GradientAverage const& g) const {
    return detail::gathered_average(g, TopKCode{share});
  }
  std::string describe() const {
    return concat("the largest ", 100 * share, "% of every ", TopKCode::chunk, " values, with error feedback");
  }
};

/// Matrices as the product of two thin ones, found by one step of subspace iteration from those of the step before.
/// Vectors, and matrices that would not become half as large, travel as they are.
/// Shapes    M (m, n), of a stack (L, m, n), each layer for itself: P (m, r), Q (n, r)
/// Computes  P = avg(M Q), orthonormal; Q' = avg(M^T P); the average is P Q'^T. Columns of Q of length 0 begin at
///           random
/// States    "compression.unsent.NAME" of each rank, "compression.power.NAME": Q
/// Source    Vogels, Karimireddy, Jaggi 2019 (arXiv 1905.13727), algorithm 1, and 2 for what stays behind
struct PowerSgdCompressor {
  std::int64_t rank = 4;  ///< r, at least 1
  constexpr graph::Var average(GradientAverage const& g) const {
    using graph::Operand, graph::Var;
    graph::Where const where = g.where;
    Shape const shape = g.gradient.shape(where);
    int const first = g.stacked ? 1 : 0;
    if (g.rank() < 2) return g.exact();
    std::int64_t const layers = g.stacked ? shape[0] : 1, m = shape[first];
    std::int64_t const n = layers * m > 0 ? shape.size() / (layers * m) : 0;
    if (2 * rank * (m + n) > m * n) return g.exact();
    auto const product = [&](Var a, Var b, int contract_a, int contract_b) {
      return graph::dot_general(a, b, {contract_a}, {contract_b}, {0}, {0}, where);
    };
    Shape const thin{layers, n, rank};
    return g.with_feedback([&](Var sum) -> GradientAverage::Sent {
      Var const q = g.state("power", thin, graph::StateUpdate::replicated);
      Var const matrix = reshape(sum, {layers, m, n}, where);
      Var const squares = graph::reduce(graph::Op::reduce_sum, Operand(q, where) * q, {1}, where);
      Var const inverse = rsqrt(Operand(squares, where) + Operand(1e-30, where), where);
      Var const unit = Operand(q, where) * graph::broadcast_in_dim(inverse, thin, {0, 2}, where);
      Var const start = Operand(unit, where) + Operand(noise(g, thin), where);
      Var const left = all_reduce(product(matrix, start, 2, 1), comm::PortOp::avg, where);
      Var const basis = graph::custom<Orthonormal>({left}, {}, where);
      Var const right = all_reduce(product(matrix, basis, 1, 1), comm::PortOp::avg, where);
      g.builder.update(q, right, where);
      Var const mean = reshape(product(basis, right, 2, 2), shape, where);
      return {mean, mean};
    });
  }
  std::string describe() const { return concat("by PowerSGD of rank ", rank, ", with error feedback"); }

 private:
  /// About 1e-6, always the same: what a column begins with that has no length.
  static constexpr graph::Var noise(GradientAverage const& g, Shape const& shape) {
    using graph::Operand;
    auto const number = [&](double value) { return graph::constant(g.builder, value, {}, DType::int64, g.where); };
    graph::Var const bits = graph::rng_bits(shape, number(1905), number(13727), number(1), g.where);
    graph::Var const uniform = Operand(convert(bits, DType::float32, g.where), g.where) * Operand(0x1p-31, g.where);
    return (Operand(uniform, g.where) - Operand(1.0, g.where)) * Operand(1e-6, g.where);
  }
};

/// The compressor that was chosen, or none.
inline optim::AnyCompressor compressor_of(CompressionChoice const& choice) {
  using Kind = CompressionChoice::Kind;
  switch (choice.kind) {
    case Kind::bf16: return Bfloat16Compressor{};
    case Kind::int8: return Int8Compressor{};
    case Kind::topk: return TopKCompressor{choice.share};
    case Kind::powersgd: return PowerSgdCompressor{choice.rank};
    case Kind::none: break;
  }
  return {};
}
/// By its name. Errors: those of parse_compression.
inline optim::AnyCompressor compressor_of(std::string_view text) { return compressor_of(parse_compression(text)); }

}  // namespace tutti::parallel

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum whose matrices are made nearly
/// orthogonal, for the weights between hidden layers; AdamW for the rest.

#include <tutti/core/concat.hpp>
#include <tutti/optim/adamw.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace tutti::optim {

/// Factor of the orthogonal move O (m, n), whose singular values are about 1.
enum class MuonScale : unsigned char {
  match_adamw,  ///< 0.2 sqrt(max(m, n)): elements move as far as AdamW moves them, so that its learning rates and
                ///< decays serve both parts (Liu et al. 2025, arXiv 2502.16982)
  spectral,  ///< sqrt(max(1, m / n)), as published first; its learning rate, about 0.02, is the whole model's
};

/// The nearest orthogonal matrix, roughly: singular values come to lie between about 0.7 and 1.2.
/// Shapes    x (m, n), or (L, m, n): each of L matrices for itself
/// Computes  X = x / (|x| + 1e-7), Frobenius norm; then `steps` times A = X X^T, X = a X + (b A + c A A) X with
///           a = 3.4445, b = -4.7750, c = 2.0315, from the smaller side of the matrix
/// Source    Newton-Schulz iteration with Jordan's coefficients
constexpr graph::Var orthogonalised(graph::Var x, int steps = 5, graph::Where where = graph::Where::current()) {
  using graph::Operand, graph::Var;
  Shape const shape = x.shape(where);
  bool const layers = shape.rank() == 3;
  if (shape.rank() != 2 && !layers)
    graph::refuse(where, "orthogonalised", "a matrix (m, n), or matrices (L, m, n), are needed", shape);
  int const first = layers ? 1 : 0;
  auto const value = [&](Var v) { return Operand(v, where); };
  auto const product = [&](Var a, Var b, int contract_a, int contract_b) {
    List<std::int64_t> batch;
    if (layers) batch.push_back(0);
    return graph::dot_general(a, b, {first + contract_a}, {first + contract_b}, batch, batch, where);
  };
  List<std::int64_t> sides{first, first + 1}, to;
  if (layers) to.push_back(0);
  Var const norm = sqrt(reduce(graph::Op::reduce_sum, value(x) * x, sides, where), where);
  Var const inverse =
      value(graph::constant(*x.builder, 1, norm.shape(), DType::float32, where)) / (value(norm) + Operand(1e-7, where));
  Var y = value(x) * graph::broadcast_in_dim(inverse, shape, to, where);
  bool const wide = shape[first] <= shape[first + 1];
  for (int step = 0; step < steps; ++step) {
    Var const gram = wide ? product(y, y, 1, 1) : product(y, y, 0, 0);
    Var const by = value(gram) * Operand(-4.7750, where) + value(product(gram, gram, 1, 0)) * Operand(2.0315, where);
    y = value(y) * Operand(3.4445, where) + value(wide ? product(by, y, 1, 0) : product(y, by, 1, 0));
  }
  return y;
}

/// Hidden matrices (`minimise` says which) move by their orthogonalised momentum, each layer of a stack for itself;
/// embeddings, heads, vectors and what a group calls `vector` by AdamW. A matrix that holds several side by side, as
/// GPT-2's qkv, is one. Weight decay is apart from the gradient, in both parts.
/// Computes  velocity' = momentum * velocity + (1 - momentum) * gradient
///           O = orthogonalised(nesterov ? (1 - momentum) * gradient + momentum * velocity' : velocity')
///           parameter' = (1 - rate * decay) * parameter - rate * scale(m, n) * O
/// States    "velocity.NAME" of hidden matrices; AdamW's of the rest
/// Products  in float32, or with graph::amp in bfloat16, as published
/// Ranks     all compute every matrix, of which each has its own copy; AdamW's part they share out
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0;
  MuonScale scale = MuonScale::match_adamw;
  int steps = 5;  ///< of the iteration
  AdamW adamw{};  ///< of the rest; its weight decay is not read: there is one

  constexpr void update(ParameterUpdate const& p) const {
    using graph::Operand, graph::Var;
    if (!p.hidden_matrix) return adamw.update(p);
    if (p.parameter.type(p.where).replication[graph::MeshAxis::data] == graph::Replication::varying)
      graph::refuse(p.where, "Muon", ErrorKind::unavailable,
                    "'" + std::string(p.name) + "' is divided among the ranks of the data axis, and to make a matrix "
                    "orthogonal takes all of it. Use AdamW or SGD, or whole parameters");
    if (p.parameter.type(p.where).replication[graph::MeshAxis::tensor] == graph::Replication::varying)
      graph::refuse(p.where, "Muon", ErrorKind::unavailable,
                    "'" + std::string(p.name) + "' is divided among the ranks of the tensor axis, and to make a matrix "
                    "orthogonal takes all of it. Use AdamW or SGD, or no tensor parallelism");
    auto const value = [&](Var v) { return Operand(v, p.where); };
    auto const number = [&](double v) { return Operand(v, p.where); };
    Shape const& shape = p.parameter.shape();
    double const m = static_cast<double>(shape[shape.rank() - 2]), n = static_cast<double>(shape[shape.rank() - 1]);
    double const root = scale == MuonScale::match_adamw ? std::max(m, n) : std::max(1.0, n > 0 ? m / n : 1.0);
    double const factor = (scale == MuonScale::match_adamw ? 0.2 : 1.0) * root_of(root);
    Var const velocity = p.state("velocity");
    Var const part = value(p.gradient) * (value(p.gradient_scale) * number(1 - momentum));
    Var const next = value(velocity) * number(momentum) + value(part);
    Var const move = nesterov ? value(part) + value(value(next) * number(momentum)) : next;
    Var const step = value(orthogonalised(move, steps, p.where)) * (value(p.learning_rate) * number(factor));
    p.builder.update(p.parameter, value(p.decayed()) - value(step), p.where);
    p.builder.update(velocity, next, p.where);
  }
  List<StepScalar> scalars(std::int64_t step) const { return adamw.scalars(step); }
  std::string describe() const {
    return concat("Muon, ", nesterov ? "Nesterov " : "", "momentum ", momentum, ", scale ",
                  scale == MuonScale::match_adamw ? "of AdamW" : "spectral",
                  "; AdamW for embeddings, heads and vectors, betas ", adamw.beta1, " ", adamw.beta2, "; weight decay ",
                  weight_decay);
  }

 private:
  static constexpr double root_of(double x) { return x > 0 ? x * graph::detail::reciprocal_root(x) : 0; }
};

}  // namespace tutti::optim

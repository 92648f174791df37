// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// AdamW (Loshchilov, Hutter 2019, arXiv 1711.05101).

#include <tutti/core/concat.hpp>
#include <tutti/optim/optimizer.hpp>

#include <cmath>
#include <cstdint>
#include <string>

namespace tutti::optim {

/// States  "m.NAME", "v.NAME": moving averages of the gradient and of its squares
/// Ranks   the only optimizer whose updates ranks that share their state divide (docs/adr/0011)
struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;

  constexpr void update(ParameterUpdate const& p) const {
    graph::Var const correction1 = p.scalar("correction1"), correction2 = p.scalar("correction2");
    graph::Var const m = p.state("m"), v = p.state("v");
    auto const next = graph::adamw(p.parameter, p.gradient, m, v, p.learning_rate, correction1, correction2,
                                   p.gradient_scale, {beta1, beta2, epsilon, p.weight_decay}, p.where);
    p.builder.update(p.parameter, next.parameter, p.where);
    p.builder.update(m, next.m, p.where);
    p.builder.update(v, next.v, p.where);
  }
  List<StepScalar> scalars(std::int64_t step) const {
    double const n = static_cast<double>(step);
    return {{"correction1", 1 - std::pow(beta1, n)}, {"correction2", 1 - std::pow(beta2, n)}};
  }
  std::string describe() const { return concat("AdamW, betas ", beta1, " ", beta2, ", weight decay ", weight_decay); }
};

}  // namespace tutti::optim

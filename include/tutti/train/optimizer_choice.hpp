// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The optimizer that options choose.

#include <tutti/optim/muon.hpp>
#include <tutti/optim/sgd.hpp>
#include <tutti/train/options.hpp>

namespace tutti::train {

inline optim::AnyOptimizer optimizer_of(Options const& o) {
  optim::AdamW const adamw{.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay};
  switch (OptimizerName{o.optimizer}) {
    case OptimizerName::sgd:
      return optim::Sgd{.momentum = o.momentum, .nesterov = o.nesterov, .weight_decay = o.weight_decay};
    case OptimizerName::muon:
      return optim::Muon{
          .momentum = o.momentum,
          .weight_decay = o.weight_decay,
          .scale = o.muon_scale == MuonScaleName::spectral ? optim::MuonScale::spectral : optim::MuonScale::match_adamw,
          .adamw = adamw};
    case OptimizerName::adamw: break;
  }
  return adamw;
}

}  // namespace tutti::train

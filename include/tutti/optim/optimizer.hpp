// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What an optimizer is: a value that adds the update of one parameter to a program of a training step, and says what
/// that program's scalars are at every step.

#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/reflect/members.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::optim {

/// One parameter whose update is to be added to the program.
struct ParameterUpdate {
  graph::Builder& builder;
  graph::Var parameter, gradient;  ///< float32; the gradient is that of the whole batch, not clipped yet
  graph::Var gradient_scale;       ///< (): what clipping multiplies gradients with
  graph::Var learning_rate;        ///< (): with the factor of the parameter's group in it
  double weight_decay = 0;         ///< of this parameter: 0 where it does not decay
  std::string_view name;           ///< as "blocks.qkv.weight"
  std::string_view step{};         ///< StepOptions::name
  bool stacked = false;            ///< the first axis counts layers, each a parameter of its own
  bool hidden_matrix = false;      ///< a matrix between hidden layers, for optimizers of matrices: see minimise
  graph::Where where;

  /// Zeros of the parameter's shape at the first step, kept from step to step and in checkpoints as "PREFIX.NAME". The
  /// prefix tells optimizers apart.
  constexpr graph::Var state(std::string_view prefix) const {
    graph::Type const type = parameter.type(where);
    bool const part = type.replication[graph::MeshAxis::data] == graph::Replication::varying;
    return builder.state(reflect::Path(prefix).append(".").append(name), type, graph::zeros(),
                         part ? graph::StateUpdate::part : graph::StateUpdate::replicated, where);
  }
  /// A number of the step, float32 (), which `scalars` gives; the same for all parameters.
  constexpr graph::Var scalar(std::string_view scalar_name) const {
    return builder.shared_scalar(reflect::joined(step, scalar_name), DType::float32, where);
  }
  /// The parameter less learning_rate * weight_decay of it, which no moment sees (Loshchilov, Hutter 2019).
  constexpr graph::Var decayed() const {
    using graph::Operand;
    if (weight_decay == 0) return parameter;
    graph::Var const product = Operand(learning_rate, where) * Operand(-weight_decay, where);
    graph::Var const shrink = Operand(product, where) + Operand(1.0, where);
    return Operand(parameter, where) * Operand(shrink, where);
  }
};

/// A scalar of a program and its value at a step.
struct StepScalar {
  std::string_view name;
  double value = 0;
};

/// `update` makes states and updates them and the parameter through the builder, of operations that all ranks do alike:
/// the gradient is the same on all. `weight_decay` is what parameters that decay have, unless their group says
/// otherwise. `scalars` are those that updates may ask for at step `step`, counted from 1.
/// Determinism  updates are operations of the graph: a step on the same layout gives the same bits
template <class O>
concept Optimizer = requires(O const& optimizer, ParameterUpdate const& parameter, std::int64_t step) {
  optimizer.update(parameter);
  { optimizer.weight_decay } -> std::convertible_to<double>;
  { optimizer.scalars(step) } -> std::same_as<List<StepScalar>>;
  { optimizer.describe() } -> std::convertible_to<std::string>;  ///< its name, then its settings
};

/// Any optimizer, in one type: what takes one is compiled once.
class AnyOptimizer {
 public:
  template <class O>
  requires(!std::same_as<O, AnyOptimizer>) && Optimizer<O> AnyOptimizer(O optimizer)
      : weight_decay(optimizer.weight_decay),
  self_(make_shared_owner<Model<O>>(std::move(optimizer))) {}

  double weight_decay;

  void update(ParameterUpdate const& parameter) const { self_->update(parameter); }
  List<StepScalar> scalars(std::int64_t step) const { return self_->scalars(step); }
  std::string describe() const { return self_->describe(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual void update(ParameterUpdate const&) const = 0;
    virtual List<StepScalar> scalars(std::int64_t step) const = 0;
    virtual std::string describe() const = 0;
  };
  template <class O>
  struct Model final : Interface {
    explicit Model(O of) : optimizer(std::move(of)) {}
    void update(ParameterUpdate const& parameter) const override { optimizer.update(parameter); }
    List<StepScalar> scalars(std::int64_t step) const override { return optimizer.scalars(step); }
    std::string describe() const override { return optimizer.describe(); }
    O optimizer;
  };
  Shared<Interface const> self_;
};

/// Gives a program of `minimise` its learning rate and the optimizer's scalars for step `step`, counted from 1.
/// `name`: the StepOptions::name of several in one program.
template <Optimizer O, class Run>
void set_step(Run& run, O const& optimizer, double learning_rate, std::int64_t step, std::string_view name = {}) {
  run.set(reflect::joined(name, "learning_rate"), learning_rate);
  for (StepScalar const& scalar : optimizer.scalars(step))
    if (reflect::Path const text = reflect::joined(name, scalar.name); run.takes(text)) run.set(text, scalar.value);
}

}  // namespace tutti::optim

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What makes gradients smaller for their way between ranks: a value that adds the average of one gradient to a program
/// of a training step. tutti/parallel/compression.hpp has bfloat16, int8, the largest values, and PowerSGD.

#include <tutti/core/shared.hpp>
#include <tutti/graph/ops.hpp>
#include <tutti/graph/ops_indexing.hpp>
#include <tutti/reflect/members.hpp>

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::optim {

/// Whether a state is a compressor's. A run that begins to compress starts it as it was made.
constexpr bool is_of_compression(std::string_view state) noexcept { return state.starts_with("compression."); }
/// Whether it holds what a rank has not sent yet. Of these only the mean over ranks counts.
constexpr bool is_unsent(std::string_view state) noexcept { return state.starts_with("compression.unsent."); }

/// One gradient whose average over the ranks of the data axis is to be added to the program.
struct GradientAverage {
  graph::Builder& builder;
  graph::Var gradient;     ///< float32, this rank's own: varying
  std::string_view name;   ///< of the parameter, as "blocks.qkv.weight"
  bool stacked = false;    ///< the first axis counts layers, each a parameter of its own
  int ranks = 1;           ///< of the data axis
  graph::Where where{};

  /// Axes without that of layers.
  constexpr int rank() const { return gradient.rank(where) - (stacked ? 1 : 0); }
  /// The average itself, as a run without compression makes it.
  constexpr graph::Var exact() const { return all_reduce(gradient, comm::PortOp::avg, where); }
  /// Zeros at the first step, kept from step to step and in checkpoints as "compression.WHAT.NAME".
  constexpr graph::Var state(std::string_view what, Shape const& shape, graph::StateUpdate across) const {
    return builder.state(reflect::Path("compression.").append(what).append(".").append(name),
                         {DType::float32, gradient.type(where).replication, shape}, graph::zeros(), across, where);
  }

  /// What `send(sum)` makes of the gradient and of what was not sent before.
  struct Sent {
    graph::Var average;  ///< replicated
    graph::Var said;     ///< what of `sum` is in it: the rest is kept for the next step
  };
  /// Error feedback (Seide et al. 2014; Karimireddy et al. 2019, arXiv 1901.09847): averages lose nothing for good.
  /// Computes  sum = gradient + unsent; unsent' = sum - said
  template <class Send>
  constexpr graph::Var with_feedback(Send&& send) const {
    graph::Var const unsent = state("unsent", gradient.shape(where), graph::StateUpdate::per_rank);
    graph::Var const sum = graph::Operand(gradient, where) + unsent;
    Sent const sent = send(sum);
    builder.update(unsent, graph::Operand(sum, where) - sent.said, where);
    return sent.average;
  }
};

/// `average` returns a value of the gradient's shape and type that is the same on all ranks, of operations of the
/// graph; it may make states and update them. All ranks have the same program.
template <class C>
concept GradientCompressor = requires(C const& compressor, GradientAverage const& gradient) {
  { compressor.average(gradient) } -> std::same_as<graph::Var>;
  { compressor.describe() } -> std::convertible_to<std::string>;  ///< "int8, one scale for 128 values"
};

/// Any compressor, or none, in one type: what takes one is compiled once.
class AnyCompressor {
 public:
  AnyCompressor() = default;  ///< none: gradients travel as they are
  template <class C>
  requires(!std::same_as<C, AnyCompressor>) && GradientCompressor<C> AnyCompressor(C compressor)
      : self_(make_shared_owner<Model<C>>(std::move(compressor))) {}

  explicit operator bool() const noexcept { return static_cast<bool>(self_); }
  /// Requires  that there is one.
  graph::Var average(GradientAverage const& gradient) const { return self_->average(gradient); }
  std::string describe() const { return self_->describe(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual graph::Var average(GradientAverage const&) const = 0;
    virtual std::string describe() const = 0;
  };
  template <class C>
  struct Model final : Interface {
    explicit Model(C of) : compressor(std::move(of)) {}
    graph::Var average(GradientAverage const& gradient) const override { return compressor.average(gradient); }
    std::string describe() const override { return compressor.describe(); }
    C compressor;
  };
  Shared<Interface const> self_;
};

}  // namespace tutti::optim

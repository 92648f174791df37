// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a trainer's main calls: one of the library's models, or one of your own, trained as the options say.

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/train/loop.hpp>
#include <tutti/train/model_choice.hpp>

#include <optional>
#include <utility>
#include <variant>

namespace tutti::train {

namespace detail {
/// Who asks for a plan wants no training, and nothing deleted. Errors: configuration.
inline void refuse_plans(Options const& options) {
  if (options.dry_run)
    refuse(
        "--dry-run: this program plans nothing. Leave it out; a program that calls tutti::plan::dry_run "
        "(tutti/plan/dry_run.hpp) has plans");
}
/// Nothing, once the lowest rank that finds it so has said that no such mesh is of these ranks. Ranks: all.
template <Backend B>
std::optional<parallel::DataParallel> ranks_of(Communicator<B>& communicator, Options const& o) {
  parallel::MeshSizes sizes;
  if (!all_succeed(*comm::port(communicator), [&] {
        sizes = parallel::mesh_sizes(communicator.size(), o.data_parallel, o.tensor_parallel, o.pipeline_parallel);
      }))
    return std::nullopt;
  return parallel::mesh(communicator, sizes,
                        o.zero_stage() == 1 ? parallel::Replicas::sharded
                        : o.zero_stage() > 1 || o.replicas_per_rank || !o.offload_optimizer.empty()
                            ? parallel::Replicas::per_rank
                            : parallel::Replicas::per_node);
}
}  // namespace detail

/// Trains the GPT-2, LLaMA or StableHLO module that the options, or the checkpoint to resume, choose. As run_training.
template <class Device = Cpu, Backend B>
int train_model(Communicator<B>& communicator, Options const& options, Viewers const& viewers = {}) {
  std::optional<parallel::DataParallel> const ranks = detail::ranks_of(communicator, options);
  if (!ranks) return 1;
  std::optional<Setup> setup;
  ModelChoice choice;
  if (!all_succeed(*ranks->everyone(), [&] {
        detail::refuse_plans(options);
        setup = make_setup(options, ranks->everyone()->size(), [&](Setup& s) { choice = choose_model(s); });
        require_batch(*setup, choice, ranks->port->size());
      }))
    return 1;
  return std::visit(
      [&](auto const& config) {
        return run_training<decltype(detail::loss_of(config)), Device>(
            *ranks, {communicator.local_rank(), communicator.local_size()}, std::move(*setup), config,
            std::move(choice.initial), {}, viewers);
      },
      choice.config);
}

/// Trains a model of your own: `Loss` as TrainStep wants it, its configuration from make_config(setup), which knows the
/// options and the tokenizer. As run_training. Flags of sizes mean what make_config makes of them; --pack documents
/// wants a member document_mark of the configuration (require_documents_apart). An `optimizer` of your own is used in
/// the place of the one that the options choose.
template <class Loss, class Device = Cpu, Backend B, class MakeConfig>
  requires requires { typename Loss::Config; }
int train_model(Communicator<B>& communicator, Options const& options, MakeConfig&& make_config,
                std::optional<optim::AnyOptimizer> const& optimizer = {}, Viewers const& viewers = {}) {
  std::optional<parallel::DataParallel> const ranks = detail::ranks_of(communicator, options);
  if (!ranks) return 1;
  std::optional<Setup> setup;
  std::optional<typename Loss::Config> config;
  if (!all_succeed(*ranks->everyone(), [&] {
        detail::refuse_plans(options);
        setup = make_setup(options, ranks->everyone()->size(), [&](Setup& s) {
          config = make_config(std::as_const(s));
          s.model = facts_of(*config);
          require_documents_apart(s, *config);
          if (s.resume && architecture_of(*s.resume) != s.model.architecture)
            detail::refuse("--resume: the checkpoint is of a model of architecture " + architecture_of(*s.resume));
        });
      }))
    return 1;
  return run_training<Loss, Device>(*ranks, {communicator.local_rank(), communicator.local_size()}, std::move(*setup),
                                    *config, {}, optimizer, viewers);
}

}  // namespace tutti::train

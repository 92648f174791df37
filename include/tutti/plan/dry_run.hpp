// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What `train_gpt2 --dry-run` does: plans the run that its flags say on the ranks that were started, and leaves.

#include <tutti/parallel/compression.hpp>
#include <tutti/parallel/stage_balance.hpp>
#include <tutti/plan/machine.hpp>
#include <tutti/plan/measure.hpp>
#include <tutti/plan/prediction.hpp>
#include <tutti/plan/table.hpp>
#include <tutti/plan/timeline.hpp>
#include <tutti/train/all_succeed.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/optimizer_choice.hpp>
#include <tutti/train/pipeline_choice.hpp>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace tutti::plan {

/// What a setup trains, on the rank with the largest share.
inline Work work_of(train::Setup const& setup) {
  train::Options const& o = setup.options;
  Work work;
  train::TrainStepOptions& options = work.options;  // member by member: g++ 12 warns of a temporary's
  options.batch = setup.rows;
  options.sequence = o.sequence;
  options.evaluation_batch = setup.rows;
  options.micro_steps = setup.micro_steps;
  options.clip = o.clip;
  options.compute = o.compute_dtype();
  options.recompute = o.recompute;
  options.keep_packed = o.keep_packed;
  options.bucket_bytes = o.bucket_bytes;
  options.offload_optimizer = o.offload_optimizer;
  options.groups = optim::parse_groups(o.groups);
  options.weigh_targets = setup.train && setup.train->leaves_out_targets();
  options.sequence_parallel = o.sequence_parallel;
  options.compress = parallel::compressor_of(o.compress);
  work.optimizer = train::optimizer_of(o);
  return work;
}

/// Measures the programs of the setup's layout where they fit into memory, three runs each, and prints the plan on rank
/// 0. Nothing is written. Ranks: all. Blocking.
template <class Loss>
int dry_run(Place const& place, train::Setup const& setup, typename Loss::Config const& config) {
  train::Options const& o = setup.options;
  bool const speaks = place.everyone->rank() == 0;
  Work const work = work_of(setup);
  parallel::PipelineLayout const stages = parallel::balanced(train::pipeline_layout(o, setup.mesh.pipeline, 0),
                                                             train::loss_graph<Loss>(config, work.options, true));
  Layout const layout{.data = setup.mesh.data,
                      .tensor = setup.mesh.tensor,
                      .pipeline = stages.stages,
                      .zero = o.zero,
                      .micro_steps = setup.micro_steps,
                      .schedule = stages.schedule,
                      .chunks = stages.virtual_stages,
                      .layers = stages.layers};
  exec::Context context({.threads = o.threads, .ranks_on_node = place.on_node});
  Cluster cluster = measure_machine(context, place);
  cluster.shared_state = cluster.shared_state && !o.replicas_per_rank && o.zero == 0;
  std::optional<Prediction> plan;
  if (!train::all_succeed(*place.everyone, [&] { plan = predict<Loss>(config, work, layout, cluster); })) return 1;
  Simulation picture;
  // All ranks have the same programs and may still see different amounts of memory: they decide together.
  double fitting[1] = {plan->refused.empty() ? 1.0 : 0.0};
  parallel::all_reduce(*place.everyone, fitting, comm::PortOp::min);
  if (fitting[0] > 0) {
    Measurement const measured =
        measure_steps<Loss>(context, config, work, layout, cluster, 3, place.of_process,
                            [&](double x) { return parallel::largest(*place.everyone, x); });
    cluster.process_memory = measured.beside;
    measure_messages(cluster, place);
    plan = predict<Loss>(config, work, layout, cluster, &measured.steps, &picture);
  }
  if (!speaks) return 0;
  std::string text = concat("dry run: ", setup.model.origin, ", ", setup.model.sizes, "\n",
                            to_string(rows_of(*plan)));
  if (fitting[0] > 0) {
    text += timeline_text(picture);
    text += fmt::format("{} steps of {} tokens take about {}, beside validation, samples and checkpoints\n",
                        setup.steps, train::with_commas(setup.tokens_per_step()),
                        train::human_time(plan->seconds * static_cast<double>(setup.steps)));
  }
  std::fputs(text.c_str(), stdout);
  return plan->refused.empty() ? 0 : 1;
}

/// The same of the model that options choose. Returns the exit code for main: 1 where a run cannot be.
/// Ranks: all, with the same options. Blocking.
inline int dry_run(Place const& place, train::Options const& options) {
  std::optional<train::Setup> setup;
  train::ModelChoice choice;
  bool const done = train::all_succeed(*place.everyone, [&] {
    if (options.algorithm != train::AlgorithmName::ddp)
      throw Error(ErrorKind::unavailable, "train_model",
                  "--dry-run plans steps that average gradients. Leave out it or --algorithm diloco");
    if (options.rank_shares != "even")
      throw Error(ErrorKind::unavailable, "train_model",
                  "--dry-run plans ranks of equal speed. Leave out it or --rank-shares");
    if (options.device != train::DeviceName::cpu)
      throw Error(ErrorKind::unavailable, "train_model",
                  "--dry-run measures processors. For GPUs describe them in a file, for ./tutti plan --cluster FILE");
    setup =
        train::make_setup(options, place.everyone->size(), [&](train::Setup& s) { choice = train::choose_model(s); });
    train::require_batch(*setup, choice, setup->mesh.data);
  });
  if (!done) return 1;
  return std::visit(
      [&](auto const& config) {
        return dry_run<decltype(train::detail::loss_of(config))>(place, *setup, config);
      },
      choice.config);
}

}  // namespace tutti::plan

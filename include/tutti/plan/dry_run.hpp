// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What `train_gpt2 --dry-run` does: plans the run that its flags say on the ranks that were started, and leaves.

#include <tutti/parallel/compression.hpp>
#include <tutti/plan/machine.hpp>
#include <tutti/plan/prediction.hpp>
#include <tutti/plan/table.hpp>
#include <tutti/plan/timeline.hpp>
#include <tutti/train/all_succeed.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/optimizer_choice.hpp>

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
  work.options = {.batch = setup.rows,
                  .sequence = o.sequence,
                  .evaluation_batch = setup.rows,
                  .micro_steps = setup.micro_steps,
                  .clip = o.clip,
                  .compute = o.compute_dtype(),
                  .recompute = o.recompute,
                  .keep_packed = o.keep_packed,
                  .bucket_bytes = o.bucket_bytes,
                  .offload_optimizer = o.offload_optimizer,
                  .groups = optim::parse_groups(o.groups),
                  .weigh_targets = setup.train && setup.train->leaves_out_targets(),
                  .compress = parallel::compressor_of(o.compress)};
  work.optimizer = train::optimizer_of(o);
  return work;
}

/// Measures the programs of the setup's layout where they fit into memory, three runs each, and prints the plan on rank
/// 0. Nothing is written. Ranks: all. Blocking.
template <class Loss>
int dry_run(Place const& place, train::Setup const& setup, typename Loss::Config const& config) {
  train::Options const& o = setup.options;
  bool const speaks = place.everyone->rank() == 0;
  Layout const layout{.data = setup.mesh.data, .tensor = setup.mesh.tensor, .zero = o.zero,
                      .micro_steps = setup.micro_steps};
  Work const work = work_of(setup);
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
                            [&] { parallel::barrier(*place.everyone); });
    cluster.process_memory = measured.beside;
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

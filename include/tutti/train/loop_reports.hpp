// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a training run tells and measures: its beginning, steps, validation, samples, gradients, its end.

#include <tutti/train/loop.hpp>

#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::train {

template <class Loss, class Device>
void Run<Loss, Device>::tell() {
  auto const [step, rate] = *under_way_;
  under_way_.reset();
  StepResult result = step_.finish();
  // Of a norm that is not finite come parameters that are not: they must not be kept.
  bool const loss_finite = std::isfinite(result.loss), finite = loss_finite && std::isfinite(result.grad_norm);
  bool const diverged = agree(!finite, (now() - told_) * 1e3 - result.exposed_comm_ms);
  if (!diverged) std::visit([&](auto& algorithm) { algorithm.finish_step(step + 1, result); }, algorithm_);
  double const seconds = now() - told_;
  told_ += seconds;
  double const speed = static_cast<double>(setup_.tokens_per_step()) / seconds;
  double const utilisation = speed * flops_per_token() / peak_flops_;
  RunOutputs::Json row{{"type", "step"},
                       {"step", step + 1},
                       {"loss", result.loss},
                       {"grad_norm", result.grad_norm},
                       {"lr", rate},
                       {"ms", seconds * 1e3},
                       {"tokens_per_second", speed},
                       {"mfu", utilisation},
                       {"exposed_comm_ms", result.exposed_comm_ms},
                       {"slowest_ms", slowest_.ms},
                       {"slowest_rank", slowest_.rank}};
  if (port_->size() > data_ranks())
    for (int axis = 0; axis < graph::mesh_axes; ++axis)
      if (double const ms = result.exposed_axis_ms[static_cast<std::size_t>(axis)]; ms > 0)
        row["exposed_axis_ms"][std::string(name(static_cast<graph::MeshAxis>(axis)))] = ms;
  if (data::MixtureLoader const& sets = *setup_.train; sets.sets() > 1)
    for (std::size_t set = 0; set < sets.sets(); ++set) row["epochs"][sets.name(set)] = sets.epochs_at(step + 1, set);
  outputs_.record(row);
  if (writer_.ready()) finish_checkpoint();
  step_seconds_ += seconds;
  waited_ms_ = result.exposed_comm_ms;
  done_ = step + 1;
  if (diverged) {
    float const value = loss_finite ? result.grad_norm : result.loss;
    diverged_ = fmt::format("the {} of step {} is {}: training has diverged. Lower --learning-rate, or resume an "
                            "earlier checkpoint{}",
                            loss_finite ? "gradient's norm" : "loss", done_, std::isnan(value) ? NAN : value,
                            !origin_.empty()                 ? origin_
                            : o().gradient_statistics == 1 ? ""
                                                             : "; with --gradient-statistics 1 it tells which "
                                                               "operation made what is not finite");
  }
}

template <class Loss, class Device>
void Run<Loss, Device>::announce() {
  exec::Context const& host = machine_.host();
  int const busy = host.threads() * ranks_on_node_, may = exec::available_processors();
  auto const describe = [](auto const& algorithm) { return algorithm.describe(); };
  auto const traffic = [&](auto const& algorithm) {
    return algorithm.describe_traffic(step_.parameter_count());
  };
  outputs_.table(start_table(setup_, {.device = machine_.describe(),
                                      .optimizer = step_.optimizer().describe(),
                                      .products = machine_.describe_products(step_.options().compute),
                                      .algorithm = std::visit(describe, algorithm_),
                                      .traffic = std::visit(traffic, algorithm_),
                                      .ranks = ranks(),
                                      .tensor = setup_.mesh.tensor,
                                      .activation_bytes = step_.activation_bytes(),
                                      .ranks_on_node = ranks_on_node_,
                                      .threads = host.threads(),
                                      .parameters = step_.parameter_count(),
                                      .flops_per_token = flops_per_token(),
                                      .peak_flops = peak_flops_,
                                      .state_bytes = common_bytes(),
                                      .own_bytes = own_bytes(),
                                      .work_bytes = step_.workspace_bytes(),
                                      .one_state = step_.divided()}));
  for (std::string const& change : setup_.changes) outputs_.line("on resume: " + change);
  for (std::string const& warning : setup_.warnings) outputs_.line("WARNING: " + warning);
  if (averages_gradients() && data_parallel_.node && !step_.divided() && step_.divisible())
    outputs_.line(
        "WARNING: shared memory is too small for one copy of parameters and moments: every rank keeps its own. "
        "Enlarge /dev/shm, or say --replicas-per-rank");
  if (busy > may)
    outputs_.line(fmt::format(
        "WARNING: {} threads share {} processors: this will be slow. Use fewer ranks or --threads", busy, may));
  outputs_.record({{"type", "start"},
                   {"step", setup_.first_step},
                   {"steps", setup_.steps},
                   {"ranks", ranks()},
                   {"threads", host.threads()},
                   {"backend", o().backend.text()},
                   {"device", o().device.text()},
                   {"algorithm", o().algorithm.text()},
                   {"isa", name(host.isa())},
                   {"processor", exec::processor_name()},
                   {"peak_gflops", peak_flops_ / 1e9},
                   {"parameters", step_.parameter_count()},
                   {"model", setup_.model.json},
                   {"tokens_per_step", setup_.tokens_per_step()},
                   {"rows", setup_.rows},
                   {"micro_steps", setup_.micro_steps},
                   {"sent_bytes", sent_bytes()},
                   {"compress", o().compress.empty() ? "none" : o().compress},
                   {"seed", o().seed},
                   {"prompt", opening_prompt(setup_)}});
  outputs_.registry().set("compiled", {{"seconds", built_seconds_}, {"workspace", step_.workspace_bytes()}});
  if (!averages_gradients()) outputs_.registry().set("inner", {{"steps", o().inner_steps}});
}

template <class Loss, class Device>
void Run<Loss, Device>::measure_gradients(Batch const& batch) {
  GradientStatistics const found = step_.gradient_statistics(batch);
  RunOutputs::Json row{{"type", "gradients"}, {"step", batch.step + 1}, {"loss", found.loss}, {"norm", found.norm}};
  for (ParameterGradient const& one : found.parameters) {
    row["norm/" + one.name] = one.norm;
    row["zeros/" + one.name] = one.zeros;
  }
  if (!found.not_finite.empty()) row["not_finite"] = found.not_finite;
  outputs_.record(row);
  if (!found.not_finite.empty()) outputs_.line(fmt::format("WARNING: step {}: {}", batch.step + 1, found.not_finite));
  origin_ = found.not_finite.empty() ? "" : ". Of its gradient: " + found.not_finite;
  told_ = now();
}

template <class Loss, class Device>
void Run<Loss, Device>::validate() {
  if (!setup_.validation) return;
  InPhase const phase(outputs_, "validating");
  std::vector<Validation> sets;
  with_agreed_model([&] {
    auto const add = [&](data::ValidationLoader const& held_out) {
      sets.push_back(measure(*data_parallel_.port, step_, held_out,
                             setup_.tokenizer ? &setup_.tokenizer->tokenizer : nullptr,
                             setup_.validation_windows(held_out)));
    };
    add(*setup_.validation);
    for (data::ValidationLoader const& further : setup_.further_validation) add(further);
  });
  Validation const found = joined(sets);
  validation_loss_ = found.loss;
  bool const text_known = found.bits_per_byte > 0;
  outputs_.line(fmt::format("step {}: validation loss {:.4f}{}", done_, found.loss,
                            text_known ? fmt::format(", {:.4f} bits per byte", found.bits_per_byte) : ""));
  outputs_.record({{"type", "validation"},
                   {"step", done_},
                   {"loss", found.loss},
                   {"predictions", found.predictions},
                   {"bits_per_byte", text_known ? RunOutputs::Json(found.bits_per_byte) : RunOutputs::Json()}});
  for (std::size_t i = 0; i < sets.size() && sets.size() > 1; ++i) {
    std::string const& name = (i == 0 ? *setup_.validation : setup_.further_validation[i - 1]).corpus().pattern();
    outputs_.line(fmt::format("step {}:   {}: {:.4f}", done_, name, sets[i].loss));
    outputs_.record({{"type", "validation_set"},
                     {"step", done_},
                     {"set", name},
                     {"loss", sets[i].loss},
                     {"predictions", sets[i].predictions}});
  }
  last_validated_ = done_;
}

template <class Loss, class Device>
void Run<Loss, Device>::sample() {
  last_sampled_ = done_;
  InPhase const phase(outputs_, "sampling");
  if constexpr (writes_text)
    if ((root() || (averages_gradients() && step_.in_parts())) && setup_.tokenizer)
      with_agreed_model([&] {
        if (!step_.in_parts()) return write_sample(step_.state());
        graph::State whole = step_.whole_fields();
        for (graph::Field& field : whole.fields())
          if (field.parameter) step_.collect(field, root());
        if (root()) write_sample(whole);
      });
}

template <class Loss, class Device>
void Run<Loss, Device>::write_sample(graph::State& whole) {
  std::string const text =
      sample_text(machine_.host(), step_.config(), whole, setup_.tokenizer->tokenizer, o().sample_prompt,
                  o().sample_tokens, static_cast<std::uint64_t>(o().seed) + static_cast<std::uint64_t>(done_));
  outputs_.line(fmt::format("step {}: sample\n{}", done_, text));
  outputs_.record({{"type", "sample"}, {"step", done_}, {"text", text}});
}

template <class Loss, class Device>
void Run<Loss, Device>::finish() {
  double const seconds = now() - started_;
  bool const stopped = stop_ != 0 && done_ < setup_.steps, converging = diverged_.empty();
  if (!stopped && converging) {
    if (setup_.validation && last_validated_ != done_) validate();
    if (o().sample_every > 0 && last_sampled_ != done_) sample();
  }
  std::int64_t const steps = done_ - setup_.first_step;
  bool const unsaved = last_saved_ != done_ && (steps > 0 || !setup_.same_run);
  if (converging && unsaved && (stopped || !o().no_final_checkpoint)) checkpoint();
  finish_checkpoint();
  parallel::barrier(*port_);  // the files are complete before any rank leaves
  if (!converging) return end("diverged", diverged_);
  if (stopped)
    outputs_.line(fmt::format("stopped by {} after step {}{}", stop_ == SIGINT ? "SIGINT" : "SIGTERM", done_,
                              saved_.empty() && !setup_.same_run ? "" : "; go on with --resume latest"));
  else if (steps == 0)
    outputs_.line(fmt::format("done: the checkpoint is of step {} already. Ask for more --steps", done_));
  else
    outputs_.line(fmt::format("done: {} step{} in {}, {:.1f} ms a step, {:.0f} tok/s", steps, steps == 1 ? "" : "s",
                              human_time(seconds), 1e3 * step_seconds_ / static_cast<double>(steps),
                              static_cast<double>(steps * setup_.tokens_per_step()) / step_seconds_));
  if (o().profile && steps > 0)
    report_profile(outputs_.console(), step_.profiles(), machine_.measure_roofline(step_.options().compute),
                   port_->rank(), o().out, data_parallel_.pipeline.get());
  end(!stopped ? "done" : stop_ == SIGINT ? "SIGINT" : "SIGTERM");
}

template <class Loss, class Device>
void Run<Loss, Device>::end(char const* reason, std::string const& error) {
  bool const stopped = stop_ != 0 && done_ < setup_.steps;
  RunOutputs::Json row{{"type", "end"}, {"step", done_}, {"reason", reason}, {"stopped", stopped}};
  row["seconds"] = now() - started_;
  if (!error.empty()) row["error"] = error;
  if (last_validated_ >= 0) row["validation_loss"] = validation_loss_;
  outputs_.record(row);
}

}  // namespace tutti::train

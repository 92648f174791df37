// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From the flags of pipelines to a rank's place in one, and what is said of it.

#include <tutti/parallel/mesh.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>
#include <tutti/train/data_files.hpp>
#include <tutti/train/options.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::train {

/// "3,3,2" as numbers; empty for an empty text, and for "balanced". Errors: configuration.
inline List<std::int64_t> parse_stage_layers(std::string const& text) {
  List<std::int64_t> layers;
  if (text.empty() || text == "balanced") return layers;
  if (auto const wrong = parallel::parse_layers(text, ',', layers))
    throw Error(ErrorKind::configuration, "train_model",
                "--stage-layers " + text + ": '" + std::string(*wrong) +
                    "' is no number of layers. Write one for each stage, as in 4,4,3, or balanced");
  return layers;
}

/// Of the rank that is stage `stage` of `stages`. Errors: configuration.
inline parallel::PipelineLayout pipeline_layout(Options const& o, int stages, int stage) {
  int const usual = o.pipeline_schedule == parallel::PipelineSchedule::interleaved ? 2 : 1;
  return {stages, stage, o.pipeline_schedule, o.virtual_stages == 0 ? usual : o.virtual_stages,
          parse_stage_layers(o.stage_layers), o.stage_layers == "balanced"};
}

/// What is possible and hardly meant, in words. Errors: configuration, for micro-batches that the schedule cannot
/// divide.
inline std::string pipeline_warning(Options const& o, parallel::MeshSizes const& mesh, std::int64_t micro_steps) {
  parallel::PipelineLayout const layout = pipeline_layout(o, mesh.pipeline, 0);
  detail::said_of("--pipeline-schedule " + o.pipeline_schedule.text(),
                  [&] { return parallel::pipeline_tasks(layout, micro_steps); });
  if (micro_steps >= layout.stages) return {};
  return fmt::format("--pipeline-parallel {} with {} micro-batch{} a step: each stage waits {:.0f} % of the time. Give "
                     "at least {} --micro-batches", layout.stages, micro_steps, micro_steps == 1 ? "" : "es",
                     100 * parallel::pipeline_bubble(layout, micro_steps), 4 * layout.stages);
}

/// For people.
inline std::string describe_pipeline(parallel::PipelineLayout const& pipeline, std::int64_t micro_batches, int groups) {
  auto const schedule = setting::spelling<parallel::PipelineSchedule>[static_cast<std::size_t>(pipeline.schedule)];
  std::string parts;
  if (pipeline.virtual_stages > 1) parts = fmt::format(" of {} parts", pipeline.virtual_stages);
  for (std::size_t i = 0; i < pipeline.layers.size(); ++i)
    parts += fmt::format("{} {}", i == 0 ? " with" : i + 1 < pipeline.layers.size() ? "," : " and", pipeline.layers[i]);
  if (!pipeline.layers.empty()) parts += " layers";
  return fmt::format("{} stages{}, {} micro-batches, {} schedule: idle {:.0f} % of the time at least{}",
                     pipeline.stages, parts, micro_batches, schedule,
                     100 * parallel::pipeline_bubble(pipeline, micro_batches),
                     groups > 1 ? "; gradients averaged every step" : "");
}

}  // namespace tutti::train

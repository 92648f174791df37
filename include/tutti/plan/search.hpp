// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// All layouts of a model on a cluster, ordered by tokens a second; with the reason of each that cannot be.

#include <tutti/plan/prediction.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace tutti::plan {

/// Those that can be come first, by tokens a second; of equal ones the order stays.
inline void sort_best_first(std::vector<Prediction>& found) {
  std::stable_sort(found.begin(), found.end(), [](Prediction const& a, Prediction const& b) {
    if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
    return a.refused.empty() && a.tokens_per_second > b.tokens_per_second;
  });
}

struct SearchOptions {
  std::int64_t sequences = 0;   ///< of a step, over all ranks
  std::int64_t most_batch = 0;  ///< sequences of a rank and micro-step at most; 0: any
  bool pipelines = true;
  int zero = 1;                 ///< stages up to this one
  bool recompute = true;        ///< blocks are computed again where memory is too small otherwise
  /// Why a layout cannot be, beside what its programs say; "": it can. As a trainer refuses combinations of its flags.
  std::function<std::string(Layout const&)> refuse = nullptr;
};

/// Of every way to write the devices as data x tensor x pipeline, of every size of micro-batch, and of schedules of
/// pipelines with that size that is best with 1F1B, the best; those that cannot be behind them.
/// Determinism  the order is that of tokens a second, of equal ones that in which they were found
template <class Loss>
std::vector<Prediction> search(typename Loss::Config const& config, Work const& work, Cluster const& cluster,
                               SearchOptions const& options, MeasuredSteps const* measured = nullptr,
                               std::source_location where = std::source_location::current()) {
  std::vector<Prediction> found;
  auto const better = [](Prediction const& a, Prediction const& b) {
    if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
    return a.refused.empty() ? a.tokens_per_second > b.tokens_per_second : a.memory_of_rank < b.memory_of_rank;
  };
  int const devices = cluster.devices();
  auto const attempt = [&](Layout const& layout, std::int64_t batch, graph::Recompute recompute) {
    Work one = work;
    one.options.batch = batch;
    one.options.evaluation_batch = batch;
    one.options.recompute = recompute;
    one.options.sequence_parallel = work.options.sequence_parallel && layout.tensor > 1;
    Prediction prediction;
    if (std::string refused = options.refuse ? options.refuse(layout) : ""; !refused.empty()) {
      prediction.layout = layout;
      prediction.refused = std::move(refused);
      return prediction;
    }
    try {
      prediction = predict<Loss>(config, one, layout, cluster, measured, nullptr, where);
    } catch (Error const& error) {
      prediction.layout = layout;
      prediction.refused = error.message();
    }
    prediction.batch = batch;
    prediction.recompute = recompute;
    return prediction;
  };
  for (int tensor = 1; tensor <= devices; ++tensor)
    for (int pipeline = 1; devices % tensor == 0 && pipeline <= devices / tensor; ++pipeline) {
      if (devices / tensor % pipeline != 0 || (pipeline > 1 && !options.pipelines)) continue;
      Layout layout{.data = devices / tensor / pipeline, .tensor = tensor, .pipeline = pipeline};
      if (options.sequences % layout.data != 0) {
        Prediction refused;
        refused.layout = layout;
        refused.refused = concat(options.sequences, " sequences of a step are not a multiple of ", layout.data,
                                 " groups");
        found.push_back(refused);
        continue;
      }
      std::int64_t const rows = options.sequences / layout.data;
      int const stages = layout.data == 1 || options.zero < 1 ? 0 : options.zero;
      for (int zero = 0; zero <= stages; ++zero) {
        if (zero >= 2 && pipeline > 1 && cluster.device.kind != DeviceKind::cpu) continue;  // these are not planned
        Prediction best;
        bool any = false;
        for (std::int64_t batch = 1; batch <= rows; batch *= 2) {
          if (rows % batch != 0 || (options.most_batch > 0 && batch > options.most_batch)) continue;
          layout.zero = zero;
          layout.micro_steps = rows / batch;
          Prediction prediction = attempt(layout, batch, work.options.recompute);
          if (!prediction.refused.empty() && options.recompute && prediction.seconds > 0 &&
              work.options.recompute == graph::Recompute::none)
            prediction = attempt(layout, batch, graph::Recompute::block);
          if (!any || better(prediction, best)) best = prediction;
          any = true;
          if (prediction.seconds == 0) break;  // another batch does not mend it
        }
        if (pipeline > 1 && any && best.refused.empty()) {  // gpipe takes as long as 1F1B, and more memory
          Layout other = best.layout;
          for (Schedule const schedule : {Schedule::zero_bubble, Schedule::interleaved}) {
            other.schedule = schedule;
            other.chunks = schedule == Schedule::interleaved ? 2 : 1;
            if (Prediction const one = attempt(other, best.batch, best.recompute); better(one, best)) best = one;
          }
        }
        if (any) found.push_back(best);
        if (zero == 0 && any && best.seconds == 0) break;  // ZeRO does not mend it either
      }
    }
  sort_best_first(found);
  return found;
}

}  // namespace tutti::plan

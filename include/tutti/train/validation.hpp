// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How well a model predicts text that it does not learn from, measured by all ranks together.

#include <tutti/data/loader.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/train_step.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace tutti::train {

struct Validation {
  double loss = 0;            ///< in nats, mean over the predictions
  double bits_per_byte = 0;   ///< of the text that the predictions spell; 0 when no tokenizer says which
  std::int64_t predictions = 0;
};

/// Over the predictions of all of them. Bits per byte are known where they are of each.
inline Validation joined(std::vector<Validation> const& sets) {
  Validation all;
  double loss = 0, bytes = 0;
  bool known = true;
  for (Validation const& set : sets) {
    double const nats = set.loss * static_cast<double>(set.predictions);
    loss += nats;
    all.predictions += set.predictions;
    if (set.bits_per_byte > 0) bytes += nats / std::numbers::ln2 / set.bits_per_byte;
    else known = false;
  }
  if (sets.size() == 1) return sets[0];
  all.loss = loss / static_cast<double>(std::max<std::int64_t>(all.predictions, 1));
  all.bits_per_byte = known && bytes > 0 ? loss / std::numbers::ln2 / bytes : 0;
  return all;
}

namespace detail {

struct ValidationTotals {
  double sums[3] = {};  ///< loss, predictions, bytes of text

  Validation result() const {
    return {.loss = sums[0] / std::max(sums[1], 1.0),
            .bits_per_byte = data::bits_per_byte(sums[0], static_cast<std::int64_t>(sums[2])),
            .predictions = static_cast<std::int64_t>(sums[1])};
  }
};

/// Part `part` of `parts` of the evaluation batches.
template <class Loss, class Device>
ValidationTotals measure_part(TrainStep<Loss, Device>& step, data::ValidationLoader const& held_out,
                              data::Tokenizer const* tokenizer, std::int64_t windows, int part, int parts,
                              std::atomic<bool> const* stop = nullptr) {
  std::int64_t const rows = step.options().evaluation_batch;
  Shape const shape{rows, step.options().sequence};
  std::int64_t const end = std::min(windows, held_out.windows());
  std::int64_t const batches = (end + rows - 1) / rows;
  data::Share const share = data::share_of(batches, part, parts);
  // Where every rank has parts of parameters that all need, a rank that is done evaluates with the others.
  bool const together = step.options().state_ranks > 1;
  Tensor<std::int32_t> tokens(shape), targets(shape);
  ValidationTotals totals;
  for (std::int64_t i = 0; i < (together ? (batches + parts - 1) / parts : share.count); ++i) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) break;
    std::int64_t const batch = i < share.count ? share.begin + i : 0;
    std::int64_t const counted = held_out.fill(batch * rows, tokens.view(), targets.view(), end);
    bool const mixed = requires { Loss::counts_every_target; } && counted < shape.size();  // its mean is of others too
    bool const counts = i < share.count && !mixed;
    if (!counts && !together) continue;
    double const mean = step.evaluate(std::as_const(tokens).view(), std::as_const(targets).view());
    if (!counts) continue;
    totals.sums[0] += mean * static_cast<double>(counted);
    totals.sums[1] += static_cast<double>(counted);
    if (tokenizer == nullptr) continue;
    for (std::int32_t target : targets.elements())
      if (target >= 0 && target < tokenizer->vocabulary() && !tokenizer->is_special(target))
        totals.sums[2] += static_cast<double>(tokenizer->token_bytes(target).size());
  }
  return totals;
}

}  // namespace detail

/// Loss over the first `windows` windows of the held-out text, or over all there are. `tokenizer` may be null.
/// Ranks        all, with the same arguments. Blocking.
/// Determinism  which predictions count depends on `windows` alone; ranks and evaluation batches change the order of
/// the sum.
template <class Loss, class Device>
Validation measure(comm::Port& port, TrainStep<Loss, Device>& step, data::ValidationLoader const& held_out,
                   data::Tokenizer const* tokenizer, std::int64_t windows) {
  auto totals = detail::measure_part(step, held_out, tokenizer, windows, port.rank(), port.size());
  parallel::all_reduce(port, totals.sums, comm::PortOp::sum);
  return totals.result();
}
/// The same by this process alone. Once `stop` is set, which may be null, it ends with what it has.
template <class Loss, class Device>
Validation measure(TrainStep<Loss, Device>& step, data::ValidationLoader const& held_out,
                   data::Tokenizer const* tokenizer, std::int64_t windows, std::atomic<bool> const* stop = nullptr) {
  return detail::measure_part(step, held_out, tokenizer, windows, 0, 1, stop).result();
}

}  // namespace tutti::train

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Learning-rate schedules: pure functions of the step, so that a resumed run needs no state for them.

#include <tutti/core/error.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>

namespace tutti::optim {

enum class ScheduleKind : unsigned char {
  cosine,    ///< warm-up, then half a cosine down to final_fraction
  linear,    ///< warm-up, then a straight line down to final_fraction
  constant,  ///< the peak from the first step on; warm-up is ignored, as in llm.c
  wsd,       ///< warm-up, flat, and over the last decay_fraction of the steps 1 - sqrt down to final_fraction
};
inline constexpr std::array<std::string_view, 4> schedule_names{"cosine", "linear", "constant", "wsd"};

constexpr std::string_view name(ScheduleKind kind) noexcept { return schedule_names[static_cast<std::size_t>(kind)]; }

/// Errors: configuration, naming the choices.
inline ScheduleKind schedule_from_name(std::string_view text) {
  for (std::size_t i = 0; i < schedule_names.size(); ++i)
    if (schedule_names[i] == text) return static_cast<ScheduleKind>(i);
  throw Error(ErrorKind::configuration, "schedule_from_name",
              "schedule '" + std::string(text) + "' is unknown. Use cosine, linear, constant or wsd");
}

/// Learning rate at a step, counted from 0 to total_steps - 1.
/// Source    the forms of llm.c: warm-up is peak * (step + 1) / warmup_steps; wsd is Hägele et al. 2024 (arXiv
/// 2405.18392).
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double peak = 3e-4;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  double final_fraction = 0.0;  ///< of the peak, reached at the end
  double decay_fraction = 0.2;  ///< wsd alone: the share of the steps that decays

  double operator()(std::int64_t step) const noexcept {
    if (kind == ScheduleKind::constant) return peak;
    if (step < warmup_steps) return peak * double(step + 1) / double(warmup_steps);
    double const floor = peak * final_fraction;
    if (kind == ScheduleKind::wsd) {
      double const decay_steps = std::max(1.0, decay_fraction * double(total_steps));
      double const decay_start = double(total_steps) - decay_steps;
      if (double(step) < decay_start) return peak;
      double const progress = std::min(1.0, (double(step) - decay_start) / decay_steps);
      return floor + (peak - floor) * (1.0 - std::sqrt(progress));
    }
    double const span = double(total_steps - warmup_steps);
    double const progress = span > 0 ? std::min(1.0, double(step - warmup_steps) / span) : 1.0;
    if (kind == ScheduleKind::linear) return peak - (peak - floor) * progress;
    return floor + 0.5 * (1.0 + std::cos(std::numbers::pi * progress)) * (peak - floor);
  }
};

}  // namespace tutti::optim

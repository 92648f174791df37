// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Scales and codes that bring a run of numbers close to what a block can hold, by least squares: for quantising.
///
/// For given codes the best scale is a linear fit; for a given scale the best codes are the nearest ones. A scan over
/// scales near the one that just covers the numbers, each fitted, finds what the two steps in turn alone would miss:
/// with few bits, cutting off the largest number often costs less than widening all steps.

#include <tutti/core/block_layout.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::detail {

/// To the nearest integer; |v| below 2^22.
inline float nearest(float v) noexcept { return (v + 12582912.0f) - 12582912.0f; }
inline float clamp(float v, float low, float high) noexcept { return v < low ? low : v > high ? high : v; }

/// Codes that stand for the integers from low to high.
struct IntegerLevels {
  float low, high;
  /// The closest that a code stands for.
  float operator()(float v) const noexcept { return nearest(clamp(v, low, high)); }
  int code(float level) const noexcept { return static_cast<int>(level - low); }
};
/// Codes of IQ4_NL.
struct TableLevels {
  static constexpr float low = -127.0f;
  float operator()(float v) const noexcept {
    int code = 0;
    for (int i = 0; i < 15; ++i)
      code += 2.0f * v > static_cast<float>(blocks::iq4_values[i] + blocks::iq4_values[i + 1]) ? 1 : 0;
    return static_cast<float>(blocks::iq4_values[code]);
  }
  int code(float level) const noexcept {
    int code = 0;
    while (static_cast<float>(blocks::iq4_values[code]) < level) ++code;
    return code;
  }
};

/// Squared error of x against scale times the nearest levels.
template <int n, class Levels>
float scaled_error(float const* x, float scale, Levels const& levels) noexcept {
  float const inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  float error = 0;
  for (int i = 0; i < n; ++i) {
    float const off = x[i] - scale * levels(inverse * x[i]);
    error += off * off;
  }
  return error;
}

/// The scale with which levels come closest to x; 0 for zeros.
template <int n, class Levels>
float fit_scale(float const* x, Levels const& levels) noexcept {
  float peak = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(peak)) peak = x[i];
  if (std::fabs(peak) < 0x1p-100f) return 0;
  float best = -1, scale = 0;
  auto const attempt = [&](float inverse) {
    float xq = 0, qq = 0;
    for (int i = 0; i < n; ++i) {
      float const q = levels(inverse * x[i]);
      xq += x[i] * q;
      qq += q * q;
    }
    // The squared error is the sum of squares less this.
    if (qq > 0 && xq * (xq / qq) > best) best = xq * (xq / qq), scale = xq / qq;
  };
  // The largest number at, or a little within or beyond, the end of the levels.
  float const step = levels.low < -100.0f ? 3.0f : 0.1f;
  for (int i = -12; i <= 12; ++i) attempt((levels.low + step * static_cast<float>(i)) / peak);
  for (int i = 0; i < 2 && scale != 0; ++i) attempt(1.0f / scale);
  return scale;
}

/// x is about scale q + offset with integers q from 0 to top.
struct Affine {
  float scale = 0, offset = 0;
};

template <int n>
float affine_error(float const* x, Affine const& fit, float top) noexcept {
  float const inverse = fit.scale == 0.0f ? 0.0f : 1.0f / fit.scale;
  float error = 0;
  for (int i = 0; i < n; ++i) {
    float const q = nearest(clamp(inverse * (x[i] - fit.offset), 0.0f, top));
    float const off = x[i] - (fit.scale * q + fit.offset);
    error += off * off;
  }
  return error;
}

/// The closest fit with a scale of at least 0; with `below`, an offset of at most 0.
template <int n>
Affine fit_affine(float const* x, float top, bool below) noexcept {
  float low = x[0], high = x[0], sum = 0;
  for (int i = 0; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum += x[i];
  }
  if (below && low > 0) low = 0;
  float const width = high - low;
  if (width < 0x1p-100f) return {0, below && low > 0 ? 0 : low};
  Affine best{width / top, low};
  float least = affine_error<n>(x, best, top);
  for (int i = -10; i <= 14; ++i) {
    float const inverse = (top + 0.15f * static_cast<float>(i)) / width;
    float q1 = 0, qq = 0, xq = 0;
    for (int j = 0; j < n; ++j) {
      float const q = nearest(clamp(inverse * (x[j] - low), 0.0f, top));
      q1 += q;
      qq += q * q;
      xq += x[j] * q;
    }
    float const determinant = static_cast<float>(n) * qq - q1 * q1;
    if (determinant <= 0) continue;
    Affine fit{(static_cast<float>(n) * xq - sum * q1) / determinant, (qq * sum - q1 * xq) / determinant};
    if (below && fit.offset > 0) fit = {xq / qq, 0};
    if (!(fit.scale >= 0)) continue;
    float const error = affine_error<n>(x, fit, top);
    if (error < least) least = error, best = fit;
  }
  return best;
}

/// A scale as blocks keep it. Zero only for zero: integers can make up for a scale that is too large.
inline float16 block_scale(float value) noexcept {
  float16 const scale(value);
  return float(scale) != 0.0f || value == 0.0f ? scale : float16::from_bits(value < 0 ? 0x8001 : 0x0001);
}

/// 256 numbers in parts of `part`, each with an integer scale s in [low, high] of its own: x is about d s level.
template <int part, class Levels>
struct ScaledParts {
  static constexpr int parts = 256 / part;
  float16 d{};
  int scales[parts] = {};

  void fit(float const* x, Levels const& levels, int low, int high) noexcept {
    float wanted[parts], peak = 0;
    for (int k = 0; k < parts; ++k) {
      wanted[k] = fit_scale<part>(x + part * k, levels);
      if (std::fabs(wanted[k]) > std::fabs(peak)) peak = wanted[k];
    }
    d = block_scale(peak / static_cast<float>(low));
    if (float(d) == 0.0f || std::isinf(float(d))) return;
    ScaledParts trial = *this;
    float least = -1;
    for (int round = 0; round < 2; ++round) {
      float error = 0, xa = 0, aa = 0;
      for (int k = 0; k < parts; ++k) {
        int const middle = static_cast<int>(clamp(nearest(wanted[k] / float(trial.d)), float(low), float(high)));
        float part_least = -1;
        for (int s = middle - 1; s <= middle + 1; ++s) {
          if (s < low || s > high) continue;
          float const off = scaled_error<part>(x + part * k, float(trial.d) * static_cast<float>(s), levels);
          if (part_least < 0 || off < part_least) part_least = off, trial.scales[k] = s;
        }
        error += part_least;
        float const scale = float(trial.d) * static_cast<float>(trial.scales[k]);
        float const inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
        for (int i = 0; i < part; ++i) {
          float const a = static_cast<float>(trial.scales[k]) * levels(inverse * x[part * k + i]);
          xa += x[part * k + i] * a;
          aa += a * a;
        }
      }
      if (least < 0 || error < least) least = error, *this = trial;
      if (aa == 0) return;
      trial.d = float16(xa / aa);
      if (float(trial.d) == 0.0f || std::isinf(float(trial.d))) return;
    }
  }
  /// The code of number e.
  int code(float const* x, int e, Levels const& levels) const noexcept {
    float const scale = float(d) * static_cast<float>(scales[e / part]);
    return levels.code(levels(scale == 0.0f ? 0.0f : x[e] / scale));
  }
};

/// 256 numbers in parts of `part`, each with integers s and m in [0, limit]: x is about d s q - dmin m.
template <int part>
struct AffineParts {
  static constexpr int parts = 256 / part;
  float16 d{}, dmin{};
  int scales[parts] = {}, mins[parts] = {};

  void fit(float const* x, float top, int limit) noexcept {
    Affine wanted[parts];
    float scale = 0, min = 0;
    for (int k = 0; k < parts; ++k) {
      wanted[k] = fit_affine<part>(x + part * k, top, true);
      scale = wanted[k].scale > scale ? wanted[k].scale : scale;
      min = -wanted[k].offset > min ? -wanted[k].offset : min;
    }
    d = block_scale(scale / static_cast<float>(limit));
    dmin = block_scale(min / static_cast<float>(limit));
    if (std::isinf(float(d)) || std::isinf(float(dmin))) return;
    AffineParts trial = *this;
    float least = -1;
    for (int round = 0; round < 3; ++round) {
      float error = 0, aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
      for (int k = 0; k < parts; ++k) {
        float const* const from = x + part * k;
        error += trial.choose(k, from, wanted[k], top, limit);
        float const s = static_cast<float>(trial.scales[k]), b = static_cast<float>(trial.mins[k]);
        for (int i = 0; i < part; ++i) {
          float const a = s * static_cast<float>(trial.code(x, part * k + i, top));
          aa += a * a, ab += a * b, bb += b * b, xa += from[i] * a, xb += from[i] * b;
        }
      }
      if (least < 0 || error < least) least = error, *this = trial;
      float const determinant = aa * bb - ab * ab;
      if (bb == 0 && aa > 0) {
        trial.d = float16(xa / aa);
      } else if (determinant > 0) {
        trial.d = float16((xa * bb - xb * ab) / determinant);
        trial.dmin = float16((xa * ab - xb * aa) / determinant);
      } else {
        return;
      }
      if (!(float(trial.d) >= 0) || !(float(trial.dmin) >= 0) || std::isinf(float(trial.d)) ||
          std::isinf(float(trial.dmin)))
        return;
    }
  }
  int code(float const* x, int e, float top) const noexcept {
    float const scale = float(d) * static_cast<float>(scales[e / part]);
    float const shifted = x[e] + float(dmin) * static_cast<float>(mins[e / part]);
    return static_cast<int>(nearest(clamp(scale == 0.0f ? 0.0f : shifted / scale, 0.0f, top)));
  }

 private:
  /// The integers of part k, near those wanted; their squared error.
  float choose(int k, float const* x, Affine const& wanted, float top, int limit) noexcept {
    auto const middle = [&](float value, float16 unit) {
      return float(unit) == 0.0f ? 0 : static_cast<int>(clamp(nearest(value / float(unit)), 0.0f, float(limit)));
    };
    int const s0 = middle(wanted.scale, d), m0 = middle(-wanted.offset, dmin);
    float least = -1;
    for (int s = s0 - 1; s <= s0 + 1; ++s)
      for (int m = m0 - 1; m <= m0 + 1; ++m) {
        if (s < 0 || m < 0 || s > limit || m > limit) continue;
        Affine const fit{float(d) * static_cast<float>(s), -float(dmin) * static_cast<float>(m)};
        float const error = affine_error<part>(x, fit, top);
        if (least < 0 || error < least) least = error, scales[k] = s, mins[k] = m;
      }
    return least;
  }
};

}  // namespace tutti::detail

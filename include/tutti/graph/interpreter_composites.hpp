// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The composites in double, from the contracts in kernel/: nothing is shared with their decompositions, which are
/// checked against this.

#include <tutti/core/list.hpp>
#include <tutti/graph/interpreter_attention.hpp>
#include <tutti/graph/interpreter_kernels.hpp>
#include <tutti/graph/interpreter_losses.hpp>
#include <tutti/kernel/dropout.hpp>
#include <tutti/kernel/rotary.hpp>
#include <tutti/tensor/random.hpp>

namespace tutti::graph::naive {

inline List<Values> linear(Call const& c) {
  std::int64_t const in = c.shape(1)[1], out = c.shape(1)[0], rows = c.out().size() / std::max<std::int64_t>(out, 1);
  Values const x = factors(c, c.in(0)), weight = factors(c, c.in(1));
  Values y(at(rows * out));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = c.count() == 3 ? c.in(2)[at(o)] : 0;
      for (std::int64_t i = 0; i < in; ++i) sum += x[at(r * in + i)] * weight[at(o * in + i)];
      y[at(r * out + o)] = sum;
    }
  return {y};
}

inline List<Values> layer_norm(Call const& c) {
  std::int64_t const n = c.shape(1)[0], rows = n == 0 ? 0 : c.out().size() / n;
  Values y(c.in(0).size()), mean(at(rows)), rstd(at(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    double const* x = c.in(0).data() + r * n;
    double sum = 0, square = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    double const m = sum / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) square += (x[i] - m) * (x[i] - m);
    double const s = 1 / std::sqrt(square / static_cast<double>(n) + c.real());
    for (std::int64_t i = 0; i < n; ++i) y[at(r * n + i)] = (x[i] - m) * s * c.in(1)[at(i)] + c.in(2)[at(i)];
    mean[at(r)] = m;
    rstd[at(r)] = s;
  }
  return {y, mean, rstd};
}

inline List<Values> layer_norm_gradient(Call const& c) {
  std::int64_t const n = c.shape(2)[0], rows = n == 0 ? 0 : c.shape(0).size() / n;
  Values dx(c.in(0).size()), dgamma(at(n)), dbeta(at(n));
  for (std::int64_t r = 0; r < rows; ++r) {
    double const m = c.in(3)[at(r)], s = c.in(4)[at(r)];
    double h_sum = 0, hx_sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      double const g = c.in(0)[at(r * n + i)], xh = (c.in(1)[at(r * n + i)] - m) * s;
      dbeta[at(i)] += g;
      dgamma[at(i)] += g * xh;
      h_sum += g * c.in(2)[at(i)];
      hx_sum += g * c.in(2)[at(i)] * xh;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      double const xh = (c.in(1)[at(r * n + i)] - m) * s;
      dx[at(r * n + i)] = s * (c.in(0)[at(r * n + i)] * c.in(2)[at(i)] - h_sum / static_cast<double>(n) -
                               xh * hx_sum / static_cast<double>(n));
    }
  }
  return {dx, dgamma, dbeta};
}

inline List<Values> rms_norm(Call const& c) {
  std::int64_t const n = c.shape(1)[0], rows = n == 0 ? 0 : c.out().size() / n;
  Values y(c.in(0).size()), rstd(at(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    double const* x = c.in(0).data() + r * n;
    double square = 0;
    for (std::int64_t i = 0; i < n; ++i) square += x[i] * x[i];
    rstd[at(r)] = 1 / std::sqrt(square / static_cast<double>(n) + c.real());
    for (std::int64_t i = 0; i < n; ++i) y[at(r * n + i)] = x[i] * rstd[at(r)] * c.in(1)[at(i)];
  }
  return {y, rstd};
}

inline List<Values> rms_norm_gradient(Call const& c) {
  std::int64_t const n = c.shape(2)[0], rows = n == 0 ? 0 : c.shape(0).size() / n;
  Values dx(c.in(0).size()), dweight(at(n));
  for (std::int64_t r = 0; r < rows; ++r) {
    double const s = c.in(3)[at(r)];
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      double const g = c.in(0)[at(r * n + i)], xh = c.in(1)[at(r * n + i)] * s;
      dweight[at(i)] += g * xh;
      sum += g * c.in(2)[at(i)] * xh;
    }
    for (std::int64_t i = 0; i < n; ++i)
      dx[at(r * n + i)] =
          s * (c.in(0)[at(r * n + i)] * c.in(2)[at(i)] - c.in(1)[at(r * n + i)] * s * sum / static_cast<double>(n));
  }
  return {dx, dweight};
}

inline List<Values> swiglu(Call const& c) {
  Values y(c.in(0).size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Operation<Op::silu>::precise(c.in(0)[i]) * c.in(1)[i];
  return {y};
}

inline List<Values> swiglu_gradient(Call const& c) {
  Values dgate(c.in(0).size()), dup(c.in(0).size());
  for (std::size_t i = 0; i < dup.size(); ++i) {
    dgate[i] = Operation<Op::silu_gradient>::precise(c.in(0)[i] * c.in(2)[i], c.in(1)[i]);
    dup[i] = c.in(0)[i] * Operation<Op::silu>::precise(c.in(1)[i]);
  }
  return {dgate, dup};
}

inline List<Values> cumsum(Call const& c) {
  Shape const shape = c.out();
  int const axis = static_cast<int>(c.integer(0));
  std::int64_t const extent = shape[axis], inner = shape.row_major_strides()[at(axis)];
  bool const reversed = c.integer(1) != 0;
  auto const wrapped = [&](double sum) {
    return with_dtype(c.graph.dtype(c.id), [&](auto zero) {
      if constexpr (std::is_integral_v<decltype(zero)>)
        return static_cast<double>(static_cast<decltype(zero)>(static_cast<std::int64_t>(sum)));
      else return sum;
    });
  };
  Values y = c.in(0);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(y.size()); ++i) {
    std::int64_t const flat = reversed ? static_cast<std::int64_t>(y.size()) - 1 - i : i, k = flat / inner % extent;
    if (k != (reversed ? extent - 1 : 0))
      y[at(flat)] = wrapped(y[at(flat)] + y[at(reversed ? flat + inner : flat - inner)]);
  }
  return {y};
}

inline List<Values> dropout(Call const& c) {
  Values y(c.in(0).size());
  auto const whole = [&](int i) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(c.in(i)[0])); };
  for (std::size_t i = 0; i < y.size(); ++i) {
    std::uint64_t const position = whole(4) + i;
    CounterRandom const words{whole(1), (whole(2) & 0xffffffff) | whole(3) << 32};
    bool const kept = words.bits(position) >= kernel::dropout_threshold(c.real());
    y[i] = kept ? c.in(0)[i] * kernel::dropout_scale(c.real()) : 0.0;
  }
  return {y};
}

inline List<Values> rotary(Call const& c) {
  std::int64_t const tokens = c.shape(1)[0], pairs = c.shape(1)[1];
  bool const half = static_cast<kernel::RotaryPairing>(c.integer(0)) == kernel::RotaryPairing::half;
  Values y(c.in(0).size());
  std::int64_t const heads = c.out()[c.out().rank() - 1] / (2 * pairs);
  for (std::int64_t head = 0; head < static_cast<std::int64_t>(y.size()) / (2 * pairs); ++head)
    for (std::int64_t i = 0; i < pairs; ++i) {
      std::size_t const entry = at(head / heads % tokens * pairs + i), first = at(head * 2 * pairs);
      std::size_t const a = first + at(half ? i : 2 * i), b = first + at(half ? i + pairs : 2 * i + 1);
      double const cosine = c.in(1)[entry], sine = c.integer(1) != 0 ? -c.in(2)[entry] : c.in(2)[entry];
      y[a] = c.in(0)[a] * cosine - c.in(0)[b] * sine;
      y[b] = c.in(0)[a] * sine + c.in(0)[b] * cosine;
    }
  return {y};
}

inline List<Values> embedding(Call const& c) {
  std::int64_t const width = c.shape(1)[1], tokens = c.shape(0)[1];
  Values out(at(c.out().size()));
  for (std::size_t i = 0; i < c.in(0).size(); ++i)
    for (std::size_t k = 0, row = row_of(c, c.in(0)[i], c.shape(1)[0]); k < at(width); ++k)
      out[i * at(width) + k] =
          c.in(1)[row * at(width) + k] + (c.count() == 3 ? c.in(2)[i % at(tokens) * at(width) + k] : 0);
  return {out};
}

inline List<Values> embedding_gradient(Call const& c) {
  std::int64_t const width = c.out()[1], tokens = c.shape(0)[1];
  Values table = c.count() == 3 ? c.in(2) : Values(at(c.out().size())), positions(at(c.integer(1) * width));
  for (std::size_t i = 0; i < c.in(0).size(); ++i)
    for (std::size_t k = 0, row = row_of(c, c.in(0)[i], c.out()[0]); k < at(width); ++k) {
      double const g = c.in(1)[i * at(width) + k];
      table[row * at(width) + k] += g;
      if (c.integer(1) > 0) positions[i % at(tokens) * at(width) + k] += g;
    }
  return {table, positions};
}

inline List<Values> adamw(Call const& c) {
  double const b1 = c.real(0), b2 = c.real(1), eps = c.real(2), decay = c.real(3);
  double const rate = c.in(4)[0], correction1 = c.in(5)[0], correction2 = c.in(6)[0], scale = c.in(7)[0];
  Values p = c.in(0), m = c.in(2), v = c.in(3);
  for (std::size_t i = 0; i < p.size(); ++i) {
    double const g = c.in(1)[i] * scale;
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    p[i] -= rate * (m[i] / correction1 / (std::sqrt(v[i] / correction2) + eps) + decay * p[i]);
  }
  return {p, m, v};
}

inline List<Values> composite(Call const& c) {
  switch (c.graph.op(c.id)) {
    case Op::linear: return linear(c);
    case Op::layer_norm: return layer_norm(c);
    case Op::layer_norm_gradient: return layer_norm_gradient(c);
    case Op::rms_norm: return rms_norm(c);
    case Op::rms_norm_gradient: return rms_norm_gradient(c);
    case Op::rotary: return rotary(c);
    case Op::swiglu: return swiglu(c);
    case Op::swiglu_gradient: return swiglu_gradient(c);
    case Op::cumsum: return cumsum(c);
    case Op::dropout: return dropout(c);
    case Op::attention: return attention(c);
    case Op::attention_gradient: return attention_gradient(c);
    case Op::embedding: return embedding(c);
    case Op::embedding_gradient: return embedding_gradient(c);
    case Op::cross_entropy: {
      Shape const& logits = c.shape(0);
      return losses(c, c.in(0), c.in(1), logits[logits.rank() - 1], static_cast<double>(c.integer()), c.real());
    }
    case Op::linear_cross_entropy: return linear_cross_entropy(c);
    case Op::square_sum: {
      double sum = c.count() == 2 ? c.in(1)[0] : 0;
      for (double x : c.in(0)) sum += x * x;
      return {{sum}};
    }
    case Op::adamw: return adamw(c);
    case Op::custom: return {c.graph[c.id].custom->reference(c)};
    default:
      throw Error(ErrorKind::internal, std::string(name(c.graph.op(c.id))),
                  "the interpreter lacks this composite; please report it");
  }
}

}  // namespace tutti::graph::naive

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The composites in double, from the contracts in kernel/: nothing is shared with their decompositions, which are
/// checked against this.

#include <tutti/core/list.hpp>
#include <tutti/graph/interpreter_kernels.hpp>
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

/// Where heads of packed projections lie in one row.
struct PackedHeads {
  std::int64_t tokens, heads, group, size, row;
  PackedHeads(Shape const& qkv, std::int64_t q_heads, std::int64_t kv_heads)
      : tokens(qkv[1]),
        heads(q_heads),
        group(q_heads / kv_heads),
        size(qkv[2] / (q_heads + 2 * kv_heads)),
        row(qkv[2]) {}
  std::int64_t q(std::int64_t b, std::int64_t t, std::int64_t h) const { return (b * tokens + t) * row + h * size; }
  std::int64_t k(std::int64_t b, std::int64_t t, std::int64_t h) const { return q(b, t, heads + h / group); }
  std::int64_t v(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return q(b, t, heads + heads / group + h / group);
  }
  std::int64_t out(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return (b * tokens + t) * heads * size + h * size;
  }
};
/// Attention of every (batch, head, query): f(batch, head, query, exp(s - highest), their sum, highest).
template <class F>
void for_each_query(Values const& qkv, std::int64_t batch, PackedHeads const& at_head, double scale, F f) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < at_head.heads; ++h)
      for (std::int64_t t = 0; t < at_head.tokens; ++t) {
        Values p(at(t + 1));
        double const* q = qkv.data() + at_head.q(b, t, h);
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::int64_t u = 0; u <= t; ++u) {
          double const* k = qkv.data() + at_head.k(b, u, h);
          for (std::int64_t i = 0; i < at_head.size; ++i) p[at(u)] += scale * q[i] * k[i];
          top = std::max(top, p[at(u)]);
        }
        for (double& x : p) sum += x = std::exp(x - top);
        f(b, h, t, p, sum, top);
      }
}

inline List<Values> attention(Call const& c) {
  PackedHeads const head(c.shape(0), c.integer(), c.integer(1));
  std::int64_t const batch = c.shape(0)[0];
  Values const qkv = factors(c, c.in(0));
  Values out(at(batch * head.tokens * head.heads * head.size)), lse(at(batch * head.heads * head.tokens));
  for_each_query(qkv, batch, head, c.real(),
                 [&](std::int64_t b, std::int64_t h, std::int64_t t, Values const& e, double sum, double top) {
                   lse[at((b * head.heads + h) * head.tokens + t)] = top + std::log(sum);
                   Values const rounded = factors(c, e);
                   for (std::int64_t u = 0; u <= t; ++u)
                     for (std::int64_t i = 0; i < head.size; ++i)
                       out[at(head.out(b, t, h) + i)] += rounded[at(u)] / sum * qkv[at(head.v(b, u, h) + i)];
                 });
  return {out, lse};
}

inline List<Values> attention_gradient(Call const& c) {
  PackedHeads const head(c.shape(1), c.integer(), c.integer(1));
  Values const qkv = factors(c, c.in(1)), rounded_dout = factors(c, c.in(0));
  Values d(qkv.size());
  for_each_query(
      qkv, c.shape(1)[0], head, c.real(),
      [&](std::int64_t b, std::int64_t h, std::int64_t t, Values const& e, double sum, double) {
        std::size_t const g = at(head.out(b, t, h)), q = at(head.q(b, t, h)), size = at(head.size);
        double inner = 0;
        for (std::size_t i = 0; i < size; ++i) inner += c.in(0)[g + i] * c.in(2)[g + i];
        Values p = e, ds(e.size());
        for (double& x : p) x /= sum;
        for (std::size_t u = 0; u < p.size(); ++u) {
          std::size_t const v = at(head.v(b, static_cast<std::int64_t>(u), h));
          double dp = 0;
          for (std::size_t i = 0; i < size; ++i) dp += rounded_dout[g + i] * qkv[v + i];
          ds[u] = c.real() * p[u] * (dp - inner);
        }
        p = factors(c, std::move(p));
        ds = factors(c, std::move(ds));
        for (std::size_t u = 0; u < p.size(); ++u) {
          std::size_t const k = at(head.k(b, static_cast<std::int64_t>(u), h)),
                            v = at(head.v(b, static_cast<std::int64_t>(u), h));
          for (std::size_t i = 0; i < size; ++i) {
            d[v + i] += p[u] * rounded_dout[g + i];
            d[q + i] += ds[u] * qkv[k + i];
            d[k + i] += ds[u] * qkv[q + i];
          }
        }
      });
  return {d};
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

/// Mean loss, scaled gradient of the logits, loss per row.
inline List<Values> losses(Call const& c, Values const& logits, Values const& targets, std::int64_t vocabulary,
                                  double ignored, double scale) {
  std::size_t const rows = targets.size(), width = at(vocabulary);
  Values gradient(rows * width), row_losses(rows);
  double total = 0, valid = 0;
  for (double target : targets) valid += target != ignored;
  for (std::size_t r = 0; r < rows; ++r) {
    if (targets[r] == ignored) continue;
    std::size_t const target = row_of(c, targets[r], vocabulary);
    double const* z = logits.data() + r * width;
    double top = z[0], sum = 0;
    for (std::size_t i = 0; i < width; ++i) top = std::max(top, z[i]);
    for (std::size_t i = 0; i < width; ++i) sum += std::exp(z[i] - top);
    row_losses[r] = top + std::log(sum) - z[target];
    total += row_losses[r];
    for (std::size_t i = 0; i < width; ++i)
      gradient[r * width + i] = scale * (std::exp(z[i] - top) / sum - double(i == target)) / valid;
  }
  return {{valid > 0 ? total / valid : 0}, gradient, row_losses};
}

inline List<Values> linear_cross_entropy(Call const& c) {
  std::size_t const width = at(c.shape(1)[1]), rows = c.in(2).size(), vocabulary = at(c.integer(1));
  Values const x = factors(c, c.in(0)), weight = factors(c, c.in(1));
  Values logits(rows * vocabulary);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t v = 0; v < vocabulary; ++v)
      for (std::size_t i = 0; i < width; ++i)
        logits[r * vocabulary + v] += x[r * width + i] * weight[v * width + i];
  List<Values> const loss =
      losses(c, logits, c.in(2), c.integer(1), static_cast<double>(c.integer(0)), c.real());
  Values const dlogits = factors(c, loss[1]);
  Values dx(c.in(0).size()), dweight(c.in(1).size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t v = 0; v < vocabulary; ++v)
      for (std::size_t i = 0; i < width; ++i) {
        dx[r * width + i] += dlogits[r * vocabulary + v] * weight[v * width + i];
        dweight[v * width + i] += dlogits[r * vocabulary + v] * x[r * width + i];
      }
  return {loss[0], dx, dweight, loss[2]};
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

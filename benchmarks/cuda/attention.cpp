// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Causal flash attention on a GPU in bfloat16, forward, and forward with gradient: 4 B H T^2 D / 2 operations, and 3.5
/// times as many. rivals.py measures PyTorch's under the same names.

#include "bench.hpp"

#include <tutti/kernel/cuda/attention.hpp>

namespace {

using namespace tutti;
using bench::Array;
using bench::Contender;
using std::int64_t;

struct Case {
  int64_t batch, heads, tokens, size;
};

using Values = std::vector<bfloat16>;
double dot(Values const& x, int64_t i, Values const& y, int64_t j, int64_t count) {
  double sum = 0;
  for (int64_t d = 0; d < count; ++d)
    sum += double{float(x[static_cast<std::size_t>(i + d)])} * float(y[static_cast<std::size_t>(j + d)]);
  return sum;
}

/// One position of the last head of the last sequence: out, dq, dk and dv in double.
void check(Case const& s, double scale, Values const& qkv, Values const& out, Values const& dout,
           std::vector<float> const& lse, Values const& dqkv, int64_t position) {
  int64_t const width = s.heads * s.size, row = 3 * width, head = (s.heads - 1) * s.size;
  auto const length = static_cast<std::size_t>(s.size);
  std::vector<double> o(length), dq(length), dk(length), dv(length);
  auto const q_at = [&](int64_t t) { return t * row + head; };
  auto const k_at = [&](int64_t t) { return t * row + width + head; };
  auto const v_at = [&](int64_t t) { return t * row + 2 * width + head; };
  auto const p = [&](int64_t t, int64_t j) {
    return std::exp(scale * dot(qkv, q_at(t), qkv, k_at(j), s.size) - double{lse[static_cast<std::size_t>(t)]});
  };
  auto const delta = [&](int64_t t) { return dot(dout, t * width + head, out, t * width + head, s.size); };
  auto const add = [&](std::vector<double>& to, double factor, Values const& from, int64_t at) {
    for (std::size_t d = 0; d < to.size(); ++d) to[d] += factor * float(from[static_cast<std::size_t>(at) + d]);
  };
  double total = 0;
  for (int64_t j = 0; j <= position; ++j) {
    double const share = p(position, j);
    total += share;
    add(o, share, qkv, v_at(j));
    double const ds = share * (dot(dout, position * width + head, qkv, v_at(j), s.size) - delta(position));
    add(dq, scale * ds, qkv, k_at(j));
  }
  for (int64_t t = position; t < s.tokens; ++t) {
    double const share = p(t, position);
    add(dv, share, dout, t * width + head);
    double const ds = share * (dot(dout, t * width + head, qkv, v_at(position), s.size) - delta(t));
    add(dk, scale * ds, qkv, q_at(t));
  }
  bench::require(std::abs(total - 1) < 1e-3, "the logarithm of the sums of attention");
  auto const close = [&](Values const& values, int64_t at, std::vector<double> const& exact, char const* what) {
    double largest = 0, error = 0;
    for (std::size_t d = 0; d < exact.size(); ++d) {
      double const value = double{float(values[static_cast<std::size_t>(at) + d])};
      bench::require(value == value, what);
      largest = std::max(largest, std::abs(exact[d])), error = std::max(error, std::abs(value - exact[d]));
    }
    bench::require(error <= 0.02 * largest + 2e-3, what);
  };
  close(out, position * width + head, o, "attention");
  close(dqkv, q_at(position), dq, "attention's gradient of q");
  close(dqkv, k_at(position), dk, "attention's gradient of k");
  close(dqkv, v_at(position), dv, "attention's gradient of v");
}

void race(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report, Case const& s) {
  std::string const shape = "_b" + std::to_string(s.batch) + "_h" + std::to_string(s.heads) + "_t" +
                            std::to_string(s.tokens) + "_d" + std::to_string(s.size);
  if (("attention" + shape).find(flags.only) == std::string::npos) return;
  int64_t const width = s.heads * s.size, rows = s.batch * s.tokens;
  auto const qkv = bench::random_array<bfloat16>(context, rows * 3 * width, 1, -2, 2),
             dout = bench::random_array<bfloat16>(context, rows * width, 2);
  Array<bfloat16> const out(context, rows * width), dqkv(context, rows * 3 * width);
  Array<float> const lse(context, s.batch * s.heads * s.tokens);
  float const scale = 1 / std::sqrt(static_cast<float>(s.size));
  kernel::AttentionOf<bfloat16> forward{s.batch, s.tokens, s.heads, s.size, scale, qkv.data(), out.data(), lse.data()};
  kernel::AttentionGradientOf<bfloat16> backward{s.batch,     s.tokens,   s.heads,    s.size,     scale,
                                                 dout.data(), qkv.data(), out.data(), lse.data(), dqkv.data()};
  forward.product = backward.product = kernel::Product::bfloat16;
  out.poison(), dqkv.poison(), lse.poison();
  kernel::cuda::attention(context, forward);
  kernel::cuda::attention_gradient(context, backward);
  {
    int64_t const last = rows - s.tokens;
    auto const x = qkv.read(last * 3 * width, s.tokens * 3 * width),
               dx = dqkv.read(last * 3 * width, s.tokens * 3 * width), y = out.read(last * width, s.tokens * width),
               dy = dout.read(last * width, s.tokens * width);
    auto const sums = lse.read(lse.size() - s.tokens, s.tokens);
    for (int64_t const position : {int64_t{0}, s.tokens / 3, s.tokens - 1})
      check(s, double{scale}, x, y, dy, sums, dx, position);
  }
  std::vector<Contender> contenders{{"forward", [&] { kernel::cuda::attention(context, forward); }},
                                    {"both", [&] {
                                       kernel::cuda::attention(context, forward);
                                       kernel::cuda::attention_gradient(context, backward);
                                     }}};
  bench::take_turns(context, contenders, flags.rounds);
  double const operations = 2.0 * double(s.batch * s.heads * s.size) * double(s.tokens) * double(s.tokens);
  report.add("attention_forward" + shape, 1e-9 * operations / contenders[0].median(), "TFLOP/s");
  report.add("attention_both" + shape, 3.5e-9 * operations / contenders[1].median(), "TFLOP/s");
}

void measure(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report) {
  if (flags.tiny) {
    race(context, flags, report, {2, 2, 80, 64});
    return race(context, flags, report, {1, 1, 40, 128});
  }
  // rivals.py has the same list.
  for (Case const& shape :
       {Case{32, 12, 1024, 64}, Case{8, 12, 4096, 64}, Case{16, 16, 1024, 128}, Case{4, 16, 4096, 128}})
    race(context, flags, report, shape);
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(argc, argv, measure); }

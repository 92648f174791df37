// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Kernels of GPT-2 124M that memory bounds, in bfloat16 with float parameters: bytes that they must move, by the
/// second, beside a plain copy in the same run.

#include "bench.hpp"

#include <tutti/graph/cuda/chains.hpp>
#include <tutti/kernel/cuda/adamw.hpp>
#include <tutti/kernel/cuda/cross_entropy.hpp>
#include <tutti/kernel/cuda/embedding.hpp>
#include <tutti/kernel/cuda/layer_norm.hpp>

namespace {

using namespace tutti;
using bench::Array;
using bench::Contender;
using bench::random_array;
using bench::require;
using std::int64_t;

bool near(double value, double exact, double relative, double scale = 1) {
  return std::abs(value - exact) <= relative * std::max(scale, std::abs(exact));
}

/// A kernel against a copy of as many bytes, taking turns.
class Race {
 public:
  Race(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report)
      : context_(context),
        flags_(flags),
        report_(report),
        from_(random_array<float>(context, flags.tiny ? 4096 : int64_t{1} << 28, 99)),
        to_(context, from_.size()) {}
  bool wanted(std::string const& name) const { return name.find(flags_.only) != std::string::npos; }
  void run(std::string const& name, double bytes, std::function<void()> kernel, std::function<void()> prepare = {}) {
    std::vector<Contender> contenders{
        {name, std::move(kernel), std::move(prepare)},
        {"copy", [this] { tutti::cuda::copy_on_device(context_.stream(), to_.data(), from_.data(), from_.bytes()); }}};
    bench::take_turns(context_, contenders, flags_.rounds);
    report_.add(name + " vs copy", 1e-6 * bytes / contenders[0].median(),
                2e-6 * static_cast<double>(from_.bytes()) / contenders[1].median(), "GB/s");
  }

 private:
  kernel::cuda::Context& context_;
  bench::Flags const& flags_;
  bench::Report& report_;
  Array<float> from_, to_;
};

/// The parameters of GPT-2 124M, the layers of one name in one tensor.
std::vector<int64_t> parameter_sizes(int64_t vocabulary, int64_t positions, int64_t layers, int64_t channels) {
  int64_t const c = channels, l = layers;
  return {vocabulary * c, positions * c, l * c,         l * c,     l * 3 * c * c, l * 3 * c, l * c * c, l * c,
          l * c,          l * c,         l * 4 * c * c, l * 4 * c, l * 4 * c * c, l * c,     c,         c};
}

void optimizer(kernel::cuda::Context& context, bench::Flags const& flags, Race& race) {
  if (!race.wanted("adamw") && !race.wanted("global_norm")) return;
  auto const sizes = flags.tiny ? parameter_sizes(64, 8, 2, 16) : parameter_sizes(50304, 1024, 12, 768);
  int64_t total = 0;
  for (int64_t const size : sizes) total += size;
  auto const parameters = random_array<float>(context, total, 1), gradients = random_array<float>(context, total, 2),
             m = random_array<float>(context, total, 3, -0.1f, 0.1f),
             v = random_array<float>(context, total, 4, 0.1f, 1);
  Array<bfloat16> const copies(context, total);
  std::vector<kernel::AdamW> tensors;
  std::vector<kernel::SquareSum> squares;
  int64_t at = 0;
  for (int64_t const size : sizes) {
    kernel::AdamW one{.size = size,
                      .parameter = parameters.data() + at,
                      .gradient = gradients.data() + at,
                      .m = m.data() + at,
                      .v = v.data() + at,
                      .learning_rate = 1e-3f,
                      .weight_decay = 0.1f,
                      .correction1 = 0.5f,
                      .correction2 = 0.5f};
    one.copy = copies.data() + at;
    tensors.push_back(one);
    squares.push_back({.size = size, .x = gradients.data() + at});
    at += size;
  }
  double const n = static_cast<double>(total);
  if (race.wanted("adamw")) {
    auto const p = parameters.read(total - 1, 1)[0], g = gradients.read(total - 1, 1)[0], m1 = m.read(total - 1, 1)[0],
               v1 = v.read(total - 1, 1)[0];
    kernel::cuda::adamw(context, tensors);
    double const next_m = 0.9 * m1 + 0.1 * g, next_v = 0.999 * v1 + 0.001 * double{g} * g;
    double const exact = p - 1e-3 * (next_m / 0.5 / (std::sqrt(next_v / 0.5) + 1e-8) + 0.1 * p);
    float const updated = parameters.read(total - 1, 1)[0];
    require(near(double{updated}, exact, 1e-6), "AdamW");
    require(copies.read(total - 1, 1)[0].bits == bfloat16(updated).bits, "AdamW's copy");
    race.run("adamw", 30 * n, [&] { kernel::cuda::adamw(context, tensors); });
  }
  if (race.wanted("global_norm")) {
    Array<double> const sum(context, 1);
    auto const run = [&] { kernel::cuda::square_sum(context, squares, nullptr, sum.data()); };
    run();
    require(near(sum.read()[0], n / 3, flags.tiny ? 0.1 : 1e-3), "the global norm");
    race.run("global_norm", 4 * n, run);
  }
}

void layer_norm(kernel::cuda::Context& context, bench::Flags const& flags, Race& race) {
  if (!race.wanted("layer_norm") && !race.wanted("layer_norm_gradient")) return;
  int64_t const rows = flags.tiny ? 40 : int64_t{1} << 18, channels = flags.tiny ? 64 : 768, size = rows * channels;
  auto const x = random_array<bfloat16>(context, size, 5), dy = random_array<bfloat16>(context, size, 6),
             add = random_array<bfloat16>(context, size, 7);
  auto const gamma = random_array<float>(context, channels, 8, 0.5f, 1.5f),
             beta = random_array<float>(context, channels, 9);
  Array<bfloat16> const y(context, size);
  Array<float> const mean(context, rows), rstd(context, rows), dgamma(context, channels), dbeta(context, channels);
  kernel::LayerNormOf<bfloat16> const forward{rows,        channels, 1e-5f,       x.data(),   gamma.data(),
                                              beta.data(), y.data(), mean.data(), rstd.data()};
  kernel::cuda::layer_norm(context, forward);
  int64_t const last = size - channels;
  auto const in = x.read(last, channels), out = y.read(last, channels);
  auto const g = gamma.read(), b = beta.read();
  double average = 0, variance = 0;
  for (auto const value : in) average += double{float(value)} / double(channels);
  for (auto const value : in) variance += (float(value) - average) * (float(value) - average) / double(channels);
  for (std::size_t c = 0; c < in.size(); ++c)
    require(near(double{float(out[c])}, (float(in[c]) - average) / std::sqrt(variance + 1e-5) * g[c] + b[c], 0x1p-7),
            "layer norm");
  double const bytes = 2 * static_cast<double>(size);
  if (race.wanted("layer_norm")) race.run("layer_norm", 2 * bytes, [&] { kernel::cuda::layer_norm(context, forward); });
  // Its dx goes where y was, so every array is far from the caches when it is read again.
  kernel::LayerNormGradientOf<bfloat16> const backward{rows,         channels,      dy.data(),   x.data(),
                                                       gamma.data(), mean.data(),   rstd.data(), add.data(),
                                                       y.data(),     dgamma.data(), dbeta.data()};
  auto const run = [&] { kernel::cuda::layer_norm_gradient(context, backward); };
  run();
  auto const slopes = dy.read(last, channels), added = add.read(last, channels), dx = y.read(last, channels);
  double const scale = 1 / std::sqrt(variance + 1e-5);
  double sum = 0, product = 0;
  for (std::size_t c = 0; c < in.size(); ++c) {
    double const h = double{float(slopes[c])} * g[c] / double(channels);
    sum += h, product += h * (float(in[c]) - average) * scale;
  }
  for (std::size_t c = 0; c < in.size(); ++c) {
    double const exact =
        scale * (double{float(slopes[c])} * g[c] - sum - (float(in[c]) - average) * scale * product) + float(added[c]);
    require(near(double{float(dx[c])}, exact, 0x1p-7), "layer norm's gradient");
  }
  if (race.wanted("layer_norm_gradient")) race.run("layer_norm_gradient", 4 * bytes, run);
}

void cross_entropy(kernel::cuda::Context& context, bench::Flags const& flags, Race& race) {
  if (!race.wanted("cross_entropy")) return;
  int64_t const rows = flags.tiny ? 12 : 8192, vocabulary = flags.tiny ? 250 : 50257, padded = flags.tiny ? 256 : 50304;
  auto const kept = random_array<bfloat16>(context, rows * padded, 10, -3, 3);
  Array<bfloat16> const logits(context, rows * padded);
  Array<float> const losses(context, rows);
  Array<kernel::cuda::TargetCount> const count(context, 1);
  Array<std::int32_t> const targets(context, rows);
  std::vector<std::int32_t> chosen;
  for (int64_t row = 0; row < rows; ++row)
    chosen.push_back(static_cast<std::int32_t>(bench::scrambled(static_cast<std::uint64_t>(row) + 11) %
                                               static_cast<std::uint64_t>(vocabulary)));
  targets.write(chosen);
  kernel::cuda::count_targets(context, targets.data(), rows, vocabulary, -1, 1.0f, count.data());
  kernel::cuda::LogitRowsOf<bfloat16> args;
  args.rows = rows, args.vocabulary = vocabulary, args.stride = args.padded = padded, args.count = count.data();
  args.logits = args.gradient = logits.data(), args.targets = targets.data(), args.row_losses = losses.data();
  // The gradient takes the place of the logits: they come back before each run.
  auto const prepare = [&] { tutti::cuda::copy_on_device(context.stream(), logits.data(), kept.data(), kept.bytes()); };
  auto const run = [&] { kernel::cuda::cross_entropy_rows(context, args); };
  prepare();
  run();
  auto const z = kept.read((rows - 1) * padded, vocabulary), dz = logits.read((rows - 1) * padded, padded);
  double sum = 0;
  for (auto const value : z) sum += std::exp(double{float(value)});
  auto const target = static_cast<std::size_t>(chosen.back());
  require(near(double{losses.read(rows - 1, 1)[0]}, std::log(sum) - float(z[target]), 1e-4), "cross-entropy");
  for (std::size_t c = 0; c < dz.size(); ++c) {
    double const p = c < z.size() ? std::exp(double{float(z[c])}) / sum : 0;
    require(near(double{float(dz[c])} * double(rows), p - (c == target ? 1 : 0), 0x1p-7, 1e-9), "its gradient");
  }
  race.run("cross_entropy", 4 * static_cast<double>(rows * vocabulary), run, prepare);
}

void elementwise(kernel::cuda::Context& context, bench::Flags const& flags, Race& race) {
  if (!race.wanted("chain")) return;
  using graph::Op;
  int64_t const n = flags.tiny ? 1000 : int64_t{1} << 28;
  auto const a = random_array<bfloat16>(context, n, 12), b = random_array<bfloat16>(context, n, 13);
  Array<bfloat16> const sum(context, n), activated(context, n);
  kernel::ElementwiseInput const inputs[] = {{a.data(), DType::bfloat16, {1}}, {b.data(), DType::bfloat16, {1}}};
  kernel::ElementwiseOutput const outputs[] = {{2, sum.data(), DType::bfloat16},
                                               {3, activated.data(), DType::bfloat16}};
  kernel::Elementwise const fused{{n}, inputs, graph::cuda::AddGeluChain::steps, outputs};
  double const bytes = 8 * static_cast<double>(n);
  auto const last_sum = [&] { return double{float(a.read(n - 1, 1)[0])} + float(b.read(n - 1, 1)[0]); };
  auto const check = [&](std::int16_t which, double factor, char const* what) {
    double const u = last_sum() * factor,
                 gelu = 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
    require(near(double{float((which == 0 ? sum : activated).read(n - 1, 1)[0])}, which == 0 ? u : gelu, 0x1p-7), what);
  };
  auto const compiled = [&] { graph::cuda::elementwise(context, fused); };
  compiled();
  check(0, 1, "a chain"), check(1, 1, "a chain");
  race.run("chain_compiled", bytes, compiled);
  // One instruction more than any chain that is known has.
  kernel::ElementwiseInstruction const steps[] = {
      {Op::add, 0, 1}, {Op::constant, -1, -1, -1, 0.5}, {Op::multiply, 2, 3}, {Op::gelu, 4}};
  kernel::ElementwiseOutput const others[] = {{4, sum.data(), DType::bfloat16}, {5, activated.data(), DType::bfloat16}};
  kernel::Elementwise const unknown{{n}, inputs, steps, others};
  auto const interpreted = [&] { graph::cuda::elementwise(context, unknown); };
  interpreted();
  check(0, 0.5, "an interpreted chain"), check(1, 0.5, "an interpreted chain");
  race.run("chain_interpreted", bytes, interpreted);
}

void embedding(kernel::cuda::Context& context, bench::Flags const& flags, Race& race) {
  if (!race.wanted("embedding")) return;
  int64_t const batch = flags.tiny ? 2 : 256, length = flags.tiny ? 16 : 1024, channels = flags.tiny ? 32 : 768,
                vocabulary = flags.tiny ? 40 : 50304, size = batch * length * channels;
  // Few words make up most of a text.
  std::vector<std::int32_t> chosen;
  for (int64_t i = 0; i < batch * length; ++i) {
    double const u = static_cast<double>(bench::scrambled(static_cast<std::uint64_t>(i) + 14) >> 11) * 0x1p-53;
    chosen.push_back(static_cast<std::int32_t>(double(vocabulary) * u * u * u));
  }
  std::vector<bool> occurs(static_cast<std::size_t>(vocabulary));
  double rows = 0;
  for (auto const token : chosen)
    if (!occurs[static_cast<std::size_t>(token)]) occurs[static_cast<std::size_t>(token)] = true, ++rows;
  Array<std::int32_t> const tokens(context, batch * length);
  tokens.write(chosen);
  auto const dout = random_array<bfloat16>(context, size, 15);
  auto const table = random_array<bfloat16>(context, vocabulary * channels, 16),
             positions = random_array<bfloat16>(context, length * channels, 17);
  Array<bfloat16> const out(context, size);
  Array<float> const dtable(context, vocabulary * channels), dpositions(context, length * channels);
  auto const forward = [&] {
    kernel::cuda::embedding(context,
                            kernel::EmbeddingOf<bfloat16, bfloat16>{batch, length, channels, vocabulary, tokens.data(),
                                                                    table.data(), positions.data(), out.data()});
  };
  forward();
  double const exact =
      double{float(table.read(chosen.back() * channels, 1)[0])} + float(positions.read((length - 1) * channels, 1)[0]);
  require(near(double{float(out.read(size - channels, 1)[0])}, exact, 0x1p-7), "the embedding");
  double const c = static_cast<double>(channels), n = static_cast<double>(size);
  race.run("embedding", 2 * n + 2 * c * (rows + static_cast<double>(length)), forward);
  auto const backward = [&] {
    kernel::cuda::embedding_gradient(
        context, kernel::EmbeddingGradientOf<bfloat16>{batch, length, channels, vocabulary, length, tokens.data(),
                                                       dout.data(), dtable.data(), dpositions.data(), true});
  };
  backward();
  double sum = 0;
  for (int64_t i = 0; i < batch * length; ++i)
    if (chosen[static_cast<std::size_t>(i)] == chosen.back()) sum += float(dout.read(i * channels, 1)[0]);
  require(near(double{dtable.read(chosen.back() * channels, 1)[0]}, sum, 1e-4), "the embedding's gradient");
  // The table's gradient is cleared, and its rows that occur are written; dout must be read once.
  race.run("embedding_gradient", 2 * n + 4 * c * (static_cast<double>(vocabulary) + rows + static_cast<double>(length)),
           backward);
}

void measure(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report) {
  Race race(context, flags, report);
  optimizer(context, flags, race);
  layer_norm(context, flags, race);
  cross_entropy(context, flags, race);
  elementwise(context, flags, race);
  embedding(context, flags, race);
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(argc, argv, measure); }

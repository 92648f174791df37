// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Products with weights in blocks. One row, as when decoding, and eight: bytes of weights by the second, beside a
/// plain read of the same bytes. 512 rows, as for a prompt: operations by the second, beside the product with the same
/// weights in float32. Contenders take turns; the median of each counts.
///
///   blocks [--threads N] [--isa NAME] [--megabytes N] [--rounds N] [--type NAME] [--json FILE]
///     --megabytes  of each weight that one row reads, 128 by default, far more than caches hold
///     --type       one of Q4_0, Q4_K and so on; all by default

#include "peaks.hpp"
#include "rows.hpp"

#include <tutti/core/block_quantise.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/scratch.hpp>
#include <tutti/kernel/cpu/block_product.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;

constexpr int64_t width = 2048, prompt = 512, prompt_out = 2048;

struct Flags {
  exec::ContextOptions context;
  int64_t megabytes = 128;
  int rounds = 9;
  std::string type, json;
};

Flags read_flags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    std::string_view const flag = argv[i];
    char const* const value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) throw std::runtime_error(std::string(flag) + " needs a value");
    if (flag == "--threads") flags.context.threads = std::atoi(value);
    else if (flag == "--isa") flags.context.isa = bench::isa_of(value);
    else if (flag == "--megabytes") flags.megabytes = std::max(1ll, std::atoll(value));
    else if (flag == "--rounds") flags.rounds = std::max(1, std::atoi(value));
    else if (flag == "--type") flags.type = value;
    else if (flag == "--json") flags.json = value;
    else
      throw std::runtime_error(
          "usage: blocks [--threads N] [--isa NAME] [--megabytes N] [--rounds N] [--type NAME] [--json FILE]");
  }
  if (!flags.type.empty() && !find_block_type(flags.type)) throw std::runtime_error("--type: none is " + flags.type);
  return flags;
}

std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::minstd_rand engine(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(engine() % 4096) / 2048 - 1;
  return values;
}
double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Rows of weights, the first 64 of them over and over.
kernel::BlockMatrix fill(BlockType type, int64_t out, exec::Scratch& memory) {
  int64_t const row = row_bytes(type, width), distinct = std::min<int64_t>(out, 64);
  auto* const data = static_cast<std::byte*>(memory.reserve(static_cast<std::size_t>(out * row)));
  std::vector<float> const values = random_floats(distinct * width, 3);
  quantise(type, values.data(), distinct * width, data);
  for (int64_t o = distinct; o < out; ++o)
    std::memcpy(data + o * row, data + (o % distinct) * row, static_cast<std::size_t>(row));
  return {type, out, width, data};
}
/// Whether the last output of the last row of x is right.
bool right(kernel::BlockProduct const& p) {
  std::vector<float> weights(static_cast<std::size_t>(width));
  int64_t const o = p.weight.out - 1, r = p.rows - 1;
  dequantise(p.weight.type, p.weight.data + o * row_bytes(p.weight.type, width), width, weights.data());
  double sum = 0, magnitudes = 0;
  for (int64_t i = 0; i < width; ++i) {
    double const term = double{weights[static_cast<std::size_t>(i)]} * double{p.x[r * p.x_stride + i]};
    sum += term, magnitudes += std::abs(term);
  }
  return std::abs(double{p.y[r * p.y_stride + o]} - sum) <= 0.01 * magnitudes;
}

/// Median seconds of each, taking turns.
std::vector<double> race(int rounds, std::vector<std::function<void()>> const& contenders) {
  std::vector<std::vector<double>> seconds(contenders.size());
  for (auto const& run : contenders) run();
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i)
      seconds[i].push_back(kernel::cpu::detail::seconds_of(contenders[i]));
  std::vector<double> result;
  for (auto const& each : seconds) result.push_back(median(each));
  return result;
}

int run(int argc, char** argv) {
  Flags const flags = read_flags(argc, argv);
  bench::Rows rows(flags.json);
  exec::Context context(flags.context);
  bench::print_head(context);
  std::printf("%-8s %8s %8s %8s %8s  %8s %8s %8s\n", "weights", "1 row", "read", "of read", "8 rows", "512 rows",
              "float32", "of it");
  std::printf("%-8s %8s %8s %8s %8s  %8s %8s\n", "", "GB/s", "GB/s", "", "GB/s", "GFLOP/s", "GFLOP/s");
  std::vector<float> const x = random_floats(prompt * width, 1);
  for (auto const& facts : detail::block_facts) {
    if (!flags.type.empty() && *find_block_type(flags.type) != facts.type) continue;
    std::string const name(facts.name);
    exec::Scratch memory, few;
    int64_t const out = flags.megabytes * 1000000 / row_bytes(facts.type, width) / 8 * 8;
    kernel::BlockMatrix const weight = fill(facts.type, out, memory);
    std::vector<float> y(static_cast<std::size_t>(std::max(8 * out, 2 * prompt * prompt_out)));
    kernel::BlockProduct one{
        .rows = 1, .x = x.data(), .x_stride = width, .weight = weight, .y = y.data(), .y_stride = out};
    kernel::BlockProduct eight = one;
    eight.rows = 8;
    std::size_t const bytes = static_cast<std::size_t>(out * row_bytes(facts.type, width));
    std::int32_t volatile sink = 0;
    auto const read = [&] {
      context.parallel([&](int thread) {
        kernel::cpu::detail::BytePart const part(bytes / 512 * 512, thread, context.threads());
        std::int32_t const sum = kernel::cpu::detail::read_loop_of(
            context.isa(), reinterpret_cast<std::int32_t const*>(weight.data + part.first),
            static_cast<int64_t>(part.size / 512 * 128));
        if (thread == 0) sink = sum;
      });
    };
    kernel::cpu::block_product(context, one);
    bool good = right(one);
    kernel::cpu::block_product(context, eight);
    good = good && right(eight);
    auto const decode = race(flags.rounds, {[&] { kernel::cpu::block_product(context, one); }, read,
                                            [&] { kernel::cpu::block_product(context, eight); }});

    kernel::BlockProduct many = one;
    many.rows = prompt, many.weight = fill(facts.type, prompt_out, few), many.y_stride = prompt_out;
    std::vector<float> wide(static_cast<std::size_t>(prompt_out * width));
    dequantise(facts.type, many.weight.data, prompt_out * width, wide.data());
    kernel::Gemm const gemm = kernel::linear_product<float>(prompt, width, prompt_out, x.data(), wide.data(),
                                                            y.data() + prompt * prompt_out);
    kernel::cpu::block_product(context, many);
    if (!good || !right(many)) throw std::runtime_error(name + ": products are wrong");
    auto const prefill = race(flags.rounds, {[&] { kernel::cpu::block_product(context, many); },
                                             [&] { kernel::cpu::gemm(context, gemm); }});
    double const size = static_cast<double>(bytes), work = 2.0 * prompt * width * prompt_out;
    std::printf("%-8s %8.1f %8.1f %6.0f %% %8.1f  %8.1f %8.1f %6.0f %%\n", name.c_str(), size / decode[0] * 1e-9,
                size / decode[1] * 1e-9, 100 * decode[1] / decode[0], size / decode[2] * 1e-9,
                work / prefill[0] * 1e-9, work / prefill[1] * 1e-9, 100 * prefill[1] / prefill[0]);
    std::fflush(stdout);
    rows.add(name + ", 1 row vs read", size / decode[0], size / decode[1], decode[1] / decode[0], "B/s");
    rows.add(name + ", 8 rows vs read", size / decode[2], size / decode[1], decode[1] / decode[2], "B/s");
    rows.add(name + ", 512 rows vs float32", work / prefill[0], work / prefill[1], prefill[1] / prefill[0], "FLOP/s");
  }
  rows.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(run, argc, argv); }

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Kernels that memory bounds, beside a plain copy and a plain update in place by all threads in the same run: bytes
/// that they must move, by the second, as a share of the bandwidth of those. Contenders take turns; the median of each
/// counts. What is updated in place is faster than what is copied: its lines are there when they are written.
///
///   bandwidth [--threads N] [--isa NAME] [--elements N] [--rounds N] [--json FILE]
///     --elements  of each array, 32 Mi by default, far more than caches hold; rounded down to whole rows of 768

#include "peaks.hpp"
#include "rows.hpp"

#include <tutti/core/bfloat16.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/scratch.hpp>
#include <tutti/kernel/cpu/adamw.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/layer_norm.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace tutti;
using std::int64_t;

/// Arrays in huge pages where the system gives them, as tensors are.
class Arrays {
 public:
  template <class T = float>
  T* add(int64_t count, T value = T{}) {
    auto* const data = static_cast<T*>(blocks_.emplace_back().reserve(static_cast<std::size_t>(count) * sizeof(T)));
    std::fill(data, data + count, value);
    return data;
  }
  float* add_random(int64_t count) {
    float* const data = add(count);
    std::minstd_rand engine(static_cast<unsigned>(blocks_.size()));
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(engine() % 4096) / 2048 - 1;
    return data;
  }

 private:
  std::deque<exec::Scratch> blocks_;
};

struct Contender {
  std::string name;
  double bytes;  ///< that one call must move
  std::function<void()> run;
  std::function<bool()> right;  ///< after the first call
  std::vector<double> seconds{};
};

double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
bool near(double value, double exact) { return std::abs(value - exact) <= 1e-4 * std::max(1.0, std::abs(exact)); }

/// Of floats in whole multiples of 64 bytes.
void flip_signs(char* bytes, std::size_t count) {
  typedef std::uint32_t Four __attribute__((vector_size(16)));
  for (std::size_t i = 0; i < count; i += 64)
    for (std::size_t j = 0; j < 64; j += 16) {
      Four value;
      std::memcpy(&value, bytes + i + j, 16);
      value ^= 0x80000000u;
      std::memcpy(bytes + i + j, &value, 16);
    }
}

struct Flags {
  exec::ContextOptions context;
  int64_t elements = int64_t{32} << 20;
  int rounds = 11;
  std::string json;
};

Flags read_flags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    std::string_view const flag = argv[i];
    char const* const value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) throw std::runtime_error(std::string(flag) + " needs a value");
    if (flag == "--threads") flags.context.threads = std::atoi(value);
    else if (flag == "--isa") flags.context.isa = bench::isa_of(value);
    else if (flag == "--elements") flags.elements = std::atoll(value);
    else if (flag == "--rounds") flags.rounds = std::max(1, std::atoi(value));
    else if (flag == "--json") flags.json = value;
    else
      throw std::runtime_error("usage: bandwidth [--threads N] [--isa NAME] [--elements N] [--rounds N] [--json FILE]");
  }
  return flags;
}

int run(int argc, char** argv) {
  Flags const flags = read_flags(argc, argv);
  bench::Rows rows(flags.json);
  exec::Context context(flags.context);
  bench::print_head(context);

  constexpr int64_t channels = 768;
  int64_t const count = std::max<int64_t>(flags.elements / channels, 1), size = count * channels;
  Arrays arrays;
  float* const parameter = arrays.add_random(size);
  float* const gradient = arrays.add_random(size);
  float* const m = arrays.add(size);
  float* const v = arrays.add(size);
  float* const target = arrays.add(size);
  auto* const copy = arrays.add<bfloat16>(size);
  float* const gamma = arrays.add(channels, 1.0f);
  float* const beta = arrays.add(channels, 0.5f);
  float* const sums = arrays.add(channels);
  float* const mean = arrays.add(count);
  float* const rstd = arrays.add(count);
  double square = 0;

  kernel::AdamW adamw;
  adamw.size = size, adamw.parameter = parameter, adamw.gradient = gradient, adamw.m = m, adamw.v = v;
  adamw.learning_rate = 1e-3f, adamw.correction1 = 1 - adamw.beta1, adamw.correction2 = 1 - adamw.beta2;
  // The first step from zero moments goes by the learning rate along the sign of the gradient.
  int64_t const sample = size / 2;
  auto const adamw_is_right = [=, before = parameter[sample], slope = gradient[sample]] {
    return near(parameter[sample], before - (slope > 0 ? 1e-3f : slope < 0 ? -1e-3f : 0.0f));
  };
  auto const with_copy = [adamw, copy, gradient](bool cleared) {
    kernel::AdamW args = adamw;
    args.copy = copy;
    if (cleared) args.cleared = gradient;
    return args;
  };
  double const n = static_cast<double>(size);
  Contender contenders[] = {
      {"copy", 8 * n,
       [&] {
         context.parallel([&](int thread) {
           kernel::cpu::detail::BytePart const part(static_cast<std::size_t>(size) * 4, thread, context.threads());
           std::memcpy(reinterpret_cast<char*>(target) + part.first,
                       reinterpret_cast<char const*>(gradient) + part.first, part.size);
         });
       },
       [=] { return std::memcmp(gradient, target, static_cast<std::size_t>(size) * 4) == 0; }},
      {"update in place", 8 * n,
       [&] {
         context.parallel([&](int thread) {
           kernel::cpu::detail::BytePart const part(static_cast<std::size_t>(size) * 4, thread, context.threads());
           flip_signs(reinterpret_cast<char*>(target) + part.first, part.size);
         });
       },
       [=] { return target[0] == -gradient[0] && target[size - 1] == -gradient[size - 1]; }},
      {"adamw", 28 * n, [&] { kernel::cpu::adamw(context, adamw); }, adamw_is_right},
      {"adamw + bfloat16 copy", 30 * n, [&] { kernel::cpu::adamw(context, with_copy(false)); },
       [=] { return copy[sample].bits == bfloat16(parameter[sample]).bits; }},
      {"layer norm", 8 * n,
       [&] { kernel::cpu::layer_norm(context, {count, channels, 1e-5f, gradient, gamma, beta, target, mean, rstd}); },
       [=] {
         double sum = 0;
         for (int64_t c = 0; c < channels; ++c) sum += double{target[(count - 1) * channels + c]};
         return near(sum / channels, 0.5);
       }},
      {"column sum", 4 * n, [&] { kernel::cpu::column_sum(context, {count, channels, gradient, sums}); },
       [=] {
         double sum = 0;
         for (int64_t row = 0; row < count; ++row) sum += double{gradient[row * channels + 7]};
         return std::abs(sum - double{sums[7]}) <= 1e-5 * static_cast<double>(count);
       }},
      {"square sum", 4 * n,
       [&] { kernel::cpu::square_sum(context, {.size = size, .x = gradient, .out = &square}); },
       [&] {
         double sum = 0;
         for (int64_t i = 0; i < size; ++i) sum += double{gradient[i]} * double{gradient[i]};
         return near(square, sum);
       }},
      // Last, because it clears the gradient that others read.
      {"adamw + copy + cleared gradient", 34 * n, [&] { kernel::cpu::adamw(context, with_copy(true)); },
       [=] { return gradient[sample] == 0 && gradient[size - 1] == 0; }},
  };
  for (Contender& contender : contenders) {
    contender.run();
    if (!contender.right()) throw std::runtime_error(contender.name + " computes something else");
  }
  for (int round = 0; round < flags.rounds; ++round)
    for (Contender& contender : contenders) contender.seconds.push_back(kernel::cpu::detail::seconds_of(contender.run));

  auto const rate_of = [](Contender const& contender) { return contender.bytes / median(contender.seconds); };
  double const copied = rate_of(contenders[0]), updated = rate_of(contenders[1]);
  std::printf("%lld elements, %d rounds\n%-34s %8s %8s %9s %9s\n", static_cast<long long>(size), flags.rounds, "", "ms",
              "GB/s", "of copy", "of update");
  for (Contender const& contender : contenders) {
    double const rate = rate_of(contender);
    std::printf("%-34s %8.2f %8.1f %7.0f %% %7.0f %%\n", contender.name.c_str(), contender.bytes / rate * 1e3,
                rate * 1e-9, 100 * rate / copied, 100 * rate / updated);
    rows.add(contender.name + " vs copy", rate, copied, rate / copied, "B/s");
    rows.add(contender.name + " vs update in place", rate, updated, rate / updated, "B/s");
  }
  rows.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(run, argc, argv); }

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the benchmarks of a GPU share: flags, random memory, contenders that take turns between events, rows.

#include "../kernels/rows.hpp"

#include <tutti/core/bfloat16.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/exec/cuda/stream.hpp>
#include <tutti/kernel/cuda/context.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

struct Flags {
  bool tiny = false;  ///< sizes for an emulated device: everything runs, and the figures say nothing
  int rounds = 25;
  std::string only, json;
};
inline Flags read_flags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    std::string_view const flag = argv[i];
    if (flag == "--tiny") {
      flags.tiny = true, flags.rounds = 2;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error(std::string(flag) + " needs a value, or is no flag");
    char const* const value = argv[++i];
    if (flag == "--rounds") flags.rounds = std::max(1, std::atoi(value));
    else if (flag == "--only") flags.only = value;
    else if (flag == "--json") flags.json = value;
    else throw std::runtime_error("usage: PROGRAM [--tiny] [--rounds N] [--only WORD] [--json FILE]");
  }
  return flags;
}

/// An array of a device, contents undefined.
template <class T>
class Array {
 public:
  Array(kernel::cuda::Context& context, std::int64_t count)
      : context_(&context), count_(count), memory_(context.stream(), static_cast<std::size_t>(count) * sizeof(T)) {}
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::int64_t size() const { return count_; }
  std::size_t bytes() const { return memory_.bytes(); }
  void write(std::vector<T> const& values) const {
    cuda::copy_to_device(context_->stream(), data(), values.data(), values.size() * sizeof(T));
    context_->stream().wait();
  }
  std::vector<T> read(std::int64_t first, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    cuda::copy_to_host(context_->stream(), values.data(), data() + first, values.size() * sizeof(T));
    context_->stream().wait();
    return values;
  }
  std::vector<T> read() const { return read(0, count_); }
  /// Every bit set: not a number in any type of floats.
  void poison() const { cuda::fill_bytes(context_->stream(), data(), 0xff, bytes()); }

 private:
  kernel::cuda::Context* context_;
  std::int64_t count_;
  cuda::DeviceMemory memory_;
};

constexpr std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

template <class T>
struct RandomFill {
  T* to;
  std::int64_t count;
  std::uint64_t seed;
  float low, high;
};
template <class T>
__global__ void fill_random(RandomFill<T> const args) {
  std::int64_t const i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= args.count) return;
  auto const bits = scrambled(args.seed + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u);
  float const share = static_cast<float>(bits >> 40) * 0x1p-24f;
  args.to[i] = T(args.low + (args.high - args.low) * share);
}
/// Random values: a device is faster on zeros.
template <class T>
Array<T> random_array(kernel::cuda::Context& context, std::int64_t count, std::uint64_t seed, float low = -1,
                      float high = 1) {
  Array<T> array(context, count);
  cuda::launch(context.stream(), {.grid = dim3(static_cast<unsigned>((count + 255) / 256)), .block = dim3(256)},
               fill_random<T>, RandomFill<T>{array.data(), count, seed * 0x632be59bd9b4e019u, low, high});
  return array;
}

struct Contender {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare{};  ///< before each run, not timed
  std::vector<double> milliseconds{};

  double median() const {
    std::vector<double> sorted = milliseconds;
    std::sort(sorted.begin(), sorted.end());
    return std::max(sorted[sorted.size() / 2], 1e-6);  // an emulated device may be faster than its clock
  }
};

/// Contenders take turns, begun by another one each time. A sample is one run, or as many as last 300 us.
inline void take_turns(kernel::cuda::Context& context, std::vector<Contender>& contenders, int rounds) {
  using Timing = cuda::Event::Timing;
  cuda::Stream const& stream = context.stream();
  cuda::Event const start(context.device(), Timing::on), end(context.device(), Timing::on);
  auto const sample = [&](Contender const& contender, int repeat) {
    if (contender.prepare) contender.prepare();
    start.record(stream);
    for (int i = 0; i < repeat; ++i) contender.run();
    end.record(stream);
    end.wait();
    return double{cuda::milliseconds_between(start, end)} / repeat;
  };
  std::vector<int> repeats;
  for (Contender& contender : contenders) {
    sample(contender, 1);
    double const once = sample(contender, 1);
    bool const single = contender.prepare != nullptr || rounds < 3;
    repeats.push_back(single ? 1 : static_cast<int>(std::clamp(std::ceil(0.3 / std::max(once, 1e-3)), 1.0, 100.0)));
    if (repeats.back() > 1) sample(contender, repeats.back());
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      std::size_t const which = (turn + static_cast<std::size_t>(round)) % contenders.size();
      contenders[which].milliseconds.push_back(sample(contenders[which], repeats[which]));
    }
  context.wait();
}

/// One line a row, in the table and in the file.
class Report {
 public:
  explicit Report(Flags const& flags) : rows_(flags.json) {}
  void add(std::string const& name, double ours, char const* unit) {
    std::printf("%-46s %12.4g %12s %7s %s\n", name.c_str(), ours, "", "", unit);
    static_cast<void>(std::fflush(stdout));
    rows_.add(name, ours, unit);
  }
  /// Of rates: more is better.
  void add(std::string const& name, double ours, double rival, char const* unit) {
    std::printf("%-46s %12.4g %12.4g %7.3f %s\n", name.c_str(), ours, rival, ours / rival, unit);
    static_cast<void>(std::fflush(stdout));
    rows_.add(name, ours, rival, ours / rival, unit);
  }
  void version(std::string const& of, std::string const& text) {
    std::printf("%s %s\n", of.c_str(), text.c_str());
    rows_.version(of, text);
  }
  void close() { rows_.close(); }

 private:
  Rows rows_;
};

inline void print_head(kernel::cuda::Context const& context, Flags const& flags, Report& report) {
  cudaDeviceProp device{};
  int driver = 0, runtime = 0;
  cuda::check(cudaGetDeviceProperties(&device, context.device()), "cudaGetDeviceProperties");
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  auto const version = [](int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  report.version("GPU", std::string(device.name) + ", sm_" + std::to_string(context.properties().capability) + ", " +
                            std::to_string(context.properties().processors) + " processors");
  report.version("CUDA", version(runtime) + ", driver for " + version(driver));
  report.version("rounds", std::to_string(flags.rounds));
  std::printf("%-46s %12s %12s %7s\n", "", "ours", "rival", "ratio");
}

/// Fails the program: what is wrong is not timed.
inline void require(bool right, std::string const& what) {
  if (!right) throw std::runtime_error(what + " computes something else");
}

/// `main` of a benchmark.
template <class F>
int run_main(int argc, char** argv, F&& body) {
  try {
    Flags const flags = read_flags(argc, argv);
    kernel::cuda::Context context;
    cuda::keep_freed_memory(context.device());
    Report report(flags);
    print_head(context, flags, report);
    body(context, flags, report);
    context.wait();
    report.close();
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace tutti::bench

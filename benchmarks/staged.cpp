// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All-reduce on memory of a device that the backend does not reach, in parts through the host, beside what a program
// would write without it: copy the whole buffer out, reduce it, copy it back. The device is host memory that only its
// own copies touch, so the figures show what the parts cost and save on this host, not a bus.
//
//   ./tutti bench staged                                          on threads
//   mpiexec -n 2 build/benchmarks/staged                          on MPI

#include <tutti/backend/any.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/tensor/copy.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct CopiedDevice : tutti::Cpu {
  static constexpr std::string_view name = "copied";
  static constexpr bool host_accessible = false;
  friend bool operator==(CopiedDevice, CopiedDevice) = default;
};

/// Two ways in turns; of each the median of the slowest rank's times, in microseconds.
template <class Comm, class First, class Second>
std::pair<double, double> compare(Comm& comm, int rounds, First&& first, Second&& second) {
  std::vector<double> times[2];
  auto const time = [&](auto& f, std::vector<double>& to) {
    comm.barrier();
    std::int64_t const begin = tutti::exec::now_ns();
    f();
    to.push_back(comm.all_reduce(static_cast<double>(tutti::exec::now_ns() - begin) * 1e-3, tutti::max));
  };
  for (int round = -2; round < rounds; ++round) {
    if (round == 0) times[0].clear(), times[1].clear();
    time(first, times[0]);
    time(second, times[1]);
  }
  for (auto& each : times) std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
  return {times[0][static_cast<std::size_t>(rounds / 2)], times[1][static_cast<std::size_t>(rounds / 2)]};
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::with_backend("auto", argc, argv, [](auto& comm) {
    if (comm.rank() == 0)
      std::printf("all_reduce(sum) of float32 on %d ranks, memory of a device: medians of the slowest rank\n"
                  "%12s %12s %12s %8s\n", comm.size(), "bytes", "parts us", "whole us", "ratio");
    for (std::int64_t bytes = 4096; bytes <= 64 << 20; bytes *= 4) {
      std::int64_t const count = bytes / 4;
      auto x = tutti::to_device(tutti::full<float>(tutti::Shape{count}, 1), CopiedDevice{});
      auto staged = tutti::tensor<float>(comm, tutti::Shape{count});
      auto const in_parts = [&] { comm.all_reduce(x, tutti::avg); };
      auto const whole = [&] {
        tutti::copy_to_host(x, staged);
        comm.all_reduce(staged, tutti::avg);
        tutti::copy_from_host(staged, x);
      };
      comm.all_reduce(x, tutti::sum);
      auto const sum = tutti::to_host(x);
      if (std::count(sum.data(), sum.data() + count, static_cast<float>(comm.size())) != count) {
        std::fprintf(stderr, "rank %d: a wrong sum of %lld bytes\n", comm.rank(), static_cast<long long>(bytes));
        return 1;
      }
      int const rounds = bytes > 4 << 20 ? 15 : bytes > 64 << 10 ? 101 : 1001;
      auto const [parts, all] = compare(comm, rounds, in_parts, whole);
      if (comm.rank() == 0)
        std::printf("%12lld %12.2f %12.2f %8.2f\n", static_cast<long long>(bytes), parts, all, all / parts);
    }
    return 0;
  });
}

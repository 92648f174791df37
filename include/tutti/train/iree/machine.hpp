// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training runs by IREE: each rank has a process in which it compiles and runs.

#include <tutti/graph/iree/peak.hpp>
#include <tutti/train/iree/execution.hpp>
#include <tutti/train/machine.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tutti::train {

template <>
class Machine<Iree> {
 public:
  /// Errors: unavailable, where there is no Python with IREE.
  Machine(Options const& options, NodePlace const& place)
      : host_({.threads = options.threads, .ranks_on_node = place.ranks}), runner_(runner_options(options)) {}

  exec::Context& host() noexcept { return host_; }
  graph::iree::Runner& context() noexcept { return runner_; }
  /// On processors what this machine's do at most; of others what IREE reaches, once the device has been taken.
  double measure_peak_flops(DType compute) {
    if (on_processors()) return kernel::cpu::measure_peak_flops(host_, 3, kernel::product_in(compute));
    return graph::iree::measure_peak_flops(runner_, compute);
  }
  std::string describe() const {
    std::string const text =
        fmt::format("iree:{}, IREE {} in process {}", runner_.device().text(), runner_.version(), runner_.process());
    return on_processors() ? fmt::format("{}, {}", text, exec::processor_name()) : text;
  }
  std::string describe_products(DType compute) const {
    return compute == DType::float32 ? "fp32" : "bfloat16, summed in fp32; master weights and all else in fp32";
  }
  /// See product_choices.hpp: IREE keeps its own.
  std::string product_choices() const { return {}; }
  bool take_product_choices(std::string const&) { return true; }
  /// Of processors the node's, for all its ranks; of others it is not known.
  std::int64_t available_memory() const { return on_processors() ? exec::available_memory() : 0; }
  graph::Roofline measure_roofline(DType) { return {}; }

 private:
  graph::iree::RunnerOptions runner_options(Options const& options) const {
    graph::iree::RunnerOptions made;
    made.device = graph::iree::parse_target_device(options.device.target());
    made.threads = host_.threads();
    return made;
  }
  bool on_processors() const { return driver(runner_.device()) == "local-task"; }

  exec::Context host_;
  graph::iree::Runner runner_;
};

}  // namespace tutti::train

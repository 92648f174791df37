// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a training run uses of the machine: processors for everything around the step, and the device that does it.

#include <tutti/comm/device_choice.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/memory_limit.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/kernel/cpu/peak.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/profiling.hpp>
#include <tutti/train/train_step.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tutti::train {

/// A rank's place among those of its node.
struct NodePlace {
  int rank = 0, ranks = 1;
};

/// Specialised for every device that trains: `Cpu` here, `Cuda` in tutti/train/cuda/machine.hpp.
template <class Device>
class Machine;

template <>
class Machine<Cpu> {
 public:
  Machine(Options const& options, NodePlace const& place)
      : context_({.threads = options.threads, .ranks_on_node = place.ranks}) {}

  exec::Context& host() noexcept { return context_; }
  /// What steps run in.
  exec::Context& context() noexcept { return context_; }
  /// Products a second times two, of this rank, measured now.
  double measure_peak_flops(DType compute) {
    return kernel::cpu::measure_peak_flops(context_, 3, kernel::product_in(compute));
  }
  std::string describe() const {
    return fmt::format("cpu, {}, {}", exec::processor_name(), exec::name(context_.isa()));
  }
  std::string describe_products(DType compute) const { return train::describe_products(compute, context_.isa()); }
  /// See product_choices.hpp: on processors nothing is chosen by time.
  std::string product_choices() const { return {}; }
  bool take_product_choices(std::string const&) { return true; }
  /// Of the node, for all its ranks; 0 where it is not known.
  std::int64_t available_memory() const { return exec::available_memory(); }
  graph::Roofline measure_roofline(DType) { return train::measure_roofline(context_); }

 private:
  exec::Context context_;
};

}  // namespace tutti::train

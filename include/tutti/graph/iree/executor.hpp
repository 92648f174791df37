// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a program on IREE's device: inputs go there, outputs come back, parameters and states stay.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/iree/program.hpp>
#include <tutti/graph/iree/state.hpp>
#include <tutti/graph/ports.hpp>
#include <tutti/graph/profile.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>

namespace tutti {

/// Names IREE's devices where a template takes the kind of device that a model trains on. Which one it is, the
/// graph::iree::Runner says.
struct Iree {};

}  // namespace tutti

namespace tutti::graph::iree {

/// Bound to a program and a state, which must outlive it, and whose runner has been opened. One run at a time.
class Executor : public Ports {
 public:
  /// Errors: shape (the state's field is another), invalid_argument (it lacks one); those of Runner::load.
  Executor(Program const& program, DeviceState& state, std::source_location where = std::source_location::current())
      : Ports(program.list), program_(program), state_(state) {
    state.to_host(where);  // the state may have fields since, of which the device knows nothing
    state.host_wrote();
    for (Entry const& entry : program.list.fields) static_cast<void>(field_of(state.host(), entry));
    std::int64_t spare = 0;
    for (auto const* ports : {&program.module.arguments, &program.module.results})
      for (StablehloPort const& port : *ports) spare = std::max(spare, bytes_of(port));
    spare_ = Memory(std::max<std::int64_t>(spare, 1));
    for (StablehloPort const& port : program.module.arguments)
      if (port.role == StablehloRole::input || port.role == StablehloRole::scalar)
        inputs_.push_back(memory_of(program.list.inputs, port));
    for (StablehloPort const& port : program.module.results) {
      if (port.role == StablehloRole::output) outputs_.push_back(memory_of(program.list.outputs, port));
      else writes_state_ = true;
    }
    number_ = state.runner().load(program.compiled.path, program.module, where);
  }
  Executor(Program&&, DeviceState&) = delete;  // the program would be gone
  Executor(Executor const&) = delete;
  Executor& operator=(Executor const&) = delete;

  Program const& program() const noexcept { return program_; }

  /// One run. Inputs keep their values between runs; each must have been set once.
  /// Blocking   until everything is done.
  /// Errors     out_of_range (a token outside the vocabulary: nothing is run then); those of Runner::run, after which
  ///            what the device holds of the state may be lost.
  void run(std::source_location where = std::source_location::current()) {
    require_given(where);
    for (IndexBound const& bound : program_.bounds) require_within(bound, where);
    state_.to_device(where);
    List<std::span<std::byte const>> inputs;
    for (std::span<std::byte> const input : inputs_) inputs.push_back(input);
    state_.runner().run(number_, inputs, outputs_, where);
    if (writes_state_) state_.device_wrote();
    ++runs_;
  }

  /// No rank is waited for.
  AxisWaits waits() const noexcept { return {}; }
  std::int64_t runs() const noexcept { return runs_; }
  /// Empty: what IREE does within a run is not known.
  Profile const& profile() const noexcept { return profile_; }

 private:
  static std::int64_t bytes_of(StablehloPort const& port) {
    return port.shape.size() * static_cast<std::int64_t>(size_of(port.dtype));
  }
  /// Of a port that the program leaves out, since nothing uses it: anything.
  std::span<std::byte> memory_of(List<Entry> const& entries, StablehloPort const& port) {
    auto const size = static_cast<std::size_t>(bytes_of(port));
    int const i = graph::Program::find(entries, port.name);
    if (i < 0) return {spare_.data(), size};
    return {port_data() + port_offset(entries[static_cast<std::size_t>(i)]), size};
  }
  void require_within(IndexBound const& bound, std::source_location where) const {
    int const i = graph::Program::find(program_.list.inputs, bound.input);
    if (i < 0) return;
    Entry const& entry = program_.list.inputs[static_cast<std::size_t>(i)];
    auto const* const elements = reinterpret_cast<std::int32_t const*>(port_data() + port_offset(entry));
    for (std::int64_t k = 0; k < entry.shape.size(); ++k) {
      std::int64_t const value = elements[k];
      if ((value >= 0 && value < bound.limit) || (bound.may_be_ignored && value == bound.ignored)) continue;
      throw Error(ErrorKind::out_of_range, "iree",
                  concat("element ", k, " of '", bound.input, "' is ", value, " and must be between 0 and ",
                         bound.limit - 1, bound.may_be_ignored ? concat(", or ", bound.ignored) : std::string()),
                  where);
    }
  }

  Program const& program_;
  DeviceState& state_;
  Memory spare_;
  List<std::span<std::byte>> inputs_, outputs_;
  bool writes_state_ = false;
  int number_ = -1;
  Profile profile_;
  std::int64_t runs_ = 0;
};

}  // namespace tutti::graph::iree

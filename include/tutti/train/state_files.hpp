// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The state of a training step in a checkpoint, and back; and any program's state in a file of its own.

#include <tutti/graph/state.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/train/checkpoint.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

namespace tutti::train {

inline io::NamedTensor named_tensor(graph::Field const& field) {
  return {field.name, field.dtype, field.shape, field.data()};
}
inline void sort_by_name(std::vector<io::NamedTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
}

/// Parameters and moments as of step `step`; facts and tokenizer are the caller's to add. Refers to the state's memory.
inline CheckpointContents contents_of(graph::State const& state, std::int64_t step) {
  CheckpointContents contents;
  contents.step = step;
  for (graph::Field const& field : state.fields())
    if (!optim::is_accumulator(field.name))
      (field.parameter ? contents.parameters : contents.optimizer).push_back(named_tensor(field));
  for (auto* list : {&contents.parameters, &contents.optimizer}) sort_by_name(*list);
  return contents;
}

/// Parameters of a checkpoint into a state of the same model, which this rank may write. Errors: format, dtype, naming
/// what differs.
inline void read_parameters(Checkpoint const& checkpoint, graph::State& state) {
  for (graph::Field& field : state.fields()) {
    if (!field.parameter) continue;
    io::NamedTensor const& saved = checkpoint.parameters().at(field.name);
    if (saved.dtype != field.dtype || !(saved.shape == field.shape))
      throw Error(ErrorKind::format, "read_parameters",
                  checkpoint.parameters().path() + ": tensor '" + field.name + "' is " +
                      std::string(name(saved.dtype)) + " " + to_string(saved.shape) + ", the model needs " +
                      std::string(name(field.dtype)) + " " + to_string(field.shape) + ". Use another checkpoint");
    if (state.writer()) std::memcpy(field.data(), saved.data, saved.bytes());
    io::forget_pages(saved.data, saved.bytes());
  }
}
/// Whether a compressor's state is in a checkpoint, of the same type and shape.
inline bool of_this_compressor(Checkpoint const& checkpoint, graph::Field const& field) {
  auto const saved = checkpoint.optimizer().tensors().find(field.name);
  return saved != checkpoint.optimizer().tensors().end() && saved->second.dtype == field.dtype &&
         saved->second.shape == field.shape;
}
/// The optimizer's states of a checkpoint into a state of the same model and optimizer, which this rank may write.
/// Where the checkpoint's run did not compress gradients, or otherwise, a compressor's stay as they are.
/// Errors: format, naming what differs; also where the checkpoint is another optimizer's.
inline void read_moments(Checkpoint const& checkpoint, graph::State& state) {
  bool const writes = state.writer();
  for (graph::Field& field : state.fields()) {
    if (field.parameter || optim::is_accumulator(field.name)) continue;
    if (optim::is_of_compression(field.name) && !of_this_compressor(checkpoint, field)) continue;
    if (!checkpoint.optimizer().tensors().contains(field.name))
      throw Error(ErrorKind::format, "read_moments",
                  checkpoint.optimizer().path() + " holds no '" + field.name +
                      "', which this optimizer keeps: another optimizer trained the checkpoint, or other parameters. "
                      "Use the same optimizer and groups");
    io::NamedTensor const& saved = checkpoint.optimizer().at(field.name);
    if (saved.dtype != field.dtype || !(saved.shape == field.shape))
      throw Error(ErrorKind::format, "read_moments",
                  checkpoint.optimizer().path() + ": '" + field.name + "' is " + std::string(name(saved.dtype)) + " " +
                      to_string(saved.shape) + ", the model needs " + std::string(name(field.dtype)) + " " +
                      to_string(field.shape) + ". Use another checkpoint");
    if (writes) std::memcpy(field.data(), saved.data, saved.bytes());
    io::forget_pages(saved.data, saved.bytes());
  }
}

namespace detail {

/// A tensor of a file that no program has: updates that a step has done.
inline constexpr char updates_name[] = "train_step.updates";

inline void write_state(std::string const& path, graph::State const& state, std::int64_t const* updates) {
  std::vector<io::NamedTensor> tensors;
  for (graph::Field const& field : state.fields()) tensors.push_back(named_tensor(field));
  if (updates != nullptr) tensors.push_back({updates_name, DType::int64, Shape{}, updates});
  sort_by_name(tensors);
  io::write_safetensors(path, tensors);
}
/// Checks everything before it writes anything.
inline void read_state(std::string const& path, graph::State& state, std::int64_t* updates,
                       std::source_location where) {
  std::optional<io::Safetensors> opened;
  try {
    opened.emplace(path);
  } catch (Error const& error) {
    throw error.at(where);
  }
  io::Safetensors const& file = *opened;
  auto const refuse = [&](std::string const& why, std::string const& advice = "Load what this program saved") {
    throw Error(ErrorKind::format, "load_state", "'" + path + "' " + why + ". " + advice, where);
  };
  if (bool const has = file.contains(updates_name); has != (updates != nullptr))
    refuse(has ? "is of a training step, whose updates count" : "is of a state, and not of a training step",
           has ? "Load it into the step, not into its state" : "Save the step, not its state");
  for (graph::Field const& field : state.fields()) {
    if (!file.contains(field.name)) refuse("holds no '" + field.name + "'");
    io::NamedTensor const& saved = file.at(field.name);
    if (saved.dtype != field.dtype || !(saved.shape == field.shape))
      refuse("holds '" + field.name + "' as " + std::string(name(saved.dtype)) + " " + to_string(saved.shape) +
             ", and it is " + std::string(name(field.dtype)) + " " + to_string(field.shape) + " here");
  }
  for (auto const& [tensor, ignored] : file.tensors())
    if (tensor != updates_name && state.find(tensor) == nullptr)
      refuse("holds '" + tensor + "', which is no field here");
  if (updates != nullptr) *updates = file.view<std::int64_t>(updates_name)();
  if (!state.writer()) return;
  for (graph::Field& field : state.fields()) {
    io::NamedTensor const& saved = file.at(field.name);
    if (saved.bytes() != 0) std::memcpy(field.data(), saved.data, saved.bytes());
  }
}

/// `TrainStep`, whose header this one does not need.
template <class S>
concept CountsUpdates = requires(S& step) {
  { step.updates() } -> std::convertible_to<std::int64_t>;
  { step.state() } -> std::convertible_to<graph::State&>;
  step.set_updates(std::int64_t{});
};

}  // namespace detail

/// All of a state, parameters and what is beside them, as one safetensors file, which is there whole or not at all. Of
/// ranks that share memory one calls it. Errors: io.
inline void save_state(std::string const& path, graph::State const& state) {
  detail::write_state(path, state, nullptr);
}
/// Back into a state with the same fields. Ranks: all, each from the file; one that shares memory and may not write it
/// only checks. Errors: io; format, naming the field that is missing, another one, or too many; also where the file is
/// of a step, whose optimizer would begin its bias corrections again with moments that do not.
inline void load_state(std::string const& path, graph::State& state,
                       std::source_location where = std::source_location::current()) {
  detail::read_state(path, state, nullptr, where);
}

/// The same of a TrainStep, with the number of its updates: one that loads it goes on bit for bit. Of ranks that share
/// memory one saves, and all load. Where ranks have parts of the state, on a tensor or pipeline axis or with
/// Replicas::sharded, each part is a file of its own.
template <detail::CountsUpdates Step>
void save_state(std::string const& path, Step& step) {
  std::int64_t const updates = step.updates();
  detail::write_state(path, step.state(), &updates);
}
template <detail::CountsUpdates Step>
void load_state(std::string const& path, Step& step, std::source_location where = std::source_location::current()) {
  std::int64_t updates = 0;
  detail::read_state(path, step.state(), &updates, where);
  step.set_updates(updates);
}

}  // namespace tutti::train

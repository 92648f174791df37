// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between a TrainStep's state, of which ranks may have parts, and the tensors of the whole model.

#include <tutti/train/train_step.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <utility>

namespace tutti::train {

template <class Loss, class Device>
bool TrainStep<Loss, Device>::asynchronous() const {
  if constexpr (Execution<Device>::asynchronous)
    return !pipeline_ && !(execution_.prepared() && programs_.last().led_by_host());
  else return false;
}

template <class Loss, class Device>
void TrainStep<Loss, Device>::require_begun(std::source_location where, bool together) {
  if (!begun_)
    state_.require_initialised(
        "TrainStep", [](graph::Field const&) { return true; }, where);
  begun_ = true;
  if (!together || compared_) return;
  compared_ = true;
  require_equal("at the first step", where);
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::fill(F&& f, std::source_location where) {
  execution_.state();
  auto const write = [&](graph::State& part) { fill_parts(part, parts_, parallel_, f, where); };
  pipeline_ ? pipeline_->fill(write) : write(state_);
  sections_.clear_others(state_);
  if (in_parts()) state_.mark_initialised();  // a part may be padding alone, which stays zero
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::fill_each(F&& f, std::source_location where) {
  if (!in_parts()) return fill(f, where);
  execution_.state();
  for (graph::Field& field : state_.fields()) {
    if (optim::is_accumulator(field.name)) continue;
    graph::State all, one;  // of the stages, and of the tensor axis too
    if (pipeline_) all = pipeline_->list(field.name);
    if (pipeline_ && all.fields().empty()) continue;  // of this stage alone
    graph::Field& part = pipeline_ ? all.at(field.name) : field;
    graph::Field const& whole = parts_.add_whole(one, part);
    f(one);
    parts_.take(whole, part, parallel_, where);
    if (pipeline_) pipeline_->take(part);
    sections_.clear_others(field);
  }
  state_.mark_initialised();
}

template <class Loss, class Device>
void TrainStep<Loss, Device>::initialise_each(std::uint64_t seed) {
  if constexpr (initialises_one_by_one<Config>) {
    graph::State const all = whole_fields();
    fill_each([&](graph::State& one) {
      std::string const& name = one.fields().front().name;
      std::uint64_t place = 0;
      while (all.fields()[place].name != name) ++place;
      initialise_field(config_, one, place, seed);
    });
  }
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::show(bool wanted, F&& f, std::source_location where) {
  auto const look = [&](graph::State& part) { show_whole(part, parts_, parallel_, wanted, f, where); };
  if (!in_parts()) return look(state());
  execution_.state();
  if (parallel_.sharded) {
    bool const whole = !pipeline_ && parts_.empty() ? wanted : parallel_.port->rank() == 0;
    sections_.gather(*parallel_.port, state_, whole, where);
  }
  if (pipeline_) pipeline_->show(wanted, look, where);
  else look(state_);
  sections_.clear_others(state_);
}

template <class Loss, class Device>
void TrainStep<Loss, Device>::collect(graph::Field& whole, bool wanted, std::source_location where) {
  comm::Port* const data = parallel_.port.get();
  bool const first = data == nullptr || data->rank() == 0;
  bool const has_some = first || parts_.along(graph::MeshAxis::data).ranks() > 1;
  graph::Field *const own = state_.find(whole.name), *field = own;
  auto* const to = wanted ? static_cast<std::byte*>(whole.data()) : nullptr;
  graph::State all;  // of the stages
  bool const sections = own != nullptr && sections_.divides(*own);
  if (sections && !pipeline_ && parts_.empty()) return sections_.gather(*data, *own, first ? to : nullptr, where);
  // Of a moment of which the ranks have sections the first of them has all for as long as it is handed on.
  if (sections) sections_.gather(*data, *own, first ? static_cast<std::byte*>(own->data()) : nullptr, where);
  if (pipeline_ && has_some) {
    all = pipeline_->collect(whole.name, where);
    field = &all.at(whole.name);
  }
  if (has_some && (!pipeline_ || parallel_.pipeline->rank() == 0)) parts_.join(parallel_, *field, to, where);
  if (sections) sections_.clear_others(*own);
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::each_run(graph::Field const& whole, F&& f) {
  graph::Field const* const field = state_.find(whole.name);
  graph::State all;  // of the stages: a field without contents
  if (pipeline_) all = pipeline_->list(whole.name);
  graph::Field const& part = pipeline_ ? all.at(whole.name) : *field;
  bool const sections = field != nullptr && sections_.divides(*field);
  bool const of_data = sections || parts_.divides(part, graph::MeshAxis::data);
  if (!of_data && parallel_.port && parallel_.port->rank() != 0) return;
  if (!parts_.divides(part, graph::MeshAxis::tensor) && parallel_.tensor && parallel_.tensor->rank() != 0) return;
  List<parallel::PartRun> runs;  // of `part`, and where they begin in `field`
  auto const add = [&](std::int64_t in_part, std::int64_t here, std::int64_t bytes) {
    if (!sections) return runs.push_back({in_part, here, bytes});
    sections_.each_section(*field, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t const from = std::max(begin, here), to = std::min(end, here + bytes);
      if (from < to) runs.push_back({in_part + from - here, from, to - from});
    });
  };
  if (pipeline_) pipeline_->each_section(part, add);
  else add(0, 0, field->bytes());
  for (parallel::PartRun const& run : parts_.outward(std::move(runs), part, parallel_, std::source_location::current()))
    f(run.in_whole, static_cast<std::byte const*>(field->data()) + run.in_part, run.bytes);
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::own_fields(bool writes, F&& f, std::source_location where) {
  execution_.state();
  if (!pipeline_) f(state_);
  else if (writes) pipeline_->fill(f, StageFields::own);
  else pipeline_->show(parallel_.pipeline->rank() == 0, f, where, StageFields::own);
}

}  // namespace tutti::train

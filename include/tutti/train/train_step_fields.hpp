// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between a TrainStep's state, of which ranks may have parts, and the tensors of the whole model.

#include <tutti/train/train_step.hpp>

#include <cstddef>
#include <cstring>
#include <source_location>
#include <vector>

namespace tutti::train {

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::fill(F&& f, std::source_location where) {
  execution_.state();
  auto const write = [&](graph::State& part) { fill_parts(part, splits_, parallel_, f, where); };
  pipeline_ ? pipeline_->fill(write) : write(state_);
  sections_.clear_others(state_);
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::fill_each(F&& f, std::source_location where) {
  if (!in_parts()) return fill(f, where);
  execution_.state();
  int const rank = splits_.ranks() == 1 ? 0 : ranks_of_parts(parallel_, splits_, where).rank();
  for (graph::Field& field : state_.fields()) {
    if (optim::is_accumulator(field.name)) continue;
    graph::State one;
    graph::Field const& whole = parallel::add_whole(one, field, splits_);
    f(one);
    parallel::take_part(whole, field, splits_, rank);
    sections_.clear_others(field);
  }
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::show(bool wanted, F&& f, std::source_location where) {
  auto const look = [&](graph::State& part) { show_whole(part, splits_, parallel_, wanted, f, where); };
  if (!pipeline_) return look(state());
  if (parallel_.sharded) sections_.gather(*parallel_.port, state_, parallel_.port->rank() == 0, where);
  pipeline_->show(wanted, look, where);
  sections_.clear_others(state_);
}

template <class Loss, class Device>
std::vector<std::byte> TrainStep<Loss, Device>::whole(graph::Field const& field, bool wanted,
                                                     std::source_location where) {
  bool const of_first = splits_.axis() == graph::MeshAxis::data || !parallel_.port || parallel_.port->rank() == 0;
  std::vector<std::byte> bytes, parts;
  if (wanted && of_first)
    bytes.resize(static_cast<std::size_t>(whole_shape(field).size()) * size_of(field.dtype));
  std::byte* const to = bytes.empty() ? nullptr : bytes.data();
  if (sections_.divides(field)) sections_.gather(*parallel_.port, field, to, where);
  else if (splits_.ranks() > 1 && of_first)
    parallel::join(ranks_of_parts(parallel_, splits_, where), field, splits_, to, parts, where);
  else if (to != nullptr) std::memcpy(to, field.data(), bytes.size());
  return bytes;
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::own_fields(bool writes, F&& f, std::source_location where) {
  if (!pipeline_) f(state());
  else if (writes) pipeline_->fill(f, StageFields::own);
  else pipeline_->show(parallel_.pipeline->rank() == 0, f, where, StageFields::own);
}

}  // namespace tutti::train

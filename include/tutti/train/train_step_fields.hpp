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
    graph::State all, one;  // of the stages, and of the tensor axis too
    if (pipeline_) all = pipeline_->list(field.name);
    if (pipeline_ && all.fields().empty()) continue;  // of this stage alone
    graph::Field& part = pipeline_ ? all.at(field.name) : field;
    graph::Field const& whole = parallel::add_whole(one, part, splits_);
    f(one);
    parallel::take_part(whole, part, splits_, rank);
    if (pipeline_) pipeline_->take(part);
    sections_.clear_others(field);
  }
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
  auto const look = [&](graph::State& part) { show_whole(part, splits_, parallel_, wanted, f, where); };
  if (!pipeline_) return look(state());
  if (parallel_.sharded) sections_.gather(*parallel_.port, state_, parallel_.port->rank() == 0, where);
  pipeline_->show(wanted, look, where);
  sections_.clear_others(state_);
}

template <class Loss, class Device>
void TrainStep<Loss, Device>::collect(graph::Field& whole, bool wanted, std::source_location where) {
  comm::Port* const data = parallel_.port.get();
  bool const of_first = data == nullptr || data->rank() == 0;
  graph::Field* field = state_.find(whole.name);
  bool const sections = field != nullptr && sections_.divides(*field);
  graph::State all;  // of the stages
  if (pipeline_) {
    // A moment of which the ranks of a stage have sections is whole on the first of them for as long as it is sent.
    if (sections) sections_.gather(*data, *field, of_first ? static_cast<std::byte*>(field->data()) : nullptr, where);
    graph::Field* const own = field;
    if (of_first) {
      all = pipeline_->collect(whole.name, where);
      field = &all.at(whole.name);
    }
    if (sections) sections_.clear_others(*own);
    if (!of_first || parallel_.pipeline->rank() != 0) return;
  }
  std::byte* const to = wanted && (of_first || splits_.axis() == graph::MeshAxis::data)
                            ? static_cast<std::byte*>(whole.data()) : nullptr;
  std::vector<std::byte> parts;
  if (sections && !pipeline_) sections_.gather(*data, *field, to, where);
  else if (splits_.ranks() > 1 && (of_first || splits_.axis() == graph::MeshAxis::data))
    parallel::join(ranks_of_parts(parallel_, splits_, where), *field, splits_, to, parts, where);
  else if (to != nullptr) std::memcpy(to, field->data(), static_cast<std::size_t>(field->bytes()));
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::each_run(graph::Field const& whole, F&& f) {
  graph::Field const* const field = state_.find(whole.name);
  graph::State all;  // of the stages: a field without contents
  if (pipeline_) all = pipeline_->list(whole.name);
  graph::Field const& part = pipeline_ ? all.at(whole.name) : *field;
  parallel::Split const& split = splits_.of(part);
  bool const sections = field != nullptr && sections_.divides(*field);
  bool const along_data = splits_.axis() == graph::MeshAxis::data && split.divided();
  if (!sections && !along_data && parallel_.port && parallel_.port->rank() != 0) return;
  if (!split.divided() && parallel_.tensor && parallel_.tensor->rank() != 0) return;
  struct Piece {  // what is here, and where it begins in `part`
    std::int64_t begin, bytes;
    std::byte const* data;
  };
  std::vector<Piece> pieces;
  auto const add = [&](std::int64_t in_part, std::int64_t here, std::int64_t bytes) {
    auto const* const data = static_cast<std::byte const*>(field->data());
    if (!sections) return pieces.push_back({in_part, bytes, data + here});
    sections_.each_section(*field, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t const from = std::max(begin, here), to = std::min(end, here + bytes);
      if (from < to) pieces.push_back({in_part + from - here, to - from, data + from});
    });
  };
  if (pipeline_) pipeline_->each_section(part, add);
  else add(0, 0, field->bytes());
  int const rank = split.divided() ? ranks_of_parts(parallel_, splits_, std::source_location::current()).rank() : 0;
  parallel::each_run(whole.shape, size_of(whole.dtype), split, splits_.ranks(), rank,
                     [&](std::int64_t at, std::int64_t in_part, std::int64_t bytes) {
                       for (Piece const& piece : pieces) {
                         std::int64_t const from = std::max(in_part, piece.begin);
                         std::int64_t const to = std::min(in_part + bytes, piece.begin + piece.bytes);
                         if (from < to) f(at + from - in_part, piece.data + (from - piece.begin), to - from);
                       }
                     });
}

template <class Loss, class Device>
template <class F>
void TrainStep<Loss, Device>::own_fields(bool writes, F&& f, std::source_location where) {
  if (!pipeline_) f(state());
  else if (writes) pipeline_->fill(f, StageFields::own);
  else pipeline_->show(parallel_.pipeline->rank() == 0, f, where, StageFields::own);
}

}  // namespace tutti::train

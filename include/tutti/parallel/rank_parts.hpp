// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Between the tensors of a whole model and what one rank has of them: a part along one axis of the mesh, of which it
/// may have a part along another.

#include <tutti/comm/port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/split.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// Bytes that lie together in a whole tensor and in a part of it.
struct PartRun {
  std::int64_t in_whole = 0, in_part = 0, bytes = 0;  // where they begin
};

/// How whole tensors come to be what a rank has, axis after axis; none: it has them whole.
class RankParts {
 public:
  /// What is here is divided once more. Requires  `splits` are of the parts that were here
  void divide(Splits splits) {
    if (splits.ranks() > 1) levels_.push_back(std::move(splits));
  }
  bool empty() const noexcept { return levels_.empty(); }
  List<Splits> const& levels() const noexcept { return levels_; }
  /// Of an axis; those of one rank where nothing is divided along it.
  Splits const& along(graph::MeshAxis axis) const noexcept {
    for (Splits const& level : levels_)
      if (level.axis() == axis) return level;
    return none_;
  }
  /// The same of a rank that has `layers` layers of some parameters: of those that `divided(name)` says.
  template <class F>
  RankParts on_stage(std::int64_t layers, F&& divided) const {
    RankParts result;
    for (Splits const& level : levels_) result.divide(level.on_stage(layers, divided));
    return result;
  }

  /// Whether ranks of this axis have different parts of a field.
  bool divides(graph::Field const& part, graph::MeshAxis axis) const {
    for (Level const& level : levels_of(part))
      if (level.splits->axis() == axis) return level.split->divided();
    return false;
  }
  /// Of the tensor of which `part` is one.
  Shape whole_shape(graph::Field const& part) const {
    List<Level> const levels = levels_of(part);
    return levels.empty() ? part.shape : levels[0].whole;
  }
  /// Room for the whole tensor, in a state.
  graph::Field& add_whole(graph::State& whole, graph::Field const& part) const {
    graph::Field* const made = whole.add(part.name, part.dtype, whole_shape(part), part.init);
    made->parameter = part.parameter;
    made->stacked = part.stacked;
    made->per_rank = part.per_rank;
    return *made;
  }
  /// A state of the same fields with room for whole tensors; without sums between micro-steps.
  graph::State whole_fields(graph::State const& part) const {
    graph::State whole;
    for (graph::Field const& field : part.fields())
      if (!optim::is_accumulator(field.name)) add_whole(whole, field);
    return whole;
  }

  /// What lies so in this rank's part of a tensor, as it lies in the whole one. `inside` and the result are in
  /// ascending order of `in_whole`. Errors: those of `port_of`.
  List<PartRun> outward(List<PartRun> inside, graph::Field const& part, DataParallel const& ranks,
                        std::source_location where) const {
    List<Level> const levels = levels_of(part);
    for (std::size_t i = levels.size(); i-- > 0;) {
      Level const& level = levels[i];
      int const rank = port_of(ranks, *level.splits, where).rank();
      if (!level.split->divided()) continue;
      List<PartRun> outside;
      std::size_t first = 0;
      each_run(level.whole, size_of(part.dtype), *level.split, level.splits->ranks(), rank,
               [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t bytes) {
                 while (first < inside.size() && inside[first].in_whole + inside[first].bytes <= in_part) ++first;
                 for (std::size_t k = first; k < inside.size() && inside[k].in_whole < in_part + bytes; ++k) {
                   std::int64_t const begin = std::max(in_part, inside[k].in_whole);
                   std::int64_t const end = std::min(in_part + bytes, inside[k].in_whole + inside[k].bytes);
                   outside.push_back({in_whole + begin - in_part, inside[k].in_part + begin - inside[k].in_whole,
                                      end - begin});
                 }
               });
      inside = std::move(outside);
    }
    return inside;
  }
  /// This rank's part of a whole tensor.
  void take(graph::Field const& whole, graph::Field& part, DataParallel const& ranks,
            std::source_location where = std::source_location::current()) const {
    for (PartRun const& run : outward({{0, 0, part.bytes()}}, part, ranks, where))
      copy(static_cast<std::byte*>(part.data()) + run.in_part,
           static_cast<std::byte const*>(whole.data()) + run.in_whole, run.bytes);
  }
  /// Of all of them, as of whole_fields.
  void take(graph::State const& whole, graph::State& part, DataParallel const& ranks,
            std::source_location where = std::source_location::current()) const {
    for (graph::Field& field : part.fields())
      if (graph::Field const* const from = whole.find(field.name)) take(*from, field, ranks, where);
  }
  /// The whole tensor, to `to` where it is not null. Where there are several axes, the ranks that are first along all
  /// but the outermost one can have it.
  /// Ranks: all of the innermost axis, of others those that are first along the axes inside. Blocking.
  void join(DataParallel const& ranks, graph::Field const& part, std::byte* to,
            std::source_location where = std::source_location::current()) const {
    List<Level> const levels = levels_of(part);
    auto const* from = static_cast<std::byte const*>(part.data());
    std::int64_t bytes = part.bytes();
    std::vector<std::byte> all, joined;
    for (std::size_t i = levels.size(); i-- > 0;) {
      Level const& level = levels[i];
      comm::Port& port = port_of(ranks, *level.splits, where);
      if (level.split->divided()) {
        all.resize(static_cast<std::size_t>(bytes) * static_cast<std::size_t>(port.size()));
        port.wait(port.start_all_gather(from, all.data(), bytes, DType::byte, where));
        bool const wants = i > 0 ? port.rank() == 0 : to != nullptr;
        if (wants) {
          if (i > 0) joined.resize(all.size());
          for (int rank = 0; rank < port.size(); ++rank)
            each_run(level.whole, size_of(part.dtype), *level.split, port.size(), rank,
                     [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t run) {
                       copy((i > 0 ? joined.data() : to) + in_whole, all.data() + bytes * rank + in_part, run);
                     });
        }
        if (i == 0) return;
        from = joined.data();
        bytes = static_cast<std::int64_t>(joined.size());
      }
      if (i > 0 && port.rank() != 0) return;
    }
    if (to != nullptr) copy(to, from, bytes);
  }
  /// All whole tensors, for those ranks that want them; else nothing is kept. Ranks: as of `join`. Blocking.
  graph::State joined(DataParallel const& ranks, graph::State const& part, bool wanted,
                      std::source_location where = std::source_location::current()) const {
    graph::State whole;
    if (wanted) whole = whole_fields(part);
    for (graph::Field const& field : part.fields()) {
      if (optim::is_accumulator(field.name)) continue;
      graph::Field* const to = whole.find(field.name);
      join(ranks, field, to == nullptr ? nullptr : static_cast<std::byte*>(to->data()), where);
    }
    return whole;
  }

  /// The ranks of the axis of `splits`. Errors: invalid_argument, where this rank is not connected to them.
  static comm::Port& port_of(DataParallel const& ranks, Splits const& splits, std::source_location where) {
    Shared<comm::Port> const& port = splits.axis() == graph::MeshAxis::data ? ranks.port : ranks.tensor;
    if (!port)
      throw Error(ErrorKind::invalid_argument, "TrainStep",
                  concat("the step is one of ", splits.ranks(), " ranks of a ", graph::name(splits.axis()),
                         " axis and is not connected to them. Call connect first"), where);
    return *port;
  }

 private:
  struct Level {
    Splits const* splits;
    Split const* split;  // of this tensor
    Shape whole;         // before it is divided here
  };
  /// The outermost first.
  List<Level> levels_of(graph::Field const& part) const {
    List<Level> levels;
    Shape shape = part.shape;
    for (std::size_t i = levels_.size(); i-- > 0;) {
      Split const& split = levels_[i].of(part.name, shape);
      shape = whole_of(shape, split, levels_[i].ranks());
      levels.push_back({&levels_[i], &split, shape});
    }
    std::reverse(levels.begin(), levels.end());
    return levels;
  }
  static void copy(std::byte* to, std::byte const* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  List<Splits> levels_;
  Splits none_;
};

}  // namespace tutti::parallel

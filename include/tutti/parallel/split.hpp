// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How tensors lie on the ranks of the tensor axis, and between their parts and the whole.

#include <tutti/comm/port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/nn/shard_rules.hpp>
#include <tutti/optim/minimise.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// Whole on every rank, or divided along `axis`: of each of the sections that lie side by side there, all of them
/// evenly divided, a rank has its part, one behind the other.
struct Split {
  int axis = -1;                      ///< below 0: whole
  List<std::int64_t> sections{};      ///< lengths in the whole tensor
  /// The axes up to `axis` count as one, that of all tokens, of which a rank has a run, under shape (1, ..., run, ...).
  /// Of values between divided products alone (parallel/shard_tokens.hpp), never of parameters.
  bool tokens = false;

  bool divided() const noexcept { return axis >= 0; }
  std::int64_t length() const noexcept {
    std::int64_t sum = 0;
    for (std::int64_t section : sections) sum += section;
    return sum;
  }
  friend bool operator==(Split const&, Split const&) = default;
};
/// What a rank has of a tensor.
inline Shape part_of(Shape const& whole, Split const& split, int ranks) {
  if (!split.tokens) return split.divided() ? whole.with(split.axis, whole[split.axis] / ranks) : whole;
  Shape part = whole;
  for (int axis = 0; axis < split.axis; ++axis) part = part.with(axis, 1);
  return part.with(split.axis, split.length() / ranks);
}
/// Requires  no run of tokens
inline Shape whole_of(Shape const& part, Split const& split, int ranks) {
  return split.divided() ? part.with(split.axis, part[split.axis] * ranks) : part;
}

/// f(in_whole, in_part, bytes) for each run of rank `rank`'s part of a tensor of `size` bytes an element: where it
/// begins in the whole tensor and in the part, in bytes.
template <class F>
void each_run(Shape const& shape, std::size_t size, Split const& split, int ranks, int rank, F&& f) {
  if (!split.divided()) return f(std::int64_t{0}, std::int64_t{0}, shape.size() * static_cast<std::int64_t>(size));
  std::int64_t outer = 1, inner = static_cast<std::int64_t>(size), part = 0;
  for (int axis = 0; axis < split.axis; ++axis) outer *= shape[axis];
  for (int axis = split.axis + 1; axis < shape.rank(); ++axis) inner *= shape[axis];
  for (std::int64_t row = 0; row < outer; ++row) {
    std::int64_t section = row * shape[split.axis] * inner;
    for (std::int64_t const length : split.sections) {
      std::int64_t const bytes = length / ranks * inner;
      f(section + rank * bytes, part, bytes);
      part += bytes;
      section += length * inner;
    }
  }
}
/// Copies rank `rank`'s part of a tensor of `size` bytes an element: out of the whole one, or with `joins` into it.
inline void copy_part(std::byte* whole, std::byte* part, Shape const& shape, std::size_t size, Split const& split,
                      int ranks, int rank, bool joins) {
  each_run(shape, size, split, ranks, rank, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t bytes) {
    if (bytes == 0) return;
    std::byte *const to = joins ? whole + in_whole : part + in_part, *const from =
                                                                         joins ? part + in_part : whole + in_whole;
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  });
}

/// The parameters of a model that are divided among `ranks` of an axis.
class Splits {
 public:
  struct Entry {
    std::string name;
    Split split;
    Shape whole;
  };

  Splits() = default;
  /// Errors: configuration, in figures, where rules do not fit the model or the ranks.
  Splits(graph::Graph const& model, nn::ShardRules const& rules, int ranks,
         std::source_location where = std::source_location::current())
      : ranks_(ranks) {
    auto const refuse = [&](std::string text) {
      throw Error(ErrorKind::configuration, "tensor parallelism", std::move(text), where);
    };
    std::vector<bool> used(rules.size(), false);
    for (graph::Parameter const& parameter : model.parameters) {
      std::string const name(model.name(parameter.node));
      nn::ShardRule const* rule = nullptr;
      for (std::size_t i = 0; i < rules.size(); ++i)
        if (optim::matches(rules[i].pattern, name)) {
          used[i] = true;
          rule = &rules[i];
        }
      if (rule == nullptr) continue;
      Shape const& shape = model.shape(parameter.node);
      Split split{rule->axis + int{parameter.stacked}, {}};
      if (rule->axis < 0 || split.axis >= shape.rank()) {
        if (rule->pattern.ends_with('*')) continue;  // of a layer: the vectors beside its matrix stay whole
        refuse(concat("the rule for '", rule->pattern, "' divides axis ", rule->axis, " of '", name, "', which is ",
                      to_string(shape)));
      }
      std::int64_t units = 0;
      for (std::int64_t section : rule->sections) units += section;
      std::int64_t const extent = shape[split.axis];
      if (units < 1 || extent % units != 0)
        refuse(concat("the ", extent, " rows of '", name, "' along axis ", rule->axis, " are not ", units,
                      " equal ones, as which its rule divides them"));
      if (rule->if_even && extent % (units * ranks) != 0) continue;
      for (std::int64_t section : rule->sections) {
        split.sections.push_back(extent / units * section);
        if (split.sections.back() % ranks != 0)
          refuse(concat("'", name, "' has ", split.sections.back(), " rows along axis ", rule->axis,
                        rule->sections.size() > 1 ? " in a section" : "", ", which ", ranks,
                        " ranks of the tensor axis do not divide. Use a number of ranks that does"));
      }
      entries_.push_back({name, std::move(split), shape});
    }
    for (std::size_t i = 0; i < rules.size(); ++i)
      if (!used[i] && rules[i].pattern.find('*') == std::string_view::npos)
        refuse(concat("no parameter is named '", rules[i].pattern, "', for which there is a rule"));
  }

  /// The same of a rank that has `layers` layers of some parameters: of those that `divided(name)` says.
  template <class F>
  Splits on_stage(std::int64_t layers, F&& divided) const {
    Splits result = *this;
    for (Entry& entry : result.entries_)
      if (divided(std::string_view(entry.name))) entry.whole = entry.whole.with(0, layers);
    return result;
  }

  /// The same among ranks of another axis than that of tensors.
  Splits along(graph::MeshAxis axis) && {
    axis_ = axis;
    return std::move(*this);
  }
  graph::MeshAxis axis() const noexcept { return axis_; }
  int ranks() const noexcept { return ranks_; }
  List<Entry> const& entries() const noexcept { return entries_; }
  /// Of a parameter by name.
  Split const& of(std::string_view name) const noexcept {
    for (Entry const& entry : entries_)
      if (entry.name == name) return entry.split;
    return whole_;
  }
  /// Of a parameter of which this field is the part, or of what an optimizer keeps for one, as "PREFIX.NAME".
  Split const& of(graph::Field const& field) const noexcept {
    Entry const* best = nullptr;
    for (Entry const& entry : entries_) {
      std::string_view const name = field.name;
      bool const same = name == entry.name;
      bool const kept = !same && name.size() > entry.name.size() && name.ends_with(entry.name) &&
                        name[name.size() - entry.name.size() - 1] == '.';
      if ((same || kept) && field.shape == part_of(entry.whole, entry.split, ranks_) &&
          (best == nullptr || entry.name.size() > best->name.size()))
        best = &entry;
    }
    return best == nullptr ? whole_ : best->split;
  }

 private:
  graph::MeshAxis axis_ = graph::MeshAxis::tensor;
  int ranks_ = 1;
  List<Entry> entries_;
  Split whole_;
};

/// Room for the whole tensor of a field, in a state.
inline graph::Field& add_whole(graph::State& whole, graph::Field const& part, Splits const& splits) {
  Shape const shape = whole_of(part.shape, splits.of(part), splits.ranks());
  graph::Field* const made = whole.add(part.name, part.dtype, shape, part.init);
  made->parameter = part.parameter;
  made->stacked = part.stacked;
  made->per_rank = part.per_rank;
  return *made;
}
/// A state of the same fields with room for whole tensors; without sums between micro-steps.
inline graph::State whole_fields(graph::State const& part, Splits const& splits) {
  graph::State whole;
  for (graph::Field const& field : part.fields())
    if (!optim::is_accumulator(field.name)) add_whole(whole, field, splits);
  return whole;
}
/// This rank's part of a whole tensor.
inline void take_part(graph::Field const& whole, graph::Field& part, Splits const& splits, int rank) {
  copy_part(static_cast<std::byte*>(whole.data()), static_cast<std::byte*>(part.data()), whole.shape,
            size_of(part.dtype), splits.of(part), splits.ranks(), rank, false);
}
/// Of all of them, as of whole_fields.
inline void take_parts(graph::State const& whole, graph::State& part, Splits const& splits, int rank) {
  for (graph::Field& field : part.fields())
    if (graph::Field const* const from = whole.find(field.name)) take_part(*from, field, splits, rank);
}
/// The whole tensor from the parts of the ranks of `port`, to `to` where it is not null. `all` is memory for it.
/// Ranks  all of the axis. Blocking
inline void join(comm::Port& port, graph::Field const& part, Splits const& splits, std::byte* to,
                 std::vector<std::byte>& all, std::source_location where = std::source_location::current()) {
  Split const& split = splits.of(part);
  auto const bytes = static_cast<std::size_t>(part.bytes());
  if (!split.divided()) {
    if (to != nullptr && bytes > 0) std::memcpy(to, part.data(), bytes);
    return;
  }
  all.resize(bytes * static_cast<std::size_t>(port.size()));
  port.wait(port.start_all_gather(part.data(), all.data(), part.bytes(), DType::byte, where));
  for (int rank = 0; rank < port.size() && to != nullptr; ++rank)
    copy_part(to, all.data() + bytes * static_cast<std::size_t>(rank), whole_of(part.shape, split, splits.ranks()),
              size_of(part.dtype), split, splits.ranks(), rank, true);
}
/// All whole tensors, for those ranks that want them; else nothing is kept. Ranks: all of the axis. Blocking.
inline graph::State joined(comm::Port& port, graph::State const& part, Splits const& splits, bool wanted,
                           std::source_location where = std::source_location::current()) {
  graph::State whole;
  if (wanted) whole = whole_fields(part, splits);
  std::vector<std::byte> all;
  for (graph::Field const& field : part.fields()) {
    if (optim::is_accumulator(field.name)) continue;
    graph::Field* const to = whole.find(field.name);
    join(port, field, splits, to == nullptr ? nullptr : static_cast<std::byte*>(to->data()), all, where);
  }
  return whole;
}

}  // namespace tutti::parallel

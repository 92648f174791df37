// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How tensors lie on the ranks of an axis of the mesh, of which each has a part.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/nn/shard_rules.hpp>
#include <tutti/optim/minimise.hpp>

#include <cstddef>
#include <cstdint>
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
  /// Of a parameter of which a field of this name and shape is the part, or of what an optimizer keeps for one, as
  /// "PREFIX.NAME".
  Split const& of(std::string_view name, Shape const& part) const noexcept {
    Entry const* best = nullptr;
    for (Entry const& entry : entries_) {
      bool const same = name == entry.name;
      bool const kept = !same && name.size() > entry.name.size() && name.ends_with(entry.name) &&
                        name[name.size() - entry.name.size() - 1] == '.';
      if ((same || kept) && part == part_of(entry.whole, entry.split, ranks_) &&
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

}  // namespace tutti::parallel

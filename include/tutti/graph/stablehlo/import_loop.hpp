// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Loops of a module. A trial with the integers that are known tells how often a loop runs; then its body is made once.
/// What a loop hands on unchanged is an invariant, what it reads by its counter a slice, what it fills by it an output.

#include <tutti/graph/stablehlo/importer.hpp>

namespace tutti::graph::stablehlo {

/// Iterations of all loops, each with those of the loops around it.
inline constexpr std::int64_t most_looped = 1 << 28;

struct Importer::Trial {
  std::int64_t length = 0;
  /// Of every carried value its number at the beginning of each iteration, and behind the last; empty: not known.
  List<List<double>> numbers;
};

inline Importer::Trial Importer::try_loop(text::Operation const& operation, Frame const& outer, Items const& in) {
  Frame frame = outer;
  Trial trial;
  trial.numbers.resize(in.size());
  Items state;
  for (Item const& item : in) {
    Item known;
    known.type = item.type;
    if (auto const number = item.constant(); number && !is_floating(item.type.dtype))
      known = known_item(item.type, {*number}, 0);
    state.push_back(std::move(known));
  }
  bool const before = std::exchange(trial_, true);
  for (;; ++trial.length) {
    operations_ += static_cast<std::int64_t>(in.size());
    for (std::size_t i = 0; i < state.size(); ++i)
      if (state[i].known() && static_cast<std::int64_t>(trial.numbers[i].size()) == trial.length)
        trial.numbers[i].push_back((*state[i].numbers)[0]);
    Items const goes_on = run(operation.regions[0], frame, state);
    auto const answer = goes_on.size() == 1 ? goes_on[0].constant() : std::nullopt;
    if (!answer) refuse("runs as often as its data say. Loops that count by integers known beforehand are supported");
    if (*answer == 0) break;
    if (trial.length == most_iterations) refuse(concat("runs more than ", most_iterations, " times"));
    state = run(operation.regions[1], frame, std::move(state));
    if (state.size() != in.size()) refuse("returns another number of values than it carries", ErrorKind::format);
    for (std::size_t i = 0; i < state.size(); ++i)
      if (!(state[i].type == in[i].type)) refuse("returns a value of another type than it carries", ErrorKind::format);
  }
  trial_ = before;
  for (List<double>& numbers : trial.numbers)
    if (static_cast<std::int64_t>(numbers.size()) != trial.length + 1) numbers.clear();
  return trial;
}

inline Items Importer::loop(text::Operation const& operation, Frame& frame, Items const& in) {
  if (operation.regions.size() != 2 || in.size() != operation.results.size())
    refuse("needs two regions, and a result for each operand", ErrorKind::format);
  if (lifted_ != nullptr) refuse("stands in the body of a reduction, where it is not supported");
  Trial const trial = try_loop(operation, frame, in);
  if (trial.length == 0) return in;
  if (!trial_) {
    std::int64_t together = trial.length;
    for (Loop const* const around : scope_.loops()) together *= around->length;  // each of which was small enough
    looped_ += together;
    if (looped_ > most_looped)
      refuse(concat("runs ", together, " times in the loops around it; all loops may run ", most_looped, " times"));
  }
  std::size_t const loops = scope_.loops().size();
  int const depth = depth_;
  std::int64_t const live = live_;
  try {
    return make_loop(operation, frame, in, trial, true);
  } catch (HoleUsed const& used) {
    if (used.loop != loops_at_[loops]) throw;
    while (scope_.loops().size() > loops) scope_.loops().pop_back();
    depth_ = depth;
    live_ = live;
    lifted_ = nullptr;
    scope_.begin(operation);
    return make_loop(operation, frame, in, trial, false);
  }
}

inline Items Importer::make_loop(text::Operation const& operation, Frame& frame, Items const& in, Trial const& trial,
                                 bool holes) {
  text::Region const& body = operation.regions[1];
  List<int> const& returned = body.operations.back().operands;
  if (returned.size() != in.size()) refuse("returns another number of values than it carries", ErrorKind::format);
  Builder& outer = scope_.builder();
  Loop loop;
  loop.number = ++loops_;
  while (loops_at_.size() <= scope_.loops().size()) loops_at_.push_back(0);
  loops_at_[scope_.loops().size()] = loop.number;
  loop.length = trial.length;
  Scan scan(outer, trial.length);
  loop.scan = &scan;
  loop.outer = &outer;

  Items arguments;
  List<std::size_t> carried, filled;
  std::optional<Var> inner;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Item item;
    item.type = in[i].type;
    Shape const& shape = item.type.shape;
    if (!trial.numbers[i].empty()) {
      List<double> numbers = trial.numbers[i];
      numbers.pop_back();
      item = known_item(item.type, std::move(numbers), loop.number);
    } else if (returned[i] == body.arguments[i]) {
      item = in[i];
      item.var = scope_.var(in[i]);
      item.whole_of = shape.rank() > 0 ? loop.number : 0;
      item.place = i;
    } else if (holes && shape.rank() > 0 && shape[0] == trial.length) {
      item.hole_of = loop.number;
      item.place = i;
      filled.push_back(i);
    } else {
      item.var = scan.carry(scope_.var(in[i]));
      inner = item.var;
      carried.push_back(i);
    }
    arguments.push_back(std::move(item));
  }
  if (!inner) inner = scan.carry(constant(outer, 0));  // a loop carries something
  loop.body = inner->builder;
  scope_.loops().push_back(&loop);
  scope_.begin(operation);
  Items const results = run(body, frame, std::move(arguments));
  if (results.size() != in.size()) refuse("returns another number of values than it carries", ErrorKind::format);
  List<Var> next, outputs;
  for (std::size_t const i : carried) next.push_back(scope_.var(results[i]));
  if (carried.empty()) next.push_back(*inner);
  for (std::size_t const i : filled) {
    if (results[i].filled_of != loop.number || results[i].place != i) throw HoleUsed{loop.number};
    outputs.push_back(results[i].var);
  }
  scope_.loops().pop_back();
  Scanned const scanned = scan.finish(next, outputs);
  scope_.begin(operation);
  Items left(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    left[i] = in[i];
    if (trial.numbers[i].empty()) continue;
    left[i] = known_item(in[i].type, {trial.numbers[i].back()}, 0);
  }
  for (std::size_t i = 0; i < carried.size(); ++i) {
    left[carried[i]] = {};
    left[carried[i]].var = scanned.carried[i];
  }
  for (std::size_t i = 0; i < filled.size(); ++i) {
    left[filled[i]] = {};
    left[filled[i]].var = scanned.outputs[i];
  }
  return left;
}

}  // namespace tutti::graph::stablehlo

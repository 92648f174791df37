// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph cut in two by what its outputs depend on: some are made early, the rest later, of what the early part keeps.
/// Loops that make both become two loops.

#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/canonical.hpp>
#include <tutti/graph/ops.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/parallel/node_copier.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::parallel {

namespace detail {

/// Which nodes `roots` need, with themselves; a node that `stops` says needs none.
template <class F>
List<char> needed_nodes(graph::Graph const& graph, List<graph::Id> const& roots, F&& stops) {
  List<char> needed(graph.nodes.size(), char{0});
  for (graph::Id root : roots) needed[static_cast<std::size_t>(root)] = 1;
  for (graph::Id id = graph.size(); id-- > 0;)
    if (needed[static_cast<std::size_t>(id)] != 0 && !stops(id))
      for (graph::Id operand : graph.operands(id)) needed[static_cast<std::size_t>(operand)] = 1;
  return needed;
}

/// Of a graph, or of a body of one: what belongs to the early part, and what the rest needs of it.
class EarlyNodes {
 public:
  using Id = graph::Id;
  using Op = graph::Op;

  EarlyNodes(graph::Graph const& graph, List<Id> const& early) : graph_(graph), early_(graph.nodes.size(), char{0}) {
    for (Id id : graph::reachable_order(graph, early)) early_[at(id)] = 1;
  }
  /// A value of a node is where the node is.
  bool early(Id id) const {
    return early_[at(id)] != 0 || (graph_.op(id) == Op::result && early_[at(graph_.operand(id, 0))] != 0);
  }
  /// Cheaper to do again than to keep: the rest does.
  bool free(Id id) const {
    switch (graph_.op(id)) {
      case Op::reshape:
      case Op::broadcast_in_dim:
      case Op::vary:
      case Op::stop_gradient: return true;
      default: return false;
    }
  }
  /// What the rest does for `roots` itself, with the leaves that it reads, in ascending order. `kept`: what it reads of
  /// the early part.
  List<Id> rest(List<Id> const& roots, List<Id>& kept) const {
    List<char> const needed = needed_nodes(graph_, roots, [&](Id id) { return comes(id); });
    List<Id> own;
    for (Id id = 0; id < graph_.size(); ++id)
      if (needed[at(id)] != 0) (comes(id) ? kept : own).push_back(id);
    return own;
  }
  /// Whether the rest has this from the early part.
  bool comes(Id id) const { return !leaf(id) && early(id) && !free(id); }
  static std::size_t at(auto index) { return static_cast<std::size_t>(index); }

 private:
  bool leaf(Id id) const { return graph::info(graph_.op(id)).kind == graph::OpClass::leaf; }

  graph::Graph const& graph_;
  List<char> early_;
};

/// Copies a graph, and makes two loops of each whose results are partly early.
class LoopSplitter {
 public:
  using Id = graph::Id;
  using Op = graph::Op;

  /// `early`: nodes of `from`; `roots`: all that is wanted of it.
  LoopSplitter(graph::Graph const& from, List<Id> const& early, List<Id> const& roots)
      : from_(from), copier_(from, to_) {
    List<char> wanted(from.nodes.size(), char{0}), soon(from.nodes.size(), char{0});
    for (Id id : graph::reachable_order(from, roots)) wanted[at(id)] = 1;
    for (Id id : graph::reachable_order(from, early)) soon[at(id)] = 1;
    for (Id id = 0; id < from.size(); ++id) {
      if (wanted[at(id)] == 0 || copier_[id] != graph::none) continue;
      if (from.op(id) == Op::repeat && soon[at(id)] != 0 && split(id, wanted, soon)) continue;
      copier_.add(id);
    }
  }
  LoopSplitter(LoopSplitter const&) = delete;
  LoopSplitter& operator=(LoopSplitter const&) = delete;
  NodeCopier const& copier() const { return copier_; }
  graph::Builder const& builder() const { return to_; }

 private:
  static std::size_t at(auto index) { return static_cast<std::size_t>(index); }

  /// Outputs of the body by number, and carried values that these need in turn.
  struct Half {
    List<int> carried, outputs;
  };
  /// False where all that is wanted of the loop is early, or no carried value is.
  bool split(Id loop, List<char> const& wanted, List<char> const& soon) {
    graph::RepeatShape const shape = graph::repeat_shape(from_, loop);
    graph::Graph const& body = from_.body(loop);
    List<Id> early_results, late_results;
    Half early, late;
    for (Id id = loop + 1; id < from_.size(); ++id) {
      if (wanted[at(id)] == 0 || from_.op(id) != Op::result || from_.operand(id, 0) != loop) continue;
      int const number = static_cast<int>(from_.integer(id));
      (soon[at(id)] != 0 ? early_results : late_results).push_back(id);
      add(soon[at(id)] != 0 ? early : late, number, shape);
    }
    if (late_results.empty()) return false;
    close(body, shape, early, [](Id) { return false; });
    if (early.carried.empty()) return false;
    EarlyNodes const nodes(body, roots_of(body, early));
    List<Id> kept;
    auto const given = [&](Id id) {  // carried values of the early loop come as it had them
      for (int i : early.carried)
        if (body.inputs[at(i)] == id) return true;
      return false;
    };
    close(body, shape, late, [&](Id id) { return given(id) || nodes.comes(id); });
    for (Id id : nodes.rest(roots_of(body, late), kept))
      if (given(id)) kept.push_back(id);

    List<graph::Var> const first = emit(loop, early, kept, {}, true);
    List<graph::Var> stacked;
    for (std::size_t i = 0; i < kept.size(); ++i) stacked.push_back(first[first.size() - kept.size() + i]);
    List<graph::Var> const second = emit(loop, late, kept, stacked, false);
    auto const take = [&](List<Id> const& results, Half const& half, List<graph::Var> const& values) {
      for (Id id : results) {
        int const number = static_cast<int>(from_.integer(id));
        List<int> const& list = number < shape.carried ? half.carried : half.outputs;
        std::size_t const offset = number < shape.carried ? 0 : values_before_outputs(half);
        for (std::size_t i = 0; i < list.size(); ++i)
          if (list[i] == number) copier_.set(id, values[offset + i].id);
      }
    };
    take(early_results, early, first);
    take(late_results, late, second);
    copier_.set(loop, first[0].id);  // who reads the loop reads its results, which are there
    return true;
  }
  static std::size_t values_before_outputs(Half const& half) { return std::max<std::size_t>(half.carried.size(), 1); }
  static void add(Half& half, int number, graph::RepeatShape const& shape) {
    List<int>& list = number < shape.carried ? half.carried : half.outputs;
    if (!graph::detail::contains(list, number)) list.push_back(number);
  }
  static List<Id> roots_of(graph::Graph const& body, Half const& half) {
    List<Id> roots;
    for (List<int> const* list : {&half.carried, &half.outputs})
      for (int number : *list) roots.push_back(body.outputs[at(number)].node);
    return roots;
  }
  /// Adds the carried values that the half needs to make what it makes, but through what `stops` says.
  template <class F>
  static void close(graph::Graph const& body, graph::RepeatShape const& shape, Half& half, F&& stops) {
    for (bool grows = true; grows;) {
      grows = false;
      List<char> const needed = needed_nodes(body, roots_of(body, half), stops);
      for (int i = 0; i < shape.carried; ++i) {
        Id const input = body.inputs[at(i)];
        if (needed[at(input)] == 0 || stops(input) || graph::detail::contains(half.carried, i)) continue;
        half.carried.push_back(i);
        grows = true;
      }
    }
  }
  /// One of the two loops. The early one gives what is `kept` behind its outputs; the late one has it as slices
  /// `stacked`. Results: carried values, outputs.
  List<graph::Var> emit(Id loop, Half const& half, List<Id> const& kept, List<graph::Var> const& stacked,
                        bool early) {
    graph::RepeatShape const shape = graph::repeat_shape(from_, loop);
    graph::Graph const& body = from_.body(loop);
    graph::Where const where = graph::Where::current();
    copier_.trace(loop);
    graph::Scan scan(to_, shape.length, shape.reversed, where);
    List<graph::Var> carried;
    for (int i : half.carried) carried.push_back(scan.carry(copier_.var(from_.operand(loop, i))));
    bool const nothing = half.carried.empty();  // a loop carries something
    if (nothing) carried.push_back(scan.carry(graph::constant(to_, 0, {}, DType::float32, where)));
    graph::Builder& inside = *carried[0].builder;
    NodeCopier copier(body, inside);
    for (std::size_t i = 0; i < half.carried.size(); ++i)
      copier.set(body.inputs[at(half.carried[i])], carried[i].id);
    for (std::size_t i = 0; i < stacked.size(); ++i)
      copier.set(kept[i], scan.slice(stacked[i], reflect::Path("kept.").append(static_cast<int>(i))).id);

    List<Id> roots = roots_of(body, half);
    if (early) roots.append(kept.begin(), kept.end());
    List<char> const needed = needed_nodes(body, roots, [&](Id id) { return copier[id] != graph::none; });
    for (Id id = 0; id < body.size(); ++id) {
      if (needed[at(id)] == 0 || copier[id] != graph::none) continue;
      if (body.op(id) == Op::input) {
        int const number = number_of(body, id);
        graph::Var const outer = copier_.var(from_.operand(loop, number));
        copier.set(id, number < shape.carried + shape.invariants ? inside.adopt(outer, where)
                                                                 : scan.slice(outer, body.name(id)).id);
      } else {
        copier.set(id, copier.copy(id, copier.operands(id)));
      }
    }
    List<graph::Var> next, outputs;
    for (int i : half.carried) next.push_back(copier.var(body.outputs[at(i)].node));
    if (nothing) next.push_back(carried[0]);
    for (int i : half.outputs) outputs.push_back(copier.var(body.outputs[at(i)].node));
    if (early)
      for (Id id : kept) outputs.push_back(copier.var(id));
    graph::Scanned const done = scan.finish(next, outputs);
    List<graph::Var> all = done.carried;
    all.append(done.outputs.begin(), done.outputs.end());
    return all;
  }
  static int number_of(graph::Graph const& body, Id input) {
    for (std::size_t i = 0; i < body.inputs.size(); ++i)
      if (body.inputs[i] == input) return static_cast<int>(i);
    return -1;
  }

  graph::Graph const& from_;
  graph::Builder to_;
  NodeCopier copier_;
};

/// `value` stays in a state of this name after the run.
inline void keep(graph::Builder& to, std::string const& name, graph::Var value) {
  to.update(state_of(to, name, value.type()), value);
}

}  // namespace detail

/// Of a graph whose outputs are named, without updates. It outlives this.
class GradientSplit {
 public:
  using Id = graph::Id;

  /// `early(name)` says which outputs are made early.
  template <class F>
  GradientSplit(graph::Graph const& graph, F&& early)
      : split_(graph, nodes_of(graph, early, true), all_of(graph)),
        nodes_(whole(), moved(nodes_of(graph, early, true))) {
    for (graph::Output const& output : graph.outputs) {
      std::string const name(graph.text_of(output.name));
      (early(name) ? early_ : late_).push_back({name, split_.copier()[output.node]});
    }
    List<Id> roots;
    for (Made const& made : late_) roots.push_back(made.node);
    own_ = nodes_.rest(roots, kept_);
  }
  /// Keeps the early outputs in states of their names, and "pipeline.between.i" for the rest.
  graph::Graph early() const {
    graph::Builder to;
    detail::NodeCopier copier(whole(), to);
    List<Id> roots = kept_;
    for (Made const& made : early_) roots.push_back(made.node);
    for (Id id : graph::reachable_order(whole(), roots)) copier.add(id);
    to.copy_source({}, 0);
    for (Made const& made : early_) detail::keep(to, made.name, copier.var(made.node));
    for (std::size_t i = 0; i < kept_.size(); ++i) detail::keep(to, between(i), copier.var(kept_[i]));
    return canonical(to.graph());
  }
  /// The other outputs, by the same names, from these states.
  graph::Graph rest() const {
    graph::Builder to;
    detail::NodeCopier copier(whole(), to);
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      copier.trace(kept_[i]);
      copier.set(kept_[i], detail::state_of(to, between(i), whole().type(kept_[i])).id);
    }
    for (Id id : own_) copier.add(id);
    to.copy_source({}, 0);
    for (Made const& made : late_) to.output(made.name, copier.var(made.node));
    return canonical(to.graph());
  }

 private:
  struct Made {
    std::string name;
    Id node;
  };
  graph::Graph const& whole() const { return split_.builder().graph(); }
  static std::string between(std::size_t i) { return concat("pipeline.between.", i); }
  template <class F>
  static List<Id> nodes_of(graph::Graph const& graph, F&& early, bool wanted) {
    List<Id> nodes;
    for (graph::Output const& output : graph.outputs)
      if (early(std::string(graph.text_of(output.name))) == wanted) nodes.push_back(output.node);
    return nodes;
  }
  static List<Id> all_of(graph::Graph const& graph) {
    return nodes_of(graph, [](std::string const&) { return true; }, true);
  }
  List<Id> moved(List<Id> nodes) const {
    for (Id& id : nodes) id = split_.copier()[id];
    return nodes;
  }

  detail::LoopSplitter split_;
  detail::EarlyNodes nodes_;
  List<Made> early_, late_;
  List<Id> own_, kept_;
};

}  // namespace tutti::parallel

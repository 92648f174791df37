// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a graph in double, one naive loop per operation, on any number of simulated ranks in step with each other. Slow
/// and plain: the reference that everything faster is compared with.

#include <tutti/comm/port.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/interpreter_composites.hpp>

namespace tutti::graph {

class Interpreter {
 public:
  using Values = naive::Values;

  /// Parameters and states start at zero, or one where `Init` says so; random ones are the caller's to set. Of `ranks`
  /// in all, `tensor` in a row are those of one line along the tensor axis; lines of the data axis go across.
  /// Requires  tensor divides ranks
  explicit Interpreter(Graph graph, int ranks = 1, int tensor = 1)
      : graph_(std::move(graph)), tensor_(naive::at(tensor)), leaves_(naive::at(ranks), Cells(graph_.nodes.size())) {
    auto const fill = [&](Id id, Init const& init) {
      for (Cells& rank : leaves_)
        rank[naive::at(id)] = {Values(naive::at(graph_.shape(id).size()), init.kind == Init::Kind::ones ? 1.0 : 0.0)};
    };
    for (Parameter const& parameter : graph_.parameters) fill(parameter.node, parameter.init);
    for (std::size_t i = 0; i < graph_.states.size(); ++i) fill(graph_.states[i], graph_.state_inits[i]);
  }

  Graph const& graph() const { return graph_; }
  int ranks() const { return static_cast<int>(leaves_.size()); }

  /// Sets an input, scalar, parameter or state on one rank, or on all (-1).
  void set(std::string_view name, Values values, int rank = -1) {
    Id const id = leaf("Interpreter::set", name);
    if (values.size() != naive::at(graph_.shape(id).size()))
      throw Error(ErrorKind::shape, "Interpreter::set",
                  std::to_string(values.size()) + " values for \"" + std::string(name) + "\" of shape " +
                      to_string(graph_.shape(id)));
    for (int r = 0; r < ranks(); ++r)
      if (rank == -1 || rank == r) leaves_[naive::at(r)][naive::at(id)] = {values};
  }
  /// Present value of a leaf. Errors: invalid_argument (no such leaf, or an input that was never set).
  Values const& get(std::string_view name, int rank = 0) const {
    check_rank("Interpreter::get", rank);
    List<Values> const& cell = leaves_[naive::at(rank)][naive::at(leaf("Interpreter::get", name))];
    if (cell.empty())
      throw Error(ErrorKind::invalid_argument, "Interpreter::get", "\"" + std::string(name) + "\" was never set");
    return cell[0];
  }

  /// Evaluates everything, then makes the updates.
  void run() {
    cells_ = leaves_;
    evaluate(graph_, cells_);
    for (Update const& update : graph_.updates)
      for (int r = 0; r < ranks(); ++r)
        leaves_[naive::at(r)][naive::at(update.target)] = cells_[naive::at(r)][naive::at(update.value)];
  }
  Values const& output(std::string_view name, int rank = 0) const {
    Id const id = graph_.find_output(name);
    if (id == none)
      throw Error(ErrorKind::invalid_argument, "Interpreter::output",
                  "the graph has no output \"" + std::string(name) + "\"");
    check_rank("Interpreter::output", rank);
    if (cells_.empty()) throw Error(ErrorKind::invalid_argument, "Interpreter::output", "call run() first");
    return cells_[naive::at(rank)][naive::at(id)][0];
  }

 private:
  using Cells = List<List<Values>>;  // of every node, of every result

  void check_rank(char const* operation, int rank) const {
    if (rank < 0 || rank >= ranks())
      throw Error(ErrorKind::out_of_range, operation,
                  "rank " + std::to_string(rank) + " does not exist. Ranks are 0 to " + std::to_string(ranks() - 1));
  }
  Id leaf(char const* operation, std::string_view name) const {
    Id const id = graph_.find_leaf(name);
    if (id == none)
      throw Error(ErrorKind::invalid_argument, operation,
                  "the graph has no input, scalar, parameter or state \"" + std::string(name) + "\"");
    return id;
  }
  static naive::Call call(Graph const& graph, Id id, Cells const& cells) {
    naive::Call c{graph, id, {}};
    for (Id operand : graph.operands(id)) {
      List<Values> const& cell = cells[naive::at(operand)];
      if (cell.empty())
        throw Error(ErrorKind::invalid_argument, "Interpreter::run",
                    "\"" + std::string(graph.name(operand)) + "\" was never set");
      c.operands.push_back(&cell[0]);
    }
    return c;
  }

  void evaluate(Graph const& graph, List<Cells>& ranks) {
    for (Id id = 0; id < graph.size(); ++id) {
      Op const op = graph.op(id);
      OpClass const kind = info(op).kind;
      if (op == Op::repeat) {
        repeat(graph, id, ranks);
      } else if (kind == OpClass::collective) {
        collective(graph, id, ranks);
      } else {
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          List<Values>& out = ranks[r][naive::at(id)];
          if (graph[id].name != none) {
            if (out.empty())
              throw Error(ErrorKind::invalid_argument, "Interpreter::run",
                          "\"" + std::string(graph.name(id)) + "\" has no value; set it before the run");
          } else if (op == Op::rank) {
            out = {{static_cast<double>(place(mesh_axis(graph, id), r))}};
          } else if (op == Op::result) {
            out = {ranks[r][naive::at(graph.operand(id, 0))][naive::at(graph.integer(id))]};
          } else if (kind == OpClass::composite) {
            out = naive::composite(call(graph, id, ranks[r]));
          } else {
            out = {naive::primitive(call(graph, id, ranks[r]))};
            bool const sums =
                op == Op::reduce_sum || op == Op::scatter_add || (is_function(op) && function_facts(op).wraps);
            // The largest int64 is 2^63 here: what only moves elements leaves it alone.
            if (DType const dtype = graph.dtype(id); is_integer(dtype) && (sums || size_of(dtype) < 8))
              for (double& x : out[0]) x = naive::converted(DType::int64, x, dtype);
          }
        }
      }
    }
  }

  static Values part(Values const& whole, std::int64_t index, std::int64_t length) {
    std::size_t const size = length == 0 ? 0 : whole.size() / naive::at(length);
    auto const first = whole.begin() + static_cast<std::ptrdiff_t>(naive::at(index) * size);
    return {first, first + static_cast<std::ptrdiff_t>(size)};
  }

  void repeat(Graph const& graph, Id id, List<Cells>& ranks) {
    Graph const& body = graph.body(id);
    RepeatShape const shape = repeat_shape(graph, id);
    auto const carried = naive::at(shape.carried);
    for (Cells& cells : ranks) {
      List<Values>& out = cells[naive::at(id)];
      out.clear();
      for (std::size_t i = 0; i < body.outputs.size(); ++i)
        out.push_back(i < carried ? cells[naive::at(graph.operand(id, static_cast<int>(i)))][0]
                                  : Values(naive::at(graph.type(id, static_cast<int>(i)).shape.size())));
    }
    for (std::int64_t step = 0; step < shape.length; ++step) {
      std::int64_t const index = shape.reversed ? shape.length - 1 - step : step;
      List<Cells> inner(ranks.size(), Cells(body.nodes.size()));
      for (std::size_t r = 0; r < ranks.size(); ++r)
        for (std::size_t i = 0; i < body.inputs.size(); ++i) {
          Values const& outer = ranks[r][naive::at(graph.operand(id, static_cast<int>(i)))][0];
          inner[r][naive::at(body.inputs[i])] = {i < carried ? ranks[r][naive::at(id)][i]
                                                 : i < carried + naive::at(shape.invariants)
                                                     ? outer
                                                     : part(outer, index, shape.length)};
        }
      evaluate(body, inner);
      for (std::size_t r = 0; r < ranks.size(); ++r)
        for (std::size_t i = 0; i < body.outputs.size(); ++i) {
          Values const& value = inner[r][naive::at(body.outputs[i].node)][0];
          Values& out = ranks[r][naive::at(id)][i];
          if (i < carried) out = value;
          else
            std::copy(value.begin(), value.end(),
                      out.begin() + static_cast<std::ptrdiff_t>(naive::at(index) * value.size()));
        }
    }
  }

  void collective(Graph const& graph, Id id, List<Cells>& ranks) {
    Op const op = graph.op(id);
    Id const from = graph.operand(id, 0);
    auto const value = [&](std::size_t r) -> Values const& { return ranks[r][naive::at(from)][0]; };
    if (op == Op::vary || op == Op::partial) {
      for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r][naive::at(id)] = {value(r)};
      return;
    }
    MeshAxis const axis = mesh_axis(graph, id);
    std::size_t const count = line(axis, ranks.size());
    bool const sized = op != Op::all_reduce && op != Op::broadcast;
    if (sized && graph.integer(id) != static_cast<std::int64_t>(count))
      throw Error(ErrorKind::configuration, std::string(name(op)),
                  "the graph was made for " + std::to_string(graph.integer(id)) + " ranks, here are " +
                      std::to_string(count));
    std::size_t const stride = axis == MeshAxis::data ? tensor_ : 1;
    for (std::size_t first = 0; first < ranks.size(); ++first) {
      if (place(axis, first) != 0) continue;
      auto const of = [&](std::size_t i) -> Values const& { return value(first + i * stride); };
      if (op == Op::all_to_all || op == Op::send_receive) {
        for (std::size_t i = 0; i < count; ++i) {
          Values mine;
          if (op == Op::send_receive) {
            auto const source = neighbour(static_cast<std::int64_t>(i), -graph.integer(id, 1),
                                          graph.integer(id, 2) != 0, static_cast<std::int64_t>(count));
            mine = source < 0 ? Values(of(i).size(), 0.0) : of(static_cast<std::size_t>(source));
          } else {
            for (std::size_t k = 0; k < count; ++k) {
              Values const block = part(of(k), static_cast<std::int64_t>(i), static_cast<std::int64_t>(count));
              mine.insert(mine.end(), block.begin(), block.end());
            }
          }
          ranks[first + i * stride][naive::at(id)] = {std::move(mine)};
        }
        continue;
      }
      Values all;
      if (op == Op::all_gather) {
        for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), of(i).begin(), of(i).end());
      } else if (op == Op::broadcast) {
        all = of(naive::at(graph.integer(id)));
      } else {
        all = of(0);
        for (std::size_t i = 1; i < count; ++i)
          for (std::size_t k = 0; k < all.size(); ++k) all[k] += of(i)[k];
        if (static_cast<comm::PortOp>(graph.integer(id, op == Op::reduce_scatter ? 1 : 0)) == comm::PortOp::avg)
          for (double& x : all) x /= static_cast<double>(count);
      }
      for (std::size_t i = 0; i < count; ++i)
        ranks[first + i * stride][naive::at(id)] = {
            op == Op::reduce_scatter ? part(all, static_cast<std::int64_t>(i), static_cast<std::int64_t>(count)) : all};
    }
  }

  /// Ranks along an axis, of so many in all; the axes that are not simulated have one.
  std::size_t line(MeshAxis axis, std::size_t ranks) const {
    return axis == MeshAxis::data ? ranks / tensor_ : axis == MeshAxis::tensor ? tensor_ : 1;
  }
  std::size_t place(MeshAxis axis, std::size_t rank) const {
    return axis == MeshAxis::data ? rank / tensor_ : axis == MeshAxis::tensor ? rank % tensor_ : 0;
  }

  Graph graph_;
  std::size_t tensor_;
  List<Cells> leaves_, cells_;
};

}  // namespace tutti::graph

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Builds a graph node by node. Equal nodes are one node (hash-consing): a parameter used twice is one value.

#include <tutti/comm/port.hpp>
#include <tutti/graph/infer.hpp>
#include <tutti/graph/scopes.hpp>

#include <bit>

namespace tutti::graph {

class Builder;

namespace detail {
inline constexpr char unbound[] =
    "this value belongs to no graph. A parameter is bound by trace, which finds it as a member of the model's struct: "
    "that struct, and those in it, list their members with BOOST_HANA_DEFINE_STRUCT, this one too; layers may be in "
    "a Stack, a std::vector or a std::array";
template <class T>
constexpr Range pooled(List<T>& pool, List<T> const& values) {
  Range const range{static_cast<std::int32_t>(pool.size()), static_cast<std::int32_t>(values.size())};
  pool.append(values.begin(), values.end());
  return range;
}
}  // namespace detail

/// How gradients of what is replicated come together along an axis: the loss is the average of those of the data axis'
/// ranks, and the same on all ranks of another one, to whose gradient each gives its part.
constexpr comm::PortOp gradient_reduction(MeshAxis axis) noexcept {
  return axis == MeshAxis::data ? comm::PortOp::avg : comm::PortOp::sum;
}

/// Handle of a value while a graph is built: what model functions are written in.
/// Errors  a handle of no graph (a parameter that `trace` did not bind) is refused wherever it is used
struct Var {
  Builder* builder = nullptr;
  Id id = none;

  // By value: the graph moves its nodes as it grows, also between the arguments of one call.
  constexpr Type type(std::source_location where = std::source_location::current()) const;
  constexpr Shape shape(std::source_location where = std::source_location::current()) const {
    return type(where).shape;
  }
  constexpr DType dtype(std::source_location where = std::source_location::current()) const {
    return type(where).dtype;
  }
  constexpr int rank(std::source_location where = std::source_location::current()) const {
    return type(where).shape.rank();
  }
};

/// Neither copied nor moved: handles point to it.
class Builder {
 public:
  constexpr Builder() = default;
  /// For the body of a repeat: values of `parent` used inside become invariants.
  constexpr explicit Builder(Builder* parent) : parent_(parent), depth_(parent->depth_ + 1), open_(parent->open_, 0) {}
  Builder(Builder const&) = delete;
  Builder& operator=(Builder const&) = delete;

  constexpr Graph const& graph() const noexcept { return graph_; }
  constexpr int depth() const noexcept { return depth_; }

  /// A tensor that the user gives at every run. `varying` says that ranks give different ones (their part of a batch):
  /// gradients of what is replicated are then averaged over ranks where they arise.
  constexpr Var input(std::string_view name, DType dtype, Shape const& shape,
                      Replications replication = {},
                      std::source_location where = std::source_location::current()) {
    return leaf(Op::input, name, {dtype, replication, shape}, graph_.inputs, where);
  }
  constexpr Var scalar(std::string_view name, DType dtype = DType::float32,
                       std::source_location where = std::source_location::current()) {
    return leaf(Op::scalar, name, {dtype, Replication::replicated, {}}, graph_.scalars, where);
  }
  /// The scalar of this name: of several places that read one number of a step, the first makes it.
  constexpr Var shared_scalar(std::string_view name, DType dtype = DType::float32,
                              std::source_location where = std::source_location::current()) {
    for (Id id : graph_.scalars)
      if (graph_.name(id) == name) return {this, id};
    return scalar(name, dtype, where);
  }
  /// A tensor that outlives runs and is not trained; `update` overwrites it, on several ranks as `across` says.
  constexpr Var state(std::string_view name, Shape const& shape, Init init = zeros(), DType dtype = DType::float32,
                      StateUpdate across = StateUpdate::replicated,
                      std::source_location where = std::source_location::current()) {
    if (across == StateUpdate::averaged && !is_floating(dtype))
      refuse(where, Op::state, ErrorKind::dtype,
             "integers have no average over ranks; make the state floating, or say replicated or per_rank");
    return state(name, {dtype, {}, shape}, init, across, where);
  }
  /// Of this type, of which ranks along other axes than that of data may have parts of their own, as of a parameter.
  constexpr Var state(std::string_view name, Type type, Init init, StateUpdate across,
                      std::source_location where = std::source_location::current()) {
    bool const own = across == StateUpdate::per_rank || across == StateUpdate::part;
    type.replication = type.replication.with(MeshAxis::data, own ? Replication::varying : Replication::replicated);
    graph_.state_inits.push_back(init);
    List<std::int64_t> integers;
    if (own ? across == StateUpdate::part : across == StateUpdate::averaged) integers = {static_cast<int>(across)};
    return leaf(Op::state, name, type, graph_.states, where, std::move(integers));
  }
  constexpr Var state(std::string_view name, Shape const& shape, StateUpdate across,
                      std::source_location where = std::source_location::current()) {
    return state(name, shape, zeros(), DType::float32, across, where);
  }
  /// `known`: along an axis of the mesh, ranks may have parts of their own.
  constexpr Var parameter(std::string_view name, Shape const& shape, Init init, bool stacked = false,
                          std::source_location where = std::source_location::current(), Replications known = {}) {
    List<Id> list;
    Var const var = leaf(Op::parameter, name, {DType::float32, known, shape}, list, where);
    graph_.parameters.push_back({var.id, init, stacked});
    return var;
  }
  constexpr void output(std::string_view name, Var value,
                        std::source_location where = std::source_location::current()) {
    std::int32_t const index = intern(name);
    for (Output const& other : graph_.outputs)
      if (depth_ == 0 && other.name == index)
        refuse(where, Op::result, ErrorKind::invalid_argument,
               "two outputs have the name '" + std::string(name) + "'; give each its own");
    graph_.outputs.push_back({index, adopt(value, where)});
  }
  /// After a run `target`, a parameter or state, holds `value`; or, as the state was made, the ranks' average of it.
  constexpr void update(Var target, Var value, std::source_location where = std::source_location::current()) {
    Id const to = adopt(target, where);
    Id from = adopt(value, where);
    if (graph_.op(to) != Op::parameter && graph_.op(to) != Op::state)
      refuse(where, graph_.op(to), ErrorKind::invalid_argument, "only parameters and states can be updated");
    for (Update const& other : graph_.updates)
      if (other.target == to)
        refuse(where, graph_.op(to), ErrorKind::invalid_argument, "this tensor already has an update");
    if (graph_.shape(to) != graph_.shape(from))
      refuse(where, graph_.op(to), "an update keeps the shape", graph_.shape(to), graph_.shape(from));
    if (graph_.dtype(to) != graph_.dtype(from))
      refuse(where, graph_.op(to), "an update keeps the dtype", graph_.dtype(to), graph_.dtype(from));
    if (state_update(graph_, to) == StateUpdate::averaged) from = averaged(from, where);
    if (graph_.replication(to) == Replication::replicated && graph_.replication(from) != Replication::replicated)
      refuse(where, graph_.op(to), ErrorKind::communication,
             "the new value differs between ranks, the tensor must not; all_reduce it first, or make the state with "
             "StateUpdate::averaged or StateUpdate::per_rank");
    for (MeshAxis axis : {MeshAxis::tensor, MeshAxis::pipeline, MeshAxis::sequence})
      if (graph_.replication(to, axis) == Replication::replicated &&
          graph_.replication(from, axis) != Replication::replicated)
        refuse(where, graph_.op(to), ErrorKind::communication,
               "the new value differs between ranks of the " + std::string(graph::name(axis)) +
                   " axis, the tensor must not; all_reduce it there first");
    graph_.updates.push_back({to, from});
  }

  /// The id of `var` here; an outer graph's value becomes an invariant input of this body.
  constexpr Id adopt(Var var, std::source_location where = std::source_location::current()) {
    if (var.builder == this) return var.id;
    if (var.builder == nullptr)
      refuse(where, "graph", ErrorKind::invalid_argument, detail::unbound);
    if (parent_ == nullptr)
      refuse(where, "graph", ErrorKind::invalid_argument,
             "this value belongs to another graph or to a finished body; return it from the body instead");
    Id const outer = parent_->adopt(var, where);
    for (std::size_t i = 0; i < captured_.size(); ++i)
      if (captured_[i] == outer) return captured_inputs_[i];
    Type const type = parent_->graph().type(outer);
    List<Id> list;
    Id const inner = leaf(Op::input, "captured", type, list, where).id;
    captured_.push_back(outer);
    captured_inputs_.push_back(inner);
    return inner;
  }
  constexpr List<Id> const& captured() const noexcept { return captured_; }
  constexpr List<Id> const& captured_inputs() const noexcept { return captured_inputs_; }

  /// Adds the node, or finds the equal one. Replicated operands of an operation on varying ones get a `vary` node.
  constexpr Id emit(Draft wanted, std::source_location where = std::source_location::current()) {
    reconcile(wanted, where);
    List<Type> const types = infer(graph_, wanted, where);
    return place(wanted, types, where);
  }
  constexpr std::int32_t add_body(Graph body) {
    graph_.bodies.push_back(std::move(body));
    return static_cast<std::int32_t>(graph_.bodies.size()) - 1;
  }
  /// Gives an existing repeat a body with more results behind the present ones: gradients need residuals.
  constexpr void extend_repeat(Id id, Graph body, std::source_location where = std::source_location::current()) {
    Node& node = graph_.nodes[static_cast<std::size_t>(id)];
    graph_.bodies[static_cast<std::size_t>(node.body)] = std::move(body);
    auto const integers = graph_.integers(id);
    Draft extended = draft(Op::repeat, {}, {integers.begin(), integers.end()});
    extended.body = node.body;
    node.types = detail::pooled(graph_.type_pool, infer(graph_, extended, where));
  }
  /// Replaces the reals of a node whose readers do not depend on them yet.
  constexpr void replace_real(Id id, int index, double value) {
    graph_.real_pool[static_cast<std::size_t>(graph_[id].reals.first + index)] = value;
  }

  /// What the gradients that are still to be taken of this graph's repeats compute again.
  constexpr void set_recompute(Recompute policy) noexcept { graph::set_recompute(graph_, policy); }
  /// The same of one repeat.
  constexpr void set_recompute(Id repeat, Recompute policy) noexcept {
    graph::set_recompute(graph_, graph_[repeat], policy);
  }

  /// Until the object is gone, what is traced here is in a range of this name, inside of those that are open already:
  /// `auto const range = b.scope("attention");`. Traces and profiles show ranges; gradients are in those of what they
  /// are of. A value that is traced twice is one value, in the range where it was first. Errors: invalid_argument.
  [[nodiscard]] constexpr Scopes::Range scope(std::string_view name,
                                              std::source_location where = std::source_location::current()) {
    return open_.open(name, depth_ > 0, where);
  }

  /// While set, new nodes carry this node's source line instead of the caller's.
  constexpr void inherit_source(Id id) noexcept { inherited_ = id; }
  /// Likewise this Graph::source and line, of a node of another graph; 0 ends it.
  constexpr void copy_source(std::string_view file, std::int32_t line) {
    copied_file_ = line == 0 ? none : intern(file);
    copied_line_ = line;
  }

  constexpr std::int32_t intern(std::string_view wanted) {
    std::uint32_t const h = hash(wanted);
    for (std::size_t i = 0; i < name_hashes_.size(); ++i)
      if (name_hashes_[i] == h && graph_.text_of(static_cast<std::int32_t>(i)) == wanted)
        return static_cast<std::int32_t>(i);
    name_hashes_.push_back(h);
    Range const range{static_cast<std::int32_t>(graph_.text.size()), static_cast<std::int32_t>(wanted.size())};
    graph_.text.append(wanted.begin(), wanted.end());
    graph_.names.push_back(range);
    return static_cast<std::int32_t>(graph_.names.size()) - 1;
  }
  /// Adopts a whole graph's contents; the builder must be fresh.
  constexpr void load(Graph graph) {
    graph_ = std::move(graph);
    for (Id id = 0; id < graph_.size(); ++id) hashes_.push_back(hash(id));
    for (std::size_t i = 0; i < graph_.names.size(); ++i)
      name_hashes_.push_back(hash(graph_.text_of(static_cast<std::int32_t>(i))));
    grow();
  }
  /// Body inputs in the order that Graph documents; called when a body is closed.
  constexpr void order_inputs(List<Id> inputs) { graph_.inputs = std::move(inputs); }

 private:
  constexpr Var leaf(Op op, std::string_view name, Type const& type, List<Id>& list, std::source_location where,
                     List<std::int64_t> integers = {}) {
    if (name.empty()) refuse(where, op, ErrorKind::invalid_argument, "a leaf of a graph needs a name");
    std::size_t const known = graph_.names.size();
    Draft wanted = draft(op, {}, std::move(integers), {}, type);
    wanted.name = intern(name);
    if (depth_ == 0 && static_cast<std::size_t>(wanted.name) < known)
      for (Node const& other : graph_.nodes)
        if (other.name == wanted.name)
          refuse(where, op, ErrorKind::invalid_argument,
                 "two leaves of a graph have the name '" + std::string(name) + "'; give each its own");
    Id const id = append(wanted, {type}, where);
    list.push_back(id);
    return {this, id};
  }

  constexpr void reconcile(Draft& wanted, std::source_location where) {
    OpClass const kind = info(wanted.op).kind;
    if (kind == OpClass::collective || kind == OpClass::structure || kind == OpClass::leaf ||
        wanted.operands.size() < 2)
      return;
    int all = 0;
    for (Id id : wanted.operands) all |= graph_.type(id).replication.bits();
    if (all == 0) return;
    for (int i = 0; i < mesh_axes; ++i) {
      auto const axis = static_cast<MeshAxis>(i);
      bool varying = false;
      for (Id id : wanted.operands) varying = varying || graph_.replication(id, axis) == Replication::varying;
      if (!varying) continue;
      for (Id& id : wanted.operands) {
        Op const op = graph_.op(id);
        if (graph_.replication(id, axis) != Replication::replicated || !is_floating(graph_.dtype(id)) ||
            op == Op::constant || op == Op::scalar)
          continue;
        id = emit(draft(Op::vary, {id}, along(axis, {static_cast<std::int64_t>(gradient_reduction(axis))})), where);
      }
    }
  }

  constexpr Id averaged(Id value, std::source_location where) {
    std::int64_t const average = static_cast<std::int64_t>(comm::PortOp::avg);
    bool const is_average = graph_.op(value) == Op::all_reduce && graph_.integer(value) == average &&
                            mesh_axis(graph_, value) == MeshAxis::data;
    if (is_average || graph_.op(value) == Op::constant) return value;
    if (graph_.replication(value) == Replication::replicated) value = emit(draft(Op::vary, {value}, {average}), where);
    return emit(draft(Op::all_reduce, {value}, {average}), where);
  }

  constexpr Id append(Draft const& wanted, List<Type> const& types, std::source_location where) {
    Node node;
    node.op = wanted.op;
    node.operands = detail::pooled(graph_.operand_pool, wanted.operands);
    node.integers = detail::pooled(graph_.integer_pool, wanted.integers);
    node.reals = detail::pooled(graph_.real_pool, wanted.reals);
    node.types = detail::pooled(graph_.type_pool, types);
    node.name = wanted.name;
    node.body = wanted.body;
    node.custom = wanted.custom;
    if (inherited_ != none) {
      node.file = graph_[inherited_].file;
      node.line = graph_[inherited_].line;
    } else if (copied_line_ != 0) {
      node.file = copied_file_;
      node.line = copied_line_;
    } else {
      std::string_view file = where.file_name();
      if (auto slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
      List<char> const scoped = open_.empty() ? List<char>() : open_.source(file);
      node.file = intern(open_.empty() ? file : std::string_view(scoped.data(), scoped.size()));
      node.line = static_cast<std::int32_t>(where.line());
    }
    graph_.nodes.push_back(node);
    Id const id = graph_.size() - 1;
    hashes_.push_back(hash(id));
    if (2 * hashes_.size() > table_.size()) grow();
    else insert(id);
    return id;
  }

  constexpr Id place(Draft const& wanted, List<Type> const& types, std::source_location where) {
    std::uint32_t h = mixed(0x9e3779b9u, static_cast<std::uint64_t>(wanted.op));
    for (Id id : wanted.operands) h = mixed(h, static_cast<std::uint64_t>(id));
    for (std::int64_t value : wanted.integers) h = mixed(h, static_cast<std::uint64_t>(value));
    for (double value : wanted.reals) h = mixed(h, std::bit_cast<std::uint64_t>(value));
    h = hash_type(h, types[0]);
    if (!table_.empty())
      for (std::size_t slot = h & (table_.size() - 1); table_[slot] != none; slot = (slot + 1) & (table_.size() - 1))
        if (hashes_[static_cast<std::size_t>(table_[slot])] == h && equal(table_[slot], wanted, types))
          return table_[slot];
    return append(wanted, types, where);
  }

  constexpr bool equal(Id id, Draft const& wanted, List<Type> const& types) const {
    Node const& node = graph_[id];
    if (node.op != wanted.op || node.name != wanted.name || node.body != wanted.body ||
        node.custom != wanted.custom)
      return false;
    auto const reals = graph_.reals(id);
    if (reals.size() != wanted.reals.size()) return false;
    for (std::size_t i = 0; i < reals.size(); ++i)
      if (std::bit_cast<std::uint64_t>(reals[i]) != std::bit_cast<std::uint64_t>(wanted.reals[i])) return false;
    auto const operands = graph_.operands(id);
    auto const integers = graph_.integers(id);
    return std::equal(operands.begin(), operands.end(), wanted.operands.begin(), wanted.operands.end()) &&
           std::equal(integers.begin(), integers.end(), wanted.integers.begin(), wanted.integers.end()) &&
           graph_.type(id) == types[0];
  }
  static constexpr std::uint32_t hash(std::string_view text) noexcept {
    std::uint32_t h = 0;
    for (char c : text) h = 31 * h + static_cast<unsigned char>(c);
    return h;
  }
  static constexpr std::uint32_t mixed(std::uint32_t h, std::uint64_t value) noexcept {
    h = (h ^ static_cast<std::uint32_t>(value)) * 0x01000193u;
    return (h ^ static_cast<std::uint32_t>(value >> 32)) * 0x85ebca6bu;
  }
  static constexpr std::uint32_t hash_type(std::uint32_t h, Type const& type) {
    h = mixed(h, static_cast<std::uint64_t>(type.dtype));
    for (std::int64_t extent : type.shape) h = mixed(h, static_cast<std::uint64_t>(extent));
    return h ^ (h >> 15);
  }
  constexpr std::uint32_t hash(Id node) const {
    std::uint32_t h = mixed(0x9e3779b9u, static_cast<std::uint64_t>(graph_.op(node)));
    for (Id id : graph_.operands(node)) h = mixed(h, static_cast<std::uint64_t>(id));
    for (std::int64_t value : graph_.integers(node)) h = mixed(h, static_cast<std::uint64_t>(value));
    for (double value : graph_.reals(node)) h = mixed(h, std::bit_cast<std::uint64_t>(value));
    return hash_type(h, graph_.type(node));
  }
  constexpr void insert(Id id) {
    std::size_t slot = hashes_[static_cast<std::size_t>(id)] & (table_.size() - 1);
    while (table_[slot] != none) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = id;
  }
  constexpr void grow() {
    table_.assign(std::bit_ceil(4 * hashes_.size() + 16), none);
    for (Id id = 0; id < graph_.size(); ++id) insert(id);
  }

  Graph graph_;
  List<Id> table_;
  List<std::uint32_t> hashes_, name_hashes_;
  List<Id> captured_, captured_inputs_;
  Builder* parent_ = nullptr;
  int depth_ = 0;
  Id inherited_ = none;
  std::int32_t copied_file_ = none, copied_line_ = 0;
  Scopes open_;  // ranges
};

constexpr Type Var::type(std::source_location where) const {
  if (builder == nullptr)
    refuse(where, "graph", ErrorKind::invalid_argument, detail::unbound);
  return builder->graph().type(id);
}

}  // namespace tutti::graph

// What a builder asks of operations: these are written with values, which need the builder.
#include <tutti/graph/values.hpp>

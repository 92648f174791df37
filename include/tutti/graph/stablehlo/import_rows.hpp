// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// StableHLO's gather and scatter of boxes at any indices, as rows of a table in graphs: axes that are addressed become
/// one, those behind that are taken whole are its rows.

#include <tutti/graph/stablehlo/import_functions.hpp>

namespace tutti::graph::stablehlo::imported {

/// Which axis means what; the names are those of gather.
struct Addressing {
  List<std::int64_t> collapsed, operand_batch, index_batch, index_map;
  std::int64_t index_axis = 0;  ///< the rank of the indices where each is one number
  List<std::int64_t> sizes;     ///< of the box, for each axis of the operand
};

/// The addressed part of an operand.
class Addressed {
 public:
  /// Errors  format, for axes that are not there or that do not fit each other
  Addressed(Scope& scope, Shape const& operand, Var indices, Addressing const& how)
      : scope_(scope), operand_(operand), how_(how) {
    int const rank = indices.rank();
    auto const fails = [&] { scope.refuse("has axes that do not fit its operands", ErrorKind::format); };
    auto const below = [](List<std::int64_t> const& axes, int limit) {
      for (std::int64_t const axis : axes)
        if (axis < 0 || axis >= limit) return false;
      return true;
    };
    if (how.index_axis < 0 || how.index_axis > rank || static_cast<int>(how.sizes.size()) != operand.rank() ||
        !below(how.collapsed, operand.rank()) || !below(how.operand_batch, operand.rank()) ||
        !below(how.index_map, operand.rank()) || !below(how.index_batch, rank) ||
        how.operand_batch.size() != how.index_batch.size())
      fails();
    std::int64_t const parts = how.index_axis == rank ? 1 : indices.shape()[static_cast<int>(how.index_axis)];
    if (static_cast<std::int64_t>(how.index_map.size()) != parts) fails();
    if (how.index_axis == rank) indices = graph::reshape(indices, appended(indices.shape(), 1));
    List<std::int64_t> extents;
    for (int axis = 0; axis < indices.rank(); ++axis)
      if (axis != how.index_axis) extents.push_back(indices.shape()[axis]);
    batch_ = Shape(extents);
    for (int axis = 0; axis < operand.rank(); ++axis) {
      std::int64_t const size = how.sizes[static_cast<std::size_t>(axis)];
      if (size < 0 || size > operand[axis] || (!is_window(axis) && size != (operand[axis] == 0 ? 0 : 1))) fails();
    }
    while (lead_ > 0 && is_whole(lead_ - 1)) --lead_;
    List<std::int64_t> windows = extents;
    for (int axis = 0; axis < lead_; ++axis)
      if (is_window(axis)) windows.push_back(how.sizes[static_cast<std::size_t>(axis)]);
    shape_ = Shape(windows);
    bool const wide = operand.size() >= (std::int64_t{1} << 31);
    type_ = wide ? DType::int64 : DType::int32;
    indices_ = graph::convert(indices, indices.dtype() == DType::uint32 || size_of(indices.dtype()) == 8 ? DType::int64
                                                                                                        : type_);
  }

  Shape const& batch() const noexcept { return batch_; }
  /// batch, then the windows' extents along axes that are addressed.
  Shape const& shape() const noexcept { return shape_; }
  bool is_window(std::int64_t axis) const {
    return !graph::detail::contains(how_.collapsed, axis) && !graph::detail::contains(how_.operand_batch, axis);
  }
  /// (addressed positions, whole axes...)
  Shape table() const {
    List<std::int64_t> extents{1};
    for (int axis = 0; axis < operand_.rank(); ++axis)
      if (axis < lead_) extents[0] *= operand_[axis];
      else extents.push_back(operand_[axis]);
    return Shape(extents);
  }
  /// Of every addressed element its place in the table; boxes are moved inside, or, without `clamped`, those outside
  /// are at 0, and `inside` says which are not.
  Var places(bool clamped, Var* inside = nullptr) const {
    Builder& b = scope_.builder();
    Var sum = constant(b, 0, shape_, type_);
    std::int64_t stride = 1;
    int window = shape_.rank();
    for (int axis = lead_ - 1; axis >= 0; --axis) {
      std::int64_t const size = how_.sizes[static_cast<std::size_t>(axis)], room = operand_[axis] - size;
      auto const add = [&](Var position) {
        sum = Operand(sum) + Operand(Operand(position) * static_cast<double>(stride));
      };
      if (auto const start = start_of(axis)) {
        Var const from = clamped ? maximum(0.0, minimum(*start, static_cast<double>(room))) : *start;
        add(spread(graph::convert(from, type_)));
        if (!clamped) {
          Var const fits = spread(less_equal(0.0, *start) && less_equal(*start, static_cast<double>(room)));
          *inside = inside->builder == nullptr ? fits : *inside && fits;
        }
      }
      if (is_window(axis)) {
        --window;
        if (size > 1) add(iota(b, shape_, window, type_));
      }
      stride *= operand_[axis];
    }
    if (!clamped && inside->builder != nullptr) sum = select(*inside, sum, 0.0);
    return sum;
  }
  /// A value for each index as one for each addressed element.
  Var spread(Var of) const { return broadcast_in_dim(of, shape_, graph::detail::ascending(0, batch_.rank())); }

 private:
  bool is_whole(int axis) const {
    return is_window(axis) && how_.sizes[static_cast<std::size_t>(axis)] == operand_[axis] &&
           !graph::detail::contains(how_.index_map, axis);
  }
  /// For each index (batch); nothing where all boxes start at 0.
  std::optional<Var> start_of(int axis) const {
    for (std::size_t i = 0; i < how_.index_map.size(); ++i) {
      if (how_.index_map[i] != axis) continue;
      Shape const& all = indices_.shape();
      List<std::int64_t> starts(static_cast<std::size_t>(all.rank()), 0), limits(all.begin(), all.end());
      starts[static_cast<std::size_t>(how_.index_axis)] = static_cast<std::int64_t>(i);
      limits[static_cast<std::size_t>(how_.index_axis)] = static_cast<std::int64_t>(i) + 1;
      return graph::reshape(graph::slice(indices_, starts, limits), batch_);
    }
    for (std::size_t i = 0; i < how_.operand_batch.size(); ++i)
      if (how_.operand_batch[i] == axis) {
        std::int64_t const at = how_.index_batch[i];
        return iota(scope_.builder(), batch_, static_cast<int>(at > how_.index_axis ? at - 1 : at), type_);
      }
    return std::nullopt;
  }

  Scope& scope_;
  Shape operand_, batch_, shape_;
  Addressing how_;
  int lead_ = operand_.rank();
  DType type_ = DType::int32;
  Var indices_;
};

inline Var gathered(Scope& scope, Items const& in, Shape const& result) {
  std::string_view const key = "dimension_numbers";
  Var const table = scope.in(in, 0);
  auto const axis = field(scope, key, "index_vector_dim"), offsets = field(scope, key, "offset_dims");
  Addressed const rows(scope, table.shape(), scope.in(in, 1),
                       {field(scope, key, "collapsed_slice_dims"), field(scope, key, "operand_batching_dims"),
                        field(scope, key, "start_indices_batching_dims"), field(scope, key, "start_index_map"),
                        axis.empty() ? 0 : axis[0], integers(scope, "slice_sizes")});
  if (result.size() == 0) return constant(scope.builder(), 0, result, table.dtype());
  Var const found = graph::gather(graph::reshape(table, rows.table()), rows.places(true));
  List<std::int64_t> order;
  std::int64_t batch = 0, window = rows.batch().rank();
  for (int i = 0; i < found.rank(); ++i)
    order.push_back(graph::detail::contains(offsets, i) ? window++ : batch++);
  return graph::transpose(found, order);
}

/// How updates meet what is there.
enum class Meeting { add, replace };

/// Boxes outside of the operand are left out. What replaces must not meet at one place: there graphs would add.
inline Var scattered(Scope& scope, Items const& in, Meeting meeting) {
  std::string_view const key = "scatter_dimension_numbers";
  if (in.size() != 3) scope.refuse("updates several operands at once");
  Var const base = scope.in(in, 0);
  Var updates = scope.in(in, 2);
  auto const axis = field(scope, key, "index_vector_dim"), windows = field(scope, key, "update_window_dims"),
             inserted = field(scope, key, "inserted_window_dims"), batching = field(scope, key, "input_batching_dims");
  List<std::int64_t> order, sizes;
  for (std::int64_t i = 0; i < updates.rank(); ++i)
    if (!graph::detail::contains(windows, i)) order.push_back(i);
  order.append(windows.begin(), windows.end());
  std::size_t next = 0;
  for (int i = 0; i < base.rank(); ++i) {
    bool const single = graph::detail::contains(inserted, i) || graph::detail::contains(batching, i);
    if (!single && (next == windows.size() || windows[next] < 0 || windows[next] >= updates.rank()))
      scope.refuse("has windows that do not fit its updates", ErrorKind::format);
    sizes.push_back(single ? (base.shape()[i] == 0 ? 0 : 1) : updates.shape()[static_cast<int>(windows[next++])]);
  }
  Addressed const rows(scope, base.shape(), scope.in(in, 1),
                       {inserted, batching, field(scope, key, "scatter_indices_batching_dims"),
                        field(scope, key, "scatter_dims_to_operand_dims"), axis.empty() ? 0 : axis[0], sizes});
  if (updates.shape().size() == 0 || base.shape().size() == 0) return base;
  if (meeting == Meeting::replace && rows.batch().size() != 1 &&
      find_integers(scope.operation(), "unique_indices") != List<std::int64_t>{1})
    scope.refuse("replaces elements at indices that may be equal. Say unique_indices, or add");
  updates = graph::transpose(updates, order);
  Var inside;
  Var const places = rows.places(false, &inside);
  Shape const table = rows.table();
  if (inside.builder != nullptr)
    updates = select(broadcast_in_dim(inside, updates.shape(), graph::detail::ascending(0, inside.rank())), updates,
                     constant(scope.builder(), 0, updates.shape(), updates.dtype()));
  Var const old = graph::reshape(base, table);
  if (meeting == Meeting::add) return graph::reshape(scatter_add(old, places, updates), base.shape());
  Var ones = constant(scope.builder(), 1, places.shape(), DType::float32);
  if (inside.builder != nullptr) ones = graph::convert(inside, DType::float32);
  Var const counts = scatter_add(constant(scope.builder(), 0, {table[0]}, DType::float32), places, ones);
  Var const hit = broadcast_in_dim(less(0.0, counts), table, {0});
  Var const placed = scatter_add(constant(scope.builder(), 0, table, base.dtype()), places, updates);
  return graph::reshape(select(hit, placed, old), base.shape());
}

}  // namespace tutti::graph::stablehlo::imported

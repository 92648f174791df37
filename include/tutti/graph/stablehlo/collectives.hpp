// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What crosses ranks as StableHLO: ranks are replicas, and the number of one is its place in its group. On one rank
/// nothing is sent, and nothing is left in the text.
///
/// An average is the sum, then a division. A broadcast is a sum too, to which all ranks but the root give zeros:
/// `collective_broadcast` is newer than what compilers for processors take.

#include <tutti/comm/port.hpp>
#include <tutti/graph/stablehlo/arrays.hpp>

#include <string>

namespace tutti::graph::stablehlo {

inline List<List<std::int64_t>> groups_of(StablehloOptions const& options) {
  if (!options.groups.empty()) return options.groups;
  List<std::int64_t> all;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) all.push_back(rank);
  return {all};
}
/// Errors  configuration, for groups that are not `ranks` replicas each, or name one twice or one that is not there.
inline void check_groups(StablehloOptions const& options) {
  auto const refused = [](std::string const& sentence) {
    throw Error(ErrorKind::configuration, "to_stablehlo", sentence);
  };
  if (options.ranks < 1) refused(concat("ranks is ", options.ranks, "; at least one runs the module"));
  auto const groups = groups_of(options);
  auto const replicas = options.ranks * static_cast<std::int64_t>(groups.size());
  List<bool> seen(static_cast<std::size_t>(replicas), false);
  for (auto const& group : groups) {
    if (static_cast<std::int64_t>(group.size()) != options.ranks)
      refused(concat("a group has ", group.size(), " replicas; every one needs as many as there are ranks, ",
                     options.ranks));
    for (std::int64_t replica : group) {
      if (replica < 0 || replica >= replicas || seen[static_cast<std::size_t>(replica)])
        refused(concat("replica ", replica, " is in two groups or does not exist; groups name each of 0 to ",
                       replicas - 1, " once"));
      seen[static_cast<std::size_t>(replica)] = true;
    }
  }
}

inline std::string groups_text(StablehloOptions const& options) {
  auto const groups = groups_of(options);
  std::string text = "replica_groups = dense<[";
  for (std::size_t i = 0; i < groups.size(); ++i) text += concat(i == 0 ? "[" : ", [", list_text(groups[i]), ']');
  return concat(text, "]> : tensor<", groups.size(), 'x', options.ranks, "xi64>");
}

/// Replicas are ranks of the data axis.
inline void require_data_axis(Call const& e) {
  if (MeshAxis const axis = mesh_axis(e.graph, e.id); axis != MeshAxis::data)
    refuse(e.graph, e.id, ErrorKind::unavailable,
           concat("it crosses ranks along the ", graph::name(axis), " axis, and modules know the data axis alone"));
}

/// int32 ().
inline Value rank(Call const& e) {
  require_data_axis(e);
  if (e.options.ranks == 1) return scalar(e, DType::int32, 0);
  Value const replica = e.out.op("replica_id", {}, DType::uint32, {});
  if (e.options.groups.empty()) return e.convert(replica, DType::int32);
  auto const groups = groups_of(e.options);
  std::int64_t const replicas = e.options.ranks * static_cast<std::int64_t>(groups.size());
  List<std::int64_t> places(static_cast<std::size_t>(replicas));
  for (auto const& group : groups)
    for (std::size_t place = 0; place < group.size(); ++place)
      places[static_cast<std::size_t>(group[place])] = static_cast<std::int64_t>(place);
  Value const table = e.out.constant(DType::int32, Shape{replicas}, concat('[', list_text(places), ']'));
  return e.out.reshape(e.out.op("dynamic_slice", {table, e.convert(replica, DType::int32)}, DType::int32, Shape{1},
                                "slice_sizes = array<i64: 1>"),
                       {});
}

inline Value summed(Call const& e, Value const& x) {
  return e.out.op("all_reduce", {x}, x.dtype, x.shape, groups_text(e.options), e.out.folding("add", x.dtype));
}
inline Value averaged(Call const& e, Value const& sum, std::int64_t op) {
  if (static_cast<comm::PortOp>(op) != comm::PortOp::avg) return sum;
  return e.map("divide", sum, e.out.number(sum, static_cast<double>(e.options.ranks)));
}

inline Value collective(Call const& e) {
  Op const op = e.graph.op(e.id);
  require_data_axis(e);
  if (op == Op::vary || op == Op::partial) return e.in();
  bool const sized = op != Op::all_reduce && op != Op::broadcast;
  if (sized && e.integer() != e.options.ranks)
    refuse(e.graph, e.id, ErrorKind::configuration,
           concat("the graph was made for ", e.integer(), " ranks, StablehloOptions says ", e.options.ranks));
  if (op == Op::broadcast && e.integer() >= e.options.ranks)
    refuse(e.graph, e.id, ErrorKind::configuration,
           concat("the root is rank ", e.integer(), ", StablehloOptions says ", e.options.ranks, " ranks"));
  bool const wraps = op != Op::send_receive || e.integer(2) != 0;
  if (e.options.ranks == 1) return wraps || e.integer(1) == 0 ? e.in() : e.number(0);
  switch (op) {
    case Op::all_to_all:
      return e.out.op("all_to_all", {e.in()}, e.dtype(), e.shape(),
                      concat("split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = ", e.options.ranks,
                             " : i64, ", groups_text(e.options)));
    case Op::send_receive: {
      std::string pairs;
      std::int64_t count = 0;
      for (auto const& group : groups_of(e.options))
        for (std::int64_t rank = 0; rank < e.options.ranks; ++rank)
          if (std::int64_t const to = neighbour(rank, e.integer(1), wraps, e.options.ranks); to >= 0) {
            pairs += concat(count++ == 0 ? "[" : ", [", group[static_cast<std::size_t>(rank)], ", ",
                            group[static_cast<std::size_t>(to)], ']');
          }
      if (count == 0) return e.number(0);
      return e.out.op("collective_permute", {e.in()}, e.dtype(), e.shape(),
                      concat("source_target_pairs = dense<[", pairs, "]> : tensor<", count, "x2xi64>"));
    }
    case Op::all_gather:
      return e.out.op("all_gather", {e.in()}, e.dtype(), e.shape(),
                      concat("all_gather_dim = 0 : i64, ", groups_text(e.options)));
    case Op::reduce_scatter:
      return averaged(
          e,
          e.out.op("reduce_scatter", {e.in()}, e.dtype(), e.shape(),
                   concat("scatter_dimension = 0 : i64, ", groups_text(e.options)), e.out.folding("add", e.dtype())),
          e.integer(1));
    case Op::broadcast: {
      Value const own = rank(e), root = e.compare("EQ", own, e.out.number(own, static_cast<double>(e.integer())));
      Value const here =
          e.out.op("broadcast_in_dim", {root}, DType::boolean, e.shape(), "broadcast_dimensions = array<i64>");
      return summed(e, e.select(here, e.in(), e.number(0)));
    }
    default: return averaged(e, summed(e, e.in()), e.integer());
  }
}

}  // namespace tutti::graph::stablehlo

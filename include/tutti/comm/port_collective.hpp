// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a port is asked for as a collective, with the checks that one rank can make alone.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/core.hpp>
#include <tutti/comm/operators.hpp>
#include <tutti/comm/port.hpp>

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>

namespace tutti::comm::detail {

/// Errors   invalid_argument, for a rank that does not exist.
template <Backend B>
void check_port_rank(char const* operation, char const* what, int r, Core<B> const& core, std::source_location where) {
  int const size = core.backend.size();
  if (r < 0 || r >= size)
    throw Error(ErrorKind::invalid_argument, operation,
                std::string(what) + " " + std::to_string(r) + " does not exist. Ranks are 0 to " +
                    std::to_string(size - 1),
                where)
        .with_rank(core.backend.rank());
}
/// The erased reduction for a run-time type and operator. Errors: dtype, for types that no graph reduces.
inline Reduction port_reduction(DType dtype, PortOp op, std::source_location where) {
  auto const of = [&]<class T>(T) -> Reduction {
    if constexpr (is_floating(dtype_of<T>) || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>) {
      switch (op) {
        case PortOp::sum: return reduction_of<T>(sum);
        case PortOp::min: return reduction_of<T>(min);
        case PortOp::max: return reduction_of<T>(max);
        case PortOp::avg: return reduction_of<T>(avg);
      }
    }
    throw Error(
        ErrorKind::dtype, "Port",
        "elements of type " + std::string(name(dtype_of<T>)) +
            " are not reduced through a port. Use a floating type, int32 or int64, or the communicator itself",
        where);
  };
  return with_dtype(dtype, of);
}

/// Errors   invalid_argument, for a negative count.
inline Collective port_collective(Kind kind, void const* from, void* to, std::int64_t count, DType dtype, int root,
                                  std::source_location where) {
  if (count < 0)
    throw Error(ErrorKind::invalid_argument, std::string(name(kind)),
                "count " + std::to_string(count) + " is negative", where);
  return {kind, dtype, root, count, from, to, {}, where};
}
/// Of a call that waits in a stream for its buffers.
inline Collective port_collective(PortCall const& call, std::source_location where) {
  constexpr Kind kinds[] = {Kind::all_reduce, Kind::broadcast, Kind::all_gather, Kind::reduce_scatter};
  Kind const kind = kinds[static_cast<int>(call.kind)];
  int const root = rooted(kind) ? call.root : -1;
  Collective made = port_collective(kind, call.from, call.to, call.count, call.dtype, root, where);
  if (reduces(kind)) made.reduction = port_reduction(call.dtype, call.op, where);
  made.purpose = Purpose::reached;
  return made;
}

}  // namespace tutti::comm::detail

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operands before a call: in which memory they are, and what is wrong with them.

#include <tutti/comm/call_checks.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/staging.hpp>

#include <cstdint>
#include <type_traits>

namespace tutti::comm {

template <class X>
inline constexpr std::int64_t element_bytes = wire_bytes<typename X::Value>();

/// Whether a communicator on `Device` takes it. A value, asserted where users' calls arrive, so that a mistake costs
/// them few lines of diagnostics.
template <class X, class Device>
inline constexpr bool is_here = [] {
  if constexpr (std::is_same_v<X, NoOperand>) return true;
  else return std::is_same_v<typename X::Place, Device> || std::is_same_v<Device, Cpu> || !X::packable;
}();
/// Whether it passes through host memory.
template <class X, class Device>
inline constexpr bool is_staged = [] {
  if constexpr (std::is_same_v<X, NoOperand>) return false;
  else return passes_host<typename X::Place, Device>;
}();
/// Whether such a call goes in parts. Messages and the _v kinds, whose blocks may have any sizes, are staged whole.
template <Kind kind, class From, class To, class Device>
inline constexpr bool in_parts = (is_staged<From, Device> || is_staged<To, Device>) && !has_counts(kind);
/// Whether both are buffers, in memory of one kind.
template <class X, class Y>
inline constexpr bool share_memory = [] {
  if constexpr (std::is_same_v<X, NoOperand> || std::is_same_v<Y, NoOperand>) return false;
  else return std::is_same_v<typename X::Place, typename Y::Place>;
}();
/// Whether all buffers are on a device on whose memory the backend may work: it is asked for each call.
template <class B, class From, class To>
inline constexpr bool is_reached = [] {
  if constexpr (!DeviceDirect<B> || std::is_same_v<To, NoOperand>) return false;
  else if constexpr (!std::is_same_v<typename To::Place, typename B::Accelerator>) return false;
  else if constexpr (std::is_same_v<From, NoOperand>) return true;
  else return std::is_same_v<typename From::Place, typename B::Accelerator>;
}();
/// The device of the first buffer, or of the only one.
template <class From, class To>
auto place_of(From const& from, To const& to) {
  if constexpr (std::is_same_v<From, NoOperand>) return to.device();
  else return from.device();
}

/// Shapes, counts and overlap of the kinds with blocks of one size.
template <Kind kind, class From, class To>
void check_shapes(CallChecks const& checks, From const& from, To const& to, Collective& call, int rank) {
  constexpr bool grows = kind == Kind::gather || kind == Kind::all_gather;
  constexpr bool shrinks = kind == Kind::scatter || kind == Kind::reduce_scatter;
  checks.check_shapes<kind>(from.shape(), to.shape(), call);
  std::int64_t const own = call.count * rank * element_bytes<To>;
  if constexpr (share_memory<From, To>)
    checks.check_overlap({from.wire(), from.size() * element_bytes<To>, shrinks ? own : 0},
                         {to.wire(), to.size() * element_bytes<To>, grows ? own : 0},
                         kind != Kind::all_reduce_contributions);
}
/// The same of the _v kinds, whose counts become the call's.
template <Kind kind, class From, class To>
void check_rows(CallChecks const& checks, From const& from, To const& to, Rows rows, Call& call, int rank) {
  constexpr bool grows = kind == Kind::gather_v || kind == Kind::all_gather_v;
  constexpr bool exchange = kind == Kind::all_to_all_v;
  checks.check_blocks(from.shape(), to.shape(),
                      grows      ? Rows{{}, rows.to}
                      : exchange ? rows
                                 : Rows{rows.from, {}},
                      call.counts);
  std::int64_t const own_from = grows || exchange ? 0 : before(call.counts.from, rank) * element_bytes<To>;
  std::int64_t const own_to = grows ? before(call.counts.to, rank) * element_bytes<To> : 0;
  if constexpr (share_memory<From, To>)
    checks.check_overlap({from.wire(), from.size() * element_bytes<To>, own_from},
                         {to.wire(), to.size() * element_bytes<To>, own_to},
                         !exchange || call.counts.from == call.counts.to);
  if constexpr (exchange) call.collective.count = 0;
}

}  // namespace tutti::comm

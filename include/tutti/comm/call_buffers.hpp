// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The buffers of a collective call: whether the backend reaches them, what is copied or staged before the call starts,
/// and what is kept when it fails.

#include <tutti/comm/call.hpp>
#include <tutti/comm/call_checks.hpp>
#include <tutti/comm/core.hpp>
#include <tutti/comm/operand_checks.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace tutti::comm {

/// Errors   device, for a buffer on another one than the communicator's.
template <Backend B, class X>
void check_device(Core<B> const& core, char const* operation, X const& x, CallSite const& where) {
  if (x.size() == 0 || x.device() == core.backend.accelerator()) return;
  CallChecks(operation, core.backend.rank(), core.backend.size(), where)
      .refuse("a buffer lives on another device than this rank's communicator works on. Copy it there first, or make "
              "the communicator for its device",
              ErrorKind::device);
}
/// Whether the backend makes this call on its accelerator, where the buffers are. Errors: those of check_device.
template <Kind kind, Backend B, class From, class To, class Op>
bool reaches(Core<B> const& core, From const& from, To const& to, Op const& op, int root, Rows rows,
             CallSite const& where) {
  if constexpr (is_reached<B, From, To>) {
    Call const made = call_of<kind>(core.backend, from, to, op, root, rows, where);
    if (!core.backend.accelerates(made.collective)) return false;
    check_device(core, name(kind).data(), to, where);
    if constexpr (!std::is_same_v<From, NoOperand>) check_device(core, name(kind).data(), from, where);
    return true;
  }
  return false;
}
/// The call as it starts there.
template <Kind kind, Backend B, class From, class To, class Op>
Call prepare_reached(Core<B> const& core, From const& from, To const& to, Op const& op, int root, Rows rows,
                     CallSite const& where) {
  Call prepared = call_of<kind>(core.backend, from, to, op, root, rows, where);
  prepared.collective.purpose = Purpose::reached;
  prepared.collective.lent = to.lent() || from.lent();
  return prepared;
}
/// Before a call starts: borrowed buffers are copied where the backend asks for it, and those on a device are staged,
/// unless the call goes in parts.
template <Kind kind, Backend B, class From, class To, class Op>
void detach(Core<B> const& core, Call& result, From& from, To& to, Op const& op, int root, Rows rows,
            CallSite const& where, bool direct) {
  using Device = typename B::Device;
  Collective const& made = result.collective;
  Way const way = direct ? Way::native : way_of(core.backend, made);
  std::int64_t const copied = way == Way::exchanged ? 0 : capability::copied_bytes(core.backend, is_native(way));
  constexpr bool in_place = std::is_same_v<From, NoOperand>;
  bool const reads = in_place && !(kind == Kind::broadcast && core.backend.rank() != root);
  bool const uses_to = made.to != nullptr || (in_place && made.from != nullptr);
  bool moved = false;
  if (copied != 0) {
    moved = uses_to && to.detach(copied, reads || kind == Kind::exscan);  // whose rank 0 keeps what it has
    if (!in_place && made.from != nullptr) moved |= from.detach(copied, true);
  }
  if constexpr (is_staged<From, Device>)
    if (made.from != nullptr) moved |= from.stage(true);
  if constexpr (is_staged<To, Device>)
    if (uses_to) moved |= to.stage(reads);
  if (moved) result = call_of<kind>(core.backend, from, to, op, root, rows, where);
  result.collective.lent = (uses_to && to.lent()) || (made.from != nullptr && from.lent());
}
/// The call as it starts.
template <Kind kind, Backend B, class From, class To, class Op>
Call prepare(Core<B> const& core, From& from, To& to, Op const& op, int root, Rows rows, CallSite const& where,
             bool direct = false) {
  Call prepared = call_of<kind>(core.backend, from, to, op, root, rows, where);
  if constexpr (!in_parts<kind, From, To, typename B::Device>)
    detach<kind>(core, prepared, from, to, op, root, rows, where, direct);
  return prepared;
}

/// Waits for the job; when it fails, keeps the buffers that may still be in use.
template <Backend B, class From, class To>
void wait_for(Core<B>& core, Job& job, From& from, To& to, CallSite const& where) {
  try {
    core.wait(job, where);
  } catch (...) {
    if (!job.safe()) {
      keep_forever(std::move(from));
      keep_forever(std::move(to));
    }
    throw;
  }
}

}  // namespace tutti::comm

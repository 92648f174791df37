// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A message between two ranks from its call to its end: checked, copied or staged where it must be, started, awaited.

#include <tutti/comm/message.hpp>
#include <tutti/comm/operand_checks.hpp>

#include <concepts>
#include <utility>

namespace tutti::comm {

/// Where a message goes and whence one comes.
struct Route {
  int to = 0;
  int send_tag = 0;
  int from = any_source;
  int recv_tag = any_tag;
};

/// Errors   invalid_argument, for what one rank can find wrong alone.
template <Backend B, class Out, class In>
void check_transfer(Core<B> const& core, char const* operation, Out const& out, In const& in, Route const& route,
                    CallSite const& where) {
  using Device = typename B::Device;
  static_assert(is_here<Out, Device> && is_here<In, Device>,
                "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                "communicator's device first");
  CallChecks const checked(operation, core.backend.rank(), core.backend.size(), where);
  if constexpr (!std::same_as<Out, NoOperand>) {
    checked.check_here(out);
    if (route.to != proc_null) checked.check_rank("destination rank", route.to);
    checked.check_tag(route.send_tag);
  }
  if constexpr (!std::same_as<In, NoOperand>) {
    checked.check_source(route.from, route.recv_tag);
    checked.check_here(in);
    checked.check_target(in);
  }
  if constexpr (share_memory<Out, In>)
    checked.check_overlap({out.wire(), out.size() * element_bytes<Out>, 0},
                          {in.wire(), in.size() * element_bytes<In>, 0}, false);
}

/// Starts a send, a receive, or one of each.
/// Errors   those of check_transfer and of the backend.
template <Backend B, class Out, class In>
void begin_transfer(Core<B>& core, TransferTask<B, Out, In>& task, Route const& route, CallSite const& where) {
  using Device = typename B::Device;
  check_transfer(core, task.operation(), task.out, task.in, route, where);
  std::int64_t const copied = capability::copied_bytes(core.backend, false);
  task.out.detach(copied, true);
  task.in.detach(copied, false);
  if constexpr (is_staged<Out, Device>) task.out.stage(true);
  if constexpr (is_staged<In, Device>) task.in.stage(false);
  task.start(route.to, route.send_tag, route.from, route.recv_tag, where);
}

/// Waits for it. Memory that the backend may still write is not freed.
template <Backend B, class Out, class In>
MessageInfo complete_transfer(Core<B>& core, TransferTask<B, Out, In>& task, CallSite const& where) {
  try {
    core.wait(task, where);
  } catch (...) {
    if (!task.safe()) {
      keep_forever(std::move(task.out));
      keep_forever(std::move(task.in));
    }
    throw;
  }
  return task.transfer.info();
}

}  // namespace tutti::comm

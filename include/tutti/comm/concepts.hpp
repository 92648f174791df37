// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The `Backend` concept: what carries a communicator. docs/concepts/backend.md has the laws.

#include <tutti/comm/collective.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/tensor/device.hpp>

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>

namespace tutti {

namespace comm::detail {

/// std::movable without its demand for std::swap, which costs every includer ten milliseconds.
template <class T>
concept Movable = requires(T a, T b) {
  T(static_cast<T&&>(a));
  a = static_cast<T&&>(b);
};

}  // namespace comm::detail

/// A rank's end of a communicator over one kind of memory. It is used by one thread at a time. Nothing blocks: calls
/// start operations, `test` asks for them, and whoever waits decides how.
///
/// Minimal operations, `b` a `B`:
///   B::Device                          where buffers live
///   B::Operation                       an operation in flight; default constructed it is complete; move-only
///   B::Match                           a message taken out of the queue by a probe; move-only
///   b.rank(), b.size()                 0 <= rank < size
///   b.node(), b.local_rank(), b.local_size()
///   b.start_send(p, bytes, dtype, to, tag, channel)      -> Operation
///   b.start_recv(p, bytes, dtype, from, tag, channel)    -> Operation
///   b.try_match(from, tag, match, info)           -> bool, of the user channel
///   b.start_recv(match, p, bytes)                 -> Operation
///   b.test(operation)                  true once complete, and from then on; progresses all in flight; throws Error
///   b.received(operation)              MessageInfo of a completed receive; with the dtype, if messages carry it
///   b.abandon(operation)               gives up after an error; true when nobody will touch its memory any more
///   b.cancel(operation)                optional: gives up a receive unless its message has come; then false, and it is
///                                      received by the next test; where missing, `abandon` does it
///   b.withdraw(operation)              optional: at a deadline, before an error says that nobody has received what
///   this
///                                      sends: from now on nobody does, unless the next test finds it complete
///   b.awaiting(operation)              text for a missed deadline: who is missing
///   b.revoke(kind, text)               later tests fail with this first cause, on every rank that can be told
///   b.split(color, key, members)       -> B; collective; members are ranks of `b`, in the order of the new ranks
///   b.wait_policy()
///   b.compares()                       optional: whether `start` compares the calls of all ranks; then also
///   b.start_comparison(call)           -> Operation; compares a call that is derived
///   b.check_level()                    optional: how calls are compared by messages otherwise; cheap where missing
///   b.announce(text, collectives)      optional: where this rank waits, for the others' messages, and how many
///                                      collectives it has called; an empty text when it goes on
///   b.announce_elsewhere(text)         optional: the same of a wait on another communicator of this rank, where it
///                                      costs nothing
///   b.announce_to_all(text)            optional: the same of a long wait on `b`, to ranks that wait on others
///   b.roll_call(number)                optional: who has called that collective, from what the ranks have announced
///   b.whereabouts(rank)                optional: where another rank waits
///   b.unreceived()                     optional: messages of the user channel that have come and that no receive
///                                      takes which has started, as List<MessageInfo>; the first of them at least
///   b.waits(begins)                    optional: this rank begins, or ends, to do nothing but wait
///   b.sends_first()                    optional: whether a receive costs no more when its message is there before it,
///                                      so that a call that sends too had better send first
///   b.label_bytes()                    optional: what a message of the user channel has beside its payload, for its
///                                      type
///   b.copied_bytes(native)             optional: the caller's buffers of at most so many bytes are copied for the
///                                      operation, because one that fails may go on with them; for what `start` makes,
///                                      or for messages
///   b.staging_bytes()                  optional: of a part of a collective on device memory, where B::Device is Cpu;
///                                      the same on all ranks; 64 KiB where missing
///   B::Accelerator                     optional: a second Device, on whose memory b.start makes the collectives that
///                                      b.accelerates(call) grants, the same on all ranks, when all have made them;
///                                      their purpose is `reached`. b.accelerator() is the one of this rank
///   b.visit(operation, where), b.visit()   optional: a comm::Visit of what communicators share that takes one thread
///   at
///                                      a time; throws where this thread may not call; the second waits for its turn.
///                                      Then b.thread_level() names what threads may do, and b.may_call() says
///                                      whether this thread is one that may call at all
///   b.check_alive(operation)           optional: throws the cause of a revoke
///   b.strand(failed, why)              optional: an operation that was abandoned may go on with memory of the caller
///   b.check_can_split(where)           optional: throws where split would, before other ranks wait in it
///   b.count_notices(traffic)           optional: where to add messages of its own that belong to no operation
///   b.allocate(bytes), b.shares_memory()          optional: a heap of its own, see comm/heap.hpp
///   b.share(bytes, handle), b.adopt(handle, bytes), b.shares_memory()   optional: blocks of which ranks have one
///                                      together, ibidem
/// Optional, for each kind of collective, data type and operator; the same answer on all ranks:
///   b.provides(kind, dtype, op)        whether b.start(collective) does it; everything else is derived from messages.
///                                      Static and constexpr where the device's memory is not the host's
///   b.takes(collective)                optional: whether b.start does this very call. Of what `provides` grants it may
///                                      deny kinds with a block for each of more than 64 ranks, and those with several
///                                      contributions; it may grant more, as reductions of structs
///   b.scatters_in_place()              whether reduce_scatter may write its own block of `from`
///   b.start(collective)                -> Operation; all ranks start the same collectives in the same order; what it
///                                      moves is added to collective.wire, where that is given
///   b.run(collective, looks, rest)     optional: the same for a caller that asks for it at once, so many times; true
///                                      when it is complete by then, else `rest` goes on
/// Laws: messages of one pair and channel that a receive takes do not overtake each other; receives match in the order
/// they were started; a collective's result is the same on all ranks, bit for bit. Models: Threads, Mpi, NcclOn.
template <class B>
concept Backend =
    Device<typename B::Device> && comm::detail::Movable<B> && comm::detail::Movable<typename B::Operation> &&
    comm::detail::Movable<typename B::Match> &&
    requires(B backend, B const constant, typename B::Operation operation, typename B::Match match, MessageInfo info,
             void* to, void const* from, std::int64_t bytes, comm::Collective const& call, List<int> const& members,
             std::string text) {
      { constant.rank() } -> std::same_as<int>;
      { constant.size() } -> std::same_as<int>;
      { constant.node() } -> std::same_as<int>;
      { constant.local_rank() } -> std::same_as<int>;
      { constant.local_size() } -> std::same_as<int>;
      { constant.wait_policy() } -> std::same_as<exec::WaitPolicy>;
      { constant.provides(comm::Kind{}, DType{}, Operator{}) } -> std::same_as<bool>;
      { constant.scatters_in_place() } -> std::same_as<bool>;
      operation = typename B::Operation();
      { backend.start_send(from, bytes, DType{}, 0, 0, comm::Channel::user) } -> std::same_as<typename B::Operation>;
      { backend.start_recv(to, bytes, DType{}, 0, 0, comm::Channel::user) } -> std::same_as<typename B::Operation>;
      { backend.try_match(0, 0, match, info) } -> std::same_as<bool>;
      { backend.start_recv(match, to, bytes) } -> std::same_as<typename B::Operation>;
      { backend.start(call) } -> std::same_as<typename B::Operation>;
      { backend.test(operation) } -> std::same_as<bool>;
      { constant.received(operation) } -> std::same_as<MessageInfo>;
      { backend.abandon(operation) } noexcept -> std::same_as<bool>;
      { constant.awaiting(operation) } -> std::same_as<std::string>;
      { backend.revoke(ErrorKind{}, static_cast<std::string&&>(text)) } noexcept;
      { backend.split(0, 0, members) } -> std::same_as<B>;
    };

}  // namespace tutti

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
/// What a `B b` must have; what it may have beside this is in comm/capabilities.hpp.
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
///   b.awaiting(operation)              text for a missed deadline: who is missing
///   b.revoke(kind, text)               later tests fail with this first cause, on every rank that can be told
///   b.split(color, key, members)       -> B; collective; members are ranks of `b`, in the order of the new ranks
///   b.wait_policy()
/// For each kind of collective, data type and operator, with the same answer on all ranks:
///   b.provides(kind, dtype, op)        whether b.start(collective) does it; everything else is derived from messages.
///                                      Static and constexpr where the device's memory is not the host's
///   b.scatters_in_place()              whether reduce_scatter may write its own block of `from`
///   b.start(collective)                -> Operation; all ranks start the same collectives in the same order; what it
///                                      moves is added to collective.wire, where that is given
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

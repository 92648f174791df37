// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a backend may have beside the `Backend` concept: each capability a concept, and a function that uses it or does
/// without. Nothing else asks a backend what it has. A backend asserts its capabilities where it is defined
/// (`static_assert(comm::ComparesCalls<Mine>)`), so that a misspelt member does not compile. What has to do with waits
/// and with threads is in comm/wait_capabilities.hpp and comm/thread_capabilities.hpp.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/thread_capabilities.hpp>
#include <tutti/comm/wait_capabilities.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/storage.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

namespace tutti::comm {

// Collectives.

/// `takes(call)`: whether `start` does this very call. Of what `provides` grants it may deny kinds with a block for
/// each of more than 64 ranks, and those with several contributions; it may grant more, as reductions of structs.
template <class B>
concept TakesCalls = requires(B const& b, Collective const& call) {
  { b.takes(call) } -> std::same_as<bool>;
};
/// `run(call, looks, rest)`: `start` for a caller that asks for it at once, so many times; true when it is complete by
/// then, else `rest` goes on.
template <class B>
concept RunsAtOnce = requires(B& b, Collective const& call, typename B::Operation& rest) {
  { b.run(call, 1, rest) } -> std::same_as<bool>;
};
/// `compares()`: whether `start` compares the calls of all ranks; `start_comparison(call)`: compares one that is
/// derived.
template <class B>
concept ComparesCalls = requires(B& b, B const& constant, Collective const& call) {
  { constant.compares() } -> std::same_as<bool>;
  { b.start_comparison(call) } -> std::same_as<typename B::Operation>;
};
/// `check_level()`: how calls are compared by messages otherwise.
template <class B>
concept SetsCheckLevel = requires(B const& b) {
  { b.check_level() } -> std::same_as<CheckLevel>;
};
/// `copied_bytes(native)`: the caller's buffers of at most so many bytes are copied for the operation, because one that
/// fails may go on with them; for what `start` makes, or for messages.
template <class B>
concept CopiesBorrowed = requires(B const& b) {
  { b.copied_bytes(true) } -> std::same_as<std::int64_t>;
};
/// `scatters_to_front(call)`: whether `start` can leave the result of this reduce_scatter in the first block of `from`,
/// which `to` is then, and write the other blocks.
template <class B>
concept ScattersToFront = requires(B const& b, Collective const& call) {
  { b.scatters_to_front(call) } -> std::same_as<bool>;
};
/// `staging_bytes()`: of a part of a collective on device memory, where B::Device is Cpu; the same on all ranks.
template <class B>
concept SetsStaging = requires(B const& b) {
  { b.staging_bytes() } -> std::same_as<std::int64_t>;
};
/// `B::Accelerator`: a second Device, on whose memory `start` makes the collectives that `accelerates(call)` grants,
/// the same on all ranks, when all have made them; their purpose is `reached`. `accelerator()` is this rank's.
template <class B>
concept DeviceDirect = requires(B const& b, Collective const& call) {
  typename B::Accelerator;
  { b.accelerates(call) } -> std::same_as<bool>;
  { b.accelerator() } -> std::same_as<typename B::Accelerator>;
};

// Messages.

/// `cancel(operation)`: gives up a receive unless its message has come; then false, and the next test receives it.
template <class B>
concept CancelsReceives = requires(B& b, typename B::Operation& operation) {
  { b.cancel(operation) } noexcept -> std::same_as<bool>;
};
/// `withdraw(operation)`: at a deadline, before an error says that nobody has received what this sends: from now on
/// nobody does, unless the next test finds it complete.
template <class B>
concept WithdrawsSends = requires(B& b, typename B::Operation& operation) {
  { b.withdraw(operation) } noexcept;
};
/// `unreceived()`: messages of the user channel that have come and that no receive takes which has started; the first
/// of them at least.
template <class B>
concept ListsUnreceived = requires(B const& b) {
  { b.unreceived() } -> std::same_as<List<MessageInfo>>;
};
/// `send_at_once(from, bytes, dtype, to, tag)`: sends a message of the user channel if its memory is free again at
/// once, else does nothing and is false. `receive_at_once(to, bytes, dtype, from, tag, info)`: takes the next message
/// if it is there and is of this size and type, and if nothing else could get it; else does nothing and is false.
/// Neither throws: what is wrong with the communicator the usual way tells.
template <class B>
concept PassesAtOnce = requires(B& b, void* memory, DType dtype, MessageInfo& info) {
  { b.send_at_once(memory, std::int64_t{}, dtype, 0, 0) } noexcept -> std::same_as<bool>;
  { b.receive_at_once(memory, std::int64_t{}, dtype, 0, 0, info) } noexcept -> std::same_as<bool>;
};
/// `sends_first()`: whether a receive costs no more when its message is there before it, so that a call that sends too
/// had better send first.
template <class B>
concept PrefersOrder = requires(B const& b) {
  { b.sends_first() } -> std::same_as<bool>;
};
/// `label_bytes()`: what a message of the user channel has beside its payload, for its type.
template <class B>
concept LabelsMessages = requires(B const& b) {
  { b.label_bytes() } -> std::same_as<std::int64_t>;
};

// Failures.

/// `check_alive(operation)`: throws the cause of a revoke.
template <class B>
concept AnnouncesFailure = requires(B& b, char const* operation) { b.check_alive(operation); };
/// `strand(failed, why)`: an operation that was abandoned may go on with memory of the caller.
template <class B>
concept StrandsMemory = requires(B& b, std::string const& text) { b.strand(text, text); };
/// `check_can_split(where)`: throws where split would, before other ranks wait in it.
template <class B>
concept ChecksSplits = requires(B const& b, std::source_location where) { b.check_can_split(where); };

// Memory.

/// `allocate(bytes)`: memory of its own, in a Storage that may outlive the communicator; `shares_memory()`: whether the
/// ranks of a node reach it without a copy.
template <class B>
concept Allocates = requires(B& b, std::size_t bytes) {
  { b.allocate(bytes) } -> std::same_as<Storage<typename B::Device>>;
  { b.shares_memory() } -> std::same_as<bool>;
};
/// Ranks can work on one block of memory together. One makes it with `share(bytes, handle)`, for as many holders as the
/// communicator has ranks; each of the others takes it up with `adopt(handle, bytes)`, once. It lives until all of them
/// gave it back, and may outlive the communicator. `share` gives a Storage without memory where none is left for it.
template <class B>
concept SharesBlocks = requires(B& b, std::size_t bytes, std::uint64_t& handle) {
  { b.share(bytes, handle) } -> std::same_as<Storage<typename B::Device>>;
  { b.adopt(handle, bytes) } -> std::same_as<Storage<typename B::Device>>;
  { b.shares_memory() } -> std::same_as<bool>;
};

/// The capabilities of a backend, or what stands for one that is missing.
namespace capability {

template <class B>
bool takes(B const& b, Collective const& call) {
  if constexpr (TakesCalls<B>) return b.takes(call);
  else return call.compound_bytes == 0 && b.provides(call.kind, call.dtype, call.reduction.op);
}
template <class B>
bool run(B& b, Collective const& call, [[maybe_unused]] int looks, typename B::Operation& rest) {
  if constexpr (RunsAtOnce<B>) return b.run(call, looks, rest);
  rest = b.start(call);
  return false;
}
template <class B>
bool compares([[maybe_unused]] B const& b) noexcept {
  if constexpr (ComparesCalls<B>) return b.compares();
  else return false;
}
template <class B>
CheckLevel check_level([[maybe_unused]] B const& b) noexcept {
  if constexpr (SetsCheckLevel<B>) return b.check_level();
  else return CheckLevel::cheap;
}
template <class B>
std::int64_t copied_bytes([[maybe_unused]] B const& b, [[maybe_unused]] bool native) noexcept {
  if constexpr (CopiesBorrowed<B>) return b.copied_bytes(native);
  else return 0;
}
template <class B>
bool scatters_to_front([[maybe_unused]] B const& b, [[maybe_unused]] Collective const& call) noexcept {
  if constexpr (ScattersToFront<B>) return b.scatters_to_front(call);
  else return false;
}
template <class B>
std::int64_t staging_bytes([[maybe_unused]] B const& b) noexcept {
  if constexpr (SetsStaging<B>) return b.staging_bytes();
  else return 64 << 10;
}

template <class B>
bool cancel(B& b, typename B::Operation& operation) noexcept {
  if constexpr (CancelsReceives<B>) return b.cancel(operation);
  static_cast<void>(b.abandon(operation));
  return true;
}
template <class B>
void withdraw([[maybe_unused]] B& b, [[maybe_unused]] typename B::Operation& operation) noexcept {
  if constexpr (WithdrawsSends<B>) b.withdraw(operation);
}
template <class B>
List<MessageInfo> unreceived([[maybe_unused]] B const& b) {
  if constexpr (ListsUnreceived<B>) return b.unreceived();
  else return {};
}
template <class B>
bool sends_first([[maybe_unused]] B const& b) noexcept {
  if constexpr (PrefersOrder<B>) return b.sends_first();
  else return false;
}
template <class B>
std::int64_t label_bytes([[maybe_unused]] B const& b) noexcept {
  if constexpr (LabelsMessages<B>) return b.label_bytes();
  else return 0;
}

template <class B>
void check_alive([[maybe_unused]] B& b, [[maybe_unused]] char const* operation) {
  if constexpr (AnnouncesFailure<B>) b.check_alive(operation);
}
template <class B>
void strand([[maybe_unused]] B& b, [[maybe_unused]] std::string const& failed,
            [[maybe_unused]] std::string const& why) noexcept {
  if constexpr (StrandsMemory<B>) b.strand(failed, why);
}
template <class B>
void check_can_split([[maybe_unused]] B const& b, [[maybe_unused]] std::source_location where) {
  if constexpr (ChecksSplits<B>) b.check_can_split(where);
}

}  // namespace capability
}  // namespace tutti::comm

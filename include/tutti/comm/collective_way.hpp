// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a collective goes: decided here, once for each call, from the call and what the backend has of its own.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/comparison.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/core/list.hpp>

#include <concepts>
#include <cstdint>

namespace tutti::comm {

/// Elements of each rank's block in the two buffers of a _v kind; empty where they do not count.
struct Counts {
  List<std::int64_t> from;
  List<std::int64_t> to;
};
/// A collective with the counts that it refers to.
struct Call {
  Collective collective;
  Counts counts;
};

enum class Way : std::uint8_t {
  exchanged,    ///< all contributions travel with the comparison of the calls, and every rank makes its result
  accelerator,  ///< by the backend, on memory of its accelerator, where nothing else works
  native,       ///< by the backend, as it is
  summed,       ///< by the backend as a sum, which is then divided: an average
  derived,      ///< of messages
};

/// How the call goes, whose contributions do not travel with its comparison.
template <class B>
Way way_of_whole(B const& backend, Collective const& call) {
  if (call.purpose == Purpose::reached) return Way::accelerator;
  if (capability::takes(backend, call)) return Way::native;
  if (call.reduction.op != Operator::avg || call.compound_bytes != 0) return Way::derived;
  Collective as_sum = call;
  as_sum.reduction.op = Operator::sum;
  return capability::takes(backend, as_sum) ? Way::summed : Way::derived;
}
/// Whether all contributions travel with the comparison, by what any rank contributes at most: the same on all ranks
/// that make the same call.
template <Backend B>
bool is_exchanged(B const& b, Collective const& call) noexcept {
  if constexpr (B::Device::host_accessible)
    return b.size() > 1 && !has_counts(call.kind) && call.purpose != Purpose::reached && !capability::compares(b) &&
           capability::check_level(b) != CheckLevel::off &&
           most_contributed(call, b.size()) <= ComparisonMessage::most_contributed / b.size();
  return false;
}
/// How the call goes.
template <Backend B>
Way way_of(B const& backend, Collective const& call) {
  return is_exchanged(backend, call) ? Way::exchanged : way_of_whole(backend, call);
}
/// Whether the backend makes it.
constexpr bool is_native(Way way) noexcept {
  return way == Way::accelerator || way == Way::native || way == Way::summed;
}

/// Kinds whose two buffers may be one, with blocks that others still read.
constexpr bool aliases(Kind kind) noexcept {
  return kind == Kind::all_to_all || kind == Kind::all_to_all_v || kind == Kind::reduce_scatter ||
         kind == Kind::reduce_scatter_v;
}

/// Whether a call may begin as a `DirectCall`: the backend makes and compares it itself, with buffers as they are, and
/// nobody counts. For more ranks a backend may lack the room for blocks; it is asked, then, when the call is known.
template <Kind kind, class To, class Op, Backend B>
bool is_direct(Core<B> const& core) {
  constexpr int most_direct_blocks = 64;
  if constexpr (aliases(kind) || kind == Kind::all_reduce_contributions) return false;
  constexpr bool has_blocks = kind >= Kind::gather && kind != Kind::scan && kind != Kind::exscan;
  if (has_blocks && core.backend.size() > most_direct_blocks) return false;
  if (!capability::compares(core.backend) || core.tally.on() || !core.start_queue.empty()) return false;
  constexpr Operator op = reduces(kind) ? operator_kind<Op>() : Operator::none;
  if constexpr (std::same_as<To, NoOperand>) return core.backend.provides(kind, DType::byte, op);
  else if constexpr (reduces(kind) && !Element<typename To::Value>) return false;
  else return core.backend.provides(kind, wire_dtype<typename To::Value>, op);
}

}  // namespace tutti::comm

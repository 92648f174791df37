// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks compare of a collective: a call as two numbers, and the call again as far as these tell.

#include <tutti/comm/collective.hpp>
#include <tutti/core/fnv1a.hpp>

#include <cstdint>

namespace tutti::comm {

/// What must be the same on all ranks, beside `compared_count`: kind, whether the call goes in parts because it works
/// on device memory, purpose, operator, type with its layout, and root, of which the first four million differ. In its
/// place stands the number of contributions of the kind that has them, and a part of either is the type of a callable:
/// then the first four thousand differ.
template <class = void>
std::uint64_t facts_of(Collective const& call) noexcept {
  auto const compound = static_cast<std::uint64_t>(call.compound_bytes < 255 ? call.compound_bytes : 255);
  auto const number = static_cast<std::uint32_t>(
      call.kind == Kind::all_reduce_contributions ? call.contributions & 0x3fffff : call.root + 1);
  std::uint32_t const callable = call.reduction.callable;
  return std::uint64_t{static_cast<std::uint8_t>(call.kind)} | (call.staged_count < 0 ? 0u : 1u) << 5 |
         std::uint64_t{static_cast<std::uint8_t>(call.purpose)} << 6 |
         std::uint64_t{static_cast<std::uint8_t>(call.reduction.op)} << 8 |
         std::uint64_t{static_cast<std::uint8_t>(call.dtype)} << 14 | compound << 20 |
         std::uint64_t{call.layout} << 28 |
         std::uint64_t{callable == 0 ? number : (number & 0xfffu) | callable << 12} << 42;
}
/// Bits of the contributions that facts_of has.
constexpr int contribution_bits(Operator op) noexcept { return op == Operator::callable ? 12 : 22; }
static_assert(kind_count <= 32 && operator_count <= 64 && dtype_count <= 64 && layouts == 1 << 14);
/// A number that stands for the counts: of the kinds with a count for each rank a hash, where all ranks must pass all
/// of them, else 0.
template <class = void>
std::int64_t compared_count(Collective const& call) noexcept {
  if (!has_counts(call.kind)) {
    std::int64_t const count = call.staged_count < 0 ? call.count : call.staged_count;
    // So many contributions, of which facts_of has the rest, leave no room for a count of that size.
    if (call.kind != Kind::all_reduce_contributions) return count;
    return count | call.contributions >> contribution_bits(call.reduction.op) << 41;
  }
  if (call.kind != Kind::all_gather_v && call.kind != Kind::reduce_scatter_v) return 0;
  Fnv1a hash;
  for (std::int64_t const count : call.kind == Kind::all_gather_v ? call.to_counts : call.from_counts)
    hash.add(static_cast<std::uint64_t>(count));
  return hash.number();
}
/// The call as far as these two tell.
template <class = void>
Collective call_of(std::uint64_t facts, std::int64_t count) noexcept {
  Collective call;
  call.kind = static_cast<Kind>(facts & 31u);
  call.count = has_counts(call.kind) ? 0 : count;
  call.staged_count = (facts >> 5 & 1u) != 0 ? count : -1;
  call.purpose = static_cast<Purpose>(facts >> 6 & 3u);
  call.reduction.op = static_cast<Operator>(facts >> 8 & 63u);
  call.dtype = static_cast<DType>(facts >> 14 & 63u);
  call.compound_bytes = static_cast<std::int64_t>(facts >> 20 & 255u);
  if (call.compound_bytes == 255) call.compound_bytes = -1;  // or more
  call.layout = static_cast<std::uint16_t>(facts >> 28 & (layouts - 1));
  bool const is_callable = call.reduction.op == Operator::callable;
  auto const number = static_cast<int>(facts >> 42 & (is_callable ? 0xfffu : 0x3fffffu));
  if (is_callable) call.reduction.callable = static_cast<std::uint16_t>(facts >> 54);
  if (call.kind == Kind::all_reduce_contributions) {
    call.contributions = number | count >> 41 << contribution_bits(call.reduction.op);
    call.count &= (std::int64_t{1} << 41) - 1;
    if (call.staged_count >= 0) call.staged_count = call.count;
  } else call.root = number - 1;
  return call;
}

}  // namespace tutti::comm

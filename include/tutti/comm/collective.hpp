// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One collective call as a value: what a backend starts, what a decorator records, what a mismatch message prints.

#include <tutti/comm/operators.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti {

/// Wildcards of receives and probes.
inline constexpr int any_source = -1;
inline constexpr int any_tag = -1;

/// What is known of a message once it is matched.
struct MessageInfo {
  int source = any_source;
  int tag = any_tag;
  std::int64_t bytes = 0;
  /// Number of whole elements of type T.
  template <Element T>
  std::int64_t count() const noexcept {
    return bytes / std::int64_t{sizeof(T)};
  }
};

namespace comm {

/// The values are part of messages' fingerprints: append only.
enum class Kind : std::uint8_t {
  barrier, broadcast, reduce, all_reduce, gather, all_gather, scatter, reduce_scatter, all_to_all
};
inline constexpr int kind_count = 9;

constexpr std::string_view name(Kind kind) noexcept {
  switch (kind) {
    case Kind::barrier: return "barrier";
    case Kind::broadcast: return "broadcast";
    case Kind::reduce: return "reduce";
    case Kind::all_reduce: return "all_reduce";
    case Kind::gather: return "gather";
    case Kind::all_gather: return "all_gather";
    case Kind::scatter: return "scatter";
    case Kind::reduce_scatter: return "reduce_scatter";
    case Kind::all_to_all: return "all_to_all";
  }
  return "unknown";
}
constexpr bool reduces(Kind kind) noexcept {
  return kind == Kind::reduce || kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

/// Messages of users and of derived collectives never match each other.
enum class Channel : std::uint8_t { user, internal };

/// `count` is the number of elements of one block:
///   broadcast, reduce, all_reduce    the whole buffer
///   gather, all_gather               what each rank contributes; `to` holds one block per rank, in rank order
///   scatter, reduce_scatter          what each rank receives; `from` holds one block per rank
///   all_to_all                       what each pair exchanges; both hold one block per rank
/// `from` of broadcast and scatter, `to` of reduce and gather count at the root alone; broadcast fills `to` elsewhere.
/// Aliasing   the buffers are disjoint, or equal (broadcast, reduce, all_reduce), or the single block is this rank's
///            block of the other buffer (gather, all_gather, scatter; reduce_scatter where the backend says so).
struct Collective {
  Kind kind = Kind::barrier;
  DType dtype = DType::byte;
  int root = -1;  ///< -1 where the kind has none
  std::int64_t count = 0;
  void const* from = nullptr;
  void* to = nullptr;
  Reduction reduction{};
  std::source_location where{};

  std::int64_t block_bytes() const noexcept { return count * static_cast<std::int64_t>(size_of(dtype)); }
};

/// "app.cpp:12"
inline std::string place(std::source_location const& where) {
  std::string_view file = where.file_name();
  if (auto const slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(where.line());
}

/// "no message from rank 1 with any tag"
inline std::string no_message(MessageInfo const& wanted) {
  return "no message from " + (wanted.source < 0 ? "any rank" : "rank " + std::to_string(wanted.source)) + " with " +
         (wanted.tag < 0 ? "any tag" : "tag " + std::to_string(wanted.tag));
}

/// "all_reduce(sum, float32, count 8) at app.cpp:12"
inline std::string describe(Collective const& call) {
  std::string text(name(call.kind));
  text += '(';
  if (call.kind != Kind::barrier) {
    if (reduces(call.kind)) text += std::string(tutti::name(call.reduction.op)) + ", ";
    if (call.root >= 0) text += "root " + std::to_string(call.root) + ", ";
    text += std::string(tutti::name(call.dtype)) + ", count " + std::to_string(call.count);
  }
  return text + ") at " + place(call.where);
}

}  // namespace comm
}  // namespace tutti

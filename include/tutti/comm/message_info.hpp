// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What is known of a message, and what is said of one that nobody has sent or received.

#include <tutti/comm/wire.hpp>
#include <tutti/core/concat.hpp>

#include <cstdint>
#include <string>

namespace tutti {

/// Wildcards of receives and probes.
inline constexpr int any_source = -1;
inline constexpr int any_tag = -1;
/// The partner of who has none: a send to it does nothing, a receive or probe of it is complete at once, with this
/// source and no bytes, and leaves its buffer; recv<T> is empty.
inline constexpr int proc_null = -2;

/// What is known of a message once it is matched.
struct MessageInfo {
  int source = any_source;
  int tag = any_tag;
  std::int64_t bytes = 0;
  /// Of what was sent, where the backend carries it along: complex numbers as their parts, structs as bytes.
  bool has_dtype = false;
  DType dtype = DType::byte;
  /// Number of whole elements of type T.
  template <Storable T>
  std::int64_t count() const noexcept {
    return bytes / comm::wire_bytes<T>();
  }
};

namespace comm {

/// A rank for a sentence, with the name of what stands in the place of one.
template <class = void>
std::string rank_text(int rank) {
  return concat(rank, rank == any_source ? " (any_source)" : rank == proc_null ? " (proc_null)" : "");
}
template <class = void>
std::string not_received(int to, int tag) {
  return concat("rank ", to, " has not received the message with tag ", tag);
}
template <class = void>
std::string source_text(int from) {
  return from < 0 ? "any rank" : concat("rank ", from);
}
template <class = void>
std::string tag_text(int tag) {
  return tag < 0 ? "any tag" : concat("tag ", tag);
}
/// " for any tag from rank 1": what a receive that waits asks for
template <class = void>
std::string asked_for(int from, int tag) {
  return concat(" for ", tag_text(tag), " from ", source_text(from));
}
/// "no message from rank 1 with any tag"
template <class = void>
std::string no_message(MessageInfo const& wanted) {
  return concat("no message from ", source_text(wanted.source), " with ", tag_text(wanted.tag));
}

/// For whoever waits in vain: "; from rank 0 with tag 5 there is one of 24 bytes (float64)", of the first three that
/// are there; empty where there are none.
template <class Messages>
std::string messages_there(Messages const& messages) {
  std::string text;
  int told = 0;
  for (MessageInfo const& info : messages) {
    if (++told > 3) return concat(text, "; and more");
    text += concat("; from rank ", info.source, " with tag ", info.tag, " there is one of ", info.bytes, " bytes",
                   info.has_dtype ? concat(" (", name(info.dtype), ")") : std::string());
  }
  return text;
}

}  // namespace comm
}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective in words, for messages.

#include <tutti/comm/collective.hpp>
#include <tutti/core/concat.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti::comm {

/// "app.cpp" of a path.
inline std::string_view base_name(std::string_view file) noexcept {
  if (auto const slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return file;
}
/// "app.cpp:12"
template <class = void>
std::string place(std::source_location const& where) {
  return concat(base_name(where.file_name()), ":", where.line());
}

/// "3 + 4 + 0"; of more than sixteen ranks the first fifteen, and a number for the others. `parts` of an element are
/// counted as one.
template <class = void>
std::string listed(PerRank counts, std::int64_t parts = 1) {
  std::string text;
  Fnv1a rest;
  for (int r = 0; r < counts.size(); ++r) {
    if (r >= 15 && counts.size() > 16) rest.add(static_cast<std::uint64_t>(counts[r]));
    else text += (r == 0 ? "" : " + ") + std::to_string(counts[r] / parts);
  }
  return counts.size() > 16 ? concat(text, " + ... #", rest.value() % 10000) : text;
}

/// "float32, count 8", "complex float32, count 4", "structs #123, 48 bytes", "... in device memory": which passes
/// through the host's; "... on the device": where it is
template <class = void>
std::string describe_elements(Collective const& call) {
  std::int64_t const count = call.staged_count < 0 ? call.count : call.staged_count;
  bool const counts = !has_counts(call.kind) || call.count != 0;
  bool const compound = call.compound_bytes != 0;
  std::string text;
  if (call.layout > complex_layout && !compound) {
    text = concat("structs #", call.layout);
    if (counts) text += concat(", ", count, " bytes");
  } else {
    if (call.compound_bytes < 0) text = concat("structs #", call.layout);
    else if (call.layout > complex_layout) text = concat(call.compound_bytes, "-byte structs #", call.layout);
    else text = concat(call.layout == complex_layout ? "complex " : "", tutti::name(call.dtype));
    if (counts) text += concat(", count ", call.layout == complex_layout && !compound ? count / 2 : count);
  }
  if (call.purpose == Purpose::reached) return text + " on the device";
  return call.staged_count < 0 ? text : text + " in device memory";
}

/// "all_reduce(sum, float32, count 8) at app.cpp:12", "all_gather_v(float32, count 4, to 3 + 4 + 0) at app.cpp:12".
/// Structs have a number for the types of their members.
template <class = void>
std::string describe_at(Collective const& call, std::string_view file, std::uint_least32_t line) {
  std::string text(call.purpose == Purpose::split ? "split" : name(call.kind));
  text += call.purpose == Purpose::counts ? "_v(" : "(";
  if (call.purpose == Purpose::counts) {
    if (call.root >= 0) text += concat("root ", call.root, ", ");
    text += concat("counts to be found, elements #", call.layout);
  } else if (call.kind != Kind::barrier && call.purpose != Purpose::split) {
    if (reduces(call.kind)) text += tutti::name(call.reduction.op);
    if (call.reduction.callable != 0) text += concat(" #", call.reduction.callable);
    if (reduces(call.kind)) text += ", ";
    if (call.root >= 0) text += concat("root ", call.root, ", ");
    text += describe_elements(call);
    if (call.kind == Kind::all_reduce_contributions)
      text += concat(", ", call.contributions, " contributions");
    std::int64_t const parts = call.layout == complex_layout && call.compound_bytes == 0 ? 2 : 1;
    if (!call.from_counts.empty()) text += concat(", from ", listed(call.from_counts, parts));
    if (!call.to_counts.empty()) text += concat(", to ", listed(call.to_counts, parts));
  }
  text += ") at ";
  text += file;
  return concat(text, ":", line);
}
template <class = void>
std::string describe(Collective const& call) {
  return describe_at(call, base_name(call.where.file_name()), call.where.line());
}

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The capability of a backend, see comm/capabilities.hpp, to say which thread may call, and when.

#include <tutti/comm/occupancy.hpp>

#include <concepts>
#include <source_location>
#include <string>

namespace tutti::comm {

/// `visit(operation, where)`, `visit()`: a Visit of what communicators share that takes one thread at a time; throws
/// where this thread may not call; the second waits for its turn. `thread_level()` names what threads may do, and
/// `may_call()` says whether this thread is one that may call at all.
template <class B>
concept GuardsThreads = requires(B& b, B const& constant, char const* operation, std::source_location where) {
  { b.visit(operation, where) } -> std::same_as<Visit>;
  { b.visit() } -> std::same_as<Visit>;
  { constant.may_call() } -> std::same_as<bool>;
  constant.thread_level();
};

namespace capability {

template <class B>
Visit visit([[maybe_unused]] B& b, [[maybe_unused]] char const* operation,
            [[maybe_unused]] std::source_location where) {
  if constexpr (GuardsThreads<B>) return b.visit(operation, where);
  else return Visit();
}
template <class B>
Visit visit([[maybe_unused]] B& b) noexcept {
  if constexpr (GuardsThreads<B>) return b.visit();
  else return Visit();
}
template <class B>
bool may_call([[maybe_unused]] B const& b) noexcept {
  if constexpr (GuardsThreads<B>) return b.may_call();
  else return true;
}
/// What threads may do, in words, where a backend says it.
template <class B>
std::string thread_level([[maybe_unused]] B const& b) {
  if constexpr (GuardsThreads<B>) return std::string(b.thread_level());
  else return {};
}

}  // namespace capability
}  // namespace tutti::comm

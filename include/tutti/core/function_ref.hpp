// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `FunctionRef`: a callable that somebody else holds. What takes one is compiled once, not for every lambda.

#include <type_traits>

namespace tutti {

template <class Signature>
class FunctionRef;

/// Refers to a callable; valid while that lives, so it is a parameter's type, not a member's. The callable is not
/// const: it may move out of what it holds.
template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Arguments...>)
  FunctionRef(F&& f) noexcept  // NOLINT: as a function is passed
      : held_(const_cast<void*>(static_cast<void const*>(&f))), call_([](void* held, Arguments... arguments) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(held))(static_cast<Arguments&&>(arguments)...);
        }) {}

  R operator()(Arguments... arguments) const { return call_(held_, static_cast<Arguments&&>(arguments)...); }

 private:
  void* held_;
  R (*call_)(void*, Arguments...);
};

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What collectives accept as buffers: tensors, views of them, containers of the host.

#include <tutti/comm/wire.hpp>
#include <tutti/tensor/foreign.hpp>
#include <tutti/tensor/tensor.hpp>

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace tutti::comm {

template <class X>
inline constexpr bool is_tensor = false;
template <class T, class D>
inline constexpr bool is_tensor<Tensor<T, D>> = true;
template <class X>
inline constexpr bool is_view = false;
template <class T, class D>
inline constexpr bool is_view<TensorView<T, D>> = true;

template <class T, class D>
TensorView<T, D> view_of(Tensor<T, D>& tensor) noexcept { return tensor.view(); }
template <class T, class D>
TensorView<T const, D> view_of(Tensor<T, D> const& tensor) noexcept { return tensor.view(); }
template <class T, class D>
TensorView<T, D> view_of(TensorView<T, D> const& view) noexcept { return view; }
/// Anything that is contiguous host memory of elements: std::span, std::vector, std::array, arrays.
template <class X>
  requires(!is_tensor<std::remove_cvref_t<X>> && !is_view<std::remove_cvref_t<X>> &&
           requires(X& x) { requires Storable<typename decltype(std::span(x))::value_type>; })
auto view_of(X& x) noexcept {
  auto const elements = std::span(x);
  return TensorView<typename decltype(elements)::element_type>(elements.data(),
                                                               Shape{static_cast<std::int64_t>(elements.size())});
}

/// What another library's view refers to.
template <class X>
  requires ForeignView<std::remove_cv_t<X>>
auto view_of(X& x) {
  return as_view<std::remove_cv_t<X>>(x);
}

/// A tensor, a view of one or of another library, or contiguous host memory.
template <class X>
concept Buffer = requires(std::remove_reference_t<X>& x) { view_of(x); };

/// As a value, for assertions: the compiler explains a concept at length.
template <class X>
inline constexpr bool is_buffer = Buffer<X>;

/// An element that can travel: a struct with a pointer among its members cannot.
template <class T>
concept Sendable = Storable<T> && is_sendable<T>();
template <class T>
concept NotSendable = !Sendable<T>;

/// A single element.
template <class X>
concept Value = Sendable<X> && !Buffer<X>;

/// One that an operation changes.
template <class X>
concept Variable = Value<X> && !std::is_const_v<X>;

template <class X>
concept NoBuffer = !is_buffer<X>;
template <Buffer X>
using ViewOf = decltype(view_of(std::declval<std::remove_reference_t<X>&>()));
template <Buffer X>
using ValueOf = typename ViewOf<X>::Value;
template <Buffer X>
using DeviceOf = std::remove_cvref_t<decltype(std::declval<ViewOf<X>>().device())>;

/// An rvalue tensor is owned, everything else borrowed.
template <class X>
inline constexpr bool is_owned =
    is_tensor<X> && !std::is_const_v<X>;  // X as deduced by X&&: no reference for an rvalue

/// A container that owns its elements, moved in: the request hands it back.
template <class X>
inline constexpr bool is_moved_container = !std::is_reference_v<X> && !std::is_const_v<X> && !is_tensor<X> &&
                                           !is_view<X> && requires { typename X::allocator_type; };

/// A temporary container would be gone before an asynchronous operation is done.
template <class X>
inline constexpr bool outlives_call =
    std::is_lvalue_reference_v<X> || is_tensor<X> || is_view<X> || ForeignView<X> || is_moved_container<X> ||
    std::ranges::enable_borrowed_range<X>;

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Views of other libraries, by what they can do: `std::mdspan`, `Kokkos::View` and whatever else has extents and
/// strides is a buffer of every collective, and `as_view(x)` sees it as a `TensorView`. No header of theirs is needed.

#include <tutti/tensor/view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

namespace tutti {

/// Where a foreign view's elements live. Specialise it for views of memory that the host does not reach.
template <class X>
struct ForeignDevice {
  using Type = Cpu;
  static Type of(X const&) { return {}; }
};

namespace detail {

template <class X>
constexpr auto* foreign_data(X const& x) {
  if constexpr (requires { x.data_handle(); }) return x.data_handle();
  else return x.data();
}

}  // namespace detail

/// x.rank(), x.extent(axis), x.stride(axis) in elements, and x.data_handle() or x.data().
template <class X>
concept ForeignView = requires(X const& x) {
  static_cast<std::int64_t>(X::rank());
  static_cast<std::int64_t>(x.extent(0));
  static_cast<std::int64_t>(x.stride(0));
  requires std::is_pointer_v<decltype(detail::foreign_data(x))>;
  requires Storable<std::remove_cv_t<std::remove_pointer_t<decltype(detail::foreign_data(x))>>>;
};

/// The same elements, which the other view's owner must keep. Strides must not be negative.
/// Errors: shape, for more axes than a tensor has.
template <ForeignView X>
auto as_view(X const& x, std::source_location where = std::source_location::current()) {
  using Element = std::remove_pointer_t<decltype(detail::foreign_data(x))>;
  using Place = typename ForeignDevice<X>::Type;
  auto const rank = static_cast<int>(X::rank());
  std::array<std::int64_t, Shape::max_rank> extents{};
  typename TensorView<Element, Place>::Strides strides{};
  for (int axis = 0; axis < rank && axis < Shape::max_rank; ++axis) {
    extents[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(x.extent(axis));
    strides[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(x.stride(axis));
  }
  return TensorView<Element, Place>::strided(detail::foreign_data(x), Shape::of(extents.data(), rank, where), strides,
                                             ForeignDevice<X>::of(x));
}

}  // namespace tutti

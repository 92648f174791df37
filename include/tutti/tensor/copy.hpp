// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies, each with a name that says where the bytes go. Nothing in the library copies between devices unasked.

#include <tutti/core/concat.hpp>
#include <tutti/tensor/tensor.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti {

namespace detail {

template <Storable T, Device D>
TensorView<T, D> as_view(Tensor<T, D>& tensor) noexcept {
  return tensor.view();
}
template <Storable T, Device D>
TensorView<T const, D> as_view(Tensor<T, D> const& tensor) noexcept {
  return tensor.view();
}
template <class T, Device D>
TensorView<T, D> as_view(TensorView<T, D> view) noexcept {
  return view;
}

template <class X>
using ViewOf = decltype(as_view(std::declval<std::remove_reference_t<X>&>()));
template <class V>
struct ViewTypes;
template <class T, Device D>
struct ViewTypes<TensorView<T, D>> {
  using Value = std::remove_const_t<T>;
  using DeviceType = D;
  static constexpr bool is_const = std::is_const_v<T>;
};

}  // namespace detail

/// A `Tensor` or a `TensorView`.
template <class X>
concept TensorLike = requires(std::remove_reference_t<X>& x) { detail::as_view(x); };

/// Element type and device of a `TensorLike`.
template <TensorLike X>
using ValueOf = typename detail::ViewTypes<detail::ViewOf<X>>::Value;
template <TensorLike X>
using DeviceOf = typename detail::ViewTypes<detail::ViewOf<X>>::DeviceType;

namespace detail {

/// Calls piece(to, from, count) for pieces that lie without gaps in both views, in row-major order.
template <class From, class To, class Piece>
void for_each_piece(From from, To to, Piece piece) {
  Shape const& shape = from.shape();
  if (shape.size() == 0) return;
  int outer = shape.rank();
  std::int64_t count = 1;
  while (outer > 0) {
    auto const axis = static_cast<std::size_t>(outer - 1);
    bool const dense = (from.strides()[axis] == count && to.strides()[axis] == count) || shape[outer - 1] == 1;
    if (!dense) break;
    count *= shape[--outer];
  }
  std::array<std::int64_t, Shape::max_rank> index{};
  auto* target = to.data();
  auto* source = from.data();
  for (;;) {
    piece(target, source, count);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      auto const a = static_cast<std::size_t>(axis);
      target += to.strides()[a];
      source += from.strides()[a];
      if (++index[a] < shape[axis]) break;
      target -= to.strides()[a] * shape[axis];
      source -= from.strides()[a] * shape[axis];
      index[a] = 0;
    }
    if (axis < 0) return;
  }
}

/// Bytes from the first element to behind the last one, as addresses.
template <class V>
bool ranges_meet(V const& a, auto const& b) noexcept {
  auto const end = [](auto const& view) {
    auto* last = view.data();
    for (int axis = 0; axis < view.rank(); ++axis)
      last += (view.shape()[axis] - 1) * view.strides()[static_cast<std::size_t>(axis)];
    return reinterpret_cast<std::uintptr_t>(last + 1);
  };
  if (a.size() == 0 || b.size() == 0) return false;
  return reinterpret_cast<std::uintptr_t>(a.data()) < end(b) && reinterpret_cast<std::uintptr_t>(b.data()) < end(a);
}

template <class From, class To>
inline constexpr bool same_elements = std::same_as<ValueOf<From>, ValueOf<To>>;
template <class To>
inline constexpr bool writable = !ViewTypes<ViewOf<To>>::is_const;

inline void check_copy(char const* operation, auto const& from, auto const& to, std::source_location where) {
  if (from.shape() != to.shape())
    throw_shapes(operation, "shapes of source and target differ", from.shape(), to.shape(), where);
  if (to.overlaps_itself())
    throw Error(ErrorKind::invalid_argument, operation,
                concat("several indices of the target, a view of shape ", to_string(to.shape()),
                       ", reach one element. Pass a view whose elements are distinct"),
                where);
}

}  // namespace detail

namespace detail {

template <class T, class D>
void copy_on_device(TensorView<T const, D> from, TensorView<T, D> to, std::source_location where) {
  check_copy("copy", from, to, where);
  if (from.device() != to.device())
    throw Error(ErrorKind::device, "copy",
                "source and target are on different devices. Use to_device or go over to_host", where);
  auto device = to.device();
  auto const move = [&device](TensorView<T const, D> source, TensorView<T, D> target) {
    for_each_piece(source, target, [&device](T* t, T const* s, std::int64_t count) {
      if constexpr (D::host_accessible) {
        if (count == 1) {
          *t = *s;
          return;
        }
      }
      device.copy_within(t, s, static_cast<std::size_t>(count) * sizeof(T));
    });
  };
  if (!ranges_meet(from, to)) {
    move(from, to);
  } else if (from.data() != to.data() || from.strides() != to.strides()) {
    Tensor<T, D> staged(from.shape(), device);
    move(from, staged.view());
    move(staged.view(), to);
  }
}

template <class T, class D>
void copy_from_device(TensorView<T const, D> from, TensorView<T, Cpu> to, std::source_location where) {
  check_copy("copy_to_host", from, to, where);
  auto device = from.device();
  for_each_piece(from, to, [&device](T* t, T const* s, std::int64_t count) {
    device.copy_to_host(t, s, static_cast<std::size_t>(count) * sizeof(T));
  });
}

template <class T, class D>
void copy_into_device(TensorView<T const, Cpu> from, TensorView<T, D> to, std::source_location where) {
  check_copy("copy_from_host", from, to, where);
  auto device = to.device();
  for_each_piece(from, to, [&device](T* t, T const* s, std::int64_t count) {
    device.copy_from_host(t, s, static_cast<std::size_t>(count) * sizeof(T));
  });
}

}  // namespace detail

/// Elements of `from` to `to`, on one device. Blocking.
/// Errors: shape, when shapes differ; invalid_argument, when elements of the target are not distinct; device, when the
/// two are different devices of one kind.
/// Aliasing: any; views that overlap are copied through a temporary. Cost: memory without gaps moves at once,
/// otherwise one copy per gap-free piece.
template <TensorLike From, TensorLike To>
void copy(From const& from, To&& to, std::source_location where = std::source_location::current()) {
  constexpr bool devices_fit = std::same_as<DeviceOf<From>, DeviceOf<To>>;
  static_assert(devices_fit,
                "tutti: copies between devices are named: copy_to_host, copy_from_host, to_host, to_device");
  static_assert(detail::same_elements<From, To>,
                "tutti: a copy keeps the element type; use convert_elements to change it");
  static_assert(detail::writable<To>, "tutti: the target of a copy is read-only");
  // The body is left out after a failed assertion: its own errors would bury the sentence.
  if constexpr (devices_fit && detail::same_elements<From, To> && detail::writable<To>)
    detail::copy_on_device<ValueOf<From>, DeviceOf<From>>(detail::as_view(from), detail::as_view(to), where);
}

/// A new tensor on the same device with the elements of a tensor or view, without gaps.
template <TensorLike X>
Tensor<ValueOf<X>, DeviceOf<X>> clone(X const& x) {
  Tensor<ValueOf<X>, DeviceOf<X>> result(x.shape(), x.device());
  copy(x, result);
  return result;
}

/// From any device into host memory. Blocking. Errors: shape, invalid_argument, as of `copy`.
template <TensorLike From, TensorLike To>
void copy_to_host(From const& from, To&& to, std::source_location where = std::source_location::current()) {
  constexpr bool devices_fit = std::same_as<DeviceOf<To>, Cpu>;
  static_assert(devices_fit, "tutti: the target of copy_to_host is not in host memory");
  static_assert(detail::same_elements<From, To>,
                "tutti: a copy keeps the element type; use convert_elements to change it");
  static_assert(detail::writable<To>, "tutti: the target of a copy is read-only");
  if constexpr (devices_fit && detail::same_elements<From, To> && detail::writable<To>) {
    using T = ValueOf<From>;
    if constexpr (std::same_as<DeviceOf<From>, Cpu>)
      detail::copy_on_device<T, Cpu>(detail::as_view(from), detail::as_view(to), where);
    else detail::copy_from_device<T, DeviceOf<From>>(detail::as_view(from), detail::as_view(to), where);
  }
}

/// From host memory to any device. Blocking. Errors: shape, invalid_argument, as of `copy`.
template <TensorLike From, TensorLike To>
void copy_from_host(From const& from, To&& to, std::source_location where = std::source_location::current()) {
  constexpr bool devices_fit = std::same_as<DeviceOf<From>, Cpu>;
  static_assert(devices_fit, "tutti: the source of copy_from_host is not in host memory");
  static_assert(detail::same_elements<From, To>,
                "tutti: a copy keeps the element type; use convert_elements to change it");
  static_assert(detail::writable<To>, "tutti: the target of a copy is read-only");
  if constexpr (devices_fit && detail::same_elements<From, To> && detail::writable<To>) {
    using T = ValueOf<From>;
    if constexpr (std::same_as<DeviceOf<To>, Cpu>)
      detail::copy_on_device<T, Cpu>(detail::as_view(from), detail::as_view(to), where);
    else detail::copy_into_device<T, DeviceOf<To>>(detail::as_view(from), detail::as_view(to), where);
  }
}

/// A new tensor in host memory with the same elements, also when they are there already.
template <TensorLike From>
Tensor<ValueOf<From>, Cpu> to_host(From const& from) {
  Tensor<ValueOf<From>, Cpu> result(from.shape());
  copy_to_host(from, result);
  return result;
}

/// A new tensor on `device` with the same elements. Between two kinds of device, and two devices of one kind, the
/// elements go through host memory.
template <TensorLike From, Device D>
Tensor<ValueOf<From>, D> to_device(From const& from, D device) {
  Tensor<ValueOf<From>, D> result(from.shape(), device);
  if constexpr (std::same_as<DeviceOf<From>, D>) {
    if (from.device() == device) {
      copy(from, result);
      return result;
    }
  }
  if constexpr (std::same_as<DeviceOf<From>, Cpu>) copy_from_host(from, result);
  else copy_from_host(to_host(from), result);
  return result;
}

}  // namespace tutti

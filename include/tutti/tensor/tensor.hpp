// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Tensor<T, Device>`: the owner of contiguous, 64-byte aligned elements of one type on one device.

#include <tutti/core/concat.hpp>
#include <tutti/tensor/storage.hpp>
#include <tutti/tensor/view.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti {

/// What there are no tensors of gets a sentence here instead of the compiler's account of a constraint.
template <class T, class D = Cpu>
class Tensor {
 public:
  Tensor();
  explicit Tensor(std::initializer_list<std::int64_t>, D const& = {});
  explicit Tensor(Shape const&, D const& = {});
  void fill(T const&);

 private:
  static_assert(!std::is_const_v<T> && !std::is_volatile_v<T>,
                "tutti: a tensor owns elements that can be written; TensorView<T const> refers to read-only ones");
  static_assert(is_storable<std::remove_cv_t<T>>,
                "tutti: a tensor holds numbers, std::byte, char, bool, complex numbers or plain structs, whose bytes "
                "are their value: no member is a pointer, std::pair, std::string or container");
  static constexpr bool on_device = Device<D>;
  static_assert(on_device, "tutti: the second argument of Tensor is a device, such as tutti::Cpu");
};

/// Move-only: copies are said by name (`clone`, `copy`). Moving leaves a tensor of shape (0,).
template <Storable T, Device D>
class Tensor<T, D> {
 public:
  using View = TensorView<T, D>;
  using ConstView = TensorView<T const, D>;

  Tensor() = default;
  /// Elements are indeterminate until written.
  explicit Tensor(std::initializer_list<std::int64_t> extents, D device = {},
                  std::source_location where = std::source_location::current())
      : Tensor(Shape(extents, where), device, where) {}
  explicit Tensor(Shape shape, D device = {}, std::source_location where = std::source_location::current())
      : Tensor(shape, Storage<D>(device, checked_cast<std::size_t>(checked_multiply(shape.size(), sizeof(T), where)))) {
  }
  /// On memory that came from elsewhere (an arena, a mapping, a communicator's heap).
  /// Errors: shape, when the storage is too small; invalid_argument, when it is not aligned for T.
  Tensor(Shape shape, Storage<D> storage, std::source_location where = std::source_location::current())
      : shape_(shape), storage_(std::move(storage)) {
    if (checked_cast<std::size_t>(checked_multiply(shape.size(), sizeof(T))) > storage_.bytes())
      throw Error(ErrorKind::shape, "Tensor",
                  concat("shape ", to_string(shape), " of ", element_name<T>(), " does not fit ", storage_.bytes(),
                         " bytes of storage"),
                  where);
    if (reinterpret_cast<std::uintptr_t>(storage_.data()) % alignof(T) != 0)
      throw Error(ErrorKind::invalid_argument, "Tensor", concat("storage is not aligned for ", element_name<T>()),
                  where);
  }

  Tensor(Tensor&& other) noexcept : shape_(other.shape_), storage_(std::move(other.storage_)) {
    other.shape_ = Shape{0};
  }
  template <std::integral First, std::integral... Rest>
  explicit Tensor(First, Rest...) = delete;  // extents stand in braces: Tensor<float>({2, 3})
  template <class U, class E>
  explicit Tensor(TensorView<U, E> const&) = delete;  // clone(view) copies the elements
  template <class U, class E>
  Tensor(Tensor<U, E> const&) = delete;  // clone; convert_elements changes the type, to_host and to_device the place

  Tensor& operator=(Tensor&& other) noexcept {
    Shape const moved = other.shape_;  // this may be `other`
    other.shape_ = Shape{0};
    shape_ = moved;
    storage_ = std::move(other.storage_);
    return *this;
  }

  T* data() noexcept { return static_cast<T*>(storage_.data()); }
  T const* data() const noexcept { return static_cast<T const*>(storage_.data()); }
  Shape const& shape() const noexcept { return shape_; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t size() const noexcept { return shape_.size(); }
  D const& device() const noexcept { return storage_.device(); }
  /// Whether its elements went to another tensor, which is another thing than having none.
  bool moved_from() const noexcept { return storage_.moved_from(); }
  static constexpr DType dtype() noexcept
    requires Element<T>
  {
    return dtype_of<T>;
  }

  View view() noexcept { return {data(), shape_, device()}; }
  ConstView view() const noexcept { return {data(), shape_, device()}; }
  operator View() noexcept { return view(); }
  operator ConstView() const noexcept { return view(); }

  T* begin() noexcept
    requires D::host_accessible
  {
    return data();
  }
  T* end() noexcept
    requires D::host_accessible
  {
    return data() + size();
  }
  T const* begin() const noexcept
    requires D::host_accessible
  {
    return data();
  }
  T const* end() const noexcept
    requires D::host_accessible
  {
    return data() + size();
  }
  /// A copy of the elements in row-major order in a container: `std::vector<float> copy(tensor)`.
  template <class Container>
    requires detail::takes_elements<Container, T, D>
  explicit operator Container() const {
    return Container(begin(), end());
  }

  std::span<T> elements() noexcept { return view().elements(); }
  std::span<T const> elements() const noexcept { return view().elements(); }
  template <class... More>
  T& operator()(detail::FirstIndex first, More... more) {
    if constexpr (detail::subscript_fits<D, More...>()) return view()(first, more...);
    else return *data();
  }
  template <class... More>
  T const& operator()(detail::FirstIndex first, More... more) const {
    if constexpr (detail::subscript_fits<D, More...>()) return view()(first, more...);
    else return *data();
  }
  T& operator()(std::source_location where = std::source_location::current()) { return view()(where); }
  T const& operator()(std::source_location where = std::source_location::current()) const { return view()(where); }

  View slice(int axis, std::int64_t begin, std::int64_t end,
             std::source_location where = std::source_location::current()) {
    return view().slice(axis, begin, end, where);
  }
  ConstView slice(int axis, std::int64_t begin, std::int64_t end,
                  std::source_location where = std::source_location::current()) const {
    return view().slice(axis, begin, end, where);
  }
  View operator[](std::int64_t index) { return view()[index]; }
  ConstView operator[](std::int64_t index) const { return view()[index]; }
  View transpose(std::initializer_list<int> order = {}, std::source_location where = std::source_location::current()) {
    return view().transpose(order, where);
  }
  ConstView transpose(std::initializer_list<int> order = {},
                      std::source_location where = std::source_location::current()) const {
    return view().transpose(order, where);
  }
  View reshape(std::initializer_list<std::int64_t> extents,
               std::source_location where = std::source_location::current()) {
    return view().reshape(extents, where);
  }
  ConstView reshape(std::initializer_list<std::int64_t> extents,
                    std::source_location where = std::source_location::current()) const {
    return view().reshape(extents, where);
  }
  View reshape(Shape const& shape, std::source_location where = std::source_location::current()) {
    return view().reshape(shape, where);
  }
  ConstView reshape(Shape const& shape, std::source_location where = std::source_location::current()) const {
    return view().reshape(shape, where);
  }
  template <std::integral First, std::integral... Rest>
  detail::NoBraces<First, Rest...> reshape(First, Rest...) const;
  template <std::integral First, std::integral... Rest>
  detail::NoBraces<First, Rest...> transpose(First, Rest...) const;
  template <std::floating_point Index>
  void operator[](Index) const = delete;  // an index is an integer

  /// The owner itself under another shape: no element moves. One extent may be -1.
  /// Errors: shape, when sizes differ; then the tensor is unchanged.
  Tensor reshaped(std::initializer_list<std::int64_t> extents,
                  std::source_location where = std::source_location::current()) && {
    shape_ = detail::resolve_reshape(shape_, extents.begin(), extents.size(), where);
    return std::move(*this);
  }

  /// Sets every element.
  void fill(T value) {
    if constexpr (D::host_accessible) {
      for (T& element : elements()) element = value;
    } else {
      Tensor<T, Cpu> staged(shape_);
      staged.fill(value);
      D(device()).copy_from_host(data(), staged.data(), static_cast<std::size_t>(size()) * sizeof(T));
    }
  }

  /// A new tensor on the same device with the same elements.
  Tensor clone() const {
    Tensor result(shape_, device());
    D(device()).copy_within(result.data(), data(), static_cast<std::size_t>(size()) * sizeof(T));
    return result;
  }

 private:
  Shape shape_{std::initializer_list<std::int64_t>{0}};
  Storage<D> storage_;
};

/// Elements are indeterminate.
template <class T, Device D = Cpu>
Tensor<T, D> empty(Shape shape, D device = {}) {
  return Tensor<T, D>(shape, device);
}
template <class T, std::integral First, std::integral... Rest>
detail::NoBraces<First, Rest...> empty(First, Rest...);
template <class T, Device D = Cpu>
Tensor<T, D> full(Shape shape, T value, D device = {}) {
  Tensor<T, D> result(shape, device);
  result.fill(value);
  return result;
}
template <class T, std::integral First, std::integral Second, class... Rest>
detail::NoBraces<First, Second> full(First, Second, Rest...);
template <class T, Device D = Cpu>
Tensor<T, D> zeros(Shape shape, D device = {}) {
  return full<T, D>(shape, T{}, device);
}
template <class T, std::integral First, std::integral... Rest>
detail::NoBraces<First, Rest...> zeros(First, Rest...);
template <class T, Device D = Cpu>
Tensor<T, D> ones(Shape shape, D device = {}) {
  return full<T, D>(shape, T(1), device);
}
template <class T, std::integral First, std::integral... Rest>
detail::NoBraces<First, Rest...> ones(First, Rest...);

}  // namespace tutti

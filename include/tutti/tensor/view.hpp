// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A reference to the elements of a tensor, with strides. Copying a view copies the reference.

#include <tutti/config.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/tensor/device.hpp>
#include <tutti/tensor/row_major.hpp>
#include <tutti/tensor/shape.hpp>
#include <tutti/tensor/subscript.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>

namespace tutti {

namespace detail {

template <class = void>
[[noreturn]] void throw_shapes(char const* operation, char const* problem, Shape const& a, Shape const& b,
                                      std::source_location where) {
  throw Error(ErrorKind::shape, operation, concat(problem, ": ", to_string(a), " and ", to_string(b)), where);
}
template <class = void>
[[noreturn]] void throw_axis(char const* operation, int axis, Shape const& shape, std::source_location where) {
  throw Error(ErrorKind::out_of_range, operation,
              concat("axis ", axis, " does not exist in shape ", to_string(shape)), where);
}

/// The result of calls with extents or axes that do not stand in braces.
template <class First, class... Rest>
struct NoBraces {
  static constexpr bool braces = std::is_void_v<First>;
  static_assert(braces, "tutti: extents and axes stand in braces: x.reshape({2, 3}), x.transpose({1, 0})");
};

/// A container that is made of a range of elements, which are then its own.
template <class Container, class T, class D>
concept takes_elements = D::host_accessible && std::is_same_v<typename Container::value_type, std::remove_const_t<T>> &&
                         std::is_constructible_v<Container, T*, T*> && requires { typename Container::allocator_type; };

/// "2, -1, 3"
template <class = void>
std::string listed(std::int64_t const* numbers, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text;
}

}  // namespace detail

template <class T, class D>
class Tensor;

/// What there are no views of gets a sentence here instead of the compiler's account of a constraint.
template <class T, class D = Cpu>
class TensorView {
 public:
  TensorView();
  TensorView(T*, Shape, D = {});

 private:
  static_assert(is_storable<std::remove_cv_t<T>>,
                "tutti: a view refers to numbers, std::byte, char, bool, complex numbers or plain structs, whose bytes "
                "are their value: no member is a pointer, std::pair, std::string or container");
  static constexpr bool on_device = Device<D>;
  static_assert(on_device, "tutti: the second argument of TensorView is a device, such as tutti::Cpu");
};

/// `T` may be const. Strides count elements and may be zero (broadcast) but not negative.
/// The memory must outlive the view. Element access needs a host-accessible device and is checked when TUTTI_DEBUG
/// is 1.
template <class T, Device D>
  requires Storable<std::remove_const_t<T>>
class TensorView<T, D> {
 public:
  using Value = std::remove_const_t<T>;
  using Strides = std::array<std::int64_t, Shape::max_rank>;

  /// Whether a view of U on E may become one of these.
  template <class U, class E>
  static constexpr bool refers_to =
      std::is_same_v<std::remove_const_t<U>, Value> && std::is_same_v<E, D> &&
      (std::is_const_v<T> || !std::is_const_v<U>);

  TensorView() = default;
  TensorView(T* data, Shape const& shape, D device = {}) noexcept
      : data_(data), shape_(shape), strides_(shape.row_major_strides()), device_(device) {}
  static TensorView strided(T* data, Shape const& shape, Strides const& strides, D device = {}) noexcept {
    TensorView view(data, shape, device);
    view.strides_ = strides;
    return view;
  }
#ifndef __clang__  // which would list them where they are no candidates, and says little without them
  template <std::integral First, std::integral... Rest>
  TensorView(T*, First, Rest...) = delete;  // extents stand in braces: TensorView(data, {2, 3})
  template <class U, class E>
    requires(!refers_to<U, E>)
  explicit TensorView(TensorView<U, E> const& of_another_type_or_place) = delete;
  template <class U, class E>
    requires(!refers_to<U, E>)
  explicit TensorView(Tensor<U, E> const& of_another_type_or_place) = delete;
#endif
  // No move constructor, no template: each is a candidate in the diagnostics of conversions that do not exist.
  TensorView(TensorView const&) noexcept = default;
  TensorView& operator=(TensorView const&) noexcept = default;
  /// A view of mutable elements is also a view of const ones, never the other way round.
  operator TensorView<T const, D>() const noexcept
    requires(!std::is_const_v<T>)
  {
    return TensorView<T const, D>::strided(data_, shape_, strides_, device_);
  }

  T* data() const noexcept { return data_; }
  Shape const& shape() const noexcept { return shape_; }
  Strides const& strides() const noexcept { return strides_; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t size() const noexcept { return shape_.size(); }
  D const& device() const noexcept { return device_; }
  static constexpr DType dtype() noexcept
    requires Element<Value>
  {
    return dtype_of<Value>;
  }

  /// Whether elements lie one after another in row-major order (extents of one do not matter).
  bool contiguous() const noexcept {
    if (size() == 0) return true;
    std::int64_t expected = 1;
    for (int axis = rank() - 1; axis >= 0; --axis) {
      if (shape_[axis] != 1 && strides_[at(axis)] != expected) return false;
      expected *= shape_[axis];
    }
    return true;
  }

  /// Whether several indices may reach one element, as far as strides tell: an axis does not step over all that the
  /// axes with smaller steps reach. Nothing is written to such a view.
  bool overlaps_itself() const noexcept {
    std::int64_t reach = 0;  // of the axes with smaller steps
    unsigned seen = 0;
    for (int turn = 0; turn < rank(); ++turn) {
      int next = -1;
      for (int axis = 0; axis < rank(); ++axis)
        if ((seen >> axis & 1u) == 0 && (next < 0 || strides_[at(axis)] < strides_[at(next)])) next = axis;
      seen |= 1u << next;
      if (shape_[next] == 0) return false;
      if (shape_[next] == 1) continue;
      if (strides_[at(next)] <= reach) return true;
      reach += (shape_[next] - 1) * strides_[at(next)];
    }
    return false;
  }

  /// The elements as a span. Errors: shape, unless contiguous.
  std::span<T> elements(std::source_location where = std::source_location::current()) const {
    static_assert(D::host_accessible,
                  "tutti: elements of this device cannot be read by the host; copy the tensor with to_host");
    require_contiguous("TensorView::elements", where);
    return {data_, static_cast<std::size_t>(size())};
  }

  /// The elements in row-major order, as pointers: loops over them cost what loops over an array do.
  /// Errors: shape, unless contiguous, at the line of the loop; clone(view) is.
  T* begin(std::source_location where = std::source_location::current()) const
    requires D::host_accessible
  {
    require_contiguous("TensorView::begin", where);
    return data_;
  }
  T* end(std::source_location where = std::source_location::current()) const
    requires D::host_accessible
  {
    require_contiguous("TensorView::end", where);
    return data_ + size();
  }
  /// A copy of the elements in row-major order in a container, of any strides: `std::vector<float> copy(view)`.
  template <class Container>
    requires detail::takes_elements<Container, T, D>
  explicit operator Container() const {
    using Walk = detail::RowMajorIterator<TensorView, T>;
    if (contiguous()) return Container(data_, data_ + size());
    return Container(Walk(*this, 0), Walk(*this, size()));
  }

  /// Elements in row-major order as iterators of the device's algorithms. They come with a header of the device: for
  /// CUDA include <tutti/kernel/cuda/iterator.hpp>.
  auto begin() const
    requires(!D::host_accessible)
  {
    return device_iterator(*this, std::int64_t{0});
  }
  auto end() const
    requires(!D::host_accessible)
  {
    return device_iterator(*this, size());
  }

  /// Element at the given indices, integers, one per axis.
  template <class... More>
  T& operator()(detail::FirstIndex first, More... more) const {
    std::int64_t offset = 0;
    if constexpr (detail::subscript_fits<D, More...>()) {
      std::int64_t const indices[] = {first.value, static_cast<std::int64_t>(more)...};
      check_element(indices, sizeof...(more) + 1, first.where);
      for (std::size_t axis = 0; axis <= sizeof...(more); ++axis) offset += indices[axis] * strides_[axis];
    }
    return data_[offset];
  }
  /// The one element of rank 0.
  T& operator()(std::source_location where = std::source_location::current()) const {
    static_assert(detail::subscript_fits<D>());
    check_element(nullptr, 0, where);
    return data_[0];
  }

  /// Elements [begin, end) along `axis`.
  TensorView slice(int axis, std::int64_t begin, std::int64_t end,
                   std::source_location where = std::source_location::current()) const {
    check_axis("slice", axis, where);
    if (begin < 0 || end < begin || end > shape_[axis])
      throw Error(ErrorKind::out_of_range, "slice",
                  concat("[", begin, ", ", end, ") is outside axis ", axis, " of shape ", to_string(shape_)),
                  where);
    // An empty slice keeps the address: the one behind the last element of a strided axis may lie outside the memory.
    std::int64_t const offset = begin == end || size() == 0 ? 0 : begin * strides_[at(axis)];
    return strided(data_ + offset, shape_.with(axis, end - begin), strides_, device_);
  }

  /// The sub-view at `index` of the first axis, which disappears.
  TensorView operator[](std::int64_t index) const {
    std::source_location const where = std::source_location::current();
    check_axis("operator[]", 0, where);
    if (index < 0 || index >= shape_[0])
      throw Error(ErrorKind::out_of_range, "operator[]",
                  concat("index ", index, " is outside axis 0 of shape ", to_string(shape_)), where);
    Strides strides{};
    for (int axis = 1; axis < rank(); ++axis) strides[at(axis - 1)] = strides_[at(axis)];
    return strided(size() == 0 ? data_ : data_ + index * strides_[0], Shape::of(shape_.begin() + 1, rank() - 1),
                   strides, device_);
  }

  /// The same elements in row-major order under another shape. One extent may be -1 and is computed.
  /// Errors: shape, when sizes differ or the view is not contiguous.
  TensorView reshape(std::initializer_list<std::int64_t> extents,
                     std::source_location where = std::source_location::current()) const {
    return reshape_to(extents.begin(), extents.size(), where);
  }
  TensorView reshape(Shape const& shape, std::source_location where = std::source_location::current()) const {
    return reshape_to(shape.begin(), at(shape.rank()), where);
  }

  /// The elements repeated along new leading axes and along axes of extent one, by strides of zero: for reading,
  /// because several elements of the result are one. Errors: shape, when another extent would change.
  TensorView<T const, D> broadcast(Shape const& shape,
                                   std::source_location where = std::source_location::current()) const {
    int const added = shape.rank() - rank();
    if (added < 0) detail::throw_shapes("broadcast", "the shape has fewer axes than the view", shape_, shape, where);
    Strides strides{};
    for (int axis = 0; axis < rank(); ++axis) {
      if (shape_[axis] != 1 && shape_[axis] != shape[axis + added])
        detail::throw_shapes("broadcast", "only extents of one can be repeated", shape_, shape, where);
      strides[at(axis + added)] = shape_[axis] == shape[axis + added] ? strides_[at(axis)] : 0;
    }
    return TensorView<T const, D>::strided(data_, shape, strides, device_);
  }

  /// Axes in the given order; without arguments, reversed. Moves no element.
  TensorView transpose(std::initializer_list<int> order = {},
                       std::source_location where = std::source_location::current()) const {
    std::array<int, Shape::max_rank> axes{};
    if (order.size() == 0)
      for (int axis = 0; axis < rank(); ++axis) axes[at(axis)] = rank() - 1 - axis;
    else
      for (std::size_t i = 0; i < order.size() && i < axes.size(); ++i) axes[i] = order.begin()[i];
    unsigned seen = 0;
    for (int i = 0; i < rank(); ++i)
      if (axes[at(i)] >= 0 && axes[at(i)] < rank()) seen |= 1u << axes[at(i)];
    if ((order.size() != 0 && static_cast<int>(order.size()) != rank()) || seen != (1u << rank()) - 1u)
      throw Error(
          ErrorKind::shape, "transpose",
          concat("the order is not a permutation of the ", rank(), " axes of shape ", to_string(shape_)),
          where);
    std::array<std::int64_t, Shape::max_rank> extents{};
    Strides strides{};
    for (int i = 0; i < rank(); ++i) {
      extents[at(i)] = shape_[axes[at(i)]];
      strides[at(i)] = strides_[at(axes[at(i)])];
    }
    return strided(data_, Shape::of(extents.data(), rank()), strides, device_);
  }
  template <std::integral First, std::integral... Rest>
  detail::NoBraces<First, Rest...> reshape(First, Rest...) const;
  template <std::integral First, std::integral... Rest>
  detail::NoBraces<First, Rest...> transpose(First, Rest...) const;

 private:
  TensorView reshape_to(std::int64_t const* extents, std::size_t rank, std::source_location where) const;
  static constexpr std::size_t at(int axis) noexcept { return static_cast<std::size_t>(axis); }
  void check_axis(char const* operation, int axis, std::source_location where) const {
    if (axis < 0 || axis >= rank()) detail::throw_axis(operation, axis, shape_, where);
  }
  void require_contiguous(char const* operation, std::source_location where) const {
    if (!contiguous())
      throw Error(ErrorKind::shape, operation,
                  concat("view of shape ", to_string(shape_), " is not contiguous. Use clone(view)"), where);
  }
  void check_element([[maybe_unused]] std::int64_t const* indices, [[maybe_unused]] std::size_t count,
                     std::source_location where) const {
#if TUTTI_DEBUG
    auto const axes = static_cast<int>(count);
    bool inside = axes == rank();
    for (int axis = 0; inside && axis < axes; ++axis) inside = indices[axis] >= 0 && indices[axis] < shape_[axis];
    if (inside && data_ != nullptr) return;
    throw Error(ErrorKind::out_of_range, "TensorView::operator()",
                concat("element (", detail::listed(indices, count), ") does not exist in shape ", to_string(shape_),
                       size() != 0 ? "" : ": this tensor or view is empty, or of a tensor that was moved from"),
                where);
#else
    if (data_ == nullptr) [[unlikely]]
      throw_empty(where);  // of a tensor that was moved from, for instance
#endif
  }
  [[noreturn, gnu::noinline, gnu::cold]] static void throw_empty(std::source_location where) {
    throw Error(ErrorKind::out_of_range, "TensorView::operator()",
                "there are no elements: this tensor or view is empty, or of a tensor that was moved from", where);
  }

  T* data_ = nullptr;
  Shape shape_{std::initializer_list<std::int64_t>{0}};
  Strides strides_{1};
  [[no_unique_address]] D device_{};
};

namespace detail {

/// `extents` with its -1, if any, computed so that the sizes agree.
template <class = void>
Shape resolve_reshape(Shape const& from, std::int64_t const* extents, std::size_t rank,
                             std::source_location where) {
  std::array<std::int64_t, Shape::max_rank> resolved{};
  if (rank > resolved.size())
    return Shape::of(extents, static_cast<std::int64_t>(rank), where);  // throws the message for rank
  std::int64_t known = 1;
  int unknown = -1;
  bool bad = false;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    resolved[axis] = extents[axis];
    if (extents[axis] == -1) {
      bad |= unknown >= 0;
      unknown = static_cast<int>(axis);
    } else if (extents[axis] < 0) {
      bad = true;
    } else {
      known = checked_multiply(known, extents[axis], where);
    }
  }
  if (!bad && unknown >= 0) {
    bad = known == 0 || from.size() % known != 0;
    if (!bad) resolved[static_cast<std::size_t>(unknown)] = from.size() / known;
  } else {
    bad |= known != from.size();
  }
  if (bad) {
    throw Error(ErrorKind::shape, "reshape",
                concat("shape ", to_string(from), " has ", from.size(), " elements and cannot become (",
                       listed(extents, rank), ")"),
                where);
  }
  return Shape::of(resolved.data(), static_cast<std::int64_t>(rank), where);
}

}  // namespace detail

template <class T, Device D>
  requires Storable<std::remove_const_t<T>>
TensorView<T, D> TensorView<T, D>::reshape_to(std::int64_t const* extents, std::size_t rank,
                                            std::source_location where) const {
  require_contiguous("reshape", where);
  return {data_, detail::resolve_reshape(shape_, extents, rank, where), device_};
}

}  // namespace tutti

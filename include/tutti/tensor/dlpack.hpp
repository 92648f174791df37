// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tensors to and from other libraries without a copy, by DLPack (https://dmlc.github.io/dlpack, version 1.0): what
/// NumPy, PyTorch, JAX and CuPy exchange. The structs below are laid out as that interface says, under names of their
/// own, so that its header is not needed: pass their pointers on as `DLManagedTensorVersioned*` and `DLManagedTensor*`.
///
///     DlpackTensor* out = to_dlpack(std::move(tensor));               // whoever gets it calls out->deleter(out)
///     Tensor<float> in = from_dlpack<float>(pointer);                 // gives it back when it is destroyed

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/tensor/tensor.hpp>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <utility>

namespace tutti {

/// DLTensor.
struct DlpackArray {
  void* data = nullptr;
  std::int32_t device_type = 1;  ///< 1 the host, 2 CUDA, 3 memory of the host that CUDA has pinned
  std::int32_t device_id = 0;
  std::int32_t ndim = 0;
  std::uint8_t code = 0;  ///< 0 signed, 1 unsigned, 2 floating, 4 bfloat16, 5 complex, 6 bool
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  ///< in elements; null: row-major
  std::uint64_t byte_offset = 0;
};
/// DLManagedTensorVersioned.
struct DlpackTensor {
  std::uint32_t major = 1, minor = 0;
  void* manager_ctx = nullptr;
  void (*deleter)(DlpackTensor*) = nullptr;
  std::uint64_t flags = 0;  ///< bit 0: read-only
  DlpackArray array;
};
/// DLManagedTensor, of DLPack before version 1.
struct OldDlpackTensor {
  DlpackArray array;
  void* manager_ctx = nullptr;
  void (*deleter)(OldDlpackTensor*) = nullptr;
};
static_assert(sizeof(void*) != 8 || (sizeof(DlpackArray) == 48 && offsetof(DlpackTensor, array) == 32 &&
                                     sizeof(DlpackTensor) == 80 && sizeof(OldDlpackTensor) == 64));

/// How DLPack calls memory of a device: {type, number}. Devices of one's own specialise it.
template <class D>
struct DlpackDevice;
template <>
struct DlpackDevice<Cpu> {
  static constexpr bool is(std::int32_t type) noexcept { return type == 1 || type == 3; }
  static std::pair<std::int32_t, std::int32_t> of(Cpu const&) noexcept { return {1, 0}; }
  static Cpu at(std::int32_t) noexcept { return {}; }
};

namespace detail {

struct DlpackType {
  std::uint8_t code, bits;
  friend constexpr bool operator==(DlpackType, DlpackType) = default;
};
template <class T>
constexpr DlpackType dlpack_type() {
  constexpr auto bits = static_cast<std::uint8_t>(8 * sizeof(T));
  if constexpr (std::is_same_v<T, bool>) return {6, 8};
  else if constexpr (std::is_same_v<T, bfloat16>) return {4, 16};
  else if constexpr (Complex<T>) return {5, bits};
  else if constexpr (std::is_same_v<T, float16> || std::is_floating_point_v<T>) return {2, bits};
  else if constexpr (std::is_same_v<T, std::byte> || std::is_unsigned_v<T>) return {1, bits};
  else return {0, bits};
}
template <class T>
concept DlpackElement = Element<T> || Complex<T>;

/// A tensor with the arrays that DLPack points to.
template <class T, class D, class Managed>
struct DlpackOwner {
  Tensor<T, D> tensor;
  std::array<std::int64_t, Shape::max_rank> shape{}, strides{};
  Managed managed{};
};
template <class Managed, class T, class D>
Managed* dlpack_of(Tensor<T, D> tensor) {
  using Holder = DlpackOwner<T, D, Managed>;
  auto holder = make_owner<Holder>();
  holder->tensor = std::move(tensor);
  Shape const& shape = holder->tensor.shape();
  auto const strides = shape.row_major_strides();
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank()); ++axis) {
    holder->shape[axis] = shape[static_cast<int>(axis)];
    holder->strides[axis] = strides[axis];
  }
  auto const [type, number] = DlpackDevice<D>::of(holder->tensor.device());
  DlpackArray& array = holder->managed.array;
  array.data = holder->tensor.data();
  array.device_type = type;
  array.device_id = number;
  array.ndim = shape.rank();
  array.code = dlpack_type<T>().code;
  array.bits = dlpack_type<T>().bits;
  array.shape = holder->shape.data();
  array.strides = holder->strides.data();
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](Managed* self) {
    if (self != nullptr) Owner<Holder>(static_cast<Holder*>(self->manager_ctx));
  };
  return &holder.release()->managed;
}

template <class T, class D>
void check_dlpack(DlpackArray const& array, std::source_location where) {
  auto const refuse = [&](ErrorKind kind, std::string why) {
    throw Error(kind, "from_dlpack", std::move(why), where);
  };
  if (array.lanes != 1 || !(DlpackType{array.code, array.bits} == dlpack_type<T>()))
    refuse(ErrorKind::dtype, concat("its elements have DLPack's type code ", int{array.code}, " with ",
                                    int{array.bits}, " bits and ", int{array.lanes}, " lanes, not those of ",
                                    element_name<T>()));
  if (!DlpackDevice<D>::is(array.device_type))
    refuse(ErrorKind::device, concat("it lives on DLPack's device type ", array.device_type, ", not on ", D::name,
                                     ". Copy it there first"));
  if (array.ndim < 0 || array.ndim > Shape::max_rank || (array.ndim > 0 && array.shape == nullptr))
    refuse(ErrorKind::shape, concat("it has ", array.ndim, " axes, and a tensor at most ", Shape::max_rank));
}

}  // namespace detail

/// The tensor, which is DLPack's from now on: whoever takes it over calls its deleter once, on any thread.
template <class T, Device D>
  requires detail::DlpackElement<T>
[[nodiscard]] DlpackTensor* to_dlpack(Tensor<T, D>&& tensor) {
  return detail::dlpack_of<DlpackTensor>(std::move(tensor));
}
template <class T, Device D>
  requires detail::DlpackElement<T>
[[nodiscard]] OldDlpackTensor* to_old_dlpack(Tensor<T, D>&& tensor) {
  return detail::dlpack_of<OldDlpackTensor>(std::move(tensor));
}

/// A view of somebody else's array, strides included; its owner keeps it.
/// Errors: dtype, device, shape (too many axes, negative strides).
template <class T, Device D = Cpu>
  requires detail::DlpackElement<std::remove_const_t<T>>
TensorView<T, D> view_of_dlpack(DlpackArray const& array,
                                std::source_location where = std::source_location::current()) {
  detail::check_dlpack<std::remove_const_t<T>, D>(array, where);
  Shape const shape = Shape::of(array.shape, array.ndim, where);
  auto strides = shape.row_major_strides();
  for (std::size_t axis = 0; array.strides != nullptr && axis < static_cast<std::size_t>(array.ndim); ++axis) {
    strides[axis] = array.strides[axis];
    if (strides[axis] < 0 && shape[static_cast<int>(axis)] > 1)
      throw Error(ErrorKind::shape, "from_dlpack", "it runs backwards along an axis. Make a contiguous copy first",
                  where);
  }
  auto* const data = reinterpret_cast<T*>(static_cast<std::byte*>(array.data) + array.byte_offset);
  return TensorView<T, D>::strided(data, shape, strides, DlpackDevice<D>::at(array.device_id));
}

/// A tensor on that memory, which is given back when the tensor is destroyed. After an error the caller still has it.
/// Errors: as above; shape, unless contiguous; invalid_argument: null, of a later major version, or read-only (take a
/// `view_of_dlpack<T const>` of those).
template <class T, Device D = Cpu, class Managed>
  requires detail::DlpackElement<T> &&
           (std::is_same_v<Managed, DlpackTensor> || std::is_same_v<Managed, OldDlpackTensor>)
Tensor<T, D> from_dlpack(Managed* managed, std::source_location where = std::source_location::current()) {
  auto const refuse = [&](char const* why) {
    throw Error(ErrorKind::invalid_argument, "from_dlpack", why, where);
  };
  if (managed == nullptr) refuse("there is no tensor: the pointer is null");
  if constexpr (std::is_same_v<Managed, DlpackTensor>) {
    if (managed->major != 1) refuse("it follows another major version of DLPack than 1. Ask for max_version (1, 0)");
    if ((managed->flags & 1) != 0) refuse("it is read-only. Use view_of_dlpack<T const> or make a copy first");
  }
  auto const view = view_of_dlpack<T, D>(managed->array, where);
  if (!view.contiguous())
    throw Error(ErrorKind::shape, "from_dlpack",
                "its elements do not lie one after another. Make a contiguous copy first, or use view_of_dlpack",
                where);
  auto const release = [](void* owner, D const&, void*, std::size_t) noexcept {
    auto* const given = static_cast<Managed*>(owner);
    if (given->deleter != nullptr) given->deleter(given);
  };
  auto const bytes = static_cast<std::size_t>(view.size()) * sizeof(T);
  if (reinterpret_cast<std::uintptr_t>(view.data()) % alignof(T) != 0)
    refuse("its elements are not aligned for their type. Make a copy first");
  return Tensor<T, D>(view.shape(), Storage<D>(view.device(), view.data(), bytes, release, managed), where);
}

}  // namespace tutti

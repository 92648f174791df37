// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What collectives accept as buffers, and `Operand`: one of them made contiguous for the time of an operation.

#include <tutti/comm/buffer.hpp>
#include <tutti/comm/misuse.hpp>
#include <tutti/comm/staging.hpp>
#include <tutti/comm/strided_copy.hpp>
#include <tutti/comm/wire.hpp>
#include <tutti/core/checked.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/tensor/foreign.hpp>
#include <tutti/tensor/tensor.hpp>

#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace tutti::comm {

/// No buffer.
struct NoOperand {
  using Result = void;
  static constexpr bool borrows = false;
  void take() const noexcept {}
  void* data() const noexcept { return nullptr; }
  void* wire() const noexcept { return nullptr; }
  std::int64_t size() const noexcept { return 0; }
  void load() const noexcept {}
  void store() const noexcept {}
  bool detach(std::int64_t, bool) const noexcept { return false; }
  static constexpr bool lent() noexcept { return false; }
};

struct Borrow {};

/// A buffer for the time of an operation: borrowed, or owned when a tensor was moved in. T is const for an input. A
/// view with gaps is packed into a temporary, structs with padding are packed without it, and `store` brings results
/// back to where they belong. A borrowed buffer that is detached is not touched between `load` and `store`, and neither
/// is one that is staged.
template <class T, class D, bool Owned>
class Operand {
 public:
  using Value = std::remove_const_t<T>;
  using Place = D;
  static constexpr bool borrows = !Owned;
  static constexpr bool writable = !std::is_const_v<T>;
  static constexpr bool packable = !is_padded<Value> || D::host_accessible;  // operand_of refuses the others
  using Result = std::conditional_t<Owned, Tensor<Value, D>, TensorView<T, D>>;

  /// The view is made in its place.
  template <class X>
    requires(!Owned)
  Operand(Borrow, X&& buffer)
      : view_(view_of(buffer)), size_(view_.size()),
        contiguous_(is_tensor<std::remove_cvref_t<X>> || view_.contiguous()) {
    if constexpr (is_tensor<std::remove_cvref_t<X>>) moved_ = buffer.moved_from();
    if (!contiguous_) set_aside();
    if constexpr (padded) wire_ = Tensor<std::byte, D>(Shape{checked_multiply(size(), wire_bytes<Value>())});
    load();
  }
  explicit Operand(Tensor<Value, D> tensor)
    requires Owned
      : owned_(std::move(tensor)), view_(owned_.view()), size_(view_.size()), moved_(owned_.moved_from()) {
    if constexpr (padded) wire_ = Tensor<std::byte, D>(Shape{checked_multiply(size(), wire_bytes<Value>())});
    load();
  }

  T* data() const noexcept { return packed() ? static_cast<T*>(packed_.data()) : view_.data(); }
  std::int64_t size() const noexcept { return size_; }
  Shape const& shape() const noexcept { return view_.shape(); }
  /// Whether it is a tensor that was moved from.
  bool moved() const noexcept { return moved_; }
  bool overlaps_itself() const noexcept { return !contiguous_ && view_.overlaps_itself(); }
  /// What travels: size() * wire_bytes<Value>() bytes.
  void* wire() const noexcept {
    if constexpr (stages)
      if (staged()) return staged_.data();
    if constexpr (padded) return const_cast<std::byte*>(wire_.data());
    else return const_cast<Value*>(data());
  }
  /// Has a copy travel in place of borrowed memory of at most `limit` bytes; true when it now does. `reads`: what the
  /// buffer holds travels, or stays where nothing comes.
  bool detach(std::int64_t limit, bool reads) {
    if (!lent() || size() * static_cast<std::int64_t>(sizeof(T)) > limit) return false;
    set_aside();
    loads_ = reads;
    load();
    return true;
  }
  /// Has a copy in host memory travel, for a transport that does not reach the device; otherwise as `detach`.
  bool stage(bool reads)
    requires(!D::host_accessible)
  {
    if (staged() || size() == 0) return false;
    staged_ = PinnedMemory<D>(view_.device(), Storage<Cpu>(Cpu{}, PinnedMemory<D>::room(bytes())), bytes());
    loads_ = reads;
    load();
    return true;
  }
  D const& device() const noexcept { return view_.device(); }
  /// Whether memory of the caller travels.
  bool lent() const noexcept { return !Owned && !padded && !packed() && !staged() && size() != 0; }
  /// Packs what the buffer holds now.
  void load() {
    if (packed() && loads_) copy_strided<Value, D>(packed_view(), view_);
    if constexpr (stages)
      if (staged() && loads_) D(view_.device()).copy_to_host(staged_.data(), data(), bytes());
    if constexpr (padded) {
      std::byte* to = wire_.data();
      for (std::int64_t i = 0; i < size(); ++i) to = comm::pack(data()[i], to);
    }
  }
  void store() {
    if constexpr (!std::is_const_v<T>) {
      if constexpr (padded) {
        std::byte const* from = wire_.data();
        for (std::int64_t i = 0; i < size(); ++i) from = comm::unpack(from, data()[i]);
      }
      if constexpr (stages)
        if (staged()) D(view_.device()).copy_from_host(data(), staged_.data(), bytes());
      if (packed()) copy_strided<Value, D>(view_, packed_view());
    }
  }
  Result take() {
    if constexpr (Owned) return std::move(owned_);
    else return view_;
  }

 private:
  static constexpr bool padded = is_padded<Value> && D::host_accessible;
  static constexpr bool stages = !D::host_accessible;
  std::size_t bytes() const { return static_cast<std::size_t>(checked_multiply(size_, sizeof(Value))); }
  bool packed() const noexcept { return packed_.data() != nullptr; }
  bool staged() const noexcept {
    if constexpr (stages) return staged_.data() != nullptr;
    else return false;
  }
  void set_aside() { packed_ = Storage<D>(view_.device(), bytes()); }
  TensorView<Value, D> packed_view() const noexcept {
    return {static_cast<Value*>(packed_.data()), view_.shape(), view_.device()};
  }

  struct Absent {};
  [[no_unique_address]] std::conditional_t<Owned, Tensor<Value, D>, Absent> owned_;
  TensorView<T, D> view_;
  Storage<D> packed_;
  [[no_unique_address]] std::conditional_t<padded, Tensor<std::byte, D>, Absent> wire_;
  struct NotStaged {};
  [[no_unique_address]] std::conditional_t<stages, PinnedMemory<D>, NotStaged> staged_;
  std::int64_t size_;
  bool contiguous_ = true;
  bool moved_ = false;
  bool loads_ = true;
};

/// What a collective returns for x, where x lives.
template <Buffer X>
using TensorOf = Tensor<ValueOf<X>, DeviceOf<X>>;

/// Whether two operands hold elements of one type; one alone does.
template <class From, class To>
inline constexpr bool one_type = true;
template <class From, class To>
  requires requires { typename From::Value; }
inline constexpr bool one_type<From, To> = std::is_same_v<typename From::Value, typename To::Value>;

/// Memory that a transport may still write is never freed.
template <class X>
void keep_forever(X&& operand) noexcept {
  static_cast<void>(new (std::nothrow) std::remove_cvref_t<X>(std::move(operand)));
}

/// Of a container that was moved in; T is const for an input.
template <class T, class Container>
class ContainerOperand : public Operand<T, Cpu, false> {
  using Base = Operand<T, Cpu, false>;

 public:
  static constexpr bool borrows = false;
  using Result = Container;
  explicit ContainerOperand(Container&& container)
      : ContainerOperand(make_owner<Container>(std::move(container))) {}
  static constexpr bool lent() noexcept { return false; }
  Container take() { return std::move(*container_); }

 private:
  explicit ContainerOperand(Owner<Container> container)
      : Base(Borrow(), *container), container_(std::move(container)) {}
  Owner<Container> container_;  // where its elements stay when this is moved, even those inside of the object
};
/// What the request of an operation returns for a buffer that it fills, and for one that it only reads: the tensor or
/// container that was moved in, or a view of what was lent.
template <Buffer X>
using Received = std::conditional_t<is_owned<X> || is_moved_container<X>, std::remove_reference_t<X>, ViewOf<X>>;
template <Buffer X>
using Sent = std::conditional_t<is_owned<X> || is_moved_container<X>, std::remove_reference_t<X>,
                                TensorView<ValueOf<X> const, DeviceOf<X>>>;

/// The operand that is one number or struct.
template <class T>
auto one(T& value) {
  return Operand<T, Cpu, false>(Borrow(), TensorView<T>(&value, Shape{}));
}
template <class X>
auto operand_of(X&& x) {
  constexpr bool is_packed_here = !is_padded<ValueOf<X>> || DeviceOf<X>::host_accessible;
  static_assert(is_packed_here,
                "tutti: structs with padding are packed by the host, which cannot touch memory of this device. Order "
                "the members so that there is no padding");
  static_assert(outlives_call<X>,
                "tutti: an asynchronous operation cannot borrow a temporary array. Keep it in a variable, or move "
                "in a Tensor");
  constexpr bool sendable = is_sendable<ValueOf<X>>();
  static_assert(sendable,
                "tutti: a struct is sent by its members: elements, complex numbers, enumerations, plain structs, pairs "
                "and std::arrays of these. One of this struct's is something else");
  using V = ViewOf<X>;
  using T = std::remove_pointer_t<decltype(std::declval<V>().data())>;
  constexpr bool is_writable = !std::is_const_v<T>;
  static_assert(is_writable,
                "tutti: the receive buffer of this operation is const. Pass a tensor or view of mutable elements");
  if constexpr (is_owned<X>) return Operand<T, DeviceOf<X>, true>(std::move(x));
  else if constexpr (is_moved_container<X>) return ContainerOperand<T, X>(std::move(x));
  else return Operand<T, DeviceOf<X>, false>(Borrow(), x);
}
/// The same for a buffer that is only read.
template <class X>
auto input_of(X&& x) {
  constexpr bool is_packed_here = !is_padded<ValueOf<X>> || DeviceOf<X>::host_accessible;
  static_assert(is_packed_here,
                "tutti: structs with padding are packed by the host, which cannot touch memory of this device. Order "
                "the members so that there is no padding");
  static_assert(outlives_call<X>,
                "tutti: an asynchronous operation cannot borrow a temporary array. Keep it in a variable, or move "
                "in a Tensor");
  constexpr bool sendable = is_sendable<ValueOf<X>>();
  static_assert(sendable,
                "tutti: a struct is sent by its members: elements, complex numbers, enumerations, plain structs, pairs "
                "and std::arrays of these. One of this struct's is something else");
  if constexpr (is_owned<X>) return Operand<ValueOf<X>, DeviceOf<X>, true>(std::move(x));
  else if constexpr (is_moved_container<X>) return ContainerOperand<ValueOf<X> const, X>(std::move(x));
  else return Operand<ValueOf<X> const, DeviceOf<X>, false>(Borrow(), x);
}

}  // namespace tutti::comm

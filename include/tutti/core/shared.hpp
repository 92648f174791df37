// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// An object with several owners, in different threads too: std::shared_ptr without weak references and deleters, for
/// the reason of owner.hpp.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti {

template <class T>
class Shared;

namespace detail {

/// Stands in front of the object.
struct SharedCount {
  std::atomic<std::uint32_t> owners{1};
  void (*destroy)(SharedCount*) = nullptr;
};
template <class T>
struct SharedBlock : SharedCount {
  template <class... Arguments>
  explicit SharedBlock(Arguments&&... arguments) : object(static_cast<Arguments&&>(arguments)...) {
    destroy = [](SharedCount* count) { delete static_cast<SharedBlock*>(count); };
  }
  T object;
};

}  // namespace detail

/// The last owner deletes the object. Different owners may be used by different threads at the same time, one owner
/// may not.
template <class T>
class Shared {
 public:
  constexpr Shared() noexcept = default;
  constexpr Shared(std::nullptr_t) noexcept {}
  Shared(Shared const& other) noexcept : object_(other.object_), count_(other.count_) {
    if (count_ != nullptr) count_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Shared(Shared&& other) noexcept : object_(other.object_), count_(other.count_) { other.forget(); }
  /// From a class that derives from T.
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Shared(Shared<U> other) noexcept : object_(other.object_), count_(other.count_) {
    other.forget();
  }
  Shared& operator=(Shared other) noexcept {
    T* const object = object_;
    detail::SharedCount* const count = count_;
    object_ = other.object_;
    count_ = other.count_;
    other.object_ = object;
    other.count_ = count;
    return *this;
  }
  ~Shared() {
    if (count_ != nullptr && count_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) count_->destroy(count_);
  }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(Shared const& owner, std::nullptr_t) noexcept { return !owner; }

 private:
  template <class U>
  friend class Shared;
  template <class U, class... Arguments>
  friend Shared<U> make_shared_owner(Arguments&&... arguments);
  void forget() noexcept {
    object_ = nullptr;
    count_ = nullptr;
  }
  Shared(T* object, detail::SharedCount* count) noexcept : object_(object), count_(count) {}

  T* object_ = nullptr;
  detail::SharedCount* count_ = nullptr;
};

/// One allocation for the object and its count.
template <class T, class... Arguments>
Shared<T> make_shared_owner(Arguments&&... arguments) {
  auto* const block = new detail::SharedBlock<T>(static_cast<Arguments&&>(arguments)...);
  return Shared<T>(&block->object, block);
}

}  // namespace tutti

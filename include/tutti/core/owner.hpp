// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Owners of one object and of a fixed number of them. As std::unique_ptr without a deleter, which alone costs a
/// compiler as much as two hundred lines of code for every type that it is named with.

#include <cstddef>
#include <type_traits>

namespace tutti {

/// Deletes what it points to. Move-only.
template <class T>
class Owner {
 public:
  constexpr Owner() noexcept = default;
  constexpr Owner(std::nullptr_t) noexcept {}
  constexpr explicit Owner(T* pointer) noexcept : pointer_(pointer) {}
  constexpr Owner(Owner&& other) noexcept : pointer_(other.release()) {}
  /// From a class that derives from T, whose destructor is then virtual.
  template <class U>
    requires std::is_convertible_v<U*, T*>
  constexpr Owner(Owner<U>&& other) noexcept : pointer_(other.release()) {
    static_assert(std::has_virtual_destructor_v<T>, "tutti: deleting through this base needs its virtual destructor");
  }
  constexpr Owner& operator=(Owner&& other) noexcept {
    T* const before = pointer_;
    pointer_ = other.release();
    if (before != pointer_) delete before;
    return *this;
  }
  constexpr ~Owner() {
    static_assert(sizeof(T) > 0, "tutti: the type is not complete where it is deleted");
    delete pointer_;
  }

  constexpr T* get() const noexcept { return pointer_; }
  constexpr T& operator*() const noexcept { return *pointer_; }
  constexpr T* operator->() const noexcept { return pointer_; }
  constexpr explicit operator bool() const noexcept { return pointer_ != nullptr; }
  friend constexpr bool operator==(Owner const& owner, std::nullptr_t) noexcept { return !owner; }
  /// Gives the object up without deleting it.
  [[nodiscard]] constexpr T* release() noexcept {
    T* const pointer = pointer_;
    pointer_ = nullptr;
    return pointer;
  }

 private:
  T* pointer_ = nullptr;
};

template <class T, class... Arguments>
Owner<T> make_owner(Arguments&&... arguments) {
  return Owner<T>(new T(static_cast<Arguments&&>(arguments)...));
}

/// `size` value-initialised elements that never move: atomics, mutexes. Move-only.
template <class T>
class Array {
 public:
  constexpr Array() noexcept = default;
  constexpr explicit Array(std::size_t size) : data_(new T[size]()), size_(size) {}
  constexpr Array(Array&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  constexpr Array& operator=(Array&& other) noexcept {
    T* const data = other.data_;
    std::size_t const size = other.size_;
    other.data_ = data_;
    other.size_ = size_;
    data_ = data;
    size_ = size;
    return *this;
  }
  constexpr ~Array() { delete[] data_; }

  constexpr std::size_t size() const noexcept { return size_; }
  constexpr T* data() const noexcept { return data_; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tutti

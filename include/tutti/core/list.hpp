// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A growable array. std::vector would do, at two prices: naming one costs every file that includes the library fifteen
/// times as much to compile (ADR 0004), and in constant expressions it constructs and destroys every element by a call,
/// so that tracing and differentiating one GPT block takes more than the million steps that clang allows by default.
/// This takes a fifth of them.

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace tutti {

/// As std::vector, for default-constructible types. What elements own is released when they are removed.
template <class T>
class List {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = T const*;

  constexpr List() = default;
  // They delegate, so that the destructor runs when a copy throws.
  constexpr List(std::initializer_list<T> values) : List() { append(values.begin(), values.end()); }
  constexpr explicit List(std::size_t count) : List() { resize(count); }
  constexpr List(std::size_t count, T const& value) : List() { assign(count, value); }
  template <class Iterator>
    requires requires(Iterator it) { *it; }
  constexpr List(Iterator first, Iterator last) : List() {
    append(first, last);
  }
  constexpr List(List const& other) : List() { append(other.begin(), other.end()); }
  constexpr List(List&& other) noexcept { swap(other); }
  constexpr List& operator=(List other) noexcept {
    swap(other);
    return *this;
  }
  constexpr ~List() { delete[] data_; }

  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* data() noexcept { return data_; }
  constexpr T const* data() const noexcept { return data_; }
  constexpr T* begin() noexcept { return data_; }
  constexpr T const* begin() const noexcept { return data_; }
  constexpr T* end() noexcept { return data_ + size_; }
  constexpr T const* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t i) noexcept { return data_[i]; }
  constexpr T const& operator[](std::size_t i) const noexcept { return data_[i]; }
  constexpr T& front() noexcept { return data_[0]; }
  constexpr T const& front() const noexcept { return data_[0]; }
  constexpr T& back() noexcept { return data_[size_ - 1]; }
  constexpr T const& back() const noexcept { return data_[size_ - 1]; }

  constexpr void push_back(T value) {
    if (size_ == capacity_) reserve(size_ < 8 ? 8 : 2 * size_);
    data_[size_++] = std::move(value);
  }
  constexpr void pop_back() { cut(size_ - 1); }
  constexpr void clear() { cut(0); }
  /// Removes one element; the others keep their order.
  constexpr void erase(std::size_t index) {
    for (std::size_t i = index; i + 1 < size_; ++i) data_[i] = std::move(data_[i + 1]);
    cut(size_ - 1);
  }
  /// Removes the elements for which f is true; the others keep their order.
  template <class F>
  constexpr void erase_if(F&& f) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (f(data_[i])) continue;
      if (kept != i) data_[kept] = std::move(data_[i]);
      ++kept;
    }
    cut(kept);
  }
  /// The range is not part of this list.
  template <class Iterator>
  constexpr void append(Iterator first, Iterator last) {
    auto const count = static_cast<std::size_t>(last - first);
    if (size_ + count > capacity_) reserve(size_ + count < 2 * size_ ? 2 * size_ : size_ + count);
    for (; first != last; ++first) data_[size_++] = static_cast<T>(*first);
  }
  constexpr void append(List const& other) {
    if (&other == this) return append(List(other));
    append(other.begin(), other.end());
  }
  constexpr void assign(std::size_t count, T value) {
    cut(0);
    reserve(count);
    while (size_ < count) data_[size_++] = value;
  }
  constexpr void resize(std::size_t count) {
    if (count < size_) return cut(count);
    if (count > capacity_) reserve(count < 2 * capacity_ ? 2 * capacity_ : count);
    while (size_ < count) data_[size_++] = T{};
  }
  constexpr void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    List grown;  // owns the memory while elements are moved
    grown.data_ = new T[capacity];
    grown.capacity_ = capacity;
    for (; grown.size_ < size_; ++grown.size_) grown.data_[grown.size_] = std::move(data_[grown.size_]);
    swap(grown);
  }

  /// Keeps the order of equal elements, as std::stable_sort does: merges runs, without a template per iterator.
  template <class Less>
  constexpr void stable_sort(Less&& less) {
    List other(size_);
    for (std::size_t width = 1; width < size_; width *= 2) {
      for (std::size_t begin = 0; begin < size_; begin += 2 * width) {
        std::size_t const middle = begin + width < size_ ? begin + width : size_;
        std::size_t const end = middle + width < size_ ? middle + width : size_;
        for (std::size_t a = begin, b = middle, to = begin; to < end; ++to) {
          bool const second = a == middle || (b < end && less(data_[b], data_[a]));
          other.data_[to] = std::move(data_[second ? b++ : a++]);
        }
      }
      other.size_ = size_;
      swap(other);
    }
  }

  friend constexpr bool operator==(List const& a, List const& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  constexpr void cut(std::size_t count) {
    if (!std::is_constant_evaluated())  // there nothing is owned that could run short
      for (std::size_t i = count; i < size_; ++i) data_[i] = T{};
    size_ = count;
  }
  // By hand: std::swap and std::exchange cost a compiler more than this for every type that they are named with.
  constexpr void swap(List& other) noexcept {
    T* const data = other.data_;
    std::size_t const size = other.size_, capacity = other.capacity_;
    other.data_ = data_;
    other.size_ = size_;
    other.capacity_ = capacity_;
    data_ = data;
    size_ = size;
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace tutti

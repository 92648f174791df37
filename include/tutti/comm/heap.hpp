// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A communicator's heap: memory that the ranks of one node reach without a copy where the backend has such memory,
/// private memory otherwise.

#include <tutti/comm/core.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <utility>

namespace tutti {
namespace comm {

/// `bytes` of the heap of `core`'s backend.
template <Backend B>
Storage<typename B::Device> heap_memory(Core<B>& core, std::size_t bytes) {
  if constexpr (Allocates<B>) return core.backend.allocate(bytes);
  else return Storage<typename B::Device>(typename B::Device{}, bytes);
}

template <Backend B>
class Heap {
 public:
  explicit Heap(Shared<Core<B>> core) noexcept : core_(std::move(core)) {}
  /// Local, without communication. 64-byte aligned, contents indeterminate. Errors: out_of_memory.
  Storage<typename B::Device> allocate(std::size_t bytes,
                                       std::source_location where = std::source_location::current()) const {
    return heap_memory(held(where), bytes);
  }
  /// Whether other ranks of the node reach this memory without a copy.
  bool shared(std::source_location where = std::source_location::current()) const {
    [[maybe_unused]] Core<B>& core = held(where);
    if constexpr (Allocates<B>) return core.backend.shares_memory();
    else return false;
  }

 private:
  Core<B>& held(std::source_location where) const {
    if (core_ == nullptr) throw_moved("heap", where);
    return *core_;
  }
  Shared<Core<B>> core_;
};

}  // namespace comm

/// A tensor on the communicator's heap. Elements are indeterminate.
template <Storable T, class Comm>
  requires requires(Comm const& comm, std::source_location where) { comm.heap(where); }
Tensor<T, typename Comm::Device> tensor(Comm const& comm, Shape shape,
                                        std::source_location where = std::source_location::current()) {
  auto const bytes = checked_multiply(shape.size(), sizeof(T), where);
  return Tensor<T, typename Comm::Device>(shape, comm.heap(where).allocate(static_cast<std::size_t>(bytes), where));
}

template <NotStorable T, class Comm>
Tensor<T, typename Comm::Device> tensor(Comm const& comm, Shape shape);
template <class T, class Comm, std::integral First, std::integral... Rest>
detail::NoBraces<First, Rest...> tensor(Comm const&, First, Rest...);

}  // namespace tutti

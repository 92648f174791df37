// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where tensors live: the `Device` concept and its first model, `Cpu`.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/pages.hpp>

#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti {

/// Alignment of every allocation, in bytes: a cache line and the widest vector register.
inline constexpr std::size_t storage_alignment = 64;

/// A kind of memory, as a small value (a Cuda device carries its index). Two equal values share memory.
///
/// Minimal operations, `d` a `D`, `p` memory of `d`, `h` memory of the host:
///   D::name              std::string_view, for messages
///   D::host_accessible   whether the host may dereference the memory
///   d.allocate(bytes)    `storage_alignment`-aligned; throws Error(out_of_memory); zero bytes give nullptr
///   d.deallocate(p, bytes)
///   d.copy_within(p, q, bytes)       q to p, both of this device, not overlapping
///   d.copy_from_host(p, h, bytes)    blocking
///   d.copy_to_host(h, p, bytes)      blocking
/// All of them accept zero bytes, then with any pointers.
/// Optional, for copies beside other work; where they are missing, collectives copy with the blocking ones:
///   D::Copy                          a copy under way; default constructed it is complete; move-only
///   d.start_copy_from_host(p, h, bytes), d.start_copy_to_host(h, p, bytes)  -> D::Copy
///   d.test(copy)                     true once complete, and from then on; does not block
///   d.pin(h, bytes), d.unpin(h, bytes)   makes the host's memory fit for them, and no longer
/// Law: copy_to_host after copy_from_host gives the same bytes. Models: Cpu, the tests' instrumented device.
template <class D>
concept Device = std::is_class_v<D> &&
                 requires(D device, D const constant, void* to, void const* from, std::size_t bytes) {
                   D();
                   D(constant);
                   device = constant;
                   { constant == constant } -> std::same_as<bool>;
                   static_cast<std::string_view>(D::name);
                   static_cast<bool>(D::host_accessible);
                   { device.allocate(bytes) } -> std::same_as<void*>;
                   device.deallocate(to, bytes);
                   device.copy_within(to, from, bytes);
                   device.copy_from_host(to, from, bytes);
                   device.copy_to_host(to, from, bytes);
                 };
template <class D>
concept NotDevice = !Device<D>;

/// Host memory.
struct Cpu {
  static constexpr std::string_view name = "cpu";
  static constexpr bool host_accessible = true;

  template <class = void>
  void* allocate(std::size_t bytes) const {
    if (bytes == 0) return nullptr;
    // From a few huge pages on at the bounds of one, so that the system can give them: fewer faults, and fewer misses
    // when addresses are translated.
    std::size_t const alignment = pages::have_huge && bytes >= 2 * pages::huge ? pages::huge : storage_alignment;
    std::size_t const rounded = (bytes + storage_alignment - 1) / storage_alignment * storage_alignment;
    void* memory = nullptr;
    if (rounded < bytes || ::posix_memalign(&memory, alignment, rounded) != 0)
      throw Error(ErrorKind::out_of_memory, "Cpu::allocate",
                  concat(bytes, " bytes of host memory are not available"));
    if (alignment == pages::huge) pages::prefer_huge(memory, bytes / pages::huge * pages::huge);
    return memory;
  }
  void deallocate(void* memory, std::size_t) const noexcept { std::free(memory); }
  void copy_within(void* to, void const* from, std::size_t bytes) const noexcept {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void copy_from_host(void* to, void const* from, std::size_t bytes) const noexcept { copy_within(to, from, bytes); }
  void copy_to_host(void* to, void const* from, std::size_t bytes) const noexcept { copy_within(to, from, bytes); }

  friend bool operator==(Cpu, Cpu) = default;
};

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whole pages of memory from the system, and what it can be told about pages. Where the system has no mappings
/// (WebAssembly), they come from the heap.

#include <tutti/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#if !TUTTI_WASM
#include <cerrno>
#include <fcntl.h>
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tutti::pages {

inline constexpr std::size_t huge = std::size_t{2} << 20;  ///< bytes of a huge page
inline constexpr bool have_huge = !TUTTI_WASM;             ///< whether there are any

/// Asks for huge pages under `bytes` of memory that begins at the bounds of one; the system may decline.
inline void prefer_huge([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if !TUTTI_WASM
  ::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

/// Of memory that begins at the bounds of a page, of which parts are never touched: pages no larger than they must be.
inline void prefer_small([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if !TUTTI_WASM
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);
#endif
}

/// Memory of zeros, resident from the first touch on where the system has mappings; null where there is not enough.
inline void* map_zeros(std::size_t bytes) noexcept {
#if TUTTI_WASM
  constexpr std::size_t page = 4096;
  std::size_t const rounded = (bytes + page - 1) / page * page;
  void* const memory = rounded < bytes ? nullptr : std::aligned_alloc(page, rounded);
  return memory == nullptr ? nullptr : std::memset(memory, 0, bytes);
#else
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
#endif
}
#if !TUTTI_WASM
/// The same in a file of its own in `folder`, which has no name and goes with the mapping: the system writes there what
/// memory has no room for. All of the file is reserved, since a disk that is full at a first touch ends the process.
/// Null, and the number of the error, where that is not possible.
template <class = void>
void* map_file_of_zeros(std::string const& folder, std::size_t bytes, int& error) {
  int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // a file system without nameless files
    std::string name = folder + "/tutti-XXXXXX";
    file = ::mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) ::unlink(name.c_str());
  }
  error = file < 0 ? errno : ::posix_fallocate(file, 0, static_cast<::off_t>(bytes));
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  if (file >= 0) ::close(file);
  return memory == MAP_FAILED ? nullptr : memory;
}
#endif

/// Gives memory of either kind back.
inline void unmap(void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if TUTTI_WASM
  std::free(memory);
#else
  ::munmap(memory, bytes);
#endif
}

/// Gives memory that the heap holds, and nobody uses, back to the system, where it can.
inline void return_free_heap() noexcept {
#if defined(__GLIBC__) && !TUTTI_WASM
  ::malloc_trim(0);
#endif
}

/// Makes zeros of memory of `map_zeros`; whole pages go back to the system until they are touched.
template <class = void>
void clear(std::byte* first, std::size_t bytes) noexcept {
#if !TUTTI_WASM
  constexpr std::size_t page = 4096;
  std::size_t const before = (page - reinterpret_cast<std::uintptr_t>(first) % page) % page;
  std::size_t const whole = bytes < before ? 0 : (bytes - before) / page * page;
  if (whole != 0 && ::madvise(first + before, whole, MADV_DONTNEED) == 0) {
    std::memset(first, 0, before);
    std::memset(first + before + whole, 0, bytes - before - whole);
    return;
  }
#endif
  std::memset(first, 0, bytes);
}

}  // namespace tutti::pages

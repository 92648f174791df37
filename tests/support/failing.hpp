// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Allocations, starts of threads and openings of files fail once in turn, at each place of the program. For one source
/// of a program of its own: it replaces operator new, and stands before libc for pthread_create, open and fopen.

#include "support/catch.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::test {

/// Operations that may still go well; negative: all.
inline std::atomic<std::int64_t> before_failure{-1};
inline std::atomic<std::int64_t> operations{0}, living{0};

/// The calls that led to each operation, as one number, while `notes_places`. Threads that go on may note one as it
/// ends.
inline std::atomic<bool> notes_places{false};
inline std::mutex places_mutex;
inline std::vector<std::size_t> places;  // never longer than it has room for

inline void note_place() noexcept {
  std::lock_guard const lock(places_mutex);
  if (places.size() == places.capacity()) return;
  void* calls[64];
  int const depth = ::backtrace(calls, 64);
  places.push_back(std::hash<std::string_view>{}(
      {reinterpret_cast<char const*>(calls), sizeof(void*) * static_cast<std::size_t>(depth)}));
}

inline bool fails() noexcept {
  operations.fetch_add(1, std::memory_order_relaxed);
  if (notes_places.load(std::memory_order_relaxed)) note_place();
  std::int64_t left = before_failure.load(std::memory_order_relaxed);
  while (left >= 0)
    if (before_failure.compare_exchange_weak(left, left - 1)) return left == 0;
  return false;
}

inline void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (fails()) return nullptr;
  std::size_t const rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                              : std::aligned_alloc(alignment, rounded);
  if (memory != nullptr) living.fetch_add(1, std::memory_order_relaxed);
  return memory;
}
inline void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
inline void release(void* memory) noexcept {
  if (memory == nullptr) return;
  living.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

template <class F>
F* real(char const* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace tutti::test

void* operator new(std::size_t bytes) { return tutti::test::allocate_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return tutti::test::allocate_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t to) {
  return tutti::test::allocate_or_throw(bytes, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t bytes, std::align_val_t to) {
  return tutti::test::allocate_or_throw(bytes, static_cast<std::size_t>(to));
}
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept { return tutti::test::allocate(bytes, 1); }
void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept { return tutti::test::allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t to, std::nothrow_t const&) noexcept {
  return tutti::test::allocate(bytes, static_cast<std::size_t>(to));
}
void operator delete(void* memory) noexcept { tutti::test::release(memory); }
void operator delete[](void* memory) noexcept { tutti::test::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { tutti::test::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { tutti::test::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { tutti::test::release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { tutti::test::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { tutti::test::release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { tutti::test::release(memory); }

extern "C" {
int pthread_create(pthread_t* thread, pthread_attr_t const* attributes, void* (*start)(void*), void* argument) {
  if (tutti::test::fails()) return EAGAIN;
  static auto* const create = tutti::test::real<decltype(pthread_create)>("pthread_create");
  return create(thread, attributes, start, argument);
}
// With offsets of 64 bits, as Meson has them everywhere, these two are open64 and fopen64.
int open(char const* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  int const mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if (tutti::test::fails()) {
    errno = EMFILE;
    return -1;
  }
  static auto* const call = tutti::test::real<int(char const*, int, ...)>("open64");
  return call(path, flags, mode);
}
std::FILE* fopen(char const* path, char const* mode) {
  if (tutti::test::fails()) {
    errno = EMFILE;
    return nullptr;
  }
  static auto* const call = tutti::test::real<std::FILE*(char const*, char const*)>("fopen64");
  return call(path, mode);
}
}

namespace tutti::test {

/// A thread that has answered gives back what it had a moment later.
inline bool settles_at(std::int64_t held) {
  for (int i = 0; i < 2000 && living > held; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return living <= held;
}

/// Which operations of f fail: of those that the same calls lead to, as the rounds of a loop, the first two and the
/// last.
template <class F>
std::set<std::int64_t> operations_to_fail(F&& f, std::int64_t count) {
  void* call = nullptr;
  ::backtrace(&call, 1);  // loads its library
  std::vector<std::size_t> noted;
  noted.reserve(2 * static_cast<std::size_t>(count));
  places.swap(noted);
  notes_places = true;
  f();
  notes_places = false;
  {
    std::lock_guard const lock(places_mutex);
    places.swap(noted);
  }
  std::map<std::size_t, std::vector<std::int64_t>> of_place;
  for (std::size_t n = 0; n < noted.size(); ++n) of_place[noted[n]].push_back(static_cast<std::int64_t>(n));
  std::set<std::int64_t> chosen;
  for (auto const& [place, at] : of_place)
    chosen.insert({at[0], at[std::min<std::size_t>(1, at.size() - 1)], at.back()});
  return chosen;
}

/// Tries f with operations failing once in turn, at each place that it has. f returns what it has made; `check` says
/// whether that is right, and `after` what must hold when f has failed. `room`: allocations that what goes on may keep
/// altogether, such as those of texts that are empty again.
template <class F, class Check, class After>
void each_fails_once(F&& f, Check&& check, After&& after, std::int64_t room) {
  check(f());  // what is made once in a process is made now
  std::int64_t const begin = operations;
  check(f());
  std::int64_t const count = operations - begin;
  std::set<std::int64_t> const chosen = operations_to_fail(f, count);
  std::printf("%zu of %lld operations fail in turn\n", chosen.size(), static_cast<long long>(count));
  REQUIRE(chosen.size() > 20);
  std::int64_t failed = 0, held = living;
  for (std::int64_t const n : chosen) {
    CAPTURE(n);
    if (room == 0) held = living;
    before_failure = n;
    try {
      auto const made = f();
      before_failure = -1;
      check(made);  // it went well without what has failed
    } catch (std::exception const&) {
      before_failure = -1;
      ++failed;
      after();
    }
    check(f());  // the next call works, and all is as before
    bool const kept_none = settles_at(held + room);
    REQUIRE(kept_none);
  }
  INFO(failed << " of " << chosen.size() << " failed");
  CHECK(failed > 5);
}

template <class F, class Check>
void each_fails_once(F&& f, Check&& check) {
  each_fails_once(
      f, check, [] {}, 0);
}

}  // namespace tutti::test

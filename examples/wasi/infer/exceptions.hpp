// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
// Exceptions of C++ in WebAssembly, for programs that are compiled with -fwasm-exceptions: Debian's libc++ and
// libc++abi for wasm32 are built without them. One source of a program includes this header. What throws here unwinds
// frames and runs destructors by the engine's own instructions (Node from 17, Chromium from 95, Firefox from 100,
// Safari from 15.2).
//
// What it defines is what the compiler calls (the Itanium C++ ABI, level II, and the interface of LLVM's WebAssembly
// exceptions), as libc++abi does where it is built with exceptions. Threads are not known here. Code of libc++ itself
// (its .a) throws nothing: what would throw there ends the instance by a trap; templates of its headers throw.
//
// Sources: https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html,
//          https://github.com/WebAssembly/tool-conventions/blob/main/EHScheme.md

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

#ifndef __wasm_exception_handling__
#error "exceptions.hpp is for programs that are compiled with -fwasm-exceptions"
#endif

namespace __cxxabiv1 {
/// The part of libc++abi's types that says whether a handler of this type takes what is thrown.
class __shim_type_info : public std::type_info {
 public:
  ~__shim_type_info() override;
  virtual void noop1() const;
  virtual void noop2() const;
  virtual bool can_catch(__shim_type_info const* thrown, void*& adjusted) const = 0;
};
}  // namespace __cxxabiv1

namespace tutti_exceptions {

struct Object;

/// One way of an object through frames. What the engine carries is the address of it.
struct Flight {
  Object* object;
  void* adjusted;  // the object as the handler's type has it
  int handlers;    // that have begun and not ended; negative after `throw;`
  Flight* below;   // in the stack of what is caught
};
/// Stands before what was thrown.
struct alignas(16) Object {
  std::type_info* type;
  void* (*destroy)(void*);  // destructors return their object here
  int references;
  bool reserved;  // in the memory below
  Flight first;   // its first way
};

inline Flight* caught = nullptr;
inline unsigned uncaught = 0;

/// For what is thrown when memory is full.
inline constexpr std::size_t reserve_slots = 8, reserve_bytes = 512;
alignas(16) inline unsigned char reserve[reserve_slots][reserve_bytes];
inline bool reserve_used[reserve_slots];

inline Object* object_of(void* thrown) { return static_cast<Object*>(thrown) - 1; }

inline void release(Object* object) {
  if (--object->references != 0) return;
  if (object->destroy != nullptr) object->destroy(object + 1);
  if (!object->reserved) std::free(object);
  else reserve_used[std::size_t(reinterpret_cast<unsigned char*>(object) - reserve[0]) / reserve_bytes] = false;
}
/// Not inlined: clang cannot compile the instruction between handlers.
[[noreturn, gnu::noinline]] inline void fly(Flight* flight) {
  ++uncaught;
  __builtin_wasm_throw(0, flight);
}

/// Reads the compiler's table of a function.
struct Table {
  unsigned char const* at;
  std::uint32_t number() {
    std::uint32_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      value |= std::uint32_t(*at & 127u) << shift;
      if (*at++ < 128) return value;
    }
  }
  std::int32_t signed_number() {
    std::uint32_t value = 0;
    unsigned shift = 0;
    do {
      value |= std::uint32_t(*at & 127u) << shift;
      shift += 7;
    } while (*at++ >= 128);
    if ((at[-1] & 64u) != 0 && shift < 32) value |= ~std::uint32_t(0) << shift;
    return std::int32_t(value);
  }
};

}  // namespace tutti_exceptions

extern "C" {

/// Between a function that catches and the search below: the function sets the first two.
struct tutti_landing_pad {
  std::size_t index;
  unsigned char const* table;
  std::size_t selector;
};
constinit thread_local tutti_landing_pad __wasm_lpad_context{};

/// Which handler of the landing pad takes what flies: `selector`, 0 for none.
int _Unwind_CallPersonality(void* exception) {
  using namespace tutti_exceptions;
  auto* const flight = static_cast<Flight*>(exception);
  tutti_landing_pad& pad = __wasm_lpad_context;
  pad.selector = 0;
  Table table{pad.table};
  if (*table.at++ != 0xff) std::abort();  // the landing pads' base: none in WebAssembly
  unsigned const encoding = *table.at++;
  if (encoding == 0xff) return 0;  // no types
  if (encoding != 0) std::abort();  // absolute addresses are what there is
  std::uint32_t const to_types = table.number();
  auto const* const types = reinterpret_cast<std::type_info const* const*>(table.at + to_types);
  ++table.at;  // the encoding of call sites
  std::uint32_t const sites = table.number();
  unsigned char const* const actions = table.at + sites;
  std::uint32_t action = 0;
  for (std::size_t i = 0; i <= pad.index; ++i) table.number(), action = table.number();
  while (action != 0) {
    Table record{actions + action - 1};
    std::int32_t const type = record.signed_number();
    unsigned char const* const next_at = record.at;
    std::int32_t const next = record.signed_number();
    if (type > 0) {
      auto const* const handler = static_cast<__cxxabiv1::__shim_type_info const*>(types[-type]);
      auto const* const thrown = static_cast<__cxxabiv1::__shim_type_info const*>(flight->object->type);
      void* adjusted = flight->object + 1;
      if (handler == nullptr || handler->can_catch(thrown, adjusted)) {
        flight->adjusted = adjusted;
        pad.selector = std::size_t(type);
        return 0;
      }
    }
    if (next == 0) return 0;
    action = std::uint32_t(next_at + next - actions) + 1;
  }
  return 0;
}

void* __cxa_allocate_exception(std::size_t bytes) noexcept {
  using namespace tutti_exceptions;
  std::size_t const needed = sizeof(Object) + bytes;
  auto* object = static_cast<Object*>(std::malloc(needed));
  bool const reserved = object == nullptr;
  for (std::size_t i = 0; object == nullptr && i < reserve_slots && needed <= reserve_bytes; ++i)
    if (!reserve_used[i]) reserve_used[i] = true, object = reinterpret_cast<Object*>(reserve[i]);
  if (object == nullptr) std::abort();
  *object = {nullptr, nullptr, 1, reserved, {object, object + 1, 0, nullptr}};
  return object + 1;
}
void __cxa_free_exception(void* thrown) noexcept {
  using namespace tutti_exceptions;
  object_of(thrown)->destroy = nullptr;  // it was never made
  release(object_of(thrown));
}
[[noreturn]] void __cxa_throw(void* thrown, std::type_info* type, void* (*destroy)(void*)) {
  using namespace tutti_exceptions;
  Object* const object = object_of(thrown);
  object->type = type;
  object->destroy = destroy;
  fly(&object->first);
}
void* __cxa_get_exception_ptr(void* exception) noexcept {
  return static_cast<tutti_exceptions::Flight*>(exception)->adjusted;
}
void* __cxa_begin_catch(void* exception) noexcept {
  using namespace tutti_exceptions;
  auto* const flight = static_cast<Flight*>(exception);
  flight->handlers = flight->handlers < 0 ? 1 - flight->handlers : 1 + flight->handlers;
  if (caught != flight) flight->below = caught, caught = flight;
  --uncaught;
  return flight->adjusted;
}
void __cxa_end_catch() {
  using namespace tutti_exceptions;
  Flight* const flight = caught;
  if (flight == nullptr) return;
  if (flight->handlers < 0) {  // it flies on
    if (++flight->handlers == 0) caught = flight->below;
    return;
  }
  if (--flight->handlers != 0) return;
  caught = flight->below;
  Object* const object = flight->object;
  if (flight != &object->first) std::free(flight);
  release(object);
}
[[noreturn]] void __cxa_rethrow() {
  using namespace tutti_exceptions;
  if (caught == nullptr) std::terminate();
  caught->handlers = -caught->handlers;
  fly(caught);
}
std::type_info* __cxa_current_exception_type() {
  using namespace tutti_exceptions;
  return caught == nullptr ? nullptr : caught->object->type;
}
bool __cxa_uncaught_exception() noexcept { return tutti_exceptions::uncaught != 0; }
unsigned __cxa_uncaught_exceptions() noexcept { return tutti_exceptions::uncaught; }

// Of std::exception_ptr.
void __cxa_increment_exception_refcount(void* thrown) noexcept {
  if (thrown != nullptr) ++tutti_exceptions::object_of(thrown)->references;
}
void __cxa_decrement_exception_refcount(void* thrown) noexcept {
  if (thrown != nullptr) tutti_exceptions::release(tutti_exceptions::object_of(thrown));
}
void* __cxa_current_primary_exception() noexcept {
  using namespace tutti_exceptions;
  if (caught == nullptr) return nullptr;
  ++caught->object->references;
  return caught->object + 1;
}
void __cxa_rethrow_primary_exception(void* thrown) {
  using namespace tutti_exceptions;
  if (thrown == nullptr) return;
  Object* const object = object_of(thrown);
  auto* const flight = static_cast<Flight*>(std::malloc(sizeof(Flight)));
  if (flight == nullptr) std::abort();
  ++object->references;
  *flight = {object, thrown, 0, nullptr};
  fly(flight);
}

}  // extern "C"

// The library's own end the program where memory is full.
namespace tutti_exceptions {
inline void* allocate(std::size_t bytes, std::size_t alignment) {
  std::size_t const rounded = (bytes + alignment - 1) / alignment * alignment;
  return rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}
inline void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace tutti_exceptions

void* operator new(std::size_t n) { return tutti_exceptions::or_throw(std::malloc(n == 0 ? 1 : n)); }
void* operator new[](std::size_t n) { return ::operator new(n); }
void* operator new(std::size_t n, std::nothrow_t const&) noexcept { return std::malloc(n == 0 ? 1 : n); }
void* operator new[](std::size_t n, std::nothrow_t const&) noexcept { return std::malloc(n == 0 ? 1 : n); }
void* operator new(std::size_t n, std::align_val_t a) {
  return tutti_exceptions::or_throw(tutti_exceptions::allocate(n, std::size_t(a)));
}
void* operator new[](std::size_t n, std::align_val_t a) { return ::operator new(n, a); }
void* operator new(std::size_t n, std::align_val_t a, std::nothrow_t const&) noexcept {
  return tutti_exceptions::allocate(n, std::size_t(a));
}
void* operator new[](std::size_t n, std::align_val_t a, std::nothrow_t const&) noexcept {
  return tutti_exceptions::allocate(n, std::size_t(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::nothrow_t const&) noexcept { std::free(p); }
void operator delete[](void* p, std::nothrow_t const&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, std::nothrow_t const&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, std::nothrow_t const&) noexcept { std::free(p); }

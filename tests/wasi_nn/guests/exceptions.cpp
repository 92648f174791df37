// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/error.hpp>
// Exceptions of C++ in WebAssembly, by examples/wasi/infer/exceptions.hpp: a module for check_exceptions.mjs, whose
// exported `failed` gives the number of the first promise that is not kept, or 0.
#include "exceptions.hpp"

#include <tutti/core/error.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

int alive = 0;
struct Counted {
  Counted() { ++alive; }
  Counted(Counted const&) { ++alive; }
  ~Counted() { --alive; }
};
struct First {
  virtual ~First() = default;
  int first = 1;
};
struct Second {
  virtual ~Second() = default;
  int second = 2;
};
struct Both : First, Second {
  Counted counted;
};

[[gnu::noinline]] void raise(int kind) {
  Counted const here;
  if (kind == 1) throw 7;
  if (kind == 2) throw Both();
  if (kind == 3) throw std::length_error("a text that is long enough for the heap");
  if (kind == 4) throw "text";
}
[[gnu::noinline]] int kind_of(int kind) {
  try {
    raise(kind);
    return 0;
  } catch (int value) {
    return value;
  } catch (Second const& error) {
    return 10 + error.second;
  } catch (std::out_of_range const&) {
    return -1;
  } catch (std::exception const& error) {
    return 20 + int(std::string(error.what()).size());
  } catch (...) {
    return 30;
  }
}
/// Handlers of another type let it pass; `throw;` goes on with the same object.
[[gnu::noinline]] int through(int kind) {
  try {
    try {
      raise(kind);
    } catch (std::out_of_range const&) {
      return -1;
    } catch (First const&) {
      throw;
    }
  } catch (First const& error) {
    return error.first;
  } catch (int value) {
    return value;
  }
  return 0;
}
/// Of a handler comes another, while the first is still held.
[[gnu::noinline]] int nested() {
  try {
    try {
      raise(1);
    } catch (int value) {
      Counted const here;
      raise(value - 5);
    }
  } catch (Second const& error) {
    try {
      raise(3);
    } catch (std::logic_error const&) {
      return error.second;
    }
  }
  return 0;
}
[[gnu::noinline]] int kept() {
  std::exception_ptr kept;
  try {
    raise(2);
  } catch (...) {
    kept = std::current_exception();
  }
  if (!kept || std::uncaught_exceptions() != 0) return 0;
  int seen = 0;
  for (int i = 0; i < 3; ++i)
    try {
      std::rethrow_exception(kept);
    } catch (First const& error) {
      try {
        std::rethrow_exception(std::current_exception());
      } catch (Second const& again) {
        seen += error.first + again.second;
      }
    }
  return seen;
}
/// The module is linked with 16 MB of memory at most.
[[gnu::noinline]] int full() {
  int seen = 0;
  try {
    std::vector<char> const large(std::size_t{1} << 31, 'x');
    return int(large.size() >> 31);
  } catch (std::length_error const&) {
    ++seen;
  }
  try {
    std::vector<char> const large(std::size_t{1} << 25, 'x');
    return int(large.size() >> 25);
  } catch (std::bad_alloc const&) {
    ++seen;
  }
  // What is left of memory is taken; what is thrown then has a place of its own.
  std::vector<std::unique_ptr<char[]>> taken;
  taken.reserve(1 << 16);
  try {
    for (std::size_t size = std::size_t{1} << 22; taken.size() < 1 << 16;)
      if (char* const part = new (std::nothrow) char[size]) taken.emplace_back(part);
      else if (size > 16) size /= 2;
      else taken.emplace_back(new char[64]);
  } catch (std::bad_alloc const&) {
    ++seen;
  }
  return seen;
}

}  // namespace

extern "C" __attribute__((export_name("failed"))) int failed() {
  if (kind_of(0) != 0) return 1;
  if (kind_of(1) != 7) return 2;
  if (kind_of(2) != 12) return 3;
  if (kind_of(3) != 59) return 4;
  if (kind_of(4) != 30) return 5;
  if (through(1) != 7) return 6;
  if (through(2) != 1) return 7;
  if (nested() != 2) return 8;
  if (kept() != 9) return 9;
  if (full() != 3) return 10;
  if (alive != 0) return 11;
  if (std::uncaught_exceptions() != 0) return 12;
  try {
    throw tutti::Error(tutti::ErrorKind::format, "read", "it is damaged").with_native("byte 3");
  } catch (tutti::Error const& error) {
    if (error.kind() != tutti::ErrorKind::format) return 13;
    return std::string_view(error.what()).starts_with("tutti::read: it is damaged [byte 3] (") ? 0 : 14;
  }
}

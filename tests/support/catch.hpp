// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Catch2, version 2.13 or 3, reduced to what both have: TEST_CASE, TEMPLATE_TEST_CASE, TEMPLATE_LIST_TEST_CASE,
/// SECTION, GENERATE, REQUIRE, CHECK, REQUIRE_THROWS_AS, INFO, CAPTURE, FAIL.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#define TUTTI_CATCH 3
#else
#include <catch2/catch.hpp>
#define TUTTI_CATCH 2
#endif

#include <string>

namespace tutti::test {

/// Whether `text` contains `part`; with `CHECK(contains(...))` both are shown on failure only when captured.
inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace tutti::test

/// The expression throws `tutti::Error` of this kind and its message contains `part`.
/// `<tutti/core/error.hpp>` must be included. Use on the main thread only.
#define REQUIRE_ERROR(expression, expected_kind, part)                        \
  do {                                                                        \
    bool tutti_thrown = false;                                                \
    try {                                                                     \
      static_cast<void>(expression);                                          \
    } catch (::tutti::Error const& tutti_error) {                             \
      tutti_thrown = true;                                                    \
      INFO("message: " << tutti_error.what());                                \
      CHECK(tutti_error.kind() == (expected_kind));                           \
      CHECK(::tutti::test::contains(tutti_error.what(), part));               \
    }                                                                         \
    INFO(#expression " must throw a tutti::Error with \"" << (part) << "\""); \
    REQUIRE(tutti_thrown);                                                    \
  } while (false)

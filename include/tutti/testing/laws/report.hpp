// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What every law notes, and the values that laws are tried with.
/// A law is written once for every backend. It runs on all ranks and notes what is wrong in its rank's `Report`; nobody
/// leaves early, and no test macro is used, so that a failure on one rank can neither hang nor hide.

#include <tutti/comm.hpp>
#include <tutti/core/function_ref.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::laws {

/// What one rank found.
struct Report {
  int checks = 0;
  int failures = 0;
  std::string text;  ///< of the first few failures

  void expect(bool holds, std::string const& what) {
    ++checks;
    if (holds) return;
    if (++failures <= 5) text += (text.empty() ? "" : "\n") + what;
  }
};

/// Zero, one, odd, around a vector register, around what is sent inline, and large.
inline std::vector<std::int64_t> sizes() { return {0, 1, 3, 17, 64, 129, 1001, 4099, 70001}; }

/// Element i of rank r's buffer: small, so that sums and products of four ranks are exact in every type. The next
/// `period` elements are the same again.
inline constexpr std::int64_t period = 21;
template <Element T>
T element(int rank, std::int64_t i, int salt = 0) {
  auto const n = (static_cast<std::int64_t>(rank) * 5 + i * 3 + i / 7 + salt) % 3 + 1;  // 1, 2, 3
  if constexpr (std::same_as<T, bool>) return n != 2;
  else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) return T(static_cast<float>(n));
  else return static_cast<T>(n);
}

template <Element T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// of(i) for every i: what a law compares with several times is computed once.
template <Element T>
Tensor<T> filled_by(std::int64_t size, FunctionRef<T(std::int64_t)> of) {
  Tensor<T> x(Shape{size});
  T* const elements = x.data();  // once: tests are compiled without optimization
  for (std::int64_t i = 0; i < size; ++i) elements[i] = of(i);
  return x;
}

/// As above, where elements repeat as `element` does.
template <Element T>
Tensor<T> repeated_by(std::int64_t size, FunctionRef<T(std::int64_t)> of) {
  Tensor<T> const first = filled_by<T>(size < period ? size : period, of);
  Tensor<T> x(Shape{size});
  T* const elements = x.data();
  for (std::int64_t done = 0; done < size; done += first.size())
    std::memcpy(elements + done, first.data(),
                static_cast<std::size_t>(std::min(first.size(), size - done)) * sizeof(T));
  return x;
}

template <Element T>
Tensor<T> filled(std::int64_t size, int rank, int salt = 0) {
  return repeated_by<T>(size, [&](std::int64_t i) { return element<T>(rank, i, salt); });
}

/// x[i] == of(i) for every i, bit for bit.
template <Element T>
void expect_elements(Report& report, Tensor<T> const& x, std::int64_t size, std::string const& what,
                     FunctionRef<T(std::int64_t)> of) {
  if (x.size() != size) {
    report.expect(false, what + ": " + std::to_string(x.size()) + " elements instead of " + std::to_string(size));
    return;
  }
  T const* const elements = x.data();
  for (std::int64_t i = 0; i < size; ++i)
    if (T const expected = of(i); std::memcmp(elements + i, &expected, sizeof(T)) != 0) {
      report.expect(false, what + ": element " + std::to_string(i) + " of " + std::to_string(size) + " is wrong");
      return;
    }
  report.expect(true, what);
}

/// As above, with every element given. `expected` has `size` elements or more.
template <Element T>
void expect_elements(Report& report, Tensor<T> const& x, std::int64_t size, std::string const& what,
                     T const* expected) {
  if (size != 0 && x.size() == size && std::memcmp(x.data(), expected, static_cast<std::size_t>(size) * sizeof(T)) == 0)
    return report.expect(true, what);
  expect_elements<T>(report, x, size, what, [&](std::int64_t i) { return expected[i]; });
}

template <Element T>
std::string title(char const* operation, std::int64_t size, int ranks) {
  return std::string(operation) + " of " + std::to_string(size) + " " + std::string(name(dtype_of<T>)) + " on " +
         std::to_string(ranks) + " ranks";
}

template <class F>
void expect_error(Report& report, ErrorKind kind, std::string const& part, F&& f) {
  try {
    f();
    report.expect(false, "no error with \"" + part + "\"");
  } catch (Error const& error) {
    report.expect(error.kind() == kind && std::string(error.what()).find(part) != std::string::npos,
                  "instead of \"" + part + "\": " + error.what());
  }
}

}  // namespace tutti::laws

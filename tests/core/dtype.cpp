// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/dtype.hpp>

#include "support/catch.hpp"

#include <complex>
#include <set>
#include <string>
#include <vector>

using namespace tutti;

static_assert(dtype_of<long> == DType::int64 && dtype_of<long long> == DType::int64);
static_assert(dtype_of<unsigned long> == DType::uint64 && dtype_of<unsigned long long> == DType::uint64);
static_assert(dtype_of<signed char> == DType::int8 && dtype_of<unsigned char> == DType::uint8);
static_assert(dtype_of<char> == DType::character && dtype_of<float const> == DType::float32);
static_assert(Element<std::byte> && Element<bool> && Element<bfloat16> && Element<float16>);
static_assert(!Element<long double> && !Element<wchar_t> && !Element<char8_t> && !Element<int*> &&
              !Element<std::string>);
static_assert(!Element<std::vector<float>> && !Element<void>);
static_assert(Complex<std::complex<float>> && Complex<std::complex<double>> && !Complex<std::complex<long double>>);
static_assert(!Complex<double> && !Complex<std::string> && !Element<std::complex<float>>);
static_assert(Storable<float> && Storable<std::complex<double>> && !Storable<int*> && !Storable<std::string>);
static_assert(element_name<bfloat16>() == "bfloat16" && element_name<std::complex<float>>() == "complex64");

TEST_CASE("every element type maps to its tag and back, with its size") {
  std::set<std::string> names;
  for (int i = 0; i < dtype_count; ++i) {
    auto const dtype = static_cast<DType>(i);
    with_dtype(dtype, [&](auto value) {
      CHECK(dtype_of<decltype(value)> == dtype);
      CHECK(sizeof(value) == size_of(dtype));
    });
    names.insert(std::string(name(dtype)));
  }
  CHECK(names.size() == std::size_t{dtype_count});
  CHECK(names.count("unknown") == 0);
}

TEST_CASE("classes of element types") {
  int floating = 0;
  int integers = 0;
  for (int i = 0; i < dtype_count; ++i) {
    floating += is_floating(static_cast<DType>(i));
    integers += is_integer(static_cast<DType>(i));
  }
  CHECK(floating == 4);
  CHECK(integers == 8);
  CHECK(!is_integer(DType::boolean));
  CHECK(!is_integer(DType::byte));
  CHECK(size_of(static_cast<DType>(200)) == 0);
  CHECK(name(static_cast<DType>(200)) == "unknown");
}

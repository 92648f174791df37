// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/convert.hpp>
#include <tutti/tensor/print.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <bit>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

using namespace tutti;

namespace {

/// The named type whose bits NumPy recorded.
template <class T>
T from_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return T::from_bits(static_cast<std::uint16_t>(bits));
  else return static_cast<T>(bits);
}

DType dtype_named(std::string const& text) {
  for (int i = 0; i < dtype_count; ++i)
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  FAIL("unknown type " << text);
  return DType::float32;
}

std::string without_ends(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

TEST_CASE("tensors print as NumPy prints them: recorded cases of every type") {
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  std::ifstream file((root == nullptr ? std::string(".") : std::string(root)) + "/tests/golden/print.txt");
  REQUIRE(file.good());
  int cases = 0;
  int wrong = 0;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream head(line);
    std::string type;
    std::size_t rank = 0;
    head >> type >> rank;
    std::vector<std::int64_t> extents(rank);
    for (auto& extent : extents) head >> extent;
    int lines = 0;
    head >> lines;
    REQUIRE(!head.fail());
    Shape const shape{std::span<std::int64_t const>(extents)};
    std::getline(file, line);
    std::istringstream elements(line);
    std::string expected;
    std::string text_line;
    for (int i = 0; i < lines; ++i) {
      std::getline(file, text_line);
      expected += text_line + "\n";
    }
    std::string const printed = with_dtype(dtype_named(type), [&](auto zero) {
      using T = decltype(zero);
      Tensor<T> tensor(shape);
      for (T& element : tensor.elements()) {
        std::uint64_t bits = 0;
        elements >> std::hex >> bits;
        element = from_bits<T>(bits);
      }
      REQUIRE(!elements.fail());
      return to_string(tensor);
    });
    ++cases;
    if (printed != without_ends(expected) && ++wrong <= 10) {
      INFO(type << " " << to_string(shape) << " " << line.substr(0, 400));
      CHECK(printed == without_ends(expected));
    }
  }
  CHECK(wrong == 0);
  CHECK(cases > 500);
}

TEST_CASE("views print their elements in their own order, on any device") {
  Tensor<std::int32_t> t({2, 3});
  for (std::int64_t i = 0; i < 6; ++i) t.elements()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  CHECK(to_string(t) == "[[0 1 2]\n [3 4 5]]");
  CHECK(to_string(t.transpose()) == "[[0 3]\n [1 4]\n [2 5]]");
  CHECK(to_string(t.slice(1, 1, 2)) == "[[1]\n [4]]");
  Tensor<std::int32_t> const& readonly = t;
  CHECK(to_string(readonly.view()) == to_string(t));
  auto const far = to_device(t, test::TestDevice{});
  CHECK(to_string(far) == to_string(t));
  CHECK(to_string(far.view().transpose()) == to_string(t.transpose()));

  Tensor<float> large({100, 30});
  for (std::size_t i = 0; i < 3000; ++i) large.elements()[i] = static_cast<float>(i % 17) / 4;
  test::TestDevice::reset();
  auto const large_far = to_device(large, test::TestDevice{});
  CHECK(to_string(large_far) == to_string(large));
  CHECK(test::TestDevice::counts().errors == 0);
}

TEST_CASE("types without a NumPy name print by the rules of their relatives") {
  CHECK(to_string(full<bfloat16>({2}, bfloat16(0.1f))) == "[0.1 0.1]");
  CHECK(to_string(full<bfloat16>({}, bfloat16(3.140625f))) == "3.14");
  CHECK(to_string(full<char>({2}, 'a')) == "[97 97]");
  CHECK(to_string(full<std::byte>({1, 2}, std::byte{255})) == "[[255 255]]");
  CHECK(to_string(full<char>({}, 'a')) == "97");
}

TEST_CASE("the shortest text of every bfloat16 and float16 reads back as the same value") {
  for (std::uint32_t bits = 0; bits < 65536; bits += 1) {
    auto const check = [bits](auto value) {
      float const exact = value;
      if (exact != exact) return;
      std::string const text =
          detail::print::scalar<dtype_of<decltype(value)>>(exact);
      float const read = std::strtof(text.c_str(), nullptr);
      if (decltype(value)(read).bits != bits) FAIL("bits " << bits << " print as " << text);
    };
    check(bfloat16::from_bits(static_cast<std::uint16_t>(bits)));
    check(float16::from_bits(static_cast<std::uint16_t>(bits)));
  }
}

TEST_CASE("empty and moved-from tensors print") {
  Tensor<float> t({2});
  t.fill(1);
  Tensor<float> const taken = std::move(t);
  CHECK(to_string(t) == "[]");  // NOLINT: what moving leaves is specified
  CHECK(to_string(taken) == "[1. 1.]");
  std::ostringstream stream;
  stream << taken << ' ' << taken.view();
  CHECK(stream.str() == "[1. 1.] [1. 1.]");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Operators and the fold that applies them, without any communication.

#include "support/catch.hpp"

#include <tutti/comm/operators.hpp>

#include <cstdint>
#include <vector>

using namespace tutti;
using comm::reducible;

static_assert(!reducible<bool, Sum>() && !reducible<bool, Max>() && !reducible<bool, Avg>());
static_assert(reducible<bool, LogicalAnd>() && reducible<bool, LogicalOr>());
static_assert(!reducible<std::byte, Sum>() && !reducible<std::byte, LogicalAnd>());
static_assert(reducible<char, Min>() && !reducible<char, Sum>());
static_assert(reducible<float, Avg>() && !reducible<float, LogicalAnd>());
static_assert(reducible<std::byte, BitwiseOr>() && !reducible<bool, BitwiseOr>() && !reducible<double, BitwiseAnd>());
static_assert(reducible<bool, LogicalXor>() && !reducible<float, LogicalXor>());
static_assert(reducible<Located<float>, MinLocation>() && !reducible<float, MinLocation>());
static_assert(!reducible<Located<float>, Min>() && !reducible<Located<float>, Sum>());
static_assert(reducible<bfloat16, Sum>() && reducible<std::uint64_t, LogicalOr>());

namespace {

float added(float a, float b) { return a + b; }

struct Xor {
  std::byte operator()(std::byte a, std::byte b) const { return a ^ b; }
};
struct OnBfloat16 {
  bfloat16 operator()(bfloat16 a, bfloat16) const { return a; }
};
struct Mutable {
  float operator()(float a, float b) { return a + b; }
};
static_assert(reducible<std::byte, Xor>());
static_assert(reducible<bfloat16, OnBfloat16>());
static_assert(!reducible<float, Mutable>());
static_assert(!reducible<float, Xor>());

template <class T, class Op>
std::vector<T> folded(Op const& op, std::vector<std::vector<T>> const& inputs, bool in_place = false) {
  std::vector<void const*> pointers;
  for (auto const& input : inputs) pointers.push_back(input.data());
  auto const reduction = comm::reduction_of<T>(op);
  std::vector<T> fresh(inputs[0].size());
  T* const out = in_place ? const_cast<T*>(inputs.back().data()) : fresh.data();
  reduction.fold(reduction.state, pointers.data(), static_cast<int>(inputs.size()), out,
                 static_cast<std::int64_t>(fresh.size()));
  return in_place ? inputs.back() : fresh;
}

}  // namespace

TEST_CASE("fold combines in rank order, for sizes around its block, also into one of its inputs") {
  for (std::size_t const n : {0u, 1u, 63u, 64u, 65u, 200u})
    for (bool const in_place : {false, true}) {
      std::vector<std::vector<std::int64_t>> inputs(3, std::vector<std::int64_t>(n));
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t r = 0; r < 3; ++r) inputs[r][i] = static_cast<std::int64_t>(10 * i + r);
      std::vector<std::int64_t> expected(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = (inputs[0][i] - 2 * inputs[1][i]) - 2 * inputs[2][i];
      CHECK(folded<std::int64_t>([](std::int64_t a, std::int64_t b) { return a - 2 * b; }, inputs, in_place) ==
            expected);
    }
}

TEST_CASE("integers wrap around instead of overflowing") {
  CHECK(folded<std::int32_t>(sum, {{INT32_MAX}, {1}}) == std::vector<std::int32_t>{INT32_MIN});
  CHECK(folded<std::int64_t>(sum, {{INT64_MAX}, {1}}) == std::vector<std::int64_t>{INT64_MIN});
  CHECK(folded<std::int8_t>(prod, {{100}, {100}}) == std::vector<std::int8_t>{static_cast<std::int8_t>(10'000)});
  CHECK(folded<std::uint16_t>(prod, {{65535}, {65535}}) == std::vector<std::uint16_t>{1});
}

TEST_CASE("avg divides once, integers towards zero") {
  CHECK(folded<std::int32_t>(avg, {{-7}, {0}, {0}}) == std::vector<std::int32_t>{-2});
  CHECK(folded<std::uint8_t>(avg, {{9}, {9}, {8}}) == std::vector<std::uint8_t>{8});
  CHECK(folded<float>(avg, {{1.0f}, {2.0f}}) == std::vector<float>{1.5f});
}

TEST_CASE("16-bit floats are accumulated in float and rounded once") {
  CHECK(folded<bfloat16>(sum, {{bfloat16(256)}, {bfloat16(1)}, {bfloat16(1)}, {bfloat16(1)}, {bfloat16(1)}})[0] ==
        bfloat16(260.0f));
  CHECK(folded<float16>([](float a, float b) { return a + b; }, {{float16(2048)}, {float16(1)}, {float16(1)}})[0] ==
        float16(2050.0f));
  CHECK(folded<bfloat16>(OnBfloat16{}, {{bfloat16(3)}, {bfloat16(4)}})[0] == bfloat16(3.0f));
}

TEST_CASE("logical operators give 0 or 1") {
  CHECK(folded<std::int32_t>(logical_and, {{5, 0}, {7, 7}}) == std::vector<std::int32_t>{1, 0});
  CHECK(folded<std::uint8_t>(logical_or, {{0, 0}, {7, 0}}) == std::vector<std::uint8_t>{1, 0});
}

TEST_CASE("bitwise and logical operators combine bit by bit and truth by truth") {
  CHECK(folded<std::uint8_t>(bitwise_and, {{0xf0}, {0x3c}}) == std::vector<std::uint8_t>{0x30});
  CHECK(folded<std::int64_t>(bitwise_or, {{-8}, {3}}) == std::vector<std::int64_t>{-5});
  CHECK(folded<std::byte>(bitwise_xor, {{std::byte{0xff}}, {std::byte{0x0f}}}) ==
        std::vector<std::byte>{std::byte{0xf0}});
  CHECK(folded<std::int32_t>(logical_xor, {{5, 5, 0}, {7, 0, 0}}) == std::vector<std::int32_t>{0, 1, 0});
}

TEST_CASE("callables are commutative where they are declared so, named operators always") {
  auto const f = [](float a, float b) { return a + b; };
  CHECK(comm::reduction_of<float>(sum).commutative);
  CHECK_FALSE(comm::reduction_of<float>(f).commutative);
  CHECK(comm::reduction_of<float>(commutative(f)).commutative);
  CHECK_FALSE(comm::reduction_of<float>(non_commutative(f)).commutative);
  CHECK(folded<float>(commutative(f), {{1.0f}, {2.0f}}) == std::vector<float>{3.0f});
  CHECK(folded<bfloat16>(commutative(f), {{bfloat16(256)}, {bfloat16(1)}, {bfloat16(1)}})[0] == bfloat16(258.0f));
}

TEST_CASE("every operator has a name") {
  for (int op = 0; op < operator_count; ++op) CHECK(name(static_cast<Operator>(op)) != "unknown");
}

TEST_CASE("a plain function is an operator") {
  float const a[3] = {1, 2, 3};
  float const b[3] = {10, 20, 30};
  void const* const inputs[2] = {a, b};
  float result[3] = {};
  auto const reduction = comm::reduction_of<float>(added);
  reduction.fold(reduction.state, inputs, 2, result, 3);
  CHECK(std::vector<float>(result, result + 3) == std::vector<float>{11, 22, 33});
}

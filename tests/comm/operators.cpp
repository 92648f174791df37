// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Operators and the fold that applies them, without any communication.
// Covers: <tutti/comm/fold.hpp>
// Covers: <tutti/comm/lanes.hpp>

#include "support/catch.hpp"

#include <tutti/comm/fold.hpp>

#include <cstdint>
#include <cstring>
#include <random>
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
  void* const outputs[] = {out};
  reduction.fold(reduction.state, pointers.data(), static_cast<int>(inputs.size()), outputs, 1,
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

namespace {

/// Numbers of any bits, infinities, NaN and subnormal ones among them.
template <class T>
std::vector<T> any_numbers(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::vector<T> numbers(n);
  for (T& number : numbers) {
    std::uint64_t words[(sizeof(T) + 7) / 8];
    for (std::uint64_t& word : words) word = bits();
    std::memcpy(static_cast<void*>(&number), words, sizeof(T));
  }
  return numbers;
}
template <class T>
bool is_nan(T value) {
  if constexpr (std::integral<T>) return false;
  else return value != value;
}

/// The elements that differ from those combined one by one; 0 is wanted. The k-th output is the k-th input.
template <int Bytes, class T, class Op>
std::size_t wrong_lanes(std::size_t ranks, std::size_t n) {
  std::vector<std::vector<T>> inputs;
  for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(any_numbers<T>(n, 100 * n + r));
  std::vector<T> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    using A = comm::Accumulator<T>;
    A value = static_cast<A>(inputs[0][i]);
    for (std::size_t r = 1; r < ranks; ++r)
      value = comm::detail::combine<Op, A>(Op{}, value, static_cast<A>(inputs[r][i]));
    if (Op::kind == Operator::avg) value = comm::detail::divided(value, static_cast<int>(ranks));
    expected[i] = static_cast<T>(value);
  }
  std::vector<void*> outputs;
  for (auto& input : inputs) outputs.push_back(input.data());
  std::vector<void const*> const from(outputs.begin(), outputs.end());
  auto const count = static_cast<std::int64_t>(n);
  int const all = static_cast<int>(ranks);
  if constexpr (Bytes == 0) {
    comm::detail::fold_elements<T, Op>(Op{}, from.data(), all, outputs.data(), all, count);
  } else {
    std::int64_t const done = comm::detail::fold_lanes<Bytes, T, Op>(from.data(), all, outputs.data(), all, count);
    n = static_cast<std::size_t>(done);
  }
  std::size_t wrong = 0;
  for (auto const& result : inputs)
    for (std::size_t i = 0; i < n; ++i) {
      if (is_nan(result[i]) && is_nan(expected[i])) continue;
      wrong += std::memcmp(&result[i], &expected[i], sizeof(T)) != 0;
    }
  return wrong;
}
template <class T, class Op>
void check_lanes() {
  for (std::size_t const ranks : {1u, 2u, 3u})
    for (std::size_t const n : {0u, 1u, 31u, 64u, 127u, 1000u}) {
      INFO(name(dtype_of<T>) << ", " << name(Op::kind) << ", " << ranks << " ranks, " << n << " elements");
      CHECK(wrong_lanes<0, T, Op>(ranks, n) == 0);
      if constexpr (comm::detail::has_lanes<T, Op>()) CHECK(wrong_lanes<16, T, Op>(ranks, n) == 0);
    }
}
template <class... T>
void check_all_lanes() {
  (check_lanes<T, Sum>(), ...);
  (check_lanes<T, Prod>(), ...);
  (check_lanes<T, Min>(), ...);
  (check_lanes<T, Max>(), ...);
  (check_lanes<T, Avg>(), ...);
}

}  // namespace

TEST_CASE("elements in vector registers get the bits of elements one by one, in all outputs") {
  static_assert(comm::detail::has_lanes<float, Sum>() && comm::detail::has_lanes<float16, Avg>());
  static_assert(!comm::detail::has_lanes<std::int32_t, Avg>() && !comm::detail::has_lanes<char, Min>());
  check_all_lanes<float, double, bfloat16, float16, std::int8_t, std::uint16_t, std::int32_t, std::int64_t,
                  std::uint64_t>();
  check_lanes<std::uint32_t, BitwiseAnd>();
  check_lanes<std::int64_t, BitwiseOr>();
  check_lanes<std::uint8_t, BitwiseXor>();
}

TEST_CASE("every 16-bit float goes through vector registers and back as through its own conversions") {
  std::vector<float16> halves(65'536);
  std::vector<bfloat16> uppers(65'536);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = float16::from_bits(static_cast<std::uint16_t>(i));
    uppers[i] = bfloat16::from_bits(static_cast<std::uint16_t>(i));
  }
  auto const changed = [](auto const& numbers, auto const& back) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      count += numbers[i].bits != back[i].bits && !(is_nan(numbers[i]) && is_nan(back[i]));
    return count;
  };
  CHECK(changed(halves, folded<float16>(sum, {halves})) == 0);
  CHECK(changed(uppers, folded<bfloat16>(sum, {uppers})) == 0);
  // Halves of all numbers, of which each of the smallest is rounded; ties are among them.
  std::vector<float16> const zero(halves.size(), float16(0.0f));
  std::vector<float16> average(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) average[i] = float16((float(halves[i]) + 0.0f) / 2.0f);
  CHECK(changed(average, folded<float16>(avg, {halves, zero})) == 0);
}

namespace {

/// Elements of the results of a scan over `ranks` that are not the fold of as many inputs; 0 is wanted.
template <class T, class Op>
std::size_t wrong_prefixes(Op const& op, std::vector<std::vector<T>> const& inputs, bool inclusive, bool in_place) {
  std::size_t const ranks = inputs.size(), n = inputs[0].size();
  auto buffers = inputs;
  std::vector<std::vector<T>> others = inputs;  // an output that must not be written keeps its input
  std::vector<void const*> from;
  std::vector<void*> to;
  for (auto& buffer : buffers) from.push_back(buffer.data());
  for (auto& buffer : in_place ? buffers : others) to.push_back(buffer.data());
  to[1] = ranks > 2 ? nullptr : to[1];  // as of a rank that wants none
  auto const reduction = comm::scan_reduction_of<T>(op);
  reduction.prefixes(reduction.state, from.data(), static_cast<int>(ranks), to.data(), inclusive,
                     static_cast<std::int64_t>(n));
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::size_t const combined = r + (inclusive ? 1 : 0);
    bool const written = to[r] != nullptr && combined != 0;
    auto const expected = written ? folded<T>(op, std::vector<std::vector<T>>(inputs.begin(), inputs.begin() +
                                                                             static_cast<std::ptrdiff_t>(combined)))
                                  : inputs[r];
    auto const& is = in_place ? buffers[r] : others[r];
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (Element<T>)
        if (is_nan(is[i]) && is_nan(expected[i])) continue;
      wrong += std::memcmp(&is[i], &expected[i], sizeof(T)) != 0;
    }
  }
  return wrong;
}
template <class T, class Op>
void check_prefixes(Op const& op) {
  for (std::size_t const ranks : {2u, 3u, 5u})
    for (std::size_t const n : {0u, 1u, 7u, 64u, 200u})
      for (int form = 0; form < 4; ++form) {
        std::vector<std::vector<T>> inputs;
        for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(any_numbers<T>(n, 10 * n + r));
        INFO(ranks << " ranks, " << n << " elements, form " << form);
        CHECK(wrong_prefixes<T>(op, inputs, (form & 1) != 0, (form & 2) != 0) == 0);
      }
}

}  // namespace

TEST_CASE("a scan's results are the folds of so many inputs, bit for bit, also in place") {
  check_prefixes<float>(sum);
  check_prefixes<double>(avg);
  check_prefixes<bfloat16>(sum);
  check_prefixes<float16>(avg);
  check_prefixes<std::int32_t>(avg);
  check_prefixes<std::int8_t>(prod);
  check_prefixes<std::int64_t>(min);
  check_prefixes<std::uint16_t>(bitwise_xor);
  check_prefixes<std::int32_t>(logical_and);
  check_prefixes<std::int64_t>([](std::int64_t a, std::int64_t b) { return a / 2 - b / 4; });
  check_prefixes<Located<double>>(max_location);
}

TEST_CASE("an exclusive scan leaves the last input alone, which is in nobody's result") {
  bool met = false;
  auto const divide = [&met](int a, int b) {
    met = met || b == 0;
    return b == 0 ? 0 : a / b;
  };
  for (std::size_t const n : {1u, 3u, 64u, 200u}) {
    std::vector<std::vector<int>> inputs{std::vector<int>(n, 20), std::vector<int>(n, 3), std::vector<int>(n, 0)};
    CHECK(wrong_prefixes<int>(divide, inputs, false, true) == 0);
    CHECK(!met);
  }
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
  void* const outputs[] = {result};
  reduction.fold(reduction.state, inputs, 2, outputs, 1, 3);
  CHECK(std::vector<float>(result, result + 3) == std::vector<float>{11, 22, 33});
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Random bits as integer operations, so that a module draws what every executor draws.
/// Source  Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011); tensor/random.hpp

#include <tutti/graph/stablehlo/arrays.hpp>

#include <array>

namespace tutti::graph::stablehlo {

/// Words of 32 bits of all blocks at once, or keys.
class Philox {
 public:
  Philox(Call const& e, std::int64_t blocks) : e_(e), blocks_(blocks) {}

  Value count_up() const {
    return e_.out.op("iota", {}, DType::uint64, Shape{blocks_}, "iota_dimension = 0 : i64");
  }
  /// count_up() from operand i on.
  Value count_up_from(int i) const {
    Value const first =
        e_.out.op("broadcast_in_dim", {wide(i)}, DType::uint64, Shape{blocks_}, "broadcast_dimensions = array<i64>");
    return e_.map("add", count_up(), first);
  }
  /// Word i of every block, (blocks) each, of counters (number low, number high, step, stream).
  std::array<Value, 4> words(Value const& number) const {
    Value const seed = wide(0);
    std::array<Value, 4> counter{low(number), high(number), each(low(wide(1))), each(low(wide(2)))};
    std::array<Value, 2> key{each(low(seed)), each(high(seed))};
    for (int round = 0; round < 10; ++round) {
      Value const a = product(counter[0], 0xD2511F53u), b = product(counter[2], 0xCD9E8D57u);
      counter = {mixed(high(b), counter[1], key[0]), low(b), mixed(high(a), counter[3], key[1]), low(a)};
      key = {e_.map("add", key[0], e_.out.number(key[0], 0x9E3779B9u)),
             e_.map("add", key[1], e_.out.number(key[1], 0xBB67AE85u))};
    }
    return counter;
  }

 private:
  /// An operand modulo 2^64.
  Value wide(int i) const {
    Value const& x = e_.in(i);
    if (is_floating(x.dtype)) return e_.convert(index(e_, x), DType::uint64);
    return e_.convert(x, DType::uint64);
  }
  Value low(Value const& x) const { return e_.convert(x, DType::uint32); }
  Value high(Value const& x) const {
    return e_.convert(e_.map("shift_right_logical", x, e_.out.number(x, 32)), DType::uint32);
  }
  Value each(Value const& x) const {
    return e_.out.op("broadcast_in_dim", {x}, x.dtype, Shape{blocks_}, "broadcast_dimensions = array<i64>");
  }
  Value product(Value const& x, std::uint32_t factor) const {
    Value const wide = e_.convert(x, DType::uint64);
    return e_.map("multiply", wide, e_.out.number(wide, factor));
  }
  Value mixed(Value const& a, Value const& b, Value const& c) const { return e_.map("xor", e_.map("xor", a, b), c); }

  Call const& e_;
  std::int64_t blocks_;
};

/// From a position that is known when the module runs: a block for every element, of whose words one is its own.
inline Value rng_bits_from(Call const& e, std::int64_t size) {
  Philox const philox(e, size);
  Value const position = philox.count_up_from(3);
  auto const words = philox.words(e.map("shift_right_logical", position, e.out.number(position, 2)));
  Value const place = e.map("and", position, e.out.number(position, 3));
  Value bits = words[3];
  for (std::size_t k = 3; k-- > 0;) {
    Value const here = e.compare("EQ", place, e.out.number(place, static_cast<double>(k)));
    bits = e.select(here, words[k], bits);
  }
  return e.out.reshape(bits, e.shape());
}

inline Value rng_bits(Call const& e) {
  std::int64_t const size = e.shape().size(), blocks = (size + 3) / 4;
  if (size == 0) return e.out.number(DType::uint32, e.shape(), 0);
  if (e.count() > 3) return rng_bits_from(e, size);
  Values columns;
  Philox const philox(e, blocks);
  for (Value const& word : philox.words(philox.count_up())) columns.push_back(e.out.reshape(word, Shape{blocks, 1}));
  Value bits = e.out.op("concatenate", columns, DType::uint32, Shape{blocks, 4}, "dimension = 1 : i64");
  bits = e.out.reshape(bits, Shape{4 * blocks});
  if (4 * blocks != size)
    bits = e.out.op(
        "slice", {bits}, DType::uint32, Shape{size},
        concat("start_indices = array<i64: 0>, limit_indices = array<i64: ", size, ">, strides = array<i64: 1>"));
  return e.out.reshape(bits, e.shape());
}

}  // namespace tutti::graph::stablehlo

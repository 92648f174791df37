// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/block_tiles.hpp> <tutti/kernel/cpu/block_bodies.hpp> <tutti/kernel/cpu/block_product.hpp>
#include <tutti/kernel/cpu/block_product.hpp>

#include <tutti/core/block_quantise.hpp>
#include <tutti/core/block_tiles.hpp>

#include "kernel/support.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr BlockType tiled_types[] = {BlockType::q4_0, BlockType::q4_1, BlockType::q8_0};

/// A weight as files have it, and in tiles.
struct Tiled {
  BlockType type;
  std::int64_t out, in;
  std::vector<std::byte> rows, tiles;

  Tiled(BlockType type_, std::int64_t out_, std::int64_t in_, std::uint64_t seed)
      : type(type_), out(out_), in(in_), rows(length(out * row_bytes(type, in))), tiles(rows.size()) {
    std::vector<float> const random = Random(seed).floats(out * in);
    quantise(type, random.data(), out * in, rows.data());
    make_tiles(type, in, rows.data(), tiles.data(), 0, out / block_tile_rows);
  }
  kernel::BlockMatrix plain() const { return {type, out, in, rows.data()}; }
  kernel::BlockMatrix matrix() const { return {type, out, in, tiles.data(), true}; }
};

std::vector<float> product(exec::Context& context, kernel::BlockMatrix const& w, std::int64_t rows,
                           std::vector<float> const& x, std::vector<float> const& bias, std::vector<float> y) {
  kernel::cpu::block_product(context, {.rows = rows,
                                       .x = x.data(),
                                       .x_stride = w.in,
                                       .weight = w,
                                       .bias = bias.data(),
                                       .residual = y.data(),
                                       .residual_stride = w.out,
                                       .y = y.data(),
                                       .y_stride = w.out});
  return y;
}

}  // namespace

TEST_CASE("Tiles hold every block of a matrix, and as many bytes") {
  for (BlockType const type : tiled_types) {
    Tiled const w(type, 96, 160, 1);
    blocks::with_tiled_block(type, [&](auto block) {
      using Block = decltype(block);
      auto const* const from = reinterpret_cast<Block const*>(w.rows.data());
      for (std::int64_t row = 0; row < w.out; ++row)
        for (std::int64_t i = 0; i < 5; ++i) {
          Block const found = blocks::of_tiles<Block>(w.tiles.data(), 5, row, i);
          REQUIRE(std::memcmp(&found, from + row * 5 + i, sizeof(Block)) == 0);
        }
    });
  }
  CHECK(!has_tiles(BlockType::q4_k));
  CHECK(!has_tiles(BlockType::f32));
}

TEST_CASE("Weights in tiles give many rows the numbers of weights in rows, and few rows those that many have") {
  for (BlockType const type : tiled_types)
    for (std::int64_t out : {32, 96, 416})
      for (std::int64_t in : {32, 160, 768, 1568}) {
        Tiled const w(type, out, in, static_cast<std::uint64_t>(out + in));
        constexpr std::int64_t most = 19;
        auto const x = Random(3).floats(most * in, 4), bias = Random(4).floats(out),
                   residual = Random(5).floats(most * out);
        for (exec::Isa isa : exec::all_isas) {
          if (!exec::available(isa)) continue;
          for (int threads : {1, 3}) {
            CAPTURE(std::string(name(type)), out, in, std::string(exec::name(isa)), threads);
            exec::Context& context = context_of(isa, threads);
            auto const many = product(context, w.matrix(), most, x, bias, residual);
            REQUIRE(same_bits(many, product(context, w.plain(), most, x, bias, residual)));
            for (std::int64_t rows = 1; rows < 12; ++rows) {
              auto const few = product(context, w.matrix(), rows, x, bias,
                                       {residual.begin(), residual.begin() + rows * out});
              std::vector<float> const same(many.begin(), many.begin() + rows * out);
              if (kernel::cpu::detail::rounds_many(isa, type)) REQUIRE(same_bits(few, same));
              for (std::size_t i = 0; i < few.size(); ++i) REQUIRE(std::abs(few[i] - same[i]) < 0.3f);
            }
          }
        }
      }
}

TEST_CASE("Gates, rows of a table and products beside others may be in tiles") {
  Tiled const gate(BlockType::q4_0, 64, 96, 1), up(BlockType::q8_0, 64, 96, 2), narrow(BlockType::q4_1, 32, 96, 3);
  std::vector<float> const straight = Random(9).floats(64 * 96);  // numbers, which have no tiles
  kernel::BlockMatrix const numbers{BlockType::f32, 64, 96, reinterpret_cast<std::byte const*>(straight.data())};
  std::vector<float> const odd = Random(8).floats(5 * 96);
  auto const* const odd_rows = reinterpret_cast<std::byte const*>(odd.data());
  for (std::int64_t rows : {1, 4, 8, 13}) {
    auto const x = Random(5).floats(rows * 96);
    for (exec::Isa isa : exec::all_isas) {
      if (!exec::available(isa)) continue;
      CAPTURE(rows, std::string(exec::name(isa)));
      exec::Context& context = context_of(isa, 2);
      auto const gated = [&](kernel::BlockMatrix const& of, kernel::BlockMatrix const& by) {
        std::vector<float> y(length(rows * 64));
        kernel::cpu::block_swiglu(
            context,
            {.rows = rows, .x = x.data(), .x_stride = 96, .gate = of, .up = by, .y = y.data(), .y_stride = 64});
        return y;
      };
      auto const near = [](std::vector<float> const& a, std::vector<float> const& b) {
        bool holds = true;
        for (std::size_t i = 0; i < a.size(); ++i) holds = holds && std::abs(a[i] - b[i]) < 0.1f * (1 + std::abs(a[i]));
        return holds;
      };
      REQUIRE(near(gated(gate.plain(), up.plain()), gated(gate.matrix(), up.matrix())));
      // One of them alone.
      REQUIRE(near(gated(gate.plain(), up.plain()), gated(gate.matrix(), up.plain())));
      REQUIRE(near(gated(numbers, up.plain()), gated(numbers, up.matrix())));
      // Beside a weight whose rows sixteen does not divide.
      std::vector<float> all(length(rows * 101)), each = all;
      auto const run = [&](std::vector<float>& y, bool together) {
        kernel::BlockProduct one{.rows = rows, .x = x.data(), .x_stride = 96, .y_stride = 101};
        kernel::BlockProduct list[] = {one, one, one};
        list[0].weight = {BlockType::f32, 5, 96, odd_rows}, list[0].y = y.data();
        list[1].weight = gate.matrix(), list[1].y = y.data() + 5;
        list[2].weight = narrow.matrix(), list[2].y = y.data() + 69;
        if (together) kernel::cpu::block_products(context, list, 3);
        else
          for (auto const& alone : list) kernel::cpu::block_product(context, alone);
      };
      run(all, true), run(each, false);
      REQUIRE(same_bits(all, each));
      std::vector<std::int32_t> const tokens{63, 0, -1, 17, 64};
      std::vector<float> a(5 * 96, 1.0f), b(5 * 96, 2.0f);
      kernel::cpu::block_rows(context, {5, tokens.data(), gate.matrix(), a.data()});
      kernel::cpu::block_rows(context, {5, tokens.data(), gate.plain(), b.data()});
      REQUIRE(same_bits(a, b));
    }
  }
}

TEST_CASE("NaN in x stays in its row, and what has no tiles is refused") {
  Tiled const w(BlockType::q4_0, 32, 64, 2);
  auto x = Random(4).floats(3 * 64);
  x[64 + 30] = std::numeric_limits<float>::quiet_NaN();
  exec::Context& context = context_of(exec::best_isa(), 1);
  auto const y = product(context, w.matrix(), 3, x, std::vector<float>(32), std::vector<float>(96));
  for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(std::isfinite(y[i]) == (i / 32 != 1));
  kernel::BlockMatrix wrong = w.matrix();
  wrong.out = 16;
  REQUIRE_ERROR(product(context, wrong, 3, x, std::vector<float>(16), std::vector<float>(48)), ErrorKind::shape,
                "weights of 16 rows in Q4_0 are not in tiles");
}

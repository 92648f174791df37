// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/block_product.hpp> <tutti/kernel/cpu/block_product.hpp> <tutti/exec/isa/bytes.hpp>
#include <tutti/kernel/cpu/block_product.hpp>

#include <tutti/core/block_quantise.hpp>

#include "core/block_oracle.hpp"
#include "kernel/support.hpp"

#include <limits>

using namespace tutti;
using namespace tutti::test;

namespace {

/// A weight with its bytes and what they mean.
struct Weight {
  BlockType type;
  std::int64_t out, in;
  std::vector<std::byte> bytes;
  std::vector<float> values;

  Weight(BlockType type_, std::int64_t out_, std::int64_t in_, std::uint64_t seed) : type(type_), out(out_), in(in_) {
    std::vector<float> const random = Random(seed).floats(out * in);
    bytes.resize(length(out * row_bytes(type, in)));
    quantise(type, random.data(), out * in, bytes.data());
    values.resize(random.size());
    dequantise(type, bytes.data(), out * in, values.data());
  }
  kernel::BlockMatrix matrix() const { return {type, out, in, bytes.data()}; }
};

/// Products in double, and how far rounding of x to int8 and sums of floats may lead from them.
struct Exact {
  std::vector<double> y, bound;
};
Exact exact_product(Weight const& w, std::int64_t rows, std::vector<float> const& x, std::int64_t stride) {
  bool const rounds = is_quantised(w.type);
  std::int64_t const block = block_elements(w.type);
  Exact exact;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < w.out; ++o) {
      double sum = 0, magnitudes = 0, rounding = 0;
      for (std::int64_t first = 0; first < w.in; first += block) {
        double peak = 0, weights = 0;
        for (std::int64_t i = first; i < first + block; ++i) {
          double const a = x[length(r * stride + i)], b = w.values[length(o * w.in + i)];
          sum += a * b;
          magnitudes += std::abs(a * b);
          peak = std::max(peak, std::abs(a));
          weights += std::abs(b);
        }
        rounding += peak / 127 * (0.5 + 0.07) * weights;  // half a step, and the scale in half precision
      }
      exact.y.push_back(sum);
      exact.bound.push_back(tolerance<float>(w.in) * magnitudes + (rounds ? rounding : 0));
    }
  return exact;
}
void require_within(std::vector<float> const& y, std::vector<double> const& exact, std::vector<double> const& bound) {
  REQUIRE(y.size() == exact.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    if (!(std::abs(y[i] - exact[i]) <= bound[i])) {
      INFO("y[" << i << "] is " << y[i] << ", exactly " << exact[i] << ", may be off by " << bound[i]);
      FAIL();
    }
}

}  // namespace

TEST_CASE("A product with weights in blocks is close to that with the floats they stand for") {
  for (auto const& facts : tutti::detail::block_facts)
    for (std::int64_t rows : {0, 1, 2, 5, 8, 9, 34})
      for (std::int64_t out : {0, 1, 7, 40})
        for (std::int64_t blocks : {0, 1, facts.elements == 32 ? 35 : 3}) {
          std::int64_t const in = blocks * facts.elements, stride = in + 3;
          CAPTURE(std::string(facts.name), rows, out, in);
          Weight const w(facts.type, out, in, static_cast<std::uint64_t>(rows + 10 * out + 1000 * in));
          Random random(7);
          auto const x = random.floats(rows * stride), bias = random.floats(out), residual = random.floats(rows * out);
          Exact exact = exact_product(w, rows, x, stride);
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t o = 0; o < out; ++o) {
              double const added = double{bias[length(o)]} + residual[length(r * out + o)];
              exact.y[length(r * out + o)] += added;
              exact.bound[length(r * out + o)] += 3e-7 * (std::abs(added) + 2 + exact.bound[length(r * out + o)]);
            }
          on_every_context(
              [&](exec::Context& context) {
                std::vector<float> y = residual;
                kernel::cpu::block_product(context, {.rows = rows,
                                                     .x = x.data(),
                                                     .x_stride = stride,
                                                     .weight = w.matrix(),
                                                     .bias = bias.data(),
                                                     .residual = y.data(),
                                                     .residual_stride = out,
                                                     .y = y.data(),
                                                     .y_stride = out});
                return y;
              },
              [&](std::vector<float> const& y) { require_within(y, exact.y, exact.bound); });
        }
}

namespace {

/// A scale that is kept in half precision.
double half(double value) { return float16(static_cast<float>(value)); }

/// The product of a row of x, rounded to int8 by the published rules of Q8_0, Q8_1 and Q8_K, with a row of blocks, and
/// the sum of the magnitudes behind it.
std::pair<double, double> rounded_product(tutti::detail::BlockFacts const& facts, float const* x, float const* w,
                                          unsigned char const* block, std::int64_t in) {
  bool const has_min = facts.type == BlockType::q4_1 || facts.type == BlockType::q5_1;
  double y = 0, magnitudes = 0;
  for (std::int64_t first = 0; first < in; first += facts.elements, block += facts.bytes) {
    float peak = 0;
    for (int i = 0; i < facts.elements; ++i) peak = std::max(peak, std::abs(x[first + i]));
    if (peak == 0) continue;
    float const factor = 127.0f / peak;
    double const unrounded = facts.elements == 32 ? peak / 127.0f : 1.0f / factor;
    double const scale = facts.elements == 32 ? half(unrounded) : unrounded;
    double second = 0;  // the other scale, of what is added to codes
    if (int const at = scale_offsets(facts.type).second; at >= 0) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, block + at, 2);
      second = static_cast<float>(float16::from_bits(bits));
    }
    double const min = has_min ? second : 0;
    double sum = 0;
    for (int i = 0; i < facts.elements; ++i) {
      double const q = std::nearbyint(x[first + i] * factor);
      sum += q;
      y += scale * q * (w[first + i] - min);
      magnitudes += std::abs(scale * q) * (std::abs(w[first + i]) + 2 * std::abs(second) * (has_min ? 1 : 63));
    }
    y += min * half(unrounded * sum);
  }
  return {y, magnitudes};
}

/// Blocks whose bytes, but for scales in half precision, are `fill`; -1: random.
std::vector<unsigned char> filled_blocks(tutti::detail::BlockFacts const& facts, std::int64_t count, int fill) {
  auto bytes = block_bytes(facts, static_cast<int>(count), 77);
  auto const [first, second] = scale_offsets(facts.type);
  if (fill >= 0)
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      int const at = static_cast<int>(i % static_cast<std::size_t>(facts.bytes));
      if ((at - first) / 2 != 0 || at < first)
        if (second < 0 || (at - second) / 2 != 0 || at < second) bytes[i] = static_cast<unsigned char>(fill);
    }
  return bytes;
}

/// The product of a row of x, rounded to int8 in blocks of 32, with a row of weights, and the magnitudes behind it.
std::pair<double, double> product_rounded_by_32(float const* x, float const* w, std::int64_t in, double code_scale) {
  double y = 0, magnitudes = 0;
  for (std::int64_t first = 0; first < in; first += 32) {
    float peak = 0;
    for (int i = 0; i < 32; ++i) peak = std::max(peak, std::abs(x[first + i]));
    if (peak == 0) continue;
    double const scale = half(peak / 127.0f);
    for (int i = 0; i < 32; ++i) {
      double const q = std::nearbyint(x[first + i] * (127.0f / peak));
      y += scale * q * w[first + i];
      magnitudes += std::abs(scale * q) * (std::abs(w[first + i]) + code_scale);
    }
  }
  return {y, magnitudes};
}

}  // namespace

TEST_CASE("Many rows are rounded to int8 and summed in exact integers, where that is the way of the processor") {
  for (auto const& facts : tutti::detail::block_facts) {
    if (!is_quantised(facts.type)) continue;
    for (int fill : {-1, 0x00, 0x7f, 0x80, 0xff})
      for (bool full : {false, true})
        for (std::int64_t in : {std::int64_t{facts.elements}, std::int64_t{768}, std::int64_t{1280}}) {
          std::int64_t const out = 37, rows = 17, count = in / facts.elements;
          CAPTURE(std::string(facts.name), fill, full, in);
          auto const bytes = filled_blocks(facts, out * count, fill);
          std::vector<float> w(length(out * in));
          dequantise(facts.type, bytes.data(), out * in, w.data());
          // What a code's offset of at most 128 stands for.
          double largest = 0;
          for (float const one : w) largest = std::max(largest, std::abs(double{one}));
          auto x = Random(3).floats(rows * in, 4);
          if (full)
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / length(in) % 2 == 0 ? 3.0f : -3.0f;
          std::fill(x.begin(), x.begin() + 32, 0.0f);
          for (exec::Isa isa : exec::all_isas) {
            if (!exec::available(isa) || !kernel::cpu::detail::rounds_many(isa, facts.type)) continue;
            INFO("instruction set " << std::string(exec::name(isa)));
            std::vector<float> y(length(rows * out));
            kernel::BlockProduct product{.rows = rows, .x = x.data(), .x_stride = in, .y = y.data(), .y_stride = out};
            product.weight = {facts.type, out, in, reinterpret_cast<std::byte const*>(bytes.data())};
            kernel::cpu::block_product(context_of(isa, 2), product);
            std::vector<double> exact, bound;
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t o = 0; o < out; ++o) {
                auto const [sum, magnitudes] =
                    product_rounded_by_32(x.data() + r * in, w.data() + o * in, in, 2 * largest);
                exact.push_back(sum);
                bound.push_back(tolerance<float>(in / 16) * magnitudes);
              }
            require_within(y, exact, bound);
          }
        }
  }
}

TEST_CASE("Few rows are rounded to int8 and summed in exact integers, for every code and at the ends of the ranges") {
  for (auto const& facts : tutti::detail::block_facts) {
    if (!is_quantised(facts.type)) continue;
    for (int fill : {-1, 0x00, 0x7f, 0x80, 0xff})  // of the bytes other than scales in half precision; -1: random
      for (bool full : {false, true})              // x at the end of its range everywhere
        for (std::int64_t count : {1, 2, 5}) {
          std::int64_t const in = count * facts.elements, out = 6, rows = 5;
          CAPTURE(std::string(facts.name), fill, full, in);
          auto const bytes = filled_blocks(facts, out * count, fill);
          std::vector<float> w(length(out * in));
          dequantise(facts.type, bytes.data(), out * in, w.data());
          auto x = Random(3).floats(rows * in, 4);
          if (full)
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / length(in) % 2 == 0 ? 3.0f : -3.0f;
          std::fill(x.begin(), x.begin() + 32, 0.0f);
          std::vector<double> y, bound;
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t o = 0; o < out; ++o) {
              auto const [exact, magnitudes] = rounded_product(facts, x.data() + r * in, w.data() + o * in,
                                                               bytes.data() + o * count * facts.bytes, in);
              y.push_back(exact);
              bound.push_back(tolerance<float>(count) * magnitudes);
            }
          on_every_context(
              [&](exec::Context& context) {
                std::vector<float> all(y.size()), each = all;
                kernel::BlockProduct product{
                    .rows = rows, .x = x.data(), .x_stride = in, .y = all.data(), .y_stride = out};
                product.weight = {facts.type, out, in, reinterpret_cast<std::byte const*>(bytes.data())};
                kernel::cpu::block_product(context, product);
                // What else is multiplied with it makes no difference to a row.
                product.rows = 1;
                for (std::int64_t r = 0; r < rows; ++r, product.x += in) {
                  product.y = each.data() + r * out;
                  kernel::cpu::block_product(context, product);
                }
                REQUIRE(same_bits(all, each));
                return all;
              },
              [&](std::vector<float> const& all) { require_within(all, y, bound); });
        }
  }
}

TEST_CASE("NaN and infinity in x reach every output of their row, and no other row") {
  for (auto const& facts : tutti::detail::block_facts)
    for (std::int64_t rows : {3, 12})
      for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        CAPTURE(std::string(facts.name), rows, bad);
        Weight const w(facts.type, 9, 512, 2);
        auto x = Random(4).floats(rows * 512);
        x[512 + 300] = bad;
        on_every_context(
            [&](exec::Context& context) {
              std::vector<float> y(length(rows * 9));
              kernel::cpu::block_product(
                  context,
                  {.rows = rows, .x = x.data(), .x_stride = 512, .weight = w.matrix(), .y = y.data(), .y_stride = 9});
              for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(std::isfinite(y[i]) == (i / 9 != 1));
              for (float& value : y)
                if (!std::isfinite(value)) value = 0;  // of NaN only that it is one
              return y;
            },
            [](std::vector<float> const&) {});
      }
}

TEST_CASE("Several products of the same x in one region are each what it is alone") {
  for (std::int64_t rows : {1, 3, 20}) {
    CAPTURE(rows);
    Weight const q(BlockType::q4_k, 70, 512, 1), k(BlockType::q6_k, 1, 512, 2), v(BlockType::q4_1, 33, 512, 3),
        none(BlockType::f16, 0, 512, 4);
    auto const x = Random(5).floats(rows * 512), bias = Random(6).floats(70);
    auto const product = [&](Weight const& w, float* y) {
      return kernel::BlockProduct{
          .rows = rows, .x = x.data(), .x_stride = 512, .weight = w.matrix(), .y = y, .y_stride = w.out};
    };
    on_every_context(
        [&](exec::Context& context) {
          std::vector<float> all(length(rows * 104), -7.0f), each = all;
          auto const run = [&](float* y, bool together) {
            kernel::BlockProduct list[] = {product(q, y), product(none, nullptr), product(k, y + rows * 70),
                                           product(v, y + rows * 71)};
            list[0].bias = bias.data();
            if (together) kernel::cpu::block_products(context, list, 4);
            else
              for (auto const& one : list) kernel::cpu::block_product(context, one);
          };
          run(all.data(), true);
          run(each.data(), false);
          REQUIRE(same_bits(all, each));
          return all;
        },
        [&](std::vector<float> const& all) {
          Exact const first = exact_product(v, rows, x, 512);
          require_within({all.begin() + rows * 71, all.end()}, first.y, first.bound);
        });
  }
}

TEST_CASE("SwiGLU of weights in blocks is the gate of the two products") {
  for (auto const& facts : tutti::detail::block_facts)
    for (std::int64_t rows : {0, 1, 4, 7, 21})
      for (std::int64_t out : {0, 1, 37}) {
        CAPTURE(std::string(facts.name), rows, out);
        std::int64_t const in = 256, y_stride = out + 2;
        Weight const gate(facts.type, out, in, 3), up(rows == 4 ? BlockType::q8_0 : facts.type, out, in, 4);
        auto const x = Random(9).floats(rows * in);
        on_every_context(
            [&](exec::Context& context) {
              std::vector<float> y(length(rows * y_stride), -3.0f);
              kernel::cpu::block_swiglu(context, {.rows = rows,
                                                  .x = x.data(),
                                                  .x_stride = in,
                                                  .gate = gate.matrix(),
                                                  .up = up.matrix(),
                                                  .y = y.data(),
                                                  .y_stride = y_stride});
              // The same from the two products: their numerics are tested above.
              std::vector<float> a(length(rows * out)), b = a;
              kernel::BlockProduct product{.rows = rows, .x = x.data(), .x_stride = in, .y_stride = out};
              product.weight = gate.matrix(), product.y = a.data();
              kernel::cpu::block_product(context, product);
              product.weight = up.matrix(), product.y = b.data();
              kernel::cpu::block_product(context, product);
              for (std::int64_t r = 0; r < rows; ++r)
                for (std::int64_t o = 0; o < y_stride; ++o) {
                  float const value = y[length(r * y_stride + o)];
                  if (o >= out) {
                    REQUIRE(value == -3.0f);
                    continue;
                  }
                  double const g = a[length(r * out + o)], u = b[length(r * out + o)];
                  REQUIRE(close(value, g / (1 + std::exp(-g)) * u, 1e-6));
                }
              return y;
            },
            [](std::vector<float> const&) {});
      }
}

TEST_CASE("Rows of a table in blocks are what dequantise gives, and zeros for tokens that it has not") {
  for (auto const& facts : tutti::detail::block_facts)
    for (std::int64_t in : {std::int64_t{0}, std::int64_t{facts.elements}, std::int64_t{256}, std::int64_t{2560}}) {
      CAPTURE(std::string(facts.name), in);
      Weight const table(facts.type, 11, in, 8);
      std::vector<std::int32_t> const tokens{3, 0, 10, 11, -1, std::numeric_limits<std::int32_t>::min(), 3, 2147483647};
      std::vector<float> expected;
      for (std::int32_t const token : tokens)
        for (std::int64_t i = 0; i < in; ++i)
          expected.push_back(token < 0 || token >= 11 ? 0.0f : table.values[length(token * in + i)]);
      on_every_context(
          [&](exec::Context& context) {
            std::vector<float> y(expected.size(), -1.0f);
            kernel::cpu::block_rows(context,
                                    {.rows = 8, .tokens = tokens.data(), .table = table.matrix(), .y = y.data()});
            return y;
          },
          [&](std::vector<float> const& y) { REQUIRE(same_bits(y, expected)); });
    }
}

TEST_CASE("Weights in blocks that do not fit are refused with a sentence") {
  exec::Context& context = context_of(exec::Isa::scalar, 1);
  float y[4] = {};
  kernel::BlockProduct product{.rows = 1, .x = y, .weight = {BlockType::q4_0, 1, 33, nullptr}, .y = y};
  REQUIRE_ERROR(kernel::cpu::block_product(context, product), ErrorKind::shape, "no whole blocks");
  product.weight.in = 32;
  product.rows = -1;
  REQUIRE_ERROR(kernel::cpu::block_product(context, product), ErrorKind::shape, "negative");
  product.rows = 1;
  product.weight.out = -1;
  REQUIRE_ERROR(kernel::cpu::block_product(context, product), ErrorKind::shape, "negative");
  kernel::BlockMatrix const a{BlockType::f32, 2, 2, nullptr}, b{BlockType::f32, 2, 3, nullptr};
  kernel::BlockProduct const two[] = {{.x = y, .weight = a}, {.x = y, .weight = b}};
  REQUIRE_ERROR(kernel::cpu::block_products(context, two, 2), ErrorKind::shape, "another x");
  REQUIRE_ERROR(kernel::cpu::block_swiglu(context, {.gate = a, .up = b}), ErrorKind::shape, "same shape");
  REQUIRE_ERROR(kernel::cpu::block_rows(context, {.table = {BlockType::q8_0, 1, 31, nullptr}}), ErrorKind::shape,
                "no whole blocks");
  kernel::cpu::block_products(context, nullptr, 0);
}

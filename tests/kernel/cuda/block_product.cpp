// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/block_product.hpp> <tutti/core/block_element.hpp>
#include <tutti/kernel/cuda/block_product.hpp>

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>

#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr BlockType block_types[] = {BlockType::f32,  BlockType::f16,  BlockType::bf16, BlockType::q4_0,
                                     BlockType::q4_1, BlockType::q5_0, BlockType::q5_1, BlockType::q8_0,
                                     BlockType::q2_k, BlockType::q3_k, BlockType::q4_k, BlockType::q5_k,
                                     BlockType::q6_k, BlockType::iq4_nl, BlockType::iq4_xs};

/// A matrix of a type, on the device, with its numbers.
struct StoredMatrix {
  std::vector<float> numbers;
  OnDevice<std::uint8_t> bytes;
  kernel::BlockMatrix view;

  static std::vector<std::uint8_t> made(BlockType type, std::int64_t out, std::int64_t in, std::uint64_t seed,
                                        std::vector<float>& numbers) {
    numbers = Random(seed).floats(out * in);
    std::vector<std::uint8_t> bytes(length(out * row_bytes(type, in)));
    quantise(type, numbers.data(), out * in, bytes.data());
    dequantise(type, bytes.data(), out * in, numbers.data());
    return bytes;
  }
  StoredMatrix(BlockType type, std::int64_t out, std::int64_t in, std::uint64_t seed)
      : bytes(made(type, out, in, seed, numbers)),
        view{type, out, in, reinterpret_cast<std::byte const*>(bytes.data())} {}

  double dot(std::vector<float> const& x, std::int64_t row, std::int64_t o) const {
    double sum = 0;
    for (std::int64_t i = 0; i < view.in; ++i)
      sum += double{x[length(row * view.in + i)]} * double{numbers[length(o * view.in + i)]};
    return sum;
  }
};

}  // namespace

TEST_CASE("One number of a block has the bits that the whole block's has, for every type") {
  for (BlockType const type : block_types)
    blocks::with_block(type, [&]<class Block>(Block) {
      constexpr int elements = block_elements(Block::type);
      std::vector<std::uint8_t> bytes(40 * sizeof(Block));
      Random random(7);
      // Any bytes are a block; scales that are not numbers would only show that NaN is none.
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.bits() & 0x3f);
      std::vector<float> numbers(length(40 * elements));
      dequantise(type, bytes.data(), 40 * elements, numbers.data());
      std::int64_t wrong = 0;
      for (int b = 0; b < 40; ++b) {
        Block block;
        std::memcpy(static_cast<void*>(&block), bytes.data() + length(b) * sizeof block, sizeof block);
        for (int e = 0; e < elements; ++e) wrong += blocks::element(block, e) != numbers[length(b * elements + e)];
      }
      CAPTURE(name(type));
      CHECK(wrong == 0);
    });
}

TEST_CASE("Products with stored weights on a device are those of the numbers that the blocks stand for") {
  for (BlockType const type : block_types)
    for (std::int64_t const rows : {1, 3, 8, 9, 37}) {
      std::int64_t const in = 256, out = rows == 3 ? 37 : 9, stride = out + 3;
      StoredMatrix const w(type, out, in, 11);
      Random random(3);
      auto const x = random.floats(rows * in), bias = random.floats(out), residual = random.floats(rows * stride);
      OnDevice const on_x(x), on_bias(bias), y(residual);
      kernel::cuda::block_product(cuda_context(), {.rows = rows, .x = on_x.data(), .x_stride = in, .weight = w.view,
                                                   .bias = on_bias.data(), .residual = y.data(),
                                                   .residual_stride = stride, .y = y.data(), .y_stride = stride});
      std::vector<double> exact;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < stride; ++o) {
          exact.push_back(double{residual[length(row * stride + o)]});
          if (o < out) exact.back() += w.dot(x, row, o) + double{bias[length(o)]};
        }
      CAPTURE(name(type), rows);
      require_close_on_device(y.read(), exact, 1e-5, 4, "y");
    }
}

TEST_CASE("Rows that no block fills and SwiGLU of two types are computed on a device too") {
  for (BlockType const type : {BlockType::f32, BlockType::f16, BlockType::bf16})
    for (std::int64_t const rows : {2, 11}) {
      StoredMatrix const w(type, 5, 77, 2);
      auto const x = Random(4).floats(rows * 77);
      OnDevice const on_x(x);
      OnDevice<float> const y(length(rows * 5));
      kernel::cuda::block_product(cuda_context(), {.rows = rows, .x = on_x.data(), .x_stride = 77, .weight = w.view,
                                                   .y = y.data(), .y_stride = 5});
      std::vector<double> exact;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < 5; ++o) exact.push_back(w.dot(x, row, o));
      CAPTURE(name(type), rows);
      require_close_on_device(y.read(), exact, 1e-5, 4, "y");
    }
  StoredMatrix const gate(BlockType::q6_k, 12, 256, 5), up(BlockType::q4_k, 12, 256, 6);
  for (std::int64_t const rows : {1, 10}) {
    auto const x = Random(8).floats(rows * 256);
    OnDevice const on_x(x);
    OnDevice<float> const y(length(rows * 12));
    kernel::cuda::block_swiglu(cuda_context(), {rows, on_x.data(), 256, gate.view, up.view, y.data(), 12});
    std::vector<double> exact;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t o = 0; o < 12; ++o) {
        double const g = gate.dot(x, row, o);
        exact.push_back(g / (1 + std::exp(-g)) * up.dot(x, row, o));
      }
    require_close_on_device(y.read(), exact, 2e-5, 20, "y");
  }
  StoredMatrix const narrow(BlockType::f32, 12, 255, 5);
  float* const none = nullptr;
  REQUIRE_ERROR(kernel::cuda::block_swiglu(cuda_context(), {1, none, 256, narrow.view, up.view, none, 12}),
                ErrorKind::shape, "differ");
  kernel::BlockMatrix odd = up.view;
  odd.in = 100;
  REQUIRE_ERROR(kernel::cuda::block_product(cuda_context(), {.rows = 1, .weight = odd}), ErrorKind::shape,
                "whole blocks");
}

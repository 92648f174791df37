// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What every device must do, for its own memory and for tensors on it.

#include <tutti/tensor/copy.hpp>
#include <tutti/tensor/device.hpp>
#include <tutti/tensor/tensor.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <limits>
#include <vector>

namespace tutti::test {

template <Device D>
void device_returns_its_bytes(D const device) {
  CHECK(device.allocate(0) == nullptr);
  device.deallocate(nullptr, 0);
  for (std::size_t bytes : {1u, 2u, 63u, 64u, 65u, 4095u, 4096u, 100001u}) {
    void* const memory = device.allocate(bytes);
    void* const other = device.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % storage_alignment == 0);
    std::vector<unsigned char> sent(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<unsigned char>(i * 7 + 1);
    std::vector<unsigned char> received(bytes);
    device.copy_from_host(memory, sent.data(), bytes);
    device.copy_within(other, memory, bytes);
    device.copy_to_host(received.data(), other, bytes);
    CHECK(received == sent);
    device.copy_within(nullptr, nullptr, 0);
    device.copy_from_host(nullptr, nullptr, 0);
    device.copy_to_host(nullptr, nullptr, 0);
    device.deallocate(memory, bytes);
    device.deallocate(other, bytes);
  }
  REQUIRE_ERROR(device.allocate(std::numeric_limits<std::size_t>::max() - 10), ErrorKind::out_of_memory, "bytes");
}

/// 0, 1, 2, ... in row-major order.
inline Tensor<std::int32_t> counted(Shape shape) {
  Tensor<std::int32_t> t(shape);
  std::int32_t next = 0;
  for (std::int32_t& element : t.elements()) element = next++;
  return t;
}

template <Device D>
void strided_views_are_copied(D const device) {
  for (Shape const& shape : {Shape{5, 7}, Shape{1, 1}, Shape{1, 6}, Shape{6, 1}, Shape{0, 3}}) {
    CAPTURE(to_string(shape));
    auto const source = counted(shape);
    auto const here = to_device(source, device);
    auto const back = to_host(clone(here.view().transpose()));
    REQUIRE(back.shape() == Shape{shape[1], shape[0]});
    int wrong = 0;
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j) wrong += back(j, i) != source(i, j);
    CHECK(wrong == 0);
  }
  auto const source = counted({4, 6});
  auto far = to_device(source, device);
  auto target = zeros<std::int32_t>(Shape{4, 6}, device);
  copy(far.slice(1, 1, 4), target.slice(1, 2, 5));
  copy_from_host(counted({4, 1}), target.slice(1, 5, 6));
  Tensor<std::int32_t> result({6, 4});
  copy_to_host(target, result.transpose());
  int wrong = 0;
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 6; ++j) wrong += result(j, i) != (j == 5 ? i : j >= 2 ? source(i, j - 1) : 0);
  CHECK(wrong == 0);
}

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/copy.hpp>
#include <tutti/tensor/tensor.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

using namespace tutti;
using test::TestDevice;

static_assert(!std::is_copy_constructible_v<Tensor<float>> && !std::is_copy_assignable_v<Tensor<float>>);
static_assert(std::is_nothrow_move_constructible_v<Tensor<float>> && std::is_nothrow_move_assignable_v<Tensor<float>>);
static_assert(std::is_convertible_v<Tensor<float>&, TensorView<float>>);
static_assert(std::is_convertible_v<Tensor<float> const&, TensorView<float const>>);
static_assert(!std::is_convertible_v<Tensor<float> const&, TensorView<float>>);
static_assert(std::is_same_v<decltype(std::declval<Tensor<float> const&>().data()), float const*>);

TEMPLATE_TEST_CASE("tensors are filled, cloned and moved on any device", "", Cpu, TestDevice) {
  TestDevice::reset();
  for (Shape const& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 0, 2}, Shape{3, 5}, Shape{17}, Shape{2, 3, 4, 5}}) {
    Tensor<float, TestType> t = full<float, TestType>(shape, 2.5f);
    CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % storage_alignment == 0);
    Tensor<float, TestType> const copy_of_t = t.clone();
    t.fill(1);
    CHECK(copy_of_t.shape() == shape);
    auto const here = to_host(copy_of_t);
    bool same = true;
    for (float element : here.elements()) same = same && element == 2.5f;
    CHECK(same);
    if (shape.size() != 0) CHECK(copy_of_t.data() != t.data());

    auto const* const data = t.data();
    Tensor<float, TestType> taken = std::move(t);
    CHECK(taken.data() == data);
    CHECK(t.shape() == Shape{0});  // NOLINT: what moving leaves is specified
    CHECK(t.size() == 0);
    CHECK(t.data() == nullptr);
    CHECK(t.clone().size() == 0);
    t.fill(3);
    t = std::move(taken);
    CHECK(t.shape() == shape);
    Tensor<float, TestType>& self = t;
    t = std::move(self);
    CHECK(t.shape() == shape);
    CHECK(t.data() == data);
  }
  CHECK(TestDevice::counts().live_bytes == 0);
  CHECK(TestDevice::counts().errors == 0);
}

TEMPLATE_TEST_CASE("zeros, ones, full hold any element type", "", bool, char, std::byte, std::int8_t, std::uint8_t,
                   std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, bfloat16,
                   float16, float, double) {
  using T = TestType;
  auto const z = zeros<T>({3});
  auto const o = ones<T>({3});
  auto const f = full<T>({3}, T(1));
  for (int i = 0; i < 3; ++i) {
    CHECK((z(i) == T{}));
    CHECK((o(i) == T(1)));
    CHECK((f(i) == o(i)));
  }
  CHECK(z.dtype() == dtype_of<T>);
  Tensor<T, TestDevice> const far = ones<T, TestDevice>({5});
  CHECK((to_host(far)(4) == T(1)));
}

TEST_CASE("a tensor on foreign storage checks size and alignment and releases it") {
  alignas(64) static float memory[16] = {};
  static int released = 0;
  released = 0;
  auto const release = [](void*, Cpu const&, void*, std::size_t) noexcept { ++released; };
  {
    Tensor<float> t({4, 4}, Storage<Cpu>({}, memory, sizeof memory, release, nullptr));
    t(3, 3) = 7;
    CHECK(memory[15] == 7);
    Tensor<float> reshaped = std::move(t).reshaped({2, -1});
    CHECK(reshaped.shape() == Shape{2, 8});
    CHECK(reshaped.data() == memory);
    CHECK(released == 0);
  }
  CHECK(released == 1);
  REQUIRE_ERROR(Tensor<float>({17}, Storage<Cpu>({}, memory, sizeof memory, release, nullptr)), ErrorKind::shape,
                "shape (17,) of float32 does not fit 64 bytes");
  CHECK(released == 2);
  REQUIRE_ERROR(Tensor<double>({1}, Storage<Cpu>({}, memory + 1, 60, release, nullptr)), ErrorKind::invalid_argument,
                "not aligned for float64");
  CHECK(released == 3);
}

TEST_CASE("a failed reshape of an owner leaves it as it was") {
  Tensor<float> t({2, 3});
  REQUIRE_ERROR(std::move(t).reshaped({4}), ErrorKind::shape, "cannot become (4)");
  CHECK(t.shape() == Shape{2, 3});  // NOLINT
}

TEST_CASE("sizes that no memory can hold are errors, not wrapped") {
  REQUIRE_ERROR(Tensor<double>({std::int64_t{1} << 61}), ErrorKind::overflow, "does not fit 64 bits");
  REQUIRE_ERROR(Tensor<char>({std::int64_t{1} << 62}), ErrorKind::out_of_memory, "not available");
  REQUIRE_ERROR((Tensor<float, TestDevice>({std::int64_t{1} << 40})), ErrorKind::out_of_memory, "the device has");
}

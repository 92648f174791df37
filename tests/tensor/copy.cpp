// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/tensor/copy.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"
#include "tensor/device_laws.hpp"

#include <cstdint>
#include <type_traits>
#include <vector>

using namespace tutti;
using test::counted;
using test::TestDevice;

namespace {

std::vector<std::int32_t> list(Tensor<std::int32_t> const& t) { return {t.elements().begin(), t.elements().end()}; }

}  // namespace

static_assert(TensorLike<Tensor<float>> && TensorLike<TensorView<float const>> &&
              TensorLike<Tensor<float, TestDevice> const&>);
static_assert(!TensorLike<int> && !TensorLike<std::vector<float>>);
static_assert(std::is_same_v<ValueOf<TensorView<float const>>, float> &&
              std::is_same_v<DeviceOf<Tensor<int, TestDevice>>, TestDevice>);

TEMPLATE_TEST_CASE("copies between strided views on one device", "", Cpu, TestDevice) {
  TestDevice::reset();
  test::strided_views_are_copied(TestType{});
  CHECK(TestDevice::counts().errors == 0);
}

TEST_CASE("memory without gaps moves in one piece") {
  auto const source = counted({8, 9, 10});
  TestDevice::reset();
  auto far = to_device(source, TestDevice{});
  CHECK(TestDevice::counts().copies_from_host == 1);
  auto const rows = to_host(far.slice(0, 2, 5));
  CHECK(TestDevice::counts().copies_to_host == 1);
  CHECK(rows(0, 0, 0) == 180);
  auto const columns = to_host(far.slice(1, 2, 5));
  CHECK(TestDevice::counts().copies_to_host == 9);  // one for each of the eight blocks
  CHECK(columns(7, 2, 9) == source(7, 4, 9));
}

TEST_CASE("overlapping views are copied as if through a temporary") {
  auto t = counted({10});
  copy(t.slice(0, 0, 8), t.slice(0, 2, 10));
  CHECK(list(t) == std::vector<std::int32_t>{0, 1, 0, 1, 2, 3, 4, 5, 6, 7});
  t = counted({10});
  copy(t.slice(0, 2, 10), t.slice(0, 0, 8));
  CHECK(list(t) == std::vector<std::int32_t>{2, 3, 4, 5, 6, 7, 8, 9, 8, 9});
  auto square = counted({3, 3});
  copy(square.transpose(), square);
  CHECK(list(square) == std::vector<std::int32_t>{0, 3, 6, 1, 4, 7, 2, 5, 8});
  copy(square, square);
  CHECK(list(square) == std::vector<std::int32_t>{0, 3, 6, 1, 4, 7, 2, 5, 8});
  auto far = to_device(counted({3, 3}), TestDevice{});
  copy(far.transpose(), far);
  CHECK(list(to_host(far)) == list(square));
}

TEST_CASE("a broadcast source fills its target") {
  auto const row = counted({3});
  Tensor<std::int32_t> t({2, 3});
  copy(row.view().broadcast({2, 3}), t);
  auto const windows = decltype(t.view())::strided(t.data(), Shape{2, 3}, {1, 1});
  REQUIRE_ERROR(copy(t, windows), ErrorKind::invalid_argument, "view of shape (2, 3), reach one element");
  CHECK(list(t) == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("copies refuse other shapes and other devices of one kind, with the facts") {
  auto a = counted({2, 3});
  auto b = counted({3, 2});
  REQUIRE_ERROR(copy(a, b), ErrorKind::shape, "shapes of source and target differ: (2, 3) and (3, 2)");
  REQUIRE_ERROR(copy_to_host(a, b), ErrorKind::shape, "(2, 3) and (3, 2)");
  REQUIRE_ERROR(copy_from_host(a, b), ErrorKind::shape, "(2, 3) and (3, 2)");
  auto first = to_device(a, TestDevice{0});
  auto second = to_device(first, TestDevice{1});
  CHECK(second.device().index == 1);
  CHECK(list(to_host(second)) == list(a));
  REQUIRE_ERROR(copy(first, second), ErrorKind::device, "different devices");
  REQUIRE_ERROR(copy_to_host(first, b), ErrorKind::shape, "(2, 3) and (3, 2)");
  try {
    copy(a, b);
  } catch (Error const& error) {
    CHECK(test::contains(error.what(), "copy.cpp"));  // the caller's place, not the library's
  }
}

TEST_CASE("rank 0, moved-from and empty tensors are copied") {
  auto scalar = full<std::int32_t>({}, 9);
  auto target = zeros<std::int32_t>({});
  copy(scalar, target);
  CHECK(target() == 9);
  Tensor<std::int32_t> const taken = std::move(scalar);
  CHECK(to_host(scalar).size() == 0);  // NOLINT
  CHECK(to_device(scalar, TestDevice{}).size() == 0);
  CHECK(clone(TensorView<float>()).size() == 0);
  CHECK(clone(scalar).size() == 0);
  CHECK(clone(taken)() == 9);
}

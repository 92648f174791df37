// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Buffers of collectives: what counts as one, and how views with gaps are packed; also on a device that the host
/// cannot touch.
// Covers: <tutti/comm/buffer.hpp> <tutti/comm/strided_copy.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <tutti/comm/operand.hpp>

#include <array>
#include <span>
#include <string>
#include <vector>

using namespace tutti;

static_assert(comm::Buffer<Tensor<float>&> && comm::Buffer<Tensor<float> const&> &&
              comm::Buffer<TensorView<float const>>);
static_assert(comm::Buffer<std::vector<double>&> && comm::Buffer<std::span<int>> && comm::Buffer<std::array<char, 3>&>);
static_assert(!comm::Buffer<float&> && !comm::Buffer<std::vector<std::string>&> && !comm::Buffer<int>);
static_assert(
    std::is_const_v<std::remove_pointer_t<decltype(comm::view_of(std::declval<std::vector<int> const&>()).data())>>);

TEST_CASE("a view with gaps is packed in row-major order and stored back") {
  Tensor<int> x(Shape{3, 4, 5});
  for (int i = 0; i < 60; ++i) x.data()[i] = i;
  auto const views = {x.slice(1, 1, 3), x.slice(2, 0, 1), x.transpose(), x.transpose({1, 0, 2}), x.view()};
  for (auto const& view : views) {
    auto operand = comm::operand_of(view);
    CHECK((operand.data() == x.data()) == view.contiguous());
    std::int64_t at = 0;
    for (std::int64_t a = 0; a < view.shape()[0]; ++a)
      for (std::int64_t b = 0; b < view.shape()[1]; ++b)
        for (std::int64_t c = 0; c < view.shape()[2]; ++c) CHECK(operand.data()[at++] == view(a, b, c));
    for (std::int64_t i = 0; i < operand.size(); ++i) operand.data()[i] += 1000;
    operand.store();
    for (std::int64_t a = 0; a < view.shape()[0]; ++a)
      for (std::int64_t b = 0; b < view.shape()[1]; ++b)
        for (std::int64_t c = 0; c < view.shape()[2]; ++c) {
          CHECK(view(a, b, c) >= 1000);
          view(a, b, c) -= 1000;
        }
  }
  for (int i = 0; i < 60; ++i) CHECK(x.data()[i] == i);
}

TEST_CASE("empty views and numbers of rank 0 need no packing") {
  Tensor<float> x(Shape{4, 6});
  CHECK(comm::operand_of(x.slice(1, 2, 2)).size() == 0);
  Tensor<float> number{Shape{}};
  CHECK(comm::operand_of(number).size() == 1);
}

TEST_CASE("a view of more elements than memory can be counted in is refused") {
  Tensor<double> const one(Shape{1});
  std::int64_t const many = (std::int64_t{1} << 61) + 4;  // 32 bytes beyond 2^64
  REQUIRE_ERROR(comm::input_of(one.view().broadcast(Shape{many})), ErrorKind::overflow, "does not fit 64 bits");
}

TEST_CASE("a tensor that is moved in is owned and handed back") {
  auto x = full<float>(Shape{5}, 2.0f);
  float const* const data = x.data();
  auto operand = comm::operand_of(std::move(x));
  auto moved = std::move(operand);
  CHECK(moved.data() == data);
  Tensor<float> const back = moved.take();
  CHECK(back.data() == data);
  CHECK(back(4) == 2.0f);
}

TEST_CASE("views on a device that the host cannot touch are packed by the device") {
  test::TestDevice const device;
  Tensor<float, test::TestDevice> x(Shape{4, 3}, device);
  std::array<float, 12> host{};
  for (std::size_t i = 0; i < 12; ++i) host[i] = static_cast<float>(i);
  device.copy_from_host(x.data(), host.data(), sizeof host);
  {
    auto operand = comm::operand_of(x.transpose());
    std::array<float, 12> packed{};
    device.copy_to_host(packed.data(), operand.data(), sizeof packed);
    for (std::size_t i = 0; i < 12; ++i) CHECK(packed[i] == host[i % 4 * 3 + i / 4]);
    operand.store();
  }
  CHECK(test::TestDevice::counts().errors == 0);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Views of other libraries, by stand-ins with the members that std::mdspan and Kokkos::View have.

#include "support/catch.hpp"

#include <tutti/comm/operand.hpp>
#include <tutti/tensor/foreign.hpp>

#include <span>
#include <vector>

using namespace tutti;

namespace {

/// As std::mdspan with std::layout_stride.
template <class T, std::size_t Rank>
class Mdspan {
 public:
  using element_type = T;
  Mdspan(T* data, std::array<std::size_t, Rank> extents, std::array<std::size_t, Rank> strides)
      : data_(data), extents_(extents), strides_(strides) {}
  static constexpr std::size_t rank() noexcept { return Rank; }
  std::size_t extent(std::size_t axis) const { return extents_[axis]; }
  std::size_t stride(std::size_t axis) const { return strides_[axis]; }
  T* data_handle() const { return data_; }

 private:
  T* data_;
  std::array<std::size_t, Rank> extents_, strides_;
};

/// As Kokkos::View, whose rank is an object that can be called.
struct KokkosLike {
  struct Rank {
    constexpr unsigned operator()() const { return 2; }
  };
  static constexpr Rank rank{};
  double* elements;
  long extent(int axis) const { return axis == 0 ? 3 : 2; }
  long stride(int axis) const { return axis == 0 ? 1 : 3; }  // LayoutLeft
  double* data() const { return elements; }
};

static_assert(ForeignView<Mdspan<float, 2>> && ForeignView<Mdspan<float const, 1>> && ForeignView<KokkosLike>);
static_assert(!ForeignView<std::span<float>> && !ForeignView<std::vector<float>> && !ForeignView<TensorView<float>> &&
              !ForeignView<Tensor<float>>);
static_assert(comm::Buffer<Mdspan<float, 2>> && comm::Buffer<KokkosLike const&>);

}  // namespace

TEST_CASE("another library's view refers to the same elements") {
  std::vector<float> memory(24);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  Mdspan<float, 2> const columns(memory.data(), {4, 2}, {6, 2});
  TensorView<float> const x = as_view(columns);
  CHECK(x.shape() == Shape{4, 2});
  CHECK(x(3, 1) == 20.0f);
  CHECK_FALSE(x.contiguous());
  x(0, 1) = -1.0f;
  CHECK(memory[2] == -1.0f);
  TensorView<float const> const readable = as_view(Mdspan<float const, 1>(memory.data(), {3}, {1}));
  CHECK(readable(2) == -1.0f);

  double elements[6] = {1, 2, 3, 4, 5, 6};
  auto const y = as_view(KokkosLike{elements});
  CHECK(y.shape() == Shape{3, 2});
  CHECK(y(2, 1) == 6.0);
  CHECK(y(0, 1) == 4.0);
}

TEST_CASE("more axes than a tensor has are refused") {
  float one = 1;
  Mdspan<float, 9> const deep(&one, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  REQUIRE_ERROR(as_view(deep), ErrorKind::shape, "9");
}

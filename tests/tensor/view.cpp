// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/tensor/row_major.hpp>
// Covers: <tutti/tensor/subscript.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/tensor/view.hpp>

#include "support/catch.hpp"
#include "support/test_device.hpp"

#include <cstdint>
#include <set>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace tutti;

namespace {

/// The oracle: a view as the list of offsets of its elements in row-major order.
struct Naive {
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> offsets;
};

std::int64_t flat(std::vector<std::int64_t> const& extents, std::vector<std::int64_t> const& index) {
  std::int64_t result = 0;
  for (std::size_t axis = 0; axis < extents.size(); ++axis) result = result * extents[axis] + index[axis];
  return result;
}
/// Rearranges: `source(index)` says which element of `from` stands at `index` of the result.
template <class F>
Naive rearranged(Naive const& from, std::vector<std::int64_t> const& extents, F source) {
  Naive result{extents, {}};
  std::int64_t count = 1;
  for (std::int64_t extent : extents) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> index(extents.size());
    std::int64_t rest = i;
    for (std::size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) index[axis] = rest % extents[axis];
    result.offsets.push_back(from.offsets[static_cast<std::size_t>(flat(from.extents, source(index)))]);
  }
  return result;
}

std::vector<std::int64_t> offsets_of(TensorView<std::int32_t const> view, std::int32_t const* base) {
  std::vector<std::int64_t> offsets;
  std::int64_t const count = view.size();
  for (std::int64_t i = 0; i < count; ++i) {
    auto const* element = view.data();
    std::int64_t rest = i;
    for (int axis = view.rank() - 1; axis >= 0; --axis) {
      element += rest % view.shape()[axis] * view.strides()[static_cast<std::size_t>(axis)];
      rest /= view.shape()[axis];
    }
    offsets.push_back(element - base);
  }
  return offsets;
}

struct Random {
  std::uint64_t state;
  std::int64_t below(std::int64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(bound));
  }
};

}  // namespace

static_assert(std::is_trivially_copyable_v<TensorView<float>>);
static_assert(std::is_convertible_v<TensorView<float>, TensorView<float const>>);
static_assert(!std::is_convertible_v<TensorView<float const>, TensorView<float>>);
static_assert(!std::is_convertible_v<TensorView<float>, TensorView<double const>>);
static_assert(!std::is_convertible_v<TensorView<float>, TensorView<float, test::TestDevice>>);

TEST_CASE("slice, index, transpose, reshape agree with naive index arithmetic over random chains") {
  Random random{2024};
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    std::vector<std::int64_t> extents(static_cast<std::size_t>(random.below(6)));
    for (auto& extent : extents) extent = random.below(12) == 0 ? 0 : 1 + random.below(4);
    Tensor<std::int32_t> tensor{Shape(std::span<std::int64_t const>(extents))};
    Naive naive{extents, {}};
    for (std::int64_t i = 0; i < tensor.size(); ++i) naive.offsets.push_back(i);
    TensorView<std::int32_t> view = tensor.view();
    for (int step = 0; step < 5; ++step) {
      int const rank = view.rank();
      switch (random.below(4)) {
        case 0: {
          if (rank == 0) break;
          auto const axis = static_cast<std::size_t>(random.below(rank));
          std::int64_t const begin = random.below(naive.extents[axis] + 1);
          std::int64_t const end = begin + random.below(naive.extents[axis] - begin + 1);
          auto smaller = naive.extents;
          smaller[axis] = end - begin;
          view = view.slice(static_cast<int>(axis), begin, end);
          naive = rearranged(naive, smaller, [&](std::vector<std::int64_t> index) {
            index[axis] += begin;
            return index;
          });
          break;
        }
        case 1: {
          if (rank == 0 || naive.extents[0] == 0) break;
          std::int64_t const first = random.below(naive.extents[0]);
          view = view[first];
          naive =
              rearranged(naive, {naive.extents.begin() + 1, naive.extents.end()}, [&](std::vector<std::int64_t> index) {
                index.insert(index.begin(), first);
                return index;
              });
          break;
        }
        case 2: {
          view = view.transpose();
          naive = rearranged(naive, {naive.extents.rbegin(), naive.extents.rend()},
                             [](std::vector<std::int64_t> const& index) {
                               return std::vector<std::int64_t>(index.rbegin(), index.rend());
                             });
          break;
        }
        default:
          if (!view.contiguous()) break;
          view = view.reshape({view.size()});
          naive.extents = {static_cast<std::int64_t>(naive.offsets.size())};
      }
      REQUIRE(std::vector<std::int64_t>(view.shape().begin(), view.shape().end()) == naive.extents);
      REQUIRE(offsets_of(view, tensor.data()) == naive.offsets);
      bool in_order = true;
      for (std::size_t i = 1; i < naive.offsets.size(); ++i)
        in_order = in_order && naive.offsets[i] == naive.offsets[i - 1] + 1;
      REQUIRE(view.contiguous() == in_order);
    }
  }
}

TEST_CASE("transpose takes any order and refuses what is none") {
  Tensor<std::int32_t> t({2, 3, 4});
  auto const v = t.transpose({1, 2, 0});
  CHECK(v.shape() == Shape{3, 4, 2});
  CHECK(&v(2, 3, 1) == &t(1, 2, 3));
  REQUIRE_ERROR(t.transpose({0, 1}), ErrorKind::shape, "not a permutation of the 3 axes of shape (2, 3, 4)");
  REQUIRE_ERROR(t.transpose({0, 1, 1}), ErrorKind::shape, "not a permutation");
  REQUIRE_ERROR(t.transpose({0, 1, 3}), ErrorKind::shape, "not a permutation");
  REQUIRE_ERROR(t.transpose({-1, 1, 0}), ErrorKind::shape, "not a permutation");
  REQUIRE_ERROR(t.transpose({0, 1, 2, 3, 4, 5, 6, 7, 8}), ErrorKind::shape, "not a permutation");
}

TEST_CASE("reshape computes one extent and names both shapes when sizes differ") {
  Tensor<std::int32_t> t({2, 3, 4});
  CHECK(t.reshape({-1, 6}).shape() == Shape{4, 6});
  CHECK(t.reshape({24}).shape() == Shape{24});
  CHECK(t.view().reshape(Shape{4, 3, 2}).shape() == Shape{4, 3, 2});
  CHECK(Tensor<float>({0, 3}).reshape({-1, 5}).shape() == Shape{0, 5});
  CHECK(Tensor<float>(Shape{}).reshape({1, 1}).shape() == Shape{1, 1});
  REQUIRE_ERROR(t.reshape({5, 5}), ErrorKind::shape, "shape (2, 3, 4) has 24 elements and cannot become (5, 5)");
  REQUIRE_ERROR(t.reshape({-1, -1}), ErrorKind::shape, "cannot become (-1, -1)");
  REQUIRE_ERROR(t.reshape({-2, 12}), ErrorKind::shape, "cannot become");
  REQUIRE_ERROR(t.reshape({-1, 0}), ErrorKind::shape, "cannot become");
  REQUIRE_ERROR(t.reshape({-1, 7}), ErrorKind::shape, "cannot become");
  REQUIRE_ERROR(t.reshape({1, 1, 1, 1, 1, 1, 1, 1, 24}), ErrorKind::shape, "limit of 8");
  REQUIRE_ERROR(t.transpose().reshape({24}), ErrorKind::shape, "not contiguous");
  REQUIRE_ERROR(t.transpose().elements(), ErrorKind::shape, "not contiguous");
}

TEST_CASE("broadcast repeats by strides of zero") {
  Tensor<std::int32_t> t({3, 1});
  for (int i = 0; i < 3; ++i) t(i, 0) = i;
  auto const wide = t.view().broadcast({2, 3, 4});
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 4; ++c) CHECK(&wide(a, b, c) == &t(b, 0));
  CHECK(!wide.contiguous());
  CHECK(wide.overlaps_itself());
  static_assert(std::is_const_v<std::remove_reference_t<decltype(wide(0, 0, 0))>>);
  CHECK(t.view().broadcast({3, 1}).contiguous());
  CHECK(t.view().broadcast({3, 0}).size() == 0);
  REQUIRE_ERROR(t.view().broadcast({4, 1}), ErrorKind::shape, "(3, 1) and (4, 1)");
  REQUIRE_ERROR(t.view().broadcast({3}), ErrorKind::shape, "(3, 1) and (3,)");
}

TEST_CASE("a view knows whether several indices may reach one element") {
  Tensor<float> t({4, 6});
  float* const data = t.data();
  using Strides = TensorView<float>::Strides;
  CHECK(!t.view().overlaps_itself());
  CHECK(!t.transpose().overlaps_itself());
  CHECK(!t.slice(1, 1, 3).transpose().overlaps_itself());
  CHECK(!Tensor<float>(Shape{}).view().overlaps_itself());
  CHECK(!TensorView<float>::strided(data, Shape{1, 5, 1}, Strides{0, 2, 0})
             .overlaps_itself());  // an extent of one never steps
  CHECK(!TensorView<float>::strided(data, Shape{0, 5}, Strides{0, 0}).overlaps_itself());
  CHECK(TensorView<float>::strided(data, Shape{2, 5}, Strides{0, 1}).overlaps_itself());
  CHECK(TensorView<float>::strided(data, Shape{4, 3}, Strides{1, 1}).overlaps_itself());
  CHECK(TensorView<float>::strided(data, Shape{3, 4}, Strides{3, 1}).overlaps_itself());
  CHECK(!TensorView<float>::strided(data, Shape{3, 4}, Strides{4, 1}).overlaps_itself());
  CHECK(!TensorView<float>::strided(data, Shape{4, 3}, Strides{1, 4}).overlaps_itself());
}

TEST_CASE("slices and indices outside are refused, empty ones inside are not") {
  Tensor<std::int32_t> t({2, 3});
  CHECK(t.slice(1, 3, 3).size() == 0);
  CHECK(t.slice(0, 0, 2).shape() == Shape{2, 3});
  REQUIRE_ERROR(t.slice(0, 1, 3), ErrorKind::out_of_range, "[1, 3) is outside axis 0 of shape (2, 3)");
  REQUIRE_ERROR(t.slice(0, -1, 1), ErrorKind::out_of_range, "outside");
  REQUIRE_ERROR(t.slice(1, 2, 1), ErrorKind::out_of_range, "outside");
  REQUIRE_ERROR(t.slice(2, 0, 0), ErrorKind::out_of_range, "axis 2 does not exist in shape (2, 3)");
  REQUIRE_ERROR(t[2], ErrorKind::out_of_range, "index 2");
  REQUIRE_ERROR(t[-1], ErrorKind::out_of_range, "index -1");
  REQUIRE_ERROR(Tensor<float>(Shape{})[0], ErrorKind::out_of_range, "axis 0");
}

TEST_CASE("element access is checked in debug builds") {
  static_assert(TUTTI_DEBUG == 1, "the tests run with checks");
  Tensor<std::int32_t> t({2, 3});
  t.fill(0);
  t(1, 2) = 5;
  CHECK(t.elements()[5] == 5);
  CHECK(Tensor<float>(Shape{}).view().rank() == 0);
  REQUIRE_ERROR(t(2, 0), ErrorKind::out_of_range, "element (2, 0) does not exist in shape (2, 3)");
  REQUIRE_ERROR(t(0, 3), ErrorKind::out_of_range, "element (0, 3)");
  REQUIRE_ERROR(t(0, -1), ErrorKind::out_of_range, "element (0, -1)");
  REQUIRE_ERROR(t(0), ErrorKind::out_of_range, "element (0)");
  REQUIRE_ERROR(t(0, 0, 0), ErrorKind::out_of_range, "element (0, 0, 0)");
  REQUIRE_ERROR(t(), ErrorKind::out_of_range, "element ()");
}

TEST_CASE("views of any strides become containers, in row-major order") {
  Tensor<std::int32_t> t({2, 3, 2});
  for (std::int32_t i = 0; i < 12; ++i) t.data()[i] = i;
  CHECK(std::vector<std::int32_t>(t.slice(1, 0, 2)) == std::vector<std::int32_t>{0, 1, 2, 3, 6, 7, 8, 9});
  CHECK(std::vector<std::int32_t>(t.transpose()) ==
        std::vector<std::int32_t>{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11});
  CHECK(std::set<std::int32_t>(t.slice(2, 1, 2)) == std::set<std::int32_t>{1, 3, 5, 7, 9, 11});
  CHECK(std::vector<std::int32_t>(t[1][2].slice(0, 1, 2)) == std::vector<std::int32_t>{11});
  CHECK(std::vector<std::int32_t>(t.slice(0, 0, 1).slice(1, 0, 1).broadcast({2, 2, 2})) ==
        std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(std::vector<std::int32_t>(t.slice(1, 1, 1)).empty());
  TensorView<std::int32_t const> const read = t.slice(2, 0, 1);
  CHECK(std::vector<std::int32_t>(read) == std::vector<std::int32_t>{0, 2, 4, 6, 8, 10});
}

TEST_CASE("a loop over a view that is not contiguous is refused at its own line, and says what to do") {
  Tensor<float> t({2, 3});
  t.fill(1);
  float sum = 0;
  for (float e : t.slice(0, 1, 2)) sum += e;
  CHECK(sum == 3);
  unsigned line = 0;
  try {
    line = __LINE__ + 1;
    for (float e : t.slice(1, 0, 2)) sum += e;
    FAIL("the loop must be refused");
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::shape);
    CHECK(test::contains(error.what(), "view of shape (2, 2) is not contiguous. Use clone(view)"));
    CHECK(error.where().line() == line);
    CHECK(test::contains(error.where().file_name(), "view.cpp"));
  }
  CHECK(sum == 3);
}

TEST_CASE("views of device memory move no byte") {
  test::TestDevice::reset();
  Tensor<float, test::TestDevice> t({4, 6}, test::TestDevice{1});
  auto const v = t.slice(1, 1, 5).transpose()[2];
  CHECK(v.shape() == Shape{4});
  CHECK(v.device().index == 1);
  CHECK(v.data() == t.data() + 3);
  CHECK(v.strides()[0] == 6);
  CHECK(test::TestDevice::counts().copies_within == 0);
  CHECK(test::TestDevice::counts().errors == 0);
}

TEST_CASE("a default view is empty") {
  TensorView<float> const v;
  CHECK(v.size() == 0);
  CHECK(v.shape() == Shape{0});
  CHECK(v.contiguous());
  CHECK(v.elements().empty());
}

TEST_CASE("a missing element is named with the line of the subscript") {
  Tensor<float> owner({2, 3});
  Tensor<float> const taken = std::move(owner);
  auto line = std::source_location::current().line();
  auto const says = [&](auto&& use, std::uint_least32_t at) {
    try {
      use();
    } catch (Error const& e) {
      INFO(e.what());
      return e.where().line() == at && std::string(e.what()).find("moved from") != std::string::npos;
    }
    return false;
  };
  CHECK(says([&] { owner(1, 2) = 1; }, line + 10));  // NOLINT(bugprone-use-after-move): it is the test
  CHECK(says([&] { owner() = 1; }, line + 11));
  CHECK(says([&] { owner.view()(0) = 1; }, line + 12));
#if TUTTI_DEBUG
  line = std::source_location::current().line();
  try {
    (void)taken(1, 3);
    FAIL("there is no such element");
  } catch (Error const& e) {
    CHECK(e.where().line() == line + 2);
  }
#endif
}

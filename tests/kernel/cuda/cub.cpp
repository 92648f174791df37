// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cuda/iterator.hpp> <tutti/kernel/cuda/view_offset.hpp>
#include <tutti/kernel/cuda/cub.hpp>
#include <tutti/kernel/cuda/iterator.hpp>

#include "kernel/cuda/support.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

// Not `using namespace tutti`, see kernel::cuda::reduce.
namespace tutti::test {

using kernel::cuda::Room;

namespace {

/// Asks how much room f(room) needs, gives it, and enqueues.
template <class F>
void with_room(F&& f) {
  std::size_t const bytes = f(Room{});
  OnDevice<std::byte> const memory(std::max<std::size_t>(bytes, 1));
  f(Room{memory.data(), bytes});
}

struct Largest {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const { return a < b ? b : a; }
};
struct Plus {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const { return a + b; }
};
struct IsOdd {
  __host__ __device__ bool operator()(std::int32_t x) const { return (x & 1) != 0; }
};

}  // namespace

TEST_CASE("Keys are sorted with their values, and values of equal keys keep their order") {
  for (std::int32_t const count : {0, 1, 31, 32, 33, 1023, 1024, 1025, 5000})
    for (int const bits : {1, 7, 8, 9, 17})
      for (bool const all_equal : {false, true}) {
        CAPTURE(count, bits, all_equal);
        Random random(static_cast<std::uint64_t>(count + bits));
        std::vector<std::uint32_t> keys;
        for (std::int32_t i = 0; i < count; ++i)
          keys.push_back(static_cast<std::uint32_t>(random.below(all_equal ? 1 : std::int64_t{1} << bits)));
        std::vector<std::int32_t> values(keys.size());
        std::iota(values.begin(), values.end(), 0);
        OnDevice const from_keys(keys);
        OnDevice const from_values(values);
        OnDevice<std::uint32_t> const to_keys(keys.size());
        OnDevice<std::int32_t> const to_values(keys.size());
        with_room([&](Room room) {
          return kernel::cuda::sort_pairs(cuda_context().stream(), room, from_keys.data(), to_keys.data(),
                                          from_values.data(), to_values.data(), count, bits);
        });
        std::stable_sort(values.begin(), values.end(),
                         [&](std::int32_t a, std::int32_t b) { return keys[length(a)] < keys[length(b)]; });
        std::sort(keys.begin(), keys.end());
        REQUIRE(to_keys.read() == keys);
        REQUIRE(to_values.read() == values);
      }
}

TEST_CASE("Reductions by any operator, scans and selections are those of a loop") {
  for (std::int32_t const count : {0, 1, 33, 1025, 5000}) {
    CAPTURE(count);
    Random random(static_cast<std::uint64_t>(count));
    std::vector<std::int32_t> x;
    for (std::int32_t i = 0; i < count; ++i) x.push_back(static_cast<std::int32_t>(random.below(2000)) - 1000);
    OnDevice const in(x);
    OnDevice<std::int32_t> const one(1), scanned(x.size()), kept(x.size());
    tutti::cuda::Stream const& stream = cuda_context().stream();
    with_room([&](Room room) {
      return kernel::cuda::reduce(stream, room, in.data(), one.data(), count, Largest{}, std::int32_t{-7000});
    });
    CHECK(one.read()[0] == std::accumulate(x.begin(), x.end(), -7000, Largest{}));
    with_room([&](Room room) {
      return kernel::cuda::exclusive_scan(stream, room, in.data(), scanned.data(), count, Plus{}, std::int32_t{5});
    });
    std::vector<std::int32_t> sums(x.size());
    std::exclusive_scan(x.begin(), x.end(), sums.begin(), 5);
    CHECK(scanned.read() == sums);
    with_room([&](Room room) {
      return kernel::cuda::select_if(stream, room, in.data(), kept.data(), one.data(), count, IsOdd{});
    });
    std::vector<std::int32_t> odd;
    std::copy_if(x.begin(), x.end(), std::back_inserter(odd), IsOdd{});
    CHECK(one.read()[0] == static_cast<std::int32_t>(odd.size()));
    std::vector<std::int32_t> found = kept.read();
    found.resize(odd.size());
    CHECK(found == odd);
  }
}

TEST_CASE("Views of device memory are iterators: in row-major order, whatever their strides") {
  std::vector<float> x;
  for (int i = 0; i < 4 * 6 * 5; ++i) x.push_back(static_cast<float>(i));
  OnDevice const in(x);
  using View = TensorView<float const, Cuda>;
  View const whole(in.data(), {4, 6, 5});
  struct Form {
    char const* name;
    View view;
    std::int64_t first, steps[3];  // in the order of the view's axes
  };
  Form const forms[] = {
      {"contiguous", whole, 0, {30, 5, 1}},
      {"transposed", whole.transpose({2, 0, 1}), 0, {1, 30, 5}},
      {"a box", whole.slice(0, 1, 3).slice(2, 1, 4), 31, {30, 5, 1}},
      {"a column", whole.slice(1, 2, 3).slice(2, 3, 4), 13, {30, 5, 1}},
      {"one element", whole.slice(0, 3, 4).slice(1, 5, 6).slice(2, 4, 5), 119, {30, 5, 1}},
      {"none", whole.slice(1, 2, 2), 10, {30, 5, 1}},
  };
  for (Form const& form : forms) {
    INFO(form.name);
    Shape const& shape = form.view.shape();
    std::vector<float> expected;
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j)
        for (std::int64_t k = 0; k < shape[2]; ++k)
          expected.push_back(x[length(form.first + i * form.steps[0] + j * form.steps[1] + k * form.steps[2])]);
    auto const count = static_cast<std::int32_t>(form.view.end() - form.view.begin());
    REQUIRE(count == static_cast<std::int32_t>(expected.size()));
    OnDevice<float> const out(expected.size());
    with_room([&](Room room) {
      return kernel::cuda::exclusive_scan(cuda_context().stream(), room, form.view.begin(), out.data(), count,
                                          Largest{}, -1.0f);
    });
    std::vector<float> largest(expected.size());
    std::exclusive_scan(expected.begin(), expected.end(), largest.begin(), -1.0f, Largest{});
    CHECK(out.read() == largest);
    OnDevice<float> const sum(1);
    with_room([&](Room room) {
      return kernel::cuda::reduce(cuda_context().stream(), room, form.view.begin(), sum.data(), count, Plus{}, 0.0f);
    });
    CHECK(sum.read()[0] == std::accumulate(expected.begin(), expected.end(), 0.0f));
  }
}

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cuda/sort.hpp>

#include "kernel/cuda/support.hpp"

#include <algorithm>
#include <numeric>

using namespace tutti;
using namespace tutti::test;
using kernel::cuda::detail::SortLists;

TEST_CASE("Keys are sorted with their values, and values of equal keys keep their order") {
  for (std::int64_t const count : {0, 1, 31, 32, 33, 1023, 1024, 1025, 3000, 5000})
    for (int const bits : {1, 7, 8, 9, 16, 17})
      for (bool const all_equal : {false, true}) {
        CAPTURE(count, bits, all_equal);
        Random random(static_cast<std::uint64_t>(count + bits));
        std::vector<std::uint32_t> keys;
        for (std::int64_t i = 0; i < count; ++i)
          keys.push_back(static_cast<std::uint32_t>(random.below(all_equal ? 1 : std::int64_t{1} << bits)));
        std::vector<std::int32_t> values(keys.size());
        std::iota(values.begin(), values.end(), 0);
        OnDevice const on_keys(keys);
        OnDevice const on_values(values);
        OnDevice<std::uint32_t> const other_keys(keys.size());
        OnDevice<std::int32_t> const other_values(keys.size()), counts(length(SortLists::sort_counts(count)));
        SortLists const sorted = kernel::cuda::detail::sort_by_key(
            cuda_context(),
            {on_keys.data(), on_values.data(), other_keys.data(), other_values.data(), counts.data()}, count, bits);
        std::stable_sort(values.begin(), values.end(),
                         [&](std::int32_t a, std::int32_t b) { return keys[length(a)] < keys[length(b)]; });
        std::sort(keys.begin(), keys.end());
        REQUIRE((sorted.keys == on_keys.data() ? on_keys : other_keys).read() == keys);
        REQUIRE((sorted.values == on_values.data() ? on_values : other_values).read() == values);
      }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/kernel/cpu/dropout.hpp>
#include <tutti/kernel/cuda/dropout.hpp>

#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

TEST_CASE("dropout on a GPU drops what it drops on processors, bit for bit, from any position on") {
  exec::Context context({.threads = 1});
  for (std::int64_t const size : {0, 1, 4, 5, 1023, 5000})
    for (std::uint64_t const first : {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 34) + 2})
      for (double const p : {0.0, 0.1, 0.75}) {
        CAPTURE(size, first, p);
        std::vector<float> const x = Random(static_cast<std::uint64_t>(size + 1)).floats(size);
        std::vector<std::uint64_t> const key{0x123456789abcdef0u, 11, 5, first};
        std::vector<float> expected = x;
        kernel::cpu::dropout(context, {size, x.data(), expected.data(), p, &key[0], &key[1], &key[2], &key[3]});
        OnDevice const on_x(x);
        OnDevice const on_key(key);
        std::uint64_t const* const words = on_key.data();
        kernel::cuda::dropout(cuda_context(),
                              {size, on_x.data(), on_x.data(), p, words, words + 1, words + 2, words + 3});
        CHECK(on_x.read() == expected);
      }
}

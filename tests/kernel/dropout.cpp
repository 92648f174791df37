// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/dropout.hpp> <tutti/kernel/cpu/dropout.hpp>
#include <tutti/kernel/cpu/dropout.hpp>

#include "kernel/support.hpp"

#include <cmath>
#include <utility>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Key {
  std::uint64_t seed = 0x123456789abcdef0u, step = 7, stream = 3, first = 0;
};
kernel::Dropout arguments(Key const& key, std::vector<float> const& x, std::vector<float>& y, double p) {
  return {static_cast<std::int64_t>(x.size()), x.data(), y.data(), p, &key.seed, &key.step, &key.stream, &key.first};
}

}  // namespace

TEST_CASE("dropout keeps what the random words of the contract say, from any position on, in place too") {
  for (std::size_t const size : {0u, 1u, 3u, 4u, 5u, 4099u, 9001u})
    for (std::uint64_t const first : std::initializer_list<std::uint64_t>{0, 1, 6, (std::uint64_t{1} << 34) + 3})
      for (double const p : {0.0, 0.1, 0.5, 0.999}) {
        CAPTURE(size, first, p);
        Key const key{.first = first};
        std::vector<float> const x = Random(size + 1).floats(static_cast<std::int64_t>(size));
        std::vector<float> expected(size);
        for (std::size_t i = 0; i < size; ++i) {
          std::uint64_t const n = first + i;
          std::uint32_t const word = philox4x32({std::uint32_t(n / 4), std::uint32_t(n / 4 >> 32), 7, 3},
                                                {0x9abcdef0u, 0x12345678u})[n % 4];
          expected[i] = word / 4294967296.0 >= std::floor(p * 4294967296.0) / 4294967296.0
                            ? x[i] * static_cast<float>(1 / (1 - p))
                            : 0.0f;
        }
        on_every_context(
            [&](exec::Context& context) {
              std::vector<float> y = x;
              kernel::cpu::dropout(context, arguments(key, y, y, p));
              return y;
            },
            [&](std::vector<float> const& y) { CHECK(y == expected); });
      }
}

TEST_CASE("about a share p is dropped, the mean stays, and seeds, steps and streams drop others") {
  std::vector<float> const ones(100000, 1.0f);
  exec::Context context({.threads = 1});
  auto const mask = [&](Key const& key, double p) {
    std::vector<float> y(ones.size());
    kernel::cpu::dropout(context, arguments(key, ones, y, p));
    return y;
  };
  for (double const p : {0.1, 0.25, 0.5}) {
    std::vector<float> const y = mask({}, p);
    double dropped = 0, sum = 0;
    for (float value : y) dropped += value == 0, sum += double{value};
    double const n = static_cast<double>(y.size()), deviation = std::sqrt(p * (1 - p) / n);
    CHECK(std::abs(dropped / n - p) < 4 * deviation);
    CHECK(std::abs(sum / n - 1) < 4 * deviation / (1 - p));
  }
  for (Key const& other : {Key{.seed = 1}, Key{.step = 8}, Key{.stream = 4}, Key{.first = 1}}) {
    std::vector<float> const a = mask({}, 0.5), b = mask(other, 0.5);
    double same = 0;
    for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
    CHECK(std::abs(same / 1e5 - 0.5) < 0.01);  // as two that know nothing of each other
  }
}

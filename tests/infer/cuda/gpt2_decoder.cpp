// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/cuda/gpt2_decoder.hpp> <tutti/infer/generate.hpp>
#include <tutti/infer/cuda/gpt2_decoder.hpp>
#include <tutti/infer/generate.hpp>

#include "cuda/support.hpp"
#include "infer/support.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

using namespace tutti;
using infer::cuda::Gpt2Decoder;
using test::cuda_context;
using test::oracle;
using test::Row;

static_assert(infer::Generator<Gpt2Decoder<float>> && infer::Generator<Gpt2Decoder<bfloat16>>);

namespace {

kernel::cuda::Blas& blas() {
  static kernel::cuda::Blas blas(cuda_context());
  return blas;
}
test::Gpt2Model const& model() {
  static test::Gpt2Model const model;
  return model;
}
std::vector<std::int32_t> const text{3, 49, 0, 17, 17, 8, 21};

/// Of the largest logit: fp32 sums of up to 96 terms in another order; with bfloat16 eight bits of every weight, and of
/// activations a few times in each of the two layers.
template <class T>
constexpr double bound = std::is_same_v<T, float> ? 2e-5 : 4e-2;

template <class T>
void check_close(std::span<float const> logits, Row const& expected) {
  REQUIRE(logits.size() == expected.size());
  double scale = 0, worst = 0;
  for (double v : expected) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double const error = std::abs(double(logits[i]) - expected[i]);
    worst = std::isnan(error) ? error : std::max(worst, error);
    if (!(worst <= bound<T> * scale)) break;
  }
  CHECK(worst <= bound<T> * scale);
}
std::vector<float> copy_of(std::span<float const> logits) { return {logits.begin(), logits.end()}; }
std::int32_t most_likely(std::span<float const> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

TEMPLATE_TEST_CASE("on a device logits agree with a naive model in double, prompt at once or token by token", "", float,
                   bfloat16) {
  Gpt2Decoder<TestType> whole(blas(), model().weights), single(blas(), model().weights);
  check_close<TestType>(whole.append(text), oracle(model(), text));
  for (std::size_t i = 0; i < text.size(); ++i)
    check_close<TestType>(single.append({&text[i], 1}),
                          oracle(model(), {text.begin(), text.begin() + std::ptrdiff_t(i) + 1}));
  CHECK(single.length() == 7);
  CHECK(single.capacity() == 16);
  std::int32_t const more[] = {5, 6};  // several tokens behind a filled cache
  std::vector<std::int32_t> all = text;
  all.insert(all.end(), {5, 6});
  check_close<TestType>(whole.append(more), oracle(model(), all));
  CHECK(whole.length() == 9);
  whole.reset();
  CHECK(whole.length() == 0);
  check_close<TestType>(whole.append({text.data(), 1}), oracle(model(), {3}));
}

TEMPLATE_TEST_CASE("a device goes from token to token by itself as with a host that takes the most likely one", "",
                   float, bfloat16) {
  Gpt2Decoder<TestType> by_host(blas(), model().weights), by_device(blas(), model().weights);
  for (std::size_t prompt : {std::size_t{1}, std::size_t{5}}) {
    by_host.reset();
    by_device.reset();
    std::vector<std::int32_t> expected;
    std::span<float const> logits = by_host.append({text.data(), prompt});
    for (int i = 0; i < 6; ++i) {
      expected.push_back(most_likely(logits));
      logits = by_host.append({&expected.back(), 1});
    }
    std::vector<float> const last = copy_of(logits);
    (void)by_device.append({text.data(), prompt});
    std::vector<std::int32_t> made;
    for (std::int64_t count : {3, 1, 2}) {
      auto const some = by_device.greedy(count);
      made.insert(made.end(), some.begin(), some.end());
    }
    CHECK(made == expected);
    CHECK(by_device.length() == by_host.length());
    std::int32_t const next = 11;  // the caches are the same, too
    CHECK(copy_of(by_device.append({&next, 1})) == copy_of(by_host.append({&next, 1})));
  }
}

TEMPLATE_TEST_CASE("a device decodes the same bits again", "", float, bfloat16) {
  std::vector<float> first;
  for (int round = 0; round < 2; ++round) {
    Gpt2Decoder<TestType> decoder(blas(), model().weights);
    (void)decoder.append(text);
    std::int32_t const next = 30;
    std::vector<float> const logits = copy_of(decoder.append({&next, 1}));
    if (round == 0) first = logits;
    CHECK(logits == first);
  }
}

TEST_CASE("a step is a kernel for the token, five for a layer and one for the head") {
  CHECK(Gpt2Decoder<float>(blas(), model().weights).kernels() == 1 + 5 * 2 + 1);
}

TEST_CASE("a full or impossible decoder on a device says so, and stays as it was") {
  REQUIRE_ERROR(Gpt2Decoder<float>(blas(), model().weights, 17), ErrorKind::invalid_argument, "1 to 16 positions");
  REQUIRE_ERROR(Gpt2Decoder<float>(blas(), model().weights, -1), ErrorKind::invalid_argument, "1 to 16 positions");
  nn::Gpt2Weights odd = model().weights;
  odd.config.heads = 2;
  REQUIRE_ERROR(Gpt2Decoder<float>(blas(), odd), ErrorKind::invalid_argument, "heads of 12");
  Gpt2Decoder<float> decoder(blas(), model().weights, 4);
  CHECK(decoder.capacity() == 4);
  std::vector<std::int32_t> const five{1, 2, 3, 4, 5};
  REQUIRE_ERROR(decoder.append(five), ErrorKind::out_of_range, "5 tokens do not fit");
  REQUIRE_ERROR(decoder.append({}), ErrorKind::invalid_argument, "no token");
  REQUIRE_ERROR(decoder.greedy(1), ErrorKind::invalid_argument, "Append a token first");
  for (std::int32_t const foreign : {50, -1}) {
    std::int32_t const pair[] = {3, foreign};
    REQUIRE_ERROR(decoder.append({&foreign, 1}), ErrorKind::out_of_range, "outside the vocabulary of 50");
    REQUIRE_ERROR(decoder.append(pair), ErrorKind::out_of_range, "index 1");
  }
  CHECK(decoder.length() == 0);
  (void)decoder.append({five.data(), 2});
  REQUIRE_ERROR(decoder.greedy(3), ErrorKind::out_of_range, "3 tokens do not fit behind 2 of 4");
  REQUIRE_ERROR(decoder.greedy(0), ErrorKind::invalid_argument, "no token");
  REQUIRE_ERROR(decoder.append({five.data(), 3}), ErrorKind::out_of_range, "3 tokens do not fit");
  CHECK(decoder.length() == 2);
  check_close<float>(decoder.append({five.data() + 2, 2}), oracle(model(), {1, 2, 3, 4}));
  CHECK(decoder.length() == 4);
}

TEST_CASE("logits that are not finite are never drawn on a device, and all of them refused") {
  test::Gpt2Model broken;
  float* const table = broken.tensors[0].data();
  for (std::size_t i = 0; i < 24; ++i) table[7 * 24 + i] = std::numeric_limits<float>::quiet_NaN();
  {
    Gpt2Decoder<float> decoder(blas(), broken.weights);
    auto const logits = decoder.append(text);
    CHECK(std::isnan(logits[7]));
    std::int32_t best = 0;
    for (std::int32_t id = 1; id < 50; ++id)
      if (id != 7 && logits[std::size_t(id)] > logits[std::size_t(best)]) best = id;
    CHECK(decoder.greedy(1)[0] == best);
  }
  for (float& value : broken.tensors[14]) value = std::numeric_limits<float>::infinity();
  Gpt2Decoder<float> decoder(blas(), broken.weights);
  (void)decoder.append(text);
  REQUIRE_ERROR(decoder.greedy(3), ErrorKind::invalid_argument, "none of the logits is finite");
  CHECK(decoder.length() == 0);
}

TEST_CASE("generation runs on a device, past the capacity too") {
  Gpt2Decoder<float> decoder(blas(), model().weights, 8);
  infer::Sampler greedy({.temperature = 0});
  std::vector<std::int32_t> const begin{3, 4, 5};
  std::vector<std::int32_t> expected = begin;
  std::int64_t length = 3;  // of the window that the oracle reads: grows to 8, then restarts from the newest 4
  for (int i = 0; i < 12; ++i) {
    Row const logits = oracle(model(), {expected.end() - length, expected.end()});
    expected.push_back(std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    length = length == 8 ? 4 : length + 1;
  }
  std::vector<std::int32_t> made = begin;
  CHECK(infer::generate(decoder, greedy, begin, 12, -1, [&](std::int32_t token) { made.push_back(token); }) == 12);
  CHECK(made == expected);
}

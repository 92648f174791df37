// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/generate.hpp>
#include "infer/support.hpp"
#include "support/catch.hpp"

#include <tutti/infer/generate.hpp>
#include <tutti/infer/gpt2_decoder.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

using test::oracle;
using test::Row;
using Model = test::Gpt2Model;

void check_close(std::span<float const> logits, Row const& expected) {
  REQUIRE(logits.size() == expected.size());
  double scale = 0;
  for (double v : expected) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(double(logits[i]) - expected[i]) < 2e-5 * scale);
}

}  // namespace

TEST_CASE("logits agree with a naive model in double, prompt at once or token by token, on every instruction set") {
  Model const model;
  std::vector<std::int32_t> const tokens{3, 49, 0, 17, 17, 8, 21};
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(name(isa));
    exec::Context context({.threads = 2, .isa = isa});
    Gpt2Decoder whole(context, model.weights), single(context, model.weights);
    check_close(whole.append(tokens), oracle(model, tokens));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      check_close(single.append({&tokens[i], 1}),
                  oracle(model, {tokens.begin(), tokens.begin() + std::ptrdiff_t(i) + 1}));
    CHECK(single.length() == 7);
    std::int32_t const more[] = {5, 6};  // several tokens behind a filled cache
    std::vector<std::int32_t> all = tokens;
    all.insert(all.end(), {5, 6});
    check_close(whole.append(more), oracle(model, all));
    whole.reset();
    check_close(whole.append({tokens.data(), 1}), oracle(model, {3}));
  }
}

TEST_CASE("the decoder is bitwise the same for any number of threads") {
  Model const model;
  std::vector<std::int32_t> const tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    exec::Context context({.threads = threads});
    Gpt2Decoder decoder(context, model.weights);
    (void)decoder.append(tokens);
    std::int32_t const next = 30;
    auto const logits = decoder.append({&next, 1});
    if (first.empty()) first.assign(logits.begin(), logits.end());
    CHECK(std::equal(first.begin(), first.end(), logits.begin()));
  }
}

TEST_CASE("a full or impossible decoder says so") {
  Model const model;
  exec::Context context({.threads = 1});
  REQUIRE_ERROR(Gpt2Decoder(context, model.weights, 17), ErrorKind::invalid_argument, "1 to 16 positions");
  Gpt2Decoder decoder(context, model.weights, 4);
  std::vector<std::int32_t> const five{1, 2, 3, 4, 5};
  REQUIRE_ERROR(decoder.append(five), ErrorKind::out_of_range, "5 tokens do not fit");
  REQUIRE_ERROR(decoder.append({}), ErrorKind::invalid_argument, "no token");
  std::int32_t const foreign = 50;
  REQUIRE_ERROR(decoder.append({&foreign, 1}), ErrorKind::out_of_range, "50");
  CHECK(decoder.length() == 0);
}

TEST_CASE("generation goes past the capacity by reading the newer half again, and stops where it should") {
  Model const model;
  exec::Context context({.threads = 1});
  Gpt2Decoder decoder(context, model.weights, 8);
  Sampler greedy({.temperature = 0});
  std::vector<std::int32_t> text{3, 4, 5};
  std::vector<std::int32_t> expected = text;
  std::int64_t length = 3;  // of the window that the oracle reads: grows to 8, then restarts from the newest 4
  for (int i = 0; i < 20; ++i) {
    Row const logits = oracle(model, {expected.end() - length, expected.end()});
    expected.push_back(std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    length = length == 8 ? 4 : length + 1;
  }
  std::vector<std::int32_t> made = text;
  CHECK(generate(decoder, greedy, text, 20, -1, [&](std::int32_t token) { made.push_back(token); }) == 20);
  CHECK(made == expected);

  std::int32_t const stop = expected[3 + 5];
  std::int64_t const before = std::find(expected.begin() + 3, expected.end(), stop) - expected.begin() - 3;
  made = text;
  CHECK(generate(decoder, greedy, text, 20, stop, [&](std::int32_t token) { made.push_back(token); }) == before);
  CHECK(std::int64_t(made.size()) == 3 + before);
}

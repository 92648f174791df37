// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/nn/gpt2_weights.hpp>
#include "support/catch.hpp"

#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/gpt2_weights.hpp>

using namespace tutti;
using namespace tutti::nn;

TEST_CASE("descriptors give the published sizes") {
  struct Row {
    char const* name;
    std::int64_t parameters;
  };
  for (Row row : {Row{"d6", 30357504}, Row{"d12", 124475904}, Row{"d24", 354871296}, Row{"d36", 774090240},
                  Row{"d48", 1557686400}, Row{"d60", 2754259200}, Row{"d72", 7316887680}, Row{"d84", 12220657920},
                  Row{"gpt2:d12", 124475904}}) {
    INFO(row.name);
    CHECK(parameter_count(gpt2_from_descriptor(row.name)) == row.parameters);
  }
  REQUIRE_ERROR(gpt2_from_descriptor("d13"), ErrorKind::configuration, "'d13' is unknown");
  REQUIRE_ERROR(gpt2_from_descriptor(""), ErrorKind::configuration, "d12");
}

TEST_CASE("the sixteen shapes add up to the parameter count") {
  for (char const* name : {"d6", "d12", "d48"}) {
    Gpt2Config const c = gpt2_from_descriptor(name);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < gpt2_tensors.size(); ++i) {
      sum += gpt2_shape(c, i).size();
      if (gpt2_tensors[i].stacked) CHECK(gpt2_shape(c, i)[0] == c.layers);
    }
    CHECK(sum == parameter_count(c));
  }
}

TEST_CASE("a token of GPT-2 124M costs 803 MFLOP at 1024 tokens and 750 at 64, as llm.c counts") {
  Gpt2Config const c = gpt2_from_descriptor("d12");
  CHECK(flops_per_token(c, 1024) == Approx(803e6).epsilon(1e-3));
  CHECK(flops_per_token(c, 64) == Approx(750e6).epsilon(1e-3));
}

TEST_CASE("the vocabulary is padded to the next multiple of 128") {
  CHECK(padded_vocabulary(50257) == 50304);
  CHECK(padded_vocabulary(128) == 128);
  CHECK(padded_vocabulary(1) == 128);
}

TEST_CASE("sizes that cannot be are refused by name") {
  auto const with = [](auto change) {
    Gpt2Config c;
    change(c);
    return c;
  };
  CHECK_NOTHROW(validate(Gpt2Config{}));
  REQUIRE_ERROR(validate(with([](auto& c) { c.layers = 0; })), ErrorKind::configuration, "layers 0");
  REQUIRE_ERROR(validate(with([](auto& c) { c.heads = 0; })), ErrorKind::configuration, "heads 0");
  REQUIRE_ERROR(validate(with([](auto& c) { c.channels = 100; })), ErrorKind::configuration, "channels 100");
  REQUIRE_ERROR(validate(with([](auto& c) { c.vocabulary = 1; })), ErrorKind::configuration, "vocabulary 1");
  REQUIRE_ERROR(validate(with([](auto& c) { c.padded_vocabulary = 10; })), ErrorKind::configuration,
                "padded vocabulary 10");
  REQUIRE_ERROR(validate(with([](auto& c) { c.max_tokens = 0; })), ErrorKind::configuration, "max tokens 0");
}

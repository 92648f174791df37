// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/nn/gpt2_initialise.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

using namespace tutti::nn;

namespace {

Gpt2Config const config{
    .layers = 3, .heads = 4, .channels = 48, .vocabulary = 300, .padded_vocabulary = 384, .max_tokens = 32};

/// All tensors one after another, in file order.
std::vector<float> initialised(std::uint32_t seed) {
  std::vector<float> all(static_cast<std::size_t>(parameter_count(config)), 99.0f);
  std::array<float*, 16> tensors{};
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    tensors[i] = all.data() + offset;
    offset += gpt2_shape(config, i).size();
  }
  CHECK(offset == parameter_count(config));
  initialise_gpt2(config, tensors, seed);
  return all;
}

// Every 3001st value from the 7th of the parameters that llm.c's random numbers (llmc/rand.h, seed 42) give this model,
// drawn in the order of its gpt2_build_from_descriptor.
constexpr float recorded[] = {
    -0x1.06e89cp-5f,
    -0x1.a22898p-7f,
    -0x1.40f9p-6f,
    0x1.49c3e4p-7f,
    -0x1.00f28p-7f,
    0x0p+0f,
    0x0p+0f,
    -0x1.f630eep-7f,
    0x1.c72a58p-10f,
    0x1.068f04p-5f,
    -0x1.75c91ep-10f,
    0x1.a2c0e6p-7f,
    0x1.724e14p-12f,
    0x1.302f9ap-5f,
    -0x1.ded0cep-8f,
    -0x1.8931bp-13f,
    -0x1.eb6f3cp-7f,
    0x1.dcd26ep-7f,
    0x1.62c138p-6f,
    0x1.fae472p-8f,
    -0x1.cf4bbap-13f,
    0x1.165d0ep-11f,
    -0x1.4ced52p-5f,
    -0x1.8b82fcp-8f,
    0x1.1831fap-5f,
    0x1.17cc2p-8f,
    -0x1.fbf5f8p-8f,
    0x1.27a68ap-8f,
    -0x1.9ba046p-8f,
    -0x1.cc3bcap-9f,
    0x1.1598aep-10f,
    -0x1.1ff16ap-7f,
    0x1.2d0c8ep-11f,
    0x1.e0e018p-9f,
    -0x1.5c681cp-8f,
};

}  // namespace

TEST_CASE("initial weights are those of llm.c for seed 42") {
  std::vector<float> const all = initialised(42);
  std::size_t at = 7;
  for (float expected : recorded) {
    INFO("parameter " << at);
    CHECK(all.at(at) == expected);
    at += 3001;
  }
  CHECK(at >= all.size());
}

TEST_CASE("padding rows of the embedding are zero, another seed gives other weights") {
  std::vector<float> const all = initialised(42), other = initialised(43);
  for (std::size_t i = 300 * 48; i < 384 * 48; ++i) REQUIRE(all[i] == 0.0f);
  CHECK(all[0] != other[0]);
  CHECK(std::isfinite(other[100]));
}

TEST_CASE("a tensor that is initialised alone has the weights that it has beside the others") {
  std::vector<float> const all = initialised(42);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    std::int64_t const size = gpt2_shape(config, i).size();
    std::vector<float> alone(static_cast<std::size_t>(size), 99.0f);
    std::array<float*, 16> tensors{};
    tensors[i] = alone.data();
    initialise_gpt2(config, tensors, 42);
    INFO(gpt2_tensors[i].name);
    CHECK(std::equal(alone.begin(), alone.end(), all.begin() + offset));
    offset += size;
  }
}

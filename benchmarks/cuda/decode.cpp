// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Generation with a random GPT-2 124M, batch 1, behind a prompt of 64 tokens: tokens by the second where the device
/// goes from token to token by itself and where the host reads the logits of each, and how much of the memory's
/// bandwidth the weights take. Products of prompts are those of gemm.hpp.

#include "bench.hpp"

#include <tutti/infer/cuda/gpt2_decoder.hpp>

#include <array>
#include <span>

namespace {

using namespace tutti;
using std::int64_t;

/// Tensors of a random model on the host.
struct Model {
  std::array<std::vector<float>, nn::gpt2_tensors.size()> tensors;
  nn::Gpt2Weights weights;

  explicit Model(nn::Gpt2Config const& config) {
    weights.config = config;
    std::uint64_t seed = 1;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].resize(static_cast<std::size_t>(nn::gpt2_shape(config, i).size()));
      float const middle = nn::gpt2_tensors[i].initial == nn::Gpt2Initial::ones ? 1.0f : 0.0f;
      for (float& value : tensors[i])
        value = middle +
                0.07f * (static_cast<float>(bench::scrambled(seed++ * 0x9e3779b97f4a7c15u) >> 40) * 0x1p-24f - 0.5f);
      weights.data[i] = tensors[i].data();
    }
  }
};

std::int32_t most_likely(std::span<float const> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

template <class T>
class Case {
 public:
  Case(kernel::cuda::Blas& blas, Model const& model, int64_t prompt, int64_t count)
      : decoder_(blas, model.weights), count_(count) {
    auto const vocabulary = static_cast<std::uint64_t>(model.weights.config.vocabulary);
    for (int64_t i = 0; i < prompt; ++i)
      prompt_.push_back(
          static_cast<std::int32_t>(bench::scrambled(static_cast<std::uint64_t>(i + 1) * 77) % vocabulary));
  }
  void read_prompt() {
    decoder_.reset();
    next_ = most_likely(decoder_.append(prompt_));
  }
  void by_device() { static_cast<void>(decoder_.greedy(count_)); }
  void by_host() {
    for (int64_t i = 0; i < count_; ++i) next_ = most_likely(decoder_.append({&next_, 1}));
  }
  /// The prompt at once and by steps has the same logits, and device and host take the same tokens.
  void verify() {
    auto const whole = decoder_.append(prompt_);
    std::vector<float> const expected(whole.begin(), whole.end());
    decoder_.reset();
    std::span<float const> logits;
    for (std::int32_t const& token : prompt_) logits = decoder_.append({&token, 1});
    double const bound = sizeof(T) == 4 ? 1e-4 : 0.1;
    double scale = 0;
    for (float const value : expected) scale = std::max(scale, std::abs(double{value}));
    for (std::size_t i = 0; i < expected.size(); ++i)
      bench::require(std::abs(double{logits[i]} - double{expected[i]}) <= bound * scale, "a prompt by steps");
    read_prompt();
    std::vector<std::int32_t> by_host;
    for (int i = 0; i < 3; ++i) {
      by_host.push_back(next_);
      next_ = most_likely(decoder_.append({&next_, 1}));
    }
    read_prompt();
    auto const text = decoder_.greedy(3);
    bench::require(std::equal(text.begin(), text.end(), by_host.begin()), "a device by itself");
    decoder_.reset();
  }
  std::size_t kernels() const { return decoder_.kernels(); }

 private:
  infer::cuda::Gpt2Decoder<T> decoder_;
  std::vector<std::int32_t> prompt_;
  int64_t count_;
  std::int32_t next_ = 0;
};

void measure(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report) {
  if (std::string("decode_124m").find(flags.only) == std::string::npos) return;
  nn::Gpt2Config config;
  if (flags.tiny)
    config = {.layers = 2, .heads = 2, .channels = 16, .vocabulary = 60, .padded_vocabulary = 128, .max_tokens = 32};
  int64_t const prompt = flags.tiny ? 5 : 64, count = flags.tiny ? 3 : 256;
  Model const model(config);
  kernel::cuda::Blas blas(context);
  Case<bfloat16> narrow(blas, model, prompt, count);
  Case<float> wide(blas, model, prompt, count);
  narrow.verify();
  wide.verify();
  auto const name = [&](char const* what) { return std::string("decode_") + (flags.tiny ? "tiny_" : "124m_") + what; };
  std::vector<bench::Contender> contenders{
      {name("bf16"), [&] { narrow.by_device(); }, [&] { narrow.read_prompt(); }},
      {name("fp32"), [&] { wide.by_device(); }, [&] { wide.read_prompt(); }},
      {name("bf16_host"), [&] { narrow.by_host(); }, [&] { narrow.read_prompt(); }},
      {name("bf16_prompt"), [&] { narrow.read_prompt(); }}};
  bench::take_turns(context, contenders, flags.rounds);
  std::vector<double> rates;
  for (bench::Contender const& one : contenders) {
    rates.push_back(1e3 * static_cast<double>(&one == &contenders[3] ? prompt : count) / one.median());
    report.add(one.name, rates.back(), "tokens/s");
  }
  // What a step reads at least: the matrices of the layers and of the head.
  double const matrices =
      static_cast<double>(config.channels * (config.layers * 12 * config.channels + config.vocabulary));
  report.add(name("bf16_weights"), 2e-9 * matrices * rates[0], "GB/s");
  report.add(name("fp32_weights"), 4e-9 * matrices * rates[1], "GB/s");
  report.add(name("kernels"), static_cast<double>(narrow.kernels()), "a token");
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(argc, argv, measure); }

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Whole training steps: GPT-2 124M in bfloat16, as a share of the device's peak too, and a step so small that launches
/// are all of it.

#include "bench.hpp"

#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/cuda/execution.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstdint>
#include <string>

namespace {

using namespace tutti;

/// Dense bfloat16 of an H100 SXM and of an H200 by their data sheet, flop/s.
constexpr double sheet_peak = 989e12;

class Case {
 public:
  Case(kernel::cuda::Blas& blas, nn::Gpt2Config const& config, std::int64_t batch, std::int64_t sequence, DType compute)
      : step_(blas, config, {}, options(batch, sequence, compute)),
        tokens_(Shape{batch, sequence}),
        targets_(Shape{batch, sequence}) {
    step_.initialise(42);
    auto const draw = [&](std::int64_t i) {
      return static_cast<std::int32_t>(bench::scrambled(static_cast<std::uint64_t>(i + 1) * 977) %
                                       static_cast<std::uint64_t>(config.vocabulary));
    };
    for (std::int64_t i = 0; i < batch * sequence; ++i) {
      tokens_.data()[i] = draw(i);
      targets_.data()[i] = draw(i + 1);
    }
    // At the start nothing is known; the same batch again is learned.
    double const expected = std::log(static_cast<double>(config.vocabulary));
    double const first = double{step_(batch_of(), 1e-3).loss};
    bench::require(std::abs(first - expected) < 0.05 * expected + 0.1, "the loss of the first step");
    double last = first;
    for (int i = 0; i < 4; ++i) last = double{step_(batch_of(), 1e-3).loss};
    bench::require(std::isfinite(last) && last < first, "the loss of later steps");
  }
  ~Case() {
    while (under_way_ > 0) static_cast<void>(step_.finish()), --under_way_;
  }
  Case(Case const&) = delete;
  Case& operator=(Case const&) = delete;

  /// As a loop does that reads losses one step late.
  void run() {
    if (under_way_ == 2) static_cast<void>(step_.finish()), --under_way_;
    step_.start(batch_of(), 1e-5);
    ++under_way_;
  }

 private:
  static train::TrainStepOptions options(std::int64_t batch, std::int64_t sequence, DType compute) {
    train::TrainStepOptions result;
    result.batch = batch;
    result.evaluation_batch = 1;
    result.sequence = sequence;
    result.clip = 1;
    result.compute = compute;
    return result;
  }
  train::Batch batch_of() const { return {0, tokens_.view(), targets_.view()}; }

  train::TrainStep<nn::Gpt2Loss, Cuda> step_;
  Tensor<std::int32_t> tokens_, targets_;
  int under_way_ = 0;
};

void measure(kernel::cuda::Context& context, bench::Flags const& flags, bench::Report& report) {
  kernel::cuda::Blas blas(context);
  kernel::cuda::Context in_turn(context.device());
  in_turn.forbid_overlap();
  kernel::cuda::Blas blas_in_turn(in_turn);
  auto const wanted = [&](std::string const& name) { return name.find(flags.only) != std::string::npos; };
  auto const milliseconds = [&](nn::Gpt2Config const& config, std::int64_t batch, std::int64_t sequence, DType compute,
                                bool overlap = true) {
    Case step(overlap ? blas : blas_in_turn, config, batch, sequence, compute);
    std::vector<bench::Contender> one{{"", [&] { step.run(); }}};
    bench::take_turns(overlap ? context : in_turn, one, flags.rounds);
    return one[0].median();
  };
  nn::Gpt2Config const tiny{.layers = 2, .heads = 2, .channels = 16, .vocabulary = 60, .padded_vocabulary = 128,
                            .max_tokens = 32};
  struct Row {
    std::int64_t batch;
    DType compute;
    char const* type;
  };
  std::vector<Row> const rows =
      flags.tiny ? std::vector<Row>{{1, DType::bfloat16, "bf16"}}
                 : std::vector<Row>{{4, DType::bfloat16, "bf16"}, {32, DType::bfloat16, "bf16"},
                                    {64, DType::bfloat16, "bf16"}, {8, DType::float32, "fp32"}};
  nn::Gpt2Config const config = flags.tiny ? tiny : nn::Gpt2Config{};
  std::int64_t const sequence = flags.tiny ? 8 : 1024;
  for (Row const& row : rows) {
    std::string const size = flags.tiny ? "tiny" : "124m", end = "_b" + std::to_string(row.batch);
    std::string const name = "gpt2_" + size + "_step_" + row.type + end;
    if (!wanted(name)) continue;
    double const seconds = 1e-3 * milliseconds(config, row.batch, sequence, row.compute);
    double const rate = static_cast<double>(row.batch * sequence) / seconds;
    report.add(name, rate, "tokens/s");
    if (row.compute == DType::bfloat16)
      report.add("gpt2_" + size + "_mfu" + end, 100 * rate * nn::flops_per_token(config, sequence) / sheet_peak,
                 "% of 989 TFLOP/s");
  }
  if (wanted("captured_step_small")) {
    nn::Gpt2Config const small{.layers = 2, .heads = 2, .channels = 128, .vocabulary = 500, .padded_vocabulary = 512,
                               .max_tokens = 64};
    for (bool const overlap : {true, false}) {
      std::string const name = flags.tiny ? "captured_step_tiny" : "captured_step_small";
      report.add(overlap ? name : name + "_without_overlap",
                 1e3 * milliseconds(flags.tiny ? tiny : small, 1, flags.tiny ? 8 : 64, DType::bfloat16, overlap), "us");
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return tutti::bench::run_main(argc, argv, measure); }

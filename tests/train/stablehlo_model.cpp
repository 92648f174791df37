// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A model that JAX exported, trained as the library's own are. The trainer's part is exercised by trainer.py.
#include "support/catch.hpp"
#include "support/jax_folder.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/train/stablehlo_model.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

/// Losses of steps on the one batch that the file of values has. Each rank's is the same.
std::vector<float> losses_of(StablehloConfig const& config, int ranks, int steps) {
  std::vector<std::vector<float>> losses(static_cast<std::size_t>(ranks));
  io::Safetensors const file(config.values);
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    TrainStep<StablehloLoss> step(context, config, optim::AdamW{.weight_decay = 0.1},
                                  {.batch = config.batch, .sequence = config.sequence, .clip = 1});
    step.initialise(1);
    step.connect(parallel::data_parallel(communicator));
    for (int i = 0; i < steps; ++i)
      losses[static_cast<std::size_t>(communicator.rank())].push_back(
          step({i, file.view<std::int32_t>("tokens"), file.view<std::int32_t>("targets")}, 1e-2).loss);
  });
  for (auto const& one : losses) CHECK(one == losses[0]);
  return losses[0];
}

}  // namespace

TEST_CASE("a GPT of JAX trains as it does in JAX, on one rank and on two") {
  StablehloConfig const config = read_stablehlo(test::jax_folder() + "/gpt.mlir");
  CHECK(config.batch == 2);
  CHECK(config.sequence == 6);
  io::Safetensors const file(config.values);
  auto const wanted = file.view<float>("losses");
  for (int ranks : {1, 2}) {
    std::vector<float> const found = losses_of(config, ranks, static_cast<int>(wanted.size()));
    for (std::int64_t i = 0; i < wanted.size(); ++i) {
      INFO(ranks << " ranks, step " << i << ": " << found[static_cast<std::size_t>(i)] << ", JAX "
                 << wanted.data()[i]);
      CHECK(std::abs(found[static_cast<std::size_t>(i)] - wanted.data()[i]) <= 1e-4f * std::abs(wanted.data()[i]));
    }
  }
}

TEST_CASE("parameters are called as in the module, without what all names begin with") {
  StablehloConfig const config = read_stablehlo(test::jax_folder() + "/gpt.mlir");
  std::vector<std::string> names;
  for (graph::NamedParam const& one : config.parameters) names.push_back(one.name);
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 3) ==
        std::vector<std::string>{"beta", "blocks.beta_1", "blocks.beta_2"});
  CHECK(names.back() == "wte");
  CHECK(train::detail::dotted_name("p.blocks[0]['qkv']") == "p.blocks.0.qkv");
  CHECK(train::detail::parameter_names({{"", {}, {}, {}}, {"x", {}, {}, {}}, {"x", {}, {}, {}}}, 3) ==
        std::vector<std::string>{"parameter_0", "x", "parameter_2"});
}

TEST_CASE("without a file of values parameters start by their shapes; with a wrong one it is refused") {
  std::filesystem::path const folder = std::filesystem::temp_directory_path() / "tutti_stablehlo_model";
  std::filesystem::create_directories(folder);
  std::string const path = (folder / "gpt.mlir").string();
  std::filesystem::copy_file(test::jax_folder() + "/gpt.mlir", path, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::remove(folder / "gpt.safetensors");
  exec::Context context({.threads = 1});
  StablehloConfig const config = read_stablehlo(path);
  CHECK(config.values.empty());
  TrainStep<StablehloLoss> step(context, config, optim::AdamW{}, {.batch = 2, .sequence = 6});
  step.initialise(1);
  auto const first = [&](char const* name) { return step.state().at(name).view<float>().data()[0]; };
  CHECK(first("gamma") == 1);
  CHECK(first("beta") == 0);
  CHECK(std::abs(first("wte")) < 0.2f);
  CHECK(first("wte") != 0);

  std::filesystem::copy_file(test::jax_folder() + "/mixture.safetensors", folder / "gpt.safetensors");
  StablehloConfig const other = read_stablehlo(path);
  CHECK_THROWS_AS(read_values(other, step.state()), Error);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a module that is no loss of parameters, tokens and targets is refused") {
  std::filesystem::path const path = std::filesystem::temp_directory_path() / "tutti_no_loss.mlir";
  auto const told = [&](std::string const& arguments, std::string const& result) {
    std::ofstream(path) << "func.func @main(" << arguments << ") -> " << result
                        << " {\n  %0 = stablehlo.constant dense<1> : " << result << "\n  return %0 : " << result
                        << "\n}\n";
    try {
      static_cast<void>(read_stablehlo(path.string()));
    } catch (Error const& error) {
      return error.message();
    }
    return std::string("nothing");
  };
  auto const refuses = [&](std::string const& arguments, std::string const& result, std::string const& why) {
    INFO(why);
    std::string const message = told(arguments, result);
    INFO(message);
    CHECK(message.find("tutti_no_loss.mlir: " + why) != std::string::npos);
  };
  std::string const tokens = ", %t: tensor<2x3xi32>, %u: tensor<2x3xi32>";
  CHECK(told("%a: tensor<4xf32>" + tokens, "tensor<f32>") == "nothing");
  refuses("%a: tensor<4xf32>, %t: tensor<2x3xi32>", "tensor<f32>", "main has 2 arguments");
  refuses("%a: tensor<4xbf16>" + tokens, "tensor<f32>", "argument 0 of main is bfloat16, not float32");
  refuses("%a: tensor<4xf32>, %t: tensor<2x3xi32>, %u: tensor<2x4xi32>", "tensor<f32>", "the last arguments of main");
  refuses("%a: tensor<4xf32>" + tokens, "tensor<2xf32>", "the first result of main is no float32 ()");
  std::filesystem::remove(path);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Inputs that every contender of the step benchmark reads: an llm.c model file with GPT-2 124M as initialised from seed
// 42, and token files. The training file holds one batch, so that a loader's order cannot matter.

#include <tutti/io/token_shard.hpp>
#include <tutti/nn/gpt2_initialise.hpp>
#include <tutti/tensor/mt19937.hpp>
#include <tutti/train/gpt2_files.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  std::string out, model = "d12";
  std::int64_t batch = 4, sequence = 64;
  CLI::App app{"Writes the inputs of the step benchmark.", "step_inputs"};
  app.add_option("--out", out, "folder")->required();
  app.add_option("--model", model, "size");
  app.add_option("--batch", batch, "sequences")->check(CLI::Range(1, 4096));
  app.add_option("--sequence", sequence, "tokens each")->check(CLI::Range(1, 65536));
  CLI11_PARSE(app, argc, argv);
  try {
    tutti::train::Gpt2Model weights(tutti::nn::gpt2_from_descriptor(model));
    tutti::nn::initialise_gpt2(weights.weights().config, weights.mutable_data(), 42);
    tutti::train::write_llmc_gpt2(out + "/gpt2_124M.bin", weights.weights());
    tutti::Mt19937 generator(7);
    for (char const* name : {"train.bin", "validation.bin"}) {
      std::vector<std::uint16_t> tokens(static_cast<std::size_t>(batch * sequence + 1));
      for (auto& token : tokens) token = static_cast<std::uint16_t>(generator.next() % 50257);
      tutti::io::write_token_shard(out + "/" + name, tokens);
    }
  } catch (tutti::Error const& error) {
    std::fprintf(stderr, "step_inputs: %s\n", error.what());
    return 1;
  }
}

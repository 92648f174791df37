// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/nn/stored_part.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/ngram_drafter.hpp>
#include <tutti/nn/stored_part.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

LoadedModel make(test::TinyModel const& sizes) {
  test::ScratchFolder const folder;
  write_tiny_gguf(folder / "tiny.gguf", sizes);
  return load_gguf(folder / "tiny.gguf");
}

struct Outcome {
  std::vector<float> logits;  ///< behind the prompt
  std::vector<std::int32_t> tokens;
};

Outcome decode(nn::StoredModel const& model, data::Tokenizer const& tokenizer, comm::Port* port, bool drafts) {
  exec::Context context({.threads = 1});
  DecoderOptions options;
  options.capacity = 48;
  options.tensor = port;
  Decoder decoder(context, model, options);
  Sequence sequence(decoder);
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 14; ++i) prompt.push_back(i % 7 * 11);
  auto const logits = sequence.become(prompt);
  Outcome outcome{{logits.begin(), logits.end()}, {}};
  Sampler sampler(SamplerOptions{.temperature = 0});
  NgramDrafter ngrams;
  Speculation speculation(ngrams);
  outcome.tokens = complete(sequence, sampler, tokenizer, prompt, {.max_tokens = 30}, {}, nullptr, std::nullopt,
                            drafts ? &speculation : nullptr)
                       .tokens;
  return outcome;
}

}  // namespace

TEST_CASE("Ranks that share a model give the logits and the greedy text of one that has it alone") {
  test::TinyModel gpt2{.architecture = "gpt2"}, llama, qwen{.architecture = "qwen2"}, phi{.architecture = "phi3"};
  gpt2.vocabulary = 97;  // the head's rows do not divide
  qwen.tied = false, qwen.type = BlockType::q8_0;
  phi.tied = false, phi.packed_qkv = true, phi.window = 9;
  llama.kv_heads = 4;
  for (auto const& [sizes, ranks] : {std::pair(gpt2, 2), {gpt2, 4}, {llama, 4}, {qwen, 2}, {phi, 2}}) {
    LoadedModel const whole = make(sizes);
    Outcome const expected = decode(whole.model, whole.tokenizer, nullptr, false);
    for (bool const drafts : {false, true}) {
      std::vector<Outcome> got(static_cast<std::size_t>(ranks));
      std::vector<std::int64_t> bytes(got.size());
      threads::run(ranks, [&, of = ranks](Communicator<Threads>& communicator) {
        auto const port = comm::port(communicator);
        nn::StoredModel const part = nn::stored_part(whole.model, communicator.rank(), of);
        bytes[static_cast<std::size_t>(communicator.rank())] = part.at("output.weight", part.classes_each(of),
                                                                      part.channels()).bytes();
        got[static_cast<std::size_t>(communicator.rank())] = decode(part, whole.tokenizer, &*port, drafts);
      });
      for (Outcome const& one : got) {
        CAPTURE(sizes.architecture, ranks, drafts);
        REQUIRE(one.logits == got[0].logits);  // to the bit: all draw alike
        REQUIRE(one.tokens == expected.tokens);
        REQUIRE(one.logits.size() == expected.logits.size());
        float const most = *std::max_element(expected.logits.begin(), expected.logits.end());
        for (std::size_t i = 0; i < one.logits.size(); ++i)
          REQUIRE(std::abs(one.logits[i] - expected.logits[i]) < 2e-4f * most);
      }
    }
  }
}

TEST_CASE("Models that ranks do not divide are refused in figures") {
  LoadedModel const whole = make({});
  REQUIRE_ERROR(nn::stored_part(whole.model, 0, 3), ErrorKind::configuration, "3 ranks: it has 4 heads");
  REQUIRE_ERROR(nn::stored_part(whole.model, 0, 4), ErrorKind::configuration, "it has 2 heads of keys and values");
  test::TinyModel blocks;
  blocks.type = BlockType::q4_k;
  LoadedModel const quantised = make(blocks);
  REQUIRE_ERROR(nn::stored_part(quantised.model, 0, 2), ErrorKind::configuration, "no whole blocks of 256");
  REQUIRE_ERROR(nn::stored_part(whole.model, 2, 2), ErrorKind::invalid_argument, "rank 2 of 2");
  REQUIRE(nn::stored_part(whole.model, 0, 1).bytes() == whole.model.bytes());
  exec::Context context({.threads = 1});
  nn::StoredModel const part = nn::stored_part(whole.model, 0, 2);
  REQUIRE_ERROR(Decoder(context, part), ErrorKind::invalid_argument, "shared by 2 ranks, and the port has 1");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Continues a text with a model from a GGUF file or a folder of safetensors: 050_generate MODEL "Once upon a time"

#include <tutti/infer/completion.hpp>
#include <tutti/infer/model_file.hpp>

#include <cstdio>
#include <string_view>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: 050_generate MODEL PROMPT\n");
    return 2;
  }
  auto const loaded = tutti::infer::load_model(argv[1]);  // weights stay in the mapped file
  tutti::exec::Context context;
  tutti::infer::Decoder decoder(context, loaded.model, {.capacity = 512});
  tutti::infer::Sequence sequence(decoder);
  tutti::infer::Sampler sampler({.temperature = 0.8, .top_p = 0.95, .seed = 1});
  auto const prompt = loaded.tokenizer.encode_complete(argv[2]);
  auto const answer =
      tutti::infer::complete(sequence, sampler, loaded.tokenizer, prompt,
                             {.ends = tutti::infer::end_tokens(loaded.tokenizer), .max_tokens = 100},
                             [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
  std::printf("\n[%s]\n", std::string(name(answer.reason)).c_str());
} catch (tutti::Error const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

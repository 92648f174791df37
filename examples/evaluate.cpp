// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tells how well a model foretells a text.

#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/evaluation.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/io/file.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gpu_layer_flags.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

int main(int argc, char** argv) {
  std::string model_path, text_path;
  std::int64_t window = 512;
  int threads = 0;
  bool quiet = false;
  CLI::App app{"Prints the perplexity of a text, as llama.cpp's perplexity tool counts it.", "evaluate"};
  app.add_option("--model", model_path,
                 "GGUF file, or folder with safetensors, of a GPT-2, LLaMA, Mistral, Qwen2 or Phi-3")
      ->required();
  app.add_option("--text", text_path, "text file")->required();
  tutti::train::add_setting(app, "--context", window, {4, 1 << 24}, "tokens that the model sees at a time");
  tutti::train::add_setting(app, "--threads", threads, {0, 1024}, "0: all processors of this process");
  tutti::train::GpuLayerFlags gpu_flags;
  tutti::train::add_gpu_layer_flags(app, gpu_flags);
  app.add_flag("--quiet", quiet, "no progress");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  try {
    auto const loaded = tutti::infer::load_model(model_path);
    if (window > loaded.model.max_tokens())
      throw tutti::Error(tutti::ErrorKind::configuration, "evaluate",
                         "the model was made for " + std::to_string(loaded.model.max_tokens()) +
                             " tokens. Give a smaller --context");
    auto const tokens = loaded.tokenizer.encode_complete(tutti::io::read_file(text_path));
    tutti::exec::Context context({.threads = threads});
    tutti::train::FlaggedGpu const gpu(gpu_flags, "evaluate", tutti::infer::find_layer_device);
    tutti::infer::DecoderOptions decoding{.capacity = window};
    gpu.give(decoding);
    tutti::infer::Decoder decoder(context, loaded.model, decoding);
    if (std::string const told = gpu.told(decoder); !quiet && !told.empty())
      std::fprintf(stderr, "%s\n", told.c_str());
    tutti::infer::EvaluationOptions options{.window = window};
    // Where texts begin with a token, every window does.
    if (loaded.tokenizer.roles().begin && !tokens.empty() && tokens.front() == *loaded.tokenizer.roles().begin)
      options.begin = tokens.front();
    auto const begin = std::chrono::steady_clock::now();
    if (!quiet)
      options.progress = [](std::int64_t done, std::int64_t all, tutti::infer::Evaluation const& so_far) {
        std::fprintf(stderr, "\r%lld of %lld windows, perplexity %.4f ", static_cast<long long>(done),
                     static_cast<long long>(all), so_far.perplexity());
      };
    auto const result = tutti::infer::evaluate_text(decoder, tokens, options);
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!quiet) std::fputs("\n", stderr);
    std::printf("perplexity %.4f +- %.4f, loss %.5f nats a token; %lld tokens of %lld windows, %.1f s\n",
                result.perplexity(), result.perplexity() * result.loss_error(), result.loss(),
                static_cast<long long>(result.tokens), static_cast<long long>(result.windows), seconds);
    if (std::fflush(stdout) != 0)
      throw tutti::Error(tutti::ErrorKind::io, "evaluate", "the result could not be written. Free space there");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%sevaluate: %s\n", quiet ? "" : "\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tells how well a model foretells a text, or finds the right endings of HellaSwag.

#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/evaluation.hpp>
#include <tutti/infer/multiple_choice.hpp>
#include <tutti/io/file.hpp>
#include <tutti/train/decoding_flags.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gpu_layer_flags.hpp>
#include <tutti/train/model_source.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
long long whole(std::int64_t number) { return static_cast<long long>(number); }

void evaluate_file(tutti::infer::Decoder& decoder, tutti::data::Tokenizer const& tokenizer, std::string const& path,
                   std::int64_t window, bool quiet) {
  auto const tokens = tokenizer.encode_complete(tutti::io::read_file(path));
  tutti::infer::EvaluationOptions options{.window = window};
  // Where texts begin with a token, every window does.
  if (tokenizer.roles().begin && !tokens.empty() && tokens.front() == *tokenizer.roles().begin)
    options.begin = tokens.front();
  if (!quiet)
    options.progress = [](std::int64_t done, std::int64_t all, tutti::infer::Evaluation const& so_far) {
      std::fprintf(stderr, "\r%lld of %lld windows, perplexity %.4f ", whole(done), whole(all), so_far.perplexity());
    };
  auto const begin = Clock::now();
  auto const result = tutti::infer::evaluate_text(decoder, tokens, options);
  double const seconds = since(begin);
  if (!quiet) std::fputs("\n", stderr);
  std::printf("perplexity %.4f +- %.4f, loss %.5f nats a token; %lld tokens of %lld windows, %.1f s\n",
              result.perplexity(), result.perplexity() * result.loss_error(), result.loss(), whole(result.tokens),
              whole(result.windows), seconds);
}

void evaluate_endings(tutti::infer::Decoder& decoder, std::span<tutti::infer::MultipleChoice const> examples,
                      bool quiet) {
  auto const begin = Clock::now();
  auto const result =
      tutti::infer::evaluate_choices(decoder, examples, [&](std::int64_t all, tutti::infer::ChoiceScore const& so_far) {
        if (!quiet && (so_far.examples % 10 == 0 || so_far.examples == all))
          std::fprintf(stderr, "\r%lld of %lld examples, %.4f right ", whole(so_far.examples), whole(all),
                       so_far.mean_accuracy());
      });
  double const seconds = since(begin);
  if (!quiet) std::fputs("\n", stderr);
  std::printf(
      "HellaSwag %.4f +- %.4f right by the mean log-probability of an ending's tokens, %.4f by its sum; %lld examples, "
      "%.1f s\n",
      result.mean_accuracy(), result.error(), result.accuracy(), whole(result.examples), seconds);
}

}  // namespace

int main(int argc, char** argv) {
  std::string model_path, text_path, hellaswag_path;
  std::int64_t window = 512, most = 0;
  int threads = 0;
  bool quiet = false;
  tutti::train::DecodingFlags decoding;
  CLI::App app{
      "Prints the perplexity of a text, as llama.cpp's perplexity tool counts it, or the share of HellaSwag's examples "
      "whose right ending a model finds the likeliest.",
      "evaluate"};
  app.add_option("--model", model_path,
                 "GGUF file, or folder with safetensors, of a GPT-2, LLaMA, Mistral, Qwen2 or Phi-3, or folder of a "
                 "run")
      ->required();
  auto* const text = app.add_option("--text", text_path, "text file");
  app.add_option("--hellaswag", hellaswag_path,
                 "llm.c's hellaswag_val.bin, or the published hellaswag_val.jsonl, in the place of --text")
      ->excludes(text);
  tutti::train::add_setting(app, "--examples", most, {0, 1 << 24}, "with --hellaswag: the first so many; 0: all");
  tutti::train::add_setting(app, "--context", window, {4, 1 << 24}, "tokens that the model sees at a time");
  tutti::train::add_cache_flags(app, decoding);
  tutti::train::add_setting(app, "--threads", threads, {0, 1024}, "0: all processors of this process");
  tutti::train::GpuLayerFlags gpu_flags;
  tutti::train::add_gpu_layer_flags(app, gpu_flags);
  app.add_flag("--quiet", quiet, "no progress");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;
  if (text_path.empty() && hellaswag_path.empty()) {
    std::fputs("evaluate: --text or --hellaswag is required\nSee evaluate --help for the flags.\n", stderr);
    return 2;
  }

  try {
    auto const loaded = tutti::train::load_model_or_run(model_path);
    if (window > loaded.model.max_tokens())
      throw tutti::Error(tutti::ErrorKind::configuration, "evaluate",
                         "the model was made for " + std::to_string(loaded.model.max_tokens()) +
                             " tokens. Give a smaller --context");
    std::vector<tutti::infer::MultipleChoice> examples;
    if (!hellaswag_path.empty()) examples = tutti::infer::read_multiple_choice(hellaswag_path, loaded.tokenizer, most);
    tutti::exec::Context context({.threads = threads});
    tutti::train::FlaggedGpu const gpu(gpu_flags, "evaluate", tutti::infer::find_layer_device);
    tutti::infer::DecoderOptions options;
    decoding.give(options);
    options.slots = examples.empty() ? 1 : 4;
    options.capacity = window;
    gpu.give(options);
    auto fitted = tutti::infer::fit_decoder(loaded.model, options, decoding.fit(loaded.model, context.threads(), 0));
    for (std::string const& note : fitted.notes)
      if (!quiet) std::fprintf(stderr, "%s\n", note.c_str());
    tutti::infer::Decoder decoder(context, loaded.model, fitted.options);
    if (std::string const told = gpu.told(decoder); !quiet && !told.empty())
      std::fprintf(stderr, "%s\n", told.c_str());
    if (examples.empty()) evaluate_file(decoder, loaded.tokenizer, text_path, window, quiet);
    else evaluate_endings(decoder, examples, quiet);
    if (std::fflush(stdout) != 0)
      throw tutti::Error(tutti::ErrorKind::io, "evaluate", "the result could not be written. Free space there");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%sevaluate: %s\n", quiet ? "" : "\n", error.what());
    return 1;
  }
}

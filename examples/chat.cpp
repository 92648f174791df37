// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A conversation in the terminal with a model.

#include <tutti/data/chat_template.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/train/decoding_flags.hpp>
#include <tutti/train/gpu_layer_flags.hpp>
#include <tutti/train/model_source.hpp>
#include <tutti/train/sampling_flags.hpp>
#include <tutti/train/speculation_flags.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

std::atomic<bool> interrupted{false};

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

constexpr char help[] =
    "  /reset          forgets the conversation\n"
    "  /system TEXT    begins anew with this system message\n"
    "  /quit           leaves, as does the end of input\n"
    "  Ctrl-C          ends an answer; between answers, leaves\n";

}  // namespace

int main(int argc, char** argv) {
  std::string path, system, format;
  std::int64_t most = -1;
  tutti::train::DecodingFlags decoding;
  int threads = 0;
  bool quiet = false;
  tutti::infer::SamplerOptions sampling{.temperature = 0.8, .top_k = 40, .top_p = 0.95};

  CLI::App app{"Talks with a model.", "chat"};
  app.add_option("--model", path,
                 "GGUF file, or folder with safetensors, of a GPT-2, LLaMA, Mistral, Qwen2 or Phi-3, or folder of a "
                 "run")
      ->required();
  app.add_option("--system", system, "system message (default: the chat template's)");
  app.add_option("--chat-template", format,
                 "chatml, llama2, llama3, phi3, zephyr, gemma or mistral (default: recognised)");
  tutti::train::add_decoding_flags(app, decoding,
                                   "tokens of the conversation; auto: as many as the model was made for and the memory "
                                   "holds; 0: at most 8192 of them");
  tutti::train::add_number(app, "--tokens,--max-tokens", most, "most tokens of an answer (negative: no bound)")
      ->capture_default_str();
  tutti::train::add_sampling_flags(app, sampling, "the same seed gives the same answers");
  tutti::train::SpeculationFlags speculation_flags;
  tutti::train::add_speculation_flags(app, speculation_flags);
  tutti::train::GpuLayerFlags gpu_flags;
  tutti::train::add_gpu_layer_flags(app, gpu_flags);
  tutti::train::add_setting(app, "--threads", threads, {0, 1024}, "0: all processors of this process");
  app.add_flag("--quiet", quiet, "print answers alone");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  try {
    auto const loaded = tutti::train::load_model_or_run(path);
    auto const chat = tutti::data::choose_chat_template(loaded.chat_template, format);
    tutti::exec::Context context({.threads = threads});
    tutti::train::FlaggedGpu const gpu(gpu_flags, "chat", tutti::infer::find_layer_device);
    tutti::infer::DecoderOptions options;
    decoding.give(options);
    gpu.give(options);
    tutti::train::FlaggedSpeculation speculation(speculation_flags, loaded.tokenizer);
    auto fit = decoding.fit(loaded.model, context.threads(), 8192);
    speculation.add_to(fit);
    tutti::infer::FittedDecoder const fitted = tutti::infer::fit_decoder(loaded.model, options, fit);
    std::int64_t const context_tokens = fitted.options.capacity;
    tutti::infer::Decoder decoder(context, loaded.model, fitted.options);
    tutti::infer::Sequence sequence(decoder);
    tutti::infer::Sampler sampler(sampling);
    speculation.start(context, loaded.model.vocabulary(), decoder.options(), sampling);
    tutti::infer::StopOptions stop;
    stop.ends = tutti::infer::end_tokens(loaded.tokenizer);
    stop.max_tokens = most;
    stop.cancelled = [] { return interrupted.load(); };

    // One Ctrl-C ends the answer. At the prompt it is left to the system, which ends the program.
    struct sigaction action {
    }, former{};
    action.sa_handler = [](int) { interrupted = true; };
    sigemptyset(&action.sa_mask);

    bool const terminal = ::isatty(STDIN_FILENO) != 0;
    if (!quiet)
      std::fprintf(stderr, "%s: %lld layers, %.1f MB of weights; chat template %s (%s); context %lld tokens\n%s",
                   path.c_str(), static_cast<long long>(loaded.model.layers()),
                   static_cast<double>(loaded.model.bytes()) / 1e6, std::string(name_of(chat.format)).c_str(),
                   chat.chosen_by.c_str(), static_cast<long long>(context_tokens), terminal ? help : "");
    for (std::string const& note : fitted.notes)
      if (!quiet) std::fprintf(stderr, "%s\n", note.c_str());
    if (std::string const told = gpu.told(decoder); !quiet && !told.empty())
      std::fprintf(stderr, "%s\n", told.c_str());
    std::vector<tutti::data::ChatMessage> messages;
    auto const begin = [&] {
      messages.clear();
      if (!system.empty()) messages.push_back({"system", system});
    };
    begin();
    for (std::string line;;) {
      if (terminal) std::fputs("> ", stderr);
      if (!std::getline(std::cin, line)) break;
      if (line == "/quit") break;
      if (line == "/reset" || line.starts_with("/system ")) {
        if (line != "/reset") system = line.substr(8);
        begin();
        continue;
      }
      if (line == "/help") {
        std::fputs(help, stderr);
        continue;
      }
      if (line.empty()) continue;
      messages.push_back({"user", line});
      auto const encoded = [&](auto const& all) {
        return loaded.tokenizer.encode_complete(tutti::data::render_chat(chat, all), tutti::data::Marks::as_tokens);
      };
      auto prompt = encoded(messages);
      // An eighth of the context is for the answer. Where that is taken, the oldest messages go, until half is free:
      // what is left is read anew, which is not to happen at every turn.
      if (static_cast<std::int64_t>(prompt.size()) > context_tokens - context_tokens / 8) {
        auto left = messages;
        auto shorter = prompt;
        auto const oldest = left.begin() + (system.empty() ? 0 : 1);
        while (static_cast<std::int64_t>(shorter.size()) > context_tokens / 2 && left.end() - oldest > 2) {
          left.erase(oldest, oldest + 2);
          shorter = encoded(left);
        }
        if (static_cast<std::int64_t>(shorter.size()) >= context_tokens) {
          std::fprintf(stderr,
                       "chat: this message needs %zu tokens and the context has %lld. Shorten it, or give a larger "
                       "--context\n",
                       shorter.size(), static_cast<long long>(context_tokens));
          messages.pop_back();
          continue;
        }
        if (!quiet && left.size() < messages.size())
          std::fprintf(stderr, "[the context is full: the %zu oldest messages are forgotten]\n",
                       messages.size() - left.size());
        messages = std::move(left), prompt = std::move(shorter);
      }
      interrupted = false;
      ::sigaction(SIGINT, &action, &former);
      auto const answer = tutti::infer::complete(sequence, sampler, loaded.tokenizer, prompt, stop, print, nullptr,
                                                 std::nullopt, speculation.get());
      ::sigaction(SIGINT, &former, nullptr);
      print("\n");
      messages.push_back({"assistant", answer.text});
      if (!quiet && answer.reason != tutti::infer::StopReason::end_of_generation)
        std::fprintf(stderr, "[%s]\n", std::string(name(answer.reason)).c_str());
      if (!quiet && terminal)
        std::fprintf(stderr, "[%lld of %lld prompt tokens new, %.2f s; %zu tokens, %.1f a second%s]\n",
                     static_cast<long long>(answer.prompt_tokens - answer.reused_tokens),
                     static_cast<long long>(answer.prompt_tokens), answer.prompt_seconds, answer.tokens.size(),
                     answer.seconds > 0 ? static_cast<double>(answer.tokens.size()) / answer.seconds : 0.0,
                     tutti::train::text_of(answer.speculation).c_str());
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tutti::Error(tutti::ErrorKind::io, "chat", "the text could not be written. Free space there");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "chat: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A model behind the OpenAI interface.

#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/http/server.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gpu_layer_flags.hpp>
#include <tutti/train/model_source.hpp>
#include <tutti/train/speculation_flags.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  std::string path, format;
  tutti::infer::ServerOptions options;
  tutti::infer::ServiceOptions service_options;
  std::int64_t context_tokens = 0;
  int threads = 0, queue = 50;

  CLI::App app{
      "Serves a model: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, and "
      "a page to chat in. The environment variable TUTTI_API_KEY is the key that clients must send.",
      "serve"};
  app.add_option("--model", path,
                 "GGUF file, or folder with safetensors, of a GPT-2, LLaMA, Mistral, Qwen2 or Phi-3, or folder of a "
                 "run")
      ->required();
  app.add_option("--host", options.host, "address to listen on; one that others can reach needs TUTTI_API_KEY")
      ->capture_default_str();
  tutti::train::add_setting(app, "--port", options.port, {0, 65535}, "0: any free one");
  app.add_option("--chat-template", format,
                 "chatml, llama2, llama3, phi3, zephyr, gemma or mistral (default: recognised)");
  tutti::train::add_setting(app, "--slots", service_options.decoder.slots, {1, 1024}, "answers that run at once");
  tutti::train::add_setting(app, "--context", context_tokens, {0, 1 << 24},
                            "tokens of a slot; 0: as many as the model has, at most 4096");
  tutti::train::add_setting(app, "--queue", queue, {1, 10000}, "requests that wait at most");
  tutti::train::add_setting(app, "--max-tokens", options.limits.max_tokens, {1, 1 << 24}, "most tokens of an answer");
  tutti::train::SpeculationFlags speculation;
  tutti::train::add_speculation_flags(app, speculation);
  tutti::train::GpuLayerFlags gpu_flags;
  tutti::train::add_gpu_layer_flags(app, gpu_flags);
  tutti::train::add_setting(app, "--threads", threads, {0, 1024}, "0: all processors of this process");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  try {
    if (char const* const key = std::getenv("TUTTI_API_KEY")) options.api_key = key;
    // Signals are waited for, by one thread alone.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    std::signal(SIGPIPE, SIG_IGN);

    auto const loaded = tutti::train::load_model_or_run(path);
    auto const full = std::filesystem::absolute(path).lexically_normal();
    std::string const name = (full.has_filename() ? full : full.parent_path()).stem().string();
    auto const chat = tutti::data::choose_chat_template(loaded.chat_template, format);
    tutti::exec::Context context({.threads = threads});
    service_options.queue.most = static_cast<std::size_t>(queue);
    service_options.decoder.capacity =
        context_tokens > 0 ? context_tokens : std::min<std::int64_t>(loaded.model.max_tokens(), 4096);
    std::optional<tutti::infer::LoadedModel> draft;
    if (speculation.on()) service_options.drafts.tokens = speculation.most();
    if (!speculation.model.empty()) {
      draft = tutti::train::load_draft(speculation, loaded.tokenizer);
      service_options.drafts.model = &draft->model;
    }
    tutti::train::FlaggedGpu const gpu(gpu_flags, "serve", tutti::infer::find_layer_device);
    gpu.give(service_options.decoder);
    tutti::infer::Service service(context, loaded.model, loaded.tokenizer, service_options);
    tutti::infer::Server server(service, loaded.tokenizer, chat, name, options);
    std::fprintf(stderr, "%s: chat template %s (%s); %lld answers at once of %lld tokens each\nhttp://%s:%d\n",
                 path.c_str(), std::string(name_of(chat.format)).c_str(), chat.chosen_by.c_str(),
                 static_cast<long long>(service_options.decoder.slots), static_cast<long long>(service.capacity()),
                 options.host.c_str(), server.port());
    if (std::string const told = gpu.told(service.decoder()); !told.empty())
      std::fprintf(stderr, "%s\n", told.c_str());
    std::thread waiter([&] {
      int signal = 0;
      ::sigwait(&ends, &signal);
      server.stop();
    });
    server.run();
    ::pthread_kill(waiter.native_handle(), SIGTERM);  // where the server ended by itself
    waiter.join();
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "serve: %s\n", error.what());
    return 1;
  }
}

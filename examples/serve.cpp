// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A model behind the OpenAI interface.

#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/http/server.hpp>
#include <tutti/train/decoding_flags.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gpu_layer_flags.hpp>
#include <tutti/train/model_source.hpp>
#include <tutti/train/speculation_flags.hpp>

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace {

struct Flags {
  std::string path, format;
  tutti::train::DecodingFlags decoding{};
  tutti::train::SpeculationFlags speculation{};
  tutti::train::GpuLayerFlags gpu{};
  int threads = 0;
};

/// Of what --model names now: a folder of a run has newer checkpoints later.
std::shared_ptr<tutti::infer::ServedModel> load(Flags const& flags, tutti::infer::ServiceOptions service,
                                                tutti::train::FlaggedGpu const& gpu, tutti::infer::Log& log) {
  namespace infer = tutti::infer;
  auto const full = std::filesystem::absolute(flags.path).lexically_normal();
  infer::LoadedModel loaded = tutti::train::load_model_or_run(flags.path);
  std::optional<infer::LoadedModel> draft;
  if (flags.speculation.on()) service.drafts.tokens = flags.speculation.most();
  if (!flags.speculation.model.empty()) draft = tutti::train::load_draft(flags.speculation, loaded.tokenizer);
  infer::ServedModelOptions options;
  options.chat_format = flags.format;
  options.threads = flags.threads;
  options.service = std::move(service);
  flags.decoding.give(options.service.decoder);
  options.service.prompt_chunk = flags.decoding.batch_tokens();
  gpu.give(options.service.decoder);
  options.fit = flags.decoding.fit(loaded.model, 1, 4096);
  options.fit.advice =
      "Lower --context, --slots or --batch, keep the cache in --cache-type f16 or q8_0, or use a smaller model";
  auto model = std::make_shared<infer::ServedModel>((full.has_filename() ? full : full.parent_path()).stem().string(),
                                                    std::move(loaded), options, std::move(draft));
  std::string const where = gpu.told(model->service().decoder());
  log(infer::LogLevel::info,
      tutti::concat("model '", model->name(), "' of ", flags.path, ": chat template ", name_of(model->chat().format),
                    " (", model->chat().chosen_by, "); ", options.service.decoder.slots, " answers at once of ",
                    model->service().capacity(), " tokens each", where.empty() ? "" : "; " + where));
  for (std::string const& note : model->notes()) log(infer::LogLevel::info, note);
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  tutti::infer::ServerOptions options;
  tutti::infer::ServiceOptions service;
  tutti::infer::LogOptions logging{.level = tutti::infer::LogLevel::info};
  tutti::setting::Choice<tutti::infer::LogLevel> log_level = logging.level;
  tutti::setting::Choice<tutti::infer::LogFormat> log_format = logging.format;
  int queue = 50;

  CLI::App app{
      "Serves a model: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /metrics, /status, and "
      "a page to chat in. The environment variable TUTTI_API_KEY is the key that clients must send. SIGHUP loads the "
      "model again, beside the one that answers, and puts it in its place.",
      "serve"};
  app.add_option("--model", flags.path,
                 "GGUF file, or folder with safetensors, of a GPT-2, LLaMA, Mistral, Qwen2 or Phi-3, or folder of a "
                 "run")
      ->required();
  app.add_option("--host", options.host, "address to listen on; one that others can reach needs TUTTI_API_KEY")
      ->capture_default_str();
  tutti::train::add_setting(app, "--port", options.port, {0, 65535}, "0: any free one");
  app.add_option("--chat-template", flags.format,
                 "chatml, llama2, llama3, phi3, zephyr, gemma or mistral (default: recognised)");
  tutti::train::add_setting(app, "--slots", service.decoder.slots, {1, 1024}, "answers that run at once");
  tutti::train::add_decoding_flags(app, flags.decoding,
                                   "tokens of a slot; auto: as many as the model was made for and the memory holds; "
                                   "0: at most 4096 of them");
  tutti::train::add_setting(app, "--cache-reuse", service.cache.chunk, {0, 1 << 24},
                            "move runs of at least N tokens that stand later in a cache than in the prompt, as when "
                            "old messages are dropped; answers then differ a little; 0: read them again");
  tutti::train::add_setting(app, "--cache-similarity", service.cache.similarity, {0, 1},
                            "share of a prompt that a cache must hold to be given up for it; of others the beginning "
                            "is copied");
  tutti::train::add_setting(app, "--queue", queue, {1, 10000}, "requests that wait at most");
  tutti::train::add_setting(app, "--max-tokens", options.limits.max_tokens, {1, 1 << 24}, "most tokens of an answer");
  tutti::train::add_speculation_flags(app, flags.speculation);
  tutti::train::add_gpu_layer_flags(app, flags.gpu);
  tutti::train::add_setting(app, "--threads", flags.threads, {0, 1024}, "0: all processors of this process");
  tutti::train::add_setting(app, "--log-level", log_level, tutti::setting::Any{},
                            "least that is logged; info has a line for each answer");
  tutti::train::add_setting(app, "--log-format", log_format, tutti::setting::Any{}, "json: an object a line");
  app.add_option("--log-file", logging.path, "file to append the log to (default: standard error)");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  auto const log = std::make_shared<tutti::infer::Log>();
  try {
    logging.level = log_level, logging.format = log_format;
    log->configure(logging);
    if (char const* const key = std::getenv("TUTTI_API_KEY")) options.api_key = key;
    // Signals are waited for, by one thread alone.
    sigset_t signals;
    sigemptyset(&signals);
    for (int const signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);

    service.log = log;
    service.queue.most = static_cast<std::size_t>(queue);
    service.queue.warn = service.queue.most * 4 / 5;
    service.queue.on_warning = [log](std::size_t waiting) {
      (*log)(tutti::infer::LogLevel::warn, tutti::concat(waiting, " requests wait"));
    };
    tutti::train::FlaggedGpu const gpu(flags.gpu, "serve", tutti::infer::find_layer_device);
    tutti::infer::HotModel models(load(flags, service, gpu, *log));
    tutti::infer::Server server(models, options);
    (*log)(tutti::infer::LogLevel::info, tutti::concat("http://", options.host, ":", server.port()));
    std::thread waiter([&] {
      for (int signal = 0; ::sigwait(&signals, &signal) == 0 && signal == SIGHUP;) try {
          models.swap([&] { return load(flags, service, gpu, *log); });
        } catch (std::exception const& error) {
          (*log)(tutti::infer::LogLevel::error,
                 tutti::concat("the model that answers goes on, its successor fails: ", error.what()));
        }
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

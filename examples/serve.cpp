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

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

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
  if (draft) options.fit.advice += ", or leave --draft out";
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

/// Signals are waited for by one thread alone, all others have them blocked. Made before any other thread.
class Signals {
 public:
  struct Calls {
    std::function<void()> stop, again;
  };

  Signals() {
    sigemptyset(&signals_);
    for (int const signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals_, signal);
    // Under nohup there is no terminal to follow: SIGHUP means the model.
    terminal_ = std::signal(SIGHUP, SIG_DFL) != SIG_IGN && terminal_is_there();
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    waiter_ = std::thread([this] { wait(); });
  }
  ~Signals() { end(); }
  /// From now on the first request to stop is a call, and a second one ends the process, as any did before.
  void serve(Calls calls) {
    std::lock_guard const guard(mutex_);
    calls_ = std::move(calls);
  }
  void end() {
    if (!waiter_.joinable()) return;
    ended_ = true;
    ::pthread_kill(waiter_.native_handle(), SIGUSR1);
    waiter_.join();
  }

 private:
  static bool terminal_is_there() {
    int const terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (terminal >= 0) ::close(terminal);
    return terminal >= 0;
  }
  void wait() {
    bool asked = false;
    for (int signal = 0; ::sigwait(&signals_, &signal) == 0;) {
      if (signal == SIGUSR1) {
        if (ended_) return;
        continue;
      }
      Calls calls;
      {
        std::lock_guard const guard(mutex_);
        calls = calls_;
      }
      bool const stops = signal != SIGHUP || (terminal_ && !terminal_is_there());
      if (!stops) {
        if (calls.again && !asked) calls.again();
        continue;
      }
      if (!calls.stop || std::exchange(asked, true)) ::_exit(128 + signal);
      calls.stop();
    }
  }

  sigset_t signals_{};
  bool terminal_ = false;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  Calls calls_;
  std::thread waiter_;
};

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
                            "share of what a cache holds that a prompt must have to take its place; of others the "
                            "beginning is copied");
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
    logging.level = log_level, logging.format = log_format, logging.follow_links = true;
    log->configure(logging);
    if (char const* const key = std::getenv("TUTTI_API_KEY")) options.api_key = key;
    service.log = log;
    service.queue.most = static_cast<std::size_t>(queue);
    // In a short queue every request that comes would be one to warn of.
    service.queue.warn = service.queue.most < 5 ? service.queue.most : service.queue.most * 4 / 5;
    service.queue.on_warning = [log](std::size_t waiting) {
      (*log)(tutti::infer::LogLevel::warn, tutti::concat(waiting, waiting == 1 ? " request waits" : " requests wait"));
    };
    std::signal(SIGPIPE, SIG_IGN);
    Signals signals;
    tutti::train::FlaggedGpu const gpu(flags.gpu, "serve", tutti::infer::find_layer_device);
    tutti::infer::HotModel models(load(flags, service, gpu, *log));
    tutti::infer::Server server(models, options);
    (*log)(tutti::infer::LogLevel::info, tutti::concat("http://", options.host, ":", server.port()));
    auto reopened = logging;
    reopened.reopen = true;
    signals.serve({.stop = [&] { server.stop(); },
                   .again =
                       [&] {
                         try {
                           log->configure(reopened);  // the file may have been moved away
                           models.swap([&] { return load(flags, service, gpu, *log); });
                         } catch (std::exception const& error) {
                           (*log)(tutti::infer::LogLevel::error,
                                  tutti::concat("the model that answers goes on, its successor fails: ", error.what()));
                         }
                       }});
    server.run();
    signals.end();
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "serve: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes text with a trained model: a checkpoint of train_gpt2, an llm.c model file with a tokenizer.json, or a GGUF
// file. Several ranks share a model: mpiexec -n 2 generate --model FILE.

#include <tutti/backend/any.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/data/stream_decoder.hpp>
#include <tutti/data/tokenizer_files.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/generate.hpp>
#include <tutti/infer/gpt2_decoder.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/infer/sequence_files.hpp>
#include <tutti/nn/stored_part.hpp>
#include <tutti/train/decoding_flags.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/gpu_layer_flags.hpp>
#include <tutti/train/llama_files.hpp>
#include <tutti/train/model_source.hpp>
#include <tutti/train/sampling_flags.hpp>
#include <tutti/train/speculation_flags.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// DRY's breakers, where it is asked for.
tutti::infer::SequenceBreakers breakers_of(tutti::infer::SamplerOptions const& sampling,
                                           tutti::data::Tokenizer const& tokenizer) {
  if (sampling.dry_multiplier <= 0) return {};
  return {tutti::infer::usual_breakers(), tutti::infer::token_pieces(tokenizer),
          [&](std::string_view text) { return tokenizer.encode(text); }};
}

/// Before a long answer, not behind it.
void require_folder(std::string const& file) {
  auto const folder = std::filesystem::absolute(file).parent_path().string();
  if (!tutti::io::folder_exists(folder) || ::access(folder.c_str(), W_OK) != 0)
    throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                       "--prompt-cache: the folder '" + folder + "' does not exist or cannot be written to");
}

struct ModelRun {
  std::string model, prompt, cache;
  std::vector<std::string> stops;
  std::vector<std::string> meanings;
  double meaning_threshold = 0;
  std::int64_t tokens = 0;
  tutti::train::DecodingFlags decoding{};
  int threads = 0;
  bool past_end = false, quiet = false;
  tutti::train::SpeculationFlags speculation{};
  tutti::train::GpuLayerFlags gpu{};
};

/// `before`: what every text begins with, where the tokenizer does not say. `port`: of the ranks that share the model,
/// or null; all draw alike, and the first one prints.
void run_decoder(ModelRun const& run, tutti::infer::SamplerOptions const& sampling,
                 tutti::infer::LoadedModel const& loaded, std::vector<std::int32_t> const& before,
                 std::vector<std::int32_t> const& ends, tutti::exec::Context& context,
                 tutti::comm::Port* port = nullptr) {
  bool const speaks = port == nullptr || port->rank() == 0;
  tutti::data::Tokenizer const& tokenizer = loaded.tokenizer;
  auto prompt = before;
  for (std::int32_t const token : before.empty() ? tokenizer.encode_complete(run.prompt) : tokenizer.encode(run.prompt))
    prompt.push_back(token);
  tutti::infer::begin_text(prompt, tokenizer);
  if (prompt.empty())
    throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                       "the model has no token that begins a text. Give a --prompt");
  // Positions beyond those that the model was made for would be noise.
  std::int64_t const said = run.decoding.context_tokens(), room = said > 0 ? said : loaded.model.max_tokens();
  auto const size = static_cast<std::int64_t>(prompt.size());
  if (size > room)
    throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                       "the prompt has " + std::to_string(size) + " tokens and the context " + std::to_string(room) +
                           ". Give a shorter --prompt or a larger --context");
  tutti::infer::DecoderOptions options;
  std::vector<std::vector<std::int32_t>> meant;
  std::int64_t longest = 0;
  for (std::string const& text : run.meanings) {
    meant.push_back(tokenizer.encode(text));
    longest = std::max(longest, static_cast<std::int64_t>(meant.back().size()));
  }
  if (longest > room)
    throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                       "a --stop-meaning has " + std::to_string(longest) + " tokens and the context " +
                           std::to_string(room) + ". Give a shorter one or a larger --context");
  std::int64_t const wanted = std::max(longest, std::min(room, size + std::min(run.tokens, room)));
  run.decoding.give(options);
  options.capacity = said > 0 ? wanted : 0;
  options.tensor = port;
  tutti::train::FlaggedGpu const gpu(run.gpu, "generate", tutti::infer::find_layer_device);
  gpu.give(options);
  tutti::train::FlaggedSpeculation speculation(run.speculation, tokenizer);
  auto fit = run.decoding.fit(loaded.model, context.threads(), 0);
  speculation.add_to(fit);
  fit.most_context = wanted;
  tutti::infer::FittedDecoder const fitted = tutti::infer::fit_decoder(loaded.model, options, fit);
  if (std::int64_t const held = fitted.options.capacity; held < std::max(size, longest))
    throw tutti::Error(tutti::ErrorKind::out_of_memory, "generate",
                       tutti::concat("the memory holds ", held, " tokens, and the prompt or a --stop-meaning has ",
                                     std::max(size, longest), ". ", fit.advice));
  bool const shorter = fitted.options.capacity < wanted;  // else what was chosen is what was meant
  for (std::size_t i = shorter || said > 0 ? 0 : 1; i < fitted.notes.size() && speaks && !run.quiet; ++i)
    std::fprintf(stderr, "[%s]\n", fitted.notes[i].c_str());
  tutti::infer::Decoder decoder(context, loaded.model, fitted.options);
  tutti::infer::Sequence sequence(decoder);
  tutti::infer::StopOptions stop;
  stop.meaning_threshold = run.meaning_threshold;
  for (auto const& tokens : meant) stop.meanings.push_back(tutti::infer::mean_hidden(sequence, tokens));
  sequence.reset();
  if (!run.cache.empty() && tutti::io::file_exists(run.cache)) tutti::infer::restore_sequence(run.cache, sequence);
  tutti::infer::Sampler sampler(sampling, breakers_of(sampling, tokenizer));
  speculation.start(context, loaded.model.vocabulary(), decoder.options(), sampling, breakers_of(sampling, tokenizer));
  stop.texts = run.stops;
  stop.max_tokens = run.tokens;
  if (!run.past_end) stop.ends = ends;
  auto const show = [&](std::string_view text) {
    if (speaks) print(text);
  };
  if (!run.quiet) show(run.prompt);
  auto const answer = tutti::infer::complete(sequence, sampler, tokenizer, prompt, stop, show, nullptr, std::nullopt,
                                            speculation.get());
  show("\n");
  if (!run.cache.empty()) tutti::infer::save_sequence(run.cache, sequence);
  if (std::string const told = gpu.told(decoder); !run.quiet && !told.empty())
    std::fprintf(stderr, "[%s]\n", told.c_str());
  if (!run.quiet && speaks)
    std::fprintf(stderr, "[%s; prompt %zu tokens%s in %.2f s, then %zu tokens, %.1f a second%s]\n",
                 std::string(name(answer.reason)).c_str(), prompt.size(),
                 run.cache.empty() ? "" : tutti::concat(" (", answer.reused_tokens, " of the cache)").c_str(),
                 answer.prompt_seconds, answer.tokens.size(),
                 answer.seconds > 0 ? static_cast<double>(answer.tokens.size()) / answer.seconds : 0.0,
                 tutti::train::text_of(answer.speculation).c_str());
}
void run_model(ModelRun const& run, tutti::infer::SamplerOptions const& sampling) {
  auto const loaded = tutti::train::load_model_or_run(run.model);
  tutti::exec::Context context({.threads = run.threads});
  run_decoder(run, sampling, loaded, {}, tutti::infer::end_tokens(loaded.tokenizer), context);
}
/// The same on several ranks, each with its heads and channels of the model.
int share_model(auto& communicator, ModelRun const& run, tutti::infer::SamplerOptions const& sampling) {
  if (!run.cache.empty() || !run.speculation.model.empty() || run.gpu.on())
    throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                       "--prompt-cache, --draft and --gpu-layers are for one rank. Leave them out, or start one");
  auto loaded = tutti::train::load_model_or_run(run.model);
  auto const ends = tutti::infer::end_tokens(loaded.tokenizer);
  loaded.model = tutti::nn::stored_part(loaded.model, communicator.rank(), communicator.size());
  auto options = communicator.context_options();
  options.threads = run.threads;
  tutti::exec::Context context(options);
  auto const port = tutti::comm::port(communicator);
  run_decoder(run, sampling, loaded, {}, ends, context, &*port);
  return 0;
}
/// A checkpoint of a LLaMA, or nothing where `path` is something else.
std::shared_ptr<tutti::train::Checkpoint const> llama_checkpoint(std::string const& path) {
  if (!tutti::io::folder_exists(path)) return nullptr;
  auto checkpoint = std::make_shared<tutti::train::Checkpoint const>(tutti::train::Gpt2Model::folder(path));
  return tutti::train::architecture_of(*checkpoint) == "llama" ? checkpoint : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  std::string checkpoint, model_path, prompt, cache, tokenizer_path;
  std::vector<std::string> stops, meanings;
  double meaning_threshold = 0.9;
  std::int64_t count = 200;
  int threads = 0;
  bool to_the_end = false, quiet = false;
  tutti::infer::SamplerOptions sampling = tutti::infer::usual_sampling();

  CLI::App app{"Continues a prompt with a trained model; the text is printed as it is drawn.", "generate"};
  auto* const from = app.add_option("--checkpoint", checkpoint,
                                    "folder of a checkpoint, --out folder of a run (its latest), or llm.c model file");
  app.add_option("--model", model_path,
                 "GGUF file, or folder with safetensors, of a GPT-2, LLaMA, Mistral, Qwen2 or Phi-3, or folder of a "
                 "run, in the place of --checkpoint")
      ->excludes(from);
  app.add_option("--stop", stops, "with --model: text that ends the answer, and is not part of it; may be repeated");
  app.add_option("--stop-meaning", meanings,
                 "with --model: text; a sentence that means the same, by the model's own hidden states, ends the "
                 "answer; may be repeated");
  tutti::train::add_setting(app, "--stop-meaning-threshold", meaning_threshold, {-1, 1},
                            "with --stop-meaning: least cosine of the mean hidden states");
  app.add_option("--prompt-cache", cache,
                 "with --model: file that keeps what was computed of the text; a later prompt that begins like it goes "
                 "on from there");
  tutti::train::DecodingFlags decoding;
  tutti::train::add_decoding_flags(app, decoding,
                                   "most tokens of prompt and answer; auto, 0: as many as the model was made for and "
                                   "the memory holds",
                                   "with --model: ");
  app.add_option("--prompt", prompt, "text to continue (default: the beginning of a document)");
  tutti::train::add_setting(app, "--tokens,--max-tokens", count, {1, std::int64_t{1} << 40}, "most tokens to write");
  tutti::train::add_sampling_flags(app, sampling, "the same seed gives the same text");
  tutti::train::SpeculationFlags speculation;
  tutti::train::add_speculation_flags(app, speculation, "with --model: ");
  tutti::train::GpuLayerFlags gpu;
  tutti::train::add_gpu_layer_flags(app, gpu, "with --model: ");
  tutti::train::add_setting(app, "--threads", threads, {0, 1024}, "0: all processors of this process");
  app.add_option("--tokenizer", tokenizer_path, "tokenizer.json (default: the checkpoint's)");
  app.add_flag("--past-end", to_the_end, "go on when the model ends the document");
  app.add_flag("--quiet", quiet, "print the new text alone, without the prompt");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;
  if (checkpoint.empty() && model_path.empty()) {
    std::fputs("generate: --checkpoint or --model is required\nSee generate --help for the flags.\n", stderr);
    return 2;
  }

  try {
    if (!model_path.empty()) {
      if (!tokenizer_path.empty())
        throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                           "a model has its own tokenizer. Leave --tokenizer out");
      if (!cache.empty()) require_folder(cache);
      ModelRun const run{model_path, prompt,     cache, stops,       meanings, meaning_threshold, count, decoding,
                         threads,    to_the_end, quiet, speculation, gpu};
      if (tutti::comm::announced_ranks().ranks > 1)
        return tutti::with_backend("mpi", 1, argv,
                                   [&](auto& communicator) { return share_model(communicator, run, sampling); });
      run_model(run, sampling);
      if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        throw tutti::Error(tutti::ErrorKind::io, "generate", "the text could not be written. Free space there");
      return 0;
    }
    if (!stops.empty() || !meanings.empty() || decoding.said() || !cache.empty() || speculation.on() || gpu.on())
      throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                         "--stop, --stop-meaning, --context, --batch, --cache-type, --max-memory, --prompt-cache, "
                         "--speculate, --draft and --gpu-layers go with --model");
    if (tutti::comm::announced_ranks().ranks > 1)
      throw tutti::Error(
          tutti::ErrorKind::configuration, "generate",
          "--checkpoint is for one rank. Ranks share a model that --model names, which may be the folder "
          "of a run");
    auto const llama = llama_checkpoint(checkpoint);
    std::optional<tutti::train::Gpt2Model> gpt2;
    if (!llama) gpt2 = tutti::train::Gpt2Model::load(checkpoint);
    std::int64_t const classes =
        llama ? tutti::train::llama_config(*llama).vocabulary : gpt2->weights().config.vocabulary;
    if (tokenizer_path.empty()) {
      bool const folder = tutti::io::folder_exists(checkpoint);
      std::filesystem::path const beside =
          folder ? tutti::train::Gpt2Model::folder(checkpoint) : std::filesystem::path(checkpoint).parent_path();
      tokenizer_path = (beside / "tokenizer.json").string();
    }
    tutti::data::Tokenizer const tokenizer = tutti::data::read_tokenizer_file(tokenizer_path);
    if (tokenizer.vocabulary() > classes)
      throw tutti::Error(tutti::ErrorKind::configuration, "generate",
                         tokenizer_path + " has " + std::to_string(tokenizer.vocabulary()) + " tokens, the model " +
                             std::to_string(classes) + ". Give the model's own --tokenizer");

    if (llama) {
      // Every document of the training data begins with this token, and ends at the next one's.
      std::int32_t const mark = tokenizer.end_of_text();
      tutti::exec::Context context({.threads = threads});
      run_decoder({checkpoint, prompt, "", stops, {}, 0, count, decoding, threads, to_the_end, quiet}, sampling,
                  {tutti::train::stored_llama(llama), tokenizer, ""}, {mark}, {mark}, context);
      return 0;
    }
    tutti::exec::Context context({.threads = threads});
    tutti::infer::Sampler sampler(sampling, breakers_of(sampling, tokenizer));
    tutti::infer::Gpt2Decoder decoder(context, gpt2->weights());
    std::int32_t const end = tokenizer.end_of_text();
    std::vector<std::int32_t> tokens{end};  // every document of the training data begins with it
    tokenizer.encode_to(tokens, prompt);

    tutti::data::StreamDecoder text(tokenizer);
    if (!quiet) std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    tutti::infer::generate(decoder, sampler, tokens, count, to_the_end ? -1 : end, [&](std::int32_t token) {
      // A model may have more classes than its tokenizer has tokens; those mean nothing.
      std::string const piece = token < tokenizer.vocabulary() ? text.push(token) : std::string();
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    });
    std::string const rest = text.finish();
    std::fwrite(rest.data(), 1, rest.size(), stdout);
    std::puts("");
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tutti::Error(tutti::ErrorKind::io, "generate", "the text could not be written. Free space there");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return 1;
  }
}

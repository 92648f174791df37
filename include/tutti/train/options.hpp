// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a training run can be told, on the command line or in a JSON file of the same names.
/// The command line wins over a resumed checkpoint, the checkpoint over the file, the file over the defaults.
/// One header, though long: a flag's declaration, its help, its limits and who remembers it are read together.

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/train/flags.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti::train {

/// Tokens of a step: far beyond use, and sums and products with them stay in 64 bits.
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

/// Counts are per run unless the name says otherwise; 0 in a `*_every` means never, 0 in a size means "derive it".
struct Options {
  std::string model = "";  ///< d6 ... d48, or an llm.c model file
  std::int64_t layers = 0, channels = 0, heads = 0, vocabulary = 0;
  std::string data, validation_data, tokenizer;
  std::int64_t batch = 4;          ///< sequences per rank and micro-step; at most, where total_tokens is given
  std::int64_t sequence = 64;      ///< tokens per sequence
  std::int64_t total_tokens = 0;   ///< tokens per step over all ranks and micro-steps
  std::int64_t sync_freq = 0;      ///< micro-steps per step
  std::int64_t steps = 0;          ///< 0: one pass over the training data
  double learning_rate = 3e-4;
  std::int64_t warmup = 0;
  std::string schedule = "cosine";
  double final_fraction = 0.0;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  std::string compute = "float32";  ///< of matrix products
  double clip = 1.0;               ///< global norm; 0 does not clip
  std::string clip_flag = "--clip";  ///< as it was spelled
  std::int64_t validate_every = 100, validation_batches = 0, sample_every = 0, sample_tokens = 64, checkpoint_every = 0,
               keep = 3;
  std::string sample_prompt;
  std::string resume;              ///< latest, a step, or a path
  std::int64_t seed = 42;
  int threads = 0, ranks = 0;
  std::string backend = "mpi";
  std::string device = "cpu";
  std::string out;
  bool overwrite = false;          ///< `out` may hold another run's checkpoints, which are removed
  bool no_final_checkpoint = false;
  std::string recompute = "none";  ///< by the backward pass; see graph::Recompute
  bool profile = false;            ///< measure every operation
  bool keep_packed = false;        ///< see TrainStepOptions
  bool autotune = false;           ///< of devices: products' algorithms by their time; see product_choices.hpp
  bool replicas_per_rank = false;  ///< see parallel::Replicas
  std::string config;

  DType compute_dtype() const { return compute == "bfloat16" ? DType::bfloat16 : DType::float32; }

  graph::Recompute recompute_policy() const {
    return recompute == "block"       ? graph::Recompute::block
           : recompute == "pointwise" ? graph::Recompute::pointwise
                                      : graph::Recompute::none;
  }

  std::set<std::string> given;     ///< names that the command line or the file set
  std::set<std::string> typed;     ///< names that the command line set
};

namespace detail {

/// One place that knows every flag: its name, where its value goes, and its line of help.
inline void declare(CLI::App& app, Options& o) {
  auto const add = [](CLI::App& group, char const* names, auto& value, char const* help) {
    if constexpr (std::is_arithmetic_v<std::remove_reference_t<decltype(value)>>) add_number(group, names, value, help);
    else group.add_option(names, value, help);
  };
  auto* const model = app.add_option_group("Model");
  add(*model, "--model", o.model, "size d6, d12, d24, d36, d48, or an llm.c model file (.bin)");
  add(*model, "--layers", o.layers, "transformer blocks");
  add(*model, "--channels", o.channels, "width; a multiple of --heads");
  add(*model, "--heads", o.heads, "attention heads");
  add(*model, "--vocabulary", o.vocabulary, "tokens known (default: the tokenizer's, else 50257)");
  auto* const data = app.add_option_group("Data");
  add(*data, "--data", o.data, "training shards: a file or a quoted pattern");
  add(*data, "--validation-data", o.validation_data, "validation shards");
  add(*data, "--tokenizer", o.tokenizer,
                   "tokenizer.json for samples and bits per byte (default: beside the data)");
  add(*data, "--batch", o.batch, "sequences per rank and micro-step; with --total-tokens, at most");
  add(*data, "--sequence", o.sequence, "tokens per sequence");
  add(*data, "--total-tokens", o.total_tokens,
                   "tokens per step over all ranks (default: batch * sequence * ranks * sync-freq)");
  add(*data, "--sync-freq", o.sync_freq,
                   "micro-steps whose gradients are summed before ranks synchronise and update");
  add(*data, "--seed", o.seed, "of initial weights and data order");
  auto* const optimizer = app.add_option_group("Optimizer");
  add(*optimizer, "--steps", o.steps, "updates (default: one pass over the training data)");
  add(*optimizer, "--learning-rate", o.learning_rate, "peak");
  add(*optimizer, "--warmup", o.warmup, "steps of linear warm-up");
  add(*optimizer, "--schedule", o.schedule, "cosine, linear, constant or wsd");
  add(*optimizer, "--final-fraction", o.final_fraction, "of the peak learning rate, at the last step");
  add(*optimizer, "--weight-decay", o.weight_decay, "on matrices and embeddings");
  add(*optimizer, "--beta1", o.beta1, "AdamW");
  add(*optimizer, "--beta2", o.beta2, "AdamW");
  add(*optimizer, "--epsilon", o.epsilon, "AdamW");
  add(*optimizer, "--clip,--gradient-clip", o.clip, "largest global norm of the gradient; 0 does not clip");
  add(*optimizer, "--compute", o.compute,
      "matrix products: float32, or bfloat16 with sums, parameters and all else in float32");
  auto* const run = app.add_option_group("Run");
  add(*run, "--validate-every", o.validate_every,
                  "steps; validation also runs before the first and after the last");
  add(*run, "--validation-batches", o.validation_batches,
                  "measure at most as many sequences as so many steps have, over all ranks and micro-steps, from the "
                  "beginning of the validation data (default: all of it)");
  add(*run, "--sample-every", o.sample_every, "steps");
  add(*run, "--sample-tokens", o.sample_tokens, "length of a sample");
  add(*run, "--sample-prompt", o.sample_prompt, "beginning of a sample");
  add(*run, "--checkpoint-every", o.checkpoint_every, "steps; the last step is kept too when --out is given");
  run->add_flag("--no-final-checkpoint", o.no_final_checkpoint, "do not keep the last step");
  add(*run, "--keep", o.keep, "newest checkpoints to keep; 0 keeps all");
  add(*run, "--resume", o.resume, "latest, a step, or the path of a checkpoint");
  add(*run, "--out", o.out, "folder for metrics, logs and checkpoints");
  run->add_flag("--overwrite", o.overwrite, "a new run removes the checkpoints of another run in --out");
  run->add_flag("--profile", o.profile,
                "print at the end where the steps' time went, and keep the last step as a Chrome trace in --out");
  run->add_flag(
      "--replicas-per-rank", o.replicas_per_rank,
      "every rank keeps and updates parameters and moments of its own (default: a node's ranks share one copy)");
  add(*run, "--recompute", o.recompute,
      "compute again in the backward pass, to save memory: none, pointwise (norms, GELU, elementwise) or block (all)");
  run->add_flag("--keep-packed", o.keep_packed,
                "pack weights for products once a step, not once a micro-step; takes memory");
  run->add_flag("--autotune", o.autotune,
                "on GPUs: choose algorithms of products by their time; --out keeps the choice");
  add(*run, "--threads", o.threads, "per rank (default: the processors divided among the node's ranks)");
  add(*run, "--ranks", o.ranks, "with --backend threads; under mpiexec the launcher says");
  add(*run, "--backend", o.backend,
      "mpi, threads, nccl (between GPUs), or auto: under a launcher mpi, or nccl with a GPU each; else threads");
  add(*run, "--device", o.device, "cpu, or cuda: each rank the GPU of its number on its node");
  add(*run, "--config", o.config, "JSON file with these names as keys, without the dashes");
  for (CLI::Option* option : app.get_options()) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (auto* group : {model, data, optimizer, run})
    for (CLI::Option* option : group->get_options()) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      option->capture_default_str();
    }
}

/// The kind of JSON value that an option takes.
inline std::string json_kind(CLI::Option const& option) {
  if (option.get_expected_min() == 0) return "true or false";
  std::string const type = option.get_type_name();
  return type.starts_with("INT") ? "a whole number" : type.starts_with("FLOAT") ? "a number" : "a string";
}
inline bool is_of_kind(nlohmann::json const& value, std::string const& kind) {
  return kind == "true or false"    ? value.is_boolean()
         : kind == "a whole number" ? value.is_number_integer()
         : kind == "a number"       ? value.is_number()
                                    : value.is_string();
}
inline std::string describe(nlohmann::json const& value) {
  if (value.is_string()) return "the string " + value.dump();
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return value.dump();
}

/// The file's keys as command-line words. Errors: configuration, naming file and key.
inline std::vector<std::string> words_from_json(std::string const& path) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::configuration, "train_gpt2", "--config " + path + ": " + what);
  };
  nlohmann::json json;
  try {
    json = io::parse_json(io::read_file(path), path);
  } catch (Error const& error) {
    refuse(error.message() + (error.native().empty() ? "" : " [" + error.native() + "]"));
  }
  if (!json.is_object()) refuse("the top level must be an object of flag names and values");
  Options scratch;
  CLI::App app;
  declare(app, scratch);
  std::vector<std::string> words;
  for (auto const& [key, value] : json.items()) {
    if (key == "config" || key == "help") refuse("key '" + key + "' is not possible in a file");
    CLI::Option const* const option = app.get_option_no_throw("--" + key);
    if (option == nullptr) refuse("key '" + key + "' is no flag of train_gpt2. See train_gpt2 --help for the names");
    if (std::string const kind = json_kind(*option); !is_of_kind(value, kind))
      refuse("key '" + key + "' must be " + kind + ", not " + describe(value));
    words.push_back("--" + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  if (json.contains("clip") && json.contains("gradient-clip"))
    refuse("keys 'clip' and 'gradient-clip' are one setting. Give one of them");
  return words;
}

/// How --clip is spelled in `words`. Errors: configuration, when it is in both ways: which one counts would be a guess.
inline std::string clip_flag(std::vector<std::string> const& words) {
  auto const has = [&](std::string const& flag) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string const& word) { return word == flag || word.starts_with(flag + "="); });
  };
  if (!has("--gradient-clip")) return "--clip";
  if (has("--clip"))
    throw Error(ErrorKind::configuration, "train_gpt2",
                "--clip and --gradient-clip are two names of one flag. Give one of them");
  return "--gradient-clip";
}

}  // namespace detail

/// Refuses by name what cannot be. Errors: configuration.
inline void validate(Options const& o) {
  auto const refuse = [&](std::string const& flag, auto const& value, std::string const& what) {
    std::string text;
    if constexpr (std::is_convertible_v<decltype(value), std::string>) text = value;
    else text = CLI::detail::to_string(value);
    std::string const name = flag == o.clip_flag ? "clip" : flag.substr(2);
    bool const filed = o.given.contains(name) && !o.typed.contains(name);
    throw Error(ErrorKind::configuration, "train_gpt2",
                flag + " " + text + ": " + what + (filed ? " (it stands in --config " + o.config + ")" : ""));
  };
  for (auto [name, value] : std::initializer_list<std::pair<char const*, std::string const&>>{
           {"model", o.model}, {"data", o.data}, {"validation-data", o.validation_data}, {"tokenizer", o.tokenizer},
           {"resume", o.resume}, {"out", o.out}, {"config", o.config}})
    if (o.given.contains(name) && value.empty())
      refuse(std::string("--") + name, "''", "is empty. Say which, or leave it out");
  // A checkpoint keeps settings as JSON, which is UTF-8; the system's names end at a zero byte.
  auto const text_can_be = [&](std::string const& name, std::string const& value) {
    if (value.find('\0') != value.npos) refuse("--" + name, value.c_str(), "holds a zero byte. Leave it out");
    if (name == "out") return;
    try {
      static_cast<void>(nlohmann::json(value).dump());
    } catch (nlohmann::json::exception const&) {
      refuse("--" + name, value,
             "is not UTF-8, as which checkpoints keep it. Rename what it names, or write it in UTF-8");
    }
  };
  for (auto [name, value] :
       std::initializer_list<std::pair<char const*, std::string const&>>{{"model", o.model},
                                                                         {"data", o.data},
                                                                         {"validation-data", o.validation_data},
                                                                         {"tokenizer", o.tokenizer},
                                                                         {"schedule", o.schedule},
                                                                         {"compute", o.compute},
                                                                         {"sample-prompt", o.sample_prompt},
                                                                         {"resume", o.resume},
                                                                         {"out", o.out}})
    text_can_be(name, value);
  auto const at_least = [&](char const* flag, std::int64_t value, std::int64_t least) {
    if (value < least) refuse(flag, value, "must be at least " + std::to_string(least));
  };
  // A size that 31 bits hold multiplies with any other; a token is an int32.
  auto const at_most = [&](char const* flag, std::int64_t value, std::int64_t most) {
    if (value > most) refuse(flag, value, "must be at most " + std::to_string(most));
  };
  constexpr std::int64_t most_size = (std::int64_t{1} << 31) - 1;
  at_most("--vocabulary", o.vocabulary, most_size - 127);  // the next multiple of 128 is one as well
  for (auto [flag, value] : std::initializer_list<std::pair<char const*, std::int64_t>>{
           {"--layers", o.layers}, {"--channels", o.channels}, {"--heads", o.heads}, {"--batch", o.batch},
           {"--sequence", o.sequence}, {"--sync-freq", o.sync_freq}, {"--sample-tokens", o.sample_tokens}})
    at_most(flag, value, most_size);
  at_most("--total-tokens", o.total_tokens, most_tokens);
  auto const between = [&](char const* flag, double value, double low, double high) {
    if (!(value >= low && value <= high))
      refuse(flag, value, "must be between " + CLI::detail::to_string(low) + " and " + CLI::detail::to_string(high));
  };
  // Left out, these are derived; given, they must be something.
  if (o.given.contains("sync-freq")) at_least("--sync-freq", o.sync_freq, 1);
  if (o.given.contains("steps")) at_least("--steps", o.steps, 1);
  if (o.given.contains("ranks")) at_least("--ranks", o.ranks, 1);
  for (auto [flag, value] : std::initializer_list<std::pair<char const*, std::int64_t>>{
           {"--layers", o.layers}, {"--channels", o.channels}, {"--heads", o.heads}, {"--vocabulary", o.vocabulary},
           {"--total-tokens", o.total_tokens}, {"--steps", o.steps}, {"--warmup", o.warmup},
           {"--validate-every", o.validate_every}, {"--validation-batches", o.validation_batches},
           {"--sample-every", o.sample_every}, {"--checkpoint-every", o.checkpoint_every}, {"--keep", o.keep},
           {"--seed", o.seed}, {"--threads", o.threads}, {"--ranks", o.ranks}, {"--sync-freq", o.sync_freq}})
    at_least(flag, value, 0);
  at_least("--batch", o.batch, 1);
  at_least("--sequence", o.sequence, 1);
  at_least("--sample-tokens", o.sample_tokens, 1);
  if (o.threads > 1024) refuse("--threads", o.threads, "must be at most 1024");
  between("--learning-rate", o.learning_rate, 0, 1e3);
  between("--final-fraction", o.final_fraction, 0, 1);
  between("--weight-decay", o.weight_decay, 0, 1e3);
  for (auto [flag, value] : {std::pair{"--beta1", o.beta1}, std::pair{"--beta2", o.beta2}})
    if (!(value >= 0 && value < 1)) refuse(flag, value, "must be at least 0 and below 1");
  between("--epsilon", o.epsilon, 1e-30, 1);
  between(o.clip_flag.c_str(), o.clip, 0, 1e30);
  if (std::find(optim::schedule_names.begin(), optim::schedule_names.end(), o.schedule) == optim::schedule_names.end())
    refuse("--schedule", o.schedule, "use cosine, linear, constant or wsd");
  if (o.compute != "float32" && o.compute != "bfloat16") refuse("--compute", o.compute, "use float32 or bfloat16");
  if (o.recompute != "none" && o.recompute_policy() == graph::Recompute::none)
    refuse("--recompute", o.recompute, "use none, pointwise or block");
  if (o.backend != "auto" && o.backend != "mpi" && o.backend != "threads" && o.backend != "nccl")
    refuse("--backend", o.backend, "use auto, mpi, threads or nccl");
  if (o.device != "cpu" && o.device != "cuda") refuse("--device", o.device, "use cpu or cuda");
  if (o.backend == "nccl" && o.device != "cuda") refuse("--backend", o.backend, "is between GPUs. Add --device cuda");
  if (o.device != "cpu" && o.keep_packed)
    refuse("--device", o.device, "keeps no packed weights. Leave out --keep-packed");
  if (o.device == "cpu" && o.autotune) refuse("--autotune", "", "is of GPUs. Add --device cuda, or leave it out");
  if (!o.model.empty() && (o.layers != 0 || o.channels != 0 || o.heads != 0))
    refuse("--model", o.model, "already says --layers, --channels and --heads. Give one or the other");
  if (o.model.empty() && (o.layers != 0 || o.channels != 0 || o.heads != 0)) {
    if (o.layers == 0 || o.channels == 0 || o.heads == 0)
      refuse("--layers/--channels/--heads", "", "give all three, or --model");
    if (o.channels % o.heads != 0)
      refuse("--channels", o.channels, "is not a multiple of --heads " + std::to_string(o.heads));
  }
  if (o.data.empty() && o.resume.empty()) refuse("--data", "", "is needed: the training shards");
  if (!o.resume.empty() && o.resume == "latest" && o.out.empty())
    refuse("--resume", o.resume, "needs --out, the folder with the checkpoints");
  if (!o.resume.empty() && o.resume.find_first_not_of("0123456789") == std::string::npos && o.out.empty())
    refuse("--resume", o.resume, "is a step and needs --out, the folder with the checkpoints");
}

/// Calls f(name, value) for every option that a checkpoint records and a resumed run takes over: what is learned and
/// how, and what the run shows and keeps on the way. The model's sizes are facts of the checkpoint themselves, and so
/// are its micro-steps, which stay where the layout does. How a run is laid out (--backend, --ranks, --threads,
/// --replicas-per-rank, --keep-packed, --recompute, --autotune), what this call does with --out and shows with
/// --profile, and
/// --no-final-checkpoint, which would lose work that another call meant to keep, are said each time.
template <class AnyOptions, class F>
void for_each_setting(AnyOptions& o, F&& f) {
  f("data", o.data);
  f("validation-data", o.validation_data);
  f("tokenizer", o.tokenizer);
  f("batch", o.batch);
  f("sequence", o.sequence);
  f("total-tokens", o.total_tokens);
  f("steps", o.steps);
  f("learning-rate", o.learning_rate);
  f("warmup", o.warmup);
  f("schedule", o.schedule);
  f("final-fraction", o.final_fraction);
  f("weight-decay", o.weight_decay);
  f("beta1", o.beta1);
  f("beta2", o.beta2);
  f("epsilon", o.epsilon);
  f("clip", o.clip);
  f("compute", o.compute);
  f("seed", o.seed);
  f("validate-every", o.validate_every);
  f("validation-batches", o.validation_batches);
  f("sample-every", o.sample_every);
  f("sample-tokens", o.sample_tokens);
  f("sample-prompt", o.sample_prompt);
  f("checkpoint-every", o.checkpoint_every);
  f("keep", o.keep);
}

/// What parsing came to: options, or text to print and the exit code to leave with.
struct Parsed {
  Options options;
  bool leave = false;
  int code = 0;
  std::string text;
};

/// Errors: configuration, for values that cannot be. Unknown flags come back as `leave` with code 2 and a sentence.
inline Parsed parse(int argc, char const* const* argv) {
  Parsed parsed;
  std::vector<std::string> words(argv + 1, argv + argc);
  auto run = [&](std::vector<std::string> all, std::string const& source, std::string const& clip) {
    parsed.options = {};
    parsed.options.clip_flag = clip;
    CLI::App app{"Trains a GPT-2 on token shards, on one rank or many.", "train_gpt2"};
    app.set_help_flag("--help", "print this and leave");
    app.allow_windows_style_options(false);
    detail::declare(app, parsed.options);
    try {
      all = with_empty_values(all);
      std::reverse(all.begin(), all.end());
      app.parse(all);
    } catch (CLI::CallForHelp const&) {
      parsed.leave = true;
      parsed.text = app.help();
    } catch (CLI::ParseError const& error) {
      parsed.leave = true;
      parsed.code = 2;
      std::string what = error.what();
      if (what.starts_with("--clip:")) what.replace(0, std::strlen("--clip"), parsed.options.clip_flag);
      parsed.text = "train_gpt2: " + source + what + "\nSee train_gpt2 --help for the flags.\n";
    }
    for (auto* group : app.get_subcommands([](CLI::App const*) { return true; }))
      for (CLI::Option const* option : group->get_options())
        if (option->count() > 0) parsed.options.given.insert(option->get_lnames().front());
  };
  run(words, "", detail::clip_flag(words));
  std::set<std::string> const typed = parsed.options.typed = parsed.options.given;
  if (parsed.leave || parsed.options.config.empty()) {
    if (!parsed.leave) validate(parsed.options);
    return parsed;
  }
  std::vector<std::string> all = detail::words_from_json(parsed.options.config);
  // What is wrong in the file is said of the file.
  std::string const filed_clip = detail::clip_flag(all);
  run(all, "--config " + parsed.options.config + ": ", filed_clip);
  if (parsed.leave) return parsed;
  // A model is said in one of two ways: the command line's way replaces the file's.
  bool const sizes_typed = typed.contains("layers") || typed.contains("channels") || typed.contains("heads");
  std::erase_if(all, [&](std::string const& word) {
    auto const is = [&](char const* name) { return word.starts_with(std::string("--") + name + "="); };
    return (typed.contains("model") && (is("layers") || is("channels") || is("heads"))) || (sizes_typed && is("model"));
  });
  all.insert(all.end(), words.begin(), words.end());
  run(all, "", typed.contains("clip") ? detail::clip_flag(words) : filed_clip);
  parsed.options.typed = typed;
  if (!parsed.leave) validate(parsed.options);
  return parsed;
}

}  // namespace tutti::train

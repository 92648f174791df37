// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From what the user said to what a run is: files found, sizes known, the batch divided, everything checked before
/// work begins.

#include <tutti/data/mixture.hpp>
#include <tutti/exec/memory_limit.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/data_files.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/pipeline_choice.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// Everything that is decided before the first step. The same on every rank.
struct Setup {
  Options options;
  ModelFacts model;
  std::optional<Checkpoint> resume;
  std::optional<RunTokenizer> tokenizer;
  std::optional<data::MixtureLoader> train;
  std::optional<data::ValidationLoader> validation;
  std::optional<std::int32_t> document_mark;  ///< with which documents begin that --pack keeps apart
  std::vector<data::ValidationLoader> further_validation;  ///< of the second set of --validation-data on
  std::int64_t rows = 1;               ///< sequences per rank and micro-step; some ranks have one less if shares differ
  std::int64_t micro_rows = 1;         ///< sequences per micro-step over all ranks
  std::int64_t micro_steps = 1;
  std::int64_t global_rows = 1;        ///< sequences per step
  parallel::MeshSizes mesh;            ///< of all ranks
  std::int64_t steps = 1;
  std::int64_t first_step = 0;         ///< steps done before this run
  optim::Schedule schedule;
  std::vector<std::string> changes;    ///< settings that differ from the resumed checkpoint's
  std::vector<std::string> warnings;   ///< what is possible and hardly meant
  bool same_run = false;               ///< the resumed checkpoint lies in --out: its history goes on

  /// Of a step's tokens and targets on the rank with the largest share.
  double bytes_of_tokens() const noexcept {
    return 8.0 * static_cast<double>(rows) * static_cast<double>(micro_steps) * static_cast<double>(options.sequence);
  }
  std::int64_t tokens_per_step() const noexcept { return global_rows * options.sequence; }
  /// Windows of the held-out text that validation measures: so many steps' sequences, whoever does them.
  std::int64_t validation_windows() const noexcept { return validation ? validation_windows(*validation) : 0; }
  std::int64_t validation_windows(data::ValidationLoader const& held_out) const noexcept {
    std::int64_t const all = held_out.windows(), batches = options.validation_batches;
    return batches == 0 || batches > all / global_rows ? all : batches * global_rows;
  }
};

namespace detail {

[[noreturn]] inline void refuse(std::string const& what) { throw Error(ErrorKind::configuration, "train_model", what); }

/// Settings of the checkpoint apply unless the command line says otherwise; what differs is noted.
inline void adopt_settings(Options& o, Checkpoint const& checkpoint, std::vector<std::string>& changes) {
  nlohmann::json const& facts = checkpoint.facts();
  if (!facts.contains("settings") || !facts.at("settings").is_object())
    throw Error(ErrorKind::format, "train_model",
                checkpoint.folder().string() + " records no settings. Use another checkpoint");
  nlohmann::json const& settings = facts.at("settings");
  o.checkpoint = checkpoint.folder().string();
  // Checkpoints from before there was a choice are AdamW's.
  std::string const optimizer = settings.contains("optimizer") && settings.at("optimizer").is_string()
                                    ? settings.at("optimizer").get<std::string>()
                                    : "adamw";
  if (o.typed.contains("optimizer") && o.optimizer.text() != optimizer)
    refuse("--optimizer " + o.optimizer.text() + ": the checkpoint " + o.checkpoint + " was trained with " + optimizer +
           ", whose state another optimizer cannot go on with. Leave out --optimizer");
  if (!settings.contains("optimizer")) o.optimizer = OptimizerName::adamw;
  for_each_setting(o, [&](char const* name, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    if (!settings.contains(name)) return;
    Value saved{};
    try {
      saved = settings.at(name).get<Value>();
    } catch (nlohmann::json::exception const& error) {
      throw Error(ErrorKind::format, "train_model",
                  checkpoint.folder().string() + ": setting '" + name + "' has another type. Use another checkpoint")
          .with_native(error.what());
    }
    if (!o.typed.contains(name)) value = saved, o.adopted.insert(name);
    else if (value != saved)
      changes.push_back(std::string(name) + " " + settings.at(name).dump() + " -> " + nlohmann::json(value).dump());
  });
}

/// What the plan of a rank needs, at the moment of asking, beside what the ranks of its node may have together.
/// Errors: configuration.
inline void require_memory(Options const& o, int ranks_on_node, bool one_state, double state, double work,
                           std::int64_t available) {
  double const all = state * (one_state ? 1 : ranks_on_node) + work * ranks_on_node;
  if (available <= 0 || all <= static_cast<double>(available)) return;
  std::string const parts = human_bytes(state) + " parameters and moments" + (one_state ? " together, " : ", ") +
                            human_bytes(work) + " activations and gradients" + (one_state ? " each" : "");
  refuse("the model and --batch " + std::to_string(o.batch) + " x --sequence " + std::to_string(o.sequence) +
         " need at least " + (one_state ? "" : human_bytes(state + work) + " a rank (" + parts + "), ") +
         human_bytes(all) + " on this machine" + (one_state ? " (the ranks " + parts + ")" : "") + ", which has " +
         human_bytes(static_cast<double>(available)) + ". Choose a smaller model or batch, or fewer ranks");
}

/// Micro-steps of the run that is resumed, or 0 when another batch or number of ranks is asked for: the layout of a
/// checkpoint stays where it can, so that a resumed run gives the same bits.
inline std::int64_t micro_steps_of_checkpoint(Setup const& s, int ranks) {
  Options const& o = s.options;
  if (!s.resume || o.typed.contains("sync-freq")) return 0;
  nlohmann::json const& facts = s.resume->facts();
  nlohmann::json const& settings = facts.at("settings");
  bool const same = facts.value("ranks", 0) == ranks && settings.value("batch", std::int64_t{0}) == o.batch &&
                    settings.value("sequence", std::int64_t{0}) == o.sequence &&
                    settings.value("total-tokens", std::int64_t{0}) == o.total_tokens;
  std::int64_t const saved = facts.value("micro_steps", std::int64_t{0});
  return same && saved > 0 && s.global_rows % saved == 0 && s.global_rows / saved >= ranks ? saved : 0;
}

/// Divides the batch: total = sequence * micro_rows * micro_steps, where ranks have equal shares of the rows of a
/// micro-step or, if those are not a multiple of the ranks, shares that differ by one. What can be even is.
inline void divide_batch(Setup& s, int ranks) {
  Options& o = s.options;
  auto const divide = [&](std::int64_t micro_steps) {
    s.micro_steps = micro_steps;
    s.micro_rows = s.global_rows / micro_steps;
    s.rows = data::share_of(s.micro_rows, 0, ranks).count;
  };
  if (o.total_tokens == 0) {
    std::int64_t const micro_steps = std::max<std::int64_t>(o.sync_freq, 1);
    double const tokens = static_cast<double>(o.batch) * ranks * static_cast<double>(micro_steps) *
                          static_cast<double>(o.sequence);
    if (tokens > static_cast<double>(most_tokens))
      refuse("--batch " + std::to_string(o.batch) + " x --sequence " + std::to_string(o.sequence) + " x " +
             std::to_string(ranks) + " ranks x --sync-freq " + std::to_string(micro_steps) + " is more than " +
             std::to_string(most_tokens) + " tokens a step. Choose smaller ones");
    s.global_rows = o.batch * ranks * micro_steps;
    divide(micro_steps);
    o.total_tokens = s.global_rows * o.sequence;
    return;
  }
  auto const flag = [&](char const* name, std::int64_t value) {
    return "--" + std::string(name) + " " + std::to_string(value) + o.source_of(name);
  };
  std::string const total = flag("total-tokens", o.total_tokens);
  if (o.total_tokens % o.sequence != 0)
    refuse(total + " is not a multiple of " + flag("sequence", o.sequence) + ". Give a --total-tokens that is, as " +
           std::to_string((o.total_tokens + o.sequence - 1) / o.sequence * o.sequence));
  s.global_rows = o.total_tokens / o.sequence;
  auto const sequences = [](std::int64_t n) { return std::to_string(n) + (n == 1 ? " sequence" : " sequences"); };
  if (s.global_rows < ranks)
    refuse(total + " is " + sequences(s.global_rows) + " a step, fewer than the " + std::to_string(ranks) +
           " ranks. Choose fewer ranks or more tokens");
  bool const typed = o.typed.contains("batch");
  if (std::int64_t const kept = micro_steps_of_checkpoint(s, ranks); kept > 0) return divide(kept);
  if (std::int64_t const micro_steps = o.sync_freq; micro_steps > 0) {
    if (s.global_rows % micro_steps != 0)
      refuse(total + " is " + sequences(s.global_rows) + ", which " + flag("sync-freq", micro_steps) +
             " does not divide");
    divide(micro_steps);
    if (s.micro_rows < ranks)
      refuse(total + " with " + flag("sync-freq", micro_steps) + " is " + sequences(s.micro_rows) +
             " a micro-step, fewer than the " + std::to_string(ranks) + " ranks. Choose fewer of both");
    if (typed && s.rows != o.batch)
      refuse(total + " with " + flag("sync-freq", micro_steps) + " needs --batch " + std::to_string(s.rows) + ", not " +
             std::to_string(o.batch));
    return;
  }
  if (s.global_rows % ranks == 0) {
    std::int64_t const share = s.global_rows / ranks;
    std::int64_t rows = std::min(o.batch, share);
    if (share % rows != 0 && typed)
      refuse(total + " is " + sequences(share) + " per rank, which --batch " + std::to_string(o.batch) +
             " does not divide");
    while (share % rows != 0) --rows;
    divide(share / rows);
    return;
  }
  // The fewest micro-steps whose shares are at most a batch; where none are, the smallest shares there are.
  std::int64_t fewest = 0, most = 1;
  for (std::int64_t d = 1; d <= s.global_rows / d; ++d) {
    if (s.global_rows % d != 0) continue;
    for (std::int64_t const n : {d, s.global_rows / d}) {
      if (s.global_rows / n < ranks) continue;
      most = std::max(most, n);
      bool const fits = data::share_of(s.global_rows / n, 0, ranks).count <= o.batch;
      if (fits && (fewest == 0 || n < fewest)) fewest = n;
    }
  }
  divide(fewest > 0 ? fewest : most);
  if (typed && s.rows > o.batch)
    refuse(total + " is " + sequences(s.global_rows) + ", of which " + std::to_string(ranks) + " ranks do " +
           std::to_string(s.rows) + " at a time, not --batch " + std::to_string(o.batch) +
           ". Choose a batch of " + std::to_string(s.rows) + ", other ranks or tokens");
}

/// Checkpoints of two runs in one folder could not be told apart: "latest" would be the one that went further.
inline void choose_out(Setup& s) {
  namespace fs = std::filesystem;
  Options const& o = s.options;
  if (o.out.empty()) return;
  std::error_code ignored;  // a folder that is not there is not the same
  s.same_run =
      s.resume && fs::equivalent(s.resume->folder().parent_path(), fs::path(o.out) / "checkpoints", ignored);
  if (s.same_run || o.overwrite) return;
  std::vector<std::int64_t> const steps = complete_steps(o.out);
  if (!steps.empty())
    refuse("--out " + o.out + " holds checkpoints of another run, the latest of step " + std::to_string(steps.back()) +
           ". --resume latest goes on with that run; else choose another --out, or --overwrite to remove them");
}

/// The token with which documents begin, where they are to be kept apart. Errors: configuration.
inline std::optional<std::int32_t> choose_document_mark(Setup const& s) {
  Options const& o = s.options;
  if (o.pack == Packing::none) return std::nullopt;
  std::string const pack = "--pack documents" + o.source_of("pack");
  if (!s.tokenizer)
    refuse(pack + " needs a tokenizer.json that says with which token documents begin. Give --tokenizer");
  if (o.tensor_parallel > 1) refuse(pack + " is not there for --tensor-parallel. Leave out one");
  if (o.attention_dropout > 0) refuse(pack + " is not there with --attention-dropout. Leave out one");
  return said_of(pack, [&] { return s.tokenizer->tokenizer.end_of_text(); });
}

/// Beyond forty passes over a text, further ones teach a model nothing but the text itself (Muennighoff and others,
/// "Scaling Data-Constrained Language Models", 2023), and few predictions say little of a model.
inline void warn_of_little_data(Setup& s) {
  if (double const passes = s.train->epochs_at(s.steps); passes > 40)
    s.warnings.push_back(
        fmt::format("--data {} has only {} tokens, and {} steps are {:.0f} passes over them: the model "
                    "learns them by heart. Use more text, or fewer --steps",
                    s.options.data, with_commas(s.train->tokens()), s.steps, passes));
  else if (s.train->tokens() < 1000)
    s.warnings.push_back(fmt::format("--data {} has only {} tokens: a model learns nothing but them",
                                     s.options.data, s.train->tokens()));
  if (!s.validation) return;
  std::int64_t targets = s.validation->predictions();
  for (data::ValidationLoader const& further : s.further_validation) targets += further.predictions();
  if (targets < 1000)
    s.warnings.push_back(fmt::format("--validation-data {} has only {} tokens to predict: their loss says little",
                                     s.options.validation_data, with_commas(targets)));
}

/// Momentum of outer steps pays over hundreds of them: docs/performance.md.
inline void warn_of_few_averages(Setup& s) {
  Options const& o = s.options;
  if (o.algorithm == AlgorithmName::diloco && s.steps / o.inner_steps < 100 && o.outer_momentum > 0.5)
    s.warnings.push_back(fmt::format("{} steps have only {} averages of DiLoCo: with so few, --outer-learning-rate 1 "
                                     "--outer-momentum 0 and half the --learning-rate learn more",
                                     s.steps, s.steps / o.inner_steps));
}

}  // namespace detail

/// Bytes that the optimizer needs at least for a parameter, with the parameter itself.
inline double state_bytes_of_parameter(Options const& o) noexcept {
  if (o.optimizer == OptimizerName::adamw) return 12;
  return o.optimizer == OptimizerName::sgd && o.momentum == 0 ? 4 : 8;
}
/// Refuses what memory cannot hold before any of it is asked for: the parameters, their moments and gradients, and the
/// hidden state of one micro-step are needed whatever the plan. Errors: configuration.
inline void require_memory(Setup const& s, int ranks_on_node, bool one_state,
                           std::int64_t available = exec::available_memory()) {
  double const hidden = detail::real(s.rows) * detail::real(s.options.sequence) * detail::real(s.model.channels);
  double const own = s.options.zero > 1 ? s.mesh.data : 1;  // parts, of gradients as well
  double const parameters = s.model.parameters / s.mesh.tensor / s.mesh.pipeline / own;  // of a rank at least
  bool const offloads = !s.options.offload_optimizer.empty();
  double const moments =
      offloads ? 0 : (state_bytes_of_parameter(s.options) - 4) / (s.options.zero == 1 ? s.mesh.data : 1);
  detail::require_memory(s.options, ranks_on_node, one_state, (4 + moments) * parameters,
                         4 * (parameters + hidden) + s.bytes_of_tokens(), available);
}

/// `choose(setup)` sets the setup's model, from options, tokenizer and the checkpoint that is resumed.
/// Errors: configuration, io, format, as a sentence that names flag or file. Reads files, allocates no model.
template <class Choose>
Setup make_setup(Options options, int ranks, Choose&& choose) {
  using detail::refuse;
  Setup s;
  s.options = std::move(options);
  Options& o = s.options;
  if (!o.resume.empty()) {
    s.resume.emplace(detail::said_of("--resume " + o.resume, [&] { return find_checkpoint(o.out, o.resume); }));
    s.first_step = s.resume->step();
    if (!o.data.empty()) detail::expand_data_folder(o);
    // A pattern stands in the checkpoint; a folder that was given again means the same.
    detail::adopt_settings(o, *s.resume, s.changes);
    if (o.typed.contains("data")) detail::expand_data_folder(o);  // the tokenizer beside it, if the run had none
    validate(o);
  } else {
    detail::expand_data_folder(o);
  }
  if (o.data.empty()) refuse("--data is needed: the training shards");
  if (o.ranks != 0 && o.ranks != ranks)
    refuse("--ranks " + std::to_string(o.ranks) + ": there " +
           (ranks == 1 ? "is 1 rank" : "are " + std::to_string(ranks) + " ranks") + " on --backend " +
           o.backend.text() + ", which its launcher decides: mpiexec -n " + std::to_string(o.ranks) +
           " in front of the program starts as many. Leave out --ranks, or use --backend threads");
  detail::choose_out(s);

  s.tokenizer = detail::choose_tokenizer(o, s.resume);
  s.document_mark = detail::choose_document_mark(s);
  choose(s);
  if (s.model.max_tokens > 0 && o.sequence > s.model.max_tokens)
    refuse("--sequence " + std::to_string(o.sequence) + o.source_of("sequence") + " is longer than the " +
           std::to_string(s.model.max_tokens) + " positions of the model");
  std::int64_t const known = s.tokenizer ? s.tokenizer->tokenizer.vocabulary() : 0;
  std::int64_t const classes = s.model.vocabulary > 0 ? s.model.vocabulary : known;
  if (known > classes)
    refuse("--tokenizer " + o.tokenizer + " knows " + std::to_string(known) + " tokens, the model only " +
           std::to_string(s.model.vocabulary) + ". Use the model's own tokenizer");

  s.mesh = parallel::mesh_sizes(ranks, o.data_parallel, o.tensor_parallel, o.pipeline_parallel);
  detail::divide_batch(s, s.mesh.data);
  auto const corpus_of = [&](char const* flag, std::string const& pattern) {
    data::TokenCorpus corpus = detail::said_of(flag, [&] { return data::TokenCorpus(pattern); });
    if (s.tokenizer) {
      std::string const without = detail::require_data_of_tokenizer(flag, corpus, *s.tokenizer);
      if (!without.empty() && s.resume && o.typed.contains(flag + 2))
        s.warnings.push_back(std::string(flag) + " " + pattern + ": no tokenizer.json in " + without +
                             " says with which tokenizer these tokens were made. With another one than " +
                             s.tokenizer->origin + " they mean something else to this model");
    }
    if (classes > 0) detail::said_of(flag, [&] { corpus.require_vocabulary(classes); });
    return corpus;
  };
  std::vector<data::MixtureSet> sets;
  for (DataSet const& set : parse_data_sets("--data", o.data))
    sets.push_back({set.path, corpus_of("--data", set.path), set.number()});
  if (o.sample_every > 0 && !s.tokenizer)
    refuse("--sample-every " + std::to_string(o.sample_every) +
           " needs a tokenizer.json that spells the sample. Give --tokenizer, or leave out --sample-every");
  detail::said_of("--data", [&] {
    s.train.emplace(std::move(sets), s.global_rows, o.sequence, static_cast<std::uint64_t>(o.seed), s.document_mark);
  });
  for (std::size_t set = 0; set < s.train->sets() && s.document_mark; ++set)
    detail::require_documents("--data", s.train->loader(set).corpus(), s.train->loader(set).packing()->documents(),
                              s.tokenizer->tokenizer.token_bytes(*s.document_mark));
  if (!o.validation_data.empty())
    for (DataSet const& set : parse_data_sets("--validation-data", o.validation_data, false)) {
      data::ValidationLoader held_out(corpus_of("--validation-data", set.path), o.sequence, s.document_mark);
      if (!s.validation) s.validation.emplace(std::move(held_out));
      else s.further_validation.push_back(std::move(held_out));
    }
  if (o.steps == 0) o.steps = std::max<std::int64_t>(1, s.train->windows() / s.global_rows);
  s.steps = o.steps;
  if (s.first_step > s.steps)
    refuse("the checkpoint is at step " + std::to_string(s.first_step) + ", beyond --steps " + std::to_string(s.steps) +
           ". Ask for more steps");
  s.schedule = {.kind = o.schedule,
                .peak = o.learning_rate,
                .warmup_steps = o.warmup,
                .total_steps = s.steps,
                .final_fraction = o.final_fraction};
  if (o.warmup > 0 && s.schedule.kind == optim::ScheduleKind::constant)
    s.warnings.push_back("--warmup " + std::to_string(o.warmup) + " does nothing: --schedule constant has none");
  else if (o.warmup > s.steps)
    s.warnings.push_back("--warmup " + std::to_string(o.warmup) + o.source_of("warmup") +
                         " is longer than the run of " +
                         std::to_string(s.steps) + (s.steps == 1 ? " step" : " steps") +
                         ": the learning rate never reaches its peak of " + fmt::format("{:.3g}", o.learning_rate) +
                         ", it ends at " + fmt::format("{:.3g}", s.schedule(s.steps - 1)));
  if (std::string warning = pipeline_warning(o, s.mesh, s.micro_steps); !warning.empty())
    s.warnings.push_back(std::move(warning));
  detail::warn_of_little_data(s);
  detail::warn_of_few_averages(s);
  return s;
}

/// What the checkpoint of step `step` says of its run, beside step and hashes. `ranks` share out a batch; nothing in a
/// checkpoint depends on how many have a model together.
inline Json checkpoint_facts(Setup const& s, std::int64_t step, int ranks) {
  Json settings = Json::object();
  for_each_setting(s.options, [&](char const* name, auto const& value) { settings[name] = value; });
  Json facts = {{"model", s.model.json},
                {"settings", settings},
                {"data_cursor", {{"seed", s.options.seed}, {"step", step}}},
                {"ranks", ranks},
                {"micro_steps", s.micro_steps}};
  if (!s.model.chat_template.empty()) facts["chat_template"] = s.model.chat_template;
  return facts;
}
/// Words with which a text like the run's begins, for who tries the model; empty where none are known.
inline std::string opening_prompt(Setup const& s) {
  return s.tokenizer && s.validation ? detail::opening_words(s.validation->corpus(), s.tokenizer->tokenizer)
                                     : std::string();
}

}  // namespace tutti::train

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From what the user said to what a run is: files found, sizes known, the batch divided, everything checked before
/// work begins.

#include <tutti/data/mixture.hpp>
#include <tutti/train/batch_division.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/data_files.hpp>
#include <tutti/train/memory_needs.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/pipeline_choice.hpp>
#include <tutti/train/setup_values.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

namespace detail {

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
  detail::share_batch(s);
  detail::check_restart(s);
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
  if (!s.shares.empty()) facts["rank_shares"] = s.shares;
  if (!s.model.chat_template.empty()) facts["chat_template"] = s.model.chat_template;
  return facts;
}
/// Words with which a text like the run's begins, for who tries the model; empty where none are known.
inline std::string opening_prompt(Setup const& s) {
  return s.tokenizer && s.validation ? detail::opening_words(s.validation->corpus(), s.tokenizer->tokenizer)
                                     : std::string();
}

}  // namespace tutti::train

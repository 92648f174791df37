// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What settings must be to one another, and the request that they make of a prompt.

#include <tutti/exec/processors.hpp>
#include <tutti/infer/json_schema.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/model.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

/// Rules between settings that need no model. What is left open is filled in.
/// Errors: Failure, invalid_argument.
inline void settle(Settings& s) {
  auto const refuse = [](std::string const& why) { throw Failure(Code::invalid_argument, why); };
  // More would wait for one another.
  if (std::int64_t const most = s.threads > 1 ? exec::available_processors() : 1; s.threads > most) {
    s.fitted["threads"] = concat("threads is ", s.threads, ": ", most, ", the processors that there are");
    s.threads = most;
  }
  if (s.queue_reject_threshold == 0) s.queue_reject_threshold = s.queue_size;
  if (s.queue_warning_threshold == 0)
    s.queue_warning_threshold = std::min(std::max<std::int64_t>(1, s.queue_size * 4 / 5), s.queue_reject_threshold);
  if (s.queue_reject_threshold > s.queue_size)
    refuse(concat("queue_reject_threshold is ", s.queue_reject_threshold, " and queue_size ", s.queue_size,
                  ": it must not be larger"));
  if (s.queue_warning_threshold > s.queue_reject_threshold)
    refuse(concat("queue_warning_threshold is ", s.queue_warning_threshold, " and queue_reject_threshold ",
                  s.queue_reject_threshold, ": it must not be larger"));
  if (!(s.cache_type_k == s.cache_type_v))
    refuse("cache_type_k is " + s.cache_type_k.text() + " and cache_type_v " + s.cache_type_v.text() +
           ": they must be the same");
  if (!s.grammar.empty() && !s.json_schema.empty()) refuse("grammar and json_schema exclude each other");
  if (s.grammar_lazy && s.grammar_triggers.empty() && !(s.grammar.empty() && s.json_schema.empty()))
    refuse("grammar_lazy needs grammar_triggers");
  for (std::string const& text : s.required_tokens)
    if (std::find(s.forbidden_tokens.begin(), s.forbidden_tokens.end(), text) != s.forbidden_tokens.end())
      refuse("'" + text.substr(0, 40) + "' is in required_tokens and in forbidden_tokens");
  if (s.max_inference_time_ms > 0 && s.min_timeout_ms > s.max_inference_time_ms)
    refuse("min_timeout_ms is larger than max_inference_time_ms");
}

/// A guest's settings log no more than the host's.
inline void hold_log(Settings& guest, Settings const& host) {
  auto const least = [](Settings const& s) {
    return s.log_debug ? LogLevel::debug : static_cast<LogLevel>(s.log_level);
  };
  if (least(guest) >= least(host)) return;
  guest.log_level = host.log_level, guest.log_debug = host.log_debug;
  guest.fitted["log_level"] =
      concat("log_level is ", host.log_level.text(), ": the log is the host's, which asks for no more");
}

/// How long the answers of a session took.
struct Pace {
  double seconds = 0;
  std::int64_t answers = 0;
};

/// The request that the settings make of a prompt. `notes` gets what was made to fit.
/// Errors: Failure or Error, invalid_argument: a grammar, pattern or token that is none.
inline infer::Request request_of(Settings settings, Model& model, std::vector<std::int32_t> prompt, Pace const& pace,
                                 std::vector<std::string>& notes) {
  Settings& s = settings;
  auto const note = [&](std::string text) { notes.push_back(std::move(text)); };
  std::int64_t const context = model.settings().n_ctx;
  data::Tokenizer const& tokenizer = model.tokenizer();
  infer::Request r;
  r.prompt = std::move(prompt);
  r.embed = s.embedding, r.pooling = s.pooling_type, r.norm = s.embd_normalize;
  r.priority = static_cast<int>(s.priority);
  r.reuse = s.cache_prompt;
  r.keep_logits = true;
  if (s.n_probs > 0) r.likeliest = std::min<std::int64_t>(s.n_probs, tokenizer.vocabulary());

  auto const clamp_window = [&](char const* name, std::int64_t& window, bool used) {
    if (window >= 0 && window <= context) return;
    if (used) note(concat(name, " is ", window, ": the context's ", context, " tokens"));
    window = context;
  };
  clamp_window("repeat_last_n", s.sampling.repeat_last_n,
               s.sampling.repeat_penalty != 1 || s.sampling.frequency_penalty != 0 || s.sampling.presence_penalty != 0);
  clamp_window("dry_penalty_last_n", s.sampling.dry_penalty_last_n, s.sampling.dry_multiplier > 0);
  for (auto const& [name, text] : s.fitted) note(text);
  if (!s.system_prompt.empty() && s.chat_template == "none")
    note("system_prompt: without a chat_template there is no place for it");
  if (!s.semantic_stopping && s.repetition_detection) note("repetition_detection: semantic_stopping is off");
  if (s.adaptive_timeout && s.max_inference_time_ms == 0) note("adaptive_timeout: there is no max_inference_time_ms");
  if (!s.grammar_triggers.empty() && !s.grammar_lazy) note("grammar_triggers: grammar_lazy is off");
  if (s.grammar_lazy && s.grammar.empty() && s.json_schema.empty()) note("grammar_lazy: there is no grammar");
  if (s.seed < 0) {
    s.seed = static_cast<std::int64_t>(std::random_device{}());
    note(concat("seed is ", s.seed));
  }
  s.sampling.seed = static_cast<std::uint64_t>(s.seed);
  if (!s.samplers.empty()) {
    s.sampling.stages.clear();
    for (std::string const& stage : s.samplers)
      s.sampling.stages.push_back(setting::Choice<infer::SamplerStage>(stage));
  }
  if (std::cmp_greater(s.logit_bias.size(), tokenizer.vocabulary()))
    throw Failure(Code::invalid_argument, concat("logit_bias has ", s.logit_bias.size(),
                                                 " entries, and the vocabulary ", tokenizer.vocabulary()));
  for (auto const& [text, bias] : s.logit_bias) {
    auto const token = model.token(text);
    if (!token)
      throw Failure(Code::invalid_argument, "logit_bias: the vocabulary has no token '" + text.substr(0, 40) + "'");
    s.sampling.logit_bias.emplace_back(*token, static_cast<float>(bias));
  }
  for (std::string const& text : s.forbidden_tokens)
    if (auto const token = model.token(text)) s.sampling.logit_bias.emplace_back(*token, -INFINITY);
    else note("forbidden_tokens: the vocabulary has no '" + text.substr(0, 40) + "' to forbid");
  r.stop.ends = infer::end_tokens(tokenizer);
  if (s.ignore_eos) {
    for (std::int32_t const end : r.stop.ends) s.sampling.logit_bias.emplace_back(end, -INFINITY);
    r.stop.ends.clear();
  }
  if (s.sampling.dry_multiplier > 0)
    r.breakers = {s.dry_sequence_breakers, model.pieces(),
                  [&](std::string_view text) { return tokenizer.encode(text); }};
  infer::validate(s.sampling);
  r.sampling = s.sampling;

  r.grammar = s.json_schema.empty() ? s.grammar : infer::grammar_of_schema(s.json_schema);
  if (s.grammar_lazy && !r.grammar.empty())
    for (Trigger const& trigger : s.grammar_triggers) {
      if (trigger.type == "word") r.triggers.texts.push_back(trigger.value);
      else if (trigger.type == "pattern") r.triggers.patterns.emplace_back(trigger.value);
      else if (auto const token = model.token(trigger.value)) r.triggers.tokens.push_back(*token);
      else
        throw Failure(Code::invalid_argument,
                      "grammar_triggers: the vocabulary has no token '" + trigger.value.substr(0, 40) + "'");
    }

  r.stop.max_tokens = s.max_tokens;
  r.stop.texts = s.stop;
  r.stop.required = s.required_tokens;
  r.stop.time = std::chrono::milliseconds(s.max_time_ms);
  if (s.stop_patterns_enabled)
    for (std::string const& pattern : s.stop_patterns) r.stop.patterns.emplace_back(pattern);
  if (s.semantic_stopping) {
    r.stop.confidence = s.completion_confidence_threshold;
    if (s.repetition_detection) r.stop.repetitions = s.max_repetition_count;
  }
  std::int64_t most = s.default_task_timeout_ms;
  if (s.timeout_enabled && s.max_inference_time_ms > 0) {
    std::int64_t bound = s.max_inference_time_ms;
    if (s.adaptive_timeout && pace.answers > 0) {
      double const usual = 1000 * s.timeout_multiplier * pace.seconds / static_cast<double>(pace.answers);
      bound = std::clamp(static_cast<std::int64_t>(std::min(usual, 1e12)), s.min_timeout_ms, bound);
    }
    most = most > 0 ? std::min(most, bound) : bound;
  }
  r.deadline = std::chrono::milliseconds(std::max<std::int64_t>(most, 0));
  std::int64_t const keep = s.n_keep_tokens < 0 ? static_cast<std::int64_t>(r.prompt.size()) : s.n_keep_tokens;
  r.shift = {.on = s.context_shifting, .keep = keep, .discard = s.n_discard_tokens};
  if (r.shift.on && r.shift.keep >= context / 2) {
    r.shift.keep = context / 2;
    note(concat("n_keep_tokens is ", keep, ": half of the context's ", context, " tokens"));
  }
  return r;
}

}  // namespace tutti::wasi_nn

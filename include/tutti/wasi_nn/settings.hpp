// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What hosts and guests may set, in one table: names, other names, where they may stand, ranges. Documents of JSON,
/// checks and docs/configuration.md read the rows.

#include <tutti/core/setting.hpp>
#include <tutti/infer/cache_type.hpp>
#include <tutti/infer/log.hpp>
#include <tutti/infer/sampler_options.hpp>
#include <tutti/infer/slots.hpp>
#include <tutti/infer/stopping.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {
namespace wasi_nn {

using infer::CacheType, infer::Log, infer::LogFormat, infer::LogLevel;
enum class Numa : unsigned char { disabled, distribute, isolate, numactl };
enum class Device : unsigned char { automatic, cpu, gpu };
enum class RopeScaling : unsigned char { unspecified, none, linear, yarn };

}  // namespace wasi_nn

template <>
inline constexpr auto setting::spelling<wasi_nn::Numa> =
    std::array<std::string_view, 4>{"disabled", "distribute", "isolate", "numactl"};
template <>
inline constexpr auto setting::spelling<wasi_nn::Device> = std::array<std::string_view, 3>{"auto", "cpu", "gpu"};
template <>
inline constexpr auto setting::spelling<wasi_nn::RopeScaling> =
    std::array<std::string_view, 4>{"unspecified", "none", "linear", "yarn"};
template <>
inline constexpr auto setting::spelling<infer::Pooling> = std::array<std::string_view, 3>{"mean", "cls", "last"};

namespace wasi_nn {

/// Who says something. Later ones win: a run over a session, a session over a model, a model over the backend.
enum class Level : unsigned char { backend, model, session, run };

/// A phrase or token that wakes a sleeping grammar.
struct Trigger {
  std::string type, value;
  bool operator==(Trigger const&) const = default;
};

/// The defaults are those of `./tutti generate`.
struct Settings {
  // backend
  std::int64_t max_sessions = 100, idle_timeout_ms = 300'000, max_concurrent = 4, max_models = 64;
  bool auto_cleanup = true, share_prefix = false;
  std::int64_t queue_size = 50, default_task_timeout_ms = 0, queue_warning_threshold = 0, queue_reject_threshold = 0;
  bool priority_scheduling_enabled = true, fair_scheduling_enabled = true, auto_queue_cleanup = true;
  // model
  std::string name, description;
  std::int64_t n_ctx = 0, n_batch = 0, n_gpu_layers = -1, threads = 0;
  setting::Choice<Device> device = Device::automatic;
  bool use_mmap = true, use_mlock = false, embedding = false;
  setting::Choice<Numa> numa = Numa::disabled;
  setting::Choice<CacheType> cache_type_k = CacheType::f32, cache_type_v = CacheType::f32;
  setting::Choice<infer::Pooling> pooling_type = infer::Pooling::mean;
  std::int64_t embd_normalize = 2;
  double rope_freq_base = 0, rope_freq_scale = 0, yarn_ext_factor = -1, yarn_attn_factor = 1, yarn_beta_fast = 32,
         yarn_beta_slow = 1;
  setting::Choice<RopeScaling> rope_scaling_type = RopeScaling::unspecified;
  std::int64_t yarn_orig_ctx = 0;
  // performance
  bool batch_processing = true;
  std::int64_t batch_tokens = 512;
  // memory
  bool context_shifting = false, cache_prompt = true, enable_partial_cache_deletion = true;
  setting::Choice<infer::CacheOrder> cache_strategy = infer::CacheOrder::lru,
                                     cache_deletion_strategy = infer::CacheOrder::lru;
  std::int64_t max_cache_tokens = 0, retention_ms = 0, cache_reuse = 0, n_keep_tokens = 0, n_discard_tokens = 0,
               max_memory_mb = 0;
  double memory_pressure_threshold = 0.85, cache_similarity = 0.9;
  // logging
  setting::Choice<LogLevel> log_level = LogLevel::warn;
  setting::Choice<LogFormat> log_format = LogFormat::text;
  bool log_debug = false, log_timestamps = true, log_colors = false;
  std::string log_file;
  // sampling
  infer::SamplerOptions sampling = infer::usual_sampling();
  std::int64_t seed = 1337, n_probs = 0;
  std::vector<std::string> samplers;
  std::vector<std::string> dry_sequence_breakers = infer::usual_breakers();
  std::vector<std::pair<std::string, double>> logit_bias;  ///< a token's number or its text
  bool ignore_eos = false, grammar_lazy = false;
  std::string grammar, json_schema;
  std::vector<Trigger> grammar_triggers;
  // stopping
  std::int64_t max_tokens = 512, max_time_ms = 0;
  std::vector<std::string> stop, stop_patterns, forbidden_tokens, required_tokens;
  bool stop_patterns_enabled = true;
  bool timeout_enabled = true, adaptive_timeout = false;
  std::int64_t max_inference_time_ms = 0, min_timeout_ms = 0;
  double timeout_multiplier = 1.5;
  bool semantic_stopping = false, repetition_detection = false;
  double completion_confidence_threshold = 0.85;
  std::int64_t max_repetition_count = 3;
  // conversation
  std::string session, chat_template = "none", system_prompt;
  std::int64_t priority = 0;
  std::map<std::string, std::string> fitted;  ///< by setting: what was said and what holds in its place
};

/// `path`: where the host allows the file to be; empty: standard error.
inline infer::LogOptions log_options(Settings const& s, std::string path) {
  return {s.log_debug ? LogLevel::debug : static_cast<LogLevel>(s.log_level), s.log_format, s.log_timestamps,
          s.log_colors, std::move(path)};
}

/// Objects in which a setting may stand, beside the top of a document. Bits of Row::groups.
namespace group {
inline constexpr unsigned backend = 1, model = 2, memory = 4, logging = 8, performance = 16, sampling = 32,
                          stopping = 64;
}  // namespace group

struct Row {
  char const* name;
  unsigned groups;
  Level last;               ///< the latest level that may say it
  char const* other_names;  ///< separated by spaces; a dot: only inside of an object of that name
};

/// Calls f(row, value, what it may be, help) for every setting but those of the sampler, then for those.
/// Values are bool, std::int64_t, double, std::string, a Choice, lists of strings, biases and triggers.
template <class AnySettings, class F>
void for_each_setting(AnySettings& s, F&& f) {
  using Whole = setting::Range<std::int64_t>;
  using Real = setting::Range<double>;
  using setting::Any, setting::Text;
  constexpr Level model = Level::model, run = Level::run;
  constexpr std::int64_t day = 86'400'000;
  namespace g = group;
  f(Row{"max_sessions", g::backend, model, ""}, s.max_sessions, Whole{1, 10'000}, "sessions that are kept");
  f(Row{"idle_timeout_ms", g::backend, model, ""}, s.idle_timeout_ms, Whole{1, day},
    "a session unused for so long may be given up");
  f(Row{"auto_cleanup", g::backend, model, "auto_cleanup_enabled auto_cleanup_sessions"}, s.auto_cleanup, Any{},
    "idle sessions, and the one unused longest where there are too many, are given up; false: a new session is refused "
    "then, and one whose last context is closed is forgotten");
  f(Row{"max_concurrent", g::backend, model, "n_parallel"}, s.max_concurrent, Whole{1, 256},
    "answers that run at once, each with a cache of n_ctx tokens");
  f(Row{"max_models", g::backend, Level::backend, ""}, s.max_models, Whole{1, 1024},
    "models that a guest has loaded at once; those of equal `threads` share them");
  f(Row{"share_prefix", g::backend, model, ""}, s.share_prefix, Any{},
    "prompts of all sessions and instances may use one another's cache; time then tells what others asked");
  f(Row{"queue_size", g::backend, model, ""}, s.queue_size, Whole{1, 10'000}, "requests that wait at most");
  f(Row{"default_task_timeout_ms", g::backend, model, ""}, s.default_task_timeout_ms, Whole{0, 600'000},
    "from the call to the end of the answer, waiting included; 0: no bound");
  f(Row{"priority_scheduling_enabled", g::backend, model, ""}, s.priority_scheduling_enabled, Any{},
    "larger priorities first");
  f(Row{"fair_scheduling_enabled", g::backend, model, ""}, s.fair_scheduling_enabled, Any{},
    "sessions of one priority take turns");
  f(Row{"auto_queue_cleanup", g::backend, model, ""}, s.auto_queue_cleanup, Any{},
    "requests whose time is up leave the queue at once; false: when their turn comes");
  f(Row{"queue_warning_threshold", g::backend, model, ""}, s.queue_warning_threshold, Whole{0, 10'000},
    "a queue of so many is logged; 0: four fifths of queue_size");
  f(Row{"queue_reject_threshold", g::backend, model, ""}, s.queue_reject_threshold, Whole{0, 10'000},
    "a queue of so many refuses; 0: queue_size");
  f(Row{"name", g::model, model, ""}, s.name, Text{}, "of the model, in the log");
  f(Row{"description", g::model, model, ""}, s.description, Text{}, "of the model, in the log");
  f(Row{"n_ctx", g::model, model, "ctx_size"}, s.n_ctx, Whole{0, 1 << 24},
    "tokens of a cache; 0 or \"auto\": the model's, at most 4096");
  f(Row{"n_batch", g::model, model, "batch_size ubatch_size n_ubatch"}, s.n_batch, Whole{0, 1 << 16},
    "tokens of prompts that go through the model between two tokens of running answers; 0 or \"auto\": 128");
  f(Row{"n_gpu_layers", g::model, model, ""}, s.n_gpu_layers, Whole{-1, 1 << 16},
    "the model's last layers that run on a GPU, where device is gpu, or auto finds one, and with more than it has its "
    "head too; -1 or \"auto\": as many as the GPU's free memory holds. Without a GPU a note says so");
  f(Row{"device", g::model, model, ""}, s.device, Any{},
    "where the model runs; auto: status and log say what was found and chosen. The target of load goes before it");
  f(Row{"threads", g::model, model, "n_threads"}, s.threads, Whole{0, 1024}, "0: all processors of the process");
  f(Row{"use_mmap", g::model, model, ""}, s.use_mmap, Any{}, "map the file; false: read it into memory");
  f(Row{"use_mlock", g::model, model, ""}, s.use_mlock, Any{}, "keep the weights in memory");
  f(Row{"numa", g::model, model, ""}, s.numa, Any{},
    "the system's own placement of memory is kept, and a note says so");
  f(Row{"cache_type_k", g::model, model, ""}, s.cache_type_k, Any{}, "numbers of the cache");
  f(Row{"cache_type_v", g::model, model, ""}, s.cache_type_v, Any{}, "the same as cache_type_k");
  f(Row{"embedding", g::model, run, "embeddings"}, s.embedding, Any{},
    "compute gives the prompt's embedding instead of text");
  f(Row{"pooling_type", g::model, run, ""}, s.pooling_type, Any{}, "hidden states that an embedding is the mean of");
  f(Row{"embd_normalize", g::model, run, ""}, s.embd_normalize, Whole{-1, 1000},
    "norm by which an embedding is divided: its power; 0: the largest element becomes 32760; -1: none");
  f(Row{"rope_freq_base", g::model, model, ""}, s.rope_freq_base, Real{0, 1e12},
    "base of the positions' rotations; 0: the model's own");
  f(Row{"rope_freq_scale", g::model, model, ""}, s.rope_freq_scale, Real{0, 1000},
    "of their frequencies: 0.25 makes a text four times as long fit; 0: the model's own");
  f(Row{"rope_scaling_type", g::model, model, ""}, s.rope_scaling_type, Any{},
    "how frequencies are scaled; unspecified: as the model says");
  f(Row{"yarn_ext_factor", g::model, model, ""}, s.yarn_ext_factor, Real{-1, 1},
    "share of high frequencies that yarn leaves as they are; -1: as the type says");
  f(Row{"yarn_attn_factor", g::model, model, ""}, s.yarn_attn_factor, Real{0.001, 1000},
    "cosine and sine are multiplied by it");
  f(Row{"yarn_beta_fast", g::model, model, ""}, s.yarn_beta_fast, Real{0.001, 1e6},
    "pairs that turn more often within yarn_orig_ctx stay");
  f(Row{"yarn_beta_slow", g::model, model, ""}, s.yarn_beta_slow, Real{0.001, 1e6},
    "pairs that turn less often are scaled whole");
  f(Row{"yarn_orig_ctx", g::model, model, ""}, s.yarn_orig_ctx, Whole{0, 1 << 24},
    "tokens that the model was trained with; 0: as the model says");
  f(Row{"batch_processing", g::performance, model, ""}, s.batch_processing, Any{},
    "answers run in one batch; false: one after another");
  f(Row{"batch_tokens", g::performance, model, "performance.batch_size"}, s.batch_tokens, Whole{1, 1 << 16},
    "tokens of prompts in one batch, at most");
  f(Row{"context_shifting", g::memory, run, "context_shift ctx_shift"}, s.context_shifting, Any{},
    "a full context drops old tokens and goes on; false: code 101");
  f(Row{"n_keep_tokens", g::memory, run, "n_keep keep"}, s.n_keep_tokens, Whole{-1, 1 << 24},
    "tokens at the beginning that a shift keeps; -1: the prompt's");
  f(Row{"n_discard_tokens", g::memory, run, "n_discard"}, s.n_discard_tokens, Whole{0, 1 << 24},
    "tokens that a shift drops; 0: half");
  f(Row{"cache_prompt", g::memory, run, "enable_token_cache_reuse cache_policy.enable_prompt_cache"}, s.cache_prompt,
    Any{}, "a prompt that begins as the session's last one goes on from its cache");
  f(Row{"cache_strategy", g::memory, model, ""}, s.cache_strategy, Any{}, "whose cache a new session takes");
  f(Row{"cache_deletion_strategy", g::memory, model, ""}, s.cache_deletion_strategy, Any{},
    "which cache is cut when max_cache_tokens is exceeded");
  f(Row{"enable_partial_cache_deletion", g::memory, model, ""}, s.enable_partial_cache_deletion, Any{},
    "it loses only as many tokens as must go; false: all");
  f(Row{"max_cache_tokens", g::memory, model, ""}, s.max_cache_tokens, Whole{0, 1 << 30},
    "tokens in idle caches; 0: as many as there is room for");
  f(Row{"cache_reuse", g::memory, model, "n_cache_reuse"}, s.cache_reuse, Whole{0, 1 << 24},
    "runs of at least so many tokens that stand later in a cache than in the prompt are moved, as when old messages "
    "are dropped, if both have their first token in common; answers then differ a little; 0: they are read again");
  f(Row{"cache_similarity", g::memory, model, "slot_prompt_similarity"}, s.cache_similarity, Real{0, 1},
    "share of what a cache holds that a prompt must have to take its place; of others the beginning is copied");
  f(Row{"retention_ms", g::memory, model, "cache_policy.retention_ms"}, s.retention_ms, Whole{0, day},
    "idle caches are forgotten after this time; 0: never");
  f(Row{"max_memory_mb", g::memory, model, ""}, s.max_memory_mb, Whole{0, 1 << 24},
    "of all models and caches of the process; 0: what the machine has free");
  f(Row{"memory_pressure_threshold", g::memory, model, ""}, s.memory_pressure_threshold, Real{0.1, 1},
    "a use of this share of max_memory_mb is logged as a warning");
  f(Row{"log_level", 0, model, "logging.level level"}, s.log_level, Any{}, "the least that is logged");
  f(Row{"log_format", 0, model, "logging.format"}, s.log_format, Any{}, "of a line");
  f(Row{"log_debug", 0, model, "logging.enable_debug enable_debug enable_debug_log"}, s.log_debug, Any{},
    "the same as level debug");
  f(Row{"log_timestamps", 0, model, "logging.timestamps timestamps"}, s.log_timestamps, Any{},
    "lines begin with the time, in UTC");
  f(Row{"log_colors", 0, model, "logging.colors colors"}, s.log_colors, Any{}, "on a terminal");
  f(Row{"log_file", 0, model, "logging.file file"}, s.log_file, Text{},
    "instead of standard error, in a folder that the host allows");
  f(Row{"seed", g::sampling, run, ""}, s.seed, Whole{-1},
    "the same seed gives the same text, where logits are the same; -1: another one for each answer");
  f(Row{"samplers", g::sampling, run, ""}, s.samplers, Whole{0, 64},
    "stages of the sampler in their order; none: the usual ones");
  f(Row{"n_probs", g::sampling, run, "logprobs"}, s.n_probs, Whole{0, 100},
    "likeliest tokens that output 2 has beside each token");
  f(Row{"dry_sequence_breakers", g::sampling, run, ""}, s.dry_sequence_breakers, Whole{1, 64},
    "texts that end a repeated run");
  f(Row{"logit_bias", g::sampling, run, ""}, s.logit_bias, Any{},
    "pairs of token and number (or false), or an object; a token is its number or its text");
  f(Row{"ignore_eos", g::sampling | g::stopping, run, ""}, s.ignore_eos, Any{}, "the model cannot end its answer");
  f(Row{"grammar", g::sampling, run, ""}, s.grammar, Text{}, "GBNF that answers follow");
  f(Row{"json_schema", g::sampling, run, ""}, s.json_schema, Text{},
    "a JSON schema that answers follow, as an object or as text");
  f(Row{"grammar_lazy", g::sampling, run, ""}, s.grammar_lazy, Any{},
    "the grammar sleeps until one of grammar_triggers");
  f(Row{"grammar_triggers", g::sampling, run, ""}, s.grammar_triggers, Any{},
    "texts, or objects with type (word, token, pattern) and value");
  f(Row{"max_tokens", g::model | g::stopping, run, "n_predict max_completion_tokens"}, s.max_tokens, Whole{-1, 1 << 24},
    "of an answer; -1: until it ends");
  f(Row{"max_time_ms", g::stopping, run, "t_max_predict_ms"}, s.max_time_ms, Whole{0, day},
    "from the first token on; 0: no bound");
  f(Row{"stop", g::stopping, run, "stop_sequences reverse_prompt"}, s.stop, Whole{0, 64},
    "texts that end an answer and are not part of it");
  f(Row{"stop_patterns", g::stopping, run, "grammar_triggers.patterns token_filters.pattern_based_triggers"},
    s.stop_patterns, Whole{0, 64}, "regular expressions (PCRE2) on the whole answer that end it");
  f(Row{"stop_patterns_enabled", g::stopping, run, "grammar_triggers.enabled"}, s.stop_patterns_enabled, Any{},
    "whether they do");
  f(Row{"forbidden_tokens", g::stopping, run, "token_filters.forbidden_tokens"}, s.forbidden_tokens, Whole{0, 1024},
    "texts of tokens that are never drawn");
  f(Row{"required_tokens", g::stopping, run, "token_filters.required_tokens"}, s.required_tokens, Whole{0, 64},
    "the model cannot end its answer before one of these texts");
  f(Row{"timeout_enabled", g::stopping, run, "timeout_config.enabled"}, s.timeout_enabled, Any{},
    "whether max_inference_time_ms holds");
  f(Row{"max_inference_time_ms", g::stopping, run, "timeout_config.max_inference_time_ms"}, s.max_inference_time_ms,
    Whole{0, day}, "from the call to the end of the answer; 0: no bound");
  f(Row{"adaptive_timeout", g::stopping, run, "timeout_config.adaptive_timeout"}, s.adaptive_timeout, Any{},
    "the bound follows the mean time of the session's answers");
  f(Row{"min_timeout_ms", g::stopping, run, "timeout_config.min_timeout_ms"}, s.min_timeout_ms, Whole{0, day},
    "the least that it becomes");
  f(Row{"timeout_multiplier", g::stopping, run, "timeout_config.timeout_multiplier"}, s.timeout_multiplier,
    Real{1, 1000}, "how many times the mean time it becomes");
  f(Row{"semantic_stopping", g::stopping, run, "semantic_stopping.enabled"}, s.semantic_stopping, Any{},
    "answers end where the model is sure to be done, or repeats itself");
  f(Row{"completion_confidence_threshold", g::stopping, run, "semantic_stopping.completion_confidence_threshold"},
    s.completion_confidence_threshold, Real{0, 1},
    "behind a sentence, the probability of the end that suffices; 0: never");
  f(Row{"repetition_detection", g::stopping, run, "semantic_stopping.repetition_detection"}, s.repetition_detection,
    Any{}, "an answer that repeats a sentence ends");
  f(Row{"max_repetition_count", g::stopping, run, "semantic_stopping.max_repetition_count"}, s.max_repetition_count,
    Whole{2, 1000}, "so many times in a row");
  f(Row{"session", 0, Level::session, "session_id"}, s.session, Text{},
    "conversation and cache that this context goes on with");
  f(Row{"chat_template", g::model, run, ""}, s.chat_template, Text{false},
    "none: prompts go in as they are; auto, or a template's name: they are a user's messages, and the session "
    "remembers");
  f(Row{"system_prompt", g::model, run, ""}, s.system_prompt, Text{}, "the first message of a conversation");
  f(Row{"priority", g::backend, run, ""}, s.priority, Whole{-1000, 1000}, "of this request");
  infer::for_each_sampler_setting(s.sampling, [&](char const* name, auto& value, auto const& may, char const* help) {
    std::string_view const n = name;
    char const* const others = n == "temperature"          ? "temp"
                               : n == "typical_p"          ? "typ_p"
                               : n == "repeat_last_n"      ? "penalty_last_n last_n_penalty"
                               : n == "dynatemp_range"     ? "dynatemp.range"
                               : n == "dynatemp_exponent"  ? "dynatemp.exponent"
                               : n == "dry_multiplier"     ? "dry_multipier"  // as WasmEdge spells it
                               : n == "dry_penalty_last_n" ? "dry_last_n_penalty"
                                                           : "";
    f(Row{name, g::sampling, run, others}, value, may, help);
  });
}

}  // namespace wasi_nn
}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a service has done: counts for people and for what watches it, and a line of a log for each answer.

#include <tutti/core/concat.hpp>
#include <tutti/infer/generation.hpp>
#include <tutti/infer/service_options.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace tutti::infer {

struct ServiceStatus {
  std::size_t waiting = 0, running = 0;
  std::int64_t finished = 0, refused = 0, prompt_tokens = 0, reused_tokens = 0;
  std::int64_t tokens = 0;                           ///< drawn, those of answers on their way too
  std::int64_t cached_tokens = 0, cache_tokens = 0;  ///< in all caches, and as many as they can hold
  SpeculationCounts speculation{};
  std::int64_t begun = 0;          ///< answers whose first token was drawn
  double first_token_seconds = 0;  ///< of those, from `submit` to the first token, together
  double queue_seconds = 0;        ///< of all that left the queue, the time in it
  double busy_seconds = 0;         ///< in which tokens went through the model

  /// An answer has ended.
  void count(Completion const& answer) noexcept {
    ++finished;
    tokens += static_cast<std::int64_t>(answer.tokens.size());
    speculation.drafted += answer.speculation.drafted;
    speculation.accepted += answer.speculation.accepted;
    queue_seconds += answer.queue_seconds;
    if (answer.prompt_seconds <= 0) return;
    ++begun;
    first_token_seconds += answer.queue_seconds + answer.prompt_seconds;
  }
  /// Counts of a service that is no more: what it had waiting and cached went with it.
  void add_ended(ServiceStatus const& other) noexcept {
    finished += other.finished;
    refused += other.refused;
    prompt_tokens += other.prompt_tokens;
    reused_tokens += other.reused_tokens;
    tokens += other.tokens;
    speculation.drafted += other.speculation.drafted;
    speculation.accepted += other.speculation.accepted;
    begun += other.begun;
    first_token_seconds += other.first_token_seconds;
    queue_seconds += other.queue_seconds;
    busy_seconds += other.busy_seconds;
  }
  /// Counts of two services together.
  ServiceStatus& operator+=(ServiceStatus const& other) noexcept {
    add_ended(other);
    waiting += other.waiting;
    running += other.running;
    cached_tokens += other.cached_tokens;
    cache_tokens += other.cache_tokens;
    return *this;
  }
  /// Of all answers together, while the model was at work.
  double tokens_per_second() const noexcept {
    return busy_seconds > 0 ? static_cast<double>(tokens) / busy_seconds : 0;
  }
  double mean_first_token_seconds() const noexcept {
    return begun > 0 ? first_token_seconds / static_cast<double>(begun) : 0;
  }
};

/// "end of generation: prompt 12 tokens (8 of a cache), 40 tokens, 95.1 a second; first after 0.031 s, 0.002 s of them
/// in the queue".
inline std::string text_of(Completion const& answer) {
  auto const number = [](char const* format, double value) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  std::string text = concat(name(answer.reason), ": prompt ", answer.prompt_tokens, " tokens");
  if (answer.reused_tokens > 0) text += concat(" (", answer.reused_tokens, " of a cache)");
  if (answer.prompt_seconds <= 0) return text + concat("; ", number("%.3f", answer.queue_seconds), " s in the queue");
  text += concat(", ", answer.tokens.size(), " tokens");
  if (answer.seconds > 0)
    text += ", " + number("%.1f", static_cast<double>(answer.tokens.size()) / answer.seconds) + " a second";
  return text + "; first after " + number("%.3f", answer.queue_seconds + answer.prompt_seconds) + " s, " +
         number("%.3f", answer.queue_seconds) + " s of them in the queue";
}

/// For those who wait when their service ends; or that there was no memory to say so.
inline std::exception_ptr service_ended() noexcept {
  try {
    throw Error(ErrorKind::unavailable, "Service", "the service ended before the answer did");
  } catch (...) {
    return std::current_exception();
  }
}

/// Tells a service's log, with what became of an answer, where there is one.
inline void log_answer(ServiceOptions const& options, LogLevel level, std::string_view text,
                       Completion const* answer = nullptr) noexcept try {
  if (!options.log || !options.log->writes(level)) return;
  (*options.log)(level, concat(options.name.empty() ? "" : concat("model '", options.name, "': "), text,
                               text.empty() || answer == nullptr ? "" : ": ",
                               answer == nullptr ? std::string() : text_of(*answer)));
} catch (...) {  // no memory for a line
}

}  // namespace tutti::infer

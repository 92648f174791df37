// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A service's counts as documents: JSON for people, and the text format that Prometheus reads
/// (prometheus.io/docs/instrumenting/exposition_formats).

#include <tutti/infer/service_status.hpp>

#include <cstdio>
#include <string>

namespace tutti::infer {

/// Calls f(name, unit, value, what it is) for every count: unit "total" of those that only grow, else "".
template <class F>
void for_each_metric(ServiceStatus const& s, F&& f) {
  f("waiting", "", double(s.waiting), "requests in the queue");
  f("running", "", double(s.running), "answers on their way");
  f("finished", "total", double(s.finished), "requests that ended, whatever the reason");
  f("refused", "total", double(s.refused), "requests that the queue had no place for");
  f("prompt_tokens", "total", double(s.prompt_tokens), "tokens of prompts");
  f("reused_tokens", "total", double(s.reused_tokens), "of these, tokens that a cache had");
  f("completion_tokens", "total", double(s.tokens), "tokens of answers");
  f("drafted_tokens", "total", double(s.speculation.drafted), "tokens that were foretold");
  f("accepted_tokens", "total", double(s.speculation.accepted), "of these, tokens that were drawn");
  f("cached_tokens", "", double(s.cached_tokens), "tokens in all caches");
  f("cache_capacity_tokens", "", double(s.cache_tokens), "tokens that all caches can hold");
  f("first_tokens", "total", double(s.begun), "answers whose first token was drawn");
  f("first_token_seconds", "total", s.first_token_seconds, "of these, from the request to the first token, together");
  f("queue_seconds", "total", s.queue_seconds, "time of all requests in the queue, together");
  f("busy_seconds", "total", s.busy_seconds, "time in which tokens went through the model");
}

/// In the text format.
inline std::string prometheus_text(ServiceStatus const& status) {
  std::string text;
  for_each_metric(status, [&](char const* name, std::string const& unit, double value, char const* help) {
    std::string const full = std::string("tutti_") + name + (unit.empty() ? "" : "_" + unit);
    char number[32];
    std::snprintf(number, sizeof number, "%.17g", value);
    text += "# HELP " + full + " " + help + "\n# TYPE " + full + (unit.empty() ? " gauge\n" : " counter\n") + full +
            " " + number + "\n";
  });
  return text;
}

}  // namespace tutti::infer

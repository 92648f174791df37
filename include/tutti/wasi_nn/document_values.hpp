// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Values of settings read from JSON.

#include <tutti/core/setting.hpp>
#include <tutti/infer/sampler_options.hpp>
#include <tutti/io/json.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn::detail {

using Json = nlohmann::json;

[[noreturn]] inline void refuse(std::string const& why) { throw Failure(Code::invalid_argument, why); }
inline std::string shown(Json const& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}
[[noreturn]] inline void refuse(std::string const& path, Json const& value, std::string const& may) {
  refuse("'" + path + "' is " + shown(value) + " and must be " + may);
}

/// The value that other libraries mean by what this one spells otherwise.
inline Json translated(std::string_view name, Json const& value) {
  if (io::is_text(value, "auto")) {
    if (name == "n_gpu_layers") return -1;
    if (name == "n_ctx" || name == "n_batch" || name == "threads") return 0;
  }
  if (name == "numa" && value == false) return "disabled";
  if (name == "log_level" && value.is_string()) {
    std::string level = value.get<std::string>();
    std::transform(level.begin(), level.end(), level.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return level == "trace" ? "debug" : level == "warning" ? "warn" : level;
  }
  // llama.cpp's numbers and names; of those of the rotations, what is nothing for it is the default here.
  if (name == "rope_scaling_type" && value.is_number_integer() && value >= -1 && value <= 2)
    return std::array{"unspecified", "none", "linear", "yarn"}[static_cast<std::size_t>(value.get<int>() + 1)];
  if (name == "pooling_type") {
    if (value == -1 || io::is_text(value, "unspecified")) return "mean";
    if (value == 0 || value == 3 || io::is_text(value, "none")) return "last";
    if (value == 1 || value == 2) return value == 1 ? "mean" : "cls";
  }
  if (value.is_number() && value <= 0) {
    if (name == "rope_freq_base" || name == "rope_freq_scale" || name == "yarn_orig_ctx") return 0;
    if (name == "yarn_attn_factor" || name == "yarn_beta_slow") return 1;
    if (name == "yarn_beta_fast") return 32;
  }
  double const number = value.is_number() ? value.get<double>() : 2;
  if (name == "top_k" && number == -1) return 0;      // off
  if (name == "dry_base" && number < 1) return 1.75;  // off for llama.cpp: its default
  if (name == "dry_allowed_length" && number == 0) return 1;
  return value;
}

template <class May>
void set(bool& to, May const&, Json const& value, std::string const& path, std::string_view) {
  if (!value.is_boolean()) refuse(path, value, "true or false");
  to = value.get<bool>();
}
inline void set(std::int64_t& to, setting::Range<std::int64_t> const& may, Json const& given, std::string const& path,
                std::string_view name) {
  Json const value = translated(name, given);
  bool whole = value.is_number_integer() &&
               !(value.is_number_unsigned() && std::cmp_greater(value.get<std::uint64_t>(), INT64_MAX));
  std::int64_t number = whole ? value.get<std::int64_t>() : 0;
  if (value.is_number_float()) {  // as 1e3, where every whole number has one
    double const real = value.get<double>();
    whole = real == std::floor(real) && std::abs(real) <= 9e15;
    if (whole) number = static_cast<std::int64_t>(real);
  }
  if (!whole || !may.holds(number)) refuse(path, given, "a whole number, " + may.text());
  to = number;
}
inline void set(double& to, setting::Range<double> const& may, Json const& given, std::string const& path,
                std::string_view name) {
  Json const value = translated(name, given);
  if (!value.is_number() || !may.holds(value.get<double>())) refuse(path, given, "a number, " + may.text());
  to = value.get<double>();
}
template <setting::Enumeration E>
void set(setting::Choice<E>& to, setting::Any const&, Json const& value, std::string const& path,
         std::string_view name) {
  Json const meant = translated(name, value);
  setting::Choice<E> const choice(meant.is_string() ? meant.get<std::string>() : meant.dump());
  if (!choice.known()) refuse(path, value, setting::choices<E>());
  to = choice;
}
inline void set(std::string& to, setting::Text const& may, Json const& value, std::string const& path,
                std::string_view name) {
  if (name == "json_schema" && value.is_object()) {
    to = value.dump();
    return;
  }
  if (!value.is_string() || (!may.empty && io::is_text(value, "")))
    refuse(path, value, may.empty ? "a text" : "a text, not empty");
  to = value.get<std::string>();
  if (name == "session" && to.size() > 256) refuse("'" + path + "' has more than 256 bytes");
}
/// One text or a list of them; a further document's list replaces it, further entries of one document add to it.
inline void set(std::vector<std::string>& to, setting::Range<std::int64_t> const& may, Json const& value,
                std::string const& path, std::string_view name) {
  std::vector<std::string> list;
  if (value.is_string()) list.push_back(value.get<std::string>());
  else if (!value.is_array()) refuse(path, value, "a text or a list of texts");
  else
    for (Json const& one : value) {
      if (!one.is_string()) refuse(path, value, "a list of texts");
      list.push_back(one.get<std::string>());
    }
  for (std::string const& one : list) {
    if (one.size() > (name == "stop_patterns" ? 4096u : 256u)) refuse("a text of '" + path + "' is too long");
    if (name == "samplers" && !setting::Choice<infer::SamplerStage>(one).known())
      refuse(path, value, "a list of " + setting::choices<infer::SamplerStage>());
  }
  if (!may.holds(static_cast<std::int64_t>(list.size())))
    refuse("'" + path + "' has " + std::to_string(list.size()) + " texts, and must have " + may.text());
  to = std::move(list);
}
inline double bias_of(Json const& value, std::string const& path) {
  if (value == false) return -std::numeric_limits<double>::infinity();
  if (!value.is_number() || !(std::abs(value.get<double>()) <= 1e6))
    refuse(path, value, "numbers, or false to ban a token");
  double const bias = value.get<double>();
  return bias <= -100 ? -std::numeric_limits<double>::infinity() : bias;
}
inline void set(std::vector<std::pair<std::string, double>>& to, setting::Any const&, Json const& value,
                std::string const& path, std::string_view) {
  to.clear();
  if (value.is_object()) {
    for (auto const& [token, bias] : value.items()) to.emplace_back(token, bias_of(bias, path));
    return;
  }
  if (!value.is_array()) refuse(path, value, "a list of [token, number], or an object");
  for (Json const& one : value) {
    bool const pair = one.is_array() && one.size() == 2;
    if (!pair && !(one.is_object() && one.contains("id") && one.contains("bias")))
      refuse(path, one, "a list of [token, number]");
    Json const& token = pair ? one[0] : one["id"];
    if (!token.is_string() && !token.is_number_integer()) refuse(path, token, "tokens by number or text");
    to.emplace_back(token.is_string() ? token.get<std::string>() : token.dump(),
                    bias_of(pair ? one[1] : one["bias"], path));
  }
}
inline void set(std::vector<Trigger>& to, setting::Any const&, Json const& value, std::string const& path,
                std::string_view) {
  if (!value.is_array() || value.size() > 64) refuse(path, value, "a list of at most 64 triggers");
  to.clear();
  for (Json const& one : value) {
    if (one.is_string()) {
      to.push_back({"word", one.get<std::string>()});
      continue;
    }
    if (!one.is_object() || !one.contains("type") || !one.contains("value") || !one["value"].is_string())
      refuse(path, one, "a list of texts, or of objects with type and value");
    Json const& type = one["type"];
    // llama.cpp's numbers
    std::string const name = type == 0                ? "token"
                             : type == 1              ? "word"
                             : type == 2 || type == 3 ? "pattern"
                             : type.is_string()       ? type.get<std::string>()
                                                      : "";
    if (name != "word" && name != "token" && name != "pattern") refuse(path, type, "of type word, token or pattern");
    to.push_back({name, one["value"].get<std::string>()});
  }
}

}  // namespace tutti::wasi_nn::detail

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A request of the OpenAI interface: its bounds, its document, and keys that are taken by name and type, or refused.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/nearest_name.hpp>
#include <tutti/io/json.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::infer::openai {

/// Bounds of what a request may ask.
struct Limits {
  std::int64_t max_tokens = 4096;  ///< of an answer; also where the request names none
  std::size_t messages = 1024;
  std::size_t inputs = 128;  ///< of an embeddings request
};

}  // namespace tutti::infer::openai

namespace tutti::infer::openai::detail {

using Json = nlohmann::json;

[[noreturn]] inline void refuse(std::string const& why) { throw Error(ErrorKind::invalid_argument, "openai", why); }

/// Keys that change nothing here: who asks, and what is kept of it elsewhere.
inline constexpr std::string_view passed_over[] = {
    "model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"};

/// Takes keys out of an object; what is left at the end is unknown.
class Keys {
 public:
  explicit Keys(Json const& object) : object_(object) {
    if (!object.is_object()) refuse("the body must be a JSON object");
    for (std::string_view const key : passed_over) known_.push_back(std::string(key));
  }
  /// Null where the key is absent or null.
  Json const* find(char const* key) {
    known_.push_back(key);
    auto const found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  Json const& at(char const* key) {
    Json const* const value = find(key);
    if (value == nullptr) refuse("'" + std::string(key) + "' is missing");
    return *value;
  }
  void number(char const* key, double& to, double low, double high) {
    Json const* const value = find(key);
    if (value == nullptr) return;
    if (!value->is_number()) refuse("'" + std::string(key) + "' must be a number");
    double const given = value->get<double>();
    if (!(given >= low && given <= high))
      refuse(concat("'", key, "' is ", value->dump(), " and must be between ", Json(low).dump(), " and ",
                    Json(high).dump()));
    to = given;
  }
  template <std::integral T>
  void number(char const* key, T& to, std::int64_t low, std::int64_t high) {
    Json const* const value = find(key);
    if (value == nullptr) return;
    bool const whole =
        value->is_number_integer() && !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX);
    if (!whole || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high)
      refuse(concat("'", key, "' must be a whole number between ", low, " and ", high));
    to = static_cast<T>(value->get<std::int64_t>());
  }
  bool flag(char const* key) {
    Json const* const value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse("'" + std::string(key) + "' must be true or false");
    return value->get<bool>();
  }
  std::string text(char const* key) {
    Json const* const value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) refuse("'" + std::string(key) + "' must be a string");
    return value->get<std::string>();
  }
  std::vector<std::string> texts(char const* key) {
    std::vector<std::string> texts;
    Json const* const value = find(key);
    if (value == nullptr) return texts;
    if (value->is_string()) return {value->get<std::string>()};
    bool good = value->is_array() && value->size() <= 16;
    for (std::size_t i = 0; good && i < value->size(); ++i) good = (*value)[i].is_string();
    if (!good) refuse("'" + std::string(key) + "' must be a string or a list of at most 16 strings");
    return value->get<std::vector<std::string>>();
  }
  void finish() const {
    for (auto const& [key, value] : object_.items()) {
      if (value.is_null() || std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      NearestName nearest(key);
      for (std::string const& name : known_) nearest.try_name(name);
      std::string const question = nearest.question();
      refuse("'" + key.substr(0, 60) + "' is not supported" + (question.empty() ? ". Leave it out" : question));
    }
  }

 private:
  Json const& object_;
  std::vector<std::string> known_;
};

/// The document of a body. Errors: invalid_argument.
inline Json parse(std::string_view body) {
  try {
    return io::parse_json(body, "body");
  } catch (Error const& error) {
    std::string_view const why = error.message();
    auto const from = why.find("its JSON"), to = why.rfind(". Restore");
    refuse("the body cannot be read: " + std::string(from < to ? why.substr(from, to - from) : "it is no JSON"));
  }
}

}  // namespace tutti::infer::openai::detail

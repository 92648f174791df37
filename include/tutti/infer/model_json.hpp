// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What describes a model in JSON, read by key and type.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer::detail {

/// A JSON object of a model's folder; every refusal names its file.
class ModelJson {
 public:
  using Json = nlohmann::json;
  /// An absent file is an empty object, unless it is `needed`.
  ModelJson(std::string path, bool needed) : path_(std::move(path)), json_(Json::object()) {
    if (needed || io::file_exists(path_)) json_ = io::parse_json(io::read_file(path_), path_, "read_hugging_face");
    if (!json_.is_object()) refuse("it is no JSON object");
  }
  ModelJson(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {}

  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "read_hugging_face", concat("'", path_, "': ", why, ". Fetch the model again"));
  }
  bool has(char const* key) const { return json_.contains(key) && !json_[key].is_null(); }
  Json const& operator[](char const* key) const { return json_[key]; }
  std::int64_t count(char const* key) const {
    if (!has(key) || !json_[key].is_number_unsigned() || json_[key].get<std::uint64_t>() > (std::uint64_t{1} << 40))
      refuse(concat(key, " is missing, or no count"));
    return json_[key].get<std::int64_t>();
  }
  std::int64_t count_or(char const* key, std::int64_t otherwise) const { return has(key) ? count(key) : otherwise; }
  double number_or(char const* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_number()) refuse(concat(key, " is no number"));
    return json_[key].get<double>();
  }
  std::string text_or(char const* key, std::string otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) refuse(concat(key, " is no text"));
    return json_[key].get<std::string>();
  }
  bool flag_or(char const* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean()) refuse(concat(key, " is neither true nor false"));
    return json_[key].get<bool>();
  }
  /// A list of numbers, or one of them.
  std::vector<double> numbers(char const* key) const {
    std::vector<double> values;
    if (!has(key)) return values;
    for (Json const& value : json_[key].is_array() ? json_[key] : Json::array({json_[key]})) {
      if (!value.is_number()) refuse(concat(key, " holds something else than numbers"));
      values.push_back(value.get<double>());
    }
    return values;
  }
  /// An object in it, or an empty one.
  ModelJson object(char const* key) const {
    if (!has(key)) return {path_, Json::object()};
    if (!json_[key].is_object()) refuse(concat(key, " is no object"));
    return {path_, json_[key]};
  }

 private:
  std::string path_;
  Json json_;
};

}  // namespace tutti::infer::detail

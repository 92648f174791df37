// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Several sets of data in one flag: 'FILE:WEIGHT,FILE:WEIGHT' to learn from, 'FILE,FILE' to be judged by.

#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

/// A part of such a flag: a file, a pattern or a folder, and how much of it.
struct DataSet {
  std::string path;
  std::string weight{};  ///< as it was written; empty: the flag names one set

  double number() const noexcept {
    double value = 1;
    if (!weight.empty()) std::from_chars(weight.data(), weight.data() + weight.size(), value);
    return value;
  }
  friend bool operator==(DataSet const&, DataSet const&) = default;
};

namespace detail {
/// Whether all of `text` is a number.
inline bool is_number(std::string_view text) noexcept {
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
}
}  // namespace detail

/// The sets that `text` names, which is the value of `flag`; one where a file or folder has that name, or where it has
/// neither a comma nor a weight behind a colon. `weighted`: several must have weights; else none has.
/// Errors: configuration.
inline std::vector<DataSet> parse_data_sets(std::string const& flag, std::string const& text, bool weighted = true) {
  auto const refuse = [&](std::string const& why) {
    throw Error(ErrorKind::configuration, "train_model",
                flag + " " + text + ": " + why +
                    (weighted ? ". Write 'FILE:WEIGHT,FILE:WEIGHT', as 'a.bin:0.7,b.bin:0.3'" : ". Write 'FILE,FILE'"));
  };
  bool const several = text.find(',') != std::string::npos;
  auto const colon_of = [](std::string const& part) {
    auto const colon = part.rfind(':');
    return colon != std::string::npos && detail::is_number(std::string_view(part).substr(colon + 1))
               ? colon
               : std::string::npos;
  };
  if (io::file_exists(text) || (!several && (!weighted || colon_of(text) == std::string::npos))) return {{text}};
  std::vector<DataSet> sets;
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t const end = std::min(text.find(',', at), text.size());
    std::string const part = text.substr(at, end - at);
    at = end + 1;
    if (part.empty()) refuse("a set between commas is empty");
    if (!weighted) {
      sets.push_back({part});
      continue;
    }
    auto const colon = colon_of(part);
    if (colon == std::string::npos) refuse("'" + part + "' has no weight");
    DataSet const& set = sets.emplace_back(DataSet{part.substr(0, colon), part.substr(colon + 1)});
    if (set.path.empty()) refuse("a weight has no file");
    if (!(set.number() > 0)) refuse("the weight " + set.weight + " is not positive");
  }
  return sets;
}

/// As parse_data_sets reads them.
inline std::string text_of(std::vector<DataSet> const& sets) {
  std::string text;
  for (DataSet const& set : sets)
    text += (text.empty() ? "" : ",") + set.path + (set.weight.empty() ? "" : ":" + set.weight);
  return text;
}

}  // namespace tutti::train

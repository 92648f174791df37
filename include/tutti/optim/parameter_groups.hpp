// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameters that are trained otherwise than the rest, by patterns of their names.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/setting.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::optim {

/// What holds of the parameters that `pattern` names. What is left out is as it would be without the group.
struct ParameterGroup {
  std::string pattern;            ///< a name, with dots ("blocks.qkv.weight"); '*' stands for any text
  std::optional<double> decay{};  ///< weight decay, at least 0
  double rate = 1;                ///< times the learning rate, at least 0
  bool frozen = false;            ///< not trained: no update, no decay, no moments
  bool vector = false;            ///< for optimizers of matrices: not one of these, whatever its shape
};

/// Whether `name` is what `pattern` says, in which '*' stands for any text.
constexpr bool matches(std::string_view pattern, std::string_view name) noexcept {
  std::size_t const star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (std::size_t at = star; at <= name.size(); ++at)
    if (matches(pattern.substr(star + 1), name.substr(at))) return true;
  return false;
}

/// Groups as people write them: "PATTERN:SETTING,SETTING;PATTERN:SETTING", where a setting is decay=NUMBER,
/// rate=NUMBER, frozen or vector. Blanks around groups do not count.
/// Errors: configuration, naming what is none.
inline List<ParameterGroup> parse_groups(std::string_view text) {
  auto const next = [](std::string_view& rest, char end) {
    std::size_t const at = rest.find(end);
    std::string_view const part = rest.substr(0, at);
    rest = at == rest.npos ? std::string_view() : rest.substr(at + 1);
    return part;
  };
  auto const refuse = [](std::string_view group, std::string const& why) {
    throw Error(ErrorKind::configuration, "parse_groups", "'" + std::string(group) + "': " + why);
  };
  List<ParameterGroup> groups;
  while (!text.empty()) {
    std::string_view whole = next(text, ';');
    while (whole.starts_with(' ')) whole.remove_prefix(1);
    while (whole.ends_with(' ')) whole.remove_suffix(1);
    std::string_view settings = whole;
    if (whole.empty()) continue;
    ParameterGroup group;
    group.pattern = next(settings, ':');
    if (group.pattern.empty() || settings.empty())
      refuse(whole, "a group is PATTERN:SETTING[,SETTING], as in blocks.*:decay=0,rate=0.1");
    while (!settings.empty()) {
      std::string_view const one = next(settings, ',');
      std::size_t const equals = one.find('=');
      std::string_view const name = one.substr(0, equals);
      double number = 0;
      if (one == "frozen") group.frozen = true;
      else if (one == "vector") group.vector = true;
      else if (equals != one.npos && (name == "decay" || name == "rate")) {
        std::string_view const value = one.substr(equals + 1);
        if (!setting::parse(value, number) || !(number >= 0 && number <= 1e3))
          refuse(whole, std::string(one) + " must be a number between 0 and 1000");
        if (name == "decay") group.decay = number;
        else group.rate = number;
      } else
        refuse(whole, "'" + std::string(one) + "' is none of decay=NUMBER, rate=NUMBER, frozen and vector");
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace tutti::optim

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Flags as programs read them: refused by name, with the value and what it must be. The parser of flags takes a number
/// that its variable cannot hold for the nearest it can; here that is refused as well.

#include <tutti/core/setting.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tutti::train {

/// Why `text` is no value of this type, or nothing when it is one.
template <class Number>
std::string number_problem(std::string_view text) {
  std::string_view const digits = text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text;
  Number value{};
  auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  bool const whole = end == digits.data() + digits.size();
  std::string const said = "'" + std::string(text) + "' is ";
  std::int64_t negative = 0;
  bool const below = std::unsigned_integral<Number> &&
                     std::from_chars(digits.data(), digits.data() + digits.size(), negative).ptr ==
                         digits.data() + digits.size() && negative < 0;
  if ((code == std::errc::result_out_of_range && whole) || below) {
    if constexpr (std::integral<Number>)
      return said + "not between " + std::to_string(std::numeric_limits<Number>::min()) + " and " +
             std::to_string(std::numeric_limits<Number>::max());
    else return said + "beyond what a double can hold";
  }
  if (code == std::errc{} && whole) return {};
  return said + (std::integral<Number> ? "not a whole number" : "not a number");
}

/// A number as it is, but for zeros in front: the parser takes 010 for an octal 8.
inline std::string without_leading_zeros(std::string const& text) {
  std::size_t const sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  std::size_t first = sign;
  while (first + 1 < text.size() && text[first] == '0' && text[first + 1] >= '0' && text[first + 1] <= '9') ++first;
  return text.substr(0, sign) + text.substr(first);
}

/// An option whose value is a number of the variable's type. Errors: CLI::ValidationError while parsing, with the flag.
template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
CLI::Option* add_number(CLI::App& app, std::string const& names, Number& value, std::string const& help) {
  return app.add_option(names, value, help)
      ->transform([](std::string const& text) { return without_leading_zeros(text); })
      ->check([](std::string const& text) { return number_problem<Number>(text); });
}

/// An option whose value is a number of type Number, or "auto". Errors: as above.
template <std::integral Number>
CLI::Option* add_number_or_auto(CLI::App& app, std::string const& names, std::string& text, std::string const& help) {
  return app.add_option(names, text, help)
      ->capture_default_str()
      ->transform([](std::string const& given) { return without_leading_zeros(given); })
      ->check([](std::string const& given) {
        if (given == "auto") return std::string();
        std::string const problem = number_problem<Number>(given);
        return problem.empty() ? problem : problem + ", nor auto";
      });
}

/// A check for options of add_number: "--top-p: 2 must be above 0 and at most 1", `range` being what stands after
/// "must be". NaN passes no comparison.
template <class Number, class Accepts>
auto must_be(std::string range, Accepts accepts) {
  return [range = std::move(range), accepts](std::string const& text) {
    Number value{};
    std::string_view const digits = text.starts_with('+') ? std::string_view(text).substr(1) : std::string_view(text);
    std::from_chars(digits.data(), digits.data() + digits.size(), value);  // what is no number was refused before
    return accepts(value) ? std::string() : text + " must be " + range;
  };
}

/// A flag for a row of a table of settings (core/setting.hpp): "--top-p: 2 must be between 0 and 1".
template <class T>
CLI::Option* add_setting(CLI::App& app, std::string const& names, T& value, setting::Range<T> const& range,
                         std::string const& help) {
  return add_number(app, names, value, help)->capture_default_str()->check(must_be<T>(range.text(), [range](T number) {
    return range.holds(number);
  }));
}
template <setting::Enumeration E>
CLI::Option* add_setting(CLI::App& app, std::string const& names, setting::Choice<E>& value, setting::Any,
                         std::string const& help) {
  return app
      .add_option_function<std::string>(
          names, [&value](std::string const& text) { value = setting::Choice<E>(text); }, help)
      ->type_name(setting::alternatives(value))
      ->default_str(value.text())
      ->check([](std::string const& text) {
        return setting::Choice<E>(text).known() ? std::string() : text + " must be " + setting::choices<E>();
      });
}

/// Words with "--name=" as a name and an empty value: the parser would take the next word for the value.
inline std::vector<std::string> with_empty_values(std::vector<std::string> const& words) {
  std::vector<std::string> result;
  for (std::string const& word : words) {
    bool const empty = word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1;
    result.push_back(empty ? word.substr(0, word.size() - 1) : word);
    if (empty) result.emplace_back();
  }
  return result;
}

/// Parses a program's words, the last of an option that is repeated. Returns the exit code to leave with, if any: 0
/// after --help, 2 after a sentence on the error stream.
inline std::optional<int> parse_flags(CLI::App& app, int argc, char const* const* argv) {
  app.set_help_flag("--help", "print this and leave");
  app.allow_windows_style_options(false);
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() <= 1) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  try {
    std::vector<std::string> words = with_empty_values({argv + 1, argv + argc});
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
  } catch (CLI::CallForHelp const&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (CLI::ParseError const& error) {
    std::fprintf(stderr, "%s: %s\nSee %s --help for the flags.\n", app.get_name().c_str(), error.what(),
                 app.get_name().c_str());
    return 2;
  }
  return std::nullopt;
}

}  // namespace tutti::train

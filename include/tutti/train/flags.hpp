// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Numbers as flags give them. The parser of flags takes what its variable cannot hold for the nearest it can; here
/// that is refused, by name.

#include <CLI/CLI.hpp>

#include <charconv>
#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

namespace tutti::train {

/// Why `text` is no value of this type, or nothing when it is one.
template <class Number>
std::string number_problem(std::string_view text) {
  std::string_view const digits = text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text;
  Number value{};
  auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  bool const whole = end == digits.data() + digits.size();
  std::string const said = "'" + std::string(text) + "' is ";
  if (code == std::errc::result_out_of_range && whole) {
    if constexpr (std::integral<Number>)
      return said + "not between " + std::to_string(std::numeric_limits<Number>::min()) + " and " +
             std::to_string(std::numeric_limits<Number>::max());
    else return said + "beyond what a double can hold";
  }
  if (code == std::errc{} && whole) return {};
  return said + (std::integral<Number> ? "not a whole number" : "not a number");
}

/// An option whose value is a number of the variable's type. Errors: CLI::ValidationError while parsing, with the flag.
template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
CLI::Option* add_number(CLI::App& app, std::string const& names, Number& value, std::string const& help) {
    return app.add_option(names, value, help)->check([](std::string const& text) {
      return number_problem<Number>(text);
    });
}

}  // namespace tutti::train

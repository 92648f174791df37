// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whether a setting's value can be, told by the name of its flag. The options are those of train/options.hpp.

#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace tutti::train::detail {

template <class AnyOptions>
[[noreturn]] void refuse_value(AnyOptions const& o, std::string const& name, std::string const& text,
                               std::string const& what) {
  std::string const flag = name == "clip" ? o.clip_flag : "--" + name;
  throw Error(ErrorKind::configuration, "train_model",
              flag + (text.empty() ? "" : " ") + text + ": " + what + o.source_of(name));
}

template <class AnyOptions, class AnyFlag, class T>
void check_value(AnyOptions const& o, AnyFlag const& flag, T const& value, setting::Range<T> const& range) {
  if (!range.holds(value)) refuse_value(o, flag.name, setting::text_of(value), "must be " + range.text_for(value));
}
template <class AnyOptions, class AnyFlag, setting::Enumeration E>
void check_value(AnyOptions const& o, AnyFlag const& flag, setting::Choice<E> const& value, setting::Any) {
  if (!value.known()) refuse_value(o, flag.name, value.text(), "use " + setting::choices<E>());
}
/// Of a type that says itself what is wrong with it: TrainingDevice.
template <class AnyOptions, class AnyFlag, class T>
  requires requires(T const& value) { value.problem().empty(); }
void check_value(AnyOptions const& o, AnyFlag const& flag, T const& value, setting::Any) {
  if (std::string const problem = value.problem(); !problem.empty()) refuse_value(o, flag.name, value.text(), problem);
}
template <class AnyOptions, class AnyFlag>
void check_value(AnyOptions const&, AnyFlag const&, bool, setting::Any) {}
template <class AnyOptions, class AnyFlag>
void check_value(AnyOptions const& o, AnyFlag const& flag, std::string const& value, setting::Text const& may) {
  if (!may.empty && value.empty() && o.given.contains(flag.name))
    refuse_value(o, flag.name, "''", "is empty. Say which, or leave it out");
  // The system's names end at a zero byte; a checkpoint keeps settings as JSON, which is UTF-8.
  if (value.find('\0') != value.npos) refuse_value(o, flag.name, value.c_str(), "holds a zero byte. Leave it out");
  if (!may.utf8) return;
  try {
    static_cast<void>(nlohmann::json(value).dump());
  } catch (nlohmann::json::exception const&) {
    refuse_value(o, flag.name, value,
                 "is not UTF-8, as which checkpoints keep it. Rename what it names, or write it in UTF-8");
  }
}

}  // namespace tutti::train::detail

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Settings as JSON documents: flat or in groups, snake_case or kebab-case, under any of their names. What is unknown,
/// out of its range or in the wrong place is refused with a sentence.

#include <tutti/core/concat.hpp>
#include <tutti/core/nearest_name.hpp>
#include <tutti/io/json.hpp>
#include <tutti/wasi_nn/document_keys.hpp>
#include <tutti/wasi_nn/document_values.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

namespace detail {

/// Calls f(name) for each name of a row, its own first, until one returns true.
template <class F>
bool any_name(Row const& row, F&& f) {
  if (f(std::string_view(row.name))) return true;
  std::string_view rest = row.other_names;
  while (!rest.empty()) {
    std::size_t const end = std::min(rest.find(' '), rest.size());
    if (f(rest.substr(0, end))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

}  // namespace detail

/// What one document says.
class Document {
 public:
  static constexpr std::size_t most_bytes = 64 << 10;
  static constexpr int deepest = 32;

  Document() = default;
  /// Empty text says nothing. `minus_one_keeps`: of sampling and stopping numbers of -1 say nothing either, as run-time
  /// documents of the session interface mean it. `in_force`: what a setting that this level may not say has already,
  /// and may be said again. Errors: Failure, invalid_argument (too_large for more than 64 KiB), naming the key, its
  /// value and what it may be.
  static Document parse(std::string_view text, Level level, bool minus_one_keeps = false,
                        std::vector<Settings const*> in_force = {}) {
    using detail::refuse;
    if (text.size() > most_bytes)
      throw Failure(Code::too_large, concat("the document has ", text.size(), " bytes, and may have ", most_bytes));
    Document document;
    document.in_force_ = std::move(in_force);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return document;
    check_depth(text);
    detail::Json json;
    io::JsonEnd const end(json);
    try {
      json = io::parse_json(text, "document");
    } catch (Error const& error) {
      std::string_view const why = error.message();
      auto const from = why.find("its JSON"), to = why.rfind(". Restore");
      refuse("the document cannot be read: " +
             (from < to ? std::string(why.substr(from, to - from)) : "it is no JSON"));
    }
    if (!json.is_object()) refuse("the document must be a JSON object");
    document.read(json, level, minus_one_keeps);
    document.in_force_.clear();
    Settings scratch;
    document.apply(scratch);  // every value is looked at here
    return document;
  }

  bool empty() const noexcept { return entries_.empty(); }
  /// Whether it says a setting whose name begins so.
  bool says(std::string_view beginning) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](Entry const& one) { return one.name.starts_with(beginning); });
  }
  /// Turns what asks for a log in a word (`enable_log`) into notes: the log is the host's.
  Document& leave_log() {
    std::erase_if(entries_, [&](Entry const& one) {
      bool const word = one.path == "enable_log" || one.path == "enable_debug_log";
      if (word) leave_log_to_host(one.path);
      return word;
    });
    return *this;
  }
  /// A setting in it that is no whole number, or nothing.
  std::string_view no_number() const {
    std::string_view name;
    Settings settings;
    for_each_setting(settings, [&]<class T>(Row const& row, T const&, auto const&, char const*) {
      if (!std::is_same_v<T, std::int64_t> && says_exactly(row.name)) name = row.name;
    });
    return name;
  }
  /// Holds settings to the numbers that this document says: zero and less, where they mean no bound or a choice of the
  /// library's, become the limit. Errors: Failure, security, for a number above.
  void limit(Settings& settings) const { hold(settings, false); }
  /// The same before anybody has said a number: those above become the limit.
  void lower(Settings& settings) const { hold(settings, true); }

  /// Sets what the document says. Errors: those of parse.
  void apply(Settings& settings) const {
    for (Entry const& entry : entries_) {
      for_each_setting(settings, [&](Row const& row, auto& value, auto const& may, char const*) {
        if (entry.name == row.name) detail::set(value, may, entry.value, entry.path, entry.name);
      });
      settings.fitted.erase(std::string(entry.name));
      if (detail::Json const used = detail::translated(entry.name, entry.value);
          entry.value.is_number() && used != entry.value)
        settings.fitted[std::string(entry.name)] =
            concat(entry.path, " is ", detail::shown(entry.value), ": ", detail::shown(used));
    }
    for (auto const& [name, text] : notes_) settings.fitted[name] = text;
    // Keys and values are kept alike: one of the two speaks for both.
    if (bool const keys = says_exactly("cache_type_k"); keys != says_exactly("cache_type_v")) {
      (keys ? settings.cache_type_v : settings.cache_type_k) = keys ? settings.cache_type_k : settings.cache_type_v;
      std::string const other = keys ? "cache_type_v" : "cache_type_k";
      settings.fitted[other] = other + " is " + settings.cache_type_k.text() + ", as the other of the two";
    }
  }

 private:
  void hold(Settings& settings, bool lowers) const {
    Settings limits;
    apply(limits);
    if (says_exactly("max_inference_time_ms")) settings.timeout_enabled = true;
    for_each_setting(limits, [&]<class T>(Row const& row, T const& most, auto const&, char const*) {
      if constexpr (std::is_same_v<T, std::int64_t>) {
        if (!says_exactly(row.name)) return;
        for_each_setting(settings, [&]<class U>(Row const& other, U& value, auto const&, char const*) {
          if constexpr (std::is_same_v<U, std::int64_t>) {
            if (other.name != std::string_view(row.name)) return;
            std::string_view const name = row.name;
            bool const open = name == "n_gpu_layers" ? value < 0 : value <= 0 && name != "priority";
            if (open || (lowers && value > most)) value = most;
            else if (value > most)
              throw Failure(Code::security, concat("'", row.name, "' is ", value, ", and the host allows ", most));
          }
        });
      }
    });
  }

  bool says_exactly(std::string_view name) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](Entry const& one) { return one.name == name; });
  }
  struct Entry {
    std::string_view name;  ///< of a row: lives as long as the program
    detail::Json value;
    std::string path;
    bool override = false;
  };
  struct Found {
    Row row{};
    bool keeps = false;  ///< by a number of -1, where that is meant so
    bool told = false;  ///< which is noted, because the number may be -1 too
  };

  static void check_depth(std::string_view text) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      char const c = text[i];
      if (quoted) {
        if (c == '\\') ++i;
        else if (c == '"') quoted = false;
      } else if (c == '"') quoted = true;
      else if (c == '{' || c == '[') ++depth;
      else if (c == '}' || c == ']') --depth;
      if (depth > deepest) detail::refuse(concat("the document is nested more than ", deepest, " levels deep"));
    }
  }
  static std::string normal(std::string const& key) {
    std::string result = key;
    std::replace(result.begin(), result.end(), '-', '_');
    return result;
  }

  /// The setting that is called so; `dotted`: inside of an object.
  static std::optional<Found> find(std::string const& name) {
    std::optional<Found> found;
    Settings settings;
    for_each_setting(settings, [&]<class T>(Row const& row, T&, auto const&, char const*) {
      if (!found && detail::any_name(row, [&](std::string_view one) { return one == name; }))
        found = Found{
            row,
            (row.groups & (group::sampling | group::stopping)) != 0 &&
                (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> || requires(T t) { t.text(); }),
            row.name == std::string_view("frequency_penalty") || row.name == std::string_view("presence_penalty")};
    });
    return found;
  }
  static bool opens(std::string const& name) {
    bool found = false;
    Settings settings;
    for_each_setting(settings, [&](Row const& row, auto&, auto const&, char const*) {
      found = found || detail::any_name(row, [&](std::string_view one) { return one.starts_with(name + "."); });
    });
    return found;
  }

  void read(detail::Json const& object, Level level, bool minus_one_keeps) {
    for (auto const& [key, value] : object.items()) {
      std::string const name = normal(key);
      if (value.is_object()) {
        if (name == "runtime") {
          read_group(value, "runtime", ~0u, level, minus_one_keeps, true);
          continue;
        }
        auto const group = std::find_if(detail::groups.begin(), detail::groups.end(),
                                        [&](detail::Group const& one) { return one.name == name; });
        if (group != detail::groups.end()) {
          read_group(value, name, group->bit, level, minus_one_keeps, false);
          continue;
        }
      }
      read_key("", name, ~0u, value, level, minus_one_keeps, false);
    }
  }
  void read_group(detail::Json const& object, std::string const& name, unsigned bit, Level level, bool minus_one_keeps,
                  bool override) {
    for (auto const& [key, value] : object.items())
      read_key(name, normal(key), bit, value, level, minus_one_keeps, override);
  }

  void read_key(std::string const& in, std::string const& key, unsigned bit, detail::Json const& value, Level level,
                bool minus_one_keeps, bool override) {
    std::string const path = in.empty() ? key : in + "." + key;
    if (value.is_object() && opens(key)) {
      for (auto const& [inner, part] : value.items()) {
        std::string const name = key + "." + normal(inner);
        if (auto const found = find(name))
          add(*found, part, path + "." + normal(inner), level, minus_one_keeps, override);
        else unknown(path + "." + normal(inner), name);
      }
      return;
    }
    if (level > Level::model && (key == "enable_log" || key == "enable_debug_log")) return leave_log_to_host(key);
    if (key == "enable_log" && value.is_boolean()) {
      if (value == true) add(*find("log_level"), "info", path, level, false, override);
      return;
    }
    for (detail::Neutral const& neutral : detail::neutrals)
      if (neutral.name == key) {
        if (neutral.holds(value)) return;
        std::string const said = detail::shown(value);
        if (!neutral.noted) detail::refuse("'" + path + "' cannot be " + said + " here: " + neutral.why);
        notes_.push_back({key, path + " is " + said + ": " + neutral.why});
        return;
      }
    std::optional<Found> found = find(in + "." + key);
    if (!found && (found = find(key)) && bit != ~0u && (found->row.groups & bit) == 0)
      detail::refuse("'" + key + "' does not belong into '" + in + "'. Say it at the top of the document" +
                     groups_of(found->row));
    if (!found) unknown(path, key);
    add(*found, value, path, level, minus_one_keeps, override);
  }
  static std::string groups_of(Row const& row) {
    std::string text;
    for (detail::Group const& one : detail::groups)
      if ((row.groups & one.bit) != 0 && one.name.find('_') == std::string_view::npos)
        text += " or in '" + std::string(one.name) + "'";
    return text;
  }

  void add(Found const& found, detail::Json const& value, std::string const& path, Level level, bool minus_one_keeps,
           bool override) {
    if (level > found.row.last) {
      if (holds_already(found, value, path)) return;
      constexpr std::array<char const*, 4> names = {"backend", "model", "session", "run"};
      detail::refuse("'" + path + "' is a setting of the " + names[static_cast<std::size_t>(found.row.last)] +
                     " and cannot be changed by a " + names[static_cast<std::size_t>(level)]);
    }
    if (minus_one_keeps && found.keeps && value.is_number() && value.get<double>() == -1) {
      if (found.told) notes_.push_back({found.row.name, path + " is -1: as it was"});
      return;
    }
    std::string_view const name = found.row.name;
    for (Entry& other : entries_) {
      if (other.name != name) continue;
      if (other.value == value || other.override) return;
      if (list_of(name) && !override) {
        detail::Json all = other.value.is_array() ? other.value : detail::Json::array({other.value});
        for (detail::Json const& one : value.is_array() ? value : detail::Json::array({value})) all.push_back(one);
        other.value = std::move(all);
        return;
      }
      if (at_most(name) && value.is_number() && other.value.is_number()) {
        if (value > 0 && (other.value <= 0 || value < other.value)) other = {name, value, path, override};
        return;
      }
      if (!override)
        detail::refuse("'" + path + "' is " + detail::shown(value) + ", and '" + other.path + "' says " +
                       detail::shown(other.value) + ". Say it once");
      other = {name, value, path, override};
      return;
    }
    entries_.push_back({name, value, path, override});
  }
  void leave_log_to_host(std::string const& name) {
    notes_.push_back({name, name + ": the log is the host's, and so is its level"});
  }
  /// Whether a value is the one in force.
  bool holds_already(Found const& found, detail::Json const& value, std::string const& path) const {
    Settings said;
    bool same = false;
    for_each_setting(said, [&]<class T>(Row const& row, T& to, auto const& may, char const*) {
      if (std::string_view(row.name) != found.row.name) return;
      detail::set(to, may, value, path, row.name);
      if constexpr (std::equality_comparable<T>)
        for (Settings const* const settings : in_force_)
          for_each_setting(*settings, [&]<class U>(Row const& other, U const& now, auto const&, char const*) {
            if constexpr (std::is_same_v<T, U>) same = same || (std::string_view(other.name) == row.name && now == to);
          });
    });
    return same;
  }
  /// Of these the same document may say two, as hosts that know both a batch and a physical batch do: the smaller
  /// holds.
  static bool at_most(std::string_view name) { return name == "n_batch" || name == "max_tokens"; }
  /// Of these the same document may say several; they add up.
  static bool list_of(std::string_view name) { return name == "stop" || name == "stop_patterns"; }

  [[noreturn]] static void unknown(std::string const& path, std::string const& key) {
    if (key == "runtime" || opens(key) ||
        std::any_of(detail::groups.begin(), detail::groups.end(),
                    [&](detail::Group const& one) { return one.name == key; }))
      detail::refuse("'" + path + "' must be an object");
    NearestName nearest(key);
    Settings settings;
    for_each_setting(settings, [&](Row const& row, auto&, auto const&, char const*) {
      detail::any_name(row, [&](std::string_view one) { return nearest.try_name(one), false; });
    });
    detail::refuse("the key '" + path.substr(0, 120) + "' is unknown" + nearest.question());
  }

  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::string>> notes_;  // setting and sentence
  std::vector<Settings const*> in_force_;                   // while it is read
};

}  // namespace tutti::wasi_nn

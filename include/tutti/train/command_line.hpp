// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The trainer's settings from its command line and from a JSON file of the same names.

#include <tutti/core/concat.hpp>
#include <tutti/comm/launcher.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/options.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

namespace detail {

/// Makes every setting a flag.
inline void declare(CLI::App& app, Options& o) {
  std::map<std::string, CLI::App*> groups;
  for_each_flag(o, [&]<class T>(Flag const& flag, T& value, auto const&) {
    CLI::App*& group = groups[flag.group];
    if (group == nullptr) group = app.add_option_group(flag.group);
    std::string names = "--" + std::string(flag.name);
    if (*flag.alias != 0) names += ",--" + std::string(flag.alias);
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<T, bool>) option = group->add_flag(names, value, flag.help);
    else if constexpr (std::is_arithmetic_v<T>) option = add_number(*group, names, value, flag.help);
    else if constexpr (std::is_same_v<T, std::string>) option = group->add_option(names, value, flag.help);
    else
      option = group
                   ->add_option_function<std::string>(
                       names, [&value](std::string const& text) { value = T(text); }, flag.help)
                   ->type_name(setting::alternatives(value))
                   ->default_str(value.text());
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) option->capture_default_str();
  });
}

/// The kind of JSON value that an option takes.
inline std::string json_kind(CLI::Option const& option) {
  if (option.get_expected_min() == 0) return "true or false";
  std::string const type = option.get_type_name();
  return type.starts_with("INT") ? "a whole number" : type.starts_with("FLOAT") ? "a number" : "a string";
}
inline bool is_of_kind(nlohmann::json const& value, std::string const& kind) {
  return kind == "true or false"    ? value.is_boolean()
         : kind == "a whole number" ? value.is_number_integer()
         : kind == "a number"       ? value.is_number()
                                    : value.is_string();
}
inline std::string describe(nlohmann::json const& value) {
  if (value.is_string()) return "the string " + value.dump();
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return value.dump();
}

/// The file's keys as command-line words, for a trainer called `program`. Errors: configuration, naming file and key.
inline std::vector<std::string> words_from_json(std::string const& path, std::string const& program) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::configuration, "train_model", "--config " + path + ": " + what);
  };
  nlohmann::json json;
  try {
    json = io::parse_json(io::read_file(path), path);
  } catch (Error const& error) {
    refuse(error.message() + (error.native().empty() ? "" : " [" + error.native() + "]"));
  }
  if (!json.is_object()) refuse("the top level must be an object of flag names and values");
  Options scratch;
  CLI::App app;
  declare(app, scratch);
  std::vector<std::string> words;
  for (auto const& [key, value] : json.items()) {
    if (key == "config" || key == "help") refuse("key '" + key + "' is not possible in a file");
    CLI::Option const* const option = app.get_option_no_throw("--" + key);
    if (option == nullptr)
      refuse(concat("key '", key, "' is no flag of ", program, ". See ", program, " --help for the names"));
    if (std::string const kind = json_kind(*option); !is_of_kind(value, kind))
      refuse("key '" + key + "' must be " + kind + ", not " + describe(value));
    words.push_back("--" + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  Options any;
  for_each_flag(any, [&](Flag const& flag, auto const&, auto const&) {
    if (*flag.alias != 0 && json.contains(flag.name) && json.contains(flag.alias))
      refuse(concat("keys '", flag.name, "' and '", flag.alias, "' are one setting. Give one of them"));
  });
  return words;
}

/// Two things are called a schedule: --schedule with the name of a pipeline's is --pipeline-schedule.
inline void name_schedules(std::vector<std::string>& words) {
  constexpr std::string_view flag = "--schedule";
  auto const of_pipeline = [](std::string_view text) {
    parallel::PipelineSchedule any{};
    return setting::parse(text, any);
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    bool const alone = word == flag && i + 1 < words.size() && of_pipeline(words[i + 1]);
    bool const joined = word.starts_with("--schedule=") && of_pipeline(std::string_view(word).substr(flag.size() + 1));
    if (alone || joined) word.replace(0, flag.size(), "--pipeline-schedule");
  }
}

/// How --clip is spelled in `words`. Errors: configuration, when a flag is there by both of its names: which one counts
/// would be a guess.
inline std::string clip_flag(std::vector<std::string> const& words) {
  auto const has = [&](std::string const& flag) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string const& word) { return word == flag || word.starts_with(flag + "="); });
  };
  Options any;
  for_each_flag(any, [&](Flag const& flag, auto const&, auto const&) {
    std::string const name = concat("--", flag.name), alias = concat("--", flag.alias);
    if (*flag.alias != 0 && has(name) && has(alias))
      throw Error(ErrorKind::configuration, "train_model",
                  concat(name, " and ", alias, " are two names of one flag. Give one of them"));
  });
  return has("--gradient-clip") ? "--gradient-clip" : "--clip";
}

}  // namespace detail

/// What parsing came to: options, or text to print and the exit code to leave with.
struct Parsed {
  Options options;
  bool leave = false;
  int code = 0;
  std::string text;
};

/// Sentences and --help call the program what it was started as: the first word, without its folder.
/// Errors: configuration, for values that cannot be. Unknown flags come back as `leave` with code 2 and a sentence.
inline Parsed parse(int argc, char const* const* argv) {
  Parsed parsed;
  std::string const program = std::filesystem::path(argv[0]).filename();
  std::vector<std::string> words(argv + 1, argv + argc);
  auto run = [&](std::vector<std::string> all, std::string const& source, std::string const& clip) {
    parsed.options = {};
    parsed.options.clip_flag = clip;
    CLI::App app{"Trains a model on token shards, on one rank or many.", program};
    app.set_help_flag("--help", "print this and leave");
    app.allow_windows_style_options(false);
    detail::declare(app, parsed.options);
    try {
      all = with_empty_values(all);
      std::reverse(all.begin(), all.end());
      app.parse(all);
    } catch (CLI::CallForHelp const&) {
      parsed.leave = true;
      parsed.text = app.help();
    } catch (CLI::ParseError const& error) {
      parsed.leave = true;
      parsed.code = 2;
      std::string what = error.what();
      if (what.starts_with("--clip:")) what.replace(0, std::strlen("--clip"), parsed.options.clip_flag);
      parsed.text = concat(program, ": ", source, what, "\nSee ", program, " --help for the flags.\n");
    }
    for (auto* group : app.get_subcommands([](CLI::App const*) { return true; }))
      for (CLI::Option const* option : group->get_options())
        if (option->count() > 0) parsed.options.given.insert(option->get_lnames().front());
  };
  detail::name_schedules(words);
  run(words, "", detail::clip_flag(words));
  std::set<std::string> const typed = parsed.options.typed = parsed.options.given;
  bool const module_typed = typed.contains("model") && parsed.options.model.ends_with(".mlir");
  if (parsed.leave || parsed.options.config.empty()) {
    if (!parsed.leave) validate(parsed.options);
    return parsed;
  }
  std::vector<std::string> all = detail::words_from_json(parsed.options.config, program);
  detail::name_schedules(all);
  // What is wrong in the file is said of the file.
  std::string const filed_clip = detail::clip_flag(all);
  run(all, "--config " + parsed.options.config + ": ", filed_clip);
  if (parsed.leave) return parsed;
  // A model is said in one of two ways: the command line's way replaces the file's.
  bool const sizes_typed = typed.contains("layers") || typed.contains("channels") || typed.contains("heads");
  std::erase_if(all, [&](std::string const& word) {
    auto const is = [&](char const* name) { return word.starts_with(std::string("--") + name + "="); };
    // What a module fixes, or cannot do, is said of other models.
    bool const of_others = is("batch") || is("sequence") || is("total-tokens") || is("sample-every");
    return (typed.contains("model") && (is("layers") || is("channels") || is("heads"))) ||
           (sizes_typed && is("model")) || (module_typed && of_others);
  });
  all.insert(all.end(), words.begin(), words.end());
  run(all, "", typed.contains("clip") ? detail::clip_flag(words) : filed_clip);
  parsed.options.typed = typed;
  if (!parsed.leave) validate(parsed.options);
  return parsed;
}

/// For main: the options, or the code with which the program ends because there is nothing to do or a flag cannot be.
/// `speaks`: says why; under a launcher one rank does.
inline std::optional<int> parse_or_leave(int argc, char const* const* argv, Options& options,
                                         bool speaks = comm::announced_rank() <= 0) {
  try {
    Parsed parsed = parse(argc, argv);
    if (!parsed.leave) {
      options = std::move(parsed.options);
      return std::nullopt;
    }
    if (speaks) std::fputs(parsed.text.c_str(), parsed.code == 0 ? stdout : stderr);
    return parsed.code;
  } catch (Error const& error) {
    std::string const program = std::filesystem::path(argv[0]).filename();
    if (speaks) std::fprintf(stderr, "%s: %s\n", program.c_str(), error.message().c_str());
    return 2;
  }
}

}  // namespace tutti::train

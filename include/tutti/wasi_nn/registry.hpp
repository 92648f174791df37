// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What the host lets guests use: models by name, and folders. Guests name no other file.

#include <tutti/io/json.hpp>
#include <tutti/wasi_nn/document.hpp>
#include <tutti/wasi_nn/failure.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

class Registry {
 public:
  struct Model {
    std::string path;
    std::string settings;  ///< a document of JSON, or nothing
    bool by_path = false;  ///< found in a folder, where others may change it
  };

  /// The variable TUTTI_WASI_NN_MODELS: "name=path;name=path", or the path of a file
  ///   {"models": {"name": "path" or {"path": "path", "settings": {...}}},
  ///    "folders": ["..."],      models may also be named by a path inside of these
  ///    "log_folders": ["..."],  log files may stand in these
  ///    "session_folder": "...", guests may save conversations there, and restore those that are there
  ///    "saved_sessions": 100,   as many at most
  ///    "settings": {...},       of every backend, below what it says itself
  ///    "limits": {...},         numbers of settings that nobody exceeds, and that hold where nothing is said
  ///    "bytes": true}           whether guests may bring models of their own
  /// Errors: Failure (invalid_argument), with the variable or file.
  static Registry from_environment() {
    Registry registry;
    char const* const text = std::getenv("TUTTI_WASI_NN_MODELS");
    if (text == nullptr || *text == 0) return registry;
    std::string_view rest = text;
    std::error_code error;
    if (rest.find('=') == std::string_view::npos || std::filesystem::is_regular_file(text, error)) {
      registry.read(std::string(rest));
      return registry;
    }
    while (!rest.empty()) {
      std::string_view const one = rest.substr(0, rest.find(';'));
      rest.remove_prefix(std::min(one.size() + 1, rest.size()));
      auto const equals = one.find('=');
      if (one.empty()) continue;
      if (equals == std::string_view::npos || equals == 0 || equals + 1 == one.size())
        throw Failure(Code::invalid_argument,
                      "TUTTI_WASI_NN_MODELS has '" + std::string(one) + "'. Write name=path, with ; between");
      std::string const name(one.substr(0, equals));
      if (!registry.models_.emplace(name, Model{std::string(one.substr(equals + 1)), ""}).second)
        throw Failure(Code::invalid_argument, "TUTTI_WASI_NN_MODELS names '" + name + "' twice");
    }
    return registry;
  }

  std::string const& settings() const noexcept { return settings_; }
  Document const& limits() const noexcept { return limits_; }
  bool takes_bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return models_.size(); }

  /// A registered name, or a path inside of an allowed folder. Errors: Failure, model_not_found.
  Model find(std::string const& name) const {
    std::error_code error;
    if (auto const found = models_.find(name); found != models_.end()) {
      if (std::filesystem::is_regular_file(found->second.path, error)) return found->second;
      throw Failure(Code::model_not_found, "model '" + name.substr(0, 80) +
                                               "' is registered, and its file is not there. The host mends its path in "
                                               "TUTTI_WASI_NN_MODELS");
    } else if (auto const path = inside(folders_, name)) {
      if (std::filesystem::is_regular_file(*path, error)) return {*path, "", true};
    }
    throw Failure(Code::model_not_found,
                  "there is no model '" + name.substr(0, 80) + "'. The host names models in TUTTI_WASI_NN_MODELS");
  }
  /// Where a log may stand. Errors: Failure, security.
  std::string log_file(std::string const& path) const {
    if (path.empty()) return path;
    if (auto const allowed = inside(log_folders_, path)) return *allowed;
    throw Failure(Code::security, "the log '" + path.substr(0, 80) +
                                      "' is in no folder that the host allows ('log_folders' of its registry)");
  }
  /// Where a saved session stands, without an ending; `anew`: it is to be written.
  /// Errors: Failure, security (the host keeps no sessions), invalid_argument (the name), too_large (there are too
  /// many).
  std::string session_file(std::string const& name, bool anew) const {
    namespace fs = std::filesystem;
    if (session_folder_.empty())
      throw Failure(Code::security, "this host keeps no sessions ('session_folder' of its registry)");
    auto const plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    if (name.empty() || name.size() > 128 || !std::all_of(name.begin(), name.end(), plain))
      throw Failure(Code::invalid_argument, "a saved session's name has 1 to 128 letters, digits, - and _");
    std::string const path = session_folder_ + "/" + name;
    std::error_code error;
    if (!anew || fs::exists(path + ".session", error)) return path;
    std::int64_t there = 0;
    for (fs::directory_iterator at(session_folder_, error), end; !error && at != end; at.increment(error))
      there += at->path().extension() == ".session";
    if (there >= saved_sessions_)
      throw Failure(Code::too_large, concat(there, " sessions are saved, as many as the host keeps"));
    return path;
  }

 private:
  void read(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf()))
      throw Failure(Code::invalid_argument, "TUTTI_WASI_NN_MODELS names the file '" + path + "', which cannot be read");
    auto const refuse = [&](std::string const& why) {
      throw Failure(Code::invalid_argument, "'" + path + "': " + why);
    };
    nlohmann::json json;
    io::JsonEnd const end(json);
    try {
      json = io::parse_json(text.str(), path);
    } catch (Error const& error) {
      throw Failure(Code::invalid_argument, error.message());
    }
    if (!json.is_object()) refuse("it must be a JSON object");
    auto const texts = [&](nlohmann::json const& list, std::vector<std::string>& to) {
      for (nlohmann::json const& one : list) {
        if (!one.is_string()) refuse("folders must be a list of texts");
        to.push_back(one.get<std::string>());
      }
    };
    for (auto const& [key, value] : json.items()) {
      if (key == "models" && value.is_object()) {
        for (auto const& [name, model] : value.items()) {
          bool const object = model.is_object() && model.contains("path") && model["path"].is_string();
          if (!object && !model.is_string()) refuse("the model '" + name + "' must be a path, or an object with one");
          static nlohmann::json const nothing = nlohmann::json::object();
          for (auto const& [inner, part] : (object ? model : nothing).items())
            if (inner != "path" && !(inner == "settings" && part.is_object()))
              refuse("'" + inner + "' of the model '" + name + "' is unknown. Use path and settings");
          if (object && model.contains("settings")) Document::parse(model["settings"].dump(), Level::model);
          models_[name] = {object ? model["path"].get<std::string>() : model.get<std::string>(),
                           object && model.contains("settings") ? model["settings"].dump() : ""};
        }
      } else if (key == "folders" && value.is_array()) {
        texts(value, folders_);
      } else if (key == "log_folders" && value.is_array()) {
        texts(value, log_folders_);
      } else if (key == "session_folder" && value.is_string() && !io::is_text(value, "")) {
        session_folder_ = value.get<std::string>();
      } else if (key == "saved_sessions" && value.is_number_unsigned() && value <= 1'000'000) {
        saved_sessions_ = value.get<std::int64_t>();
      } else if (key == "settings" && value.is_object()) {
        settings_ = value.dump();
        Document::parse(settings_, Level::backend);
      } else if (key == "limits" && value.is_object()) {
        limits_ = Document::parse(value.dump(), Level::backend);
        if (std::string_view const name = limits_.no_number(); !name.empty())
          refuse("limits are whole numbers, and '" + std::string(name) + "' is none");
      } else if (key == "bytes" && value.is_boolean()) {
        bytes_ = value.get<bool>();
      } else {
        refuse("'" + key +
               "' is unknown or of the wrong kind. Use models, folders, log_folders, session_folder, saved_sessions, "
               "settings, limits and bytes");
      }
    }
  }

  /// The real path of `name` where one of the folders holds it; links that lead out of it do not count.
  static std::optional<std::string> inside(std::vector<std::string> const& folders, std::string const& name) {
    namespace fs = std::filesystem;
    if (name.empty() || name.find('\0') != std::string::npos) return std::nullopt;
    std::error_code error;
    for (std::string const& folder : folders) {
      fs::path const base = fs::canonical(folder, error);
      if (error) continue;
      fs::path const real = fs::weakly_canonical(base / name, error);  // an absolute name replaces the folder
      if (error) continue;
      auto const [end, at] = std::mismatch(base.begin(), base.end(), real.begin(), real.end());
      if (end == base.end() && at != real.end()) return real.string();
    }
    return std::nullopt;
  }

  std::map<std::string, Model> models_;
  std::vector<std::string> folders_, log_folders_;
  std::string session_folder_, settings_;
  std::int64_t saved_sessions_ = 100;
  Document limits_;
  bool bytes_ = true;
};

}  // namespace tutti::wasi_nn

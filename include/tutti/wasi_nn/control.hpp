// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Input 3 of an execution context: what to do with its answer and its conversation, and conversations in files.

#include <tutti/infer/session_files.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/wasi_nn/execution.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/registry.hpp>
#include <tutti/wasi_nn/session.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

/// Files PATH.session, what was said, as CBOR, since a model may write bytes that are no UTF-8; and PATH.cache, what
/// was computed of it, where there is something. Blocking. Errors: Error (io).
inline void save_session(Graph const& graph, Session& session, std::string const& path) {
  nlohmann::json messages = nlohmann::json::array();
  {
    std::lock_guard const guard(session.mutex);
    for (data::ChatMessage const& one : session.messages)
      messages.push_back({{"role", one.role}, {"content", one.content}});
  }
  nlohmann::json const json{{"format", "tutti session"}, {"messages", std::move(messages)}};
  // Where only one of the two gets written, the other serves as far as they agree.
  if (infer::save_session(graph.model->service(), session.name, path + ".cache") == 0)
    std::remove((path + ".cache").c_str());
  io::AtomicFile file(path + ".session");
  std::vector<std::uint8_t> const bytes = nlohmann::json::to_cbor(json);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

/// The conversation that save_session wrote, in the place of the session's own. A cache that is none of this model, or
/// that finds no place, is left: the text is read again, and `notes` say why. Blocking.
/// Errors: Failure, not_found (there is no such session), runtime_error (it is damaged); nothing changes then.
inline void restore_session(Graph const& graph, Session& session, std::string const& path,
                            std::vector<std::string>& notes) {
  if (!io::file_exists(path + ".session")) throw Failure(Code::not_found, "no session was saved under that name");
  std::vector<data::ChatMessage> messages;
  try {
    nlohmann::json const json = nlohmann::json::from_cbor(io::read_file(path + ".session"));
    if (json.at("format") != "tutti session") throw Failure(Code::runtime_error, "it is of another kind");
    for (nlohmann::json const& one : json.at("messages")) {
      messages.push_back({one.at("role").get<std::string>(), one.at("content").get<std::string>()});
      if (messages.back().role != (messages.size() % 2 == 1 ? "user" : "assistant"))
        throw Failure(Code::runtime_error, "its messages are in no order");
    }
    if (messages.size() % 2 != 0) throw Failure(Code::runtime_error, "it ends with a question");
  } catch (std::exception const& error) {
    throw Failure(Code::runtime_error, concat("the saved session is damaged: ", error.what()));
  }
  if (io::file_exists(path + ".cache")) try {
      infer::restore_session(graph.model->service(), session.name, path + ".cache");
    } catch (Error const& error) {
      notes.push_back("restore: the text is read again: " + error.message());
    }
  else if (!messages.empty()) notes.push_back("restore: the text is read again: no cache was saved with it");
  std::lock_guard const guard(session.mutex);
  session.messages = std::move(messages);
}

/// Obeys a control:
///   {"cancel": true}    ends the answer that is being made
///   {"reset": true}     forgets the conversation
///   {"truncate": 2}     forgets what was said after the first two questions and answers
///   {"save": "name"}    keeps the conversation in the host's folder for sessions
///   {"restore": "name"} goes on with a conversation that was saved
///
/// Errors: Failure, invalid_argument (none of these), security (the host keeps no sessions), those of the functions.
inline void control(Execution& execution, Registry const& registry, std::string const& text) {
  if (text.size() > 1024) throw Failure(Code::too_large, "a control has more than 1024 bytes");
  nlohmann::json json;
  io::JsonEnd const end(json);
  try {
    json = io::parse_json(text, "control");
  } catch (Error const&) {
    throw Failure(Code::invalid_argument, "the control cannot be read: it is no JSON");
  }
  if (!json.is_object() || json.size() != 1)
    throw Failure(Code::invalid_argument, "the control must be an object with one key");
  std::string const key = json.begin().key();
  nlohmann::json const& value = json.begin().value();
  auto const wants = [&](bool right, char const* example) {
    if (!right) throw Failure(Code::invalid_argument, "the control '" + key + "' is written " + example);
  };
  if (key == "cancel") {
    wants(value == true, R"({"cancel": true})");
    execution.cancel();
  } else if (key == "reset" || key == "truncate") {
    wants(key == "reset" ? value == true : value.is_number_unsigned(),
          key == "reset" ? R"({"reset": true})" : R"({"truncate": 2})");
    std::size_t const turns = key == "reset" ? 0 : value.get<std::size_t>();
    execution.with_session([&](Graph const& graph, Session& session, auto&) {
      if (turns == 0) graph.model->service().forget(session.name);
      std::lock_guard const guard(session.mutex);
      if (turns < session.messages.size() / 2) session.messages.resize(2 * turns);
    });
  } else if (key == "save" || key == "restore") {
    wants(value.is_string(), key == "save" ? R"({"save": "name"})" : R"({"restore": "name"})");
    std::string const path = registry.session_file(value.get<std::string>(), key == "save");
    execution.with_session([&](Graph const& graph, Session& session, std::vector<std::string>& notes) {
      if (key == "save") save_session(graph, session, path);
      else restore_session(graph, session, path, notes);
    });
  } else {
    throw Failure(Code::invalid_argument,
                  "the control '" + key.substr(0, 60) + "' is unknown. Use cancel, reset, truncate, save or restore");
  }
}

}  // namespace tutti::wasi_nn

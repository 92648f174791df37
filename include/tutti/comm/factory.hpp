// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A backend chosen by name at run time, among those that the program names as types. `tutti/backend/any.hpp` names the
/// library's own.

#include <tutti/core/concat.hpp>
#include <tutti/comm/flight_dump.hpp>
#include <tutti/comm/launcher.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>

#include <source_location>
#include <string>
#include <string_view>

namespace tutti::comm {

/// What a backend says of itself before it is started: `B::info()`, without side effects.
struct BackendInfo {
  std::string name;
  bool available = true;
  int priority = 0;          ///< "auto" takes the available backend with the highest
  bool processes = false;    ///< its ranks are processes that a launcher starts
  std::string text = "";     ///< what its ranks are; or why it is not available, and how to get it
};

/// One line for each.
template <class = void>
std::string to_string(List<BackendInfo> const& infos) {
  std::string text;
  for (BackendInfo const& info : infos)
    text += concat(info.name, info.available ? ": " : ": not available. ", info.text, "\n");
  return text;
}

/// Resolves "auto" or a name to the name of an available backend.
/// Errors     configuration: no backend has this name. unavailable: it is not there, with the way to get it; or "auto"
///            in one of several processes of a launcher when no backend spans processes, because each process would
///            then be a world of its own.
template <class = void>
std::string choose_backend(List<BackendInfo> const& infos, std::string_view wanted,
                           std::source_location where = std::source_location::current()) {
  BackendInfo const* best = nullptr;
  std::string names = "auto";
  for (BackendInfo const& info : infos) {
    names += concat(", ", info.name, info.available ? "" : " (not available)");
    if (info.name == wanted && info.available) return info.name;
    if (info.name == wanted)
      throw Error(ErrorKind::unavailable, "with_backend", concat(info.name, ": ", info.text), where);
    if (info.available && (best == nullptr || info.priority > best->priority)) best = &info;
  }
  if (wanted != "auto")
    throw Error(ErrorKind::configuration, "with_backend",
                concat("there is no backend '", wanted, "'. There are ", names), where);
  Announced const announced = announced_ranks();
  if (best == nullptr || (announced.ranks > 1 && !best->processes)) {
    std::string text = announced.ranks > 1
                           ? concat("the launcher started ", announced.ranks, " ranks (", announced.variable,
                                    "), and no backend whose ranks are processes is "
                                    "available. Start the program without the "
                                    "launcher, or get one")
                           : "no backend is available";
    for (BackendInfo const& info : infos)
      if (!info.available) text += concat("; ", info.name, ": ", info.text);
    throw Error(ErrorKind::unavailable, "with_backend", text, where);
  }
  return best->name;
}

/// Calls B::launch(argc, argv, f) of the chosen backend among `Backends`, and returns what it returns.
template <class... Backends, class F>
int launch_named(std::string_view name, int argc, char** argv, F& f,
                 std::source_location where = std::source_location::current()) {
  if (!flight_record_prefix().empty()) dump_on_signal();
  int code = 1;
  static_cast<void>(((name == Backends::name && (code = launch_at<Backends>(argc, argv, f, where), true)) || ...));
  return code;
}

}  // namespace tutti::comm

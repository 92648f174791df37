// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a program lends a run for those who watch it: views, which need libraries that the trainer itself does without.
/// tutti/watch/any.hpp has those with which a program is built.

#include <tutti/train/commands.hpp>
#include <tutti/train/registry.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tutti::train {

/// A run as a view sees it. The objects outlive the view.
struct WatchedRun {
  Registry& registry;
  Commands& commands;
  std::string folder;  ///< empty: the run keeps nothing
};

/// Each begins a view, which ends when what it returns is destroyed. Empty: the program was built without it.
struct Viewers {
  /// Takes the terminal of standard input and output. Errors: unavailable, where those are none.
  std::function<std::shared_ptr<void>(WatchedRun const&)> terminal{};
  /// Serves a page on this machine, port 0 being any free one, and publishes its address as a line.
  /// Errors: io, when the port cannot be had.
  std::function<std::shared_ptr<void>(WatchedRun const&, int port)> page{};
};

}  // namespace tutti::train

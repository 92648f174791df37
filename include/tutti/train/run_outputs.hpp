// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A run's registry with all that hears of it, and what watchers ask in return.

#include <tutti/core/error.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/train/commands.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/metrics.hpp>
#include <tutti/train/outputs.hpp>
#include <tutti/train/registry.hpp>
#include <tutti/train/signals.hpp>
#include <tutti/train/viewers.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tutti::train {

/// Which outputs a run has. Strings and numbers as the flags of the same names.
struct OutputOptions {
  std::string out{};
  std::int64_t resumed = -1;  ///< the step after which metrics go on; negative: a new history
  bool tensorboard = false;
  bool dashboard = false;
  int dashboard_port = -1;
};

/// Of one rank. A rank other than 0 has a console, and nothing else.
class RunOutputs {
 public:
  using Json = Registry::Json;

  RunOutputs() = default;
  RunOutputs(RunOutputs const&) = delete;
  RunOutputs& operator=(RunOutputs const&) = delete;

  /// Of rank 0. Errors: io; unavailable, when a view is wanted with which the program was not built.
  void open(OutputOptions const& options, Viewers const& viewers) {
    require(options, viewers);
    // A terminal that cannot be drawn on gets the plain lines that it would get without the view.
    drawn_ = options.dashboard && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
    if (!drawn_) console_ = Console(stdout);
    else if (!options.out.empty()) console_ = Console(options.out + "/rank_0000.log");
    hears_.push_back(subscribe(registry_, console_));
    if (options.dashboard && !drawn_)
      line("--dashboard: standard input or output is no terminal, so there are plain lines" +
           (options.out.empty() ? std::string() : "; in another terminal: ./tutti watch " + options.out));
    if (!options.out.empty()) {
      metrics_ = Metrics(std::filesystem::path(options.out) / "metrics.jsonl", options.resumed);
      hears_.push_back(subscribe(registry_, metrics_));
      status_.emplace(registry_, std::filesystem::path(options.out) / "status.json");
      command_file_ = CommandFile(options.out);
    }
    if (options.tensorboard) {
      tensorboard_.emplace(options.out + "/tensorboard", options.resumed < 0 ? -1 : options.resumed + 1);
      hears_.push_back(subscribe(registry_, *tensorboard_));
    }
    WatchedRun const watched{registry_, commands_, options.out};
    if (options.dashboard_port >= 0) views_.push_back(viewers.page(watched, options.dashboard_port));
    if (drawn_) {
      views_.push_back(viewers.terminal(watched));
      StopSignals::silence();
    }
  }
  /// Of another rank: a log of its own.
  void open_log(std::string const& path) {
    console_ = Console(path);
    hears_.push_back(subscribe(registry_, console_));
  }

  Registry& registry() noexcept { return registry_; }
  /// Whether the terminal is a view's.
  bool drawn() const noexcept { return drawn_; }
  Console& console() noexcept { return console_; }
  void line(std::string text) { registry_.line(std::move(text)); }
  void table(std::vector<std::pair<std::string, std::string>> const& rows) {
    for (std::string& text : table_lines(rows)) line(std::move(text));
  }
  void record(Json object) { registry_.record(std::move(object)); }
  /// What the run does: published when it changes. Returns what it did before.
  std::string phase(std::string const& name) {
    std::string before = std::exchange(phase_, name);
    if (before != name) registry_.set("phase", name);
    return before;
  }

  /// Looks whether watchers have asked for something. Does not block.
  void poll() {
    double const now = static_cast<double>(exec::now_ns()) * 1e-9;
    if (now - polled_ >= 0.1) {
      polled_ = now;
      command_file_.poll(commands_);
    }
    if (StopSignals::received() != 0 && !stop_) registry_.set("stopping", stop_ = true);
    for (Command& command : commands_.take()) {
      switch (command.kind) {
        case Command::Kind::pause: registry_.set("paused", paused_ = true); break;
        case Command::Kind::go_on: registry_.set("paused", paused_ = false); break;
        case Command::Kind::checkpoint: checkpoint_ = true; break;
        case Command::Kind::stop: registry_.set("stopping", stop_ = true); break;
        case Command::Kind::drain: drains_.push_back(std::move(command.worker)); break;
      }
    }
  }
  bool paused() const noexcept { return paused_; }
  bool stop() const noexcept { return stop_; }
  /// Once for each time that it was asked for.
  bool take_checkpoint() noexcept { return std::exchange(checkpoint_, false); }
  /// Workers that are to leave.
  std::vector<std::string> take_drains() { return std::exchange(drains_, {}); }

 private:
  static void require(OutputOptions const& options, Viewers const& viewers) {
    auto const refuse = [](std::string const& what) { throw Error(ErrorKind::unavailable, "train", what); };
    std::string const otherwise =
        options.out.empty() ? ", or leave it out" : ", or watch it by itself: ./tutti watch " + options.out;
    if (options.dashboard && !viewers.terminal)
      refuse("--dashboard: this program was built without ncurses. Install libncurses-dev and build it again" +
             otherwise);
    if (options.dashboard_port >= 0 && !viewers.page)
      refuse("--dashboard-port: this program was built without cpp-httplib. Install libcpp-httplib-dev and build it "
             "again" + otherwise);
  }

  Registry registry_;
  Commands commands_;
  CommandFile command_file_;
  Console console_;
  Metrics metrics_;
  std::optional<io::TensorboardFile> tensorboard_;
  std::optional<StatusFile> status_;
  std::vector<Registry::Subscription> hears_;
  std::vector<std::shared_ptr<void>> views_;
  std::vector<std::string> drains_;
  std::string phase_;
  double polled_ = 0;
  bool drawn_ = false, paused_ = false, stop_ = false, checkpoint_ = false;
};

/// For as long as it lives the run does something else than before.
class InPhase {
 public:
  InPhase(RunOutputs& outputs, char const* name) : outputs_(outputs), before_(outputs.phase(name)) {}
  InPhase(InPhase const&) = delete;
  InPhase& operator=(InPhase const&) = delete;
  ~InPhase() {
    try {
      outputs_.phase(before_);
    } catch (std::exception const&) {  // a full disk, which the next record tells of
    }
  }

 private:
  RunOutputs& outputs_;
  std::string before_;
};

}  // namespace tutti::train

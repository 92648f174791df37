// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shows a run that goes on elsewhere: its folder, or the page that it serves.
//   watch runs/jargon
//   watch 127.0.0.1:8090

#include <tutti/config.hpp>
#include <tutti/io/stamp.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/signals.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/source.hpp>
#if TUTTI_WITH_TERMINAL
#include <tutti/watch/terminal.hpp>
#endif
#if TUTTI_WITH_HTTP
#include <tutti/watch/http/client.hpp>
#include <tutti/watch/http/server.hpp>
#endif

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>

using namespace tutti;

namespace {

/// Errors: io, configuration, in a sentence.
std::unique_ptr<watch::Source> source_of(std::string const& what) {
  if (what.find(':') == what.npos || io::folder_exists(what)) return std::make_unique<watch::FolderSource>(what);
#if TUTTI_WITH_HTTP
  return std::make_unique<watch::RemoteSource>(watch::parse_address(what));
#else
  throw Error(ErrorKind::unavailable, "watch",
              "'" + what + "' is no folder, and this program was built without cpp-httplib, which asks another machine. "
                           "Install libcpp-httplib-dev and build it again");
#endif
}

bool stopped() { return train::StopSignals::received() != 0; }

/// Lines, for who has no terminal: what happens, and about once a second how far it is. Until the run ends.
void print_lines(watch::Source& source) {
  std::string line;
  std::string last_event;
  std::string failure;
  while (!stopped()) {
    try {
      watch::Picture const picture = source.picture();
      failure.clear();
      // Events after the last one that was printed; all, where that one is gone.
      std::size_t begin = picture.events.size();
      while (begin > 0 && picture.events[begin - 1] != last_event) --begin;
      for (std::size_t i = begin; i < picture.events.size(); ++i) std::printf("%s\n", picture.events[i].c_str());
      if (!picture.events.empty()) last_event = picture.events.back();
      if (std::string const now = watch::line_of(picture); now != line && !picture.ended && picture.loss >= 0)
        std::printf("%s\n", (line = now).c_str());
      std::fflush(stdout);
      if (picture.ended) return;
    } catch (Error const& error) {
      if (failure.empty()) std::fprintf(stderr, "watch: %s\n", error.message().c_str());
      failure = error.message();
    }
    for (int i = 0; i < 10 && !stopped(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void print_once(watch::Source& source, std::size_t rows, std::size_t columns) {
  watch::Screen const screen{.rows = rows, .columns = columns, .now = io::wall_seconds()};
  for (watch::TextLine const& line : watch::lay_out(source.picture(), screen)) {
    std::string text;
    for (watch::Span const& span : line) text += span.text;
    text.erase(text.find_last_not_of(' ') + 1);
    std::printf("%s\n", text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string what;
  int port = -1, rows = 30, columns = 100;
  bool once = false, drives = false;
  CLI::App app{
      "Shows a run on this terminal: curves of the loss, speed, time left, ranks or workers, events. Keys: q quits, p "
      "pauses the run and lets it go on, c keeps a checkpoint, d drains a worker, s stops the run.",
      "watch"};
  app.add_option("RUN", what,
                 "a run's folder, or HOST:PORT of the page that it serves, with #TOKEN to ask it something")
      ->required();
  auto* const page = train::add_setting(app, "--port", port, {-1, 65535},
                                        "serve a page on 127.0.0.1 there, and draw nothing; 0: any free port");
  app.add_flag("--drives", drives, "q asks the run to stop, and this ends with it")->excludes(page);
  app.add_flag("--once", once, "print how it is now, and leave")->excludes(page);
  train::add_setting(app, "--rows", rows, {1, 1000}, "of --once");
  train::add_setting(app, "--columns", columns, {1, 1000}, "of --once");
  if (auto const code = train::parse_flags(app, argc, argv)) return *code;
  try {
    train::StopSignals const signals;
    auto const source = source_of(what);
    if (once) {
      print_once(*source, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
      return 0;
    }
    if (port >= 0) {
#if TUTTI_WITH_HTTP
      watch::Server const server(*source, port);
      std::printf("%s\n", server.address().c_str());
      std::fflush(stdout);
      while (!stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return 0;
#else
      throw Error(ErrorKind::unavailable, "watch",
                  "--port: this program was built without cpp-httplib. Install libcpp-httplib-dev and build it again");
#endif
    }
#if TUTTI_WITH_TERMINAL
    if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
      static_cast<void>(source->picture());  // what cannot be seen at all is said before the screen is cleared
      watch::watch_on_terminal(*source, {.drives = drives, .ended = &stopped});
      return 0;
    }
#endif
    print_lines(*source);
    return 0;
  } catch (Error const& error) {
    std::fprintf(stderr, "watch: %s%s%s\n", error.message().c_str(), error.native().empty() ? "" : ": ",
                 error.native().c_str());
    return error.kind() == ErrorKind::configuration ? 2 : 1;
  }
}

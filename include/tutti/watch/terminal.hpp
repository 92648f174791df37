// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A run on a terminal, by ncurses: the only home of its header. Colours unless NO_COLOR is set, Unicode where the
/// locale has it. The terminal is as before when the view ends, by whatever.

#include <tutti/core/error.hpp>
#include <tutti/io/stamp.hpp>
#include <tutti/train/signals.hpp>
#include <tutti/train/viewers.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/source.hpp>

#define NCURSES_NOMACROS 1
#include <ncurses.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <langinfo.h>
#include <string>
#include <sys/ioctl.h>
#include <termios.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tutti::watch {

namespace detail {

/// What gives the terminal back, for signal handlers: they can reach nothing but a static, and may call little.
struct TerminalBefore {
  inline static std::atomic<bool> taken{false};
  inline static struct termios modes {};
  inline static char leave[128] = "";

  static void give_back() {
    if (!taken.exchange(false)) return;
    static_cast<void>(!::write(STDOUT_FILENO, leave, std::strlen(leave)));
    ::tcsetattr(STDOUT_FILENO, TCSANOW, &modes);
  }
};

/// Signals that end a process without a word; what they did before follows.
class FatalSignals {
 public:
  FatalSignals() {
    struct sigaction action {};
    action.sa_handler = &on_signal;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < count; ++i) ::sigaction(signals[i], &action, &former[i]);
  }
  FatalSignals(FatalSignals const&) = delete;
  FatalSignals& operator=(FatalSignals const&) = delete;
  ~FatalSignals() {
    for (std::size_t i = 0; i < count; ++i) ::sigaction(signals[i], &former[i], nullptr);
  }

 private:
  static constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGHUP};
  static constexpr std::size_t count = sizeof signals / sizeof signals[0];
  inline static struct sigaction former[count] {};

  static void on_signal(int signal) {
    TerminalBefore::give_back();
    for (std::size_t i = 0; i < count; ++i)
      if (signals[i] == signal) ::sigaction(signal, &former[i], nullptr);
    ::raise(signal);  // once this handler has returned
  }
};

/// The terminal of standard input and output, ours while this lives. One at a time in a process; used by one thread.
class Terminal {
 public:
  /// Errors: unavailable.
  Terminal() {
    if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
      throw Error(ErrorKind::unavailable, "watch", "standard input and output are no terminal");
    char const* const former = std::setlocale(LC_CTYPE, nullptr);
    locale_ = former == nullptr ? "C" : former;
    std::setlocale(LC_CTYPE, "");  // numbers stay as they are
    unicode_ = std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
    ::tcgetattr(STDOUT_FILENO, &TerminalBefore::modes);
    screen_ = ::newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) {
      std::setlocale(LC_CTYPE, locale_.c_str());
      char const* const name = std::getenv("TERM");
      throw Error(ErrorKind::unavailable, "watch",
                  "ncurses does not know this terminal, TERM=" + std::string(name == nullptr ? "" : name) +
                      ". Set TERM to its kind, as xterm-256color");
    }
    std::string leave;
    for (char const* name : {"sgr0", "cnorm", "rmkx", "rmcup"}) {
      char const* const text = ::tigetstr(const_cast<char*>(name));
      if (text != nullptr && text != reinterpret_cast<char const*>(-1)) leave += without_delays(text);
    }
    std::snprintf(TerminalBefore::leave, sizeof TerminalBefore::leave, "%s", leave.c_str());
    TerminalBefore::taken = true;
    train::StopSignals::before_end(&TerminalBefore::give_back);
    ::cbreak();  // signals of keys stay signals
    ::noecho();
    ::keypad(stdscr, TRUE);
    ::wtimeout(stdscr, 200);
    ::curs_set(0);
    char const* const plain = std::getenv("NO_COLOR");
    colours_ = (plain == nullptr || *plain == 0) && ::has_colors() && ::start_color() == OK;
    if (!colours_) return;
    bool const own_background = ::use_default_colors() == OK;
    short const behind = own_background ? short{-1} : short{COLOR_BLACK};
    short const colours[] = {COLOR_GREEN, COLOR_RED, COLOR_CYAN, COLOR_YELLOW};
    for (short i = 0; i < 4; ++i) ::init_pair(static_cast<short>(i + 1), colours[i], behind);
  }
  Terminal(Terminal const&) = delete;
  Terminal& operator=(Terminal const&) = delete;
  ~Terminal() {
    train::StopSignals::before_end(nullptr);
    if (TerminalBefore::taken.exchange(false)) ::endwin();
    ::delscreen(screen_);
    std::setlocale(LC_CTYPE, locale_.c_str());
  }

  bool unicode() const noexcept { return unicode_; }
  /// Rows and columns, as they are now.
  std::pair<std::size_t, std::size_t> size() {
    struct winsize now {};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) == 0 && now.ws_row > 0 && now.ws_col > 0 &&
        (now.ws_row != getmaxy(stdscr) || now.ws_col != getmaxx(stdscr))) {
      ::resizeterm(now.ws_row, now.ws_col);
      ::clearok(stdscr, TRUE);  // terminals differ in what they make of lines that no longer fit
    }
    return {static_cast<std::size_t>(getmaxy(stdscr)), static_cast<std::size_t>(getmaxx(stdscr))};
  }
  void draw(std::vector<TextLine> const& lines) {
    ::werase(stdscr);
    for (std::size_t row = 0; row < lines.size(); ++row) {
      ::wmove(stdscr, static_cast<int>(row), 0);
      for (Span const& span : lines[row]) {
        ::wattrset(stdscr, attributes(span.style));
        ::waddnstr(stdscr, span.text.c_str(), static_cast<int>(span.text.size()));
      }
    }
    ::wrefresh(stdscr);
  }
  /// The next key, or ERR where none came within a moment.
  int key() { return ::wgetch(stdscr); }

 private:
  /// Terminfo's "$<5>" asks for a pause, which no terminal of today needs.
  static std::string without_delays(std::string text) {
    for (std::size_t at; (at = text.find("$<")) != text.npos;) text.erase(at, text.find('>', at) - at + 1);
    return text;
  }
  int attributes(Style style) const {
    auto const colour = [&](short pair) { return colours_ ? static_cast<int>(COLOR_PAIR(pair)) : 0; };
    switch (style) {
      case Style::plain: return static_cast<int>(A_NORMAL);
      case Style::dim: return static_cast<int>(A_DIM);
      case Style::bold: return static_cast<int>(A_BOLD);
      case Style::good: return colour(1);
      case Style::warning: return colour(2) | static_cast<int>(A_BOLD);
      case Style::train: return colour(3);
      case Style::validation: return colour(4) | (colours_ ? 0 : static_cast<int>(A_BOLD));
      case Style::chosen: return static_cast<int>(A_REVERSE);
    }
    return 0;
  }

  std::string locale_;
  SCREEN* screen_ = nullptr;
  bool unicode_ = false, colours_ = false;
  FatalSignals signals_;
};

}  // namespace detail

/// What a view on a terminal does.
struct TerminalOptions {
  bool drives = false;          ///< `q` asks the run to stop, and the view ends with the run; else `q` ends the view
  std::function<bool()> ended;  ///< asked several times a second: whether the view is to end
};

/// Draws the run until it is told to end. Blocking. Errors: unavailable, where there is no terminal.
inline void watch_on_terminal(Source& source, TerminalOptions const& options) {
  using Kind = train::Command::Kind;
  detail::Terminal terminal;
  Picture picture;
  Screen screen;
  screen.unicode = terminal.unicode();
  std::string failure, said;
  double said_at = 0;
  bool armed = false;  // `s` was pressed once
  auto const ask = [&](train::Command const& command, std::string const& what) {
    try {
      source.ask(command);
      said = what;
    } catch (Error const& error) {
      said = error.message();
    }
    said_at = io::wall_seconds();
  };
  while (!options.ended || !options.ended()) {
    try {
      picture = source.picture();
      failure.clear();
    } catch (Error const& error) {
      failure = error.message();
    }
    if (options.drives && picture.ended) return;
    screen.now = io::wall_seconds();
    if (screen.now - said_at > 5) said.clear(), armed = false;
    std::tie(screen.rows, screen.columns) = terminal.size();
    bool const choice = picture.federated && !picture.workers.empty();
    if (!choice) screen.chosen = SIZE_MAX;
    else screen.chosen = screen.chosen == SIZE_MAX ? 0 : std::min(screen.chosen, picture.workers.size() - 1);
    screen.keys = std::string("q ") + (options.drives ? "stop  " : "quit  ") +
                  (picture.paused ? "p continue" : "p pause") + "  c checkpoint" +
                  (choice ? "  up/down choose  d drain" : "") + (options.drives ? "" : "  s stop the run");
    screen.notice = !failure.empty() ? failure : said;
    if (picture.ended && screen.notice.empty()) screen.keys = "q quit";
    terminal.draw(lay_out(picture, screen));
    int const key = terminal.key();
    if (key != 's' && key != ERR) armed = false;
    switch (key) {
      case 'q':
        if (!options.drives) return;
        ask({Kind::stop}, "asked to stop after this step");
        break;
      case 'p':
        if (picture.paused) ask({Kind::go_on}, "asked to go on");
        else ask({Kind::pause}, "asked to pause after this step");
        break;
      case 'c': ask({Kind::checkpoint}, "asked for a checkpoint"); break;
      case 's':
        if (options.drives || picture.ended) break;
        if (armed) ask({Kind::stop}, "asked to stop after this step");
        else said = "press s again to stop the run", said_at = screen.now;
        armed = !armed;
        break;
      case 'd':
        if (screen.chosen < picture.workers.size())
          ask({Kind::drain, picture.workers[screen.chosen].name},
              "asked worker " + picture.workers[screen.chosen].name + " to deliver and leave");
        break;
      case KEY_UP: case 'k':
        if (choice && screen.chosen > 0) --screen.chosen;
        break;
      case KEY_DOWN: case 'j':
        if (choice) ++screen.chosen;
        break;
      default: break;
    }
  }
}

/// A view of a run of this program, in a thread of its own.
class LiveTerminal {
 public:
  /// Errors: unavailable.
  explicit LiveTerminal(train::WatchedRun const& run) : source_(run) {
    thread_ = std::thread([this] {
      try {
        auto const ended = [this] {
          begun_ = true;
          return end_.load();
        };
        watch_on_terminal(source_, {.drives = true, .ended = ended});
      } catch (...) {
        failure_ = std::current_exception();
      }
      begun_ = true;
    });
    while (!begun_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!failure_) return;
    thread_.join();
    std::rethrow_exception(failure_);
  }
  LiveTerminal(LiveTerminal const&) = delete;
  LiveTerminal& operator=(LiveTerminal const&) = delete;
  /// Leaves what the run has said last on the terminal.
  ~LiveTerminal() {
    end_ = true;
    thread_.join();
    for (std::string const& line : source_.hidden_lines()) std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

 private:
  LiveSource source_;
  std::atomic<bool> begun_{false}, end_{false};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tutti::watch

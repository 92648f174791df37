// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where a view has its picture from, and to whom it says what is asked: a run of this program, or the folder of one.

#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/stamp.hpp>
#include <tutti/train/commands.hpp>
#include <tutti/train/viewers.hpp>
#include <tutti/watch/sketch.hpp>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace tutti::watch {

class Source {
 public:
  Source() = default;
  Source(Source const&) = delete;
  Source& operator=(Source const&) = delete;
  virtual ~Source() = default;
  /// As of now. Errors: io, communication: the run cannot be seen at present.
  virtual Picture picture() = 0;
  /// Errors: io, communication: it could not be said.
  virtual void ask(train::Command const& command) = 0;
  /// Lines that the run has said and that a view on its terminal has hidden.
  virtual std::vector<std::string> hidden_lines() { return {}; }
};

/// A run of this program. Thread-safe.
class LiveSource final : public Source {
 public:
  explicit LiveSource(train::WatchedRun const& run)
      : commands_(run.commands),
        sketch_(run.folder),
        subscription_(run.registry.subscribe([this](train::RegistryEvent const& event) { hear(event); })) {}

  Picture picture() override {
    std::lock_guard const guard(mutex_);
    Picture made = sketch_.picture();
    made.time = io::wall_seconds();
    return made;
  }
  void ask(train::Command const& command) override { commands_.ask(command); }
  std::vector<std::string> hidden_lines() override {
    std::lock_guard const guard(mutex_);
    return {lines_.begin(), lines_.end()};
  }

 private:
  void hear(train::RegistryEvent const& event) {
    std::lock_guard const guard(mutex_);
    sketch_.hear(event);
    if (event.kind != train::RegistryEvent::Kind::line) return;
    lines_.push_back(event.name);
    if (lines_.size() > 8) lines_.pop_front();
  }

  train::Commands& commands_;
  std::mutex mutex_;
  Sketch sketch_;
  std::deque<std::string> lines_;
  train::Registry::Subscription subscription_;  // last: what it hears is there before, and gone after
};

/// A run whose folder can be read, on this machine or on a shared disk. Thread-safe.
class FolderSource final : public Source {
 public:
  /// Errors: io, when the folder holds no run.
  explicit FolderSource(std::string folder) : folder_(std::move(folder)), sketch_(folder_) {
    if (!io::folder_exists(folder_))
      throw Error(ErrorKind::io, "watch", "there is no folder '" + folder_ + "'. Name a run's --out");
    if (!io::file_exists(metrics()))
      throw Error(ErrorKind::io, "watch",
                  "'" + folder_ +
                      "' holds no metrics.jsonl: no run has begun there. Name a run's "
                      "--out");
  }

  Picture picture() override {
    std::lock_guard const guard(mutex_);
    read_metrics();
    read_status();
    return sketch_.picture();
  }
  void ask(train::Command const& command) override { train::CommandFile::ask(folder_, command); }

 private:
  std::string metrics() const { return folder_ + "/metrics.jsonl"; }

  /// Whole lines that came since the last time; all of them, where the file is another one: a run that goes on puts a
  /// new file in the place of the old.
  void read_metrics() {
    io::detail::Descriptor const file(::open(metrics().c_str(), O_RDONLY | O_CLOEXEC));
    struct stat now {};
    if (file.get() < 0 || ::fstat(file.get(), &now) != 0)
      io::detail::throw_errno("watch", "'" + metrics() + "' cannot be read");
    if (now.st_ino != file_ || static_cast<std::uint64_t>(now.st_size) < read_) {
      sketch_ = Sketch(folder_);
      file_ = now.st_ino;
      read_ = 0;
      status_.clear();
      rest_.clear();
    }
    std::vector<char> bytes(std::size_t{1} << 16);
    for (;;) {
      ::ssize_t const got = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<::off_t>(read_));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      read_ += static_cast<std::uint64_t>(got);
      rest_.append(bytes.data(), static_cast<std::size_t>(got));
      std::size_t begin = 0;
      for (std::size_t end; (end = rest_.find('\n', begin)) != rest_.npos; begin = end + 1)
        sketch_.record(nlohmann::json::parse(rest_.begin() + static_cast<std::ptrdiff_t>(begin),
                                             rest_.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false));
      rest_.erase(0, begin);
    }
  }
  void read_status() {
    std::string text;
    try {
      text = io::read_file(folder_ + "/status.json");
    } catch (Error const&) {
      return;  // a run of an earlier version, or one that has not begun
    }
    if (text == status_) return;
    auto const values = nlohmann::json::parse(text, nullptr, false);
    if (!values.is_object()) return;
    status_ = std::move(text);
    for (auto const& [name, value] : values.items()) sketch_.value(name, value);
  }

  std::string folder_;
  std::mutex mutex_;
  Sketch sketch_;
  ::ino_t file_ = 0;
  std::uint64_t read_ = 0;
  std::string rest_, status_;
};

}  // namespace tutti::watch

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `metrics.jsonl`: one JSON object a line with its `type` among its keys, flushed line by line.

#include <tutti/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace tutti::train {

/// Appends; with a resume step it first drops what the file says of later steps, so that a resumed run leaves one
/// history. Without a path it writes nothing.
class Metrics {
 public:
  using Json = nlohmann::json;

  Metrics() = default;
  /// `resume_step` negative: a new run, the file starts empty. Errors: io.
  Metrics(std::filesystem::path const& path, std::int64_t resume_step) : path_(path) {
    std::string kept;
    if (resume_step >= 0) kept = lines_until(resume_step);
    std::filesystem::path const aside = path.string() + ".new";
    file_ = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0) fail("cannot be created");
    write_all(kept);
    if (::rename(aside.c_str(), path.c_str()) != 0) fail("cannot be put in place");
  }
  Metrics(Metrics&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), whole_(other.whole_) {}
  Metrics& operator=(Metrics&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    std::swap(whole_, other.whole_);
    return *this;
  }
  ~Metrics() {
    if (file_ >= 0) ::close(file_);
  }

  /// Numbers that are not finite become null, as JSON has no other word for them. Errors: io; the file then ends with
  /// the last line that is whole.
  void write(Json const& object) {
    if (file_ >= 0) write_all(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

 private:
  /// Lines of steps up to `step`; a last line that was cut off is dropped with the later ones.
  std::string lines_until(std::int64_t step) const {
    std::string kept, line;
    std::ifstream file(path_);
    while (std::getline(file, line)) {
      auto const object = Json::parse(line.data(), line.data() + line.size(), nullptr, false);
      if (!object.is_object() || object.value("type", Json()) == "end") continue;
      Json const of = object.value("step", Json(0));
      if (of.is_number() && of <= step) kept += line + "\n";
    }
    return kept;
  }
  void write_all(std::string const& text) {
    std::size_t done = 0;
    while (done < text.size()) {
      ssize_t const wrote = ::write(file_, text.data() + done, text.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        int const error = errno;
        if (::ftruncate(file_, whole_) == 0) ::lseek(file_, whole_, SEEK_SET);
        errno = error;
        fail("cannot be written");
      }
      done += static_cast<std::size_t>(wrote);
    }
    whole_ += static_cast<::off_t>(done);
  }
  [[noreturn]] void fail(std::string const& what) const {
    throw Error(ErrorKind::io, "Metrics", path_.string() + " " + what + ". Free space or choose another --out")
        .with_native(std::strerror(errno));
  }

  std::filesystem::path path_;
  int file_ = -1;
  ::off_t whole_ = 0;  ///< bytes of whole lines
};

}  // namespace tutti::train

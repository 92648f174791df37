// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The JSON rows of a report: one object a line.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

namespace tutti::bench {

/// Names and units are without characters that JSON escapes. Errors: std::runtime_error (the file).
class Rows {
 public:
  /// Nothing is written where the path is empty.
  explicit Rows(std::string const& path) : path_(path) {
    if (path.empty()) return;
    file_.reset(std::fopen(path.c_str(), "w"));
    if (!file_) fail();
  }
  /// What nothing is compared with.
  void add(std::string const& name, double ours, char const* unit) {
    if (file_ &&
        std::fprintf(file_.get(),
                     "{\"name\": \"%s\", \"ours\": %.6g, \"rival\": null, \"ratio\": null, \"unit\": \"%s\"}\n",
                     name.c_str(), ours, unit) < 0)
      fail();
  }
  /// A ratio above 1 means that tutti is better.
  void add(std::string const& name, double ours, double rival, double ratio, char const* unit) {
    if (file_ &&
        std::fprintf(file_.get(),
                     "{\"name\": \"%s\", \"ours\": %.6g, \"rival\": %.6g, \"ratio\": %.4f, \"unit\": \"%s\"}\n",
                     name.c_str(), ours, rival, ratio, unit) < 0)
      fail();
  }
  /// What the figures were measured with.
  void version(std::string const& of, std::string const& text) {
    if (file_ && std::fprintf(file_.get(), "{\"versions\": {\"%s\": \"%s\"}}\n", of.c_str(), text.c_str()) < 0) fail();
  }
  /// Must be called at the end: until then what was written may not be in the file.
  void close() {
    if (file_ && std::fclose(file_.release()) != 0) fail();
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const { throw std::runtime_error("--json " + path_ + ": " + std::strerror(errno)); }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// The body of `main`: what `run` returns, or 1 after the sentence of what it throws.
inline int run_main(int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace tutti::bench

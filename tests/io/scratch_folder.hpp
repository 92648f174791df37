// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A folder for one test, gone afterwards.

#include <tutti/io/file.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {

class ScratchFolder {
 public:
  ScratchFolder() {
    path_ = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw Error(ErrorKind::io, "ScratchFolder", "cannot make " + path_);
  }
  ScratchFolder(ScratchFolder const&) = delete;
  ScratchFolder& operator=(ScratchFolder const&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string const& path() const { return path_; }
  std::string operator/(std::string const& name) const { return path_ + "/" + name; }
  /// Names in the folder, to see that nothing was left behind.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (auto const& entry : std::filesystem::directory_iterator(path_))
      found.push_back(entry.path().filename().string());
    return found;
  }

 private:
  std::string path_;
};

/// Runs `read` on `bytes` damaged in every way of a fixed set (cut at each length, each byte replaced) and counts the
/// outcomes. Anything but success or an Error of kind format escapes and fails the test.
struct DamageOutcome {
  int accepted = 0, refused = 0;
};
template <class Read>
DamageOutcome damage_everywhere(std::string const& bytes, std::string const& file, std::size_t limit, Read&& read) {
  DamageOutcome outcome;
  auto const attempt = [&](std::string const& damaged) {
    std::ofstream(file, std::ios::binary)
        .write(damaged.data(), static_cast<std::streamsize>(damaged.size()));  // no sync: there are thousands
    try {
      read(file);
      ++outcome.accepted;
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::format) throw;
      ++outcome.refused;
    }
  };
  for (std::size_t length = 0; length < bytes.size() && length < limit; ++length) attempt(bytes.substr(0, length));
  for (std::size_t i = 0; i < bytes.size() && i < limit; ++i)
    for (char const value : {'\0', '\1', ' ', '"', '-', '9', '[', '}', '\x80', '\xff'}) {
      std::string damaged = bytes;
      damaged[i] = value;
      attempt(damaged);
    }
  return outcome;
}

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Folders that appear under their name with all that belongs in them, or not at all.

#include <tutti/io/file.hpp>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace tutti::io {

/// What is written goes to a folder of a temporary name beside it; `commit` renames that. Without `commit`, or when
/// anything throws, it is removed with all that is in it.
class AtomicFolder {
 public:
  /// Folders above it are made. Errors: io, also where a file or a folder with something in it has the name.
  explicit AtomicFolder(std::string path) : path_(std::move(path)) {
    namespace fs = std::filesystem;
    while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
    std::error_code code;
    if (file_exists(path_) && !folder_exists(path_))
      throw Error(ErrorKind::io, "AtomicFolder", "'" + path_ + "' exists and is not a folder. Choose another name");
    if (folder_exists(path_) && !fs::is_empty(path_, code))
      throw Error(ErrorKind::io, "AtomicFolder",
                  "folder '" + path_ + "' exists and is not empty. Choose another name, or remove it");
    temporary_ = detail::temporary_name(path_);
    make_folder(detail::folder_of(path_));
    if (::mkdir(temporary_.c_str(), 0777) != 0)
      detail::throw_errno("AtomicFolder", "cannot make '" + temporary_ + "'. Choose a place that may be written");
  }
  AtomicFolder(AtomicFolder const&) = delete;
  AtomicFolder& operator=(AtomicFolder const&) = delete;
  ~AtomicFolder() {
    std::error_code ignored;
    if (!committed_) std::filesystem::remove_all(temporary_, ignored);
  }

  /// Where to write until `commit`.
  std::string const& path() const noexcept { return temporary_; }

  /// The moment at which the folder exists. Blocking: until the device knows its names. Errors: io.
  void commit() {
    sync_folder(temporary_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)  // an empty folder of the name gives way
      detail::throw_errno("AtomicFolder::commit", "cannot rename '" + temporary_ + "' to '" + path_ + "'");
    committed_ = true;
    sync_folder(detail::folder_of(path_));
  }

 private:
  std::string path_, temporary_;
  bool committed_ = false;
};

}  // namespace tutti::io

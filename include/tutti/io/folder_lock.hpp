// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One program at a time in a folder.

#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>

#include <cerrno>
#include <string>
#include <sys/file.h>

namespace tutti::io {

/// Holds a folder until it is destroyed or its process ends, however it ends; nothing is left behind in the folder. It
/// keeps out those who ask alone.
class FolderLock {
 public:
  /// Holds nothing.
  FolderLock() = default;
  /// Errors: io, when another one holds the folder, or it cannot be opened. Where the file system has no locks it is as
  /// if nobody held it.
  explicit FolderLock(std::string const& folder)
      : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (handle_.get() < 0)
      detail::throw_errno("FolderLock", "cannot open folder '" + folder + "'. Check the path and its permissions");
    if (::flock(handle_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw Error(ErrorKind::io, "FolderLock",
                  "another program is at work in '" + folder + "'. Wait for it or stop it, or choose another folder");
  }

 private:
  detail::Descriptor handle_{-1};
};

}  // namespace tutti::io

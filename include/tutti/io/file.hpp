// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whole files: read, mapped, and written so that a crash at any moment leaves either the old file or the new one.

#include <tutti/core/error.hpp>
#include <tutti/tensor/storage.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#if !TUTTI_WASM
#include <sys/mman.h>
#endif

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <source_location>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti::io {

static_assert(std::endian::native == std::endian::little, "tutti: every file format here is little-endian");

namespace detail {

/// Error(io) with the operating system's words for the present errno.
[[noreturn]] inline void throw_errno(char const* operation, std::string message,
                                     std::source_location where = std::source_location::current()) {
  int const code = errno;
  throw Error(ErrorKind::io, operation, std::move(message), where).with_native(std::generic_category().message(code));
}

/// A file descriptor with an owner.
class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const noexcept { return value_; }
  int release() noexcept { return std::exchange(value_, -1); }

 private:
  int value_;
};

inline Descriptor open_to_read(std::string const& path, char const* operation, std::source_location where,
                               int flags = 0) {
  int const descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (descriptor < 0) throw_errno(operation, "cannot open '" + path + "'. Check the path and its permissions", where);
  return Descriptor(descriptor);
}

/// The folder that holds `path`, as open(2) wants it.
inline std::string folder_of(std::string const& path) {
  auto const slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace detail

/// What cannot be looked at, such as a name that is too long, is not there.
inline bool folder_exists(std::string const& path) noexcept {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}
/// A folder counts as a file.
inline bool file_exists(std::string const& path) noexcept {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0;
}

/// The bytes of a file, a pipe or a device, to its end.
/// Errors: io, with the path and the operating system's reason.
inline std::string read_file(std::string const& path,
                             std::source_location where = std::source_location::current()) {
  detail::Descriptor const file = detail::open_to_read(path, "read_file", where);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) detail::throw_errno("read_file", "cannot examine '" + path + "'", where);
  std::string text;
  if (S_ISREG(facts.st_mode)) text.reserve(static_cast<std::size_t>(facts.st_size) + 1);
  std::size_t used = 0;
  for (;;) {
    std::size_t const room = text.capacity() > used ? text.capacity() - used : std::size_t{1} << 16;
    text.resize(used + room);
    ::ssize_t const got = ::read(file.get(), text.data() + used, room);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) detail::throw_errno("read_file", "cannot read '" + path + "'", where);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  text.resize(used);
  return text;
}

namespace detail {

struct RegularFile {
  Descriptor descriptor;
  std::size_t bytes;
};
/// Opening a pipe would wait for its writer, only to refuse it then: that is asked not to wait.
inline RegularFile open_regular(std::string const& path, char const* operation, std::source_location where) {
  Descriptor file = open_to_read(path, operation, where, O_NONBLOCK);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_errno(operation, "cannot examine '" + path + "'", where);
  if (!S_ISREG(facts.st_mode))
    throw Error(ErrorKind::io, operation, "'" + path + "' is not a regular file. Pass the path of a file", where);
  return {std::move(file), static_cast<std::size_t>(facts.st_size)};
}

/// Beside `path`, of no other file or folder that this process writes.
inline std::string temporary_name(std::string const& path) {
  static std::atomic<unsigned> counter{0};
  return path + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

}  // namespace detail

/// The bytes of a regular file in memory of their own: what happens to the file later does not matter, as it does to
/// `map_file`. Errors: io; out_of_memory.
inline Storage<Cpu> load_file(std::string const& path,
                              std::source_location where = std::source_location::current()) {
  auto const [file, bytes] = detail::open_regular(path, "load_file", where);
  if (bytes == 0) return {};
  Storage<Cpu> storage(Cpu{}, bytes);
  auto* const memory = static_cast<char*>(storage.data());
  for (std::size_t used = 0; used < bytes;) {
    ::ssize_t const got = ::read(file.get(), memory + used, bytes - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) detail::throw_errno("load_file", "cannot read '" + path + "'", where);
    if (got == 0)
      throw Error(ErrorKind::io, "load_file",
                  "'" + path + "' ended after " + std::to_string(used) + " of " + std::to_string(bytes) +
                      " bytes: something shortens it. Wait until it is written", where);
    used += static_cast<std::size_t>(got);
  }
  return storage;
}

/// The bytes of a regular file, mapped read-only: pages come from the page cache when touched. An empty file gives
/// empty storage; without mappings, in WebAssembly, the bytes are read. The file must not shrink while it is mapped:
/// the operating system answers that with SIGBUS.
inline Storage<Cpu> map_file(std::string const& path,
                             std::source_location where = std::source_location::current()) {
#if TUTTI_WASM
  return load_file(path, where);
#else
  auto const [file, bytes] = detail::open_regular(path, "map_file", where);
  if (bytes == 0) return {};
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) detail::throw_errno("map_file", "cannot map '" + path + "'", where);
  return Storage<Cpu>(
      Cpu{}, memory, bytes, [](void*, Cpu const&, void* m, std::size_t n) noexcept { ::munmap(m, n); }, nullptr);
#endif
}

/// Bytes of `map_file` that are not needed for now leave this process's memory, whole pages of them, and come again
/// from the page cache when touched.
inline void forget_pages([[maybe_unused]] void const* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if !TUTTI_WASM
  constexpr std::uintptr_t page = 4096;
  auto const begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  auto const end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#endif
}

/// Makes a folder and the folders above it; one that exists already is fine. Errors: io.
inline void make_folder(std::string const& path) {
  for (std::size_t end = 1; end <= path.size(); ++end) {
    if (end != path.size() && path[end] != '/') continue;
    std::string const part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST)
      detail::throw_errno("make_folder", "cannot make folder '" + part +
                                             "'. Choose a place that may be written, or change its permissions");
  }
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    detail::throw_errno("make_folder", "cannot examine folder '" + path + "'. Choose another place");
  if (!S_ISDIR(facts.st_mode))
    throw Error(ErrorKind::io, "make_folder", "'" + path + "' exists and is not a folder. Choose another name");
}

/// Makes renames and creations inside `folder` durable.
inline void sync_folder(std::string const& folder) {
  detail::Descriptor const handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0) detail::throw_errno("sync_folder", "cannot open folder '" + folder + "'");
  // Some file systems cannot sync a folder and say EINVAL; they order the rename themselves.
  if (::fsync(handle.get()) != 0 && errno != EINVAL)
    detail::throw_errno("sync_folder", "cannot sync folder '" + folder + "'");
}

/// Two files or folders of one file system change names, at one moment. False, with nothing changed, where the file
/// system or the kernel cannot do that. Errors: io.
inline bool exchange_names(std::string const& one, std::string const& other) {
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
    detail::throw_errno("exchange_names", "cannot exchange '" + one + "' and '" + other +
                                              "'; both are as they were. Check that they exist "
                                              "and that their folder may be written");
#else
  (void)one, (void)other;
#endif
  return false;
}

/// A file that appears under its name complete or not at all: bytes go to a temporary name in the same folder, and
/// `commit` syncs them, renames, and syncs the folder. Without `commit`, or when anything throws, the temporary file is
/// removed and whatever had the name before is untouched. Permissions follow the process's umask.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path, std::source_location where = std::source_location::current())
      : path_(std::move(path)) {
    struct stat facts {};
    if (::stat(path_.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
      throw Error(ErrorKind::io, "AtomicFile", "'" + path_ + "' exists and is not a regular file. Choose another name",
                  where);
    temporary_ = detail::temporary_name(path_);
    file_ = detail::Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.get() < 0) {
      // Not ours: the destructor, had it run, must not remove it. A constructor that throws runs none.
      detail::throw_errno("AtomicFile",
                          "cannot create '" + temporary_ + "'. Check that the folder exists and may be written",
                          where);
    }
  }
  AtomicFile(AtomicFile const&) = delete;
  AtomicFile& operator=(AtomicFile const&) = delete;
  ~AtomicFile() {
    if (!committed_) ::unlink(temporary_.c_str());
  }

  void write(void const* data, std::size_t bytes) {
    auto const* from = static_cast<char const*>(data);
    while (bytes != 0) {
      std::size_t const part = bytes < (std::size_t{1} << 30) ? bytes : std::size_t{1} << 30;
      ::ssize_t const done = ::write(file_.get(), from, part);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0)
        detail::throw_errno("AtomicFile::write", "cannot write '" + path_ +
                                                     "'; what it held before is untouched. Free space or choose "
                                                     "another place");
      from += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// What is written next stands there, in bytes from the beginning.
  void seek(std::size_t at) {
    if (::lseek(file_.get(), static_cast<::off_t>(at), SEEK_SET) < 0)
      detail::throw_errno("AtomicFile::seek", "cannot write in the middle of '" + path_ + "'");
  }

  /// The moment at which the file exists. Blocking: until the device has the bytes.
  void commit() {
    if (::fsync(file_.get()) != 0)
      detail::throw_errno("AtomicFile::commit", "cannot sync '" + path_ + "'; what it held before is untouched");
    if (::close(file_.release()) != 0)
      detail::throw_errno("AtomicFile::commit", "cannot close '" + path_ + "'; what it held before is untouched");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      detail::throw_errno("AtomicFile::commit", "cannot rename '" + temporary_ + "' to '" + path_ + "'");
    committed_ = true;
    sync_folder(detail::folder_of(path_));
  }

 private:
  std::string path_;
  std::string temporary_;
  detail::Descriptor file_{-1};
  bool committed_ = false;
};

/// Replaces the file at `path` by `bytes`, through AtomicFile.
inline void write_file(std::string const& path, std::string_view bytes,
                       std::source_location where = std::source_location::current()) {
  AtomicFile file(path, where);
  file.write(bytes);
  file.commit();
}

}  // namespace tutti::io

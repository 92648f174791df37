// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Checkpoints of states of which ranks have parts: the files are those of `save_checkpoint`, each rank writes its runs
/// of bytes into them.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/safetensors.hpp>
#include <tutti/train/checkpoint.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::train {

/// Bytes of a rank, and where they stand in one of the two files.
struct CheckpointRun {
  int file = 0;  ///< of checkpoint_files
  std::uint64_t at = 0;
  std::byte const* data = nullptr;
  std::int64_t bytes = 0;
};

/// One that ranks are writing.
struct CheckpointInParts {
  CheckpointContents contents;
  std::unique_ptr<UnfinishedCheckpoint> aside;  ///< of the rank that completes it
};
/// Both files with room for all tensors, whose contents ranks write. Of the rank that completes the checkpoint.
/// Errors: io.
inline void make_room(UnfinishedCheckpoint const& aside, CheckpointContents const& contents) {
  for (int file = 0; file < 2; ++file) {
    std::string const path = aside.file(file);
    io::SafetensorsPlaces const places = io::safetensors_places(contents.tensors(file));
    io::write_file(path, places.header);
    std::error_code code;
    std::filesystem::resize_file(path, places.bytes, code);
    if (code)
      throw Error(ErrorKind::io, "save_checkpoint",
                  path + " cannot have " + std::to_string(places.bytes) +
                      " bytes. Free space or choose another --out")
          .with_native(code.message());
  }
}
/// Once every rank has written its runs. Blocking. Errors: io. Returns the folder.
inline std::filesystem::path complete_parts(UnfinishedCheckpoint& aside, CheckpointContents const& contents,
                                            std::int64_t keep) {
  std::uint64_t const hashes[] = {hash_file(io::Safetensors(aside.file(0))), hash_file(io::Safetensors(aside.file(1)))};
  return aside.complete(contents, hashes, keep);
}

/// Writes the runs of one rank, in a thread of its own from a copy, or at once. Used by one thread.
class CheckpointPart {
 public:
  enum class Status : unsigned char { idle, writing, written, failed };

  CheckpointPart() = default;
  CheckpointPart(CheckpointPart const&) = delete;
  CheckpointPart& operator=(CheckpointPart const&) = delete;
  /// Waits for what is under way; whether that failed nobody hears any more.
  ~CheckpointPart() {
    if (thread_.joinable()) thread_.join();
  }

  /// Opens the files that `make_room` made in this folder. False: this rank does not see them, or may not write them,
  /// or sees others, which were not signed with this token.
  bool open(std::filesystem::path const& folder, std::string const& token) {
    std::string const signature = (folder / UnfinishedCheckpoint::token_file).string();
    if (!io::file_exists(signature) || io::read_file(signature) != token) return false;
    for (int i = 0; i < 2; ++i) {
      paths_[i] = (folder / checkpoint_files[i]).string() + ".safetensors";
      files_[i] = io::detail::Descriptor(::open(paths_[i].c_str(), O_WRONLY | O_CLOEXEC));
      if (files_[i].get() < 0) return close(), false;
    }
    return true;
  }
  void close() noexcept {
    for (auto& file : files_) file = io::detail::Descriptor(-1);
  }
  /// After `open`. `beside`: copies the runs, which are the caller's again then, and returns; else they are written
  /// when it returns. What fails `finish` tells. Errors: out_of_memory, of the copy.
  void write(std::vector<CheckpointRun> runs, bool beside) {
    if (beside) {
      std::int64_t bytes = 0;
      for (CheckpointRun const& run : runs) bytes += run.bytes;
      if (copy_.bytes() < bytes) copy_ = graph::Memory(bytes);
      std::byte* next = copy_.data();
      for (CheckpointRun& run : runs) {
        std::memcpy(next, run.data, static_cast<std::size_t>(run.bytes));
        run.data = std::exchange(next, next + run.bytes);
      }
    }
    failure_ = nullptr;
    status_.store(Status::writing, std::memory_order_relaxed);
    auto work = [this, runs = std::move(runs)] {
      try {
        for (CheckpointRun const& run : runs) put(run);
        for (int i = 0; i < 2; ++i)
          if (::fsync(files_[i].get()) != 0 || ::close(files_[i].release()) != 0) fail(i);
        status_.store(Status::written, std::memory_order_release);
      } catch (...) {
        failure_ = std::current_exception();
        status_.store(Status::failed, std::memory_order_release);
      }
    };
    if (beside) thread_ = std::thread(std::move(work));
    else work();
  }
  Status status() const noexcept { return status_.load(std::memory_order_acquire); }
  bool writing() const noexcept { return status() == Status::writing; }
  /// Waits until this rank has written, and closes the files. Errors: io.
  void finish() {
    if (thread_.joinable()) thread_.join();
    close();
    status_.store(Status::idle, std::memory_order_relaxed);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void put(CheckpointRun const& run) const {
    std::int64_t done = 0;
    while (done < run.bytes) {
      auto const most = static_cast<std::size_t>(std::min<std::int64_t>(run.bytes - done, std::int64_t{1} << 30));
      ::ssize_t const bytes = ::pwrite(files_[run.file].get(), run.data + done, most,
                                       static_cast<::off_t>(run.at) + static_cast<::off_t>(done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) fail(run.file);
      done += bytes;
    }
  }
  [[noreturn]] void fail(int file) const {
    io::detail::throw_errno("save_checkpoint", "cannot write this rank's part of '" + paths_[file] +
                                                   "'. Free space or choose another --out");
  }

  std::string paths_[2];
  io::detail::Descriptor files_[2] = {io::detail::Descriptor(-1), io::detail::Descriptor(-1)};
  graph::Memory copy_;
  std::exception_ptr failure_;
  std::atomic<Status> status_{Status::idle};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tutti::train

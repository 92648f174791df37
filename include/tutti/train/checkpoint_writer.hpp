// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Checkpoints that are written while training goes on.

#include <tutti/graph/memory.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/train/checkpoint.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace tutti::train {

/// Writes one checkpoint at a time in a thread of its own, from a copy of its tensors, which it keeps for the next one.
/// The files, and what a crash leaves of them, are those of `save_checkpoint`. Used by one thread.
class CheckpointWriter {
 public:
  struct Written {
    std::int64_t step;
    std::filesystem::path folder;
  };

  CheckpointWriter() = default;
  CheckpointWriter(CheckpointWriter const&) = delete;
  CheckpointWriter& operator=(CheckpointWriter const&) = delete;
  /// Waits for what is under way; whether that failed nobody hears any more.
  ~CheckpointWriter() {
    if (thread_.joinable()) thread_.join();
  }

  /// Copies the tensors that `contents` refers to or loads, which are the caller's again then, and begins to write. The
  /// one before must have been taken by `finish`.
  /// Errors: out_of_memory, of the copy; invalid_argument, where one is still under way; those of `load`.
  void begin(std::filesystem::path out, CheckpointContents contents, std::int64_t keep) {
    require_idle();
    std::int64_t bytes = 0;
    auto const each = [&contents](auto&& f) {
      for (auto* const list : {&contents.parameters, &contents.optimizer})
        for (io::NamedTensor& tensor : *list) f(tensor);
    };
    auto const room = [](io::NamedTensor const& tensor) {
      return graph::align_up(static_cast<std::int64_t>(tensor.bytes()));
    };
    each([&](io::NamedTensor const& tensor) { bytes += room(tensor); });
    if (copy_.bytes() < bytes) copy_ = graph::Memory(bytes);
    std::byte* next = copy_.data();
    each([&](io::NamedTensor& tensor) {
      if (void const* const data = contents.data_of(tensor); tensor.bytes() != 0)
        std::memcpy(next, data, tensor.bytes());
      tensor.data = next;
      next += room(tensor);
    });
    contents.load = nullptr;
    std::int64_t const step = contents.step;
    begin(step, [out = std::move(out), contents = std::move(contents), keep] {
      return save_checkpoint(out, contents, keep);
    });
  }
  /// Calls save(), which returns the folder, and refers to nothing that changes before it has ended.
  void begin(std::int64_t step, std::function<std::filesystem::path()> save) {
    require_idle();
    written_ = {step, {}};
    failure_ = nullptr;
    done_.store(false, std::memory_order_relaxed);
    thread_ = std::thread([this, save = std::move(save)] {
      try {
        written_.folder = save();
      } catch (...) {
        failure_ = std::current_exception();
      }
      done_.store(true, std::memory_order_release);
    });
  }
  /// Whether one was begun, and `finish` would not wait for it.
  bool ready() const noexcept { return thread_.joinable() && done_.load(std::memory_order_acquire); }
  /// Waits for the one that was begun; nothing where there is none. Errors: io, as `save_checkpoint`.
  std::optional<Written> finish() {
    if (!thread_.joinable()) return std::nullopt;
    thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return written_;
  }

 private:
  void require_idle() const {
    if (thread_.joinable())
      throw Error(ErrorKind::invalid_argument, "CheckpointWriter", "a checkpoint is under way. Call finish first");
  }

  graph::Memory copy_;
  Written written_{};
  std::exception_ptr failure_;
  std::atomic<bool> done_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tutti::train

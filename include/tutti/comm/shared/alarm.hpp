// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Why a communicator failed, for all ranks of a node, and texts that its ranks read of each other. Neither holds
/// pointers: they lie in memory that every process maps elsewhere.

#include <tutti/core/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti::comm::shared {

/// A text that its owner changes while others read it: a torn read is repeated. Longer texts are cut.
template <std::size_t Bytes>
class Text {
 public:
  void store(std::string_view text) noexcept {
    std::uint64_t words[count] = {};
    text.copy(reinterpret_cast<char*>(words), Bytes - 1);
    std::uint32_t const version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < count; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }
  std::string load() const {
    std::uint64_t words[count] = {};
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::uint32_t const before = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < count; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if ((before & 1u) == 0 && version_.load(std::memory_order_relaxed) == before) break;
    }
    char text[Bytes];
    std::memcpy(text, words, Bytes);
    text[Bytes - 1] = 0;
    return text;
  }

 private:
  static_assert(Bytes % 8 == 0);
  static constexpr std::size_t count = Bytes / 8;
  std::atomic<std::uint32_t> version_{0};
  std::atomic<std::uint64_t> words_[count] = {};
};

/// A word that every wait looks at, with the first cause behind it. Whoever raises it first is heard.
class Alarm {
 public:
  bool raised() const noexcept { return state_.load(std::memory_order_seq_cst) != quiet; }
  template <class = void>
  void raise(ErrorKind kind, std::string_view text) noexcept {
    std::uint32_t expected = quiet;
    if (!state_.compare_exchange_strong(expected, writing, std::memory_order_seq_cst)) return;
    kind_.store(static_cast<std::uint32_t>(kind), std::memory_order_relaxed);
    text_.store(text);
    state_.store(written, std::memory_order_release);
  }
  /// Throws the cause if raised.
  template <class = void>
  void check(char const* operation, std::source_location where) const {
    if (state_.load(std::memory_order_acquire) == quiet) return;
    for (int i = 0; i < 1000 && state_.load(std::memory_order_acquire) == writing; ++i) {
      timespec const moment{0, 100'000};  // who raised it may have been killed between two words
      ::nanosleep(&moment, nullptr);
    }
    if (state_.load(std::memory_order_acquire) == writing)
      throw Error(ErrorKind::communication, operation, "a rank failed while it reported an error", where);
    throw Error(static_cast<ErrorKind>(kind_.load(std::memory_order_relaxed)), operation, text_.load(), where);
  }

 private:
  enum : std::uint32_t { quiet, writing, written };
  std::atomic<std::uint32_t> state_{quiet};
  std::atomic<std::uint32_t> kind_{0};
  Text<2048> text_;
};

}  // namespace tutti::comm::shared

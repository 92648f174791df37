// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The one exception type of the library.
///
/// Grammar of a message: what failed, why, what to do. `what()` puts the facts in front:
///   tutti::all_reduce [rank 1]: counts differ: 8 here, 4 on rank 0. Pass tensors of one shape on every rank
///   (app.cpp:12)

#include <tutti/core/concat.hpp>

#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// The class of a failure; handlers branch on it, people read the message.
enum class ErrorKind : unsigned char {
  invalid_argument,  ///< a value outside what the operation accepts
  shape,             ///< rank, extent or size does not fit
  dtype,             ///< element type does not fit
  device,            ///< memory of another device
  out_of_range,      ///< index or count beyond the end
  overflow,          ///< a result does not fit its integer type
  out_of_memory,     ///< the device or the heap is full
  io,                ///< the operating system refused a file operation
  format,            ///< a file or message is damaged or of another kind
  configuration,     ///< a flag, key or environment value
  unavailable,       ///< not supported here: backend, instruction set, device
  communication,     ///< the transport failed or ranks disagree
  timeout,           ///< a deadline passed
  revoked,           ///< the communicator was revoked earlier; the first cause is in the text
  busy,              ///< too much waits already; later it may go
  internal,          ///< a promise of the library was broken: please report it
};

constexpr std::string_view name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid argument";
    case ErrorKind::shape: return "shape";
    case ErrorKind::dtype: return "dtype";
    case ErrorKind::device: return "device";
    case ErrorKind::out_of_range: return "out of range";
    case ErrorKind::overflow: return "overflow";
    case ErrorKind::out_of_memory: return "out of memory";
    case ErrorKind::io: return "io";
    case ErrorKind::format: return "format";
    case ErrorKind::configuration: return "configuration";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::communication: return "communication";
    case ErrorKind::timeout: return "timeout";
    case ErrorKind::revoked: return "revoked";
    case ErrorKind::busy: return "busy";
    case ErrorKind::internal: return "internal";
  }
  return "unknown";
}

namespace detail {

/// The text of this thread's latest Error, as long as that is there. While it passes, destructors cannot ask for it.
struct LatestError {
  void const* error = nullptr;
  char text[512] = {};
};
inline constinit thread_local LatestError latest_error;

/// Of an Error: where it goes by being copied, as a `throw` of what `with_rank` returns does, it stays the latest.
class Latest {
 public:
  Latest() = default;
  Latest(Latest const& other) noexcept { *this = other; }
  Latest& operator=(Latest const& other) noexcept {
    if (latest_error.error == &other) latest_error.error = this;
    return *this;
  }
  ~Latest() {
    if (latest_error.error == this) latest_error.error = nullptr;
  }

 protected:
  void note(std::string_view text) const noexcept {
    latest_error.error = this;
    latest_error.text[text.copy(latest_error.text, sizeof latest_error.text - 1)] = 0;
  }
};

}  // namespace detail

/// Thrown by everything in tutti that fails at run time. Copyable, self-contained: it may cross threads.
class Error : public std::exception, private detail::Latest {
 public:
  /// `operation` is the name the user called ("all_reduce"), `message` follows the grammar above. A default constructed
  /// place is none, of what was found where no line of the user's stands.
  template <class = void>
  Error(ErrorKind kind, std::string operation, std::string message,
        std::source_location where = std::source_location::current())
      : kind_(kind), operation_(std::move(operation)), message_(std::move(message)), where_(where) {
    compose();
  }

  /// Rank on which it was raised; -1 when no communicator is involved.
  template <class = void>
  Error& with_rank(int rank) {
    rank_ = rank;
    compose();
    return *this;
  }
  /// Text of the layer below (MPI, errno, CUDA), verbatim.
  template <class = void>
  Error& with_native(std::string text) {
    native_ = std::move(text);
    compose();
    return *this;
  }

  /// The same error, told as one of `operation`.
  template <class = void>
  Error of(std::string operation) const {
    Error renamed = *this;
    renamed.operation_ = std::move(operation);
    renamed.compose();
    return renamed;
  }

  /// The same error, told at the line of who called what found it.
  template <class = void>
  Error at(std::source_location where) const {
    Error moved = *this;
    moved.where_ = where;
    moved.compose();
    return moved;
  }

  ErrorKind kind() const noexcept { return kind_; }
  std::string const& operation() const noexcept { return operation_; }
  std::string const& message() const noexcept { return message_; }
  std::string const& native() const noexcept { return native_; }
  int rank() const noexcept { return rank_; }
  std::source_location where() const noexcept { return where_; }
  char const* what() const noexcept override { return what_.c_str(); }

 private:
  template <class = void>
  void compose() {
    what_ = concat("tutti::", operation_);
    if (rank_ >= 0) what_ += concat(" [rank ", rank_, "]");
    what_ += concat(": ", message_);
    if (!native_.empty()) what_ += concat(" [", native_, "]");
    std::string_view file = where_.file_name();
    if (auto slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
    if (where_.line() != 0) what_ += concat(" (", file, ":", where_.line(), ")");
    note(what_);
  }

  ErrorKind kind_;
  int rank_ = -1;
  std::string operation_;
  std::string message_;
  std::string native_;
  std::source_location where_;
  std::string what_;
};

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages of protobuf as they lie in a file, field after field, without its library: readers are in libraries that
/// other programs load, which may have a protobuf of their own.
/// Source  https://protobuf.dev/programming-guides/encoding/

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::io {

/// A field of a message: a number, or bytes (text, a message, packed numbers).
struct WireField {
  int field = 0;
  bool is_bytes = false;
  std::uint64_t number = 0;
  std::string_view bytes;
};

/// Reads one message. Bounded by it: no size that it claims is believed.
class WireReader {
 public:
  explicit WireReader(std::string_view message) noexcept : message_(message) {}

  /// The next field; false at the end of the message, and where it is damaged.
  bool next(WireField& to) noexcept {
    if (damaged_ || at_ == message_.size()) return false;
    std::uint64_t const key = varint();
    to = {static_cast<int>(key >> 3), (key & 7) == 2, 0, {}};
    if (key >> 3 == 0 || key >> 32 != 0) damaged_ = true;
    switch (key & 7) {
      case 0: to.number = varint(); break;
      case 1: to.bytes = part(8); break;
      case 2: to.bytes = part(varint()); break;
      case 5: to.bytes = part(4); break;
      default: damaged_ = true;  // groups, which no file here has
    }
    return !damaged_;
  }
  /// A number of packed ones; 0 at the end too.
  std::uint64_t varint() noexcept {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == message_.size()) break;
      auto const byte = static_cast<unsigned char>(message_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    damaged_ = true;
    return 0;
  }
  bool at_end() const noexcept { return damaged_ || at_ == message_.size(); }
  bool damaged() const noexcept { return damaged_; }
  std::size_t position() const noexcept { return at_; }

 private:
  std::string_view part(std::uint64_t bytes) noexcept {
    if (bytes > message_.size() - at_) {
      damaged_ = true;
      return {};
    }
    std::string_view const found = message_.substr(at_, static_cast<std::size_t>(bytes));
    at_ += static_cast<std::size_t>(bytes);
    return found;
  }

  std::string_view message_;
  std::size_t at_ = 0;
  bool damaged_ = false;
};

}  // namespace tutti::io

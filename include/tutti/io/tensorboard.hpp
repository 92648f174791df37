// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Event files for TensorBoard: numbers and texts of steps.
///
/// A file is a sequence of records, each framed as
///   length of the data  uint64, little-endian
///   masked CRC-32C of those eight bytes  uint32
///   the data  a protocol buffer message `Event`
///   masked CRC-32C of the data  uint32
/// where a CRC is masked as ((crc >> 15) | (crc << 17)) + 0xa282ead8. Of the messages these fields are written:
///   Event        1 wall_time double   2 step int64   3 file_version string   5 summary Summary   7 session_log
///   SessionLog
///   Summary      1 value Value, repeated
///   Value        1 tag string   2 simple_value float   8 tensor TensorProto   9 metadata SummaryMetadata
///   SummaryMetadata   1 plugin_data PluginData       PluginData   1 plugin_name string
///   TensorProto  1 dtype enum (7: string)   8 string_val bytes, repeated
///   SessionLog   1 status enum (1: START)
/// Source    tensorflow/core/lib/io/record_writer.h, core/util/event.proto, core/framework/summary.proto.

#include <tutti/io/file.hpp>
#include <tutti/io/stamp.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <unistd.h>

namespace tutti::io {

/// CRC-32C (Castagnoli), as RFC 3720 has it; "123456789" gives e3069283.
inline std::uint32_t crc32c(std::string_view bytes) noexcept {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = (made[i] >> 1) ^ ((made[i] & 1) != 0 ? 0x82f63b78u : 0);
    }
    return made;
  }();
  std::uint32_t crc = ~0u;
  for (char byte : bytes) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}
inline std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
  return std::rotl(crc32c(bytes), 17) + 0xa282ead8u;
}

namespace detail {

/// A message of protocol buffers, field by field.
class WireMessage {
 public:
  WireMessage& number(unsigned field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  WireMessage& real64(unsigned field, double value) {
    varint((field << 3) | 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  WireMessage& real32(unsigned field, float value) {
    varint((field << 3) | 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  WireMessage& text(unsigned field, std::string_view value) {
    varint((field << 3) | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  WireMessage& message(unsigned field, WireMessage const& value) { return text(field, value.bytes_); }
  std::string const& bytes() const noexcept { return bytes_; }

  static std::string fixed_bytes(std::uint64_t value, int size) {
    WireMessage made;
    made.fixed(value, size);
    return made.bytes_;
  }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(0x80 | (value & 0x7f));
    bytes_ += static_cast<char>(value);
  }
  void fixed(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>((value >> (8 * i)) & 0xff);
  }

  std::string bytes_;
};

}  // namespace detail

/// One event file, in a folder that TensorBoard is pointed at. What is written is in the file when the call returns.
/// There may be several files in a folder: TensorBoard reads them in the order of the times in their names, and a new
/// one has a later time than all that are there.
class TensorboardFile {
 public:
  /// Makes the folder and a new file in it. `first_step`: of a run that goes on, the first step that is new:
  /// TensorBoard forgets what earlier files say of it and of later ones. Negative: of a new run, nothing is forgotten.
  /// Errors: io.
  explicit TensorboardFile(std::string const& folder, std::int64_t first_step = -1) {
    make_folder(folder);
    std::string host = host_name();
    if (host.empty()) host = "localhost";
    for (long long begun = time_of_new(folder); file_.get() < 0; ++begun) {
      char name[384];
      std::snprintf(name, sizeof name, "/events.out.tfevents.%010lld.%s.%d.0", begun, host.c_str(),
                    static_cast<int>(::getpid()));
      path_ = folder + name;
      file_ = detail::Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
      if (file_.get() < 0 && errno != EEXIST)
        detail::throw_errno("TensorboardFile", "'" + path_ + "' cannot be created. Make the folder writable");
    }
    write(event(0).text(3, "brain.Event:2"));
    if (first_step >= 0) write(event(first_step).message(7, detail::WireMessage().number(1, 1)));
  }
  std::string const& path() const noexcept { return path_; }

  /// A point of the chart `tag`. Errors: io; the file then ends with the last record that is whole.
  void scalar(std::string_view tag, std::int64_t step, double value) {
    write(event(step).message(
        5, detail::WireMessage().message(
               1, detail::WireMessage().text(1, tag).real32(2, static_cast<float>(value)))));
  }
  /// A text, in TensorBoard's markdown. Errors: as `scalar`.
  void text(std::string_view tag, std::int64_t step, std::string_view value) {
    using detail::WireMessage;
    WireMessage const metadata = WireMessage().message(1, WireMessage().text(1, "text"));
    WireMessage const tensor = WireMessage().number(1, 7).text(8, value);
    write(event(step).message(
        5, WireMessage().message(1, WireMessage().text(1, tag).message(8, tensor).message(9, metadata))));
  }

 private:
  static long long time_of_new(std::string const& folder) {
    auto time = static_cast<long long>(wall_seconds());
    for (auto const& entry : std::filesystem::directory_iterator(folder)) {
      std::string const name = entry.path().filename().string();
      long long other = 0;
      if (std::sscanf(name.c_str(), "events.out.tfevents.%10lld.", &other) == 1) time = std::max(time, other + 1);
    }
    return time;
  }
  static detail::WireMessage event(std::int64_t step) {
    return detail::WireMessage().real64(1, wall_seconds()).number(2, static_cast<std::uint64_t>(step));
  }
  void write(detail::WireMessage const& message) {
    std::string const& data = message.bytes();
    std::string const length = detail::WireMessage::fixed_bytes(data.size(), 8);
    std::string const record = length + detail::WireMessage::fixed_bytes(masked_crc32c(length), 4) + data +
                               detail::WireMessage::fixed_bytes(masked_crc32c(data), 4);
    std::size_t done = 0;
    while (done < record.size()) {
      ::ssize_t const wrote = ::write(file_.get(), record.data() + done, record.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        int const error = errno;
        static_cast<void>(!::ftruncate(file_.get(), whole_));
        errno = error;
        detail::throw_errno("TensorboardFile", "'" + path_ + "' cannot be written. Free space");
      }
      done += static_cast<std::size_t>(wrote);
    }
    whole_ += static_cast<::off_t>(done);
  }

  std::string path_;
  detail::Descriptor file_{-1};
  ::off_t whole_ = 0;  // bytes of whole records
};

}  // namespace tutti::io

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The bytes of one GGUF file, checked: nothing is believed before it was compared with what is there. Nothing is
/// allocated that is not in proportion to bytes of the file.

#include <tutti/core/block_type.hpp>
#include <tutti/io/gguf_value.hpp>
#include <tutti/tensor/shape.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti::io {

/// What a file may hold at most. The defaults are far above any model.
struct GgufLimits {
  std::uint64_t keys = 65'536;
  std::uint64_t tensors = 1'048'576;
  std::uint64_t string_bytes = std::uint64_t{64} << 20;
  std::uint64_t metadata_bytes = std::uint64_t{1} << 30;
};

/// A tensor of a file. The last axis of `shape` is contiguous; the format itself lists the axes the other way round.
struct GgufTensor {
  std::string name;
  BlockType type = BlockType::f32;
  Shape shape;
  void const* data = nullptr;  ///< aligned for a block of its type
  std::size_t bytes = 0;
};

/// One file: a model, or a part of one.
struct GgufPart {
  std::uint32_t version = 0;
  std::uint32_t alignment = 32;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  ///< in the order of the file
};

namespace detail {

inline constexpr std::uint64_t gguf_name_bytes = 65'535;  // of keys and of tensors' names

/// Names of a file in messages: quoted, cut, with bytes that are no ASCII text replaced.
inline std::string quote_gguf(std::string_view text) {
  std::string shown = "'";
  for (char const c : text.substr(0, 80)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > 80 ? "...'" : "'");
}

class GgufParser {
 public:
  GgufParser(std::span<std::byte const> bytes, std::string const& path, GgufLimits const& limits)
      : bytes_(bytes), path_(path), limits_(limits) {}

  GgufPart parse() {
    parse_header();
    parse_metadata();
    parse_tensors();
    return std::move(part_);
  }

 private:
  [[noreturn]] void refuse(std::string const& why, char const* advice = "Fetch or write the file again") const {
    throw Error(ErrorKind::format, "Gguf", "'" + path_ + "' is not a usable GGUF file: " + why + ". " + advice);
  }

  std::uint64_t remaining() const noexcept { return bytes_.size() - at_; }

  /// A number of the file. `what` names it for the message that the file ends inside it.
  template <class T>
  T number(char const* what, std::string_view of = {}) {
    if (remaining() < sizeof(T)) ends_inside(what, of, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  [[noreturn]] void ends_inside(char const* what, std::string_view of, std::uint64_t needed) const {
    refuse("it ends at byte " + std::to_string(bytes_.size()) + ", inside " + what +
           (of.empty() ? std::string() : " of " + quote_gguf(of)) + ", which needs " + std::to_string(needed) +
           " bytes at " + std::to_string(at_));
  }
  std::string_view text(char const* what, std::string_view of = {}) {
    auto const length = number<std::uint64_t>("the length of a string", of);
    if (length > limits_.string_bytes)
      refuse(std::string(what) + (of.empty() ? std::string() : " of " + quote_gguf(of)) + " claims " +
             std::to_string(length) + " bytes; a string may have " + std::to_string(limits_.string_bytes));
    if (length > remaining()) ends_inside(what, of, length);
    std::string_view const result(reinterpret_cast<char const*>(bytes_.data() + at_), static_cast<std::size_t>(length));
    at_ += length;
    return result;
  }

  void parse_header() {
    if (bytes_.size() < 24)
      refuse("it has " + std::to_string(bytes_.size()) + " bytes, too few for the header of 24");
    if (std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      refuse("it does not begin with 'GGUF'", "Pass a GGUF file; ./tutti convert writes one from other formats");
    at_ = 4;
    part_.version = number<std::uint32_t>("the version");
    if ((part_.version & 0xffffu) == 0 && part_.version != 0)
      refuse("its numbers are big-endian", "Convert it with gguf-convert-endian of the Python package gguf");
    if (part_.version == 1)
      refuse("it is of version 1, whose counts have 32 bits", "Convert the model again with present tools");
    if (part_.version != 2 && part_.version != 3)
      refuse("it is of version " + std::to_string(part_.version) + "; 2 and 3 are known",
             "Fetch a file of a known version, or a newer tutti");
    tensor_count_ = number<std::uint64_t>("the number of tensors");
    key_count_ = number<std::uint64_t>("the number of keys");
    if (tensor_count_ > limits_.tensors)
      refuse("it claims " + std::to_string(tensor_count_) + " tensors; there may be " +
             std::to_string(limits_.tensors));
    if (key_count_ > limits_.keys)
      refuse("it claims " + std::to_string(key_count_) + " keys; there may be " + std::to_string(limits_.keys));
    // The least that a key takes is 14 bytes, a tensor 33.
    if (key_count_ * 14 + tensor_count_ * 33 > remaining())
      refuse("it claims " + std::to_string(key_count_) + " keys and " + std::to_string(tensor_count_) +
             " tensors, and " + std::to_string(remaining()) + " bytes follow");
  }

  void parse_metadata() {
    for (std::uint64_t i = 0; i < key_count_; ++i) {
      std::string const key(text("the name of a key"));
      if (key.empty()) refuse("key " + std::to_string(i) + " has no name");
      if (key.size() > gguf_name_bytes)
        refuse("key " + quote_gguf(key) + " has a name of " + std::to_string(key.size()) + " bytes; it may have 65535");
      if (std::any_of(key.begin(), key.end(), [](char c) { return c < ' ' || c > '~'; }))
        refuse("key " + quote_gguf(key) + " has a name that is not ASCII text");
      GgufValue value = parse_value(key, number<std::uint32_t>("the type", key));
      if (at_ > limits_.metadata_bytes)
        refuse("its metadata has more than " + std::to_string(limits_.metadata_bytes) + " bytes");
      if (!part_.metadata.add(key, value)) refuse("key " + quote_gguf(key) + " stands twice");
    }
    if (GgufValue const* value = part_.metadata.find("general.alignment")) {
      auto const* const alignment = std::get_if<std::uint32_t>(value);
      if (alignment == nullptr) refuse("general.alignment is " + type_name(*value) + " and must be uint32");
      if (!std::has_single_bit(*alignment) || *alignment < 8 || *alignment > 65'536)
        refuse("general.alignment is " + std::to_string(*alignment) + "; it must be a power of two from 8 to 65536");
      part_.alignment = *alignment;
    }
  }

  template <std::size_t place = 0>
  GgufValue parse_value(std::string const& key, std::uint32_t type) {
    if constexpr (place == gguf_types) {
      refuse("key " + quote_gguf(key) + " has the type " + std::to_string(type) + ", which the format does not have");
    } else {
      if (type != place) return parse_value<place + 1>(key, type);
      if constexpr (place == gguf_array) return GgufValue(std::in_place_index<place>, parse_array(key));
      else return GgufValue(std::in_place_index<place>, parse_item<std::variant_alternative_t<place, GgufValue>>(key));
    }
  }
  template <class T>
  T parse_item(std::string const& key) {
    if constexpr (std::same_as<T, std::string>) {
      return std::string(text("the value", key));
    } else if constexpr (std::same_as<T, bool>) {
      auto const byte = number<std::uint8_t>("the value", key);
      if (byte > 1)
        refuse("key " + quote_gguf(key) + " has a bool that is " + std::to_string(byte) + ", neither 0 nor 1");
      return byte == 1;
    } else {
      return number<T>("the value", key);
    }
  }
  GgufArray parse_array(std::string const& key) {
    auto const type = number<std::uint32_t>("the element type", key);
    auto const count = number<std::uint64_t>("the number of elements", key);
    if (type == gguf_array) refuse("key " + quote_gguf(key) + " has an array of arrays, which tutti does not read");
    if (type >= gguf_types)
      refuse("key " + quote_gguf(key) + " has an array of type " + std::to_string(type) +
             ", which the format does not have");
    return parse_items(key, type, count);
  }
  template <std::size_t place = 0>
  GgufArray parse_items(std::string const& key, std::uint32_t type, std::uint64_t count) {
    if constexpr (place == gguf_types) {
      refuse("key " + quote_gguf(key) + " has an array of an unknown type");
    } else if constexpr (place == gguf_array) {
      return parse_items<place + 1>(key, type, count);
    } else {
      if (type != place) return parse_items<place + 1>(key, type, count);
      using Item = typename std::variant_alternative_t<place, GgufArray>::value_type;
      constexpr std::uint64_t least = std::same_as<Item, std::string> ? 8 : std::same_as<Item, bool> ? 1 : sizeof(Item);
      if (count > remaining() / least)
        refuse("key " + quote_gguf(key) + " claims an array of " + std::to_string(count) + " " +
               std::string(gguf_type_names[place]) + ", and " + std::to_string(remaining()) + " bytes follow");
      std::vector<Item> items;
      if constexpr (std::is_arithmetic_v<Item> && !std::same_as<Item, bool>) {
        items.resize(static_cast<std::size_t>(count));
        if (count != 0) std::memcpy(items.data(), bytes_.data() + at_, static_cast<std::size_t>(count) * sizeof(Item));
        at_ += count * sizeof(Item);
      } else {
        items.reserve(static_cast<std::size_t>(count));
        for (std::uint64_t i = 0; i < count; ++i) items.push_back(parse_item<Item>(key));
      }
      return GgufArray(std::in_place_index<place>, std::move(items));
    }
  }

  struct Range {
    std::uint64_t begin, end;
    std::size_t tensor;
  };

  void parse_tensors() {
    std::vector<Range> ranges;
    std::unordered_set<std::string_view> names;
    part_.tensors.reserve(static_cast<std::size_t>(tensor_count_));
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      std::string_view const name = text("the name of a tensor");
      if (name.empty()) refuse("tensor " + std::to_string(i) + " has no name");
      if (name.size() > gguf_name_bytes)
        refuse("tensor " + quote_gguf(name) + " has a name of " + std::to_string(name.size()) +
               " bytes; it may have 65535");
      if (!names.insert(name).second) refuse("tensor " + quote_gguf(name) + " stands twice");
      GgufTensor tensor;
      tensor.name = name;
      std::uint64_t const offset = parse_tensor(tensor);
      ranges.push_back({offset, offset + tensor.bytes, part_.tensors.size()});
      part_.tensors.push_back(std::move(tensor));
    }
    if (ranges.empty()) return;
    // The header lies in memory, so rounding its end up cannot wrap.
    std::uint64_t const start = (at_ + part_.alignment - 1) / part_.alignment * part_.alignment;
    std::uint64_t const data_bytes = start < bytes_.size() ? bytes_.size() - start : 0;
    for (Range const& range : ranges) {
      GgufTensor& tensor = part_.tensors[range.tensor];
      if (range.begin > data_bytes || tensor.bytes > data_bytes - range.begin)
        refuse("tensor " + quote_gguf(tensor.name) + " takes " + std::to_string(tensor.bytes) + " bytes from " +
                   std::to_string(range.begin) + " of the data on, which has " + std::to_string(data_bytes),
               "It may be cut short: fetch the file again");
      tensor.data = bytes_.data() + start + range.begin;
    }
    std::sort(ranges.begin(), ranges.end(), [](Range const& a, Range const& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].begin < ranges[i - 1].end)
        refuse("tensors " + quote_gguf(part_.tensors[ranges[i - 1].tensor].name) + " and " +
               quote_gguf(part_.tensors[ranges[i].tensor].name) + " overlap at byte " +
               std::to_string(ranges[i].begin) + " of the data");
  }

  /// All of a tensor but its name and place in memory; its offset in the data, so that offset plus size fits 64 bits.
  std::uint64_t parse_tensor(GgufTensor& tensor) {
    std::string const who = "tensor " + quote_gguf(tensor.name);
    auto const rank = number<std::uint32_t>("the number of axes", tensor.name);
    if (rank < 1 || rank > 4) refuse(who + " has " + std::to_string(rank) + " axes; it must have 1 to 4");
    std::int64_t extents[4] = {}, elements = 1;
    for (std::uint32_t axis = 0; axis < rank; ++axis) {
      auto const extent = number<std::uint64_t>("the shape", tensor.name);
      if (extent == 0) refuse(who + " has an extent of 0");
      if (!std::in_range<std::int64_t>(extent) ||
          __builtin_mul_overflow(elements, static_cast<std::int64_t>(extent), &elements))
        refuse(who + " has a number of elements that does not fit 64 bits");
      extents[rank - 1 - axis] = static_cast<std::int64_t>(extent);
    }
    std::int64_t const row = extents[rank - 1];
    auto const type = number<std::uint32_t>("the element type", tensor.name);
    tutti::detail::BlockFacts const* const facts = tutti::detail::find_block(type);
    if (facts == nullptr) refuse_type(who, type);
    if (row % facts->elements != 0)
      refuse(who + " has rows of " + std::to_string(row) + ", which are no whole blocks of " +
             std::string(facts->name) + ", " + std::to_string(facts->elements) + " each");
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements / facts->elements, std::int64_t{facts->bytes}, &bytes))
      refuse(who + " has a size that does not fit 64 bits");
    if (!std::in_range<std::size_t>(bytes))
      refuse(who + " has " + std::to_string(bytes) + " bytes, more than memory has addresses here",
             "Use a smaller model");
    auto const offset = number<std::uint64_t>("the offset", tensor.name);
    if (offset % part_.alignment != 0)
      refuse(who + " has the offset " + std::to_string(offset) + ", which is no multiple of the alignment " +
             std::to_string(part_.alignment));
    std::uint64_t end = 0;
    if (__builtin_add_overflow(offset, static_cast<std::uint64_t>(bytes), &end))
      refuse(who + " has the offset " + std::to_string(offset) + ", with which its end does not fit 64 bits");
    tensor.type = facts->type;
    tensor.shape = Shape(std::span<std::int64_t const>(extents, rank));
    tensor.bytes = static_cast<std::size_t>(bytes);
    return offset;
  }

  [[noreturn]] void refuse_type(std::string const& who, std::uint32_t type) const {
    std::string const is = who + " has the element type " + std::to_string(type);
    char const* const convert =
        "Convert the model to one of those that tutti reads: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
        "Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS";
    if (type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38))
      refuse(is + ", which was removed from the format", convert);
    if (type == 9 || type == 15) refuse(is + ", which is for activations and not for files", convert);
    if (type >= 24 && type <= 28) refuse(is + ", of integers or doubles, which tutti does not read", convert);
    if (type < 40) refuse(is + ", which tutti does not read", convert);
    refuse(is + ", which is unknown", convert);
  }

  std::span<std::byte const> bytes_;
  std::string const& path_;
  GgufLimits limits_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0, key_count_ = 0;
  GgufPart part_;
};

}  // namespace detail

/// Checks `bytes` and describes them; tensors refer to them. `path` is for messages. A part of a split model is a file
/// like others here. Errors: format, with the file, what is wrong, where, and what to do.
inline GgufPart parse_gguf(std::span<std::byte const> bytes, std::string const& path, GgufLimits const& limits = {}) {
  return detail::GgufParser(bytes, path, limits).parse();
}

}  // namespace tutti::io

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The bytes of a GGUF file put down one by one, right or wrong, without the library's writer.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tutti::test {

/// Appends numbers and strings as the format has them.
struct GgufBytes {
  std::string bytes;

  template <class T>
  GgufBytes& put(T value) {
    bytes.append(reinterpret_cast<char const*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view value) {
    put(std::uint64_t{value.size()});
    bytes.append(value);
    return *this;
  }
  GgufBytes& head(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    bytes.append("GGUF");
    return put(version).put(tensors).put(keys);
  }
  template <class T>
  GgufBytes& key(std::string_view name, std::uint32_t type, T value) {
    return text(name).put(type).put(value);
  }
  GgufBytes& key(std::string_view name, std::string_view value) { return text(name).put(std::uint32_t{8}).text(value); }
  /// `extents` as the format lists them: the contiguous axis first.
  GgufBytes& tensor(std::string_view name, std::initializer_list<std::uint64_t> extents, std::uint32_t type,
                    std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(extents.size()));
    for (std::uint64_t const extent : extents) put(extent);
    return put(type).put(offset);
  }
  /// Zeros up to the next multiple of `alignment`, then `count` bytes of data.
  GgufBytes& data(std::size_t count, std::size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i * 7 + 1));
    return *this;
  }
  std::span<std::byte const> span() const { return std::as_bytes(std::span(bytes)); }
};

/// A file with a value of every type and a tensor of some: the start of the damaged ones.
inline GgufBytes small_gguf() {
  GgufBytes file;
  file.head(3, 16);
  file.key("general.architecture", "llama");
  file.key("u8", 0, std::uint8_t{200}).key("i8", 1, std::int8_t{-3}).key("u16", 2, std::uint16_t{60000});
  file.key("i16", 3, std::int16_t{-300}).key("u32", 4, std::uint32_t{4000000000}).key("i32", 5, std::int32_t{-70000});
  file.key("f32", 6, 0.25f).key("bool", 7, std::uint8_t{1}).key("u64", 10, ~std::uint64_t{0});
  file.key("i64", 11, std::int64_t{-5000000000}).key("f64", 12, 0.1).key("general.alignment", 4, std::uint32_t{64});
  file.text("strings")
      .put(std::uint32_t{9})
      .put(std::uint32_t{8})
      .put(std::uint64_t{3})
      .text("a")
      .text("")
      .text("\xe2\x96\x81x");
  file.text("floats").put(std::uint32_t{9}).put(std::uint32_t{6}).put(std::uint64_t{2}).put(1.5f).put(-2.5f);
  file.text("empty").put(std::uint32_t{9}).put(std::uint32_t{5}).put(std::uint64_t{0});
  file.tensor("q", {64, 3}, 2, 0);        // Q4_0: 108 bytes
  file.tensor("norm", {5}, 0, 128);       // F32: 20 bytes
  file.tensor("h", {2, 3, 1, 2}, 1, 192);  // F16: 24 bytes
  return file.data(216, 64);
}

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The alphabet in which byte-level tokenizers spell bytes as printable text: bytes that print in Latin-1 stand for
/// themselves, the others for the code points from 256 on, in order. It makes tokens legal JSON strings.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

namespace detail {

constexpr bool stands_for_itself(unsigned byte) noexcept {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct ByteAlphabet {
  std::array<std::uint16_t, 256> code_point{};  ///< of a byte
  std::array<std::int16_t, 324> byte{};         ///< of a code point, -1 when it stands for none
  std::array<std::uint8_t, 256> order{};        ///< bytes by ascending code point: the first 256 tokens of GPT-2
};

constexpr ByteAlphabet make_byte_alphabet() noexcept {
  ByteAlphabet alphabet;
  for (auto& value : alphabet.byte) value = -1;
  std::size_t next = 256, place = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::size_t const code = stands_for_itself(byte) ? byte : next++;
    alphabet.code_point[byte] = static_cast<std::uint16_t>(code);
    alphabet.byte[code] = static_cast<std::int16_t>(byte);
  }
  for (std::int16_t const byte : alphabet.byte)
    if (byte >= 0) alphabet.order[place++] = static_cast<std::uint8_t>(byte);
  return alphabet;
}

inline constexpr ByteAlphabet byte_alphabet = make_byte_alphabet();

}  // namespace detail

/// Bytes spelled in the alphabet, as UTF-8.
inline std::string spell_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char const character : bytes) {
    unsigned const code = detail::byte_alphabet.code_point[static_cast<unsigned char>(character)];
    if (code < 128) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0u | (code >> 6));
      text += static_cast<char>(0x80u | (code & 63u));
    }
  }
  return text;
}

/// The bytes that `text` spells; nothing when a character is not of the alphabet.
inline std::optional<std::string> unspell_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = static_cast<unsigned char>(text[i]);
    if (code >= 128) {
      if ((code & 0xE0u) != 0xC0u || i + 1 == text.size()) return std::nullopt;
      unsigned const low = static_cast<unsigned char>(text[++i]);
      if ((low & 0xC0u) != 0x80u) return std::nullopt;
      code = (code & 31u) << 6 | (low & 63u);
      if (code < 128) return std::nullopt;  // overlong form
    }
    if (code >= detail::byte_alphabet.byte.size() || detail::byte_alphabet.byte[code] < 0) return std::nullopt;
    bytes += static_cast<char>(detail::byte_alphabet.byte[code]);
  }
  return bytes;
}

/// Whether one of the tokens is this byte.
inline bool has_byte(std::vector<std::string> const& tokens, unsigned byte) {
  return std::find(tokens.begin(), tokens.end(), std::string(1, static_cast<char>(byte))) != tokens.end();
}
/// Whether bytes that UTF-8 never has are no tokens: the alphabet was learned from text, as SmolLM2's was, and may lack
/// others that its text had not. One that lacks some bytes and has those is damaged.
inline bool has_learned_alphabet(std::vector<std::string> const& tokens) {
  for (unsigned byte = 0xc0; byte < 256; ++byte)
    if ((byte <= 0xc1 || byte >= 0xf5) && has_byte(tokens, byte)) return false;
  return true;
}

}  // namespace tutti::data

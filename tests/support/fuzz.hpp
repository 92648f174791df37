// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Good texts and files damaged at random, from TUTTI_FUZZ_SEED, for TUTTI_FUZZ_SECONDS or a number of turns.

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

/// TUTTI_FUZZ_SECONDS and TUTTI_FUZZ_SEED, or what a test has where they are not set.
inline double fuzz_seconds(double otherwise) {
  char const* const wanted = std::getenv("TUTTI_FUZZ_SECONDS");
  return wanted == nullptr ? otherwise : std::strtod(wanted, nullptr);
}
inline std::uint64_t fuzz_seed(std::uint64_t otherwise) {
  char const* const wanted = std::getenv("TUTTI_FUZZ_SEED");
  return wanted == nullptr ? otherwise : std::strtoull(wanted, nullptr, 10);
}

class Fuzzer {
 public:
  /// `turns` where no time is asked for. `words`: what the format has a meaning for.
  explicit Fuzzer(std::int64_t turns, std::vector<std::string> good, std::vector<std::string> words = {})
      : turns_(turns), good_(std::move(good)), words_(std::move(words)) {
    random_.seed(seed_);
  }

  /// Whether there is another turn. Fails where the one before took so long that a host would call it dead.
  bool next() {
    auto const now = std::chrono::steady_clock::now();
    INFO("seed " << seed_ << ", turn " << turn_);
    REQUIRE(now - turn_began_ < std::chrono::seconds(30));
    turn_began_ = now;
    return turn_++ < turns_ || now - began_ < std::chrono::duration<double>(seconds_);
  }
  std::uint64_t seed() const noexcept { return seed_; }
  std::int64_t turn() const noexcept { return turn_; }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  /// Which of the good ones the last damaged one was made of.
  std::size_t which() const noexcept { return which_; }

  /// One of the good ones, changed at up to four places.
  std::string damaged() { return damaged(below(good_.size())); }
  std::string damaged(std::size_t which) {
    which_ = which;
    std::string text = good_[which];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

 private:
  void change(std::string& text) {
    static constexpr std::uint64_t telling[] = {0,          1,          7,          32,         255,
                                                256,        65'535,     1u << 20,   0x7fffffff, 0x80000000,
                                                0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull};
    std::size_t const at = below(text.size() + 1);
    if (text.empty() || at == text.size()) {
      text += slice();
      return;
    }
    switch (below(10)) {
      case 0: text[at] = static_cast<char>(random_()); break;
      case 1: text[at] = static_cast<char>(text[at] ^ 1 << below(8)); break;
      case 2: text[at] = "\"{}[]()<>|:,.*+?\\/-_=0 9aA\n\r\t\x7f\xc3\xff"[below(33)]; break;
      case 3: text.erase(at, 1 + below(below(8) == 0 ? text.size() : 12)); break;
      case 4: text.resize(at); break;
      case 5: text.insert(at, slice()); break;
      case 6:
        if (!words_.empty()) text.insert(at, words_[below(words_.size())]);
        break;
      case 7: {  // the same again and again: depth, length
        std::string const again = text.substr(at, 1 + below(8));
        std::string many;
        for (std::size_t n = std::size_t{1} << below(12); n > 0; --n) many += again;
        if (text.size() < most) text.insert(at, many);
        break;
      }
      case 8:  // another number, as text
        if (std::size_t const digit = text.find_first_of("0123456789", at); digit != std::string::npos)
          text.replace(digit, 1, std::to_string(telling[below(std::size(telling))]));
        break;
      default:  // and as bytes
        std::memcpy(text.data() + at, &telling[below(std::size(telling))],
                    std::min<std::size_t>(std::size_t{1} << below(4), text.size() - at));
    }
  }
  std::string slice() {
    std::string const& from = good_[below(good_.size())];
    return from.empty() ? std::string() : from.substr(below(from.size()), 1 + below(40));
  }

  static constexpr std::size_t most = 1 << 20;  // bytes, from where on it grows no more
  std::int64_t turns_, turn_ = 0;
  double seconds_ = fuzz_seconds(0);
  std::uint64_t seed_ = fuzz_seed(1);
  std::size_t which_ = 0;
  std::vector<std::string> good_, words_;
  std::mt19937_64 random_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now(), turn_began_ = began_;
};

}  // namespace tutti::test

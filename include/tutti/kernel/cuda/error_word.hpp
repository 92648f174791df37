// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How kernels report what the host would have thrown: in a word of device memory that the host reads later.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <cuda_runtime.h>

#include <cstdint>

namespace tutti::kernel::cuda {

/// What a kernel can find wrong in its input.
enum class Mistake : std::uint8_t { token, target, position, gathered, scattered };

/// The mistake (8 bits), where (24 bits, the last for all beyond), and the value (32 bits). The smallest of all that
/// were reported stays, so that the same input gives the same report.
using ErrorWord = unsigned long long;
inline constexpr ErrorWord no_error = ~ErrorWord{0};

/// `index` is the element's index in its array.
__device__ __forceinline__ void report(ErrorWord* word, Mistake mistake, std::int64_t index, std::int32_t value) {
  constexpr std::int64_t last = (1 << 24) - 1;
  auto const where = static_cast<ErrorWord>(index < last ? index : last);
  atomicMin(word, static_cast<ErrorWord>(mistake) << 56 | where << 32 | static_cast<std::uint32_t>(value));
}

/// Throws what the word tells, unless it is `no_error`. Errors: out_of_range.
template <class = void>
void throw_reported(ErrorWord word) {
  if (word == no_error) return;
  auto const index = static_cast<std::int64_t>(word >> 32 & 0xffffffu);
  auto const value = static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
  switch (static_cast<Mistake>(word >> 56)) {
    case Mistake::token:
      throw Error(ErrorKind::out_of_range, "embedding",
                  concat("token ", value, " at index ", index,
                         " is outside the vocabulary. Tokenize the text with the model's own vocabulary"));
    case Mistake::target:
      throw Error(ErrorKind::out_of_range, "cross_entropy",
                  concat("target ", value, " of row ", index,
                         " is outside the classes. Mark rows that do not count as "
                         "ignored"));
    case Mistake::position:
      throw Error(ErrorKind::out_of_range, "rotary",
                  concat("row ", index, " is at position ", value,
                         ", beyond the table. Make a table of as many positions as the longest sequence"));
    case Mistake::gathered: case Mistake::scattered:
      throw Error(ErrorKind::out_of_range,
                  static_cast<Mistake>(word >> 56) == Mistake::gathered ? "gather" : "scatter_add",
                  concat("index ", value, " at position ", index, " is outside the rows of the table"));
  }
  throw Error(ErrorKind::internal, "cuda", concat("the error word holds ", word));
}

}  // namespace tutti::kernel::cuda

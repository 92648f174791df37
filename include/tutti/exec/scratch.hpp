// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Working memory of kernels: grows to the largest request and stays, so that steady state allocates nothing.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/pages.hpp>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace tutti::exec {

/// One block, aligned to 64 bytes. What it held is lost when it grows.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch const&) = delete;
  Scratch& operator=(Scratch const&) = delete;
  ~Scratch() { std::free(memory_); }

  /// At least `bytes` of memory, the same as before unless more than before is asked for. Errors: out_of_memory.
  template <class = void>
  void* reserve(std::size_t bytes) {
    if (bytes <= bytes_) return memory_;
    // Whole huge pages where it matters: packed panels are walked with large strides.
    std::size_t const page = pages::have_huge && bytes >= pages::huge ? pages::huge : 64;
    std::size_t const rounded = (bytes + page - 1) / page * page;
    void* const grown = rounded < bytes ? nullptr : std::aligned_alloc(page, rounded);
    if (grown == nullptr)
      throw Error(ErrorKind::out_of_memory, "Scratch",
                  concat(bytes, " bytes of working memory could not be allocated"));
    if (page == pages::huge) pages::prefer_huge(grown, rounded);
    std::free(memory_);
    memory_ = grown;
    bytes_ = rounded;
    return memory_;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::exec

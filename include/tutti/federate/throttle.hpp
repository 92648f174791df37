// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// So many bytes a second, and no more.

#include <tutti/federate/policy.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::federate {

/// What is to be sent waits until what was sent before has had its time. Of an idle time nothing is saved up.
class Throttle {
 public:
  /// 0: no limit.
  explicit Throttle(std::int64_t bytes_per_second = 0) : bytes_per_second_(bytes_per_second) {}

  /// How long to wait before the next bytes may go.
  Instant wait(Instant now) const noexcept { return std::max(Instant(0), free_ - now); }
  void sent(std::int64_t bytes, Instant now) noexcept {
    if (bytes_per_second_ <= 0) return;
    free_ = std::max(free_, now) + seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
  }

 private:
  std::int64_t bytes_per_second_;
  Instant free_{0};
};

}  // namespace tutti::federate

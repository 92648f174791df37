// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A worker's parameters when fragments of the model are averaged at times of their own: those that it trains, beside
/// those that all agreed on when it last heard of each fragment.
///
/// Source  Douillard et al. 2025 (Streaming DiLoCo, arXiv 2501.18512).

#include <tutti/core/error.hpp>
#include <tutti/federate/policy.hpp>
#include <tutti/parallel/outer_gradient.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tutti::federate {

/// Flat vectors, one fragment behind another. Version v: outer steps 0 to v - 1 are in what is agreed on.
class Replica {
 public:
  std::int64_t version() const noexcept { return version_; }  ///< -1: there is nothing yet
  std::span<float const> agreed() const noexcept { return agreed_; }
  std::span<float const> local() const noexcept { return local_; }

  void clear() noexcept { version_ = -1; }
  /// Takes over what all agree on after `version` outer steps. Of the run's facts sizes and bits are used.
  void set(Facts const& facts, std::span<std::byte const> parameters, std::int64_t version) {
    agreed_.resize(static_cast<std::size_t>(facts.parameters));
    if (parameters.size() != 4 * agreed_.size())
      throw Error(ErrorKind::internal, "federate::Replica", "parameters of another size");
    std::memcpy(agreed_.data(), parameters.data(), parameters.size());
    local_ = agreed_;
    residual_.assign(facts.bits == parallel::OuterBits::float32 ? 0 : agreed_.size(), 0.0f);
    version_ = version;
    trained_ = false;
  }
  /// What inner steps made of `local`.
  void train(std::span<float const> to) {
    std::copy(to.begin(), to.end(), local_.begin());
    trained_ = true;
  }
  /// Outer step number `version()`, as the shepherd encoded it. The fragment becomes facts.mix times what it is here
  /// plus the rest times what is agreed on; without inner steps since `set`, all of it what is agreed on.
  /// Errors: format.
  void move(Facts const& facts, std::span<std::byte const> step) {
    auto const first = static_cast<std::size_t>(facts.first_of(version_));
    auto const size = static_cast<std::size_t>(facts.size_of(version_));
    std::vector<float> moved(size);
    parallel::decode(facts.bits, step, moved);
    float const own = trained_ ? static_cast<float>(facts.mix) : 0.0f;
    for (std::size_t i = 0; i < size; ++i) {
      float& agreed = agreed_[first + i];
      float& local = local_[first + i];
      agreed += moved[i];
      local = own * local + (1 - own) * agreed;
    }
    ++version_;
  }
  /// Of the fragment of `round`, encoded: agreed minus local, with what rounding took the last time.
  std::vector<std::byte> gradient(Facts const& facts, std::int64_t round) {
    auto const first = static_cast<std::size_t>(facts.first_of(round));
    auto const size = static_cast<std::size_t>(facts.size_of(round));
    std::vector<float> difference(size);
    for (std::size_t i = 0; i < size; ++i) difference[i] = agreed_[first + i] - local_[first + i];
    std::vector<std::byte> encoded(static_cast<std::size_t>(facts.gradient_bytes(round)));
    if (residual_.empty()) parallel::encode(facts.bits, difference, encoded);
    else parallel::encode_with_feedback(facts.bits, difference, std::span(residual_).subspan(first, size), encoded);
    return encoded;
  }

 private:
  std::vector<float> agreed_, local_, residual_;
  std::int64_t version_ = -1;
  bool trained_ = false;  // since `set`
};

}  // namespace tutti::federate

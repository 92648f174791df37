// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The average over ranks of vectors that travel in few bits.

#include <tutti/comm/port.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/parallel/outer_gradient.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// Every rank sends part r of its vector to rank r, which averages the parts in the order of ranks, in float32, and
/// sends the average to all. Both ways in the format asked for, each with what rounding took kept for the next average.
///   start     encodes, and begins to send
///   turn      waits for the parts, averages them, begins to send the average
///   finish    waits for the averages
/// Between them a rank does what it likes. On one rank the average is the vector itself, never rounded.
/// Ranks        all, the same calls in the same order, among those of other averages and of the port.
/// Determinism  same ranks, same values, same residuals: the same bits, and those of every rank.
/// Errors       those of the communicator; format, when some rank's values are not finite (as int8 and int4).
class OuterAverage {
 public:
  /// Errors: out_of_memory. Does not communicate.
  OuterAverage(Shared<comm::Port> port, OuterBits bits, std::int64_t count)
      : port_(std::move(port)), bits_(bits), average_(static_cast<std::size_t>(count)) {
    if (ranks() == 1) return;
    // Whole blocks, so that a block's scale is the same whoever averages it.
    part_ = detail::blocks_of((count + ranks() - 1) / ranks()) * outer_block;
    part_bytes_ = encoded_bytes(bits, part_);
    if (bits != OuterBits::float32) {
      residual_.resize(average_.size());
      part_residual_.resize(static_cast<std::size_t>(mine().second));
    }
    sent_ = graph::Memory(part_bytes_ * ranks(), port_.get());
    received_ = graph::Memory(part_bytes_ * ranks(), port_.get());
    part_sent_ = graph::Memory(part_bytes_, port_.get());
  }
  OuterAverage(OuterAverage&& other) noexcept = default;
  OuterAverage& operator=(OuterAverage&&) = delete;
  /// Where an average is under way it blocks until this rank's part of it is done, so that the memory can go.
  ~OuterAverage() {
    if (!port_ || !ticket_) return;
    try {
      if (std::uncaught_exceptions() == 0) wait();
    } catch (std::exception const&) {  // others have failed, which the next call tells
    }
    if (ticket_) port_->cancel(*ticket_);
  }

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(average_.size()); }
  /// What rounding took of this rank's values, and of the averages that it makes; empty where nothing is rounded.
  std::span<float> residual() noexcept { return residual_; }
  std::span<float> part_residual() noexcept { return part_residual_; }
  /// Bytes that a rank sends for one average.
  std::int64_t bytes_sent() const noexcept { return 2 * part_bytes_ * (ranks() - 1); }

  /// Of memory, beside vectors.
  std::int64_t buffer_bytes() const noexcept { return sent_.bytes() + received_.bytes() + part_sent_.bytes(); }

  /// Does not block. Requires: values.size() == size(), and no average under way.
  void start(std::span<float const> values, std::source_location where = std::source_location::current()) {
    if (ranks() == 1) {
      std::copy(values.begin(), values.end(), average_.begin());
      return;
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      auto const [first, count] = part_of(rank);
      std::span<std::byte> const to = encoded(sent_, rank, count);
      std::span<float const> const part = values.subspan(first, count);
      if (residual_.empty()) encode(bits_, part, to);
      else encode_with_feedback(bits_, part, std::span(residual_).subspan(first, count), to);
    }
    ticket_ = port_->start_all_to_all(sent_.data(), received_.data(), part_bytes_, DType::byte, where);
  }
  /// Blocking.
  void turn(std::source_location where = std::source_location::current()) {
    if (ranks() == 1) return;
    wait();
    auto const [first, count] = mine();
    std::span<float> const sum = std::span(average_).subspan(first, count);
    std::vector<float> part(count);
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int rank = 0; rank < ranks(); ++rank) {
      decode(bits_, encoded(received_, rank, count), part);
      for (std::size_t i = 0; i < count; ++i) sum[i] += part[i];
    }
    float const share = 1.0f / static_cast<float>(ranks());
    for (float& value : sum) value *= share;
    std::span<std::byte> const to = encoded(part_sent_, 0, count);
    if (part_residual_.empty()) encode(bits_, sum, to);
    else encode_with_feedback(bits_, sum, part_residual_, to);
    ticket_ = port_->start_all_gather(part_sent_.data(), received_.data(), part_bytes_, DType::byte, where);
  }
  /// Blocking. The same values on every rank, valid until the next `start`.
  std::span<float const> finish() {
    if (ranks() == 1) return average_;
    wait();
    for (int rank = 0; rank < ranks(); ++rank) {
      auto const [first, count] = part_of(rank);
      decode(bits_, encoded(received_, rank, count), std::span(average_).subspan(first, count));
    }
    return average_;
  }

 private:
  int ranks() const noexcept { return port_->size(); }
  /// Where rank `rank`'s part begins, and its size: parts are alike but for the last ones.
  std::pair<std::size_t, std::size_t> part_of(int rank) const noexcept {
    auto const all = static_cast<std::int64_t>(average_.size());
    std::int64_t const first = std::min(all, part_ * rank);
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(part_, all - first))};
  }
  std::pair<std::size_t, std::size_t> mine() const noexcept { return part_of(port_->rank()); }
  std::span<std::byte> encoded(graph::Memory const& memory, int at, std::size_t count) const noexcept {
    return {memory.data() + part_bytes_ * at,
            static_cast<std::size_t>(encoded_bytes(bits_, static_cast<std::int64_t>(count)))};
  }
  void wait() {
    port_->wait(*ticket_);
    ticket_.reset();
  }

  Shared<comm::Port> port_;
  OuterBits bits_;
  std::int64_t part_ = 0, part_bytes_ = 0;
  std::vector<float> average_, residual_, part_residual_;
  graph::Memory sent_, received_, part_sent_;
  std::optional<comm::Port::Ticket> ticket_;
};

}  // namespace tutti::parallel

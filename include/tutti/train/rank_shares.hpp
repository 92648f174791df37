// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Shares of a step's sequences by how fast ranks are: where all have as many, all wait for the slowest.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>
#include <tutti/data/loader.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/parallel/data_parallel.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// As near to proportional to the weights as whole numbers are, contiguous and in order, none empty. Equal weights:
/// data::share_of(total, part, parts). Requires total >= the number of weights, which are above 0.
inline data::Share weighted_share(std::int64_t total, std::size_t part, std::vector<double> const& weights) {
  double sum = 0;
  for (double const weight : weights) sum += weight;
  std::vector<double> ideal;
  std::vector<std::int64_t> counts;
  std::int64_t given = 0;
  for (double const weight : weights) {
    ideal.push_back(static_cast<double>(total) * weight / sum);
    counts.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(ideal.back())));
    given += counts.back();
  }
  auto const lack = [&](std::size_t i) { return ideal[i] - static_cast<double>(counts[i]); };
  for (; given != total; given += given < total ? 1 : -1) {
    std::size_t best = counts.size();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (given > total && counts[i] == 1) continue;
      if (best == counts.size() || (given < total ? lack(i) > lack(best) : lack(i) < lack(best))) best = i;
    }
    counts[best] += given < total ? 1 : -1;
  }
  data::Share share{0, counts[part]};
  for (std::size_t i = 0; i < part; ++i) share.begin += counts[i];
  return share;
}

/// What --rank-shares says: "even", "auto", or a number above 0 for each rank, as "2,1,1".
class RankShares {
 public:
  /// Errors: configuration.
  explicit RankShares(std::string const& text) : measured_(text == "auto") {
    if (measured_ || text == "even") return;
    for (std::size_t at = 0; at <= text.size();) {
      std::size_t const end = std::min(text.find(',', at), text.size());
      double weight = 0;
      if (!setting::parse(text.substr(at, end - at), weight) || !std::isfinite(weight) || weight <= 0 || weight > 1e6)
        refuse(text, "is even, auto, or a number above 0 for each rank, as 2,1,1");
      weights_.push_back(weight);
      at = end + 1;
    }
  }

  bool measured() const noexcept { return measured_; }
  /// Empty where they are even or to be measured.
  std::vector<double> const& weights() const noexcept { return weights_; }

  /// Of ranks that measured these speeds. Even where none is a tenth faster than another: that is less than two
  /// measurements differ by.
  static std::vector<double> of_speeds(std::vector<double> speeds) {
    auto const [least, most] = std::minmax_element(speeds.begin(), speeds.end());
    if (*least <= 0 || *most < 1.1 * *least) return std::vector<double>(speeds.size(), 1);
    double const fastest = *most;
    for (double& speed : speeds) speed = std::max(0.01, std::round(100 * speed / fastest) / 100);
    return speeds;
  }

 private:
  [[noreturn]] static void refuse(std::string const& text, std::string const& why) {
    throw Error(ErrorKind::configuration, "train", concat("--rank-shares ", text, " ", why));
  }

  bool measured_;
  std::vector<double> weights_;
};

/// Speeds of all ranks of `data`, which share out a batch; those that have a model together are as fast as their
/// slowest. Ranks: all of `everyone`, which measure at the same time, for half a second. Blocking.
template <class Machine>
std::vector<double> measured_shares(Machine& machine, DType compute, comm::Port& everyone, comm::Port& data) {
  parallel::barrier(everyone);
  // The mean of many short times: another program on the processor counts as it will in a step.
  double seconds_for_one = 0;
  std::int64_t const end = exec::now_ns() + 500'000'000;
  int tries = 0;
  for (; tries == 0 || exec::now_ns() < end; ++tries) seconds_for_one += 1 / machine.measure_peak_flops(compute);
  std::vector<double> slowness(static_cast<std::size_t>(data.size()));
  slowness[static_cast<std::size_t>(data.rank())] = seconds_for_one / tries;
  parallel::all_reduce(everyone, slowness, comm::PortOp::max);
  for (double& one : slowness) one = 1 / one;
  return RankShares::of_speeds(std::move(slowness));
}

}  // namespace tutti::train

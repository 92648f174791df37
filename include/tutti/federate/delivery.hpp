// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd looks at before a contribution counts: whether the offer can be of its lease, and whether what has
/// arrived is what was offered, decodes, and is finite.

#include <tutti/federate/assembly.hpp>
#include <tutti/federate/merge.hpp>
#include <tutti/federate/message.hpp>
#include <tutti/federate/policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::federate {

/// `leased` samples, `round` being worked on.
inline bool fits_lease(Offer const& offer, std::int64_t leased, std::int64_t round, Facts const& facts) noexcept {
  return offer.bytes == facts.gradient_bytes(std::max<std::int64_t>(offer.round, 0)) && offer.samples >= facts.batch &&
         offer.samples <= leased && offer.samples % facts.batch == 0 && offer.round >= 0 && offer.round <= round &&
         std::isfinite(offer.loss) && std::isfinite(offer.seconds) && offer.seconds >= 0;
}

/// The contribution, or why it is none. Requires: complete.
inline std::variant<Contribution, std::string> examine(std::uint64_t worker, Offer const& offer,
                                                       Assembly const& incoming, Facts const& facts) {
  if (!incoming.intact()) return "it is not what its checksum says";
  Contribution one;
  one.lease = offer.lease;
  one.worker = worker;
  one.round = offer.round;
  one.samples = offer.samples;
  one.steps = offer.samples / facts.batch;
  one.loss = offer.loss;
  one.seconds = offer.seconds;
  one.gradient.resize(static_cast<std::size_t>(facts.size_of(offer.round)));
  try {
    parallel::decode(facts.bits, incoming.bytes(), one.gradient);
  } catch (Error const& error) {
    return error.message();
  }
  std::optional<double> const norm = finite_norm(one.gradient);
  if (!norm) return "values of it are not finite";
  one.norm = *norm;
  return one;
}

}  // namespace tutti::federate

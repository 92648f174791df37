// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Outer steps on their way to workers: how a fragment moved, in as few bits as outer gradients have, and whole
/// parameters for those who have none or have missed too much.

#include <tutti/core/hash.hpp>
#include <tutti/federate/policy.hpp>
#include <tutti/federate/shepherd_actions.hpp>
#include <tutti/parallel/outer_gradient.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti::federate {

/// The parameters after `round` outer steps, held while somebody fetches them.
struct Whole {
  std::int64_t round = 0;
  std::uint64_t checksum = 0;
  std::vector<float> parameters;
};

class OuterMoves {
 public:
  struct Move {
    std::int64_t round = 0;  ///< outer steps done with it
    std::uint64_t checksum = 0;
    std::vector<std::byte> bytes;
  };

  /// The model makes outer step number `round`; afterwards its parameters are what everybody comes to who adds the
  /// encoded move. What rounding took is part of the next step of the fragment.
  void step(OuterModel& model, Facts const& facts, std::int64_t round, std::span<float const> gradient) {
    auto const first = static_cast<std::size_t>(facts.first_of(round));
    auto const size = static_cast<std::size_t>(facts.size_of(round));
    std::span<float> const at = model.parameters().subspan(first, size);
    std::vector<float> const before(at.begin(), at.end());
    model.step(facts.fragment_of(round), gradient);
    std::vector<float> moved(size);
    for (std::size_t i = 0; i < size; ++i) moved[i] = at[i] - before[i];
    Move move{round + 1, 0, std::vector<std::byte>(static_cast<std::size_t>(facts.gradient_bytes(round)))};
    if (facts.bits == parallel::OuterBits::float32) {
      parallel::encode(facts.bits, moved, move.bytes);
    } else {
      residual_.resize(static_cast<std::size_t>(facts.parameters));
      parallel::encode_with_feedback(facts.bits, moved, std::span(residual_).subspan(first, size), move.bytes);
    }
    move.checksum = hash_bytes(move.bytes);
    bool finite = true;
    for (float const value : moved) finite = finite && std::isfinite(value);
    if (finite) parallel::decode(facts.bits, move.bytes, moved);  // else the caller sees what became of it
    for (std::size_t i = 0; i < size; ++i) at[i] = before[i] + moved[i];
    moves_.push_back(std::move(move));
    while (std::cmp_greater(moves_.size(), 4 * facts.fragments.size())) moves_.pop_front();
  }
  /// The step to `round` outer steps, or null where it is kept no more.
  Move const* find(std::int64_t round) const noexcept {
    for (Move const& move : moves_)
      if (move.round == round) return &move;
    return nullptr;
  }
  /// Whether all steps from `version` to `round` are kept.
  bool reach(std::int64_t version, std::int64_t round) const noexcept {
    return version == round || (version >= 0 && version < round && find(version + 1) != nullptr);
  }
  /// A copy of the parameters, which are those after `round` outer steps; the same for all who ask meanwhile.
  std::shared_ptr<Whole const> whole(std::span<float const> parameters, std::int64_t round) {
    std::shared_ptr<Whole const> held = whole_.lock();
    if (held && held->round == round) return held;
    held = std::make_shared<Whole>(
        Whole{round, hash_bytes(std::as_bytes(parameters)), {parameters.begin(), parameters.end()}});
    whole_ = held;
    return held;
  }

 private:
  std::deque<Move> moves_;
  std::vector<float> residual_;
  std::weak_ptr<Whole const> whole_;
};

}  // namespace tutti::federate

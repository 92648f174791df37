// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// DiLoCo: every rank trains a replica for many inner steps with an optimizer of its own, then all average how far they
/// came and move the parameters they agree on by that, with momentum. Traffic falls by the number of inner steps.
///
/// Source  Douillard et al. 2023 (arXiv 2311.08105); fragments, overlap and few bits: Douillard et al. 2025 (Streaming
/// DiLoCo, arXiv 2501.18512).

#include <tutti/comm/port.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/parallel/outer_average.hpp>
#include <tutti/parallel/outer_optimizer.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

struct DilocoOptions {
  std::int64_t inner_steps = 30;  ///< from one average of a fragment to its next
  OuterOptions outer{};
  int fragments = 1;              ///< averaged one after another, evenly over the inner steps
  OuterBits bits = OuterBits::float32;
  std::int64_t overlap = 0;       ///< inner steps for which an average travels while training goes on
  /// With an overlap: the share of a replica's own parameters when it takes over what all agree on.
  double mix = 0.5;
  /// Of this rank's outer gradients; the mean over ranks is 1. The tokens of a step on this rank over their mean.
  double weight = 1;
};

/// Borrows the context and the replica's state, whose parameters (float32) it reads and overwrites in `after_step`.
/// Ranks        all, with the same options but for `weight`.
/// Determinism  same ranks, same replicas: bitwise the same.
class Diloco {
 public:
  /// Errors: configuration. Does not communicate.
  Diloco(exec::Context& context, Shared<comm::Port> port, graph::State& replica, DilocoOptions const& options)
      : replica_(replica),
        options_(checked(options)),
        fragments_(fragments_of(replica, options.fragments)),
        outer_(context, sizes(fragments_), options.outer) {
    for (Fragment const& fragment : fragments_) flights_.emplace_back(port, options.bits, size(fragment));
  }

  DilocoOptions const& options() const noexcept { return options_; }
  /// Bytes that a rank sends from one average of a fragment to its next.
  std::int64_t bytes_per_round() const noexcept {
    std::int64_t bytes = 0;
    for (Flight const& flight : flights_) bytes += flight.average.bytes_sent();
    return bytes;
  }

  /// Of memory, beside the replica.
  std::int64_t bytes() const noexcept {
    std::int64_t floats = 0, sent = 0;
    for (Flight const& flight : flights_) {
      // What all agree on, momentum, mean, average, and what rounding took.
      floats += flight.average.size() * (options_.bits == OuterBits::float32 ? 4 : 5);
      sent += flight.average.buffer_bytes();
    }
    return 4 * floats + sent;
  }

  /// The replica's parameters, the same on every rank, are what all agree on. Momentum starts at zero.
  void begin() {
    for (int f = 0; f < outer_.fragments(); ++f) {
      gather(replica_, fragment(f), outer_.parameters(f));
      std::span<float> const momentum = outer_.momentum(f);
      std::fill(momentum.begin(), momentum.end(), 0.0f);
    }
  }

  /// What is due when the replica has done inner step number `done`, counted from 1 since the beginning of training.
  /// Ranks     all, after every inner step. Blocking where averages are exchanged.
  /// Returns   nanoseconds for which this rank waited for others and for its own part of the exchange.
  /// Errors    those of the communicator; format, for outer gradients that are not finite.
  std::int64_t after_step(std::int64_t done, std::source_location where = std::source_location::current()) {
    std::int64_t const begin = exec::now_ns();
    for (int f = 0; f < outer_.fragments(); ++f)
      if (is_due(f, done)) send(f, done, where);
    for (int f = 0; f < outer_.fragments(); ++f) {
      Flight& flight = flights_[static_cast<std::size_t>(f)];
      if (flight.started >= 0 && !flight.turned && done - flight.started >= (options_.overlap + 1) / 2) turn(flight);
    }
    for (int f = 0; f < outer_.fragments(); ++f)
      if (Flight const& flight = flights_[static_cast<std::size_t>(f)];
          flight.started >= 0 && done - flight.started >= options_.overlap)
        apply(f);
    return exec::now_ns() - begin;
  }

  /// The replica's parameters change places with those that all agree on, for whoever measures, samples or keeps the
  /// model; the second call changes them back.
  void exchange() {
    for (int f = 0; f < outer_.fragments(); ++f) parallel::exchange(replica_, fragment(f), outer_.parameters(f));
  }

  /// What has to be kept so that training goes on as if it had not stopped, beside the replica's state while
  /// `exchange` is in force: the same on every rank, and this rank's own. Averages that are under way arrive first.
  /// Ranks: all, at the same step. Blocking.
  struct Kept {
    graph::State agreed, own;
  };
  Kept keep() {
    Kept kept;
    for (int f = 0; f < outer_.fragments(); ++f) {
      Flight& flight = flights_[static_cast<std::size_t>(f)];
      if (flight.started >= 0) {
        if (!flight.turned) turn(flight);
        if (!flight.arrived) arrive(flight);
        write(kept.agreed, "outer.average.", fragment(f), flight.mean);
        kept.agreed.add("outer.started." + std::to_string(f), DType::int64, {})->view<std::int64_t>().data()[0] =
            flight.started;
      }
      write(kept.agreed, "outer.momentum.", fragment(f), outer_.momentum(f));
      write(kept.own, "replica.", fragment(f), outer_.parameters(f));  // exchanged: the replica's
      if (std::span<float> const residual = flight.average.residual(); !residual.empty()) {
        write(kept.own, "residual.", fragment(f), residual);
        std::span<float> const part = flight.average.part_residual();
        graph::Field* const field = kept.own.add("part_residual." + std::to_string(f), DType::float32,
                                                 {static_cast<std::int64_t>(part.size())});
        std::copy(part.begin(), part.end(), field->view<float>().data());
      }
    }
    return kept;
  }
  /// After `begin` with the parameters that all agree on: takes up what `keep` gave. `own` may be another rank's where
  /// the number of ranks has changed, and lack what other options would have kept: rounding starts afresh then.
  /// Errors: configuration, when averages were under way and the fragments are others now.
  void resume(graph::State const& agreed, graph::State const& own) {
    for (int f = 0; f < outer_.fragments(); ++f) {
      Flight& flight = flights_[static_cast<std::size_t>(f)];
      read(agreed, "outer.momentum.", fragment(f), outer_.momentum(f));
      std::vector<float> local(static_cast<std::size_t>(size(fragment(f))));
      if (read(own, "replica.", fragment(f), local)) scatter(local, fragment(f), replica_);
      read(own, "residual.", fragment(f), flight.average.residual());
      std::span<float> const part = flight.average.part_residual();
      if (graph::Field const* const field = own.find("part_residual." + std::to_string(f));
          field != nullptr && field->shape.size() == static_cast<std::int64_t>(part.size()))
        std::copy_n(field->view<float>().data(), part.size(), part.begin());
    }
    for (graph::Field const& field : agreed.fields()) {
      if (!field.name.starts_with("outer.started.")) continue;
      int const f = std::stoi(field.name.substr(field.name.rfind('.') + 1));
      bool const known = f < outer_.fragments();
      Flight* const flight = known ? &flights_[static_cast<std::size_t>(f)] : nullptr;
      if (known) flight->mean.resize(static_cast<std::size_t>(size(fragment(f))));
      if (!known || !read(agreed, "outer.average.", fragment(f), flight->mean))
        throw Error(ErrorKind::configuration, "Diloco",
                    "averages of other fragments were under way. Resume with the number of fragments of before");
      flight->started = field.view<std::int64_t>().data()[0];
      flight->turned = flight->arrived = true;
    }
  }

 private:
  struct Flight {
    Flight(Shared<comm::Port> const& port, OuterBits bits, std::int64_t count) : average(port, bits, count) {}
    OuterAverage average;
    std::vector<float> mean;    // once arrived
    std::int64_t started = -1;  // the step at which it was sent; -1: not under way
    bool turned = false, arrived = false;
  };

  static DilocoOptions const& checked(DilocoOptions const& o) {
    auto const refuse = [](std::string const& what) { throw Error(ErrorKind::configuration, "Diloco", what); };
    if (o.inner_steps < 1) refuse("inner steps must be at least 1");
    if (o.fragments > o.inner_steps)
      refuse(std::to_string(o.fragments) + " fragments need at least as many inner steps, not " +
             std::to_string(o.inner_steps));
    if (o.overlap < 0 || o.overlap >= o.inner_steps)
      refuse("an overlap of " + std::to_string(o.overlap) + " steps is not below the " +
             std::to_string(o.inner_steps) + " inner steps");
    if (!(o.mix >= 0 && o.mix <= 1)) refuse("the mix must be from 0 to 1");
    if (!(o.weight > 0)) refuse("the weight of a rank must be above 0");
    return o;
  }
  static std::vector<std::int64_t> sizes(std::vector<Fragment> const& fragments) {
    std::vector<std::int64_t> all;
    for (Fragment const& fragment : fragments) all.push_back(size(fragment));
    return all;
  }
  Fragment const& fragment(int f) const noexcept { return fragments_[static_cast<std::size_t>(f)]; }
  /// Fragment f's turn comes f / fragments of the inner steps before that of fragment 0.
  bool is_due(int f, std::int64_t done) const noexcept {
    std::int64_t const early = options_.inner_steps * f / options_.fragments;
    return done >= 1 && (done + early) % options_.inner_steps == 0;
  }

  void send(int f, std::int64_t done, std::source_location where) {
    Flight& flight = flights_[static_cast<std::size_t>(f)];
    std::vector<float>& gradient = flight.mean;
    gradient.resize(static_cast<std::size_t>(size(fragment(f))));
    gather(replica_, fragment(f), gradient);
    std::span<float const> const agreed = outer_.parameters(f);
    auto const weight = static_cast<float>(options_.weight);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = weight * (agreed[i] - gradient[i]);
    flight.average.start(gradient, where);
    flight.started = done;
    flight.turned = flight.arrived = false;
  }
  static void turn(Flight& flight) {
    flight.average.turn();
    flight.turned = true;
  }
  static void arrive(Flight& flight) {
    std::span<float const> const mean = flight.average.finish();
    flight.mean.assign(mean.begin(), mean.end());
    flight.arrived = true;
  }
  void apply(int f) {
    Flight& flight = flights_[static_cast<std::size_t>(f)];
    if (!flight.arrived) arrive(flight);
    outer_.step(f, flight.mean);
    std::span<float const> const agreed = outer_.parameters(f);
    if (options_.overlap == 0) {
      scatter(agreed, fragment(f), replica_);
    } else {
      std::vector<float>& local = flight.mean;
      gather(replica_, fragment(f), local);
      auto const own = static_cast<float>(options_.mix);
      for (std::size_t i = 0; i < local.size(); ++i) local[i] = own * local[i] + (1 - own) * agreed[i];
      scatter(local, fragment(f), replica_);
    }
    flight.started = -1;
  }

  /// A flat vector of `fragment` under the names of its parameters.
  void write(graph::State& to, std::string const& prefix, Fragment const& fragment, std::span<float const> from) {
    Fragment renamed = fragment;
    for (Piece& piece : renamed) {
      graph::Field const& field = replica_.at(piece.field);
      piece.field = prefix + piece.field;
      to.add(piece.field, DType::float32, field.shape);
    }
    scatter(from, renamed, to);
  }
  /// False where it is not there, and `to` stays as it is.
  bool read(graph::State const& from, std::string const& prefix, Fragment const& fragment, std::span<float> to) const {
    if (to.empty()) return false;
    Fragment renamed = fragment;
    for (Piece& piece : renamed) {
      graph::Field const* const field = from.find(prefix + piece.field);
      if (field == nullptr || !(field->shape == replica_.find(piece.field)->shape)) return false;
      piece.field = field->name;
    }
    gather(from, renamed, to);
    return true;
  }

  graph::State& replica_;
  DilocoOptions options_;
  std::vector<Fragment> fragments_;
  OuterOptimizer outer_;
  std::vector<Flight> flights_;
};

}  // namespace tutti::parallel

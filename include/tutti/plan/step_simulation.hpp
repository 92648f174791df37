// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Replays the steps of a rank's program as tasks of a simulation: steps one after another on the device, collectives
/// on their links beside them, from where the program starts them to where it waits.

#include <tutti/graph/steps.hpp>
#include <tutti/plan/collective_cost.hpp>
#include <tutti/plan/programs.hpp>
#include <tutti/plan/simulation.hpp>
#include <tutti/plan/step_times.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::plan {

/// Parts of a program, by what stands where in it.
enum class Phase : unsigned char { forward, head, backward, update };

/// The phase of every step. The loss stands between the last layer of the forward pass and the first of the backward
/// pass; updates, and what they need, behind the last gradient.
inline std::vector<Phase> phases_of(graph::StepList const& list) {
  using graph::StepKind;
  std::size_t const count = list.steps.size();
  std::vector<Phase> phases(count, Phase::forward);
  std::int32_t last_layer = -1;
  for (graph::Step const& step : list.steps) last_layer = std::max(last_layer, step.layer);
  std::size_t head = 0, backward = count;
  if (last_layer < 0) {
    for (std::size_t s = 0; s < count; ++s)
      if (list.steps[s].kind == StepKind::linear_cross_entropy || list.steps[s].kind == StepKind::cross_entropy)
        head = s, backward = s + 1, s = count;
  } else {
    while (list.steps[head].layer != last_layer) ++head;
    while (head < count && list.steps[head].layer == last_layer) ++head;  // the loss belongs to no layer
    backward = head;
    while (backward < count && list.steps[backward].layer < 0) ++backward;
  }
  bool updates = false;
  for (std::size_t s = head; s < count; ++s) {
    StepKind const kind = list.steps[s].kind;
    updates |= s >= backward && (kind == StepKind::square_sum || kind == StepKind::adamw);
    phases[s] = updates && list.steps[s].layer < 0 ? Phase::update : s < backward ? Phase::head : Phase::backward;
  }
  return phases;
}

/// What a pass of a program takes.
struct PassTimes {
  double seconds = 0;          ///< all of it
  double compute = 0;          ///< of steps
  double exposed = 0;          ///< waits for collectives, and those that the device makes itself
  double held = 0;             ///< bytes that a rank's library keeps of collectives under way, at most
  std::array<double, 4> phase{};  ///< seconds of steps, by Phase
};

/// Bytes that a rank sends, by axis; inside its node and to others.
struct Traffic {
  std::array<double, graph::mesh_axes> inside{}, between{};

  double all() const noexcept {
    double bytes = 0;
    for (int axis = 0; axis < graph::mesh_axes; ++axis)
      bytes += inside[static_cast<std::size_t>(axis)] + between[static_cast<std::size_t>(axis)];
    return bytes;
  }
  void add(graph::MeshAxis axis, TransferCost const& cost, double times = 1) {
    inside[static_cast<std::size_t>(axis)] += cost.inside * times;
    between[static_cast<std::size_t>(axis)] += cost.between * times;
  }
  void add(Traffic const& other, double times) {
    for (std::size_t axis = 0; axis < graph::mesh_axes; ++axis) {
      inside[axis] += other.inside[axis] * times;
      between[axis] += other.between[axis] * times;
    }
  }
};

/// How a layout's groups of ranks lie, and what their collectives cost.
class AxisCosts {
 public:
  /// Errors: configuration, for groups that do not fit nodes evenly.
  AxisCosts(Layout const& layout, Cluster const& cluster) : layout_(layout), cluster_(cluster) {
    for (int axis = 0; axis < 3; ++axis)
      groups_[static_cast<std::size_t>(axis)] = group_of(layout, static_cast<graph::MeshAxis>(axis), cluster);
    node_.ranks = node_.in_node = std::min(cluster.devices_per_node, layout.ranks());
  }
  Group const& group(graph::MeshAxis axis) const { return groups_[static_cast<std::size_t>(axis)]; }
  /// Ranks of a node that are members of other groups of the axis, and send at the same time.
  int sharing(graph::MeshAxis axis) const {
    return std::max(1, node_.in_node / std::max(1, group(axis).in_node));
  }
  Cluster const& cluster() const noexcept { return cluster_; }
  TransferCost operator()(Collective kind, double bytes, graph::MeshAxis axis) const {
    return cost_of(kind, bytes, group(axis), cluster_, sharing(axis));
  }
  /// Of the ranks that share out updates.
  TransferCost of_division(Collective kind, double bytes) const {
    return layout_.zero > 0 ? (*this)(kind, bytes, graph::MeshAxis::data) : cost_of(kind, bytes, node_, cluster_);
  }

 private:
  Layout layout_;
  Cluster cluster_;
  std::array<Group, graph::mesh_axes> groups_{};
  Group node_;
};

namespace detail {

/// A collective that a step starts or makes. False where it is none.
inline bool collective_of(graph::Step const& step, Collective& kind, double& bytes) {
  using graph::StepKind;
  switch (step.kind) {
    case StepKind::all_reduce_start:
      kind = step.scatter ? Collective::reduce_scatter : Collective::all_reduce;
      bytes = static_cast<double>(graph::sent_elements(step)) *
              static_cast<double>(size_of(step.reads.front().dtype));
      return true;
    case StepKind::broadcast: kind = Collective::broadcast; break;
    case StepKind::all_gather: kind = Collective::all_gather; break;
    case StepKind::reduce_scatter:
    case StepKind::all_to_all: kind = Collective::reduce_scatter; break;
    case StepKind::send_receive: kind = Collective::broadcast; break;
    case StepKind::node_sum: kind = Collective::all_reduce; break;
    case StepKind::node_barrier: kind = Collective::barrier; break;
    default: return false;
  }
  bytes = step.kind == StepKind::node_barrier ? 0
          : step.kind == StepKind::all_gather ? static_cast<double>(step.writes.front().bytes())
                                              : static_cast<double>(step.reads.front().bytes());
  return true;
}

}  // namespace detail

/// Gathers of parameters under ZeRO's stage 3, layer by layer: each while the layer before is computed.
struct LayerGather {
  double bytes = 0;  ///< of a layer's parameters; 0: they are whole everywhere
};

/// The device waits for a collective: it goes to it when `from` is done, and goes on when `until` is.
struct WaitFor {
  Simulation::Task from = -1, until = -1;
};

/// Adds the tasks of one pass to `simulation`, on this device's resource and those of its links by axis, behind
/// `after`. Returns the last task.
inline Simulation::Task add_pass(Simulation& simulation, graph::StepList const& list, StepTimes const& times,
                                 AxisCosts const& costs, Simulation::Resource device,
                                 std::array<Simulation::Resource, graph::mesh_axes> const& links,
                                 LayerGather const& gather, PassTimes& told, Traffic& traffic,
                                 std::vector<WaitFor>& waits, Simulation::Task after = -1) {
  using Kind = Simulation::Kind;
  using Task = Simulation::Task;
  using graph::StepKind;
  constexpr Kind kinds[] = {Kind::forward, Kind::head, Kind::backward, Kind::update};
  std::vector<Phase> const phases = phases_of(list);
  // A collective under way, and what the library keeps of it: until a step waits for it, since it completes it at its
  // leisure.
  struct UnderWay {
    Task sent = -1;
    double held = 0;
  };
  std::vector<UnderWay> slots;
  UnderWay gathered;
  Task last = after;
  double held = 0;
  std::pair<Phase, std::int32_t> layer{Phase::forward, -1};
  auto const transfer = [&](TransferCost const& cost, graph::MeshAxis axis) {
    traffic.add(axis, cost);
    if (cost.by_device) told.exposed += cost.seconds;
    Task const sent = simulation.task(cost.by_device ? device : links[static_cast<std::size_t>(axis)], cost.seconds,
                                      Kind::transfer, {last});
    told.held = std::max(told.held, held += cost.held);
    return UnderWay{sent, cost.held};
  };
  auto const wait_for = [&](UnderWay const& one) {
    waits.push_back({last, one.sent});
    last = simulation.task(device, 0, Kind::wait, {last, one.sent});
    held -= one.held;
  };
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    graph::Step const& step = list.steps[s];
    Collective kind{};
    double bytes = 0;
    if (graph::is_wait(step.kind)) {
      wait_for(slots.at(static_cast<std::size_t>(step.slot)));
      continue;
    }
    if (detail::collective_of(step, kind, bytes)) {
      bool const division = step.kind == StepKind::node_sum || step.kind == StepKind::node_barrier;
      TransferCost const cost = division ? costs.of_division(kind, bytes) : costs(kind, bytes, step.mesh_axis);
      UnderWay const sent = transfer(cost, step.mesh_axis);
      if (step.slot >= 0) {
        slots.resize(std::max(slots.size(), static_cast<std::size_t>(step.slot) + 1));
        slots[static_cast<std::size_t>(step.slot)] = sent;
      } else {
        wait_for(sent);
      }
      continue;
    }
    Phase const phase = phases[s];
    if (gather.bytes > 0 && step.layer >= 0 && phase != Phase::update && layer != std::pair(phase, step.layer)) {
      layer = {phase, step.layer};
      if (gathered.sent < 0)
        gathered = transfer(costs(Collective::all_gather, gather.bytes, graph::MeshAxis::data), graph::MeshAxis::data);
      wait_for(gathered);
      // The next layer's; behind the last one of the backward pass there is none.
      gathered = transfer(costs(Collective::all_gather, phase == Phase::backward && step.layer == 0 ? 0 : gather.bytes,
                                graph::MeshAxis::data),
                          graph::MeshAxis::data);
    }
    double const seconds = times.seconds(step);
    told.compute += seconds;
    told.phase[static_cast<std::size_t>(phase)] += seconds;
    last = simulation.task(device, seconds, kinds[static_cast<std::size_t>(phase)], {last});
  }
  return last;
}

/// One pass, simulated alone. `picture`, where it is not null, becomes its simulation.
inline PassTimes simulate_pass(graph::StepList const& list, StepTimes const& times, AxisCosts const& costs,
                               LayerGather const& gather, Traffic& traffic, Simulation* picture = nullptr) {
  Simulation simulation;
  PassTimes told;
  std::vector<WaitFor> waits;
  Simulation::Resource const device = simulation.resource("device");
  std::array<Simulation::Resource, graph::mesh_axes> links{};
  // Axes whose ranks are on several nodes share the node's link.
  int const between = simulation.resource("between nodes"), inside = simulation.resource("inside nodes");
  Cluster const& cluster = costs.cluster();
  simulation.overlap(between, device, cluster.between.burden, cluster.between.stretch);
  simulation.overlap(inside, device, cluster.inside.burden, cluster.inside.stretch);
  for (int axis = 0; axis < graph::mesh_axes; ++axis)
    links[static_cast<std::size_t>(axis)] =
        costs.group(static_cast<graph::MeshAxis>(axis)).nodes > 1 ? between : inside;
  add_pass(simulation, list, times, costs, device, links, gather, told, traffic, waits);
  told.seconds = simulation.run();
  for (WaitFor const& one : waits)
    if (one.until >= 0)
      told.exposed += std::max(0.0, simulation.end(one.until) - (one.from >= 0 ? simulation.end(one.from) : 0.0));
  told.exposed = std::min(told.exposed, told.seconds - told.compute);
  if (picture != nullptr) *picture = std::move(simulation);
  return told;
}

}  // namespace tutti::plan

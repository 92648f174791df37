// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How long collectives take over links, from their bytes: rings between devices (Patarasuk, Yuan 2009), one pass where
/// devices share memory, and of groups over several nodes a ring inside and one between (Cho et al. 2019).

#include <tutti/core/error.hpp>
#include <tutti/plan/cluster.hpp>
#include <tutti/plan/layout.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::plan {

enum class Collective : unsigned char { all_reduce, reduce_scatter, all_gather, broadcast, barrier };

/// Of one rank.
struct TransferCost {
  double seconds = 0;
  double inside = 0, between = 0;  ///< bytes that it sends to others of its node, and to other nodes
  bool by_device = false;          ///< the device itself makes it, and computes nothing meanwhile
  double held = 0;                 ///< bytes that a rank's library keeps until it is waited for
};

/// Of a ring of `ranks`, in which every stage sends `bytes / ranks`, all links at once: 2 (ranks - 1) stages for a sum,
/// ranks - 1 for half of it. `bytes` is all of the tensor, of what is gathered the result.
struct Ring {
  int stages = 0;
  double bytes_a_stage = 0;

  double bytes() const noexcept { return stages * bytes_a_stage; }
  double seconds(double latency, double bandwidth) const noexcept {
    return stages == 0 ? 0 : stages * (latency + (bytes_a_stage > 0 ? bytes_a_stage / bandwidth : 0));
  }
};
constexpr Ring ring(Collective kind, double bytes, int ranks) noexcept {
  if (ranks <= 1) return {};
  switch (kind) {
    case Collective::all_reduce: return {2 * (ranks - 1), bytes / ranks};
    case Collective::barrier: return {2 * (ranks - 1), 0};
    case Collective::reduce_scatter: case Collective::all_gather: return {ranks - 1, bytes / ranks};
    // Scattered, then gathered (van de Geijn): half of a sum's way twice.
    case Collective::broadcast: return {2 * (ranks - 1), bytes / ranks};
  }
  return {};
}

/// Bytes a second of a collective's bytes over a link.
inline double rate(Link const& link, Collective kind) noexcept {
  if (kind == Collective::all_gather && link.gather > 0) return link.gather;
  if (kind == Collective::reduce_scatter && link.scatter > 0) return link.scatter;
  return link.bandwidth;
}

/// Bytes that a rank's library keeps for a collective of `bytes` under way.
inline double held(Link const& link, Collective kind, double bytes) noexcept {
  switch (kind) {
    case Collective::all_reduce: return link.held * bytes;
    case Collective::all_gather: return link.gather_held * bytes;
    case Collective::reduce_scatter: return link.scatter_held * bytes;
    default: return 0;
  }
}

/// `bytes` as of `ring`. `sharing`: ranks of a node that send out of it at the same time, each a member of a group of
/// its own; the node's link is theirs together.
/// Errors  configuration: a link that the cluster's description does not have.
inline TransferCost cost_of(Collective kind, double bytes, Group const& group, Cluster const& cluster,
                            int sharing = 1) {
  TransferCost cost;
  if (group.ranks <= 1) return cost;
  auto const require = [](Link const& link, char const* which) {
    if (link.bandwidth <= 0)
      throw Error(ErrorKind::configuration, "plan::cost_of",
                  concat("the layout has collectives ", which, " nodes, and the cluster's description no link '", which,
                         "'. Add it"));
  };
  bool const half = kind == Collective::reduce_scatter || kind == Collective::all_gather;
  if (group.in_node > 1) {
    require(cluster.inside, "inside");
    if (cluster.inside.shared_memory) {
      // Measured as a sum's: the time of a pass in which every byte is read by one rank and written for all.
      cost.seconds = cluster.inside.latency +
                     (kind == Collective::barrier ? 0 : (half ? 0.5 : 1) * bytes / rate(cluster.inside, kind));
      cost.inside = ring(kind, bytes, group.in_node).bytes();
      cost.by_device = true;
    } else {
      Ring const way = ring(kind, bytes, group.in_node);
      cost.seconds = way.seconds(cluster.inside.latency, rate(cluster.inside, kind));
      cost.held = held(cluster.inside, kind, bytes);
      cost.inside = way.bytes();
    }
  }
  if (group.nodes > 1) {
    require(cluster.between, "between");
    // Each rank of a node goes on with its share of the node's sum; all of them send at once.
    Ring const way = ring(kind, bytes / group.in_node, group.nodes);
    cost.seconds += way.seconds(cluster.between.latency, rate(cluster.between, kind) / (group.in_node * sharing));
    cost.between = way.bytes();
    cost.held += held(cluster.between, kind, bytes / group.in_node);
    cost.by_device = false;
  }
  return cost;
}

/// A message to the next stage of a pipeline.
inline TransferCost cost_of_message(double bytes, Group const& group, Cluster const& cluster, int sharing) {
  TransferCost cost;
  if (group.ranks <= 1) return cost;
  bool const between = group.nodes > 1;
  Link const& link = between ? cluster.between : cluster.inside;
  if (link.bandwidth <= 0)
    throw Error(ErrorKind::configuration, "plan::cost_of_message",
                "the cluster's description has no link between the stages of the pipeline. Add 'inside' or 'between'");
  double const rate = link.message > 0 ? link.message : link.bandwidth;
  cost.seconds = link.latency + bytes / (between ? rate / sharing : rate);
  (between ? cost.between : cost.inside) = bytes;
  return cost;
}

}  // namespace tutti::plan

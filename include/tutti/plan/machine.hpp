// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// This machine as a cluster: what the ranks that were started find of it, measured.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/memory_limit.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/plan/cluster.hpp>
#include <tutti/plan/measure_link.hpp>
#include <tutti/train/profiling.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <string>
#include <unistd.h>
#include <vector>

namespace tutti::plan {

/// This rank among those that were started.
struct Place {
  Shared<comm::Port> everyone;
  Shared<comm::Port> node;  ///< of ranks that share memory; null where none do
  int on_node = 1;
  int of_process = 1;       ///< ranks that are threads of one process
};

/// Ranks: all. Blocking where ranks are on several nodes.
template <Backend B>
Place place_of(Communicator<B>& communicator) {
  Place place{.everyone = comm::port(communicator), .node = parallel::data_parallel(communicator).node,
              .on_node = communicator.local_size()};
  // Ranks that are processes have different numbers of theirs.
  std::vector<std::int64_t> processes(static_cast<std::size_t>(communicator.size()));
  std::int64_t const mine = ::getpid() ^ static_cast<std::int64_t>(communicator.node()) << 32;
  place.everyone->wait(place.everyone->start_all_gather(&mine, processes.data(), 1, DType::int64,
                                                        std::source_location::current()));
  place.of_process = static_cast<int>(std::count(processes.begin(), processes.end(), mine));
  return place;
}

namespace detail {

/// The link by which all ranks send each other messages; null where they share memory, or have links of two kinds.
inline Link* message_link(Cluster& cluster, Place const& place) {
  if (place.on_node == 1) return place.everyone->size() > 1 ? &cluster.between : nullptr;
  return !place.node && cluster.nodes == 1 ? &cluster.inside : nullptr;
}

}  // namespace detail

/// What a step runs in, links and memory; of processes beside tensors, and of messages, nothing is known yet. `links`:
/// measures them. Ranks: all, at once. Cost: some tenths of a second.
inline Cluster measure_machine(exec::Context& context, Place const& place, bool links = true) {
  Cluster cluster;
  int const ranks = place.everyone->size();
  cluster.name = concat(exec::processor_name(), ", measured");
  cluster.nodes = ranks / place.on_node;
  cluster.devices_per_node = place.on_node;
  cluster.processors_per_node = exec::available_processors();
  cluster.threads = context.threads();
  cluster.shared_state = static_cast<bool>(place.node);
  cluster.device.memory = static_cast<double>(exec::available_memory()) / place.on_node;
  graph::Roofline const roof = train::measure_roofline(context);
  cluster.device.float32 = roof.float32;
  cluster.device.bfloat16 = roof.bfloat16;
  cluster.device.bandwidth = roof.bytes;
  if (links && place.node) cluster.inside = measure_link(*place.node, true);
  Link* const link = detail::message_link(cluster, place);
  if (links && link != nullptr) *link = measure_link(*place.everyone, false);
  return cluster;
}

/// Memory that messages over its link take, where it has one; after everything else. Ranks: all. Blocking.
inline void measure_messages(Cluster& cluster, Place const& place) {
  if (Link* const link = detail::message_link(cluster, place); link != nullptr) measure_held(*link, *place.everyone);
}

/// As parse_cluster reads it.
inline nlohmann::json to_json(Cluster const& cluster) {
  auto const link = [](Link const& one) {
    nlohmann::json said{
        {"gbyte_s", one.bandwidth / 1e9}, {"latency_us", one.latency * 1e6}, {"shared_memory", one.shared_memory}};
    if (one.gather > 0) said["gather_gbyte_s"] = one.gather / 1e9;
    if (one.scatter > 0) said["scatter_gbyte_s"] = one.scatter / 1e9;
    if (one.message > 0) said["message_gbyte_s"] = one.message / 1e9;
    if (one.burden > 0) said["burden"] = one.burden;
    if (one.stretch > 1) said["stretch"] = one.stretch;
    if (one.held > 0) said["held"] = one.held;
    if (one.gather_held > 0) said["gather_held"] = one.gather_held;
    if (one.scatter_held > 0) said["scatter_held"] = one.scatter_held;
    return said;
  };
  nlohmann::json json{{"name", cluster.name},
                      {"nodes", cluster.nodes},
                      {"devices_per_node", cluster.devices_per_node},
                      {"threads", static_cast<int>(cluster.threads)},
                      {"shared_state", cluster.shared_state},
                      {"process_memory_mbyte", cluster.process_memory / 1e6},
                      {"device",
                       {{"kind", cluster.device.kind == DeviceKind::cuda ? "cuda" : "cpu"},
                        {"memory_gbyte", cluster.device.memory / 1e9},
                        {"efficiency", cluster.device.efficiency},
                        {"memory_efficiency", cluster.device.memory_efficiency},
                        {"step_overhead_us", cluster.device.step_overhead * 1e6}}}};
  nlohmann::json& device = json["device"];
  if (cluster.processors_per_node > 0) json["processors_per_node"] = cluster.processors_per_node;
  if (cluster.device.float32 > 0) device["float32_tflops"] = cluster.device.float32 / 1e12;
  if (cluster.device.bfloat16 > 0) device["bfloat16_tflops"] = cluster.device.bfloat16 / 1e12;
  if (cluster.device.bandwidth > 0) device["memory_gbyte_s"] = cluster.device.bandwidth / 1e9;
  if (cluster.inside.bandwidth > 0) json["inside"] = link(cluster.inside);
  if (cluster.between.bandwidth > 0) json["between"] = link(cluster.between);
  return json;
}

}  // namespace tutti::plan

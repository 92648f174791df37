// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The machines that a plan is for: nodes, the devices in them, and the links inside and between them. Read from a JSON
/// file whose keys name their units; docs/guides/planning.md lists them.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

namespace tutti::plan {

/// A way between devices. `bandwidth` is that of one device inside a node, and of a whole node between nodes, in each
/// direction.
struct Link {
  double bandwidth = 0;  ///< bytes a second
  double latency = 0;    ///< seconds of one message, or of one collective where memory is shared
  double gather = 0;     ///< bytes a second of gathers; 0: bandwidth
  double scatter = 0;    ///< bytes a second of sums that are scattered; 0: bandwidth
  double message = 0;    ///< bytes a second of a message between two of the ranks; 0: bandwidth
  double burden = 0;     ///< share of a device's time that transfers beside its steps cost it
  double stretch = 1;    ///< how much longer these transfers take than others
  /// Bytes that the library of a rank keeps for each byte of a sum under way, of a gather, of a sum that is scattered.
  double held = 0, gather_held = 0, scatter_held = 0;
  /// Devices reach each other's memory: a collective is one pass over it, made by the devices themselves in the time in
  /// which they would compute. False: messages travel in rings, beside what is computed.
  bool shared_memory = false;
};

enum class DeviceKind : unsigned char { cpu, cuda };

/// What runs one rank. Rates are operations and bytes a second; 0: not known.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  double memory = 0;             ///< bytes
  double float32 = 0, bfloat16 = 0;
  double bandwidth = 0;
  double efficiency = 1;         ///< share of float32 and bfloat16 that matrix products reach
  double memory_efficiency = 1;  ///< share of bandwidth that other steps reach
  double step_overhead = 0;      ///< seconds before every step: a launch
};

struct Cluster {
  std::string name;
  int nodes = 1, devices_per_node = 1;
  double processors_per_node = 0;  ///< that devices of kind cpu share; 0: each has its own
  double threads = 1;              ///< of a rank
  bool shared_state = false;       ///< a node's ranks have one copy of parameters and moments (Replicas::per_node)
  double process_memory = 0;       ///< bytes of a rank beside tensors: program, libraries, stacks
  Device device;
  Link inside, between;

  int devices() const noexcept { return nodes * devices_per_node; }
  /// How much longer a step takes where the node's ranks have more threads than there are processors.
  double crowding(int ranks_on_node) const noexcept {
    return processors_per_node > 0 ? std::max(1.0, ranks_on_node * threads / processors_per_node) : 1.0;
  }
};

namespace detail {

/// One object of the file, of which every key must be known.
class ClusterObject {
 public:
  ClusterObject(nlohmann::json const& json, std::string source, std::string place)
      : json_(json), source_(std::move(source)), place_(std::move(place)) {
    if (!json_.is_object()) refuse(concat(place_.empty() ? "the top level" : place_, " must be an object"));
  }
  [[noreturn]] void refuse(std::string const& what) const {
    throw Error(ErrorKind::configuration, "plan::read_cluster",
                concat("'", source_, "': ", what, ". docs/guides/planning.md lists the keys"));
  }
  void require_known(std::initializer_list<std::string_view> keys) const {
    std::set<std::string_view> const known(keys);
    for (auto const& [key, value] : json_.items())
      if (!known.contains(key)) refuse(concat("there is no key '", path(key), "'"));
  }
  bool has(char const* key) const { return json_.contains(key); }
  /// The number under `key`, above 0 unless `zero`, times `unit`; `otherwise` where there is none.
  double number(char const* key, double unit, double otherwise, bool zero = false, double most = 1e18) const {
    if (!has(key)) return otherwise;
    nlohmann::json const& value = json_.at(key);
    double const given = value.is_number() ? value.get<double>() : NAN;
    if (!(given > 0 || (zero && given == 0)) || given > most)
      refuse(concat("'", path(key), "' must be a number ", zero ? "of at least 0" : "above 0",
                    most < 1e18 ? concat(" and at most ", static_cast<std::int64_t>(most)) : std::string(), ", not ",
                    value.dump()));
    return given * unit;
  }
  double needed(char const* key, double unit) const {
    if (!has(key)) refuse(concat("'", path(key), "' is missing"));
    return number(key, unit, 0);
  }
  int count(char const* key, int otherwise) const {
    double const value = number(key, 1, otherwise, false, 1 << 24);
    if (value != std::floor(value)) refuse(concat("'", path(key), "' must be a whole number"));
    return static_cast<int>(value);
  }
  bool truth(char const* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) refuse(concat("'", path(key), "' must be true or false"));
    return json_.at(key).get<bool>();
  }
  std::string text(char const* key, std::string const& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_string()) refuse(concat("'", path(key), "' must be a string"));
    return json_.at(key).get<std::string>();
  }
  ClusterObject object(char const* key) const {
    if (!has(key)) refuse(concat("'", path(key), "' is missing"));
    return {json_.at(key), source_, path(key)};
  }

 private:
  std::string path(std::string_view key) const { return place_.empty() ? std::string(key) : concat(place_, ".", key); }
  nlohmann::json const& json_;
  std::string source_, place_;
};

inline Link link_of(ClusterObject const& json) {
  json.require_known({"gbyte_s", "mbit_s", "gather_gbyte_s", "scatter_gbyte_s", "message_gbyte_s", "burden", "stretch",
                      "held", "gather_held", "scatter_held", "latency_us", "shared_memory"});
  if (json.has("gbyte_s") == json.has("mbit_s")) json.refuse("a link needs one of 'gbyte_s' and 'mbit_s'");
  return {.bandwidth = json.has("gbyte_s") ? json.needed("gbyte_s", 1e9) : json.needed("mbit_s", 1e6 / 8),
          .latency = json.number("latency_us", 1e-6, 0, true),
          .gather = json.number("gather_gbyte_s", 1e9, 0),
          .scatter = json.number("scatter_gbyte_s", 1e9, 0),
          .message = json.number("message_gbyte_s", 1e9, 0),
          .burden = json.number("burden", 1, 0, true, 1),
          .stretch = json.number("stretch", 1, 1, false, 100),
          .held = json.number("held", 1, 0, true, 100),
          .gather_held = json.number("gather_held", 1, 0, true, 100),
          .scatter_held = json.number("scatter_held", 1, 0, true, 100),
          .shared_memory = json.truth("shared_memory", false)};
}

inline Device device_of(ClusterObject const& json) {
  json.require_known({"kind", "memory_gbyte", "float32_tflops", "bfloat16_tflops", "memory_gbyte_s", "efficiency",
                      "memory_efficiency", "step_overhead_us"});
  std::string const kind = json.text("kind", "cpu");
  if (kind != "cpu" && kind != "cuda") json.refuse("'device.kind' must be \"cpu\" or \"cuda\"");
  return {.kind = kind == "cuda" ? DeviceKind::cuda : DeviceKind::cpu,
          .memory = json.needed("memory_gbyte", 1e9),
          .float32 = json.number("float32_tflops", 1e12, 0),
          .bfloat16 = json.number("bfloat16_tflops", 1e12, 0),
          .bandwidth = json.number("memory_gbyte_s", 1e9, 0),
          .efficiency = json.number("efficiency", 1, 1, false, 1),
          .memory_efficiency = json.number("memory_efficiency", 1, 1, false, 1),
          .step_overhead = json.number("step_overhead_us", 1e-6, 0, true)};
}

}  // namespace detail

/// `source`: where the text came from, for messages. Errors: format; configuration, naming the key.
inline Cluster parse_cluster(std::string_view text, std::string const& source) {
  nlohmann::json const parsed = io::parse_json(text, source, "plan::read_cluster");
  detail::ClusterObject const json(parsed, source, "");
  json.require_known({"name", "nodes", "devices_per_node", "processors_per_node", "threads", "shared_state",
                      "process_memory_mbyte", "device", "inside", "between", "measured"});
  Cluster cluster;
  cluster.name = json.text("name", source);
  cluster.nodes = json.count("nodes", 1);
  cluster.devices_per_node = json.count("devices_per_node", 1);
  cluster.processors_per_node = json.number("processors_per_node", 1, 0);
  cluster.threads = json.count("threads", 1);
  cluster.shared_state = json.truth("shared_state", false);
  cluster.process_memory = json.number("process_memory_mbyte", 1e6, 0, true);
  cluster.device = detail::device_of(json.object("device"));
  if (static_cast<std::int64_t>(cluster.nodes) * cluster.devices_per_node > 1 << 24)
    json.refuse("'nodes' times 'devices_per_node' is more than 16777216 devices");
  if (cluster.devices_per_node > 1) cluster.inside = detail::link_of(json.object("inside"));
  else if (json.has("inside")) cluster.inside = detail::link_of(json.object("inside"));
  if (cluster.nodes > 1) cluster.between = detail::link_of(json.object("between"));
  else if (json.has("between")) cluster.between = detail::link_of(json.object("between"));
  if (cluster.between.shared_memory) json.refuse("'between.shared_memory': nodes share no memory");
  return cluster;
}

/// Errors: io, format, configuration.
inline Cluster read_cluster(std::string const& path) { return parse_cluster(io::read_file(path), path); }

}  // namespace tutti::plan

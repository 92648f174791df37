// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How ranks share out a training step: sequences, models, layers, moments; and where their groups lie in a cluster.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/setting.hpp>
#include <tutti/graph/replication.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>
#include <tutti/plan/cluster.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::plan {

/// In which order the stages of a pipeline go through micro-batches: as the trainer's do.
using Schedule = parallel::PipelineSchedule;
constexpr std::string_view name(Schedule schedule) noexcept {
  return setting::spelling<Schedule>[static_cast<std::size_t>(schedule)];
}

/// Ranks are numbered tensor fastest, then data, pipeline slowest, node by node.
struct Layout {
  int data = 1, tensor = 1, pipeline = 1;
  int zero = 0;  ///< ZeRO's stage: 1 shares out moments, 2 gradients as well, 3 parameters as well
  std::int64_t micro_steps = 1;
  Schedule schedule = Schedule::one_forward_one_backward;
  int chunks = 1;  ///< parts of the model on a rank of a pipeline: 1 but for Schedule::interleaved
  List<std::int64_t> layers{};  ///< of each part; empty: equally many

  int ranks() const noexcept { return data * tensor * pipeline; }
  /// Of the rank that is stage `stage`.
  parallel::PipelineLayout stages(int stage = 0) const { return {pipeline, stage, schedule, chunks, layers}; }
  friend bool operator==(Layout const&, Layout const&) = default;
};

/// "d=2,t=4,p=2,zero=1,micro=8,schedule=interleaved,chunks=2,layers=3+3+3+2"; what is 1, or 0, is left out, but for d
/// and t.
inline std::string to_string(Layout const& layout) {
  std::string text = concat("d=", layout.data, ",t=", layout.tensor);
  if (layout.pipeline > 1) text += concat(",p=", layout.pipeline);
  if (layout.zero > 0) text += concat(",zero=", layout.zero);
  if (layout.micro_steps > 1) text += concat(",micro=", layout.micro_steps);
  if (layout.pipeline > 1) text += concat(",schedule=", name(layout.schedule));
  if (layout.chunks > 1) text += concat(",chunks=", layout.chunks);
  for (std::size_t i = 0; i < layout.layers.size(); ++i) text += concat(i == 0 ? ",layers=" : "+", layout.layers[i]);
  return text;
}

/// Errors: configuration, naming the part that cannot be.
inline Layout parse_layout(std::string_view text) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::configuration, "plan::parse_layout",
                concat("layout '", text, "': ", what,
                       ". Write it as d=2,t=4,p=2,zero=1,micro=8,schedule=1f1b,chunks=1; all but what differs from 1 "
                       "may be left out"));
  };
  Layout layout;
  List<std::string_view> keys;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::size_t const end = std::min(rest.find(','), rest.size());
    std::string_view const part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::size_t const equals = part.find('=');
    if (equals == part.npos) refuse(concat("'", part, "' has no ="));
    std::string_view const key = part.substr(0, equals), value = part.substr(equals + 1);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) refuse(concat("'", key, "' is there twice"));
    keys.push_back(key);
    if (key == "schedule") {
      if (!setting::parse(value, layout.schedule))
        refuse(concat("there is no schedule '", value, "'. Use ", setting::choices<Schedule>()));
      continue;
    }
    if (key == "layers") {
      if (parallel::parse_layers(value, '+', layout.layers))
        refuse(concat("'", part, "' must be numbers of layers, as in layers=4+4+3"));
      continue;
    }
    int number = -1;
    auto const [stop, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    int const least = key == "zero" ? 0 : 1, most = key == "zero" ? 3 : 1 << 20;
    if (code != std::errc{} || stop != value.data() + value.size() || number < least || number > most)
      refuse(concat("'", part, "' must be a whole number between ", least, " and ", most));
    if (key == "d") layout.data = number;
    else if (key == "t") layout.tensor = number;
    else if (key == "p") layout.pipeline = number;
    else if (key == "zero") layout.zero = number;
    else if (key == "micro") layout.micro_steps = number;
    else if (key == "chunks") layout.chunks = number;
    else refuse(concat("there is no '", key, "' but d, t, p, zero, micro, schedule, chunks and layers"));
  }
  if (static_cast<double>(layout.data) * layout.tensor * layout.pipeline > 1 << 24)
    refuse("these are more than 16777216 ranks");
  if (layout.chunks > 1 && layout.schedule != Schedule::interleaved)
    refuse("several chunks are of schedule=interleaved");
  if (layout.chunks == 1 && layout.schedule == Schedule::interleaved) layout.chunks = 2;
  return layout;
}

/// Where the ranks along one axis lie: so many in each of so many nodes.
struct Group {
  int ranks = 1;
  int in_node = 1, nodes = 1;
};

/// Errors: configuration, where a group would be split unevenly over nodes.
inline Group group_of(Layout const& layout, graph::MeshAxis axis, Cluster const& cluster) {
  int const stride = axis == graph::MeshAxis::tensor ? 1
                     : axis == graph::MeshAxis::data ? layout.tensor
                                                     : layout.tensor * layout.data;
  int const size = axis == graph::MeshAxis::tensor ? layout.tensor
                   : axis == graph::MeshAxis::data ? layout.data
                                                   : layout.pipeline;
  int const devices = cluster.devices_per_node;
  Group group{.ranks = size, .in_node = 1, .nodes = size};
  if (stride * size <= devices) group = {size, size, 1};
  else if (stride < devices && devices % stride == 0 && size % (devices / stride) == 0)
    group = {size, devices / stride, size / (devices / stride)};
  else if (stride < devices)
    throw Error(ErrorKind::configuration, "plan::group_of",
                concat(size, " ranks of the ", name(axis), " axis, ", stride, " apart, do not fill nodes of ", devices,
                       " devices evenly. Choose sizes that divide the devices of a node"));
  return group;
}

}  // namespace tutti::plan

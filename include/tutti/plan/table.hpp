// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Predictions as people read them: a table of layouts, and all that is known of one.

#include <tutti/core/concat.hpp>
#include <tutti/graph/replication.hpp>
#include <tutti/plan/prediction.hpp>
#include <tutti/train/console.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tutti::plan {

/// A line for each layout that can be, then those that cannot with their reasons; at most so many of each.
inline std::string table(std::vector<Prediction> const& predictions, std::size_t most = 12) {
  auto const name = [](Prediction const& p) {
    return to_string(p.layout) + (p.recompute == graph::Recompute::block ? " recompute" : "");
  };
  std::size_t width = 40;
  for (Prediction const& p : predictions) width = std::max(width, name(p).size());
  std::string out =
      fmt::format("{:<{}} {:>11} {:>9} {:>10} {:>10} {:>7} {:>8} {:>9} {:>11}\n", "layout", width, "batch", "memory",
                  "in a node", "between", "bubble", "exposed", "ms a step", "tokens/s");
  std::size_t shown = 0, refused = 0;
  for (Prediction const& p : predictions) {
    if (!p.refused.empty() || shown++ >= most) continue;
    double inside = 0, between = 0;
    for (std::size_t axis = 0; axis < graph::mesh_axes; ++axis)
      inside += p.traffic.inside[axis], between += p.traffic.between[axis];
    out += fmt::format("{:<{}} {:>11} {:>9} {:>10} {:>10} {:>6.1f}% {:>7.1f}% {:>9.1f} {:>11.0f}\n", name(p), width,
                       fmt::format("{} x {}", p.batch, p.layout.micro_steps), train::human_bytes(p.memory_of_rank),
                       train::human_bytes(inside), train::human_bytes(between), 100 * p.bubble,
                       100 * p.exposed / p.seconds, 1e3 * p.seconds, p.tokens_per_second);
  }
  if (shown > most) out += fmt::format("and {} slower ones\n", shown - most);
  for (Prediction const& p : predictions) {
    if (p.refused.empty() || refused++ >= most) continue;
    if (refused == 1) out += "not possible:\n";
    out += fmt::format("  {:<{}} {}\n", to_string(p.layout), width - 2, p.refused);
  }
  if (refused > most) out += fmt::format("  and {} more\n", refused - most);
  return out;
}

/// Rows of a name and a text. `peak`: operations a second of a device; 0: not known.
inline std::vector<std::pair<std::string, std::string>> rows_of(Prediction const& p, double peak = 0) {
  auto const bytes = [](double n) { return train::human_bytes(n); };
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("layout", fmt::format("{}; batch {} x {} micro-steps", to_string(p.layout), p.batch,
                                          p.layout.micro_steps));
  if (!p.refused.empty()) rows.emplace_back("not possible", p.refused);
  rows.emplace_back(
      "memory",
      fmt::format(
          "{} a rank: {} parameters, {} moments, {} activations and gradients{}{}{}", bytes(p.memory_of_rank),
          bytes(p.memory.parameters), bytes(p.memory.moments), bytes(p.memory.workspace),
          p.memory.messages > 0 ? fmt::format(", {} of the library's for collectives", bytes(p.memory.messages)) : "",
          p.memory.process > 0 ? fmt::format(", {} process", bytes(p.memory.process)) : "",
          p.memory.shared > 0 ? fmt::format("; {} of it once for all ranks of a node", bytes(p.memory.shared)) : ""));
  if (!p.refused.empty()) return rows;
  std::string traffic;
  for (int axis = 0; axis < graph::mesh_axes; ++axis) {
    double const inside = p.traffic.inside[static_cast<std::size_t>(axis)];
    double const between = p.traffic.between[static_cast<std::size_t>(axis)];
    if (inside + between <= 0) continue;
    traffic += fmt::format("{}{} axis ", traffic.empty() ? "" : ", ", name(static_cast<graph::MeshAxis>(axis)));
    if (inside > 0) traffic += bytes(inside) + " inside nodes";
    if (between > 0) traffic += (inside > 0 ? " and " : "") + bytes(between) + " between";
  }
  rows.emplace_back("traffic", traffic.empty() ? "none" : traffic + ", of a rank in a step");
  rows.emplace_back("step", fmt::format("{:.2f} ms: {:.2f} computing, {:.2f} waiting for collectives{}",
                                        1e3 * p.seconds, 1e3 * p.compute, 1e3 * p.exposed,
                                        p.bubble > 0 ? fmt::format(", {:.1f} % bubble", 100 * p.bubble) : ""));
  rows.emplace_back("speed",
                    fmt::format("{:.0f} tokens/s, {:.4g} TFLOP/s a device{}", p.tokens_per_second, p.model_flops / 1e12,
                                peak > 0 ? fmt::format(", {:.1f} % of its peak", 100 * p.model_flops / peak) : ""));
  return rows;
}
inline std::string to_string(std::vector<std::pair<std::string, std::string>> const& rows) {
  std::string out;
  for (auto const& [name, text] : rows) out += fmt::format("{:<13} {}\n", name, text);
  return out;
}

/// For programs: bytes and seconds. A layout that cannot be has "refused", and no times.
inline nlohmann::json to_json(Prediction const& p) {
  nlohmann::json json{{"layout", to_string(p.layout)}, {"batch", p.batch}};
  if (!p.refused.empty()) json["refused"] = p.refused;
  if (p.seconds <= 0) return json;
  json["memory"] = p.memory_of_rank, json["memory_of_all"] = p.memory_of_all;
  json["parameters"] = p.memory.parameters, json["moments"] = p.memory.moments, json["workspace"] = p.memory.workspace;
  json["shared"] = p.memory.shared, json["messages"] = p.memory.messages;
  json["seconds"] = p.seconds, json["compute"] = p.compute, json["exposed"] = p.exposed, json["bubble"] = p.bubble;
  json["tokens_per_second"] = p.tokens_per_second, json["flops_per_device"] = p.model_flops;
  for (int axis = 0; axis < graph::mesh_axes; ++axis) {
    std::string const key(name(static_cast<graph::MeshAxis>(axis)));
    json["inside"][key] = p.traffic.inside[static_cast<std::size_t>(axis)];
    json["between"][key] = p.traffic.between[static_cast<std::size_t>(axis)];
  }
  return json;
}

/// Why the first of these, in sentences.
inline std::string explain(std::vector<Prediction> const& predictions) {
  if (predictions.empty() || !predictions.front().refused.empty())
    return "No layout fits: more devices, larger memory, or a smaller model or batch is needed.\n";
  Prediction const& best = predictions.front();
  std::string out = fmt::format("{} is the fastest.", to_string(best.layout));
  if (predictions.size() > 1 && predictions[1].refused.empty()) {
    Prediction const& next = predictions[1];
    double const more = 100 * (best.tokens_per_second / next.tokens_per_second - 1);
    auto const per_token = [](Prediction const& p, double seconds) {
      return seconds / p.seconds / p.tokens_per_second;
    };
    double const computing = per_token(next, next.compute) - per_token(best, best.compute);
    double const waiting = per_token(next, next.exposed) - per_token(best, best.exposed);
    double const idle = next.bubble / next.tokens_per_second - best.bubble / best.tokens_per_second;
    char const* const why = idle > waiting && idle > computing ? "has a larger bubble"
                            : waiting > computing              ? "waits longer for collectives"
                                                               : "computes longer, in smaller pieces or more of them";
    out += fmt::format(" The next, {}, is {:.1f} % slower: it {}.", to_string(next.layout), more, why);
  }
  return out + "\n";
}

}  // namespace tutti::plan

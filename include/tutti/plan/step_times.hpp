// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How long a device takes for a step: as it was measured on this kind of step, or by the roofline of the device's
/// description (Williams, Waterman, Patterson 2009).

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/profile.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/plan/cluster.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tutti::plan {

/// Seconds of steps, by what they do on which shapes and for which line of the model, as `--profile` tells them.
class MeasuredSteps {
 public:
  /// How many ranks of a node ran when they were measured, each on so many threads.
  int ranks_on_node = 1;
  double threads = 1;

  void add(graph::Step const& step, double seconds) {
    add(graph::Profile::description(step), step.where, name(step.kind), graph::cost_of(step), seconds);
  }
  /// Adds up with what was measured of steps alike.
  void add(std::string const& what, std::string const& where, std::string_view kind, graph::StepCost const& cost,
           double seconds) {
    for (Mean* mean : {&rows_[{what, where}], &rows_[{what, ""}]}) mean->seconds += seconds, ++mean->count;
    Rate& rate = kinds_[std::string(kind)];
    rate.seconds += seconds;
    rate.work += cost.flops > 0 ? cost.flops : cost.bytes;
  }
  bool empty() const noexcept { return rows_.empty(); }
  std::size_t size() const noexcept { return rows_.size(); }

  /// Of a step alike; of another one of its kind by its operations, or bytes, at the rate of those that were measured.
  /// Negative where there is none of the kind.
  double seconds(graph::Step const& step) const {
    std::string const what = graph::Profile::description(step);
    for (std::string const& where : {step.where, std::string()})
      if (auto const row = rows_.find({what, where}); row != rows_.end())
        return row->second.seconds / static_cast<double>(row->second.count);
    auto const kind = kinds_.find(std::string(name(step.kind)));
    if (kind == kinds_.end() || kind->second.work <= 0) return -1;
    graph::StepCost const cost = graph::cost_of(step);
    return (cost.flops > 0 ? cost.flops : cost.bytes) * kind->second.seconds / kind->second.work;
  }

  /// Takes in what others have measured: of other layouts, or of other ranks, with which it is averaged.
  void merge(MeasuredSteps const& other) {
    for (auto const& [key, mean] : other.rows_) {
      Mean& own = rows_[key];
      own.seconds += mean.seconds, own.count += mean.count;
    }
    for (auto const& [kind, rate] : other.kinds_) {
      Rate& own = kinds_[kind];
      own.seconds += rate.seconds, own.work += rate.work;
    }
    ranks_on_node = std::max(ranks_on_node, other.ranks_on_node);
    threads = std::max(threads, other.threads);
  }

  nlohmann::json to_json() const {
    nlohmann::json json{{"ranks_on_node", ranks_on_node}, {"threads", threads}, {"steps", nlohmann::json::array()},
                        {"kinds", nlohmann::json::array()}};
    for (auto const& [key, mean] : rows_)
      if (!key.second.empty())
        json["steps"].push_back({{"what", key.first}, {"where", key.second}, {"seconds", mean.seconds},
                                 {"count", mean.count}});
    for (auto const& [kind, rate] : kinds_)
      json["kinds"].push_back({{"kind", kind}, {"seconds", rate.seconds}, {"work", rate.work}});
    return json;
  }
  /// What to_json wrote, alone or as "measured" of a cluster's description; or a trace of `train_gpt2 --profile`
  /// (trace_rank_0000.json), whose last step counts. Errors: io, format.
  static MeasuredSteps read(std::string const& path) {
    nlohmann::json json = io::parse_json(io::read_file(path), path, "plan::MeasuredSteps");
    if (json.is_object() && json.contains("measured")) json = nlohmann::json(json.at("measured"));
    MeasuredSteps found;
    try {
      if (json.contains("traceEvents")) {
        for (nlohmann::json const& event : json.at("traceEvents")) {
          if (!event.contains("args")) continue;  // a range around steps
          double const seconds = event.at("dur").get<double>() / 1e6;
          nlohmann::json const& args = event.at("args");
          double const flops = number(args, "gflops") * 1e9 * seconds;
          found.add(args.at("what").get<std::string>(), args.at("where").get<std::string>(),
                    event.at("name").get<std::string>(),
                    {.flops = flops, .bytes = number(args, "gbytes_a_second") * 1e9 * seconds}, seconds);
        }
        return found;
      }
      found.ranks_on_node = json.at("ranks_on_node").get<int>();
      found.threads = json.at("threads").get<double>();
      for (nlohmann::json const& row : json.at("steps")) {
        auto const what = row.at("what").get<std::string>();
        Mean const mean{row.at("seconds").get<double>(), row.at("count").get<std::int64_t>()};
        found.rows_[{what, row.at("where").get<std::string>()}] = mean;
        Mean& any = found.rows_[{what, ""}];
        any.seconds += mean.seconds, any.count += mean.count;
      }
      for (nlohmann::json const& row : json.at("kinds"))
        found.kinds_[row.at("kind").get<std::string>()] = {row.at("seconds").get<double>(),
                                                           row.at("work").get<double>()};
    } catch (nlohmann::json::exception const& error) {
      throw Error(ErrorKind::format, "plan::MeasuredSteps",
                  concat("'", path, "' holds no times of steps. Give a file of tutti_plan --measure, or the "
                         "trace_rank_0000.json that train_gpt2 --profile left"))
          .with_native(error.what());
    }
    if (found.empty())
      throw Error(ErrorKind::format, "plan::MeasuredSteps",
                  concat("'", path, "' holds no times of steps. Measure again"));
    return found;
  }

 private:
  struct Mean {
    double seconds = 0;
    std::int64_t count = 0;
  };
  struct Rate {
    double seconds = 0, work = 0;
  };
  /// A trace writes numbers of two digits.
  static double number(nlohmann::json const& args, char const* key) { return args.at(key).get<double>(); }

  std::map<std::pair<std::string, std::string>, Mean> rows_;  // what and where; without where: of all lines
  std::map<std::string, Rate> kinds_;
};

/// Times of the steps of one device.
class StepTimes {
 public:
  /// `crowding`: how much longer steps take than on a device alone, Cluster::crowding; of measured ones, than when they
  /// were measured. Errors: configuration, where neither a rate was given nor steps were measured.
  StepTimes(Device const& device, MeasuredSteps const* measured = nullptr, double crowding = 1)
      : device_(device), measured_(measured != nullptr && !measured->empty() ? measured : nullptr),
        crowding_(crowding) {
    if (measured_ == nullptr && (device.bandwidth <= 0 || (device.float32 <= 0 && device.bfloat16 <= 0)))
      throw Error(ErrorKind::configuration, "plan::StepTimes",
                  "nothing says how fast a device is. Give its 'float32_tflops' or 'bfloat16_tflops' and its "
                  "'memory_gbyte_s', or measured times of steps");
  }

  double seconds(graph::Step const& step) const {
    if (measured_ != nullptr)
      if (double const found = measured_->seconds(step); found >= 0) return found * crowding_;
    graph::StepCost const cost = graph::cost_of(step);
    bool const bfloat16 = step.product == DType::bfloat16 && device_.bfloat16 > 0;
    double const peak = bfloat16 || device_.float32 <= 0 ? device_.bfloat16 : device_.float32;
    double const products = peak > 0 ? cost.flops / (peak * device_.efficiency) : 0;
    double const moves = device_.bandwidth > 0 ? cost.bytes / (device_.bandwidth * device_.memory_efficiency) : 0;
    return (std::max(products, moves) + device_.step_overhead) * crowding_;
  }

 private:
  Device device_;
  MeasuredSteps const* measured_;
  double crowding_;
};

}  // namespace tutti::plan

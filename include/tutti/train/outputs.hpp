// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where a run's registry goes by itself: the console, `metrics.jsonl`, `status.json` and TensorBoard files. Each is a
/// subscriber that could be left out.

#include <tutti/io/stamp.hpp>
#include <tutti/io/tensorboard.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/metrics.hpp>
#include <tutti/train/registry.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// What the trainer's step lines say, from its records: speed without its jumps, and the time that is left.
class StepLines {
 public:
  /// Of a record of type `start`.
  void begin(nlohmann::json const& start) {
    steps_ = start.value("steps", std::int64_t{0});
    tokens_per_step_ = start.value("tokens_per_step", 0.0);
    speed_ = {};
    first_ = true;
  }
  /// Of a record of type `step`.
  StepReport report(nlohmann::json const& row) {
    auto const number = [&](char const* key) {
      auto const at = row.find(key);  // null where it is not finite
      return at != row.end() && at->is_number() ? at->get<double>() : std::nan("");
    };
    StepReport r{.step = row.value("step", std::int64_t{0}),
                 .steps = steps_,
                 .loss = number("loss"),
                 .grad_norm = number("grad_norm"),
                 .learning_rate = number("lr"),
                 .ms = number("ms"),
                 .exposed_comm_ms = number("exposed_comm_ms"),
                 .tokens_per_second = number("tokens_per_second"),
                 .utilisation = number("mfu")};
    if (!first_) speed_.add(r.tokens_per_second);  // the first step warms caches
    first_ = false;
    if (!speed_.empty()) r.tokens_per_second = speed_.value();
    r.seconds_left = static_cast<double>(steps_ - r.step) * tokens_per_step_ / r.tokens_per_second;
    return r;
  }

 private:
  std::int64_t steps_ = 0;
  double tokens_per_step_ = 0;
  Smoothed speed_;
  bool first_ = true;
};

/// Lines, and a line for each step. Borrows the console.
[[nodiscard]] inline Registry::Subscription subscribe(Registry& registry, Console& console) {
  return registry.subscribe([&console, lines = StepLines()](RegistryEvent const& event) mutable {
    if (event.kind == RegistryEvent::Kind::line) return console.line(event.name);
    if (event.kind != RegistryEvent::Kind::record) return;
    std::string const type = event.json.value("type", std::string());
    if (type == "start") lines.begin(event.json);
    if (type == "step") console.step(lines.report(event.json));
  });
}

/// Every record. Borrows the file.
[[nodiscard]] inline Registry::Subscription subscribe(Registry& registry, Metrics& metrics) {
  return registry.subscribe([&metrics](RegistryEvent const& event) {
    if (event.kind == RegistryEvent::Kind::record) metrics.write(event.json);
  });
}

/// Every number of a record with a step, as `TYPE/KEY`, where `step` is called `train`; every text of a sample. Borrows
/// the file.
[[nodiscard]] inline Registry::Subscription subscribe(Registry& registry, io::TensorboardFile& file) {
  return registry.subscribe([&file](RegistryEvent const& event) {
    if (event.kind != RegistryEvent::Kind::record) return;
    auto const& row = event.json;
    std::string type = row.value("type", std::string());
    if (type == "start" || type == "end" || !row.contains("step") || !row.at("step").is_number()) return;
    if (type == "step") type = "train";
    auto const step = row.at("step").get<std::int64_t>();
    for (auto const& [key, value] : row.items())
      if (value.is_number() && key != "step") file.scalar(type + "/" + key, step, value.get<double>());
    if (type == "sample") file.text("sample", step, row.value("text", std::string()));
  });
}

/// `status.json`: every present value of the registry as one object, replaced as a whole whenever one changes; `time`
/// is when, in seconds since 1970. Who sets values bounds how often.
class StatusFile {
 public:
  StatusFile(Registry& registry, std::filesystem::path const& path)
      : subscription_(registry.subscribe([&registry, path](RegistryEvent const& event) {
          if (event.kind != RegistryEvent::Kind::value) return;
          nlohmann::json all = registry.values();
          all["time"] = io::wall_seconds();
          replace(path, all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        })) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);  // an earlier run's
  }

 private:
  /// Not synced: after a loss of power the run is not what it was anyway. What cannot be written is no reason to end a
  /// run; metrics, which are, tell of a full disk.
  static void replace(std::filesystem::path const& path, std::string const& text) {
    std::filesystem::path const aside = path.string() + ".new";
    {
      std::ofstream file(aside, std::ios::trunc);
      file << text;
      file.close();
      if (!file) return;
    }
    std::error_code ignored;
    std::filesystem::rename(aside, path, ignored);
  }

  Registry::Subscription subscription_;
};

}  // namespace tutti::train

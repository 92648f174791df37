// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Draws a Picture of what a run says: of a registry's events, or of the lines of `metrics.jsonl` and `status.json`.

#include <tutti/train/console.hpp>
#include <tutti/train/registry.hpp>
#include <tutti/watch/picture.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::watch {

/// Follows one run. Nothing that it hears makes it throw, whatever the JSON.
class Sketch {
 public:
  using Json = nlohmann::json;

  explicit Sketch(std::string name = {}) { picture_.name = std::move(name); }

  /// As of now, with copies of its curves.
  Picture picture() const {
    Picture made = picture_;
    made.losses = losses_.points();
    made.validations = validations_.points();
    return made;
  }
  void hear(train::RegistryEvent const& event) {
    using Kind = train::RegistryEvent::Kind;
    if (event.kind == Kind::record) record(event.json);
    if (event.kind == Kind::value) value(event.name, event.json);
    if (event.kind == Kind::line && event.name.starts_with("WARNING: ")) tell(event.name);
  }

  /// What happened: an object with a `type`. Others are no news.
  void record(Json const& row) {
    if (!row.is_object()) return;
    std::string const type = detail::text(row, "type");
    std::int64_t const at = detail::whole(row, "step", picture_.step);
    std::string const step = (picture_.federated ? "outer step " : "step ") + std::to_string(at) + ": ";
    if (type == "start") start(row);
    if (type == "step") take_step(row);
    if (type == "outer_step") take_outer_step(row);
    if (type == "validation") {
      picture_.validation_loss = detail::number(row, "loss");
      picture_.bits_per_byte = detail::number(row, "bits_per_byte");
      validations_.add(at, picture_.validation_loss);
      tell(step + fmt::format("validation loss {:.4f}", picture_.validation_loss) +
           (picture_.bits_per_byte > 0 ? fmt::format(", {:.4f} bits per byte", picture_.bits_per_byte) : ""));
    }
    if (type == "sample") tell(step + "sample: " + detail::text(row, "text", 100));
    if (type == "checkpoint") tell(step + "checkpoint " + detail::text(row, "path"));
    if (type == "worker") {
      std::string const why = detail::text(row, "why"), id = detail::text(row, "worker", 64);
      tell("worker " + id.substr(id.size() < 4 ? 0 : id.size() - 4) + " " + detail::text(row, "event") +
           (why.empty() ? "" : ": " + why));
    }
    if (type == "end") {
      picture_.ended = true;
      picture_.reason = detail::text(row, "reason");
      std::string const error = detail::text(row, "error");
      tell("ended: " + picture_.reason + (error.empty() ? "" : ": " + error));
    }
  }
  /// What is so now: `phase`, `paused`, `workers` and so on; others are no news.
  void value(std::string const& name, Json const& json) {
    if (name == "phase") picture_.phase = detail::text({{"text", json}}, "text", 40);
    if (name == "paused") set_flag(picture_.paused, json, "paused", "goes on");
    if (name == "stopping") set_flag(picture_.stopping, json, "asked to stop", "");
    if (name == "time" && json.is_number()) picture_.time = json.get<double>();
    if (name == "workers") picture_.workers = detail::workers_of(json);
    if (!json.is_object()) return;
    if (name == "machine") {
      picture_.cpu = detail::number(json, "cpu");
      picture_.memory = detail::number(json, "memory");
      picture_.available = detail::number(json, "available");
    }
    if (name == "inner") {
      picture_.inner_steps = detail::whole(json, "steps");
      place_inner();
    }
    if (name == "round") {
      picture_.delivered = detail::whole(json, "delivered");
      picture_.working = detail::whole(json, "working");
      picture_.quorum = detail::whole(json, "quorum");
    }
    if (name == "traffic") {
      picture_.sent = detail::number(json, "sent");
      picture_.received = detail::number(json, "received");
    }
    if (name == "compiled") {
      double const seconds = detail::number(json, "seconds", 0);
      std::string said = fmt::format("compiled in {:.3g} {}, ", seconds < 1 ? seconds * 1e3 : seconds,
                                     seconds < 1 ? "ms" : "s") +
                         train::human_bytes(detail::number(json, "workspace", 0)) + " of workspace a rank";
      if (said != compiled_) tell_after_beginning(said);
      compiled_ = said;
    }
  }

 private:
  static constexpr std::size_t most_events = 200;

  void tell(std::string text) {
    picture_.events.push_back(std::move(text));
    if (picture_.events.size() > most_events) picture_.events.pop_front();
  }
  /// Who reads a folder hears of values later than of what happened since.
  void tell_after_beginning(std::string text) {
    auto const begins = [](std::string const& event) {
      return event == "begins" || event.starts_with("goes on after step ");
    };
    auto const at = std::find_if(picture_.events.rbegin(), picture_.events.rend(), begins);
    if (at == picture_.events.rend()) return;  // that is long ago
    picture_.events.insert(at.base(), std::move(text));
    if (picture_.events.size() > most_events) picture_.events.pop_front();
  }
  void set_flag(bool& flag, Json const& json, char const* yes, char const* no) {
    bool const now = json.is_boolean() && json.get<bool>();
    if (now != flag) tell(now ? yes : no);
    flag = now;
  }
  void start(Json const& row) {
    picture_.first_step = picture_.step = detail::whole(row, "step", 0);
    picture_.steps = detail::whole(row, "steps", 0);
    samples_ = detail::number(row, "samples", 0);
    picture_.federated = samples_ > 0;
    picture_.ended = picture_.stopping = picture_.paused = false;
    picture_.reason.clear();
    tokens_per_step_ = detail::number(row, "tokens_per_step", 0);
    committed_ = picture_.first_step == 0 ? 0 : -1;
    speed_ = {};
    first_ = true;
    Json const model = row.contains("model") && row["model"].is_object() ? row["model"] : Json::object();
    picture_.model = detail::text(model, "architecture", 40);
    if (picture_.model.empty())
      picture_.model = model.contains("channels") ? "gpt2" : "model";  // as checkpoints say it
    for (auto const& [key, what] : {std::pair("layers", "layers"), std::pair("channels", "channels")})
      if (auto const n = detail::whole(model, key, 0); n > 0)
        picture_.model += ", " + std::to_string(n) + " " + what;
    if (auto const n = detail::whole(row, "parameters", 0); n > 0)
      picture_.model += ", " + train::with_commas(n) + " parameters";
    if (picture_.federated) {
      picture_.place = "shepherd on port " + std::to_string(detail::whole(row, "port", 0));
    } else {
      auto const ranks = detail::whole(row, "ranks", 0), threads = detail::whole(row, "threads", 0);
      picture_.place = fmt::format("{} rank{} of {} thread{} by {}, {}, {}", ranks, ranks == 1 ? "" : "s", threads,
                                   threads == 1 ? "" : "s", detail::text(row, "backend", 40),
                                   detail::text(row, "algorithm", 40), detail::text(row, "device", 40));
      if (std::string const processor = detail::text(row, "processor", 80); !processor.empty())
        picture_.place += ", " + processor;
    }
    tell(picture_.first_step == 0 ? "begins" : "goes on after step " + std::to_string(picture_.first_step));
  }
  void take_step(Json const& row) {
    picture_.step = detail::whole(row, "step", picture_.step);
    picture_.loss = detail::number(row, "loss");
    picture_.grad_norm = detail::number(row, "grad_norm");
    picture_.learning_rate = detail::number(row, "lr");
    picture_.ms = detail::number(row, "ms");
    picture_.utilisation = detail::number(row, "mfu");
    picture_.waits_ms = detail::number(row, "exposed_comm_ms");
    picture_.trained_seconds += std::max(0.0, picture_.ms) * 1e-3;
    losses_.add(picture_.step, picture_.loss);
    double const speed = detail::number(row, "tokens_per_second");
    if (!first_ && speed > 0) speed_.add(speed);  // the first step warms caches
    first_ = false;
    picture_.tokens_per_second = speed_.empty() ? speed : speed_.value();
    if (picture_.steps > 0) {
      picture_.done = static_cast<double>(picture_.step) / static_cast<double>(picture_.steps);
      if (picture_.tokens_per_second > 0)
        picture_.seconds_left = static_cast<double>(picture_.steps - picture_.step) * tokens_per_step_ /
                                picture_.tokens_per_second;
    }
    place_inner();
  }
  /// Of DiLoCo in a trainer: step k of H, of which outer step.
  void place_inner() {
    if (picture_.inner_steps < 1) return;
    picture_.inner_step = picture_.step % picture_.inner_steps;
    picture_.outer_step = picture_.step / picture_.inner_steps;
  }
  void take_outer_step(Json const& row) {
    picture_.federated = true;
    picture_.step = detail::whole(row, "step", picture_.step);
    picture_.loss = detail::number(row, "loss");
    losses_.add(picture_.step, picture_.loss);
    picture_.sent = detail::number(row, "bytes_sent");
    picture_.received = detail::number(row, "bytes_received");
    double const seconds = detail::number(row, "seconds", 0), samples = detail::number(row, "samples", 0);
    picture_.ms = seconds * 1e3;
    picture_.trained_seconds += std::max(0.0, seconds);
    picture_.tokens_per_second = detail::number(row, "tokens_per_second");
    if (committed_ >= 0 && seconds > 0 && samples > committed_) speed_.add((samples - committed_) / seconds);
    committed_ = samples;
    if (samples_ > 0) picture_.done = samples / samples_;
    if (samples_ > 0 && !speed_.empty()) picture_.seconds_left = (samples_ - samples) / speed_.value();
    if (auto const late = detail::whole(row, "late", 0); late > 0)
      tell(fmt::format("outer step {}: {} of {} contributions were late", picture_.step, late,
                       detail::whole(row, "workers", 0)));
  }

  Picture picture_;
  train::Series losses_{512}, validations_{512};
  train::Smoothed speed_;  // tokens, or samples of a shepherd's run, a second
  std::string compiled_;
  double tokens_per_step_ = 0, samples_ = 0, committed_ = 0;
  bool first_ = true;
};

}  // namespace tutti::watch

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What is shown of a run, the same on a terminal and on a page, whether the run is in this program, its folder is
/// read, or it is asked over HTTP.

#include <tutti/train/registry.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tutti::watch {

/// A rank of a trainer, or a worker of a shepherd. What is not known is empty or negative.
struct Worker {
  std::string name, device, state, note;
  std::string link;                    ///< its machine, or the address that it connects from
  std::int64_t step = -1, steps = -1;  ///< inner steps of the present round
  double tokens_per_second = -1, cpu = -1, memory = -1, sent = -1, received = -1, waits_ms = -1;
};

struct Picture {
  std::string name;   ///< the run's folder
  std::string model;  ///< in a few words
  std::string place;  ///< ranks, threads, backend, device
  std::string phase;
  bool paused = false, stopping = false, ended = false;
  bool federated = false;  ///< led by a shepherd: steps are outer steps, and workers can be drained
  std::string reason;      ///< why it ended
  std::int64_t first_step = 0, step = 0, steps = 0;
  double done = -1;          ///< share of the whole run
  double seconds_left = -1;
  double trained_seconds = 0;  ///< sum over the steps that are known
  double loss = -1, validation_loss = -1, bits_per_byte = -1, learning_rate = -1, grad_norm = -1, ms = -1,
         utilisation = -1, waits_ms = -1, tokens_per_second = -1;
  std::int64_t inner_step = -1, inner_steps = -1, outer_step = -1;  ///< DiLoCo in a trainer
  std::int64_t delivered = -1, working = -1, quorum = -1;           ///< contributions to the round of a shepherd
  double cpu = -1, memory = -1, available = -1;                     ///< processors busy; bytes
  double sent = -1, received = -1;                                  ///< bytes over the network
  double time = 0;                                                  ///< of the latest sign, seconds since 1970; or 0
  std::vector<Worker> workers;
  std::vector<train::Point> losses, validations;
  std::deque<std::string> events;  ///< the latest last
};

/// Both ways. Reading takes what anybody may have sent: what is missing or of another type is as unknown, and texts and
/// lists have bounds. Never throws for any JSON.
nlohmann::json to_json(Picture const& picture);
Picture picture_of(nlohmann::json const& json);

namespace detail {

inline double number(nlohmann::json const& row, char const* key, double otherwise = -1) {
  auto const at = row.find(key);
  return at != row.end() && at->is_number() && std::isfinite(at->get<double>()) ? at->get<double>() : otherwise;
}
inline std::int64_t whole(nlohmann::json const& row, char const* key, std::int64_t otherwise = -1) {
  double const value = number(row, key, static_cast<double>(otherwise));
  return value > -9e15 && value < 9e15 ? static_cast<std::int64_t>(value) : otherwise;
}
/// Without control characters, which a terminal would obey, and cut where it is too long.
inline std::string text(nlohmann::json const& row, char const* key, std::size_t most = 200) {
  auto const at = row.find(key);
  if (at == row.end() || !at->is_string()) return {};
  std::string made;
  for (unsigned char const byte : at->get_ref<std::string const&>()) {
    if (made.size() >= most && (byte & 0xc0) != 0x80) break;  // not within a character
    made += byte < 0x20 || byte == 0x7f ? ' ' : static_cast<char>(byte);
  }
  // C1 controls are two bytes in UTF-8, c2 80 to c2 9f.
  for (std::size_t i = 0; i + 1 < made.size(); ++i)
    if (made[i] == '\xc2' && static_cast<unsigned char>(made[i + 1]) < 0xa0) made[i] = made[i + 1] = ' ';
  return made;
}
inline bool flag(nlohmann::json const& row, char const* key) {
  auto const at = row.find(key);
  return at != row.end() && at->is_boolean() && at->get<bool>();
}

/// Calls f(name, member) for every number of a picture, and of a worker.
template <class AnyPicture, class F>
void for_each_number(AnyPicture& p, F&& f) {
  f("first_step", p.first_step), f("step", p.step), f("steps", p.steps), f("done", p.done);
  f("seconds_left", p.seconds_left), f("trained_seconds", p.trained_seconds), f("loss", p.loss);
  f("validation_loss", p.validation_loss), f("bits_per_byte", p.bits_per_byte), f("lr", p.learning_rate);
  f("grad_norm", p.grad_norm), f("ms", p.ms), f("mfu", p.utilisation), f("waits_ms", p.waits_ms);
  f("tokens_per_second", p.tokens_per_second), f("inner_step", p.inner_step), f("inner_steps", p.inner_steps);
  f("outer_step", p.outer_step), f("delivered", p.delivered), f("working", p.working), f("quorum", p.quorum);
  f("cpu", p.cpu), f("memory", p.memory), f("available", p.available), f("sent", p.sent);
  f("received", p.received), f("time", p.time);
}
template <class AnyPicture, class F>
void for_each_text(AnyPicture& p, F&& f) {
  f("name", p.name), f("model", p.model), f("place", p.place), f("phase", p.phase), f("reason", p.reason);
}
template <class AnyPicture, class F>
void for_each_flag(AnyPicture& p, F&& f) {
  f("paused", p.paused), f("stopping", p.stopping), f("ended", p.ended), f("federated", p.federated);
}
template <class AnyWorker, class F>
void for_each_number_of(AnyWorker& w, F&& f) {
  f("step", w.step), f("steps", w.steps), f("tokens_per_second", w.tokens_per_second), f("cpu", w.cpu);
  f("memory", w.memory), f("sent", w.sent), f("received", w.received), f("waits_ms", w.waits_ms);
}
template <class AnyWorker, class F>
void for_each_text_of(AnyWorker& w, F&& f) {
  f("name", w.name), f("device", w.device), f("state", w.state), f("link", w.link), f("note", w.note);
}

struct ReadNumber {
  nlohmann::json const& from;
  void operator()(char const* key, double& value) const { value = number(from, key, value); }
  void operator()(char const* key, std::int64_t& value) const { value = whole(from, key, value); }
};

inline Worker worker_of(nlohmann::json const& from) {
  Worker w;
  for_each_number_of(w, ReadNumber{from});
  for_each_text_of(w, [&](char const* key, std::string& value) { value = text(from, key, 120); });
  return w;
}
inline std::vector<Worker> workers_of(nlohmann::json const& list) {
  std::vector<Worker> made;
  for (auto const& one : list.is_array() ? list : nlohmann::json::array()) {
    if (made.size() >= 4096) break;
    if (one.is_object()) made.push_back(worker_of(one));
  }
  return made;
}
inline nlohmann::json json_of(std::vector<train::Point> const& points) {
  nlohmann::json list = nlohmann::json::array();
  for (auto const& point : points) list.push_back({point.step, point.value});
  return list;
}
inline std::vector<train::Point> points_of(nlohmann::json const& json, char const* key) {
  std::vector<train::Point> made;
  auto const at = json.find(key);
  if (at == json.end() || !at->is_array()) return made;
  for (auto const& one : *at) {
    if (made.size() >= 4096) break;
    if (one.is_array() && one.size() == 2 && one[0].is_number_integer() && one[1].is_number())
      made.push_back({one[0].get<std::int64_t>(), one[1].get<double>()});
  }
  return made;
}

}  // namespace detail

inline nlohmann::json to_json(Picture const& p) {
  nlohmann::json made = nlohmann::json::object();
  auto const put = [](nlohmann::json& to) {
    return [&to](char const* key, auto const& value) { to[key] = value; };
  };
  detail::for_each_number(p, put(made));
  detail::for_each_text(p, put(made));
  detail::for_each_flag(p, put(made));
  made["losses"] = detail::json_of(p.losses);
  made["validations"] = detail::json_of(p.validations);
  made["events"] = p.events;
  made["workers"] = nlohmann::json::array();
  for (Worker const& worker : p.workers) {
    nlohmann::json one = nlohmann::json::object();
    detail::for_each_number_of(worker, put(one));
    detail::for_each_text_of(worker, put(one));
    made["workers"].push_back(std::move(one));
  }
  return made;
}

inline Picture picture_of(nlohmann::json const& json) {
  Picture p;
  if (!json.is_object()) return p;
  detail::for_each_number(p, detail::ReadNumber{json});
  detail::for_each_text(p, [&](char const* key, std::string& value) { value = detail::text(json, key); });
  detail::for_each_flag(p, [&](char const* key, bool& value) { value = detail::flag(json, key); });
  p.losses = detail::points_of(json, "losses");
  p.validations = detail::points_of(json, "validations");
  if (auto const at = json.find("workers"); at != json.end()) p.workers = detail::workers_of(*at);
  if (auto const at = json.find("events"); at != json.end() && at->is_array())
    for (auto const& one : *at)
      if (p.events.size() < 1000) p.events.push_back(detail::text({{"text", one}}, "text"));
  return p;
}

}  // namespace tutti::watch

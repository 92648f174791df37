// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A shepherd's log as text: one record a line, each with a hash of its own, for people and programs to read.
///
///   6c1a09e7f2b4d385 {"record":"leased","lease":4294967297,"worker":17,"round":0,"ranges":[[0,120]]}

#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/federate/history.hpp>

#include <nlohmann/json.hpp>

#include <cinttypes>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::federate {

namespace detail {

inline std::string line_hash(std::string_view text) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64, hash_bytes(std::as_bytes(std::span(text))));
  return digits;
}
inline nlohmann::json to_json(std::vector<Range> const& ranges) {
  nlohmann::json list = nlohmann::json::array();
  for (Range const& range : ranges) list.push_back({range.first, range.count});
  return list;
}
inline nlohmann::json to_json(Started const& one) {
  return {
      {"record", "started"},          {"run", one.run},    {"incarnation", one.incarnation}, {"samples", one.samples},
      {"parameters", one.parameters}, {"batch", one.batch}};
}
inline nlohmann::json to_json(Leased const& one) {
  return {{"record", "leased"},
          {"lease", one.lease},
          {"worker", one.worker},
          {"round", one.round},
          {"ranges", to_json(one.ranges)}};
}
inline nlohmann::json to_json(Returned const& one) {
  return {{"record", "returned"}, {"lease", one.lease}, {"reason", one.reason}};
}
inline nlohmann::json to_json(Closed const& one) {
  nlohmann::json merged = nlohmann::json::array();
  for (Merged const& m : one.merged)
    merged.push_back({{"lease", m.lease}, {"samples", m.samples}, {"round", m.round}, {"weight", m.weight}});
  return {{"record", "closed"},
          {"round", one.round},
          {"checksum", one.checksum},
          {"loss", one.loss},
          {"merged", std::move(merged)}};
}
inline Record record_of(nlohmann::json const& json) {
  auto const number = [](nlohmann::json const& from, char const* key) { return from.at(key).get<std::int64_t>(); };
  auto const word = [](nlohmann::json const& from, char const* key) { return from.at(key).get<std::uint64_t>(); };
  std::string const kind = json.at("record").get<std::string>();
  if (kind == "started")
    return Started{word(json, "run"), word(json, "incarnation"), number(json, "samples"), number(json, "parameters"),
                   number(json, "batch")};
  if (kind == "leased") {
    Leased one{word(json, "lease"), word(json, "worker"), number(json, "round"), {}};
    for (auto const& range : json.at("ranges"))
      one.ranges.push_back({range.at(0).get<std::int64_t>(), range.at(1).get<std::int64_t>()});
    return one;
  }
  if (kind == "returned") return Returned{word(json, "lease"), json.at("reason").get<std::string>()};
  if (kind == "closed") {
    Closed one{number(json, "round"), word(json, "checksum"), json.at("loss").get<double>(), {}};
    for (auto const& m : json.at("merged"))
      one.merged.push_back({word(m, "lease"), number(m, "samples"), number(m, "round"), m.at("weight").get<double>()});
    return one;
  }
  throw Error(ErrorKind::format, "federate", "a record of the unknown kind '" + kind + "'");
}

}  // namespace detail

/// With the newline. Text that is not UTF-8 is made so.
inline std::string to_line(Record const& record) {
  std::string const text = std::visit([](auto const& one) { return detail::to_json(one); }, record)
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return detail::line_hash(text) + " " + text + "\n";
}

struct LogText {
  History history;
  std::vector<Record> records;
  std::size_t whole = 0;  ///< bytes up to the end of the last whole record
};

/// What a log says. A last line that is cut off or damaged, as a crash leaves it, does not count.
/// Errors: format, naming the line, for damage before the last line, and for records that contradict each other.
inline LogText parse_log(std::string_view text, std::string const& path) {
  LogText log;
  for (std::int64_t line = 1; log.whole < text.size(); ++line) {
    std::size_t const end = text.find('\n', log.whole);
    bool const last = end == text.npos || end + 1 == text.size();
    std::string_view const all = text.substr(log.whole, end == text.npos ? text.npos : end - log.whole);
    bool const sound =
        end != text.npos && all.size() > 17 && all[16] == ' ' && all.substr(0, 16) == detail::line_hash(all.substr(17));
    if (!sound && last) break;
    auto const refuse = [&](std::string const& what) {
      throw Error(ErrorKind::format, "federate",
                  "line " + std::to_string(line) + " of " + path + " " + what +
                      ". Restore the file from a backup, or begin a new run in another --out");
    };
    if (!sound) refuse("is damaged");
    try {
      log.records.push_back(detail::record_of(nlohmann::json::parse(all.substr(17))));
      log.history.add(log.records.back());
    } catch (nlohmann::json::exception const& error) {
      refuse(std::string("is no record: ") + error.what());
    } catch (Error const& error) {
      refuse("does not fit: " + error.message());
    }
    log.whole = end + 1;
  }
  return log;
}

}  // namespace tutti::federate

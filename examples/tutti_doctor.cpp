// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reads the flight records of several ranks, lines them up and names the culprit.
///
///     tutti-doctor DUMP...
///
/// For each communicator: a table of the ranks' last collectives by number, the messages that are not complete, and a
/// finding. Leaves with 0 when it could read everything, whatever it found, else with 1.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct Record {
  std::string operation, state, op, dtype, place;
  std::int64_t number = 0, count = 0, bytes = 0, element_bytes = 0, root = -1, peer = -1, tag = -1, begin = 0, end = 0;
  bool collective = false;

  bool started() const { return state == "started"; }
  bool completed() const { return state == "completed"; }
  bool counts_may_differ() const { return operation.ends_with("_v"); }
  bool same_call(Record const& other) const {
    return operation == other.operation && op == other.op && dtype == other.dtype && root == other.root &&
           element_bytes == other.element_bytes && (counts_may_differ() || count == other.count);
  }
  /// "all_reduce(sum, float32, count 8)", "recv from rank 1, tag 5"
  std::string text() const {
    if (!collective) {
      bool const sends = operation == "send";
      return operation + (sends ? " to " : " from ") + (peer < 0 ? "any rank" : "rank " + std::to_string(peer)) +
             (tag < 0 ? ", any tag" : ", tag " + std::to_string(tag)) +
             (bytes < 0 ? "" : ", " + std::to_string(bytes) + " bytes");
    }
    std::string inside;
    auto const add = [&](std::string const& part) { inside += (inside.empty() ? "" : ", ") + part; };
    if (!op.empty()) add(op);
    if (root >= 0) add("root " + std::to_string(root));
    if (!dtype.empty()) add(dtype + ", count " + std::to_string(count));
    return operation + "(" + inside + ")";
  }
  std::string at() const { return text() + " at " + place; }
};

struct Rank {
  std::string file, reason;
  int world_rank = -1;
  std::vector<Record> messages;               // in the order in which they were started
  std::map<std::int64_t, Record> collectives;  // by number
  std::int64_t last() const { return collectives.empty() ? -1 : collectives.rbegin()->first; }
};

struct Group {
  int size = 0;
  std::map<int, Rank> ranks;
};

Record read_record(nlohmann::json const& json) {
  Record record;
  record.operation = json.at("operation").get<std::string>();
  record.state = json.at("state").get<std::string>();
  record.number = json.at("number").get<std::int64_t>();
  record.collective = !json.contains("peer");
  record.op = json.value("operator", "");
  record.dtype = json.value("dtype", "");
  record.count = json.value("count", std::int64_t{0});
  record.bytes = json.at("bytes").get<std::int64_t>();
  record.element_bytes = json.value("element_bytes", std::int64_t{0});
  record.root = json.value("root", std::int64_t{-1});
  record.peer = json.value("peer", std::int64_t{-1});
  record.tag = json.value("tag", std::int64_t{-1});
  record.begin = json.at("begin_ns").get<std::int64_t>();
  record.end = json.at("end_ns").get<std::int64_t>();
  std::string const file = json.at("file").get<std::string>();
  record.place = file.substr(file.rfind('/') + 1) + ":" + std::to_string(json.at("line").get<std::int64_t>());
  return record;
}

void read(std::string const& file, std::map<std::string, Group>& groups) {
  std::ifstream stream(file);
  if (!stream) throw std::runtime_error("cannot be opened. Name the files that the ranks wrote");
  nlohmann::json const json = nlohmann::json::parse(stream);
  if (!json.is_object() || json.value("tutti_flight_record", 0) != 1)
    throw std::runtime_error("is no flight record of this version. Name the files that the ranks wrote");
  int const rank = json.at("rank").get<int>();
  int const size = json.at("size").get<int>();
  std::string const communicator = json.at("communicator").get<std::string>();
  Group& group = groups[communicator];
  if (group.size != 0 && group.size != size)
    throw std::runtime_error("is of another run: " + communicator + " has " + std::to_string(size) +
                             " ranks here and " + std::to_string(group.size) + " in the files before it");
  if (rank < 0 || rank >= size)
    throw std::runtime_error("names rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (auto const before = group.ranks.find(rank); before != group.ranks.end())
    throw std::runtime_error("is of rank " + std::to_string(rank) + " of " + communicator + ", as is " +
                             before->second.file + ". Name one file for each rank");
  group.size = size;
  Rank& read = group.ranks[rank];
  read.file = file;
  read.reason = json.at("reason").get<std::string>();
  read.world_rank = json.value("world_rank", rank);
  for (auto const& entry : json.at("records")) {
    Record record = read_record(entry);
    if (record.collective) read.collectives[record.number] = std::move(record);
    else read.messages.push_back(std::move(record));
  }
  // What a program calls after an error that it has caught, and what is refused for that, says nothing of the error.
  std::int64_t failed = std::numeric_limits<std::int64_t>::max();
  auto const note = [&](Record const& record) {
    if (record.state == "failed") failed = std::min(failed, record.end);
  };
  for (auto const& message : read.messages) note(message);
  for (auto const& [number, record] : read.collectives) note(record);
  std::erase_if(read.collectives, [&](auto const& entry) {
    return entry.second.state == "refused" && entry.second.begin >= failed;
  });
}

std::string seconds(std::int64_t ns) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.3f s", static_cast<double>(ns) * 1e-9);
  return text.data();
}
/// "rank 2", "ranks 0, 1 and 3"
std::string listed(std::vector<int> const& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

/// What a rank does beside collectives: the oldest message that it still waits for.
Record const* waits_for_message(Rank const& rank) {
  for (Record const& record : rank.messages)
    if (!record.completed()) return &record;
  return nullptr;
}

/// What differs between two calls, for people: "count 8 against 4".
std::string difference(Record const& one, Record const& other) {
  std::string text;
  auto const add = [&](std::string_view what, std::string const& a, std::string const& b) {
    if (a != b)
      text += (text.empty() ? "" : ", ") + std::string(what) + " " + (a.empty() ? "none" : a) + " against " +
              (b.empty() ? "none" : b);
  };
  add("kind", one.operation, other.operation);
  if (one.operation != other.operation) return text;
  add("operator", one.op, other.op);
  add("root", std::to_string(one.root), std::to_string(other.root));
  add("type", one.dtype, other.dtype);
  if (!one.counts_may_differ()) add("count", std::to_string(one.count), std::to_string(other.count));
  if (text.empty()) add("size of an element", std::to_string(one.element_bytes), std::to_string(other.element_bytes));
  return text;
}

/// The lowest number at which ranks made different calls. The call of most ranks counts as meant; without a majority
/// both sides are named.
std::optional<std::string> find_mismatch(Group const& group) {
  std::map<std::int64_t, std::vector<std::pair<std::vector<int>, Record const*>>> calls;  // classes of equal calls
  for (auto const& [rank, log] : group.ranks)
    for (auto const& [number, record] : log.collectives) {
      auto& classes = calls[number];
      auto const same = std::find_if(classes.begin(), classes.end(),
                                     [&, call = &record](auto const& entry) { return entry.second->same_call(*call); });
      if (same == classes.end()) classes.push_back({{rank}, &record});
      else same->first.push_back(rank);
    }
  for (auto& [number, classes] : calls) {
    if (classes.size() < 2) continue;
    std::sort(classes.begin(), classes.end(), [](auto const& a, auto const& b) {
      return a.first.size() != b.first.size() ? a.first.size() > b.first.size() : a.first.front() < b.first.front();
    });
    auto const& meant = classes.front();
    bool const majority = meant.first.size() > classes[1].first.size();
    std::string text = "CULPRIT: ";
    std::vector<int> others;
    for (std::size_t i = majority ? 1 : 0; i < classes.size(); ++i)
      others.insert(others.end(), classes[i].first.begin(), classes[i].first.end());
    std::sort(others.begin(), others.end());
    text += majority ? listed(others) + (others.size() == 1 ? " makes" : " make") + " another call"
                     : "one of " + listed(others) + ", which disagree";
    text += " at collective " + std::to_string(number) + ": " + difference(*classes[1].second, *meant.second) + ".\n";
    for (auto const& [ranks, call] : classes)
      text += "  " + listed(ranks) + ": " + call->at() + "\n";
    return text + "  Make the same call on every rank.\n";
  }
  return std::nullopt;
}

/// The rank of which a text says that it failed, as the library's own do; -1 for none. Of "barrier failed on rank 2:
/// rank 0 failed: ..." it is rank 0: the first that failed by itself, else the last that a call failed on.
int said_to_have_failed(std::string const& text) {
  std::string_view const word = "rank ";
  int called = -1;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    auto const end = text.find_first_not_of("0123456789", at + word.size());
    if (end == at + word.size()) continue;
    bool const before = at >= 3 && text.compare(at - 3, 3, "on ") == 0 &&
                        (text.find("failed on ") != std::string::npos || text.find("threw on ") != std::string::npos);
    int const rank = std::atoi(text.c_str() + at + word.size());
    if (end != std::string::npos && text.compare(end, 7, " failed") == 0) return rank;
    if (before) called = rank;
  }
  return called;
}

/// The rank that a text says has left its communicator; -1 for none.
int said_to_have_left(std::string const& text) {
  std::string_view const word = "rank ";
  auto const left = text.find(" has left the communicator");
  if (left == std::string::npos) return -1;
  auto const at = text.rfind(word, left);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + word.size());
}

/// Two ranks whose calls differ in what records do not hold (members of structs, counts of the _v kinds), by what was
/// said when they were compared.
std::optional<std::string> find_disagreement(Group const& group) {
  std::string_view const said = "ranks disagree: rank ", second = ", rank ";
  for (auto const& [rank, log] : group.ranks) {
    auto const at = log.reason.find(said);
    if (at == std::string::npos) continue;
    int const one = std::atoi(log.reason.c_str() + at + said.size());
    for (auto next = log.reason.find(second, at); next != std::string::npos; next = log.reason.find(second, next + 1)) {
      auto const end = log.reason.find_first_not_of("0123456789", next + second.size());
      if (end == std::string::npos || log.reason.compare(end, 7, " calls ") != 0) continue;
      int const other = std::atoi(log.reason.c_str() + next + second.size());
      return "CULPRIT: one of " + listed({std::min(one, other), std::max(one, other)}) +
             ", which disagree: " + log.reason.substr(at) + "\n";
    }
  }
  return std::nullopt;
}

/// A rank that failed, as the others were told, or else by its own words. A deadline that passed is no failure of the
/// rank that noticed, and what else is said after one may come of it; nor is it one that another rank has left.
std::optional<std::string> find_failure(Group const& group) {
  int told = -1;
  int own = -1;
  bool timeout = false;
  std::string reason;
  for (auto const& [rank, log] : group.ranks) {
    bool const passed = log.reason.find("not complete after") != std::string::npos;
    timeout = timeout || passed;
    if (passed || log.reason.empty() || log.reason == "SIGUSR1" || log.reason == "SIGTERM") continue;
    if (said_to_have_left(log.reason) >= 0) continue;
    if (int const other = said_to_have_failed(log.reason); other >= 0 && told < 0) {
      told = other;
      reason = log.reason;
    } else if (other < 0 && own < 0) {
      own = rank;
    }
  }
  int const culprit = told >= 0 ? told : timeout ? -1 : own;
  if (culprit < 0) return std::nullopt;
  if (auto const log = group.ranks.find(culprit); log != group.ranks.end()) reason = log->second.reason;
  return "CULPRIT: rank " + std::to_string(culprit) + " failed by itself: " + reason + "\n";
}

/// A rank that left without an error of its own: one that failed leaves as well, and says why itself.
std::optional<std::string> find_left(Group const& group) {
  for (auto const& [rank, log] : group.ranks)
    if (int const culprit = said_to_have_left(log.reason);
        culprit >= 0 && (!group.ranks.contains(culprit) || group.ranks.at(culprit).reason.empty()))
      return "CULPRIT: rank " + std::to_string(culprit) +
             " has left the communicator while others call on it. Look at why it returned, or destroyed it, so "
             "early.\n";
  return std::nullopt;
}

/// The first collective that is not complete everywhere, or else the last that anybody called: later ones may be under
/// way on some ranks and not yet called on others, without harm.
std::int64_t stuck_at(Group const& group) {
  std::int64_t stuck = std::numeric_limits<std::int64_t>::max();
  std::int64_t front = -1;
  for (auto const& [rank, log] : group.ranks) {
    front = std::max(front, log.last());
    for (auto const& [number, record] : log.collectives)
      if (!record.completed()) stuck = std::min(stuck, number);
  }
  return std::min(stuck, front);
}

/// Ranks that have not called it.
std::optional<std::string> find_behind(Group const& group) {
  std::int64_t const stuck = stuck_at(group);
  std::vector<int> late;
  Record const* call = nullptr;
  for (auto const& [rank, log] : group.ranks) {
    if (log.last() < stuck) late.push_back(rank);
    else if (auto const found = log.collectives.find(stuck); found != log.collectives.end()) call = &found->second;
  }
  if (late.empty() || call == nullptr) return std::nullopt;
  std::string text = "CULPRIT: " + listed(late) + (late.size() == 1 ? " is" : " are") + " behind: others are at " +
                     "collective " + std::to_string(stuck) + ", " + call->at() + ".\n";
  for (int const rank : late) {
    Rank const& log = group.ranks.at(rank);
    text += "  rank " + std::to_string(rank);
    if (Record const* const message = waits_for_message(log)) {
      text += " waits in " + message->at() + ". Look at what ";
      text += message->peer < 0 ? "the others send" : "rank " + std::to_string(message->peer) + " sends or receives";
      if (message->peer >= 0 && !group.ranks.contains(static_cast<int>(message->peer)))
        text += "; there is no dump of it";
    } else if (log.collectives.empty()) {
      text += " has made no collective call";
    } else {
      Record const& last = log.collectives.rbegin()->second;
      text += " came out of collective " + std::to_string(last.number) + ", " + last.at() +
              ", and has not called the next one. Look at what it does after that";
    }
    text += "\n";
  }
  return text;
}

/// Ranks that called it when others had given it up.
std::optional<std::string> find_late(Group const& group) {
  std::int64_t const stuck = stuck_at(group);
  std::int64_t given_up = std::numeric_limits<std::int64_t>::max();
  std::vector<std::pair<int, Record const*>> calls;
  for (auto const& [rank, log] : group.ranks)
    if (auto const call = log.collectives.find(stuck); call != log.collectives.end()) {
      calls.push_back({rank, &call->second});
      bool const ended = call->second.state == "failed" || call->second.state == "refused";
      if (ended) given_up = std::min(given_up, call->second.end);
    }
  std::string text;
  for (auto const& [rank, call] : calls) {
    if (call->begin <= given_up) continue;
    text += (text.empty() ? "CULPRIT: rank " : "  and rank ") + std::to_string(rank) + " came late to collective " +
            std::to_string(stuck) + ", " + call->at() + ": " + seconds(call->begin - given_up) +
            " after it was given up. Look at what it does before that.\n";
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

std::optional<std::string> find_missing(Group const& group) {
  std::vector<int> missing;
  for (int rank = 0; rank < group.size; ++rank)
    if (!group.ranks.contains(rank)) missing.push_back(rank);
  if (missing.empty()) return std::nullopt;
  return "CULPRIT: probably " + listed(missing) +
         ", of which there is no dump: killed, gone before the others failed, " +
         "or still at work. Send SIGUSR1 to a process that is still there, and it dumps.\n" +
         find_behind(group).value_or("");
}

std::optional<std::string> find_waiting(Group const& group) {
  std::string text;
  for (auto const& [rank, log] : group.ranks)
    if (Record const* const message = waits_for_message(log))
      text += "  rank " + std::to_string(rank) + " waits in " + message->at() + "\n";
  if (text.empty()) return std::nullopt;
  return "CULPRIT: messages that nobody sends or takes. Compare ranks and tags:\n" + text;
}

void print_table(Group const& group, std::size_t rows) {
  std::int64_t front = -1;
  for (auto const& [rank, log] : group.ranks) front = std::max(front, log.last());
  for (std::int64_t number = std::max<std::int64_t>(0, front + 1 - static_cast<std::int64_t>(rows)); number <= front;
       ++number) {
    // Ranks with the same call, place and state share a line.
    std::vector<std::pair<std::string, std::vector<int>>> lines;
    for (int rank = 0; rank < group.size; ++rank) {
      auto const log = group.ranks.find(rank);
      if (log == group.ranks.end()) continue;
      auto const call = log->second.collectives.find(number);
      std::string line;
      if (call != log->second.collectives.end()) {
        std::string const state = call->second.state;
        line = state + std::string(state.size() < 10 ? 10 - state.size() : 1, ' ') + call->second.at();
      } else {
        line = number > log->second.last() ? "not called" : "no longer recorded";
      }
      auto const same =
          std::find_if(lines.begin(), lines.end(), [&](auto const& entry) { return entry.first == line; });
      if (same == lines.end()) lines.push_back({line, {rank}});
      else same->second.push_back(rank);
    }
    for (auto const& [line, ranks] : lines)
      std::printf("  %6lld  %-20s %s\n", static_cast<long long>(number), listed(ranks).c_str(), line.c_str());
  }
  for (auto const& [rank, log] : group.ranks)
    for (Record const& message : log.messages)
      if (!message.completed())
        std::printf("          %-20s %-9s %s\n", listed({rank}).c_str(), message.state.c_str(), message.at().c_str());
}

/// Ranks of which each waits on another communicator than some other: what each communicator's own finding, that the
/// others are behind, does not tell. Empty for none.
std::string waits_apart(std::map<std::string, Group> const& groups) {
  std::map<int, std::string> waits;  // by world rank
  std::vector<std::string> where;
  for (auto const& [name, group] : groups)
    for (auto const& [rank, log] : group.ranks) {
      if (log.collectives.empty() || log.collectives.rbegin()->second.completed()) continue;
      if (!waits.emplace(log.world_rank, " on " + name + " in " + log.collectives.rbegin()->second.at()).second)
        return {};
      if (std::find(where.begin(), where.end(), name) == where.end()) where.push_back(name);
    }
  if (where.size() < 2) return {};
  std::string text;
  for (auto const& [rank, wait] : waits)
    text +=
        (text.empty() ? "NOTE: ranks wait on different communicators: rank " : ", rank ") + std::to_string(rank) + wait;
  return text + ". Use communicators in the same order on every rank.\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) == "--help") {
    std::printf(
        "usage: tutti-doctor DUMP...\n"
        "Lines the flight records of ranks up and names the culprit. A program writes them, one for each rank,\n"
        "after its first error and on SIGUSR1 or SIGTERM when it runs with TUTTI_FLIGHT_RECORD=PREFIX.\n");
    return argc < 2 ? 1 : 0;
  }
  std::map<std::string, Group> groups;
  for (int i = 1; i < argc; ++i) {
    try {
      read(argv[i], groups);
    } catch (nlohmann::json::exception const&) {
      std::fprintf(stderr, "tutti-doctor: %s: is no flight record of this version, or not all of one. Name the files "
                           "that the ranks wrote\n", argv[i]);
      return 1;
    } catch (std::exception const& error) {
      std::fprintf(stderr, "tutti-doctor: %s: %s\n", argv[i], error.what());
      return 1;
    }
  }
  for (auto const& [name, group] : groups) {
    std::printf("communicator %s, %d ranks, %zu dump%s\n", name.c_str(), group.size, group.ranks.size(),
                group.ranks.size() == 1 ? "" : "s");
    print_table(group, 8);
    for (auto const& [rank, log] : group.ranks)
      if (!log.reason.empty()) std::printf("  rank %d dumped after: %s\n", rank, log.reason.c_str());
    std::optional<std::string> finding = find_mismatch(group);
    for (auto const find :
         {find_disagreement, find_failure, find_left, find_missing, find_behind, find_late, find_waiting})
      if (!finding) finding = find(group);
    std::printf("%s",
                finding ? finding->c_str() : "No culprit: all ranks made the same calls, and all are complete.\n");
  }
  std::printf("%s", waits_apart(groups).c_str());
  return 0;
}

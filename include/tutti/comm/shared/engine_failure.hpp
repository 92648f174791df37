// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What an engine says of ranks that are missing, have left, or call something else.

#include <tutti/comm/shared/engine.hpp>
#include <tutti/core/concat.hpp>

#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

namespace tutti::comm::shared {

template <class X>
std::string BasicEngine<X>::awaiting(Call const* call) const {
  std::string here, missing;
  for (int r = 0; r < size_; ++r) {
    bool const arrived =
        board_.entry(call->sequence, r).arrived.load(std::memory_order_acquire) > call->sequence;
    std::string& list = arrived ? here : missing;
    list += (list.empty() ? "" : ", ") + named(r);
    if (!arrived) list += concat(" (", whereabouts(r), ")");
  }
  if (missing.empty()) return "all ranks have arrived, not all have finished";
  return concat("ranks that have arrived: ", here.empty() ? "none" : here, "; missing: ", missing);
}

template <class X>
std::string BasicEngine<X>::whereabouts(int rank) const {
  Status const& status = board_.status(rank);
  std::string const position = status.position.load();
  std::uint64_t const completed = status.completed.load(std::memory_order_acquire);
  std::string text = "waits for nothing on this communicator";
  if (board_.left(rank)) text = "has left the communicator";
  else if (!position.empty()) text = concat("waits in ", position);
  return concat(text, ", after ", completed, completed == 1 ? " collective" : " collectives");
}

template <class X>
std::string BasicEngine<X>::named(int rank) const {
  return std::to_string(names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]);
}

template <class X>
bool BasicEngine<X>::explain(Call& c) {
  std::string text = "ranks disagree: ";
  for (int r : {c.one, c.other}) {
    bool const described = board_.status(r).described.load(std::memory_order_acquire) == c.ticket();
    if (!described && exec::now_ns() < c.give_up_at) return false;
    text +=
        concat("rank ", named(r), " calls ",
               described ? board_.status(r).description.load() : std::string("something else"),
               r == c.one ? ", " : "");
  }
  if (c.given != c.expected)
    text += concat(", which expects ", c.expected, " bytes from rank ", named(c.one), " and gets ", c.given,
                   ". Make the same call with counts that fit on every rank");
  else text += ". Make the same call on every rank";
  board_.alarm().raise(ErrorKind::communication, text);
  throw Error(ErrorKind::communication, std::string(name(c.whole().kind)), std::move(text));
}

template <class X>
void BasicEngine<X>::check_left(Call& c) const {
  if (c.phase != Call::arriving) return;
  bool const look_at_processes = (looks_ & 1023u) == 0;
  for (int r = 0; r < size_; ++r) {
    // Before the look at its arrival: it may arrive, finish and leave between the two.
    std::uint32_t const left = board_.status(r).left.load(std::memory_order_acquire);
    auto const process = board_.status(r).process.load(std::memory_order_relaxed);
    bool const dead = look_at_processes && process != 0 && ::kill(process, 0) != 0 && errno == ESRCH;
    if (left == 0 && !dead) continue;
    if (board_.entry(c.sequence, r).arrived.load(std::memory_order_acquire) > c.sequence) continue;
    check("test");  // the cause, if it has told one
    if (left == Status::failing && !dead) {
      if (c.give_up_at == 0) c.give_up_at = exec::now_ns() + 1'000'000'000;
      if (exec::now_ns() < c.give_up_at) continue;
    }
    throw Error(
        ErrorKind::communication, std::string(name(c.whole().kind)),
        concat("rank ", named(r),
               dead ? concat(" (process ", process, ") has died")
                    : " has left the communicator without taking part. Every rank must make the matching call"));
  }
}

}  // namespace tutti::comm::shared

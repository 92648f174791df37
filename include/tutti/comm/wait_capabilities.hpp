// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The capabilities of a backend, see comm/capabilities.hpp, that have to do with waits: where ranks are, for messages
/// of errors, and how they sleep.

#include <tutti/comm/collective.hpp>

#include <concepts>
#include <cstdint>
#include <string>

namespace tutti::comm {

/// `announce(text, collectives)`: where this rank waits, for the others' messages, and how many collectives it has
/// called; an empty text when it goes on.
template <class B>
concept AnnouncesPlaces = requires(B& b, std::string const& text) { b.announce(text, std::uint64_t{}); };
/// `announce_elsewhere(text)`: the same of a wait on another communicator of this rank, where it costs nothing.
template <class B>
concept AnnouncesElsewhere = requires(B& b, std::string const& text) { b.announce_elsewhere(text); };
/// `announce_to_all(text)`: the same of a wait here, when half of its deadline has passed, to ranks that wait on other
/// communicators.
template <class B>
concept AnnouncesToAll = requires(B& b, std::string const& text) { b.announce_to_all(text); };
/// `roll_call(number)`: who has called that collective, from what the ranks have announced.
template <class B>
concept CallsRolls = requires(B const& b) {
  { b.roll_call(std::uint64_t{}) } -> std::same_as<std::string>;
};
/// `whereabouts(rank)`: where another rank waits.
template <class B>
concept KnowsWhereabouts = requires(B const& b) {
  { b.whereabouts(0) } -> std::same_as<std::string>;
};
/// `sleeper()`: null, or what lets this rank sleep until another one has news for it, which it does where waits sleep:
/// prepare_sleep(), for the numbers that sleep(number, ns) takes when a look has found nothing, and stay_awake() else.
template <class B>
concept WakesSleepers = requires(B& b) {
  { b.sleeper()->prepare_sleep() } noexcept -> std::same_as<std::uint32_t>;
  { b.sleeper()->sleep(std::uint32_t{}, std::int64_t{}) } noexcept;
  { b.sleeper()->stay_awake() } noexcept;
};
/// `waits(begins)`: this rank begins, or ends, to do nothing but wait.
template <class B>
concept HearsOfWaits = requires(B& b) { b.waits(true); };
/// `count_notices(traffic)`: where to add messages of its own that belong to no operation.
template <class B>
concept CountsNotices = requires(B& b, WireTraffic* traffic) { b.count_notices(traffic); };

namespace capability {

template <class B>
void announce([[maybe_unused]] B& b, [[maybe_unused]] std::string const& text,
              [[maybe_unused]] std::uint64_t collectives) noexcept {
  if constexpr (AnnouncesPlaces<B>) b.announce(text, collectives);
}
template <class B>
void announce_elsewhere([[maybe_unused]] B& b, [[maybe_unused]] std::string const& text) noexcept {
  if constexpr (AnnouncesElsewhere<B>) b.announce_elsewhere(text);
}
template <class B>
void announce_to_all([[maybe_unused]] B& b, [[maybe_unused]] std::string const& text) noexcept {
  if constexpr (AnnouncesToAll<B>) b.announce_to_all(text);
}
template <class B>
std::string roll_call([[maybe_unused]] B const& b, [[maybe_unused]] std::uint64_t number) {
  if constexpr (CallsRolls<B>) return b.roll_call(number);
  else return {};
}
template <class B>
std::string whereabouts([[maybe_unused]] B const& b, [[maybe_unused]] int rank) {
  if constexpr (KnowsWhereabouts<B>) return b.whereabouts(rank);
  else return {};
}
template <class B>
void waits([[maybe_unused]] B& b, [[maybe_unused]] bool begins) noexcept {
  if constexpr (HearsOfWaits<B>) b.waits(begins);
}
template <class B>
void count_notices([[maybe_unused]] B& b, [[maybe_unused]] WireTraffic* traffic) noexcept {
  if constexpr (CountsNotices<B>) b.count_notices(traffic);
}

}  // namespace capability
}  // namespace tutti::comm

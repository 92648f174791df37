// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operations of a warp. A lane that the mask names must come to the same operation, or the launch fails.

#include "emulated/block.hpp"

#include <cstring>
#include <source_location>

namespace emulated {

/// What one lane gives to a shuffle, and what it gets.
template <class T>
struct Shuffle {
  T value;
  unsigned source;  ///< the lane it reads
  T result;
};

template <class T>
T shuffle(char const* name, unsigned mask, T value, unsigned source, std::source_location where) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles values of 4 and 8 bytes");
  Shuffle<T> mine{value, source, value};
  LaneCall call{name, mask, where, &mine, [](LaneCall* const(&lanes)[warp_size], unsigned all) {
                  for (unsigned lane = 0; lane < warp_size; ++lane) {
                    if ((all >> lane & 1u) == 0) continue;
                    auto& to = *static_cast<Shuffle<T>*>(lanes[lane]->data);
                    if ((all >> to.source & 1u) != 0)
                      to.result = static_cast<Shuffle<T>*>(lanes[to.source]->data)->value;
                    else std::memset(&to.result, 0xff, sizeof(T));  // CUDA: undefined when the source takes no part
                  }
                }};
  warp_together(call);
  return mine.result;
}

template <class Combine>
unsigned vote(char const* name, unsigned mask, unsigned value, std::source_location where, Combine) {
  struct Vote {
    unsigned value, result;
  } mine{value, 0};
  LaneCall call{name, mask, where, &mine, [](LaneCall* const(&lanes)[warp_size], unsigned all) {
                  unsigned result = Combine::start;
                  for (unsigned lane = 0; lane < warp_size; ++lane)
                    if ((all >> lane & 1u) != 0)
                      result = Combine::next(result, static_cast<Vote*>(lanes[lane]->data)->value, lane);
                  for (unsigned lane = 0; lane < warp_size; ++lane)
                    if ((all >> lane & 1u) != 0) static_cast<Vote*>(lanes[lane]->data)->result = result;
                }};
  warp_together(call);
  return mine.result;
}

struct Ballot {
  static constexpr unsigned start = 0;
  static unsigned next(unsigned all, unsigned value, unsigned lane) { return all | (value != 0 ? 1u << lane : 0u); }
};
struct Any {
  static constexpr unsigned start = 0;
  static unsigned next(unsigned all, unsigned value, unsigned) { return all | (value != 0); }
};
struct All {
  static constexpr unsigned start = 1;
  static unsigned next(unsigned all, unsigned value, unsigned) { return all & (value != 0); }
};
struct Sum {
  static constexpr unsigned start = 0;
  static unsigned next(unsigned all, unsigned value, unsigned) { return all + value; }
};
struct Largest {
  static constexpr unsigned start = 0;
  static unsigned next(unsigned all, unsigned value, unsigned) { return all > value ? all : value; }
};

/// The last lane of the segment of `width` lanes that holds `lane`.
inline unsigned segment_end(unsigned lane, int width) { return lane | (static_cast<unsigned>(width) - 1); }

}  // namespace emulated

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              std::source_location where = std::source_location::current()) {
  unsigned const first = emulated::lane() & ~(static_cast<unsigned>(width) - 1);
  return emulated::shuffle("__shfl_sync", mask, value,
                           first + (static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1)), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  std::source_location where = std::source_location::current()) {
  unsigned const source = emulated::lane() ^ static_cast<unsigned>(lanes);
  return emulated::shuffle("__shfl_xor_sync", mask, value,
                           source <= emulated::segment_end(emulated::lane(), width) ? source : emulated::lane(), where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                   std::source_location where = std::source_location::current()) {
  unsigned const source = emulated::lane() + lanes;
  return emulated::shuffle("__shfl_down_sync", mask, value,
                           source <= emulated::segment_end(emulated::lane(), width) ? source : emulated::lane(), where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                 std::source_location where = std::source_location::current()) {
  unsigned const first = emulated::lane() & ~(static_cast<unsigned>(width) - 1);
  return emulated::shuffle("__shfl_up_sync", mask, value,
                           emulated::lane() >= first + lanes ? emulated::lane() - lanes : emulated::lane(), where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  return emulated::vote("__ballot_sync", mask, predicate != 0, where, emulated::Ballot{});
}
inline int __any_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return static_cast<int>(emulated::vote("__any_sync", mask, predicate != 0, where, emulated::Any{}));
}
inline int __all_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return static_cast<int>(emulated::vote("__all_sync", mask, predicate != 0, where, emulated::All{}));
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  std::source_location where = std::source_location::current()) {
  return emulated::vote("__reduce_add_sync", mask, value, where, emulated::Sum{});
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  std::source_location where = std::source_location::current()) {
  return emulated::vote("__reduce_max_sync", mask, value, where, emulated::Largest{});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, std::source_location where = std::source_location::current()) {
  emulated::LaneCall call{"__syncwarp", mask, where, nullptr,
                          [](emulated::LaneCall* const(&)[emulated::warp_size], unsigned) {}};
  emulated::warp_together(call);
}

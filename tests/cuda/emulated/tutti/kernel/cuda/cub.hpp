// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The emulated twin of the library's header of this name: found first on the include path. One thread does the work,
/// in the stream's order, and leaves nothing of use in the room, of which it needs all.

#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::kernel::cuda {

struct Room {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

namespace emulated_cub {

template <class F>
__global__ void by_one_thread(F const work) {
  work();
}
/// `work` for `count` items, whose answer to a question without room is `bytes`.
template <class F>
std::size_t primitive(tutti::cuda::Stream const& stream, Room room, std::int32_t count, F work) {
  std::size_t const bytes = 256 + 4 * static_cast<std::size_t>(count);
  if (room.memory == nullptr) return bytes;
  if (room.bytes < bytes || reinterpret_cast<std::uintptr_t>(room.memory) % 256 != 0)
    throw Error(ErrorKind::invalid_argument, "cub", "the room is too small, or not aligned to 256 bytes");
  auto const all = [room, bytes, work] {
    work();
    std::memset(room.memory, 0xff, bytes);
  };
  tutti::cuda::launch(stream, {.grid = dim3(1), .block = dim3(1)}, by_one_thread<decltype(all)>, all);
  return bytes;
}

}  // namespace emulated_cub

template <class Key, class Value>
std::size_t sort_pairs(tutti::cuda::Stream const& stream, Room room, Key const* keys, Key* sorted_keys,
                       Value const* values, Value* sorted_values, std::int32_t count, int bits) {
  return emulated_cub::primitive(stream, room, count, [=] {
    Key const mask = static_cast<Key>(bits >= static_cast<int>(8 * sizeof(Key)) ? ~Key{0} : (Key{1} << bits) - 1);
    std::vector<std::pair<Key, Value>> pairs;
    for (std::int32_t i = 0; i < count; ++i) pairs.emplace_back(keys[i], values[i]);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&](auto const& a, auto const& b) { return (a.first & mask) < (b.first & mask); });
    for (std::int32_t i = 0; i < count; ++i) {
      sorted_keys[i] = pairs[static_cast<std::size_t>(i)].first;
      sorted_values[i] = pairs[static_cast<std::size_t>(i)].second;
    }
  });
}

template <class In, class Out, class Operator, class T>
std::size_t reduce(tutti::cuda::Stream const& stream, Room room, In in, Out out, std::int32_t count, Operator op,
                   T initial) {
  return emulated_cub::primitive(stream, room, count, [=] {
    T result = initial;
    for (std::int32_t i = 0; i < count; ++i) result = op(result, in[i]);
    *out = result;
  });
}

template <class In, class Out, class Operator, class T>
std::size_t exclusive_scan(tutti::cuda::Stream const& stream, Room room, In in, Out out, std::int32_t count,
                           Operator op, T initial) {
  return emulated_cub::primitive(stream, room, count, [=] {
    T result = initial;
    for (std::int32_t i = 0; i < count; ++i) {
      T const next = op(result, in[i]);
      out[i] = result;
      result = next;
    }
  });
}

template <class In, class Out, class Predicate>
std::size_t select_if(tutti::cuda::Stream const& stream, Room room, In in, Out out, std::int32_t* selected,
                      std::int32_t count, Predicate predicate) {
  return emulated_cub::primitive(stream, room, count, [=] {
    std::int32_t kept = 0;
    for (std::int32_t i = 0; i < count; ++i)
      if (predicate(in[i])) out[kept++] = in[i];
    *selected = kept;
  });
}

}  // namespace tutti::kernel::cuda

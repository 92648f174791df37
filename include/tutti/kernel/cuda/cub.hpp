// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sort, scan, selection and reduction by any operator on a device: CUB's, and the only place that includes it. The
/// emulation has a twin of this header.
///
/// Every function is called twice: with no room it only says how many bytes it needs; with that many it enqueues the
/// work. Inputs and results are iterators that kernels can read and write, such as pointers to device memory and
/// those of views (tutti/kernel/cuda/iterator.hpp). Counts are below 2^31: one type of index is half of the code to
/// compile.

#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/stream.hpp>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

/// Device memory, aligned to 256, for one of the functions below.
struct Room {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

/// Stable, by the `bits` low bits of unsigned keys. Nothing overlaps.
template <class Key, class Value>
std::size_t sort_pairs(tutti::cuda::Stream const& stream, Room room, Key const* keys, Key* sorted_keys,
                       Value const* values, Value* sorted_values, std::int32_t count, int bits) {
  tutti::cuda::CurrentDevice const current(stream.device());
  tutti::cuda::check(cub::DeviceRadixSort::SortPairs(room.memory, room.bytes, keys, sorted_keys, values, sorted_values,
                                                     count, 0, bits, stream.native()),
                     "cub::DeviceRadixSort");
  return room.bytes;
}

/// *out = initial op x[0] op ... x[count - 1], for any associative operator. Determinism: the same bits in every run
/// of one device. Its kernels name types of ::cuda::std: where a program says `using namespace tutti` at global scope,
/// nvcc finds two namespaces `cuda` there and refuses. Say it inside a namespace or a function.
template <class In, class Out, class Operator, class T>
std::size_t reduce(tutti::cuda::Stream const& stream, Room room, In in, Out out, std::int32_t count, Operator op,
                   T initial) {
  tutti::cuda::CurrentDevice const current(stream.device());
  tutti::cuda::check(cub::DeviceReduce::Reduce(room.memory, room.bytes, in, out, count, op, initial, stream.native()),
                     "cub::DeviceReduce");
  return room.bytes;
}

/// out[i] = initial op x[0] op ... x[i - 1]. `out` may be `in`. Determinism: the operator must be exact, as those of
/// integers are: how partial results are grouped depends on scheduling.
template <class In, class Out, class Operator, class T>
std::size_t exclusive_scan(tutti::cuda::Stream const& stream, Room room, In in, Out out, std::int32_t count,
                           Operator op, T initial) {
  tutti::cuda::CurrentDevice const current(stream.device());
  tutti::cuda::check(
      cub::DeviceScan::ExclusiveScan(room.memory, room.bytes, in, out, op, initial, count, stream.native()),
      "cub::DeviceScan");
  return room.bytes;
}

/// Those x for which the predicate holds, in their order, and in *selected how many.
template <class In, class Out, class Predicate>
std::size_t select_if(tutti::cuda::Stream const& stream, Room room, In in, Out out, std::int32_t* selected,
                      std::int32_t count, Predicate predicate) {
  tutti::cuda::CurrentDevice const current(stream.device());
  tutti::cuda::check(
      cub::DeviceSelect::If(room.memory, room.bytes, in, out, selected, count, predicate, stream.native()),
      "cub::DeviceSelect");
  return room.bytes;
}

}  // namespace tutti::kernel::cuda

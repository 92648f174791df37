// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks ask of a window's parts until its fence: requests as bytes, each in front of its elements.

#include <tutti/comm/communicator.hpp>
#include <tutti/comm/operators.hpp>
#include <tutti/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tutti::comm {

/// In front of its elements, where it has some.
template <class T>
struct WindowRequest {
  enum Kind : std::int32_t { put, get, accumulate };
  Kind kind;
  Operator op;
  std::int64_t at;
  std::int64_t count;

  static constexpr std::size_t bytes_of(std::int64_t count) noexcept {
    return static_cast<std::size_t>(count) * sizeof(T);
  }
  /// Puts it behind the others to that rank.
  void append(List<std::byte>& to, T const* elements) const {
    std::size_t const end = to.size();
    std::size_t const bytes = elements == nullptr ? 0 : bytes_of(count);
    to.resize(end + sizeof(WindowRequest) + bytes);
    std::memcpy(to.data() + end, this, sizeof(WindowRequest));
    if (bytes != 0) std::memcpy(to.data() + end + sizeof(WindowRequest), elements, bytes);
  }
  /// Does what a rank asked for, of the part that begins `here`; what it gets goes behind `back`.
  static void make(std::span<std::byte const> bytes, T* here, List<std::byte>& back) {
    while (!bytes.empty()) {
      WindowRequest request;
      std::memcpy(&request, bytes.data(), sizeof request);
      std::byte const* const elements = bytes.data() + sizeof request;
      std::size_t taken = sizeof request;
      if (request.kind == get) {
        std::size_t const end = back.size();
        back.resize(end + bytes_of(request.count));
        std::memcpy(back.data() + end, here + request.at, bytes_of(request.count));
      } else {
        taken += bytes_of(request.count);
        if (request.kind == put)
          std::memcpy(static_cast<void*>(here + request.at), elements, bytes_of(request.count));
        else request.add(here + request.at, elements);
      }
      bytes = bytes.subspan(taken);
    }
  }

 private:
  void add(T* here, std::byte const* elements) const {
    List<T> aligned(static_cast<std::size_t>(count));
    std::memcpy(static_cast<void*>(aligned.data()), elements, bytes_of(count));
    void const* const inputs[] = {here, aligned.data()};
    void* const outputs[] = {here};
    auto const fold = [&](auto const& by) {
      if constexpr (reducible<T, std::remove_cvref_t<decltype(by)>>()) {
        Reduction const reduction = reduction_of<T>(by);
        reduction.fold(reduction.state, inputs, 2, outputs, 1, count);
      }
    };
    switch (op) {
      case Operator::sum: return fold(sum);
      case Operator::prod: return fold(prod);
      case Operator::min: return fold(min);
      default: return fold(max);
    }
  }
};

/// To each rank its bytes.
template <Backend B>
Ragged<std::byte, typename B::Device> exchange(Communicator<B>& comm, List<List<std::byte>> const& parts,
                                               CallSite where) {
  List<std::int64_t> counts;
  List<std::byte> all;
  for (auto const& part : parts) {
    counts.push_back(static_cast<std::int64_t>(part.size()));
    std::size_t const end = all.size();
    all.resize(end + part.size());
    if (!part.empty()) std::memcpy(all.data() + end, part.data(), part.size());
  }
  return comm.all_to_all_v(TensorView<std::byte const>(all.data(), Shape{static_cast<std::int64_t>(all.size())}),
                           counts, where);
}

}  // namespace tutti::comm

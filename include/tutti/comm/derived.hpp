// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Collectives as messages, for what a backend lacks. Everything is sent at once to everyone concerned; reductions and
/// scans spread the work: share r of the result is computed by rank r, in rank order. A tag per collective makes the
/// order in which several of them progress irrelevant.

#include <tutti/comm/buffer_parts.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/core.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/storage.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::comm {

/// Memory of the backend's default device; a function of its own keeps the allocation out of line.
template <Backend B>
[[gnu::noinline]] Storage<typename B::Device> scratch_memory(std::int64_t bytes) {
  return Storage<typename B::Device>(typename B::Device{}, static_cast<std::size_t>(bytes));
}

template <Backend B>
class Derived {
 public:
  Derived(Core<B>& core, Collective const& call) : Derived(core, call, core.next_tag()) {}
  /// With a tag that all ranks took from `core` when they made the call, for one whose messages start later.
  Derived(Core<B>& core, Collective const& call, int tag)
      : core_(core),
        call_(call),
        rank_(core.backend.rank()),
        size_(core.backend.size()),
        element_(call.element_bytes()),
        tag_(tag) {}

  bool advance() {
    while (stage_ < 2) {
      for (auto& transfer : transfers_)
        if (!core_.backend.test(transfer.operation)) return false;
      for (auto const& transfer : transfers_) check_received(transfer);
      transfers_.clear();
      ++stage_;
      if (stage_ == 1) {
        if (!reduces(call_.kind)) return true;
        reduce_blocks();
      }
    }
    return true;
  }

  bool abandon() noexcept {
    bool safe = true;
    for (auto& transfer : transfers_) safe = core_.backend.abandon(transfer.operation) && safe;
    return safe;
  }
  std::string awaiting() const {
    std::string text;
    for (auto const& transfer : transfers_) {
      std::string const one = core_.backend.awaiting(transfer.operation);
      if (!one.empty()) text += (text.empty() ? "" : "; ") + one;
    }
    return text;
  }

 private:
  struct Transfer {
    typename B::Operation operation;
    int from = -1;  ///< -1 for a send
    std::int64_t bytes = 0;
  };
  using Part = BufferPart;

  Part part_of_from(int r) const noexcept { return block_part(call_, call_.from_counts, r); }
  Part part_of_to(int r) const noexcept { return block_part(call_, call_.to_counts, r); }
  Part share(int r) const noexcept { return reduced_part(call_, size_, r); }

  void send(void const* from, std::int64_t bytes, int to) {
    transfers_.push_back({core_.backend.start_send(from, bytes, DType::byte, to, tag_, Channel::internal), -1, 0});
    Tally::count(call_.wire, Algorithm::messages, bytes, 0);
  }
  void receive(void* to, std::int64_t bytes, int from) {
    transfers_.push_back(
        {core_.backend.start_recv(to, bytes, DType::byte, from, tag_, Channel::internal), from, bytes});
  }
  void send(void const* from, Part part, int to) { send(bytes_at(from, part.at), part.bytes, to); }
  void receive(void* to, Part part, int from) { receive(bytes_at(to, part.at), part.bytes, from); }
  void copy(void* to, void const* from, std::int64_t bytes) const {
    if (to != from && bytes != 0) typename B::Device{}.copy_within(to, from, static_cast<std::size_t>(bytes));
  }
  void check_received(Transfer const& transfer) const {
    if (transfer.from < 0) return;
    std::int64_t const bytes = core_.backend.received(transfer.operation).bytes;
    Tally::count(call_.wire, Algorithm::messages, 0, bytes);
    if (bytes != transfer.bytes)
      throw Error(ErrorKind::communication, std::string(name(call_.kind)),
                  concat("rank ", transfer.from, " sent ", bytes, " bytes where this rank expects ", transfer.bytes,
                         " for ", describe(call_), ". Make the same call with the same counts on every rank"));
  }

 public:
  /// Starts the first messages. When it throws, some of them may be under way.
  void begin() {
    std::int64_t const block = call_.block_bytes();
    bool const root_here = rank_ == call_.root;
    if (reduces(call_.kind)) inputs_ = scratch_memory<B>(share(rank_).bytes * call_.contributions * size_);
    if (call_.kind == Kind::all_reduce_contributions) pack_shares();
    for (int step = 1; step < size_; ++step) {  // each rank begins with another peer
      int const peer = (rank_ + step) % size_;
      bool const root_there = peer == call_.root;
      switch (call_.kind) {
        case Kind::barrier:
          send(nullptr, 0, peer);
          receive(nullptr, 0, peer);
          break;
        case Kind::broadcast:
          if (root_here) send(call_.from, block, peer);
          if (root_there) receive(call_.to, block, peer);
          break;
        case Kind::gather: case Kind::gather_v:
          if (root_there) send(call_.from, block, peer);
          if (root_here) receive(call_.to, part_of_to(peer), peer);
          break;
        case Kind::all_gather: case Kind::all_gather_v:
          send(call_.from, block, peer);
          receive(call_.to, part_of_to(peer), peer);
          break;
        case Kind::scatter: case Kind::scatter_v:
          if (root_here) send(call_.from, part_of_from(peer), peer);
          if (root_there) receive(call_.to, block, peer);
          break;
        case Kind::all_to_all: case Kind::all_to_all_v:
          send(call_.from, part_of_from(peer), peer);
          receive(call_.to, part_of_to(peer), peer);
          break;
        case Kind::reduce: case Kind::all_reduce: case Kind::reduce_scatter: case Kind::scan: case Kind::exscan:
        case Kind::reduce_scatter_v:
          send(call_.from, share(peer), peer);
          receive(bytes_at(inputs_.data(), peer * share(rank_).bytes), share(rank_).bytes, peer);
          break;
        case Kind::all_reduce_contributions:
          send(packed_.data(), rows_of(share(peer)), peer);
          receive(bytes_at(inputs_.data(), peer * rows_of(share(rank_)).bytes), rows_of(share(rank_)).bytes, peer);
          break;
      }
    }
    switch (call_.kind) {  // what stays on this rank
      case Kind::broadcast:
        if (root_here) copy(call_.to, call_.from, block);
        break;
      case Kind::gather: case Kind::gather_v:
        if (root_here) copy(bytes_at(call_.to, part_of_to(rank_).at), call_.from, block);
        break;
      case Kind::all_gather: case Kind::all_gather_v:
        copy(bytes_at(call_.to, part_of_to(rank_).at), call_.from, block);
        break;
      case Kind::scatter: case Kind::scatter_v:
        if (root_here) copy(call_.to, bytes_at(call_.from, part_of_from(rank_).at), block);
        break;
      case Kind::all_to_all: case Kind::all_to_all_v:
        copy(bytes_at(call_.to, part_of_to(rank_).at), bytes_at(call_.from, part_of_from(rank_).at),
             part_of_to(rank_).bytes);
        break;
      default: break;
    }
  }

 private:
  Part rows_of(Part part) const noexcept { return tutti::comm::rows_of(call_, part); }
  /// What goes to one rank, one contribution after another.
  void pack_shares() {
    packed_ = scratch_memory<B>(call_.block_bytes() * call_.contributions);
    for (int peer = 0; peer < size_; ++peer)
      for (std::int64_t row = 0; row < call_.contributions && peer != rank_; ++row)
        copy(bytes_at(packed_.data(), rows_of(share(peer)).at + row * share(peer).bytes),
             bytes_at(call_.from, row * call_.block_bytes() + share(peer).at), share(peer).bytes);
  }

  void fold(List<void const*> const& inputs, int ranks, void* to) {
    call_.reduction.fold(call_.reduction.state, inputs.data(), ranks, &to, 1, share(rank_).bytes / element_);
  }

  /// All inputs of this rank's share are here: reduce them and pass the results on.
  void reduce_blocks() {
    Part const own = share(rank_);
    List<void const*> inputs;
    for (int peer = 0; peer < size_; ++peer)
      for (std::int64_t row = 0; row < call_.contributions; ++row)
        inputs.push_back(peer == rank_ ? bytes_at(call_.from, row * call_.block_bytes() + own.at)
                                       : bytes_at(inputs_.data(), (peer * call_.contributions + row) * own.bytes));
    switch (call_.kind) {
      case Kind::reduce_scatter: case Kind::reduce_scatter_v: fold(inputs, size_, call_.to); break;
      case Kind::scan: case Kind::exscan: prefixes(inputs, own); break;
      case Kind::reduce:
        if (rank_ == call_.root) {
          fold(inputs, size_, bytes_at(call_.to, own.at));
          for (int step = 1; step < size_; ++step) receive_share((rank_ + step) % size_);
        } else {
          results_ = scratch_memory<B>(own.bytes);
          fold(inputs, size_, results_.data());
          send(results_.data(), own.bytes, call_.root);
        }
        break;
      default: {
        void* const result = bytes_at(call_.to, own.at);
        fold(inputs, static_cast<int>(inputs.size()), result);
        for (int step = 1; step < size_; ++step) {
          int const peer = (rank_ + step) % size_;
          send(result, own.bytes, peer);
          receive_share(peer);
        }
      }
    }
  }
  void receive_share(int peer) { receive(call_.to, share(peer), peer); }

  /// What rank r gets of this rank's share combines the first r inputs, of scan also its own.
  void prefixes(List<void const*> const& inputs, Part own) {
    int const inclusive = call_.kind == Kind::scan ? 1 : 0;
    results_ = scratch_memory<B>(own.bytes * size_);
    List<void*> results;
    for (int r = 0; r < size_; ++r) results.push_back(bytes_at(results_.data(), r * own.bytes));
    results[static_cast<std::size_t>(rank_)] = rank_ + inclusive > 0 ? bytes_at(call_.to, own.at) : nullptr;
    call_.reduction.prefixes(call_.reduction.state, inputs.data(), size_, results.data(), inclusive != 0,
                             own.bytes / element_);
    for (int step = 1; step < size_; ++step) {
      int const peer = (rank_ + step) % size_;
      if (peer + inclusive > 0) send(results[static_cast<std::size_t>(peer)], own.bytes, peer);
      if (rank_ + inclusive > 0) receive_share(peer);
    }
  }

  Core<B>& core_;
  Collective call_;
  int rank_;
  int size_;
  std::int64_t element_;
  int tag_;
  int stage_ = 0;
  List<Transfer> transfers_;
  Storage<typename B::Device> inputs_;
  Storage<typename B::Device> results_;
  Storage<typename B::Device> packed_;
};

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Collectives as messages, for what a backend lacks. Everything is sent at once to everyone concerned; reductions
/// spread the work: block r of the result is computed by rank r, in rank order. A tag per collective makes the order in
/// which several of them progress irrelevant.

#include <tutti/comm/core.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
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
  Derived(Core<B>& core, Collective const& call)
      : core_(core),
        call_(call),
        rank_(core.backend.rank()),
        size_(core.backend.size()),
        element_(static_cast<std::int64_t>(size_of(call.dtype))),
        tag_(core.next_tag()) {}

  bool advance() {
    while (stage_ < 2) {
      for (auto& operation : operations_)
        if (!core_.backend.test(operation)) return false;
      operations_.clear();
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
    for (auto& operation : operations_) safe = core_.backend.abandon(operation) && safe;
    return safe;
  }
  std::string awaiting() const {
    std::string text;
    for (auto const& operation : operations_) {
      std::string const one = core_.backend.awaiting(operation);
      if (!one.empty()) text += (text.empty() ? "" : "; ") + one;
    }
    return text;
  }

 private:
  /// Block of elements that rank r reduces.
  std::int64_t bound(int r) const noexcept {
    if (call_.kind == Kind::reduce_scatter) return call_.count * r;
    return call_.count / size_ * r + call_.count % size_ * r / size_;
  }
  static std::byte* plus(void* p, std::int64_t bytes) noexcept { return static_cast<std::byte*>(p) + bytes; }
  static std::byte const* plus(void const* p, std::int64_t bytes) noexcept {
    return static_cast<std::byte const*>(p) + bytes;
  }

  void send(void const* from, std::int64_t bytes, int to) {
    operations_.push_back(core_.backend.start_send(from, bytes, to, tag_, Channel::internal));
  }
  void receive(void* to, std::int64_t bytes, int from) {
    operations_.push_back(core_.backend.start_recv(to, bytes, from, tag_, Channel::internal));
  }
  void copy(void* to, void const* from, std::int64_t bytes) const {
    if (to != from && bytes != 0) typename B::Device{}.copy_within(to, from, static_cast<std::size_t>(bytes));
  }

 public:
  /// Starts the first messages. When it throws, some may be under way.
  void begin() {
    std::int64_t const block = call_.block_bytes();
    for (int step = 1; step < size_; ++step) {  // each rank begins with another peer
      int const peer = (rank_ + step) % size_;
      bool const root_here = rank_ == call_.root;
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
        case Kind::gather:
          if (root_there) send(call_.from, block, peer);
          if (root_here) receive(plus(call_.to, peer * block), block, peer);
          break;
        case Kind::all_gather:
          send(call_.from, block, peer);
          receive(plus(call_.to, peer * block), block, peer);
          break;
        case Kind::scatter:
          if (root_here) send(plus(call_.from, peer * block), block, peer);
          if (root_there) receive(call_.to, block, peer);
          break;
        case Kind::all_to_all:
          send(plus(call_.from, peer * block), block, peer);
          receive(plus(call_.to, peer * block), block, peer);
          break;
        case Kind::reduce: case Kind::all_reduce: case Kind::reduce_scatter: {
          std::int64_t const own = (bound(rank_ + 1) - bound(rank_)) * element_;
          if (peer == (rank_ + 1) % size_) inputs_ = scratch_memory<B>(own * size_);
          send(plus(call_.from, bound(peer) * element_), (bound(peer + 1) - bound(peer)) * element_, peer);
          receive(plus(inputs_.data(), peer * own), own, peer);
          break;
        }
      }
    }
    if (call_.kind == Kind::broadcast && rank_ == call_.root) copy(call_.to, call_.from, block);
    if (call_.kind == Kind::all_gather || (call_.kind == Kind::gather && rank_ == call_.root))
      copy(plus(call_.to, rank_ * block), call_.from, block);
    if (call_.kind == Kind::scatter && rank_ == call_.root) copy(call_.to, plus(call_.from, rank_ * block), block);
    if (call_.kind == Kind::all_to_all) copy(plus(call_.to, rank_ * block), plus(call_.from, rank_ * block), block);
  }

 private:
  /// All inputs of this rank's block are here: reduce it and pass it on.
  void reduce_blocks() {
    std::int64_t const own = bound(rank_ + 1) - bound(rank_);
    List<void const*> inputs(static_cast<std::size_t>(size_));
    for (int peer = 0; peer < size_; ++peer)
      inputs[static_cast<std::size_t>(peer)] = peer == rank_
                                                   ? static_cast<void const*>(plus(call_.from, bound(rank_) * element_))
                                                   : plus(inputs_.data(), peer * own * element_);
    void* result = call_.to;
    if (call_.kind == Kind::all_reduce || (call_.kind == Kind::reduce && rank_ == call_.root)) {
      result = plus(call_.to, bound(rank_) * element_);
    } else if (call_.kind == Kind::reduce) {
      result_ = scratch_memory<B>(own * element_);
      result = result_.data();
    }
    call_.reduction.fold(call_.reduction.state, inputs.data(), size_, result, own);
    if (call_.kind == Kind::reduce_scatter) return;
    for (int step = 1; step < size_; ++step) {
      int const peer = (rank_ + step) % size_;
      bool const all = call_.kind == Kind::all_reduce;
      if (all || peer == call_.root) send(result, own * element_, peer);
      if (all || rank_ == call_.root)
        receive(plus(call_.to, bound(peer) * element_), (bound(peer + 1) - bound(peer)) * element_, peer);
    }
  }

  Core<B>& core_;
  Collective call_;
  int rank_;
  int size_;
  std::int64_t element_;
  int tag_;
  int stage_ = 0;
  List<typename B::Operation> operations_;
  Storage<typename B::Device> inputs_;
  Storage<typename B::Device> result_;
};

/// A collective under way: by the backend where it provides it, else derived.
template <Backend B>
class CollectiveJob : public Job {
 public:
  CollectiveJob(Core<B>& core, Collective const& call) : Job(name(call.kind).data()), core_(core), call_(call) {
    bool native = core_.backend.provides(call_.kind, call_.dtype, call_.reduction.op);
    if (!native && call_.reduction.op == Operator::avg &&
        core_.backend.provides(call_.kind, call_.dtype, Operator::sum)) {
      native = divides_ = true;
      call_.reduction.op = Operator::sum;
    }
    prepare_aliases(native);
    if (native) operation_ = core_.backend.start(call_);
    else begin_derived();
  }

  bool abandon() noexcept override {
    bool const safe = derived_ ? derived_->abandon() : core_.backend.abandon(operation_);
    if (!safe) {  // scratch memory that a peer may still reach is given up
      static_cast<void>(derived_.release());
      keep_forever(std::move(scratch_));
    }
    return safe;
  }
  std::string awaiting() const override { return derived_ ? derived_->awaiting() : core_.backend.awaiting(operation_); }
  bool collective() const noexcept override { return true; }

 protected:
  bool advance() override {
    if (derived_ ? !derived_->advance() : !core_.backend.test(operation_)) return false;
    bool const here = call_.kind != Kind::reduce || core_.backend.rank() == call_.root;
    if (divides_ && here) call_.reduction.divide(call_.to, call_.count, core_.backend.size());
    if (copy_back_ != nullptr)
      typename B::Device{}.copy_within(copy_back_, call_.to, static_cast<std::size_t>(call_.block_bytes()));
    return true;
  }

 private:
  void begin_derived() {
    derived_ = make_owner<Derived<B>>(core_, call_);
    try {
      derived_->begin();
    } catch (...) {
      this->postpone();  // the messages that are under way know the caller's buffers
    }
  }
  /// Moves one buffer aside where neither the backend nor messages can work in place.
  void prepare_aliases(bool native) {
    std::int64_t const block = call_.block_bytes();
    if (block == 0) return;
    if (call_.kind == Kind::all_to_all && call_.from == call_.to) {
      auto const bytes = static_cast<std::size_t>(block * core_.backend.size());
      scratch_ = scratch_memory<B>(static_cast<std::int64_t>(bytes));
      typename B::Device{}.copy_within(scratch_.data(), call_.from, bytes);
      call_.from = scratch_.data();
    }
    bool const own_block = call_.to == static_cast<std::byte const*>(call_.from) + block * core_.backend.rank();
    if (call_.kind == Kind::reduce_scatter && own_block && native && !core_.backend.scatters_in_place()) {
      scratch_ = scratch_memory<B>(block);
      copy_back_ = std::exchange(call_.to, scratch_.data());
    }
  }

  Core<B>& core_;
  Collective call_;
  bool divides_ = false;
  void* copy_back_ = nullptr;
  Storage<typename B::Device> scratch_;
  typename B::Operation operation_;
  Owner<Derived<B>> derived_;
};

}  // namespace tutti::comm

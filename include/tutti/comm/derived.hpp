// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Collectives as messages, for what a backend lacks. Everything is sent at once to everyone concerned; reductions and
/// scans spread the work: share r of the result is computed by rank r, in rank order. A tag per collective makes the
/// order in which several of them progress irrelevant. Above 400 lines: all kinds of collectives in one place.

#include <tutti/core/concat.hpp>
#include <tutti/comm/comparison.hpp>
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
  /// Bytes of a buffer.
  struct Part {
    std::int64_t at, bytes;
  };

  /// Block r of a buffer that holds one for each rank.
  Part part(PerRank counts, int r) const noexcept {
    if (counts.empty()) return {r * call_.block_bytes(), call_.block_bytes()};
    std::int64_t before = 0;
    for (int other = 0; other < r; ++other) before += counts[other];
    return {before * element_, counts[r] * element_};
  }
  Part part_of_from(int r) const noexcept { return part(call_.from_counts, r); }
  Part part_of_to(int r) const noexcept { return part(call_.to_counts, r); }
  /// The elements that rank r reduces: its own block, or an equal share where everybody wants all of them.
  Part share(int r) const noexcept {
    if (call_.kind == Kind::reduce_scatter || call_.kind == Kind::reduce_scatter_v) return part_of_from(r);
    auto const bound = [&](std::int64_t i) { return call_.count / size_ * i + call_.count % size_ * i / size_; };
    return {bound(r) * element_, (bound(r + 1) - bound(r)) * element_};
  }
  static std::byte* plus(void* p, std::int64_t bytes) noexcept { return static_cast<std::byte*>(p) + bytes; }
  static std::byte const* plus(void const* p, std::int64_t bytes) noexcept {
    return static_cast<std::byte const*>(p) + bytes;
  }

  void send(void const* from, std::int64_t bytes, int to) {
    transfers_.push_back({core_.backend.start_send(from, bytes, DType::byte, to, tag_, Channel::internal), -1, 0});
    Tally::count(call_.wire, Algorithm::messages, bytes, 0);
  }
  void receive(void* to, std::int64_t bytes, int from) {
    transfers_.push_back({core_.backend.start_recv(to, bytes, from, tag_, Channel::internal), from, bytes});
  }
  void send(void const* from, Part part, int to) { send(plus(from, part.at), part.bytes, to); }
  void receive(void* to, Part part, int from) { receive(plus(to, part.at), part.bytes, from); }
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
          receive(plus(inputs_.data(), peer * share(rank_).bytes), share(rank_).bytes, peer);
          break;
        case Kind::all_reduce_contributions:
          send(packed_.data(), rows_of(share(peer)), peer);
          receive(plus(inputs_.data(), peer * rows_of(share(rank_)).bytes), rows_of(share(rank_)).bytes, peer);
          break;
      }
    }
    switch (call_.kind) {  // what stays on this rank
      case Kind::broadcast:
        if (root_here) copy(call_.to, call_.from, block);
        break;
      case Kind::gather: case Kind::gather_v:
        if (root_here) copy(plus(call_.to, part_of_to(rank_).at), call_.from, block);
        break;
      case Kind::all_gather: case Kind::all_gather_v:
        copy(plus(call_.to, part_of_to(rank_).at), call_.from, block);
        break;
      case Kind::scatter: case Kind::scatter_v:
        if (root_here) copy(call_.to, plus(call_.from, part_of_from(rank_).at), block);
        break;
      case Kind::all_to_all: case Kind::all_to_all_v:
        copy(plus(call_.to, part_of_to(rank_).at), plus(call_.from, part_of_from(rank_).at), part_of_to(rank_).bytes);
        break;
      default: break;
    }
  }

 private:
  /// A part of every contribution of one rank.
  Part rows_of(Part part) const noexcept { return {part.at * call_.contributions, part.bytes * call_.contributions}; }
  /// What goes to one rank, one contribution after another.
  void pack_shares() {
    packed_ = scratch_memory<B>(call_.block_bytes() * call_.contributions);
    for (int peer = 0; peer < size_; ++peer)
      for (std::int64_t row = 0; row < call_.contributions && peer != rank_; ++row)
        copy(plus(packed_.data(), rows_of(share(peer)).at + row * share(peer).bytes),
             plus(call_.from, row * call_.block_bytes() + share(peer).at), share(peer).bytes);
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
        inputs.push_back(peer == rank_ ? plus(call_.from, row * call_.block_bytes() + own.at)
                                       : plus(inputs_.data(), (peer * call_.contributions + row) * own.bytes));
    switch (call_.kind) {
      case Kind::reduce_scatter: case Kind::reduce_scatter_v: fold(inputs, size_, call_.to); break;
      case Kind::scan: case Kind::exscan: prefixes(inputs, own); break;
      case Kind::reduce:
        if (rank_ == call_.root) {
          fold(inputs, size_, plus(call_.to, own.at));
          for (int step = 1; step < size_; ++step) receive_share((rank_ + step) % size_);
        } else {
          results_ = scratch_memory<B>(own.bytes);
          fold(inputs, size_, results_.data());
          send(results_.data(), own.bytes, call_.root);
        }
        break;
      default: {
        void* const result = plus(call_.to, own.at);
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
    for (int step = 1; step <= size_; ++step) {  // this rank's last: in place it overwrites its input
      int const peer = (rank_ + step) % size_;
      void* const result = peer == rank_ ? plus(call_.to, own.at) : plus(results_.data(), peer * own.bytes);
      if (peer + inclusive > 0) fold(inputs, peer + inclusive, result);
      if (peer == rank_) continue;
      if (peer + inclusive > 0) send(result, own.bytes, peer);
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

/// Elements of each rank's block in the two buffers of a _v kind; empty where they do not count.
struct Counts {
  List<std::int64_t> from;
  List<std::int64_t> to;
};
/// A collective with the counts that it refers to.
struct Call {
  Collective collective;
  Counts counts;
};

/// Whether the backend makes the call itself, an average as a sum that is then divided; else it is derived.
template <Backend B>
bool is_native(B const& backend, Collective const& call) {
  if (call.compound_bytes != 0) return false;
  return backend.provides(call.kind, call.dtype, call.reduction.op) ||
         (call.reduction.op == Operator::avg && backend.provides(call.kind, call.dtype, Operator::sum));
}
/// Borrowed buffers of at most so many bytes are copied for the call; for messages, where there is none.
template <Backend B>
std::int64_t copied_bytes(B const& backend, Collective const* call = nullptr) {
  if constexpr (requires { backend.copied_bytes(true); })
    return backend.copied_bytes(call != nullptr && is_native(backend, *call));
  else return 0;
}

/// Kinds whose two buffers may be one, with blocks that others still read.
constexpr bool aliases(Kind kind) noexcept {
  return kind == Kind::all_to_all || kind == Kind::all_to_all_v || kind == Kind::reduce_scatter ||
         kind == Kind::reduce_scatter_v;
}

/// A call that the backend makes and compares itself, with buffers as they are: begun, and tried for a moment, before
/// anything else is made of it. Small ones are complete sooner than a job is set up.
template <Backend B>
struct DirectCall {
  Core<B>& core;
  Call call;
  std::uint64_t number;
  FlightRecorder::Ticket flight;
  typename B::Operation operation;
  std::exception_ptr failure{};

  template <class Make>
  DirectCall(Core<B>& c, Make&& make)
      : core((c.forget_place(), c)), call(make()), number(c.next_number()),
        flight(c.flight_recorder.begin(call.collective, number)), operation(start()) {}
  /// False when it takes longer, or has failed: then a CollectiveJob goes on with it.
  bool complete() noexcept {
    try {
      for (int looks = core.backend.wait_policy().spins > 0 ? most_looks : 1; !core.backend.test(operation);) {
        if (--looks <= 0) return false;
        exec::relax();
      }
    } catch (...) {
      failure = std::current_exception();
      return false;
    }
    core.flight_recorder.complete(flight);
    return true;
  }

 private:
  static constexpr int most_looks = 16;

  typename B::Operation start() {
    try {
      return core.backend.start(call.collective);
    } catch (...) {
      core.fail_start(flight);
    }
  }
};

/// A collective under way: by the backend where it provides it, else derived.
template <Backend B>
class CollectiveJob : public Job {
 public:
  /// The counts of a _v kind become the job's.
  CollectiveJob(Core<B>& core, Collective const& call, Counts counts = {})
      : CollectiveJob(core, name(call.kind).data(), [&] { return Call{call, std::move(counts)}; }) {}
  /// `make` gives the Call, which is made in its place: who copies what has just been written waits for the writing.
  template <class Make>
  CollectiveJob(Core<B>& core, char const* operation, Make&& make)
      : Job(operation), core_(core), made_(make()), number_(core.next_number()),
        flight_(core.flight_recorder.begin(call_, number_)), counted_(core.tally.begin(operation)) {
    call_.wire = counted_.wire();
    call_.from_counts = counts_.from;
    call_.to_counts = counts_.to;
    bool const as_it_is =
        call_.compound_bytes == 0 && core_.backend.provides(call_.kind, call_.dtype, call_.reduction.op);
    native_ = as_it_is || is_native(core_.backend, call_);
    divides_ = native_ && !as_it_is;
    if (divides_) {
      call_.reduction.op = Operator::sum;
      call_.reduction.fold = call_.reduction.sum;
    }
    if (aliases(call_.kind)) prepare_aliases(native_);
    try {
      compare();
      if (!native_) tag_ = core_.next_tag();
      try_begin();
    } catch (...) {
      if (!comparison_ && !derived_) core_.fail_start(flight_);
      this->postpone();  // what is under way knows memory of the caller and of this job
    }
  }

  /// Goes on with a call that was not complete in a moment, or failed.
  explicit CollectiveJob(DirectCall<B>&& begun)
      : Job(name(begun.call.collective.kind).data()), core_(begun.core), made_(std::move(begun.call)), native_(true),
        begun_(true), number_(begun.number), flight_(begun.flight) {
    operation_ = std::move(begun.operation);
    if (begun.failure) this->postpone(std::move(begun.failure));
  }

  ~CollectiveJob() override {
    if (in_line_) core_.leave_line(*this);
  }
  CollectiveJob(CollectiveJob const&) = delete;
  CollectiveJob& operator=(CollectiveJob const&) = delete;

  bool abandon() noexcept override {
    core_.flight_recorder.fail(flight_);
    bool safe = core_.backend.abandon(operation_);
    if (derived_) safe = derived_->abandon() && safe;
    bool const compared = !comparison_ || comparison_->abandon();
    if (!safe) {  // scratch memory that a peer may still reach is given up
      static_cast<void>(derived_.release());
      keep_forever(std::move(scratch_));
    }
    if (!compared) static_cast<void>(comparison_.release());
    return safe;
  }
  std::string awaiting() const override {
    if constexpr (requires { core_.backend.roll_call(number_); })
      if (std::string const text = core_.backend.roll_call(number_); !text.empty()) return text;
    if (comparison_) return comparison_->awaiting();
    if (in_line_ && core_.is_first_in_line(*this)) return "all ranks make this call, which is about to start";
    if (in_line_) return core_.awaiting_in_line();
    return derived_ ? derived_->awaiting() : core_.backend.awaiting(operation_);
  }
  bool collective() const noexcept override { return true; }
  bool lent() const noexcept override { return call_.lent; }

 protected:
  bool advance() override {
    if (comparison_ && comparison_->advance()) comparison_ = nullptr;
    if (!begun_ && !try_begin()) return false;
    if (!complete_) complete_ = attempt();
    if (failure_ && (!comparison_ || exec::now_ns() - failed_at_ > 1'000'000'000)) std::rethrow_exception(failure_);
    if (!complete_ || comparison_) return false;
    finish();
    core_.flight_recorder.complete(flight_);
    if (counted_.row != nullptr) counted_.complete(asked_bytes(call_, core_.backend.size()));
    return true;
  }

 private:
  /// Has the ranks compare the call, unless the backend does.
  void compare() {
    bool const by_backend = compares(core_.backend);
    CheckLevel const level = check_level(core_.backend);
    if (core_.backend.size() == 1 || (native_ && by_backend)) return;
    if (!by_backend && level == CheckLevel::off) return;
    comparison_ = make_owner<Comparison<B>>(core_, call_);
    // What a failure would leave to the transport begins when all ranks have come.
    bool const exposed = call_.lent && copied_bytes(core_.backend) != 0;
    waits_ = exposed && !native_;
    if (!by_backend) {
      in_line_ = true;
      core_.stand_in_line(*this);
      waits_ = exposed || level == CheckLevel::full || call_.block_bytes() > eager_bytes;
    }
    comparison_->begin();
  }
  /// Starts the operation once it may. Calls that wait for their comparison hold those after them up, because all ranks
  /// must start them in the same order.
  bool try_begin() {
    if ((in_line_ && !core_.is_first_in_line(*this)) || (waits_ && comparison_)) return false;
    if (in_line_) core_.leave_line(*this);
    in_line_ = false;
    begun_ = true;
    if (native_) {
      operation_ = core_.backend.start(call_);
    } else {
      derived_ = make_owner<Derived<B>>(core_, call_, tag_);
      derived_->begin();
    }
    return true;
  }
  /// True when the operation is complete, or has failed while the calls are still being compared: if they differ, that
  /// is why. The comparison gets a second for it.
  bool attempt() {
    try {
      return derived_ ? derived_->advance() : core_.backend.test(operation_);
    } catch (...) {
      if (!comparison_) throw;
      failure_ = std::current_exception();
      failed_at_ = exec::now_ns();
      return true;
    }
  }
  void finish() {
    if (divides_) {
      int const rank = core_.backend.rank();
      bool const here = call_.kind == Kind::reduce ? rank == call_.root : call_.kind != Kind::exscan || rank > 0;
      int const inputs = call_.kind == Kind::scan ? rank + 1 : call_.kind == Kind::exscan ? rank : core_.backend.size();
      if (here) call_.reduction.divide(call_.to, call_.count, inputs);
    }
    if (copy_back_ != nullptr)
      typename B::Device{}.copy_within(copy_back_, call_.to, static_cast<std::size_t>(call_.block_bytes()));
  }
  /// Moves one buffer aside where neither the backend nor messages can work in place.
  void prepare_aliases(bool native) {
    std::int64_t const block = call_.block_bytes();
    bool const exchange = call_.kind == Kind::all_to_all || call_.kind == Kind::all_to_all_v;
    if (exchange && call_.from == call_.to) {
      std::int64_t bytes = block * core_.backend.size();
      for (std::int64_t const count : counts_.from) bytes += count * call_.element_bytes();
      if (bytes == 0) return;
      scratch_ = scratch_memory<B>(bytes);
      typename B::Device{}.copy_within(scratch_.data(), call_.from, static_cast<std::size_t>(bytes));
      call_.from = scratch_.data();
    }
    bool const scatters = call_.kind == Kind::reduce_scatter || call_.kind == Kind::reduce_scatter_v;
    if (scatters && block != 0 && native && !core_.backend.scatters_in_place()) {
      std::int64_t before = counts_.from.empty() ? call_.count * core_.backend.rank() : 0;
      for (int r = 0; r < core_.backend.rank() && !counts_.from.empty(); ++r)
        before += counts_.from[static_cast<std::size_t>(r)];
      if (call_.to != static_cast<std::byte const*>(call_.from) + before * call_.element_bytes()) return;
      scratch_ = scratch_memory<B>(block);
      copy_back_ = std::exchange(call_.to, scratch_.data());
    }
  }

  /// A transport has copied what is smaller when the call returns; larger buffers it may read until it is complete,
  /// which a call that differs never is.
  static constexpr std::int64_t eager_bytes = 4096;

  Core<B>& core_;
  Call made_;
  Collective& call_ = made_.collective;
  Counts& counts_ = made_.counts;
  bool native_ = false;
  bool divides_ = false;
  bool begun_ = false;
  bool in_line_ = false;
  bool waits_ = false;  // for the comparison
  bool complete_ = false;
  int tag_ = 0;
  std::uint64_t number_;
  FlightRecorder::Ticket flight_;
  Tally::Ticket counted_;
  std::exception_ptr failure_;
  std::int64_t failed_at_ = 0;
  Owner<Comparison<B>> comparison_;
  void* copy_back_ = nullptr;
  Storage<typename B::Device> scratch_;
  typename B::Operation operation_;
  Owner<Derived<B>> derived_;
};

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective under way, from its call to its result: `DirectCall`, the short form of one that the backend makes
/// itself, and `CollectiveJob` for all of them.

#include <tutti/comm/collective_way.hpp>
#include <tutti/comm/core.hpp>
#include <tutti/comm/derived.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/core/function_ref.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/tensor/storage.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace tutti::comm {

/// A call that the backend makes and compares itself, with buffers as they are: begun, and tried for a moment, before
/// anything else is made of it. Small ones are complete sooner than a job is set up.
template <Backend B>
struct DirectCall {
  Core<B>& core;
  Call call;
  std::uint64_t number;
  FlightRecorder::Ticket flight;
  typename B::Operation operation{};
  std::exception_ptr failure{};

  template <class Make>
  DirectCall(Core<B>& c, Make&& make)
      : core(c), call(make()), number(c.next_number()), flight(c.flight_recorder.begin(call.collective, number)) {
    call.collective.from_counts = call.counts.from;
    call.collective.to_counts = call.counts.to;
  }
  /// False when it takes longer, or has failed: then a CollectiveJob goes on with it.
  bool complete() {
    int const most_looks = core.backend.wait_policy().spins > 0 ? 16 : 1;
    if (!begin(most_looks)) {
      try {
        for (int left = most_looks; !core.backend.test(operation);) {
          if (--left <= 0) return false;
          exec::relax();
        }
      } catch (...) {
        failure = std::current_exception();
        return false;
      }
    }
    core.flight_recorder.complete(flight);
    return true;
  }

 private:
  bool begin(int looks) {
    try {
      return capability::run(core.backend, call.collective, looks, operation);
    } catch (...) {
      core.fail_start(flight, name(call.collective.kind).data());
    }
  }
};

/// What a part of a call on device memory has of the whole: its number, and a tag of its own.
struct PartOf {
  std::uint64_t number;
  int tag;
};

/// A collective that may have to stand in line until it starts, see Core.
template <Backend B>
class QueuedJob : public Job {
 public:
  QueuedJob(QueuedJob const&) = delete;
  QueuedJob& operator=(QueuedJob const&) = delete;
  bool collective() const noexcept override { return true; }

 protected:
  QueuedJob(Core<B>& core, char const* operation) noexcept : Job(operation), core_(core) {}
  ~QueuedJob() override { leave_line(); }

  /// Who finds out whether all ranks make a call.
  enum class Comparer : std::uint8_t {
    nobody,
    messages,         ///< which may begin before its turn
    backend,          ///< when it starts the call
    backend_in_turn,  ///< before the call is made of messages, and in its turn
  };
  Comparer comparer(bool native) const noexcept {
    if (core_.backend.size() == 1) return Comparer::nobody;
    if (capability::compares(core_.backend)) return native ? Comparer::backend : Comparer::backend_in_turn;
    return capability::check_level(core_.backend) == CheckLevel::off ? Comparer::nobody : Comparer::messages;
  }

  void stand_in_line() {
    core_.start_queue.add(*this);
    in_line_ = true;
  }
  void leave_line() noexcept {
    if (!in_line_) return;
    in_line_ = false;
    core_.start_queue.remove(*this);
  }
  bool in_line() const noexcept { return in_line_; }
  bool waits_in_line() const noexcept { return in_line_ && !core_.start_queue.is_first(*this); }
  /// The same, for who would go on. Throws what failed before it.
  bool is_held_up() const {
    if (!waits_in_line()) return false;
    core_.start_queue.check();
    return true;
  }

  Core<B>& core_;

 private:
  bool in_line_ = false;
};

/// A collective under way: by the backend where it provides it, else derived.
template <Backend B>
class CollectiveJob : public QueuedJob<B> {
  using Queued = QueuedJob<B>;
  using Queued::core_;
  using typename Queued::Comparer;

 public:
  /// The counts of a _v kind become the job's.
  CollectiveJob(Core<B>& core, Collective const& call, Counts counts = {})
      : CollectiveJob(core, name(call.kind).data(), [&] { return Call{call, std::move(counts)}; }) {}
  /// `make` gives the Call, which is made in its place: who copies what has just been written waits for the writing.
  CollectiveJob(Core<B>& core, char const* operation, FunctionRef<Call()> make)
      : Queued(core, operation), made_(make()), number_(core.next_number()),
        flight_(core.flight_recorder.begin(call_, number_)), counted_(core.tally.begin(name(call_.kind).data())) {
    call_.wire = counted_.wire();
    call_.from_counts = counts_.from;
    call_.to_counts = counts_.to;
    choose(way_of(core.backend, call_));
    if (way_ != Way::exchanged && aliases(call_.kind) && !reached()) prepare_aliases();
    try {
      if (way_ == Way::exchanged) {
        exchange();
      } else {
        compare();
        if (way_ == Way::derived) tag_ = core_.next_tag();
        try_begin();
      }
    } catch (...) {
      if (!comparison_ && !derived_ && !this->in_line()) core_.fail_start(flight_, operation);
      this->postpone();  // what is under way knows memory of the caller and of this job
    }
  }

  /// A part, whose buffers are disjoint or one. The whole is recorded, compared where the backend does not do that
  /// itself, and started in its turn.
  CollectiveJob(Core<B>& core, Collective const& part, PartOf whole)
      : Queued(core, name(part.kind).data()), made_{part, {}}, tag_(whole.tag), number_(whole.number),
        flight_(FlightRecorder::no_ticket) {
    choose(way_of_whole(core.backend, call_));
    try {
      try_begin();
    } catch (...) {
      this->postpone();
    }
  }

  /// Goes on with a call that was not complete in a moment, or failed.
  explicit CollectiveJob(DirectCall<B>&& begun)
      : Queued(begun.core, name(begun.call.collective.kind).data()), made_(std::move(begun.call)), way_(Way::native),
        phase_(Phase::started), number_(begun.number), flight_(begun.flight) {
    operation_ = std::move(begun.operation);
    if (begun.failure) this->postpone(std::move(begun.failure));
  }

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
    if (std::string const text = capability::roll_call(core_.backend, number_); !text.empty()) return text;
    if (comparison_) return comparison_->awaiting();
    if (this->waits_in_line()) return core_.start_queue.awaiting();
    if (this->in_line()) return "all ranks make this call, which is about to start";
    return derived_ ? derived_->awaiting() : core_.backend.awaiting(operation_);
  }
  bool lent() const noexcept override { return call_.lent; }

 protected:
  bool advance() override {
    if (way_ == Way::exchanged) {
      if (!comparison_->advance()) return false;
      comparison_->deliver(call_);
      comparison_ = nullptr;
    } else {
      if (comparison_ && comparison_->advance()) comparison_ = nullptr;
      if (phase_ == Phase::called && !try_begin()) return false;
      if (phase_ == Phase::started && attempt()) phase_ = Phase::over;
      if (failure_ && (!comparison_ || exec::now_ns() - failed_at_ > 1'000'000'000)) std::rethrow_exception(failure_);
      if (phase_ != Phase::over || comparison_) return false;
      finish();
    }
    core_.flight_recorder.complete(flight_);
    if (counted_.row != nullptr) counted_.complete(asked_bytes(call_, core_.backend.size()));
    return true;
  }

 private:
  enum class Phase : std::uint8_t {
    called,   ///< compared, or in line
    started,
    over,  ///< complete, or failed while the calls are still being compared
  };

  bool reached() const noexcept { return way_ == Way::accelerator; }
  void choose(Way way) noexcept {
    way_ = way;
    if (way != Way::summed) return;
    call_.reduction.op = Operator::sum;
    call_.reduction.fold = call_.reduction.sum;
    call_.reduction.prefixes = nullptr;  // they divide
  }
  /// Of a call whose contributions travel with the comparison: nothing else of it has to start, hence it never stands
  /// in line, and the transport sees no memory of the caller.
  void exchange() {
    comparison_ = make_owner<Comparison<B>>(core_, call_);
    comparison_->carry(call_);
    comparison_->begin();
  }
  /// Has the ranks compare the call, unless the backend does; stands in line where it may not start at once. On the
  /// accelerator nothing compares calls, and calls that differ write beyond buffers or never end: there it starts when
  /// all ranks have made it.
  void compare() {
    Comparer const by = this->comparer(is_native(way_) && !reached());
    // What a failure would leave to the transport begins when all ranks have come.
    bool const exposed = call_.lent && capability::copied_bytes(core_.backend, false) != 0;
    has_backend_compare_ = by == Comparer::backend_in_turn;
    bool const queues = by == Comparer::messages || reached() || !core_.start_queue.empty();
    if (queues && core_.backend.size() > 1) this->stand_in_line();
    if (by == Comparer::messages) {
      waits_ = exposed || reached() || capability::check_level(core_.backend) == CheckLevel::full ||
               call_.block_bytes() > eager_bytes;
      comparison_ = make_owner<Comparison<B>>(core_, call_);
      if (has_counts(call_.kind)) comparison_->carry_sizes(call_);
      comparison_->begin();
    } else if (has_backend_compare_) {
      waits_ = exposed || reached();
    }
  }
  /// Starts the operation once it may. Calls that wait for their comparison hold those after them up, because all ranks
  /// must start them in the same order.
  bool try_begin() {
    if (this->is_held_up()) return false;
    if (has_backend_compare_) {
      has_backend_compare_ = false;
      comparison_ = make_owner<Comparison<B>>(core_, call_);
    }
    if (waits_ && comparison_) return false;
    this->leave_line();
    phase_ = Phase::started;
    if (is_native(way_)) {
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
    if (way_ == Way::summed) {
      int const rank = core_.backend.rank();
      bool const here = call_.kind == Kind::reduce ? rank == call_.root : call_.kind != Kind::exscan || rank > 0;
      int const inputs = call_.kind == Kind::scan ? rank + 1 : call_.kind == Kind::exscan ? rank : core_.backend.size();
      if (here) call_.reduction.divide(call_.to, call_.count, inputs);
    }
    if (copy_back_ != nullptr)
      typename B::Device{}.copy_within(copy_back_, call_.to, static_cast<std::size_t>(call_.block_bytes()));
    scratch_ = {};  // who waits for this job may do so much later
  }
  /// Moves one buffer aside where neither the backend nor messages can work in place.
  void prepare_aliases() {
    std::int64_t const block = call_.block_bytes();
    bool const exchange = call_.kind == Kind::all_to_all || call_.kind == Kind::all_to_all_v;
    if (exchange && call_.from == call_.to) {
      std::int64_t bytes = block * core_.backend.size();
      for (std::int64_t const count : counts_.from) bytes += count * call_.element_bytes();
      if (bytes == 0) return;
      scratch_ = heap_memory(core_, static_cast<std::size_t>(bytes));
      typename B::Device{}.copy_within(scratch_.data(), call_.from, static_cast<std::size_t>(bytes));
      call_.from = scratch_.data();
    }
    bool const scatters = call_.kind == Kind::reduce_scatter || call_.kind == Kind::reduce_scatter_v;
    if (scatters && block != 0 && is_native(way_) && !core_.backend.scatters_in_place()) {
      std::int64_t before = counts_.from.empty() ? call_.count * core_.backend.rank() : 0;
      for (int r = 0; r < core_.backend.rank() && !counts_.from.empty(); ++r)
        before += counts_.from[static_cast<std::size_t>(r)];
      if (call_.to != static_cast<std::byte const*>(call_.from) + before * call_.element_bytes()) return;
      if (call_.consumes && capability::scatters_to_front(core_.backend, call_)) {
        if (before > 0) copy_back_ = std::exchange(call_.to, const_cast<void*>(call_.from));
        return;
      }
      scratch_ = heap_memory(core_, static_cast<std::size_t>(block));
      copy_back_ = call_.to;
      call_.to = scratch_.data();
    }
  }

  /// A transport has copied what is smaller when the call returns; larger buffers it may read until it is complete,
  /// which a call that differs never is.
  static constexpr std::int64_t eager_bytes = 4096;

  Call made_;
  Collective& call_ = made_.collective;
  Counts& counts_ = made_.counts;
  Way way_ = Way::derived;
  Phase phase_ = Phase::called;
  bool has_backend_compare_ = false;  // which it does as soon as the job is first in line
  bool waits_ = false;                // for the comparison
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective under way, from its call to its result: `DirectCall`, the short form of one that the backend makes
/// itself, and `CollectiveJob` for all of them.

#include <tutti/comm/comparison.hpp>
#include <tutti/comm/core.hpp>
#include <tutti/comm/derived.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/tensor/storage.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace tutti::comm {

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
      core.fail_start(flight, name(call.collective.kind).data());
    }
  }
};

/// What a part of a call on device memory has of the whole: its number, and a tag of its own.
struct PartOf {
  std::uint64_t number;
  int tag;
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
        flight_(core.flight_recorder.begin(call_, number_)), counted_(core.tally.begin(name(call_.kind).data())) {
    call_.wire = counted_.wire();
    call_.from_counts = counts_.from;
    call_.to_counts = counts_.to;
    choose();
    if (aliases(call_.kind)) prepare_aliases(native_);
    try {
      compare();
      if (!native_) tag_ = core_.next_tag();
      try_begin();
    } catch (...) {
      if (!comparison_ && !derived_ && !in_line_) core_.fail_start(flight_, operation);
      this->postpone();  // what is under way knows memory of the caller and of this job
    }
  }

  /// A part, whose buffers are disjoint or one. The whole is recorded, compared where the backend does not do that
  /// itself, and started in its turn.
  CollectiveJob(Core<B>& core, Collective const& part, PartOf whole)
      : Job(name(part.kind).data()), core_(core), made_{part, {}}, tag_(whole.tag), number_(whole.number),
        flight_(FlightRecorder::no_ticket) {
    choose();
    try {
      try_begin();
    } catch (...) {
      this->postpone();
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
  void choose() noexcept {
    bool const as_it_is =
        call_.compound_bytes == 0 && core_.backend.provides(call_.kind, call_.dtype, call_.reduction.op);
    native_ = as_it_is || is_native(core_.backend, call_);
    divides_ = native_ && !as_it_is;
    if (divides_) {
      call_.reduction.op = Operator::sum;
      call_.reduction.fold = call_.reduction.sum;
    }
  }
  /// Has the ranks compare the call, unless the backend does; stands in line where it may not start at once.
  void compare() {
    if (core_.backend.size() == 1) return;
    bool const by_backend = compares(core_.backend);
    CheckLevel const level = check_level(core_.backend);
    bool const by_messages = !by_backend && level != CheckLevel::off;
    // What a failure would leave to the transport begins when all ranks have come.
    bool const exposed = call_.lent && copied_bytes(core_.backend) != 0;
    has_backend_compare_ = by_backend && !native_;
    if (by_messages || core_.has_line()) {
      in_line_ = true;
      core_.stand_in_line(*this);
    }
    if (by_messages) {
      waits_ = exposed || level == CheckLevel::full || call_.block_bytes() > eager_bytes;
      comparison_ = make_owner<Comparison<B>>(core_, call_);
      comparison_->begin();
    } else if (has_backend_compare_) {
      waits_ = exposed;
    }
  }
  /// Starts the operation once it may. Calls that wait for their comparison hold those after them up, because all ranks
  /// must start them in the same order.
  bool try_begin() {
    if (in_line_ && !core_.is_first_in_line(*this)) {
      core_.check_line();
      return false;
    }
    if (std::exchange(has_backend_compare_, false)) comparison_ = make_owner<Comparison<B>>(core_, call_);
    if (waits_ && comparison_) return false;
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
  bool has_backend_compare_ = false;  // which it does as soon as the job is first in line
  bool waits_ = false;                // for the comparison
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

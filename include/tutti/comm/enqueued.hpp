// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs of collectives that a device starts by itself (PortQueue), as operations in flight: their place among other
/// collectives, who is missing, and an end at the deadline.

#include <tutti/comm/collective_job.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/comparison.hpp>
#include <tutti/core/owner.hpp>

#include <string>
#include <utility>

namespace tutti::comm {

/// Backends whose device starts collectives by itself, with `after`, `done` and `stream` as PortQueue has them:
///   b.enqueues(call)                whether `enqueue` takes the call
///   b.settled()                     whether all that was started has been handed to the device; moves it on
///   b.begin_enqueued(stream), b.enqueue(call, after, done), b.end_enqueued(done)
///   b.enqueued_done(done)           whether the device has passed it; throws what went wrong
///   b.abandon_enqueued()            gives up all of it; true when the device has left it
template <class B>
concept Enqueues = requires(B b, Collective const& call, void* native) {
  b.enqueues(call);
  b.settled();
  b.begin_enqueued(native);
  b.enqueue(call, native, native);
  b.end_enqueued(native);
  b.enqueued_done(native);
  b.abandon_enqueued();
};

/// Complete when collectives that were called before are with the device: all ranks start what follows in one order.
template <Backend B>
class EnqueuedTurn final : public QueuedJob<B> {
 public:
  explicit EnqueuedTurn(Core<B>& core) : QueuedJob<B>(core, "enqueue") { this->stand_in_line(); }
  bool abandon() noexcept override { return true; }
  bool borrows() const noexcept override { return false; }
  std::string awaiting() const override {
    return this->waits_in_line() ? this->core_.start_queue.awaiting() : "earlier collectives are handed to the device";
  }

 protected:
  bool advance() override {
    if (this->is_held_up() || !this->core_.backend.settled()) return false;
    this->leave_line();
    return true;
  }
};

/// A run that is with the device. The ranks compare that they make the same one while it is under way.
template <Backend B>
class EnqueuedRun final : public QueuedJob<B> {
  using Queued = QueuedJob<B>;
  using Queued::core_;
  using typename Queued::Comparer;

 public:
  /// `all` stands for the calls of the run.
  EnqueuedRun(Core<B>& core, Collective const& all, void* done)
      : Queued(core, name(all.kind).data()), call_(all), done_(done), number_(core.next_number()),
        flight_(core.flight_recorder.begin(call_, number_)), counted_(core.tally.begin(name(all.kind).data())) {
    call_.wire = counted_.wire();
    try {
      Comparer const by = this->comparer(false);
      if (by != Comparer::nobody) comparison_ = make_owner<Comparison<B>>(core, call_);
      if (by == Comparer::messages) comparison_->begin();
    } catch (...) {
      this->postpone();
    }
  }
  bool abandon() noexcept override {
    core_.flight_recorder.fail(flight_);
    if (comparison_ && !comparison_->abandon()) static_cast<void>(comparison_.release());
    return core_.backend.abandon_enqueued();
  }
  std::string awaiting() const override {
    if (std::string const text = capability::roll_call(core_.backend, number_); !text.empty()) return text;
    if (comparison_) return comparison_->awaiting();
    return concat("the device has not completed ", describe(call_), ", which all ranks have made");
  }

 protected:
  bool advance() override {
    if (comparison_ && comparison_->advance()) comparison_ = nullptr;
    if (!passed_) passed_ = core_.backend.enqueued_done(done_);
    if (!passed_ || comparison_) return false;
    core_.flight_recorder.complete(flight_);
    if (counted_.row != nullptr) counted_.complete(asked_bytes(call_, core_.backend.size()));
    return true;
  }

 private:
  Collective call_;
  void* done_;
  bool passed_ = false;
  std::uint64_t number_;
  FlightRecorder::Ticket flight_;
  Tally::Ticket counted_;
  Owner<Comparison<B>> comparison_;
};

}  // namespace tutti::comm

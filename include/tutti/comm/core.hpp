// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What stands behind a communicator and its requests: the backend, the operations in flight, and the one way to wait.

#include <tutti/core/concat.hpp>
#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/communicator_options.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/dropped.hpp>
#include <tutti/comm/family.hpp>
#include <tutti/comm/flight_dump.hpp>
#include <tutti/comm/flight_recorder.hpp>
#include <tutti/comm/inbox.hpp>
#include <tutti/comm/occupancy.hpp>
#include <tutti/comm/patient_wait.hpp>
#include <tutti/comm/request.hpp>
#include <tutti/comm/staging.hpp>
#include <tutti/comm/start_queue.hpp>
#include <tutti/comm/tally.hpp>
#include <tutti/comm/verdict.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace tutti {

namespace comm {

template <Backend B>
class Core final : public Progress, public Relative {
 public:
  Core(B moved, CommunicatorOptions options)
      : Core(std::move(moved), options, make_shared_owner<Family>(), "world", -1) {}
  /// Of a group of ranks of `parent`, which all of them name alike.
  Core(B moved, Core const& parent, std::string const& group)
      : Core(std::move(moved), parent.options_, parent.family_,
             concat(parent.flight_recorder.identity().communicator, "-", group),
             parent.flight_recorder.identity().world_rank) {}
  Core(Core const&) = delete;
  ~Core() override {
    drain();
    for (auto* list : {&orphans_, &handed_over_})  // of a thread that may not call: nobody can end them
      for (auto& job : *list) dropped_.note(job->operation()), static_cast<void>(job.release());
    if (std::uncaught_exceptions() == 0) dropped_.tell(backend.rank());
    // Where this rank failed is what others are told who wait for it elsewhere, until it calls something else.
    if (stale_ && may_call()) {
      announce({});
      family_->leave_place(*this);
    }
    family_->leave(*this);
    FlightSignals::instance().remove(signalled_);
  }

  Tally tally;  // outlives what adds to it
  B backend;
  Inbox<B> inbox;
  FlightRecorder flight_recorder;
  StagingPool staging;
  ComparisonPool comparison_memory;

  /// One thread at a time. What it holds is this communicator, and what the backend shares among several.
  struct Stay {
    Visit own;
    Visit shared;
  };
  /// Errors     invalid_argument, when another thread is in a call; what the backend refuses.
  Stay visit(char const* operation, std::source_location where) {
    Visit own(occupancy_, operation, where,
              [&](std::string const& other) { refuse_thread(operation, where, other); });
    Stay stay{std::move(own), capability::visit(backend, operation, where)};
    if (stale_) [[unlikely]] catch_up();
    return stay;
  }
  /// For what cannot throw: in turn.
  Stay visit() noexcept {
    Visit own(occupancy_);
    return {std::move(own), capability::visit(backend)};
  }

  CommunicatorOptions const& options() const noexcept { return options_; }
  double deadline_seconds() const noexcept override { return options_.deadline_seconds; }
  void set_deadline_seconds(double seconds, std::source_location where) {
    if (!(seconds > 0 && seconds < 1e9))
      throw Error(ErrorKind::invalid_argument, "set_deadline",
                  concat(seconds, " s is no deadline. Pass a positive time"), where);
    Stay const stay = visit("set_deadline", where);
    options_.deadline_seconds = seconds;
  }

  void start_statistics(std::source_location where) {
    Stay const stay = visit("start_statistics", where);
    options_.statistics = true;
    tally.start();
  }

  /// Tag of the next derived collective: the same on every rank, because all start the same ones in the same order. The
  /// range is half of what every MPI grants; messages of one pair and tag stay in order, so reuse is harmless.
  int next_tag() noexcept { return static_cast<int>(sequence_++ & 0x3fffu); }
  /// Of a comparison: of every collective one, hence ranks that call different ones still compare the same two calls,
  /// and no message of a derived collective is taken for a comparison. The last one is left to backends.
  int next_comparison_tag() noexcept { return 0x4000 + static_cast<int>(comparisons_++ % 0x3fffu); }

  /// Number of a collective call, the same on every rank.
  std::uint64_t next_number() noexcept { return collectives_++; }
  std::uint64_t collectives() const noexcept { return collectives_; }
  StartQueue start_queue;

  void move_on(pthread_t thread) noexcept override {
    if (::pthread_equal(thread, thread_.load(std::memory_order_relaxed)) == 0) return;
    Occupancy::Entered const entered = occupancy_.try_enter(nullptr, {});
    if (entered == Occupancy::Entered::not_at_all) return;  // handed over meanwhile, to a thread that moves it on
    if (!jobs_.empty() || !orphans_.empty()) progress();
    if (entered == Occupancy::Entered::first) occupancy_.leave();
  }

  void announce_elsewhere(pthread_t thread, std::string const& text) noexcept override {
    if (::pthread_equal(thread, thread_.load(std::memory_order_relaxed)) != 0)
      capability::announce_elsewhere(backend, text);
  }

  void inherit_place(pthread_t thread) noexcept override {
    if (::pthread_equal(thread, thread_.load(std::memory_order_relaxed)) != 0) stale_ = true;
  }

  void enlist(Job& job) override {
    Stay const stay = visit();
    thread_.store(::pthread_self(), std::memory_order_relaxed);
    jobs_.push_back(&job);
  }
  /// Not inlined: GCC 12 loses the object behind Progress where it is, and warns of an access outside of it.
  [[gnu::noinline]] void dismiss(Job& job) noexcept override {
    Stay const stay = visit();
    for (Job*& entry : jobs_)
      if (entry == &job) {
        entry = jobs_.back();
        jobs_.pop_back();
        return;
      }
  }
  void adopt(Owner<Job> job) noexcept override {
    Stay const stay = visit();
    if (!may_call()) {  // this thread; the one that may does it first thing in its next call here
      handed_over_.push_back(std::move(job));
      stale_ = true;
      return;
    }
    bool finished = poll_and_tell(*job);
    if (!finished) {
      std::string const awaited = job->awaiting();
      if (job->cancel()) dropped_.note(awaited);
      finished = poll_and_tell(*job);
    }
    if (!finished && job->borrows() && std::uncaught_exceptions() > 0) {
      // The borrowed memory goes away while the exception passes.
      backend.revoke(ErrorKind::communication, failure_of(backend.rank(), concat("during ", job->operation())));
      finished = true;
    }
    if (finished) discard(std::move(job));
    else orphans_.push_back(std::move(job));
  }

  bool test(Job& job, std::source_location where) override {
    Stay const stay = visit(job.operation(), where);
    try {
      progress();
      return job.poll();
    } catch (...) {
      fail(job, where);
    }
  }

  void wait(Job& job, CallSite where) override {
    Stay const stay = visit(job.operation(), where);
    Tally::Exposed const exposed(tally, job.operation());
    try {
      for (int looks = 0; !job.poll();)
        if (++looks > 8) return PatientWait<Core>(*this, job, where)();  // small messages come sooner
    } catch (...) {
      fail(job, where);
    }
  }

  void complete_dropped(CallSite where) {
    Stay const stay = visit("complete_dropped", where);
    while (!orphans_.empty()) {
      Owner<Job> job = std::move(orphans_.back());
      orphans_.pop_back();
      try {
        wait(*job, where);
      } catch (...) {
        discard(std::move(job));
        throw;
      }
    }
  }

  /// Gives up what failed together with something else; a borrowed buffer may go away now.
  void give_up(Owner<Job> job) noexcept {
    Stay const stay = visit();
    dismiss(*job);
    discard(std::move(job));
  }

  /// Moves on everything in flight.
  void progress() noexcept {
    for (Job* job : jobs_) static_cast<void>(poll_and_tell(*job));
    for (std::size_t i = 0; i < orphans_.size();) {
      if (!poll_and_tell(*orphans_[i])) {
        ++i;
        continue;
      }
      auto done = std::move(orphans_[i]);
      orphans_[i] = std::move(orphans_.back());
      orphans_.pop_back();
      discard(std::move(done));
    }
  }

  /// Completes what was dropped, within the deadline. What cannot be completed keeps its memory for good.
  void drain() noexcept {
    Stay const stay = visit();
    if (!may_call()) return;
    adopt_handed_over();
    if (!orphans_.empty() && std::uncaught_exceptions() > 0)  // the others must not wait for a rank that is failing
      backend.revoke(ErrorKind::communication, failure_of(backend.rank(), "with operations in flight"));
    exec::Backoff backoff(backend.wait_policy());
    std::int64_t const end = exec::now_ns() + nanoseconds(options_.deadline_seconds);
    while (!orphans_.empty()) {
      progress();
      if (orphans_.empty()) break;
      if (exec::now_ns() > end) {
        for (auto& orphan : orphans_) dropped_.note(orphan->awaiting()), discard(std::move(orphan));
        orphans_.clear();
        return;
      }
      backoff.step();
    }
  }

  /// Called from a handler of what kept a collective from starting: closes its record and rethrows, with this rank and
  /// the name that was called.
  [[noreturn]] void fail_start(FlightRecorder::Ticket ticket, char const* operation) {
    flight_recorder.refuse(ticket);
    dump_first_failure(true);
    try {
      throw;
    } catch (Error const& error) {
      throw error.of(operation).with_rank(error.rank() < 0 ? backend.rank() : error.rank());
    }
  }
  /// Called from a handler of the error of an operation, whose record is closed, or of the program. The first one is
  /// dumped, and once more the first of a collective, after which the communicator is no longer used: messages that
  /// failed before it may have been caught.
  void dump_first_failure(bool collective) noexcept {
    if (failed_ || (!collective && message_failed_)) return;
    (collective ? failed_ : message_failed_) = true;
    dump_failure(flight_recorder);
  }

 private:
  friend class PatientWait<Core>;

  Core(B moved, CommunicatorOptions options, Shared<Family> family, std::string communicator, int world_rank)
      : backend(std::move(moved)),
        flight_recorder({.rank = backend.rank(),
                         .size = backend.size(),
                         .communicator = std::move(communicator),
                         .world_rank = world_rank,
                         .prefix = options.flight_record.empty() ? std::string(flight_record_prefix())
                                                                 : options.flight_record}),
        options_(std::move(options)),
        family_(std::move(family)) {
    set_deadline_seconds(options_.deadline_seconds, std::source_location::current());
    capability::count_notices(backend, &tally.notices);
    if (options_.statistics) tally.start();
    family_->join(*this);
    if (!flight_recorder.path().empty()) signalled_ = FlightSignals::instance().add(flight_recorder);
  }

  /// Whether this thread may move on what is in flight.
  bool may_call() const noexcept { return capability::may_call(backend); }
  void adopt_handed_over() noexcept {
    while (!handed_over_.empty()) {
      Owner<Job> job = std::move(handed_over_.back());
      handed_over_.pop_back();
      adopt(std::move(job));
    }
  }
  /// Before a call: takes over what other threads left to this one. And where this rank waited last is old when it
  /// calls something else, after an error that it caught.
  [[gnu::noinline, gnu::cold]] void catch_up() noexcept {
    stale_ = false;
    adopt_handed_over();
    go_on();
  }
  /// As poll_quietly. The failure of a collective is told at once: nobody may wait for it here for long, or ever.
  bool poll_and_tell(Job& job) noexcept {
    if (!job.poll_quietly()) return false;
    if (!job.collective() || !job.news()) return true;
    try {
      std::rethrow_exception(job.failure());
    } catch (...) {
      revoke_for(job);
    }
    return true;
  }
  /// Called from a handler of a collective's failure, which is everybody's.
  void revoke_for(Job const& job) noexcept {
    try {
      throw;
    } catch (Error const& error) {
      backend.revoke(error.kind(),
                     concat(job.operation(), " failed on rank ", backend.rank(), ": ", error.message()));
    } catch (...) {
      backend.revoke(ErrorKind::communication,
                     concat("the operator of ", job.operation(), " threw on rank ", backend.rank()));
    }
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse_thread(char const* operation, std::source_location where,
                                                            std::string const& other) const {
    throw_two_threads(operation, other, flight_recorder.identity().communicator, capability::thread_level(backend),
                      backend.rank(), where);
  }

  /// To ranks that wait on other communicators. Among many it costs many messages, hence nearer to the deadline.
  void announce_to_all(std::string const& text) noexcept { capability::announce_to_all(backend, text); }
  /// Tells the others where this rank waits, for their messages.
  void announce(std::string const& text) noexcept { capability::announce(backend, text, collectives_); }
  void go_on() noexcept {
    announce({});
    family_->announce(*this, {});
    announce_to_all({});
  }

  /// Called from a handler: rethrows with this rank and the caller's place.
  [[noreturn]] void fail(Job& job, std::source_location where) {
    if (job.collective()) revoke_for(job);
    give_up(job);
    try {
      throw;
    } catch (Error const& error) {
      Error located(error.kind(), job.operation(), error.message(), where);
      dump_located(located.with_rank(backend.rank()).with_native(error.native()), job.collective());
    } catch (...) {
      dump_first_failure(job.collective());
      throw;
    }
  }
  [[noreturn]] void dump_located(Error& located, bool collective) {
    try {
      throw located;
    } catch (Error const&) {
      dump_first_failure(collective);
      throw;
    }
  }

  /// Memory that somebody may still write is given up, not given back.
  void discard(Owner<Job> job) noexcept {
    // Nobody else tells of it, unless it is one of many that failed together.
    if (job->failed() && !job->collective() && !failed_ && !message_failed_)
      dropped_.note(error_text(job->failure()));
    if (!give_up(*job)) static_cast<void>(job.release());
  }
  bool give_up(Job& job) noexcept {
    bool const safe = job.give_up();
    if (!safe && job.lent())
      capability::strand(backend, concat(job.operation(), " failed on rank ", backend.rank()), passing_error());
    return safe;
  }

  CommunicatorOptions options_;
  Shared<Family> family_;
  int signalled_ = -1;   // the recorder's place among those that signals dump
  bool failed_ = false;  // in a collective, and dumped
  bool message_failed_ = false;
  Dropped dropped_;
  bool stale_ = false;   // what was announced; or something was handed over
  std::atomic<pthread_t> thread_{::pthread_self()};  // that started what is in flight
  Occupancy occupancy_;
  std::uint32_t sequence_ = 0;
  std::uint32_t comparisons_ = 0;
  std::uint64_t collectives_ = 0;
  List<Job*> jobs_;
  List<Owner<Job>> orphans_;
  List<Owner<Job>> handed_over_;  // dropped by threads that may not call
};

}  // namespace comm
}  // namespace tutti

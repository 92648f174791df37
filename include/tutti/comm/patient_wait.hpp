// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A wait that takes longer than a moment.

#include <tutti/comm/call_site.hpp>
#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/request.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/wait.hpp>

#include <cstdint>
#include <exception>
#include <string>

namespace tutti::comm {

inline std::int64_t nanoseconds(double seconds) noexcept { return static_cast<std::int64_t>(seconds * 1e9); }

/// Moves on what is in flight here and elsewhere on this thread, tells other ranks where this one waits, and ends at
/// the deadline of the call, of the operation or of the communicator, whichever is said. `C` is a Core.
template <class C>
class PatientWait {
 public:
  PatientWait(C& core, Job& job, CallSite const& where) noexcept : core_(core), job_(job), where_(where) {
    capability::waits(core_.backend, true);
  }
  PatientWait(PatientWait const&) = delete;
  PatientWait& operator=(PatientWait const&) = delete;
  ~PatientWait() {
    capability::waits(core_.backend, false);
    if (!announced_) return;
    if (std::uncaught_exceptions() == 0) core_.go_on();
    else core_.stale_ = true;  // it stays where it failed, until the next operation
  }

  /// Errors   timeout, with who is missing; those of the operation.
  void operator()() {
    double const deadline = where_.deadline_seconds() > 0   ? where_.deadline_seconds()
                            : job_.deadline_seconds() > 0 ? job_.deadline_seconds()
                                                         : core_.options().deadline_seconds;
    exec::Backoff backoff(core_.backend.wait_policy());
    std::int64_t const begin = exec::now_ns();
    std::int64_t const end = begin + nanoseconds(deadline);
    bool told_all = false;
    for (unsigned steps = 0;; ++steps) {
      if (backoff.should_sleep()) {
        if (sleep(backoff)) return;
      } else {
        backoff.step();
        core_.progress();
        if (job_.poll()) return;
      }
      if ((steps & 15u) == 15u || backoff.should_sleep()) core_.family_->move_others_on(core_);
      if ((steps & 63u) != 63u && !backoff.should_sleep()) continue;
      std::int64_t const now = exec::now_ns();
      if (!announced_ && now - begin > announce_after_ns(deadline)) {
        announced_ = true;
        core_.announce(concat(job_.operation(), " at ", place(where_), job_.wanted()));
        core_.family_->announce(core_, seen_from_elsewhere());
      }
      if (!told_all && now - begin > (end - begin) / 2) {
        told_all = true;
        core_.announce_to_all(seen_from_elsewhere());
      }
      if (now <= end) continue;
      std::string const awaited = job_.awaiting();
      job_.withdraw();
      if (job_.poll()) return;  // a rank that failed first has said why before it left what is awaited
      double const told = where_.whole_seconds() > deadline ? where_.whole_seconds() : deadline;
      throw Error(ErrorKind::timeout, job_.operation(),
                  concat("not complete after ", told, " s: ", awaited,
                         ". Look at what these ranks do, or raise the deadline"));
    }
  }

 private:
  /// Whether the job is done then.
  bool sleep(exec::Backoff& backoff) {
    if constexpr (WakesSleepers<decltype(C::backend)>) {
      if (auto* const sleeper = core_.backend.sleeper()) {
        std::uint32_t const prepared = sleeper->prepare_sleep();
        bool done = false;
        try {
          core_.progress();
          done = job_.poll();
        } catch (...) {
          sleeper->stay_awake();
          throw;
        }
        if (done) sleeper->stay_awake();
        else sleeper->sleep(prepared, undisturbed(backoff.sleep_ns()));
        return done;
      }
    }
    backoff.step();
    core_.progress();
    return job_.poll();
  }
  /// Most of what is waited for wakes this rank: it looks by itself ten times as rarely, but each millisecond, unless
  /// it was told to sleep for longer.
  static std::int64_t undisturbed(std::int64_t sleep_ns) noexcept {
    std::int64_t const most = sleep_ns > 1'000'000 ? sleep_ns : 1'000'000;
    return 10 * sleep_ns < most ? 10 * sleep_ns : most;
  }
  std::string seen_from_elsewhere() const {
    return concat(job_.operation(), " at ", place(where_), job_.wanted(), " on another communicator (",
                  core_.flight_recorder.identity().communicator, ")");
  }
  /// Long before anybody's deadline, and rarely in healthy programs: it may cost messages.
  static std::int64_t announce_after_ns(double deadline) noexcept {
    std::int64_t const part = nanoseconds(deadline) / 8;
    return part < 250'000'000 ? part : 250'000'000;
  }

  C& core_;
  Job& job_;
  CallSite const& where_;
  bool announced_ = false;
};

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a job under `Mpi` ends: all ranks together, or because one of them failed.

#include <tutti/backend/mpi/backend.hpp>
#include <tutti/core/concat.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <ctime>
#include <utility>

namespace tutti {

inline void Mpi::watch_job() {
  if (size_ > 1) job_ = make_shared_owner<mpi::JobNotices>(handles_->internal, rank_, size_, shared_ == nullptr);
  begins_job_ = static_cast<bool>(job_);
}

inline bool Mpi::fail_job(std::string const& cause) noexcept {
  revoke(ErrorKind::communication, cause);
  if (job_) job_->tell_revoked(ErrorKind::communication, cause, traffic_);
  if (hierarchy_) hierarchy_->segment()->alarm().raise(ErrorKind::communication, cause);
  if (!shared_) {  // the library is left alone: it may still write to buffers that the exception has freed
    timespec const moment{1, 0};
    ::nanosleep(&moment, nullptr);
    return false;
  }
  shared_->segment()->alarm().raise(ErrorKind::communication, cause);
  shared_->engine().report();
  shared_->engine().leave();
  exec::Backoff backoff(policy_);
  for (std::int64_t const end = exec::now_ns() + 2'000'000'000; exec::now_ns() < end; backoff.step())
    if (shared_->engine().board().all_reported()) return true;
  return false;
}

inline int Mpi::finish_job(int code, double patience_seconds) {
  if (shared_) shared_->engine().leave();
  if (hierarchy_) hierarchy_->leave();
  if (!job_) return code;
  mpi::Environment::check_open("launch");  // without MPI_Finalize the launcher kills the others: no success
  static int codes[2];  // the library may write to it after a failure
  constexpr int good = std::numeric_limits<int>::min();
  codes[0] = code == 0 ? good : code;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&codes[0], &codes[1], 1, MPI_INT, MPI_MAX, job_->comm(), &request), "MPI_Iallreduce");
  exec::Backoff backoff(policy_);
  auto const patience = static_cast<std::int64_t>(patience_seconds * 1e9);
  std::int64_t const end = exec::now_ns() + patience;
  bool told = false, warned = false;
  for (int done = 0;; backoff.step()) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) {
      int const agreed = codes[1] == good ? 0 : codes[1];
      mpi::Environment::agree(agreed);
      return agreed;
    }
    check_job();
    std::int64_t const now = exec::now_ns();
    if (!told && now > end - patience / 2) {
      told = true;
      job_->tell_place(returned, traffic_);
    }
    if (now < end) continue;
    if (!std::exchange(warned, true))
      comm::report(rank_, concat("has ended ", patience_seconds, " s ago and waits for ", who_works()).c_str());
    if (!revoked_) continue;
    if (int const deaf = first_deaf(); deaf >= 0)
      throw Error(ErrorKind::timeout, "launch",
                  concat("rank ", deaf, " has neither ended nor noticed within ", patience_seconds,
                         " s that the communicator failed: ", cause_));
  }
}

inline void Mpi::check_job(std::source_location where) {
  if (shared_) shared_->segment()->alarm().check("launch", where);
  if (hierarchy_) hierarchy_->segment()->alarm().check("launch", where);
  if (job_->poll(traffic_)) throw Error(job_->cause_kind(), "launch", job_->cause_text());
}

inline int Mpi::first_deaf() const noexcept {
  for (int r = 0; r < size_; ++r)
    if (!job_->is_aware(r) && (!shared_ || shared_->engine().board().deaf(r))) return r;
  return -1;
}

inline std::string Mpi::who_works() const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    bool const ended = r == rank_ || (shared_ ? shared_->engine().board().left(r)
                                              : job_->place(handles_->user, r) == returned);
    if (!ended) text += concat(text.empty() ? "rank " : ", ", r);
  }
  return text.empty() ? "others, which have left too and not said so yet" : text + ", still at work or stuck";
}

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks of `Mpi` tell each other beside their data: where they wait, and that one of them failed.

#include <tutti/backend/mpi/backend.hpp>
#include <tutti/core/concat.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

namespace tutti {

inline void Mpi::strand(std::string const& failed, std::string const& why) noexcept {
  if (config_.copy_bytes->bytes == 0 || mpi::Environment::closed()) return;
  revoke(ErrorKind::communication,
         concat(failed, " and left a buffer of the caller to MPI", why.empty() ? "" : ": ", why));
  if (notices_) notices_->flush();
  mpi::Environment::close(failed);
}

inline void Mpi::revoke(ErrorKind kind, std::string text) noexcept {
  if (revoked_) return;
  if (shared_) shared_->engine().board().alarm().raise(kind, text);
  else if (notices_ && !mpi::Environment::closed()) notices_->tell_revoked(kind, text);
  fall(kind, std::move(text));
}

inline std::string Mpi::whereabouts(int rank) const {
  if (rank < 0) return {};
  if (shared_) return concat("; rank ", rank, " ", shared_->engine().whereabouts(rank));
  if (rank != rank_) return concat("; rank ", rank, " ", place(rank));
  return position_.empty() ? std::string() : concat("; rank ", rank, " waits in ", position_);
}

inline void Mpi::check_departed(char const* operation, int from, std::int64_t& since) const {
  std::int64_t const now = exec::now_ns();
  if (since == 0) since = now;
  if (now - since > 200'000'000)
    shared_->engine().throw_departed(operation, from, comm::messages_there(unreceived()));
}

inline void Mpi::expose(Operation& operation, bool may_keep, char const* call,
            std::source_location where) {
  mpi::Environment::check_open(call, where);
  operation.exposed_ = may_keep && config_.copy_bytes->bytes != 0;
  if (!shared_) {
    std::int64_t const now = exec::now_ns();
    if (operation.exposed_ || now - started_at_ > 1'000'000) {
      for (int looks = 0; looks < 2; ++looks) look_around();  // the first may only move in what is then seen
      started_at_ = now;
    }
  }
  check_revoked(call, where);
}

inline std::string Mpi::place(int rank) const {
  std::string text = notices_->place(rank);
  if (text.empty() && job_ && !mpi::Environment::closed()) text = job_->place(handles_->user, rank);
  return text.empty() ? "does not say that it waits" : "waits in " + text;
}

inline void Mpi::look_around() noexcept {
  if (mpi::Environment::closed()) return;
  if (job_ && !revoked_ && job_->poll(traffic_)) revoke(job_->cause_kind(), job_->cause_text());
  int flag = 0;
  if (!notices_ && !job_) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, handles_->internal, &flag, MPI_STATUS_IGNORE);
  if (notices_ && notices_->poll() && !revoked_) fall(notices_->cause_kind(), notices_->cause_text());
}

inline void Mpi::fall(ErrorKind kind, std::string text) noexcept {
  // Before this rank gives its operations up, which would be all that its node learns.
  if (hierarchy_) hierarchy_->raise(kind, text);
  if (shared_) shared_->engine().hear();
  revoked_ = true;
  cause_kind_ = kind;
  cause_ = std::move(text);
  mpi::Environment::abandoned().store(true);
  handles_->leaked = true;
  if (hierarchy_) hierarchy_->leak();
  if (begins_job_ && !mpi::Environment::closed()) job_->tell_aware(traffic_);
}

}  // namespace tutti

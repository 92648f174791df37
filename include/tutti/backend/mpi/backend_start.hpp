// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a communicator of `Mpi` comes about: what its ranks share, and how they reach each other.

#include <tutti/backend/mpi/backend.hpp>

#include <memory>
#include <utility>

namespace tutti {

inline void Mpi::begin(Shared<mpi::Segment> segment) {
  if (config_.count_limit < count_limit_) count_limit_ = config_.count_limit;
  mpi::check(MPI_Comm_set_errhandler(handles_->user, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi::check(MPI_Comm_dup(handles_->user, &handles_->internal), "MPI_Comm_dup");
  mpi::check(MPI_Comm_set_errhandler(handles_->internal, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi::check(MPI_Comm_rank(handles_->user, &rank_), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(handles_->user, &size_), "MPI_Comm_size");
  mpi::Nodes const nodes(handles_->internal, config_.node_ranks->count);
  node_ = nodes.own().node;
  local_rank_ = nodes.own().local_rank;
  local_size_ = nodes.local_size();
  local_processors_ = mpi::node_processors(nodes.local());
  if (config_.node_shared != mpi::Switch::off) {
    if (nodes.count() == 1) shared_ = mpi::NodeMemory::create(nodes.local(), std::move(segment), config_);
    else hierarchy_ = mpi::Hierarchy::create(handles_->internal, nodes, std::move(segment), config_);
  }
  if (!shared_ && size_ > 1) notices_ = std::make_unique<mpi::Notices>(handles_->internal, rank_, size_);
  crowded_ = crowded_ || local_size_ > local_processors_;
  policy_ = config_.wait->on(crowded_);
  if (shared_ && config_.check_level != comm::CheckLevel::off) mail_ = shared_->open_messages();
  if (shared_) shared_->wake_others(mpi::Wait::sleeps_soon(policy_));
  comm::CheckLevel const level = mail_ ? comm::CheckLevel::off : check_level();
  library_ = {handles_->user, handles_->internal, count_limit_, policy_, level == comm::CheckLevel::full,
              level == comm::CheckLevel::cheap && mpi::tags_hold_types()};
}

inline Mpi Mpi::split(int color, int key, List<int> const&) {
  Mpi child(config_, std::make_unique<mpi::Handles>());
  check(MPI_Comm_split(handles_->user, color, key, &child.handles_->user), "MPI_Comm_split");
  child.job_ = job_;
  child.threads_ = threads_;
  child.crowded_ = crowded_;  // by ranks that are not in it
  child.begin(shared_ ? shared_->segment() : hierarchy_ ? hierarchy_->segment() : Shared<mpi::Segment>());
  return child;
}

}  // namespace tutti

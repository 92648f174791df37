// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a rank of `Mpi` has in flight: messages, through memory that the ranks share or by the library, and asking
/// whether it is complete.

#include <tutti/backend/mpi/backend.hpp>
#include <tutti/core/concat.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace tutti {

inline Mpi::Operation Mpi::start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag,
                                    comm::Channel channel) {
  Operation operation;
  if (mail_ != nullptr) {
    check_open("send");
    operation.transfer_ = mail_->send(from, bytes, dtype, to, tag, channel);
    return operation;
  }
  expose(operation, bytes > config_.copy_bytes->bytes, "send");
  operation.library_ = &library_.send(from, bytes, dtype, to, tag, channel);
  return operation;
}

inline Mpi::Operation Mpi::start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag,
                                    comm::Channel channel) {
  Operation operation;
  if (mail_ != nullptr) {
    check_open("recv");
    operation.transfer_ = mail_->receive(to, bytes, from, tag, channel, operation.info_);
    return operation;
  }
  expose(operation, bytes > config_.copy_bytes->bytes, "recv");
  operation.library_ = &library_.receive(to, bytes, dtype, from, tag, channel);
  return operation;
}

inline Mpi::Operation Mpi::start_recv(Match& match, void* to, std::int64_t bytes) {
  Operation operation;
  if (match.letter) {
    check_open("recv");
    operation.transfer_ = mail_->receive(std::move(match.letter), to, bytes);
    return operation;
  }
  expose(operation, bytes > config_.copy_bytes->bytes, "recv");
  operation.library_ = &library_.receive(match, to, bytes);
  return operation;
}

inline bool Mpi::try_match(int from, int tag, Match& match, MessageInfo& info) {
  check_revoked();
  mpi::Environment::check_open("probe");
  if (mail_ != nullptr && match_letter(from, tag, match, info)) return true;
  if (!library_.match(from, tag, match, info)) {
    if ((++looks_ & 63u) == 0) look_around();
    if (!shared_ || !shared_->engine().alone(from)) probed_alone_ = 0;
    else check_departed("probe", from, probed_alone_);
    return false;
  }
  probed_alone_ = 0;
  return true;
}

inline bool Mpi::match_letter(int from, int tag, Match& match, MessageInfo& info) {
  match.letter = mail_->match(from, tag);
  if (!match.letter) return false;
  info = comm::shared::info_of(*match.letter);
  match.memory = shared_->segment();
  probed_alone_ = 0;
  return true;
}

inline bool Mpi::test_transfer(Operation& operation) {
  comm::shared::Transfer& transfer = *operation.transfer_;
  if (!transfer.complete) mail_->progress();
  if (transfer.complete) {
    bool const of_user = !transfer.sends && transfer.channel == comm::Channel::user;
    std::int64_t const room = of_user ? transfer.bytes : std::numeric_limits<std::int64_t>::max();
    operation.transfer_ = nullptr;
    mail_->finish(transfer, operation.info_);
    if (operation.info_.bytes > room) mpi::throw_longer(operation.info_.source, operation.info_.tag, room);
    return true;
  }
  return wait_for_transfer(operation);
}

template <class>
bool Mpi::wait_for_transfer(Operation& operation) {
  comm::shared::Transfer& transfer = *operation.transfer_;
  comm::shared::Engine& engine = shared_->engine();
  engine.progress();
  check_revoked();
  ++looks_;
  if ((looks_ & 63u) == 0) look_around();
  int const partner = mail_->partner(transfer);
  bool const open = !transfer.sends && transfer.parcel == nullptr;  // a receive whose message has not come
  bool const alone = engine.any_left() && (open ? engine.alone(partner) : engine.left(partner));
  // MPI's own calls send to this communicator too.
  if (open && transfer.channel == comm::Channel::user && (alone || (++transfer.looks & 255u) == 0) &&
      receive_natively(operation))
    return false;
  if (alone) check_departed(transfer.sends ? "send" : "recv", partner, transfer.alone_since);
  return false;
}

inline bool Mpi::receive_natively(Operation& operation) {
  comm::shared::Transfer& transfer = *operation.transfer_;
  if (!mail_->is_first(transfer) || mpi::Environment::closed()) return false;
  Match match;
  int flag = 0;
  check(MPI_Improbe(transfer.peer < 0 ? MPI_ANY_SOURCE : transfer.peer, transfer.tag < 0 ? MPI_ANY_TAG : transfer.tag,
                    handles_->user, &flag, &match.message, MPI_STATUS_IGNORE),
        "MPI_Improbe");
  if (flag == 0) return false;
  void* const to = transfer.to;
  std::int64_t const bytes = transfer.bytes;
  mail_->abandon(*std::exchange(operation.transfer_, nullptr));
  operation = start_recv(match, to, bytes);
  return true;
}

inline bool Mpi::test_library(Operation& operation) {
  mpi::LibraryOperation& library = *operation.library_;
  bool done = false;
  try {
    done = library_.test(library, operation.info_);
  } catch (...) {
    library_.put_back(*std::exchange(operation.library_, nullptr));
    throw;
  }
  if (done) {
    library_.put_back(*std::exchange(operation.library_, nullptr));
    return true;
  }
  check_revoked();
  bool const alone = library.receives && shared_ && shared_->engine().alone(library.wanted.source);
  if (library.typed_tag >= 0 && (alone || (++library.looks & 63u) == 0)) library_.receive_other_type(library);
  if (alone) check_departed("recv", library.wanted.source, library.alone_since);
  return false;
}

inline bool Mpi::test(Operation& operation) {
  if (operation.transfer_ != nullptr) return test_transfer(operation);
  if (operation.call_ != nullptr) {
    if (mail_ != nullptr && mail_->busy()) mail_->progress();
    if (shared_->engine().test(operation.call_)) {
      operation.call_ = nullptr;
      return true;
    }
    // Messages of other communicators move on while the library is called, and only then.
    if ((++looks_ & 63u) == 0) look_around();
    return false;
  }
  if (operation.between_nodes_ == nullptr && operation.library_ == nullptr) return true;
  mpi::Environment::check_open("test");
  if ((++looks_ & 63u) == 0) look_around();
  if (operation.between_nodes_ != nullptr) {
    if (!hierarchy_->test(operation.between_nodes_)) {
      check_revoked();
      return false;
    }
    operation.between_nodes_ = nullptr;
  } else if (!test_library(operation)) {
    return false;
  }
  // A peer that gave up and closed has told so before its program touched what it sent.
  if (operation.exposed_) {
    if (!shared_) look_around();
    check_revoked();
  }
  return true;
}

inline bool Mpi::abandon(Operation& operation) noexcept {
  if (operation.call_ != nullptr) return shared_->engine().abandon(std::exchange(operation.call_, nullptr));
  if (operation.between_nodes_ != nullptr)
    return hierarchy_->abandon(std::exchange(operation.between_nodes_, nullptr));
  if (operation.transfer_ != nullptr) {
    mail_->abandon(*std::exchange(operation.transfer_, nullptr));
    return true;
  }
  if (operation.library_ == nullptr) return true;
  bool const gone = library_.abandon(*operation.library_);
  library_.put_back(*std::exchange(operation.library_, nullptr));
  return gone;
}

inline bool Mpi::cancel(Operation& operation) noexcept {
  if (operation.transfer_ != nullptr) {
    bool const cancelled = mail_->cancel(*operation.transfer_);
    if (cancelled) operation.transfer_ = nullptr;
    return cancelled;
  }
  return operation.library_ != nullptr && library_.cancel(*operation.library_);
}

inline std::string Mpi::awaiting(Operation const& operation) const {
  if (operation.call_ != nullptr) return shared_->engine().awaiting(operation.call_);
  if (operation.between_nodes_ != nullptr) return hierarchy_->awaiting(operation.between_nodes_);
  if (auto const* const transfer = operation.transfer_) {
    if (transfer->sends)
      return comm::not_received(transfer->peer, transfer->tag) + whereabouts(transfer->peer);
    return comm::no_message({transfer->peer, transfer->tag, 0}) + whereabouts(transfer->peer);
  }
  if (operation.library_ == nullptr || !operation.library_->under_way()) return {};
  MessageInfo const& wanted = operation.library_->wanted;
  if (operation.library_->receives) return comm::no_message(wanted) + whereabouts(wanted.source);
  if (wanted.source >= 0)
    return comm::not_received(wanted.source, wanted.tag) + whereabouts(wanted.source);
  return "MPI reports it as incomplete on this rank; some rank of " + std::to_string(size_) +
         " has not made the matching call";
}

}  // namespace tutti

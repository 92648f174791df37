// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages by calls of MPI, which start them and ask for them, and never block; and what else is under way there.

#include <tutti/backend/mpi/calls.hpp>
#include <tutti/backend/mpi/envelope.hpp>
#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/match.hpp>
#include <tutti/backend/mpi/passed_by.hpp>
#include <tutti/backend/mpi/tags.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/wait.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::mpi {

/// What is under way: a message, or a collective.
struct LibraryOperation {
  std::vector<MPI_Request> requests{};  ///< of a reduction in several parts
  std::unique_ptr<Envelope> envelope{};
  MPI_Request request = MPI_REQUEST_NULL;
  MessageInfo wanted{};          ///< of a receive; of a send: to whom, as its source
  std::int64_t room = -1;        ///< of a user's receive: bytes of its buffer
  std::int64_t alone_since = 0;  ///< since when nobody is left who could send
  void* to = nullptr;            ///< of a receive under one type's tag
  int typed_tag = -1;
  std::uint8_t looks = 0;  ///< for a message of another type; its own, so that each receive has its turn
  bool receives = false;

  bool under_way() const noexcept { return request != MPI_REQUEST_NULL || !requests.empty(); }
};

/// The message is longer than its buffer, which is the business of these two ranks alone.
[[noreturn]] inline void throw_longer(int source, int tag, std::int64_t room, std::string native = {}) {
  throw Error(ErrorKind::shape, "recv",
              concat("the message from rank ", source, " with tag ", tag, " has more than the buffer's ", room,
                     " bytes. Pass a buffer of its size, or receive with the size inferred: recv<T>(source, tag)"))
      .with_native(std::move(native));
}

class LibraryMessages {
 public:
  LibraryMessages() = default;
  /// `labels`: messages of the user carry their data type with their payload; `types_in_tags`: in their tag.
  LibraryMessages(MPI_Comm user, MPI_Comm internal, std::int64_t count_limit, exec::WaitPolicy policy, bool labels,
                  bool types_in_tags)
      : user_(user), internal_(internal), count_limit_(count_limit), policy_(policy), labels_(labels),
        types_in_tags_(types_in_tags) {}

  /// For something that starts. Its place is kept, since operations move.
  LibraryOperation& take() {
    if (free_.empty()) {
      all_.push_back(make_owner<LibraryOperation>());
      free_.reserve(all_.size());
      free_.push_back(all_.back().get());
    }
    LibraryOperation& operation = *free_.back();
    free_.pop_back();
    return operation;
  }
  void put_back(LibraryOperation& operation) noexcept {
    operation = LibraryOperation();
    free_.push_back(&operation);
  }

  LibraryOperation& send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    LibraryOperation& operation = take();
    operation.wanted = {to, tag, bytes};
    if (labels(channel)) {
      operation.envelope = std::make_unique<Envelope>(from, bytes, dtype);
      from = operation.envelope->data();
      bytes = operation.envelope->bytes();
    }
    if (types_in_tags_ && channel == comm::Channel::user) tag = typed_tag(tag, dtype);
    Bytes const b(bytes, count_limit_);
    check(isend(from, b.count(), b.type(), to, tag, on(channel), &operation.request), "MPI_Isend");
    return operation;
  }
  LibraryOperation& receive(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    if (!passed_by_.empty() && channel == comm::Channel::user) {
      Match match;
      MessageInfo info;
      if (passed_by_.take(from, tag, match, info)) return receive(match, to, bytes);
    }
    LibraryOperation& operation = take();
    operation.receives = true;
    operation.wanted = {from, tag, 0};
    if (channel == comm::Channel::user) operation.room = bytes;
    if (labels(channel)) receive_labelled(operation, to, bytes);
    if (types_in_tags_ && channel == comm::Channel::user && tag >= 0) {
      operation.to = to;
      operation.typed_tag = tag = typed_tag(tag, dtype);
    }
    Bytes const b(bytes, count_limit_);
    check(irecv(to, b.count(), b.type(), from < 0 ? MPI_ANY_SOURCE : from, tag < 0 ? MPI_ANY_TAG : tag, on(channel),
                &operation.request),
          "MPI_Irecv");
    return operation;
  }
  LibraryOperation& receive(Match& match, void* to, std::int64_t bytes) {
    LibraryOperation& operation = take();
    operation.receives = true;
    operation.room = bytes;
    if (labels_) receive_labelled(operation, to, bytes);
    Bytes const b(bytes, count_limit_);
    check(imrecv(to, b.count(), b.type(), &match.message, &operation.request), "MPI_Imrecv");
    return operation;
  }
  /// Takes a message out of the queue, if there is one.
  bool match(int from, int tag, Match& match, MessageInfo& info) {
    if (passed_by_.take(from, tag, match, info)) return true;
    bool const any = tag < 0 || types_in_tags_;
    for (;;) {
      MPI_Status status;
      int flag = 0;
      check(MPI_Improbe(from < 0 ? MPI_ANY_SOURCE : from, any ? MPI_ANY_TAG : tag, user_, &flag, &match.message,
                        &status),
            "MPI_Improbe");
      if (flag == 0) return false;
      info = info_of(status);
      match.bytes = info.bytes;
      info.bytes -= label_bytes();
      if (tag < 0 || info.tag == tag) return true;
      passed_by_.put(std::exchange(match, Match()), info);
    }
  }

  /// True once complete; `info` tells of what was received.
  bool test(LibraryOperation& operation, MessageInfo& info) {
    MPI_Status status;
    int flag = 0;
    if (operation.request != MPI_REQUEST_NULL) {
      int const code = MPI_Test(&operation.request, &flag, &status);
      if (code != MPI_SUCCESS) {
        operation.request = MPI_REQUEST_NULL;
        fail(operation, code, status);
      }
      if (flag == 0) return false;
      if (operation.receives) info = info_of(status);
      if (operation.receives && operation.envelope != nullptr) operation.envelope->open(info);
    }
    if (!operation.requests.empty()) {
      int const code = MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(), &flag,
                                   MPI_STATUSES_IGNORE);
      if (code != MPI_SUCCESS) {
        operation.requests.clear();
        throw_error(code, "MPI_Testall", std::source_location::current());
      }
      if (flag == 0) return false;
      operation.requests.clear();
    }
    return true;
  }
  /// A message of another type than the receive's stays in the library's queue, though it is what the receive would
  /// get: so it does, and is told to be of that type.
  void receive_other_type(LibraryOperation& operation) {
    MPI_Status status;
    if (!other_type_has_come(user_, operation.wanted.source, operation.typed_tag, status)) return;
    if (!cancel(operation)) {
      if (operation.request != MPI_REQUEST_NULL) return;  // one of its own type has come after all
      throw Error(ErrorKind::dtype, "recv",
                  concat("a message from rank ", status.MPI_SOURCE, " with tag ", user_tag(status.MPI_TAG),
                         " holds another type than the buffer, and MPI does not cancel the receive. Receive it as what "
                         "was sent"));
    }
    operation.typed_tag = -1;
    Match match;
    check(MPI_Mprobe(status.MPI_SOURCE, status.MPI_TAG, user_, &match.message, &status), "MPI_Mprobe");
    Bytes const b(operation.room, count_limit_);
    check(imrecv(operation.to, b.count(), b.type(), &match.message, &operation.request), "MPI_Imrecv");
  }

  /// A receive can be cancelled; a send or collective under way keeps its memory, unless that is a copy: then false.
  bool abandon(LibraryOperation& operation) noexcept {
    bool gone = !operation.under_way();
    if (operation.request != MPI_REQUEST_NULL && !Environment::closed()) {
      int flag = 0;
      if (operation.receives) MPI_Cancel(&operation.request);
      gone = MPI_Test(&operation.request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag != 0;
    }
    if (!gone) Environment::abandoned().store(true);
    if (!gone && operation.envelope != nullptr) {  // the library has that, and not the caller's buffer
      static_cast<void>(operation.envelope.release());
      gone = true;
    }
    operation.request = MPI_REQUEST_NULL;
    operation.requests.clear();
    return gone;
  }
  /// See comm/concepts.hpp. A message that is under way to it is received within two seconds.
  bool cancel(LibraryOperation& operation) noexcept {
    if (operation.request == MPI_REQUEST_NULL) return false;
    if (Environment::closed()) return abandon(operation);
    MPI_Cancel(&operation.request);
    exec::Backoff backoff(policy_);
    for (std::int64_t const end = exec::now_ns() + 2'000'000'000; exec::now_ns() < end; backoff.step()) {
      int flag = 0, cancelled = 0;
      MPI_Status status;
      MPI_Request_get_status(operation.request, &flag, &status);
      if (flag == 0) continue;
      MPI_Test_cancelled(&status, &cancelled);
      if (cancelled == 0) return false;
      MPI_Request_free(&operation.request);
      return true;
    }
    return abandon(operation);
  }

  /// The first that has come, as far as the library tells, after those that a probe came past.
  void list(List<MessageInfo>& found) const {
    passed_by_.list(found);
    int flag = 0;
    MPI_Status status;
    if (Environment::closed() || MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, user_, &flag, &status) != MPI_SUCCESS ||
        flag == 0)
      return;
    MessageInfo info = info_of(status);
    info.bytes -= label_bytes();
    found.push_back(info);
  }
  /// What a message has in front of it where calls are fully checked: its data type.
  std::int64_t label_bytes() const noexcept { return labels_ ? Envelope::label_bytes : 0; }

 private:
  bool labels(comm::Channel channel) const noexcept { return labels_ && channel == comm::Channel::user; }
  MPI_Comm on(comm::Channel channel) const noexcept { return channel == comm::Channel::user ? user_ : internal_; }
  static void receive_labelled(LibraryOperation& operation, void*& to, std::int64_t& bytes) {
    operation.envelope = std::make_unique<Envelope>(to, bytes);
    to = operation.envelope->data();
    bytes = operation.envelope->bytes();
  }
  [[noreturn]] static void fail(LibraryOperation const& operation, int code, MPI_Status const& status) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (operation.room >= 0 && error_class == MPI_ERR_TRUNCATE)
      throw_longer(status.MPI_SOURCE, user_tag(status.MPI_TAG), operation.room, error_text(code));
    throw_error(code, "MPI_Test", std::source_location::current());
  }

  MPI_Comm user_ = MPI_COMM_NULL;
  MPI_Comm internal_ = MPI_COMM_NULL;
  std::int64_t count_limit_ = default_count_limit;
  exec::WaitPolicy policy_;
  bool labels_ = false;
  bool types_in_tags_ = false;
  PassedBy passed_by_;
  List<Owner<LibraryOperation>> all_;
  List<LibraryOperation*> free_;
};

}  // namespace tutti::mpi

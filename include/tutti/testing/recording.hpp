// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Recording`: a backend that communicates with nobody and notes what it is asked for, so that a test can say which
/// calls its program makes on any rank of any number of ranks.

#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// One call. What does not belong to its kind has the value it has here; equality does not look at `where`.
struct RecordedCall {
  std::string_view operation;        ///< "all_reduce", ..., "send", "recv", "split"
  DType dtype = DType::byte;         ///< of a collective; messages are bytes
  std::int64_t count = 0;            ///< elements of a collective's block, see comm::Collective; bytes of a message
  Operator op = Operator::none;
  int root = -1;
  int peer = any_source;             ///< of a message; any_source for a receive from anybody
  int tag = any_tag;
  int communicator = 0;              ///< 0, or the number of the split that made it
  std::source_location where{};      ///< of a collective
  /// Elements of the blocks of `from` and of `to`, of the _v kinds, where this rank passes them.
  List<std::int64_t> from_counts{};
  List<std::int64_t> to_counts{};
  std::int64_t contributions = 1;    ///< of this rank, to all_reduce_contributions

  friend bool operator==(RecordedCall const& a, RecordedCall const& b) noexcept {
    return a.operation == b.operation && a.dtype == b.dtype && a.count == b.count && a.op == b.op &&
           a.root == b.root && a.peer == b.peer && a.tag == b.tag && a.communicator == b.communicator &&
           a.from_counts == b.from_counts && a.to_counts == b.to_counts && a.contributions == b.contributions;
  }
};

/// "all_reduce(sum, float32, count 8)", "all_gather_v(float32, count 4, to 3 + 4 + 0)", "send(32 bytes, to 1, tag 0)",
/// "recv(4 bytes, from any, any tag)"
inline std::string to_string(RecordedCall const& call) {
  bool const sends = call.operation == "send";
  bool const receives = call.operation == "recv";
  std::string text(call.operation);
  text += '(';
  if (sends || receives) {
    text += std::to_string(call.count) + (sends ? " bytes, to " : " bytes, from ") +
            (call.peer < 0 ? "any" : std::to_string(call.peer)) +
            (call.tag < 0 ? ", any tag" : ", tag " + std::to_string(call.tag));
  } else if (call.operation != "barrier" && call.operation != "split") {
    if (call.op != Operator::none) text += std::string(name(call.op)) + ", ";
    if (call.root >= 0) text += "root " + std::to_string(call.root) + ", ";
    text += std::string(name(call.dtype)) + ", count " + std::to_string(call.count);
    if (call.contributions != 1) text += ", " + std::to_string(call.contributions) + " contributions";
    if (!call.from_counts.empty()) text += ", from " + comm::listed(call.from_counts);
    if (!call.to_counts.empty()) text += ", to " + comm::listed(call.to_counts);
  }
  text += ')';
  if (call.communicator != 0) text += " on communicator " + std::to_string(call.communicator);
  return text;
}

/// `Communicator<Recording> comm(Recording(2, 4))` is rank 2 of 4. Every operation is complete at once, and buffers
/// stay as they are; results that the communicator allocates are zeros. One thing is answered, because programs branch
/// on it: in all_gather every rank contributes what this one does. Hence a split keeps rank and size, whatever the
/// color. No message ever comes, so that a probe finds none, and a receive that infers its size ends at the deadline.
class Recording {
 public:
  using Device = Cpu;
  class Operation {
   public:
    Operation() = default;

   private:
    friend Recording;
    explicit Operation(MessageInfo info) noexcept : info_(info) {}
    MessageInfo info_;
  };
  struct Match {};

  /// Errors     invalid_argument.
  Recording(int rank, int size) : rank_(rank), size_(size), log_(make_shared_owner<Log>()) {
    if (rank < 0 || rank >= size)
      throw Error(ErrorKind::invalid_argument, "Recording",
                  "there is no rank " + std::to_string(rank) + " of " + std::to_string(size));
  }

  /// What was called so far, on this communicator and on those split from it.
  List<RecordedCall> const& calls() const noexcept { return log_->calls; }
  void clear() noexcept { log_->calls.clear(); }
  /// Errors     invalid_argument, with the first call that differs and all that were made.
  void expect(List<RecordedCall> const& expected, std::source_location where = std::source_location::current()) const {
    List<RecordedCall> const& made = log_->calls;
    std::size_t at = 0;
    while (at < made.size() && at < expected.size() && made[at] == expected[at]) ++at;
    if (at == made.size() && at == expected.size()) return;
    std::string text = "call " + std::to_string(at) + " is " + (at < made.size() ? to_string(made[at]) : "missing") +
                       " instead of " + (at < expected.size() ? to_string(expected[at]) : "none") + ". All calls:";
    for (RecordedCall const& call : made) text += "\n  " + to_string(call);
    throw Error(ErrorKind::invalid_argument, "Recording::expect", text, where);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int node() const noexcept { return 0; }
  int local_rank() const noexcept { return rank_; }
  int local_size() const noexcept { return size_; }
  exec::WaitPolicy wait_policy() const noexcept { return {}; }

  static constexpr bool provides(comm::Kind, DType, Operator) noexcept { return true; }
  static constexpr bool takes(comm::Collective const&) noexcept { return true; }
  static constexpr bool scatters_in_place() noexcept { return true; }
  static constexpr bool compares() noexcept { return true; }
  /// A call on device memory is one call here too.
  static constexpr std::int64_t staging_bytes() noexcept { return INT64_MAX; }
  Operation start(comm::Collective const& call) {
    RecordedCall record;
    record.operation = comm::name(call.kind);
    record.dtype = call.dtype;
    record.count = call.count;
    record.op = call.reduction.op;
    record.root = call.root;
    record.where = call.where;
    record.from_counts = List<std::int64_t>(call.from_counts.begin(), call.from_counts.end());
    record.to_counts = List<std::int64_t>(call.to_counts.begin(), call.to_counts.end());
    record.contributions = call.contributions;
    note(std::move(record));
    auto const bytes = static_cast<std::size_t>(call.block_bytes());
    for (int r = 0; call.kind == comm::Kind::all_gather && bytes != 0 && r < size_; ++r)
      if (void* const block = static_cast<std::byte*>(call.to) + static_cast<std::size_t>(r) * bytes;
          block != call.from)
        std::memcpy(block, call.from, bytes);
    return {};
  }
  Operation start_comparison(comm::Collective const&) { return {}; }

  Operation start_send(void const*, std::int64_t bytes, DType, int to, int tag, comm::Channel) {
    note_message("send", bytes, to, tag);
    return {};
  }
  Operation start_recv(void*, std::int64_t bytes, DType, int from, int tag, comm::Channel) {
    note_message("recv", bytes, from, tag);
    return Operation({from, tag, bytes});
  }
  bool try_match(int, int, Match&, MessageInfo&) { return false; }
  Operation start_recv(Match&, void*, std::int64_t) {
    throw Error(ErrorKind::internal, "Recording", "asked to receive a message that it has not given");
  }
  std::string whereabouts(int) const {
    return "; a Recording delivers no messages, receive into a buffer of known size";
  }

  bool test(Operation&) {
    if (!cause_.empty()) throw Error(kind_, "test", cause_);
    return true;
  }
  MessageInfo received(Operation const& operation) const noexcept { return operation.info_; }
  bool abandon(Operation&) noexcept { return true; }
  std::string awaiting(Operation const&) const { return {}; }
  void revoke(ErrorKind kind, std::string text) noexcept {
    if (!cause_.empty()) return;
    kind_ = kind;
    cause_ = std::move(text);
  }
  Recording split(int, int, List<int> const&) {
    RecordedCall record;
    record.operation = "split";
    note(std::move(record));
    Recording child(rank_, size_);
    child.log_ = log_;
    child.communicator_ = ++log_->communicators;
    return child;
  }

  /// Zeros.
  Storage<Cpu> allocate(std::size_t bytes) {
    Storage<Cpu> memory(Cpu{}, bytes);
    if (bytes != 0) std::memset(memory.data(), 0, bytes);
    return memory;
  }
  bool shares_memory() const noexcept { return false; }

 private:
  struct Log {
    List<RecordedCall> calls;
    int communicators = 0;
  };
  void note(RecordedCall record) {
    record.communicator = communicator_;
    log_->calls.push_back(std::move(record));
  }
  void note_message(std::string_view operation, std::int64_t bytes, int peer, int tag) {
    RecordedCall record;
    record.operation = operation;
    record.count = bytes;
    record.peer = peer;
    record.tag = tag;
    note(std::move(record));
  }

  int rank_;
  int size_;
  int communicator_ = 0;
  Shared<Log> log_;
  ErrorKind kind_ = ErrorKind::revoked;
  std::string cause_;
};

static_assert(Backend<Recording>);

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A send, a receive, or one of each, as a job.

#include <tutti/comm/core.hpp>
#include <tutti/comm/message_info.hpp>
#include <tutti/core/concat.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace tutti::comm {

/// A send, a receive, or one of each.
template <Backend B>
class TransferJob : public Job {
 public:
  TransferJob(Core<B>& core, char const* operation) : Job(operation), core_(core) {}

  void send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, std::source_location where) {
    count();
    sent_ = core_.flight_recorder.begin(FlightRecord::What::send, bytes, to, tag, where, moment());
    send_ = core_.backend.start_send(from, bytes, dtype, to, tag, Channel::user);
    counted_.count(Algorithm::messages, bytes + capability::label_bytes(core_.backend), 0);
    sent_bytes_ = bytes;
  }
  void receive(void* to, std::int64_t bytes, DType dtype, int from, int tag, std::source_location where) {
    count();
    if (received_ == FlightRecorder::no_ticket)
      received_ = core_.flight_recorder.begin(FlightRecord::What::recv, bytes, from, tag, where, moment());
    if (!core_.inbox.empty()) {
      typename B::Match match{};
      MessageInfo info;
      if (core_.inbox.take(from, tag, match, info)) return receive(match, to, bytes, dtype);
    }
    expected_ = bytes;
    dtype_ = dtype;
    info_.source = from;
    info_.tag = tag;
    receive_ = core_.backend.start_recv(to, bytes, dtype, from, tag, Channel::user);
  }
  void receive(typename B::Match& match, void* to, std::int64_t bytes, DType dtype) {
    expected_ = bytes;
    dtype_ = dtype;
    receive_ = core_.backend.start_recv(match, to, bytes);
  }
  /// Of a receive that was recorded when it began to look.
  void continue_record(FlightRecorder::Ticket receive) noexcept { received_ = receive; }
  /// From proc_null.
  void receive_nothing() noexcept { info_.source = proc_null; }
  /// Whether something comes, or has come, into the buffer.
  bool receives() const noexcept { return expected_ >= 0; }
  /// Has it counted from now on.
  void count() {
    if (counted_.row == nullptr) counted_ = core_.tally.begin(operation());
  }
  /// Has the receive of a matched message counted and recorded.
  void record(MessageInfo const& matched, std::source_location where) {
    count();
    received_ =
        core_.flight_recorder.begin(FlightRecord::What::recv, matched.bytes, matched.source, matched.tag, where);
  }
  MessageInfo const& info() const noexcept { return info_; }
  bool sends_first() const noexcept { return capability::sends_first(core_.backend); }

  bool abandon() noexcept override {
    core_.flight_recorder.fail(received_);
    core_.flight_recorder.fail(sent_);
    bool const sent = core_.backend.abandon(send_);
    return core_.backend.abandon(receive_) && sent;
  }
  /// Of the receive, while no message has come for it. A backend without `cancel` gives it up.
  bool cancel() noexcept override {
    try {
      if (expected_ < 0 || done() || core_.backend.test(receive_)) return false;
    } catch (...) {
      return false;  // the next poll tells
    }
    if (!capability::cancel(core_.backend, receive_)) return false;
    core_.flight_recorder.fail(received_);
    receive_ = {};
    expected_ = -1;
    return true;
  }
  void withdraw() noexcept override { capability::withdraw(core_.backend, send_); }
  std::string wanted() const override { return receives() ? asked_for(info_.source, info_.tag) : std::string(); }
  std::string awaiting() const override {
    std::string const text = core_.backend.awaiting(receive_);
    return text.empty() ? core_.backend.awaiting(send_) : text + core_.inbox.others(core_.backend);
  }

 protected:
  bool advance() override {
    if (!core_.backend.test(receive_) || !core_.backend.test(send_)) return false;
    if (expected_ < 0) return complete();
    info_ = core_.backend.received(receive_);
    counted_.count(Algorithm::messages, 0, info_.bytes + capability::label_bytes(core_.backend));
    if (info_.bytes != expected_)
      throw Error(ErrorKind::shape, operation(),
                  concat("the message from rank ", info_.source, " with tag ", info_.tag, " has ", info_.bytes,
                         " bytes, the buffer ", expected_,
                         ". Pass a buffer of its size, or receive with the size inferred: recv<T>(source, tag)"));
    if (info_.has_dtype && info_.dtype != dtype_)
      throw Error(ErrorKind::dtype, operation(),
                  concat("the message from rank ", info_.source, " with tag ", info_.tag, " holds ", name(info_.dtype),
                         ", the buffer ", name(dtype_), ". Receive it as what was sent"));
    return complete();
  }

 private:
  /// When the first of the two began, which is when both do.
  std::int64_t moment() noexcept { return began_ != 0 ? began_ : began_ = FlightRecorder::ticks_now(); }
  bool complete() noexcept {
    core_.flight_recorder.complete(received_, sent_);
    counted_.complete(info_.bytes > sent_bytes_ ? info_.bytes : sent_bytes_);
    return true;
  }

  Core<B>& core_;
  std::int64_t began_ = 0;
  std::int64_t expected_ = -1;
  DType dtype_ = DType::byte;
  std::int64_t sent_bytes_ = 0;
  MessageInfo info_;
  Tally::Ticket counted_;
  FlightRecorder::Ticket sent_ = FlightRecorder::no_ticket;
  FlightRecorder::Ticket received_ = FlightRecorder::no_ticket;
  typename B::Operation send_;
  typename B::Operation receive_;
};

}  // namespace tutti::comm

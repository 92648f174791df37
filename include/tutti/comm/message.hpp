// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Point-to-point operations as jobs, and `Message`: one taken out of the queue, so that no other receive can get it
/// between the look at its size and its arrival.

#include <tutti/comm/core.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/transfer_job.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/tensor/tensor.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace tutti {

/// A matched message. It is received once, with `Communicator::recv`; dropping it loses it. Move-only.
template <Backend B>
class Message {
 public:
  Message(typename B::Match match, MessageInfo info) : match_(std::move(match)), info_(info) {}
  Message(Message&& other) noexcept : match_(std::move(other.match_)), info_(other.info_), held_(other.held_) {
    other.held_ = false;
  }
  Message& operator=(Message&& other) noexcept {
    match_ = std::move(other.match_);
    info_ = other.info_;
    bool const held = other.held_;
    other.held_ = false;
    held_ = held;
    return *this;
  }
  MessageInfo const& info() const noexcept { return info_; }
  int source() const noexcept { return info_.source; }
  int tag() const noexcept { return info_.tag; }
  std::int64_t bytes() const noexcept { return info_.bytes; }
  /// Number of whole elements of type T.
  template <Storable T>
  std::int64_t count() const noexcept {
    return info_.count<T>();
  }
  /// Errors: invalid_argument, when it was received or moved from before.
  void check_held(std::source_location where) const {
    if (!held_)
      throw Error(ErrorKind::invalid_argument, "recv",
                  concat("the message from rank ", source(), " with tag ", tag(),
                         " is not here any more: it was received or moved from before"),
                  where);
  }
  /// For what receives it.
  typename B::Match& take() noexcept {
    held_ = false;
    return match_;
  }

 private:
  typename B::Match match_;
  MessageInfo info_;
  bool held_ = true;
};

namespace comm {

/// A transfer with the buffers it works on; the result is the receive buffer, or the send buffer when there is none.
template <Backend B, class Out, class In>
class TransferTask final : public Task<typename std::conditional_t<std::same_as<In, NoOperand>, Out, In>::Result> {
 public:
  using Result = typename std::conditional_t<std::same_as<In, NoOperand>, Out, In>::Result;
  /// The buffers are made in their place by the two functions.
  template <class MakeOut, class MakeIn>
  TransferTask(Core<B>& core, char const* operation, MakeOut&& make_out, MakeIn&& make_in)
      : Task<Result>(operation), out(make_out()), in(make_in()), transfer(core, operation) {}

  Out out;
  In in;
  TransferJob<B> transfer;

  /// What goes wrong the next poll tells: what is under way knows its buffers.
  void start(int to, int send_tag, int from, int recv_tag, std::source_location where) noexcept {
    auto const send = [&] {
      if constexpr (!std::same_as<Out, NoOperand>) {
        using T = typename Out::Value;
        if (to == proc_null) return;
        transfer.send(out.wire(), out.size() * wire_bytes<T>(), wire_dtype<T>, to, send_tag, where);
      }
    };
    try {
      bool const first = transfer.sends_first();
      if (first) send();
      if constexpr (!std::same_as<In, NoOperand>) {
        using T = typename In::Value;
        if (from == proc_null) transfer.receive_nothing();
        else transfer.receive(in.wire(), in.size() * wire_bytes<T>(), wire_dtype<T>, from, recv_tag, where);
      }
      if (!first) send();
    } catch (...) {
      transfer.postpone();
    }
  }

  bool abandon() noexcept override { return transfer.give_up(); }
  bool borrows() const noexcept override { return Out::borrows || In::borrows; }
  bool cancel() noexcept override { return transfer.cancel(); }
  void withdraw() noexcept override { transfer.withdraw(); }
  bool lent() const noexcept override { return out.lent() || in.lent(); }
  std::string awaiting() const override { return transfer.awaiting(); }
  std::string wanted() const override { return transfer.wanted(); }
  Result take() override {
    if constexpr (std::same_as<In, NoOperand>) return out.take();
    else return in.take();
  }

 protected:
  bool advance() override {
    if (!transfer.poll()) return false;
    if (transfer.receives()) in.store();  // else it was cancelled, or there is nobody to receive from
    return true;
  }
};

/// Waits for a message, without receiving it: only looks at it, or takes it out of the queue.
template <Backend B>
class ProbeJob final : public Job {
 public:
  enum class Mode { look, match };
  using Info = MessageInfo;  // named through B, so that std::optional of it is only instantiated by who probes
  ProbeJob(Core<B>& core, Mode mode, int from, int tag)
      : ProbeJob(core, mode == Mode::look ? "probe" : "match", mode, from, tag) {}
  ProbeJob(Core<B>& core, char const* operation, Mode mode, int from, int tag)
      : Job(operation), core_(core), mode_(mode), from_(from), tag_(tag) {}
  /// Has it recorded as what somebody waits in.
  void record(std::source_location where) {
    counted_ = core_.tally.begin(operation());
    flight_ = core_.flight_recorder.begin(
        mode_ == Mode::look ? FlightRecord::What::probe : FlightRecord::What::match, -1, from_, tag_, where);
  }
  MessageInfo const& info() const noexcept { return info_; }
  bool abandon() noexcept override {
    core_.flight_recorder.fail(flight_);
    return true;
  }
  std::string wanted() const override { return asked_for(from_, tag_); }
  std::string awaiting() const override {
    std::string const text = no_message({from_, tag_, 0});
    return text + capability::whereabouts(core_.backend, from_) + core_.inbox.others(core_.backend);
  }
  Message<B> take() { return Message<B>(std::move(match_), info_); }

 protected:
  bool advance() override {
    if (from_ == proc_null) info_.source = proc_null;
    else if (mode_ == Mode::look ? !core_.inbox.look(core_.backend, from_, tag_, info_)
                                 : !core_.inbox.match(core_.backend, from_, tag_, match_, info_))
      return false;
    core_.flight_recorder.set_bytes(flight_, info_.bytes);
    core_.flight_recorder.complete(flight_);
    counted_.complete(0);
    return true;
  }

 private:
  Core<B>& core_;
  Mode mode_;
  int from_;
  int tag_;
  typename B::Match match_{};
  MessageInfo info_;
  Tally::Ticket counted_;
  FlightRecorder::Ticket flight_ = FlightRecorder::no_ticket;
};

/// Receives a message of any size: match, allocate, receive. `D` is where the result lives.
template <Backend B, Storable T, Device D>
class SizedReceiveTask final : public Task<Tensor<T, D>> {
 public:
  using Result = Tensor<T, D>;
  SizedReceiveTask(Core<B>& core, int from, int tag, std::source_location where)
      : Task<Result>("recv"),
        core_(core),
        flight_(core.flight_recorder.begin(FlightRecord::What::recv, -1, from, tag, where)),
        probe_(core, ProbeJob<B>::Mode::match, from, tag),
        transfer_(core, "recv") {
    transfer_.count();
  }
  /// Of a message that was matched before.
  SizedReceiveTask(Core<B>& core, Message<B> message, std::source_location where)
      : SizedReceiveTask(core, message.source(), message.tag(), where) {
    begin(message);
  }

  bool abandon() noexcept override {
    core_.flight_recorder.fail(flight_);
    return transfer_.give_up();
  }
  bool borrows() const noexcept override { return false; }
  /// The last poll has found no message.
  bool cancel() noexcept override {
    if (matched_ || cancelled_) return false;
    core_.flight_recorder.fail(flight_);
    return cancelled_ = true;
  }
  std::string awaiting() const override { return matched_ ? transfer_.awaiting() : probe_.awaiting(); }
  std::string wanted() const override { return matched_ ? std::string() : probe_.wanted(); }
  Result take() override { return result_->take(); }

 protected:
  bool advance() override {
    if (cancelled_) return true;
    if (!matched_) {
      if (!probe_.poll()) return false;
      auto message = probe_.take();
      begin(message);
    }
    if (!transfer_.poll()) return false;
    result_->store();
    core_.flight_recorder.complete(flight_);
    return true;
  }

 private:
  using Received = Operand<T, D, true>;
  void begin(Message<B>& message) {
    if (message.bytes() % wire_bytes<T>() != 0)
      throw Error(
          ErrorKind::dtype, "recv",
          concat("the message from rank ", message.source(), " with tag ", message.tag(), " has ", message.bytes(),
                 " bytes, which are no whole number of ", element_name<T>(), ". Receive it as what was sent"));
    core_.flight_recorder.set_bytes(flight_, message.bytes());
    result_ = make_owner<Received>(Result(Shape{message.template count<T>()}));
    if constexpr (passes_host<D, typename B::Device>) result_->stage(false);
    if (message.source() == proc_null) transfer_.receive_nothing();
    else transfer_.receive(message.take(), result_->wire(), message.bytes(), wire_dtype<T>);
    matched_ = true;
  }

  Core<B>& core_;
  FlightRecorder::Ticket flight_;
  ProbeJob<B> probe_;
  TransferJob<B> transfer_;
  bool matched_ = false;
  bool cancelled_ = false;
  Owner<Received> result_;
};

}  // namespace comm
}  // namespace tutti

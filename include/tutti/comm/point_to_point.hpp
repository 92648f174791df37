// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages between two ranks, as a part of `Communicator`.

#include <tutti/comm/endpoint.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/comm/message_group.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace tutti::comm {

/// Whether recv<T> takes arguments of these types.
template <class B, class... X>
inline constexpr bool receives = sizeof...(X) == 0;
template <class B, class From>
inline constexpr bool receives<B, From> = std::convertible_to<From const&, int>;
template <class B, class From, class Tag>
inline constexpr bool receives<B, From, Tag> = receives<B, From> && std::convertible_to<Tag const&, int>;
template <class B, class Where>
inline constexpr bool receives<B, Message<B>, Where> = std::convertible_to<Where const&, CallSite>;
template <class B, class From, class Tag, class Where>
inline constexpr bool receives<B, From, Tag, Where> =
    receives<B, From, Tag> && std::convertible_to<Where const&, CallSite>;

/// Messages of one pair and tag arrive in order. Tags are 0 to 32767; receives also take any_source and any_tag.
template <Backend B>
class PointToPoint {
  using Device = typename B::Device;
  using Where = CallSite;
  static constexpr auto nothing = Endpoint<B>::nothing;

 public:
  template <Buffer X>
  void send(X&& x, int to, int tag = 0, Where where = std::source_location::current()) {
    self().exchange(
        "send", [&] { return input_of(x); }, nothing, {to, tag, any_source, any_tag}, where);
  }
  /// One number or struct, which the other side receives as one, or as a buffer with one element.
  template <Value T>
  void send(T const& value, int to, int tag = 0, Where where = std::source_location::current()) {
    self().exchange(
        "send", [&] { return comm::one(value); }, nothing, {to, tag, any_source, any_tag}, where);
  }
  template <Buffer X>
  Request<Sent<X>> send_async(X&& x, int to, int tag = 0, Where where = std::source_location::current()) {
    return self().request(
        self().transfer(
            "send", [&] { return input_of(std::forward<X>(x)); }, nothing, {to, tag, any_source, any_tag}, where),
        where);
  }

  /// Errors   shape, when the message has another size than x; dtype, when it holds other elements, which `Mpi` does
  ///          not see when its check level is off. Complex numbers count as their parts here, structs as bytes.
  template <Buffer X>
  MessageInfo recv(X&& x, int from, int tag = any_tag, Where where = std::source_location::current()) {
    return self().exchange(
        "recv", nothing, [&] { return operand_of(x); }, {0, 0, from, tag}, where);
  }
  /// One number or struct, in place. The first argument keeps recv<int>(from, tag) from meaning this.
  template <int = 0, Variable T>
  MessageInfo recv(T& value, int from, int tag = any_tag, Where where = std::source_location::current()) {
    return self().exchange(
        "recv", nothing, [&] { return comm::one(value); }, {0, 0, from, tag}, where);
  }
  template <Buffer X>
  Request<Received<X>> recv_async(X&& x, int from, int tag = any_tag, Where where = std::source_location::current()) {
    return self().request(
        self().transfer(
            "recv", nothing, [&] { return operand_of(std::forward<X>(x)); }, {0, 0, from, tag}, where),
        where);
  }
  /// A message of any size, as a tensor of shape (count,), on another device as `recv<T, D>`.
  template <Sendable T, tutti::Device D = Device>
  [[nodiscard]] Tensor<T, D> recv(int from = any_source, int tag = any_tag,
                                  Where where = std::source_location::current()) {
    auto const stay = self().held(where).visit("recv", where);
    return recv_async<T, D>(from, tag, where).wait(where);
  }
  template <Sendable T, tutti::Device D = Device>
  Request<Tensor<T, D>> recv_async(int from = any_source, int tag = any_tag,
                                   Where where = std::source_location::current()) {
    check_place<T, D>();
    self().checks("recv", where).check_source(from, tag);
    auto const stay = self().held(where).visit("recv", where);
    return self().request(make_owner<SizedReceiveTask<B, T, D>>(*self().core_, from, tag, where), where);
  }

  /// Both at once, so that rings and exchanges cannot deadlock. The buffers have one element type and are disjoint.
  template <Buffer Out, Buffer In>
  MessageInfo send_recv(Out&& out, int to, In&& in, int from, int tag = 0,
                        Where where = std::source_location::current()) {
    static_assert(same_elements<Out, In>,
                  "tutti: send_recv moves elements of one type. Use send_async and recv for two");
    return self().exchange(
        "send_recv", [&] { return input_of(out); }, [&] { return operand_of(in); }, {to, tag, from, tag}, where);
  }
  template <Buffer Out, Buffer In>
  Request<Received<In>> send_recv_async(Out&& out, int to, In&& in, int from, int tag = 0,
                                        Where where = std::source_location::current()) {
    static_assert(same_elements<Out, In>,
                  "tutti: send_recv moves elements of one type. Use send_async and recv for two");
    return self().request(self().transfer(
                              "send_recv", [&] { return input_of(std::forward<Out>(out)); },
                              [&] { return operand_of(std::forward<In>(in)); }, {to, tag, from, tag}, where),
                          where);
  }
  /// The message received has the shape of the one sent.
  template <Buffer Out>
  [[nodiscard]] TensorOf<Out> send_recv(Out&& out, int to, int from, int tag = 0,
                                        Where where = std::source_location::current()) {
    TensorOf<Out> in(view_of(out).shape(), view_of(out).device());
    self().exchange(
        "send_recv", [&] { return input_of(out); }, [&] { return operand_of(in); }, {to, tag, from, tag}, where);
    return in;
  }

  /// Waits for a message and tells of it. It stays in the queue: the next receive that fits gets it.
  [[nodiscard]] MessageInfo probe(int from = any_source, int tag = any_tag,
                                  Where where = std::source_location::current()) {
    self().checks("probe", where).check_source(from, tag);
    auto const stay = self().core_->visit("probe", where);
    ProbeJob<B> job(*self().core_, ProbeJob<B>::Mode::look, from, tag);
    job.record(where);
    self().core_->wait(job, where);
    return job.info();
  }
  /// The same without waiting.
  [[nodiscard]] std::optional<typename ProbeJob<B>::Info> try_probe(int from = any_source, int tag = any_tag,
                                                                    Where where = std::source_location::current()) {
    self().checks("try_probe", where).check_source(from, tag);
    ProbeJob<B> job(*self().core_, "try_probe", ProbeJob<B>::Mode::look, from, tag);
    if (!self().core_->test(job, where)) return std::nullopt;
    return job.info();
  }
  /// Waits for a message and takes it out of the queue, out of reach of all other receives.
  [[nodiscard]] Message<B> match(int from = any_source, int tag = any_tag,
                                 Where where = std::source_location::current()) {
    self().checks("match", where).check_source(from, tag);
    auto const stay = self().core_->visit("match", where);
    ProbeJob<B> job(*self().core_, ProbeJob<B>::Mode::match, from, tag);
    job.record(where);
    self().core_->wait(job, where);
    return job.take();
  }
  /// The same without waiting.
  [[nodiscard]] std::optional<Message<B>> try_match(int from = any_source, int tag = any_tag,
                                                    Where where = std::source_location::current()) {
    self().checks("try_match", where).check_source(from, tag);
    ProbeJob<B> job(*self().core_, "try_match", ProbeJob<B>::Mode::match, from, tag);
    if (!self().core_->test(job, where)) return std::nullopt;
    return job.take();
  }
  template <Sendable T, tutti::Device D = Device>
  [[nodiscard]] Tensor<T, D> recv(Message<B>&& message, Where where = std::source_location::current()) {
    check_place<T, D>();
    auto const stay = self().held(where).visit("recv", where);
    message.check_held(where);
    return self()
        .request(make_owner<SizedReceiveTask<B, T, D>>(*self().core_, std::move(message), where), where)
        .wait(where);
  }
  template <Buffer X>
  MessageInfo recv(Message<B>&& message, X&& x, Where where = std::source_location::current()) {
    auto const stay = self().held(where).visit("recv", where);
    message.check_held(where);
    Tally::Exposed const exposed(self().held(where).tally, "recv");
    auto const make_in = [&] { return operand_of(x); };
    using In = decltype(make_in());
    static_assert(is_here<In, Device>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    TransferTask<B, NoOperand, In> task(*self().core_, "recv", nothing, make_in);
    self().checks("recv", where).check_here(task.in);
    self().checks("recv", where).check_target(task.in);
    task.in.detach(capability::copied_bytes(self().core_->backend, false), false);
    if constexpr (is_staged<In, Device>) task.in.stage(false);
    task.transfer.record(message.info(), where);
    if (message.source() == proc_null) task.transfer.receive_nothing();
    else task.transfer.receive(message.take(), task.in.wire(), task.in.size() * element_bytes<In>,
                               wire_dtype<ValueOf<X>>);
    return complete_transfer(*self().core_, task, where);
  }

  // Calls whose arguments none of them takes. Those of recv<T> may all be converted, as arguments of Any are: there a
  // constraint says which calls are meant.
  template <class T = void>
  NotSent<T> send(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotSent<T> send_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotExchanged<T> send_recv(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotExchanged<T> send_recv_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <NotSendable T = void>
  NotReceived<T> recv(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <Sendable T, class... X>
    requires(!receives<B, X...>)
  NotReceived<T> recv(X const&...);
  template <Sendable T, NotDevice D>
  NotReceivedThere<D> recv(Any = {}, Any = {}, Any = {});
  template <Sendable T, NotDevice D>
  NotReceivedThere<D> recv_async(Any = {}, Any = {}, Any = {});
  template <NotSendable T = void>
  NotReceived<T> recv_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <Sendable T, class... X>
    requires(!receives<B, X...>)
  NotReceived<T> recv_async(X const&...);

  /// Several messages under way together: `auto g = comm.group(); g.send(x, next); g.recv(y, last); g.wait();`
  [[nodiscard]] MessageGroup<B> group(std::source_location where = std::source_location::current()) {
    return MessageGroup<B>(self().core(where));
  }

 private:
  friend class Communicator<B>;
  PointToPoint() = default;
  PointToPoint(PointToPoint&&) = default;
  PointToPoint& operator=(PointToPoint&&) = default;
  Communicator<B>& self() noexcept { return static_cast<Communicator<B>&>(*this); }

  /// Of a result that is allocated.
  template <Sendable T, tutti::Device D>
  static void check_place() {
    constexpr bool here = is_here<Operand<T, D, true>, Device>;
    static_assert(here, "tutti: this communicator does not receive on another device than its own. Copy the result "
                        "there");
    constexpr bool unpacked_here = !is_padded<T> || D::host_accessible;
    static_assert(unpacked_here,
                  "tutti: structs with padding are unpacked by the host, which cannot touch memory of this device. "
                  "Order the members so that there is no padding");
  }
  template <class Out, class In>
  static constexpr bool same_elements = std::is_same_v<ValueOf<Out>, ValueOf<In>>;
};

}  // namespace tutti::comm

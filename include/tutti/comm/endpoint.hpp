// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Endpoint<Backend>`: what every part of a communicator's vocabulary stands on. Who this rank is; the checks that one
/// rank can make alone; a collective call from its buffers to its result, blocking or as a request.

#include <tutti/comm/at_once.hpp>
#include <tutti/comm/call_buffers.hpp>
#include <tutti/comm/call_checks.hpp>
#include <tutti/comm/collective_task.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/staged.hpp>
#include <tutti/comm/transfer.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <source_location>
#include <string>
#include <utility>

namespace tutti::exec {
struct ContextOptions;
}

namespace tutti {
template <Backend B>
class Communicator;
}

namespace tutti::comm {

template <Backend B>
class Collectives;
template <Backend B>
class VectorCollectives;
template <Backend B>
class PointToPoint;
template <Backend B>
class Plans;

/// A rank's end of a communicator. In `Communicator`, see there, the parts of the vocabulary stand beside it and reach
/// through that what is protected here.
template <Backend B>
class Endpoint {
  friend class Collectives<B>;
  friend class VectorCollectives<B>;
  friend class PointToPoint<B>;
  friend class Plans<B>;

 public:
  using Device = typename B::Device;
  using Where = CallSite;

  // Of a communicator that was moved from, these and all operations are errors (invalid_argument).
  using Place = std::source_location;
  int rank(Place where = Place::current()) const { return held(where).backend.rank(); }
  int size(Place where = Place::current()) const { return held(where).backend.size(); }
  /// Number of this rank's node, from 0, in the order of the nodes' lowest ranks.
  int node(Place where = Place::current()) const { return held(where).backend.node(); }
  /// Rank among the communicator's ranks on this node, and their number.
  int local_rank(Place where = Place::current()) const { return held(where).backend.local_rank(); }
  int local_size(Place where = Place::current()) const { return held(where).backend.local_size(); }
  Heap<B> heap(Place where = Place::current()) const { return Heap<B>(core(where)); }
  B& backend(Place where = Place::current()) { return held(where).backend; }
  /// Options for a Context that shares this node's processors with the other ranks. Context has a header of its own,
  /// tutti/exec/context.hpp, which kernels and graphs include.
  template <class Options = exec::ContextOptions>
  auto context_options(Place where = Place::current()) const {
    constexpr bool known = requires { sizeof(Options); };
    static_assert(known, "tutti: contexts are described in a header of their own: #include <tutti/exec/context.hpp>");
    if constexpr (known) return Options{.threads = 0, .ranks_on_node = local_size(where)};
    else return Any{};
  }
  double deadline_seconds(Place where = Place::current()) const { return held(where).deadline_seconds(); }
  void set_deadline_seconds(double seconds, std::source_location where = std::source_location::current()) {
    held(where).set_deadline_seconds(seconds, where);
  }

  /// The last operations of this rank here.
  FlightRecorder const& flight_recorder(Place where = Place::current()) const { return held(where).flight_recorder; }

  /// Counts this communicator's operations from now on, from zero: CommunicatorOptions::statistics does it from the
  /// beginning. Local. Communicators that are made from this one later count from their beginning.
  void start_statistics(Place where = Place::current()) { held(where).start_statistics(where); }
  /// What this rank has counted so far, for programs that include tutti/comm/statistics.hpp. Local.
  /// Errors   invalid_argument, unless statistics were started.
  template <class S = Statistics>
  auto statistics(Where where = std::source_location::current()) const {
    constexpr bool known = requires { sizeof(S); };
    static_assert(known, "tutti: statistics are described in a header of their own: #include "
                         "<tutti/comm/statistics.hpp>");
    if constexpr (known) {
      if (!held(where).tally.on())
        refuse("statistics",
               "nothing was counted. Make the communicator with CommunicatorOptions{.statistics = true}, or call "
               "start_statistics() first",
               where);
      return S::of(core_->tally, core_->flight_recorder.identity());
    } else {
      return Any{};
    }
  }

  Shared<Core<B>> const& core(Place where = Place::current()) const {
    static_cast<void>(held(where));
    return core_;
  }

 protected:
  Endpoint(B backend, CommunicatorOptions options) : core_(make_shared_owner<Core<B>>(std::move(backend), options)) {}
  explicit Endpoint(Shared<Core<B>> core) noexcept : core_(std::move(core)) {}
  Endpoint(Endpoint&&) noexcept = default;
  Endpoint& operator=(Endpoint&&) noexcept = default;
  ~Endpoint() = default;

  /// What stands behind it. Errors: invalid_argument, when it was moved from.
  Core<B>& held(std::source_location where) const {
    if (core_ == nullptr) [[unlikely]] throw_moved("communicator", where);
    return *core_;
  }

  /// Where x lives: of a value in the communicator's own memory.
  template <Buffer X>
  auto result(X const& x, Shape shape, Where where) const {
    using There = DeviceOf<X const>;
    static_cast<void>(held(where));
    if constexpr (std::is_same_v<There, Device>)
      return Operand<ValueOf<X>, Device, true>(tensor<ValueOf<X>>(*this, shape));
    else return Operand<ValueOf<X>, There, true>(Tensor<ValueOf<X>, There>(shape, view_of(x).device()));
  }
  CallChecks checks(char const* operation, Where const& where) const {
    B const& backend = held(where).backend;
    return {operation, backend.rank(), backend.size(), where};
  }
  Shape stacked(char const* operation, Shape const& shape, bool all, Where where) const {
    return checks(operation, where).stacked(shape, all);
  }
  Shape part(Shape const& shape, Where where) const { return checks("reduce_scatter", where).part(shape); }
  [[noreturn]] void refuse(char const* operation, std::string message, Where where,
                           ErrorKind kind = ErrorKind::invalid_argument) const {
    checks(operation, where).refuse(std::move(message), kind);
  }

  template <class From, class To>
  using StagedJobOf = StagedJob<B, decltype(place_of(std::declval<From>(), std::declval<To>())), typename To::Place>;

  template <class T>
  auto request(Owner<T> task, Where where) {
    task->set_deadline_seconds(where.deadline_seconds());
    return Request<typename T::Result>(core_, std::move(task));
  }

  static constexpr auto nothing = [] { return NoOperand{}; };
  /// A send, a receive, or one of each, started; its buffers are made by the two functions.
  template <class MakeOut, class MakeIn>
  auto transfer(char const* operation, MakeOut&& make_out, MakeIn&& make_in, Route route, Where where) {
    using Transfer = TransferTask<B, decltype(make_out()), decltype(make_in())>;
    auto const stay = held(where).visit(operation, where);
    auto task = make_owner<Transfer>(*core_, operation, make_out, make_in);
    begin_transfer(*core_, *task, route, where);
    return task;
  }
  /// The same to its end. Memory that MPI may still write is not freed.
  template <class MakeOut, class MakeIn>
  MessageInfo exchange(char const* operation, MakeOut&& make_out, MakeIn&& make_in, Route route, Where where) {
    Tally::Exposed const exposed(held(where).tally, operation);
    auto const stay = core_->visit(operation, where);
    using Out = decltype(make_out());
    using In = decltype(make_in());
    FlightRecorder::Ticket waiting = FlightRecorder::no_ticket;
    if constexpr (PassesAtOnce<B> && travels_bare<Out> && travels_bare<In>)
      if (MessageInfo info; !core_->tally.on()) {
        Out const out = make_out();
        In in = make_in();
        check_transfer(*core_, operation, out, in, route, where);
        if (pass_at_once(*core_, out, in, route, where, info, waiting)) {
          in.store();
          return info;
        }
      }
    TransferTask<B, Out, In> task(*core_, operation, make_out, make_in);
    task.transfer.continue_record(waiting);
    begin_transfer(*core_, task, route, where);
    return complete_transfer(*core_, task, where);
  }
  template <Kind kind, class From, class To, class Op>
  auto run(From from, To to, Op const& op, int root, Where where, Rows rows = {}) {
    auto const stay = held(where).visit(name(kind).data(), where);
    if constexpr (is_reached<B, From, To>) {
      if (reaches<kind>(*core_, from, to, op, root, rows, where)) {
        Tally::Exposed const exposed(core_->tally, name(kind).data());
        CollectiveJob<B> job(*core_, name(kind).data(),
                             [&] { return prepare_reached<kind>(*core_, from, to, op, root, rows, where); });
        wait_for(*core_, job, from, to, where);
        to.store();
        return to.take();
      }
    }
    bool const direct = is_direct<kind, To, Op>(*core_);
    auto const make = [&] { return prepare<kind>(*core_, from, to, op, root, rows, where, direct); };
    if constexpr (in_parts<kind, From, To, Device>) {
      Tally::Exposed const exposed(core_->tally, name(kind).data());
      StagedJobOf<From, To> job(*core_, name(kind).data(), place_of(from, to), to.device(), make);
      wait_for(*core_, job, from, to, where);
    } else if (direct) {
      DirectCall<B> begun(*core_, make);
      if (!begun.complete()) {
        CollectiveJob<B> job(std::move(begun));
        wait_for(*core_, job, from, to, where);
      }
    } else {
      Tally::Exposed const exposed(core_->tally, name(kind).data());
      CollectiveJob<B> job(*core_, name(kind).data(), make);
      wait_for(*core_, job, from, to, where);
    }
    to.store();
    return to.take();
  }
  template <Kind kind, class From, class To, class Op>
  auto start(From from, To to, Op op, int root, Where where, Rows rows = {}) {
    auto const stay = held(where).visit(name(kind).data(), where);
    if constexpr (is_reached<B, From, To>) {
      if (reaches<kind>(*core_, from, to, op, root, rows, where)) {
        auto const reached = [&](From& f, To& t, Op const& o) {
          return CollectiveJob<B>(*core_, name(kind).data(),
                                  [&] { return prepare_reached<kind>(*core_, f, t, o, root, rows, where); });
        };
        using Task = CollectiveTask<CollectiveJob<B>, From, To, Op>;
        return request(
            make_owner<Task>(name(kind).data(), std::move(from), std::move(to), std::move(op), reached), where);
      }
    }
    auto const job = [&](From& f, To& t, Op const& o) {
      auto const make = [&] { return prepare<kind>(*core_, f, t, o, root, rows, where); };
      if constexpr (in_parts<kind, From, To, Device>)
        return StagedJobOf<From, To>(*core_, name(kind).data(), place_of(f, t), t.device(), make);
      else return CollectiveJob<B>(*core_, name(kind).data(), make);
    };
    using Task = CollectiveTask<decltype(job(from, to, op)), From, To, Op>;
    return request(make_owner<Task>(name(kind).data(), std::move(from), std::move(to), std::move(op), job), where);
  }

  Shared<Core<B>> core_;
};

}  // namespace tutti::comm

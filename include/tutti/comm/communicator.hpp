// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Communicator<Backend>`: the vocabulary of collectives and messages, written once over the primitives of a backend.
/// Above 400 lines because a reader looks for all of one class's vocabulary in one place.

#include <tutti/comm/derived.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/exec/context.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>

namespace tutti {

namespace comm {

/// A collective with everything it needs until it is done.
template <Backend B, class From, class To, class Op>
class CollectiveTask final : public Task<typename To::Result> {
 public:
  using Result = typename To::Result;
  template <class Start>
  CollectiveTask(char const* operation, From from, To to, Op op, Start&& start)
      : Task<Result>(operation),
        from_(std::move(from)),
        to_(std::move(to)),
        op_(std::move(op)),
        job_(start(from_, to_, op_)) {}

  bool abandon() noexcept override { return job_.give_up(); }
  bool borrows() const noexcept override { return From::borrows || To::borrows; }
  std::string awaiting() const override { return job_.awaiting(); }
  bool collective() const noexcept override { return true; }
  Result take() override {
    return to_.take();
  }

 protected:
  bool advance() override {
    if (!job_.poll()) return false;
    to_.store();
    return true;
  }

 private:
  From from_;
  To to_;
  Op op_;
  CollectiveJob<B> job_;
};

/// Movement: no operator.
struct NoOperator {};

}  // namespace comm

/// A rank's handle on a group of ranks. Move-only; used by one thread at a time.
///
/// Buffers are tensors, views with any strides, and contiguous host memory (std::span, std::vector, ...); P is size().
/// One-buffer forms work in place. Two-buffer forms take disjoint buffers, or the in-place form of MPI: this rank's
/// block of the other buffer (`all_gather(x[comm.rank()], x)`), or twice the same buffer for all_to_all.
/// `*_async` returns a `Request`: a tensor that is moved in is owned until `wait` hands it back, everything else is
/// borrowed and must stay alive and untouched until the request is complete.
/// After a failed wait on MPI, the memory of a borrowed buffer must stay valid: MPI cannot take a send or a collective
/// back.
/// Ranks         all ranks call the same collectives in the same order, with the same counts, types, operators, roots.
/// Determinism   elements are combined in rank order where the library reduces (Threads; 16-bit floats and callables
///               on every backend); repeated runs of one layout are bitwise equal, and so are the results on all ranks.
/// Errors        shape, invalid_argument (checked before anything is started); communication (ranks disagree, one has
///               failed or left, the transport reports an error); timeout; revoked.
template <Backend B>
class Communicator {
  using Kind = comm::Kind;
  using None = comm::NoOperand;

 public:
  using Device = typename B::Device;
  using Where = std::source_location;

  explicit Communicator(B backend, CommunicatorOptions options = {})
      : core_(make_shared_owner<comm::Core<B>>(std::move(backend), options)) {}
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;
  /// Completes what was dropped, within the deadline.
  ~Communicator() {
    if (core_) core_->drain();
  }

  int rank() const noexcept { return core_->backend.rank(); }
  int size() const noexcept { return core_->backend.size(); }
  /// Number of this rank's node, from 0, in the order of the nodes' lowest ranks.
  int node() const noexcept { return core_->backend.node(); }
  /// Rank among the communicator's ranks on this node, and their number.
  int local_rank() const noexcept { return core_->backend.local_rank(); }
  int local_size() const noexcept { return core_->backend.local_size(); }
  comm::Heap<B> heap() const noexcept { return comm::Heap<B>(core_); }
  B& backend() noexcept { return core_->backend; }
  /// Options for a Context that shares this node's processors with the other ranks.
  exec::ContextOptions context_options() const { return {.threads = 0, .ranks_on_node = local_size()}; }
  double deadline_seconds() const noexcept { return core_->deadline_seconds(); }
  void set_deadline_seconds(double seconds, Where where = Where::current()) {
    core_->set_deadline_seconds(seconds, where);
  }

  /// Communicator of the ranks that pass the same color, ordered by (key, rank). Collective, blocks.
  Communicator split(int color, int key = 0, Where where = Where::current()) {
    if (color < 0) refuse("split", "color " + std::to_string(color) + " is negative. Colors count from 0", where);
    std::array<std::int32_t, 2> const mine{color, key};
    auto const all = all_gather(mine, where);
    if (all(rank(), 0) != color || all(rank(), 1) != key)
      refuse("split", "this rank's color and key came back changed. The transport damages what it carries", where,
             ErrorKind::communication);
    List<int> members;
    for (int r = 0; r < size(); ++r)
      if (all(r, 0) == color) members.push_back(r);
    members.stable_sort([&](int a, int b) { return all(a, 1) < all(b, 1); });
    return Communicator(core_->backend.split(color, key, members), CommunicatorOptions{core_->deadline_seconds()});
  }

  // --- Collectives -------------------------------------------------------------------------------------------------

  /// Returns when every rank has called it.
  void barrier(Where where = Where::current()) { run<Kind::barrier>(None{}, None{}, comm::NoOperator{}, -1, where); }
  Request<void> barrier_async(Where where = Where::current()) {
    return start<Kind::barrier>(None{}, None{}, comm::NoOperator{}, -1, where);
  }

  /// Shapes     x (...) on every rank
  /// Computes   x = x of `root`
  template <comm::Buffer X>
  void broadcast(X&& x, int root = 0, Where where = Where::current()) {
    run<Kind::broadcast>(None{}, comm::operand_of(x), comm::NoOperator{}, root, where);
  }
  template <Element T>
  [[nodiscard]] T broadcast(T value, int root = 0, Where where = Where::current()) {
    broadcast(std::span<T, 1>(&value, 1), root, where);
    return value;
  }
  template <comm::Buffer X>
  auto broadcast_async(X&& x, int root = 0, Where where = Where::current()) {
    return start<Kind::broadcast>(None{}, comm::operand_of(std::forward<X>(x)), comm::NoOperator{}, root, where);
  }

  /// Shapes     x (...) on every rank
  /// Computes   x = x of rank 0 op x of rank 1 op ..., on every rank
  template <comm::Buffer X, class Op>
  void all_reduce(X&& x, Op const& op, Where where = Where::current()) {
    run<Kind::all_reduce>(None{}, comm::operand_of(x), op, -1, where);
  }
  template <comm::Buffer From, comm::Buffer To, class Op>
  void all_reduce(From&& from, To&& to, Op const& op, Where where = Where::current()) {
    run<Kind::all_reduce>(comm::input_of(from), comm::operand_of(to), op, -1, where);
  }
  /// Of one number: returns the result.
  template <Element T, class Op>
  [[nodiscard]] T all_reduce(T value, Op const& op, Where where = Where::current()) {
    all_reduce(std::span<T, 1>(&value, 1), op, where);
    return value;
  }
  template <comm::Buffer X, class Op>
  auto all_reduce_async(X&& x, Op op, Where where = Where::current()) {
    return start<Kind::all_reduce>(None{}, comm::operand_of(std::forward<X>(x)), std::move(op), -1, where);
  }
  template <comm::Buffer From, comm::Buffer To, class Op>
  auto all_reduce_async(From&& from, To&& to, Op op, Where where = Where::current()) {
    return start<Kind::all_reduce>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                                   std::move(op), -1, where);
  }

  /// The same result at `root` alone; elsewhere x is unchanged and `to` is not touched.
  template <comm::Buffer X, class Op>
  void reduce(X&& x, Op const& op, int root = 0, Where where = Where::current()) {
    run<Kind::reduce>(None{}, comm::operand_of(x), op, root, where);
  }
  template <comm::Buffer From, comm::Buffer To, class Op>
  void reduce(From&& from, To&& to, Op const& op, int root = 0, Where where = Where::current()) {
    run<Kind::reduce>(comm::input_of(from), comm::operand_of(to), op, root, where);
  }
  template <comm::Buffer X, class Op>
  auto reduce_async(X&& x, Op op, int root = 0, Where where = Where::current()) {
    return start<Kind::reduce>(None{}, comm::operand_of(std::forward<X>(x)), std::move(op), root, where);
  }
  template <comm::Buffer From, comm::Buffer To, class Op>
  auto reduce_async(From&& from, To&& to, Op op, int root = 0, Where where = Where::current()) {
    return start<Kind::reduce>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                               std::move(op), root, where);
  }

  /// Shapes     x (...), result (P, ...) at `root`, (0, ...) elsewhere; `to` counts at `root` alone
  /// Computes   result[r] = x of rank r
  template <comm::Buffer X>
  [[nodiscard]] auto gather(X&& x, int root = 0, Where where = Where::current()) {
    return run<Kind::gather>(comm::input_of(x), result<X>(stacked(comm::view_of(x).shape(), rank() == root)),
                             comm::NoOperator{}, root, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  void gather(From&& from, To&& to, int root = 0, Where where = Where::current()) {
    run<Kind::gather>(comm::input_of(from), comm::operand_of(to), comm::NoOperator{}, root, where);
  }
  template <comm::Buffer X>
  auto gather_async(X&& x, int root = 0, Where where = Where::current()) {
    auto to = result<X>(stacked(comm::view_of(x).shape(), rank() == root));
    return start<Kind::gather>(comm::input_of(std::forward<X>(x)), std::move(to), comm::NoOperator{}, root, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  auto gather_async(From&& from, To&& to, int root = 0, Where where = Where::current()) {
    return start<Kind::gather>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                               comm::NoOperator{}, root, where);
  }

  /// Shapes     x (...), result (P, ...)
  /// Computes   result[r] = x of rank r, on every rank
  template <comm::Buffer X>
  [[nodiscard]] auto all_gather(X&& x, Where where = Where::current()) {
    return run<Kind::all_gather>(comm::input_of(x), result<X>(stacked(comm::view_of(x).shape(), true)),
                                 comm::NoOperator{}, -1, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  void all_gather(From&& from, To&& to, Where where = Where::current()) {
    run<Kind::all_gather>(comm::input_of(from), comm::operand_of(to), comm::NoOperator{}, -1, where);
  }
  template <comm::Buffer X>
  auto all_gather_async(X&& x, Where where = Where::current()) {
    auto to = result<X>(stacked(comm::view_of(x).shape(), true));
    return start<Kind::all_gather>(comm::input_of(std::forward<X>(x)), std::move(to), comm::NoOperator{}, -1, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  auto all_gather_async(From&& from, To&& to, Where where = Where::current()) {
    return start<Kind::all_gather>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                                   comm::NoOperator{}, -1, where);
  }

  /// Shapes     from (P, ...) at `root`, ignored elsewhere; to (...)
  /// Computes   to = from[rank] of `root`
  template <comm::Buffer From, comm::Buffer To>
  void scatter(From&& from, To&& to, int root = 0, Where where = Where::current()) {
    run<Kind::scatter>(comm::input_of(from), comm::operand_of(to), comm::NoOperator{}, root, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  auto scatter_async(From&& from, To&& to, int root = 0, Where where = Where::current()) {
    return start<Kind::scatter>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                                comm::NoOperator{}, root, where);
  }

  /// Shapes     x (P * k, ...), result (k, ...)
  /// Computes   result = this rank's k rows of (x of rank 0 op x of rank 1 op ...)
  template <comm::Buffer X, class Op>
  [[nodiscard]] auto reduce_scatter(X&& x, Op const& op, Where where = Where::current()) {
    return run<Kind::reduce_scatter>(comm::input_of(x), result<X>(part(comm::view_of(x).shape(), where)), op, -1,
                                     where);
  }
  template <comm::Buffer From, comm::Buffer To, class Op>
  void reduce_scatter(From&& from, To&& to, Op const& op, Where where = Where::current()) {
    run<Kind::reduce_scatter>(comm::input_of(from), comm::operand_of(to), op, -1, where);
  }
  template <comm::Buffer X, class Op>
  auto reduce_scatter_async(X&& x, Op op, Where where = Where::current()) {
    auto to = result<X>(part(comm::view_of(x).shape(), where));
    return start<Kind::reduce_scatter>(comm::input_of(std::forward<X>(x)), std::move(to), std::move(op), -1, where);
  }
  template <comm::Buffer From, comm::Buffer To, class Op>
  auto reduce_scatter_async(From&& from, To&& to, Op op, Where where = Where::current()) {
    return start<Kind::reduce_scatter>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                                       std::move(op), -1, where);
  }

  /// Shapes     x (P * k, ...), result the same
  /// Computes   block r of the result = this rank's block of rank r's x
  template <comm::Buffer X>
  [[nodiscard]] auto all_to_all(X&& x, Where where = Where::current()) {
    return run<Kind::all_to_all>(comm::input_of(x), result<X>(comm::view_of(x).shape()), comm::NoOperator{}, -1, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  void all_to_all(From&& from, To&& to, Where where = Where::current()) {
    run<Kind::all_to_all>(comm::input_of(from), comm::operand_of(to), comm::NoOperator{}, -1, where);
  }
  template <comm::Buffer X>
  auto all_to_all_async(X&& x, Where where = Where::current()) {
    auto to = result<X>(comm::view_of(x).shape());
    return start<Kind::all_to_all>(comm::input_of(std::forward<X>(x)), std::move(to), comm::NoOperator{}, -1, where);
  }
  template <comm::Buffer From, comm::Buffer To>
  auto all_to_all_async(From&& from, To&& to, Where where = Where::current()) {
    return start<Kind::all_to_all>(comm::input_of(std::forward<From>(from)), comm::operand_of(std::forward<To>(to)),
                                   comm::NoOperator{}, -1, where);
  }

  // --- Messages ----------------------------------------------------------------------------------------------------
  // Messages of one pair and tag arrive in order. Tags are 0 to 32767; receives also take any_source and any_tag.

  template <comm::Buffer X>
  void send(X&& x, int to, int tag = 0, Where where = Where::current()) {
    auto task = transfer("send", comm::input_of(x), None{}, to, tag, any_source, any_tag, where);
    complete(std::move(task), where);
  }
  template <comm::Buffer X>
  auto send_async(X&& x, int to, int tag = 0, Where where = Where::current()) {
    return request(transfer("send", comm::input_of(std::forward<X>(x)), None{}, to, tag, any_source, any_tag, where));
  }

  /// Errors   shape, when the message has another size than x.
  template <comm::Buffer X>
  MessageInfo recv(X&& x, int from, int tag = any_tag, Where where = Where::current()) {
    auto task = transfer("recv", None{}, comm::operand_of(x), 0, 0, from, tag, where);
    return complete(std::move(task), where);
  }
  template <comm::Buffer X>
  auto recv_async(X&& x, int from, int tag = any_tag, Where where = Where::current()) {
    return request(transfer("recv", None{}, comm::operand_of(std::forward<X>(x)), 0, 0, from, tag, where));
  }
  /// A message of any size, as a tensor of shape (count,).
  template <Element T>
  [[nodiscard]] Tensor<T, Device> recv(int from = any_source, int tag = any_tag, Where where = Where::current()) {
    return recv_async<T>(from, tag, where).wait(where);
  }
  template <Element T>
  auto recv_async(int from = any_source, int tag = any_tag, Where where = Where::current()) {
    check_source("recv", from, tag, where);
    return request(make_owner<comm::SizedReceiveTask<B, T>>(*core_, from, tag));
  }

  /// Both at once, so that rings and exchanges cannot deadlock.
  template <comm::Buffer Out, comm::Buffer In>
  MessageInfo send_recv(Out&& out, int to, In&& in, int from, int tag = 0, Where where = Where::current()) {
    auto task = transfer("send_recv", comm::input_of(out), comm::operand_of(in), to, tag, from, tag, where);
    return complete(std::move(task), where);
  }
  template <comm::Buffer Out, comm::Buffer In>
  auto send_recv_async(Out&& out, int to, In&& in, int from, int tag = 0, Where where = Where::current()) {
    return request(transfer("send_recv", comm::input_of(std::forward<Out>(out)), comm::operand_of(std::forward<In>(in)),
                            to, tag, from, tag, where));
  }
  /// The message received has the shape of the one sent.
  template <comm::Buffer Out>
  [[nodiscard]] auto send_recv(Out&& out, int to, int from, int tag = 0, Where where = Where::current()) {
    Tensor<comm::ValueOf<Out>, Device> in(comm::view_of(out).shape());
    send_recv(out, to, in, from, tag, where);
    return in;
  }

  /// Waits for a message and takes it out of the queue.
  [[nodiscard]] Message<B> probe(int from = any_source, int tag = any_tag, Where where = Where::current()) {
    check_source("probe", from, tag, where);
    comm::ProbeJob<B> job(*core_, from, tag);
    core_->wait(job, where);
    return job.take();
  }
  /// The same without waiting.
  [[nodiscard]] std::optional<Message<B>> try_probe(int from = any_source, int tag = any_tag,
                                                    Where where = Where::current()) {
    check_source("try_probe", from, tag, where);
    comm::ProbeJob<B> job(*core_, from, tag);
    if (!core_->test(job, where)) return std::nullopt;
    return job.take();
  }
  template <Element T>
  [[nodiscard]] Tensor<T, Device> recv(Message<B>&& message, Where where = Where::current()) {
    return request(make_owner<comm::SizedReceiveTask<B, T>>(*core_, std::move(message))).wait(where);
  }
  template <comm::Buffer X>
  MessageInfo recv(Message<B>&& message, X&& x, Where where = Where::current()) {
    auto in = comm::operand_of(x);
    static_assert(is_here<decltype(in)>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    comm::TransferJob<B> job(*core_, "recv");
    job.receive(message.match(), in.data(), in.size() * element_bytes<decltype(in)>);
    core_->wait(job, where);
    in.store();
    return job.info();
  }

  Shared<comm::Core<B>> const& core() const noexcept { return core_; }

 private:

  template <comm::Buffer X>
  auto result(Shape shape) const {
    return comm::Operand<comm::ValueOf<X>, Device, true>(tensor<comm::ValueOf<X>>(*this, shape));
  }
  Shape stacked(Shape const& shape, bool all) const {
    std::array<std::int64_t, Shape::max_rank + 1> extents{all ? size() : 0};
    for (int axis = 0; axis < shape.rank(); ++axis) extents[static_cast<std::size_t>(axis) + 1] = shape[axis];
    return Shape::of(extents.data(), shape.rank() + 1);
  }
  Shape part(Shape const& shape, Where where) const {
    if (shape.rank() == 0 || shape[0] % size() != 0)
      throw Error(ErrorKind::shape, "reduce_scatter",
                  "the first axis of shape " + to_string(shape) + " does not divide by the " + std::to_string(size()) +
                      " ranks",
                  where)
          .with_rank(rank());
    return shape.with(0, shape[0] / size());
  }
  [[noreturn]] void refuse(char const* operation, std::string message, Where where,
                           ErrorKind kind = ErrorKind::invalid_argument) const {
    throw Error(kind, operation, std::move(message), where).with_rank(rank());
  }
  void check_rank(char const* operation, char const* what, int r, Where where) const {
    if (r < 0 || r >= size())
      refuse(
          operation,
          std::string(what) + " " + std::to_string(r) + " does not exist. Ranks are 0 to " + std::to_string(size() - 1),
          where);
  }
  void check_tag(char const* operation, int tag, Where where) const {
    if (tag < 0 || tag > 32767) refuse(operation, "tag " + std::to_string(tag) + " is outside 0 to 32767", where);
  }
  void check_source(char const* operation, int from, int tag, Where where) const {
    if (from != any_source) check_rank(operation, "source rank", from, where);
    if (tag != any_tag) check_tag(operation, tag, where);
  }

  template <class X>
  static constexpr std::int64_t element_bytes = std::int64_t{sizeof(typename X::Value)};

  // Values, asserted where users' calls arrive, so that a mistake costs them few lines of diagnostics.
  template <class X>
  static constexpr bool is_here = [] {
    if constexpr (std::is_same_v<X, None>) return true;
    else return std::is_same_v<typename X::Place, Device>;
  }();
  template <class X>
  static constexpr bool is_writable = [] {
    if constexpr (std::is_same_v<X, None>) return true;
    else return X::writable;
  }();

  template <class Out, class In>
  auto transfer(char const* operation, Out out, In in, int to, int send_tag, int from, int recv_tag, Where where) {
    static_assert(is_here<Out> && is_here<In>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    static_assert(is_writable<In>,
                  "tutti: the receive buffer of this operation is const. Pass a tensor or view of mutable elements");
    if constexpr (!std::same_as<Out, None>) {
      check_rank(operation, "destination rank", to, where);
      check_tag(operation, send_tag, where);
    }
    if constexpr (!std::same_as<In, None>) check_source(operation, from, recv_tag, where);
    auto task = make_owner<comm::TransferTask<B, Out, In>>(*core_, operation, std::move(out), std::move(in));
    try {
      if constexpr (!std::same_as<In, None>)
        task->transfer.receive(task->in.data(), task->in.size() * element_bytes<In>, from, recv_tag);
      if constexpr (!std::same_as<Out, None>)
        task->transfer.send(task->out.data(), task->out.size() * element_bytes<Out>, to, send_tag);
    } catch (...) {
      task->transfer.postpone();  // a receive that is under way knows its buffer
    }
    return task;
  }
  /// A blocking transfer. Memory that MPI may still write is not freed with the task.
  template <class T>
  MessageInfo complete(Owner<T> task, Where where) {
    try {
      core_->wait(*task, where);
    } catch (...) {
      if (!task->safe()) static_cast<void>(task.release());
      throw;
    }
    return task->transfer.info();
  }
  template <class T>
  auto request(Owner<T> task) {
    return Request<typename T::Result>(core_, std::move(task));
  }

  /// The call as a value, with shapes, root and overlap checked.
  template <comm::Kind kind, class From, class To, class Op>
  comm::Collective call(From const& from, To const& to, Op const& op, int root, Where where) const {
    static_assert(is_here<From> && is_here<To>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    static_assert(is_writable<To>,
                  "tutti: the receive buffer of this operation is const. Pass a tensor or view of mutable elements");
    constexpr bool rooted =
        kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter;
    char const* const operation = comm::name(kind).data();
    if constexpr (rooted) check_rank(operation, "root", root, where);
    bool const root_here = rank() == root;
    comm::Collective result;
    result.kind = kind;
    result.root = root;
    result.where = where;
    if constexpr (!std::same_as<To, None>) {
      using T = typename To::Value;
      result.dtype = dtype_of<T>;
      result.to = const_cast<void*>(static_cast<void const*>(to.data()));  // never const, see above
      result.count = to.size();
      result.from = to.data();
      if constexpr (!std::same_as<From, None>) {
        static_assert(std::is_same_v<typename From::Value, T>,
                      "tutti: the two buffers of this collective have different element types");
        result.from = from.data();
        constexpr bool from_counts =
            kind == Kind::gather || kind == Kind::all_gather || kind == Kind::all_reduce || kind == Kind::reduce;
        if constexpr (from_counts) result.count = from.size();
        check_shapes<kind>(from, to, root_here, result, where);
      }
      if constexpr (comm::reduces(kind)) {
        constexpr bool reducible = comm::reducible<T, Op>();
        static_assert(!std::is_same_v<T, bool> || !comm::NamedOperator<Op> || reducible,
                      "tutti: bool is reduced by logical_and, logical_or or a callable. Convert it to an integer to "
                      "count");
        static_assert(std::is_same_v<T, bool> || !comm::NamedOperator<Op> || reducible,
                      "tutti: this operator has no meaning for elements of this type. Pass a callable or convert the "
                      "tensor");
        static_assert(comm::NamedOperator<Op> || reducible,
                      "tutti: an operator is one of tutti::sum, prod, min, max, avg, logical_and, logical_or, or a "
                      "const callable that takes two elements and returns one");
        if constexpr (!Device::host_accessible)
          static_assert(B::provides(kind, dtype_of<T>, comm::operator_kind<Op>()),
                        "tutti: this backend cannot reduce elements of this type with this operator");
        result.reduction = comm::reduction_of<T>(op);
      }
    }
    if ((kind == Kind::reduce || kind == Kind::gather) && !root_here) result.to = nullptr;
    if (kind == Kind::scatter && !root_here) result.from = nullptr;
    if (kind == Kind::broadcast && !root_here) result.from = nullptr;
    return result;
  }

  template <comm::Kind kind, class From, class To>
  void check_shapes(From const& from, To const& to, bool root_here, comm::Collective& result, Where where) const {
    constexpr bool same = kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::all_to_all;
    constexpr bool grows = kind == Kind::gather || kind == Kind::all_gather;
    if ((kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter) && !root_here) return;
    std::int64_t const ranks = size();
    bool fits;
    char const* rule;
    if constexpr (same) {
      fits = from.shape() == to.shape();
      rule = ", which must be equal";
    } else if constexpr (grows) {
      fits = to.size() == from.size() * ranks;
      rule = "; the second must hold the first once for each rank";
    } else {
      fits = from.size() == to.size() * ranks;
      rule = "; the first must hold the second once for each rank";
    }
    if (!fits)
      refuse(comm::name(kind).data(),
             "shapes are " + to_string(from.shape()) + " and " + to_string(to.shape()) + rule + " (" +
                 std::to_string(ranks) + " here)",
             where, ErrorKind::shape);
    if constexpr (kind == Kind::all_to_all) {
      if (from.size() % ranks != 0)
        refuse("all_to_all",
               "shape " + to_string(from.shape()) + " does not divide into " + std::to_string(ranks) +
                   " blocks, one for each rank",
               where, ErrorKind::shape);
      result.count = from.size() / ranks;
    }
    auto const* const a = reinterpret_cast<std::byte const*>(from.data());
    auto const* const b = reinterpret_cast<std::byte const*>(to.data());
    std::int64_t const bytes = element_bytes<To>;
    std::int64_t const offset = result.count * bytes * rank();
    bool const aliased = same ? a == b : grows ? a == b + offset : b == a + offset;
    if (!aliased && a < b + to.size() * bytes && b < a + from.size() * bytes)
      refuse(comm::name(kind).data(),
             "the buffers overlap. Pass disjoint ones, or the in-place form: this rank's block of the other buffer",
             where);
  }

  template <comm::Kind kind, class From, class To, class Op>
  auto run(From from, To to, Op const& op, int root, Where where) {
    comm::CollectiveJob<B> job(*core_, call<kind>(from, to, op, root, where));
    try {
      core_->wait(job, where);
    } catch (...) {
      if (!job.safe()) {
        comm::keep_forever(std::move(from));
        comm::keep_forever(std::move(to));
      }
      throw;
    }
    to.store();
    return to.take();
  }
  template <comm::Kind kind, class From, class To, class Op>
  auto start(From from, To to, Op op, int root, Where where) {
    using Job = comm::CollectiveTask<B, From, To, Op>;
    return request(make_owner<Job>(comm::name(kind).data(), std::move(from), std::move(to), std::move(op),
                                         [&](From const& f, To const& t, Op const& o) {
                                           return comm::CollectiveJob<B>(*core_, call<kind>(f, t, o, root, where));
                                         }));
  }

  Shared<comm::Core<B>> core_;
};

}  // namespace tutti

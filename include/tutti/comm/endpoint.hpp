// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Endpoint<Backend>`: what every part of a communicator's vocabulary stands on. Who this rank is; the checks that one
/// rank can make alone; a collective call from its buffers to its result, blocking or as a request. Above 400 lines:
/// one class.

#include <tutti/core/concat.hpp>
#include <tutti/comm/collective_task.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/staged.hpp>
#include <tutti/core/checked.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

namespace tutti::exec {
struct ContextOptions;
}

namespace tutti::comm {

/// A rank's end of a communicator: the base of `Communicator`, see there.
template <Backend B>
class Endpoint {
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
  Shape stacked(char const* operation, Shape const& shape, bool all, Where where) const {
    if (shape.rank() == Shape::max_rank)
      refuse(
          operation,
          concat("the result has one axis more than the buffer of shape ", to_string(shape), ", and a tensor at most ",
                 Shape::max_rank, ". Reshape the buffer, or pass a tensor for the result"),
          where, ErrorKind::shape);
    std::array<std::int64_t, Shape::max_rank + 1> extents{all ? size(where) : 0};
    for (int axis = 0; axis < shape.rank(); ++axis) extents[static_cast<std::size_t>(axis) + 1] = shape[axis];
    return Shape::of(extents.data(), shape.rank() + 1);
  }
  Shape part(Shape const& shape, Where where) const {
    if (shape.rank() == 0 || shape[0] % size(where) != 0)
      throw Error(ErrorKind::shape, "reduce_scatter",
                  concat("the first axis of shape ", to_string(shape), " does not divide by the ", size(), " ranks"),
                  where)
          .with_rank(rank());
    return shape.with(0, shape[0] / size());
  }
  [[noreturn]] void refuse(char const* operation, std::string message, Where where,
                           ErrorKind kind = ErrorKind::invalid_argument) const {
    throw Error(kind, operation, std::move(message), where).with_rank(rank());
  }
  /// Of a buffer that counts.
  template <class X>
  static void check_here(X const& x, Where where) {
    if (x.moved()) [[unlikely]] throw_moved("tensor", where);
  }
  /// Of a buffer that is written.
  template <class To>
  void check_target(char const* operation, To const& to, Where where) const {
    if constexpr (To::borrows)
      if (to.overlaps_itself())
        refuse(operation,
               concat("several indices of the receive buffer, a view of shape ", to_string(to.shape()),
                      ", reach one element. Pass a view whose elements are distinct"),
               where);
  }
  void check_rank(char const* operation, char const* what, int r, Where where) const {
    if (r < 0 || r >= size(where))
      refuse(
          operation,
          concat(what, " ", r, " does not exist. Ranks are 0 to ", size() - 1),
          where);
  }
  void check_tag(char const* operation, int tag, Where where) const {
    if (tag < 0 || tag > 32767) refuse(operation, concat("tag ", tag, " is outside 0 to 32767"), where);
  }
  void check_source(char const* operation, int from, int tag, Where where) const {
    static_cast<void>(held(where));
    if (from != any_source && from != proc_null) check_rank(operation, "source rank", from, where);
    if (tag != any_tag) check_tag(operation, tag, where);
  }

  template <class X>
  static constexpr std::int64_t element_bytes = wire_bytes<typename X::Value>();

  // A value, asserted where users' calls arrive, so that a mistake costs them few lines of diagnostics.
  template <class X>
  static constexpr bool is_here = [] {
    if constexpr (std::is_same_v<X, NoOperand>) return true;
    else return std::is_same_v<typename X::Place, Device> || std::is_same_v<Device, Cpu> || !X::packable;
  }();
  /// Whether it passes through host memory.
  template <class X>
  static constexpr bool is_staged = [] {
    if constexpr (std::is_same_v<X, NoOperand>) return false;
    else return passes_host<typename X::Place, Device>;
  }();
  /// Rows of each rank's block in the two buffers of a _v kind.
  struct Rows {
    PerRank from{};
    PerRank to{};
  };

  /// Whether all buffers are on a device on whose memory the backend may work: it is asked for each call.
  template <class From, class To>
  static constexpr bool is_reached = [] {
    if constexpr (!requires { typename B::Accelerator; } || std::is_same_v<To, NoOperand>) return false;
    else if constexpr (!std::is_same_v<typename To::Place, typename B::Accelerator>) return false;
    else if constexpr (std::is_same_v<From, NoOperand>) return true;
    else return std::is_same_v<typename From::Place, typename B::Accelerator>;
  }();
  /// Whether the backend makes this call there. Errors: device, for a buffer on another one than the communicator's.
  template <Kind kind, class From, class To, class Op>
  bool reaches(From const& from, To const& to, Op const& op, int root, Rows rows, Where where) const {
    if constexpr (is_reached<From, To>) {
      Call const made = call<kind>(from, to, op, root, rows, where);
      if (!core_->backend.accelerates(made.collective)) return false;
      check_device(name(kind).data(), to, where);
      if constexpr (!std::is_same_v<From, NoOperand>) check_device(name(kind).data(), from, where);
      return true;
    }
    return false;
  }
  template <class X>
  void check_device(char const* operation, X const& x, Where where) const {
    if (x.size() == 0 || x.device() == core_->backend.accelerator()) return;
    refuse(operation,
           "a buffer lives on another device than this rank's communicator works on. Copy it there first, or make the "
           "communicator for its device",
           where, ErrorKind::device);
  }
  /// The call as it starts there.
  template <Kind kind, class From, class To, class Op>
  Call prepare_reached(From const& from, To const& to, Op const& op, int root, Rows rows, Where where) const {
    Call prepared = call<kind>(from, to, op, root, rows, where);
    prepared.collective.purpose = Purpose::reached;
    prepared.collective.lent = to.lent() || from.lent();
    return prepared;
  }
  /// Whether such a call goes in parts. Messages and the _v kinds, whose blocks may have any sizes, are staged whole.
  template <Kind kind, class From, class To>
  static constexpr bool in_parts = (is_staged<From> || is_staged<To>) && !has_counts(kind);
  /// The device of the first buffer, or of the only one.
  template <class From, class To>
  static auto place_of(From const& from, To const& to) {
    if constexpr (std::is_same_v<From, NoOperand>) return to.device();
    else return from.device();
  }
  template <class From, class To>
  using StagedJobOf = StagedJob<B, decltype(place_of(std::declval<From>(), std::declval<To>())), typename To::Place>;

  template <class T>
  auto request(Owner<T> task, Where where) {
    task->set_deadline_seconds(where.deadline_seconds());
    return Request<typename T::Result>(core_, std::move(task));
  }

  /// Whether both are buffers, in memory of one kind.
  template <class X, class Y>
  static constexpr bool share_memory = [] {
    if constexpr (std::is_same_v<X, NoOperand> || std::is_same_v<Y, NoOperand>) return false;
    else return std::is_same_v<typename X::Place, typename Y::Place>;
  }();

  static constexpr auto nothing = [] { return NoOperand{}; };
  /// Where a message goes and whence one comes.
  struct Route {
    int to = 0;
    int send_tag = 0;
    int from = any_source;
    int recv_tag = any_tag;
  };
  /// A send, a receive, or one of each, started; its buffers are made by the two functions.
  template <class MakeOut, class MakeIn>
  auto transfer(char const* operation, MakeOut&& make_out, MakeIn&& make_in, Route route, Where where) {
    using Transfer = TransferTask<B, decltype(make_out()), decltype(make_in())>;
    auto const stay = held(where).visit(operation, where);
    auto task = make_owner<Transfer>(*core_, operation, make_out, make_in);
    begin(*task, route, where);
    return task;
  }
  /// The same to its end. Memory that MPI may still write is not freed.
  template <class MakeOut, class MakeIn>
  MessageInfo exchange(char const* operation, MakeOut&& make_out, MakeIn&& make_in, Route route, Where where) {
    Tally::Exposed const exposed(held(where).tally, operation);
    auto const stay = core_->visit(operation, where);
    TransferTask<B, decltype(make_out()), decltype(make_in())> task(*core_, operation, make_out, make_in);
    begin(task, route, where);
    return complete(task, where);
  }
  template <class Out, class In>
  MessageInfo complete(TransferTask<B, Out, In>& task, Where where) {
    try {
      core_->wait(task, where);
    } catch (...) {
      if (!task.safe()) {
        keep_forever(std::move(task.out));
        keep_forever(std::move(task.in));
      }
      throw;
    }
    return task.transfer.info();
  }
  template <class Out, class In>
  void begin(TransferTask<B, Out, In>& task, Route const& route, Where where) {
    static_assert(is_here<Out> && is_here<In>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    char const* const operation = task.operation();
    if constexpr (!std::same_as<Out, NoOperand>) {
      check_here(task.out, where);
      if (route.to != proc_null) check_rank(operation, "destination rank", route.to, where);
      check_tag(operation, route.send_tag, where);
    }
    if constexpr (!std::same_as<In, NoOperand>) {
      check_source(operation, route.from, route.recv_tag, where);
      check_here(task.in, where);
      check_target(operation, task.in, where);
    }
    if constexpr (share_memory<Out, In>)
      check_overlap(operation, {task.out.wire(), task.out.size() * element_bytes<Out>, 0},
                    {task.in.wire(), task.in.size() * element_bytes<In>, 0}, false, where);
    std::int64_t const copied = copied_bytes(core_->backend, false);
    task.out.detach(copied, true);
    task.in.detach(copied, false);
    if constexpr (is_staged<Out>) task.out.stage(true);
    if constexpr (is_staged<In>) task.in.stage(false);
    task.start(route.to, route.send_tag, route.from, route.recv_tag, where);
  }

  /// The call as a value, with shapes, counts, root and overlap checked.
  template <Kind kind, class From, class To, class Op>
  Call call(From const& from, To const& to, Op const& op, int root, Rows rows, Where where) const {
    static_assert(is_here<From> && is_here<To>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    char const* const operation = name(kind).data();
    if constexpr (rooted(kind)) check_rank(operation, "root", root, where);
    bool const root_here = rank() == root;
    Call result;
    Collective& made = result.collective;
    made.kind = kind;
    made.root = root;
    made.where = where;
    if constexpr (!std::same_as<To, NoOperand>) {
      constexpr bool in_place = std::same_as<From, NoOperand>;
      constexpr bool collects = kind == Kind::reduce || kind == Kind::gather || kind == Kind::gather_v;
      constexpr bool hands_out = kind == Kind::scatter || kind == Kind::scatter_v;
      if (in_place || !collects || root_here) check_here(to, where);
      if constexpr (!in_place)
        if (!hands_out || root_here) check_here(from, where);
      check_target(operation, to, where);
      using T = typename To::Value;
      made.dtype = wire_dtype<T>;
      made.layout = layout_of<T>();
      made.to = to.wire();
      made.count = to.size();
      made.from = to.wire();
      if constexpr (!std::same_as<From, NoOperand>) {
        static_assert(one_type<From, To> || !To::writable,
                      "tutti: the two buffers of this collective have different element types");
        made.from = from.wire();
        constexpr bool to_counts = kind == Kind::scatter || kind == Kind::reduce_scatter || kind == Kind::scatter_v ||
                                   kind == Kind::reduce_scatter_v || kind == Kind::all_reduce_contributions;
        if constexpr (!to_counts) made.count = from.size();
        if constexpr (has_counts(kind)) check_rows<kind>(from, to, rows, root_here, result, where);
        else check_shapes<kind>(from, to, root_here, made, where);
      }
      if constexpr (reduces(kind)) {
        constexpr bool has_sentence = !one_type<From, To> || !To::writable;  // of its buffers, already
        constexpr bool given = !std::is_same_v<Op, NoOperator> || has_sentence;
        static_assert(given, "tutti: a reduction needs an operator, such as tutti::sum, behind its buffers");
        constexpr bool possible = reducible<T, Op>() || has_sentence;
        static_assert(!std::is_same_v<T, bool> || !NamedOperator<Op> || possible,
                      "tutti: bool is reduced by logical_and, logical_or, logical_xor or a callable. Convert it to an "
                      "integer to count");
        static_assert(std::is_same_v<T, bool> || !NamedOperator<Op> || possible,
                      "tutti: this operator has no meaning for elements of this type. Pass a callable or convert the "
                      "tensor");
        static_assert(
            NamedOperator<Op> || possible || !given,
            "tutti: an operator is one of tutti::sum, prod, min, max, avg, logical_*, bitwise_*, *_location, or "
            "a const callable that takes two elements and returns one");
        if constexpr (!Device::host_accessible)
          static_assert(B::provides(kind, wire_dtype<T>, operator_kind<Op>()),
                        "tutti: this backend cannot reduce elements of this type with this operator");
        constexpr bool by_parts =
            Element<T> ||
            (Complex<T> && (operator_kind<Op>() == Operator::sum || operator_kind<Op>() == Operator::avg));
        using Folded = std::conditional_t<by_parts, WireElement<T>, T>;
        if constexpr (!one_type<From, To>) {
        } else if constexpr (kind == Kind::all_reduce_contributions) made.reduction = tree_reduction_of<Folded>(op);
        else if constexpr (kind == Kind::scan || kind == Kind::exscan) made.reduction = scan_reduction_of<Folded>(op);
        else made.reduction = reduction_of<Folded>(op);
        if constexpr (!by_parts) made.compound_bytes = wire_bytes<T>();
        else scale<wire_parts<T>>(result);
      } else {
        scale<wire_parts<T>>(result);
      }
    }
    if ((kind == Kind::reduce || kind == Kind::gather || kind == Kind::gather_v) && !root_here) made.to = nullptr;
    if ((kind == Kind::scatter || kind == Kind::scatter_v || kind == Kind::broadcast) && !root_here)
      made.from = nullptr;
    return result;
  }

  /// Before a call starts: borrowed buffers are copied where the backend asks for it, and those on a device are staged,
  /// unless the call goes in parts.
  template <Kind kind, class From, class To, class Op>
  void detach(Call& result, From& from, To& to, Op const& op, int root, Rows rows, Where where, bool direct) const {
    Collective const& made = result.collective;
    std::int64_t const copied = is_exchanged(core_->backend, made)
                                    ? 0
                                    : copied_bytes(core_->backend, direct || is_native(core_->backend, made));
    constexpr bool in_place = std::is_same_v<From, NoOperand>;
    bool const reads = in_place && !(kind == Kind::broadcast && rank() != root);
    bool const uses_to = made.to != nullptr || (in_place && made.from != nullptr);
    bool moved = false;
    if (copied != 0) {
      moved = uses_to && to.detach(copied, reads || kind == Kind::exscan);  // whose rank 0 keeps what it has
      if (!in_place && made.from != nullptr) moved |= from.detach(copied, true);
    }
    if constexpr (is_staged<From>)
      if (made.from != nullptr) moved |= from.stage(true);
    if constexpr (is_staged<To>)
      if (uses_to) moved |= to.stage(reads);
    if (moved) result = call<kind>(from, to, op, root, rows, where);
    result.collective.lent = (uses_to && to.lent()) || (made.from != nullptr && from.lent());
  }

  /// From elements to the parts as which they travel.
  template <std::int64_t parts>
  static void scale(Call& call) {
    if constexpr (parts == 1) return;
    call.collective.count *= parts;
    for (std::int64_t& count : call.counts.from) count *= parts;
    for (std::int64_t& count : call.counts.to) count *= parts;
  }

  /// Counts and overlap of the kinds with blocks of one size.
  template <Kind kind, class From, class To>
  void check_shapes(From const& from, To const& to, bool root_here, Collective& call, Where where) const {
    constexpr bool grows = kind == Kind::gather || kind == Kind::all_gather;
    constexpr bool shrinks = kind == Kind::scatter || kind == Kind::reduce_scatter;
    if ((kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter) && !root_here) return;
    std::int64_t const ranks = size();
    bool fits = from.shape() == to.shape();
    char const* rule = ", which must be equal";
    if constexpr (kind == Kind::all_reduce_contributions) {
      call.contributions = from.shape().rank() == 0 ? 0 : from.shape()[0];
      if (call.contributions > 0 && to.size() == 0) call.contributions = 1;  // as good as any number of nothing
      fits = call.contributions > 0 && Shape::of(from.shape().begin() + 1, from.shape().rank() - 1) == to.shape();
      rule = "; the first must hold at least one of the second";
    } else if constexpr (grows) {
      fits = to.size() == from.size() * ranks;
      rule = "; the second must hold the first once for each rank";
    } else if constexpr (shrinks) {
      fits = from.size() == to.size() * ranks;
      rule = "; the first must hold the second once for each rank";
    }
    if (!fits)
      refuse(
          name(kind).data(),
          concat("shapes are ", to_string(from.shape()), " and ", to_string(to.shape()), rule,
                 grows || shrinks ? concat(" (", ranks, " here)") : std::string()),
          where, ErrorKind::shape);
    if constexpr (kind == Kind::all_to_all) {
      if (from.size() % ranks != 0)
        refuse("all_to_all",
               concat("shape ", to_string(from.shape()), " does not divide into ", ranks, " blocks, one for each rank"),
               where, ErrorKind::shape);
      call.count = from.size() / ranks;
    }
    std::int64_t const own = call.count * rank() * element_bytes<To>;
    if constexpr (share_memory<From, To>)
      check_overlap(name(kind).data(), {from.wire(), from.size() * element_bytes<To>, shrinks ? own : 0},
                    {to.wire(), to.size() * element_bytes<To>, grows ? own : 0},
                    kind != Kind::all_reduce_contributions, where);
  }

  /// Memory that a call reads or writes, and where in it this rank's single block may be.
  struct Extent {
    void const* data;
    std::int64_t bytes;
    std::int64_t own;
  };
  void check_overlap(char const* operation, Extent from, Extent to, bool may_alias, Where where) const {
    auto const* const a = static_cast<std::byte const*>(from.data);
    auto const* const b = static_cast<std::byte const*>(to.data);
    bool const aliased = may_alias && a + from.own == b + to.own;
    if (!aliased && a < b + to.bytes && b < a + from.bytes)
      refuse(operation,
             may_alias
                 ? "the buffers overlap. Pass disjoint ones, or the in-place form: this rank's block of the other "
                   "buffer"
                 : "the buffers overlap. Pass disjoint ones",
             where);
  }

  /// Elements of one row: of one step along the first axis.
  std::int64_t row_size(char const* operation, Shape const& shape, Where where) const {
    if (shape.rank() == 0)
      refuse(operation, "a single number has no rows to count. Pass it with shape (1,)", where, ErrorKind::shape);
    std::int64_t elements = 1;
    for (int axis = 1; axis < shape.rank(); ++axis) elements *= shape[axis];
    return elements;
  }
  /// The sizes of the blocks in elements. Errors: shape, unless there is a count for each rank and their sum is the
  /// first extent.
  List<std::int64_t> blocks(char const* operation, Shape const& shape, PerRank rows, Where where) const {
    std::int64_t const row = row_size(operation, shape, where);
    if (rows.size() != size())
      refuse(operation,
             concat(rows.size(), " counts for ", size(), " ranks. Pass one for each rank"),
             where);
    List<std::int64_t> result;
    std::int64_t total = 0;
    for (std::int64_t const count : rows) {
      if (count < 0) refuse(operation, concat("count ", count, " is negative"), where);
      total = checked_add(total, count, where);
      result.push_back(checked_multiply(count, row, where));
    }
    if (total != shape[0])
      refuse(operation,
             concat("the counts ", listed(rows), " do not make the ", shape[0], " rows of the buffer of shape ",
                    to_string(shape)),
             where, ErrorKind::shape);
    return result;
  }
  static std::int64_t before(List<std::int64_t> const& blocks, int r) noexcept {
    std::int64_t elements = 0;
    for (int other = 0; other < r; ++other) elements += blocks[static_cast<std::size_t>(other)];
    return elements;
  }

  /// Counts and overlap of the _v kinds.
  template <Kind kind, class From, class To>
  void check_rows(From const& from, To const& to, Rows rows, bool root_here, Call& result, Where where) const {
    if ((kind == Kind::gather_v || kind == Kind::scatter_v) && !root_here) return;
    constexpr bool grows = kind == Kind::gather_v || kind == Kind::all_gather_v;
    constexpr bool exchange = kind == Kind::all_to_all_v;
    check_blocks(name(kind).data(), from.shape(), to.shape(),
                 grows      ? Rows{{}, rows.to}
                 : exchange ? rows
                            : Rows{rows.from, {}},
                 result.counts, where);
    std::int64_t const own_from = grows || exchange ? 0 : before(result.counts.from, rank()) * element_bytes<To>;
    std::int64_t const own_to = grows ? before(result.counts.to, rank()) * element_bytes<To> : 0;
    if constexpr (share_memory<From, To>)
      check_overlap(name(kind).data(), {from.wire(), from.size() * element_bytes<To>, own_from},
                    {to.wire(), to.size() * element_bytes<To>, own_to},
                    !exchange || result.counts.from == result.counts.to, where);
    if constexpr (exchange) result.collective.count = 0;
  }
  /// One of the buffers has blocks, and the other is this rank's; or both have, of all_to_all_v.
  void check_blocks(char const* operation, Shape const& from, Shape const& to, Rows rows, Counts& counts,
                    Where where) const {
    if (row_size(operation, from, where) != row_size(operation, to, where))
      refuse(operation,
             concat("shapes are ", to_string(from), " and ", to_string(to), ", with rows of different sizes"), where,
             ErrorKind::shape);
    bool const exchange = !rows.from.empty() && !rows.to.empty();
    bool const grows = rows.from.empty();
    if (!grows) counts.from = blocks(operation, from, rows.from, where);
    if (grows || exchange) counts.to = blocks(operation, to, rows.to, where);
    auto const own = static_cast<std::size_t>(rank());
    std::int64_t const sent = grows ? from.size() : counts.from[own];
    std::int64_t const received = grows || exchange ? counts.to[own] : to.size();
    if (sent != received)
      refuse(operation,
             concat("this rank's own block has ", sent, " elements in the first buffer and ", received,
                    " in the second. They must be equal"),
             where, ErrorKind::shape);
  }

  /// The call as it starts.
  template <Kind kind, class From, class To, class Op>
  Call prepare(From& from, To& to, Op const& op, int root, Rows rows, Where where, bool direct = false) const {
    Call prepared = call<kind>(from, to, op, root, rows, where);
    if constexpr (!in_parts<kind, From, To>) detach<kind>(prepared, from, to, op, root, rows, where, direct);
    return prepared;
  }
  /// Whether the backend makes and compares this call itself, with buffers as they are, and nobody counts.
  template <Kind kind, class To, class Op>
  bool is_direct() const {
    if constexpr (aliases(kind) || kind == Kind::all_reduce_contributions) return false;
    constexpr bool has_blocks = kind >= Kind::gather && kind != Kind::scan && kind != Kind::exscan;
    if (has_blocks && size() > most_direct_blocks) return false;
    if (!compares(core_->backend) || core_->tally.on() || core_->has_line()) return false;
    constexpr Operator op = reduces(kind) ? operator_kind<Op>() : Operator::none;
    if constexpr (std::same_as<To, NoOperand>) return core_->backend.provides(kind, DType::byte, op);
    else if constexpr (reduces(kind) && !Element<typename To::Value>) return false;
    else return core_->backend.provides(kind, wire_dtype<typename To::Value>, op);
  }
  template <Kind kind, class From, class To, class Op>
  auto run(From from, To to, Op const& op, int root, Where where, Rows rows = {}) {
    auto const stay = held(where).visit(name(kind).data(), where);
    if constexpr (is_reached<From, To>) {
      if (reaches<kind>(from, to, op, root, rows, where)) {
        Tally::Exposed const exposed(core_->tally, name(kind).data());
        CollectiveJob<B> job(*core_, name(kind).data(),
                             [&] { return prepare_reached<kind>(from, to, op, root, rows, where); });
        wait_for(job, from, to, where);
        to.store();
        return to.take();
      }
    }
    bool const direct = is_direct<kind, To, Op>();
    auto const make = [&] { return prepare<kind>(from, to, op, root, rows, where, direct); };
    if constexpr (in_parts<kind, From, To>) {
      Tally::Exposed const exposed(core_->tally, name(kind).data());
      StagedJobOf<From, To> job(*core_, name(kind).data(), place_of(from, to), to.device(), make);
      wait_for(job, from, to, where);
    } else if (direct) {
      DirectCall<B> begun(*core_, make);
      if (!begun.complete()) {
        CollectiveJob<B> job(std::move(begun));
        wait_for(job, from, to, where);
      }
    } else {
      Tally::Exposed const exposed(core_->tally, name(kind).data());
      CollectiveJob<B> job(*core_, name(kind).data(), make);
      wait_for(job, from, to, where);
    }
    to.store();
    return to.take();
  }
  template <class From, class To>
  void wait_for(Job& job, From& from, To& to, Where where) {
    try {
      core_->wait(job, where);
    } catch (...) {
      if (!job.safe()) {
        keep_forever(std::move(from));
        keep_forever(std::move(to));
      }
      throw;
    }
  }
  template <Kind kind, class From, class To, class Op>
  auto start(From from, To to, Op op, int root, Where where, Rows rows = {}) {
    auto const stay = held(where).visit(name(kind).data(), where);
    if constexpr (is_reached<From, To>) {
      if (reaches<kind>(from, to, op, root, rows, where)) {
        auto const reached = [&](From& f, To& t, Op const& o) {
          return CollectiveJob<B>(*core_, name(kind).data(),
                                  [&] { return prepare_reached<kind>(f, t, o, root, rows, where); });
        };
        using Task = CollectiveTask<CollectiveJob<B>, From, To, Op>;
        return request(
            make_owner<Task>(name(kind).data(), std::move(from), std::move(to), std::move(op), reached), where);
      }
    }
    auto const job = [&](From& f, To& t, Op const& o) {
      auto const make = [&] { return prepare<kind>(f, t, o, root, rows, where); };
      if constexpr (in_parts<kind, From, To>)
        return StagedJobOf<From, To>(*core_, name(kind).data(), place_of(f, t), t.device(), make);
      else return CollectiveJob<B>(*core_, name(kind).data(), make);
    };
    using Task = CollectiveTask<decltype(job(from, to, op)), From, To, Op>;
    return request(make_owner<Task>(name(kind).data(), std::move(from), std::move(to), std::move(op), job), where);
  }

  /// For more ranks a backend may lack the room; it is asked, then, when the call is known.
  static constexpr int most_direct_blocks = 64;

  Shared<Core<B>> core_;
};

}  // namespace tutti::comm

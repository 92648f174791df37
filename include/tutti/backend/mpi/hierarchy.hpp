// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Collectives of ranks on several nodes: the ranks of a node work on shared memory, the library carries what goes
/// between nodes. A call passes three lanes,
///   gather    on the node: what it has to give comes together
///   between   ranks with the same place on each node, a column, exchange it by a call of the library
///   spread    on the node: what came is given out
/// and each lane is entered in the order in which the calls were started, on every rank: so each may work on another
/// call at the same time, and yet all ranks make the same calls of an engine or a column in the same order. A lane in
/// which a call has nothing to do is passed at once. What each kind does in the
/// lanes is in hierarchy_plans.hpp.

#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/library_calls.hpp>
#include <tutti/backend/mpi/node_memory.hpp>
#include <tutti/backend/mpi/nodes.hpp>
#include <tutti/backend/mpi/widening.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <mpi.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::mpi {

/// A rank's end. Used by one thread at a time.
class Hierarchy {
 public:
  /// A collective under way.
  class Call {
   private:
    friend Hierarchy;
    enum Phase : std::uint8_t { enters_gather, gather, enters_between, between, enters_spread, spread, complete };
    comm::Collective whole;
    List<comm::shared::Part> gathers;
    comm::Collective exchange;
    bool exchanges = false;
    List<comm::shared::Part> spreads;
    Widening wide;
    // After the exchange: floats of `widened` become elements at `narrowed`.
    float const* widened = nullptr;
    void* narrowed = nullptr;
    std::int64_t narrows = 0;
    Storage<Cpu> scratch;
    Storage<Cpu> wide_scratch;
    Storage<Cpu> copy;  // of what the user holds where the node's ranks do not reach it

    std::uint64_t number = 0;
    Phase phase = enters_gather;
    List<comm::shared::Engine::Call*> on_node;
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<MPI_Request> requests;  // of a reduction in several parts
    std::exception_ptr failure;         // of this call, whoever moved it on
  };

  /// Collective over `comm`, whose ranks are on several nodes. `segment`: of the parent, whose ranks share memory on
  /// each node already; or null. Null where no node holds two ranks, and where those of some node cannot share memory,
  /// with a warning.
  /// Errors     unavailable, on all ranks, where they cannot and the configuration says that they must.
  static std::unique_ptr<Hierarchy> create(MPI_Comm comm, Nodes const& nodes, Shared<Segment> segment,
                                           MpiConfig const& config) {
    if (nodes.largest() < 2) return nullptr;
    std::unique_ptr<NodeMemory> lanes[2];
    std::exception_ptr cause;
    try {
      lanes[0] = NodeMemory::create(nodes.local(), std::move(segment), config);
      if (lanes[0]) lanes[1] = NodeMemory::create(nodes.local(), lanes[0]->segment(), config);
    } catch (Error const&) {  // the other nodes must learn it first
      cause = std::current_exception();
    }
    int all = lanes[1] ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
    if (all != 0) return std::make_unique<Hierarchy>(comm, nodes, std::move(lanes[0]), std::move(lanes[1]), config);
    if (cause) std::rethrow_exception(cause);
    if (config.node_shared == Switch::on)
      throw Error(ErrorKind::unavailable, "Mpi",
                  "node_shared is on, but the ranks of another node cannot share memory. Enlarge /dev/shm there, or "
                  "leave it at auto");
    return nullptr;
  }

  Hierarchy(MPI_Comm comm, Nodes const& nodes, std::unique_ptr<NodeMemory> gather, std::unique_ptr<NodeMemory> spread,
            MpiConfig const& config)
      : gather_(std::move(gather)),
        spread_(std::move(spread)),
        nodes_(nodes.count()),
        node_(nodes.own().node),
        local_size_(nodes.local_size()),
        local_rank_(nodes.own().local_rank),
        equal_(nodes.equal()),
        in_order_(nodes.in_order()),
        limit_(config.count_limit < default_count_limit ? config.count_limit.get() : default_count_limit) {
    int size = 1;
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    check(MPI_Comm_split(comm, local_rank_, node_, &column_), "MPI_Comm_split");
    check(MPI_Comm_set_errhandler(column_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    List<int> names;
    for (int r = 0; r < size; ++r) {
      places_.push_back(nodes.place(r));
      if (places_.back().node == node_) names.push_back(r);
    }
    gather_->engine().call_ranks(names);
    spread_->engine().call_ranks(std::move(names));
  }
  Hierarchy(Hierarchy const&) = delete;
  Hierarchy& operator=(Hierarchy const&) = delete;
  ~Hierarchy() {
    if (!leaked_ && Environment::usable()) MPI_Comm_free(&column_);
  }

  /// Whether collectives of this kind and type are made here, whatever their count and root; among them reductions of
  /// 16-bit floats, which the library does not know.
  bool reduces_narrow(comm::Kind kind, DType dtype, Operator op) const noexcept {
    bool const here = kind == comm::Kind::all_reduce || kind == comm::Kind::reduce || scatters(kind);
    return here && equal_ && static_cast<bool>(widening_of(dtype, op));
  }
  bool scatters_in_place() const noexcept { return scatters(comm::Kind::reduce_scatter); }

  /// Whether the call is made here; else it is the library's. The same on all ranks. Of what is not: gather, scatter
  /// and all_to_all send the same bytes between nodes either way; small blocks of an all_gather are a matter of steps,
  /// of which the library takes fewer.
  bool takes(comm::Collective const& call) const noexcept {
    switch (call.kind) {
      case comm::Kind::barrier: case comm::Kind::all_reduce: return true;
      case comm::Kind::broadcast: case comm::Kind::reduce: return equal_ || place(call.root).local_rank == 0;
      case comm::Kind::all_gather: return equal_ && in_order_ && call.block_bytes() > small_bytes;
      case comm::Kind::reduce_scatter: return scatters(call.kind);
      default: return false;
    }
  }

  /// All ranks start the same calls in the same order.
  Call* start(comm::Collective const& whole) {
    check_alarms(name(whole.kind).data(), whole.where);
    if (free_.empty()) {
      calls_.push_back(make_owner<Call>());
      free_.push_back(calls_.back().get());
    }
    Call& call = *free_.back();
    free_.pop_back();
    call.whole = whole;
    call.number = started_++;
    active_.push_back(&call);
    return &call;
  }

  /// Moves on everything under way.
  void progress() noexcept {
    bool changed = false;
    for (Call* call : active_) {
      try {
        advance(*call);
      } catch (...) {
        call->failure = std::current_exception();
      }
      changed |= call->phase == Call::complete || call->failure;
    }
    if (changed) active_.erase_if([](Call const* call) { return call->phase == Call::complete || call->failure; });
  }
  /// True once complete; the call is then gone. Throws when the communicator fails on this node.
  bool test(Call* call) {
    progress();
    if (call->failure) std::rethrow_exception(call->failure);
    if (call->phase != Call::complete) {
      check_alarms("test", call->whole.where);
      return false;
    }
    recycle(call);
    return true;
  }
  /// Ends a call that failed. False when somebody may still touch the user's memory: a peer of the node that was
  /// stopped at it, or the library.
  bool abandon(Call* call) noexcept {
    bool const exchanged = call->request == MPI_REQUEST_NULL && call->requests.empty();
    bool safe = exchanged || !exchanges_users(*call);
    auto& engine = (call->phase <= Call::gather ? *gather_ : *spread_).engine();
    for (auto* part : call->on_node) safe = engine.abandon(part) && safe;
    active_.erase_if([&](Call const* other) { return other == call; });
    if (!safe || !exchanged) {
      Environment::abandoned().store(true);
      comm::keep_forever(std::move(call->scratch));
      comm::keep_forever(std::move(call->wide_scratch));
      comm::keep_forever(std::move(call->copy));
    }
    recycle(call);
    return safe;
  }
  std::string awaiting(Call const* call) const {
    if (call->phase == Call::gather && !call->on_node.empty())
      return gather_->engine().awaiting(call->on_node.front());
    if (call->phase == Call::spread && !call->on_node.empty())
      return "on this node, " + spread_->engine().awaiting(call->on_node.front());
    return "all ranks of this node have arrived, of another one some have not";
  }

  /// Tells the node why the communicator failed.
  void raise(ErrorKind kind, std::string_view text) noexcept {
    gather_->engine().board().alarm().raise(kind, text);
    spread_->engine().board().alarm().raise(kind, text);
  }
  void check_alarms(char const* operation, std::source_location where = std::source_location::current()) const {
    gather_->engine().check(operation, where);
    spread_->engine().check(operation, where);
  }
  /// Ranks of this node need not wait for this one any more.
  void leave() noexcept {
    gather_->engine().leave();
    spread_->engine().leave();
  }
  /// The library may still use what belongs to the column.
  void leak() noexcept { leaked_ = true; }

  Shared<Segment> const& segment() const noexcept { return gather_->segment(); }
  Storage<Cpu> allocate(std::size_t bytes) { return gather_->allocate(bytes); }

 private:
  /// Below, a contribution travels in the board, and passing it to one rank and back is the shortest way.
  static constexpr std::int64_t small_bytes = comm::shared::Entry::inline_bytes;

  Place const& place(int rank) const noexcept { return places_[static_cast<std::size_t>(rank)]; }
  bool scatters(comm::Kind kind) const noexcept {
    return kind == comm::Kind::reduce_scatter && equal_ && in_order_;
  }

  void advance(Call& c) {
    for (;;) switch (c.phase) {
        case Call::enters_gather:
          if (c.number != lanes_[0]) return;
          plan(c);
          enter(c, *gather_, c.gathers, 0);
          break;
        case Call::gather: case Call::spread:
          if (!pass(c, (c.phase == Call::gather ? *gather_ : *spread_).engine())) return;
          break;
        case Call::enters_between:
          if (c.number != lanes_[1]) return;
          ++lanes_[1];
          if (c.exchanges)
            LibraryCalls{column_, node_, nodes_, limit_}.start(c.exchange, c.request, c.requests);
          c.phase = Call::between;
          break;
        case Call::between:
          if (!exchanged(c)) return;
          if (c.narrows != 0)
            c.wide.narrow(c.widened, c.narrowed, c.narrows,
                          c.whole.reduction.op == Operator::avg ? static_cast<int>(places_.size()) : 1);
          c.phase = Call::enters_spread;
          break;
        case Call::enters_spread:
          if (c.number != lanes_[2]) return;
          enter(c, *spread_, c.spreads, 2);
          break;
        case Call::complete: return;
      }
  }
  void enter(Call& c, NodeMemory& memory, List<comm::shared::Part> const& parts, int lane) {
    ++lanes_[lane];
    for (auto const& part : parts) c.on_node.push_back(memory.engine().start(part, &c.whole));
    c.phase = static_cast<Call::Phase>(c.phase + 1);
  }
  /// True when this call's part of the lane is done.
  bool pass(Call& c, comm::shared::Engine& engine) {
    while (!c.on_node.empty()) {
      if (!engine.test(c.on_node.back())) return false;
      c.on_node.pop_back();
    }
    c.phase = static_cast<Call::Phase>(c.phase + 1);
    return true;
  }
  bool exchanged(Call& c) {
    int flag = 1;
    if (c.request != MPI_REQUEST_NULL) {
      int const code = MPI_Test(&c.request, &flag, MPI_STATUS_IGNORE);
      if (code != MPI_SUCCESS) c.request = MPI_REQUEST_NULL;
      check(code, "MPI_Test");
    } else if (!c.requests.empty()) {
      int const code = MPI_Testall(static_cast<int>(c.requests.size()), c.requests.data(), &flag, MPI_STATUSES_IGNORE);
      if (flag != 0 || code != MPI_SUCCESS) c.requests.clear();
      check(code, "MPI_Testall");
    }
    return flag != 0;
  }
  void recycle(Call* call) noexcept {
    *call = Call();
    free_.push_back(call);
  }

  // What a call does in each lane. `whole` holds what the user gave; parts hold the node's or the column's own ranks.

  void plan(Call& c);
  comm::Collective part_of(Call const& c, comm::Kind kind, int root = -1) const;
  static comm::Collective with(comm::Collective call, void const* from, void* to) {
    call.from = from;
    call.to = to;
    return call;
  }
  /// Whether the library works on what the user gave, and not on memory of the call.
  static bool exchanges_users(Call const& c) noexcept {
    return (c.exchange.from != nullptr && c.exchange.from == c.whole.from) ||
           (c.exchange.to != nullptr && c.exchange.to == c.whole.to);
  }
  void exchange(Call& c, comm::Collective const& call) {
    c.exchange = call;
    c.exchanges = true;
  }
  void exchange_wide(Call& c, comm::Collective const& call, std::int64_t elements) {
    exchange(c, call);
    if (!c.wide) return;
    c.exchange.dtype = DType::float32;
    c.exchange.reduction.op = c.wide.between;
    c.narrows = elements;
  }
  /// Memory that the node's ranks reach, so that they work on it directly.
  std::byte* scratch(Storage<Cpu>& storage, std::int64_t elements, std::int64_t element_bytes) {
    storage = allocate(static_cast<std::size_t>(elements * element_bytes));
    return static_cast<std::byte*>(storage.data());
  }
  /// Memory of which staging would take several rounds, each a hand-over between all ranks of the node, because they do
  /// not reach it.
  bool out_of_reach(void const* memory, std::int64_t bytes) const noexcept {
    auto const& board = gather_->engine().board();
    return bytes > board.stage_bytes() && board.place(memory) == 0;
  }
  /// What the node's ranks read, with a copy where they reach only that.
  void const* in_reach(Call& c, void const* from, std::int64_t bytes) {
    if (!out_of_reach(from, bytes)) return from;
    void* const copy = scratch(c.copy, bytes, 1);
    std::memcpy(copy, from, static_cast<std::size_t>(bytes));
    return copy;
  }
  comm::shared::Part reduce_scatter_part(Call const& c, void const* from, void* to, std::int64_t count) const;

  /// The column of the root carries it to one rank of each node.
  void plan_broadcast(Call& c);

  /// reduce and all_reduce: each node's result goes through one of its ranks.
  void plan_led(Call& c);

  /// reduce and all_reduce: every rank takes a part of the elements through, so that all columns work at once. Parts
  /// are whole cache lines, and the last ones overlap where that leaves none: two ranks then compute the same elements.
  void plan_divided(Call& c);

  /// A column brings its ranks' blocks to every node, where each node's blocks then lie together in the result.
  void plan_all_gather(Call& c);

  /// The other way round: a rank combines the blocks of its column from its node's ranks, and the column does the rest.
  void plan_reduce_scatter(Call& c);

  std::unique_ptr<NodeMemory> gather_;
  std::unique_ptr<NodeMemory> spread_;
  MPI_Comm column_ = MPI_COMM_NULL;
  bool leaked_ = false;
  int nodes_;
  int node_;
  int local_size_;
  int local_rank_;
  bool equal_;
  bool in_order_;
  std::int64_t limit_;
  List<Place> places_;
  std::uint64_t started_ = 0;
  std::uint64_t lanes_[3] = {};  // number of the call that enters next
  List<Owner<Call>> calls_;
  List<Call*> free_;
  List<Call*> active_;
};

}  // namespace tutti::mpi

// What follows belongs to the class.
#include <tutti/backend/mpi/hierarchy_plans.hpp>

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Collectives on shared memory, without a backend: random sequences of calls, several in flight, on buffers of which
/// some are in reach of the other ranks and some are not, so that every path is taken and mixed.
// Covers: <tutti/comm/shared/engine_failure.hpp>

// Covers: <tutti/comm/shared/alarm.hpp>
// Covers: <tutti/comm/shared/board.hpp>
// Covers: <tutti/comm/shared/call.hpp>
// Covers: <tutti/comm/shared/contributions.hpp>
// Covers: <tutti/comm/shared/engine.hpp>
// Covers: <tutti/comm/shared/roles.hpp>
// Covers: <tutti/comm/shared/share.hpp>
// Covers: <tutti/comm/shared/streaming_copy.hpp>

#include "support/catch.hpp"

#include <tutti/comm/fold.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/tensor/storage.hpp>

#include <random>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using comm::Collective;
using comm::Kind;
using comm::shared::Board;
using comm::shared::Engine;
using test::contains;

namespace {

/// The memory that all ranks see: a board, and a heap with room for each rank.
class Node {
 public:
  Node(int ranks, std::int64_t stage_bytes, std::size_t heap)
      : ranks_(ranks),
        heap_(heap),
        board_bytes_((Board::bytes(ranks, stage_bytes) + 63) / 64 * 64),
        memory_(Cpu{}, 64 + board_bytes_ + heap * static_cast<std::size_t>(ranks)),
        stage_bytes_(stage_bytes) {
    Board::create(base() + 64, ranks);
  }
  /// Places count from the start of the memory: what lies there is in reach, and nothing else.
  Board board() {
    return Board(base() + 64, ranks_, stage_bytes_, reinterpret_cast<std::uintptr_t>(base()), memory_.bytes());
  }
  std::byte* heap(int rank) { return base() + 64 + board_bytes_ + heap_ * static_cast<std::size_t>(rank); }

 private:
  std::byte* base() { return static_cast<std::byte*>(memory_.data()); }
  int ranks_;
  std::size_t heap_;
  std::size_t board_bytes_;
  Storage<Cpu> memory_;
  std::int64_t stage_bytes_;
};

template <class F>
void on_threads(int ranks, F&& f) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&f, r] { f(r); });
  for (auto& thread : threads) thread.join();
}

/// One call of a sequence as all ranks draw it, with each rank's own choice of memory.
struct Drawn {
  Kind kind;
  int root;
  std::int64_t count;
  std::int64_t contributions;
  bool in_place;
  std::vector<bool> from_in_reach, to_in_reach;
  std::vector<List<std::int64_t>> counts;  // [r][s]: elements that rank r has for rank s

  /// Elements that `r` gives to `s`, of blocks that have sizes of their own.
  std::int64_t between(int r, int s) const {
    int const from = kind == Kind::reduce_scatter_v ? 0 : r;  // everybody gives the same
    int const to = kind == Kind::gather_v || kind == Kind::all_gather_v ? 0 : s;
    return counts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
};

std::vector<Drawn> draw(unsigned seed, int ranks, int calls) {
  std::mt19937 random(seed);
  std::int64_t const sizes[] = {0, 1, 7, 61, 124, 125, 126, 250, 512, 513, 1024, 1025, 4001};
  auto const size = [&] { return sizes[random() % std::size(sizes)]; };
  std::vector<Drawn> all;
  for (int i = 0; i < calls; ++i) {
    Drawn drawn{static_cast<Kind>(random() % comm::kind_count),
                static_cast<int>(random() % static_cast<unsigned>(ranks)), size(), 1, random() % 3 == 0, {}, {}, {}};
    if (drawn.kind == Kind::all_reduce_contributions) drawn.contributions = 1 + static_cast<int>(random() % 5);
    auto const all_alike = random() % 3;  // 0: nobody's in reach, 1: everybody's, 2: mixed
    bool const short_blocks = random() % 2 == 0;
    for (int r = 0; r < ranks; ++r) {
      drawn.from_in_reach.push_back(all_alike == 2 ? random() % 2 == 0 : all_alike == 1);
      drawn.to_in_reach.push_back(all_alike == 2 ? random() % 2 == 0 : all_alike == 1);
      drawn.counts.emplace_back();
      for (int s = 0; s < ranks; ++s)
        drawn.counts.back().push_back(short_blocks ? static_cast<std::int64_t>(random() % 40) : size());
    }
    all.push_back(std::move(drawn));
  }
  return all;
}

/// Element i of what rank r contributes to call number n: exact in sums of eight.
double value(int r, std::size_t n, std::int64_t i) {
  return static_cast<double>((r * 31 + static_cast<int>(n) * 7 + i) % 97);
}

class Sequence {
 public:
  Sequence(Node& node, int rank, int ranks, std::vector<Drawn> const& drawn)
      : rank_(rank), ranks_(ranks), drawn_(drawn), next_(node.heap(rank)), engine_(node.board(), rank, nullptr) {}

  /// Starts calls up to `depth` at once and completes them in an order of this rank's own; in waves, when all are
  /// complete the next ones are started. Returns what was wrong.
  std::string run(int depth, bool waves = false) {
    std::mt19937 random(static_cast<unsigned>(rank_) + 17);
    std::vector<Running> running;
    std::string wrong;
    std::size_t started = 0;
    while (started < drawn_.size() || !running.empty()) {
      if (!waves || running.empty())
        while (started < drawn_.size() && static_cast<int>(running.size()) < depth) running.push_back(start(started++));
      std::size_t const pick = random() % running.size();
      while (!engine_.test(running[pick].call))
        if (!waves) ::sched_yield();  // without, the system takes the processor away at any moment
      if (wrong.empty()) wrong = verify(running[pick]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    engine_.leave();
    return wrong;
  }

 private:
  struct Running {
    std::size_t index;
    Engine::Call* call;
    std::vector<double> own_from, own_to;  // where private
    List<std::int64_t> from_counts, to_counts;
    double* from;
    double* to;
  };

  /// What this rank gives: what all its blocks hold together.
  std::int64_t from_size(Drawn const& d) const {
    switch (d.kind) {
      case Kind::barrier: return 0;
      case Kind::gather_v: case Kind::all_gather_v: return d.between(rank_, 0);
      case Kind::scatter_v: case Kind::reduce_scatter_v: case Kind::all_to_all_v: return before(d, rank_, ranks_);
      default: return d.count * (comm::gives_blocks(d.kind) ? ranks_ : d.contributions);
    }
  }
  /// Elements that rank r has for the ranks before s.
  std::int64_t before(Drawn const& d, int r, int s) const {
    std::int64_t elements = 0;
    for (int t = 0; t < s; ++t) elements += d.between(r, t);
    return elements;
  }
  /// What this rank gets; nothing where it has no result.
  std::vector<double> expected(std::size_t index) const {
    Drawn const& d = drawn_[index];
    std::vector<double> result;
    bool const to_root = d.kind == Kind::reduce || d.kind == Kind::gather || d.kind == Kind::gather_v;
    if (d.kind == Kind::barrier || (to_root && rank_ != d.root) || (d.kind == Kind::exscan && rank_ == 0)) return {};
    auto const append = [&](int r, std::int64_t begin, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) result.push_back(value(r, index, begin + i));
    };
    auto const add_up = [&](int ranks, std::int64_t begin, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        result.push_back(0);
        for (int r = 0; r < ranks; ++r)
          for (std::int64_t row = 0; row < d.contributions; ++row)
            result.back() += value(r, index, begin + row * count + i);
      }
    };
    switch (d.kind) {
      case Kind::broadcast: append(d.root, 0, d.count); break;
      case Kind::scatter: append(d.root, rank_ * d.count, d.count); break;
      case Kind::scatter_v: append(d.root, before(d, d.root, rank_), d.between(d.root, rank_)); break;
      case Kind::gather: case Kind::all_gather:
        for (int r = 0; r < ranks_; ++r) append(r, 0, d.count);
        break;
      case Kind::gather_v: case Kind::all_gather_v:
        for (int r = 0; r < ranks_; ++r) append(r, 0, d.between(r, 0));
        break;
      case Kind::all_to_all:
        for (int r = 0; r < ranks_; ++r) append(r, rank_ * d.count, d.count);
        break;
      case Kind::all_to_all_v:
        for (int r = 0; r < ranks_; ++r) append(r, before(d, r, rank_), d.between(r, rank_));
        break;
      case Kind::reduce: case Kind::all_reduce: case Kind::all_reduce_contributions: add_up(ranks_, 0, d.count); break;
      case Kind::scan: add_up(rank_ + 1, 0, d.count); break;
      case Kind::exscan: add_up(rank_, 0, d.count); break;
      case Kind::reduce_scatter: add_up(ranks_, rank_ * d.count, d.count); break;
      case Kind::reduce_scatter_v: add_up(ranks_, before(d, rank_, rank_), d.between(rank_, rank_)); break;
      case Kind::barrier: break;
    }
    return result;
  }
  double* memory(bool in_reach, std::int64_t size, std::vector<double>& own) {
    own.assign(in_reach ? 1 : static_cast<std::size_t>(size) + 1, -1.0);
    if (!in_reach) return own.data();
    auto* const at = reinterpret_cast<double*>(next_);
    next_ += (static_cast<std::size_t>(size) * sizeof(double) + 64) / 64 * 64;
    for (std::int64_t i = 0; i < size; ++i) at[i] = -1.0;
    return at;
  }

  Running start(std::size_t index) {
    Drawn const& d = drawn_[index];
    auto const self = static_cast<std::size_t>(rank_);
    Running r{index, nullptr, {}, {}, {}, {}, nullptr, nullptr};
    bool const one_buffer = d.in_place && (d.kind == Kind::all_reduce || d.kind == Kind::reduce ||
                                           d.kind == Kind::scan || d.kind == Kind::exscan);
    r.from = memory(d.from_in_reach[self], from_size(d), r.own_from);
    for (std::int64_t i = 0; i < from_size(d); ++i) r.from[i] = value(rank_, index, i);
    auto const size = static_cast<std::int64_t>(expected(index).size());
    r.to = one_buffer ? r.from : memory(d.to_in_reach[self], size, r.own_to);
    bool const at_root = rank_ == d.root;
    bool const from_root = d.kind == Kind::broadcast || d.kind == Kind::scatter || d.kind == Kind::scatter_v;
    bool const to_root = d.kind == Kind::reduce || d.kind == Kind::gather || d.kind == Kind::gather_v;
    Collective call;
    call.kind = d.kind;
    call.dtype = DType::float64;
    call.root = comm::rooted(d.kind) ? d.root : -1;
    call.count = d.kind == Kind::barrier ? 0 : d.count;
    call.contributions = d.contributions;
    call.from = from_root && !at_root ? nullptr : r.from;
    call.to = to_root && !at_root ? nullptr : r.to;
    if (d.kind == Kind::barrier) call.from = call.to = nullptr;
    switch (d.kind) {  // counts as the caller knows them
      case Kind::gather_v: case Kind::all_gather_v:
        call.count = d.between(rank_, 0);
        for (int s = 0; s < ranks_ && call.to != nullptr; ++s) r.to_counts.push_back(d.between(s, 0));
        break;
      case Kind::scatter_v: case Kind::reduce_scatter_v:
        call.count = d.between(d.kind == Kind::scatter_v ? d.root : 0, rank_);
        for (int s = 0; s < ranks_ && call.from != nullptr; ++s) r.from_counts.push_back(d.between(rank_, s));
        break;
      case Kind::all_to_all_v:
        call.count = 0;
        for (int s = 0; s < ranks_; ++s) r.from_counts.push_back(d.between(rank_, s));
        for (int s = 0; s < ranks_; ++s) r.to_counts.push_back(d.between(s, rank_));
        break;
      default: break;
    }
    call.from_counts = r.from_counts;
    call.to_counts = r.to_counts;
    if (comm::reduces(d.kind)) call.reduction = comm::scan_reduction_of<double>(sum);
    r.call = engine_.start(call);
    return r;
  }

  std::string verify(Running const& r) const {
    Drawn const& d = drawn_[r.index];
    auto const right = expected(r.index);
    for (std::size_t i = 0; i < right.size(); ++i)
      if (r.to[i] != right[i])
        return "rank " + std::to_string(rank_) + ", call " + std::to_string(r.index) + " " + std::string(name(d.kind)) +
               " count " + std::to_string(d.count) + ": element " + std::to_string(i) + " is " +
               std::to_string(r.to[i]) + " instead of " + std::to_string(right[i]);
    return {};
  }

  int rank_;
  int ranks_;
  std::vector<Drawn> const& drawn_;
  std::byte* next_;
  Engine engine_;
};

}  // namespace

TEST_CASE("random sequences of collectives give what they should, whatever is in reach") {
  for (unsigned seed = 1; seed <= 24; ++seed) {
    int const ranks = 1 + static_cast<int>(seed % 4);
    int const depth = 1 + static_cast<int>(seed / 4 % 20);  // more than a board has slots, too
    auto const drawn = draw(seed, ranks, 60);
    Node node(ranks, 4096, std::size_t{32} << 20);
    std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
    on_threads(ranks, [&](int rank) {
      try {
        wrong[static_cast<std::size_t>(rank)] = Sequence(node, rank, ranks, drawn).run(depth);
      } catch (std::exception const& error) {
        wrong[static_cast<std::size_t>(rank)] = error.what();
      }
    });
    for (auto const& text : wrong) {
      CAPTURE(seed, ranks, depth);
      CHECK(text == "");
    }
  }
}

TEST_CASE("parts of a larger collective: blocks that overlap at the end, wider results, names of the larger one") {
  int const ranks = 4;
  using comm::shared::Part;
  for (std::int64_t const extent : {1, 5, 61, 514, 4001}) {
    Node node(ranks, 4096, 64);
    std::int64_t const count = (extent + ranks - 1) / ranks;
    std::vector<std::string> wrong(ranks);
    on_threads(ranks, [&](int rank) {
      Engine engine(node.board(), rank, nullptr);
      auto const finish = [&](Engine::Call* call) {
        while (!engine.test(call)) ::sched_yield();
      };
      std::vector<bfloat16> from(static_cast<std::size_t>(extent));
      for (std::int64_t i = 0; i < extent; ++i)
        from[static_cast<std::size_t>(i)] = bfloat16(rank == 0 ? 256.0f : static_cast<float>(i % 7));
      std::vector<float> sum_of(static_cast<std::size_t>(count)), all(static_cast<std::size_t>(extent));
      Collective whole;
      whole.kind = Kind::all_reduce;
      whole.dtype = DType::bfloat16;
      whole.count = extent;
      whole.reduction = comm::reduction_of<bfloat16>(sum);
      Part scatter{whole, extent, sizeof(float)};
      scatter.call.kind = Kind::reduce_scatter;
      scatter.call.count = count;
      scatter.call.from = from.data();
      scatter.call.to = sum_of.data();
      scatter.call.reduction.fold = [](void const*, void const* const* inputs, int n, void* const* outputs,
                                       int copies, std::int64_t elements) {
        comm::detail::fold_elements<bfloat16, Sum, float>(sum, inputs, n, outputs, copies, elements);
      };
      finish(engine.start(scatter, &whole));
      Part gather{whole, extent};
      gather.call.kind = Kind::all_gather;
      gather.call.dtype = DType::float32;
      gather.call.count = count;
      gather.call.from = sum_of.data();
      gather.call.to = all.data();
      finish(engine.start(gather, &whole));
      for (std::int64_t i = 0; i < extent; ++i)
        if (all[static_cast<std::size_t>(i)] != 256.0f + 3.0f * static_cast<float>(i % 7))
          wrong[static_cast<std::size_t>(rank)] = "element " + std::to_string(i);
      // The fourth rank calls something else: what the ranks are told is the whole call, and whose it is.
      engine.call_ranks({10, 11, 12, 13});
      if (rank == 3) whole.count = extent + 1;
      try {
        finish(engine.start(gather, &whole));
        wrong[static_cast<std::size_t>(rank)] = "not told";
      } catch (Error const& error) {
        if (!contains(error.message(), "rank 13 calls all_reduce(sum, bfloat16, count " + std::to_string(extent + 1)))
          wrong[static_cast<std::size_t>(rank)] = error.message();
      }
      engine.leave();
    });
    for (auto const& text : wrong) {
      CAPTURE(extent);
      CHECK(text == "");
    }
  }
}

TEST_CASE("many staged collectives in flight share staging memory in one order") {
  int const ranks = 4;
  std::vector<Drawn> drawn;
  std::vector<bool> const nobody(ranks, false);
  for (std::size_t i = 0; i < 600; ++i)
    drawn.push_back({Kind::all_reduce, -1, 126 + static_cast<std::int64_t>(i % 3), 1, true, nobody, nobody, {}});
  Node node(ranks, 4096, 64);
  std::vector<std::string> wrong(ranks);
  on_threads(ranks, [&](int rank) {
    wrong[static_cast<std::size_t>(rank)] = Sequence(node, rank, ranks, drawn).run(12, true);
  });
  for (auto const& text : wrong) CHECK(text == "");
}

namespace {

/// Rank r's element i.
void set(double& x, int r, std::int64_t i) { x = static_cast<double>((i * 7 + r * 3) % 1000); }
void set(Located<double>& x, int r, std::int64_t i) { x = {static_cast<double>((i * 7 + r * 3) % 1000), r}; }

/// The first of `count` elements, combined out of place by three ranks, that is wrong; -1: none.
template <class T, class Op>
std::int64_t wrong_reduction(std::int64_t count, Op const& op) {
  int const ranks = 3;
  std::size_t const room = (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
  Node node(ranks, 4096, 2 * room);
  std::vector<std::int64_t> wrong(ranks, -1);
  on_threads(ranks, [&](int rank) {
    T* const from = reinterpret_cast<T*>(node.heap(rank));
    T* const to = reinterpret_cast<T*>(node.heap(rank) + room);
    for (std::int64_t i = 0; i < count; ++i) set(from[i], rank, i);
    Collective call;
    call.kind = Kind::all_reduce;
    call.dtype = DType::float64;
    call.count = count;
    call.from = from;
    call.to = to;
    if constexpr (!Element<T>) call.compound_bytes = comm::wire_bytes<T>();
    call.reduction = comm::reduction_of<T>(op);
    Engine engine(node.board(), rank, nullptr);
    Engine::Call* const started = engine.start(call);
    while (!engine.test(started)) ::sched_yield();
    for (std::int64_t i = 0; i < count && wrong[static_cast<std::size_t>(rank)] < 0; ++i) {
      T right, next;
      set(right, 0, i);
      for (int r = 1; r < ranks; ++r) {
        set(next, r, i);
        right = comm::detail::combine<Op, T>(op, right, next);
      }
      if (!(to[i] == right)) wrong[static_cast<std::size_t>(rank)] = i;
    }
    engine.leave();
  });
  for (std::int64_t const first : wrong)
    if (first >= 0) return first;
  return -1;
}

}  // namespace

TEST_CASE("what is larger than the caches is combined around them, whatever the size of an element") {
  CHECK(wrong_reduction<Located<double>>((std::int64_t{16} << 20) / 16 + 13, max_location) == -1);
  CHECK(wrong_reduction<double>((std::int64_t{16} << 20) / 8 + 13, sum) == -1);
  CHECK(wrong_reduction<double>((std::int64_t{16} << 20) / 8 - 13, sum) == -1);  // through them
}

TEST_CASE("blocks that do not fit each other are told on every rank, with both calls") {
  struct Mistake {
    Kind kind;
    std::int64_t given;     // by rank 0 to rank 1
    std::int64_t expected;  // by rank 1
    char const* text;
  };
  Mistake const mistakes[] = {
      {Kind::gather_v, 2, 3, "gather_v(root 1, float64, count 2)"},
      {Kind::gather_v, 300, 3, "gather_v(root 1, float64, count 300)"},  // more than the board carries
      {Kind::scatter_v, 2, 3, "scatter_v(root 0, float64, count 7, from 7 + 2 + 1)"},
      {Kind::scatter_v, 300, 3, "scatter_v(root 0, float64, count 7, from 7 + 300 + 1)"},
      {Kind::all_to_all_v, 0, 3, "all_to_all_v(float64, from 7 + 0 + 1, to 7 + 2 + 2)"},
      {Kind::all_to_all_v, 300, 301, "all_to_all_v(float64, from 7 + 300 + 1, to 7 + 2 + 2)"},
  };
  for (Mistake const& m : mistakes) {
    Node node(3, 4096, 64);
    std::string said[3];
    on_threads(3, [&](int rank) {
      Engine engine(node.board(), rank, nullptr);
      std::vector<double> from(1000), to(1000);
      std::vector<std::int64_t> const given = rank == 0   ? std::vector<std::int64_t>{7, m.given, 1}
                                              : rank == 1 ? std::vector<std::int64_t>{2, 7, 1}
                                                          : std::vector<std::int64_t>{2, 2, 1};
      std::vector<std::int64_t> const expected = rank == 1   ? std::vector<std::int64_t>{m.expected, 7, 2}
                                                 : rank == 0 ? std::vector<std::int64_t>{7, 2, 2}
                                                             : std::vector<std::int64_t>{1, 1, 1};
      Collective call;
      call.kind = m.kind;
      call.dtype = DType::float64;
      call.from = from.data();
      call.to = to.data();
      if (m.kind == Kind::gather_v) {
        call.root = 1;
        call.count = rank == 0 ? m.given : rank == 1 ? 7 : 2;
        if (rank == 1) call.to_counts = PerRank(expected);
      } else if (m.kind == Kind::scatter_v) {
        call.root = 0;
        call.count = rank == 0 ? 7 : rank == 1 ? m.expected : 1;
        if (rank == 0) call.from_counts = PerRank(given);
      } else {
        call.from_counts = PerRank(given);
        call.to_counts = PerRank(expected);
      }
      Engine::Call* const started = engine.start(call);
      try {
        while (!engine.test(started)) ::sched_yield();
      } catch (Error const& error) {
        said[rank] = error.message();
        engine.abandon(started);
      }
      engine.leave();
    });
    std::string const sizes = "which expects " + std::to_string(8 * m.expected) + " bytes from rank 0 and gets " +
                              std::to_string(8 * m.given);
    for (std::string const& text : said) {
      INFO(name(m.kind) << ": " << text);
      CHECK(contains(text, std::string("ranks disagree: rank 0 calls ") + m.text));
      CHECK(contains(text, std::string("rank 1 calls ") + std::string(name(m.kind))));
      CHECK(contains(text, sizes));
    }
  }
}

TEST_CASE("an engine refuses what has no room in its entries or in staging memory") {
  Collective call;
  call.dtype = DType::float64;
  Node node(2, 4096, 64);
  Engine const engine(node.board(), 0, nullptr);
  call.kind = Kind::all_reduce_contributions;
  call.contributions = 512;
  CHECK(engine.can(call));
  call.contributions = 513;
  CHECK_FALSE(engine.can(call));
  call.contributions = 1;
  call.compound_bytes = 4097;
  CHECK_FALSE(engine.can(call));
  for (int const ranks : {62, 63, 124, 125}) {
    Node many(ranks, 4096, 64);
    Engine const one(many.board(), 0, nullptr);
    for (int k = 0; k < comm::kind_count; ++k) {
      Collective each;
      each.kind = static_cast<Kind>(k);
      int most = 125;
      if (each.kind == Kind::all_to_all_v) most = 62;
      if (each.kind == Kind::gather_v || each.kind == Kind::scatter_v) most = 124;
      CHECK(one.can(each) == (ranks <= most));
    }
  }
}

TEST_CASE("an engine names who is missing, who waits where, and who has left") {
  Node node(3, 4096, 64);
  Engine first(node.board(), 0, nullptr);
  Engine second(node.board(), 1, nullptr);
  Engine third(node.board(), 2, nullptr);
  Collective barrier;
  auto* const call = first.start(barrier);
  CHECK(!first.test(call));
  second.announce("recv at app.cpp:12");
  CHECK(first.awaiting(call) ==
        "ranks that have arrived: 0; missing: 1 (waits in recv at app.cpp:12, after 0 collectives), 2 (waits for "
        "nothing on this communicator, after 0 collectives)");
  second.announce({});
  third.leave();
  CHECK(contains(first.awaiting(call), "2 (has left the communicator, after 0 collectives"));
  auto const look = [&] {
    for (int i = 0; i < 16; ++i) static_cast<void>(first.test(call));  // it does not look at every test
  };
  REQUIRE_ERROR(look(), ErrorKind::communication, "rank 2 has left the communicator without taking part");
  CHECK(first.abandon(call));
  REQUIRE_ERROR(second.check("barrier"), ErrorKind::revoked, "rank 0 gave up barrier()");
  REQUIRE_ERROR(static_cast<void>(second.start(barrier)), ErrorKind::revoked, "rank 0 gave up");
}

TEST_CASE("a broadcast of memory that nobody reaches is there when its root is, and the root waits for no reader") {
  Node node(2, 16384, 64);
  Engine root(node.board(), 0, nullptr), other(node.board(), 1, nullptr);
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<double> sent(1100, turn + 0.5), got(1100);
    Collective call;
    call.kind = Kind::broadcast;
    call.dtype = DType::float64;
    call.root = 0;
    call.count = 1100;
    call.from = call.to = sent.data();
    Engine::Call* const mine = root.start(call);
    CHECK_FALSE(root.test(mine));
    call.from = nullptr;
    call.to = got.data();
    Engine::Call* const its = other.start(call);
    CHECK(other.test(its));
    CHECK(got == sent);
    CHECK(root.test(mine));
  }
}

TEST_CASE("a rank that dies is named by its process") {
  Node node(2, 4096, 64);
  Engine engine(node.board(), 0, nullptr);
  node.board().status(1).process.store(1 << 30);  // beyond every system's limit
  auto* const call = engine.start(Collective{});
  auto const look = [&] {
    for (int i = 0; i < 1024; ++i) static_cast<void>(engine.test(call));
  };
  REQUIRE_ERROR(look(), ErrorKind::communication, "rank 1 (process 1073741824) has died");
}

TEST_CASE("an alarm keeps its first cause, and texts that are too long are cut") {
  comm::shared::Alarm alarm;
  CHECK(!alarm.raised());
  CHECK_NOTHROW(alarm.check("x", std::source_location::current()));
  alarm.raise(ErrorKind::io, std::string(5000, 'a'));
  alarm.raise(ErrorKind::format, "later");
  CHECK(alarm.raised());
  try {
    alarm.check("x", std::source_location::current());
    FAIL("no error");
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::io);
    CHECK(error.message() == std::string(2047, 'a'));
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Collectives of several nodes: many of them in flight, on groups in any order and nodes of any size; what the library
/// is asked to carry between nodes, told by defining its call, which is MPI's own way to profile a program.
// Covers: <tutti/backend/mpi/hierarchy.hpp>
// Covers: <tutti/backend/mpi/widening.hpp>
// Covers: <tutti/backend/mpi/hierarchy_plans.hpp>

#include "backend/mpi/world.hpp"
#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

using namespace tutti;
using test::world_rank;
using test::world_size;

namespace {

/// What this rank has asked the library to reduce.
struct Asked {
  int calls = 0;
  int ranks = 0;
  std::int64_t bytes = 0;
} asked;

void note(MPI_Comm comm, std::int64_t count, MPI_Datatype type) {
  int element = 0;
  PMPI_Type_size(type, &element);
  PMPI_Comm_size(comm, &asked.ranks);
  ++asked.calls;
  asked.bytes += count * element;
}

/// Empty where it is on every rank; all ranks call it.
std::string everywhere(std::string const& wrong) {
  int const own = wrong.empty() ? world_size() : world_rank();
  int first = 0;
  MPI_Allreduce(&own, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == world_size()) return {};
  return wrong.empty() ? "rank " + std::to_string(first) + " failed" : wrong;
}

/// Sums of four of them are exact in every type, 16-bit ones too.
template <class T>
T value(int rank, std::size_t call, std::int64_t i) {
  return static_cast<T>(static_cast<float>((rank * 5 + static_cast<int>(call % 11) + i) % 13));
}
template <class T>
T total(int ranks, std::size_t call, std::int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += static_cast<float>(value<T>(r, call, i));
  return static_cast<T>(sum);
}
template <class X, class Of>
bool holds(X const& x, Of&& of) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i)
    if (auto const wanted = of(i); std::memcmp(x.data() + i, &wanted, sizeof wanted) != 0) return false;
  return true;
}

struct Drawn {
  std::size_t number;
  int kind;
  int root;
  std::int64_t count;
  bool in_place;
  bool shared;  // whether this rank's buffers are where the others of its node reach them
};

/// Starts a call; what it returns waits for it and says whether the result is right.
template <class T, class Comm>
std::function<bool()> begin(Comm& comm, Drawn const& call) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::int64_t const n = call.count;
  auto const own = [=](int r) { return [=](std::int64_t i) { return value<T>(r, call.number, i); }; };
  auto const sum_of = [=](std::int64_t i) { return total<T>(ranks, call.number, i); };
  auto const buffer = [&](std::int64_t size) {
    auto x = std::make_shared<Tensor<T>>(call.shared ? tensor<T>(comm, Shape{size}) : Tensor<T>(Shape{size}));
    for (std::int64_t i = 0; i < size; ++i) x->data()[i] = own(rank)(i);
    return x;
  };
  auto const waiting = [](auto request, auto right) {
    return [kept = std::make_shared<decltype(request)>(std::move(request)), right] { return kept->wait(), right(); };
  };
  auto x = buffer(call.kind == 5 ? n * ranks : n);
  switch (call.kind) {
    case 0:
      if (call.in_place) return waiting(comm.all_reduce_async(*x, sum), [=] { return holds(*x, sum_of); });
      else {
        auto to = buffer(n);
        return waiting(comm.all_reduce_async(*x, *to, sum), [=] { return holds(*x, own(rank)) && holds(*to, sum_of); });
      }
    case 1: return waiting(comm.broadcast_async(*x, call.root), [=] { return holds(*x, own(call.root)); });
    case 2:
      return waiting(comm.reduce_async(*x, sum, call.root),
                     [=] { return rank == call.root ? holds(*x, sum_of) : holds(*x, own(rank)); });
    case 3: return waiting(comm.barrier_async(), [] { return true; });
    case 4: {
      auto all = buffer(n * ranks);
      auto const block = std::span<T>(all->data() + rank * n, static_cast<std::size_t>(n));
      std::copy(x->data(), x->data() + n, block.data());
      auto const right = [=] {
        return holds(*x, own(rank)) &&
               holds(*all, [=](std::int64_t i) { return value<T>(static_cast<int>(i / n), call.number, i % n); });
      };
      return call.in_place ? waiting(comm.all_gather_async(block, *all), right)
                           : waiting(comm.all_gather_async(*x, *all), right);
    }
    default: {
      auto part = buffer(n);
      auto const block =
          std::span<T>(call.in_place ? x->data() + rank * n : part->data(), static_cast<std::size_t>(n));
      return waiting(comm.reduce_scatter_async(*x, block, sum), [=] {
        return holds(block, [=](std::int64_t i) { return sum_of(rank * n + i); }) && (part || x);
      });
    }
  }
}

/// Random calls, up to `depth` at once, which complete in an order of this rank's own.
template <class Comm>
std::string sequence(Comm& comm, unsigned seed, int calls, std::size_t depth) {
  std::mt19937 drawn(seed);
  std::mt19937 own(seed * 100 + static_cast<unsigned>(comm.rank()));
  std::int64_t const counts[] = {0, 1, 5, 33, 250, 251, 500, 1001, 4099, 20'003};
  struct Running {
    std::string what;
    std::function<bool()> right;
  };
  std::deque<Running> running;
  std::string wrong;
  auto const finish_one = [&] {
    std::size_t const pick = own() % running.size();
    if (!running[pick].right() && wrong.empty()) wrong = running[pick].what + " is wrong";
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
  };
  for (std::size_t call = 0; call < static_cast<std::size_t>(calls); ++call) {
    Drawn const one{call,
                    static_cast<int>(drawn() % 6),
                    static_cast<int>(drawn() % static_cast<unsigned>(comm.size())),
                    counts[drawn() % std::size(counts)],
                    drawn() % 2 == 0,
                    own() % 2 == 0};
    auto const type = drawn() % 3;
    std::string const what = "kind " + std::to_string(one.kind) + " of " + std::to_string(one.count) + ", type " +
                             std::to_string(type) + ", root " + std::to_string(one.root) +
                             (one.in_place ? ", in place" : "");
    running.push_back({what, type == 0   ? begin<float>(comm, one)
                             : type == 1 ? begin<bfloat16>(comm, one)
                                         : begin<std::int64_t>(comm, one)});
    while (running.size() >= depth) finish_one();
  }
  while (!running.empty()) finish_one();
  return wrong;
}

}  // namespace

extern "C" {
int MPI_Iallreduce(void const* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  note(comm, count, type);
  return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}
#if MPI_VERSION >= 4
int MPI_Iallreduce_c(void const* from, void* to, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     MPI_Request* request) {
  note(comm, count, type);
  return PMPI_Iallreduce_c(from, to, count, type, op, comm, request);
}
#endif
}

TEST_CASE("random collectives of several nodes, many in flight, give what they should in groups of any order") {
  // Nodes of two ranks and of three; where calls are not compared, small ones go through the nodes too.
  for (auto const& [node_ranks, level] : {std::pair{2, comm::CheckLevel::cheap}, std::pair{3, comm::CheckLevel::cheap},
                                          std::pair{2, comm::CheckLevel::off}}) {
    Communicator<Mpi> world(
        Mpi(MPI_COMM_WORLD, {.check_level = level, .node_shared = mpi::Switch::on,
                             .node_ranks = std::int64_t{node_ranks}, .staging_bytes = std::int64_t{4096}}));
    // In order; backwards; with the ranks of a node apart from each other.
    for (int const key : {world.rank(), -world.rank(), world.rank() * 3 % 4}) {
      auto group = world.split(0, key);
      for (unsigned seed = 1; seed <= 3; ++seed) {
        std::string wrong;
        try {
          wrong = sequence(group, seed, 60, 1 + seed * 6);
        } catch (std::exception const& error) {
          wrong = error.what();
        }
        CAPTURE(node_ranks, key, seed);
        REQUIRE(everywhere(wrong) == "");
      }
    }
  }
}

TEST_CASE("between nodes goes a node's share of a sum, in float where the elements are narrower") {
  MpiConfig const config{.node_shared = mpi::Switch::on, .node_ranks = std::int64_t{2}};
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, config));
  bool const equal = comm.size() % 2 == 0;
  auto const bytes_of = [&](auto x) {
    asked = {};
    comm.all_reduce(x, sum);
    return asked.bytes;
  };
  // 16 KiB and 8 KiB a rank: of two equal nodes each rank takes half of them through, of others the first all.
  std::int64_t const floats = bytes_of(std::vector<float>(4096, 1.0f));
  CHECK(floats == (equal ? 8192 : comm.local_rank() == 0 ? 16384 : 0));
  CHECK((asked.calls == 0 || asked.ranks == (comm.size() + 1) / 2));
  if (equal) CHECK(bytes_of(std::vector<bfloat16>(4096, bfloat16(1.0f))) == 8192);
  CHECK(bytes_of(std::vector<float>(2, 1.0f)) == 0);  // it travels with the comparison
  MpiConfig uncompared = config;
  uncompared.check_level = comm::CheckLevel::off;
  Communicator<Mpi> fast(Mpi(MPI_COMM_WORLD, uncompared));
  asked = {};
  CHECK(fast.all_reduce(1.0f, sum) == static_cast<float>(comm.size()));
  CHECK(asked.bytes == (comm.local_rank() == 0 ? 4 : 0));

  Communicator<Mpi> apart(Mpi(MPI_COMM_WORLD, {.node_shared = mpi::Switch::on, .node_ranks = std::int64_t{1}}));
  asked = {};
  std::vector<float> x(4096, 1.0f);
  apart.all_reduce(x, sum);
  CHECK(x.back() == static_cast<float>(comm.size()));
  CHECK((asked.calls == 1 && asked.ranks == comm.size()));  // nodes of one rank leave it to the library
}

TEST_CASE("sums over several nodes have the same bits on every rank and in every run") {
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, {.node_ranks = std::int64_t{2}}));
  for (std::int64_t const count : {3, 1000, 30'011}) {
    std::vector<float> x(static_cast<std::size_t>(count));
    std::mt19937 random(static_cast<unsigned>(comm.rank() + 1));
    for (float& element : x) element = static_cast<float>(random()) * 1e-7f;
    auto first = x;
    comm.all_reduce(first, sum);
    auto of_root = first;
    comm.broadcast(of_root, comm.size() - 1);
    CHECK(everywhere(first == of_root ? "" : "ranks differ") == "");
    for (int run = 0; run < 5; ++run) {
      auto again = x;
      comm.all_reduce(again, sum);
      CHECK(everywhere(again == first ? "" : "runs differ") == "");
    }
  }
}

TEST_CASE("16-bit sums over several nodes are rounded once, and so are their means") {
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, {.node_ranks = std::int64_t{2}}));
  auto const held = bfloat16(comm.rank() == 0 ? 256.0f : 1.0f);  // 257, of the first node, is no bfloat16
  auto const size = static_cast<float>(comm.size());
  auto const wanted = bfloat16(255.0f + size);
  auto const mean = bfloat16((255.0f + size) / size);
  for (std::size_t const count : {std::size_t{1}, std::size_t{777}, std::size_t{5000}}) {
    std::vector<bfloat16> const x(count * static_cast<std::size_t>(comm.size()), held);
    auto y = x;
    comm.all_reduce(y, sum);
    CHECK(everywhere(holds(y, [&](std::int64_t) { return wanted; }) ? "" : "all_reduce") == "");
    y = x;
    comm.all_reduce(y, avg);
    CHECK(everywhere(holds(y, [&](std::int64_t) { return mean; }) ? "" : "mean") == "");
    y = x;
    comm.reduce(y, sum, comm.size() - 1);
    bool const last = comm.rank() == comm.size() - 1;
    CHECK(everywhere(holds(y, [&](std::int64_t) { return last ? wanted : held; }) ? "" : "reduce") == "");
    std::vector<bfloat16> part(count);
    comm.reduce_scatter(x, part, avg);
    CHECK(everywhere(holds(part, [&](std::int64_t) { return mean; }) ? "" : "reduce_scatter") == "");
  }
}

TEST_CASE("where the ranks of one node cannot share memory, all nodes do without or are told") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 1024;
  std::string told;
  bool shares = true;
  float total_of = 0;
  if (world_rank() >= 2) ::setrlimit(RLIMIT_FSIZE, &small);  // of the second node
  try {
    Mpi const backend(MPI_COMM_WORLD, {.node_shared = mpi::Switch::on, .node_ranks = std::int64_t{2}});
  } catch (Error const& error) {
    told = error.message();
  }
  {
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, {.node_ranks = std::int64_t{2}}));
    shares = comm.backend().shares_memory();
    total_of = comm.all_reduce(1.0f, sum);
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  INFO(told);
  CHECK(test::contains(told, world_rank() < 2 ? "the ranks of another node cannot share memory"
                                              : "the ranks of this node cannot share memory (files may be"));
  CHECK(!shares);
  CHECK(total_of == static_cast<float>(world_size()));
  CHECK(everywhere("") == "");
}

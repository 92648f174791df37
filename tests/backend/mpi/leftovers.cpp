// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What a failed call leaves behind where ranks share no memory: rank 0 gives up early, the others come late, and what
/// the library then still has to deliver must not arrive in buffers that rank 0 uses for something else.
// Covers: <tutti/backend/mpi/backend.hpp> <tutti/backend/mpi/hierarchy.hpp>
// Covers: <tutti/backend/mpi/backend_failure.hpp>
// Covers: <tutti/backend/mpi/backend_job.hpp>

#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>
#include <tutti/comm.hpp>

#include <array>
#include <functional>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

using namespace tutti;

namespace {

using Comm = Communicator<Mpi>;
using Floats = std::span<float>;

struct Operation {
  char const* name;
  std::function<void(Comm&, Floats, Floats, double)> call;
};

/// Every kind of call that writes to buffers. The second buffer holds the first once for each rank.
std::vector<Operation> operations() {
  static constexpr auto smaller = [](float a, float b) { return a < b ? a : b; };
  return {
      {"broadcast", [](Comm& c, Floats x, Floats, double s) { c.broadcast(x, 1, within(s)); }},
      {"all_reduce", [](Comm& c, Floats x, Floats, double s) { c.all_reduce(x, sum, within(s)); }},
      {"all_reduce by a callable", [](Comm& c, Floats x, Floats, double s) { c.all_reduce(x, smaller, within(s)); }},
      {"reduce", [](Comm& c, Floats x, Floats, double s) { c.reduce(x, sum, 0, within(s)); }},
      {"gather", [](Comm& c, Floats x, Floats y, double s) { c.gather(x, y, 0, within(s)); }},
      {"all_gather", [](Comm& c, Floats x, Floats y, double s) { c.all_gather(x, y, within(s)); }},
      {"scatter", [](Comm& c, Floats x, Floats y, double s) { c.scatter(y, x, 1, within(s)); }},
      {"reduce_scatter", [](Comm& c, Floats x, Floats y, double s) { c.reduce_scatter(y, x, sum, within(s)); }},
      {"all_to_all",
       [](Comm& c, Floats, Floats y, double s) {
         auto const half = static_cast<std::ptrdiff_t>(y.size() / 2) / c.size() * c.size();
         c.all_to_all(y.first(static_cast<std::size_t>(half)), y.subspan(static_cast<std::size_t>(half)).first(
                                                                   static_cast<std::size_t>(half)), within(s));
       }},
      {"scan", [](Comm& c, Floats x, Floats, double s) { c.scan(x, sum, within(s)); }},
      {"exscan", [](Comm& c, Floats x, Floats, double s) { c.exscan(x, sum, within(s)); }},
      {"all_reduce_async", [](Comm& c, Floats x, Floats, double s) { c.all_reduce_async(x, sum).wait(within(s)); }},
      {"all_reduce_plan",
       [](Comm& c, Floats x, Floats, double s) {
         auto plan = c.all_reduce_plan(x, sum, within(s));
         plan.start();
         plan.wait();
       }},
      {"group",
       [](Comm& c, Floats x, Floats y, double s) {
         auto group = c.group();
         if (c.rank() == 0) group.recv(x, 1, 1);
         if (c.rank() == 0) group.recv(y.first(x.size()), 1, 2);
         if (c.rank() == 1) group.send(x, 0, 1);
         if (c.rank() == 1) group.send(x, 0, 2);
         static_cast<void>(group.wait(within(s)));
       }},
      {"send_recv",
       [](Comm& c, Floats x, Floats y, double s) {
         if (c.rank() < 2) c.send_recv(x, 1 - c.rank(), y.first(x.size()), 1 - c.rank(), 4, within(s));
       }},
  };
}

void deliver_late(MpiConfig const& config, std::size_t elements) {
  Comm other(Mpi(MPI_COMM_WORLD, config));
  int const ranks = other.size();
  for (auto const& [name, call] : operations()) {
    Comm comm(Mpi(MPI_COMM_WORLD, config), {.deadline_seconds = 1});
    // They stay, so that a late write is seen and harms nobody.
    std::vector<float> x(elements, 1.0f);
    std::vector<float> y(elements * static_cast<std::size_t>(ranks), 1.0f);
    bool failed = false;
    if (comm.rank() != 0) ::usleep(60'000);
    try {
      call(comm, x, y, comm.rank() == 0 ? 0.02 : 1);
    } catch (Error const&) {
      failed = true;
    }
    x.assign(x.size(), 3.0f);
    y.assign(y.size(), 3.0f);
    for (int i = 0; i < 60; ++i) {
      ::usleep(2'000);
      static_cast<void>(other.try_probe(any_source, 77));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    INFO(name << " of " << elements << " floats on rank " << comm.rank() << " of " << ranks);
    if (comm.rank() == 0) CHECK(failed);
    CHECK(x == std::vector<float>(x.size(), 3.0f));
    CHECK(y == std::vector<float>(y.size(), 3.0f));
  }
}

}  // namespace

TEST_CASE("what MPI delivers after a failed call does not arrive in the caller's small buffers") {
  deliver_late({.node_shared = mpi::Switch::off}, 64);
}

TEST_CASE("nor between nodes whose ranks share memory") {
  deliver_late({.node_ranks = mpi::NodeRanks(2)}, 64);
}

TEST_CASE("nor in large buffers, where copy_bytes says so") {
  deliver_late({.node_shared = mpi::Switch::off, .copy_bytes = mpi::CopyLimit(1 << 30)}, 20'000);
  deliver_late({.node_ranks = mpi::NodeRanks(2), .copy_bytes = mpi::CopyLimit(1 << 30)}, 20'000);
}

TEST_CASE("a process whose failed call left MPI a large buffer of the caller does not call MPI again") {
  static std::vector<float> large(500'000);
  auto const lose = [](Comm& comm) {
    if (comm.rank() == 0) REQUIRE_ERROR(comm.send(large, 1, 0, within(0.05)), ErrorKind::timeout, "");
  };
  MPI_Barrier(MPI_COMM_WORLD);
  for (std::int64_t const bytes : {std::int64_t{0}, std::int64_t{1} << 30}) {
    Comm comm(Mpi(MPI_COMM_WORLD, {.copy_bytes = mpi::CopyLimit(bytes)}));
    lose(comm);
    INFO("copy_bytes " << bytes);
    CHECK(!mpi::Environment::closed());
    comm.barrier();
  }
  {
    Comm comm(Mpi(MPI_COMM_WORLD, {.node_shared = mpi::Switch::off}));
    if (comm.rank() == 0) {
      auto sent = comm.send_async(Tensor<float>({500'000}), 1);
      REQUIRE_ERROR(sent.wait(within(0.05)), ErrorKind::timeout, "");
    }
    CHECK(!mpi::Environment::closed());
    comm.barrier();
  }
  Comm comm(Mpi(MPI_COMM_WORLD, {.node_shared = mpi::Switch::off}));
  Comm node = comm.split(0);
  lose(comm);
  if (comm.rank() == 0) {
    CHECK(mpi::Environment::closed());
    char const* const text =
        "send failed on rank 0 and left a buffer of the caller to MPI, which is therefore not called";
    float one[1] = {};
    REQUIRE_ERROR(comm.send(one, 1), ErrorKind::revoked, text);
    REQUIRE_ERROR(node.all_reduce(one, sum), ErrorKind::revoked, text);
    REQUIRE_ERROR(static_cast<void>(node.try_probe()), ErrorKind::revoked, text);
    REQUIRE_ERROR(node.split(0), ErrorKind::revoked, text);
    REQUIRE_ERROR(Comm(Mpi(MPI_COMM_WORLD)), ErrorKind::revoked, text);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The one life of MPI that a process has under the launcher: started by several threads at once, with a configuration,
/// and ended by the last of them.
// Covers: <tutti/backend/mpi/environment.hpp>

#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>

#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;

TEST_CASE("under the launcher threads start MPI together, use it, and the last one ends it") {
  constexpr int threads = 4;
  std::atomic<int> ready{0};
  std::atomic<int> inside{0};
  std::atomic<bool> done{false};
  std::vector<int> levels(threads, -1);
  std::vector<std::thread> team;
  MpiConfig const config{.tuning = "latency", .check_level = mpi::CheckLevel::full};
  for (int t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      ++ready;
      while (ready != threads) std::this_thread::yield();
      mpi::Environment const environment(config);
      levels[static_cast<std::size_t>(t)] = environment.thread_level();
      ++inside;
      while (!done) std::this_thread::yield();
    });
  while (inside != threads) std::this_thread::yield();

  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto const announced = comm::announced_ranks();
  INFO(announced.variable);
  CHECK(announced.ranks == size);
  if (size == 2) {  // one rank on either side
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 0, &between);
    REQUIRE_ERROR(Mpi(between), ErrorKind::invalid_argument, "the communicator is an intercommunicator");
    MPI_Comm_free(&between);
  }
  int sum_of_ranks = -1;
  {
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, config));
    CHECK(comm.backend().config().check_level == mpi::CheckLevel::full);
    // Two threads on this one communicator: the second is refused, and the first one goes on.
    std::string refused;
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over && refused.empty()) try {
          static_cast<void>(comm.try_probe(comm.rank(), 8));
        } catch (Error const& error) {
          refused = error.what();
        }
    });
    std::string waited;
    // Between two calls the other thread may have a turn, which this one would meet.
    for (bool entered = false; !entered;) try {
        static_cast<void>(comm.probe(comm.rank(), 7, within(0.5)));
      } catch (Error const& error) {
        entered = error.kind() == ErrorKind::timeout;
        waited = error.what();
      }
    over = true;
    other.join();
    INFO(refused << " " << waited);
    CHECK(test::contains(refused, "another thread is in probe at start.cpp:"));
    CHECK(test::contains(refused, "duplicate()"));
    CHECK(test::contains(waited, "with tag 7"));
    sum_of_ranks = comm.all_reduce(comm.rank(), sum);
  }
  CHECK(sum_of_ranks == size * (size - 1) / 2);
  for (mpi::Variable const& variable : mpi::Tuning("latency").variables(mpi::family)) {
    char const* const value = std::getenv(variable.name.c_str());
    INFO(variable.name);
    CHECK((value != nullptr && value == variable.value));
  }
  done = true;
  for (auto& thread : team) thread.join();
  for (int level : levels) CHECK(level == MPI_THREAD_MULTIPLE);
  int finalised = 0;
  MPI_Finalized(&finalised);
  CHECK(finalised == 1);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What is MPI's own: its environment, its errors, its counts, its deadlines.
// Covers: <tutti/backend/mpi/calls.hpp>
// Covers: <tutti/backend/mpi/environment.hpp>
// Covers: <tutti/backend/mpi/error.hpp>
// Covers: <tutti/backend/mpi/launch.hpp>

#include "backend/mpi/harness.hpp"

#include <tutti/exec/processors.hpp>

#include <array>
#include <string>
#include <vector>

using namespace tutti;
using test::contains;
using test::on_ranks;

TEST_CASE("an environment inside a program that uses MPI already neither initialises nor finalises it") {
  {
    mpi::Environment const environment;
    CHECK(!environment.owns());
    CHECK(environment.thread_level() >= MPI_THREAD_SINGLE);
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  CHECK(finalized == 0);
  CHECK(!mpi::Environment::library().empty());
  CHECK(!contains(mpi::Environment::library(), "\n"));
}

TEST_CASE("the launcher's number of ranks is read from the environment, and is the world's") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto const announced = mpi::announced_ranks();
  INFO(announced.variable);
  CHECK((announced.ranks == 0 || announced.ranks == size));
}

TEST_CASE("launch<Mpi> gives the largest exit code on every rank") {
  char name[] = "program";
  char* arguments[] = {name, nullptr};
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(launch<Mpi>(1, arguments, [](auto& comm) { return comm.rank() + 3; }) == size + 2);
  CHECK(launch<Mpi>(1, arguments, [](auto& comm) { comm.barrier(); }) == 0);
}

TEST_CASE("MPI's error codes become errors with MPI's text") {
  REQUIRE_ERROR(mpi::check(MPI_ERR_COMM, "MPI_Something"), ErrorKind::communication, "MPI_Something failed");
  REQUIRE_ERROR(mpi::check(MPI_ERR_TRUNCATE, "MPI_Test"), ErrorKind::shape, "more than this rank's buffer");
  try {
    mpi::check(MPI_ERR_COUNT, "MPI_Send");
  } catch (Error const& error) {
    CHECK(error.native() == mpi::error_text(MPI_ERR_COUNT));
    CHECK(!error.native().empty());
  }
}

TEST_CASE("bytes above the limit become one element of a type of that size") {
  for (std::int64_t const bytes : {0, 1, 999, 1000, 1001, 123'456}) {
    mpi::Bytes const b(bytes, 1000);
    MPI_Count size = 0;
    MPI_Type_size_x(b.type(), &size);
    CHECK(b.count() * size == bytes);
    CHECK((bytes <= 1000) == (b.type() == MPI_BYTE));
  }
  REQUIRE_ERROR(Mpi(MPI_COMM_WORLD, {.count_limit = 0}), ErrorKind::configuration, "count limit of 0");
}

TEST_CASE("a message that does not come is an error after the deadline, and the communicator goes on") {
  on_ranks([](auto& comm, laws::Report& report) {
    comm.set_deadline_seconds(0.05);
    laws::expect_error(report, ErrorKind::timeout, "no matching message has arrived", [&] {
      std::array<int, 1> x{};
      comm.recv(x, any_source, 3);
    });
    laws::expect_error(report, ErrorKind::timeout, "no message from any rank with tag 4",
                       [&] { static_cast<void>(comm.match(any_source, 4)); });
    comm.set_deadline_seconds(600);
    report.expect(comm.all_reduce(1, sum) == comm.size(), "the communicator works after a receive was given up");
  });
}

TEST_CASE("a message longer than the buffer is an error on the receiver alone") {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // as an environment does when it initialises MPI itself
  on_ranks([](auto& comm, laws::Report& report) {
    std::vector<int> const sent(100'000, 1);
    auto request = comm.send_async(sent, comm.rank(), 1);
    std::vector<int> received(10);
    try {
      comm.recv(received, comm.rank(), 1);
      report.expect(false, "a truncated message is no success");
    } catch (Error const& error) {
      report.expect(error.kind() == ErrorKind::shape && error.rank() == comm.rank(), error.what());
    }
    request.wait();
  });
}

TEST_CASE("ranks that outnumber the processors yield at once instead of spinning") {
  on_ranks([](auto& comm, laws::Report& report) {
    bool const crowded = comm.local_size() > exec::available_processors();
    report.expect((comm.backend().wait_policy().spins == 0) == crowded, "spinning only while there is room for it");
  });
}

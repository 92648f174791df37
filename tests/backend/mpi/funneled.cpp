// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// With thread level funneled, what other threads destroy: MPI is called by the thread that may call it, and by no
/// other. This program defines calls of MPI, to see who makes them.
// Covers: <tutti/backend/mpi/backend.hpp>
// Covers: <tutti/backend/mpi/thread_guard.hpp>

#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>
#include <tutti/comm.hpp>

#include <mpi.h>
#include <pthread.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;

namespace {

pthread_t const owner = ::pthread_self();
std::atomic<char const*> strayed{nullptr};

void note(char const* call) {
  if (::pthread_equal(owner, ::pthread_self()) == 0) strayed = call;
}

}  // namespace

extern "C" {
int MPI_Comm_free(MPI_Comm* comm) { return note("MPI_Comm_free"), PMPI_Comm_free(comm); }
int MPI_Cancel(MPI_Request* request) { return note("MPI_Cancel"), PMPI_Cancel(request); }
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  return note("MPI_Test"), PMPI_Test(request, done, status);
}
int MPI_Irecv(void* to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  return note("MPI_Irecv"), PMPI_Irecv(to, n, type, from, tag, comm, request);
}
int MPI_Isend(void const* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  return note("MPI_Isend"), PMPI_Isend(from, n, type, to, tag, comm, request);
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  return note("MPI_Iprobe"), PMPI_Iprobe(from, tag, comm, found, status);
}
int MPI_Improbe(int from, int tag, MPI_Comm comm, int* found, MPI_Message* message, MPI_Status* status) {
  return note("MPI_Improbe"), PMPI_Improbe(from, tag, comm, found, message, status);
}
}

TEST_CASE(
    "a request that another thread destroys is handed over to the one that may call MPI, whose next call ends it") {
  mpi::Environment const environment(MpiConfig{.thread_level = mpi::ThreadLevel::funneled});
  std::string wrong;
  for (mpi::Switch const shared : {mpi::Switch::on, mpi::Switch::off}) {
    MpiConfig const config{.thread_level = mpi::ThreadLevel::funneled, .node_shared = shared};
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, config));
    int const right = (comm.rank() + 1) % comm.size(), left = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<float> x(100, 1), y(100), z(100'000, 2), into(100'000);
    auto other = std::optional(comm.duplicate());
    auto borrowed = std::optional(comm.recv_async(y, left, 3));
    auto owned = std::optional(comm.recv_async<float>(left, 4));
    auto sent = std::optional(comm.send_async(z, right, 5));
    auto there = std::optional(other->recv_async<float>(left, 6));
    std::thread([&] {
      borrowed.reset();
      owned.reset();
      sent.reset();
      there.reset();
      other.reset();
      try {
        comm.barrier();
      } catch (Error const& error) {
        if (error.kind() != ErrorKind::invalid_argument) wrong += error.what();
      }
    }).join();
    try {
      comm.barrier();
      comm.send(x, right, 3);  // the receives of both tags are gone
      comm.send(x, right, 4);
      into[0] = comm.recv<float>(left, 4)(0);
      comm.recv(x, left, 3);
      wrong += y[0] == 0 ? "" : "a receive that was destroyed got a message. ";
      comm.recv(into, left, 5);
      wrong += into[99'999] == 2 ? "" : "the message of a request that was destroyed did not arrive. ";
      comm.complete_dropped();  // the send has borrowed z until then
    } catch (Error const& error) {
      wrong += error.what();
    }
  }
  int good = wrong.empty() && strayed == nullptr ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  CHECK(wrong == "");
  CHECK(std::string(strayed == nullptr ? "" : strayed.load()) == "");
  REQUIRE(good == 1);
}

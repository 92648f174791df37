// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The statistics against a count of their own: this program stands between the backend and the MPI library, by the
/// profiling interface, and counts the bytes of every call by the size of its datatype.
// Covers: <tutti/comm/statistics.hpp>

#include "comm/every_operation.hpp"
#include "comm/shared_traffic.hpp"
#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>
#include <tutti/comm/statistics.hpp>

#include <ctime>
#include <set>
#include <string>

using namespace tutti;

namespace {

struct Count {
  std::int64_t messages = 0, sent = 0, received = 0;        // point to point
  std::int64_t collectives = 0, given = 0, gotten = 0;      // non-blocking collectives
  std::int64_t others = 0;                                  // calls that the backend does not make for an operation
};
Count counted;
std::set<MPI_Request> receives;  // under way; what comes may be shorter than their buffers

std::int64_t bytes_of(std::int64_t n, MPI_Datatype type) {
  MPI_Count size = 0;
  PMPI_Type_size_x(type, &size);
  return n * static_cast<std::int64_t>(size);
}
int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}
bool is_rank(MPI_Comm comm, int rank) {
  int own = 0;
  PMPI_Comm_rank(comm, &own);
  return own == rank;
}
void give(std::int64_t bytes) {
  ++counted.collectives;
  counted.given += bytes;
}

}  // namespace

/// The calls with one type of counts; C is what their names end with.
#define TUTTI_COUNTED_CALLS(N, C)                                                                                      \
  int MPI_Isend##C(void const* p, N n, MPI_Datatype t, int to, int tag, MPI_Comm comm, MPI_Request* request) {         \
    ++counted.messages;                                                                                                \
    counted.sent += bytes_of(n, t);                                                                                    \
    return PMPI_Isend##C(p, n, t, to, tag, comm, request);                                                             \
  }                                                                                                                    \
  int MPI_Irecv##C(void* p, N n, MPI_Datatype t, int from, int tag, MPI_Comm comm, MPI_Request* request) {             \
    int const code = PMPI_Irecv##C(p, n, t, from, tag, comm, request);                                                 \
    receives.insert(*request);                                                                                         \
    return code;                                                                                                       \
  }                                                                                                                    \
  int MPI_Imrecv##C(void* p, N n, MPI_Datatype t, MPI_Message* message, MPI_Request* request) {                        \
    ++counted.messages;                                                                                                \
    counted.received += bytes_of(n, t);                                                                                \
    return PMPI_Imrecv##C(p, n, t, message, request);                                                                  \
  }                                                                                                                    \
  int MPI_Ibcast##C(void* p, N n, MPI_Datatype t, int root, MPI_Comm comm, MPI_Request* request) {                     \
    give(is_rank(comm, root) ? bytes_of(n, t) : 0);                                                                    \
    if (!is_rank(comm, root)) counted.gotten += bytes_of(n, t);                                                        \
    return PMPI_Ibcast##C(p, n, t, root, comm, request);                                                               \
  }                                                                                                                    \
  int MPI_Igather##C(void const* from, N n, MPI_Datatype t, void* to, N m, MPI_Datatype u, int root, MPI_Comm comm,    \
                     MPI_Request* request) {                                                                           \
    give(from == MPI_IN_PLACE ? bytes_of(m, u) : bytes_of(n, t));                                                      \
    if (is_rank(comm, root)) counted.gotten += bytes_of(m, u) * size_of(comm);                                         \
    return PMPI_Igather##C(from, n, t, to, m, u, root, comm, request);                                                 \
  }                                                                                                                    \
  int MPI_Iallgather##C(void const* from, N n, MPI_Datatype t, void* to, N m, MPI_Datatype u, MPI_Comm comm,           \
                        MPI_Request* request) {                                                                        \
    give(from == MPI_IN_PLACE ? bytes_of(m, u) : bytes_of(n, t));                                                      \
    counted.gotten += bytes_of(m, u) * size_of(comm);                                                                  \
    return PMPI_Iallgather##C(from, n, t, to, m, u, comm, request);                                                    \
  }                                                                                                                    \
  int MPI_Iscatter##C(void const* from, N n, MPI_Datatype t, void* to, N m, MPI_Datatype u, int root, MPI_Comm comm,   \
                      MPI_Request* request) {                                                                          \
    give(is_rank(comm, root) ? bytes_of(n, t) * size_of(comm) : 0);                                                    \
    counted.gotten += to == MPI_IN_PLACE ? bytes_of(n, t) : bytes_of(m, u);                                            \
    return PMPI_Iscatter##C(from, n, t, to, m, u, root, comm, request);                                                \
  }                                                                                                                    \
  int MPI_Ialltoall##C(void const* from, N n, MPI_Datatype t, void* to, N m, MPI_Datatype u, MPI_Comm comm,            \
                       MPI_Request* request) {                                                                         \
    give(bytes_of(n, t) * size_of(comm));                                                                              \
    counted.gotten += bytes_of(m, u) * size_of(comm);                                                                  \
    return PMPI_Ialltoall##C(from, n, t, to, m, u, comm, request);                                                     \
  }                                                                                                                    \
  int MPI_Ireduce##C(void const* from, void* to, N n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm comm,              \
                     MPI_Request* request) {                                                                           \
    give(bytes_of(n, t));                                                                                              \
    if (is_rank(comm, root)) counted.gotten += bytes_of(n, t);                                                         \
    return PMPI_Ireduce##C(from, to, n, t, op, root, comm, request);                                                   \
  }                                                                                                                    \
  int MPI_Iallreduce##C(void const* from, void* to, N n, MPI_Datatype t, MPI_Op op, MPI_Comm comm,                     \
                        MPI_Request* request) {                                                                        \
    give(bytes_of(n, t));                                                                                              \
    counted.gotten += bytes_of(n, t);                                                                                  \
    return PMPI_Iallreduce##C(from, to, n, t, op, comm, request);                                                      \
  }                                                                                                                    \
  int MPI_Ireduce_scatter_block##C(void const* from, void* to, N n, MPI_Datatype t, MPI_Op op, MPI_Comm comm,          \
                                   MPI_Request* request) {                                                             \
    give(bytes_of(n, t) * size_of(comm));                                                                              \
    counted.gotten += bytes_of(n, t);                                                                                  \
    return PMPI_Ireduce_scatter_block##C(from, to, n, t, op, comm, request);                                           \
  }

extern "C" {
TUTTI_COUNTED_CALLS(int, )
#if MPI_VERSION >= 4
TUTTI_COUNTED_CALLS(MPI_Count, _c)
#endif
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  give(0);
  return PMPI_Ibarrier(comm, request);
}
int MPI_Recv(void* p, int n, MPI_Datatype t, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  ++counted.messages;
  counted.received += bytes_of(n, t);
  return PMPI_Recv(p, n, t, from, tag, comm, status);
}
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  auto const receive = receives.find(*request);
  if (receive == receives.end()) return PMPI_Test(request, flag, status);
  MPI_Status own;
  int const code = PMPI_Test(request, flag, &own);
  if (status != MPI_STATUS_IGNORE) *status = own;
  if (code != MPI_SUCCESS || *flag == 0) return code;
  int cancelled = 0;
  PMPI_Test_cancelled(&own, &cancelled);
  MPI_Count bytes = 0;
  PMPI_Get_elements_x(&own, MPI_BYTE, &bytes);
  if (cancelled == 0) {
    ++counted.messages;
    counted.received += bytes;
  }
  receives.erase(receive);
  return code;
}
int MPI_Send(void const* p, int n, MPI_Datatype t, int to, int tag, MPI_Comm comm) {
  ++counted.others;
  return PMPI_Send(p, n, t, to, tag, comm);
}
int MPI_Allreduce(void const* from, void* to, int n, MPI_Datatype t, MPI_Op op, MPI_Comm comm) {
  ++counted.others;
  return PMPI_Allreduce(from, to, n, t, op, comm);
}
int MPI_Bcast(void* p, int n, MPI_Datatype t, int root, MPI_Comm comm) {
  ++counted.others;
  return PMPI_Bcast(p, n, t, root, comm);
}
int MPI_Barrier(MPI_Comm comm) {
  ++counted.others;
  return PMPI_Barrier(comm);
}
}

namespace {

/// What the statistics say of all operations, as the program above counts it: it does not see messages of ranks that
/// share memory.
Count told(Statistics const& statistics, bool messages = true) {
  Count count{statistics.notices.operations, statistics.notices.sent, statistics.notices.received, 0, 0, 0, 0};
  for (OperationStatistics const& one : statistics.operations) {
    for (auto const algorithm : {comm::Algorithm::messages, comm::Algorithm::comparison, comm::Algorithm::exchange}) {
      if (!messages) break;
      count.messages += one.by(algorithm).operations;
      count.sent += one.by(algorithm).sent;
      count.received += one.by(algorithm).received;
    }
    count.collectives += one.by(comm::Algorithm::library).operations;
    count.given += one.by(comm::Algorithm::library).sent;
    count.gotten += one.by(comm::Algorithm::library).received;
  }
  return count;
}
/// Empty when both are the same. Of a collective in several parts only the bytes are.
std::string difference(Count const& said, Count const& is, bool in_parts) {
  std::string text;
  auto const compare = [&](char const* what, std::int64_t a, std::int64_t b) {
    if (a != b) text += std::string(what) + ": said " + std::to_string(a) + ", is " + std::to_string(b) + "; ";
  };
  compare("messages", said.messages, is.messages);
  compare("sent", said.sent, is.sent);
  compare("received", said.received, is.received);
  if (!in_parts) compare("collectives", said.collectives, is.collectives);
  compare("given", said.given, is.given);
  compare("gotten", said.gotten, is.gotten);
  compare("other calls", 0, is.others);
  return text;
}

MpiConfig const library{.node_shared = mpi::Switch::off};
MpiConfig const in_parts{.check_level = comm::CheckLevel::full,
                         .node_shared = mpi::Switch::off,
                         .count_limit = std::int64_t{1000}};
MpiConfig const shared{.node_shared = mpi::Switch::on, .staging_bytes = std::int64_t{4096}};
MpiConfig const divided{.node_shared = mpi::Switch::on, .node_ranks = mpi::NodeRanks{2}};

void all_true(bool mine, std::string const& text) {
  int const bad = mine ? 0 : 1;
  int any = 0;
  PMPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  INFO("this rank: " << text);
  CHECK(mine);
  REQUIRE(any == 0);
}

}  // namespace

TEST_CASE("statistics of every operation are what an interposer counts, byte for byte") {
  std::string text;
  int seen = 0;
  for (MpiConfig const& config : {library, in_parts, shared, divided})
    for (std::int64_t const n : {0, 1, 37, 2500, 70000}) {
      Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, config));
      bool const several_nodes = config.node_ranks->count != 0 && comm.size() > config.node_ranks->count;
      bool const by_library = config.node_shared == mpi::Switch::off || several_nodes;
      comm.start_statistics();
      counted = {};
      test::for_each_operation(comm, n, [&](std::string const& name, auto&& operation) {
        auto const calls = [&] {
          Statistics const statistics = comm.statistics();
          auto const* const one = statistics.find(name);
          return one == nullptr ? 0 : one->calls;
        };
        std::int64_t const before = calls();
        operation();
        ++seen;
        std::string wrong = difference(told(comm.statistics(), by_library), counted, config.count_limit == 1000);
        if (calls() != before + 1) wrong += "the call was not counted";
        if (!wrong.empty()) text += name + " of " + std::to_string(n) + ": " + wrong + "\n";
      });
      bool const busy = (counted.sent > 0 && counted.received > 0 && counted.given > 0) == by_library;
      bool const large = n > 1024;  // the library gets nothing that is exchanged
      if (large && !busy) text += "the interposer has not seen what it must see\n";
    }
  all_true(text.empty() && seen > 0, text);
}

TEST_CASE("announcements of ranks that wait long are counted as notices") {
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, library));
  comm.start_statistics();
  counted = {};
  if (comm.rank() == 0) {
    timespec const late{0, 400'000'000};
    ::nanosleep(&late, nullptr);
  }
  comm.barrier();
  Statistics const mine = comm.statistics();
  std::string const wrong = difference(told(mine), counted, false);
  bool const announced = comm.rank() == 0 || mine.notices.sent > 0;
  all_true(wrong.empty() && announced, wrong + (announced ? "" : "nothing was announced"));
  Statistics const all = comm::reduced(comm, mine);
  CHECK(all.notices.operations >= (comm.size() == 1 ? 0 : comm.size() - 1));
}

TEST_CASE("collectives of MPI ranks on shared memory move what their paths have to") {
  std::string text;
  int seen = 0;
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, shared));
  for (bool const reachable : {true, false})
    seen += test::compare_shared_traffic(comm, {.reachable = reachable, .readable = comm.backend().reads_memory(),
                                                 .stage_bytes = 4096}, text);
  all_true(text.empty() && seen > 0, text);
}

TEST_CASE("statistics of all ranks are the same on every rank") {
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, library), {.statistics = true});
  std::vector<float> x(10000);
  comm.all_reduce(x, sum);
  Statistics const all = comm::reduced(comm, comm.statistics());
  std::int64_t const ranks = comm.size();
  OperationStatistics const* const one = all.find("all_reduce");
  bool const good = all.rank == -1 && all.ranks == ranks && one != nullptr && one->calls == ranks &&
                    one->bytes == 40000 * ranks && one->by(comm::Algorithm::library).sent == 40000 * ranks;
  all_true(good, comm::to_json(all));
}

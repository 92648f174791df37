// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Memory that the ranks of a node share: what one rank writes the others see, it comes back when it is freed, and it
/// outlives its communicator. What ranks that share none tell each other.
// Covers: <tutti/backend/mpi/node_memory.hpp>
// Covers: <tutti/backend/mpi/segment.hpp>
// Covers: <tutti/backend/mpi/notices.hpp>

#include "backend/mpi/world.hpp"
#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using namespace tutti;
using test::contains;
using test::world_rank;
using test::world_size;

namespace {

/// Whether `holds` on every rank; all ranks call it.
bool everywhere(bool holds) {
  int good = holds ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return good != 0;
}

void pause_ms(int ms) {
  timespec const time{ms / 1000, (ms % 1000) * 1'000'000L};
  ::nanosleep(&time, nullptr);
}

}  // namespace

TEST_CASE("what a rank writes to its portion, the others see at the same offset") {
  std::string reason;
  auto const segment = mpi::Segment::create(MPI_COMM_WORLD, reason);
  INFO(reason);
  REQUIRE(everywhere(segment != nullptr));
  int const size = world_size();
  std::byte* const memory = segment->allocate(100'000);
  REQUIRE(everywhere(memory != nullptr));
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0);
  std::fill_n(memory, 100'000, static_cast<std::byte>(world_rank() + 1));
  std::int64_t const place = memory - segment->base();
  std::vector<std::int64_t> places(static_cast<std::size_t>(size));
  MPI_Allgather(&place, 1, MPI_INT64_T, places.data(), 1, MPI_INT64_T, MPI_COMM_WORLD);
  bool seen = true;
  for (int r = 0; r < size; ++r) {
    std::byte const* const theirs = segment->base() + places[static_cast<std::size_t>(r)];
    seen =
        seen && std::all_of(theirs, theirs + 100'000, [&](std::byte b) { return b == static_cast<std::byte>(r + 1); });
  }
  CHECK(everywhere(seen));
  segment->release(memory, 100'000);
  CHECK(segment->allocate(100'000) == memory);  // free again, and found again
}

TEST_CASE("memory grows over many huge pages, is zero, and everybody's") {
  std::string reason;
  auto const segment = mpi::Segment::create(MPI_COMM_WORLD, reason);
  REQUIRE(everywhere(segment != nullptr));
  CHECK(reinterpret_cast<std::uintptr_t>(segment->base()) % (2 << 20) == 0);
  int const rank = world_rank();
  int const ranks = world_size();
  std::int64_t constexpr bytes = 3 << 20;  // whose ends lie within huge pages
  for (int round = 0; round < 3; ++round) {
    std::byte* const memory = segment->allocate(bytes);
    REQUIRE(everywhere(memory != nullptr));
    std::int64_t set = 0;
    for (std::int64_t i = 0; i < bytes; ++i) set += memory[i] != std::byte{0};
    CHECK(set == 0);
    std::memset(memory, 1 + rank + round, bytes);
    std::int64_t place = memory - segment->base();
    std::vector<std::int64_t> places(static_cast<std::size_t>(ranks));
    MPI_Allgather(&place, 1, MPI_INT64_T, places.data(), 1, MPI_INT64_T, MPI_COMM_WORLD);
    std::int64_t wrong = 0;
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t i = 0; i < bytes; i += 1000)
        wrong += segment->base()[places[static_cast<std::size_t>(r)] + i] != static_cast<std::byte>(1 + r + round);
    CHECK(wrong == 0);
    CHECK(everywhere(true));
  }
}

TEST_CASE("more memory than there is gets null and changes nothing") {
  std::string reason;
  auto const segment = mpi::Segment::create(MPI_COMM_WORLD, reason);
  REQUIRE(everywhere(segment != nullptr));
  CHECK(segment->allocate(~std::uint64_t{0} - 1'000'000) == nullptr);
  CHECK(segment->allocate(std::uint64_t{1} << 45) == nullptr);
  CHECK(segment->allocate(64) != nullptr);
  CHECK(everywhere(true));
}

TEST_CASE("a tensor of a communicator's heap outlives the communicator") {
  Tensor<float> kept;
  {
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, {.node_shared = mpi::Switch::on}));
    CHECK((comm.size() == 1 || comm.heap().shared()));
    kept = tensor<float>(comm, Shape{1000});
    kept.fill(static_cast<float>(comm.rank() + 1));
    comm.all_reduce(kept, sum);
  }
  float const total = static_cast<float>(world_size() * (world_size() + 1) / 2);
  CHECK(everywhere(kept(0) == total && kept(999) == total));
}

TEST_CASE("the boards of communicators that are gone are used again") {
  Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, {.node_shared = mpi::Switch::on}));
  auto const place_of_board = [&] {
    auto child = comm.duplicate();
    auto const marker = tensor<std::byte>(child, Shape{64});
    child.barrier();
    return marker.data();
  };
  auto const* const first = place_of_board();
  bool same = true;
  for (int i = 0; i < 50; ++i) {
    comm.barrier();
    same = same && place_of_board() - first < 64 << 20;  // fifty boards that were kept would lie far apart
  }
  CHECK(everywhere(same));
}

TEST_CASE("notices tell where ranks wait and why a communicator was revoked") {
  if (world_size() == 1) {
    SUCCEED("one rank has nobody to tell");
    return;
  }
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  {
    mpi::Notices notices(comm, world_rank(), world_size());
    auto const roll_call = [&](std::uint64_t number) {
      return notices.roll_call(number, [&](int rank) { return notices.place(rank); });
    };
    CHECK(!notices.poll());
    CHECK(contains(roll_call(0), "missing: "));
    if (world_rank() == 1) notices.tell_position("barrier at app.cpp:12", 5);
    MPI_Barrier(comm);
    pause_ms(20);
    CHECK(!notices.poll());
    if (world_rank() != 1) {
      CHECK(notices.place(1) == "barrier at app.cpp:12");
      std::string const arrived = roll_call(4);
      INFO(arrived);
      CHECK((world_size() == 2 ? arrived == "all ranks have arrived, not all have finished"
                               : contains(arrived.substr(0, arrived.find(';')), "1")));
      std::string const missing = roll_call(5);
      CHECK(contains(missing.substr(missing.find(';')), "1 (barrier at app.cpp:12)"));
    }
    MPI_Barrier(comm);
    if (world_rank() == 0) notices.tell_revoked(ErrorKind::timeout, "rank 0 has had enough");
    MPI_Barrier(comm);
    pause_ms(20);
    bool const revoked = notices.poll();
    CHECK(everywhere(world_rank() == 0 ? !revoked
                                       : revoked && notices.cause_kind() == ErrorKind::timeout &&
                                             notices.cause_text() == "rank 0 has had enough"));
  }
  MPI_Comm_free(&comm);
}

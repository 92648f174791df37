// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// MPI datatypes of structs, in MPI's own calls.
// Covers: <tutti/backend/mpi/at_finalize.hpp>

#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>
#include <tutti/backend/mpi/datatype.hpp>

#include <complex>
#include <cstring>

using namespace tutti;

namespace {

enum class Phase : std::uint8_t { solid, liquid };
struct Cell {
  BOOST_HANA_DEFINE_STRUCT(Cell, (char, letter), (double, value));
};
struct Atom {
  BOOST_HANA_DEFINE_STRUCT(Atom, (std::int8_t, charge), (std::array<Cell, 2>, cells), (bfloat16, mass),
                           (std::complex<float>, spin), (Phase, phase));
};

}  // namespace

TEST_CASE("structs travel between raw MPI calls, and their padding stays as it was") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Datatype const type = mpi::datatype<Atom>();
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lower, &extent);
  CHECK(bytes == comm::wire_bytes<Atom>());
  CHECK(extent == static_cast<MPI_Aint>(sizeof(Atom)));
  CHECK(mpi::datatype<Atom>() == type);
  CHECK(mpi::datatype<float>() == MPI_FLOAT);

  Atom sent[3];
  std::memset(static_cast<void*>(sent), 0x11, sizeof sent);
  Atom received[3];
  std::memset(static_cast<void*>(received), 0x22, sizeof received);
  for (int i = 0; i < 3; ++i) {
    sent[i].charge = static_cast<std::int8_t>(rank);
    sent[i].cells[0] = {'x', 1.5 * i};
    sent[i].cells[1].letter = 'y';
    sent[i].cells[1].value = rank;
    sent[i].mass = bfloat16(3.0f);
    sent[i].spin = {1.0f, static_cast<float>(i)};
    sent[i].phase = Phase::liquid;
  }
  int const next = (rank + 1) % size;
  int const last = (rank + size - 1) % size;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(sent, 3, type, next, 0, MPI_COMM_WORLD, &request);
  MPI_Recv(received, 3, type, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);

  Atom expected[3];  // the same members over the same padding
  std::memset(static_cast<void*>(expected), 0x22, sizeof expected);
  std::byte wire[static_cast<std::size_t>(comm::wire_bytes<Atom>())];
  for (int i = 0; i < 3; ++i) {
    sent[i].charge = static_cast<std::int8_t>(last);
    sent[i].cells[1].value = last;
    comm::pack(sent[i], wire);
    comm::unpack(wire, expected[i]);
  }
  int const same = std::memcmp(received, expected, sizeof received) == 0 ? 1 : 0;
  int all = 0;
  MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  CHECK(same == 1);
  REQUIRE(all == 1);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/backend/mpi/eager.hpp>
#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/backend/mpi/eager.hpp>
#include <tutti/backend/mpi/tuning.hpp>

#include <filesystem>
#include <string>

using namespace tutti;
using mpi::Family;
using mpi::Tuning;

TEST_CASE("the named tunings set variables of the library in question, or none") {
  CHECK(Tuning().text() == "auto");
  for (char const* name : {"auto", "library"}) {
    CHECK(Tuning(name).valid());
    CHECK(Tuning(name).variables(Family::mpich).empty());
  }
  for (char const* name : {"latency", "bandwidth"}) {
    CHECK(Tuning(name).valid());
    CHECK(Tuning(name).variables(Family::other).empty());
    for (Family const family : {Family::mpich, Family::open_mpi}) {
      auto const variables = Tuning(name).variables(family);
      CHECK(variables.size() >= 3);
      for (mpi::Variable const& variable : variables) CHECK(Tuning::reader(variable.name) == family);
    }
  }
}

TEST_CASE("Messages over TCP need not be asked for, where UCX sends them and the tuning leaves it to us") {
  std::string const ucx = "MPICH Version: 4.0.2 MPICH Device: ch4:ucx", later = "MPICH Version: 4.2.1 Device: ch4:ucx";
  std::string const other = "MPICH Version: 4.0.2 MPICH Device: ch4:ofi";
  CHECK(mpi::strands_late_ranks(ucx));
  CHECK(!mpi::strands_late_ranks(later));
  CHECK(!mpi::strands_late_ranks(other));
  CHECK(!mpi::strands_late_ranks("Open MPI v4.1.4"));
  auto const set = mpi::eager_variables(ucx, true, 64);
  REQUIRE(set.size() == 1);
  CHECK(set[0].name + "=" + set[0].value == "UCX_RNDV_THRESH=16m");
  CHECK(mpi::eager_variables(later, true, 65).size() == 1);
  CHECK(mpi::eager_variables(ucx, true, 65).empty());
  CHECK(mpi::eager_variables(ucx, false, 4).empty());
  CHECK(mpi::eager_variables(other, true, 4).empty());
  for (char const* name : {"auto", "latency", "bandwidth"}) CHECK(Tuning(name).suits_network());
  for (char const* name : {"library", "MPIR_CVAR_A=1"}) CHECK(!Tuning(name).suits_network());
}

TEST_CASE("Messages go over TCP where the launcher says that there are other nodes, and no device of RDMA is here") {
  bool const tcp = !mpi::has_entries("/sys/class/infiniband");
  auto const reaches = [](test::Variables const& variables) {
    return test::in_child(variables, [] { return std::string(mpi::reaches_nodes_by_tcp() ? "tcp" : "no"); });
  };
  CHECK(reaches({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}) == (tcp ? "tcp" : "no"));
  CHECK(reaches({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}}) == "no");
  CHECK(reaches({{"PMI_SIZE", "4"}}) == "no");  // nobody says where they are
  auto const folder = std::filesystem::temp_directory_path() / "tutti-no-such-folder";
  CHECK(!mpi::has_entries(folder.c_str()));
  CHECK(mpi::has_entries("/proc/self"));
}

TEST_CASE("a list is taken apart at spaces and at the first sign of equality") {
  auto const list = Tuning("  MPIR_CVAR_A=1   OMPI_MCA_btl=self,vader=x ").variables(Family::mpich);
  REQUIRE(list.size() == 2);
  CHECK(list[0].name + "|" + list[0].value == "MPIR_CVAR_A|1");
  CHECK(list[1].name + "|" + list[1].value == "OMPI_MCA_btl|self,vader=x");
  CHECK(Tuning("MPIR_CVAR_A=1").valid());
  for (char const* text :
       {"", " ", "MPIR_CVAR_A", "MPIR_CVAR_A=", "MPIR_CVAR_=1", "=1", "LD_PRELOAD=x", "MPIR_CVAR_A=1 b"})
    CHECK(!Tuning(text).valid());
}

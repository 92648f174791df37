// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/backend/mpi/tuning.hpp>

#include <string>

using namespace tutti;
using mpi::Family;
using mpi::Tuning;

TEST_CASE("the named tunings set variables of the library in question, or none") {
  CHECK(Tuning().variables(Family::mpich).empty());
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

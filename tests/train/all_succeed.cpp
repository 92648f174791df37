// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/train/all_succeed.hpp>

#include <array>
#include <stdexcept>

using namespace tutti;

TEST_CASE("when a function throws on any rank, every rank learns it, and each has tried") {
  for (int ranks : {1, 2, 3, 4})
    for (int failing = 0; failing < 1 << ranks; ++failing) {
      std::array<bool, 4> tried{}, succeeded{};
      threads::run(ranks, [&](Communicator<Threads>& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        auto const port = comm::port(communicator);
        succeeded[rank] = train::all_succeed(*port, [&] {
          tried[rank] = true;
          if ((failing >> rank & 1) != 0) throw std::runtime_error("on purpose");
        });
      });
      INFO(ranks << " ranks, failing ones " << failing);
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        CHECK(tried[rank]);
        CHECK(succeeded[rank] == (failing == 0));
      }
    }
}

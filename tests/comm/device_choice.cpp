// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/device_choice.hpp>

#include <array>
#include <string>
#include <vector>

using namespace tutti;

TEST_CASE("every rank of a node gets a device, and sharers are counted right for every number of ranks and devices") {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int devices = 1; devices <= 9; ++devices) {
      std::vector<int> load(static_cast<std::size_t>(devices));
      for (int r = 0; r < ranks; ++r) ++load[static_cast<std::size_t>(device_of(r, ranks, devices).device)];
      for (int r = 0; r < ranks; ++r) {
        DeviceChoice const choice = device_of(r, ranks, devices);
        CHECK(choice.sharers == load[static_cast<std::size_t>(choice.device)]);
        CHECK(choice.shared() == (choice.sharers > 1));
      }
      for (int const count : load) CHECK((count == ranks / devices || count == ranks / devices + 1));
    }
}

TEST_CASE("sharing is reported in words") {
  CHECK(to_string(device_of(1, 2, 4)) == "device 1");
  CHECK(to_string(device_of(3, 4, 3)) == "device 0, shared by 2 ranks");
}

TEST_CASE("a node without devices is an error with a way out") {
  REQUIRE_ERROR(device_of(0, 1, 0), ErrorKind::unavailable, "the node of local rank 0 has no device");
  REQUIRE_ERROR(device_of(0, 1, -1), ErrorKind::unavailable, "CUDA_VISIBLE_DEVICES");
  REQUIRE_ERROR(device_of(2, 2, 1), ErrorKind::invalid_argument, "local rank 2 of 2 does not exist");
}

TEST_CASE("ranks of a communicator take devices by their place on the node") {
  std::array<int, 3> devices{-1, -1, -1};
  threads::run(3, [&](auto& comm) {
    devices[static_cast<std::size_t>(comm.rank())] = device_of(comm, 2).device;
  });
  CHECK(devices == std::array<int, 3>{0, 1, 0});
}

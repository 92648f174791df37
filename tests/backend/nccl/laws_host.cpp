// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What a communicator of GPUs does in host memory, where the other laws hold as they stand.

#include "backend/nccl/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEST_CASE("Nccl conforms to every law in host memory") {
  on_ranks([](auto& comm, laws::Report& report) { laws::conform(comm, report); }, {},
           2);  // four are the host's own test
}

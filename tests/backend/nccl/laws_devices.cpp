// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Every operation on device memory gives what it gives in host memory, whether NCCL makes it or the host does.

#include "backend/nccl/harness.hpp"

#include <tutti/testing/laws/devices.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Nccl runs collectives on device memory as on the host's", "", float, std::int16_t) {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_collectives<Cuda, TestType>(comm, report); });
}

TEST_CASE("Nccl sums 16-bit floats where it is asked to") {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_collectives<Cuda, bfloat16>(comm, report); },
           {.narrow_sums = true});
}

TEMPLATE_TEST_CASE("Nccl reduces what it has on the device and the rest through the host", "", bool, std::int8_t,
                   std::uint16_t, std::int64_t, bfloat16, float) {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_reductions<Cuda, TestType>(comm, report); });
}

TEST_CASE("Nccl takes views, structs and several calls at once on device memory") {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_forms<Cuda>(comm, report); });
}

TEMPLATE_TEST_CASE("Nccl moves blocks of different sizes in device memory", "", std::uint8_t, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_vectors<Cuda, TestType>(comm, report); });
}

TEST_CASE("Nccl sends from and to device memory") {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_messages<Cuda, float>(comm, report); });
}

TEST_CASE("Nccl takes one buffer on a device and one in host memory") {
  on_ranks([](auto& comm, laws::Report& report) { laws::device_mixtures<Cuda>(comm, report); });
}

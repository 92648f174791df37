// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A collective call as text and as numbers.

#include "support/catch.hpp"

#include <tutti/comm/collective.hpp>

using namespace tutti;
using test::contains;

TEST_CASE("a call is described by what ranks must agree on, and by its place") {
  comm::Collective call;
  call.where = std::source_location::current();
  CHECK(contains(comm::describe(call), "barrier() at collective.cpp:"));
  call.kind = comm::Kind::reduce;
  call.reduction.op = Operator::max;
  call.root = 2;
  call.dtype = DType::bfloat16;
  call.count = 77;
  CHECK(contains(comm::describe(call), "reduce(max, root 2, bfloat16, count 77) at "));
  CHECK(call.block_bytes() == 154);
}

TEST_CASE("a call with a block size for each rank lists the sizes, of many ranks the first seven") {
  comm::Collective call;
  call.kind = comm::Kind::all_to_all_v;
  call.dtype = DType::float32;
  std::int64_t const sent[] = {3, 4, 0};
  std::int64_t const received[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  call.from_counts = sent;
  CHECK(contains(comm::describe(call), "all_to_all_v(float32, from 3 + 4 + 0) at "));
  call.to_counts = received;
  CHECK(contains(comm::describe(call), "to 1 + 1 + 1 + 1 + 1 + 1 + 1 + ...) at "));
}

TEST_CASE("every kind has a name, and seven of them reduce") {
  int reducing = 0;
  for (int kind = 0; kind < comm::kind_count; ++kind) {
    CHECK(comm::name(static_cast<comm::Kind>(kind)) != "unknown");
    reducing += comm::reduces(static_cast<comm::Kind>(kind));
  }
  CHECK(reducing == 7);
}

TEST_CASE("a message counts whole elements") {
  MessageInfo const info{0, 0, 11};
  CHECK(info.count<float>() == 2);
  CHECK(info.count<char>() == 11);
}

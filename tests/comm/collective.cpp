// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A collective call as text and as numbers.
// Covers: <tutti/comm/collective.hpp>

#include "support/catch.hpp"

#include <tutti/comm/collective_facts.hpp>
#include <tutti/comm/collective_text.hpp>

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

TEST_CASE("a call with a block size for each rank lists the sizes, of many ranks the first fifteen") {
  comm::Collective call;
  call.kind = comm::Kind::all_to_all_v;
  call.dtype = DType::float32;
  std::int64_t const sent[] = {3, 4, 0};
  std::int64_t received[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  call.from_counts = sent;
  CHECK(contains(comm::describe(call), "all_to_all_v(float32, from 3 + 4 + 0) at "));
  call.to_counts = received;
  std::string const many = comm::describe(call);
  CHECK(contains(many, "to 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + ... #"));
  received[16] = 2;  // the others have a number, so that a difference shows
  CHECK(comm::describe(call) != many);
  call.to_counts = {};
  std::int64_t const halves[] = {6, 0, 2};
  call.from_counts = halves;
  call.layout = comm::complex_layout;  // two floats an element
  CHECK(contains(comm::describe(call), "all_to_all_v(complex float32, from 3 + 0 + 1) at "));
}

TEST_CASE("structs, complex numbers, device memory and what a call is made for are told") {
  comm::Collective call;
  call.kind = comm::Kind::all_gather;
  call.dtype = DType::float32;
  call.count = 8;
  call.layout = comm::complex_layout;
  CHECK(contains(comm::describe(call), "all_gather(complex float32, count 4) at "));
  call.staged_count = 80;
  CHECK(contains(comm::describe(call), "all_gather(complex float32, count 40 in device memory) at "));
  call.staged_count = -1;
  call.dtype = DType::byte;
  call.layout = 77;
  CHECK(contains(comm::describe(call), "all_gather(structs #77, 8 bytes) at "));
  call.purpose = comm::Purpose::counts;
  CHECK(contains(comm::describe(call), "all_gather_v(counts to be found, elements #77) at "));
  call.purpose = comm::Purpose::split;
  CHECK(contains(comm::describe(call), "split() at "));
  call.kind = comm::Kind::all_reduce;
  call.purpose = comm::Purpose::itself;
  call.reduction.op = Operator::callable;
  call.compound_bytes = 24;
  CHECK(contains(comm::describe(call), "all_reduce(callable, 24-byte structs #77, count 8) at "));
  call.compound_bytes = 320;  // too large for what travels
  CHECK(contains(comm::describe(comm::call_of(comm::facts_of(call), comm::compared_count(call))),
                 "all_reduce(callable, structs #77, count 8) at "));
}

TEST_CASE("what is compared comes back from its two numbers") {
  comm::Collective call;
  call.kind = comm::Kind::reduce;
  call.dtype = DType::float64;
  call.reduction.op = Operator::max_location;
  call.compound_bytes = 200;
  call.layout = comm::layouts - 1;
  call.purpose = comm::Purpose::counts;
  call.count = 5;
  call.staged_count = std::int64_t{1} << 40;
  for (int const root : {-1, 0, 12345, 4'000'000}) {
    call.root = root;
    comm::Collective const found = comm::call_of(comm::facts_of(call), comm::compared_count(call));
    CHECK(found.kind == call.kind);
    CHECK(found.dtype == call.dtype);
    CHECK(found.reduction.op == call.reduction.op);
    CHECK(found.compound_bytes == call.compound_bytes);
    CHECK(found.layout == call.layout);
    CHECK(found.purpose == call.purpose);
    CHECK(found.staged_count == call.staged_count);
    CHECK(found.root == root);
  }
  call.kind = comm::Kind::all_reduce_contributions;
  call.contributions = 77;
  CHECK(comm::call_of(comm::facts_of(call), comm::compared_count(call)).contributions == 77);
  call.contributions += std::int64_t{3} << 22;  // as many as facts alone do not tell
  CHECK(comm::call_of(comm::facts_of(call), comm::compared_count(call)).contributions == (3 << 22) + 77);
  CHECK(comm::call_of(comm::facts_of(call), comm::compared_count(call)).staged_count == call.staged_count);
  call.reduction.op = Operator::callable;
  call.reduction.callable = 1023;
  comm::Collective const found = comm::call_of(comm::facts_of(call), comm::compared_count(call));
  CHECK(found.contributions == (3 << 22) + 77);
  CHECK(found.reduction.callable == 1023);
  CHECK(found.staged_count == call.staged_count);
  call.kind = comm::Kind::reduce;
  call.root = 17;
  CHECK(comm::call_of(comm::facts_of(call), comm::compared_count(call)).root == 17);
  CHECK(comm::call_of(comm::facts_of(call), comm::compared_count(call)).reduction.callable == 1023);
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

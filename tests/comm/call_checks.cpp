// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What is wrong with a call, found by one rank alone; and the way that a call goes, by what a backend has of its own.
// Covers: <tutti/comm/call_checks.hpp>
// Covers: <tutti/comm/collective_way.hpp>

#include "support/catch.hpp"

#include <tutti/comm/call_checks.hpp>
#include <tutti/testing/recording.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace tutti;

namespace {

/// The sentence, with its kind, of a check that refuses on rank 1 of 3.
template <class F>
std::string refusal(F&& f) {
  CallSite const where = std::source_location::current();
  try {
    f(comm::CallChecks("scatter", 1, 3, where));
  } catch (Error const& error) {
    CHECK(error.rank() == 1);
    CHECK(error.operation() == std::string("scatter"));
    return std::string(name(error.kind())) + ": " + std::string(error.message());
  }
  return "fits";
}

}  // namespace

TEST_CASE("A rank finds ranks, tags and overlaps that cannot be, alone") {
  using Checks = comm::CallChecks const&;
  CHECK(refusal([](Checks c) { c.check_rank("root", 2); }) == "fits");
  CHECK(refusal([](Checks c) { c.check_rank("root", 3); }) ==
        "invalid argument: root 3 does not exist. Ranks are 0 to 2");
  CHECK(refusal([](Checks c) { c.check_rank("root", proc_null); }) ==
        "invalid argument: root -2 (proc_null) does not exist. Ranks are 0 to 2");
  CHECK(refusal([](Checks c) { c.check_rank("destination rank", any_source); }) ==
        "invalid argument: destination rank -1 (any_source) does not exist. Ranks are 0 to 2");
  CHECK(refusal([](Checks c) { c.check_source(any_source, any_tag); }) == "fits");
  CHECK(refusal([](Checks c) { c.check_source(-7, 0); }) ==
        "invalid argument: source rank -7 does not exist. Ranks are 0 to 2");
  CHECK(refusal([](Checks c) { c.check_source(0, 40000); }) == "invalid argument: tag 40000 is outside 0 to 32767");
  char memory[16];
  auto const overlap = [&](std::int64_t own, bool may_alias) {
    return refusal([&](Checks c) { c.check_overlap({memory, 8, own}, {memory + 4, 4, 0}, may_alias); });
  };
  CHECK(overlap(4, true) == "fits");  // this rank's own block
  CHECK(overlap(0, true).find("or the in-place form") != std::string::npos);
  CHECK(overlap(4, false) == "invalid argument: the buffers overlap. Pass disjoint ones");
}

TEST_CASE("A rank finds shapes and counts that do not fit, alone") {
  using Checks = comm::CallChecks const&;
  comm::Collective call;
  CHECK(refusal([&](Checks c) { c.check_shapes<comm::Kind::scatter>(Shape{6}, Shape{2}, call); }) == "fits");
  CHECK(refusal([&](Checks c) { c.check_shapes<comm::Kind::scatter>(Shape{6}, Shape{3}, call); }) ==
        "shape: shapes are (6,) and (3,); the first must hold the second once for each rank (3 here)");
  CHECK(refusal([&](Checks c) { c.check_shapes<comm::Kind::all_to_all>(Shape{4}, Shape{4}, call); }) ==
        "shape: shape (4,) does not divide into 3 blocks, one for each rank");
  CHECK(refusal([](Checks c) { static_cast<void>(c.part(Shape{4, 2})); }) ==
        "shape: the first axis of shape (4, 2) does not divide by the 3 ranks");
  CHECK(refusal([](Checks c) { static_cast<void>(c.row_size(Shape{})); }) ==
        "shape: a single number has no rows to count. Pass it with shape (1,)");
  std::vector<std::int64_t> const two = {1, 2}, negative = {3, -1, 2}, short_sum = {1, 1, 1}, right = {1, 2, 2};
  auto const blocks = [&](std::vector<std::int64_t> const& rows) {
    return refusal([&](Checks c) {
      auto const found = c.blocks(Shape{5, 4}, rows);
      std::vector<std::int64_t> const wanted = {4, 8, 8};
      CHECK(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()));
      CHECK(comm::before(found, 2) == 12);
    });
  };
  CHECK(blocks(right) == "fits");
  CHECK(blocks(two) == "invalid argument: 2 counts for 3 ranks. Pass one for each rank");
  CHECK(blocks(negative) == "invalid argument: count -1 is negative");
  CHECK(blocks(short_sum).find("do not make the 5 rows of the buffer of shape (5, 4)") != std::string::npos);
}

namespace {

/// Sums of float32 and nothing else.
struct SumsOnly {
  bool provides(comm::Kind kind, DType dtype, Operator op) const noexcept {
    return kind == comm::Kind::all_reduce && dtype == DType::float32 && op == Operator::sum;
  }
};

comm::Way way(DType dtype, Operator op) {
  comm::Collective call;
  call.kind = comm::Kind::all_reduce;
  call.dtype = dtype;
  call.reduction.op = op;
  return comm::way_of_whole(SumsOnly(), call);
}

}  // namespace

TEST_CASE("A call goes as the backend has it, as a sum that is divided, or by messages") {
  CHECK(way(DType::float32, Operator::sum) == comm::Way::native);
  CHECK(way(DType::float32, Operator::avg) == comm::Way::summed);
  CHECK(way(DType::float32, Operator::max) == comm::Way::derived);
  CHECK(way(DType::float64, Operator::avg) == comm::Way::derived);
  comm::Collective compound;
  compound.kind = comm::Kind::all_reduce;
  compound.dtype = DType::float32;
  compound.reduction.op = Operator::sum;
  compound.compound_bytes = 12;
  CHECK(comm::way_of_whole(SumsOnly(), compound) == comm::Way::derived);
  compound.purpose = comm::Purpose::reached;
  CHECK(comm::way_of_whole(SumsOnly(), compound) == comm::Way::accelerator);
  CHECK(comm::is_native(comm::Way::summed));
  CHECK_FALSE(comm::is_native(comm::Way::exchanged));
}

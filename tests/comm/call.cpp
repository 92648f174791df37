// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What a rank's arguments become before any backend sees them.
#include <tutti/comm/call.hpp>

#include "support/catch.hpp"

#include <complex>
#include <source_location>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::comm;

namespace {

/// All that a call needs of a backend.
struct RankOneOfThree {
  using Device = Cpu;
  int rank() const noexcept { return 1; }
  int size() const noexcept { return 3; }
};

template <Kind kind, class From, class To, class Op = NoOperator>
Call made(From from, To to, Op const& op = {}, int root = -1, Rows rows = {}) {
  return call_of<kind>(RankOneOfThree(), from, to, op, root, rows, CallSite(std::source_location::current()));
}
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    CHECK(error.rank() == 1);
    return std::string(name(error.kind())) + ": " + std::string(error.message());
  }
  return "fits";
}

}  // namespace

TEST_CASE("a call has the kind, type, count and addresses of its buffers") {
  std::vector<float> x(6), y(18);
  Call const sum = made<Kind::all_reduce>(NoOperand{}, operand_of(x), tutti::sum);
  CHECK(sum.collective.kind == Kind::all_reduce);
  CHECK(sum.collective.dtype == DType::float32);
  CHECK(sum.collective.count == 6);
  CHECK(sum.collective.from == x.data());
  CHECK(sum.collective.to == x.data());
  Call const gather = made<Kind::all_gather>(input_of(x), operand_of(y));
  CHECK(gather.collective.count == 6);
  CHECK(gather.collective.from == x.data());
  CHECK(gather.collective.to == y.data());
  Call const scatter = made<Kind::reduce_scatter>(input_of(y), operand_of(x), tutti::sum);
  CHECK(scatter.collective.count == 6);
}

TEST_CASE("a rank that is not the root gives nothing where only the root gives, and gets nothing where it gets") {
  std::vector<float> x(6), y(18);
  CHECK(made<Kind::broadcast>(NoOperand{}, operand_of(x), {}, 0).collective.from == nullptr);
  CHECK(made<Kind::broadcast>(NoOperand{}, operand_of(x), {}, 1).collective.from == x.data());
  CHECK(made<Kind::gather>(input_of(x), operand_of(y), {}, 0).collective.to == nullptr);
  CHECK(made<Kind::gather>(input_of(x), operand_of(y), {}, 1).collective.to == y.data());
  CHECK(made<Kind::scatter>(input_of(y), operand_of(x), {}, 0).collective.from == nullptr);
  CHECK(made<Kind::scatter>(input_of(y), operand_of(x), {}, 1).collective.from == y.data());
}

TEST_CASE("what has parts travels as its parts") {
  std::vector<std::complex<double>> z(5);
  Call const call = made<Kind::all_reduce>(NoOperand{}, operand_of(z), tutti::sum);
  CHECK(call.collective.dtype == DType::float64);
  CHECK(call.collective.count == 10);
  double number = 2;
  CHECK(made<Kind::broadcast>(NoOperand{}, one(number), {}, 0).collective.count == 1);
}

TEST_CASE("a call that cannot be is refused by the rank that makes it") {
  std::vector<float> x(6), y(17);
  CHECK(refusal([&] { made<Kind::broadcast>(NoOperand{}, operand_of(x), {}, 3); }) ==
        "invalid argument: root 3 does not exist. Ranks are 0 to 2");
  CHECK(refusal([&] { made<Kind::all_gather>(input_of(x), operand_of(y)); }).starts_with("shape: "));
  CHECK(refusal([&] { made<Kind::gather>(input_of(x), operand_of(y), {}, 0); }) == "fits");  // the root looks
  CHECK(refusal([&] { made<Kind::gather>(input_of(x), operand_of(y), {}, 1); }).starts_with("shape: "));
  std::int64_t const rows[] = {1, 2};
  Rows counts;
  counts.to = rows;
  CHECK(refusal([&] {
          made<Kind::all_gather_v>(input_of(x), operand_of(y), {}, -1, counts);
        }).starts_with("invalid argument: "));
}

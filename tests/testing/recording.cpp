// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/testing/recording.hpp>

#include "support/catch.hpp"

#include <array>
#include <string>
#include <vector>

using namespace tutti;

namespace {

/// A program under test.
template <class Comm>
void step(Comm& comm) {
  std::vector<float> gradient(8, 1.0f);
  comm.all_reduce(gradient, avg);
  if (comm.rank() == 0) comm.broadcast(gradient, 2);
  else comm.send(gradient, 0, 3);
  auto pending = comm.recv_async(gradient, any_source);
  comm.barrier();
  pending.wait();
}

}  // namespace

TEST_CASE("a recording tells which calls a program makes, on the rank of one's choice") {
  Communicator<Recording> comm(Recording(1, 3));
  CHECK(comm.rank() == 1);
  CHECK(comm.size() == 3);
  step(comm);
  comm.backend().expect({
      {.operation = "all_reduce", .dtype = DType::float32, .count = 8, .op = Operator::avg},
      {.operation = "send", .count = 32, .peer = 0, .tag = 3},
      {.operation = "recv", .count = 32},
      {.operation = "barrier"},
  });
  Communicator<Recording> other(Recording(0, 3));
  step(other);
  CHECK(to_string(other.backend().calls()[1]) == "broadcast(root 2, float32, count 8)");
  CHECK(other.backend().calls()[0].where.line() == 18);
  other.backend().clear();
  other.backend().expect({});
}

TEST_CASE("the first difference is told, with all calls") {
  Communicator<Recording> comm(Recording(1, 3));
  step(comm);
  RecordedCall const first{.operation = "all_reduce", .dtype = DType::float32, .count = 8, .op = Operator::avg};
  auto const& backend = comm.backend();
  REQUIRE_ERROR(backend.expect({first, {.operation = "send", .count = 32, .peer = 2, .tag = 3}}),
                ErrorKind::invalid_argument,
                "call 1 is send(32 bytes, to 0, tag 3) instead of send(32 bytes, to 2, tag 3). All calls:\n"
                "  all_reduce(avg, float32, count 8)\n  send(32 bytes, to 0, tag 3)\n"
                "  recv(32 bytes, from any, any tag)\n  barrier()");
  REQUIRE_ERROR(backend.expect({first}), ErrorKind::invalid_argument,
                "call 1 is send(32 bytes, to 0, tag 3) instead of none");
  List<RecordedCall> longer = backend.calls();
  longer.push_back(first);
  REQUIRE_ERROR(backend.expect(longer), ErrorKind::invalid_argument, "call 4 is missing instead of all_reduce");
  // Every fact counts.
  for (int fact = 0; fact < 10; ++fact) {
    List<RecordedCall> expected = backend.calls();
    RecordedCall& call = expected[0];
    if (fact == 0) call.operation = "reduce";
    if (fact == 1) call.dtype = DType::float64;
    if (fact == 2) call.count = 9;
    if (fact == 3) call.op = Operator::sum;
    if (fact == 4) call.root = 0;
    if (fact == 5) call.tag = 0;
    if (fact == 6) call.communicator = 1;
    if (fact == 7) call.from_counts = {1};
    if (fact == 8) call.to_counts = {1};
    if (fact == 9) call.contributions = 2;
    REQUIRE_ERROR(backend.expect(expected), ErrorKind::invalid_argument, "call 0 is all_reduce(avg, float32, count 8)");
  }
}

TEST_CASE("buffers stay as they are, allocated results are zeros, and all ranks contribute alike to all_gather") {
  Communicator<Recording> comm(Recording(2, 3));
  std::array<int, 2> x{5, 6};
  comm.all_reduce(x, sum);
  CHECK(x == std::array<int, 2>{5, 6});
  std::array<int, 2> to{1, 2};
  comm.all_reduce(x, to, sum);
  CHECK(to == std::array<int, 2>{1, 2});
  auto const exchanged = comm.all_to_all(std::array<int, 3>{7, 8, 9});
  CHECK(exchanged(0) == 0);
  auto const all = comm.all_gather(x);
  CHECK(all(0, 1) == 6);
  CHECK(all(2, 0) == 5);
  auto half = comm.split(comm.rank() % 2 + 1);
  CHECK(half.rank() == 2);
  CHECK(half.size() == 3);
  half.barrier();
  CHECK(to_string(comm.backend().calls().back()) == "barrier() on communicator 1");
}

TEST_CASE("blocks of different sizes, contributions and reductions of structs are recorded as they are called") {
  Communicator<Recording> comm(Recording(1, 3));
  std::vector<float> from(4), to(7), part(2);
  comm.all_gather_v(from, to, {1, 4, 2});
  comm.scatter_v(to, part, {1, 4, 2}, 0);  // whose counts are the root's
  comm.all_to_all_v(to, from, {5, 1, 1}, {2, 1, 1});
  auto rows = zeros<double>(Shape{5, 2});
  static_cast<void>(comm.all_reduce_contributions(rows, sum));
  std::vector<Located<float>> located(6);
  comm.all_reduce(located, max_location);
  comm.backend().expect({
      {.operation = "all_gather_v", .dtype = DType::float32, .count = 4, .to_counts = {1, 4, 2}},
      {.operation = "scatter_v", .dtype = DType::float32, .count = 2, .root = 0},
      {.operation = "all_to_all_v", .dtype = DType::float32, .from_counts = {5, 1, 1}, .to_counts = {2, 1, 1}},
      {.operation = "all_reduce_contributions",
       .dtype = DType::float64,
       .count = 2,
       .op = Operator::sum,
       .contributions = 5},
      {.operation = "all_reduce", .count = 6, .op = Operator::max_location},
  });
  CHECK(to_string(comm.backend().calls()[0]) == "all_gather_v(float32, count 4, to 1 + 4 + 2)");
  CHECK(to_string(comm.backend().calls()[2]) == "all_to_all_v(float32, count 0, from 5 + 1 + 1, to 2 + 1 + 1)");
  CHECK(to_string(comm.backend().calls()[3]) ==
        "all_reduce_contributions(sum, float64, count 2, 5 contributions)");
}

TEST_CASE("no message comes, and there is no rank outside") {
  Communicator<Recording> comm(Recording(0, 2), {0.02});
  CHECK(!comm.try_probe().has_value());
  REQUIRE_ERROR(comm.recv<float>(1, 4), ErrorKind::timeout, "a Recording delivers no messages");
  REQUIRE_ERROR(Recording(2, 2), ErrorKind::invalid_argument, "no rank 2 of 2");
  REQUIRE_ERROR(Recording(-1, 2), ErrorKind::invalid_argument, "no rank -1 of 2");
}

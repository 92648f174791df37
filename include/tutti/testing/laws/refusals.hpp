// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What one rank can see alone is refused before anything is started.

#include <tutti/testing/laws/report.hpp>

#include <array>
#include <cstdint>
#include <string>

namespace tutti::laws {

/// What one rank can see alone is refused before anything is started: the communicator stays usable.
template <class Comm>
void refusals(Comm& comm, Report& report) {
  int const ranks = comm.size();
  Tensor<float> x = zeros<float>(Shape{12 * 3 + 1});
  Tensor<float> y = zeros<float>(Shape{2, 3});
  auto const out_of_range = std::to_string(ranks);
  expect_error(report, ErrorKind::invalid_argument, "root " + out_of_range + " does not exist",
               [&] { comm.broadcast(x, ranks); });
  expect_error(report, ErrorKind::invalid_argument, "root -1 (any_source) does not exist",
               [&] { comm.reduce(x, sum, -1); });
  expect_error(report, ErrorKind::shape, "shapes are (37,) and (2, 3)", [&] { comm.all_reduce(x, y, sum); });
  expect_error(report, ErrorKind::shape, "once for each rank", [&] { comm.all_gather(x, y); });
  Tensor<float> const eight_axes(Shape{1, 1, 1, 1, 1, 1, 1, 1});
  expect_error(report, ErrorKind::shape, "gather", [&] { static_cast<void>(comm.gather(eight_axes)); });
  try {
    static_cast<void>(comm.all_gather(eight_axes));
    report.expect(false, "a result of nine axes");
  } catch (Error const& error) {
    std::string const what = error.what();
    report.expect(what.find("a tensor at most 8. Reshape the buffer") != std::string::npos &&
                      error.rank() == comm.rank() && int(error.where().line()) == __LINE__ - 5,
                  "a result of nine axes: " + what);
  }
  if (ranks > 1) {
    expect_error(report, ErrorKind::shape, "does not divide",
                 [&] { static_cast<void>(comm.reduce_scatter(zeros<float>(Shape{ranks + 1}), sum)); });
    expect_error(report, ErrorKind::shape, "does not divide into",
                 [&] { static_cast<void>(comm.all_to_all(zeros<float>(Shape{ranks + 1}))); });
    expect_error(report, ErrorKind::invalid_argument, "overlap",
                 [&] { comm.all_reduce(x.slice(0, 0, 20), x.slice(0, 10, 30), sum); });
  }
  expect_error(report, ErrorKind::invalid_argument, "destination rank " + out_of_range, [&] { comm.send(x, ranks); });
  expect_error(report, ErrorKind::invalid_argument, "source rank -3", [&] { comm.recv(x, -3); });
  expect_error(report, ErrorKind::invalid_argument, "tag 32768", [&] { comm.send(x, 0, 32768); });
  expect_error(report, ErrorKind::invalid_argument, "color -1", [&] { static_cast<void>(comm.split(-1)); });
  expect_error(report, ErrorKind::invalid_argument, "no operation", [&] { Request<void>().wait(); });
  expect_error(report, ErrorKind::invalid_argument, "deadline", [&] { comm.set_deadline_seconds(0); });
  expect_error(report, ErrorKind::invalid_argument, "the buffers overlap. Pass disjoint ones",
               [&] { comm.send_recv(x, comm.rank(), x, comm.rank()); });
  expect_error(report, ErrorKind::invalid_argument, "the buffers overlap", [&] {
    comm.send_recv(x.slice(0, 0, 20), comm.rank(), x.slice(0, 10, 30), comm.rank());
  });
  // A message of another size: the receiver is told, the sender is done.
  std::array<float, 2> const two_floats{1, 2};
  auto floats = comm.send_async(two_floats, comm.rank(), 1);
  expect_error(report, ErrorKind::shape, "8 bytes, the buffer 148", [&] { comm.recv(x, comm.rank(), 1); });
  floats.wait();
  std::array<char, 3> const three_letters{'a', 'b', 'c'};
  auto letters = comm.send_async(three_letters, comm.rank(), 1);
  expect_error(report, ErrorKind::dtype, "no whole number of float32",
               [&] { static_cast<void>(comm.template recv<float>(comm.rank(), 1)); });
  letters.wait();
  // Of another type of that size: seen where messages tell their type.
  std::array<std::int32_t, 2> integers{};
  auto again = comm.send_async(two_floats, comm.rank(), 1);
  try {
    report.expect(!comm.recv(integers, comm.rank(), 1).has_dtype, "an int32 buffer takes a message of float32");
  } catch (Error const& error) {
    report.expect(error.kind() == ErrorKind::dtype &&
                      std::string(error.what()).find("holds float32, the buffer int32") != std::string::npos,
                  error.what());
  }
  again.wait();
  again = comm.send_async(two_floats, comm.rank(), 1);
  MessageInfo const told = comm.recv(x.slice(0, 0, 2), comm.rank(), 1);
  report.expect(!told.has_dtype || told.dtype == DType::float32, "the type that a message carries");
  again.wait();
  // Several indices of the target reach one element.
  auto const sliding = TensorView<float>::strided(x.data(), Shape{4, 3}, {1, 1});
  expect_error(report, ErrorKind::invalid_argument, "several indices of the receive buffer",
               [&] { comm.broadcast(sliding); });
  expect_error(report, ErrorKind::invalid_argument, "view of shape (4, 3), reach one element",
               [&] { comm.all_reduce(zeros<float>(Shape{4, 3}), sliding, sum); });
  expect_error(report, ErrorKind::invalid_argument, "several indices of the receive buffer",
               [&] { comm.recv(sliding, comm.rank(), 1); });
  report.expect(comm.all_reduce(1, sum) == ranks, "after refusals the communicator works");
}

}  // namespace tutti::laws

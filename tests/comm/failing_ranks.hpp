// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A mistake that one rank sees alone, while requests of borrowed memory are there: what the others learn of it.

#include <tutti/comm.hpp>

#include <string>
#include <vector>

namespace tutti::test {

/// On two ranks or more; what is wrong, in words.
template <class Comm>
std::string fail_alone(Comm& comm) {
  std::string wrong;
  auto const expect = [&](bool holds, std::string const& what) { wrong += holds ? "" : what + "\n"; };
  int const right = (comm.rank() + 1) % comm.size(), left = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<float> x(4, 1), y(4);
  auto const mistake = [&](auto& one) {
    if (one.rank() == 0) one.broadcast(x, 17);
  };

  // A receive can be cancelled: nobody else hears of the mistake, and the message comes to the next receive.
  try {
    auto receive = comm.recv_async(y, left, 5);
    mistake(comm);
    if (right != 0) comm.send(x, right, 5);
    if (left != 0) receive.wait();
  } catch (Error const& error) {
    expect(comm.rank() == 0, std::string("a cancelled receive: ") + error.what());
  }
  try {
    comm.barrier();
    if (comm.rank() == 0 || right == 0) comm.send(x, right, 5);
    if (comm.rank() == 0 || left == 0) comm.recv(y, left, 5);
    comm.barrier();
  } catch (Error const& error) {
    expect(false, std::string("after a cancelled receive: ") + error.what());
  }

  // A collective cannot: the others get the sentence, and the line.
  auto other = comm.duplicate();
  std::string told = "no error";
  try {
    if (comm.rank() != 0) comm.barrier();
    auto reduction = other.all_reduce_async(x, sum);
    mistake(other);
    reduction.wait();
  } catch (Error const& error) {
    told = error.what();
  }
  if (comm.rank() == 0) comm.barrier();
  expect(told.find(comm.rank() == 0 ? "tutti::broadcast [rank 0]: root 17 does not exist"
                                    : "rank 0 failed: tutti::broadcast [rank 0]: root 17 does not exist") !=
             std::string::npos, told);
  expect(told.find("(failing_ranks.hpp:") != std::string::npos, told);
  return wrong;
}

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pair is not copied as bytes, and so is no struct that has one: the sentence names it, and what to write.
// Expect: without a member that is a pointer, std::pair \(name a struct of two instead\)
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <utility>
#include <vector>

struct Range {
  int first;
  double last;
};
struct Task {
  int id;
#ifdef TUTTI_BAD
  std::pair<int, double> range;
#else
  Range range;
#endif
};

void share(tutti::Communicator<tutti::Threads>& comm, std::vector<Task>& tasks) { comm.broadcast(tasks); }

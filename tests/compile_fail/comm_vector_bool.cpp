// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: a reduction takes \(x, op\) or \(from, to, op\)
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <vector>

void f(tutti::Communicator<tutti::Threads>& comm, std::vector<bool> const& flags) {
#ifdef TUTTI_BAD
  comm.all_reduce(flags, tutti::logical_or);
#else
  comm.all_reduce(std::vector<char>(flags.begin(), flags.end()), [](char a, char b) { return char(a | b); });
#endif
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: this is no buffer: a tensor, a view, or contiguous memory of elements
// Lines: 15
#include <tutti/tutti.hpp>

#include <string>
#include <vector>

#ifdef TUTTI_BAD
using Value = std::string;
#else
using Value = char;
#endif

void f(tutti::Communicator<tutti::Threads>& comm, std::vector<Value>& x) { comm.send(x, 1); }

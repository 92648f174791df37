// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: send takes \(x, to, tag\), and x is a buffer
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

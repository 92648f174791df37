// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: broadcast takes \(x, root\)
// Lines: 15
#include <tutti/tutti.hpp>

#include <boost/hana/define_struct.hpp>

struct Node {
#ifdef TUTTI_BAD
  BOOST_HANA_DEFINE_STRUCT(Node, (float*, next));
#else
  BOOST_HANA_DEFINE_STRUCT(Node, (int, next));
#endif
};

void f(tutti::Communicator<tutti::Threads>& comm) { static_cast<void>(comm.broadcast(Node{}, 0)); }

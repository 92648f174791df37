// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pointer means nothing on another rank.
// Expect: a struct is sent by its members
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

struct Node {
#ifdef TUTTI_BAD
  BOOST_HANA_DEFINE_STRUCT(Node, (int, value), (Node*, next));
#else
  BOOST_HANA_DEFINE_STRUCT(Node, (int, value), (long, next));
#endif
};

void share(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<Node>& x) { comm.broadcast(x); }

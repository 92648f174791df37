// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Models and near misses of `Backend`; each near miss differs in one thing.

#include "comm/messages_only.hpp"
#include "support/catch.hpp"

using namespace tutti;

namespace {

struct BlockingTest : test::MessagesOnly {
  void test(Operation&) {}
};
struct NoDevice : test::MessagesOnly {
  using Device = int;
};
struct ThrowingAbandon : test::MessagesOnly {
  bool abandon(Operation&) { return true; }
};
struct CopiedMatch : test::MessagesOnly {
  bool try_match(int, int, Match const&, MessageInfo) = delete;
};
struct NoCapabilities : test::MessagesOnly {
  static constexpr void provides(comm::Kind, DType, Operator) {}
};

static_assert(Backend<Threads>);
static_assert(Backend<test::MessagesOnly>);
static_assert(!Backend<int>);
static_assert(!Backend<BlockingTest>);
static_assert(!Backend<NoDevice>);
static_assert(!Backend<ThrowingAbandon>);
static_assert(!Backend<CopiedMatch>);
static_assert(!Backend<NoCapabilities>);

}  // namespace

TEST_CASE("what a backend provides is known at compile time") {
  static_assert(Threads::provides(comm::Kind::all_reduce, DType::bfloat16, Operator::callable));
  static_assert(!test::MessagesOnly::provides(comm::Kind::barrier, DType::byte, Operator::none));
  SUCCEED();
}

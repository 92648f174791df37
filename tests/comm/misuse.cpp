// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The overloads that turn mistakes into sentences never take a call that an operation can: arguments that are
/// converted first reach the operation. What they say of mistakes is in tests/compile_fail.

#include "support/catch.hpp"

#include <tutti/comm/misuse.hpp>
#include <tutti/tutti.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace tutti;

namespace {

enum Rank : std::uint8_t { first };

// Requests return what was moved in, and views of what was lent.
using Comm = Communicator<Threads>&;
using X = Tensor<float>;
static_assert(
    std::is_same_v<decltype(std::declval<Comm>().broadcast_async(std::declval<X&>())), Request<TensorView<float>>>);
static_assert(
    std::is_same_v<decltype(std::declval<Comm>().broadcast_async(std::declval<X>())), Request<Tensor<float>>>);
static_assert(
    std::is_same_v<decltype(std::declval<Comm>().send_async(std::declval<X&>(), 0)), Request<TensorView<float const>>>);
static_assert(std::is_same_v<decltype(std::declval<Comm>().send_async(std::declval<X>(), 0)), Request<Tensor<float>>>);
static_assert(
    std::is_same_v<decltype(std::declval<Comm>().all_gather_async(std::declval<X&>())), Request<Tensor<float>>>);
static_assert(std::is_same_v<decltype(std::declval<Comm>().recv_async<int>(0)), Request<Tensor<int>>>);

}  // namespace

TEST_CASE("roots, ranks and tags of other integer types, enumerations, counts in braces and call sites are converted") {
  threads::run(1, [](auto& comm) {
    Tensor<float> x({3});
    Tensor<float> y({3});
    x.fill(2);
    std::size_t const root = 0;
    long const tag = 7;
    auto const here = std::source_location::current();

    comm.broadcast(x, root);
    comm.broadcast(x, first, here);
    CHECK(comm.broadcast(5, root, within(5)) == 5);
    CHECK(comm.all_reduce(5.0f, sum, within(5)) == 5.0f);
    comm.reduce(x, sum, root);
    comm.reduce(x, y, [](float a, float b) { return a + b; }, first);
    CHECK(y(2) == 2);
    comm.all_reduce(std::as_const(x), y, sum, here);
    CHECK(comm.gather(x, root).shape() == Shape{1, 3});
    comm.scatter(x, y, root, within(5));
    CHECK(comm.all_gather(5).size() == 1);

    std::array<std::int64_t, 1> const counts{3};
    comm.all_gather_v(x, y, {3});
    comm.all_gather_v(x, y, counts);
    comm.gather_v(x, y, std::vector<std::int64_t>{3}, root);
    CHECK(comm.reduce_scatter_v(x, {3}, sum).size() == 3);
    CHECK(comm.all_to_all_v(x, {3}).values()(1) == 2);

    auto sent = comm.send_async(x, root, tag);
    auto const received = comm.template recv<float>(root, tag);
    CHECK(received.size() == 3);
    sent.wait();
    auto again = comm.send_async(x, first, 1);
    CHECK(comm.template recv<float>(comm.match(first)).size() == 3);
    again.wait(within(5));
    comm.send_recv(x, root, y, first, 3);
    CHECK(comm.send_recv(x, 0, 0).size() == 3);

    auto group = comm.group();
    group.recv(y, root, tag);
    group.send(x, root, tag, within(5));
    CHECK(group.wait().size() == 1);
    auto plan = comm.broadcast_plan(x, root, within(5));
    plan.start();
    plan.wait();
  });
}

TEST_CASE("a message is received once, and a plan that was moved from starts no more") {
  threads::run(1, [](auto& comm) {
    Tensor<float> x({3});
    x.fill(1);
    for (bool const into_buffer : {false, true}) {
      auto sent = comm.send_async(x, 0, 4);
      auto message = comm.match(0, 4);
      auto moved = std::move(message);
      std::string const gone = "the message from rank 0 with tag 4 is not here any more";
      auto const receive = [&](auto& from) {
        if (into_buffer) comm.recv(std::move(from), x);
        else static_cast<void>(comm.template recv<float>(std::move(from)));
      };
      REQUIRE_ERROR(receive(message), ErrorKind::invalid_argument, gone);
      receive(moved);
      REQUIRE_ERROR(receive(moved), ErrorKind::invalid_argument, gone);
      sent.wait();
    }
    auto plan = comm.broadcast_plan(x);
    auto const other = std::move(plan);
    REQUIRE_ERROR(plan.start(), ErrorKind::invalid_argument, "this plan was moved from");
    REQUIRE_ERROR(plan.wait(), ErrorKind::invalid_argument, "this plan was moved from");
  });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The overloads that turn mistakes into sentences never take a call that an operation can: arguments that are
/// converted first reach the operation. What they say of mistakes is in tests/compile_fail.

#include "support/catch.hpp"

#include <tutti/comm/communicator_port.hpp>
#include <tutti/comm/misuse.hpp>
#include <tutti/tutti.hpp>

#include <array>
#include <cstdint>
#include <source_location>
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

TEST_CASE("whatever was moved from says so at the line that uses it") {
  threads::run(1, [](auto& made) {
    auto comm = made.duplicate();
    auto group = comm.group();
    auto heap = comm.heap();
    Tensor<float> x({1}), y({1}), rows({1, 1});
    x.fill(1);
    y.fill(1);
    rows.fill(1);
    auto request = comm.barrier_async();
    auto mesh = comm.mesh({{"a", 1}});
    auto const gone = std::move(comm);
    auto const gone_group = std::move(group);
    auto const gone_heap = std::move(heap);
    auto const gone_mesh = std::move(mesh);
    Tensor<float> empty, filled({1}), gone_tensor;
    gone_tensor = std::move(filled);
    auto gone_request = std::move(request);
    gone_request.wait();

    int checked = 0;
    auto const refuses = [&](char const* what, auto&& use, unsigned line = std::source_location::current().line()) {
      std::string text = "nothing was thrown";
      try {
        use();
      } catch (Error const& error) {
        text = error.what();
        CHECK(error.kind() == ErrorKind::invalid_argument);
      }
      ++checked;
      INFO(what << ": " << text);
      CHECK(test::contains(text, "moved from"));
      CHECK(test::contains(text, "(misuse.cpp:" + std::to_string(line) + ")"));
    };
    auto const add = [](float a, float b) { return a + b; };
    std::array<std::int64_t, 1> const one{1};
#define REFUSES(...) refuses(#__VA_ARGS__, [&] { static_cast<void>(__VA_ARGS__); })
    REFUSES(comm.rank());
    REFUSES(comm.size());
    REFUSES(comm.node());
    REFUSES(comm.local_rank());
    REFUSES(comm.local_size());
    REFUSES(comm.heap());
    REFUSES(comm.backend());
    REFUSES(comm.core());
    REFUSES(comm.deadline_seconds());
    REFUSES(comm.set_deadline_seconds(1));
    REFUSES(comm.flight_recorder());
    REFUSES(comm.start_statistics());
    REFUSES(comm.complete_dropped());
    REFUSES(comm.split(0));
    REFUSES(comm.duplicate());
    REFUSES(comm.mesh({{"a", 1}}));
    REFUSES(comm.group());
    REFUSES(comm.barrier());
    REFUSES(comm.barrier_async());
    REFUSES(comm.broadcast(x));
    REFUSES(comm.broadcast(1));
    REFUSES(comm.broadcast_async(x));
    REFUSES(comm.all_reduce(x, sum));
    REFUSES(comm.all_reduce(x, y, add));
    REFUSES(comm.all_reduce(1, sum));
    REFUSES(comm.all_reduce_async(x, sum));
    REFUSES(comm.all_reduce_async(x, y, sum));
    REFUSES(comm.all_reduce_contributions(rows, sum));
    REFUSES(comm.all_reduce_contributions(rows, y, sum));
    REFUSES(comm.all_reduce_contributions_async(rows, sum));
    REFUSES(comm.all_reduce_contributions_async(rows, y, sum));
    REFUSES(comm.reduce(x, sum));
    REFUSES(comm.reduce(x, y, sum));
    REFUSES(comm.reduce_async(x, sum));
    REFUSES(comm.reduce_async(x, y, sum));
    REFUSES(comm.gather(x));
    REFUSES(comm.gather(1));
    REFUSES(comm.gather(x, rows));
    REFUSES(comm.gather_async(x));
    REFUSES(comm.gather_async(x, rows));
    REFUSES(comm.all_gather(x));
    REFUSES(comm.all_gather(1));
    REFUSES(comm.all_gather(x, rows));
    REFUSES(comm.all_gather_async(x));
    REFUSES(comm.all_gather_async(x, rows));
    REFUSES(comm.scatter(x, y));
    REFUSES(comm.scatter_async(x, y));
    REFUSES(comm.reduce_scatter(x, sum));
    REFUSES(comm.reduce_scatter(x, y, sum));
    REFUSES(comm.reduce_scatter_async(x, sum));
    REFUSES(comm.reduce_scatter_async(x, y, sum));
    REFUSES(comm.all_to_all(x));
    REFUSES(comm.all_to_all(x, y));
    REFUSES(comm.all_to_all_async(x));
    REFUSES(comm.all_to_all_async(x, y));
    REFUSES(comm.scan(x, sum));
    REFUSES(comm.scan(x, y, sum));
    REFUSES(comm.scan(1, sum));
    REFUSES(comm.scan_async(x, sum));
    REFUSES(comm.scan_async(x, y, sum));
    REFUSES(comm.exscan(x, sum));
    REFUSES(comm.exscan(x, y, sum));
    REFUSES(comm.exscan(1, sum));
    REFUSES(comm.exscan_async(x, sum));
    REFUSES(comm.exscan_async(x, y, sum));
    REFUSES(comm.gather_v(x));
    REFUSES(comm.gather_v(x, y, one));
    REFUSES(comm.gather_v_async(x));
    REFUSES(comm.gather_v_async(x, y, one));
    REFUSES(comm.all_gather_v(x));
    REFUSES(comm.all_gather_v(x, y, one));
    REFUSES(comm.all_gather_v_async(x));
    REFUSES(comm.all_gather_v_async(x, y, one));
    REFUSES(comm.scatter_v(x, one));
    REFUSES(comm.scatter_v(x, y, one));
    REFUSES(comm.scatter_v_async(x, one));
    REFUSES(comm.scatter_v_async(x, y, one));
    REFUSES(comm.reduce_scatter_v(x, one, sum));
    REFUSES(comm.reduce_scatter_v(x, y, one, sum));
    REFUSES(comm.reduce_scatter_v_async(x, one, sum));
    REFUSES(comm.reduce_scatter_v_async(x, y, one, sum));
    REFUSES(comm.all_to_all_v(x, one));
    REFUSES(comm.all_to_all_v(x, y, one, one));
    REFUSES(comm.all_to_all_v_async(x, one));
    REFUSES(comm.all_to_all_v_async(x, y, one, one));
    REFUSES(comm.send(x, 0));
    REFUSES(comm.send_async(x, 0));
    REFUSES(comm.recv(x, 0));
    REFUSES(comm.recv_async(x, 0));
    REFUSES(comm.template recv<float>(0));
    REFUSES(comm.template recv_async<float>(0));
    REFUSES(comm.send_recv(x, 0, y, 0));
    REFUSES(comm.send_recv_async(x, 0, y, 0));
    REFUSES(comm.send_recv(x, 0, 0));
    REFUSES(comm.probe());
    REFUSES(comm.try_probe());
    REFUSES(comm.match());
    REFUSES(comm.try_match());
    REFUSES(comm.barrier_plan());
    REFUSES(comm.broadcast_plan(x));
    REFUSES(comm.all_reduce_plan(x, sum));
    REFUSES(comm.reduce_plan(x, sum));
    REFUSES(comm.scan_plan(x, sum));
    REFUSES(comm.exscan_plan(x, sum));
    REFUSES(comm.reduce_scatter_plan(x, y, sum));
    REFUSES(comm.gather_plan(x, rows));
    REFUSES(comm.all_gather_plan(x, rows));
    REFUSES(comm.scatter_plan(x, y));
    REFUSES(comm.all_to_all_plan(x, y));
    REFUSES(comm.gather_v_plan(x, y, one));
    REFUSES(comm.all_gather_v_plan(x, y, one));
    REFUSES(comm.scatter_v_plan(x, y, one));
    REFUSES(comm.reduce_scatter_v_plan(x, y, one, sum));
    REFUSES(comm.all_to_all_v_plan(x, y, one, one));
    REFUSES(comm::port(comm));
    REFUSES(group.send(x, 0));
    REFUSES(group.recv(y, 0));
    REFUSES(group.wait());
    REFUSES(group.size());
    REFUSES(heap.allocate(1));
    REFUSES(heap.shared());
    REFUSES(mesh.axes());
    REFUSES(mesh.size("a"));
    REFUSES(mesh.axis("a"));
    REFUSES(mesh["a"]);
    REFUSES(tensor<float>(comm, {4}));
    REFUSES(made.all_reduce(filled, sum));
    REFUSES(made.all_reduce(x, filled, sum));
    REFUSES(made.all_reduce(filled, y, sum));
    REFUSES(made.all_reduce_async(std::move(filled), sum));
    REFUSES(made.all_reduce_contributions(filled, y, sum));
    REFUSES(made.all_reduce_contributions(filled, sum));
    REFUSES(made.all_reduce_plan(filled, sum));
    REFUSES(made.broadcast(filled));
    REFUSES(made.reduce(filled, sum));
    REFUSES(made.gather(filled));
    REFUSES(made.all_gather(filled));
    REFUSES(made.scatter(filled, y));
    REFUSES(made.all_to_all(filled));
    REFUSES(made.all_gather_v(filled));
    REFUSES(made.send(filled, 0));
    REFUSES(made.send_async(filled, 0));
    REFUSES(made.recv(filled, 0));
    REFUSES(made.send_recv(x, 0, filled, 0));
    REFUSES(made.group().send(filled, 0));
    REFUSES(made.group().recv(filled, 0));
    REFUSES(request.wait());
    REFUSES(request.test());
#undef REFUSES
    CHECK_FALSE(request.valid());
    CHECK(checked == 148);
    // None of these is a mistake: a tensor without elements, and what got new ones.
    made.all_reduce(empty, sum);
    filled = std::move(gone_tensor);
    made.all_reduce(filled, sum);
    gone_tensor = Tensor<float>();
    made.broadcast(gone_tensor);
  });
}

TEST_CASE("a window that was moved from says so; a message that was matched is received by a function") {
  threads::run(1, [](auto& comm) {
    auto first = window<double>(comm, 4);
    auto const second = std::move(first);
    double x = 1;
    constexpr char const* moved = "this window was moved from";
    REQUIRE_ERROR(first.part(), ErrorKind::invalid_argument, moved);
    REQUIRE_ERROR(first.size(0), ErrorKind::invalid_argument, moved);
    REQUIRE_ERROR(first.put(x, 0), ErrorKind::invalid_argument, moved);
    REQUIRE_ERROR(first.fence(), ErrorKind::invalid_argument, moved);
    CHECK(second.part().size() == 4);

    comm.send(x, 0, 3);
    CHECK(recv<double>(comm, comm.match(0, 3))(0) == 1);
  });
}

TEST_CASE("a tensor that was moved from is empty, and what looks for its elements throws") {
  Tensor<float> x({2, 2});
  x.fill(1);
  auto const y = std::move(x);
  CHECK(x.moved_from());
  CHECK(!y.moved_from());
  CHECK(!Tensor<float>().moved_from());
  CHECK(!Tensor<float>({0}).moved_from());
  CHECK(x.shape() == Shape{0});
  CHECK(x.view().size() == 0);
  CHECK(x.elements().empty());
  REQUIRE_ERROR(
      x(0, 0), ErrorKind::out_of_range,
      "(0, 0) does not exist in shape (0,): this tensor or view is empty, or of a tensor that was moved from");
  REQUIRE_ERROR(x.view()(0), ErrorKind::out_of_range, "(0) does not exist in shape (0,)");
  REQUIRE_ERROR(x[0], ErrorKind::out_of_range, "index 0");
  REQUIRE_ERROR(x.slice(0, 0, 1), ErrorKind::out_of_range, "misuse.cpp");
  REQUIRE_ERROR(x.reshape({2, 2}), ErrorKind::shape, "misuse.cpp");
}

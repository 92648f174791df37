// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What a decorator passes on, and what the communicator does when a backend under it fails in the middle of a call.
// Covers: <tutti/comm/capabilities.hpp>
// Covers: <tutti/comm/thread_capabilities.hpp>
// Covers: <tutti/comm/wait_capabilities.hpp>

#include "comm/messages_only.hpp"
#include "support/catch.hpp"

#include <tutti/comm/decorator.hpp>
#include <tutti/comm/fault_injector.hpp>
#include <tutti/comm/traced.hpp>
#include <tutti/testing/laws.hpp>

#include <array>
#include <string>
#include <vector>

using namespace tutti;

namespace {

/// One send fails: the one after the next `fails_after`.
template <Backend B>
class Flaky : public comm::Decorator<B> {
 public:
  using Operation = typename B::Operation;
  using typename comm::Decorator<B>::Match;
  explicit Flaky(B inner) : comm::Decorator<B>(std::move(inner)) {}

  int fails_after = 1 << 30;

  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    if (fails_after-- == 0) throw Error(ErrorKind::communication, "start_send", "the wire is cut. Mend it");
    return this->inner_.start_send(from, bytes, dtype, to, tag, channel);
  }
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    return this->inner_.start_recv(to, bytes, dtype, from, tag, channel);
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) { return this->inner_.start_recv(match, to, bytes); }
  Operation start(comm::Collective const& call) { return this->inner_.start(call); }
  bool test(Operation& operation) { return this->inner_.test(operation); }
  MessageInfo received(Operation const& operation) const { return this->inner_.received(operation); }
  bool abandon(Operation& operation) noexcept { return this->inner_.abandon(operation); }
  std::string awaiting(Operation const& operation) const { return this->inner_.awaiting(operation); }
  Flaky split(int color, int key, List<int> const& members) { return Flaky(this->inner_.split(color, key, members)); }
};

/// With every optional member; without.
struct Complete : test::MessagesOnly {
  using MessagesOnly::MessagesOnly;
  static std::string announced;
  static int waits_begun;
  void announce(std::string const& text, std::uint64_t) noexcept { announced = text; }
  void announce_to_all(std::string const&) noexcept {}
  void waits(bool begins) noexcept { waits_begun += begins; }
  std::string whereabouts(int rank) const { return "; rank " + std::to_string(rank) + " is here"; }
  Storage<Cpu> allocate(std::size_t bytes) { return Storage<Cpu>(Cpu{}, bytes); }
  bool shares_memory() const noexcept { return true; }
  Complete split(int, int, List<int> const&) { throw Error(ErrorKind::internal, "Complete", "asked for a split"); }
};
std::string Complete::announced;
int Complete::waits_begun = 0;

static_assert(comm::SharesBlocks<Flaky<Threads>> && !comm::SharesBlocks<Flaky<test::MessagesOnly>>);
static_assert(Backend<Flaky<Threads>> && Backend<Flaky<Flaky<test::MessagesOnly>>> && Backend<Flaky<Complete>>);

static_assert(comm::AnnouncesPlaces<Flaky<Complete>> && comm::AnnouncesToAll<Flaky<Complete>> &&
              comm::KnowsWhereabouts<Flaky<Complete>> && comm::HearsOfWaits<Flaky<Complete>> &&
              comm::Allocates<Flaky<Complete>>);
static_assert(!comm::AnnouncesPlaces<Flaky<test::MessagesOnly>> && !comm::AnnouncesToAll<Flaky<test::MessagesOnly>> &&
              !comm::KnowsWhereabouts<Flaky<test::MessagesOnly>> && !comm::HearsOfWaits<Flaky<test::MessagesOnly>> &&
              !comm::Allocates<Flaky<test::MessagesOnly>>);

/// Counts which way receives are given up.
struct Cancels : test::MessagesOnly {
  using MessagesOnly::MessagesOnly;
  static int cancelled, abandoned;
  bool cancel(Operation& operation) noexcept {
    ++cancelled;
    return MessagesOnly::abandon(operation);
  }
  bool abandon(Operation& operation) noexcept {
    abandoned += cancelled == 0;  // what was cancelled holds nothing any more
    return MessagesOnly::abandon(operation);
  }
  Cancels split(int, int, List<int> const&) { throw Error(ErrorKind::internal, "Cancels", "asked for a split"); }
};
int Cancels::cancelled = 0;
int Cancels::abandoned = 0;
template <class B>
concept CancelsReceives = requires(B& b, typename B::Operation& operation) { b.cancel(operation); };
static_assert(CancelsReceives<FaultInjector<Threads>> && CancelsReceives<Traced<FaultInjector<Threads>>>);
static_assert(!CancelsReceives<FaultInjector<test::MessagesOnly>> && !CancelsReceives<Traced<test::MessagesOnly>>);

// Known at compile time where the inner backend's is, asked of the object where it is not.
struct AsksTheObject : test::MessagesOnly {
  bool provides(comm::Kind, DType, Operator) const { return false; }
  AsksTheObject split(int, int, List<int> const&) { throw Error(ErrorKind::internal, "", "asked for a split"); }
};
static_assert(Flaky<Threads>::provides(comm::Kind::all_reduce, DType::float32, Operator::sum));
static_assert(!Flaky<test::MessagesOnly>::provides(comm::Kind::all_reduce, DType::float32, Operator::sum));
static_assert(Backend<Flaky<AsksTheObject>>);

}  // namespace

TEST_CASE("a decorator passes on the optional members of what it wraps") {
  threads::run(1, [](auto& comm) {
    Complete::announced.clear();
    Complete::waits_begun = 0;
    List<int> const members{0};
    Communicator<Flaky<Complete>> wrapped(Flaky<Complete>(Complete(comm.backend().split(0, 0, members))), {0.05});
    CHECK(wrapped.heap().shared());
    CHECK(tensor<float>(wrapped, {3}).size() == 3);
    std::array<int, 1> x{};
    REQUIRE_ERROR(wrapped.match(0, 1), ErrorKind::timeout, "rank 0 is here");
    REQUIRE_ERROR(wrapped.recv(x, 0, 1), ErrorKind::timeout, "no message from rank 0 with tag 1");
    CHECK(Complete::waits_begun == 2);
    CHECK(test::contains(Complete::announced, "recv at decorator.cpp:"));
  });
}

TEST_CASE("a dropped receive into the caller's buffer is cancelled through decorators, and not abandoned") {
  threads::run(1, [](auto& comm) {
    List<int> const members{0};
    auto const drop = [&]<class B>(B backend) {
      Cancels::cancelled = Cancels::abandoned = 0;
      Communicator<B> wrapped(std::move(backend), {0.5});
      std::array<int, 1> x{5};
      { auto dropped = wrapped.recv_async(x, 0, 1); }
      CHECK(Cancels::cancelled == 1);
      CHECK(Cancels::abandoned == 0);
      std::array<int, 1> const sent{7};
      wrapped.send(sent, 0, 1);
      CHECK(wrapped.template recv<int>(0, 1)(0) == 7);
      CHECK(x[0] == 5);
    };
    auto const cancels = [&] { return Cancels(comm.backend().split(0, 0, members)); };
    drop(cancels());
    drop(FaultInjector<Cancels>(cancels(), FaultPlan{}));
    Traced<FaultInjector<Cancels>> traced(FaultInjector<Cancels>(cancels(), FaultPlan{}));
    auto const trace = traced.trace();
    drop(std::move(traced));
    CHECK(trace->events()[0].state == comm::TraceEvent::abandoned);
    FaultPlan loses;
    loses.drop = 1;
    Communicator<FaultInjector<Cancels>> lossy(FaultInjector<Cancels>(cancels(), loses), {0.5});
    std::array<int, 1> x{5};
    { auto dropped = lossy.recv_async(x, 0, 1); }  // nobody waits for what was lost
  });
}

TEST_CASE("decorated gives a communicator of the same ranks with the same deadline, apart from the first") {
  threads::run(3, [](auto& comm) {
    laws::Report report;
    comm.set_deadline_seconds(17);
    auto other = decorated<Flaky>(comm);
    report.expect(other.rank() == comm.rank() && other.size() == 3 && other.deadline_seconds() == 17, "the same ranks");
    std::array<int, 1> const one{1};
    auto sent = comm.send_async(one, comm.rank());
    report.expect(!other.try_probe().has_value(), "messages of one are not seen on the other");
    report.expect(comm.template recv<int>(comm.rank())(0) == 1, "but on their own");
    sent.wait();
    report.expect(other.all_reduce(1, sum) == 3 && comm.all_reduce(1, sum) == 3, "both reduce");
    if (report.failures != 0) throw Error(ErrorKind::internal, "test", report.text);
  });
}

TEST_CASE("a send that cannot be started takes the receive of the same call with it") {
  threads::run(1, [](auto& comm) {
    auto flaky = decorated<Flaky>(comm);
    flaky.set_deadline_seconds(10);
    std::vector<int> const out(5000, 7);
    flaky.backend().fails_after = 0;
    {
      std::vector<int> in(5000);
      REQUIRE_ERROR(flaky.send_recv(out, 0, in, 0, 3), ErrorKind::communication, "[rank 0]: the wire is cut");
      flaky.backend().fails_after = 0;
      REQUIRE_ERROR(flaky.send_recv_async(out, 0, in, 0, 3).wait(), ErrorKind::communication, "the wire is cut");
    }
    std::vector<int> in(5000);
    flaky.send_recv(out, 0, in, 0, 3);  // the message must not go to a buffer that is gone
    CHECK(in == out);
  });
}

TEST_CASE("a derived collective that cannot send one of its messages fails on all ranks and leaves nothing behind") {
  for (int after = 0; after < 4; ++after) {
    std::vector<std::string> messages(3);
    threads::run(3, [&](auto& comm) {
      auto only = Communicator<Flaky<test::MessagesOnly>>(
          Flaky<test::MessagesOnly>(test::MessagesOnly(comm.backend().split(0, 0, {0, 1, 2}))), {10});
      if (comm.rank() == 1) only.backend().fails_after = after;  // two contributions, two results
      std::vector<double> x(3000, 1.0);
      try {
        only.all_reduce(x, sum);
      } catch (Error const& error) {
        messages[static_cast<std::size_t>(comm.rank())] = error.what();
      }
    });
    INFO("after " << after << " sends: " << messages[0] << "\n" << messages[1] << "\n" << messages[2]);
    CHECK(test::contains(messages[1], "all_reduce [rank 1]: the wire is cut"));
    // Who has all its messages by then may be done; nobody waits for the deadline.
    for (auto const& message : messages) CHECK(!test::contains(message, "not complete after"));
    if (after < 2) {
      CHECK(test::contains(messages[0], "rank 1"));
      CHECK(test::contains(messages[2], "rank 1"));
    }
  }
}

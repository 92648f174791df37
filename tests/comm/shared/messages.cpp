// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Messages of ranks on one memory, without a backend: every way in which they travel, and mixed.

// Covers: <tutti/comm/shared/copy.hpp>
// Covers: <tutti/comm/shared/messages.hpp>
// Covers: <tutti/comm/shared/parcel.hpp>
// Covers: <tutti/comm/shared/parcels.hpp>
// Covers: <tutti/comm/shared/remote.hpp>
// Covers: <tutti/comm/shared/transfer.hpp>

#include "support/catch.hpp"

#include <tutti/comm/shared/messages.hpp>
#include <tutti/tensor/storage.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using comm::Channel;
using comm::shared::Board;
using comm::shared::Letter;
using comm::shared::Mailbox;
using comm::shared::MessageRing;
using comm::shared::Messages;
using comm::shared::MessageSlot;
using comm::shared::Parcel;
using comm::shared::Transfer;

namespace {

/// One rank's part of the memory: gives out until it is full, and counts what comes back.
class Portion {
 public:
  Portion(std::byte* memory, std::size_t bytes) : memory_(memory), left_(bytes) {}
  std::byte* allocate(std::uint64_t bytes) {
    if (bytes > left_) return nullptr;
    std::byte* const result = memory_;
    memory_ += bytes;
    left_ -= bytes;
    return result;
  }
  comm::shared::Origin origin() const { return here_.origin(); }
  void release(std::byte*, std::uint64_t) { ++released; }
  void retire(std::atomic<std::uint32_t> const& held, std::byte*, std::uint64_t) {
    retired.push_back(&held);
  }
  int released = 0;
  std::vector<std::atomic<std::uint32_t> const*> retired;

 private:
  std::byte* memory_;
  std::size_t left_;
  comm::shared::OwnOrigin here_;
};

/// The memory that all ranks see, and a rank's messages for each.
class Node {
 public:
  explicit Node(int ranks, std::size_t portion = std::size_t{1} << 20)
      : memory_(Cpu{}, 64 + static_cast<std::size_t>(ranks) * (sizeof(Mailbox) + portion)) {
    auto* const base = static_cast<std::byte*>(memory_.data());
    auto* const boxes = reinterpret_cast<Mailbox*>(base + 64);
    for (int r = 0; r < ranks; ++r) ::new (boxes + r) Mailbox();
    board_ = Board(base + 64, ranks, 0, reinterpret_cast<std::uintptr_t>(base), memory_.bytes());
    auto* const portions = reinterpret_cast<std::byte*>(boxes + ranks);
    for (int r = 0; r < ranks; ++r) {
      portions_.push_back(std::make_unique<Portion>(portions + static_cast<std::size_t>(r) * portion, portion));
      messages_.push_back(std::make_unique<Messages<Portion>>(*portions_.back(), board_, boxes, r));
    }
  }
  Messages<Portion>& operator[](int rank) { return *messages_[static_cast<std::size_t>(rank)]; }
  Portion& portion(int rank) { return *portions_[static_cast<std::size_t>(rank)]; }
  void end(int rank) { messages_[static_cast<std::size_t>(rank)].reset(); }

 private:
  Storage<Cpu> memory_;
  Board board_;
  std::vector<std::unique_ptr<Portion>> portions_;
  std::vector<std::unique_ptr<Messages<Portion>>> messages_;
};

using Bytes = std::vector<std::uint8_t>;
Bytes pattern(std::size_t bytes, int seed) {
  Bytes result(bytes);
  auto const shift = static_cast<std::size_t>(seed);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + shift);
  return result;
}
std::int64_t size_of(Bytes const& bytes) { return static_cast<std::int64_t>(bytes.size()); }

Transfer* send(Messages<Portion>& from, Bytes const& bytes, int to, int tag) {
  return from.send(bytes.data(), size_of(bytes), DType::uint8, to, tag, Channel::user);
}
/// Both ranks move on until the receive is done; what came.
MessageInfo finish(Messages<Portion>& at, Transfer* transfer, MessageInfo info, Messages<Portion>& other) {
  for (int i = 0; transfer != nullptr && !transfer->complete && i < 1'000'000; ++i) {
    at.progress();
    other.progress();
  }
  if (transfer != nullptr) at.finish(*transfer, info);
  return info;
}
MessageInfo receive(Messages<Portion>& at, Bytes& bytes, int from, int tag, Messages<Portion>& other) {
  MessageInfo info;
  Transfer* const transfer = at.receive(bytes.data(), size_of(bytes), from, tag, Channel::user, info);
  return finish(at, transfer, info, other);
}

}  // namespace

TEST_CASE("copies for other processors are whole and write nothing else, at every size and offset") {
  Bytes const from = pattern(10000, 3);
  for (std::size_t const bytes : {0, 1, 3, 4, 5, 8, 9, 64, 767, 768, 769, 2047, 2048, 2049, 4120, 8216, 9000})
    for (std::size_t const offset : {0, 1, 7, 32, 63}) {
      CAPTURE(bytes, offset);
      Bytes to(10000, 0xcc), expected = to;
      comm::shared::copy_shared(to.data() + offset, from.data() + 2 * offset, static_cast<std::int64_t>(bytes));
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(2 * offset), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(offset));
      REQUIRE(to == expected);
    }
}

TEST_CASE("messages of every size arrive whole, before and after their receive is started") {
  Node node(2);
  for (std::size_t const bytes : {0, 1, 984, 4120, 4121, 8192, 8193, 8216, 8217, 65536, 65537, 100'000, 5'000'000}) {
    INFO(bytes << " bytes");
    Bytes const sent = pattern(bytes, 1);
    Bytes first(bytes), second(bytes);
    Transfer* const sending = send(node[0], sent, 1, 3);
    CHECK((sending == nullptr) == (bytes <= 65536));
    MessageInfo const info = receive(node[1], first, 0, 3, node[0]);
    CHECK(info.source == 0);
    CHECK(info.tag == 3);
    CHECK(info.bytes == size_of(sent));
    CHECK(info.dtype == DType::uint8);
    CHECK(first == sent);
    MessageInfo none;
    finish(node[0], sending, none, node[1]);

    Transfer* const early = node[1].receive(second.data(), size_of(second), -1, -1, Channel::user, none);
    REQUIRE(early != nullptr);
    Transfer* const late = send(node[0], sent, 1, 4);
    CHECK(finish(node[1], early, none, node[0]).tag == 4);
    CHECK(second == sent);
    finish(node[0], late, none, node[1]);
    CHECK(!node[0].busy());
    CHECK(!node[1].busy());
  }
}

TEST_CASE("what cannot be read where it lies passes through its parcel") {
  Node node(2);
  Bytes const sent = pattern(1'000'003, 2);
  Bytes received(sent.size());
  for (int i = 0; i < 2; ++i) {
    Transfer* const sending = send(node[0], sent, 1, 3);
    REQUIRE(sending != nullptr);
    CHECK(sending->parcel->is_offered() == (i == 0));
    if (i == 0) sending->parcel->where.origin.token ^= 1;  // as of another process
    std::fill(received.begin(), received.end(), std::uint8_t{0});
    CHECK(receive(node[1], received, 0, 3, node[0]).bytes == size_of(sent));
    CHECK(received == sent);
    MessageInfo none;
    finish(node[0], sending, none, node[1]);
  }
}

TEST_CASE("memory of another process is read while it is there and is the one that was told") {
  std::uint64_t const there = 4711;
  comm::shared::OwnOrigin const own;
  pid_t const child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  REQUIRE(child > 0);
  comm::shared::Origin origin = own.origin();
  origin.process = child;
  std::uint64_t const address = reinterpret_cast<std::uintptr_t>(&there);
  comm::shared::RemoteReader reader(2);
  auto const read = [&](int rank) {
    std::uint64_t word = 0;
    return reader.read(rank, origin, address, &word, sizeof word) && word == there;
  };
  bool const first = read(0);
  bool const again = read(0);
  ++origin.token;
  bool const other = read(1);
  --origin.token;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(first);
  CHECK(again);
  CHECK_FALSE(other);
  CHECK_FALSE(read(0));
  CHECK_FALSE(read(1));
}

TEST_CASE("messages of a pair stay in order, whatever way each takes, also when many wait") {
  Node node(3, std::size_t{4} << 20);
  // More than the ring holds, some of each size, of two senders in turn.
  std::vector<Bytes> sent;
  std::vector<std::pair<int, Transfer*>> sending;
  for (int i = 0; i < 120; ++i) {
    std::size_t const sizes[] = {8, 3000, 8, 20'000, 900, 90'000};
    sent.push_back(pattern(sizes[i % 6], i));
  }
  for (int i = 0; i < 120; ++i)
    if (Transfer* const one = send(node[i % 2], sent[static_cast<std::size_t>(i)], 2, 7))
      sending.emplace_back(i % 2, one);
  CHECK(!sending.empty());
  for (int source = 0; source < 2; ++source)
    for (int i = source; i < 120; i += 2) {
      Bytes const& expected = sent[static_cast<std::size_t>(i)];
      Bytes received(expected.size());
      MessageInfo const info = receive(node[2], received, source, -1, node[source]);
      INFO(i);
      REQUIRE(info.bytes == size_of(expected));
      REQUIRE(received == expected);
    }
  MessageInfo none;
  for (auto const& [rank, transfer] : sending) finish(node[rank], transfer, none, node[2]);
  CHECK((!node[0].busy() && !node[1].busy() && !node[2].busy()));
}

TEST_CASE("small messages that a full ring and full memory leave no room for wait in order") {
  Node node(2, 12'000);  // one parcel or two
  std::vector<Bytes> sent;
  std::vector<Transfer*> sending;
  for (int i = 0; i < 60; ++i) sent.push_back(pattern(i % 3 == 2 ? 10'000 : 16, i));
  for (Bytes const& bytes : sent)
    if (Transfer* const one = send(node[0], bytes, 1, 1)) sending.push_back(one);
  CHECK(sending.size() > 20);
  for (Bytes const& expected : sent) {
    Bytes received(expected.size());
    CHECK(receive(node[1], received, 0, 1, node[0]).bytes == size_of(expected));
    CHECK(received == expected);
  }
  MessageInfo none;
  for (Transfer* one : sending) finish(node[0], one, none, node[1]);
  CHECK(!node[0].busy());
}

TEST_CASE("a rank without any memory of its own says so where a message needs some") {
  Node node(2, 64);
  Bytes const small = pattern(16, 0), large = pattern(9000, 0);
  CHECK(send(node[0], small, 1, 1) == nullptr);
  REQUIRE_ERROR(send(node[0], large, 1, 1), ErrorKind::out_of_memory, "no room for a message of 9000 bytes");
  CHECK(!node[0].busy());
}

TEST_CASE("receives get messages in the order in which they were started, by source, tag and channel") {
  Node node(3);
  Bytes a(4), b(4), c(4), d(4);
  MessageInfo none;
  Transfer* const any = node[2].receive(a.data(), 4, -1, -1, Channel::user, none);
  Transfer* const of_one = node[2].receive(b.data(), 4, 1, 5, Channel::user, none);
  Transfer* const inner = node[2].receive(c.data(), 4, -1, 5, Channel::internal, none);
  REQUIRE((any != nullptr && of_one != nullptr && inner != nullptr));
  CHECK(node[2].is_first(*any));
  CHECK(!node[2].is_first(*of_one));
  CHECK(node[2].is_first(*inner));
  send(node[1], pattern(4, 10), 2, 5);
  send(node[1], pattern(4, 11), 2, 5);
  send(node[0], pattern(4, 12), 2, 6);
  CHECK(finish(node[2], any, none, node[1]).source == 1);
  CHECK(finish(node[2], of_one, none, node[1]).source == 1);
  CHECK(a == pattern(4, 10));
  CHECK(b == pattern(4, 11));
  CHECK(!inner->complete);
  List<MessageInfo> there;
  node[2].list(there);
  REQUIRE(there.size() == 1);
  CHECK(there[0].tag == 6);
  Owner<Letter> letter = node[2].match(-1, 6);
  REQUIRE(letter);
  CHECK(node[2].match(-1, -1) == nullptr);
  CHECK(finish(node[2], node[2].receive(std::move(letter), d.data(), 4), none, node[0]).source == 0);
  CHECK(d == pattern(4, 12));
  CHECK(node[2].cancel(*inner));
  CHECK(!node[2].busy());
}

TEST_CASE("a message that is longer than its buffer fills it, and its sender goes on") {
  Node node(2);
  for (std::size_t const bytes : {20, 6000, 40'000, 100'000, 400'000}) {
    Bytes const sent = pattern(bytes, 3);
    Bytes received(10 + 1, 0xff);
    Transfer* const sending = send(node[0], sent, 1, 1);
    MessageInfo info;
    Transfer* const receiving = node[1].receive(received.data(), 10, 0, 1, Channel::user, info);
    REQUIRE(receiving != nullptr);
    CHECK(finish(node[1], receiving, info, node[0]).bytes == size_of(sent));
    CHECK(std::equal(sent.begin(), sent.begin() + 10, received.begin()));
    CHECK(received[10] == 0xff);
    finish(node[0], sending, info, node[1]);
    CHECK(!node[0].busy());
  }
}

TEST_CASE("a send that is given up is never received; a receive that has begun learns of it") {
  Node node(2);
  Bytes const large = pattern(300'000, 4), small = pattern(8, 5);
  Bytes received(large.size());
  node[0].abandon(*send(node[0], large, 1, 1));
  CHECK(send(node[0], small, 1, 2) == nullptr);
  MessageInfo info;
  Bytes eight(8);
  CHECK(receive(node[1], eight, -1, -1, node[0]).tag == 2);

  for (bool const offered : {true, false}) {
    Transfer* const sending = send(node[0], large, 1, 1);
    REQUIRE(sending != nullptr);
    if (offered) sending->parcel->where.origin.token ^= 1;
    Transfer* const receiving = node[1].receive(received.data(), size_of(received), 0, 1, Channel::user, info);
    node[1].progress();
    CHECK(!node[1].cancel(*receiving));  // it has begun
    node[0].progress();
    node[0].abandon(*sending);
    node[1].progress();
    REQUIRE(receiving->complete);
    REQUIRE_ERROR(node[1].finish(*receiving, info), ErrorKind::communication, "rank 0 gave up its send");
  }
  CHECK((!node[0].busy() && !node[1].busy()));
}

TEST_CASE("a send that is withdrawn is complete when somebody has it, and is received by nobody otherwise") {
  Node node(2);
  Bytes const large = pattern(300'000, 4);
  Bytes received(large.size());
  MessageInfo info;
  for (bool const read_before : {true, false}) {
    Transfer* const sending = send(node[0], large, 1, 1);
    REQUIRE(sending != nullptr);
    Transfer* const receiving = node[1].receive(received.data(), size_of(received), 0, 1, Channel::user, info);
    if (read_before) node[1].progress();
    node[0].withdraw(*sending);
    CHECK(sending->complete == read_before);
    node[1].progress();
    REQUIRE(receiving->complete == read_before);
    if (read_before) {
      node[1].finish(*receiving, info);
      node[0].finish(*sending, info);
      CHECK(received == large);
    } else {
      node[0].abandon(*sending);
      CHECK(node[1].cancel(*receiving));
    }
  }
  CHECK((!node[0].busy() && !node[1].busy()));
}

TEST_CASE("parcels are used again, and those that others hold stay until they let go") {
  Node node(2);
  Bytes const sent = pattern(9000, 6);
  Bytes received(9000);
  for (int i = 0; i < 100; ++i) {
    CHECK(send(node[0], sent, 1, 1) == nullptr);
    receive(node[1], received, 0, 1, node[0]);
  }
  for (int i = 0; i < 3; ++i) CHECK(send(node[0], sent, 1, 1) == nullptr);
  Owner<Letter> letter = node[1].match(0, 1);
  node.end(0);
  CHECK(node.portion(0).released + static_cast<int>(node.portion(0).retired.size()) <= 4);
  REQUIRE(node.portion(0).retired.size() == 3);
  auto const held = [&] {
    return std::count_if(node.portion(0).retired.begin(), node.portion(0).retired.end(),
                         [](auto const* one) { return one->load() != 0; });
  };
  CHECK(held() == 3);
  node.end(1);
  CHECK(held() == 1);
  letter = nullptr;
  CHECK(held() == 0);
}

TEST_CASE("a large message to a rank that ends is not sent; its parcel is free once its sender has given it up") {
  for (bool const late : {false, true}) {
    Node node(2);
    Bytes const large = pattern(100'000, 7);
    if (late) node.end(1);
    Transfer* const sending = send(node[0], large, 1, 1);
    REQUIRE(sending != nullptr);
    if (!late) node.end(1);
    for (int i = 0; i < 10; ++i) node[0].progress();
    CHECK(!sending->complete);
    node[0].abandon(*sending);
    node.end(0);
    CHECK(node.portion(0).released == (late ? 0 : 1));
  }
}

TEST_CASE("threads send each other random messages in both directions") {
  constexpr int ranks = 3, rounds = 400;
  Node node(ranks, std::size_t{2} << 20);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&node, &wrong, rank] {
      Messages<Portion>& own = node[rank];
      int const next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
      auto const size = [](int sender, int i) {
        std::mt19937 random(static_cast<unsigned>(sender * 7919 + i));
        unsigned const scale = random() % 4;
        return std::size_t{random() % (scale == 0 ? 64u : scale == 1 ? 6000u : scale == 2 ? 60'000u : 150'000u)};
      };
      for (int i = 0; i < rounds; ++i) {
        Bytes const sent = pattern(size(rank, i), i), expected = pattern(size(last, i), i);
        Bytes received(expected.size());
        MessageInfo info, none;
        Transfer* const receiving = own.receive(received.data(), size_of(received), last, 1, Channel::user, info);
        Transfer* const sending = own.send(sent.data(), size_of(sent), DType::uint8, next, 1, Channel::user);
        while ((receiving != nullptr && !receiving->complete) || (sending != nullptr && !sending->complete)) {
          own.progress();
          std::this_thread::yield();
        }
        if (receiving != nullptr) own.finish(*receiving, info);
        if (sending != nullptr) own.finish(*sending, none);
        if (info.source != last || info.bytes != size_of(expected) || received != expected) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/rpc/wire.hpp>
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <tutti/federate/rpc/wire.hpp>
#include <tutti/testing/simulated_network.hpp>

#include <capnp/serialize.h>

#include <chrono>

using namespace tutti;
using namespace tutti::federate;

namespace {

/// What a message says, to be compared.
std::string said(Message const& message) {
  capnp::MallocMessageBuilder builder;
  write(message, builder.initRoot<wire::Message>());
  auto const words = capnp::messageToFlatArray(builder);
  auto const bytes = words.asBytes();
  return {bytes.begin(), bytes.end()};
}
Message read_from(std::string const& bytes, auto&& use) {
  std::vector<capnp::word> words(bytes.size() / sizeof(capnp::word));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(capnp::word));
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 1 << 16;
  capnp::FlatArrayMessageReader reader({words.data(), words.size()}, options);
  Message const message = read(reader.getRoot<wire::Message>());
  use(message);
  return message;
}

std::vector<Message> every_kind() {
  static std::vector<std::byte> const bytes{std::byte{1}, std::byte{2}, std::byte{255}};
  return {Hello{1, ~std::uint64_t{0}, 3, 4, true, 2.5, "a machine", 5, 6},
          Ready{7.25, 8},
          Heartbeat{WorkerState::draining, 9, 1.5, 1000, 3},
          Ask{1, -2, 3},
          Offer{1, 2, 3, 4, 5, 6.5, -7.5, true},
          Leave{"because"},
          Welcome{1, 2, 3, 4, 5, parallel::OuterBits::int4, 6, 7, 8, 9, "{\"a program\": 1}", {3, 4, 5}, 0.25},
          Assign{1, 2, {{3, 4}, {5, 6}}, 7, 8, 9},
          Moved{1, true, 2, 3},
          Settled{1, true, "why"},
          Bye{true, false, "gone"},
          Chunk{1, 2, 3, bytes}};
}

}  // namespace

TEST_CASE("every kind of message passes the wire unchanged") {
  REQUIRE(every_kind().size() == std::variant_size_v<Message>);
  for (Message const& message : every_kind()) {
    std::string const bytes = said(message);
    read_from(bytes, [&](Message const& back) {
      CHECK(back.index() == message.index());
      CHECK(said(back) == bytes);  // every field is set, and to a value of its own
    });
  }
}

TEST_CASE("damaged messages are refused or read as something else, and never crash; TUTTI_FUZZ_SECONDS tries longer",
          "[fuzz]") {
  testing::Dice dice(test::fuzz_seed(17));
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(test::fuzz_seconds(0));
  std::vector<Message> const kinds = every_kind();
  int refused = 0;
  for (std::int64_t turn = 0; turn < 20000 || std::chrono::steady_clock::now() < end; ++turn) {
    std::string bytes = said(kinds[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(kinds.size())))]);
    for (std::int64_t changes = 1 + dice.below(4); changes > 0; --changes)
      bytes[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(bytes.size())))] =
          static_cast<char>(dice.next());
    if (dice.happens(0.2))
      bytes.resize(static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(bytes.size()))) / 8 * 8);
    try {
      read_from(bytes, [](Message const& message) { static_cast<void>(said(message)); });
    } catch (Error const& error) {
      REQUIRE(error.kind() == ErrorKind::format);
      ++refused;
    } catch (kj::Exception const&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("what no program of this version says is refused") {
  auto const refuses = [](auto&& change, char const* why) {
    capnp::MallocMessageBuilder builder;
    change(builder.initRoot<wire::Message>());
    REQUIRE_ERROR(read(builder.getRoot<wire::Message>().asReader()), ErrorKind::format, why);
  };
  refuses([](auto m) { m.initHeartbeat().setState(7); }, "a state that there is not");
  refuses([](auto m) { m.initWelcome().setBits(4); }, "does not know");
  refuses([](auto m) { m.initAssign().initRanges(70000); }, "too many ranges");
  refuses([](auto m) { m.initWelcome().initFragments(5000); }, "too many fragments");
  refuses([](auto m) { m.initLeave().setReason(std::string(70000, 'x').c_str()); }, "too long");
}

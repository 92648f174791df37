// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/rpc/command_line.hpp>
// Covers: <tutti/federate/rpc/model.hpp>
// Covers: <tutti/federate/rpc/model_worker.hpp>
// (that one through the programs, which processes.py runs)
#include "support/catch.hpp"

#include <tutti/federate/rpc/command_line.hpp>

using namespace tutti;
using namespace tutti::federate;

namespace {
template <class Parse>
auto parsed(Parse parse, std::vector<std::string> const& words) {
  std::vector<char const*> argv{"program"};
  for (std::string const& word : words) argv.push_back(word.c_str());
  return parse(static_cast<int>(argv.size()), argv.data());
}
auto shepherd(std::vector<std::string> words) {
  words.insert(words.end(), {"--data", "d", "--out", "o"});
  return parsed(parse_shepherd, words);
}
auto worker(std::vector<std::string> words) {
  words.insert(words.end(), {"--data", "d"});
  return parsed(parse_worker, words);
}
}  // namespace

TEST_CASE("a shepherd's own flags and the trainer's may stand in any order") {
  auto const plain = shepherd({}).command;
  CHECK(plain.at.host == "127.0.0.1");
  CHECK(plain.at.port == 8080);
  CHECK(plain.at.folder == "o/shepherd");
  CHECK(plain.outer.learning_rate == 0.7);
  CHECK(plain.outer.momentum == 0.9);
  CHECK(plain.policy.staleness == 1);
  auto const streaming = shepherd({"--fragments", "3", "--outer-mix", "0.25"}).command;
  CHECK(streaming.fragments == 3);
  CHECK(streaming.mix == 0.25);
  CHECK(streaming.outer.learning_rate == 0.4);
  CHECK(streaming.policy.staleness == 0);
  CHECK(shepherd({"--fragments", "3", "--outer-learning-rate", "0.7"}).command.outer.learning_rate == 0.7);
  auto const c =
      shepherd({"--steps", "7", "--workers=4", "--learning-rate", "0.01", "--shepherd", "--lost-after", "1.5",
                "--heartbeat=0.25", "--outer-bits", "int4", "--batch=2", "--port", "0", "--trim", "0.1"})
          .command;
  CHECK(c.train.steps == 7);
  CHECK(c.train.batch == 2);
  CHECK(c.train.learning_rate == 0.01);
  CHECK(c.policy.workers == 4);
  CHECK(c.policy.lost_after == seconds(1.5));
  CHECK(c.policy.heartbeat == seconds(0.25));
  CHECK(c.policy.trim == 0.1);
  CHECK(c.bits == parallel::OuterBits::int4);
  CHECK(c.at.port == 0);
}

TEST_CASE("a worker finds its shepherd by host, port or both") {
  auto const at = [](std::string const& text) {
    auto const c = worker({"--connect", text}).command;
    return c.at.host + " " + std::to_string(c.at.port);
  };
  CHECK(at("there:99") == "there 99");
  CHECK(at("there") == "there 8080");
  CHECK(at(":99") == "127.0.0.1 99");
  CHECK(at("10.0.0.1:65535") == "10.0.0.1 65535");
  CHECK(at("[::1]:99") == "[::1] 99");
  CHECK(at("::1") == "::1 8080");
  auto const configuration = ErrorKind::configuration;
  for (std::string const wrong : {"there:0", "there:65536", "there:x", "there:9x"})
    REQUIRE_ERROR(at(wrong), configuration, "port must be between 1 and 65535");
}

TEST_CASE("a worker may have several addresses to try, and be a relay") {
  auto const plain = worker({}).command;
  CHECK(plain.at.further.empty());
  CHECK((!plain.relays && plain.trains));
  auto const c = worker({"--connect", "near:1,far:2,:3", "--relay", "0", "--relay-workers", "3", "--relay-bits", "int8",
                         "--relay-lost-after", "2.5", "--next-after", "3", "--relay-host", "::1", "--key", "k"})
                     .command;
  CHECK(c.at.host == "near");
  REQUIRE(c.at.further.size() == 2);
  CHECK(c.at.further[0].text() == "far:2");
  CHECK(c.at.further[1].text() == "127.0.0.1:3");
  CHECK((c.relays && c.trains && c.has_relay_bits));
  CHECK(c.relay_bits == parallel::OuterBits::int8);
  CHECK(c.relay.workers == 3);
  CHECK(c.relay.lost_after == seconds(2.5));
  CHECK(c.at.turn == seconds(3));
  CHECK(c.relay.at.port == 0);
  CHECK(c.relay.at.host == "::1");
  CHECK(c.relay.at.key == "k");
  auto const only = parsed(parse_worker, {"--relay", "0", "--relay-only"});  // without --data
  CHECK_FALSE(only.leave);
  CHECK_FALSE(only.command.trains);
  CHECK(c.relay.at.rate_limit == 0);
  CHECK(worker({"--relay", "0", "--relay-rate-limit", "5"}).command.relay.at.rate_limit == 5);
  CHECK(Address{"::1", 5}.text() == "[::1]:5");
  auto const configuration = ErrorKind::configuration;
  REQUIRE_ERROR(worker({"--relay-only"}), configuration, "say --relay PORT too");
  REQUIRE_ERROR(worker({"--relay-bits", "int4"}), configuration, "say --relay PORT too");
  REQUIRE_ERROR(worker({"--relay", "65536"}), configuration, "--relay must be");
  REQUIRE_ERROR(worker({"--relay", "0", "--relay-workers", "0"}), configuration, "--relay-workers");
  REQUIRE_ERROR(worker({"--relay", "0", "--relay-lost-after", "0"}), configuration, "--relay-lost-after");
  REQUIRE_ERROR(worker({"--connect", "near:1,far:0"}), configuration, "port must be between 1 and 65535");
  for (char const* wrong : {"near:1,", ",", "a:1,,b:2", "a:1, b:2"})
    REQUIRE_ERROR(worker({"--connect", wrong}), configuration, "an address that is empty or has a space");
  REQUIRE_ERROR(worker({"--relay-lost-after", "3"}), configuration, "say --relay PORT too");
  REQUIRE_ERROR(worker({"--relay-host", "1.2.3.4"}), configuration, "say --relay PORT too");
  REQUIRE_ERROR(worker({"--relay", "0", "--relay-host", "0.0.0.0"}), configuration, "--relay-host 127.0.0.1");
  REQUIRE_ERROR(worker({"--patience", "1e300"}), configuration, "--patience must be between 0 and 1000000000");
  CHECK(worker({"--relay", "0", "--relay-bits", "int2"}).code == 2);
}

TEST_CASE("flags that a program has no use for are refused by name") {
  auto const configuration = ErrorKind::configuration;
  REQUIRE_ERROR(shepherd({"--ranks", "2"}), configuration, "--ranks does nothing in a shepherd");
  REQUIRE_ERROR(shepherd({"--profile"}), configuration, "--profile does nothing in a shepherd");
  CHECK(worker({"--device", "iree:llvm-cpu"}).command.train.device.text() == "iree:llvm-cpu");
  REQUIRE_ERROR(shepherd({"--device", "iree:llvm-cpu"}), configuration, "--device does nothing in a shepherd");
  REQUIRE_ERROR(worker({"--learning-rate", "1"}), configuration, "--learning-rate does nothing in a worker");
  REQUIRE_ERROR(shepherd({"--fragments", "31"}), configuration, "as many as --inner-steps, 30");
  REQUIRE_ERROR(shepherd({"--fragments", "0"}), configuration, "--fragments 0");
  REQUIRE_ERROR(shepherd({"--fragments", "2", "--staleness", "1"}), configuration, "--staleness 1: with --fragments");
  REQUIRE_ERROR(shepherd({"--outer-mix", "1.5"}), configuration, "--outer-mix");
  REQUIRE_ERROR(shepherd({"--rate-limit", "-1"}), configuration, "--rate-limit");
  REQUIRE_ERROR(shepherd({"--outer-momentum", "1"}), configuration, "--outer-momentum");
  REQUIRE_ERROR(shepherd({"--port", "65536"}), configuration, "--port");
  REQUIRE_ERROR(worker({"--patience", "0"}), configuration, "--patience");
  REQUIRE_ERROR(parsed(parse_shepherd, {"--data", "d"}), configuration, "--out is needed");
  for (std::vector<std::string> const& words : {std::vector<std::string>{"--no-such-flag"}, {"--port", "x"}}) {
    auto const refused = shepherd(words);
    CHECK(refused.leave);
    CHECK(refused.code == 2);
    CHECK(tutti::test::contains(refused.text, "tutti_shepherd: "));
    CHECK(!tutti::test::contains(refused.text, "train_gpt2"));
  }
  auto const help = worker({"--help"});
  CHECK(help.leave);
  CHECK(help.code == 0);
  CHECK(tutti::test::contains(help.text, "--connect"));
  CHECK(tutti::test::contains(help.text, "--data"));
}

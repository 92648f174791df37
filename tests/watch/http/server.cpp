// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/watch/http/server.hpp> <tutti/watch/http/client.hpp> <tutti/watch/http/page.hpp>
// Covers: <tutti/core/request_checks.hpp>
#include "support/catch.hpp"

#include <tutti/watch/http/client.hpp>
#include <tutti/watch/http/server.hpp>

#include <memory>
#include <string>
#include <thread>

using namespace tutti;
using namespace tutti::watch;
using Kind = train::Command::Kind;

namespace {

struct Served {
  train::Registry registry;
  train::Commands commands;
  LiveSource source{{registry, commands, "runs/x"}};
  Server server{source, 0};

  Served() {
    registry.record({{"type", "start"}, {"step", 0}, {"steps", 10}, {"ranks", 1}, {"tokens_per_step", 10}});
    registry.record({{"type", "step"}, {"step", 3}, {"loss", 2.5}, {"ms", 1.0}, {"tokens_per_second", 10.0}});
  }
  httplib::Client client() const { return httplib::Client("127.0.0.1", server.port()); }
  RemoteSource remote(bool asks) const {
    return RemoteSource({"127.0.0.1", asks ? server.token() : "", server.port()});
  }
  int post(std::string const& body, httplib::Headers const& headers) const {
    auto const answer = client().Post("/command", headers, body, "text/plain");
    return answer ? answer->status : -1;
  }
};

}  // namespace

TEST_CASE("a run is seen from elsewhere as it is seen here, and asked by who has its address") {
  Served served;
  RemoteSource reader = served.remote(false), writer = served.remote(true);
  Picture here = served.source.picture(), there = reader.picture();
  here.time = there.time = 0;
  CHECK(to_json(here) == to_json(there));
  CHECK(there.step == 3);
  REQUIRE_ERROR(reader.ask({Kind::pause}), ErrorKind::configuration, "watch the whole address");
  writer.ask({Kind::pause});
  writer.ask({Kind::drain, "beef"});
  CHECK(served.commands.take() == std::vector<train::Command>{{Kind::pause}, {Kind::drain, "beef"}});
}

TEST_CASE("nobody asks without the token, from another page, or by another name of this machine") {
  Served served;
  std::string const token = served.server.token(), own = "http://127.0.0.1:" + std::to_string(served.server.port());
  CHECK(token.size() == 32);
  CHECK(served.post("stop", {}) == 403);
  CHECK(served.post("stop", {{"X-Tutti-Token", ""}}) == 403);
  CHECK(served.post("stop", {{"X-Tutti-Token", token + "0"}}) == 403);
  CHECK(served.post("stop", {{"X-Tutti-Token", token}, {"Origin", "http://evil.example"}}) == 403);
  CHECK(served.post("stop", {{"X-Tutti-Token", token}, {"Host", "evil.example"}}) == 403);
  CHECK(served.post("rm", {{"X-Tutti-Token", token}}) == 400);
  CHECK(served.post(std::string(5000, 'x'), {{"X-Tutti-Token", token}}) == 413);
  CHECK(served.commands.take().empty());
  CHECK(served.post("stop", {{"X-Tutti-Token", token}, {"Origin", own}}) == 200);
  CHECK(served.commands.take().size() == 1);
  auto client = served.client();
  auto const stranger = client.Get("/state", {{"Host", "evil.example"}});
  REQUIRE(stranger);
  CHECK(stranger->status == 403);
  CHECK(!test::contains(stranger->body, "losses"));
  for (char const* host : {"127.0.0.1", "localhost:9000", "[::1]:80", "localhost"})
    CHECK(names_this_machine(host));
  for (char const* host : {"", "127.0.0.1.evil.example", "localhost:80.evil", "evil", "[::1", ":80"})
    CHECK(!names_this_machine(host));
}

TEST_CASE("the page has no outside resources, and its browser is told to load none") {
  Served served;
  auto client = served.client();
  auto const one = client.Get("/"), two = client.Get("/");
  REQUIRE((one && two));
  std::string const policy = one->get_header_value("Content-Security-Policy");
  CHECK(test::contains(policy, "default-src 'none'"));
  CHECK(!test::contains(policy, "unsafe"));
  std::size_t const at = policy.find("nonce-");
  std::string const nonce = policy.substr(at + 6, 32);
  CHECK(test::contains(one->body, "<script nonce=\"" + nonce + "\">"));
  CHECK(!test::contains(two->body, nonce));  // of each answer
  CHECK(!test::contains(one->body, "NONCE"));
  CHECK(!test::contains(one->body, served.server.token()));  // which stands in the address alone
  CHECK(!test::contains(served.client().Get("/state")->body, served.server.token()));
  for (char const* outside : {"https://", "src=", "@import", "url("}) CHECK(!test::contains(one->body, outside));
  auto const missing = client.Get("/other");
  REQUIRE(missing);
  CHECK(missing->status == 404);
}

TEST_CASE("events tell of every change, and of the end") {
  auto served = std::make_unique<Served>();
  int const port = served->server.port();
  std::string heard;
  std::thread listener([&] {
    httplib::Client client("127.0.0.1", port);
    client.set_read_timeout(10);
    client.Get("/events", [&](char const* data, std::size_t size) {
      heard.append(data, size);
      return true;
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  served->registry.record({{"type", "end"}, {"step", 10}, {"reason", "done"}});
  served.reset();  // a server that ends says the last of it
  listener.join();
  CHECK(heard.starts_with("data: {"));
  CHECK(test::contains(heard, "\"ended\":true"));
}

TEST_CASE("a port that is taken, an address that is none, and a machine that is silent get a sentence") {
  Served served;
  REQUIRE_ERROR(Server(served.source, served.server.port()), ErrorKind::io, "Another program may have it");
  PageAddress const whole = parse_address(served.server.address());
  CHECK((whole.host == "127.0.0.1" && whole.port == served.server.port() && whole.token == served.server.token()));
  CHECK(parse_address("gpu-3.example:80").port == 80);
  for (char const* text : {"", ":", ":80", "host", "host:", "host:x", "host:70000", "https://host:80/", "ho st:80",
                           "host:80#nothex", "host/path:80"}) {
    INFO(text);
    REQUIRE_ERROR(parse_address(text), ErrorKind::configuration, "HOST:PORT");
  }
  RemoteSource nobody({"127.0.0.1", "", 1});
  REQUIRE_ERROR(nobody.picture(), ErrorKind::communication, "does not answer");
}

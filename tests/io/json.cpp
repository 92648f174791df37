// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/json.hpp>

#include "support/catch.hpp"
#include "support/fuzz.hpp"

using namespace tutti;

TEST_CASE("good JSON is parsed") {
  auto const json = io::parse_json(R"({"a": [1, 2.5, "x"], "b": {"a": null}})", "x.json");
  CHECK(json["a"][2] == "x");
  CHECK(json["b"]["a"].is_null());
}

TEST_CASE("damaged JSON, doubled keys and absurd nesting are refused with the name of the file") {
  for (std::string const text : {"", "{", "{\"a\":}", "[1,2", "nul", "{\"a\":1}}", "\xff", "{\"\xff\":1}", "[1e999]"}) {
    INFO(text);
    REQUIRE_ERROR(io::parse_json(text, "some/file.json"), ErrorKind::format, "some/file.json");
  }
  for (std::string const& tail : {std::string("\0", 1), std::string("\0trailing junk {", 16), std::string("\n\0 ", 3)})
    REQUIRE_ERROR(io::parse_json("{\"a\":1}" + tail, "some/file.json"), ErrorKind::format, "zero byte");
  REQUIRE_ERROR(io::parse_json(R"({"a":1,"b":{"a":2},"a":3})", "f"), ErrorKind::format, "twice");
  CHECK_NOTHROW(io::parse_json(R"([{"a":1},{"a":{"a":2}}])", "f"));
  CHECK_NOTHROW(io::parse_json(std::string(60, '[') + std::string(60, ']'), "f"));
  REQUIRE_ERROR(io::parse_json(std::string(100, '[') + std::string(100, ']'), "f"), ErrorKind::format, "64 levels");
  REQUIRE_ERROR(io::parse_json(std::string(1000000, '['), "f"), ErrorKind::format, "64 levels");
}

TEST_CASE("quoted text comes back, and bytes that are not UTF-8 do not stop it") {
  std::string const text = std::string("a\"b\\c\n\t\x01\x7f é \xf0\x9f\x98\x80") + '\0';
  CHECK(io::parse_json(io::quote_json(text), "f") == text);
  CHECK(io::parse_json(io::quote_json("a\xff"
                                      "b"),
                       "f") ==
        "a\xef\xbf\xbd"
        "b");
}

TEST_CASE("JSON damaged at random is read or refused; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  test::Fuzzer fuzzer(2000,
                      {R"({"a": [1, 2.5e-3, "x\u00e9\ud83d\ude00"], "b": {"a": null, "c": true}, "": -0.0})",
                       "[[[{}]]]", "\"text\"", "-12e+400"},
                      {"\\ud800", "\"a\":", "1e999", "[[[[[[[[", "{\"a\":", "\xef\xbb\xbf"});
  int refused = 0, read = 0;
  while (fuzzer.next()) {
    std::string const text = fuzzer.damaged();
    try {
      auto const json = io::parse_json(text, "f");
      std::string const written = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      REQUIRE(io::parse_json(written, "f") == json);
      REQUIRE(io::parse_json(io::quote_json(written), "f") == written);
      ++read;
    } catch (Error const& error) {
      INFO(text);
      REQUIRE(error.kind() == ErrorKind::format);
      ++refused;
    }
  }
  CHECK((refused > 100 && read > 100));
}

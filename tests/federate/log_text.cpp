// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/log_text.hpp>
// Covers: <tutti/federate/history.hpp>
#include "support/catch.hpp"

#include <tutti/federate/log_text.hpp>

using namespace tutti;
using namespace tutti::federate;

namespace {
constexpr std::uint64_t first = (std::uint64_t{1} << 32) + 1;

std::vector<Record> const& story() {
  static std::vector<Record> const records{Started{~std::uint64_t{0}, 1, 100, 5, 2},
                                           Leased{first, 7, 0, {{0, 40}}},
                                           Leased{first + 1, 8, 0, {{40, 10}, {60, 4}}},
                                           Returned{first + 1, "lost: \"quoted\", \xff not UTF-8"},
                                           Closed{0, 123456789012345678u, 2.5, {{first, 30, 0, 240.0}}},
                                           Started{~std::uint64_t{0}, 2, 100, 5, 2}};
  return records;
}
std::string text_of(std::vector<Record> const& records) {
  std::string text;
  for (Record const& record : records) text += to_line(record);
  return text;
}
}  // namespace

TEST_CASE("a log is read back as it was written") {
  std::string const text = text_of(story());
  LogText const log = parse_log(text, "log");
  CHECK(log.whole == text.size());
  REQUIRE(log.records.size() == story().size());
  CHECK(text_of(log.records) == text);
  CHECK(log.history.round() == 1);
  CHECK(log.history.checksum() == 123456789012345678u);
  CHECK(log.history.begun_with().run == ~std::uint64_t{0});
  CHECK(log.history.begun_with().incarnation == 2);
  CHECK(log.history.worked());
  CHECK(log.history.ledger().committed() == 30);
  CHECK(log.history.ledger().free() == 70);
  CHECK(!parse_log("", "log").history.begun());
}

TEST_CASE("a log that ends anywhere tells of everything before its last line") {
  std::string const text = text_of(story());
  std::size_t lines = 0, whole = 0;
  for (std::size_t end = 0; end <= text.size(); ++end) {
    if (end > 0 && text[end - 1] == '\n') ++lines, whole = end;
    LogText const log = parse_log(std::string_view(text).substr(0, end), "log");
    REQUIRE(log.records.size() == lines);
    REQUIRE(log.whole == whole);
  }
}

TEST_CASE("any changed byte before the last line is found, with its line") {
  std::string const text = text_of(story());
  std::size_t const last = text.rfind('\n', text.size() - 2) + 1;
  for (std::size_t at = 0; at + 1 < last; ++at) {  // without the newline that makes two lines of the last one
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
    REQUIRE_ERROR(parse_log(damaged, "log"), ErrorKind::format, "of log");
  }
  std::string torn = text;
  torn[last + 20] ^= 1;
  CHECK(parse_log(torn, "log").records.size() == story().size() - 1);
}

TEST_CASE("records that contradict each other are refused") {
  auto const with = [](std::vector<Record> more, std::size_t of = 6) {
    std::vector<Record> records(story().begin(), story().begin() + static_cast<std::ptrdiff_t>(of));
    records.insert(records.end(), more.begin(), more.end());
    return parse_log(text_of(records), "log");
  };
  auto const format = ErrorKind::format;
  std::uint64_t const second = (std::uint64_t{2} << 32) + 1;
  with({Leased{second, 7, 1, {{30, 10}}}});
  REQUIRE_ERROR(with({Leased{second, 7, 1, {{29, 10}}}}), format, "line 7 of log does not fit");
  REQUIRE_ERROR(with({Leased{first + 9, 7, 1, {{30, 10}}}}), format, "not of its shepherd");
  REQUIRE_ERROR(with({Returned{first, "again"}}), format, "not outstanding");
  REQUIRE_ERROR(with({Closed{1, 0, 0, {}}}), format, "no contributions");
  REQUIRE_ERROR(with({Closed{1, 0, 0, {{first, 30, 0, 1}}}}), format, "not outstanding");
  REQUIRE_ERROR(with({Closed{0, 0, 0, {{first, 30, 0, 1}}}}), format, "outer step 0 follows 1");
  REQUIRE_ERROR(with({Closed{0, 0, 0, {{first, 30, 1, 1}}}}, 4), format, "of a later round");
  REQUIRE_ERROR(with({Started{3, 3, 100, 5, 2}}), format, "two runs");
  REQUIRE_ERROR(with({Started{~std::uint64_t{0}, 4, 100, 5, 2}}), format, "no place");
  REQUIRE_ERROR(with({Returned{1, ""}}, 0), format, "does not begin");
}

TEST_CASE("a line with a sound hash that is no record is refused") {
  for (std::string const text :
       {"{}", "[1]", "null", "{\"record\":\"dance\"}", "{\"record\":\"leased\",\"lease\":-1}", "{\"record\":7}",
        "not json", "{\"record\":\"returned\",\"lease\":\"x\",\"reason\":\"\"}"}) {
    std::string const line = federate::detail::line_hash(text) + " " + text + "\n";
    REQUIRE_ERROR(parse_log(line + to_line(story()[0]), "log"), ErrorKind::format, "line 1 of log");
  }
}

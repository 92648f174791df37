// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/stamp.hpp>
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/io/tensorboard.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

using namespace tutti;
using io::crc32c, io::TensorboardFile;

namespace {

/// Fields of a message: number to what stood there, numbers as their bytes. A second decoder, of its own.
std::multimap<unsigned, std::string> fields_of(std::string const& bytes) {
  std::multimap<unsigned, std::string> fields;
  std::size_t at = 0;
  auto const varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      auto const byte = static_cast<unsigned char>(bytes.at(at++));
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.size()) {
    std::uint64_t const key = varint();
    std::size_t size = 0;
    std::string value;
    switch (key & 7) {
      case 0: value = std::to_string(varint()); break;
      case 1: size = 8; break;
      case 2: size = varint(); break;
      case 5: size = 4; break;
      default: FAIL("wire type " << (key & 7));
    }
    if (size > 0) {
      REQUIRE(at + size <= bytes.size());
      value = bytes.substr(at, size);
      at += size;
    }
    fields.emplace(static_cast<unsigned>(key >> 3), value);
  }
  return fields;
}
std::string only(std::multimap<unsigned, std::string> const& fields, unsigned number) {
  REQUIRE(fields.count(number) == 1);
  return fields.find(number)->second;
}
template <class T>
T from_bytes(std::string const& bytes) {
  T value;
  REQUIRE(bytes.size() == sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The messages of a file, whose frames are checked.
std::vector<std::string> records_of(std::string const& path) {
  std::string const bytes = io::read_file(path);
  std::vector<std::string> records;
  auto const unmasked = [](std::string const& masked) {
    std::uint32_t const rotated = from_bytes<std::uint32_t>(masked) - 0xa282ead8u;
    return (rotated >> 17) | (rotated << 15);
  };
  for (std::size_t at = 0; at < bytes.size();) {
    REQUIRE(at + 12 <= bytes.size());
    auto const length = from_bytes<std::uint64_t>(bytes.substr(at, 8));
    CHECK(unmasked(bytes.substr(at + 8, 4)) == crc32c(bytes.substr(at, 8)));
    REQUIRE(at + 12 + length + 4 <= bytes.size());
    records.push_back(bytes.substr(at + 12, length));
    CHECK(unmasked(bytes.substr(at + 12 + length, 4)) == crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

}  // namespace

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c("") == 0);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i), falling += static_cast<char>(31 - i);
  CHECK(crc32c(rising) == 0x46dd794eu);
  CHECK(crc32c(falling) == 0x113fdb5cu);
  // As in TensorFlow's record files: the length 24 before the event "brain.Event:2".
  CHECK(io::masked_crc32c(std::string("\x18\0\0\0\0\0\0\0", 8)) == 0x224b7fa3u);
}

TEST_CASE("an event file is what TensorBoard expects, byte for byte") {
  test::ScratchFolder const folder;
  TensorboardFile file(folder / "events");
  CHECK(test::contains(file.path(), "/events/events.out.tfevents."));
  file.scalar("train/loss", 300, 2.5);
  file.text("sample", 7, "two\nlines");
  file.scalar("x", 1, std::nan(""));
  auto const records = records_of(file.path());
  REQUIRE(records.size() == 4);
  auto const first = fields_of(records[0]);
  CHECK(from_bytes<double>(only(first, 1)) > 1.6e9);
  CHECK(only(first, 3) == "brain.Event:2");
  auto const scalar = fields_of(records[1]);
  CHECK(only(scalar, 2) == "300");
  auto const value = fields_of(only(fields_of(only(scalar, 5)), 1));
  CHECK(only(value, 1) == "train/loss");
  CHECK(from_bytes<float>(only(value, 2)) == 2.5f);
  auto const text = fields_of(only(fields_of(only(fields_of(records[2]), 5)), 1));
  CHECK(only(fields_of(only(text, 8)), 8) == "two\nlines");
  CHECK(only(fields_of(only(text, 8)), 1) == "7");
  CHECK(only(fields_of(only(fields_of(only(text, 9)), 1)), 1) == "text");
  CHECK(std::isnan(from_bytes<float>(only(fields_of(only(fields_of(only(fields_of(records[3]), 5)), 1)), 2))));
}

TEST_CASE("a run that goes on writes a later file, which says from where earlier ones do not count") {
  test::ScratchFolder const folder;
  std::set<std::string> names;
  for (std::int64_t first : {-1, 4, 4}) {
    TensorboardFile file(folder / "events", first);
    CHECK((names.empty() || file.path() > *names.rbegin()));  // within one second too
    names.insert(file.path());
    auto const records = records_of(file.path());
    REQUIRE(records.size() == (first < 0 ? 1 : 2));
    if (first < 0) continue;
    CHECK(only(fields_of(records[1]), 2) == "4");
    CHECK(only(fields_of(only(fields_of(records[1]), 7)), 1) == "1");
  }
  CHECK(names.size() == 3);
  REQUIRE_ERROR(TensorboardFile("/proc/no/folder"), ErrorKind::io, "/proc");
}

// TUTTI_TENSORBOARD_PYTHON names a Python that has the package tensorboard; ./tutti test makes one.
TEST_CASE("TensorBoard reads what was written, and forgets what a resumed run does again") {
  char const* const python = std::getenv("TUTTI_TENSORBOARD_PYTHON");
  if (python == nullptr) {
    WARN("skipped: TUTTI_TENSORBOARD_PYTHON names no Python with the package tensorboard");
    return;
  }
  test::ScratchFolder const folder;
  std::string const events = folder / "events";
  {
    TensorboardFile file(events);
    for (int step = 1; step <= 6; ++step) file.scalar("train/loss", step, 10 - step);
    file.scalar("validation/loss", 4, 3.25);
    file.text("sample", 4, "words\xc3\xa4");
  }
  {
    TensorboardFile file(events, 5);
    for (int step = 5; step <= 7; ++step) file.scalar("train/loss", step, 20 - step);
  }
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  REQUIRE(root != nullptr);
  std::string const out = folder / "read";
  int const status = std::system((std::string(python) + " '" + root + "/tests/io/tensorboard_python.py' '" + events +
                                  "' > '" + out + "'").c_str());
  REQUIRE(status == 0);
  std::string const read = io::read_file(out);
  CHECK(test::contains(read, "train/loss 1=9 2=8 3=7 4=6 5=15 6=14 7=13\n"));
  CHECK(test::contains(read, "validation/loss 4=3.25\n"));
  CHECK(test::contains(read, "sample 4=words\xc3\xa4\n"));
}

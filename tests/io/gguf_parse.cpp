// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/gguf_parse.hpp> <tutti/io/gguf_value.hpp>
#include <tutti/io/gguf_parse.hpp>

#include <tutti/core/block_dequantise.hpp>

#include "io/gguf_bytes.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

using namespace tutti;
using test::GgufBytes;

namespace {

io::GgufPart parse(std::string const& bytes, io::GgufLimits const& limits = {}) {
  // A copy of exact size, so that the address sanitizer sees a read past the end.
  std::vector<std::byte> exact(bytes.size());
  if (!bytes.empty()) std::memcpy(exact.data(), bytes.data(), bytes.size());
  return io::parse_gguf(exact, "m.gguf", limits);
}

/// A file of one tensor, else right.
std::string one_tensor(std::initializer_list<std::uint64_t> extents, std::uint32_t type, std::uint64_t offset,
                       std::size_t data) {
  return GgufBytes().head(1, 0).tensor("w", extents, type, offset).data(data).bytes;
}

}  // namespace

TEST_CASE("values of every type and tensors are read as they stand") {
  GgufBytes const file = test::small_gguf();
  io::GgufPart const part = io::parse_gguf(file.span(), "m.gguf");
  CHECK(part.version == 3);
  CHECK(part.alignment == 64);
  auto const& m = part.metadata;
  CHECK(m.size() == 16);
  CHECK(m.begin()->key == "general.architecture");
  CHECK(*m.find("u8") == io::GgufValue(std::uint8_t{200}));
  CHECK(*m.find("i8") == io::GgufValue(std::int8_t{-3}));
  CHECK(*m.find("u16") == io::GgufValue(std::uint16_t{60000}));
  CHECK(*m.find("i16") == io::GgufValue(std::int16_t{-300}));
  CHECK(*m.find("u32") == io::GgufValue(std::uint32_t{4000000000}));
  CHECK(*m.find("i32") == io::GgufValue(std::int32_t{-70000}));
  CHECK(*m.find("f32") == io::GgufValue(0.25f));
  CHECK(*m.find("bool") == io::GgufValue(true));
  CHECK(*m.find("u64") == io::GgufValue(~std::uint64_t{0}));
  CHECK(*m.find("i64") == io::GgufValue(std::int64_t{-5000000000}));
  CHECK(*m.find("f64") == io::GgufValue(0.1));
  CHECK(m.get<std::vector<std::string>>("strings") == std::vector<std::string>{"a", "", "\xe2\x96\x81x"});
  CHECK(m.get<std::vector<float>>("floats") == std::vector<float>{1.5f, -2.5f});
  CHECK(m.get<std::vector<std::int64_t>>("empty").empty());
  REQUIRE(part.tensors.size() == 3);
  auto const& q = part.tensors[0];
  CHECK((q.name == "q" && q.type == BlockType::q4_0 && q.shape == Shape{3, 64} && q.bytes == 108));
  CHECK((part.tensors[2].shape == Shape{2, 1, 3, 2} && part.tensors[2].bytes == 24));
  auto const* const start = reinterpret_cast<unsigned char const*>(file.bytes.data()) + file.bytes.size() - 216;
  CHECK(q.data == start);
  CHECK(part.tensors[1].data == start + 128);
  for (std::uint32_t const version : {2u, 3u}) CHECK(parse(GgufBytes().head(0, 0, version).bytes).version == version);
}

TEST_CASE("a value is given as the type that is asked for where it fits, and refused by name where not") {
  io::GgufPart const part = parse(test::small_gguf().bytes);
  auto const& m = part.metadata;
  CHECK(m.get<std::uint64_t>("u8") == 200);
  CHECK(m.get<int>("i32") == -70000);
  CHECK(m.get<double>("u16") == 60000.0);
  CHECK(m.get<bool>("bool"));
  CHECK(m.get<std::string>("general.architecture") == "llama");
  CHECK(m.get_or<int>("absent", 7) == 7);
  CHECK(m.list<std::string>("absent") == nullptr);
  CHECK(m.list<std::string>("strings")->size() == 3);
  REQUIRE_ERROR(m.get<int>("absent"), ErrorKind::format, "no key 'absent'");
  REQUIRE_ERROR(m.get<int>("u64"), ErrorKind::format, "'u64' as uint64, which is not an integer that fits");
  REQUIRE_ERROR(m.get<unsigned>("i8"), ErrorKind::format, "'i8' as int8, which is not an integer that fits");
  REQUIRE_ERROR(m.get<int>("f32"), ErrorKind::format, "'f32' as float32, which is not an integer");
  REQUIRE_ERROR(m.get<int>("bool"), ErrorKind::format, "'bool' as bool, which is not an integer");
  REQUIRE_ERROR(m.get<double>("strings"), ErrorKind::format, "array of string, which is not a number");
  REQUIRE_ERROR(m.get<std::string>("u8"), ErrorKind::format, "which is not a string");
  REQUIRE_ERROR(m.get<bool>("u8"), ErrorKind::format, "which is not a bool");
  REQUIRE_ERROR(m.get<std::vector<int>>("floats"), ErrorKind::format, "which is not a list of integers that fit");
  REQUIRE_ERROR(m.get<std::vector<std::string>>("floats"), ErrorKind::format, "which is not a list of that type");
  REQUIRE_ERROR(m.get<std::vector<int>>("u8"), ErrorKind::format, "which is not a list");
  REQUIRE_ERROR(m.list<float>("strings"), ErrorKind::format, "which is not a list of that type");
  io::GgufMetadata own;
  own.set("a", std::uint8_t{1}).set("b", std::uint8_t{2}).set("c", std::uint8_t{3}).set("b", 2.5);
  own.erase("a");
  own.erase("a");
  CHECK(own.size() == 2);
  CHECK(own.get<double>("b") == 2.5);
  CHECK(own.get<int>("c") == 3);
}

TEST_CASE("every kind of damage is refused with a sentence of its own") {
  std::string const big(70'000, 'k');
  struct Row {
    std::string bytes, sentence;
  };
  auto const kv = [](auto const&... parts) { return GgufBytes().head(0, 1).key(parts...).bytes; };
  auto const array = [](std::uint32_t type, std::uint64_t count, std::size_t bytes) {
    GgufBytes file;
    file.head(0, 1).text("list").put(std::uint32_t{9}).put(type).put(count);
    file.bytes.resize(file.bytes.size() + bytes, '\1');
    return file.bytes;
  };
  std::string magic = GgufBytes().head(0, 0).bytes;
  magic[3] = 'M';
  std::uint64_t const huge = std::uint64_t{1} << 62;
  std::vector<Row> const rows = {
      // Header.
      {"", "has 0 bytes, too few for the header"},
      {std::string("GGUF\3\0\0\0", 8), "has 8 bytes, too few for the header"},
      {magic, "does not begin with 'GGUF'"},
      {GgufBytes().head(0, 0, 1).bytes, "of version 1, whose counts have 32 bits"},
      {GgufBytes().head(0, 0, 0).bytes, "of version 0; 2 and 3 are known"},
      {GgufBytes().head(0, 0, 4).bytes, "of version 4; 2 and 3 are known"},
      {GgufBytes().head(0, 0, 0x03000000).bytes, "its numbers are big-endian"},
      {GgufBytes().head(1'048'577, 0).bytes, "claims 1048577 tensors; there may be 1048576"},
      {GgufBytes().head(~std::uint64_t{0}, 0).bytes, "claims 18446744073709551615 tensors"},
      {GgufBytes().head(0, 65'537).bytes, "claims 65537 keys; there may be 65536"},
      {GgufBytes().head(0, huge).bytes, "claims 4611686018427387904 keys"},
      {GgufBytes().head(1'000'000, 0).bytes, "claims 0 keys and 1000000 tensors, and 0 bytes follow"},
      {GgufBytes().head(0, 60'000).bytes, "claims 60000 keys and 0 tensors, and 0 bytes follow"},
      // Strings.
      {GgufBytes().head(0, 1).put(std::uint64_t{100}).put(huge).bytes,
       "inside the name of a key, which needs 100 bytes at 32"},
      {GgufBytes().head(0, 1).put(~std::uint64_t{0}).put(huge).bytes,
       "the name of a key claims 18446744073709551615 bytes"},
      {GgufBytes().head(0, 1).put((std::uint64_t{64} << 20) + 1).put(huge).bytes, "a string may have 67108864"},
      {GgufBytes().head(0, 1).text("k").put(std::uint32_t{8}).put(std::uint64_t{5}).bytes,
       "inside the value of 'k', which needs 5"},
      // Keys.
      {kv("", 4, 1u), "key 0 has no name"},
      {kv("caf\xc3\xa9", 4, 1u), "key 'caf?\?' has a name that is not ASCII"},
      {kv("a\nb", 4, 1u), "key 'a?b' has a name that is not ASCII"},
      {kv(big, 4, 1u), "has a name of 70000 bytes; it may have 65535"},
      {GgufBytes().head(0, 2).key("twice", 4, 1u).key("twice", 4, 2u).bytes, "key 'twice' stands twice"},
      {kv("k", 13, std::uint64_t{0}), "key 'k' has the type 13, which the format does not have"},
      {kv("k", 7, std::uint16_t{2}), "key 'k' has a bool that is 2, neither 0 nor 1"},
      {kv("k", 10, std::uint16_t{2}), "inside the value of 'k', which needs 8 bytes"},
      // Arrays.
      {array(9, 1, 40), "key 'list' has an array of arrays"},
      {array(13, 1, 40), "key 'list' has an array of type 13"},
      {array(4, 3, 8), "claims an array of 3 uint32, and 8 bytes follow"},
      {array(10, (std::uint64_t{1} << 61) + 1, 8), "claims an array of 2305843009213693953 uint64"},
      {array(8, 3, 16), "claims an array of 3 string, and 16 bytes follow"},
      {array(8, std::uint64_t{1} << 40, 16), "claims an array of 1099511627776 string"},
      {array(7, 17, 16), "claims an array of 17 bool, and 16 bytes follow"},
      {GgufBytes().head(0, 1).text("k").put(9u).put(7u).put(std::uint64_t{2}).put(std::uint16_t{0x0301}).bytes,
       "a bool that is 3"},
      // Alignment.
      {kv("general.alignment", 4, 0u), "general.alignment is 0; it must be a power of two"},
      {kv("general.alignment", 4, 4u), "general.alignment is 4; it must be a power of two from 8"},
      {kv("general.alignment", 4, 48u), "general.alignment is 48; it must be a power of two"},
      {kv("general.alignment", 4, 131'072u), "general.alignment is 131072; it must be"},
      {kv("general.alignment", 4, 0x80000000u), "general.alignment is 2147483648; it must be"},
      {kv("general.alignment", 10, std::uint64_t{32}), "general.alignment is uint64 and must be uint32"},
      // Tensors.
      {GgufBytes().head(1, 0).tensor("", {1}, 0, 0).data(32).bytes, "tensor 0 has no name"},
      {GgufBytes().head(1, 0).tensor(big, {1}, 0, 0).data(32).bytes, "has a name of 70000 bytes; it may have 65535"},
      {GgufBytes().head(2, 0).tensor("w", {1}, 0, 0).tensor("w", {1}, 0, 32).data(64).bytes, "tensor 'w' stands twice"},
      {GgufBytes().head(1, 0).tensor("w", {}, 0, 0).data(32).bytes, "tensor 'w' has 0 axes; it must have 1 to 4"},
      {one_tensor({1, 1, 1, 1, 1}, 0, 0, 32), "tensor 'w' has 5 axes; it must have 1 to 4"},
      {GgufBytes().head(1, 0).text("w").put(0x20000000u).put(huge).put(huge).data(64).bytes, "has 536870912 axes"},
      {one_tensor({4, 0}, 0, 0, 32), "tensor 'w' has an extent of 0"},
      {one_tensor({huge, 4}, 0, 0, 32), "has a number of elements that does not fit 64 bits"},
      {one_tensor({~std::uint64_t{0}}, 0, 0, 32), "has a number of elements that does not fit 64 bits"},
      {one_tensor({huge}, 0, 0, 32), "tensor 'w' has a size that does not fit 64 bits"},
      {one_tensor({33}, 2, 0, 64), "tensor 'w' has rows of 33, which are no whole blocks of Q4_0, 32 each"},
      {one_tensor({128, 2}, 12, 0, 144), "tensor 'w' has rows of 128, which are no whole blocks of Q4_K, 256 each"},
      {one_tensor({32}, 4, 0, 64), "element type 4, which was removed from the format"},
      {one_tensor({32}, 37, 0, 64), "element type 37, which was removed from the format"},
      {one_tensor({32}, 9, 0, 64), "element type 9, which is for activations"},
      {one_tensor({32}, 26, 0, 128), "element type 26, of integers or doubles"},
      {one_tensor({32}, 39, 0, 64), "element type 39, which tutti does not read"},
      {one_tensor({32}, 0xffffffffu, 0, 64), "element type 4294967295, which is unknown"},
      {one_tensor({1}, 0, 8, 64), "has the offset 8, which is no multiple of the alignment 32"},
      {one_tensor({16}, 0, ~std::uint64_t{0} - 31, 64), "with which its end does not fit 64 bits"},
      {one_tensor({8}, 0, huge, 64), "takes 32 bytes from 4611686018427387904 of the data on, which has 64"},
      {one_tensor({17}, 0, 0, 64), "takes 68 bytes from 0 of the data on, which has 64"},
      {one_tensor({std::uint64_t{1} << 40}, 0, 0, 64), "takes 4398046511104 bytes from 0 of the data on"},
      {GgufBytes().head(1, 0).tensor("w", {1}, 0, 0).bytes, "takes 4 bytes from 0 of the data on, which has 0"},
      {GgufBytes().head(2, 0).tensor("a", {9}, 0, 0).tensor("b", {1}, 0, 32).data(64).bytes,
       "tensors 'a' and 'b' overlap at byte 32"},
      {GgufBytes().head(2, 0).tensor("a", {8}, 0, 32).tensor("b", {8}, 0, 32).data(64).bytes, "overlap at byte 32"},
      {GgufBytes().head(1, 0).text("w").put(2u).put(std::uint64_t{1}).put(std::uint64_t{1}).put(std::uint32_t{0}).bytes,
       "inside the offset of 'w'"},
  };
  for (Row const& row : rows) {
    REQUIRE_ERROR(parse(row.bytes), ErrorKind::format, row.sentence);
    REQUIRE_ERROR(parse(row.bytes), ErrorKind::format, "'m.gguf' is not a usable GGUF file: ");
  }
}

TEST_CASE("limits are those that are asked for") {
  std::string const bytes = test::small_gguf().bytes;
  io::GgufLimits limits;
  CHECK(parse(bytes, limits).metadata.size() == 16);
  REQUIRE_ERROR(parse(bytes, {.keys = 15}), ErrorKind::format, "claims 16 keys; there may be 15");
  REQUIRE_ERROR(parse(bytes, {.tensors = 2}), ErrorKind::format, "claims 3 tensors; there may be 2");
  REQUIRE_ERROR(parse(bytes, {.string_bytes = 19}), ErrorKind::format, "claims 20 bytes; a string may have 19");
  REQUIRE_ERROR(parse(bytes, {.metadata_bytes = 100}), ErrorKind::format, "its metadata has more than 100 bytes");
}

TEST_CASE("a file cut at any byte is refused") {
  std::string const bytes = test::small_gguf().bytes;
  for (std::size_t length = 0; length < bytes.size(); ++length)
    REQUIRE_ERROR(parse(bytes.substr(0, length)), ErrorKind::format, "'m.gguf' is not a usable GGUF file");
}

TEST_CASE("bytes changed at random are read or refused, and nothing else happens", "[fuzz]") {
  std::string const seed_file = test::small_gguf().bytes;
  double const seconds = test::fuzz_seconds(2);
  auto const begin = std::chrono::steady_clock::now();
  std::uint64_t state = test::fuzz_seed(20261124);
  auto const random = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  static std::uint64_t const telling[] = {0,
                                          1,
                                          2,
                                          7,
                                          8,
                                          31,
                                          32,
                                          255,
                                          256,
                                          65'535,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          std::uint64_t{1} << 32,
                                          std::uint64_t{1} << 62,
                                          ~std::uint64_t{0} >> 1,
                                          ~std::uint64_t{0}};
  std::int64_t read = 0, refused = 0;
  double sum = 0;
  for (std::int64_t run = 0;
       run < 2000 || std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds; ++run) {
    std::string bytes = seed_file;
    for (std::uint64_t change = 1 + random(4); change-- > 0;) {
      std::size_t const at = static_cast<std::size_t>(random(bytes.size()));
      switch (random(6)) {
        case 0: bytes[at] = static_cast<char>(random(256)); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random(8))); break;
        case 2: {
          std::uint64_t const value = telling[random(std::size(telling))];
          std::memcpy(bytes.data() + at, &value, std::min<std::size_t>(random(2) == 0 ? 8 : 4, bytes.size() - at));
          break;
        }
        case 3: bytes.erase(at, static_cast<std::size_t>(random(16))); break;
        case 4: bytes.insert(at, static_cast<std::size_t>(random(16)), static_cast<char>(random(256))); break;
        default: {
          std::size_t const from = static_cast<std::size_t>(random(bytes.size()));
          std::size_t const count =
              std::min<std::size_t>(static_cast<std::size_t>(random(24)), bytes.size() - std::max(at, from));
          std::memmove(bytes.data() + at, bytes.data() + from, count);
        }
      }
      if (bytes.size() < 24) bytes = seed_file;
    }
    std::vector<std::byte> exact(bytes.size());
    std::memcpy(exact.data(), bytes.data(), bytes.size());
    try {
      io::GgufPart const part = io::parse_gguf(exact, "m.gguf");
      ++read;
      for (io::GgufTensor const& tensor : part.tensors) {  // all of its numbers are there
        std::vector<float> y(static_cast<std::size_t>(tensor.shape.size()));
        dequantise(tensor.type, tensor.data, tensor.shape.size(), y.data());
        sum += y.empty() ? 0.0 : y.back();
      }
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::format) throw;
      ++refused;
    }
  }
  INFO(read << " read, " << refused << " refused, " << sum);
  CHECK(read > 100);
  CHECK(refused > 100);
}

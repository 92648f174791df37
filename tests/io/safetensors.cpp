// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/safetensors.hpp> <tutti/io/named_tensor.hpp>
#include <tutti/io/safetensors.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <cstring>

using namespace tutti;

namespace {

/// A file from its header text and payload.
std::string file_of(std::string const& header, std::string const& payload) {
  std::uint64_t const length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + payload;
}

void require_refused(std::string const& bytes, std::string const& part) {
  test::ScratchFolder const folder;
  io::write_file(folder / "bad.safetensors", bytes);
  REQUIRE_ERROR(io::Safetensors(folder / "bad.safetensors"), ErrorKind::format, part);
  REQUIRE_ERROR(io::Safetensors(folder / "bad.safetensors"), ErrorKind::format, "bad.safetensors");
}

template <class T>
Tensor<T> numbers(Shape shape) {
  Tensor<T> tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    auto const small = static_cast<unsigned char>(i * 7 + 3);
    if constexpr (std::same_as<T, bool>) tensor.elements()[static_cast<std::size_t>(i)] = small % 2 == 1;
    else if constexpr (sizeof(T) == 2 && !std::integral<T>)
      tensor.elements()[static_cast<std::size_t>(i)] = T(float(small));
    else tensor.elements()[static_cast<std::size_t>(i)] = static_cast<T>(small);
  }
  return tensor;
}

}  // namespace

TEMPLATE_TEST_CASE("tensors of every element type and shape come back bit for bit", "", bool, std::int8_t, std::uint8_t,
                   std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, bfloat16,
                   float16, float, double, char, std::byte) {
  test::ScratchFolder const folder;
  std::vector<Tensor<TestType>> tensors;
  for (Shape const& shape :
       {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{3, 0, 5}, Shape{2, 3, 5}, Shape{1, 1, 1, 1, 1, 1, 1, 3}})
    tensors.push_back(numbers<TestType>(shape));
  std::vector<io::NamedTensor> names;
  for (auto const& tensor : tensors) names.push_back(io::named("t" + std::to_string(names.size()), tensor.view()));
  io::write_safetensors(folder / "x", names, {{"step", "7"}, {"quote\"", "line\n"}});
  io::Safetensors const file(folder / "x");
  CHECK(file.tensors().size() == tensors.size());
  CHECK(file.metadata() == io::Metadata{{"step", "7"}, {"quote\"", "line\n"}});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto const view = file.template view<TestType>("t" + std::to_string(i));
    auto const copy = file.template copy<TestType>("t" + std::to_string(i));
    REQUIRE(view.shape() == tensors[i].shape());
    REQUIRE(copy.shape() == tensors[i].shape());
    auto const bytes = static_cast<std::size_t>(view.size()) * sizeof(TestType);
    CHECK((bytes == 0 || std::memcmp(view.data(), tensors[i].data(), bytes) == 0));
    CHECK((bytes == 0 || std::memcmp(copy.data(), tensors[i].data(), bytes) == 0));
  }
}

TEST_CASE("the same tensors give the same bytes in any order, aligned for their types") {
  test::ScratchFolder const folder;
  auto const a = numbers<std::uint8_t>({3}), b = numbers<std::uint8_t>({5});
  auto const c = numbers<double>({2});
  auto const d = numbers<float>({3});
  auto const e = numbers<bfloat16>({1});
  std::vector<io::NamedTensor> names = {io::named("b", b.view()), io::named("a", a.view()), io::named("e", e.view()),
                                        io::named("d", d.view()), io::named("c", c.view())};
  io::write_safetensors(folder / "1", names);
  std::reverse(names.begin(), names.end());
  io::write_safetensors(folder / "2", names);
  CHECK(io::read_file(folder / "1") == io::read_file(folder / "2"));
  // One at a time, in the order given, from memory that the next one overwrites.
  std::vector<std::byte> memory;
  std::vector<std::string> asked;
  io::write_safetensors(folder / "one by one", names, [&](io::NamedTensor const& tensor) {
    auto const* const bytes = static_cast<std::byte const*>(tensor.data);
    memory.assign(bytes, bytes + tensor.bytes());
    asked.push_back(tensor.name);
    return memory.data();
  });
  CHECK(asked == std::vector<std::string>{"c", "d", "e", "a", "b"});
  CHECK(io::read_file(folder / "1") == io::read_file(folder / "one by one"));
  io::Safetensors const file(folder / "1");
  for (auto const& [name, tensor] : file.tensors())
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.dtype) == 0);
  std::vector<io::NamedTensor> again;
  for (auto const& [name, tensor] : file.tensors()) again.push_back(tensor);
  io::write_safetensors(folder / "3", again);
  CHECK(io::read_file(folder / "1") == io::read_file(folder / "3"));
  std::string const bytes = io::read_file(folder / "1"), header = bytes.substr(8, bytes.size() - 8 - 38);
  CHECK(header.size() % 8 == 0);
  CHECK(header.substr(0, header.find_last_not_of(' ') + 1) ==
        R"({"c":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
        R"("d":{"dtype":"F32","shape":[3],"data_offsets":[16,28]},)"
        R"("e":{"dtype":"BF16","shape":[1],"data_offsets":[28,30]},)"
        R"("a":{"dtype":"U8","shape":[3],"data_offsets":[30,33]},)"
        R"("b":{"dtype":"U8","shape":[5],"data_offsets":[33,38]}})");
}

TEST_CASE("a file without tensors is a file") {
  test::ScratchFolder const folder;
  io::write_safetensors(folder / "x", {});
  CHECK(io::Safetensors(folder / "x").tensors().empty());
  io::write_safetensors(folder / "y", {}, {{"a", "b"}});
  CHECK(io::Safetensors(folder / "y").metadata().at("a") == "b");
}

TEST_CASE("wrong names and types are refused in a sentence") {
  test::ScratchFolder const folder;
  auto const a = numbers<float>({3});
  std::vector<io::NamedTensor> names = {io::named("a", a.view())};
  io::write_safetensors(folder / "x", names);
  io::Safetensors const file(folder / "x");
  CHECK(file.contains("a"));
  CHECK(!file.contains("b"));
  REQUIRE_ERROR(file.at("b"), ErrorKind::format, "no tensor 'b'");
  REQUIRE_ERROR(file.view<double>("a"), ErrorKind::dtype, "holds float32, not float64");
  names.push_back(names[0]);
  REQUIRE_ERROR(io::write_safetensors(folder / "x", names), ErrorKind::invalid_argument, "stands twice");
  names = {io::named("__metadata__", a.view())};
  REQUIRE_ERROR(io::write_safetensors(folder / "x", names), ErrorKind::invalid_argument, "belongs to the format");
  CHECK(io::Safetensors(folder / "x").contains("a"));
  auto const matrix = numbers<float>({3, 2});
  REQUIRE_ERROR(io::named("t", matrix.transpose()), ErrorKind::shape, "not contiguous");
}

TEST_CASE("each kind of damage has its sentence") {
  require_refused("", "0 bytes");
  require_refused("1234567", "7 bytes");
  require_refused(std::string(8, '\xff'), "header claims");
  require_refused(file_of("", ""), "does not begin with");
  require_refused(file_of("[]", ""), "does not begin with");
  require_refused(file_of("{\"a\"", ""), "damaged");
  require_refused(file_of(R"({"a":1})", ""), "lacks dtype");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"), "lacks dtype");
  require_refused(file_of(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "1"), "F8_E4M3");
  require_refused(file_of(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", "1"), "element type");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), "extent");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "1234"), "extent");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "1234"),
                  "extent");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "1234"),
                  "at most 8");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234"),
                  "64 bits");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", ""),
                  "64 bits");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"), "needs 8 bytes");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "1234"), "payload bytes");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234"), "payload bytes");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "1234"), "two counts");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"), "two counts");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"), "hole");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12345678"),
                  "end at payload byte 4 of 8");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                          R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                          "123456"),
                  "overlap");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                          R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                          "1234"),
                  "overlap");
  require_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                          R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                          "12345678"),
                  "twice");
  require_refused(file_of(R"({"__metadata__":{"a":1}})", ""), "not text");
  require_refused(file_of(R"({"__metadata__":[]})", ""), "not an object");
}

TEST_CASE("unaligned tensors of other writers can be copied, and bools must be bools") {
  test::ScratchFolder const folder;
  std::string const one("\0\0\x80\x3f", 4);
  io::write_file(folder / "x", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}  )",
                                       "1" + one));
  io::Safetensors const file(folder / "x");
  bool const aligned = reinterpret_cast<std::uintptr_t>(file.at("b").data) % 4 == 0;
  CHECK(file.copy<float>("b")(0) == 1.0f);
  if (!aligned) REQUIRE_ERROR(file.view<float>("b"), ErrorKind::format, "Use copy");
  io::write_file(folder / "y",
                 file_of(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\0\1\2", 3)));
  REQUIRE_ERROR(io::Safetensors(folder / "y").view<bool>("a"), ErrorKind::format, "neither 0 nor 1");
  REQUIRE_ERROR(io::Safetensors(folder / "y").copy<bool>("a"), ErrorKind::format, "neither 0 nor 1");
}

TEST_CASE("a safetensors file damaged at any byte is refused or read, never worse") {
  test::ScratchFolder const folder;
  auto const a = numbers<float>({2, 3});
  auto const b = numbers<std::uint8_t>({5});
  std::vector<io::NamedTensor> const names = {io::named("weight", a.view()), io::named("b\"", b.view())};
  io::write_safetensors(folder / "good", names, {{"k", "v"}});
  auto const outcome =
      test::damage_everywhere(io::read_file(folder / "good"), folder / "bad", 1000, [](std::string const& path) {
        io::Safetensors const file(path);
        unsigned sum = 0;
        for (auto const& [name, tensor] : file.tensors())
          for (std::size_t i = 0; i < tensor.bytes(); ++i) sum += static_cast<unsigned char const*>(tensor.data)[i];
        CHECK(sum < 1000000);
      });
  CHECK(outcome.refused > 500);
  CHECK(outcome.accepted > 100);  // damage to payload, names or metadata goes unseen
}

TEST_CASE("Safetensors damaged at random are read or refused; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  test::ScratchFolder const folder;
  auto const a = numbers<float>({9, 11});
  auto const b = numbers<bool>({5});
  auto const c = numbers<bfloat16>({4, 1, 2});
  std::vector<io::NamedTensor> const names = {io::named("weight", a.view()), io::named("b\"", b.view()),
                                              io::named("c", c.view())};
  io::write_safetensors(folder / "good", names, {{"k", "v"}, {"format", "pt"}});
  test::Fuzzer fuzzer(500,
                      {io::read_file(folder / "good"),
                       file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16, 'x'))},
                      {"\"dtype\":\"I64\"", "\"shape\":[]", "\"data_offsets\":[0,0]", "[0,18446744073709551615]", "-1",
                       "\"__metadata__\":{}", "\"F8_E4M3\"", "9223372036854775807,9223372036854775807"});
  int refused = 0, read = 0;
  while (fuzzer.next()) {
    io::write_file(folder / "bad", fuzzer.damaged());
    try {
      io::Safetensors const file(folder / "bad");
      unsigned sum = 0;
      for (auto const& [name, tensor] : file.tensors()) {
        for (std::size_t i = 0; i < tensor.bytes(); ++i) sum += static_cast<unsigned char const*>(tensor.data)[i];
        if (tensor.dtype == DType::float32) sum += static_cast<unsigned>(file.copy<float>(name).size());
      }
      read += sum < 1'000'000'000;
    } catch (Error const& error) {
      REQUIRE(error.kind() == ErrorKind::format);
      ++refused;
    }
  }
  INFO(refused << " refused, " << read << " read");
  CHECK((refused > 100 && read > 10));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/gguf.hpp> <tutti/io/gguf_writer.hpp>
#include <tutti/io/gguf_writer.hpp>

#include <tutti/io/json.hpp>

#include "io/gguf_bytes.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;

namespace {

using Plan = std::vector<io::GgufTensorPlan>;

/// Tensors of every type, and bytes for all of them.
struct Sample {
  io::GgufMetadata metadata;
  Plan plan;
  std::vector<std::string> data;

  Sample() {
    metadata.set("general.architecture", std::string("llama")).set("general.alignment", std::uint32_t{64});
    metadata.set("u8", std::uint8_t{1})
        .set("i8", std::int8_t{-1})
        .set("u16", std::uint16_t{2})
        .set("i16", std::int16_t{-2});
    metadata.set("u32", 3u).set("i32", -3).set("f32", 0.5f).set("bool", true).set("u64", std::uint64_t{4});
    metadata.set("i64", std::int64_t{-4}).set("f64", 0.1).set("text", std::string("line\n\0x", 7));
    metadata.set("list.u8", io::GgufArray(std::vector<std::uint8_t>{1, 2, 3}))
        .set("list.i8", io::GgufArray(std::vector<std::int8_t>{-1}));
    metadata.set("list.u16", io::GgufArray(std::vector<std::uint16_t>{}))
        .set("list.i16", io::GgufArray(std::vector<std::int16_t>{-2}));
    metadata.set("list.u32", io::GgufArray(std::vector<std::uint32_t>{5}))
        .set("list.i32", io::GgufArray(std::vector<std::int32_t>{6, -7}));
    metadata.set("list.f32", io::GgufArray(std::vector<float>{0.5f}))
        .set("list.bool", io::GgufArray(std::vector<bool>{true, false}));
    metadata.set("list.text", io::GgufArray(std::vector<std::string>{"", "a"}))
        .set("list.f64", io::GgufArray(std::vector<double>{0.1}));
    metadata.set("list.u64", io::GgufArray(std::vector<std::uint64_t>{~std::uint64_t{0}}))
        .set("list.i64", io::GgufArray(std::vector<std::int64_t>{-1}));
    int seed = 0;
    for (auto const& facts : tutti::detail::block_facts) {
      std::int64_t const row = facts.elements == 1 ? 7 : facts.elements;
      plan.push_back({"t." + std::string(facts.name), facts.type, Shape{3, row}});
      std::string bytes(static_cast<std::size_t>(plan.back().bytes()), '\0');
      for (char& c : bytes) c = static_cast<char>((seed = seed * 75 + 74) >> 3);
      data.push_back(bytes);
    }
  }

  std::vector<std::string> write(std::string const& path, io::GgufWriteOptions options = {}) const {
    io::GgufWriter writer(path, metadata, plan, options);
    for (std::string const& bytes : data) writer.write(bytes.data(), bytes.size());
    writer.commit();
    return writer.paths();
  }
  void check(io::Gguf const& file) const {
    REQUIRE(file.tensors().size() == plan.size());
    for (std::size_t i = 0; i < plan.size(); ++i) {
      io::GgufTensor const& tensor = file.tensors()[i];
      CHECK((tensor.name == plan[i].name && tensor.type == plan[i].type && tensor.shape == plan[i].shape));
      CHECK(std::string(static_cast<char const*>(tensor.data), tensor.bytes) == data[i]);
      CHECK(reinterpret_cast<std::uintptr_t>(tensor.data) % 64 == 0);
      CHECK(file.at(plan[i].name).data == tensor.data);
    }
    REQUIRE(file.metadata().size() == metadata.size());
    auto read = file.metadata().begin();
    for (auto const& [key, value] : metadata) {
      CAPTURE(key);
      CHECK((read->key == key && read->value == value));
      ++read;
    }
  }
};

void split_file(std::string const& path, std::uint16_t part, std::uint16_t parts, std::int32_t tensors,
                char const* name) {
  test::GgufBytes file;
  file.head(1, 3).key("split.no", 2, part).key("split.count", 2, parts).key("split.tensors.count", 5, tensors);
  io::write_file(path, file.tensor(name, {4}, 0, 0).data(32).bytes);
}

}  // namespace

TEST_CASE("what is written is read, mapped or into memory, in both versions") {
  test::ScratchFolder const folder;
  Sample const sample;
  for (std::uint32_t const version : {2u, 3u})
    for (io::Loading const loading : {io::Loading::mapped, io::Loading::read}) {
      CHECK(sample.write(folder / "m.gguf", {.version = version}) == std::vector<std::string>{folder / "m.gguf"});
      io::Gguf const file(folder / "m.gguf", loading);
      CHECK(file.version() == version);
      sample.check(file);
    }
  CHECK(folder.names() == std::vector<std::string>{"m.gguf"});
  io::GgufWriter(folder / "empty.gguf", {}, {}).commit();
  io::Gguf const empty(folder / "empty.gguf");
  CHECK((empty.tensors().empty() && empty.metadata().size() == 0));
  REQUIRE_ERROR(empty.at("w"), ErrorKind::format, "has no tensor 'w' among its 0");
}

TEST_CASE("a model in parts is read from its first") {
  test::ScratchFolder const folder;
  Sample const sample;
  auto const paths = sample.write(folder / "m.gguf", {.part_bytes = 600});
  REQUIRE(paths.size() > 3);
  CHECK(paths.front() == folder / ("m-00001-of-0000" + std::to_string(paths.size()) + ".gguf"));
  CHECK(folder.names().size() == paths.size());
  for (io::Loading const loading : {io::Loading::mapped, io::Loading::read})
    sample.check(io::Gguf(paths.front(), loading));
  REQUIRE_ERROR(io::Gguf(paths[1]), ErrorKind::format,
                "it is part 2 of " + std::to_string(paths.size()) + ". Pass the first part");
  ::rename(paths[2].c_str(), (folder / "away").c_str());
  REQUIRE_ERROR(io::Gguf(paths[0]), ErrorKind::io, "m-00003-of-");
  ::rename(paths[3].c_str(), paths[2].c_str());
  REQUIRE_ERROR(io::Gguf(paths[0]), ErrorKind::format, "its metadata says part 4 of");
  ::rename(paths[0].c_str(), (folder / "first.gguf").c_str());
  REQUIRE_ERROR(io::Gguf(folder / "first.gguf"), ErrorKind::format, "its name does not end in '-00001-of-");
}

TEST_CASE("parts that do not belong together are refused") {
  test::ScratchFolder const folder;
  std::string const one = folder / "m-00001-of-00002.gguf", two = folder / "m-00002-of-00002.gguf";
  split_file(one, 0, 2, 2, "a");
  split_file(two, 1, 2, 2, "b");
  CHECK(io::Gguf(one).tensors().size() == 2);
  CHECK(io::Gguf(one).metadata().size() == 0);
  split_file(two, 1, 2, 2, "a");
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "tensor 'a' stands in an earlier part as well");
  split_file(two, 1, 3, 2, "b");
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "says part 2 of 3, and its name part 2 of 2");
  split_file(two, 1, 2, 2, "b");
  split_file(one, 0, 2, 3, "a");
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "split.tensors.count is 3, and there are 2 tensors in 2 parts");
  split_file(one, 2, 2, 2, "a");
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "split.no is 2 and split.count 2");
  split_file(one, 0, 0, 2, "a");
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "split.count is 0; it must be from 1 to 65535");
  io::write_file(one, test::GgufBytes().head(0, 1).key("split.count", "two").bytes);
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "split.count is string and must be a count");
  io::write_file(one, test::GgufBytes().head(0, 1).key("split.tensors.count", 5, std::int32_t{-1}).bytes);
  REQUIRE_ERROR(io::Gguf(one), ErrorKind::format, "split.tensors.count is int32 and must be a count");
}

TEST_CASE("what is no file is refused before it is read") {
  test::ScratchFolder const folder;
  for (io::Loading const loading : {io::Loading::mapped, io::Loading::read}) {
    REQUIRE_ERROR(io::Gguf(folder / "absent.gguf", loading), ErrorKind::io, "absent.gguf");
    REQUIRE_ERROR(io::Gguf(folder.path(), loading), ErrorKind::io, "is not a regular file");
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    REQUIRE_ERROR(io::Gguf(folder / "pipe", loading), ErrorKind::io, "is not a regular file");
    ::unlink((folder / "pipe").c_str());
    io::write_file(folder / "none", "");
    REQUIRE_ERROR(io::Gguf(folder / "none", loading), ErrorKind::format, "has 0 bytes");
  }
}

TEST_CASE("a model that was read stays whole when its file is cut") {
  test::ScratchFolder const folder;
  Sample const sample;
  sample.write(folder / "m.gguf");
  io::Gguf const file(folder / "m.gguf", io::Loading::read);
  REQUIRE(::truncate((folder / "m.gguf").c_str(), 10) == 0);
  sample.check(file);
}

TEST_CASE("any tensor gives floats") {
  test::ScratchFolder const folder;
  io::write_file(folder / "m.gguf", test::small_gguf().bytes);
  io::Gguf const file(folder / "m.gguf");
  Tensor<float> const q = file.floats("q");
  CHECK(q.shape() == Shape{3, 64});
  std::vector<float> expected(192);
  dequantise(BlockType::q4_0, file.at("q").data, 192, expected.data());
  CHECK(std::memcmp(q.data(), expected.data(), 192 * 4) == 0);
  REQUIRE_ERROR(file.floats("r"), ErrorKind::format, "has no tensor 'r' among its 3");
}

TEST_CASE("tensors may be written in pieces of any size, and the bytes are the same") {
  test::ScratchFolder const folder;
  Sample const sample;
  std::string const all = std::accumulate(sample.data.begin(), sample.data.end(), std::string());
  for (std::uint64_t const part : {0, 600}) {
    auto const whole = sample.write(folder / "a.gguf", {.part_bytes = part});
    io::GgufWriter writer(folder / "b.gguf", sample.metadata, sample.plan, {.part_bytes = part});
    for (std::size_t at = 0, step = 1; at < all.size(); at += step, step = step % 97 + 1)
      writer.write(all.data() + at, std::min(step, all.size() - at));
    writer.commit();
    REQUIRE(writer.paths().size() == whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(io::read_file(writer.paths()[i]) == io::read_file(whole[i]));
  }
}

TEST_CASE("without commit, or with bytes too few or too many, nothing appears and nothing is lost") {
  test::ScratchFolder const folder;
  Sample const sample;
  io::write_file(folder / "m.gguf", "before");
  {
    io::GgufWriter writer(folder / "m.gguf", sample.metadata, sample.plan);
    REQUIRE_ERROR(writer.commit(), ErrorKind::invalid_argument, "tensor 't.F32' lacks 84 of 84 bytes");
    writer.write(sample.data[0].data(), 80);
    REQUIRE_ERROR(writer.commit(), ErrorKind::invalid_argument, "tensor 't.F32' lacks 4 of 84 bytes");
  }
  {
    io::GgufWriter writer(folder / "m.gguf", sample.metadata, sample.plan);
    for (std::string const& bytes : sample.data) writer.write(bytes.data(), bytes.size());
    REQUIRE_ERROR(writer.write("x", 1), ErrorKind::invalid_argument, "1 bytes come behind the last tensor");
  }
  { io::GgufWriter const writer(folder / "m.gguf", sample.metadata, sample.plan, {.part_bytes = 100}); }
  CHECK(folder.names() == std::vector<std::string>{"m.gguf"});
  CHECK(io::read_file(folder / "m.gguf") == "before");
}

TEST_CASE("a plan that readers would refuse is refused") {
  test::ScratchFolder const folder;
  auto const refused = [&](io::GgufMetadata const& metadata, Plan const& plan, std::string const& sentence,
                           io::GgufWriteOptions options = {}) {
    REQUIRE_ERROR(io::GgufWriter(folder / "m.gguf", metadata, plan, options), ErrorKind::invalid_argument, sentence);
  };
  io::GgufTensorPlan const w{"w", BlockType::f32, Shape{4}};
  refused({}, {w, w}, "tensor 'w' stands twice");
  refused({}, {{"", BlockType::f32, Shape{4}}}, "has a name of 0 bytes");
  refused({}, {{std::string(64, 'n'), BlockType::f32, Shape{4}}}, "has a name of 64 bytes. Use 1 to 63");
  refused({}, {{"w", BlockType::f32, Shape{}}}, "has the shape");
  refused({}, {{"w", BlockType::f32, Shape{4, 0}}}, "has the shape");
  refused({}, {{"w", BlockType::f32, Shape{1, 1, 1, 1, 1}}}, "Use 1 to 4 axes");
  refused({}, {{"w", BlockType::q8_0, Shape{32, 31}}}, "has rows of 31, which are no whole blocks of Q8_0");
  refused({}, {w}, "the version 1 cannot be written", {.version = 1});
  refused(io::GgufMetadata().set("", 1u), {w}, "is not ASCII text of 1 to 65535 bytes");
  refused(io::GgufMetadata().set("\xc3\xa9", 1u), {w}, "key '?\?' is not ASCII text");
  refused(io::GgufMetadata().set("split.count", std::uint16_t{2}), {w}, "says how a model is split");
  refused(io::GgufMetadata().set("list", io::GgufArray(std::monostate{})), {w}, "is a list without a type");
  refused(io::GgufMetadata().set("general.alignment", 24u), {w}, "general.alignment is not");
  refused(io::GgufMetadata().set("general.alignment", std::uint64_t{32}), {w}, "general.alignment is not");
  Plan many;
  for (int i = 0; i < 513; ++i) many.push_back({"w" + std::to_string(i), BlockType::f32, Shape{4}});
  refused({}, many, "it would have 513 parts", {.part_bytes = 1});
  REQUIRE_ERROR(io::GgufWriter(folder / "model", {}, {w, {"v", BlockType::f32, Shape{4}}}, {.part_bytes = 1}),
                ErrorKind::invalid_argument, "needs a path that ends in '.gguf'");
  CHECK(folder.names().empty());
}

// Runs where Python has the package gguf: pip install gguf; TUTTI_PYTHON names the interpreter.
TEST_CASE("the Python package gguf reads what is written here, and what it writes is read") {
  char const* const asked = std::getenv("TUTTI_PYTHON");
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  std::string const python = asked == nullptr ? "python3" : asked;
  if (root == nullptr || std::system((python + " -c 'import gguf' 2>/dev/null").c_str()) != 0) {
    WARN("SKIPPED: '" << python << "' has no package gguf. pip install gguf, and name the interpreter by TUTTI_PYTHON");
    return;
  }
  test::ScratchFolder const folder;
  std::string const script = python + " '" + root + "/tests/io/gguf_python.py' ";
  Sample const sample;
  for (std::uint32_t const version : {2u, 3u}) {
    sample.write(folder / "ours.gguf", {.version = version});
    REQUIRE(std::system((script + "read '" + (folder / "ours.gguf") + "'").c_str()) == 0);
    CHECK(io::read_file(folder / "ours.gguf.data") ==
          std::accumulate(sample.data.begin(), sample.data.end(), std::string()));
    nlohmann::json const seen = io::parse_json(io::read_file(folder / "ours.gguf.json"), "ours.gguf.json");
    auto const& keys = seen["keys"];
    CHECK(keys.size() == sample.metadata.size());
    for (auto const& [key, value] : sample.metadata) {
      CAPTURE(key);
      REQUIRE(keys.contains(key));
      std::visit(
          [&](auto const& held) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(held)>, io::GgufArray>)
              std::visit(
                  [&](auto const& items) {
                    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(items)>, std::monostate>)
                      CHECK((keys[key] == nlohmann::json(items)));
                  },
                  held);
            else CHECK((keys[key] == nlohmann::json(held)));
          },
          value);
    }
    for (std::size_t i = 0; i < sample.plan.size(); ++i) {
      auto const& tensor = seen["tensors"][i];
      CHECK(tensor[0] == sample.plan[i].name);
      CHECK(tensor[1] == std::string(name(sample.plan[i].type)));
      CHECK(tensor[2] == nlohmann::json({sample.plan[i].shape[1], sample.plan[i].shape[0]}));
    }
  }

  REQUIRE(std::system((script + "write '" + (folder / "theirs.gguf") + "'").c_str()) == 0);
  io::Gguf const theirs(folder / "theirs.gguf");
  CHECK(theirs.tensors().size() == std::size(tutti::detail::block_facts));
  std::string floats;
  for (io::GgufTensor const& tensor : theirs.tensors()) {
    Tensor<float> const y = theirs.floats(tensor.name);
    floats.append(reinterpret_cast<char const*>(y.data()), static_cast<std::size_t>(y.size()) * 4);
  }
  CHECK(floats.size() > 100'000);
  CHECK((floats == io::read_file(folder / "theirs.gguf.f32")));
  auto const& m = theirs.metadata();
  CHECK(m.get<std::string>("general.architecture") == "llama");
  CHECK(*m.find("u8") == io::GgufValue(std::uint8_t{200}));
  CHECK(*m.find("i64") == io::GgufValue(std::int64_t{-5000000000}));
  CHECK(*m.find("f64") == io::GgufValue(0.1));
  CHECK(*m.find("flag") == io::GgufValue(true));
  CHECK(m.get<std::vector<std::string>>("words") == std::vector<std::string>{"", "a", "\xe2\x96\x81x"});
  CHECK(m.get<std::vector<int>>("ints") == std::vector<int>{1, -2, 3});
}

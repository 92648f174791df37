// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/safetensors_shards.hpp>
#include <tutti/io/safetensors_writer.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <cstring>
#include <string>
#include <vector>

using namespace tutti;

namespace {

struct Model {
  std::vector<Tensor<float>> tensors;
  std::vector<io::NamedTensor> names;

  Model() {
    for (std::int64_t const size : {10, 0, 30, 1, 25}) {
      Tensor<float> tensor(Shape{size});
      tensor.fill(static_cast<float>(size) + 0.5f);
      tensors.push_back(std::move(tensor));
    }
    for (auto const& tensor : tensors) names.push_back(io::named("t" + std::to_string(names.size()), tensor.view()));
  }
  void check(io::SafetensorsShards const& read) const {
    REQUIRE(read.tensors().size() == names.size());
    for (auto const& expected : names) {
      REQUIRE(read.contains(expected.name));
      auto const view = read.view<float>(expected.name);
      auto const copy = read.copy<float>(expected.name);
      CHECK(view.shape() == expected.shape);
      CHECK(read.at(expected.name).bytes() == expected.bytes());
      CHECK((expected.bytes() == 0 || (std::memcmp(view.data(), expected.data, expected.bytes()) == 0 &&
                                       std::memcmp(copy.data(), expected.data, expected.bytes()) == 0)));
    }
  }
};

}  // namespace

TEST_CASE("a model comes back from one file or from shards, by folder, index or file") {
  Model const model;
  test::ScratchFolder const one, many;
  io::write_safetensors_shards(one.path(), model.names, {{"format", "pt"}});
  CHECK(one.names() == std::vector<std::string>{"model.safetensors"});
  model.check(io::SafetensorsShards(one.path()));
  model.check(io::SafetensorsShards(one / "model.safetensors"));

  io::write_safetensors_shards(many.path(), model.names, {{"format", "pt"}}, 124);
  CHECK(many.names().size() == 4);  // t0 t1, t2 t3, t4, the index
  io::SafetensorsShards const read(many.path());
  CHECK(read.files() == 3);
  CHECK(read.metadata() == io::Metadata{{"format", "pt"}});
  model.check(read);
  model.check(io::SafetensorsShards(many / "model.safetensors.index.json"));
  auto const json = io::parse_json(io::read_file(many / "model.safetensors.index.json"), "index");
  CHECK(json["metadata"]["total_size"] == 264);
  CHECK(json["weight_map"]["t3"] == "model-00002-of-00003.safetensors");
  REQUIRE_ERROR(read.at("t9"), ErrorKind::format, "has no tensor 't9' among its 5");
  REQUIRE_ERROR(read.view<double>("t0"), ErrorKind::dtype, "holds float32, not float64");
}

TEST_CASE("a folder that holds a model keeps it") {
  Model const model;
  test::ScratchFolder const folder;
  io::write_safetensors_shards(folder.path(), model.names);
  std::string const before = io::read_file(folder / "model.safetensors");
  REQUIRE_ERROR(io::write_safetensors_shards(folder.path(), model.names, {}, 8), ErrorKind::invalid_argument,
                "holds a model already");
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
  CHECK(io::read_file(folder / "model.safetensors") == before);
  test::ScratchFolder const empty;
  std::vector<io::NamedTensor> twice = {model.names[0], model.names[0]};
  REQUIRE_ERROR(io::write_safetensors_shards(empty.path(), twice, {}, 8), ErrorKind::invalid_argument,
                "the name 't0' stands twice");
  CHECK(empty.names().empty());
}

TEST_CASE("an index that its shards do not match is refused with what differs") {
  Model const model;
  test::ScratchFolder const folder;
  REQUIRE_ERROR(io::SafetensorsShards(folder.path()), ErrorKind::io, "has neither model.safetensors.index.json nor");
  io::write_safetensors_shards(folder.path(), model.names, {}, 124);
  std::string const index = folder / "model.safetensors.index.json", good = io::read_file(index);
  auto const refused = [&](std::string const& text, std::string const& sentence) {
    io::write_file(index, text);
    REQUIRE_ERROR(io::SafetensorsShards(folder.path()), ErrorKind::format, sentence);
    REQUIRE_ERROR(io::SafetensorsShards(folder.path()), ErrorKind::format, "index.json");
  };
  auto const changed = [&](std::string const& from, std::string const& to) {
    std::string text = good;
    std::size_t const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  refused("", "its JSON is damaged");
  refused("[]", "it has no object 'weight_map'");
  refused("{}", "it has no object 'weight_map'");
  refused(R"({"weight_map": []})", "it has no object 'weight_map'");
  refused(R"({"weight_map": {}})", "its weight_map is empty");
  refused(R"({"weight_map": {"t0": 3}})", "gives tensor \"t0\" a file that is not text");
  for (char const* name :
       {"../m.safetensors", "/etc/passwd", "", "x.bin", "a/b.safetensors", "..", "x\\u0000.safetensors"})
    refused(std::string(R"({"weight_map": {"t0": ")") + name + R"("}})",
            "not the name of a safetensors file beside it");
  refused(changed("\"model-00002", "\"model-00009"), "shard \"model-00009-of-00003.safetensors\" is not beside it");
  refused(changed("\"t0\"", "\"u0\""), "lacks the tensor \"u0\"");
  refused(changed("\"t1\": \"model-00001-of-00003.safetensors\",", ""),
          "holds the tensor \"t1\", which the index does not");
  refused(changed("\"t0\": \"model-00001", "\"t0\": \"model-00002"),
          "holds the tensor \"t0\", which the index does not");
  io::write_file(index, good);
  model.check(io::SafetensorsShards(folder.path()));
  // A damaged shard is refused by its own name.
  std::string const shard = folder / "model-00002-of-00003.safetensors", bytes = io::read_file(shard);
  io::write_file(shard, bytes.substr(0, bytes.size() - 1));
  REQUIRE_ERROR(io::SafetensorsShards(folder.path()), ErrorKind::format, "model-00002-of-00003.safetensors");
}

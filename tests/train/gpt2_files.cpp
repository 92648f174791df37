// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/nn/gpt2_initialise.hpp>
#include <tutti/train/gpt2_files.hpp>

using namespace tutti;
using namespace tutti::train;
namespace fs = std::filesystem;

namespace {

nn::Gpt2Config const config{
    .layers = 2, .heads = 2, .channels = 16, .vocabulary = 100, .padded_vocabulary = 128, .max_tokens = 12};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tutti-gpt2-files-" + std::to_string(::getpid()));
  Folder() { fs::remove_all(path); fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

Gpt2Model initialised() {
  Gpt2Model model(config);
  nn::initialise_gpt2(config, model.mutable_data(), 42);
  return model;
}
void same(Gpt2Model const& a, Gpt2Model const& b) {
  CHECK(a.weights().config == b.weights().config);
  for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i) {
    auto const size = static_cast<std::size_t>(nn::gpt2_shape(config, i).size());
    CHECK(std::equal(a.weights().data[i], a.weights().data[i] + size, b.weights().data[i]));
  }
}
fs::path saved(fs::path const& out, Gpt2Model const& model, nn::Gpt2Config const& said) {
  CheckpointContents contents;
  contents.step = 3;
  contents.facts = {{"model", to_json(said)}};
  for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i)
    contents.parameters.push_back(
        {std::string(nn::gpt2_tensors[i].name), DType::float32, nn::gpt2_shape(config, i), model.weights().data[i]});
  std::sort(contents.parameters.begin(), contents.parameters.end(),
            [](auto const& a, auto const& b) { return a.name < b.name; });
  return save_checkpoint(out, contents, 0);
}

}  // namespace

TEST_CASE("a model goes through an llm.c file and through a checkpoint unchanged") {
  Folder folder;
  Gpt2Model const model = initialised();
  std::string const path = (folder.path / "model.bin").string();
  write_llmc_gpt2(path, model.weights());
  CHECK(fs::file_size(path) == 1024 + 4 * static_cast<std::uintmax_t>(nn::parameter_count(config)));
  same(model, Gpt2Model::load(path));
  fs::path const checkpoint = saved(folder.path, model, config);
  same(model, Gpt2Model::load(checkpoint));
  same(model, Gpt2Model::load(folder.path));  // the latest checkpoint of a run
  write_llmc_gpt2((folder.path / "again.bin").string(), Gpt2Model::load(checkpoint).weights());
  CHECK(io::read_file(path) == io::read_file((folder.path / "again.bin").string()));
}

TEST_CASE("files that do not fit their own description get a sentence") {
  Folder folder;
  nn::Gpt2Config other = config;
  other.layers = 3;
  saved(folder.path, initialised(), other);
  REQUIRE_ERROR(Gpt2Model::load(folder.path), ErrorKind::format, "blocks.ln_1.weight");
  other = config;
  other.heads = 5;
  saved(folder.path, initialised(), other);
  REQUIRE_ERROR(Gpt2Model::load(folder.path), ErrorKind::configuration, "heads 5");
  REQUIRE_ERROR(Gpt2Model::load(folder.path / "absent.bin"), ErrorKind::io, "absent.bin");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/io/llmc_model.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/tensor/tensor.hpp>

#include <cstring>
#include <vector>

using namespace tutti;

namespace {

io::LlmcConfig const small{
    .max_sequence = 5, .vocabulary = 7, .layers = 2, .heads = 3, .channels = 6, .padded_vocabulary = 8};

template <class T>
std::vector<Tensor<T>> tensors_of(io::LlmcConfig const& config) {
  std::vector<Tensor<T>> tensors;
  float next = 0;
  for (Shape const& shape : io::llmc_shapes(config)) {
    tensors.emplace_back(shape);
    for (T& element : tensors.back().elements()) element = T(next += 0.5f);
  }
  return tensors;
}
template <class T>
std::vector<io::NamedTensor> names_of(std::vector<Tensor<T>> const& tensors) {
  std::vector<io::NamedTensor> names;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    names.push_back(io::named(std::string(io::llmc_tensor_names[i]), tensors[i].view()));
  return names;
}
std::string header_of(std::vector<std::int32_t> words) {
  words.resize(256);
  return std::string(reinterpret_cast<char const*>(words.data()), 1024);
}
void require_refused(std::string const& bytes, std::string const& part) {
  test::ScratchFolder const folder;
  io::write_file(folder / "bad.bin", bytes);
  REQUIRE_ERROR(io::LlmcModel(folder / "bad.bin"), ErrorKind::format, part);
}

}  // namespace

TEMPLATE_TEST_CASE("a model file has llm.c's bytes and comes back bit for bit", "", float, bfloat16) {
  test::ScratchFolder const folder;
  auto const tensors = tensors_of<TestType>(small);
  auto const names = names_of(tensors);
  io::write_llmc_model(folder / "model.bin", small, names);

  std::string expected = header_of({20240326, sizeof(TestType) == 4 ? 3 : 5, 5, 7, 2, 3, 6, 8});
  for (auto const& tensor : tensors)
    expected.append(reinterpret_cast<char const*>(tensor.data()),
                    static_cast<std::size_t>(tensor.size()) * sizeof(TestType));
  CHECK(io::read_file(folder / "model.bin") == expected);

  io::LlmcModel const model(folder / "model.bin");
  CHECK(model.config() == small);
  CHECK(model.dtype() == dtype_of<TestType>);
  for (std::size_t i = 0; i < io::llmc_tensor_count; ++i) {
    auto const view = model.template view<TestType>(i);
    REQUIRE(view.shape() == tensors[i].shape());
    CHECK(std::memcmp(view.data(), tensors[i].data(), static_cast<std::size_t>(view.size()) * sizeof(TestType)) == 0);
    CHECK(model.tensors()[i].name == io::llmc_tensor_names[i]);
  }
  io::write_llmc_model(folder / "again.bin", model.config(), model.tensors());
  CHECK(io::read_file(folder / "again.bin") == expected);
  REQUIRE_ERROR(model.template view<double>(0), ErrorKind::dtype, "model.bin");
  REQUIRE_ERROR(model.template view<TestType>(16), ErrorKind::out_of_range, "16");
}

TEST_CASE("sizes of the published models") {
  auto const bytes = [](std::int32_t layers, std::int32_t heads, std::int32_t channels) {
    std::int64_t total = 1024;
    for (Shape const& shape : io::llmc_shapes({1024, 50257, layers, heads, channels, 50304})) total += 4 * shape.size();
    return total;
  };
  CHECK(bytes(6, 6, 384) == 121431040);
  CHECK(bytes(12, 12, 768) == 497904640);
  CHECK(bytes(24, 16, 1024) == 1419486208);
  CHECK(bytes(48, 25, 1600) == 6230746624);
}

TEST_CASE("old, foreign and damaged model files are refused with a reason") {
  require_refused("", "0 bytes");
  require_refused(header_of({7}), "20240326");
  require_refused(header_of({20240520, 1}), "20240326");
  require_refused(header_of({20240326, 1, 5, 7, 2, 3, 6, 8}), "before the vocabulary was padded");
  require_refused(header_of({20240326, 2, 5, 7, 2, 3, 6, 8}), "export the model again");
  require_refused(header_of({20240326, 4, 5, 7, 2, 3, 6, 8}), "version 4");
  require_refused(header_of({20240326, 3, 5, 7, 2, 4, 6, 8}), "heads");
  require_refused(header_of({20240326, 3, 5, 9, 2, 3, 6, 8}), "padded vocabulary");
  require_refused(header_of({20240326, 3, -5, 7, 2, 3, 6, 8}), "not positive");
  require_refused(header_of({20240326, 3, 5, 7, 2, 0, 6, 8}), "not positive");
  require_refused(header_of({20240326, 3, 2147483647, 7, 2147483647, 1, 2147483647, 2147483647}), "impossible");
  require_refused(header_of({20240326, 3, 5, 7, 2, 3, 6, 8}), "need");
  require_refused(header_of({20240326, 3, 5, 7, 2, 3, 6, 8}) + std::string(100000, 'x'), "need");
}

TEST_CASE("what does not fit the sizes is not written") {
  test::ScratchFolder const folder;
  auto const tensors = tensors_of<float>(small);
  auto names = names_of(tensors);
  auto other = small;
  other.layers = 3;
  REQUIRE_ERROR(io::write_llmc_model(folder / "x", other, names), ErrorKind::shape, "ln1w");
  other.heads = 4;
  REQUIRE_ERROR(io::write_llmc_model(folder / "x", other, names), ErrorKind::invalid_argument, "heads");
  REQUIRE_ERROR(io::write_llmc_model(folder / "x", small, std::span(names).first(15)), ErrorKind::invalid_argument,
                "15");
  names[3].dtype = DType::int32;
  REQUIRE_ERROR(io::write_llmc_model(folder / "x", small, names), ErrorKind::dtype, "ln1b");
  CHECK(folder.names().empty());
}

TEST_CASE("a model file damaged in its header is refused, never worse") {
  test::ScratchFolder const folder;
  auto const tensors = tensors_of<float>(small);
  io::write_llmc_model(folder / "good", small, names_of(tensors));
  auto const outcome = test::damage_everywhere(io::read_file(folder / "good"), folder / "bad", 40,
                                               [](std::string const& path) { io::LlmcModel const model(path); });
  CHECK(outcome.refused > 300);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Models and graphs as ONNX: what is written is read back with the same bits, and damaged files end in a sentence.
/// scripts/check_onnx.py has onnxruntime run what the hidden test case writes.
// Covers: <tutti/graph/onnx/arrays.hpp>
// Covers: <tutti/graph/onnx/call.hpp>
// Covers: <tutti/graph/onnx/element.hpp>
// Covers: <tutti/graph/onnx/export.hpp>
// Covers: <tutti/graph/onnx/model.hpp>
// Covers: <tutti/graph/onnx/twin.hpp>
// Covers: <tutti/graph/onnx/value.hpp>
// Covers: <tutti/graph/onnx/writer.hpp>
// Covers: <tutti/infer/onnx/model.hpp>
// Covers: <tutti/io/model_format.hpp>
// Covers: <tutti/io/onnx/reader.hpp>
// Covers: <tutti/io/onnx/tensors.hpp>
// Covers: <tutti/io/onnx/wire.hpp>
// Covers: <tutti/io/onnx/writer.hpp>
// Covers: <tutti/train/onnx/export.hpp>
// Covers: <tutti/train/onnx/file.hpp>
#include "graph/stablehlo_cases.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"
#include "train/small_models.hpp"

#include <tutti/graph/generic_steps.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/onnx/export.hpp>
#include <tutti/train/parameter_files.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

std::string parameters_of(std::string const& run) {
  return io::read_file((Gpt2Model::folder(run) / "parameters.safetensors").string());
}
void write_kind(std::string const& run, std::string const& kind) {
  if (kind == "gpt2") {
    test::write_run(run, test::gpt2);
  } else if (kind == "mistral") {
    nn::LlamaConfig config = test::llama(false);
    config.window = 3;
    test::write_run(run, config);
  } else {
    test::write_run(run, test::llama(kind == "llama", kind == "qwen2"));
  }
}
/// JSON has no numbers that are not finite.
Json numbers_of(std::vector<double> const& values) {
  Json all = Json::array();
  for (double const value : values)
    if (std::isfinite(value)) all.push_back(value);
    else all.push_back(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  return all;
}
std::span<std::byte const> bytes_of(std::string const& text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("A model goes from a run to ONNX and back to a run with the same bits and the same tokenizer") {
  test::ScratchFolder const scratch;
  std::string const run = scratch / "run", file = scratch / "model.onnx";
  for (std::string const kind : {"gpt2", "llama", "llama, untied", "qwen2", "mistral"}) {
    INFO(kind);
    for (auto const& name : scratch.names()) std::filesystem::remove_all(scratch / name);
    write_kind(run, kind);
    ModelSource const source = open_model(run);
    write_onnx(file, source, {.type = BlockType::f32});
    CHECK(scratch.names().size() == 2);
    ModelSource read = open_model(file);
    write_checkpoint(scratch / "again", read);
    CHECK(parameters_of(scratch / "again") == parameters_of(run));
    auto const loaded = infer::load_model(file);
    CHECK(test::difference(test::logits(loaded.model), test::logits(source.model)) < 1e-5);
    CHECK(loaded.tokenizer.encode("the cat") == source.tokenizer->encode("the cat"));
    CHECK(loaded.tokenizer.roles().add_begin);  // as in training
    CHECK(loaded.model.vocabulary() == 259);
    std::string const whole = io::read_file(file);
    read.name = source.name;
    read.begins_texts = true;
    write_onnx(scratch / "again.onnx", read, {.type = BlockType::f32});
    CHECK(io::read_file(scratch / "again.onnx") == whole);
    CHECK(test::logits(infer::load_model(bytes_of(whole), "bytes").model) == test::logits(loaded.model));
    write_gguf(scratch / "model.gguf", read, {.type = BlockType::f32});
    CHECK(test::difference(test::logits(infer::load_model(scratch / "model.gguf").model),
                           test::logits(source.model)) < 1e-5);
    // Weights in a file of their own.
    write_onnx(scratch / "apart.onnx", source, {.type = BlockType::f32}, {.most_bytes = 1000});
    CHECK(std::filesystem::file_size(scratch / "apart.onnx.data") > 1000);
    CHECK(test::logits(infer::load_model(scratch / "apart.onnx").model) == test::logits(loaded.model));
    REQUIRE_ERROR(infer::load_model(bytes_of(io::read_file(scratch / "apart.onnx")), "bytes"), ErrorKind::format,
                  "lies in another file");
    for (auto const& [type, tolerance] : {std::pair{BlockType::bf16, 3e-2}, {BlockType::f16, 4e-3}}) {
      write_onnx(scratch / "half.onnx", source, {.type = type});
      CHECK(open_model(scratch / "half.onnx").type() == type);
      CHECK(test::difference(test::logits(infer::load_model(scratch / "half.onnx").model),
                             test::logits(source.model)) < tolerance);
    }
  }
}

TEST_CASE("Stretched rotations go to ONNX; what does not is refused with a sentence, and nothing is left of it") {
  test::ScratchFolder const scratch;
  test::write_run(scratch / "run", test::llama(true));
  ModelSource source = open_model(scratch / "run");
  source.model.rotation.frequencies[1] /= 2;
  source.model.rotation.magnitude = 1.25;
  write_onnx(scratch / "x.onnx", source, {.type = BlockType::f32});
  auto const loaded = infer::load_model(scratch / "x.onnx");
  CHECK(loaded.model.rotation.frequencies == source.model.rotation.frequencies);
  CHECK(test::difference(test::logits(loaded.model), test::logits(source.model)) < 1e-5);
  std::filesystem::remove(scratch / "x.onnx");
  REQUIRE_ERROR(write_onnx(scratch / "x.onnx", source, {.type = BlockType::q8_0}), ErrorKind::configuration,
                "F32, F16 or BF16");
  source.model.rotation.frequencies.pop_back();
  REQUIRE_ERROR(write_onnx(scratch / "x.onnx", source, {.type = BlockType::f32}), ErrorKind::configuration,
                "rotates a part of each head");
  CHECK(scratch.names().size() == 1);
}

TEST_CASE("ONNX files that are cut, damaged or of other programs end in a sentence; TUTTI_FUZZ_SECONDS tries longer",
          "[fuzz]") {
  test::ScratchFolder const scratch;
  test::write_run(scratch / "run", test::gpt2);
  write_onnx(scratch / "model.onnx", open_model(scratch / "run"), {.type = BlockType::f32});
  std::string const whole = io::read_file(scratch / "model.onnx");
  int refused = 0, read = 0;
  auto const attempt = [&](std::string const& bytes) {
    try {
      infer::LoadedModel const model = infer::load_model(bytes_of(bytes), "bytes");
      test::logits(model.model);
      ++read;
    } catch (Error const& error) {
      ++refused;
      if (error.kind() == ErrorKind::internal) FAIL(error.what());
    }
  };
  for (std::size_t end = 0; end < whole.size(); end += 1 + whole.size() / 60) attempt(whole.substr(0, end));
  CHECK(read == 0);
  Mt19937 generator(static_cast<std::uint32_t>(test::fuzz_seed(9)));
  // Where the tensors are not: everything else has a meaning.
  std::size_t const first = whole.find("token_embd.weight"), last = whole.find("tutti.model");
  double const seconds = test::fuzz_seconds(0);
  auto const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 300 || std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds); ++i) {
    std::string damaged = whole;
    std::size_t const at = i % 2 == 0 ? generator.next() % 64 : last + generator.next() % (whole.size() - last);
    damaged[i % 10 == 9 ? first + generator.next() % 40 : at] ^= static_cast<char>(1 << generator.next() % 8);
    attempt(damaged);
  }
  INFO("refused " << refused << ", read " << read);
  CHECK(refused > 60);

  auto const change = [&](std::string const& from, std::string const& to) {
    std::string changed = whole;
    for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size())
      changed.replace(at, from.size(), to);
    return changed;
  };
  auto const refuse = [&](std::string const& bytes, std::string const& why) {
    REQUIRE_ERROR(test::logits(infer::load_model(bytes_of(bytes), "bytes").model), ErrorKind::format, why);
  };
  refuse(change("tutti.model", "other.model"), "lacks the metadata tutti.model");
  refuse(change("\"gpt2\"", "\"gpt3\""), "neither gpt2 nor llama");
  refuse(change("\"layers\":2", "\"layers\":9"), "has no tensor 'blk.2.");
  refuse(change("\"channels\":16", "\"channels\":32"), "want");
  refuse(change("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight"), "has no tensor 'blk.1.ffn_up.weight'");
  refuse(change("tutti.tokenizer", "other.tokenizer"), "has no tokenizer");
  io::write_file(scratch / "empty.onnx", "");
  REQUIRE_ERROR(infer::load_model(scratch / "empty.onnx"), ErrorKind::format, "it is empty");
}

TEST_CASE("Messages are read field by field, and no size that they claim is believed") {
  using namespace std::string_literals;
  std::string const message = "\x08\x96\x01\x12\x03" "abc\x0d" "1234\x1a\x00"s;
  io::WireReader reader(message);
  io::WireField field;
  REQUIRE(reader.next(field));
  CHECK((field.field == 1 && !field.is_bytes && field.number == 150));
  REQUIRE(reader.next(field));
  CHECK((field.field == 2 && field.is_bytes && field.bytes == "abc"));
  REQUIRE(reader.next(field));
  CHECK((field.field == 1 && !field.is_bytes && field.bytes == "1234"));
  REQUIRE(reader.next(field));
  CHECK((field.field == 3 && field.is_bytes && field.bytes.empty()));
  CHECK((!reader.next(field) && !reader.damaged()));
  for (std::string const& bad : {"\x12\x04" "abc"s, "\x08\xff"s, "\x12"s, "\x00\x01"s, "\x0b"s, "\x0d" "12"s,
                                 "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s, std::string(11, '\xff')}) {
    io::WireReader damaged(bad);
    while (damaged.next(field)) {}
    CHECK(damaged.damaged());
  }
}

TEST_CASE("Models of TensorFlow, OpenVINO and PyTorch are refused with what to do") {
  test::ScratchFolder const scratch;
  auto const folder = [&](std::string const& name) {
    std::filesystem::create_directories(scratch / name);
    return scratch / name;
  };
  io::write_file(folder("saved") + "/saved_model.pb", std::string("\x08\x01\x12\x00", 4));
  std::string const xml = "<?xml version=\"1.0\"?>\n<net name=\"x\" version=\"11\">";
  io::write_file(folder("openvino") + "/openvino_model.xml", xml);
  io::write_file(scratch / "x.bin", "0000");
  io::write_file(scratch / "x.xml", xml);
  io::write_file(scratch / "x.tflite", std::string("\x1c\x00\x00\x00TFL3", 8));
  io::write_file(scratch / "x.h5", "\x89HDF\r\n\x1a\n");
  io::write_file(scratch / "x.pb", "\x0a\x03");
  io::write_file(scratch / "x.pt", "PK\x03\x04");
  for (auto const& [name, what] : {std::pair{"saved", "SavedModel of TensorFlow"},
                                   {"saved/saved_model.pb", "SavedModel"}, {"openvino", "OpenVINO"},
                                   {"x.xml", "a model of OpenVINO"},
                                   {"x.bin", "the weights of a model of OpenVINO"}, {"x.tflite", "TensorFlow Lite"},
                                   {"x.h5", "Keras or HDF5"}, {"x.pb", "a graph of TensorFlow"}, {"x.pt", "PyTorch"}}) {
    INFO(name);
    REQUIRE_ERROR(infer::load_model(scratch / name), ErrorKind::format, what);
    REQUIRE_ERROR(open_model(scratch / name), ErrorKind::configuration, "safetensors (transformers: save_pretrained)");
  }
}

TEST_CASE("Every function of elements has an ONNX form, or a decomposition") {
  test::for_each_function([](graph::Op op, std::string const& name) {
    INFO(name);
    CHECK(graph::onnx::exported_functions[static_cast<std::size_t>(op)]);
  });
}

TEST_CASE("Graphs without an ONNX form are refused with operation and reason") {
  using namespace graph;
  auto const make = [](auto&& f) {
    Builder b;
    f(b);
    return Graph(b.graph());
  };
  auto const inputs = [](Builder& b, std::int64_t rows) { return b.input("x", DType::float32, {rows, 4}); };
  Graph const scatter = make([&](Builder& b) {
    b.output("y", scatter_add(inputs(b, 3), b.input("i", DType::int32, {2}), b.input("r", DType::float32, {2, 4})));
  });
  REQUIRE_ERROR(to_onnx(scatter), ErrorKind::unavailable, "no ONNX form");
  auto const mean = [&](std::int64_t rows) {
    return make([&](Builder& b) { b.output("y", reduce_mean(inputs(b, rows), {0})); });
  };
  CHECK(to_onnx(mean(5)).inputs[0].extents[0] == 5);
  REQUIRE_ERROR(to_onnx(mean(5), mean(7), {{"rows", 5, 7}}), ErrorKind::unavailable, "it computes with");
  auto const sums = [&](std::int64_t rows) {
    return make([&](Builder& b) { b.output("y", cumsum(inputs(b, rows), 0)); });
  };
  REQUIRE_ERROR(to_onnx(sums(5), sums(11), {{"rows", 5, 11}}), ErrorKind::unavailable, "other extents");
  auto const twice = [&](std::int64_t rows) {
    return make([&](Builder& b) { b.output("y", reshape(inputs(b, rows), Shape{2, 2 * rows})); });
  };
  CHECK(to_onnx(twice(5), twice(7), {{"rows", 5, 7}}).outputs[0].names[1] == "2*rows");
  REQUIRE_ERROR(to_onnx(twice(5), twice(7), {}), ErrorKind::unavailable, "no product of the axes");
}

// By hand, and by scripts/check_onnx.py: writes ONNX files, what goes in and what comes out into $TUTTI_ONNX_FOLDER.
TEST_CASE("Graphs and models for onnxruntime", "[.onnx_files]") {
  char const* const given = std::getenv("TUTTI_ONNX_FOLDER");
  REQUIRE(given != nullptr);
  std::string const folder = given;
  Json cases = Json::array();
  for (std::string const kind : {"gpt2", "llama", "llama, untied", "qwen2", "mistral"}) {
    std::string const name = "model_" + std::to_string(cases.size()), run = folder + "/" + name + "_run";
    write_kind(run, kind);
    ModelSource const source = open_model(run);
    write_onnx(folder + "/" + name + ".onnx", source, {.type = BlockType::f32});
    std::vector<std::int32_t> const tokens{3, 258, 0, 17, 200, 8, 21};
    exec::Context context({.threads = 1});
    infer::Decoder decoder(context, source.model, {.capacity = 16, .batch = 16});
    infer::Sequence sequence(decoder);
    Json rows = Json::array();
    for (std::int32_t const token : tokens) {
      auto const row = sequence.append(std::vector<std::int32_t>{token});
      rows.push_back(std::vector<float>(row.begin(), row.end()));
    }
    cases.push_back({{"kind", "model"}, {"name", name}, {"what", kind}, {"tokens", tokens}, {"logits", rows}});
  }
  int refused = 0;
  for (test::StablehloCase const& made : test::StablehloCases().all()) {
    if (made.ranks != 1 || !made.groups.empty()) continue;
    graph::OnnxModel model;
    try {
      model = graph::to_onnx(made.graph, {.wide_inputs = false});
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      ++refused;
      continue;
    }
    graph::Interpreter oracle(made.graph);
    Json inputs = Json::object(), outputs = Json::object();
    std::vector<io::NamedTensor> plan;
    std::vector<std::string> bytes;
    std::map<std::string, std::string> stored;
    auto const give = [&](graph::Id id) {
      std::string const name(made.graph.name(id));
      DType const dtype = made.graph.dtype(id);
      std::vector<double> values(static_cast<std::size_t>(made.graph.shape(id).size()));
      std::uint64_t stream = 0;
      for (char const c : name) stream = stream * 131 + static_cast<unsigned char>(c);
      CounterRandom const random{11, stream};
      double const most = std::min(made.limit, dtype == DType::boolean ? 2.0 : 5.0);
      for (std::size_t i = 0; i < values.size(); ++i) {
        double const unit = double{random.uniform(i)};
        values[i] = is_floating(dtype) ? (name.starts_with("positive") ? 0.25 + unit : 4 * unit - 2)
                                       : std::floor(unit * most);
      }
      if (auto const found = made.values.find(name); found != made.values.end()) values = found->second;
      std::string& memory = stored[name];
      memory.resize(values.size() * size_of(dtype));
      for (std::size_t i = 0; i < values.size(); ++i) {
        graph::generic::store_number(dtype, memory.data(), static_cast<std::int64_t>(i), values[i]);
        values[i] = graph::generic::number_at(dtype, memory.data(), static_cast<std::int64_t>(i));
      }
      oracle.set(name, values);
      inputs[name] = numbers_of(values);
    };
    for (graph::Parameter const& parameter : made.graph.parameters) give(parameter.node);
    for (graph::Id id : made.graph.states) give(id);
    for (graph::Id id : made.graph.inputs) give(id);
    for (graph::Id id : made.graph.scalars) give(id);
    oracle.run();
    for (graph::OnnxPort const& port : model.outputs) outputs[port.name] = numbers_of(oracle.output(port.name));
    for (graph::OnnxWeight const& weight : model.weights) {
      io::NamedTensor tensor{weight.name, weight.dtype, weight.shape, nullptr};
      std::string const& whole = stored[weight.parameter];
      bytes.push_back(weight.layer < 0 ? whole
                                       : whole.substr(static_cast<std::size_t>(weight.layer) * tensor.bytes(),
                                                      tensor.bytes()));
      plan.push_back(std::move(tensor));
    }
    io::OnnxWriter writer(folder + "/" + made.name + ".onnx", train::detail::onnx_file(model), plan);
    for (std::string const& one : bytes) writer.write(one.data(), one.size());
    writer.commit();
    cases.push_back({{"kind", "graph"}, {"name", made.name}, {"inputs", inputs}, {"outputs", outputs},
                     {"tolerance", made.tolerance}});
  }
  WARN("written " << cases.size() << ", without an ONNX form " << refused);
  io::write_file(folder + "/cases.json", cases.dump());
}

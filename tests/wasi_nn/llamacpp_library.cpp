// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/live.hpp> <tutti/wasi_nn/wamr.hpp> <tutti/infer/log.hpp> <tutti/wasi_nn/model.hpp>
// Covers: <tutti/wasi_nn/execution.hpp> <tutti/wasi_nn/control.hpp> <tutti/wasi_nn/device.hpp>
// libwasi_nn_llamacpp.so as wasm-micro-runtime drives it: structs laid out by hand, calls in its order.
#include "wasi_nn/support.hpp"

#include <tutti/config.hpp>
#include <tutti/wasi_nn/wamr.hpp>
#if TUTTI_WITH_ONNX
#include <tutti/train/onnx/export.hpp>
#endif

#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tutti;
using tutti::test::Library;
using tutti::test::ScratchFolder;
using tutti::test::Variable;

namespace {

/// A tensor as bytes in memory: dimensions at 0, type at 8, data at 16, its size at 24.
struct RawTensor {
  alignas(8) unsigned char bytes[32] = {};
  alignas(8) unsigned char dimensions[16] = {};
  std::vector<std::uint32_t> shape;

  RawTensor(void const* data, std::uint32_t size, std::uint8_t type = 3, std::vector<std::uint32_t> dims = {1})
      : shape(std::move(dims)) {
    std::uint32_t* const shape_data = shape.data();
    auto const count = static_cast<std::uint32_t>(shape.size());
    std::memcpy(dimensions, &shape_data, 8);
    std::memcpy(dimensions + 8, &count, 4);
    unsigned char* const dims_at = dimensions;
    std::memcpy(bytes, &dims_at, 8);
    bytes[8] = type;
    std::memset(bytes + 9, 0xee, 7);  // padding holds anything
    std::memcpy(bytes + 16, &data, 8);
    std::memcpy(bytes + 24, &size, 4);
  }
};

/// VERSION without its end of line.
std::string version_of_source() {
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  std::string text = io::read_file(std::string(root == nullptr ? "." : root) + "/VERSION");
  return text.substr(0, text.find('\n'));
}

/// The calls of one module instance.
struct Host {
  Library const& library;
  void* context = nullptr;

  explicit Host(Library const& of) : library(of) {
    if (int const code = library.call<int(void**)>("init_backend", &context))
      throw std::runtime_error("init " + std::to_string(code));
  }
  ~Host() {
    if (context != nullptr) library.call<int(void*)>("deinit_backend", context);
  }

  int load_by_name(std::string const& name, std::uint32_t* graph) const {
    return library.call<int(void*, char const*, std::uint32_t, std::uint32_t*)>(
        "load_by_name", context, name.c_str(), static_cast<std::uint32_t>(name.size()), graph);
  }
  int load_by_name(std::string const& name, std::string const& config, std::uint32_t* graph) const {
    return library.call<int(void*, char const*, std::uint32_t, char const*, std::uint32_t, std::uint32_t*)>(
        "load_by_name_with_config", context, name.c_str(), static_cast<std::uint32_t>(name.size()), config.c_str(),
        static_cast<std::uint32_t>(config.size()), graph);
  }
  int load(std::vector<std::string> const& parts, int encoding, int target, std::uint32_t* graph) const {
    std::vector<unsigned char> table(16 * parts.size() + 1);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      char const* const data = parts[i].data();
      auto const size = static_cast<std::uint32_t>(parts[i].size());
      std::memcpy(table.data() + 16 * i, &data, 8);
      std::memcpy(table.data() + 16 * i + 8, &size, 4);
    }
    alignas(8) unsigned char list[16] = {};
    unsigned char* const at = table.data();
    auto const count = static_cast<std::uint32_t>(parts.size());
    std::memcpy(list, &at, 8);
    std::memcpy(list + 8, &count, 4);
    return library.call<int(void*, void*, int, int, std::uint32_t*)>("load", context, list, encoding, target, graph);
  }
  int open(std::uint32_t graph, std::uint32_t* execution) const {
    return library.call<int(void*, std::uint32_t, std::uint32_t*)>("init_execution_context", context, graph, execution);
  }
  int set(std::uint32_t execution, std::uint32_t index, std::string const& text, std::uint8_t type = 3) const {
    RawTensor tensor(text.data(), static_cast<std::uint32_t>(text.size()), type);
    return library.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", context, execution, index,
                                                                         tensor.bytes);
  }
  int compute(std::uint32_t execution) const {
    return library.call<int(void*, std::uint32_t)>("compute", context, execution);
  }
  int single(std::uint32_t execution) const {
    return library.call<int(void*, std::uint32_t)>("tutti_wasi_nn_compute_single", context, execution);
  }
  int fini(std::uint32_t execution) const {
    return library.call<int(void*, std::uint32_t)>("tutti_wasi_nn_fini_single", context, execution);
  }
  int unload(std::uint32_t graph) const {
    return library.call<int(void*, std::uint32_t)>("tutti_wasi_nn_unload", context, graph);
  }
  int close(std::uint32_t execution) const {
    return library.call<int(void*, std::uint32_t)>("tutti_wasi_nn_finalize_execution_context", context, execution);
  }
  int get(std::uint32_t execution, std::uint32_t index, std::string& out, std::uint32_t capacity = 1 << 20,
          char const* function = "get_output") const {
    out.assign(capacity, '\x5a');
    alignas(8) unsigned char span[16] = {};
    char* const at = out.data();
    std::memcpy(span, &at, 8);
    std::memcpy(span + 8, &capacity, 4);
    std::uint32_t size = 77;  // a host leaves there what it likes
    int const code = library.call<int(void*, std::uint32_t, std::uint32_t, void*, std::uint32_t*)>(
        function, context, execution, index, static_cast<void*>(span), &size);
    if (code == 0) out.resize(size);
    else if (code == 7) out = std::to_string(size);
    return code;
  }
  std::string output(std::uint32_t execution, std::uint32_t index) const {
    std::string out;
    REQUIRE(get(execution, index, out) == 0);
    return out;
  }
  std::string answer(std::uint32_t execution, std::string const& prompt,
                     std::string const& options = R"({"temperature": 0, "max_tokens": 12})") const {
    if (!options.empty()) REQUIRE(set(execution, 1, options) == 0);
    REQUIRE(set(execution, 0, prompt) == 0);
    REQUIRE(compute(execution) == 0);
    return output(execution, 0);
  }
};

struct World {
  ScratchFolder folder;
  std::string model = test::write_byte_model(folder / "model.gguf");
  Variable models{"TUTTI_WASI_NN_MODELS", "default=" + model + ";same=" + model};
  Library library{"TUTTI_WASI_NN_LLAMACPP"};

  std::string bytes() const {
    std::ifstream file(model, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

}  // namespace

TEST_CASE("A guest loads by name, sets, computes and reads; the answer is the library's own") {
  World world;
  Host const host(world.library);
  std::uint32_t graph = 0, execution = 0;
  REQUIRE(host.load_by_name("default", R"({"n_ctx": 128})", &graph) == 0);
  REQUIRE(host.open(graph, &execution) == 0);
  std::string const text = host.answer(execution, "Hello");

  auto const loaded = infer::load_gguf(world.model);
  exec::Context context({.threads = 1});
  infer::Service service(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 128}});
  infer::Request request;
  request.prompt = loaded.tokenizer.encode_complete("Hello");
  request.sampling.temperature = 0;
  request.stop.max_tokens = 12;
  request.stop.ends = infer::end_tokens(loaded.tokenizer);
  infer::Completion const expected = service.submit(std::move(request))->wait();
  REQUIRE(text == expected.text);
  nlohmann::json const usage = nlohmann::json::parse(host.output(execution, 1));
  REQUIRE((usage["input_tokens"] == 5 && usage["output_tokens"] == expected.tokens.size()));
  REQUIRE((usage["llama_build_number"] == 0 && usage["llama_commit"] == "tutti " + version_of_source()));
  std::string const ids = host.output(execution, 4);
  REQUIRE(ids.size() == 4 * expected.tokens.size());
  REQUIRE(std::memcmp(ids.data(), expected.tokens.data(), ids.size()) == 0);
  REQUIRE(host.output(execution, 3).size() == 4 * 259);
  REQUIRE(host.output(execution, 2).find("\"stop_reason\":\"max tokens\"") != std::string::npos);

  // With the defaults of ./tutti generate and one seed the same is drawn.
  std::string const drawn = host.answer(execution, "Hello", R"({"seed": 7, "top_k": 40, "max_tokens": 20})");
  infer::Request sampled;
  sampled.prompt = loaded.tokenizer.encode_complete("Hello");
  sampled.sampling = {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .seed = 7};
  sampled.stop.max_tokens = 20;
  sampled.stop.ends = infer::end_tokens(loaded.tokenizer);
  REQUIRE(drawn == service.submit(std::move(sampled))->wait().text);
  REQUIRE(host.set(execution, 1, R"({"temperature": 0, "max_tokens": 12})") == 0);
  REQUIRE(host.compute(execution) == 0);

  std::string out;
  REQUIRE(host.get(execution, 0, out, 0) == 7);  // too small: the size, and the answer stays
  REQUIRE(out == std::to_string(text.size()));
  REQUIRE(host.get(execution, 0, out, static_cast<std::uint32_t>(text.size()) - 1) == 7);
  REQUIRE(host.get(execution, 0, out, static_cast<std::uint32_t>(text.size())) == 0);
  REQUIRE(out == text);
}

TEST_CASE("Models come as bytes and as names under any encoding; targets without hardware are refused") {
  World world;
  Host const host(world.library);
  std::uint32_t graph = 0, execution = 0;
  std::string const bytes = world.bytes();
  std::string first;
  for (int const encoding : {0, 1, 4, 5, 6}) {
    REQUIRE(host.load({bytes}, encoding, 0, &graph) == 0);
    REQUIRE(host.open(graph, &execution) == 0);
    std::string const text = host.answer(execution, "Hello");
    REQUIRE((first.empty() || text == first));
    first = text;
  }
#if TUTTI_WITH_ONNX
  train::write_onnx(world.folder / "model.onnx", train::open_model(world.model), {.type = BlockType::f32});
  std::string const onnx = io::read_file(world.folder / "model.onnx");
  for (int const encoding : {1, 5}) {
    REQUIRE(host.load({onnx}, encoding, 0, &graph) == 0);
    REQUIRE(host.open(graph, &execution) == 0);
    REQUIRE(host.answer(execution, "Hello") == first);
  }
  REQUIRE(host.load({onnx.substr(0, onnx.size() / 2)}, 1, 0, &graph) == 2);
#endif
  REQUIRE(host.load({"default"}, 5, 3, &graph) == 0);
  REQUIRE(host.load({"preload:same", R"({"n_ctx": 64})"}, 6, 3, &graph) == 0);
  REQUIRE(host.open(graph, &execution) == 0);
  REQUIRE(host.answer(execution, "Hello") == first);
  REQUIRE(host.load({bytes}, 5, 1, &graph) == 6);
  REQUIRE(host.load({bytes}, 5, 2, &graph) == 6);
  REQUIRE(host.load({bytes}, 5, 9, &graph) == 1);
  REQUIRE(host.load({}, 5, 0, &graph) == 1);
  REQUIRE(host.load({"a", "{}", "{}"}, 5, 0, &graph) == 1);
  REQUIRE(host.load({""}, 5, 0, &graph) == 1);
  REQUIRE(host.load({std::string("\x08\x01\x12\x00", 4)}, 2, 0, &graph) == 2);  // a SavedModel of TensorFlow begins so
  REQUIRE(host.load({std::string("\x1c\x00\x00\x00TFL3", 8)}, 4, 0, &graph) == 2);
  REQUIRE(host.load({"<?xml version=\"1.0\"?><net name=\"x\" version=\"11\">", "weights"}, 0, 0, &graph) == 2);
  REQUIRE(host.load({std::string("\x08\x08\x12\x05tutti", 9)}, 1, 0, &graph) == 2);  // ONNX without a graph
  REQUIRE(host.load({bytes.substr(0, 100)}, 5, 0, &graph) == 2);
  std::string damaged = bytes;  // a count of layers with which a load would go on for ever
  damaged[damaged.find("llama.block_count") + std::strlen("llama.block_count") + 4 + 3] = '\x7f';
  REQUIRE(host.load({damaged}, 5, 0, &graph) == 2);
  REQUIRE(host.load({"/etc/passwd"}, 5, 0, &graph) == 103);
  REQUIRE(host.load({"preload:" + world.model}, 5, 0, &graph) == 103);
  REQUIRE(host.load_by_name("none", &graph) == 103);
  REQUIRE(host.load_by_name("", &graph) == 103);
  REQUIRE(host.load_by_name("default", R"({"n_ctxx": 1})", &graph) == 1);
  REQUIRE(host.load_by_name("default", R"({"max_memory_mb": 1, "n_ctx": 400000})", &graph) == 7);
}

TEST_CASE("Wrong arguments give codes, and the host lives") {
  World world;
  Host const host(world.library);
  Library const& l = world.library;
  std::uint32_t graph = 0, execution = 0;
  REQUIRE(l.call<int(void**)>("init_backend", static_cast<void**>(nullptr)) == 1);
  int other = 0;
  for (void* const bad : {static_cast<void*>(nullptr), static_cast<void*>(&other)}) {
    REQUIRE(l.call<int(void*)>("deinit_backend", bad) == 1);
    REQUIRE(l.call<int(void*, std::uint32_t)>("compute", bad, 1u) == 1);
    REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t*)>("init_execution_context", bad, 1u, &execution) == 1);
  }
  REQUIRE(l.call<int(void*, void*, int, int, std::uint32_t*)>("load", host.context, static_cast<void*>(nullptr), 5, 0,
                                                              &graph) == 1);
  REQUIRE(host.load_by_name("default", nullptr) == 1);
  REQUIRE(l.call<int(void*, char const*, std::uint32_t, std::uint32_t*)>(
              "load_by_name", host.context, static_cast<char const*>(nullptr), 7u, &graph) == 1);
  REQUIRE(host.load_by_name("default", R"({"n_ctx": 64})", &graph) == 0);
  REQUIRE(host.open(graph + 1, &execution) == 1);
  REQUIRE(host.open(graph, nullptr) == 1);
  REQUIRE(host.open(graph, &execution) == 0);
  REQUIRE(host.compute(execution) == 1);  // no input
  std::string out;
  REQUIRE(host.get(execution, 0, out) == 5);  // nothing computed
  REQUIRE(nlohmann::json::parse(host.output(execution, 1))["input_tokens"] == 0);
  REQUIRE(host.get(execution, 5, out) == 1);
  REQUIRE(host.set(execution, 4, "a") == 1);
  REQUIRE(host.set(execution + 1, 0, "a") == 1);
  REQUIRE(host.set(execution, 0, "") == 1);
  REQUIRE(host.set(execution, 0, "a", 200) == 1);
  REQUIRE(host.set(execution, 0, std::string(65, 'a')) == 102);
  REQUIRE(host.set(execution, 0, std::string(1 << 20, 'a')) == 102);
  REQUIRE(host.set(execution, 2, "abcd", 3) == 1);   // not i32
  REQUIRE(host.set(execution, 2, "abcde", 4) == 1);  // not whole
  REQUIRE(host.set(execution, 2, std::string("\xff\xff\xff\xff", 4), 4) == 1);
  for (char const* const wrong : {"{\"jump\": true}", "{\"reset\": 1}", "{\"cancel\": true, \"reset\": true}",
                                  "{\"truncate\": -1}", "{\"truncate\": true}", "{\"save\": 5}", "{}", "[]", "{"})
    REQUIRE(host.set(execution, 3, wrong) == 1);
  REQUIRE(host.set(execution, 3, "{\"save\": \"a\"}") == 6);  // the host keeps no sessions
  REQUIRE(host.set(execution, 3, std::string(2000, ' ')) == 7);
  REQUIRE(host.set(execution, 1, "{\"grammar\": \"root ::= (\"}") == 1);
  REQUIRE(host.output(execution, 2).find("\"error\":\"") != std::string::npos);
  for (std::uint32_t const count : {5u, 1u << 29}) {
    RawTensor tensor("abc", 3);
    std::memcpy(tensor.dimensions + 8, &count, 4);
    REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", host.context, execution, 0u,
                                                                    static_cast<void*>(tensor.bytes)) == 1);
    REQUIRE(host.output(execution, 2).find(std::to_string(count) + " dimensions, at most 4") != std::string::npos);
  }
  REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", host.context, execution, 0u,
                                                                  static_cast<void*>(nullptr)) == 1);
  RawTensor nothing(nullptr, 4);
  REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", host.context, execution, 0u,
                                                                  static_cast<void*>(nothing.bytes)) == 1);
  REQUIRE(host.fini(execution) == 0);
  REQUIRE(host.unload(graph + 1) == 1);
  REQUIRE(host.close(execution + 1) == 1);
  std::string many = "{\"logit_bias\": [";
  for (int i = 0; i < 300; ++i) many += "[5, 1], ";
  REQUIRE(host.set(execution, 1, many + "[5, 1]]}") == 1);  // more than there are tokens
  REQUIRE(host.set(execution, 1, R"({"max_tokens": 2, "dry_base": 0.5, "repeat_last_n": -1, "repeat_penalty": 1.1})") ==
          0);
  REQUIRE(host.answer(execution, "Hello", "").size() > 0);
  std::string const notes = nlohmann::json::parse(host.output(execution, 2))["notes"].dump();
  CAPTURE(notes);
  REQUIRE(notes.find("dry_base is 0.5: 1.75") != std::string::npos);
  REQUIRE(notes.find("repeat_last_n is -1: the context's 64 tokens") != std::string::npos);
  // After all of it the context answers.
  REQUIRE(host.answer(execution, "Hello").size() > 0);
  REQUIRE(host.unload(graph) == 0);
  REQUIRE(host.open(graph, &execution) == 1);
}

TEST_CASE("Streams give the same text in pieces, end with 100, and stop where the guest stops") {
  World world;
  Host const host(world.library);
  std::uint32_t graph = 0, execution = 0;
  REQUIRE(host.load_by_name("default", R"({"n_ctx": 256})", &graph) == 0);
  REQUIRE(host.open(graph, &execution) == 0);
  std::string const whole = host.answer(execution, "Hello", R"({"temperature": 0, "max_tokens": 30})");
  REQUIRE(host.set(execution, 0, "Hello") == 0);
  std::string text, piece;
  int code = 0, pieces = 0;
  while ((code = host.single(execution)) == 0) {
    REQUIRE(host.get(execution, 0, piece, 1 << 10, "tutti_wasi_nn_get_output_single") == 0);
    text += piece, ++pieces;
    REQUIRE(host.compute(execution) == 4);  // a stream runs
    REQUIRE(host.set(execution, 0, "Other") == 4);
  }
  REQUIRE(code == 100);
  REQUIRE(text == whole);
  REQUIRE(pieces > 5);
  REQUIRE(host.single(execution) == 100);
  REQUIRE(host.output(execution, 0) == whole);
  REQUIRE(host.fini(execution) == 0);
  REQUIRE(host.set(execution, 1, R"({"max_tokens": -1, "ignore_eos": true, "context_shifting": true})") == 0);
  REQUIRE(host.single(execution) == 0);  // anew, without an end
  REQUIRE(host.fini(execution) == 0);
  REQUIRE(host.output(execution, 2).find("cancelled") != std::string::npos);
  // A context that fills up says so, and keeps what there is.
  REQUIRE(host.set(execution, 1, R"({"temperature": 0, "max_tokens": -1, "ignore_eos": true})") == 0);
  REQUIRE(host.set(execution, 0, "Hello") == 0);
  REQUIRE(host.compute(execution) == 101);
  REQUIRE(host.output(execution, 4).size() == 4 * 252);
  REQUIRE(host.set(execution, 1,
                   R"({"temperature": 0, "max_tokens": 300, "ignore_eos": true, "context_shifting": true})") == 0);
  REQUIRE(host.compute(execution) == 0);
  REQUIRE(host.output(execution, 4).size() == 4 * 300);
}

TEST_CASE("Conversations are remembered by session, and one instance does not see another's") {
  World world;
  Host const host(world.library), other(world.library);
  std::uint32_t graph = 0, a = 0, b = 0, theirs = 0;
  std::string const settings = R"({"n_ctx": 400, "temperature": 0, "max_tokens": 5, "chat_template": "auto"})";
  REQUIRE(host.load_by_name("default", settings, &graph) == 0);
  REQUIRE(host.open(graph, &a) == 0);
  REQUIRE(host.open(graph, &b) == 0);
  REQUIRE(other.open(graph, &theirs) == 1);  // a foreign handle
  REQUIRE(other.set(a, 0, "Hello") == 1);
  auto const tokens = [](Host const& h, std::uint32_t execution) {
    std::string const usage = h.output(execution, 1);
    return std::stoi(usage.substr(usage.find(':') + 1));
  };
  host.answer(a, "One", R"({"session": "s"})");
  int const first = tokens(host, a);
  host.answer(b, "Two", R"({"session": "s"})");  // goes on
  REQUIRE(tokens(host, b) > first + 3);
  REQUIRE(host.output(b, 2).find("\"cached_tokens\":0") == std::string::npos);
  REQUIRE(host.set(b, 3, R"({"reset": true})") == 0);
  host.answer(b, "One", "");
  REQUIRE(tokens(host, b) == first);
  std::uint32_t their_graph = 0;
  REQUIRE(other.load_by_name("default", settings, &their_graph) == 0);
  REQUIRE(other.open(their_graph, &theirs) == 0);
  other.answer(theirs, "One", R"({"session": "s"})");
  REQUIRE(tokens(other, theirs) == first);
  REQUIRE(other.output(theirs, 2).find("\"cached_tokens\":0") != std::string::npos);  // their cache is no other's
}

TEST_CASE("Conversations are cut, kept in the host's folder, and taken up again with what was computed") {
  ScratchFolder folder;
  std::filesystem::create_directory(folder / "kept");
  std::string const model = test::write_byte_model(folder / "model.gguf");
  std::ofstream(folder / "registry.json")
      << R"({"models": {"default": ")" << model << R"(", "other": ")"
      << test::write_byte_model(folder / "other.gguf", 512, 2) << R"("}, "session_folder": ")" << (folder / "kept")
      << R"(", "saved_sessions": 2,
          "settings": {"n_ctx": 400, "temperature": 0, "max_tokens": 5, "chat_template": "auto"}})";
  Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  Library const library("TUTTI_WASI_NN_LLAMACPP");
  std::uint32_t graph = 0, execution = 0;
  auto const status = [](Host const& host, std::uint32_t of) { return nlohmann::json::parse(host.output(of, 2)); };
  std::vector<int> sizes;
  std::string third;
  {
    Host const host(library);
    REQUIRE(host.load_by_name("default", &graph) == 0);
    REQUIRE(host.open(graph, &execution) == 0);
    for (char const* const question : {"One", "Two", "Three"}) {
      third = host.answer(execution, question, "");
      sizes.push_back(status(host, execution)["input_tokens"]);
    }
    REQUIRE(sizes[2] > sizes[1]);
    REQUIRE(host.set(execution, 3, R"({"truncate": 2})") == 0);  // the third turn, once more
    REQUIRE(host.answer(execution, "Three", "") == third);
    REQUIRE(status(host, execution)["input_tokens"] == sizes[2]);
    REQUIRE(host.set(execution, 3, R"({"truncate": 2})") == 0);
    REQUIRE(host.set(execution, 3, R"({"truncate": 7})") == 0);  // there are no more
    REQUIRE(host.set(execution, 3, R"({"save": "mine"})") == 0);
    REQUIRE(host.set(execution, 3, R"({"save": "mine"})") == 0);
    REQUIRE(host.set(execution, 3, R"({"save": "second"})") == 0);
    REQUIRE(host.set(execution, 3, R"({"save": "third"})") == 7);
    for (char const* const name : {"../mine", "", "a/b", ".mine"})
      REQUIRE(host.set(execution, 3, nlohmann::json{{"save", name}}.dump()) == 1);
  }
  // Another instance, with the model loaded anew.
  Host const host(library);
  REQUIRE(host.load_by_name("default", &graph) == 0);
  REQUIRE(host.open(graph, &execution) == 0);
  REQUIRE(host.set(execution, 3, R"({"restore": "none"})") == 8);
  REQUIRE(host.set(execution, 3, R"({"restore": "mine"})") == 0);
  REQUIRE(host.answer(execution, "Three", "") == third);
  REQUIRE(status(host, execution)["input_tokens"] == sizes[2]);
  REQUIRE(status(host, execution)["cached_tokens"] > sizes[1]);
  REQUIRE(status(host, execution)["used_tokens"] == sizes[2] + 5);
  // Another model goes on with the conversation and reads it again.
  std::uint32_t other = 0;
  REQUIRE(host.load_by_name("other", &graph) == 0);
  REQUIRE(host.open(graph, &other) == 0);
  REQUIRE(host.set(other, 3, R"({"restore": "mine"})") == 0);
  REQUIRE(status(host, other)["notes"].dump().find("is of another model") != std::string::npos);
  REQUIRE(host.answer(other, "Three", "").size() > 0);
  REQUIRE(status(host, other)["cached_tokens"] == 0);
  REQUIRE(status(host, other)["notes"].dump().find("is of another model") != std::string::npos);
  std::filesystem::remove(folder / "kept/second.cache");
  REQUIRE(host.set(other, 3, R"({"restore": "second"})") == 0);
  REQUIRE(status(host, other)["notes"].dump().find("no cache was saved") != std::string::npos);
  std::filesystem::resize_file(folder / "kept/mine.session", 30);
  REQUIRE(host.set(execution, 3, R"({"restore": "mine"})") == 5);
  REQUIRE(status(host, execution)["error"].get<std::string>().find("damaged") != std::string::npos);
  REQUIRE(host.answer(execution, "Four", "").size() > 0);  // and nothing changed
  REQUIRE(status(host, execution)["input_tokens"] > sizes[2]);
}

TEST_CASE("Devices: what was found and chosen is said, and a GPU that cannot be had is refused with it") {
  using wasi_nn::Device;
  ScratchFolder folder;
  REQUIRE(wasi_nn::found_gpus(folder / "none").empty());
  std::filesystem::create_directories(folder / "gpus/0000:01:00.0");
  std::ofstream(folder / "gpus/0000:01:00.0/information") << "Model: \t\t NVIDIA H100\nIRQ:   5\n";
  std::vector<std::string> const gpus = wasi_nn::found_gpus(folder / "gpus");
  REQUIRE(gpus == std::vector<std::string>{"NVIDIA H100"});
  struct Row {
    Device wanted;
    int layers;
    std::vector<std::string> gpus;
    char const* missing;
    bool gpu;
    char const* told;
  };
  for (Row const& row : {
           Row{Device::automatic, -1, {}, "no CUDA", false, "found 2 processors and no GPU; chosen: processors"},
           Row{Device::automatic, -1, gpus, "no CUDA", false,
               "found 2 processors and NVIDIA H100; chosen: processors, since no CUDA"},
           Row{Device::automatic, -1, gpus, "", true,
               "found 2 processors and NVIDIA H100; chosen: GPU, 2 of 2 layers on it"},
           Row{Device::automatic, 0, gpus, "", false,
               "found 2 processors and NVIDIA H100; chosen: processors, since n_gpu_layers is 0"},
           Row{Device::automatic, 5, gpus, "", true,
               "found 2 processors and NVIDIA H100; chosen: GPU, 2 of 2 layers on it"},
           Row{Device::cpu, 5, gpus, "", false, "found 2 processors and NVIDIA H100; chosen: processors"},
           Row{Device::gpu, 5, gpus, "", true, "found 2 processors and NVIDIA H100; chosen: GPU, 2 of 2 layers on it"},
       }) {
    wasi_nn::ChosenDevice const chosen = wasi_nn::choose_device(row.wanted, row.layers, 2, row.gpus, row.missing);
    REQUIRE(chosen.gpu == row.gpu);
    REQUIRE(chosen.on(row.gpu ? "2 of 2 layers on it" : "") == row.told);
  }
  REQUIRE(wasi_nn::choose_device(Device::automatic, -1, 2, gpus, "").on("") ==
          "found 2 processors and NVIDIA H100; chosen: processors, since the GPU has got no layer of the model");
  auto const refusal = [&](int layers, std::string const& missing) {
    try {
      wasi_nn::choose_device(Device::gpu, layers, 2, gpus, missing);
    } catch (wasi_nn::Failure const& failure) {
      return std::pair(failure.code(), std::string(failure.what()));
    }
    return std::pair(wasi_nn::Code::success, std::string("it was not refused"));
  };
  REQUIRE(refusal(-1, "no CUDA").first == wasi_nn::Code::unsupported_operation);
  REQUIRE(refusal(-1, "no CUDA").second.find("NVIDIA H100, and no CUDA. Load for target CPU") != std::string::npos);
  REQUIRE(refusal(0, "").first == wasi_nn::Code::invalid_argument);
  REQUIRE(refusal(0, "").second.find("n_gpu_layers is 0") != std::string::npos);
  World world;
  Host const host(world.library);
  std::uint32_t graph = 0, execution = 0;
  REQUIRE(host.load({"default", R"({"device": "gpu"})"}, 5, 3, &graph) == 6);  // any: what the settings say
  REQUIRE(host.load_by_name("default", R"({"device": "gpu"})", &graph) == 6);
  REQUIRE(host.load_by_name("default", R"({"device": "tpu"})", &graph) == 1);
  REQUIRE(host.load({"default", R"({"device": "gpu"})"}, 5, 0, &graph) == 0);
  REQUIRE(host.open(graph, &execution) == 0);
  REQUIRE(host.output(execution, 2).find("chosen: processors") != std::string::npos);
}

TEST_CASE("Two instances in two threads get their own answers; a busy context refuses a second call") {
  World world;
  std::string expected;
  {
    Host const host(world.library);
    std::uint32_t graph = 0, execution = 0;
    REQUIRE(host.load_by_name("default", R"({"n_ctx": 128})", &graph) == 0);
    REQUIRE(host.open(graph, &execution) == 0);
    expected = host.answer(execution, "Hello");
  }
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        Host const host(world.library);
        std::uint32_t graph = 0, execution = 0;
        if (host.load_by_name("default", R"({"n_ctx": 128})", &graph) != 0 || host.open(graph, &execution) != 0)
          continue;
        std::string out;
        if (host.set(execution, 1, R"({"temperature": 0, "max_tokens": 12})") == 0 &&
            host.set(execution, 0, "Hello") == 0 && host.compute(execution) == 0 && host.get(execution, 0, out) == 0 &&
            out == expected)
          ++right;
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(right == 10);

  Host const host(world.library);
  std::uint32_t graph = 0, execution = 0;
  REQUIRE(host.load_by_name("default", &graph) == 0);
  REQUIRE(host.open(graph, &execution) == 0);
  REQUIRE(host.set(execution, 1,
                   R"({"temperature": 0, "max_tokens": -1, "ignore_eos": true, "context_shifting": true})") == 0);
  REQUIRE(host.set(execution, 0, "Hello") == 0);
  std::atomic<int> code{-1};
  std::thread endless([&] {
    int result = 4;
    while ((result = host.compute(execution)) == 4) {
    }
    code = result;
  });
  while (host.set(execution, 0, "Hello") != 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(host.compute(execution) == 4);
  REQUIRE(code == -1);
  while (code == -1) {  // another thread may end it
    host.set(execution, 3, R"({"cancel": true})");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  endless.join();
  REQUIRE(code == 0);
  REQUIRE(host.output(execution, 2).find("cancelled") != std::string::npos);
}

namespace {

/// Entries of a folder of this process: its threads, its files.
std::ptrdiff_t count_of(char const* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}
/// What the process does at each signal.
std::vector<void*> handlers() {
  std::vector<void*> all;
  for (int number = 1; number < 32; ++number) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    all.push_back(reinterpret_cast<void*>(action.sa_handler));
  }
  return all;
}

}  // namespace

TEST_CASE("The library opens and closes many times, with work in flight at the end") {
  ScratchFolder folder;
  Variable const models("TUTTI_WASI_NN_MODELS", "default=" + test::write_byte_model(folder / "model.gguf"));
  // A timer of the host interrupts system calls all the time.
  struct sigaction alarm {};
  alarm.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &alarm, nullptr);
  std::ptrdiff_t const threads = count_of("/proc/self/task"), files = count_of("/proc/self/fd");
  std::vector<void*> const before = handlers();
  ::itimerval const often{{0, 500}, {0, 500}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 20; ++i) {
    Library const library("TUTTI_WASI_NN_LLAMACPP");
    {
      Host const host(library);
      std::uint32_t graph = 0, execution = 0;
      REQUIRE(host.load_by_name("default", i % 2 == 0 ? R"({"n_ctx": 64})" : R"({"use_mmap": false})", &graph) == 0);
      REQUIRE(host.open(graph, &execution) == 0);
      REQUIRE(host.set(execution, 0, "Hello") == 0);
      REQUIRE(host.single(execution) == 0);
    }
    REQUIRE(count_of("/proc/self/task") == threads);  // joined, not on their way out
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  REQUIRE(count_of("/proc/self/fd") == files);
  REQUIRE(handlers() == before);
  ::signal(SIGALRM, SIG_DFL);
}

TEST_CASE("What a guest says stays within the host's limits; streams that nobody reads pause and end") {
  ScratchFolder folder;
  std::string const model = test::write_byte_model(folder / "model.gguf");
  std::ofstream(folder / "registry.json")
      << R"({"models": {"default": ")" << model << R"(", "gone": ")" << (folder / "gone.gguf") << R"("}, "folders": [")"
      << folder.path()
      << R"("], "settings": {"n_ctx": 200, "max_concurrent": 1, "idle_timeout_ms": 300, "max_models": 2},
      "limits": {"threads": 2, "max_concurrent": 2, "max_tokens": 5000, "priority": 0}})";
  Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  Library const library("TUTTI_WASI_NN_LLAMACPP");
  Host const host(library), other(library);
  std::uint32_t graph = 0, a = 0, b = 0;
  REQUIRE(host.load_by_name("default", R"({"threads": 3})", &graph) == 6);
  REQUIRE(host.load_by_name("default", R"({"max_concurrent": 8})", &graph) == 6);
  REQUIRE(host.load_by_name("default", R"({"priority": 1})", &graph) == 6);
  REQUIRE(host.load_by_name("default", R"({"log_level": "none", "logging": {"timestamps": false, "format": "json"}})",
                            &graph) == 0);
  REQUIRE(host.unload(graph) == 0);
  REQUIRE(host.load_by_name("default", R"({"log_file": "elsewhere"})", &graph) == 6);  // of no folder for logs
  REQUIRE(host.load_by_name("default", R"({"log_level": "debug"})", &graph) == 0);
  REQUIRE(host.open(graph, &a) == 0);
  REQUIRE(host.answer(a, "Hello").size() > 0);
  REQUIRE(host.output(a, 2).find("the log is the host's") != std::string::npos);
  REQUIRE(host.unload(graph) == 0);
  REQUIRE(host.load_by_name("default", R"({"enable-log": true, "enable-debug-log": true})", &graph) == 0);
  REQUIRE(host.unload(graph) == 0);
  REQUIRE(host.load_by_name("gone", &graph) == 103);
  REQUIRE(host.load_by_name("nothing.gguf", &graph) == 103);
  REQUIRE(host.load_by_name("default", R"({"grammar": "root ::= ("})", &graph) == 1);  // said at once
  REQUIRE(host.load_by_name("model.gguf", &graph) == 0);
  REQUIRE(host.load_by_name("default", R"({"name": "mine"})", &graph) == 0);
  REQUIRE(host.open(graph, &a) == 0);
  REQUIRE(host.set(a, 1, R"({"max_tokens": 5001})") == 6);
  REQUIRE(host.set(a, 1, R"({"max_tokens": -1, "ignore_eos": true, "context_shifting": true})") == 0);
  REQUIRE(host.set(a, 0, "Hello") == 0);
  REQUIRE(host.single(a) == 0);  // and nothing more is read
  std::uint32_t their_graph = 0;
  REQUIRE(other.load_by_name("default", R"({"name": "theirs"})", &their_graph) == 0);
  REQUIRE(other.open(their_graph, &b) == 0);
  REQUIRE(other.answer(b, "Hello").size() > 0);  // once the stream was given up
  REQUIRE(other.output(b, 2).find("\"model\":\"theirs\"") != std::string::npos);
  int code = 0, pieces = 0;
  while ((code = host.single(a)) == 0) ++pieces;
  REQUIRE(code == 100);
  REQUIRE(pieces >= 64);
  REQUIRE(pieces < 100);
  REQUIRE(host.load_by_name("default", &graph) == 7);  // it has two models
  REQUIRE(host.unload(graph) == 0);
  REQUIRE(host.load_by_name("default", R"({"max_models": 3})", &graph) == 1);
  REQUIRE(host.load_by_name("default", &graph) == 0);
}

TEST_CASE("Limits are numbers, a limit of time holds without the guest's leave, unread streams leave their slot") {
  ScratchFolder folder;
  std::string const model = test::write_byte_model(folder / "model.gguf");
  auto const registry = [&](char const* limits) {
    std::ofstream(folder / "registry.json") << R"({"models": {"default": ")" << model << R"("},
        "settings": {"n_ctx": 400, "max_concurrent": 1}, "limits": )"
                                            << limits << "}";
  };
  Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  Library const library("TUTTI_WASI_NN_LLAMACPP");
  registry(R"({"temperature": 0.5})");
  REQUIRE_THROWS(Host(library));
  registry(R"({"max_inference_time_ms": 1})");
  {
    Host const host(library);
    std::uint32_t graph = 0, context = 0;
    REQUIRE(host.load_by_name("default", &graph) == 0);
    REQUIRE(host.open(graph, &context) == 0);
    REQUIRE(host.set(context, 1, R"({"timeout_enabled": false, "max_tokens": 390, "ignore_eos": true})") == 0);
    REQUIRE(host.set(context, 0, "Hello") == 0);
    int const code = host.compute(context);
    REQUIRE((code == 3 || host.output(context, 2).find("\"stop_reason\":\"time\"") != std::string::npos));
  }
  registry("{}");
  Host const host(library);
  std::uint32_t graph = 0, unread = 0, other = 0;
  REQUIRE(host.load_by_name("default", &graph) == 0);
  REQUIRE(host.open(graph, &unread) == 0);
  REQUIRE(host.open(graph, &other) == 0);
  REQUIRE(host.set(unread, 1, R"({"max_tokens": 300, "ignore_eos": true})") == 0);
  REQUIRE(host.set(unread, 0, "Hello") == 0);
  REQUIRE(host.single(unread) == 0);                // and no more, for now
  REQUIRE(host.answer(other, "Hello").size() > 0);  // long before the time-out of 300 s
  int pieces = 1;
  while (host.single(unread) == 0) ++pieces;
  REQUIRE(pieces > 100);
  // The page's metadata again, as guests of WasmEdge send it.
  REQUIRE(host.set(other, 1, R"({"ctx-size": 400, "n-parallel": 1, "enable-log": false, "temp": 0.5})") == 0);
  REQUIRE(host.set(other, 1, R"({"ctx-size": 401})") == 1);
}

TEST_CASE("Embeddings by their pooling and norm; rotations other than the model's give another text") {
  World const world;
  Host const host(world.library);
  std::uint32_t graph = 0, context = 0, turned = 0, other = 0;
  REQUIRE(host.load_by_name("default", R"({"n_ctx": 128})", &graph) == 0);
  REQUIRE(host.open(graph, &context) == 0);
  auto const embedding = [&](std::string const& prompt, std::string const& options) {
    std::string const text = host.answer(context, prompt, R"({"embedding": true)" + options + "}");
    return nlohmann::json::parse(text).at("embedding").get<std::vector<double>>();
  };
  auto const length = [](std::vector<double> const& values, double power) {
    double sum = 0;
    for (double const value : values) sum += std::pow(std::abs(value), power);
    return std::pow(sum, 1 / power);
  };
  std::string const written = host.answer(context, "Hello", R"({"embedding": true})");
  REQUIRE(written.starts_with("{\"n_embedding\":"));
  std::string const digits = "0123456789.";
  for (std::size_t end = 0, at = 0; (at = written.find_first_of(digits, end)) != std::string::npos;) {
    end = written.find_first_not_of(digits, at);
    REQUIRE(end - at <= 15);  // ten of them significant
  }
  std::vector<double> const unit = embedding("Hello", ""), raw = embedding("Hello", R"(, "embd_normalize": -1)");
  REQUIRE(length(unit, 2) == Approx(1));
  REQUIRE(length(embedding("Hello", R"(, "embd_normalize": 1)"), 1) == Approx(1));
  REQUIRE(length(embedding("Hello", R"(, "embd_normalize": 3)"), 3) == Approx(1));
  for (std::size_t i = 0; i < raw.size(); ++i) REQUIRE(raw[i] / length(raw, 2) == Approx(unit[i]).margin(1e-6));
  std::vector<double> const scaled = embedding("Hello", R"(, "embd_normalize": 0)");
  double most = 0;
  for (double const value : scaled) most = std::max(most, std::abs(value));
  REQUIRE(most == Approx(32760));
  // The first token sees itself alone, whatever follows; the last one sees all.
  std::string const cls = R"(, "pooling_type": "cls", "embd_normalize": -1)", last = R"(, "pooling_type": "last")";
  std::vector<double> const first = embedding("Hello", cls), again = embedding("Help me", cls);
  for (std::size_t i = 0; i < first.size(); ++i) REQUIRE(first[i] == Approx(again[i]).margin(1e-5));
  REQUIRE(embedding("Hello", last) != unit);
  REQUIRE(embedding("H", last) == embedding("H", ""));

  REQUIRE(host.load_by_name("default", R"({"n_ctx": 128, "rope-freq-base": 100, "rope-freq-scale": 0.5})", &turned) ==
          0);
  REQUIRE(host.open(turned, &other) == 0);
  REQUIRE(host.answer(other, "Hello, who is there?") != host.answer(context, "Hello, who is there?"));
}

TEST_CASE("A host's limit below what nobody has said is what holds then") {
  ScratchFolder folder;
  std::string const model = test::write_byte_model(folder / "model.gguf");
  for (char const* const limit : {"\"max_tokens\": 100", "\"max_concurrent\": 1", "\"max_sessions\": 10",
                                  "\"queue_size\": 10", "\"idle_timeout_ms\": 1000", "\"batch_tokens\": 64"}) {
    CAPTURE(limit);
    std::ofstream(folder / "registry.json")
        << R"({"models": {"default": ")" << model << R"("}, "limits": {)" << limit << "}}";
    Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
    Library const library("TUTTI_WASI_NN_LLAMACPP");
    Host const host(library);
    std::uint32_t graph = 0, context = 0;
    REQUIRE(host.load_by_name("default", &graph) == 0);
    REQUIRE(host.open(graph, &context) == 0);
    REQUIRE(host.answer(context, "Hello").size() > 0);
  }
}

TEST_CASE("A backend that ends lets no call go on in it") {
  World world;
  void* context = nullptr;
  std::atomic<int> code{-1};
  std::thread endless;
  {
    Host host(world.library);
    std::uint32_t graph = 0, execution = 0;
    REQUIRE(host.load_by_name("default", &graph) == 0);
    REQUIRE(host.open(graph, &execution) == 0);
    REQUIRE(host.set(execution, 1, R"({"max_tokens": -1, "ignore_eos": true, "context_shifting": true})") == 0);
    REQUIRE(host.set(execution, 0, "Hello") == 0);
    context = host.context;
    endless = std::thread([&, execution] {
      int result = 4;
      while (result == 4) result = world.library.call<int(void*, std::uint32_t)>("compute", context, execution);
      code = result;
    });
    while (host.set(execution, 0, "Hello") != 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }  // deinit_backend
  endless.join();
  REQUIRE((code == 0 || code == 1));  // cancelled, or it came too late
  REQUIRE(world.library.call<int(void*)>("deinit_backend", context) == 1);
}

TEST_CASE("An older host is refused before its memory is misread") {
  void* context = nullptr;
  auto const version = [](std::uint32_t minor) {
    static std::uint32_t one;
    one = minor;
    return [](std::uint32_t* a, std::uint32_t* b, std::uint32_t* c) { *a = 2, *b = one, *c = 1; };
  };
  REQUIRE(wasi_nn::wamr::init(&context, version(3)) == 6);
  REQUIRE(context == nullptr);
  REQUIRE(wasi_nn::wamr::init(&context, version(4)) == 0);
  REQUIRE(wasi_nn::wamr::deinit(context) == 0);
  REQUIRE(wasi_nn::wamr::deinit(context) == 1);
}

// By tests/cuda, with a library that has an emulated device.
TEST_CASE("Layers on a GPU: the same text, shared caches, sessions and n_gpu_layers", "[.gpu]") {
  World world;
  Host const host(world.library);
  std::uint32_t graph = 0, execution = 0;
  auto const answer = [&](std::string const& config, int target, std::string const& device) {
    REQUIRE(host.load({"default", config}, 5, target, &graph) == 0);
    REQUIRE(host.open(graph, &execution) == 0);
    std::string const text = host.answer(execution, "Hello");
    std::string const told = nlohmann::json::parse(host.output(execution, 2))["device"].get<std::string>();
    CAPTURE(config, told);
    REQUIRE(told.find(device) != std::string::npos);
    return text;
  };
  std::string const text = answer(R"({"n_ctx": 64})", 0, "chosen: processors");
  REQUIRE(answer(R"({"n_ctx": 64})", 1, "chosen: GPU, 2 of 2 layers and the head on CUDA device 0") == text);
  REQUIRE(host.load({world.bytes(), R"({"n_ctx": 64})"}, 5, 1, &graph) == 0);  // a guest's own model
  REQUIRE(answer(R"({"n_ctx": 64})", 3, "2 of 2 layers and the head") == text);
  REQUIRE(answer(R"({"n_ctx": 64, "n_gpu_layers": 1})", 3, "GPU, 1 of 2 layers on") == text);
  REQUIRE(answer(R"({"n_ctx": 64, "n_gpu_layers": 0})", 3, "processors, since n_gpu_layers is 0") == text);
  REQUIRE(host.load({"default", R"({"n_gpu_layers": 0})"}, 5, 1, &graph) == 1);
  // A second prompt of the session goes on from its cache on the device.
  answer(R"({"n_ctx": 64, "session": "one"})", 1, "chosen: GPU");
  std::string const next = host.answer(execution, " there");
  answer(R"({"n_ctx": 64, "session": "one"})", 0, "chosen: processors");
  REQUIRE(host.answer(execution, " there") == next);
}

TEST_CASE("Logs go to the file that the host allows, one line a happening, and nowhere else") {
  ScratchFolder folder;
  std::string const model = test::write_byte_model(folder / "model.gguf");
  std::ofstream(folder / "registry.json")
      << R"({"models": {"default": ")" << model << R"("}, "log_folders": [")" << folder.path()
      << R"("], "settings": {"log_level": "info", "log_format": "json", "log_file": ")" << (folder / "log") << R"("}})";
  Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  Library const library("TUTTI_WASI_NN_LLAMACPP");
  {
    Host const host(library);
    std::uint32_t graph = 0;
    REQUIRE(host.load_by_name("default", R"({"n_gpu_layers": 5, "name": "mine\nfake line"})", &graph) == 0);
    REQUIRE(host.load_by_name("default", R"({"log_file": "/tmp/elsewhere"})", &graph) == 6);
    REQUIRE(host.load_by_name("none", &graph) == 103);
  }
  std::ifstream file(folder / "log");
  std::string all, line;
  int lines = 0;
  while (std::getline(file, line)) {
    REQUIRE(nlohmann::json::parse(line).contains("level"));
    all += line, ++lines;
  }
  REQUIRE(lines >= 5);
  REQUIRE(all.find("model 'mine\\nfake line': n_gpu_layers: no GPU is used") != std::string::npos);
  REQUIRE(all.find("model 'mine\\nfake line': found ") != std::string::npos);
  REQUIRE(all.find("no model 'none'") != std::string::npos);
}

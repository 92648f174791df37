// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/native_library.hpp>
// The functions for iwasm --native-lib on a runtime of two module instances with 64 KiB of memory each.
#include "wasi_nn/support.hpp"

#include <tutti/wasi_nn/native_library.hpp>

#include <array>
#include <cstring>
#include <string>

using namespace tutti;
using namespace tutti::wasi_nn;
namespace nl = tutti::wasi_nn::native_library;

namespace {

struct Module {
  std::array<std::byte, 65536> memory{};
  int cleared = 0;
  void* context = nullptr;
  void write(std::uint32_t at, void const* data, std::size_t size) { std::memcpy(memory.data() + at, data, size); }
  std::uint32_t word(std::uint32_t at) const {
    std::uint32_t value;
    std::memcpy(&value, memory.data() + at, 4);
    return value;
  }
  void words(std::uint32_t at, std::initializer_list<std::uint32_t> values) {
    for (std::uint32_t const value : values) write(at, &value, 4), at += 4;
  }
};

void (*ender)(void*, void*) = nullptr;

nl::Runtime runtime() {
  nl::Runtime r;
  r.instance_of = [](void* environment) { return environment; };
  r.holds = [](void*, std::uint64_t at, std::uint64_t size) { return at <= 65536 && size <= 65536 - at; };
  r.native = [](void* module, std::uint64_t at) {
    return static_cast<void*>(static_cast<Module*>(module)->memory.data() + at);
  };
  r.clear_exception = [](void* module) { ++static_cast<Module*>(module)->cleared; };
  r.create_key = [](void (*end)(void*, void*)) {
    ender = end;
    return static_cast<void*>(&ender);
  };
  r.set_context = [](void* module, void*, void* context) { static_cast<Module*>(module)->context = context; };
  r.get_context = [](void* module, void*) { return static_cast<Module*>(module)->context; };
  r.destroy_key = [](void*) { ender = nullptr; };
  return r;
}

}  // namespace

TEST_CASE("A runtime without what reaches memory is refused") {
  REQUIRE(nl::open({}) == -1);
  char* module = nullptr;
  void* rows = nullptr;
  REQUIRE(nl::table(&module, &rows) == 12);
  REQUIRE(std::string(module) == "wasi_ephemeral_nn");
  REQUIRE(nl::table(nullptr, &rows) == 0);
}

TEST_CASE("Guests reach all twelve functions, each its own backend, and wrong pointers are codes") {
  tutti::test::ScratchFolder folder;
  tutti::test::Variable const models("TUTTI_WASI_NN_MODELS",
                                     "default=" + tutti::test::write_byte_model(folder / "m.gguf"));
  REQUIRE(nl::open(runtime()) == 0);
  Module a, b;
  a.write(64, "default", 7);
  REQUIRE(nl::load_by_name(&a, 64, 7, 16) == 0);
  std::uint32_t const graph = a.word(16);
  REQUIRE(nl::init_execution_context(&a, graph, 20) == 0);
  std::uint32_t const context = a.word(20);
  REQUIRE(nl::init_execution_context(&b, graph, 20) == 1);  // not b's
  std::string const options = R"({"temperature": 0, "max_tokens": 6})";
  a.write(256, options.data(), options.size());
  a.words(128, {1});
  a.words(32, {128, 1, 3, 256, static_cast<std::uint32_t>(options.size())});
  REQUIRE(nl::set_input(&a, context, 1, 32) == 0);
  a.write(512, "Hello", 5);
  a.words(32, {128, 1, 0xabcdef03, 512, 5});  // the type is a byte
  REQUIRE(nl::set_input(&a, context, 0, 32) == 0);
  REQUIRE(nl::compute(&a, context) == 0);
  REQUIRE(nl::get_output(&a, context, 0, 1024, 1, 24) == 7);
  std::uint32_t const size = a.word(24);
  REQUIRE(size >= 6);
  REQUIRE(nl::get_output(&a, context, 0, 1024, size, 24) == 0);
  std::string streamed;
  REQUIRE(nl::set_input(&a, context, 0, 32) == 0);
  while (nl::compute_single(&a, context) == 0) {
    REQUIRE(nl::get_output_single(&a, context, 0, 4096, 64, 24) == 0);
    streamed.append(reinterpret_cast<char const*>(a.memory.data() + 4096), a.word(24));
  }
  REQUIRE(streamed == std::string(reinterpret_cast<char const*>(a.memory.data() + 1024), size));
  REQUIRE(nl::fini_single(&a, context) == 0);

  REQUIRE(nl::get_output(&a, context, 0, 65535, 64, 24) == 1);
  REQUIRE(nl::get_output(&a, context, 0, 1024, 64, 65533) == 1);
  REQUIRE(nl::get_output(&a, context, 0, 0, 64, 24) == 1);
  REQUIRE(nl::set_input(&a, context, 0, 65520) == 1);
  a.words(32, {128, 1u << 29, 3, 512, 5});
  REQUIRE(nl::set_input(&a, context, 0, 32) == 1);
  a.words(32, {65532, 4, 3, 512, 5});
  REQUIRE(nl::set_input(&a, context, 0, 32) == 1);
  a.words(32, {128, 1, 3, 512, 0xffffffff});
  REQUIRE(nl::set_input(&a, context, 0, 32) == 1);
  a.words(200, {512, 0xfffffff0});
  REQUIRE(nl::load(&a, 200, 1, 5, 0, 16) == 1);
  REQUIRE(nl::load(&a, 200, 0xffffffff, 5, 0, 16) == 1);
  a.words(200, {64, 7});
  REQUIRE(nl::load(&a, 200, 1, 6, 3, 16) == 0);
  REQUIRE(nl::load_by_name_with_config(&a, 64, 7, 512, 5, 16) == 1);
  REQUIRE(nl::load_by_name(&a, 65530, 100, 16) == 1);
  REQUIRE(a.cleared >= 6);  // no trap is left pending

  REQUIRE(nl::unload(&a, graph) == 0);
  REQUIRE(nl::compute(&a, context) == 0);  // the context keeps its model
  REQUIRE(nl::finalize_execution_context(&a, context) == 0);
  REQUIRE(nl::compute(&a, context) == 1);
  ender(&a, a.context);  // the module instance ends
  REQUIRE(nl::unload(&a, a.word(16)) == 1);
  nl::Door::get().close();
  REQUIRE(ender == nullptr);
}

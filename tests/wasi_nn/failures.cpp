// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/live.hpp>
// A host's calls over both interfaces, while every allocation, start of a thread and opening of a file fails once in
// turn: a code comes back, nothing is kept, and the next call works.
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/failing.hpp"

#include <tutti/wasi_nn/session_interface.hpp>
#include <tutti/wasi_nn/wamr.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

using namespace tutti;
using namespace tutti::wasi_nn;

namespace {

void need(int code) {
  if (code != 0) throw std::runtime_error("code " + std::to_string(code));
}

struct World {
  test::ScratchFolder folder;
  World() {
    std::string const path = folder / "model.gguf";
    test::write_tiny_gguf(path, test::tiny_byte_model(512));
    io::write_file(
        folder / "registry.json",
        R"({"models": {"default": ")" + path + R"("}, "settings": {"log_level": "none", "n_ctx": 64, "threads": 2}})");
    ::setenv("TUTTI_WASI_NN_MODELS", (folder / "registry.json").c_str(), 1);
  }
  ~World() { ::unsetenv("TUTTI_WASI_NN_MODELS"); }
};

char const options[] = R"({"temperature": 0, "max_tokens": 5, "grammar": "root ::= [a-z0-9 ]*"})";

/// Ended whatever fails: an end that fails is said again.
template <int (*Deinit)(void*) noexcept>
struct Backend {
  void* context = nullptr;
  Backend() = default;
  Backend(Backend const&) = delete;
  Backend& operator=(Backend const&) = delete;
  ~Backend() {
    while (context != nullptr && Deinit(context) != 0) {
    }
  }
};

std::string by_sessions() {
  namespace api = session_interface;
  Backend<api::deinit> backend;
  need(api::init(&backend.context, nullptr, 0));
  need(api::load_by_name(backend.context, "default", 7, nullptr, 0, nullptr));
  std::uint32_t execution = 0, size = 256;
  need(api::init_execution_context(backend.context, "a session's name that is longer than most", &execution));
  std::string prompt = "Hello", answer(size, '\0');
  api::Tensor const tensor{nullptr, 3, reinterpret_cast<std::uint8_t*>(prompt.data())};
  need(api::run_inference(backend.context, execution, 0, &tensor, reinterpret_cast<std::uint8_t*>(answer.data()), &size,
                          options, sizeof options - 1));
  need(api::close_execution_context(backend.context, execution));
  return answer.substr(0, size - 1);
}

std::string by_guest() {
  Backend<wamr::deinit> backend;
  need(wamr::init(&backend.context, nullptr));
  std::uint32_t graph = 0, execution = 0, size = 0;
  need(wamr::load_by_name(backend.context, "default", 7, nullptr, 0, &graph));
  need(wamr::init_execution_context(backend.context, graph, &execution));
  std::string document = options, prompt = "Hello", answer(256, '\0');
  auto const give = [&](std::uint32_t index, std::string& text) {
    wamr::Tensor const tensor{
        nullptr, 3, {reinterpret_cast<std::uint8_t*>(text.data()), static_cast<std::uint32_t>(text.size())}};
    need(wamr::set_input(backend.context, execution, index, &tensor));
  };
  give(1, document);
  give(0, prompt);
  need(wamr::compute(backend.context, execution));
  wamr::Bytes room{reinterpret_cast<std::uint8_t*>(answer.data()), static_cast<std::uint32_t>(answer.size())};
  need(wamr::get_output(backend.context, execution, 0, &room, &size));
  need(wamr::finalize_execution_context(backend.context, execution));
  need(wamr::unload(backend.context, graph));
  return answer.substr(0, size);
}

}  // namespace

TEST_CASE("Whatever fails once in a host's calls is a code, and the calls after it go well") {
  World const world;
  for (auto* const f : {by_sessions, by_guest}) {
    std::string text;
    test::each_fails_once(f, [&](std::string const& answer) {
      if (text.empty()) text = answer;
      REQUIRE(answer.size() == 5);
      REQUIRE(answer == text);
    });
  }
}

TEST_CASE("In a host that goes on, a failure leaves the session's turns whole and the model in its place") {
  namespace api = session_interface;
  World const world;
  Backend<api::deinit> backend;
  char const settings[] = R"({"n_ctx": 400})",
             named[] = R"({"n_ctx": 400, "name": "a name that is longer than a string has room for"})";
  auto const load = [&](char const* text) {
    need(
        api::load_by_name(backend.context, "default", 7, text, static_cast<std::uint32_t>(std::strlen(text)), nullptr));
  };
  need(api::init(&backend.context, nullptr, 0));
  load(settings);
  std::uint32_t execution = 0;
  need(api::init_execution_context(backend.context, "one", &execution));
  auto const run = [&] {
    static char const chat[] =
        R"({"temperature": 0, "max_tokens": 5, "chat_template": "zephyr", "grammar": "root ::= [a-z]*"})";
    std::string prompt = "Hello", answer(256, '\0');
    std::uint32_t size = 256;
    api::Tensor const tensor{nullptr, 3, reinterpret_cast<std::uint8_t*>(prompt.data())};
    need(api::run_inference(backend.context, execution, 0, &tensor, reinterpret_cast<std::uint8_t*>(answer.data()),
                            &size, chat, sizeof chat - 1));
    return answer.substr(0, size - 1);
  };
  auto const reset = [&] {
    std::string text = R"({"reset": true})";
    api::Tensor const tensor{nullptr, 3, reinterpret_cast<std::uint8_t*>(text.data())};
    need(api::set_input(backend.context, execution, 3, &tensor));
  };
  auto const input_tokens = [&] {
    std::string out(1024, '\0');
    std::uint32_t size = 1024;
    need(api::get_output(backend.context, execution, 1, reinterpret_cast<std::uint8_t*>(out.data()), &size));
    return nlohmann::json::parse(out.substr(0, size - 1)).at("input_tokens").get<int>();
  };
  reset();
  run();
  int const first = input_tokens();
  run();
  int const second = input_tokens();
  REQUIRE(second > first + 5);
  // A turn is in the history as a whole or not at all: what is asked next has as many tokens as one of the two.
  test::each_fails_once(
      [&] {
        reset();
        return run();
      },
      [](std::string const& answer) { REQUIRE(answer.size() == 5); },
      [&] {
        run();
        int const tokens = input_tokens();
        REQUIRE((tokens == first || tokens == second || tokens == 2 * second - first));
      },
      20);
  test::each_fails_once([&] { return load(settings), load(named), 0; }, [](int) {},
                        [&] {
                          REQUIRE(run().size() == 5);
                          reset();
                        },
                        20);
}

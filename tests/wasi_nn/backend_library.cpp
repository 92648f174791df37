// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/session_interface.hpp> <tutti/wasi_nn/instance.hpp> <tutti/wasi_nn/session.hpp>
// Covers: <tutti/wasi_nn/rules.hpp> <tutti/wasi_nn/registry.hpp> <tutti/wasi_nn/flavour.hpp> <tutti/wasi_nn/status.hpp>
// libwasi_nn_backend.so as native hosts drive it.
#include "wasi_nn/session_host.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using tutti::test::Backend;
using tutti::test::Library;
using tutti::test::RawTensor;
using tutti::test::ScratchFolder;
using tutti::test::Variable;

namespace {

struct World {
  ScratchFolder folder;
  Variable models{"TUTTI_WASI_NN_MODELS", "default=" + test::write_byte_model(folder / "a.gguf", 1024) +
                                              ";other=" + test::write_byte_model(folder / "b.gguf", 1024, 2) +
                                              ";broken=" + (folder / "no.gguf")};
  Library library{"TUTTI_WASI_NN_BACKEND"};
};

std::string const greedy = R"({"n_ctx": 512, "temp": 0, "max_tokens": 8, "repeat_penalty": 1.0, "log_level": "none"})";

}  // namespace

TEST_CASE("One call answers in a session; the room is honoured, and the answer can be had again") {
  World world;
  Backend const backend(world.library, greedy);
  REQUIRE(backend.load("default", greedy) == 0);
  std::uint32_t execution = 0;
  REQUIRE(backend.open("mine", &execution) == 0);
  REQUIRE(execution == 1);
  std::string answer, again;
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  REQUIRE(backend.run(execution, "Hello", again, R"({"max_tokens": 3})", 2) == 6);
  REQUIRE(std::stoul(again) > 2);
  REQUIRE(backend.output(execution, 0).size() == std::stoul(again) - 1);
  REQUIRE(backend.output(execution, 1).find("\"output_tokens\":3}") != std::string::npos);
  // What a run says holds for that run alone.
  REQUIRE(backend.run(execution, "Hello", again) == 0);
  REQUIRE(backend.output(execution, 1).find("\"output_tokens\":8") != std::string::npos);
  REQUIRE(backend.run(execution, "Hello", again,
                      "{\"temperature\": -1, \"top_k\": -1, \"max_tokens\": -1, \"seed\": -1}") == 0);
  REQUIRE(backend.output(execution, 1).find("\"output_tokens\":8") != std::string::npos);
  REQUIRE(backend.run(execution, "Hello", again, "{\"temperature\":0.8,\"invalid_json") == 1);
  REQUIRE(backend.run(execution, "Hello", again, "{\"no_such_key\": 1}") == 1);
  REQUIRE(backend.run(execution, "", again) == 1);
  REQUIRE(backend.run(execution + 7, "Hello", again) == 1);
  REQUIRE(backend.close(execution) == 0);
  REQUIRE(backend.close(execution) == 1);
  REQUIRE(backend.run(execution, "Hello", again) == 1);
}

TEST_CASE("Hosts that call with seven and with six arguments are understood when they say so") {
  World world;
  RawTensor tensor;
  std::string prompt = "Hello", answer(4096, '\0');
  tensor.data = reinterpret_cast<std::uint8_t*>(prompt.data());
  auto const tokens = [](std::string const& usage) { return usage.substr(usage.find("output_tokens") + 15); };
  {
    Variable const seven("TUTTI_WASI_NN_RUN_ARGUMENTS", "7");
    Backend const backend(world.library, greedy);
    REQUIRE(backend.load("default", greedy) == 0);
    std::uint32_t execution = 0, size = 4096;
    REQUIRE(backend.open("s", &execution) == 0);
    REQUIRE(world.library.call<int(void*, std::uint32_t, std::uint32_t, void*, void*, std::uint32_t*, char const*)>(
                "run_inference", backend.context, execution, 0u, static_cast<void*>(&tensor),
                static_cast<void*>(answer.data()), &size, "{\"max_tokens\": 4}") == 0);
    REQUIRE(tokens(backend.output(execution, 1)) == "4}");
  }
  {
    Variable const six("TUTTI_WASI_NN_RUN_ARGUMENTS", "6");
    Backend const backend(world.library, greedy);
    REQUIRE(backend.load("default", greedy) == 0);
    std::uint32_t execution = 0, size = 4096;
    REQUIRE(backend.open("s", &execution) == 0);
    REQUIRE(world.library.call<int(void*, std::uint32_t, std::uint32_t, void*, void*, std::uint32_t*)>(
                "run_inference", backend.context, execution, 0u, static_cast<void*>(&tensor),
                static_cast<void*>(answer.data()), &size) == 0);
    REQUIRE(tokens(backend.output(execution, 1)) == "8}");
  }
  Variable const wrong("TUTTI_WASI_NN_RUN_ARGUMENTS", "9");
  void* context = nullptr;
  REQUIRE(world.library.call<int(void**)>("init_backend", &context) == 1);
  REQUIRE(context == nullptr);
}

TEST_CASE("Null pointers and what was never made are refused") {
  World world;
  Library const& l = world.library;
  REQUIRE(l.call<int(void**)>("init_backend", static_cast<void**>(nullptr)) == 1);
  REQUIRE(l.call<int(void*)>("deinit_backend", static_cast<void*>(nullptr)) == 1);
  Backend const backend(world.library, greedy);
  std::uint32_t execution = 0, size = 16;
  REQUIRE(backend.open("s", &execution) == 4);  // no model yet
  REQUIRE(backend.load("broken", greedy) == 103);
  REQUIRE(backend.load("none", greedy) == 103);
  REQUIRE(backend.load("default", "{\"n_ctx\": 1e9}") == 1);
  REQUIRE(backend.load("default", greedy) == 0);
  REQUIRE(backend.open("s", &execution) == 0);
  REQUIRE(backend.open("s", nullptr) == 1);
  REQUIRE(backend.open("", &execution) == 1);
  REQUIRE(backend.open(std::string(300, 's').c_str(), &execution) == 1);
  RawTensor tensor;
  std::uint8_t buffer[16];
  using Run = int(void*, std::uint32_t, std::uint32_t, void*, void*, std::uint32_t*, char const*, std::uint32_t);
  auto const run = [&](void* in, void* out, std::uint32_t* room, std::uint32_t index) {
    return l.call<Run>("run_inference", backend.context, 1u, index, in, out, room, static_cast<char const*>(nullptr),
                       0u);
  };
  REQUIRE(run(nullptr, buffer, &size, 0) == 1);
  REQUIRE(run(&tensor, buffer, &size, 0) == 1);  // no data
  std::string text = "Hi";
  tensor.data = reinterpret_cast<std::uint8_t*>(text.data());
  REQUIRE(run(&tensor, nullptr, &size, 0) == 1);
  REQUIRE(run(&tensor, buffer, nullptr, 0) == 1);
  REQUIRE(run(&tensor, buffer, &size, 3) == 1);
  REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", backend.context, 1u, 0u,
                                                                  static_cast<void*>(&tensor)) == 0);
  REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", backend.context, 1u, 2u,
                                                                  static_cast<void*>(&tensor)) == 5);
  REQUIRE(l.call<int(void*, std::uint32_t)>("compute", backend.context, 1u) == 0);
  REQUIRE(backend.output(1, 1).find("output_tokens") != std::string::npos);
  // The other two ways to a context and to a model.
  REQUIRE(l.call<int(void*, std::uint32_t, std::uint32_t*)>("init_execution_context", backend.context, 0u,
                                                            &execution) == 0);
  std::uint32_t graph = 0;
  REQUIRE(l.call<int(void*, char const*, std::uint32_t, std::uint32_t*)>("load_by_name", backend.context, "other", 5u,
                                                                         &graph) == 0);
  REQUIRE(graph != 0);
  struct Part {
    std::uint8_t* data;
    std::uint32_t size;
  } part{reinterpret_cast<std::uint8_t*>(text.data()), 2}, parts{reinterpret_cast<std::uint8_t*>(&part), 1};
  auto const load = [&](void* list, std::int32_t target) {
    return l.call<int(void*, void*, std::int32_t, std::int32_t, std::uint32_t*)>("load", backend.context, list, 5,
                                                                                 target, &graph);
  };
  REQUIRE(load(&parts, 0) == 103);
  REQUIRE(load(nullptr, 0) == 1);
  std::string bytes = io::read_file(world.folder / "a.gguf");
  part = {reinterpret_cast<std::uint8_t*>(bytes.data()), static_cast<std::uint32_t>(bytes.size())};
  REQUIRE(load(&parts, 1) == 5);  // a GPU
  std::uint32_t const before = graph;
  REQUIRE(load(&parts, 0) == 0);
  REQUIRE(graph != before);
  std::string answer;
  REQUIRE(backend.run(execution, "Hi", answer, R"({"max_tokens": 2})") == 0);
}

TEST_CASE("Too many sessions: the one unused longest is given up, or the new one is refused") {
  World world;
  std::string answer;
  std::uint32_t contexts[5] = {};
  {
    Backend const backend(
        world.library, R"({"max_sessions":3,"idle_timeout_ms":600000,"auto_cleanup_enabled":true,"log_level":"none"})");
    REQUIRE(backend.load("default", greedy) == 0);
    for (int i = 0; i < 4; ++i) REQUIRE(backend.open(("session_" + std::to_string(i)).c_str(), &contexts[i]) == 0);
    REQUIRE(backend.run(contexts[0], "Hello", answer) == 7);
    REQUIRE(backend.run(contexts[3], "Hello", answer) == 0);
  }
  {
    Backend const backend(world.library, R"({"max_sessions":3,"idle_timeout_ms":50,"log_level":"none"})");
    REQUIRE(backend.load("default", greedy) == 0);
    REQUIRE(backend.open("a", &contexts[0]) == 0);
    std::this_thread::sleep_for(80ms);
    REQUIRE(backend.open("b", &contexts[1]) == 0);  // idle ones go with the next that comes
    REQUIRE(backend.run(contexts[0], "Hello", answer) == 7);
  }
  Backend const backend(world.library,
                        R"({"max_sessions":2,"idle_timeout_ms":50,"auto_cleanup_enabled":false,"log_level":"none"})");
  REQUIRE(backend.load("default", greedy) == 0);
  REQUIRE(backend.open("a", &contexts[0]) == 0);
  REQUIRE(backend.open("b", &contexts[1]) == 0);
  REQUIRE(backend.open("c", &contexts[2]) == 4);
  REQUIRE(backend.open("b", &contexts[2]) == 0);                               // an old one
  REQUIRE(backend.load("other", R"({"backend": {"max_sessions": 3}})") == 0);  // the model loaded last may say it
  REQUIRE(backend.open("c", &contexts[2]) == 0);
  REQUIRE(backend.close(contexts[0]) == 0);  // a session without a context goes where none is given up
  REQUIRE(backend.open("d", &contexts[0]) == 0);
}

TEST_CASE("A model is swapped while another answers; one that fails to load leaves the old in place") {
  World world;
  Backend const backend(world.library, greedy);
  REQUIRE(backend.load("default", greedy) == 0);
  std::uint32_t a = 0, b = 0;
  REQUIRE(backend.open("a", &a) == 0);
  REQUIRE(backend.open("b", &b) == 0);
  std::string before, after, same;
  REQUIRE(backend.run(b, "Hello", before, R"({"chat_template": "none"})") == 0);
  std::atomic<int> code{-1};
  std::string running;
  std::thread thread([&] {
    code = backend.run(a, "Hello", running, R"({"max_tokens": 200, "ignore_eos": true, "chat_template": "none"})");
  });
  REQUIRE(backend.load("broken", greedy) != 0);
  REQUIRE(backend.run(b, "Hello", same, R"({"chat_template": "none"})") == 0);
  REQUIRE(same == before);
  REQUIRE(backend.load("other", greedy) == 0);
  REQUIRE(backend.run(b, "Hello", after, R"({"chat_template": "none"})") == 0);
  REQUIRE(after != before);
  thread.join();
  REQUIRE(code == 0);
  REQUIRE(running.size() > before.size());
  REQUIRE(backend.run(a, "Hello", same, R"({"chat_template": "none"})") == 0);
  REQUIRE(same == after);  // the session goes on with the new model
}

TEST_CASE("A context that has answered lets a swapped model go, and its status stays") {
  World world;
  Backend const backend(world.library, greedy);
  auto const threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  REQUIRE(backend.load("default", greedy) == 0);
  std::uint32_t a = 0;
  REQUIRE(backend.open("a", &a) == 0);
  std::string answer, next;
  REQUIRE(backend.run(a, "Hello", answer) == 0);
  std::string const status = backend.output(a, 2);
  auto const before = threads();  // of which one is the model's
  REQUIRE(backend.load("other", greedy) == 0);
  REQUIRE(threads() == before);
  REQUIRE(backend.output(a, 2) == status);
  REQUIRE(backend.output(a, 0) == answer);
  REQUIRE(backend.run(a, "Hello", next) == 0);
  REQUIRE(backend.output(a, 2) != status);
}

TEST_CASE("A model whose log cannot be written leaves the old in place") {
  ScratchFolder folder;
  std::ofstream(folder / "registry.json") << R"({"models": {"default": ")" << test::write_byte_model(folder / "a.gguf")
                                          << R"("}, "log_folders": [")" << folder.path() << R"("]})";
  std::filesystem::create_directory(folder / "no file");
  Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  Library const library("TUTTI_WASI_NN_BACKEND");
  Backend const backend(library, greedy);
  REQUIRE(backend.load("default", greedy) == 0);
  std::uint32_t execution = 0;
  REQUIRE(backend.open("a", &execution) == 0);
  REQUIRE(backend.load("default", R"({"n_ctx": 300, "log_file": ")" + (folder / "no file") + "\"}") == 1);
  std::string answer;
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
}

TEST_CASE("A full queue refuses, time-outs hold, and a failing session leaves the others running") {
  World world;
  std::string const settings =
      R"({"n_ctx": 512, "max_concurrent": 1, "queue_size": 1, "temp": 0, "log_level": "none",
          "chat_template": "none"})";
  Backend const backend(world.library, settings);
  REQUIRE(backend.load("default") == 0);
  std::uint32_t contexts[4] = {};
  for (int i = 0; i < 4; ++i) REQUIRE(backend.open(std::to_string(i).c_str(), &contexts[i]) == 0);
  std::atomic<int> ended{0}, refused{0}, timed_out{0};
  auto const start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      std::string answer;
      int const code = backend.run(contexts[i], "Hello", answer,
                                   R"({"max_tokens": 1000000, "ignore_eos": true, "max_inference_time_ms": 1500})");
      (code == 0 ? ended : code == 3 ? timed_out : code == 4 ? refused : ended) += 1;
    });
    // The first one is to run before the others come.
    while (i == 0 && backend.output(contexts[3], 2).find("\"running\":1") == std::string::npos)
      std::this_thread::sleep_for(1ms);
  }
  for (std::thread& thread : threads) thread.join();
  CAPTURE(ended, refused, timed_out);
  REQUIRE(ended + timed_out == 2);  // one answered until its time was up, one waited
  REQUIRE(ended >= 1);
  REQUIRE(refused == 1);
  REQUIRE(std::chrono::steady_clock::now() - start < 10s);
  std::string answer;
  REQUIRE(backend.run(contexts[3], "Hello", answer, R"({"logit_bias": [["no such token", 1]]})") == 1);
  REQUIRE(backend.run(contexts[3], "Hello", answer, R"({"max_tokens": 3})") == 0);
}

TEST_CASE("An answer that never began is no success: its context was closed while it waited") {
  World world;
  Backend const backend(world.library, R"({"n_ctx": 512, "max_concurrent": 1, "temp": 0, "log_level": "none"})");
  REQUIRE(backend.load("default") == 0);
  std::uint32_t busy = 0, waits = 0, looks = 0;
  REQUIRE(backend.open("busy", &busy) == 0);
  REQUIRE(backend.open("waits", &waits) == 0);
  REQUIRE(backend.open("looks", &looks) == 0);
  int codes[2] = {-1, -1};
  auto const ask = [&](std::uint32_t context, int& code) {
    return std::thread([&backend, &code, context] {
      std::string answer;
      code = backend.run(context, "Hello", answer, R"({"max_tokens": 100000, "ignore_eos": true})");
    });
  };
  auto const until = [&](char const* state) {
    while (backend.output(looks, 2).find(state) == std::string::npos) std::this_thread::sleep_for(1ms);
  };
  std::thread first = ask(busy, codes[0]);
  until("\"running\":1");
  std::thread second = ask(waits, codes[1]);
  until("\"waiting\":1");
  REQUIRE(backend.close(waits) == 0);
  second.join();
  REQUIRE(codes[1] == 4);
  REQUIRE(backend.close(busy) == 0);
  first.join();
  REQUIRE(codes[0] == 0);  // what was written until then is the answer
  REQUIRE(backend.load(std::string("default\0x", 9)) == 1);
  REQUIRE(backend.load(std::string("default\0", 8)) == 0);
}

TEST_CASE("A run that is refused leaves the conversation whole, and options without a session lead back to one's own") {
  World world;
  Backend const backend(world.library, R"({"n_ctx": 256, "temp": 0, "max_tokens": 8, "context_shifting": true,
      "repeat_penalty": 1.0, "ignore_eos": true, "chat_template": "chatml", "log_level": "none"})");
  REQUIRE(backend.load("default") == 0);
  std::uint32_t execution = 0;
  REQUIRE(backend.open("dave", &execution) == 0);
  auto const tokens = [&] {
    std::string const usage = backend.output(execution, 1);
    return std::stoi(usage.substr(usage.find(':') + 1));
  };
  auto const set = [&](std::string text) {
    RawTensor tensor;
    tensor.data = reinterpret_cast<std::uint8_t*>(text.data());
    return world.library.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", backend.context, execution,
                                                                               1u, static_cast<void*>(&tensor));
  };
  std::string answer;
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  int const first = tokens();
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  int const grown = tokens() - first;
  REQUIRE(grown > 0);
  int const second = tokens();
  REQUIRE(backend.run(execution, std::string(200, 'x'), answer, R"({"logit_bias": [["no such token", 1]]})") == 1);
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  REQUIRE(tokens() == second + grown);
  REQUIRE(set(R"({"session": "erin"})") == 0);
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  REQUIRE(tokens() == first);
  REQUIRE(set(R"({"temperature": 0})") == 0);
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  REQUIRE(tokens() > second + grown);
}

TEST_CASE("Options keep a context in its session, and the model loaded last answers in every way of asking") {
  World world;
  Backend const backend(world.library, greedy);
  REQUIRE(backend.load("default", greedy) == 0);
  std::uint32_t execution = 0;
  REQUIRE(backend.open("carol", &execution) == 0);
  auto const tokens = [&] {
    std::string const usage = backend.output(execution, 1);
    return std::stoi(usage.substr(usage.find(':') + 1));
  };
  std::string answer, options = "{\"temperature\": 0.5}", prompt = "Hi";
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  int const first = tokens();
  auto const set = [&](std::uint32_t index, std::string& text) {
    RawTensor tensor;
    tensor.data = reinterpret_cast<std::uint8_t*>(text.data());
    return world.library.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", backend.context, execution,
                                                                               index, static_cast<void*>(&tensor));
  };
  REQUIRE(set(1, options) == 0);
  REQUIRE(backend.run(execution, "Hello", answer) == 0);
  REQUIRE(tokens() > first);  // the conversation went on
  // A run's own settings decide what it needs room for.
  REQUIRE(backend.load("default", R"({"n_ctx": 64, "context_shifting": false, "temp": 0, "max_tokens": 8})") == 0);
  REQUIRE(backend.run(execution, "Hello", answer) == 102);
  REQUIRE(backend.run(execution, "Hello", answer, R"({"chat_template": "none"})") == 0);
  REQUIRE(backend.run(execution, "Hello", answer, R"({"context_shifting": true, "n_keep_tokens": 1})") == 0);
  REQUIRE(backend.load("other", R"({"n_ctx": 333})") == 0);
  REQUIRE(set(0, prompt) == 0);
  REQUIRE(world.library.call<int(void*, std::uint32_t)>("compute", backend.context, execution) == 0);
  REQUIRE(backend.output(execution, 2).find("\"context_tokens\":333") != std::string::npos);
  // A size that is nonsense is not believed.
  RawTensor tensor;
  tensor.data = reinterpret_cast<std::uint8_t*>(prompt.data());
  std::uint8_t buffer[4096];
  std::uint32_t size = sizeof buffer;
  REQUIRE(world.library
              .call<int(void*, std::uint32_t, std::uint32_t, void*, void*, std::uint32_t*, char const*, std::uint32_t)>(
                  "run_inference", backend.context, execution, 0u, static_cast<void*>(&tensor),
                  static_cast<void*>(buffer), &size, "{\"max_tokens\": 2}", 0xfffffff0u) == 0);
}

TEST_CASE("A hundred sessions keep apart, whatever they are asked") {
  World world;
  Backend const backend(world.library, R"({"max_sessions": 100, "max_concurrent": 4, "log_level": "none"})");
  REQUIRE(backend.load("default", R"({"n_ctx": 256, "temp": 0, "max_tokens": 4, "repeat_penalty": 1})") == 0);
  std::vector<std::uint32_t> contexts(100);
  std::vector<std::string> alone(100), answers(100);
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(backend.open(("s" + std::to_string(i)).c_str(), &contexts[i]) == 0);
  for (std::size_t i = 0; i < 100; ++i)
    REQUIRE(backend.run(contexts[i], "Question " + std::to_string(i % 10), alone[i]) == 0);
  for (std::size_t i = 10; i < 100; ++i) REQUIRE(alone[i] == alone[i % 10]);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < 100; i += 4)
        if (backend.run(contexts[i], "And " + std::to_string(i % 10), answers[i]) != 0) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  for (std::size_t i = 10; i < 100; ++i) REQUIRE(answers[i] == answers[i % 10]);  // each with its own history
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/wamr.hpp> <tutti/wasi_nn/session_interface.hpp>
// Random calls with random arguments over both interfaces: a code comes back, memory stays whole. The seed and the time
// are TUTTI_FUZZ_SEED and TUTTI_FUZZ_SECONDS; sanitizers see the rest.
#include "support/fuzz.hpp"
#include "wasi_nn/support.hpp"

#include <tutti/wasi_nn/session_interface.hpp>
#include <tutti/wasi_nn/wamr.hpp>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::wasi_nn;

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(generator_() % bound); }
  bool often() { return below(8) != 0; }
  template <class T>
  T const& of(std::vector<T> const& list) {
    return list[below(static_cast<std::uint32_t>(list.size()))];
  }
  /// A handle that was given, or nearly one.
  std::uint32_t handle(std::vector<std::uint32_t> const& given) {
    if (given.empty() || !often()) return below(4) == 0 ? static_cast<std::uint32_t>(generator_()) : below(5);
    return of(given) + (often() ? 0 : 1);
  }
  std::string text() {
    static std::vector<std::string> const texts = {
        "Hello",
        "",
        "a",
        std::string(3, '\0'),
        std::string(200, 'x'),
        "\xff\xfe\x80",
        "{\"temperature\": 0}",
        "default",
        "none",
        "preload:default",
        "{",
        "{\"max_tokens\": 2}",
        "{\"max_tokens\": 4, \"ignore_eos\": true}",
        "{\"grammar\": \"root ::= [a-z]+\", \"max_tokens\": 3}",
        "{\"json_schema\": {\"type\": \"integer\"}, \"max_tokens\": 3}",
        "{\"session\": \"a\", \"max_tokens\": 2, \"chat_template\": \"auto\"}",
        "{\"chat_template\": \"llama2\", \"max_tokens\": 1}",
        "{\"embedding\": true}",
        "{\"cancel\": true}",
        "{\"reset\": true}",
        "{\"truncate\": 1}",
        "{\"save\": \"a\"}",
        "{\"restore\": \"a\"}",
        "{\"restore\": \"b\"}",
        "{\"stop_patterns\": [\"(a+)+$\"], \"max_tokens\": 3}",
        "{\"n_ctx\": 32, \"context_shifting\": true, \"n_keep_tokens\": 30}",
        "{\"mirostat\": 2, \"max_tokens\": 3, \"n_probs\": 5}",
        "{\"logit_bias\": [[5, 1.5], [\"a\", false]], \"max_tokens\": 2}",
        "{\"dry_multiplier\": 1, \"max_tokens\": 3}",
        "{\"n_ctx\": 48, \"max_concurrent\": 2}",
        "{\"max_tokens\": 400, \"context_shifting\": true, \"max_time_ms\": 20}"};
    std::string one = of(texts);
    if (!often() && !one.empty()) one[below(static_cast<std::uint32_t>(one.size()))] = static_cast<char>(below(256));
    return one;
  }

 private:
  std::mt19937_64 generator_;
};

int wamr_calls(std::uint64_t seed, double seconds, std::string const& model) {
  Random random(seed);
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int good = 0;
  while (std::chrono::steady_clock::now() < end) {
    void* context = nullptr;
    if (wamr::init(&context, nullptr) != 0) return -1;
    std::vector<std::uint32_t> graphs, executions;
    for (std::uint32_t calls = 20 + random.below(60); calls > 0; --calls) {
      std::string text = random.text(), other = random.text();
      std::uint32_t out = 0;
      int code = -1;
      void* const which = random.below(100) == 0 ? &out : context;
      switch (random.below(13)) {
        case 0: {
          std::string bytes = random.below(3) == 0 ? model : text;
          if (!random.often() && !bytes.empty()) {
            char& one = bytes[random.below(static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size(), 400)))];
            one = static_cast<char>(one ^ (1 << random.below(8)));
          }
          wamr::Bytes parts[2] = {
              {reinterpret_cast<std::uint8_t*>(bytes.data()), static_cast<std::uint32_t>(bytes.size())},
              {reinterpret_cast<std::uint8_t*>(other.data()), static_cast<std::uint32_t>(other.size())}};
          wamr::Parts const list{parts, random.below(3)};
          if ((code = wamr::load(which, &list, random.below(8), random.below(5), &out)) == 0) graphs.push_back(out);
          break;
        }
        case 1:
        case 2:
          if (random.often()) text = "default";
          code = wamr::load_by_name(which, text.data(), static_cast<std::uint32_t>(text.size()), other.data(),
                                    static_cast<std::uint32_t>(other.size()), random.often() ? &out : nullptr);
          if (code == 0) graphs.push_back(out);
          break;
        case 3:
          if ((code = wamr::init_execution_context(which, random.handle(graphs), &out)) == 0) executions.push_back(out);
          break;
        case 4:
        case 5: {
          std::uint32_t shape[4] = {1, 2, 3, 4};
          wamr::Dimensions dimensions{shape, random.often() ? random.below(5) : 1u << 29};
          wamr::Tensor const tensor{
              random.often() ? &dimensions : nullptr,
              static_cast<std::uint8_t>(random.below(7)),
              {reinterpret_cast<std::uint8_t*>(text.data()), static_cast<std::uint32_t>(text.size())}};
          code = wamr::set_input(which, random.handle(executions), random.below(5), random.often() ? &tensor : nullptr);
          break;
        }
        case 6: code = wamr::compute(which, random.handle(executions)); break;
        case 7:
        case 8: {
          std::vector<std::uint8_t> buffer(random.often() ? random.below(2000) : 0);
          wamr::Bytes span{buffer.empty() ? nullptr : buffer.data(), static_cast<std::uint32_t>(buffer.size())};
          auto* const room = random.often() ? &span : nullptr;
          auto* const size = random.often() ? &out : nullptr;
          std::uint32_t const index = random.below(7);
          code = random.below(2) == 0 ? wamr::get_output(which, random.handle(executions), index, room, size)
                                      : wamr::get_output_single(which, random.handle(executions), index, room, size);
          break;
        }
        case 9: code = wamr::compute_single(which, random.handle(executions)); break;
        case 10: code = wamr::fini_single(which, random.handle(executions)); break;
        case 11: code = wamr::unload(which, random.handle(graphs)); break;
        default: code = wamr::finalize_execution_context(which, random.handle(executions)); break;
      }
      if (code < 0 || (code > 8 && code < 100) || code > 103) return -1;
      good += code == 0;
    }
    if (wamr::deinit(context) != 0) return -1;
  }
  return good;
}

int session_calls(std::uint64_t seed, double seconds) {
  namespace api = session_interface;
  Random random(seed);
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int good = 0;
  while (std::chrono::steady_clock::now() < end) {
    void* context = nullptr;
    std::string const settings =
        random.often() ? R"({"max_sessions": 3, "n_ctx": 64, "max_tokens": 3, "log_level": "none", "n_keep_tokens": 4})"
                       : random.text();
    if (api::init(&context, settings.data(), static_cast<std::uint32_t>(settings.size())) != 0) continue;
    for (std::uint32_t calls = 20 + random.below(40); calls > 0; --calls) {
      std::string text = random.text(), other = random.text();
      std::uint32_t out = 0, execution = 1 + random.below(6);
      std::uint8_t buffer[256];
      std::uint32_t size = random.below(257);
      api::Dimensions dimensions{&out, random.below(6)};
      api::Tensor const tensor{random.often() ? nullptr : &dimensions,
                               static_cast<std::int32_t>(random.below(8)) - (random.often() ? 0 : 1),
                               random.often() ? reinterpret_cast<std::uint8_t*>(text.data()) : nullptr};
      int code = -1;
      switch (random.below(8)) {
        case 0:
          if (random.often()) text = "default";
          code = api::load_by_name(context, text.data(), static_cast<std::uint32_t>(text.size()), other.data(),
                                   static_cast<std::uint32_t>(other.size()), nullptr);
          break;
        case 1:
          code = api::init_execution_context(context, random.often() ? text.c_str() : nullptr,
                                             random.often() ? &out : nullptr);
          break;
        case 2: code = api::close_execution_context(context, random.often() ? 0 : execution); break;
        case 3: code = api::set_input(context, execution, random.below(5), &tensor); break;
        case 4: code = api::compute(context, execution); break;
        case 5:
          code = api::get_output(context, execution, random.below(6), random.often() ? buffer : nullptr, &size);
          break;
        default:
          code = api::run_inference(context, execution, random.often() ? 0 : 1, random.often() ? &tensor : nullptr,
                                    buffer, random.often() ? &size : nullptr, other.data(),
                                    static_cast<std::uint32_t>(other.size()));
      }
      if (code < 0 || (code > 8 && code < 101) || code > 103) return -1;
      good += code == 0;
    }
    if (api::deinit(context) != 0) return -1;
  }
  return good;
}

}  // namespace

TEST_CASE("Random calls over both interfaces, two threads each, end in codes", "[fuzz]") {
  tutti::test::ScratchFolder folder;
  std::string const path = tutti::test::write_byte_model(folder / "m.gguf", 128);
  std::ofstream(folder / "registry.json")
      << R"({"models": {"default": ")" << path << R"("}, "session_folder": ")" << folder.path()
      << R"(", "saved_sessions": 1, "settings": {"log_level": "none", "n_ctx": 64, "max_concurrent": 2}})";
  tutti::test::Variable const models("TUTTI_WASI_NN_MODELS", folder / "registry.json");
  std::ifstream file(path, std::ios::binary);
  std::string const model{std::istreambuf_iterator<char>(file), {}};
  auto const seed = tutti::test::fuzz_seed(1);
  double const seconds = tutti::test::fuzz_seconds(2);
  std::vector<int> good(4, -2);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back(
        [&, t] { good[t] = t < 2 ? wamr_calls(seed * 4 + t, seconds, model) : session_calls(seed * 4 + t, seconds); });
  for (std::thread& thread : threads) thread.join();
  CAPTURE(seed);
  for (int const count : good) CHECK(count > 20);
}

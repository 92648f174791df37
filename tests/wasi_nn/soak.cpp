// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/wasi_nn/session_interface.hpp> <tutti/wasi_nn/instance.hpp>
// A hundred sessions in one host at once, of four priorities, some of which fail, some of which never come to an end by
// themselves, and some of which are cancelled all the time; in the middle the model is swapped for another and back.
// TUTTI_SOAK_SECONDS says for how long (2).
#include "wasi_nn/session_host.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using tutti::test::Backend;
using tutti::test::RawTensor;

namespace {

using Clock = std::chrono::steady_clock;

double megabytes_resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20);
}
std::ptrdiff_t count_of(char const* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

enum class Kind { usual, urgent, failing, endless, cancelled };
constexpr std::size_t kinds = 5;
Kind kind_of(std::size_t session) {
  return session % 10 == 3   ? Kind::failing
         : session % 10 == 6 ? Kind::endless
         : session % 10 == 8 ? Kind::cancelled
         : session % 5 == 0  ? Kind::urgent
                             : Kind::usual;
}

/// What the threads saw of one kind of session. Each thread has its own.
struct Seen {
  std::array<std::int64_t, kinds> answers{};
  std::array<double, kinds> seconds{};
  std::int64_t wrong_text = 0, wrong_history = 0, wrong_code = 0, late = 0;
  std::string first_wrong;

  void wrong(std::int64_t& count, std::string const& what) {
    if (first_wrong.empty()) first_wrong = what;
    ++count;
  }
};

constexpr std::size_t sessions = 100, threads = 12;
constexpr int rounds = 4;                                        // of a conversation; then it begins anew
constexpr std::chrono::milliseconds bound = 100ms, slack = 10s;  // of endless answers; what a busy machine adds

/// Tokens of prompts: a byte each, with marks around. `begin`: of the first beside its text; `step`: of each turn
/// beside its two texts.
struct Marks {
  std::int64_t begin = 0, step = 0;
};

std::string question(std::size_t session, int round) {
  return "This is question " + std::to_string(round) + " of session " + std::to_string(session) +
         std::string(session % 7 * 5, '.');
}
/// The only text that the grammar of an answer allows.
std::string wanted(std::size_t session, int round) {
  return std::to_string(session) + " heard " + std::to_string(round);
}
std::string settings(std::size_t session, int round, bool urgent) {
  return nlohmann::json{{"grammar", "root ::= \"" + wanted(session, round) + "\""}, {"priority", urgent ? 5 : 0}}
      .dump();
}
std::int64_t input_tokens(Backend const& backend, std::uint32_t execution) {
  std::string out(4096, '\0');
  auto size = static_cast<std::uint32_t>(out.size());
  int const code = backend.library.call<int(void*, std::uint32_t, std::uint32_t, void*, std::uint32_t*)>(
      "get_output", backend.context, execution, 1u, static_cast<void*>(out.data()), &size);
  if (code != 0) return -1;
  return nlohmann::json::parse(out.substr(0, size - 1))["input_tokens"].get<std::int64_t>();
}
int control(Backend const& backend, std::uint32_t execution, std::string text) {
  RawTensor tensor;
  tensor.data = reinterpret_cast<std::uint8_t*>(text.data());
  return backend.library.call<int(void*, std::uint32_t, std::uint32_t, void*)>("set_input", backend.context, execution,
                                                                               3u, static_cast<void*>(&tensor));
}

/// One conversation of a session that answers: each text is its own, and so is the number of tokens before it.
void converse(Backend const& backend, std::uint32_t execution, std::size_t session, Marks marks, Seen& seen) {
  bool const urgent = kind_of(session) == Kind::urgent;
  std::int64_t tokens = marks.begin - marks.step;
  std::string answer;
  for (int round = 0; round < rounds; ++round) {
    std::string const prompt = question(session, round);
    auto const begin = Clock::now();
    int const code = backend.run(execution, prompt, answer, settings(session, round, urgent));
    auto const kind = static_cast<std::size_t>(urgent ? Kind::urgent : Kind::usual);
    seen.seconds[kind] += std::chrono::duration<double>(Clock::now() - begin).count();
    ++seen.answers[kind];
    tokens += marks.step + static_cast<std::int64_t>(prompt.size());
    if (code != 0) seen.wrong(seen.wrong_code, "session " + std::to_string(session) + ": code " + std::to_string(code));
    else if (answer != wanted(session, round)) seen.wrong(seen.wrong_text, wanted(session, round) + ": " + answer);
    if (std::int64_t const got = input_tokens(backend, execution); got != tokens)
      seen.wrong(seen.wrong_history,
                 wanted(session, round) + ": " + std::to_string(got) + " tokens, not " + std::to_string(tokens));
    tokens += static_cast<std::int64_t>(answer.size());
  }
  if (control(backend, execution, R"({"reset": true})") != 0) seen.wrong(seen.wrong_code, "reset");
}
void fail(Backend const& backend, std::uint32_t execution, std::int64_t time, Seen& seen) {
  char const* const settings[] = {R"({"grammar": "root ::= ("})", R"({"logit_bias": [["no such token", 1]]})",
                                  R"({"no_such_key": 1})", R"({"stop_patterns": ["("]})"};
  std::string answer;
  int const code = backend.run(execution, "Fail, please", answer, settings[time % 4]);
  ++seen.answers[static_cast<std::size_t>(Kind::failing)];
  if (code != 1) seen.wrong(seen.wrong_code, "code " + std::to_string(code) + " where 1 was due");
}
void go_on(Backend const& backend, std::uint32_t execution, Seen& seen) {
  std::string answer;
  auto const begin = Clock::now();
  int const code = backend.run(execution, "On and on", answer,
                               R"({"max_tokens": 1000000, "ignore_eos": true, "context_shifting": true,
                                       "chat_template": "none", "priority": 1, "max_inference_time_ms": )" +
                                   std::to_string(bound.count()) + "}");
  auto const took = Clock::now() - begin;
  seen.seconds[static_cast<std::size_t>(Kind::endless)] += std::chrono::duration<double>(took).count();
  ++seen.answers[static_cast<std::size_t>(Kind::endless)];
  if (code != 0 && code != 3)
    seen.wrong(seen.wrong_code, "endless: code " + std::to_string(code));  // 3: it only waited
  if (took < bound || took > bound + slack) seen.wrong(seen.late, "endless: a time-out at the wrong time");
}
/// Until somebody cancels it.
void be_cancelled(Backend const& backend, std::uint32_t execution, Seen& seen) {
  std::string answer;
  int const code = backend.run(execution, "Until I am told", answer,
                               R"({"max_tokens": 400, "ignore_eos": true, "chat_template": "none", "priority": 2})");
  ++seen.answers[static_cast<std::size_t>(Kind::cancelled)];
  if (code != 0) seen.wrong(seen.wrong_code, "cancelled: code " + std::to_string(code));
}

}  // namespace

TEST_CASE("A hundred sessions keep apart, keep to their bounds, and keep no memory, for as long as they run") {
  char const* const text = std::getenv("TUTTI_SOAK_SECONDS");
  double const seconds = text == nullptr ? 2 : std::strtod(text, nullptr);
  tutti::test::ScratchFolder folder;
  tutti::test::Variable const models("TUTTI_WASI_NN_MODELS",
                                     "default=" + tutti::test::write_byte_model(folder / "m.gguf") +
                                         ";other=" + tutti::test::write_byte_model(folder / "n.gguf", 512, 2));
  tutti::test::Library const library("TUTTI_WASI_NN_BACKEND");
  Backend const backend(library,
                        R"({"max_sessions": 101, "max_concurrent": 4, "queue_size": 50, "log_level": "none"})");
  char const* const of_model = R"({"n_ctx": 512, "max_tokens": 40, "repeat_penalty": 1, "threads": 1})";
  REQUIRE(backend.load("default", of_model) == 0);
  std::vector<std::uint32_t> contexts(sessions + 1);
  for (std::size_t i = 0; i <= sessions; ++i)
    REQUIRE(backend.open(("session " + std::to_string(i)).c_str(), &contexts[i]) == 0);
  // Alone, a conversation says what a turn takes.
  Marks marks;
  std::string answer;
  REQUIRE(backend.run(contexts[sessions], question(0, 0), answer, settings(0, 0, false)) == 0);
  REQUIRE(answer == wanted(0, 0));
  std::int64_t const first = input_tokens(backend, contexts[sessions]);
  marks.begin = first - static_cast<std::int64_t>(question(0, 0).size());
  REQUIRE(backend.run(contexts[sessions], question(0, 1), answer, settings(0, 1, false)) == 0);
  marks.step = input_tokens(backend, contexts[sessions]) - first -
               static_cast<std::int64_t>(wanted(0, 0).size() + question(0, 1).size());

  std::ptrdiff_t files = 0, tasks = 0;
  std::array<double, 3> memory{};
  std::atomic<bool> stop{false};
  std::vector<Seen> seen(threads);
  std::vector<std::thread> team;
  for (std::size_t t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      for (std::int64_t time = 0; !stop; ++time)
        for (std::size_t i = t; i < sessions && !stop; i += threads) {
          if (kind_of(i) == Kind::failing) fail(backend, contexts[i], time, seen[t]);
          else if (kind_of(i) == Kind::endless) go_on(backend, contexts[i], seen[t]);
          else if (kind_of(i) == Kind::cancelled) be_cancelled(backend, contexts[i], seen[t]);
          else converse(backend, contexts[i], i, marks, seen[t]);
        }
    });
  std::atomic<std::int64_t> wrong_cancels{0};
  std::thread canceller([&] {
    while (!stop)
      for (std::size_t i = 8; i < sessions && !stop; i += 10) {
        wrong_cancels += control(backend, contexts[i], R"({"cancel": true})") != 0;
        std::this_thread::sleep_for(1ms);
      }
  });
  auto const begin = Clock::now();
  auto const until = [&](double part) {
    std::this_thread::sleep_until(
        begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(part * seconds)));
  };
  until(0.2);  // all that is made once was made
  memory[0] = megabytes_resident(), files = count_of("/proc/self/fd"), tasks = count_of("/proc/self/task");
  until(0.4);  // those who answer end with their model, those who come next have the new one
  CHECK(backend.load("other", of_model) == 0);
  until(0.5);
  CHECK(backend.load("default", of_model) == 0);
  until(0.6);
  memory[1] = megabytes_resident();
  until(1);
  memory[2] = megabytes_resident();
  // A model that was replaced goes when its last answer ends, which takes longer where a sanitizer slows it.
  auto const settled = [&](char const* listing, std::ptrdiff_t wanted_count) {
    for (auto const end = Clock::now() + 30s; count_of(listing) != wanted_count && Clock::now() < end;)
      std::this_thread::sleep_for(10ms);
    return count_of(listing);
  };
  CHECK(settled("/proc/self/fd", files) == files);
  CHECK(settled("/proc/self/task", tasks) == tasks);
  stop = true;
  for (std::thread& thread : team) thread.join();
  canceller.join();

  Seen all;
  for (Seen const& one : seen) {
    for (std::size_t kind = 0; kind < kinds; ++kind)
      all.answers[kind] += one.answers[kind], all.seconds[kind] += one.seconds[kind];
    all.wrong_text += one.wrong_text, all.wrong_history += one.wrong_history, all.wrong_code += one.wrong_code;
    all.late += one.late;
    if (all.first_wrong.empty()) all.first_wrong = one.first_wrong;
  }
  auto const mean = [&](Kind kind) {
    auto const at = static_cast<std::size_t>(kind);
    return 1000 * all.seconds[at] / static_cast<double>(std::max<std::int64_t>(all.answers[at], 1));
  };
  std::printf(
      "%.0f s: %lld usual answers of %.1f ms, %lld urgent ones of %.1f ms, %lld that failed, %lld timed out after "
      "%.1f ms, %lld were cancelled\nresident: %.1f MB after a fifth of the time, %.1f MB after three, %.1f MB at the "
      "end\n",
      seconds, static_cast<long long>(all.answers[0]), mean(Kind::usual), static_cast<long long>(all.answers[1]),
      mean(Kind::urgent), static_cast<long long>(all.answers[2]), static_cast<long long>(all.answers[3]),
      mean(Kind::endless), static_cast<long long>(all.answers[4]), memory[0], memory[1], memory[2]);
  INFO(all.first_wrong);
  CHECK(all.wrong_text == 0);
  CHECK(all.wrong_history == 0);
  CHECK(all.wrong_code == 0);
  CHECK(all.late == 0);
  CHECK(wrong_cancels == 0);
  for (std::int64_t const count : all.answers) CHECK(count > 0);
  if (all.answers[0] > 200 && all.answers[1] > 200) CHECK(mean(Kind::urgent) < mean(Kind::usual));
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__  // these keep what was freed
  CHECK(memory[2] - memory[0] < 16);
#endif
}

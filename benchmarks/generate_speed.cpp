// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// For generate.py: reads commands, one a line, and answers each with a line, so that contenders can take turns.
//   text COUNT BYTES   (and BYTES bytes)   the ids of a text, then COUNT more, drawn greedily
//   prefill COUNT | decode COUNT | batch SEQUENCES COUNT   seconds
//   read               bytes a second that all threads read of the model's size
//   memory             peak of resident bytes

#include <tutti/infer/completion.hpp>
#include <tutti/infer/gguf_model.hpp>

#include <sys/resource.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

using namespace tutti;

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<std::int32_t> any_tokens(std::int64_t count, std::int64_t vocabulary, std::int64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>((1000 + i * 7 + seed * 131) % vocabulary));
  return tokens;
}

double read_rate(exec::Context& context, std::int64_t bytes) {
  std::vector<std::uint64_t> memory(static_cast<std::size_t>(bytes / 8), 1);
  std::atomic<std::uint64_t> total{0};
  double best = 1e9;
  for (int pass = 0; pass < 5; ++pass) {
    auto const begin = Clock::now();
    context.parallel_for(static_cast<std::int64_t>(memory.size()), 4096, [&](std::int64_t from, std::int64_t to) {
      std::uint64_t sum[8] = {};
      for (std::int64_t i = from; i + 8 <= to; i += 8)
        for (std::size_t k = 0; k < 8; ++k) sum[k] += memory[static_cast<std::size_t>(i) + k];
      for (std::uint64_t const part : sum) total += part;
    });
    best = std::min(best, since(begin));
  }
  return total > 0 ? static_cast<double>(bytes) / best : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate_speed MODEL.gguf THREADS; see benchmarks/generate.py\n");
    return 2;
  }
  auto const begin = Clock::now();
  auto const loaded = infer::load_gguf(argv[1]);
  exec::Context context({.threads = std::atoi(argv[2])});
  infer::Decoder decoder(context, loaded.model, {.slots = 8, .capacity = 1024, .cache = BlockType::f16});
  std::printf("loaded %.6f %lld\n", since(begin), static_cast<long long>(loaded.model.bytes()));
  std::fflush(stdout);
  infer::Sequence sequence(decoder);
  std::string command;
  while (std::cin >> command) {
    std::int64_t count = 0;
    if (command == "text") {
      std::size_t bytes = 0;
      std::cin >> count >> bytes;
      std::cin.get();
      std::string text(bytes, '\0');
      std::cin.read(text.data(), static_cast<std::streamsize>(bytes));
      auto const prompt = loaded.tokenizer.encode(text);
      infer::Sampler sampler(infer::SamplerOptions{.temperature = 0});
      sequence.reset();
      infer::StopOptions stop;
      stop.max_tokens = count;
      auto const answer = infer::complete(sequence, sampler, loaded.tokenizer, prompt, stop, {});
      for (std::int32_t const id : prompt) std::printf("%d ", id);
      std::printf("|");
      for (std::int32_t const id : answer.tokens) std::printf(" %d", id);
      std::printf("\n");
    } else if (command == "prefill") {
      std::cin >> count;
      sequence.reset();
      auto const tokens = any_tokens(count, loaded.model.vocabulary(), 0);
      auto const start = Clock::now();
      sequence.append(tokens);
      std::printf("%.6f\n", since(start));
    } else if (command == "decode" || command == "batch") {
      std::int64_t sequences = 1;
      if (command == "batch") std::cin >> sequences;
      std::cin >> count;
      auto const start = Clock::now();
      for (std::int64_t i = 0; i < count; ++i) {
        std::vector<infer::NewToken> rows;
        for (std::int64_t s = 0; s < sequences; ++s)
          rows.push_back({any_tokens(1, loaded.model.vocabulary(), i + 97 * s)[0], static_cast<std::int32_t>(s),
                          static_cast<std::int32_t>(i), true});
        decoder.append(rows);
      }
      sequence.reset();
      std::printf("%.6f\n", since(start));
    } else if (command == "read") {
      std::printf("%.0f\n", read_rate(context, std::max<std::int64_t>(loaded.model.bytes(), std::int64_t{256} << 20)));
    } else if (command == "memory") {
      rusage used{};
      ::getrusage(RUSAGE_SELF, &used);
      std::printf("%lld\n", static_cast<long long>(used.ru_maxrss) * 1024);
    } else {
      break;
    }
    std::fflush(stdout);
  }
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "generate_speed: %s\n", error.what());
  return 1;
}

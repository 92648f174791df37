// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/served_model.hpp> <tutti/infer/decoder_fit.hpp> <tutti/infer/memory_budget.hpp>
// Covers: <tutti/train/decoding_flags.hpp>
// Covers: <tutti/infer/service_options.hpp> <tutti/infer/service_status.hpp> <tutti/infer/cache_type.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/cache_type.hpp>
#include <tutti/infer/served_model.hpp>
#include <tutti/io/file.hpp>
#include <tutti/train/decoding_flags.hpp>

#include <stdlib.h>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

LoadedModel make(test::ScratchFolder const& folder, std::int64_t positions, std::uint32_t seed = 1) {
  test::TinyModel sizes = test::tiny_byte_model(positions);
  std::string const path = folder / ("tiny" + std::to_string(seed) + ".gguf");
  test::write_tiny_gguf(path, sizes, seed);
  return load_gguf(path);
}
Request greedy(std::string const& text, std::int64_t most, data::Tokenizer const& tokenizer) {
  Request request;
  request.prompt = tokenizer.encode(text);
  request.sampling.temperature = 0;
  request.stop.max_tokens = most;
  return request;
}

}  // namespace

TEST_CASE("The memory budget takes what fits, gives it back, and says what is required, available and to be lowered") {
  std::int64_t const before = MemoryBudget::in_use(), most = before + (100 << 20);
  {
    auto const part = MemoryBudget::take({.weights = 60 << 20, .caches = 30 << 20}, most, "Lower something");
    REQUIRE(MemoryBudget::in_use() == before + (90 << 20));
    REQUIRE(MemoryBudget::available(most) == 10 << 20);
    REQUIRE_ERROR(MemoryBudget::take({.weights = 8 << 20, .caches = 2 << 20, .working = 1 << 20}, most, "Lower it"),
                  ErrorKind::out_of_memory,
                  "8 MB for weights, 2 MB for caches and 1 MB to work, and 10 MB are left of the");
    REQUIRE_ERROR(MemoryBudget::take({.weights = 20 << 20, .mapped = true}, most, "Lower it"), ErrorKind::out_of_memory,
                  "Lower it");
    REQUIRE(MemoryBudget::in_use() == before + (90 << 20));
  }
  REQUIRE(MemoryBudget::in_use() == before);
  // Without a bound it is the machine's memory; mapped weights are no part of that.
  REQUIRE_ERROR(MemoryBudget::take({.caches = std::int64_t{1} << 50}, 0, "Lower it"), ErrorKind::out_of_memory, "free");
  static_cast<void>(MemoryBudget::take({.weights = std::int64_t{1} << 50, .mapped = true}, 0, ""));
  REQUIRE(MemoryBudget::in_use() == before);
}

TEST_CASE("Sizes that are not said are chosen so that they fit; those that are said stay or are refused with figures") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = make(folder, 20'000);
  FitOptions fit;
  fit.advice = "Lower the context";
  auto const fitted = [&](std::int64_t capacity, std::int64_t batch, std::int64_t megabytes) {
    fit.most_bytes = megabytes == 0 ? 0 : MemoryBudget::in_use() + (megabytes << 20);
    return fit_decoder(loaded.model, {.slots = 2, .capacity = capacity, .batch = batch}, fit);
  };
  FittedDecoder const usual = fitted(0, 0, 0);
  REQUIRE(usual.options.capacity == 4096);
  REQUIRE(usual.options.batch == 512);
  fit.most_context = 0;
  REQUIRE(fitted(0, 0, 0).options.capacity == 20'000);
  // 2 layers * 2 slots * 2 * 32 numbers of 4 bytes: 1 KiB a token, 8 and more for working memory.
  FittedDecoder const tight = fitted(0, 0, 12);
  CAPTURE(tight.options.capacity, tight.options.batch);
  REQUIRE(tight.options.batch == 512);
  REQUIRE(tight.options.capacity > 1000);
  REQUIRE(tight.options.capacity < 12'000);
  REQUIRE(tight.options.capacity % 64 == 0);
  REQUIRE(tight.notes.at(0).find("as many as the memory holds") != std::string::npos);
  std::int64_t const taken = decoder_need(loaded.model, tight.options, 1).bytes();
  REQUIRE(taken <= 12 << 20);
  DecoderOptions longer = tight.options;
  longer.capacity += 64;
  REQUIRE(decoder_need(loaded.model, longer, 1).bytes() > 12 << 20);
  FittedDecoder const tiny = fitted(0, 0, 2);
  REQUIRE(tiny.options.batch < 512);
  REQUIRE(tiny.notes.size() == 2);
  REQUIRE_ERROR(fitted(15'000, 0, 12), ErrorKind::out_of_memory, "Lower the context");
  REQUIRE(fitted(3000, 40, 12).options.capacity == 3000);
  REQUIRE(fitted(3000, 40, 12).options.batch == 40);

  // The estimate is from above: what a decoder takes is within it.
  exec::Context context({.threads = 1});
  std::int64_t const batch = 256;
  auto const need = decoder_need(loaded.model, {.slots = 2, .capacity = 512, .batch = batch}, 1);
  REQUIRE(need.caches == 2 * 2 * 2 * 512 * 32 * 4);
  auto const program = graph::compile(nn::decoding_graph(loaded.model, batch, {2, 512, BlockType::f32}));
  CAPTURE(program.plan.arena_bytes, need.working);
  REQUIRE(program.plan.arena_bytes < need.working);
  REQUIRE(nn::cache_layer_bytes(loaded.model, {2, 512, block_type(CacheType::q8_0)}) == 2 * 2 * 512 * 34);

  ServiceOptions service;
  service.decoder.capacity = 0, service.decoder.slots = 3, service.prompt_chunk = 0;
  fit.most_bytes = 0, fit.most_context = 100;
  FittedService const served = fit_service(loaded.model, service, fit);
  REQUIRE(served.options.decoder.capacity == 100);
  REQUIRE(served.options.prompt_chunk == 128);
}

TEST_CASE("Flags say a context, a batch, a type of cache and a bound, or leave them to be chosen") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = make(folder, 10'000);
  auto const parsed = [&](std::vector<char const*> words) {
    words.insert(words.begin(), "program");
    CLI::App app("", "program");
    train::DecodingFlags flags;
    train::add_decoding_flags(app, flags, "tokens");
    auto const code = train::parse_flags(app, static_cast<int>(words.size()), words.data());
    return std::pair(flags, code.value_or(0));
  };
  DecoderOptions options;
  train::DecodingFlags const plain = parsed({}).first;
  plain.give(options);
  REQUIRE(options.capacity == 0);
  REQUIRE(options.batch == 0);
  REQUIRE(options.cache == BlockType::f32);
  REQUIRE(fit_decoder(loaded.model, options, plain.fit(loaded.model, 1, 3000)).options.capacity == 3000);
  train::DecodingFlags const most = parsed({"--context", "auto"}).first;
  most.give(options);
  REQUIRE(fit_decoder(loaded.model, options, most.fit(loaded.model, 1, 3000)).options.capacity == 10'000);
  train::DecodingFlags const said =
      parsed({"--context", "0700", "--batch", "48", "--cache-type", "q8_0", "--max-memory", "900"}).first;
  said.give(options);
  REQUIRE(said.said());
  REQUIRE_FALSE(plain.said());
  REQUIRE(options.capacity == 700);
  REQUIRE(options.batch == 48);
  REQUIRE(options.cache == BlockType::q8_0);
  REQUIRE(said.fit(loaded.model, 1, 0).most_bytes == std::int64_t{900} << 20);
  std::vector<std::vector<char const*>> const wrong{
      {"--context", "-1"}, {"--context", "many"}, {"--batch", "99999"}, {"--cache-type", "q4_0"}};
  for (std::vector<char const*> const& words : wrong) REQUIRE(parsed(words).second == 2);
}

TEST_CASE("A model takes another's place while requests are on their way; later ones get the new one") {
  test::ScratchFolder const folder;
  LoadedModel const first = make(folder, 512, 1), second = make(folder, 512, 2);
  auto const served = [&](std::uint32_t seed) {
    ServedModelOptions options;
    options.threads = 1;
    options.service.decoder.slots = 2;
    return std::make_shared<ServedModel>("model " + std::to_string(seed), make(folder, 512, seed), options);
  };
  HotModel models(served(1));
  auto const ask = [&](ServedModel& model) {
    return model.service().submit(greedy("hello", 20, model.tokenizer()))->wait().text;
  };
  std::string const old_answer = ask(*models.get());
  std::vector<std::shared_ptr<ServedModel>> asked;
  std::vector<std::shared_ptr<Generation>> flying;
  for (int i = 0; i < 6; ++i) {
    asked.push_back(models.get());
    flying.push_back(asked.back()->service().submit(greedy("hello", 20, asked.back()->tokenizer())));
  }
  std::int64_t const used = MemoryBudget::in_use();
  models.swap([&] { return served(2); });
  REQUIRE(models.get()->name() == "model 2");
  std::string const new_answer = ask(*models.get());
  REQUIRE(new_answer != old_answer);
  for (auto const& generation : flying) REQUIRE(generation->wait().text == old_answer);
  REQUIRE(MemoryBudget::in_use() > used);  // both are there
  ServiceStatus const both = models.status();
  REQUIRE(both.finished == 8);
  REQUIRE(both.tokens == 8 * 20);
  flying.clear(), asked.clear();
  REQUIRE(MemoryBudget::in_use() == used);  // the old one is gone, and what it has counted is not
  ServiceStatus const after = models.status();
  REQUIRE(after.finished == 8);
  REQUIRE(after.tokens == 8 * 20);
  REQUIRE(after.begun == 8);
  REQUIRE(after.busy_seconds == both.busy_seconds);
  REQUIRE(after.cache_tokens == both.cache_tokens / 2);

  // What fails leaves the one that answers in its place.
  REQUIRE_ERROR(models.swap([&]() -> std::shared_ptr<ServedModel> {
    ServedModelOptions options;
    options.fit.most_bytes = 1 << 20;
    return std::make_shared<ServedModel>("too large", make(folder, 512, 3), options);
  }),
                ErrorKind::out_of_memory, "Lower the context");
  REQUIRE(models.get()->name() == "model 2");
  REQUIRE(ask(*models.get()) == new_answer);
}

TEST_CASE("A service counts tokens, times and caches, and its log has a line for each answer") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = make(folder, 512);
  exec::Context context({.threads = 1});
  auto const log = std::make_shared<Log>();
  log->configure({.level = LogLevel::info, .path = folder / "log.txt"});
  Service service(context, loaded.model, loaded.tokenizer,
                  {.decoder = {.slots = 2, .capacity = 64}, .queue = {.most = 1}, .log = log, .name = "tiny"});
  for (int i = 0; i < 3; ++i) static_cast<void>(service.submit(greedy("hello world", 5, loaded.tokenizer))->wait());
  ServiceStatus const status = service.status();
  REQUIRE(status.finished == 3);
  REQUIRE(status.begun == 3);
  REQUIRE(status.tokens == 15);
  REQUIRE(status.cache_tokens == 128);
  REQUIRE(status.first_token_seconds > 0);
  REQUIRE(status.busy_seconds > 0);
  REQUIRE(status.tokens_per_second() > 0);
  REQUIRE(status.mean_first_token_seconds() < 60);
  std::string const text = io::read_file(folder / "log.txt");
  CAPTURE(text);
  REQUIRE(std::count(text.begin(), text.end(), '\n') == 3);
  REQUIRE(text.find("info: model 'tiny': max tokens: prompt 11 tokens, 5 tokens, ") != std::string::npos);
  REQUIRE(text.find("(10 of a cache)") != std::string::npos);
}

TEST_CASE("32 sessions of 4 priorities, cancellations and a swap in the middle: every answer comes, from one model") {
  test::ScratchFolder const folder;
  auto const served = [&](std::uint32_t seed) {
    ServedModelOptions options;
    options.threads = 1;
    options.service.decoder.slots = 4;
    options.service.queue.most = 100;
    return std::make_shared<ServedModel>("model " + std::to_string(seed), make(folder, 512, seed), options);
  };
  HotModel models(served(1));
  std::string expected[2];
  {
    auto const other = served(2);
    for (ServedModel* const model : {models.get().get(), other.get()})
      expected[model == other.get()] = model->service().submit(greedy("hello", 12, model->tokenizer()))->wait().text;
  }
  std::int64_t const alone = MemoryBudget::in_use();
  std::atomic<int> asked{0}, answered{0}, cancelled{0}, wrong{0};
  std::atomic<int> by_model[2] = {0, 0};
  std::atomic<bool> swapped{false};
  std::vector<std::thread> clients;
  for (int c = 0; c < 32; ++c)
    clients.emplace_back([&, c] {
      for (int i = 0; i < 6; ++i) {
        while (i == 5 && !swapped) std::this_thread::yield();
        auto const model = models.get();
        Request request = greedy("hello", 12, model->tokenizer());
        request.priority = c % 4;
        request.session = std::to_string(c);
        auto const generation = model->service().submit(std::move(request));
        ++asked;
        if ((c + i) % 5 == 0) generation->cancel();
        Completion const& answer = generation->wait();
        bool const second = model->name() == "model 2";
        if (answer.reason == StopReason::cancelled) ++cancelled;
        else if (answer.text == expected[second]) ++answered, ++by_model[second];
        else ++wrong;
      }
    });
  while (asked < 60) std::this_thread::yield();
  models.swap([&] { return served(2); });
  swapped = true;
  for (std::thread& client : clients) client.join();
  REQUIRE(wrong == 0);
  REQUIRE(answered + cancelled == 192);
  REQUIRE(by_model[0] > 0);
  REQUIRE(by_model[1] > 0);
  REQUIRE(MemoryBudget::in_use() == alone);  // the old one is gone
}

TEST_CASE("the budget is what the tightest control group on the way to the root leaves") {
  char name[] = "/tmp/tutti-groups-XXXXXX";
  std::filesystem::path const root = ::mkdtemp(name);
  auto const write = [&](std::string const& path, std::string const& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  auto const memory = [&] { return infer::detail::memory_of_groups(root.c_str(), (root / "own").c_str()); };
  write("own", "0::/user/service\n");
  CHECK(memory().most == infer::detail::unknown_bytes);
  CHECK(memory().free == infer::detail::unknown_bytes);
  write("user/service/memory.max", "max\n");
  write("user/memory.max", "9000\n");
  write("user/memory.current", "5000\n");
  write("user/memory.stat", "anon 1\ninactive_file 700\n");
  CHECK(memory().most == 9000);
  CHECK(memory().free == 4700);
  write("user/service/memory.max", "3000\n");
  write("user/service/memory.current", "1000\n");
  CHECK(memory().most == 3000);
  CHECK(memory().free == 2000);
  write("own", "4:memory:/x\n");
  CHECK(memory().most == infer::detail::unknown_bytes);
  write("memory/memory.limit_in_bytes", "800\n");
  write("memory/memory.usage_in_bytes", "300\n");
  CHECK(memory().most == 800);
  CHECK(memory().free == 500);
  std::filesystem::remove_all(root);
}

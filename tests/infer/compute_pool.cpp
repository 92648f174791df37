// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/compute_pool.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/compute_pool.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/service.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

TEST_CASE("A pool's turn goes to the highest priority, of equals to who came first, and to one at a time") {
  ComputePool pool(1);
  std::vector<int> order;
  std::mutex mutex;
  std::vector<std::thread> threads;
  ComputePool::Turn mine(&pool, 0);
  std::atomic<int> inside{0}, most{0};
  int const priorities[] = {0, 5, -3, 5, 0};
  for (int i = 0; i < 5; ++i) {
    threads.emplace_back([&, i] {
      ComputePool::Turn const turn(&pool, priorities[i]);
      most = std::max<int>(most, ++inside);
      std::lock_guard const guard(mutex);
      order.push_back(i);
      --inside;
    });
    while (pool.waiting() != static_cast<std::size_t>(i) + 1) std::this_thread::yield();
  }
  mine.end();
  for (std::thread& thread : threads) thread.join();
  REQUIRE(order == std::vector{1, 3, 0, 4, 2});
  REQUIRE(most == 1);
  REQUIRE(pool.waiting() == 0);
}

TEST_CASE("A process has one pool for each number of threads, for as long as somebody holds it") {
  auto const one = ComputePool::of_process(2), other = ComputePool::of_process(2), three = ComputePool::of_process(3);
  REQUIRE(one == other);
  REQUIRE(one != three);
  REQUIRE(one->context().threads() == 2);
  REQUIRE(three->context().threads() == 3);
  REQUIRE(ComputePool::of_process() == ComputePool::of_process(exec::available_processors()));
  std::weak_ptr<ComputePool> gone = ComputePool::of_process(5);
  REQUIRE(gone.expired());
}

TEST_CASE("Services of one pool answer beside each other what each answers alone") {
  test::ScratchFolder folder;
  test::TinyModel sizes;
  sizes.positions = 256;
  std::string const path = folder / "tiny.gguf";
  test::write_tiny_gguf(path, sizes);
  LoadedModel const loaded = load_gguf(path);
  auto const request = [](int i) {
    Request one;
    for (std::int32_t t = 0; t < 20 + i; ++t) one.prompt.push_back((t * 31 + i * 17) % 94);
    one.sampling.temperature = 0;
    one.stop.max_tokens = 40;
    one.priority = i % 3;
    return one;
  };
  std::vector<std::string> expected;
  {
    exec::Context context({.threads = 1});
    Service alone(context, loaded.model, loaded.tokenizer, {.decoder = {.slots = 1, .capacity = 128}});
    for (int i = 0; i < 12; ++i) expected.push_back(alone.submit(request(i))->wait().text);
  }
  ComputePool pool(2);
  std::vector<std::unique_ptr<Service>> services;
  for (int s = 0; s < 3; ++s)
    services.push_back(std::make_unique<Service>(pool, loaded.model, loaded.tokenizer,
                                                 ServiceOptions{.decoder = {.slots = 2, .capacity = 128}}));
  std::vector<std::shared_ptr<Generation>> answers;
  for (int i = 0; i < 12; ++i) answers.push_back(services[static_cast<std::size_t>(i % 3)]->submit(request(i)));
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    REQUIRE(answers[static_cast<std::size_t>(i)]->wait().text == expected[static_cast<std::size_t>(i)]);
  }
  services.pop_back();  // one that ends leaves the turns to the others
  REQUIRE(services[0]->submit(request(3))->wait().text == expected[3]);
}

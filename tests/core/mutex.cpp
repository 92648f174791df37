// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/core/mutex.hpp>

#include <thread>
#include <vector>

TEST_CASE("a guarded counter loses no step of any thread") {
  tutti::Mutex mutex;
  long count = 0;
  std::vector<std::thread> team;
  for (int t = 0; t < 4; ++t)
    team.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        tutti::Guard const guard(mutex);
        ++count;
      }
    });
  for (auto& thread : team) thread.join();
  CHECK(count == 80'000);
}

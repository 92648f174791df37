// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/core/shared.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <thread>
#include <vector>

using tutti::Shared;

namespace {

struct Base {
  virtual ~Base() = default;
};
struct Counted : Base {
  explicit Counted(std::atomic<int>& alive) : alive_(&alive) { ++*alive_; }
  Counted(Counted const&) = delete;
  ~Counted() override { --*alive_; }
  std::atomic<int>* alive_;
};
struct alignas(128) Wide {
  int value = 7;
};

}  // namespace

TEST_CASE("the last owner deletes the object, also through a base") {
  std::atomic<int> alive = 0;
  {
    Shared<Counted> a = tutti::make_shared_owner<Counted>(alive);
    Shared<Counted> b = a;
    Shared<Base> base = b;
    CHECK(base.get() == a.get());
    a = nullptr;
    Shared<Counted>& same = b;
    b = same;  // onto itself
    CHECK(b);
    b = Shared<Counted>();
    CHECK_FALSE(b);
    CHECK(alive == 1);
    Shared<Base> const moved = std::move(base);
    CHECK_FALSE(base);
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("what is shared keeps its alignment") {
  Shared<Wide> const wide = tutti::make_shared_owner<Wide>();
  CHECK(reinterpret_cast<std::uintptr_t>(wide.get()) % alignof(Wide) == 0);
  CHECK(wide->value == 7);
}

TEST_CASE("owners come and go in several threads") {
  std::atomic<int> alive = 0;
  {
    Shared<Counted> const object = tutti::make_shared_owner<Counted>(alive);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([object] {
        for (int i = 0; i < 10000; ++i) {
          Shared<Counted> const copy = object;
          Shared<Base> const base = copy;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

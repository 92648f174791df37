// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/core/owner.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <type_traits>

using tutti::Array;
using tutti::make_owner;
using tutti::Owner;

namespace {

struct Counted {
  explicit Counted(int& alive) : alive_(&alive) { ++*alive_; }
  virtual ~Counted() { --*alive_; }
  int* alive_;
};
struct Derived final : Counted {
  using Counted::Counted;
};

}  // namespace

TEST_CASE("an owner deletes its object once, wherever it was moved") {
  int alive = 0;
  {
    Owner<Counted> a = make_owner<Derived>(alive);
    Owner<Counted> b = std::move(a);
    CHECK_FALSE(a);
    CHECK(b.get() != nullptr);
    b = make_owner<Counted>(alive);
    CHECK(alive == 1);
    Owner<Counted>& same = b;
    b = std::move(same);  // onto itself
    CHECK(alive == 1);
    CHECK(b);
    b = nullptr;
    CHECK(alive == 0);
    Owner<Counted> c = make_owner<Counted>(alive);
    Counted* const given_up = c.release();
    CHECK_FALSE(c);
    CHECK(alive == 1);
    delete given_up;
  }
  CHECK(alive == 0);
  static_assert(!std::is_copy_constructible_v<Owner<int>>);
}

TEST_CASE("an array holds value-initialised elements that cannot move themselves") {
  Array<std::atomic<int>> a(3);
  CHECK(a.size() == 3);
  for (auto& element : a) CHECK(element.load() == 0);
  a[1] = 5;
  Array<std::atomic<int>> const b = std::move(a);
  CHECK(b[1] == 5);
  CHECK(a.size() == 0);
  CHECK(a.begin() == a.end());
  static_assert(!std::is_copy_constructible_v<Array<int>>);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/core/list.hpp>

#include "support/catch.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

using tutti::List;

namespace {

constexpr int grown() {
  List<List<int>> lists;
  for (int i = 0; i < 20; ++i) lists.push_back(List<int>(static_cast<std::size_t>(i), i));
  List<List<int>> const copy = lists;
  lists = {};
  int sum = 0;
  for (auto const& list : copy)
    for (int value : list) sum += value;
  return sum + static_cast<int>(lists.size());
}
static_assert(grown() == 2470, "lists own their elements in constant expressions");

}  // namespace

TEST_CASE("a list grows, copies and moves as a vector does") {
  List<int> list;
  CHECK(list.empty());
  for (int i = 0; i < 100; ++i) list.push_back(i);
  CHECK(list.size() == 100);
  CHECK(list.back() == 99);
  List<int> copy = list;
  copy[0] = 7;
  CHECK(list[0] == 0);
  CHECK_FALSE(copy == list);
  List<int> const moved = std::move(copy);
  CHECK(moved.size() == 100);
  CHECK(moved[0] == 7);
  List<int> const& same = list;
  list = same;  // onto itself
  CHECK(list.size() == 100);
  CHECK(list[99] == 99);
}

TEST_CASE("ranges are appended, lists assigned and resized, and an element of the list itself can be pushed") {
  List<int> list{1, 2, 3};
  int const more[] = {4, 5};
  list.append(more, more + 2);
  CHECK(list == List<int>{1, 2, 3, 4, 5});
  list.pop_back();
  CHECK(list == List<int>{1, 2, 3, 4});
  list.resize(6);
  CHECK(list == List<int>{1, 2, 3, 4, 0, 0});
  list.resize(1);
  CHECK(list == List<int>{1});
  list.assign(3, 9);
  CHECK(list == List<int>{9, 9, 9});
  for (int i = 0; i < 20; ++i) list.push_back(list[0]);
  CHECK(list.back() == 9);
  list.append(more, more);
  CHECK(list.size() == 23);
}

TEST_CASE("removed elements release what they own, the others keep their order") {
  auto const owned = std::make_shared<int>(1);
  auto const owners = [&] { return owned.use_count() - 1; };
  List<std::shared_ptr<int>> list(6, owned);
  list.pop_back();
  CHECK(owners() == 5);
  list.resize(4);
  CHECK(owners() == 4);
  list.erase(1);
  CHECK(owners() == 3);
  bool first = true;
  list.erase_if([&](auto const&) { return std::exchange(first, false); });
  CHECK(list.size() == 2);
  CHECK(owners() == 2);
  list.clear();
  CHECK(owners() == 0);
  List<int> numbers{5, 6, 7, 8, 9};
  numbers.erase(0);
  numbers.erase(3);
  numbers.erase_if([](int n) { return n == 7; });
  CHECK(numbers == List<int>{6, 8});
}

TEST_CASE("a list can be appended to itself and assigned from an element of its own") {
  List<std::string> list{"a long enough text to be allocated", "b"};
  list.append(list);
  CHECK(list.size() == 4);
  CHECK(list[2] == list[0]);
  list.assign(3, list[0]);
  CHECK(list.size() == 3);
  CHECK(list[2] == "a long enough text to be allocated");
}

TEST_CASE("a copy that throws loses nothing") {
  struct Fragile {
    int value = 0;
    std::shared_ptr<int> owned;
    Fragile() = default;
    Fragile(int v, std::shared_ptr<int> o) : value(v), owned(std::move(o)) {}
    Fragile(Fragile const& other) : value(other.value), owned(other.owned) { check(); }
    Fragile& operator=(Fragile const& other) {
      value = other.value;
      owned = other.owned;
      check();
      return *this;
    }
    void check() const {
      if (value == 2) throw std::runtime_error("this one cannot be copied");
    }
  };
  auto const owned = std::make_shared<int>(1);
  Fragile const source[] = {{0, owned}, {1, owned}, {2, owned}};
  CHECK_THROWS(List<Fragile>(source, source + 3));
  CHECK(owned.use_count() == 4);
}

TEST_CASE("sorting keeps the order of equal elements") {
  for (std::size_t const count : {0u, 1u, 2u, 3u, 7u, 64u, 100u}) {
    struct Item {
      int key = 0;
      std::size_t place = 0;
    };
    List<Item> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back({static_cast<int>(i * 7 % 5), i});
    list.stable_sort([](Item const& a, Item const& b) { return a.key < b.key; });
    CHECK(list.size() == count);
    for (std::size_t i = 1; i < count; ++i) {
      CHECK(list[i - 1].key <= list[i].key);
      if (list[i - 1].key == list[i].key) CHECK(list[i - 1].place < list[i].place);
    }
  }
}

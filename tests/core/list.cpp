// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/core/list.hpp>

#include "support/catch.hpp"

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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/reflect/members.hpp>

#include "support/catch.hpp"

#include <string>

namespace {

struct Inner {
  BOOST_HANA_DEFINE_STRUCT(Inner, (int, first), (double, second));
};
struct Outer {
  BOOST_HANA_DEFINE_STRUCT(Outer, (Inner, left), (int, middle), (Inner, right));
};
struct Empty {
  BOOST_HANA_DEFINE_STRUCT(Empty);
};

constexpr int sum_of(Outer const& object) {
  int sum = 0;
  tutti::reflect::for_each_leaf(object, [&](std::string_view path, auto const& leaf) {
    sum += static_cast<int>(leaf) + static_cast<int>(path.size());
  });
  return sum;
}
static_assert(sum_of({{1, 2}, 3, {4, 5}}) == 15 + 10 + 11 + 6 + 11 + 12, "reflection works in constant expressions");
static_assert(tutti::reflect::Reflected<Outer> && tutti::reflect::Reflected<Outer const> &&
              !tutti::reflect::Reflected<int>);
static_assert([] {
  int ints = 0;
  int members = 0;
  tutti::reflect::for_each_member_type<Outer>([&]<class Member>(std::type_identity<Member>) {
    ints += std::is_same_v<Member, int>;
    ++members;
  });
  return members == 3 && ints == 1;
}(), "types are visited without an object");
static_assert(tutti::reflect::member_count<Outer> == 3 && tutti::reflect::member_count<Empty> == 0);

}  // namespace

TEST_CASE("members are visited in the order of the definition and can be written") {
  Outer object{{1, 2}, 3, {4, 5}};
  std::string names;
  tutti::reflect::for_each_member(object, [&](std::string_view name, auto& member) {
    names += std::string(name) + " ";
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(member)>, int>) member = 30;
  });
  CHECK(names == "left middle right ");
  CHECK(object.middle == 30);
}

TEST_CASE("leaves have dotted names at any depth") {
  Outer object{{1, 2}, 3, {4, 5}};
  std::string paths;
  tutti::reflect::for_each_leaf(object, [&](std::string_view path, auto& leaf) {
    paths += std::string(path) + "=" + std::to_string(static_cast<int>(leaf)) + " ";
    leaf = 0;
  });
  CHECK(paths == "left.first=1 left.second=2 middle=3 right.first=4 right.second=5 ");
  CHECK(object.right.second == 0);
  paths.clear();
  tutti::reflect::for_each_leaf(object, [&](std::string_view path, auto&) { paths += path; }, "model");
  CHECK(paths.substr(0, 16) == "model.left.first");
}

TEST_CASE("a struct without members has none to visit") {
  Empty nothing;
  int visits = 0;
  tutti::reflect::for_each_member(nothing, [&](std::string_view, auto&) { ++visits; });
  CHECK(visits == 0);
}

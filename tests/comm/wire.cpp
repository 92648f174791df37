// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// How elements travel: sizes, and packing without padding.
// Covers: <tutti/comm/located.hpp>
// Covers: <tutti/comm/message_info.hpp>
// Covers: <tutti/comm/plain_struct.hpp>

#include "support/catch.hpp"

#include <tutti/comm/wire.hpp>
#include <tutti/tensor/tensor.hpp>

#include <complex>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

using namespace tutti;

namespace {

struct Inner {
  BOOST_HANA_DEFINE_STRUCT(Inner, (std::int8_t, a), (std::int64_t, b));
};
struct Outer {
  BOOST_HANA_DEFINE_STRUCT(Outer, (std::array<Inner, 2>, inner), (bool, flag));
};
struct Named {
  BOOST_HANA_DEFINE_STRUCT(Named, (std::string, name));
};
struct Empty {
  BOOST_HANA_DEFINE_STRUCT(Empty);
};
struct Undescribed {
  int a;
};
/// One member is not described, and stays behind.
struct Partly {
  BOOST_HANA_DEFINE_STRUCT(Partly, (std::int32_t, sent));
  std::int32_t kept = 0;
};

static_assert(Record<Outer> && !Record<Undescribed> && !Record<Named> && !Record<Empty>);
static_assert(Storable<Outer> && Storable<std::complex<double>> && Storable<Located<float>>);
static_assert(!Storable<Named> && !Storable<int*> && !Storable<std::complex<long double>>);

// Without a description a struct is plain, if it is an aggregate of values.
struct Nested {
  Undescribed inner;
  int grid[2][3];
  bfloat16 narrow;
};
struct Pointing {
  int a;
  char const* name;
};
struct PointingToMember {
  int Undescribed::* member;
};
class Built {
 public:
  explicit Built(int a) : a_(a) {}
  int a() const { return a_; }

 private:
  int a_;
};
class Said {
 public:
  explicit Said(int a) : a_(a) {}

 private:
  int a_;
};
struct Nothing {};
struct Referring {
  int& of;
};
struct PointingTwice {
  int* both[2];
};
static_assert(PlainStruct<Undescribed> && PlainStruct<Nested> && comm::wire_bytes<Nested>() == sizeof(Nested));
static_assert(!Storable<Referring> && !Storable<PointingTwice>);
static_assert(!Storable<Pointing> && !Storable<PointingToMember> && !Storable<Built> && !Storable<Nothing>);
static_assert(!Storable<std::string_view> && !Storable<std::span<int>> && !Storable<TensorView<int>>);
static_assert(!PlainStruct<Inner> && !PlainStruct<bfloat16> && !PlainStruct<Located<float>>);
using Pair = std::pair<std::int8_t, std::int64_t>;
static_assert(Storable<Pair> && comm::is_padded<Pair> && comm::wire_bytes<Pair>() == 9);
static_assert(!Storable<std::pair<int, std::string>> && !Storable<std::array<int*, 2>>);
static_assert(Storable<std::array<Pair, 2>>);
static_assert(comm::layout_of<Pair>() == comm::layout_of<Inner>());  // the same members
static_assert(comm::layout_of<Undescribed>() != comm::layout_of<Nested>());
static_assert(!Element<Outer> && !Element<std::complex<float>>);
static_assert(comm::wire_bytes<Inner>() == 9 && comm::wire_bytes<Outer>() == 19 && comm::is_padded<Outer>);
static_assert(comm::wire_bytes<Located<float>>() == 12 && comm::wire_bytes<Located<double>>() == 16);
static_assert(!comm::is_padded<std::complex<float>> && comm::wire_parts<std::complex<float>> == 2);
static_assert(comm::wire_parts<double> == 1 && comm::wire_parts<Outer> == 19);
static_assert(comm::wire_bytes<Partly>() == 4 && comm::is_padded<Partly>);

/// The members of Inner in another order.
struct Turned {
  BOOST_HANA_DEFINE_STRUCT(Turned, (std::int64_t, b), (std::int8_t, a));
};
/// Inner under other names.
struct Alike {
  BOOST_HANA_DEFINE_STRUCT(Alike, (std::int8_t, first), (std::int64_t, second));
};
enum class Colour : std::int8_t { red };
struct Coloured {
  BOOST_HANA_DEFINE_STRUCT(Coloured, (Colour, a), (std::int64_t, b));
};
static_assert(comm::layout_of<float>() == 0 && comm::layout_of<std::complex<float>>() == comm::complex_layout);
static_assert(comm::layout_of<Inner>() > 1 && comm::layout_of<Inner>() < comm::layouts);
static_assert(comm::layout_of<Inner>() != comm::layout_of<Turned>());
static_assert(comm::layout_of<Inner>() == comm::layout_of<Alike>());
static_assert(comm::layout_of<Inner>() == comm::layout_of<Coloured>());
static_assert(comm::layout_of<Located<float>>() != comm::layout_of<Located<std::int32_t>>());
static_assert(comm::layout_of<Outer>() != comm::layout_of<Inner>());

}  // namespace

template <>
inline constexpr bool tutti::travels_as_bytes<Said> = true;
static_assert(Storable<Said>);

TEST_CASE("packing takes the members, and unpacking writes nothing else") {
  Outer x;
  std::memset(static_cast<void*>(&x), 0x11, sizeof x);
  x.inner[0] = {1, 2};
  x.inner[1].a = -3;
  x.inner[1].b = -4;
  x.flag = true;
  std::byte wire[19];
  REQUIRE(comm::pack(x, wire) == wire + 19);
  Outer y;
  std::memset(static_cast<void*>(&y), 0x22, sizeof y);
  REQUIRE(comm::unpack(wire, y) == wire + 19);
  CHECK(y.inner[0].a == 1);
  CHECK(y.inner[0].b == 2);
  CHECK(y.inner[1].a == -3);
  CHECK(y.inner[1].b == -4);
  CHECK(y.flag);
  auto const* const bytes = reinterpret_cast<unsigned char const*>(&y);
  for (std::size_t i = 1; i < 8; ++i) CHECK(bytes[i] == 0x22);  // behind inner[0].a
  CHECK(bytes[sizeof(Outer) - 1] == 0x22);                      // behind flag
}

TEST_CASE("members that are not described stay as they are") {
  Partly x;
  x.sent = 5;
  Partly y;
  y.kept = 7;
  std::byte wire[4];
  comm::pack(x, wire);
  comm::unpack(wire, y);
  CHECK(y.sent == 5);
  CHECK(y.kept == 7);
}

TEST_CASE("tensors hold what is made of elements") {
  auto x = full<Located<float>>(Shape{2, 3}, {1.5f, 4});
  CHECK(x(1, 2) == Located<float>{1.5f, 4});
  CHECK(x.clone().view().slice(1, 0, 2)(1, 1).index == 4);
  auto const z = zeros<std::complex<double>>(Shape{4});
  CHECK(z(3) == std::complex<double>());
}

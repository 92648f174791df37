// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The State: fields by name, in order, at fixed addresses.
// Covers: <tutti/graph/field.hpp> <tutti/graph/memory.hpp>

#include "support/catch.hpp"

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/ops.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

Graph example() {
  Builder builder;
  builder.parameter("weight", {3, 64, 64}, normal(0.02), true);
  builder.parameter("gain", {64}, ones());
  builder.state("m.weight", {3, 64, 64});
  builder.state("count", {}, zeros(), DType::int64);
  return builder.graph();
}

}  // namespace

TEST_CASE("a state holds a graph's parameters and states in the order of their declaration") {
  State state(example());
  REQUIRE(state.fields().size() == 4);
  CHECK(state.fields()[0].name == "weight");
  CHECK(state.fields()[0].parameter);
  CHECK(state.fields()[0].stacked);
  CHECK(state.fields()[1].parameter);
  CHECK_FALSE(state.fields()[1].stacked);
  CHECK_FALSE(state.fields()[2].parameter);
  CHECK(state.bytes() == 2 * 3 * 64 * 64 * 4 + 64 * 4 + 8);
  for (float value : state["gain"].elements()) REQUIRE(value == 1.0f);
  for (float value : state["m.weight"].elements()) REQUIRE(value == 0.0f);
  for (Field const& field : state.fields()) CHECK(reinterpret_cast<std::uintptr_t>(field.data()) % 64 == 0);
}

TEST_CASE("programs share a state: adding a graph twice changes nothing and moves nothing") {
  State state(example());
  float const* const before = state["weight"].data();
  state["weight"].data()[5] = 42;
  state.add(example());
  for (int i = 0; i < 100; ++i) state.add("more." + std::to_string(i), DType::float32, {10});
  CHECK(state.fields().size() == 104);
  CHECK(state["weight"].data() == before);
  CHECK(before[5] == 42.0f);
}

TEST_CASE("normals have their deviation, depend on the seed and on nothing else") {
  State a(example()), b(example());
  a.initialise(7);
  b.initialise(7);
  CHECK(std::memcmp(a["weight"].data(), b["weight"].data(), 3 * 64 * 64 * 4) == 0);
  double squares = 0;
  for (float value : a["weight"].elements()) squares += double{value} * double{value};
  CHECK(std::abs(std::sqrt(squares / (3 * 64 * 64)) - 0.02) < 0.02 * 0.05);
  for (float value : a["gain"].elements()) REQUIRE(value == 1.0f);
  b.initialise(8);
  CHECK(std::memcmp(a["weight"].data(), b["weight"].data(), 3 * 64 * 64 * 4) != 0);
}

TEST_CASE("wrong names, types and shapes get a sentence") {
  State state(example());
  REQUIRE_ERROR(state.at("wieght"), ErrorKind::invalid_argument, "there is no field 'wieght'. There are: weight, ");
  REQUIRE_ERROR(state["count"], ErrorKind::dtype, "int64");
  REQUIRE_ERROR(state.add("gain", DType::float32, {65}), ErrorKind::shape, "(64,)");
  CHECK(state.find("nothing") == nullptr);
}

TEST_CASE("large blocks of memory start as zeros, on a cache line, and move with their owner") {
  for (std::int64_t bytes : {0, 1, 4096, 5 << 20}) {
    Memory memory(bytes);
    CHECK(memory.bytes() == bytes);
    if (bytes == 0) continue;
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0);
    CHECK(memory.data()[bytes - 1] == std::byte{0});
    std::byte* const data = memory.data();
    data[bytes - 1] = std::byte{1};
    Memory const moved = std::move(memory);
    CHECK(moved.data() == data);
  }
}

TEST_CASE("memory of which parts are not touched takes the pages that are, and huge ones inside of them alone") {
  constexpr std::int64_t bytes = 16 << 20, begin = 3 << 20, size = 6 << 20;  // two and a half huge pages
  auto const resident = [](Memory const& memory, std::int64_t from, std::int64_t to) {
    std::vector<unsigned char> pages(static_cast<std::size_t>((to - from) / 4096));
    REQUIRE(::mincore(memory.data() + from, static_cast<std::size_t>(to - from), pages.data()) == 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
  };
  Memory memory(bytes);
  memory.prefer_small_pages();
  memory.prefer_huge_pages(begin, size);
  for (std::int64_t at = begin; at < begin + size; at += 4096) memory.data()[at] = std::byte{1};
  CHECK(resident(memory, begin, begin + size) == size / 4096);
  CHECK(resident(memory, 0, begin) == 0);
  CHECK(resident(memory, begin + size, bytes) == 0);
  Memory small(4096), none;
  small.prefer_small_pages(), small.prefer_huge_pages(0, 4096);
  none.prefer_small_pages(), none.prefer_huge_pages(0, 0);
  CHECK(small.data()[0] == std::byte{0});
}

TEST_CASE("a state refers to memory of the caller's, under a name of its own") {
  float const values[] = {1, 2, 3, 4};
  State state;
  state.refer("w", DType::float32, {2, 2}, values);
  CHECK(state["w"](1, 0) == 3.0f);
  CHECK(state.at("w").data() == values);
  REQUIRE_ERROR(state.refer("w", DType::float32, {4}, values), ErrorKind::invalid_argument, "already");
  REQUIRE_ERROR(state.add("w", DType::float32, {4}), ErrorKind::shape, "another name");
  CHECK(state.add("w", DType::float32, {2, 2})->data() == values);
}

TEST_CASE("a program whose parameters were never initialised does not run") {
  Builder b;
  Var const w = b.parameter("w", {3}, normal(0.1)), zero = b.parameter("zero", {3}, zeros());
  b.output("loss", sum_all(w * zero));
  Program const program = compile(canonical(b.graph()));
  State state(canonical(b.graph()));
  exec::Context context({.threads = 1});
  Executor never(context, program, state);
  REQUIRE_ERROR(never.run(), ErrorKind::invalid_argument, "parameter 'w' starts with random values");
  REQUIRE_ERROR(never.run(), ErrorKind::invalid_argument, "state.cpp:");
  state.initialise(1);
  never.run();
  CHECK(never.value("loss") == 0);
}

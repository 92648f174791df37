// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The memory plan: reuse, and a validator that notices every way of getting it wrong.
// Covers: <tutti/graph/steps.hpp>

#include "support/catch.hpp"

#include <tutti/graph/plan.hpp>
#include <tutti/tensor/random.hpp>

#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

BufferId buffer(StepList& list, std::int64_t bytes, Pool pool = Pool::arena) {
  Buffer b;
  b.bytes = bytes;
  b.pool = pool;
  return list.add(b);
}
Ref bytes_of(StepList const& list, BufferId id) { return contiguous_ref(id, 0, DType::uint8, {list[id].bytes}); }
void step(StepList& list, std::vector<BufferId> reads, std::vector<BufferId> writes) {
  Step s;
  s.kind = StepKind::fill;
  for (BufferId id : reads) s.reads.push_back(bytes_of(list, id));
  for (BufferId id : writes) s.writes.push_back(bytes_of(list, id));
  list.steps.push_back(s);
}

/// A chain in which every step reads the two results before it.
StepList chain(int length, std::uint64_t seed) {
  StepList list;
  std::vector<BufferId> made;
  CounterRandom random{seed, 0};
  for (int i = 0; i < length; ++i) {
    made.push_back(buffer(list, 1 + random.bits(static_cast<std::uint64_t>(i)) % 5000));
    std::vector<BufferId> reads;
    for (int back = 1; back <= 2 && back <= i; ++back) reads.push_back(made[static_cast<std::size_t>(i - back)]);
    step(list, reads, {made.back()});
  }
  return list;
}

}  // namespace

TEST_CASE("buffers that are never alive together share memory") {
  StepList list = chain(50, 1);
  MemoryPlan const plan = plan_memory(list);
  validate(list, plan);
  CHECK(plan.arena_bytes < plan.unshared_bytes / 4);
  CHECK(plan.arena_bytes > 0);
  for (std::size_t id = 0; id < list.buffers.size(); ++id) CHECK(plan.offset[id] % plan_alignment == 0);
}

TEST_CASE("random chains of any length are planned without overlap") {
  for (int length : {0, 1, 2, 3, 17, 64})
    for (std::uint64_t seed : {2u, 3u, 4u}) {
      StepList const list = chain(length, seed);
      validate(list, plan_memory(list));
    }
}

TEST_CASE("the validator notices two live buffers in one place") {
  StepList list;
  BufferId const a = buffer(list, 256), b = buffer(list, 256), c = buffer(list, 64);
  step(list, {}, {a});
  step(list, {}, {b});
  step(list, {a, b}, {c});
  MemoryPlan plan = plan_memory(list);
  validate(list, plan);
  for (std::int64_t shift : {0, 1, 255, -255}) {
    MemoryPlan broken = plan;
    broken.offset[static_cast<std::size_t>(b)] = 256 + shift;
    broken.offset[static_cast<std::size_t>(a)] = 256;
    broken.offset[static_cast<std::size_t>(c)] = 4096;
    broken.arena_bytes = 8192;
    CAPTURE(shift);
    REQUIRE_ERROR(validate(list, broken), ErrorKind::internal, "overwritten by buffer 1");
  }
}

TEST_CASE("the validator notices a read before the write, a read outside and memory outside the arena") {
  StepList list;
  BufferId const a = buffer(list, 100), b = buffer(list, 100);
  step(list, {a}, {b});
  step(list, {}, {a});
  REQUIRE_ERROR(validate(list, plan_memory(list)), ErrorKind::internal, "read before it is written");

  StepList good = chain(3, 5);
  MemoryPlan plan = plan_memory(good);
  --plan.arena_bytes;
  plan.arena_bytes /= 2;
  REQUIRE_ERROR(validate(good, plan), ErrorKind::internal, "outside its pool");

  good.steps[1].reads[0].offset = 1;
  REQUIRE_ERROR(validate(good, plan_memory(good)), ErrorKind::internal, "leaves the buffer");
}

TEST_CASE("a result may take the place of a dead operand, not of a live one") {
  StepList list;
  BufferId const a = buffer(list, 128), b = buffer(list, 128), c = buffer(list, 128);
  step(list, {}, {a});
  step(list, {a}, {b});
  step(list, {b}, {c});
  list[b].over = a;
  validate(list, plan_memory(list));
  step(list, {a}, {buffer(list, 8)});
  REQUIRE_ERROR(validate(list, plan_memory(list)), ErrorKind::internal, "overwritten");
}

TEST_CASE("parts live inside the whole, and the whole needs every part") {
  StepList list;
  BufferId const whole = buffer(list, 256), a = buffer(list, 100), b = buffer(list, 100);
  list[a].part_of = whole;
  list[b].part_of = whole;
  list[b].offset = 128;
  step(list, {}, {a});
  step(list, {whole}, {buffer(list, 4)});
  REQUIRE_ERROR(validate(list, plan_memory(list)), ErrorKind::internal, "read before it is written");
  std::swap(list.steps[0], list.steps[1]);
  list.steps.clear();
  step(list, {}, {a});
  step(list, {}, {b});
  step(list, {whole}, {buffer(list, 4)});
  MemoryPlan const plan = plan_memory(list);
  validate(list, plan);
  CHECK(plan.offset[static_cast<std::size_t>(b)] - plan.offset[static_cast<std::size_t>(whole)] == 128);
}

TEST_CASE("the communicator's pool is planned apart from the arena") {
  StepList list;
  BufferId const a = buffer(list, 1000), b = buffer(list, 2000, Pool::communicator);
  step(list, {}, {a});
  step(list, {a}, {b});
  MemoryPlan const plan = plan_memory(list);
  CHECK(plan.arena_bytes == 1024);
  CHECK(plan.communicator_bytes == 2048);
  validate(list, plan);
}

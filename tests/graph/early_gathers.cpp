// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/graph/early_gathers.hpp>

#include "support/catch.hpp"

#include <tutti/core/concat.hpp>

#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

/// A model whose layers gather parameters, each of 64 bytes, and read what they gathered; forward and, gathering again,
/// backward. `head`: bytes of one more that stands behind the last layer.
StepList model(int layers, int parameters, std::int64_t head) {
  StepList list;
  auto const buffer = [&](Pool pool, std::int64_t bytes) {
    Buffer one;
    one.pool = pool;
    one.bytes = bytes;
    return list.add(one);
  };
  auto const ref = [&](BufferId id) { return contiguous_ref(id, 0, DType::float32, Shape{list[id].bytes / 4}); };
  std::vector<BufferId> states;
  for (int i = 0; i < layers * parameters; ++i) states.push_back(buffer(Pool::state, 32));
  auto const gather = [&](BufferId from, std::int64_t bytes, int layer) {
    Step step;
    step.kind = StepKind::all_gather;
    step.reads = {ref(from)};
    step.writes = {ref(buffer(Pool::arena, bytes))};
    step.layer = layer;
    list.steps.push_back(step);
    return step.writes[0];
  };
  auto const use = [&](std::vector<Ref> const& of, int layer) {
    Step step;
    step.kind = StepKind::custom;
    for (Ref const& one : of) step.reads.push_back(one);
    step.writes = {ref(buffer(Pool::arena, 8))};
    step.layer = layer;
    list.steps.push_back(step);
  };
  auto const layer = [&](int l) {
    std::vector<Ref> gathered;
    for (int i = 0; i < parameters; ++i)
      gathered.push_back(gather(states[static_cast<std::size_t>(l * parameters + i)], 64, l));
    use(gathered, l);
  };
  for (int l = 0; l < layers; ++l) layer(l);
  if (head > 0) use({gather(buffer(Pool::state, head / 2), head, -1)}, -1);
  for (int l = layers; l-- > 0;) layer(l);
  return list;
}
std::string written(StepList const& list) {
  std::string text;
  for (Step const& step : list.steps)
    text += step.kind == StepKind::custom            ? concat("use", step.layer, " ")
            : step.kind == StepKind::all_gather_wait ? concat("wait", step.slot, " ")
            : step.slot >= 0                         ? concat("begin", step.slot, ":", step.layer, " ")
                                                     : concat("gather:", step.layer, " ");
  return text;
}

}  // namespace

TEST_CASE("a layer's parameters are gathered while the layer before is computed, forward and backward") {
  StepList list = model(3, 1, 0);
  lowering::start_gathers_early(list);
  CHECK(written(list) ==
        "gather:0 begin0:1 use0 wait0 begin1:2 use1 wait1 begin2:2 use2 wait2 begin3:1 use2 wait3 begin4:0 use1 wait4 "
        "use0 ");
}

TEST_CASE("what is on its way is never more than one layer, and comes in the order of its use") {
  for (int parameters : {1, 2, 5})
    for (std::int64_t head : {std::int64_t{0}, std::int64_t{64}, std::int64_t{4096}}) {
      StepList list = model(4, parameters, head);
      std::size_t const before = list.steps.size();
      lowering::start_gathers_early(list);
      INFO(written(list));
      std::int64_t flying = 0;
      std::int32_t begun = 0, waited = 0;
      std::size_t early = 0;
      for (std::size_t s = 0; s < list.steps.size(); ++s) {
        Step const& step = list.steps[s];
        if (step.kind == StepKind::all_gather && step.slot >= 0) {
          CHECK(step.slot == begun++);
          flying += step.writes[0].bytes();
          ++early;
        }
        if (step.kind == StepKind::all_gather_wait) {
          CHECK(step.slot == waited++);
          flying -= step.reads[0].bytes();
        }
        CHECK(flying <= 64 * parameters);
        if (step.kind == StepKind::custom)  // what it reads has come
          for (Ref const& ref : step.reads) {
            bool here = false;
            for (std::size_t t = 0; t < s; ++t) {
              Step const& other = list.steps[t];
              here |= other.kind == StepKind::all_gather_wait && other.reads[0].buffer == ref.buffer;
              here |= other.kind == StepKind::all_gather && other.slot < 0 && other.writes[0].buffer == ref.buffer;
            }
            CHECK(here);
          }
      }
      CHECK(flying == 0);
      CHECK(list.steps.size() == before + early);
      CHECK(early >=
            static_cast<std::size_t>(7 * parameters));  // all but the first layer's, and a head that is too large
    }
}

TEST_CASE("a parameter that was just updated is not gathered before, nor what is no parameter") {
  StepList list = model(2, 1, 0);
  Step update;
  update.kind = StepKind::adamw;
  update.writes = {list.steps[2].reads[0]};  // of layer 1
  list.steps[1] = update;
  lowering::start_gathers_early(list);
  CHECK(list.steps[1].kind == StepKind::adamw);
  CHECK(list.steps[2].kind == StepKind::all_gather);
  CHECK(list.steps[2].slot < 0);
  StepList values = model(2, 1, 0);
  for (Buffer& buffer : values.buffers) buffer.pool = Pool::arena;
  std::string const before = written(values);
  lowering::start_gathers_early(values);
  CHECK(written(values) == before);
}

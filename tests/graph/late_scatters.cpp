// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/graph/early_gathers.hpp>
#include <tutti/graph/late_scatters.hpp>

#include "support/catch.hpp"

#include <tutti/core/concat.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

/// A backward pass: from the last layer on each one computes gradients of 64 bytes and scatters their sums, and the
/// parameters are updated at the end. `head`: bytes of a gradient before the layers.
struct Backward {
  StepList list;
  std::vector<Ref> sums;

  Backward(int layers, int parameters, std::int64_t head = 0, graph::MeshAxis axis = graph::MeshAxis::data) {
    if (head > 0) layer(-1, 1, head, axis);
    for (int l = layers; l-- > 0;) layer(l, parameters, 64, axis);
    Step& update = add(StepKind::adamw, -1);
    for (Ref const& sum : sums) update.reads.push_back(sum);
  }

  Ref value(std::int64_t bytes) {
    Buffer one;
    one.pool = Pool::arena;
    one.bytes = bytes;
    return contiguous_ref(list.add(one), 0, DType::float32, Shape{bytes / 4});
  }
  Step& add(StepKind kind, int layer) {
    Step step;
    step.kind = kind;
    step.layer = layer;
    list.steps.push_back(step);
    return list.steps.back();
  }
  void layer(int number, int parameters, std::int64_t bytes, graph::MeshAxis axis) {
    std::vector<Ref> gradients;
    for (int i = 0; i < parameters; ++i) gradients.push_back(value(bytes));
    Step& compute = add(StepKind::custom, number);
    for (Ref const& gradient : gradients) compute.writes.push_back(gradient);
    for (Ref const& gradient : gradients) {
      sums.push_back(value(bytes / 2));
      Step& scatter = add(StepKind::reduce_scatter, number);
      scatter.reads = {gradient};
      scatter.writes = {sums.back()};
      scatter.mesh_axis = axis;
    }
  }
};

std::string written(StepList const& list) {
  std::string text;
  for (Step const& step : list.steps)
    text += step.kind == StepKind::custom                ? concat("use", step.layer, " ")
            : step.kind == StepKind::adamw               ? "update "
            : step.kind == StepKind::reduce_scatter_wait ? concat("wait", step.slot, " ")
            : step.slot >= 0                             ? concat("begin", step.slot, ":", step.layer, " ")
                                                         : concat("sum:", step.layer, " ");
  return text;
}

}  // namespace

TEST_CASE("a layer's gradients are summed while those of the layer before are computed") {
  Backward one(3, 1);
  lowering::wait_late_for_scatters(one.list);
  CHECK(written(one.list) == "use2 begin0:2 use1 begin1:1 wait0 use0 begin2:0 wait1 wait2 update ");
  Backward two(2, 2);
  lowering::wait_late_for_scatters(two.list);
  CHECK(written(two.list) == "use1 begin0:1 begin1:1 use0 begin2:0 wait0 begin3:0 wait1 wait2 wait3 update ");
}

TEST_CASE("what is on its way is never more than one layer, and has come before it is read") {
  for (int parameters : {1, 2, 5})
    for (std::int64_t head : {std::int64_t{0}, std::int64_t{64}, std::int64_t{4096}}) {
      Backward model(4, parameters, head);
      StepList& list = model.list;
      lowering::wait_late_for_scatters(list);
      INFO(written(list));
      std::int64_t flying = 0;
      std::int32_t begun = 0, waited = 0;
      std::vector<BufferId> here;
      for (Step const& step : list.steps) {
        std::int64_t const before = flying;
        if (step.kind == StepKind::reduce_scatter && step.slot >= 0) {
          CHECK(step.slot == begun++);
          flying += step.reads[0].bytes();
        } else if (step.kind == StepKind::reduce_scatter) {
          here.push_back(step.writes[0].buffer);
        }
        if (step.kind == StepKind::reduce_scatter_wait) {
          CHECK(step.slot == waited++);
          here.push_back(step.reads[0].buffer);
          flying -= step.reads[1].bytes();
        }
        // The step that begins one too many is followed by the waits for the oldest.
        if (step.kind == StepKind::custom) CHECK(flying <= 64 * parameters);
        CHECK(before <= 64 * parameters + std::max<std::int64_t>(head, 64));
        if (step.kind == StepKind::adamw)
          for (Ref const& ref : step.reads) CHECK(std::count(here.begin(), here.end(), ref.buffer) == 1);
      }
      CHECK(flying == 0);
      CHECK(begun == waited);
      CHECK(begun >= 3 * parameters);
    }
}

TEST_CASE("a sum is waited for before its result is read or written, and before its operand is written") {
  for (int what : {0, 1, 2}) {
    CAPTURE(what);
    Backward model(2, 1);
    StepList& list = model.list;
    Step const scatter = list.steps[1];
    Step next;  // in the place of layer 0's, beside which the sum would go on
    next.kind = StepKind::custom;
    if (what == 0) next.reads = {scatter.writes[0]};
    else next.writes = {what == 1 ? scatter.writes[0] : scatter.reads[0]};
    Step unrelated;
    unrelated.kind = StepKind::custom;
    unrelated.reads = {scatter.reads[0]};  // may be read meanwhile
    list.steps[2] = unrelated;
    list.steps[3] = next;
    lowering::wait_late_for_scatters(list);
    CHECK(written(list) == "use1 begin0:1 use-1 wait0 use-1 update ");
  }
}

TEST_CASE("sums along other axes, which the next step reads, stay as they are, and so does one that nothing follows") {
  Backward tensor(3, 2, 0, graph::MeshAxis::tensor);
  std::string const before = written(tensor.list);
  lowering::wait_late_for_scatters(tensor.list);
  CHECK(written(tensor.list) == before);
  Backward alone(1, 1);
  lowering::wait_late_for_scatters(alone.list);
  CHECK(written(alone.list) == "use0 sum:0 update ");
}

TEST_CASE("what a sum still writes is not gathered early") {
  Backward model(2, 1);
  StepList& list = model.list;
  Buffer state;
  state.pool = Pool::state;
  state.bytes = 32;
  Ref const field = contiguous_ref(list.add(state), 0, DType::float32, Shape{8});
  list.steps[1].writes = {field};  // of layer 1, beside which layer 0 is computed
  Step gather;
  gather.kind = StepKind::all_gather;
  gather.reads = {field};
  gather.writes = {model.value(64)};
  list.steps.back() = gather;
  lowering::wait_late_for_scatters(list);
  lowering::start_gathers_early(list);
  std::int64_t waited = -1;
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    Step const& step = list.steps[s];
    if (step.kind == StepKind::reduce_scatter_wait && step.reads[0].buffer == field.buffer)
      waited = static_cast<std::int64_t>(s);
    if (step.kind == StepKind::all_gather) CHECK(waited >= 0);
  }
  CHECK(waited >= 0);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where products round their operands to bfloat16, values are stored rounded: half of the memory, half of the traffic,
/// and products that read what they need. Source of the policy: Kalamkar et al. 2019 (arXiv 1905.12322).
///
/// A value becomes bfloat16 in memory when a product reads it and every other step that touches it can: results of
/// normalisation, projections, attention, activation functions and their gradients; and when a product writes it for
/// the gradient of a normalisation. The residual stream, its gradient, statistics, gradients of parameters, the loss
/// and the state stay float32; what products read of these is converted once for all of them. Of a field there is a
/// copy that lasts from run to run and that AdamW writes beside the field. Sums and functions are computed in float32
/// as before: only what was rounded at a product is rounded when it is stored, and steps that read such a value beside
/// a product see it rounded.

#include <tutti/core/list.hpp>
#include <tutti/graph/narrow_groups.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/graph/steps.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph::lowering {

class Narrowing {
 public:
  explicit Narrowing(StepList& list) : list_(list) {}

  void run() {
    find_groups();
    narrow();
    convert_operands();
    update_copies();
  }

 private:
  static std::size_t at(std::int64_t index) noexcept { return static_cast<std::size_t>(index); }
  static bool is_product(Step const& step) noexcept { return step.product == DType::bfloat16; }

  // ---- Which values must have one type, and which cannot be bfloat16.

  static Ref read(Step const& step, std::size_t i) { return i < step.reads.size() ? step.reads[i] : Ref{}; }
  static Ref written(Step const& step, std::size_t i) { return i < step.writes.size() ? step.writes[i] : Ref{}; }

  void find_groups() {
    std::size_t const count = list_.buffers.size();
    groups_ = NarrowGroups(count);
    from_product_.assign(count, false);
    for (std::size_t id = 0; id < count; ++id) {
      Buffer const& buffer = list_.buffers[id];
      if (buffer.pool != Pool::arena || buffer.part_of >= 0 || buffer.over >= 0) groups_.fix(static_cast<BufferId>(id));
      for (BufferId const other : {buffer.part_of, buffer.over})
        if (other >= 0) groups_.fix(other);
    }
    for (Step const& step : list_.steps) {
      for (auto const* refs : {&step.reads, &step.writes})
        for (Ref const& ref : *refs)
          if (ref && ref.dtype != DType::float32) groups_.fix(ref);
      constrain(step);
    }
  }
  void constrain(Step const& step) {
    auto const fix_all = [&] {
      for (auto const* refs : {&step.reads, &step.writes})
        for (Ref const& ref : *refs) groups_.fix(ref);
    };
    auto const fix_reads = [&](std::size_t first) {
      for (std::size_t i = first; i < step.reads.size(); ++i) groups_.fix(step.reads[i]);
    };
    auto const fix_writes = [&](std::size_t first) {
      for (std::size_t i = first; i < step.writes.size(); ++i) groups_.fix(step.writes[i]);
    };
    switch (step.kind) {
      case StepKind::elementwise:
        if (step.registers != DType::float32) fix_all();
        return;
      case StepKind::fill: return;
      case StepKind::copy:
        for (std::size_t i = 0; i < step.reads.size(); ++i) groups_.join(step.reads[i], step.writes[i]);
        return;
      case StepKind::gemm:
        if (!is_product(step)) return fix_all();
        from_product_[at(step.writes[0].buffer)] = true;
        groups_.want(step.reads[0]);
        groups_.want(step.reads[1]);
        groups_.fix(read(step, 2));  // what is (M, N) has the type of the result
        groups_.join(step.writes[0], read(step, 3));
        groups_.join(step.writes[0], read(step, 4));
        groups_.join(step.writes[0], written(step, 1));
        groups_.fix(written(step, 2));
        if (written(step, 2)) groups_.fix(step.writes[0]);
        return;
      case StepKind::column_sum: return fix_writes(0);
      // Rows and their gradients are float32; what comes out of a normalisation, or its gradient, is either.
      case StepKind::layer_norm: case StepKind::rms_norm: return fix_reads(0), fix_writes(1);
      // What a product gives to the gradient is the gradient of what it rounded.
      case StepKind::layer_norm_gradient:
      case StepKind::rms_norm_gradient:
        if (from_product_[at(step.reads[0].buffer)]) groups_.want(step.reads[0]);
        return fix_reads(1), fix_writes(0);
      case StepKind::rotary:
        groups_.join(step.reads[0], step.writes[0]);
        return fix_reads(1);
      case StepKind::swiglu: case StepKind::swiglu_gradient:
        for (std::size_t i = 1; i < step.reads.size(); ++i) groups_.join(step.reads[0], step.reads[i]);
        for (Ref const& ref : step.writes) groups_.join(step.reads[0], ref);
        return;
      case StepKind::attention:
        if (!is_product(step)) return fix_all();
        groups_.want(step.reads[0]);
        groups_.join(step.reads[0], step.writes[0]);
        return fix_writes(1);
      case StepKind::attention_gradient:
        if (!is_product(step)) return fix_all();
        groups_.want(step.reads[1]);
        for (std::size_t const i : {std::size_t{0}, std::size_t{2}}) groups_.join(step.reads[1], step.reads[i]);
        groups_.join(step.reads[1], step.writes[0]);
        return fix_reads(3);
      case StepKind::linear_cross_entropy:
        if (!is_product(step)) return fix_all();
        groups_.want(step.reads[0]);
        groups_.join(step.reads[0], written(step, 1));
        groups_.fix(step.reads[1]);
        groups_.fix(step.writes[0]);
        return fix_writes(2);
      default: return fix_all();
    }
  }

  // ---- The values themselves.

  static void retype(Ref& ref) {
    ref.dtype = DType::bfloat16;
    ref.offset /= 2;  // bytes
  }
  void narrow() {
    for (std::size_t id = 0; id < list_.buffers.size(); ++id)
      if (groups_.is_narrow(static_cast<BufferId>(id))) list_.buffers[id].bytes /= 2;
    for (Step& step : list_.steps)
      for (auto* refs : {&step.reads, &step.writes})
        for (Ref& ref : *refs)
          if (ref && groups_.is_narrow(ref.buffer)) retype(ref);
  }

  // ---- What products read of float32 values, converted once.

  /// Operands that a step takes in bfloat16.
  std::array<bool, 3> takes_narrow(Step const& step) const {
    // A bias has the type of the result; one that was computed is rounded by the kernel.
    if (step.kind == StepKind::gemm && is_product(step))
      return {true, true, step.writes[0].dtype == DType::bfloat16 && is_field(read(step, 2))};
    // The weight has the type of x.
    if (step.kind == StepKind::linear_cross_entropy) return {false, step.reads[0].dtype == DType::bfloat16, false};
    return {};
  }
  bool is_field(Ref const& ref) const {
    return ref && list_[ref.buffer].pool == Pool::state && list_[ref.buffer].part_of < 0 && list_[ref.buffer].over < 0;
  }
  void convert_operands() {
    twin_.assign(list_.buffers.size(), -1);
    List<Step> steps;
    for (Step& step : list_.steps) {
      std::array<bool, 3> const takes = takes_narrow(step);
      for (std::size_t i = 0; i < takes.size(); ++i) {
        if (!takes[i] || step.reads[i].dtype != DType::float32 || step.reads[i].shape.size() == 0) continue;
        Ref& ref = step.reads[i];
        BufferId const id = ref.buffer;
        // A part, or what takes another's place, is not a value of its own: the kernel converts it.
        if (list_[id].part_of >= 0 || list_[id].over >= 0) {
          if (step.kind == StepKind::linear_cross_entropy) convert_alone(step, steps, ref);
          continue;
        }
        if (twin_[at(id)] < 0) {
          std::int64_t const count = list_[id].bytes / 4;
          twin_[at(id)] = list_.add({.pool = is_field(ref) ? Pool::state : Pool::arena, .bytes = 2 * count});
          if (is_field(ref)) {
            Entry copy = list_.fields[at(list_[id].entry)];
            copy.dtype = DType::bfloat16;
            copy.buffer = twin_[at(id)];
            list_[copy.buffer].entry = list_[id].entry;
            list_.copies.push_back(std::move(copy));
          } else {
            steps.push_back(conversion(step, contiguous_ref(id, 0, DType::float32, {count}),
                                       contiguous_ref(twin_[at(id)], 0, DType::bfloat16, {count})));
          }
        }
        ref.buffer = twin_[at(id)];
        retype(ref);
      }
      steps.push_back(std::move(step));
    }
    list_.steps = std::move(steps);
  }
  void convert_alone(Step const& step, List<Step>& steps, Ref& ref) {
    Ref const to = contiguous_ref(list_.add({.pool = Pool::arena, .bytes = 2 * ref.shape.size()}), 0, DType::bfloat16,
                                  ref.shape);
    steps.push_back(conversion(step, ref, to));
    ref = to;
  }
  static Step conversion(Step const& reader, Ref const& from, Ref const& to) {
    Step step;
    step.kind = StepKind::elementwise;
    step.reads = {from};
    step.writes = {to};
    step.instructions = {{Op::convert, 0, -1, -1, 0}};
    step.sources = {1};
    step.layer = reader.layer;
    step.node = reader.node;
    step.where = reader.where;
    step.scope = reader.scope;
    return step;
  }

  /// AdamW writes what it updates a second time, where the program reads that.
  void update_copies() {
    for (Step& step : list_.steps) {
      if (step.kind != StepKind::adamw) continue;
      std::size_t const parts = (step.reads.size() - 4) / 4;
      for (std::size_t part = 0; part < parts; ++part) {
        Ref const& parameter = step.reads[4 + 4 * part];
        BufferId const copy = is_field(parameter) ? twin_[at(parameter.buffer)] : -1;
        if (copy < 0) continue;
        step.writes.resize(4 * parts);
        BufferId const written = list_.add({.pool = Pool::state, .bytes = parameter.bytes() / 2, .over = copy,
                                            .offset = parameter.offset / 2});
        step.writes[3 * parts + part] = contiguous_ref(written, 0, DType::bfloat16, parameter.shape);
      }
    }
  }

  StepList& list_;
  NarrowGroups groups_;
  List<BufferId> twin_;      // in bfloat16, of what products read; -1 where there is none
  List<bool> from_product_;  // of values
};

}  // namespace tutti::graph::lowering

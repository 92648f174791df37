// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Fewer passes over memory: elementwise work moves into the epilogue of the kernel that made its operand, and what is
/// left is merged into chains. Both run on unrolled steps, so they see across the borders of layers.

#include <tutti/graph/merged_chain.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/graph/rewrite.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace tutti::graph::lowering {

class EpilogueFusion {
 public:
  explicit EpilogueFusion(StepList& list) : at_(list) {}

  void run() {
    for (std::int32_t s = 0; s < at_.size(); ++s) {
      Step const& step = at_.step(s);
      if (step.kind != StepKind::elementwise || step.instructions.size() != 1 || step.writes.size() != 1) continue;
      if (step.writes[0].dtype != DType::float32 || step.writes[0].shape.size() == 0) continue;
      auto const [op, a, b, c, value] = step.instructions[0];
      if (op == Op::gelu) {
        gelu(s);
      } else if (op == Op::gelu_gradient && a != b) {
        gelu_gradient(s, a, b);
      } else if (op == Op::add && a != b) {
        // The one computed later can take the other, which is there already.
        bool const b_later =
            writer(step.reads[static_cast<std::size_t>(b)]) > writer(step.reads[static_cast<std::size_t>(a)]);
        auto const later = b_later ? b : a, earlier = b_later ? a : b;
        if (!add(s, later, earlier)) add(s, earlier, later);
      }
    }
    at_.compact();
  }

 private:
  std::int32_t writer(Ref const& ref) const { return at_.writer(ref.buffer); }
  bool dense(Ref const& ref) const { return ref.dtype == DType::float32 && ref.contiguous(); }
  Ref const& read(std::int32_t s, std::int16_t index) { return at_.step(s).reads[static_cast<std::size_t>(index)]; }
  /// The step that computes exactly this operand of `s`; -1 where that is not so.
  std::int32_t producer(std::int32_t s, std::int16_t index) {
    Ref const& ref = read(s, index);
    std::int32_t const p = writer(ref);
    return p >= 0 && dense(ref) && at_.is_whole(ref) && at_.step(p).writes[0] &&
                   at_.step(p).writes[0].buffer == ref.buffer
               ? p
               : -1;
  }
  bool plain_gemm(std::int32_t p) {
    Step const& step = at_.step(p);
    return step.kind == StepKind::gemm && step.writes[0].dtype == DType::float32 &&
           step.reads[0].dtype == DType::float32 && step.reads[1].dtype == DType::float32 &&
           step.writes[0].shape.rank() == 2 && !step.reads[3] && !step.reads[4];
  }

  /// `p` with the result of `s` as its first result, at the earliest of the two places where all operands exist.
  template <class Change>
  bool merge(std::int32_t p, std::int32_t s, Ref const* other, Change&& change) {
    bool const ready = other == nullptr || at_.writer(other->buffer) < p;
    if (!ready && !at_.may_sink(p, s)) return false;
    Ref const result = at_.step(s).writes[0];
    at_.detach(p);
    at_.detach(s);
    Step merged = std::move(at_.step(p));
    Ref const shaped = merged.writes[0];
    std::int32_t const place = ready ? p : s;
    merged.writes[0] = contiguous_ref(result.buffer, 0, DType::float32, shaped.shape);
    change(merged, shaped);
    if (merged.where.empty()) merged.where = at_.step(s).where, merged.scope = at_.step(s).scope;
    at_.kill(ready ? s : p);
    at_.step(place) = std::move(merged);
    at_.attach(place);
    return true;
  }

  void gelu(std::int32_t s) {
    std::int32_t const p = producer(s, 0);
    if (p < 0 || !plain_gemm(p) || at_.step(p).gelu) return;
    bool const saved = !at_.read_only_by(read(s, 0).buffer, s);
    merge(p, s, nullptr, [&](Step& step, Ref const& before) {
      step.gelu = true;
      if (saved) step.writes[1] = before;
    });
  }

  void gelu_gradient(std::int32_t s, std::int16_t gradient, std::int16_t x) {
    std::int32_t const p = producer(s, gradient);
    Ref const input = read(s, x);
    if (p < 0 || !plain_gemm(p) || at_.step(p).gelu || !at_.read_only_by(read(s, gradient).buffer, s) || !dense(input))
      return;
    merge(p, s, &input, [&](Step& step, Ref const& before) {
      step.reads[4] = contiguous_ref(input.buffer, input.offset, DType::float32, before.shape);
    });
  }

  bool add(std::int32_t s, std::int16_t computed, std::int16_t other) {
    std::int32_t const p = producer(s, computed);
    Ref const addend = read(s, other);
    if (p < 0 || !dense(addend) || !at_.read_only_by(read(s, computed).buffer, s) ||
        addend.buffer == read(s, computed).buffer)
      return false;
    Step const& step = at_.step(p);
    std::size_t slot = 0;
    if (plain_gemm(p))
      slot = 3;
    else if (step.kind == StepKind::layer_norm_gradient && !step.reads[5])
      slot = 5;
    else if (step.kind == StepKind::rms_norm_gradient && !step.reads[4])
      slot = 4;
    else if (step.kind == StepKind::embedding_gradient && !step.reads[2])
      slot = 2;
    else
      return false;
    return merge(p, s, &addend, [&](Step& merged, Ref const& before) {
      merged.reads[slot] = contiguous_ref(addend.buffer, addend.offset, DType::float32, before.shape);
    });
  }

  Rewriter at_;
};

/// Merges elementwise steps of one shape where one reads the other's result.
class ChainFusion {
 public:
  explicit ChainFusion(StepList& list) : at_(list) {}

  void run() {
    for (std::int32_t s = 0; s < at_.size(); ++s) {
      std::int32_t place = s;
      for (bool changed = true; changed && !at_.dead(place) && at_.step(place).kind == StepKind::elementwise;) {
        changed = false;
        for (Ref const& ref : at_.step(place).reads) {
          std::int32_t const p = at_.writer(ref.buffer);
          if (p < 0 || p >= place || !fusable(p, place, ref)) continue;
          std::int32_t const merged = merge(p, place);
          if (merged < 0) continue;
          place = merged;
          changed = true;
          break;
        }
      }
    }
    at_.compact();
  }

 private:
  bool fusable(std::int32_t p, std::int32_t s, Ref const& ref) {
    Step const& producer = at_.step(p);
    Step const& consumer = at_.step(s);
    if (producer.kind != StepKind::elementwise || !(producer.writes[0].shape == consumer.writes[0].shape)) return false;
    if (producer.registers != consumer.registers) return false;
    for (std::size_t i = 0; i < producer.writes.size(); ++i) {
      if (producer.writes[i].buffer != ref.buffer) continue;
      if (ref.dtype == DType::boolean) {
        auto const inputs = static_cast<std::int16_t>(producer.reads.size());
        if (producer.sources[i] < inputs) return false;
        auto const op = producer.instructions[static_cast<std::size_t>(producer.sources[i] - inputs)].op;
        if (!function_facts(static_cast<Op>(op.number)).truth) return false;
      } else if (ref.dtype != producer.registers) {
        return false;  // storing would have rounded
      }
    }
    // Every use of the producer's results by the consumer must be the result itself, not a transposed or broadcast
    // view.
    for (Ref const& read : consumer.reads)
      for (Ref const& write : producer.writes)
        if (read.buffer == write.buffer && !(at_.is_whole(read) && read.shape == write.shape)) return false;
    return true;
  }

  /// Position of the merged step, -1 when it would be too large or no order allows it.
  std::int32_t merge(std::int32_t p, std::int32_t s) {
    Step const& producer = at_.step(p);
    Step const& consumer = at_.step(s);
    bool hoist = true;
    for (Ref const& read : consumer.reads) hoist &= at_.writer(read.buffer) <= p;
    if (!hoist && !at_.may_sink(p, s)) return -1;

    auto const read_elsewhere = [&](Ref const& ref) {
      bool elsewhere = false;
      for (std::int32_t reader : at_.readers(ref.buffer)) elsewhere |= reader != s;
      return elsewhere;
    };
    std::optional<Step> merged = merged_chain(producer, consumer, read_elsewhere);
    if (!merged) return -1;
    at_.detach(p);
    at_.detach(s);
    std::int32_t const place = hoist ? p : s;
    at_.kill(hoist ? s : p);
    at_.step(place) = std::move(*merged);
    at_.attach(place);
    return place;
  }

  Rewriter at_;
};

}  // namespace tutti::graph::lowering

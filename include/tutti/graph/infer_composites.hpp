// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Types of the results of composites: what each requires of its operands.

#include <tutti/graph/infer.hpp>

#include <cstdint>

namespace tutti::graph::detail {

/// Shape of the first result; `more` gets the types of the others, without their replication.
constexpr Shape composite_shape(Operands const& in, List<Type>& more) {
  Op const op = in.draft.op;
  auto const where = in.where;
  auto const f32 = [&](Shape const& shape) { more.push_back({DType::float32, Replication::replicated, shape}); };
  Shape const& x = in.shape(0);
  switch (op) {
    case Op::linear: {
      in.same_dtype(0, in.count());
      in.floating(0);
      rounded_operands(in);
      Shape const& w = in.shape(1);
      if (x.rank() == 0 || w.rank() != 2 || w[1] != last(x))
        refuse(where, op, "x (..., I) needs a weight (O, I): the last extents must be equal", x, w);
      if (in.count() == 3 && (in.shape(2).rank() != 1 || in.shape(2)[0] != w[0]))
        refuse(where, op, "the bias needs one element per row of the weight", w, in.shape(2));
      return x.with(x.rank() - 1, w[0]);
    }
    case Op::layer_norm:
      in.same_dtype(0, 3);
      in.floating(0);
      if (x.rank() == 0) refuse(where, op, "x must have a last axis to normalise", x);
      in.vector_of(1, last(x), x);
      in.vector_of(2, last(x), x);
      f32(leading(x));
      f32(leading(x));
      return x;
    case Op::layer_norm_gradient:
      in.same_shape(0, 2);
      in.vector_of(2, last(x), x);
      more.push_back(in[2]);
      more.push_back(in[2]);
      return x;
    case Op::rms_norm:
      in.same_dtype(0, 2);
      in.floating(0);
      if (x.rank() == 0) refuse(where, op, "x must have a last axis to normalise", x);
      in.vector_of(1, last(x), x);
      f32(leading(x));
      return x;
    case Op::rms_norm_gradient:
      in.same_shape(0, 2);
      in.vector_of(2, last(x), x);
      more.push_back(in[2]);
      return x;
    case Op::swiglu: case Op::swiglu_gradient:
      in.same_dtype(0, in.count());
      in.floating(0);
      in.same_shape(0, in.count());
      if (x.rank() == 0) refuse(where, op, "gate and up must have shape (..., C)", x);
      if (op == Op::swiglu_gradient) more.push_back(in[2]);
      return x;
    case Op::cumsum:
      if (in.dtype(0) == DType::boolean)
        refuse(where, op, "truth values have no sum; convert them", in.dtype(0), DType::int32);
      if (in.integer(0) < 0 || in.integer(0) >= x.rank())
        refuse(where, op, "the axis must be below the rank of the operand", x);
      return x;
    case Op::dropout:
      in.floating(0);
      in.scalars(1, 5);
      for (int i = 1; i < 5; ++i) in.indices(i);
      return x;
    case Op::rotary: {
      in.same_dtype(0, 3);
      in.floating(0);
      in.same_shape(1, 3);
      Shape const& table = in.shape(1);
      if (x.rank() < 2) refuse(where, op, "x must have shape (..., T, C)", x);
      if (table.rank() != 2 || table[0] != x[x.rank() - 2])
        refuse(where, op, "x (..., T, C) needs rotations (T, head size / 2)", x, table);
      if (table[1] < 1 || last(x) % (2 * table[1]) != 0)
        refuse(where, op, "the channels C of x (..., T, C) must divide by the head size, twice the rotations", x,
               table);
      return x;
    }
    case Op::attention: {
      in.floating(0);
      std::int64_t const heads = in.integer(0), kv_heads = in.integer(1), all = heads + 2 * kv_heads;
      if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
        refuse(where, op, "heads of keys and values must be at least 1 and divide the heads of queries",
               Shape{heads}, Shape{kv_heads});
      if (x.rank() != 3) refuse(where, op, "packed projections must have shape (B, T, (heads + 2 kv heads) size)", x);
      if (x[2] % all != 0)
        refuse(where, op, "the width of packed projections must divide by the heads of Q, K and V together", x,
               Shape{all});
      rounded_operands(in);
      f32(Shape{x[0], heads, x[1]});
      return x.with(2, x[2] / all * heads);
    }
    case Op::attention_gradient: rounded_operands(in); return in.shape(1);
    case Op::embedding: {
      in.indices(0);
      Shape const& table = in.shape(1);
      if (x.rank() != 2) refuse(where, op, "tokens must have shape (B, T), or (..., T) in embed", x);
      if (table.rank() != 2) refuse(where, op, "the table must have shape (V, C)", table);
      if (in.count() == 3) {
        in.same_dtype(1, 3);
        Shape const& positions = in.shape(2);
        if (positions.rank() != 2 || positions[1] != table[1] || positions[0] < x[1])
          refuse(where, op, "positions must have shape (T or more, C): shorter than the tokens' rows or of other width",
                 x, positions);
      }
      return appended(x, table[1]);
    }
    case Op::embedding_gradient: {
      std::int64_t const channels = last(in.shape(1));
      more.push_back({in.dtype(1), Replication::replicated, Shape{in.integer(1), channels}});
      if (in.count() == 3 && in.shape(2) != Shape{in.integer(0), channels})
        refuse(where, op, "the base must have the table's shape", in.shape(2), Shape{in.integer(0), channels});
      return Shape{in.integer(0), channels};
    }
    case Op::cross_entropy:
      in.floating(0);
      in.indices(1);
      if (x.rank() == 0 || leading(x) != in.shape(1))
        refuse(where, op, "logits (..., V) need targets (...): one target per row", x, in.shape(1));
      more.push_back(in[0]);
      f32(in.shape(1));
      return Shape{};
    case Op::linear_cross_entropy: {
      in.same_dtype(0, 2);
      in.floating(0);
      in.indices(2);
      rounded_operands(in);
      Shape const& w = in.shape(1);
      if (x.rank() == 0 || w.rank() != 2 || w[1] != last(x))
        refuse(where, op, "x (..., C) needs a weight (V, C): the last extents must be equal", x, w);
      if (in.integer(1) < 1 || in.integer(1) > w[0])
        refuse(where, op, "the vocabulary must be between 1 and the rows of the weight", w, Shape{in.integer(1)});
      if (leading(x) != in.shape(2))
        refuse(where, op, "x (..., C) needs targets (...): one target per row", x, in.shape(2));
      more.push_back(in[0]);
      more.push_back(in[1]);
      f32(in.shape(2));
      return Shape{};
    }
    case Op::square_sum:
      in.floating(0);
      if (in.count() == 2 && (in.shape(1).rank() != 0 || in.dtype(1) != DType::float64))
        refuse(where, op, "the sum so far must be a float64 scalar", in.dtype(1), DType::float64);
      return Shape{};
    case Op::adamw:
      in.same_shape(0, 4);
      in.scalars(4, 8);
      more.push_back(in[2]);
      more.push_back(in[3]);
      return x;
    default: return x;
  }
}

}  // namespace tutti::graph::detail

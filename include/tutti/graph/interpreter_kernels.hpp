// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One naive loop in double per operation, written from the equations alone: the oracle of gradients, decompositions
/// and the executor.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/interpreter_call.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/tensor/random.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

namespace tutti::graph::naive {

/// Of one function of elements.
template <class Of>
void function(Call const& c, Values& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    double const x = c.in(0)[i], y = Of::arity > 1 ? c.in(1)[i] : 0, z = Of::arity > 2 ? c.in(2)[i] : 0;
    if constexpr (requires { Of::reference(c, x); }) out[i] = Of::reference(c, x);
    else if constexpr (requires { Of::reference(c, x, y); }) out[i] = Of::reference(c, x, y);
    else out[i] = kernel::compute_precisely<Of>(Of::attributed ? c.real() : 0, x, y, z);
  }
}
/// Of functions of elements, and of identities.
inline void elementwise(Call const& c, Values& out) {
  Op const op = c.graph.op(c.id);
  if (!is_function(op)) {
    out = c.in(0);
    return;
  }
  with_operation(op, [&]<class Of>() { function<Of>(c, out); });
}

inline Values reduce(Call const& c) {
  bool const maximum = c.graph.op(c.id) == Op::reduce_max;
  auto const lowest = [&] {
    return with_dtype(c.graph.dtype(c.id), [](auto zero) {
      if constexpr (std::is_integral_v<decltype(zero)>)
        return static_cast<double>(std::numeric_limits<decltype(zero)>::lowest());
      else return -std::numeric_limits<double>::infinity();
    });
  };
  Values out(at(c.out().size()), maximum ? lowest() : 0.0);
  auto const axes = c.graph.integers(c.id);
  for_each(c.shape(0), [&](Index const& index, std::int64_t flat) {
    Index kept{};
    int n = 0;
    for (int axis = 0; axis < c.shape(0).rank(); ++axis) {
      bool dropped = false;
      for (std::int64_t reduced : axes) dropped = dropped || reduced == axis;
      if (!dropped) kept[at(n++)] = index[at(axis)];
    }
    double& to = out[position(c.out(), kept)];
    double const x = c.in(0)[at(flat)];
    to = !maximum ? to + x : x > to || std::isnan(x) ? x : to;
  });
  return out;
}

/// An operand of a product, as it is multiplied.
inline Values factors(Call const& c, Values x) {
  if (product_type(c.graph, c.id) == DType::bfloat16)
    for (double& value : x) value = double{float(bfloat16(static_cast<float>(value)))};
  return x;
}

inline Values dot(Call const& c) {
  DotShape const d = dot_shape(c.graph, c.id);
  Values const left = factors(c, c.in(0)), right = factors(c, c.in(1));
  Shape const &a = c.shape(0), &b = c.shape(1);
  List<std::int64_t> contracted;
  for (std::int64_t axis : d.contract_a) contracted.push_back(a[static_cast<int>(axis)]);
  Shape const inner{std::span<std::int64_t const>(contracted)};
  auto const bound = [](std::int64_t axis, std::span<std::int64_t const> x, std::span<std::int64_t const> y) {
    for (std::int64_t other : x) if (other == axis) return true;
    for (std::int64_t other : y) if (other == axis) return true;
    return false;
  };
  Values out(at(c.out().size()));
  for_each(c.out(), [&](Index const& index, std::int64_t flat) {
    Index ia{}, ib{};
    int n = 0;
    for (std::size_t i = 0; i < d.batch_a.size(); ++i) ia[at(d.batch_a[i])] = ib[at(d.batch_b[i])] = index[at(n++)];
    for (int axis = 0; axis < a.rank(); ++axis)
      if (!bound(axis, d.batch_a, d.contract_a)) ia[at(axis)] = index[at(n++)];
    for (int axis = 0; axis < b.rank(); ++axis)
      if (!bound(axis, d.batch_b, d.contract_b)) ib[at(axis)] = index[at(n++)];
    double sum = 0;
    for_each(inner, [&](Index const& k, std::int64_t) {
      for (std::size_t i = 0; i < d.contract_a.size(); ++i) ia[at(d.contract_a[i])] = ib[at(d.contract_b[i])] = k[i];
      sum += left[position(a, ia)] * right[position(b, ib)];
    });
    out[at(flat)] = sum;
  });
  return out;
}

/// Row that an index names, checked.
inline std::size_t row_of(Call const& c, double index, std::int64_t rows) {
  if (!(index >= 0 && index < static_cast<double>(rows)))
    throw Error(ErrorKind::out_of_range, std::string(name(c.graph.op(c.id))),
                "index " + std::to_string(static_cast<std::int64_t>(index)) + " is outside the table of " +
                    std::to_string(rows) + " rows");
  return static_cast<std::size_t>(index);
}

/// Shape operations, gathers and leaves.
inline Values primitive(Call const& c) {
  Op const op = c.graph.op(c.id);
  Shape const& out_shape = c.out();
  Values out(at(out_shape.size()));
  auto const clamped_starts = [&](int first, Shape const& box, Shape const& whole) {
    Index starts{};
    for (int axis = 0; axis < whole.rank(); ++axis)
      starts[at(axis)] = static_cast<std::int64_t>(
          std::clamp<double>(c.in(first + axis)[0], 0, static_cast<double>(whole[axis] - box[axis])));
    return starts;
  };
  switch (op) {
    case Op::constant: out.assign(out.size(), c.real()); break;
    case Op::iota:
      for_each(out_shape,
               [&](Index const& i, std::int64_t flat) { out[at(flat)] = static_cast<double>(i[at(c.integer())]); });
      break;
    case Op::broadcast_in_dim:
      for_each(out_shape, [&](Index const& i, std::int64_t flat) {
        Index from{};
        for (int axis = 0; axis < c.shape(0).rank(); ++axis)
          from[at(axis)] = c.shape(0)[axis] == 1 ? 0 : i[at(c.integer(axis))];
        out[at(flat)] = c.in(0)[position(c.shape(0), from)];
      });
      break;
    case Op::transpose:
      for_each(out_shape, [&](Index const& i, std::int64_t flat) {
        Index from{};
        for (int axis = 0; axis < out_shape.rank(); ++axis) from[at(c.integer(axis))] = i[at(axis)];
        out[at(flat)] = c.in(0)[position(c.shape(0), from)];
      });
      break;
    case Op::slice:
      for_each(out_shape, [&](Index const& i, std::int64_t flat) {
        Index from{};
        int const rank = out_shape.rank();
        for (int axis = 0; axis < rank; ++axis)
          from[at(axis)] = c.integer(axis) + i[at(axis)] * c.integer(2 * rank + axis);
        out[at(flat)] = c.in(0)[position(c.shape(0), from)];
      });
      break;
    case Op::pad:
      out.assign(out.size(), c.real());
      for_each(c.shape(0), [&](Index const& i, std::int64_t flat) {
        Index to{};
        int const rank = out_shape.rank();
        for (int axis = 0; axis < rank; ++axis)
          to[at(axis)] = c.integer(axis) + i[at(axis)] * (c.integer(2 * rank + axis) + 1);
        out[position(out_shape, to)] = c.in(0)[at(flat)];
      });
      break;
    case Op::concatenate: {
      std::int64_t offset = 0;
      for (int part = 0; part < c.count(); ++part) {
        for_each(c.shape(part), [&](Index index, std::int64_t flat) {
          index[at(c.integer())] += offset;
          out[position(out_shape, index)] = c.in(part)[at(flat)];
        });
        offset += c.shape(part)[static_cast<int>(c.integer())];
      }
      break;
    }
    case Op::dynamic_slice: {
      Index const starts = clamped_starts(1, out_shape, c.shape(0));
      for_each(out_shape, [&](Index index, std::int64_t flat) {
        for (int axis = 0; axis < out_shape.rank(); ++axis) index[at(axis)] += starts[at(axis)];
        out[at(flat)] = c.in(0)[position(c.shape(0), index)];
      });
      break;
    }
    case Op::dynamic_update_slice: {
      Index const starts = clamped_starts(2, c.shape(1), out_shape);
      out = c.in(0);
      for_each(c.shape(1), [&](Index index, std::int64_t flat) {
        for (int axis = 0; axis < out_shape.rank(); ++axis) index[at(axis)] += starts[at(axis)];
        out[position(out_shape, index)] = c.in(1)[at(flat)];
      });
      break;
    }
    case Op::gather: {
      std::size_t const width = c.shape(0)[0] == 0 ? 0 : c.in(0).size() / at(c.shape(0)[0]);
      for (std::size_t i = 0; i < c.in(1).size(); ++i)
        for (std::size_t k = 0, row = row_of(c, c.in(1)[i], c.shape(0)[0]); k < width; ++k)
          out[i * width + k] = c.in(0)[row * width + k];
      break;
    }
    case Op::scatter_add: {
      std::size_t const width = out_shape[0] == 0 ? 0 : c.in(0).size() / at(out_shape[0]);
      out = c.in(0);
      for (std::size_t i = 0; i < c.in(1).size(); ++i)
        for (std::size_t k = 0, row = row_of(c, c.in(1)[i], out_shape[0]); k < width; ++k)
          out[row * width + k] += c.in(2)[i * width + k];
      break;
    }
    case Op::rng_bits: {
      auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
      std::uint64_t const seed = word(c.in(0)[0]), first = c.count() > 3 ? word(c.in(3)[0]) : 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint64_t const position = first + i, block = position / 4;
        out[i] = philox4x32({low(block), low(block >> 32), low(word(c.in(1)[0])), low(word(c.in(2)[0]))},
                            {low(seed), low(seed >> 32)})[position % 4];
      }
      break;
    }
    case Op::reduce_sum: case Op::reduce_max: return reduce(c);
    case Op::dot_general: return dot(c);
    default: elementwise(c, out); break;
  }
  return out;
}

}  // namespace tutti::graph::naive

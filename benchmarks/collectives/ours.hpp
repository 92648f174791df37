// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The contender `ours`: a case as a call of `Communicator`.

#include "halo.hpp"
#include "round.hpp"

#include <tutti/comm.hpp>
#include <tutti/comm/window.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace tutti::bench {

/// f(operator of the library); nothing for one that the caller wrote
template <class F>
Call with_op(Op op, F&& f) {
  switch (op) {
    case Op::sum: return f(tutti::sum);
    case Op::prod: return f(tutti::prod);
    case Op::min: return f(tutti::min);
    case Op::max: return f(tutti::max);
    case Op::avg: return f(tutti::avg);
    case Op::callable: break;
  }
  return {};
}

template <class T, class Comm>
Call ours_of(Comm& comm, Case const& c) {
  int const rank = comm.rank(), root = c.root;
  auto const from = [c, rank](Slot const& slot) {
    Operands const o = operands(c, slot, rank);
    return TensorView<T const>(reinterpret_cast<T const*>(o.from), Shape{o.from_count});
  };
  auto const to = [c, rank](Slot const& slot) {
    Operands const o = operands(c, slot, rank);
    return TensorView<T>(reinterpret_cast<T*>(o.to), Shape{o.to_count});
  };
  auto const counts = [&](auto&& of) {
    std::vector<std::int64_t> result;
    for (int r = 0; r < c.ranks && is_ragged(c.collective); ++r) result.push_back(of(r));
    return result;
  };
  auto const rows = counts([&](int r) { return c.rows(r); });
  switch (c.collective) {
    case Collective::barrier: return [&comm](Slot const&) { comm.barrier(); };
    case Collective::gather_v:
      return [&comm, from, to, rows, root](Slot const& s) { comm.gather_v(from(s), to(s), rows, root); };
    case Collective::all_gather_v:
      return [&comm, from, to, rows](Slot const& s) { comm.all_gather_v(from(s), to(s), rows); };
    case Collective::scatter_v:
      return [&comm, from, to, rows, root](Slot const& s) { comm.scatter_v(from(s), to(s), rows, root); };
    case Collective::all_to_all_v: {
      auto const exchanged = counts([&](int r) { return c.exchanged(rank, r); });
      return [&comm, from, to, exchanged](Slot const& s) { comm.all_to_all_v(from(s), to(s), exchanged, exchanged); };
    }
    case Collective::reduce_scatter_v:
      return with_op(c.op, [&](auto op) -> Call {
        return [&comm, from, to, rows, op](Slot const& s) { comm.reduce_scatter_v(from(s), to(s), rows, op); };
      });
    case Collective::scan:
      return with_op(c.op, [&](auto op) -> Call {
        if (c.in_place) return [&comm, to, op](Slot const& s) { comm.scan(to(s), op); };
        return [&comm, from, to, op](Slot const& s) { comm.scan(from(s), to(s), op); };
      });
    case Collective::exscan:
      return with_op(c.op, [&](auto op) -> Call {
        if (c.in_place) return [&comm, to, op](Slot const& s) { comm.exscan(to(s), op); };
        return [&comm, from, to, op](Slot const& s) { comm.exscan(from(s), to(s), op); };
      });
    case Collective::all_reduce_contributions:
      return with_op(c.op, [&](auto op) -> Call {
        return [&comm, from, to, op, c](Slot const& s) {
          comm.all_reduce_contributions(from(s).reshape({contributions, c.block}), to(s), op);
        };
      });
    case Collective::broadcast: return [&comm, to, root](Slot const& s) { comm.broadcast(to(s), root); };
    case Collective::gather: return [&comm, from, to, root](Slot const& s) { comm.gather(from(s), to(s), root); };
    case Collective::all_gather: return [&comm, from, to](Slot const& s) { comm.all_gather(from(s), to(s)); };
    case Collective::scatter: return [&comm, from, to, root](Slot const& s) { comm.scatter(from(s), to(s), root); };
    case Collective::all_to_all: return [&comm, from, to](Slot const& s) { comm.all_to_all(from(s), to(s)); };
    case Collective::send_recv: {
      int const next = (rank + 1) % comm.size(), previous = (rank + comm.size() - 1) % comm.size();
      return [&comm, from, to, next, previous](Slot const& s) { comm.send_recv(from(s), next, to(s), previous); };
    }
    case Collective::ping_pong: {
      int const partner = rank ^ 1;
      if (partner >= comm.size()) return [](Slot const&) {};
      if (rank < partner)
        return [&comm, from, to, partner](Slot const& s) {
          comm.send(from(s), partner);
          comm.recv(to(s), partner);
        };
      return [&comm, to, partner](Slot const& s) {
        comm.recv(to(s), partner);
        comm.send(to(s), partner);
      };
    }
    case Collective::put: {
      auto const there = std::make_shared<decltype(window<T>(comm, c.block))>(window<T>(comm, c.block));
      int const next = (rank + 1) % comm.size();
      return [there, from, to, next](Slot const& s) {
        there->put(from(s), next);
        there->fence();
        copy(there->part(), to(s));
      };
    }
    case Collective::halo:
      if constexpr (!std::is_floating_point_v<T>) return {};
      else
        return [&comm, c, rank](Slot const& s) {
          Operands const o = operands(c, s, rank);
          std::int64_t const columns = c.block, last = c.grid_rows() - 1;
          auto const row = [&](std::int64_t i) {
            return TensorView<T>(reinterpret_cast<T*>(o.from) + i * columns, Shape{columns});
          };
          if (rank > 0) comm.send_recv(row(0), rank - 1, row(-1), rank - 1);
          if (rank < c.ranks - 1) comm.send_recv(row(last), rank + 1, row(last + 1), rank + 1);
          step_of_heat<T>(c, o, rank);
        };
    case Collective::reduce:
      return with_op(c.op, [&](auto op) -> Call {
        if (c.in_place) return [&comm, to, op, root](Slot const& s) { comm.reduce(to(s), op, root); };
        return [&comm, from, to, op, root](Slot const& s) { comm.reduce(from(s), to(s), op, root); };
      });
    case Collective::all_reduce:
      if (c.op == Op::callable) {
        auto const plus = [](T a, T b) { return static_cast<T>(a + b); };
        if (c.in_place) return [&comm, to, plus](Slot const& s) { comm.all_reduce(to(s), plus); };
        return [&comm, from, to, plus](Slot const& s) { comm.all_reduce(from(s), to(s), plus); };
      }
      return with_op(c.op, [&](auto op) -> Call {
        if (c.in_place) return [&comm, to, op](Slot const& s) { comm.all_reduce(to(s), op); };
        return [&comm, from, to, op](Slot const& s) { comm.all_reduce(from(s), to(s), op); };
      });
    case Collective::reduce_scatter:
      return with_op(c.op, [&](auto op) -> Call {
        return [&comm, from, to, op](Slot const& s) { comm.reduce_scatter(from(s), to(s), op); };
      });
  }
  return {};
}

template <class Comm>
Call ours(Comm& comm, Case const& c) {
  return with_type(c.dtype, [&](auto zero) { return ours_of<decltype(zero)>(comm, c); });
}

}  // namespace tutti::bench

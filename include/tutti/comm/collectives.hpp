// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The collectives with blocks of one size, as a part of `Communicator`.

#include <tutti/comm/endpoint.hpp>

#include <cstdint>
#include <utility>

namespace tutti::comm {

/// See `Communicator` for what holds for all of them. A number that can be changed is changed in place, as buffers are;
/// of a constant or temporary one the result is returned, and the forms `*_value` return it of any (ADR 0016). A
/// reduction has a default operator so that one without gets a sentence and not a list of candidates; a buffer in its
/// place is the second buffer.
template <Backend B>
class Collectives {
  using Device = typename B::Device;
  using Where = CallSite;

 public:
  /// Returns when every rank has called it.
  void barrier(Where where = std::source_location::current()) {
    self().template run<Kind::barrier>(NoOperand{}, NoOperand{}, NoOperator{}, -1, where);
  }
  Request<void> barrier_async(Where where = std::source_location::current()) {
    return self().template start<Kind::barrier>(NoOperand{}, NoOperand{}, NoOperator{}, -1, where);
  }

  /// Shapes     x (...) on every rank
  /// Computes   x = x of `root`
  template <Buffer X>
  void broadcast(X&& x, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::broadcast>(NoOperand{}, operand_of(x), NoOperator{}, root, where);
  }
  template <Variable T>
  void broadcast(T& value, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::broadcast>(NoOperand{}, comm::one(value), NoOperator{}, root, where);
  }
  template <Value T>
  [[nodiscard]] T broadcast(T const& value, int root = 0, Where where = std::source_location::current()) {
    return broadcast_value(value, root, where);
  }
  template <Value T>
  [[nodiscard]] T broadcast_value(T value, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::broadcast>(NoOperand{}, comm::one(value), NoOperator{}, root, where);
    return value;
  }
  template <Buffer X>
  Request<Received<X>> broadcast_async(X&& x, int root = 0, Where where = std::source_location::current()) {
    return self().template start<Kind::broadcast>(NoOperand{}, operand_of(std::forward<X>(x)), NoOperator{}, root,
                                                  where);
  }

  /// Shapes     x (...) on every rank
  /// Computes   x = x of rank 0 op x of rank 1 op ..., on every rank
  template <Buffer X, NoBuffer Op = NoOperator>
  void all_reduce(X&& x, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::all_reduce>(NoOperand{}, operand_of(x), op, -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void all_reduce(From&& from, To&& to, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::all_reduce>(input_of(from), operand_of(to), op, -1, where);
  }
  template <Variable T, NoBuffer Op = NoOperator>
  void all_reduce(T& value, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::all_reduce>(NoOperand{}, comm::one(value), op, -1, where);
  }
  template <Value T, NoBuffer Op = NoOperator>
  [[nodiscard]] T all_reduce(T const& value, Op const& op = {}, Where where = std::source_location::current()) {
    return all_reduce_value(value, op, where);
  }
  template <Value T, NoBuffer Op = NoOperator>
  [[nodiscard]] T all_reduce_value(T value, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::all_reduce>(NoOperand{}, comm::one(value), op, -1, where);
    return value;
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<Received<X>> all_reduce_async(X&& x, Op op = {}, Where where = std::source_location::current()) {
    return self().template start<Kind::all_reduce>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), -1,
                                                   where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> all_reduce_async(From&& from, To&& to, Op op = {},
                                         Where where = std::source_location::current()) {
    return self().template start<Kind::all_reduce>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                                   std::move(op), -1, where);
  }

  /// A reduction of V contributions of which each rank holds V / P, whose bits do not depend on P: a tree over all V,
  /// in the order of ranks and rows, whose form depends on V alone. Costs V / P times the traffic of all_reduce.
  /// Shapes     x (V / P, ...), result (...); the same V / P on every rank
  /// Computes   result = x[0] of rank 0 op x[1] of rank 0 op ... op x[V / P - 1] of the last rank; avg divides by V
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] TensorOf<X> all_reduce_contributions(X&& x, Op const& op = {},
                                                     Where where = std::source_location::current()) {
    return self().template run<Kind::all_reduce_contributions>(input_of(x), contribution<X>(x, where), op, -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void all_reduce_contributions(From&& from, To&& to, Op const& op = {},
                                Where where = std::source_location::current()) {
    self().template run<Kind::all_reduce_contributions>(input_of(from), operand_of(to), op, -1, where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<TensorOf<X>> all_reduce_contributions_async(X&& x, Op op = {},
                                                      Where where = std::source_location::current()) {
    auto to = contribution<X>(x, where);
    return self().template start<Kind::all_reduce_contributions>(input_of(std::forward<X>(x)), std::move(to),
                                                                 std::move(op), -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> all_reduce_contributions_async(From&& from, To&& to, Op op = {},
                                                       Where where = std::source_location::current()) {
    return self().template start<Kind::all_reduce_contributions>(
        input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), std::move(op), -1, where);
  }

  /// The same result at `root` alone; elsewhere x is unchanged and `to` is not touched.
  template <Buffer X, NoBuffer Op = NoOperator>
  void reduce(X&& x, Op const& op = {}, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::reduce>(NoOperand{}, operand_of(x), op, root, where);
  }
  /// Of one number, which only `root` has: there is no form that returns it.
  template <Variable T, NoBuffer Op = NoOperator>
  void reduce(T& value, Op const& op = {}, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::reduce>(NoOperand{}, comm::one(value), op, root, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void reduce(From&& from, To&& to, Op const& op = {}, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::reduce>(input_of(from), operand_of(to), op, root, where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<Received<X>> reduce_async(X&& x, Op op = {}, int root = 0, Where where = std::source_location::current()) {
    return self().template start<Kind::reduce>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), root, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> reduce_async(From&& from, To&& to, Op op = {}, int root = 0,
                                     Where where = std::source_location::current()) {
    return self().template start<Kind::reduce>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                               std::move(op), root, where);
  }

  /// Shapes     x (...), result (P, ...) at `root`, (0, ...) elsewhere; `to` counts at `root` alone
  /// Computes   result[r] = x of rank r
  template <Buffer X>
  [[nodiscard]] TensorOf<X> gather(X&& x, int root = 0, Where where = std::source_location::current()) {
    return self().template run<Kind::gather>(
        input_of(x),
        self().result(x, self().stacked("gather", view_of(x).shape(), self().rank(where) == root, where), where),
        NoOperator{}, root, where);
  }
  /// Of one number: shapes (P,) at `root`, (0,) elsewhere.
  template <Value T>
  [[nodiscard]] Tensor<T, Device> gather(T value, int root = 0, Where where = std::source_location::current()) {
    return self().template run<Kind::gather>(
        comm::one(std::as_const(value)),
        self().result(TensorView<T>(), Shape{self().rank(where) == root ? self().size(where) : 0}, where), NoOperator{},
        root, where);
  }
  template <Buffer From, Buffer To>
  void gather(From&& from, To&& to, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::gather>(input_of(from), operand_of(to), NoOperator{}, root, where);
  }
  template <Buffer X>
  Request<TensorOf<X>> gather_async(X&& x, int root = 0, Where where = std::source_location::current()) {
    auto to = self().result(x, self().stacked("gather", view_of(x).shape(), self().rank(where) == root, where), where);
    return self().template start<Kind::gather>(input_of(std::forward<X>(x)), std::move(to), NoOperator{}, root, where);
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> gather_async(From&& from, To&& to, int root = 0,
                                     Where where = std::source_location::current()) {
    return self().template start<Kind::gather>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                               NoOperator{}, root, where);
  }

  /// Shapes     x (...), result (P, ...)
  /// Computes   result[r] = x of rank r, on every rank
  template <Buffer X>
  [[nodiscard]] TensorOf<X> all_gather(X&& x, Where where = std::source_location::current()) {
    return self().template run<Kind::all_gather>(
        input_of(x), self().result(x, self().stacked("all_gather", view_of(x).shape(), true, where), where),
        NoOperator{}, -1, where);
  }
  /// Of one number: shape (P,).
  template <Value T>
  [[nodiscard]] Tensor<T, Device> all_gather(T value, Where where = std::source_location::current()) {
    return self().template run<Kind::all_gather>(comm::one(std::as_const(value)),
                                                 self().result(TensorView<T>(), Shape{self().size(where)}, where),
                                                 NoOperator{}, -1, where);
  }
  template <Buffer From, Buffer To>
  void all_gather(From&& from, To&& to, Where where = std::source_location::current()) {
    self().template run<Kind::all_gather>(input_of(from), operand_of(to), NoOperator{}, -1, where);
  }
  template <Buffer X>
  Request<TensorOf<X>> all_gather_async(X&& x, Where where = std::source_location::current()) {
    auto to = self().result(x, self().stacked("all_gather", view_of(x).shape(), true, where), where);
    return self().template start<Kind::all_gather>(input_of(std::forward<X>(x)), std::move(to), NoOperator{}, -1,
                                                   where);
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> all_gather_async(From&& from, To&& to, Where where = std::source_location::current()) {
    return self().template start<Kind::all_gather>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                                   NoOperator{}, -1, where);
  }

  /// Shapes     from (P, ...) at `root`, ignored elsewhere; to (...)
  /// Computes   to = from[rank] of `root`
  template <Buffer From, Buffer To>
  void scatter(From&& from, To&& to, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::scatter>(input_of(from), operand_of(to), NoOperator{}, root, where);
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> scatter_async(From&& from, To&& to, int root = 0,
                                      Where where = std::source_location::current()) {
    return self().template start<Kind::scatter>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                                NoOperator{}, root, where);
  }

  /// Shapes     x (P * k, ...), result (k, ...)
  /// Computes   result = this rank's k rows of (x of rank 0 op x of rank 1 op ...)
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] TensorOf<X> reduce_scatter(X&& x, Op const& op = {},
                                                          Where where = std::source_location::current()) {
    return self().template run<Kind::reduce_scatter>(
        input_of(x), self().result(x, self().part(view_of(x).shape(), where), where), op, -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void reduce_scatter(From&& from, To&& to, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::reduce_scatter>(input_of(from), operand_of(to), op, -1, where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<TensorOf<X>> reduce_scatter_async(X&& x, Op op = {},
                                                           Where where = std::source_location::current()) {
    auto to = self().result(x, self().part(view_of(x).shape(), where), where);
    return self().template start<Kind::reduce_scatter>(input_of(std::forward<X>(x)), std::move(to), std::move(op), -1,
                                                       where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> reduce_scatter_async(From&& from, To&& to, Op op = {},
                                             Where where = std::source_location::current()) {
    return self().template start<Kind::reduce_scatter>(input_of(std::forward<From>(from)),
                                                       operand_of(std::forward<To>(to)), std::move(op), -1, where);
  }

  /// Shapes     x (P * k, ...), result the same
  /// Computes   block r of the result = this rank's block of rank r's x
  template <Buffer X>
  [[nodiscard]] TensorOf<X> all_to_all(X&& x, Where where = std::source_location::current()) {
    return self().template run<Kind::all_to_all>(input_of(x), self().result(x, view_of(x).shape(), where), NoOperator{},
                                                 -1, where);
  }
  template <Buffer From, Buffer To>
  void all_to_all(From&& from, To&& to, Where where = std::source_location::current()) {
    self().template run<Kind::all_to_all>(input_of(from), operand_of(to), NoOperator{}, -1, where);
  }
  template <Buffer X>
  Request<TensorOf<X>> all_to_all_async(X&& x, Where where = std::source_location::current()) {
    auto to = self().result(x, view_of(x).shape(), where);
    return self().template start<Kind::all_to_all>(input_of(std::forward<X>(x)), std::move(to), NoOperator{}, -1,
                                                   where);
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> all_to_all_async(From&& from, To&& to, Where where = std::source_location::current()) {
    return self().template start<Kind::all_to_all>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                                   NoOperator{}, -1, where);
  }

  /// Shapes     x (...) on every rank
  /// Computes   x = x of rank 0 op ... op x of this rank; with avg, the mean of these ranks
  template <Buffer X, NoBuffer Op = NoOperator>
  void scan(X&& x, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::scan>(NoOperand{}, operand_of(x), op, -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void scan(From&& from, To&& to, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::scan>(input_of(from), operand_of(to), op, -1, where);
  }
  template <Variable T, NoBuffer Op = NoOperator>
  void scan(T& value, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::scan>(NoOperand{}, comm::one(value), op, -1, where);
  }
  template <Value T, NoBuffer Op = NoOperator>
  [[nodiscard]] T scan(T const& value, Op const& op = {}, Where where = std::source_location::current()) {
    return scan_value(value, op, where);
  }
  template <Value T, NoBuffer Op = NoOperator>
  [[nodiscard]] T scan_value(T value, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::scan>(NoOperand{}, comm::one(value), op, -1, where);
    return value;
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<Received<X>> scan_async(X&& x, Op op = {}, Where where = std::source_location::current()) {
    return self().template start<Kind::scan>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> scan_async(From&& from, To&& to, Op op = {}, Where where = std::source_location::current()) {
    return self().template start<Kind::scan>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                             std::move(op), -1, where);
  }

  /// The same without this rank's own: x = x of rank 0 op ... op x of rank - 1. Rank 0, which nothing precedes, keeps
  /// what its result buffer held: give it the neutral element of the operator beforehand. Its number is returned as it
  /// is.
  template <Buffer X, NoBuffer Op = NoOperator>
  void exscan(X&& x, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::exscan>(NoOperand{}, operand_of(x), op, -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void exscan(From&& from, To&& to, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::exscan>(input_of(from), operand_of(to), op, -1, where);
  }
  template <Variable T, NoBuffer Op = NoOperator>
  void exscan(T& value, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::exscan>(NoOperand{}, comm::one(value), op, -1, where);
  }
  template <Value T, NoBuffer Op = NoOperator>
  [[nodiscard]] T exscan(T const& value, Op const& op = {}, Where where = std::source_location::current()) {
    return exscan_value(value, op, where);
  }
  template <Value T, NoBuffer Op = NoOperator>
  [[nodiscard]] T exscan_value(T value, Op const& op = {}, Where where = std::source_location::current()) {
    self().template run<Kind::exscan>(NoOperand{}, comm::one(value), op, -1, where);
    return value;
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<Received<X>> exscan_async(X&& x, Op op = {}, Where where = std::source_location::current()) {
    return self().template start<Kind::exscan>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> exscan_async(From&& from, To&& to, Op op = {}, Where where = std::source_location::current()) {
    return self().template start<Kind::exscan>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                               std::move(op), -1, where);
  }

  // Calls whose arguments none of them takes.
  template <class T = void>
  NotBroadcast<T> broadcast(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> all_reduce(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> gather(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> all_gather(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> scan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> exscan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> all_reduce_contributions(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> reduce(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> scatter(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> reduce_scatter(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> all_to_all(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotBroadcast<T> broadcast_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> all_reduce_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> all_reduce_contributions_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> reduce_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> gather_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> all_gather_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> scatter_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> reduce_scatter_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> all_to_all_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> scan_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> exscan_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});

 private:
  friend class Communicator<B>;
  Collectives() = default;
  Collectives(Collectives&&) = default;
  Collectives& operator=(Collectives&&) = default;
  Communicator<B>& self() noexcept { return static_cast<Communicator<B>&>(*this); }

  template <Buffer X>
  auto contribution(X const& x, Where where) {
    if constexpr (requires { x.moved_from(); })
      if (x.moved_from()) throw_moved("tensor", where);
    Shape const shape = view_of(x).shape();
    int const first = shape.rank() == 0 ? 0 : 1;  // a single number is refused with the other shapes that do not fit
    return self().result(x, Shape::of(shape.begin() + first, shape.rank() - first), where);
  }
};

}  // namespace tutti::comm

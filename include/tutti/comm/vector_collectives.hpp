// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The collectives with a block size for each rank, as a part of `Communicator`.

#include <tutti/comm/endpoint.hpp>
#include <tutti/comm/inferred.hpp>

#include <cstdint>
#include <utility>

namespace tutti::comm {

/// What a collective returns for x, where x lives.
template <Buffer X>
using RaggedOf = Ragged<ValueOf<X>, DeviceOf<X>>;

/// Counts are rows: steps along the first axis, elements of buffers of rank 1. They have 64 bits and stand in rank
/// order, one for each rank; blocks lie one after another. Where the caller knows the counts he passes both buffers;
/// where he does not, the ranks exchange them first and the result is allocated.
/// Requires   a communicating rank knows the counts of both sides: what one rank sends to another is what that one
///            expects. Anything else is an Error (communication), on every rank, by messages between more than 14 to 19
///            ranks on the one that receives.
/// Errors     invalid_argument, unless there is a count for each rank; shape, unless they add up to the buffer.
template <Backend B>
class VectorCollectives {
  using Where = CallSite;
  using Counts = PerRank;

 public:
  /// Shapes     from (k_rank, ...), to (k_0 + k_1 + ..., ...) at `root`, where alone `to` and `counts` are looked at
  /// Computes   block r of `to` = `from` of rank r
  template <Buffer From, Buffer To>
  void gather_v(From&& from, To&& to, Counts counts, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::gather_v>(input_of(from), operand_of(to), NoOperator{}, root, where, {{}, counts});
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> gather_v_async(From&& from, To&& to, Counts counts, int root = 0,
                                       Where where = std::source_location::current()) {
    return self().template start<Kind::gather_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                                 NoOperator{}, root, where, {{}, counts});
  }
  /// The counts are found out; ranks other than the root get no blocks.
  template <Buffer X>
  [[nodiscard]] RaggedOf<X> gather_v(X&& x, int root = 0, Where where = std::source_location::current()) {
    auto const stay = self().held(where).visit("gather_v", where);
    return inferred<Kind::gather_v>(input_of(x), {}, root, where).wait(where);
  }
  template <Buffer X>
  Request<RaggedOf<X>> gather_v_async(X&& x, int root = 0, Where where = std::source_location::current()) {
    return inferred<Kind::gather_v>(input_of(std::forward<X>(x)), {}, root, where);
  }

  /// Shapes     from (k_rank, ...), to (k_0 + k_1 + ..., ...)
  /// Computes   block r of `to` = `from` of rank r, on every rank
  template <Buffer From, Buffer To>
  void all_gather_v(From&& from, To&& to, Counts counts, Where where = std::source_location::current()) {
    self().template run<Kind::all_gather_v>(input_of(from), operand_of(to), NoOperator{}, -1, where, {{}, counts});
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> all_gather_v_async(From&& from, To&& to, Counts counts,
                                           Where where = std::source_location::current()) {
    return self().template start<Kind::all_gather_v>(
        input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{}, -1, where, {{}, counts});
  }
  /// The counts are found out.
  template <Buffer X>
  [[nodiscard]] RaggedOf<X> all_gather_v(X&& x, Where where = std::source_location::current()) {
    auto const stay = self().held(where).visit("all_gather_v", where);
    return inferred<Kind::all_gather_v>(input_of(x), {}, -1, where).wait(where);
  }
  template <Buffer X>
  Request<RaggedOf<X>> all_gather_v_async(X&& x, Where where = std::source_location::current()) {
    return inferred<Kind::all_gather_v>(input_of(std::forward<X>(x)), {}, -1, where);
  }

  /// Shapes     from (k_0 + k_1 + ..., ...) at `root`, where alone `from` and `counts` are looked at; to (k_rank, ...)
  /// Computes   to = block `rank` of `from` of `root`
  template <Buffer From, Buffer To>
  void scatter_v(From&& from, To&& to, Counts counts, int root = 0, Where where = std::source_location::current()) {
    self().template run<Kind::scatter_v>(input_of(from), operand_of(to), NoOperator{}, root, where, {counts, {}});
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> scatter_v_async(From&& from, To&& to, Counts counts, int root = 0,
                                        Where where = std::source_location::current()) {
    return self().template start<Kind::scatter_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                                  NoOperator{}, root, where, {counts, {}});
  }
  /// Each rank finds out its count from the root and gets its rows as a tensor.
  template <Buffer From>
  [[nodiscard]] TensorOf<From> scatter_v(From&& from, Counts counts, int root = 0,
                                         Where where = std::source_location::current()) {
    auto const stay = self().held(where).visit("scatter_v", where);
    return inferred<Kind::scatter_v>(input_of(from), counts, root, where).wait(where);
  }
  template <Buffer From>
  Request<TensorOf<From>> scatter_v_async(From&& from, Counts counts, int root = 0,
                                          Where where = std::source_location::current()) {
    return inferred<Kind::scatter_v>(input_of(std::forward<From>(from)), counts, root, where);
  }

  /// Shapes     x (k_0 + k_1 + ..., ...), result (k_rank, ...); the same counts on every rank
  /// Computes   result = block `rank` of (x of rank 0 op x of rank 1 op ...)
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] TensorOf<X> reduce_scatter_v(X&& x, Counts counts, Op const& op = {},
                                             Where where = std::source_location::current()) {
    return self().template run<Kind::reduce_scatter_v>(input_of(x), own_rows<X>(x, counts, where), op, -1, where,
                                                       {counts, {}});
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  void reduce_scatter_v(From&& from, To&& to, Counts counts, Op const& op = {},
                        Where where = std::source_location::current()) {
    self().template run<Kind::reduce_scatter_v>(input_of(from), operand_of(to), op, -1, where, {counts, {}});
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  Request<TensorOf<X>> reduce_scatter_v_async(X&& x, Counts counts, Op op = {},
                                              Where where = std::source_location::current()) {
    auto to = own_rows<X>(x, counts, where);
    return self().template start<Kind::reduce_scatter_v>(input_of(std::forward<X>(x)), std::move(to), std::move(op), -1,
                                                         where, {counts, {}});
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  Request<Received<To>> reduce_scatter_v_async(From&& from, To&& to, Counts counts, Op op = {},
                                               Where where = std::source_location::current()) {
    return self().template start<Kind::reduce_scatter_v>(
        input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), std::move(op), -1, where, {counts, {}});
  }

  /// Shapes     from (s_0 + s_1 + ..., ...), to (r_0 + r_1 + ..., ...)
  /// Computes   block r of `to` = block `rank` of `from` of rank r
  /// Aliasing   `to` may be `from` where the two counts are equal.
  template <Buffer From, Buffer To>
  void all_to_all_v(From&& from, To&& to, Counts sent, Counts received, Where where = std::source_location::current()) {
    self().template run<Kind::all_to_all_v>(input_of(from), operand_of(to), NoOperator{}, -1, where, {sent, received});
  }
  template <Buffer From, Buffer To>
  Request<Received<To>> all_to_all_v_async(From&& from, To&& to, Counts sent, Counts received,
                                           Where where = std::source_location::current()) {
    return self().template start<Kind::all_to_all_v>(input_of(std::forward<From>(from)),
                                                     operand_of(std::forward<To>(to)), NoOperator{}, -1, where,
                                                     {sent, received});
  }
  /// What the others send is found out.
  template <Buffer From>
  [[nodiscard]] RaggedOf<From> all_to_all_v(From&& from, Counts sent, Where where = std::source_location::current()) {
    auto const stay = self().held(where).visit("all_to_all_v", where);
    return inferred<Kind::all_to_all_v>(input_of(from), sent, -1, where).wait(where);
  }
  template <Buffer From>
  Request<RaggedOf<From>> all_to_all_v_async(From&& from, Counts sent, Where where = std::source_location::current()) {
    return inferred<Kind::all_to_all_v>(input_of(std::forward<From>(from)), sent, -1, where);
  }

  // Calls whose arguments none of them takes.
  template <class T = void>
  NotRagged<T> gather_v(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> gather_v_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> all_gather_v(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> all_gather_v_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> scatter_v(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> scatter_v_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> reduce_scatter_v(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> reduce_scatter_v_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> all_to_all_v(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> all_to_all_v_async(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});

 private:
  friend class Communicator<B>;
  VectorCollectives() = default;
  VectorCollectives(VectorCollectives&&) = default;
  VectorCollectives& operator=(VectorCollectives&&) = default;
  Communicator<B>& self() noexcept { return static_cast<Communicator<B>&>(*this); }

  /// The result of a reduce_scatter_v; with counts for too few ranks an empty one, which the checks of the call refuse.
  template <Buffer X>
  auto own_rows(X const& x, Counts counts, Where where) {
    Shape const shape = view_of(x).shape();
    int const own = self().rank(where);
    bool const known = shape.rank() > 0 && own < counts.size() && counts[own] >= 0;
    return self().result(x, known ? shape.with(0, counts[own], where) : Shape{0}, where);
  }

  template <Kind kind, class From>
  auto inferred(From from, Counts sent, int root, Where where) {
    static_assert(is_here<From, typename B::Device>,
                  "tutti: this buffer lives on another device than the communicator works on. Copy it to the "
                  "communicator's device first");
    auto const stay = self().held(where).visit(name(kind).data(), where);
    CallChecks const checked = self().checks(name(kind).data(), where);
    if constexpr (rooted(kind)) checked.check_rank("root", root);
    if (kind != Kind::scatter_v || self().rank() == root) checked.check_here(from);
    bool const cuts = kind == Kind::all_to_all_v || (kind == Kind::scatter_v && self().rank() == root);
    List<std::int64_t> rows;
    if (cuts) {
      static_cast<void>(checked.blocks(from.shape(), sent));
      rows.append(sent.begin(), sent.end());
    } else if (kind != Kind::scatter_v) {
      static_cast<void>(checked.row_size(from.shape()));
    }
    using Task = InferredTask<B, kind, From>;
    return self().request(make_owner<Task>(*self().core_, std::move(from), std::move(rows), root, where), where);
  }
};

}  // namespace tutti::comm

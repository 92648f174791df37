// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The persistent forms of the collectives, as a part of `Communicator`.

#include <tutti/comm/endpoint.hpp>
#include <tutti/comm/plan.hpp>

#include <cstdint>
#include <utility>

namespace tutti::comm {

/// Shapes, counts, roots and operators as in the collective of the name; what is wrong with them is thrown here and not
/// at the start.
template <Backend B>
class Plans {
  using Counts = PerRank;

 public:
  [[nodiscard]] Plan<B> barrier_plan(CallSite where = std::source_location::current()) {
    return plan<Kind::barrier>(NoOperand{}, NoOperand{}, NoOperator{}, -1, where);
  }
  template <Buffer X>
  [[nodiscard]] Plan<B> broadcast_plan(X&& x, int root = 0,
                                       CallSite where = std::source_location::current()) {
    return plan<Kind::broadcast>(NoOperand{}, operand_of(std::forward<X>(x)), NoOperator{}, root, where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> all_reduce_plan(X&& x, Op op = {},
                                        CallSite where = std::source_location::current()) {
    return plan<Kind::all_reduce>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> all_reduce_plan(From&& from, To&& to, Op op = {},
                                        CallSite where = std::source_location::current()) {
    return plan<Kind::all_reduce>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), std::move(op),
                                  -1, where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> reduce_plan(X&& x, Op op = {}, int root = 0,
                                    CallSite where = std::source_location::current()) {
    return plan<Kind::reduce>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), root, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> reduce_plan(From&& from, To&& to, Op op = {}, int root = 0,
                                    CallSite where = std::source_location::current()) {
    return plan<Kind::reduce>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), std::move(op), root,
                              where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> scan_plan(X&& x, Op op = {}, CallSite where = std::source_location::current()) {
    return plan<Kind::scan>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> scan_plan(From&& from, To&& to, Op op = {},
                                  CallSite where = std::source_location::current()) {
    return plan<Kind::scan>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), std::move(op), -1,
                            where);
  }
  template <Buffer X, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> exscan_plan(X&& x, Op op = {}, CallSite where = std::source_location::current()) {
    return plan<Kind::exscan>(NoOperand{}, operand_of(std::forward<X>(x)), std::move(op), -1, where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> exscan_plan(From&& from, To&& to, Op op = {},
                                    CallSite where = std::source_location::current()) {
    return plan<Kind::exscan>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), std::move(op), -1,
                              where);
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> reduce_scatter_plan(From&& from, To&& to, Op op = {},
                                            CallSite where = std::source_location::current()) {
    return plan<Kind::reduce_scatter>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                      std::move(op), -1, where);
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> gather_plan(From&& from, To&& to, int root = 0,
                                    CallSite where = std::source_location::current()) {
    return plan<Kind::gather>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{}, root,
                              where);
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> all_gather_plan(From&& from, To&& to,
                                        CallSite where = std::source_location::current()) {
    return plan<Kind::all_gather>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{},
                                  -1, where);
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> scatter_plan(From&& from, To&& to, int root = 0,
                                     CallSite where = std::source_location::current()) {
    return plan<Kind::scatter>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{}, root,
                               where);
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> all_to_all_plan(From&& from, To&& to,
                                        CallSite where = std::source_location::current()) {
    return plan<Kind::all_to_all>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{},
                                  -1, where);
  }

  // With a block size for each rank; the plan keeps the counts.

  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> gather_v_plan(From&& from, To&& to, Counts counts, int root = 0,
                                      CallSite where = std::source_location::current()) {
    return plan<Kind::gather_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{},
                                root, where, {{}, counts});
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> all_gather_v_plan(From&& from, To&& to, Counts counts,
                                          CallSite where = std::source_location::current()) {
    return plan<Kind::all_gather_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{},
                                    -1, where, {{}, counts});
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> scatter_v_plan(From&& from, To&& to, Counts counts, int root = 0,
                                       CallSite where = std::source_location::current()) {
    return plan<Kind::scatter_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{},
                                 root, where, {counts, {}});
  }
  template <Buffer From, Buffer To, NoBuffer Op = NoOperator>
  [[nodiscard]] Plan<B> reduce_scatter_v_plan(From&& from, To&& to, Counts counts, Op op = {},
                                              CallSite where = std::source_location::current()) {
    return plan<Kind::reduce_scatter_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)),
                                        std::move(op), -1, where, {counts, {}});
  }
  template <Buffer From, Buffer To>
  [[nodiscard]] Plan<B> all_to_all_v_plan(From&& from, To&& to, Counts sent, Counts received,
                                          CallSite where = std::source_location::current()) {
    return plan<Kind::all_to_all_v>(input_of(std::forward<From>(from)), operand_of(std::forward<To>(to)), NoOperator{},
                                    -1, where, {sent, received});
  }

  // Calls whose arguments none of them takes.
  template <class T = void>
  NotBroadcast<T> broadcast_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> all_reduce_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> reduce_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> scan_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> exscan_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotReduced<T> reduce_scatter_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> gather_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> all_gather_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> scatter_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotMoved<T> all_to_all_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> gather_v_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> all_gather_v_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> scatter_v_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> reduce_scatter_v_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});
  template <class T = void>
  NotRagged<T> all_to_all_v_plan(Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {}, Any = {});

 private:
  friend class Communicator<B>;
  Plans() = default;
  Plans(Plans&&) = default;
  Plans& operator=(Plans&&) = default;
  Communicator<B>& self() noexcept { return static_cast<Communicator<B>&>(*this); }

  template <Kind kind, class From, class To, class Op>
  class Setup final : public PlanSetup<B> {
   public:
    template <class Prepare>
    Setup(From from, To to, Op op, Prepare&& prepare)
        : from_(std::move(from)), to_(std::move(to)), op_(std::move(op)), call_(prepare(from_, to_, op_)) {}
    void load() override {
      from_.load();
      to_.load();
    }
    void store() override { to_.store(); }
    Collective const& call() const noexcept override { return call_.collective; }
    Owner<Job> start(Core<B>& core, Shared<PlanSetup<B>> self) const override {
      if (call_.collective.purpose == Purpose::reached)
        return make_owner<PlanRun<B, CollectiveJob<B>>>(std::move(self), core, call_.collective, call_.counts);
      if constexpr (in_parts<kind, From, To, typename B::Device>) {
        using J = typename Endpoint<B>::template StagedJobOf<From, To>;
        return make_owner<PlanRun<B, J>>(std::move(self), core, name(kind).data(), place_of(from_, to_),
                                         to_.device(), [&] { return call_; });
      } else {
        return make_owner<PlanRun<B, CollectiveJob<B>>>(std::move(self), core, call_.collective, call_.counts);
      }
    }

   private:
    From from_;
    To to_;
    Op op_;
    Call call_;
  };

  /// Not a tensor that is moved in, which nobody could read or refill.
  template <class X>
  static constexpr bool lasts = X::borrows || std::is_same_v<X, NoOperand>;

  /// Plan<B>. Not named: clang then tells of a mistake in fewer lines, as it does for Endpoint::run.
  template <Kind kind, class From, class To, class Op>
  auto plan(From from, To to, Op op, int root, CallSite where, Rows rows = {}) {
    static_assert(lasts<From> && lasts<To>,
                  "tutti: a plan borrows its buffers. Keep the tensor in a variable and pass it by reference");
    static_cast<void>(self().held(where));
    auto setup = make_shared_owner<Setup<kind, From, To, Op>>(
        std::move(from), std::move(to), std::move(op),
        [&](From& f, To& t, Op const& o) {
          if constexpr (is_reached<B, From, To>)
            if (reaches<kind>(*self().core_, f, t, o, root, rows, where))
              return prepare_reached<kind>(*self().core_, f, t, o, root, rows, where);
          return prepare<kind>(*self().core_, f, t, o, root, rows, where);
        });
    return Plan<B>(self().core_, std::move(setup), where.deadline_seconds());
  }
};

}  // namespace tutti::comm

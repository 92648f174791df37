// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective as a task of a request: its call, its buffers and its operator in one place.

#include <tutti/comm/collective_job.hpp>
#include <tutti/comm/request.hpp>

#include <string>
#include <utility>

namespace tutti::comm {

/// A collective with everything it needs until it is done. `J` is the job that carries it out.
template <class J, class From, class To, class Op>
class CollectiveTask final : public Task<typename To::Result> {
 public:
  using Result = typename To::Result;
  template <class Start>
  CollectiveTask(char const* operation, From from, To to, Op op, Start&& start)
      : Task<Result>(operation),
        from_(std::move(from)),
        to_(std::move(to)),
        op_(std::move(op)),
        job_(start(from_, to_, op_)) {}

  bool abandon() noexcept override { return job_.give_up(); }
  bool borrows() const noexcept override { return From::borrows || To::borrows; }
  bool lent() const noexcept override { return job_.lent(); }
  std::string awaiting() const override { return job_.awaiting(); }
  bool collective() const noexcept override { return true; }
  Result take() override { return to_.take(); }

 protected:
  bool advance() override {
    if (!job_.poll()) return false;
    to_.store();
    return true;
  }

 private:
  From from_;
  To to_;
  Op op_;
  J job_;
};

}  // namespace tutti::comm

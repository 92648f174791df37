// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operations in flight as their owners see them: `Request<Result>`.

#include <tutti/comm/call_site.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <exception>
#include <source_location>
#include <string>
#include <utility>

namespace tutti {
namespace comm {

/// Something under way that polling moves on, with the memory it needs.
class Job {
 public:
  explicit Job(char const* operation) noexcept : operation_(operation) {}
  Job(Job const&) = delete;
  Job& operator=(Job const&) = delete;
  virtual ~Job() = default;

  /// True once complete, and from then on. Rethrows what went wrong.
  template <class = void>
  bool poll() {
    if (!poll_quietly()) return false;
    if (done_) return true;
    if (failure_) std::rethrow_exception(failure_);
    throw Error(ErrorKind::revoked, operation_, "the operation was given up after an earlier error");
  }
  /// Keeps an exception for the next `poll`. True when there is nothing left to do.
  template <class = void>
  bool poll_quietly() noexcept {
    if (done_ || failure_ || given_up_) return true;
    try {
      done_ = advance();
    } catch (...) {
      failure_ = std::current_exception();
    }
    return done_ || failure_;
  }
  /// Keeps an exception for the next `poll`, where what was started before it is given up too.
  void postpone(std::exception_ptr failure = std::current_exception()) noexcept { failure_ = std::move(failure); }
  /// Gives up, once. True when nobody will touch the job's memory any more; otherwise it must never be freed.
  bool give_up() noexcept {
    if (!given_up_) safe_ = abandon();
    given_up_ = true;
    return safe_;
  }
  bool given_up() const noexcept { return given_up_; }
  bool safe() const noexcept { return safe_; }
  bool done() const noexcept { return done_; }
  /// Whether the next `poll` throws, and what.
  bool failed() const noexcept { return failure_ != nullptr; }
  std::exception_ptr failure() const noexcept { return failure_; }
  /// True once, after it has failed: for who tells others.
  template <class = void>
  bool news() noexcept {
    if (!failed() || told_) return false;
    told_ = true;
    return true;
  }
  virtual bool abandon() noexcept = 0;
  /// Whether it works on memory that it does not own.
  virtual bool borrows() const noexcept { return true; }
  /// For one whose owner goes away: gives up a receive, which nobody asks for any more and which would write into
  /// memory of the caller later, unless a message is there for it, which it then receives. True when something was
  /// given up; what is left of the job may go on.
  virtual bool cancel() noexcept { return false; }
  /// At its deadline: takes back what nobody has received, so that the next poll is the last word.
  virtual void withdraw() noexcept {}
  /// Whether memory of the caller travels, and not a copy.
  virtual bool lent() const noexcept { return false; }
  /// Who or what it waits for.
  virtual std::string awaiting() const = 0;
  /// What other ranks are told of it behind its place: " for tag 3 from rank 1".
  virtual std::string wanted() const { return {}; }
  /// Whether all ranks take part, so that its failure is everybody's.
  virtual bool collective() const noexcept { return false; }
  char const* operation() const noexcept { return operation_; }
  /// Of its wait; 0 where the communicator's holds.
  double deadline_seconds() const noexcept { return deadline_seconds_; }
  void set_deadline_seconds(double seconds) noexcept { deadline_seconds_ = seconds; }

 protected:
  virtual bool advance() = 0;

 private:
  char const* operation_;
  double deadline_seconds_ = 0;
  bool done_ = false;
  bool given_up_ = false;
  bool safe_ = true;
  bool told_ = false;
  std::exception_ptr failure_;
};

/// A job with a result, which is taken once.
template <class Result>
class Task : public Job {
 public:
  using Job::Job;
  virtual Result take() = 0;
};

/// What a request needs of its communicator.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void enlist(Job& job) = 0;
  virtual void dismiss(Job& job) noexcept = 0;
  virtual bool test(Job& job, std::source_location where) = 0;
  virtual void wait(Job& job, CallSite where) = 0;
  virtual void adopt(Owner<Job> job) noexcept = 0;
  /// Of waits that say nothing else.
  virtual double deadline_seconds() const noexcept = 0;
};

}  // namespace comm

/// An operation in flight. It owns what was moved into it; what was passed as a view or an lvalue must stay alive and
/// untouched until it is complete, also when the request is dropped: unfinished, it passes to its communicator, which
/// completes it. A dropped receive is cancelled instead, unless its message is there, which is told when the
/// communicator ends. A `wait` or `test` that is refused, because another thread is in a call or this one may not make
/// it, leaves the request as it was; after any other error it holds nothing. Move-only.
template <class Result>
class [[nodiscard]] Request {
 public:
  Request() = default;
  Request(Shared<comm::Progress> progress, Owner<comm::Task<Result>> task)
      : progress_(std::move(progress)), task_(std::move(task)) {
    progress_->enlist(*task_);
  }
  Request(Request&&) noexcept = default;
  Request& operator=(Request&& other) noexcept {
    if (this == &other) return *this;
    drop();
    progress_ = std::move(other.progress_);
    task_ = std::move(other.task_);
    return *this;
  }
  ~Request() { drop(); }

  /// False of one that was moved from, once the result was taken, and for a default constructed one.
  bool valid() const noexcept { return task_ != nullptr; }
  /// Whether it is complete; also progresses everything else in flight on the communicator. Does not block.
  [[nodiscard]] bool test(std::source_location where = std::source_location::current()) {
    require(where);
    try {
      return progress_->test(*task_, where);
    } catch (...) {
      drop_failed();
      throw;
    }
  }
  /// Blocks within the communicator's deadline, or that of this call (`within`), until it is complete. The result
  /// stays: `wait` hands it over without blocking.
  void complete(CallSite where = std::source_location::current()) {
    require(where);
    try {
      progress_->wait(*task_, where);
    } catch (...) {
      drop_failed();
      throw;
    }
  }
  /// Blocks as `complete` does, and hands over the result.
  Result wait(CallSite where = std::source_location::current()) {
    complete(where);
    progress_->dismiss(*task_);
    auto const task = std::move(task_);
    return task->take();
  }

  /// How long `wait` may take where it is not told; 0 of one that holds no operation.
  double deadline_seconds() const noexcept { return task_ == nullptr ? 0 : progress_->deadline_seconds(); }

 private:
  void require(std::source_location where) const {
    if (task_ == nullptr)
      throw Error(ErrorKind::invalid_argument, "Request",
                  "this request holds no operation: its result was taken, or it was moved from or never set", where);
  }
  /// A call that was refused, as a second thread's is, has touched nothing: the operation is under way as before.
  void drop_failed() noexcept {
    if (task_->given_up()) drop();
  }
  void drop() noexcept {
    if (task_ == nullptr) return;
    progress_->dismiss(*task_);
    progress_->adopt(std::move(task_));
  }

  Shared<comm::Progress> progress_;
  Owner<comm::Task<Result>> task_;
};

}  // namespace tutti

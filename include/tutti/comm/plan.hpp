// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Plan<Backend>`: a collective that is checked and set up once and run many times on the same buffers.

#include <tutti/comm/collective_text.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/comm/collective_job.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <source_location>
#include <utility>

namespace tutti {
namespace comm {

/// Buffers, operator and call of a plan; a run shares it, so that it stays until nobody touches its memory.
template <Backend B>
class PlanSetup {
 public:
  virtual ~PlanSetup() = default;
  virtual void load() = 0;
  virtual void store() = 0;
  virtual Collective const& call() const noexcept = 0;
  /// A run of the call; `self` is this setup.
  virtual Owner<Job> start(Core<B>& core, Shared<PlanSetup> self) const = 0;
};

/// `J` is the job that carries the call out.
template <Backend B, class J>
class PlanRun final : public J {
 public:
  template <class... Arguments>
  explicit PlanRun(Shared<PlanSetup<B>> setup, Arguments&&... arguments)
      : J(std::forward<Arguments>(arguments)...), setup_(std::move(setup)) {}

 protected:
  bool advance() override {
    if (!J::advance()) return false;
    setup_->store();
    return true;
  }

 private:
  Shared<PlanSetup<B>> setup_;
};

}  // namespace comm

/// Made by `Communicator::all_reduce_plan` and its like; no rank communicates for that. The plan borrows its buffers
/// for its whole life and reads them anew at every start. `start` is the collective call, which all ranks make in the
/// same order. Dropped between start and wait, the run passes to the communicator. Move-only.
template <Backend B>
class Plan {
 public:
  using Where = CallSite;

  /// `deadline_seconds` of each start; 0 where the communicator's holds.
  Plan(Shared<comm::Core<B>> core, Shared<comm::PlanSetup<B>> setup, double deadline_seconds) noexcept
      : core_(std::move(core)), setup_(std::move(setup)), deadline_seconds_(deadline_seconds) {}
  Plan(Plan&&) noexcept = default;
  Plan& operator=(Plan&& other) noexcept {
    if (this == &other) return *this;
    drop();
    core_ = std::move(other.core_);
    setup_ = std::move(other.setup_);
    deadline_seconds_ = other.deadline_seconds_;
    run_ = std::move(other.run_);
    return *this;
  }
  ~Plan() { drop(); }

  /// Errors   invalid_argument, when the last start was not waited for, and of a plan that was moved from.
  void start(Where where = std::source_location::current()) {
    check_here("Plan::start", where);
    if (run_ != nullptr)
      throw Error(ErrorKind::invalid_argument, "Plan::start",
                  concat("this plan is under way: ", comm::describe(setup_->call()), ". Wait before starting it again"),
                  where);
    auto const stay = core_->visit("Plan::start", where);
    setup_->load();
    run_ = setup_->start(*core_, setup_);
    run_->set_deadline_seconds(where.deadline_seconds() > 0 ? where.deadline_seconds() : deadline_seconds_);
    core_->enlist(*run_);
  }
  bool started() const noexcept { return run_ != nullptr; }
  /// Whether the run is complete, which `wait` still has to be called for. Does not block.
  /// Errors   invalid_argument, without a start.
  [[nodiscard]] bool test(Where where = std::source_location::current()) {
    require("Plan::test", where);
    try {
      return core_->test(*run_, where);
    } catch (...) {
      drop_failed();
      throw;
    }
  }
  /// Blocks within the communicator's deadline, or that of this call or its start (`within`).
  /// Errors   invalid_argument, without a start.
  void wait(Where where = std::source_location::current()) {
    require("Plan::wait", where);
    try {
      core_->wait(*run_, where);
    } catch (...) {
      drop_failed();
      throw;
    }
    core_->dismiss(*run_);
    run_ = nullptr;
  }

 private:
  void check_here(char const* operation, Where where) const {
    if (setup_ == nullptr)
      throw Error(ErrorKind::invalid_argument, operation, "this plan was moved from. Use the one that it became",
                  where);
  }
  void require(char const* operation, Where where) const {
    check_here(operation, where);
    if (run_ == nullptr)
      throw Error(ErrorKind::invalid_argument, operation,
                  concat("this plan is not under way: ", comm::describe(setup_->call()), ". Call start() first"),
                  where);
  }
  /// As of a Request: what was only refused is under way as before.
  void drop_failed() noexcept {
    if (run_->given_up()) drop();
  }
  void drop() noexcept {
    if (run_ == nullptr) return;
    core_->dismiss(*run_);
    core_->adopt(std::move(run_));
  }

  Shared<comm::Core<B>> core_;
  Shared<comm::PlanSetup<B>> setup_;
  double deadline_seconds_ = 0;
  Owner<comm::Job> run_;
};

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Requests on a job that the test moves on by hand.

#include "support/catch.hpp"

#include <tutti/comm/request.hpp>

#include <memory>
#include <stdexcept>
#include <utility>

using namespace tutti;

namespace {

struct Step {
  int polls = 0;
  int polls_needed = 3;
  bool throws = false;
  bool destroyed = false;
};

class StepTask final : public comm::Task<int> {
 public:
  explicit StepTask(Step& step) : comm::Task<int>("step"), step_(step) {}
  ~StepTask() override { step_.destroyed = true; }
  bool abandon() noexcept override { return true; }
  std::string awaiting() const override { return "steps"; }
  int take() override { return step_.polls; }

 protected:
  bool advance() override {
    ++step_.polls;
    if (step_.throws) throw std::runtime_error("step");
    return step_.polls >= step_.polls_needed;
  }

 private:
  Step& step_;
};

class TestProgress final : public comm::Progress {
 public:
  int enlisted = 0;
  Owner<comm::Job> adopted;
  void enlist(comm::Job&) override { ++enlisted; }
  void dismiss(comm::Job&) noexcept override { --enlisted; }
  bool test(comm::Job& job, std::source_location) override { return job.poll(); }
  void wait(comm::Job& job, CallSite) override {
    while (!job.poll()) {}
  }
  void adopt(Owner<comm::Job> job) noexcept override { adopted = std::move(job); }
  double deadline_seconds() const noexcept override { return 1; }
};

}  // namespace

TEST_CASE("a request that was completed keeps its result until it is waited for") {
  auto const progress = tutti::make_shared_owner<TestProgress>();
  Step step;
  Request<int> request(progress, tutti::make_owner<StepTask>(step));
  CHECK(request.deadline_seconds() == 1);
  request.complete();
  CHECK(request.valid());
  CHECK(request.test());
  CHECK(request.wait() == 3);
  CHECK(progress->enlisted == 0);
  CHECK(request.deadline_seconds() == 0);
  REQUIRE_ERROR(request.complete(), ErrorKind::invalid_argument, "holds no operation");
}

TEST_CASE("a request is tested, waited for once, and then holds nothing") {
  auto const progress = tutti::make_shared_owner<TestProgress>();
  Step step;
  Request<int> request(progress, tutti::make_owner<StepTask>(step));
  CHECK(progress->enlisted == 1);
  CHECK(!request.test());
  CHECK(request.wait() == 3);
  CHECK(!request.valid());
  CHECK(step.destroyed);
  CHECK(progress->enlisted == 0);
  REQUIRE_ERROR(request.wait(), ErrorKind::invalid_argument, "no operation");
}

TEST_CASE("a completed job is not polled again") {
  Step step;
  StepTask task(step);
  while (!task.poll()) {}
  CHECK(task.poll());
  CHECK(step.polls == 3);
}

TEST_CASE("a dropped request passes to its communicator, unfinished") {
  Step step, other;  // outlive what the communicator has adopted
  auto const progress = tutti::make_shared_owner<TestProgress>();
  { Request<int> const request(progress, tutti::make_owner<StepTask>(step)); }
  CHECK(progress->adopted != nullptr);
  CHECK(!step.destroyed);
  Request<int> replaced(progress, tutti::make_owner<StepTask>(other));
  replaced = Request<int>();
  CHECK(!replaced.valid());
  CHECK(!other.destroyed);
  Request<int> moved(std::move(replaced));
  CHECK(!moved.valid());
}

TEST_CASE("a failure noticed in passing is thrown by the job's own wait") {
  Step step;
  step.throws = true;
  StepTask task(step);
  CHECK(task.poll_quietly());
  CHECK_THROWS_AS(task.poll(), std::runtime_error);
  CHECK_THROWS_AS(task.poll(), std::runtime_error);
  CHECK(step.polls == 1);
}

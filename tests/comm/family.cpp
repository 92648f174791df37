// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Who is moved on while one of a family waits.

#include "support/catch.hpp"

#include <tutti/comm/family.hpp>

using namespace tutti;

namespace {

class Counting final : public comm::Relative {
 public:
  explicit Counting(comm::Family& family) : family_(family) { family_.join(*this); }
  Counting(Counting const&) = delete;
  ~Counting() override { family_.leave(*this); }
  void move_on(pthread_t thread) noexcept override {
    ++calls;
    here = ::pthread_equal(thread, ::pthread_self()) != 0;
  }
  void announce_elsewhere(pthread_t thread, std::string const& text) noexcept override {
    announced = text;
    here = ::pthread_equal(thread, ::pthread_self()) != 0;
  }
  void inherit_place(pthread_t thread) noexcept override {
    heir = true;
    here = ::pthread_equal(thread, ::pthread_self()) != 0;
  }
  int calls = 0;
  bool heir = false;
  std::string announced;
  bool here = false;

 private:
  comm::Family& family_;
};

}  // namespace

TEST_CASE("whoever waits moves the others on, and not itself, nor who has left") {
  comm::Family family;
  Counting first(family);
  Counting second(family);
  {
    Counting third(family);
    family.move_others_on(first);
    CHECK(third.calls == 1);
  }
  family.move_others_on(first);
  family.move_others_on(second);
  CHECK(first.calls == 1);
  CHECK(second.calls == 2);
  CHECK(second.here);
}

TEST_CASE("the others announce where whoever waits is") {
  comm::Family family;
  Counting first(family);
  Counting second(family);
  family.announce(first, "barrier");
  CHECK(first.announced.empty());
  CHECK(second.announced == "barrier");
  CHECK(second.here);
  family.leave_place(first);
  CHECK(!first.heir);
  CHECK(second.heir);
}

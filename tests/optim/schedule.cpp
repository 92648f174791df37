// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/optim/schedule.hpp>

#include <cmath>

using tutti::ErrorKind;
using namespace tutti::optim;

TEST_CASE("warm-up rises by equal parts and reaches the peak at its last step") {
  for (ScheduleKind kind : {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    Schedule const s{.kind = kind, .peak = 2.0, .warmup_steps = 4, .total_steps = 100};
    CHECK(s(0) == Approx(0.5));
    CHECK(s(1) == Approx(1.0));
    CHECK(s(3) == Approx(2.0));
    CHECK(s(4) == Approx(2.0).epsilon(1e-3));
  }
}

TEST_CASE("cosine and linear fall to the final fraction, wsd stays flat until its last fifth") {
  Schedule s{.kind = ScheduleKind::cosine, .peak = 1.0, .warmup_steps = 10, .total_steps = 110, .final_fraction = 0.1};
  CHECK(s(60) == Approx(0.55));  // halfway: the mean of peak and floor
  CHECK(s(110) == Approx(0.1));
  CHECK(s(1000) == Approx(0.1));
  s.kind = ScheduleKind::linear;
  CHECK(s(35) == Approx(0.775));
  CHECK(s(110) == Approx(0.1));
  s.kind = ScheduleKind::wsd;
  CHECK(s(87) == 1.0);
  CHECK(s(88) == 1.0);
  CHECK(s(99) == Approx(0.1 + 0.9 * (1 - std::sqrt(0.5))));
  CHECK(s(110) == Approx(0.1));
}

TEST_CASE("a constant schedule ignores warm-up") {
  Schedule const s{.kind = ScheduleKind::constant, .peak = 3e-4, .warmup_steps = 50, .total_steps = 100};
  CHECK(s(0) == 3e-4);
  CHECK(s(99) == 3e-4);
}

TEST_CASE("schedules never rise after warm-up and survive runs shorter than it") {
  for (std::string_view text : schedule_names) {
    Schedule s{
        .kind = schedule_from_name(text), .peak = 1.0, .warmup_steps = 5, .total_steps = 40, .final_fraction = 0.2};
    for (std::int64_t step = 5; step < 60; ++step) CHECK(s(step + 1) <= s(step));
    s.total_steps = 3;
    for (std::int64_t step = 0; step < 10; ++step) CHECK(std::isfinite(s(step)));
  }
}

TEST_CASE("names go there and back, and an unknown one lists the choices") {
  for (std::string_view text : schedule_names) CHECK(name(schedule_from_name(text)) == text);
  REQUIRE_ERROR(schedule_from_name("cosin"), ErrorKind::configuration, "cosine, linear, constant or wsd");
}

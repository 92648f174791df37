// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/console.hpp>

#include <filesystem>
#include <fstream>

using namespace tutti;
using namespace tutti::train;

TEST_CASE("numbers are written for people") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(-1234567) == "-1,234,567");
  CHECK(with_commas(124475904) == "124,475,904");
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(1.5e9) == "1.5 GB");
  CHECK(human_bytes(4e15) == "4000.0 TB");
  CHECK(human_time(59.6) == "1:00");
  CHECK(human_time(3723) == "1:02:03");
}

TEST_CASE("the smoothed value starts at the first and forgets slowly") {
  Smoothed s;
  CHECK(s.empty());
  s.add(100);
  CHECK(s.value() == Approx(100));
  s.add(200);
  CHECK(s.value() == Approx((0.95 * 100 + 200) / 1.95));
  for (int i = 0; i < 500; ++i) s.add(50);
  CHECK(s.value() == Approx(50));
}

TEST_CASE("a step line has everything, and says n/a where the peak is not known") {
  StepReport const r{.step = 7,
                     .steps = 1000,
                     .loss = 3.25,
                     .grad_norm = 0.5,
                     .learning_rate = 3e-4,
                     .ms = 12.5,
                     .exposed_comm_ms = 1.5,
                     .tokens_per_second = 20480,
                     .utilisation = 0.421,
                     .seconds_left = 75};
  CHECK(Console::describe(r) ==
        "step    7/1000  loss 3.2500  norm 0.500  lr 3.00e-04  12.5 ms  mfu 42.1 %  20480 tok/s  waits 1.5 ms  1:15 "
        "left");
  StepReport unknown = r;
  unknown.utilisation = 0;
  CHECK(test::contains(Console::describe(unknown), "mfu n/a"));
}

TEST_CASE("a file gets plain lines: the first ten steps, about a hundred of many, and the last") {
  auto const path = (std::filesystem::temp_directory_path() / ("tutti-console-" + std::to_string(::getpid()))).string();
  {
    Console console(path);
    CHECK(!console.terminal());
    console.table({{"a", "1"}, {"long name", "2"}});
    for (std::int64_t step = 1; step <= 1001; ++step) console.step({.step = step, .steps = 1001});
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  CHECK(line == "a          1");
  std::getline(file, line);
  CHECK(line == "long name  2");
  int count = 0;
  std::string last;
  for (; std::getline(file, line); ++count) {
    CHECK(!test::contains(line, "\r"));
    last = line;
  }
  CHECK(test::contains(last, "step 1001/1001"));
  CHECK(count == 10 + 99 + 1);  // 1 to 10; 20, 30, ... 1000; 1001
  std::filesystem::remove(path);
  REQUIRE_ERROR(Console(std::string("/nonexistent/log")), ErrorKind::io, "/nonexistent/log");
}

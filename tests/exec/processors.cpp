// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/processors.hpp>

#include "support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <string>

using namespace tutti::exec;
using detail::cgroup_quota;

namespace {

/// A folder that looks like /sys/fs/cgroup, removed at the end.
struct Groups {
  std::filesystem::path root;
  Groups() {
    char name[] = "/tmp/tutti-groups-XXXXXX";
    root = ::mkdtemp(name);
  }
  ~Groups() { std::filesystem::remove_all(root); }
  void write(std::string const& path, std::string const& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  int quota(std::string const& own = "0::/\n") const {
    write("own", own);
    return cgroup_quota(root.c_str(), (root / "own").c_str());
  }
};

}  // namespace

TEST_CASE("quotas are rounded up to whole processors") {
  CHECK(detail::quota_of_cpu_max("150000 100000\n") == 2);
  CHECK(detail::quota_of_cpu_max("200000 100000\n") == 2);
  CHECK(detail::quota_of_cpu_max("1000 100000\n") == 1);
  CHECK(detail::quota_of_cpu_max("9223372036854775807 1") == 1 << 20);
}

TEST_CASE("no limit and damaged texts mean no limit") {
  for (char const* text : {"max 100000\n", "", "100000", "0 100000", "-1 100000", "100000 0", "x y", "100000 -5"}) {
    CAPTURE(text);
    CHECK(detail::quota_of_cpu_max(text) == 0);
  }
}

TEST_CASE("the lowest quota on the way from the process's group to the root binds") {
  Groups const groups;
  CHECK(groups.quota() == 0);
  groups.write("user/job/cpu.max", "800000 100000\n");
  groups.write("user/cpu.max", "250000 100000\n");
  CHECK(groups.quota("0::/user/job\n") == 3);
  CHECK(groups.quota("0::/user/job/step\n") == 3);
  CHECK(groups.quota("12:cpu:/other\n0::/user/job\n") == 3);
  CHECK(groups.quota("0::/\n") == 0);
  CHECK(groups.quota("") == 0);
  groups.write("user/job/cpu.max", "max 100000\n");
  CHECK(groups.quota("0::/user/job\n") == 3);
  groups.write("cpu.max", "100000 100000\n");
  CHECK(groups.quota("0::/user/job\n") == 1);
  CHECK(groups.quota("0::/elsewhere\n") == 1);
}

TEST_CASE("version 1 of control groups is understood") {
  Groups const groups;
  groups.write("cpu/cpu.cfs_quota_us", "-1\n");
  groups.write("cpu/cpu.cfs_period_us", "100000\n");
  CHECK(groups.quota() == 0);
  groups.write("cpu/cpu.cfs_quota_us", "350000\n");
  CHECK(groups.quota() == 4);
}

TEST_CASE("very long group paths are cut, not overrun") {
  Groups const groups;
  CHECK(groups.quota("0::/" + std::string(6000, 'a') + "\n") == 0);
}

TEST_CASE("this process has at least one processor and at most those of its mask") {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  CHECK(available_processors() >= 1);
  CHECK(available_processors() <= CPU_COUNT(&mask));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/memory_limit.hpp>

#include "support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <string>

using namespace tutti::exec;

namespace {

/// A folder that looks like /sys/fs/cgroup, removed at the end.
struct Groups {
  std::filesystem::path root;
  Groups() {
    char name[] = "/tmp/tutti-memory-XXXXXX";
    root = ::mkdtemp(name);
  }
  ~Groups() { std::filesystem::remove_all(root); }
  void write(std::string const& path, std::string const& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  std::int64_t limit(std::string const& own, std::int64_t swap = 0) const {
    write("own", own);
    return detail::cgroup_memory(swap, root.c_str(), (root / "own").c_str());
  }
};

}  // namespace

TEST_CASE("the lowest limit on the way from the process's group to the root binds, with the swap it grants") {
  Groups const groups;
  CHECK(groups.limit("0::/\n") == 0);
  groups.write("job/step/memory.max", "3000\n");
  groups.write("job/memory.max", "max\n");
  CHECK(groups.limit("0::/job/step\n") == 3000);
  CHECK(groups.limit("0::/job\n") == 0);
  groups.write("job/memory.max", "2000\n");
  CHECK(groups.limit("0::/job/step\n") == 2000);
  groups.write("job/memory.swap.max", "700\n");
  CHECK(groups.limit("0::/job\n", 500) == 2500);
  CHECK(groups.limit("0::/job\n", 5000) == 2700);
  groups.write("job/memory.swap.max", "max\n");
  CHECK(groups.limit("0::/job\n", 500) == 2500);
  groups.write("job/memory.max", "9223372036854775807\n");
  groups.write("job/step/memory.max", "max\n");
  CHECK(groups.limit("0::/job/step\n", 500) == INT64_MAX);
}

TEST_CASE("limits of version 1 of control groups are understood") {
  Groups const groups;
  groups.write("memory/memory.limit_in_bytes", "4096\n");
  CHECK(groups.limit("") == 4096);
  CHECK(groups.limit("", 100) == 4196);
  groups.write("memory/memory.memsw.limit_in_bytes", "4100\n");
  CHECK(groups.limit("", 100) == 4100);
}

TEST_CASE("this machine has memory") {
  detail::SmallFile const info("/proc/meminfo");
  CHECK(available_memory() > 0);
  CHECK(available_memory() <=
        detail::meminfo_bytes(info.text, "MemTotal:") + detail::meminfo_bytes(info.text, "SwapTotal:"));
  CHECK(detail::meminfo_bytes("MemTotal:       12 kB\nSwapTotal: 3 kB\n", "SwapTotal:") == 3072);
  CHECK(detail::meminfo_bytes("nothing", "MemTotal:") == 0);
}

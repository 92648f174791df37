// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps that IREE runs on processors, in a process of its own. They need a Python with IREE, which
/// TUTTI_IREE_PYTHON names, as `./tutti check --iree` does; without it they are skipped, and say so.
// Covers: <tutti/train/iree/execution.hpp> <tutti/graph/iree/executor.hpp> <tutti/graph/iree/program.hpp>
// Covers: <tutti/graph/iree/peak.hpp> <tutti/train/iree/machine.hpp>
// The machine is exercised by trainer.py, as users run it.
// Covers: <tutti/graph/iree/runner.hpp> <tutti/graph/iree/runner_text.hpp> <tutti/graph/iree/state.hpp>

#include "support/catch.hpp"
#include "train/executor_suite.hpp"

#include <tutti/graph/iree/peak.hpp>
#include <tutti/train/iree/execution.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

using namespace tutti;
using graph::iree::Runner;

namespace {

/// Whether there is IREE; says once that there is not.
bool has_iree() {
  char const* const python = std::getenv("TUTTI_IREE_PYTHON");
  static bool const said = [&] {
    if (python == nullptr)
      std::fprintf(stderr,
                   "SKIPPED: steps by IREE, since TUTTI_IREE_PYTHON names no Python. See ./tutti check --iree\n");
    return true;
  }();
  return said && python != nullptr;
}

/// A cache of compiled modules that all cases of this program share, and nobody else.
struct Cache {
  std::string path = (std::filesystem::temp_directory_path() / ("tutti-iree-" + std::to_string(::getpid()))).string();
  ~Cache() { std::filesystem::remove_all(path); }
};
Cache const& cache() {
  static Cache const one;
  return one;
}
graph::iree::RunnerOptions options(std::string const& device = "llvm-cpu") {
  graph::iree::RunnerOptions made;
  made.device = graph::iree::parse_target_device(device);
  made.cache = cache().path;
  made.threads = 1;
  return made;
}

}  // namespace

TEST_CASE("IREE trains as processors do", "[train][iree]") {
  if (!has_iree()) return;
  Runner runner(options());
  test::ExecutorSuite<Iree>(runner, GENERATE(std::int64_t{1}, std::int64_t{3})).run();
}

TEST_CASE("what IREE multiplies in a second is measured by IREE", "[train][iree]") {
  if (!has_iree()) return;
  Runner runner(options());
  runner.open();
  double const flops = graph::iree::measure_peak_flops(runner, GENERATE(DType::float32, DType::bfloat16), 64);
  CHECK(flops > 1e6);
  CHECK(flops < 1e13);
}

TEST_CASE("a module is compiled once for a text, a device and a compiler", "[train][iree]") {
  if (!has_iree()) return;
  graph::Builder builder;
  graph::Var const x = builder.input("x", DType::float32, {3});
  builder.output("y", x * x);
  graph::StablehloModule const module = graph::to_stablehlo(builder.graph());
  Runner::Compiled first, again, other;
  {
    Runner runner(options());
    first = runner.compile(module);
    again = runner.compile(module);
    CHECK(runner.version().find('.') != std::string::npos);
  }
  CHECK_FALSE(first.found);
  CHECK(again.found);
  CHECK(again.path == first.path);
  CHECK(std::filesystem::file_size(first.path) > 0);
  other = Runner(options("llvm-cpu:generic")).compile(module);
  CHECK_FALSE(other.found);
  CHECK(other.path != first.path);
  for (auto const& entry : std::filesystem::directory_iterator(cache().path))  // no half-written files, no locks
    CHECK(entry.path().extension() == ".vmfb");
}

TEST_CASE("what IREE cannot do is told in sentences", "[train][iree]") {
  if (!has_iree()) return;
  SECTION("a module that it does not compile") {
    graph::StablehloModule module;
    module.text = "module { nonsense }";
    module.function = "main";
    Runner runner(options());
    REQUIRE_ERROR(runner.compile(module), ErrorKind::unavailable, "error: ");
    REQUIRE_ERROR(runner.compile(module), ErrorKind::unavailable, "iree:llvm-cpu: ");  // it is still there
  }
  SECTION("a GPU that is not here: the module is compiled, and where it lies is said") {
    Runner runner(options("rocm:gfx942"));
    train::TrainStep<nn::Gpt2Loss, Iree> step(runner, test::small_gpt2, {}, {.batch = 4, .sequence = 8});
    try {
      step.compile();
      FAIL("this machine has such a GPU; nothing to see");
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::unavailable);
      std::string const said = error.message();
      INFO(said);
      CHECK(said.starts_with("iree:rocm:gfx942 cannot run on this machine"));
      std::size_t const at = said.find(cache().path);
      REQUIRE(at != said.npos);
      std::string const path = said.substr(at, said.find(',', at) - at);
      CHECK(std::filesystem::file_size(path) > 0);
    }
  }
  SECTION("its process was killed") {
    Runner runner(options());
    train::TrainStep<nn::Gpt2Loss, Iree> step(runner, test::small_gpt2, {}, {.batch = 4, .sequence = 8});
    step.initialise(1);
    test::Rows const rows(0, 0, 4);
    CHECK(step(rows.at(0), 1e-3).loss > 0);
    REQUIRE(::kill(runner.process(), SIGKILL) == 0);
    REQUIRE_ERROR(step(rows.at(0), 1e-3), ErrorKind::io, "ended by signal 9");
    CHECK(runner.process() <= 0);  // and waited for
  }
}

TEST_CASE("a Python without IREE is told of, with what to do", "[train][iree]") {
  graph::iree::RunnerOptions made = options();
  made.python = "/bin/false";
  REQUIRE_ERROR(Runner(made), ErrorKind::unavailable, "Install iree-base-compiler and iree-base-runtime");
  made.python = "/nowhere/python";
  REQUIRE_ERROR(Runner(made), ErrorKind::unavailable, "/nowhere/python");
}

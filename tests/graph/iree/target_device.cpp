// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/graph/iree/target_device.hpp>

#include "support/catch.hpp"

#include <string>

using namespace tutti;
using namespace tutti::graph;

namespace {

std::string flags_of(std::string_view text) {
  std::string all;
  for (std::string const& flag : iree::compile_flags(iree::parse_target_device(text))) all += flag + " ";
  return all;
}

}  // namespace

TEST_CASE("what IREE compiles for is written as people say it", "[graph][iree]") {
  for (std::string const text : {"llvm-cpu", "llvm-cpu:generic", "cuda", "cuda:sm_86", "rocm:gfx90a", "metal-spirv",
                                 "vulkan-spirv", "vulkan-spirv:rdna3"})
    CHECK(iree::parse_target_device(text).text() == text);
  iree::TargetDevice const amd = iree::parse_target_device("rocm:gfx942");
  CHECK(amd.backend == "rocm");
  CHECK(amd.target == "gfx942");
  CHECK(driver(amd) == "hip");
  CHECK(driver(iree::TargetDevice{}) == "local-task");
}

TEST_CASE("flags of IREE's compiler say the device and its target", "[graph][iree]") {
  std::string const common = "--iree-input-type=stablehlo --iree-opt-level=O1 --iree-hal-target-device=";
  CHECK(flags_of("llvm-cpu") ==
        common + "local --iree-hal-local-target-device-backends=llvm-cpu --iree-llvmcpu-target-cpu=host ");
  CHECK(flags_of("cuda") == common + "cuda --iree-cuda-target=sm_80 ");
  CHECK(flags_of("cuda:sm_86") == common + "cuda --iree-cuda-target=sm_86 ");
  CHECK(flags_of("rocm:gfx908") == common + "hip --iree-rocm-target=gfx908 ");
  CHECK(flags_of("metal-spirv") == common + "metal ");
  CHECK(flags_of("vulkan-spirv") == common + "vulkan ");
}

TEST_CASE("what IREE does not compile for is refused in a sentence", "[graph][iree]") {
  CHECK(iree::target_device_problem("opencl") ==
        "IREE has no backend 'opencl'. Use llvm-cpu, cuda, rocm, metal-spirv or vulkan-spirv");
  CHECK(iree::target_device_problem("") ==
        "IREE has no backend ''. Use llvm-cpu, cuda, rocm, metal-spirv or vulkan-spirv");
  CHECK(iree::target_device_problem("rocm") == "name the GPU that it compiles for, as in rocm:gfx942");
  CHECK(iree::target_device_problem("rocm:") == "no target stands behind the colon, as in rocm:gfx942");
  CHECK(iree::target_device_problem("metal-spirv:m1") == "metal-spirv has no targets. Leave out ':m1'");
  CHECK(iree::target_device_problem("cuda:sm_80 -o /etc/passwd").starts_with("'sm_80 -o /etc/passwd' is no target"));
  CHECK(iree::target_device_problem("rocm:../x").starts_with("'../x' is no target"));
  std::string said;
  try {
    static_cast<void>(iree::parse_target_device("tpu"));
  } catch (Error const& error) {
    said = error.message();
  }
  CHECK(said == "iree:tpu: IREE has no backend 'tpu'. Use llvm-cpu, cuda, rocm, metal-spirv or vulkan-spirv");
}

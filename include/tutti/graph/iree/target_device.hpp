// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What IREE compiles for, how people write it, and which flags of its compiler say so.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>

#include <source_location>
#include <string>
#include <string_view>

namespace tutti::graph::iree {

/// One of IREE's compilers, and the processor or GPU that it compiles for: "llvm-cpu", "cuda:sm_86", "rocm:gfx942".
struct TargetDevice {
  std::string backend = "llvm-cpu";  ///< llvm-cpu, cuda, rocm, metal-spirv or vulkan-spirv
  std::string target{};              ///< empty: `default_target`

  std::string text() const { return target.empty() ? backend : concat(backend, ":", target); }
};

namespace detail {

struct BackendRow {
  std::string_view backend, device, driver, target_flag, default_target, example;
};
/// IREE's names of 3.13. A GPU newer than the newest `cuda` target known to IREE runs code for an older one: the driver
/// compiles what a module holds for it. No GPU of AMD's runs another one's code, so there `rocm` has no default.
inline constexpr BackendRow backends[] = {
    {"llvm-cpu", "local", "local-task", "--iree-llvmcpu-target-cpu=", "host", "llvm-cpu:znver4"},
    {"cuda", "cuda", "cuda", "--iree-cuda-target=", "sm_80", "cuda:sm_86"},
    {"rocm", "hip", "hip", "--iree-rocm-target=", "", "rocm:gfx942"},
    {"metal-spirv", "metal", "metal", "", "", "metal-spirv"},
    {"vulkan-spirv", "vulkan", "vulkan", "--iree-vulkan-target=", "", "vulkan-spirv:rdna3"},
};

constexpr BackendRow const* find_backend(std::string_view name) noexcept {
  for (BackendRow const& row : backends)
    if (row.backend == name) return &row;
  return nullptr;
}

}  // namespace detail

/// Why `text` names nothing that IREE compiles for, or nothing where it does.
inline std::string target_device_problem(std::string_view text) {
  std::size_t const colon = text.find(':');
  std::string_view const backend = text.substr(0, colon),
                         target = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  detail::BackendRow const* const row = detail::find_backend(backend);
  if (row == nullptr)
    return concat("IREE has no backend '", backend, "'. Use llvm-cpu, cuda, rocm, metal-spirv or vulkan-spirv");
  if (colon != text.npos && row->target_flag.empty())
    return concat(backend, " has no targets. Leave out ':", target, "'");
  if (colon == text.npos && backend == "rocm") return "name the GPU that it compiles for, as in rocm:gfx942";
  if (colon != text.npos && target.empty()) return concat("no target stands behind the colon, as in ", row->example);
  for (char const c : target)  // it becomes a word of a command, and a part of a file's name
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
          c == '.'))
      return concat("'", target, "' is no target: these are letters, digits, '-', '_' and '.', as in ", row->example);
  return {};
}

/// "rocm:gfx942" taken apart. Errors: configuration.
inline TargetDevice parse_target_device(std::string_view text,
                                        std::source_location where = std::source_location::current()) {
  if (std::string const problem = target_device_problem(text); !problem.empty())
    throw Error(ErrorKind::configuration, "iree", concat("iree:", text, ": ", problem), where);
  std::size_t const colon = text.find(':');
  return {std::string(text.substr(0, colon)), colon == text.npos ? std::string() : std::string(text.substr(colon + 1))};
}

/// The driver of IREE's runtime that runs what was compiled for a device.
inline std::string_view driver(TargetDevice const& device) {
  detail::BackendRow const* const row = detail::find_backend(device.backend);
  return row == nullptr ? std::string_view() : row->driver;
}

/// Flags of iree-compile for a device, input and output aside. At O2 and O3 the compiler, 3.13, fails on some training
/// steps; without a level it does not optimise. Shape of modules: any that graph::to_stablehlo writes.
/// Errors: configuration, for a device that `target_device_problem` refuses.
inline List<std::string> compile_flags(TargetDevice const& device,
                                       std::source_location where = std::source_location::current()) {
  static_cast<void>(parse_target_device(device.text(), where));
  detail::BackendRow const& row = *detail::find_backend(device.backend);
  List<std::string> flags;
  flags.push_back("--iree-input-type=stablehlo");
  flags.push_back("--iree-opt-level=O1");
  flags.push_back(concat("--iree-hal-target-device=", row.device));
  if (row.device == "local") flags.push_back(concat("--iree-hal-local-target-device-backends=", row.backend));
  std::string_view const target = device.target.empty() ? row.default_target : std::string_view(device.target);
  if (!target.empty()) flags.push_back(concat(row.target_flag, target));
  return flags;
}

}  // namespace tutti::graph::iree

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where modules that JAX exported lie, with values that it computed.

#include <cstdlib>
#include <string>

namespace tutti::test {

inline std::string jax_folder() {
  if (char const* const named = std::getenv("TUTTI_JAX_FOLDER")) return named;
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  return std::string(root == nullptr ? "." : root) + "/tests/graph/jax";
}

}  // namespace tutti::test

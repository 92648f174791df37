// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// One definition rule: two translation units that include the umbrella agree on its entities, and VERSION on
/// version.hpp.

#include <tutti/graph.hpp>
#include <tutti/tutti.hpp>
#include <tutti/version.hpp>

#include <cstdio>
#include <string>

#if defined(MPI_VERSION) || defined(MPI_INCLUDED) || defined(NCCL_MAJOR) || defined(CUDART_VERSION)
#error "tutti.hpp drags in a vendor's header"
#endif

void const* other_dtype_size();
void const* other_alignment();
tutti::Tensor<float, tutti::Cpu> other_tensor();

int main(int argc, char** argv) {
  int failures = 0;
  auto const check = [&](bool good, char const* what) {
    if (!good) std::fprintf(stderr, "failed: %s\n", what), ++failures;
  };
  check(reinterpret_cast<void const*>(&tutti::size_of) == other_dtype_size(), "one address per inline function");
  check(&tutti::storage_alignment == other_alignment(), "one address per inline variable");
  check(other_tensor().size() == 6, "a tensor passes between translation units");
  std::string const version = std::to_string(tutti::version_major) + "." + std::to_string(tutti::version_minor) + "." +
                              std::to_string(tutti::version_patch);
  check(argc > 1 && version == argv[1], "version.hpp says what VERSION says");
  return failures == 0 ? 0 : 1;
}

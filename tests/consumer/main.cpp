// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A program of somebody else's.

#include <tutti/comm.hpp>
#include <tutti/version.hpp>

#include <cstdio>

int main() {
  tutti::Tensor<float, tutti::Cpu> x(tutti::Shape{2, 3});
  std::printf("tutti %d.%d.%d, %lld elements\n", tutti::version_major, tutti::version_minor, tutti::version_patch,
              static_cast<long long>(x.size()));
  return x.size() == 6 ? 0 : 1;
}

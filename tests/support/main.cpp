// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// `main` of every test program that is one process.

#define CATCH_CONFIG_RUNNER
#include "support/session.hpp"

int main(int argc, char** argv) {
  auto options = tutti::test::read_options(argc, argv);
  return tutti::test::run_session(options, -1, 1);
}

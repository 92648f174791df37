// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/gguf_writer.hpp>
// Writes a generated model that has a token for every byte, for guests and hosts: write_model FILE.gguf
#include "infer/tiny_gguf.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    tutti::test::write_tiny_gguf(argv[1], tutti::test::tiny_byte_model());
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "write_model: %s\n", error.what());
    return 1;
  }
}

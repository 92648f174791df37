// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/io/gguf_writer.hpp> <tutti/infer/generator.hpp>
// Writes a generated model that has a token for every byte, for guests and hosts, and ids that are drawn from it:
// write_model FILE.gguf FILE.txt
#include "infer/tiny_gguf.hpp"

#include <tutti/infer/generate.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/sequence.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    tutti::test::write_tiny_gguf(argv[1], tutti::test::tiny_byte_model());
    // As examples/wasi/draw.cpp does with a host: 40 behind 72, 101, 108, with seed 5.
    auto const loaded = tutti::infer::load_gguf(argv[1]);
    tutti::exec::Context context({.threads = 1});
    tutti::infer::Decoder decoder(context, loaded.model);
    tutti::infer::Sequence sequence(decoder);
    tutti::infer::SamplerOptions options = tutti::infer::usual_sampling();
    options.seed = 5;
    tutti::infer::Sampler sampler(options);
    std::string ids;
    tutti::infer::generate(sequence, sampler, {72, 101, 108}, 40, -1,
                           [&](std::int32_t token) { ids += std::to_string(token) + " "; });
    tutti::io::AtomicFile file(argv[2]);
    file.write(ids + "\n");
    file.commit();
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "write_model: %s\n", error.what());
    return 1;
  }
}

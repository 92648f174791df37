// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/sequence_files.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

TEST_CASE("A sequence kept in a file goes on with the same bits in another decoder, slot and capacity") {
  test::ScratchFolder const scratch;
  std::vector<std::int32_t> const text{3, 17, 5, 80, 42, 42, 9, 60}, more{7, 8};
  for (std::string const architecture : {"gpt2", "llama"})
    for (DType const dtype : {DType::float32, DType::float16}) {
      test::TinyModel sizes{.architecture = architecture, .bytes = true};
      write_tiny_gguf(scratch / "tiny.gguf", sizes);
      auto const loaded = load_gguf(scratch / "tiny.gguf");
      exec::Context context({.threads = 1});
      std::vector<float> expected;
      {
        Decoder decoder(context, loaded.model, {.slots = 1, .capacity = 16, .batch = 8, .cache = dtype});
        Sequence sequence(decoder);
        static_cast<void>(sequence.append(text));
        save_sequence(scratch / "kept", sequence);
        auto const got = sequence.append(more);
        expected.assign(got.begin(), got.end());
      }
      for (std::int64_t const capacity : {10, 40, 6}) {
        INFO(architecture << " " << name(dtype) << " " << capacity);
        Decoder decoder(context, loaded.model, {.slots = 2, .capacity = capacity, .batch = 8, .cache = dtype});
        Sequence first(decoder, 0), sequence(decoder, 1);
        static_cast<void>(first.append(more));
        restore_sequence(scratch / "kept", sequence);
        std::int64_t const kept = std::min<std::int64_t>(8, capacity);
        REQUIRE(sequence.length() == kept);
        CHECK(std::equal(sequence.tokens().begin(), sequence.tokens().end(), text.begin()));
        if (capacity < 10) continue;
        auto const got = sequence.append(more);
        CHECK(std::vector<float>(got.begin(), got.end()) == expected);
      }
      // Another type of cache, another model, another file: a sentence, and the sequence stays.
      DType const other = dtype == DType::float32 ? DType::float16 : DType::float32;
      Decoder decoder(context, loaded.model, {.capacity = 16, .batch = 8, .cache = other});
      Sequence sequence(decoder);
      static_cast<void>(sequence.append(more));
      REQUIRE_ERROR(restore_sequence(scratch / "kept", sequence), ErrorKind::format, "keeps its cache in");
      write_tiny_gguf(scratch / "other.gguf", sizes, 2);
      auto const another = load_gguf(scratch / "other.gguf");
      Decoder stranger(context, another.model, {.capacity = 16, .batch = 8, .cache = dtype});
      Sequence strange(stranger);
      REQUIRE_ERROR(restore_sequence(scratch / "kept", strange), ErrorKind::format, "is of another model");
      REQUIRE_ERROR(restore_sequence(scratch / "absent", sequence), ErrorKind::io, "absent");
      CHECK(sequence.length() == 2);
      CHECK(std::filesystem::exists(scratch / "kept"));
    }
}

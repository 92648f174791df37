// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/tiled_weights.hpp>
#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/exec/isa.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/infer/decoder_fit.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/infer/service.hpp>
#include <tutti/infer/tiled_weights.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::infer;

namespace {

LoadedModel load(test::ScratchFolder const& folder, std::string const& architecture, BlockType type,
                 io::Loading loading = io::Loading::mapped) {
  std::string const path = folder / "tiny.gguf";
  test::TinyModel model = test::tiny_byte_model();
  model.architecture = architecture, model.type = type;
  write_tiny_gguf(path, model);
  return load_gguf(path, loading);
}
bool this_processor_tiles() { return kernel::cpu::tiles_weights(exec::isa_from_environment(), BlockType::q4_0); }

}  // namespace

TEST_CASE("A model in tiles has other bytes of the same matrices, and the file's stay as they were") {
  for (BlockType const type : {BlockType::q4_0, BlockType::q4_1, BlockType::q8_0, BlockType::q5_0, BlockType::f32})
    for (io::Loading const loading : {io::Loading::mapped, io::Loading::read}) {
      test::ScratchFolder const folder;
      LoadedModel const loaded = load(folder, "llama", type, loading);
      CHECK(loaded.model.mapped == (loading == io::Loading::mapped));
      std::vector<std::vector<std::byte>> before;
      for (nn::StoredTensor const& tensor : loaded.model.tensors)
        before.emplace_back(tensor.data, tensor.data + tensor.bytes());
      exec::Context context({.threads = 2});
      nn::StoredModel const tiled = tiled_model(context, loaded.model);
      REQUIRE(tiled.tensors.size() == before.size());
      CHECK((tiled_bytes(loaded.model, context.isa()) > 0) ==
            kernel::cpu::tiles_weights(context.isa(), type));
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        nn::StoredTensor const &tensor = tiled.tensors[i], &original = loaded.model.tensors[i];
        CAPTURE(tensor.name, name(type));
        CHECK(tensor.tiled == wants_tiles(original, context.isa()));
        CHECK(std::memcmp(original.data, before[i].data(), before[i].size()) == 0);
        if (!tensor.tiled) {
          CHECK(tensor.data == original.data);
          continue;
        }
        bytes += tensor.bytes();
        CHECK(rows_of_tiles(type, tensor.columns, {tensor.data, tensor.data + tensor.bytes()}) == before[i]);
      }
      CHECK(bytes <= tiled_bytes(loaded.model, context.isa()));
      CHECK(tiled_bytes(tiled, context.isa()) == 0);
    }
}

TEST_CASE("Decoders that are told of the same copy share it, and it goes with the last of them") {
  if (!this_processor_tiles()) {
    std::fputs("SKIPPED: this processor has no products with tiles\n", stderr);
    return;
  }
  test::ScratchFolder const folder;
  LoadedModel const loaded = load(folder, "llama", BlockType::q4_0);
  nn::StoredModel const turned = loaded.model;
  exec::Context context({.threads = 2});
  std::weak_ptr<graph::Memory> copy;
  auto const first_tile = [](nn::StoredModel const& model) {
    return std::find_if(model.tensors.begin(), model.tensors.end(), [](auto const& one) { return one.tiled; })->data;
  };
  {
    auto one = std::make_unique<Decoder>(context, loaded.model, DecoderOptions{.capacity = 16, .shared_tiles = &copy});
    std::byte const* const at = first_tile(one->computed());
    Decoder const two(context, turned, {.capacity = 32, .shared_tiles = &copy});
    Decoder apart(context, loaded.model, {.capacity = 16});
    CHECK(first_tile(two.computed()) == at);
    CHECK(first_tile(apart.computed()) != at);
    one.reset();
    std::vector<NewToken> const tokens = {{.token = 5, .wanted = true}};
    Decoder three(context, loaded.model, {.capacity = 16, .shared_tiles = &copy});
    CHECK(first_tile(three.computed()) == at);
    auto const a = three.append(tokens), b = apart.append(tokens);
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
  CHECK(copy.expired());
}

TEST_CASE("Answers from tiles are near those from rows, and prompts among others are what they are alone") {
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 20; ++i) prompt.push_back(i * 37 % 250);
  for (BlockType const type : {BlockType::q4_0, BlockType::q4_1, BlockType::q8_0})
    for (char const* const architecture : {"llama", "gpt2", "phi3"}) {
      test::ScratchFolder const folder;
      LoadedModel const loaded = load(folder, architecture, type);
      exec::Context context({.threads = 2});
      std::vector<float> logits[2];
      for (bool const tiles : {false, true}) {
        Decoder decoder(context, loaded.model, {.capacity = 64, .tiles = tiles});
        Sequence sequence(decoder);
        auto const append = [&](std::span<std::int32_t const> tokens) {
          auto const got = sequence.append(tokens);
          logits[tiles ? 1 : 0].insert(logits[tiles ? 1 : 0].end(), got.begin(), got.end());
        };
        append(prompt);
        for (std::int32_t token : {7, 8, 9}) append({&token, 1});
      }
      double worst = 0, scale = 0;
      for (std::size_t i = 0; i < logits[0].size(); ++i) {
        worst = std::max(worst, std::abs(double{logits[0][i]} - logits[1][i]));
        scale = std::max(scale, std::abs(double{logits[0][i]}));
      }
      CAPTURE(name(type), architecture, worst, scale);
      CHECK(worst < 0.1 * scale);
      CHECK(scale > 0);
    }
}

TEST_CASE("An operation over weights in tiles means what it means over rows") {
  constexpr std::int64_t out = 32, in = 64, rows = 3;
  std::vector<float> numbers(out * in);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 7 % 23) - 11;
  std::vector<std::byte> plain(static_cast<std::size_t>(out * row_bytes(BlockType::q4_1, in))), tiles(plain.size());
  quantise(BlockType::q4_1, numbers.data(), out * in, plain.data());
  make_tiles(BlockType::q4_1, in, plain.data(), tiles.data(), 0, out / block_tile_rows);
  std::vector<double> results[2];
  for (bool const tiled : {false, true}) {
    graph::Builder b;
    auto const x = b.input("x", DType::float32, {rows, in});
    nn::StoredWeight const weight{b.state("w", {out, row_bytes(BlockType::q4_1, in)}, graph::zeros(), DType::uint8),
                                  BlockType::q4_1, out, in, tiled};
    b.output("y", nn::StoredLinear{{weight}}(x));
    graph::Interpreter run(b.graph());
    graph::naive::Values given, bytes;
    for (int i = 0; i < rows * in; ++i) given.push_back(i % 11 - 5);
    for (std::byte const byte : tiled ? tiles : plain) bytes.push_back(static_cast<double>(byte));
    run.set("x", given);
    run.set("w", bytes);
    run.run();
    results[tiled ? 1 : 0] = run.output("y");
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0].size() == rows * out);
}

TEST_CASE("Models are made ready while another one of the same threads answers") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = load(folder, "llama", BlockType::q4_0);
  ComputePool pool(2);
  ServiceOptions options;
  options.decoder.slots = 2, options.decoder.capacity = 64;
  Service answering(pool, loaded.model, loaded.tokenizer, options);
  std::atomic<bool> done = false;
  std::atomic<int> made = 0, failed = 0;
  std::thread loads([&] {
    while (!done) try {
        Service const other(pool, loaded.model, loaded.tokenizer, options);
        ++made;
      } catch (Error const&) {
        ++failed;
      }
  });
  int answered = 0;
  for (int i = 0; i < 40 || (made < 5 && i < 4000); ++i) {
    infer::Request request;
    request.prompt = loaded.tokenizer.encode("hello");
    request.stop.max_tokens = 8;
    try {
      answering.submit(std::move(request))->wait();
      ++answered;
    } catch (Error const&) {
      ++failed;
    }
  }
  done = true;
  loads.join();
  CHECK(failed == 0);
  CHECK(made >= 5);
  CHECK(answered >= 40);
}

TEST_CASE("Where memory holds no copy of the weights they stay as the file has them") {
  test::ScratchFolder const folder;
  LoadedModel const loaded = load(folder, "llama", BlockType::q8_0);
  DecoderOptions const wanted{.slots = 1, .capacity = 64, .batch = 32};
  FitOptions fit;
  // As a file that was read, whose weights stay beside their copies.
  fit.beside = {.weights = loaded.model.bytes()};
  std::int64_t const copies = decoder_need(loaded.model, wanted, 1).copies;
  CHECK((copies > 0) == this_processor_tiles());
  std::int64_t const without = fit.beside.weights + decoder_need(loaded.model, wanted, 1).bytes() - copies;
  // A context that is chosen is as long with copies as without them.
  fit.most_context = 0;
  DecoderOptions chosen = wanted;
  chosen.capacity = 320;
  fit.most_bytes =
      MemoryBudget::in_use() + fit.beside.weights + decoder_need(loaded.model, chosen, 1).bytes() - copies / 2;
  chosen.capacity = 0;
  std::int64_t longest[2];
  for (bool const tiles : {false, true}) {
    chosen.tiles = tiles;
    longest[tiles ? 1 : 0] = fit_decoder(loaded.model, chosen, fit).options.capacity;
  }
  CHECK(longest[0] == longest[1]);
  CHECK(longest[1] >= 320);
  fit.most_bytes = MemoryBudget::in_use() + without + copies;
  {
    FittedDecoder const ample = fit_decoder(loaded.model, wanted, fit);
    CHECK(ample.options.tiles);
    CHECK(ample.notes.empty());
  }
  fit.most_bytes = MemoryBudget::in_use() + without;
  FittedDecoder const tight = fit_decoder(loaded.model, wanted, fit);
  if (copies == 0) return;
  CHECK(!tight.options.tiles);
  REQUIRE(tight.notes.size() == 1);
  CHECK(tight.notes[0].find("weights stay as the file has them") != std::string::npos);
  CHECK(decoder_need(loaded.model, tight.options, 1).copies == 0);
}

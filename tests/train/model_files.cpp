// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Models go from files of one kind to those of another: every round trip gives the same bits.
// Covers: <tutti/io/atomic_folder.hpp>
// Covers: <tutti/io/safetensors_writer.hpp>
// Covers: <tutti/train/hugging_face_export.hpp> <tutti/train/hugging_face_tensors.hpp>
// Covers: <tutti/train/model_source.hpp> <tutti/train/source_matrix.hpp>
// Covers: <tutti/train/model_tensors.hpp>
// Covers: <tutti/train/parameter_files.hpp>
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "train/small_models.hpp"

#include <tutti/graph/param.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/hugging_face_export.hpp>
#include <tutti/train/llama_files.hpp>
#include <tutti/train/parameter_files.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

using namespace tutti;
using namespace tutti::train;
using test::difference, test::gpt2, test::llama, test::logits, test::tokenizer_text, test::write_run;

namespace {

std::string parameters_of(std::string const& run) {
  return io::read_file((Gpt2Model::folder(run) / "parameters.safetensors").string());
}

}  // namespace

TEST_CASE("A model goes from a run to a folder, to GGUF and back to a run with the same bits and the same tokenizer") {
  test::ScratchFolder const scratch;
  std::string const run = scratch / "run", folder = scratch / "folder", gguf = scratch / "model.gguf";
  for (std::string const kind : {"gpt2", "llama", "llama, untied", "qwen2"}) {
    INFO(kind);
    for (auto const& name : scratch.names()) std::filesystem::remove_all(scratch / name);
    if (kind == "gpt2") write_run(run, gpt2);
    else write_run(run, llama(kind == "llama", kind == "qwen2"));
    ModelSource const source = open_model(run);
    write_hugging_face(folder, source, {.type = BlockType::f32});
    write_gguf(gguf, source, {.type = BlockType::f32});
    CHECK(scratch.names().size() == 3);
    std::string const expected = parameters_of(run);
    for (std::string const& file : {folder, gguf}) {
      std::string const again = scratch / (file == gguf ? "from_gguf" : "from_folder");
      write_checkpoint(again, open_model(file));
      CHECK(parameters_of(again) == expected);
      auto const loaded = infer::load_model(file);
      CHECK(difference(logits(loaded.model), logits(source.model)) < 1e-5);
      CHECK(loaded.tokenizer.encode("the cat") == source.tokenizer->encode("the cat"));
    }
    CHECK(io::read_file(folder + "/tokenizer.json") == tokenizer_text());
    // A folder that has its tokenizer in two files.
    std::filesystem::rename(folder + "/tokenizer.json", scratch / "tokenizer.json");
    auto const tokenizer = nlohmann::json::parse(tokenizer_text());
    io::write_file(folder + "/vocab.json", tokenizer["model"]["vocab"].dump());
    io::write_file(folder + "/merges.txt", "#version: 0.2\nt h\nth e\n");
    io::write_file(folder + "/tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
    ModelSource const halves = open_model(folder);
    CHECK(halves.tokenizer_text == tokenizer_text());
    CHECK(halves.tokenizer->parts().tokens == source.tokenizer->parts().tokens);
    write_hugging_face(scratch / "halves", halves, {.type = BlockType::f32});
    CHECK(io::read_file(scratch / "halves/vocab.json") == io::read_file(folder + "/vocab.json"));
    for (char const* const name : {"vocab.json", "merges.txt"}) std::filesystem::remove(folder + "/" + name);
    std::filesystem::rename(scratch / "tokenizer.json", folder + "/tokenizer.json");
    // From one kind straight to the other.
    write_hugging_face(scratch / "folder_of_gguf", open_model(gguf), {.type = BlockType::f32});
    CHECK(io::read_file(scratch / "folder_of_gguf/model.safetensors") == io::read_file(folder + "/model.safetensors"));
    write_gguf(scratch / "of_folder.gguf", open_model(folder), {.type = BlockType::f32});
    CHECK(difference(logits(infer::load_model(scratch / "of_folder.gguf").model), logits(source.model)) < 1e-5);
    // A run that starts with the folder has the very weights.
    graph::State state;
    std::visit(
        [&](auto const& config) {
          state.add(graph::trace(nn::make_parameters(config), [](graph::Builder& builder, auto const& p) {
            if constexpr (requires { p.norm; }) builder.output("x", p.norm.weight);
            else builder.output("x", p.ln_f.weight);
          }));
        },
        training_config(open_model(folder)));
    fill_parameters(open_model(folder), state);
    Checkpoint const checkpoint(Gpt2Model::folder(run));
    for (auto const& [name, tensor] : checkpoint.parameters().tensors()) {
      INFO(name);
      REQUIRE(state.find(name) != nullptr);
      CHECK(std::memcmp(state.at(name).view<float>().data(), tensor.data, tensor.bytes()) == 0);
    }
  }
}

TEST_CASE("Folders in sixteen bits, and a folder again in another type") {
  test::ScratchFolder const scratch;
  write_run(scratch / "run", gpt2);
  ModelSource const run = open_model(scratch / "run");
  for (auto const& [type, name, tolerance] :
       {std::tuple{BlockType::bf16, "bfloat16", 3e-2}, {BlockType::f16, "float16", 4e-3}}) {
    INFO(name);
    std::string const folder = scratch / name, again = scratch / (std::string(name) + "_again");
    write_hugging_face(folder, run, {.type = type});
    ModelSource const read = open_model(folder);
    CHECK(read.type() == type);
    CHECK(difference(logits(infer::load_model(folder).model), logits(run.model)) < tolerance);
    write_hugging_face(again, read, {.type = BlockType::f32});
    CHECK(io::Safetensors(again + "/model.safetensors").at("transformer.wte.weight").dtype == DType::float32);
    CHECK(io::read_file(again + "/config.json").find("float32") != std::string::npos);
    CHECK(io::read_file(again + "/tokenizer.json") == tokenizer_text());
    std::filesystem::remove_all(folder);
    write_hugging_face(folder, open_model(again), {.type = type});  // nothing was lost on the way
    CHECK(open_model(folder).type() == type);
    CHECK(logits(infer::load_model(folder).model) == logits(infer::load_model(again).model));
  }
}

TEST_CASE("A GPT-2 goes through llm.c's files of both versions") {
  test::ScratchFolder const scratch;
  write_run(scratch / "run", gpt2);
  ModelSource const run = open_model(scratch / "run");
  write_llmc(scratch / "three.bin", run, {.type = BlockType::f32});
  write_llmc(scratch / "five.bin", run, {.type = BlockType::bf16});
  CHECK(io::LlmcModel(scratch / "five.bin").dtype() == DType::bfloat16);
  CHECK(io::LlmcModel(scratch / "three.bin").config().padded_vocabulary == 384);
  io::write_file(scratch / "tokenizer.json", tokenizer_text());
  write_checkpoint(scratch / "again", open_model(scratch / "three.bin"));
  CHECK(parameters_of(scratch / "again") == parameters_of(scratch / "run"));
  CHECK(difference(logits(open_model(scratch / "five.bin").model), logits(run.model)) < 3e-2);
  write_llmc(scratch / "five_again.bin", open_model(scratch / "five.bin"), {.type = BlockType::bf16});
  CHECK(io::read_file(scratch / "five_again.bin") == io::read_file(scratch / "five.bin"));
}

TEST_CASE("Large models are divided among files, each complete before the next begins") {
  test::ScratchFolder const scratch;
  std::vector<float> const numbers{1, 2, 3, 4, 5, 6};
  std::vector<io::NamedTensor> const tensors{{"b", DType::float32, {2}, numbers.data()},
                                             {"a", DType::float32, {2}, numbers.data() + 2},
                                             {"c", DType::float32, {2}, numbers.data() + 4}};
  io::SafetensorsWriter writer(scratch.path(), tensors, {}, 16);
  for (io::NamedTensor const& next : writer.tensors())
    for (io::NamedTensor const& tensor : tensors)
      if (tensor.name == next.name) writer.write(tensor.data, tensor.bytes());
  REQUIRE_ERROR(writer.write(numbers.data(), 4), ErrorKind::invalid_argument, "behind the last tensor");
  writer.commit();
  io::SafetensorsShards const shards(scratch.path());
  CHECK(shards.files() == 2);
  CHECK(shards.view<float>("a")(0) == 3);
  CHECK(shards.view<float>("c")(1) == 6);
  io::SafetensorsWriter lacking(scratch / "x", {}, {});
  CHECK(lacking.tensors().empty());
  auto twice = tensors;
  twice[2].name = "b";
  REQUIRE_ERROR(io::SafetensorsWriter(scratch / "x", twice, {}, 8), ErrorKind::invalid_argument, "stands twice");
}

TEST_CASE("What a target cannot hold is refused with a sentence, and nothing is left of it") {
  test::ScratchFolder const scratch;
  write_run(scratch / "llama", llama(true));
  write_run(scratch / "gpt2", gpt2);
  ModelSource const source = open_model(scratch / "llama"), other = open_model(scratch / "gpt2");
  auto const before = scratch.names().size();
  REQUIRE_ERROR(write_llmc(scratch / "x.bin", source, {.type = BlockType::f32}), ErrorKind::configuration,
                "hold GPT-2 alone");
  REQUIRE_ERROR(write_llmc(scratch / "x.bin", other, {.type = BlockType::q8_0}), ErrorKind::configuration,
                "F32 and BF16");
  REQUIRE_ERROR(write_hugging_face(scratch / "x", source, {.type = BlockType::q4_k}), ErrorKind::configuration,
                "F32, F16 or BF16");
  ModelSource bare = open_model(scratch / "gpt2");
  bare.tokenizer.reset();
  REQUIRE_ERROR(write_gguf(scratch / "x.gguf", bare), ErrorKind::configuration, "has no tokenizer.json");
  ModelSource stretched = open_model(scratch / "llama");
  stretched.model.rotation.frequencies[1] /= 2;
  REQUIRE_ERROR(write_checkpoint(scratch / "x", stretched), ErrorKind::configuration, "stretches its rotations");
  CHECK(scratch.names().size() == before);
  // A folder and a GGUF file say such rotations.
  write_hugging_face(scratch / "x", stretched, {.type = BlockType::f32});
  write_gguf(scratch / "x.gguf", stretched, {.type = BlockType::f32});
  for (char const* const file : {"x", "x.gguf"})
    CHECK(difference(logits(infer::load_model(scratch / file).model), logits(stretched.model)) < 1e-5);
  // What is there is not written over.
  REQUIRE_ERROR(write_hugging_face(scratch / "x", source, {.type = BlockType::f32}), ErrorKind::io, "is not empty");
  REQUIRE_ERROR(open_model(scratch.path()), ErrorKind::configuration, "without config.json and without checkpoints");
  REQUIRE_ERROR(open_model(scratch / "absent"), ErrorKind::configuration, "does not exist");
  REQUIRE_ERROR(open_model(scratch / "x/model.safetensors"), ErrorKind::configuration, "Pass its folder");
}

TEST_CASE("A run whose vocabulary has ChatML's marks chats by it: as a run, a folder and a GGUF file") {
  test::ScratchFolder const scratch;
  write_run(scratch / "run", llama(true));
  ModelSource source = open_model(scratch / "run");
  data::TokenizerParts parts = source.tokenizer->parts();
  for (std::string const& mark : data::chat_marks(data::ChatFormat::chatml))
    parts.specials.push_back({mark, static_cast<std::int32_t>(parts.tokens.size())}), parts.tokens.push_back(mark);
  data::Tokenizer const chatting(std::move(parts));
  REQUIRE(chatting.vocabulary() <= source.classes());
  std::string const file = scratch / "tokenizer.json";
  data::write_tokenizer(file, chatting);
  ModelSource const chats = open_model(scratch / "run", file);
  REQUIRE(chats.chat_template == data::chatml_template);
  std::int32_t const end = *chatting.special("<|im_end|>");
  REQUIRE(chats.tokenizer->roles().end_of_turn == end);
  write_checkpoint(scratch / "copy", chats);
  write_hugging_face(scratch / "folder", chats, {.type = BlockType::f32});
  write_gguf(scratch / "model.gguf", chats, {.type = BlockType::f32});
  for (char const* const name : {"copy", "folder", "model.gguf"}) {
    infer::LoadedModel const loaded = load_model_or_run(scratch / name);
    CAPTURE(name);
    CHECK(data::choose_chat_template(loaded.chat_template).format == data::ChatFormat::chatml);
    auto const ends = infer::end_tokens(loaded.tokenizer);
    CHECK(std::find(ends.begin(), ends.end(), end) != ends.end());
  }
}

TEST_CASE("A run that started with a model keeps how it knows conversations, and hands it on") {
  test::ScratchFolder const scratch;
  std::string const folder = scratch / "published", run = scratch / "run", gguf = scratch / "model.gguf";
  std::string const said = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}";
  write_run(scratch / "plain", llama(true));
  ModelSource source = open_model(scratch / "plain");
  CHECK(source.chat_template.empty());
  source.chat_template = said;
  write_hugging_face(folder, source, {.type = BlockType::f32});
  CHECK(infer::load_model(folder).chat_template == said);

  write_checkpoint(run, open_model(folder));
  CHECK(Checkpoint(Gpt2Model::folder(run)).chat_template() == said);
  CHECK(open_model(run).chat_template == said);
  infer::LoadedModel const loaded = load_model_or_run(run);
  CHECK(loaded.chat_template == said);
  CHECK(difference(logits(loaded.model), logits(source.model)) == 0);
  // Texts begin as those of what it was made of: of the run with the mark, of the folder with themselves.
  auto const begins = [](infer::LoadedModel const& model) {
    return model.tokenizer.encode_complete("the").front() == *model.tokenizer.document_mark();
  };
  CHECK(begins(load_model_or_run(scratch / "plain")));
  CHECK(!begins(load_model_or_run(folder)));
  CHECK(!begins(loaded));
  write_checkpoint(scratch / "copy", open_model(scratch / "plain"));
  CHECK(begins(load_model_or_run(scratch / "copy")));
  CHECK(load_model_or_run(folder).chat_template == said);

  write_gguf(gguf, open_model(run), {.type = BlockType::f32});
  CHECK(infer::load_model(gguf).chat_template == said);
  CHECK(load_model_or_run(gguf).tokenizer.encode_complete("the") == loaded.tokenizer.encode_complete("the"));
  ModelSource bare = open_model(scratch / "plain");
  bare.tokenizer.reset();
  write_checkpoint(scratch / "bare", bare);
  REQUIRE_ERROR(load_model_or_run(scratch / "bare"), ErrorKind::configuration, "trained on tokens alone");
}

TEST_CASE("Rotations stretched by longrope, yarn or a factor go from config.json to GGUF and back by their kind") {
  test::ScratchFolder const scratch;
  write_run(scratch / "plain", llama(true));
  struct Case {
    nn::RotationScaling scaling;
    std::string architecture;
  };
  nn::RotationScaling longrope{.kind = "longrope", .original_tokens = 8};
  std::size_t const pairs = open_model(scratch / "plain").model.rotation.frequencies.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    longrope.short_factors.push_back(1 + 0.1f * static_cast<float>(i));
    longrope.long_factors.push_back(2 + 0.3f * static_cast<float>(i));
  }
  longrope.factors = longrope.long_factors;
  nn::RotationScaling own = longrope;
  own.magnitude = 1.25;
  std::vector<Case> const cases{{longrope, "phi3"},
                                {own, "phi3"},
                                {{.kind = "yarn", .factor = 4, .original_tokens = 8}, "llama"},
                                {{.kind = "yarn", .factor = 4, .original_tokens = 8, .magnitude = 0.75}, "llama"},
                                {{.kind = "linear", .factor = 2, .original_tokens = 16}, "llama"}};
  for (auto const& [scaling, architecture] : cases) {
    INFO(scaling.kind << " " << scaling.magnitude);
    for (auto const& name : scratch.names())
      if (name != "plain") std::filesystem::remove_all(scratch / name);
    ModelSource source = open_model(scratch / "plain");
    nn::LlamaConfig const& c = source.llama_config();
    REQUIRE(c.max_tokens > scaling.original_tokens);
    source.model.rotation = nn::rotation_of(c.head_size, c.head_size, c.rotary_base, scaling, c.max_tokens);
    auto const expected = logits(source.model);
    auto const same = [&](ModelSource const& read) {
      nn::Rotation const &has = read.model.rotation, &was = source.model.rotation;
      CHECK(has.scaling.kind == scaling.kind);
      CHECK(has.scaling.original_tokens == scaling.original_tokens);
      CHECK(has.scaling.short_factors == scaling.short_factors);
      CHECK(has.scaling.long_factors == scaling.long_factors);
      CHECK(std::abs(has.magnitude - was.magnitude) < 1e-6);
      CHECK(difference(logits(read.model), expected) < 1e-5);
    };
    write_hugging_face(scratch / "folder", source, {.type = BlockType::f32});
    same(open_model(scratch / "folder"));
    write_gguf(scratch / "model.gguf", open_model(scratch / "folder"), {.type = BlockType::f32});
    io::Gguf const file(scratch / "model.gguf");
    CHECK(file.metadata().get<std::string>("general.architecture") == architecture);
    CHECK(file.metadata().contains(architecture + ".rope.scaling.original_context_length"));
    for (char const* const list : {"rope_factors_long.weight", "rope_factors_short.weight"})
      CHECK(std::any_of(file.tensors().begin(), file.tensors().end(),
                        [&](io::GgufTensor const& tensor) { return tensor.name == list; }) ==
            (scaling.kind == "longrope"));
    same(open_model(scratch / "model.gguf"));
    write_hugging_face(scratch / "again", open_model(scratch / "model.gguf"), {.type = BlockType::f32});
    same(open_model(scratch / "again"));
  }
}

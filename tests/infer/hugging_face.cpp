// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Folders as Hugging Face publishes models: the weights of a generated GGUF file under their names and in their layout
/// give the logits of a naive model in double.
// Covers: <tutti/infer/model_file.hpp> <tutti/infer/model_json.hpp>
// Covers: <tutti/infer/stored_reader.hpp>
// Covers: <tutti/infer/hugging_face_names.hpp> <tutti/infer/hugging_face_rotation.hpp>

#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/infer/decoder.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/io/safetensors_writer.hpp>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

using namespace tutti;
using test::TinyModel;

namespace {

using Json = nlohmann::json;

/// A folder with the model of a generated file.
class Folder {
 public:
  explicit Folder(TinyModel m, std::uint64_t shard_bytes = 1 << 30) {
    m.bytes = true;
    m.vocabulary = 259;
    sizes = m;
    write_tiny_gguf(scratch / "tiny.gguf", m);
    file.emplace(scratch / "tiny.gguf");
    std::filesystem::create_directory(path());
    for (io::GgufTensor const& tensor : file->tensors()) add(tensor);
    io::write_safetensors_shards(path(), tensors_, {{"format", "pt"}}, shard_bytes);
    config = m.gpt2() ? Json{{"model_type", "gpt2"}, {"n_layer", m.layers}, {"n_head", m.heads}, {"n_embd", m.channels},
                             {"n_positions", m.positions}, {"n_ctx", m.positions}, {"vocab_size", m.vocabulary},
                             {"layer_norm_epsilon", 1e-5}, {"activation_function", "gelu_new"}, {"n_inner", nullptr},
                             {"bos_token_id", m.vocabulary - 1}, {"eos_token_id", m.vocabulary - 1}}
                      : Json{{"model_type", m.architecture}, {"num_hidden_layers", m.layers},
                             {"num_attention_heads", m.heads}, {"num_key_value_heads", m.kv_heads},
                             {"hidden_size", m.channels}, {"intermediate_size", m.hidden}, {"head_dim", m.head_size},
                             {"vocab_size", m.vocabulary}, {"max_position_embeddings", m.positions},
                             {"rms_norm_eps", 1e-5}, {"rope_theta", 10000.0}, {"hidden_act", "silu"},
                             {"tie_word_embeddings", m.tied}, {"eos_token_id", {m.vocabulary - 1, 3}}};
    if (m.window > 0) config["sliding_window"] = m.window;
    write_config();
    auto const tokenizer = data::make_tokenizer(infer::gguf_vocabulary(*file), "tiny");
    data::write_tokenizer(path() + "/tokenizer.json", tokenizer);
  }
  std::string path() const { return scratch / "model"; }
  void write_config() const { io::write_file(path() + "/config.json", config.dump()); }

  TinyModel sizes;
  test::ScratchFolder scratch;
  std::optional<io::Gguf> file;
  Json config;

 private:
  std::string their_name(std::string name) const {
    std::pair<char const*, char const*> const gpt2[] = {
        {"token_embd", "wte"}, {"position_embd", "wpe"}, {"output_norm", "ln_f"}, {"blk.", "h."},
        {"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
        {"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
    std::pair<char const*, char const*> const llama[] = {
        {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"attn_output", "self_attn.o_proj"},
        {"blk.", "model.layers."}, {"attn_norm", "input_layernorm"}, {"attn_qkv", "self_attn.qkv_proj"},
        {"attn_q.", "self_attn.q_proj."}, {"attn_k.", "self_attn.k_proj."}, {"attn_v.", "self_attn.v_proj."},
        {"ffn_norm", "post_attention_layernorm"}, {"ffn_gate", "mlp.gate_proj"},
        {"ffn_up", sizes.architecture == "phi3" ? "mlp.gate_up_proj" : "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}};
    if (name == "output.weight") return "lm_head.weight";
    auto const change = [&](auto const& pairs) {
      for (auto const& [ours, theirs] : pairs)
        if (std::size_t const at = name.find(ours); at != std::string::npos)
          name.replace(at, std::string(ours).size(), theirs);
    };
    if (sizes.gpt2()) change(gpt2);
    else change(llama);
    return name;
  }
  /// GPT-2's matrices are turned; LLaMA's pairs are halves of a head there and neighbours here.
  void add(io::GgufTensor const& tensor) {
    std::size_t const element = tensor.type == BlockType::f32 ? 4 : 2;
    auto const* const from = static_cast<std::byte const*>(tensor.data);
    auto& bytes = memory_.emplace_back(static_cast<std::size_t>(tensor.shape.size()) * element);
    std::int64_t const rows = tensor.shape[0], columns = tensor.shape.rank() > 1 ? tensor.shape[1] : 1;
    bool const turned = sizes.gpt2() && tensor.shape.rank() > 1 && tensor.name.starts_with("blk.");
    bool const pairs = sizes.architecture == "llama" && (tensor.name.ends_with("attn_q.weight") ||
                                                         tensor.name.ends_with("attn_k.weight"));
    std::int64_t const d = sizes.head_size;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        std::int64_t const row = pairs ? i / d * d + i % d / 2 + i % 2 * (d / 2) : i;
        std::int64_t const to = turned ? j * rows + i : row * columns + j;
        std::memcpy(bytes.data() + static_cast<std::size_t>(to) * element,
                    from + static_cast<std::size_t>(i * columns + j) * element, element);
      }
    DType const dtype = tensor.type == BlockType::f32   ? DType::float32
                        : tensor.type == BlockType::f16 ? DType::float16
                                                        : DType::bfloat16;
    Shape const shape = tensor.shape.rank() == 1 ? Shape{rows} : turned ? Shape{columns, rows} : Shape{rows, columns};
    tensors_.push_back({their_name(tensor.name), dtype, shape, bytes.data()});
  }
  std::deque<std::vector<std::byte>> memory_;
  std::vector<io::NamedTensor> tensors_;
};

std::vector<float> logits(infer::LoadedModel const& loaded, std::vector<std::int32_t> const& tokens) {
  exec::Context context({.threads = 1});
  infer::Decoder decoder(context, loaded.model, {.capacity = 48, .batch = 16});
  infer::Sequence sequence(decoder);
  auto const got = sequence.append(tokens);
  return {got.begin(), got.end()};
}

}  // namespace

TEST_CASE("Models of Hugging Face's folders give the logits of a naive model in double") {
  for (std::string const architecture : {"gpt2", "llama", "qwen2", "phi3"})
    for (BlockType const type : {BlockType::f32, BlockType::bf16, BlockType::f16}) {
      TinyModel sizes{.architecture = architecture, .type = type};
      if (architecture == "phi3") sizes.tied = false, sizes.packed_qkv = true, sizes.window = 9;
      if (architecture == "qwen2") sizes.tied = false;
      Folder const folder(sizes, type == BlockType::bf16 ? 200'000 : 1 << 30);  // several files
      auto const loaded = infer::load_model(folder.path());
      std::vector<std::int32_t> tokens;
      for (int i = 0; i < 20; ++i) tokens.push_back(i * 37 % 95);
      auto const got = logits(loaded, tokens);
      test::TinyReference reference(*folder.file, folder.sizes);
      std::vector<double> expected;
      for (std::int32_t const token : tokens) expected = reference(token);
      REQUIRE(got.size() == expected.size());
      double worst = 0, scale = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(double{got[i]} - expected[i]));
        scale = std::max(scale, std::abs(expected[i]));
      }
      CAPTURE(architecture, name(type), worst, scale);
      CHECK(worst < 1e-4 * scale);
      CHECK(loaded.tokenizer.vocabulary() == 259);
      CHECK(loaded.tokenizer.roles().end == 258);
      CHECK(loaded.tokenizer.roles().end_of_turn.has_value() == (architecture != "gpt2"));
    }
}

TEST_CASE("A folder without tokenizer.json has its tokenizer in vocab.json and merges.txt") {
  Folder const folder(TinyModel{.architecture = "gpt2"});
  std::string const tokenizer = folder.path() + "/tokenizer.json";
  infer::LoadedModel const whole = infer::load_model(folder.path());
  Json const parts = Json::parse(io::read_file(tokenizer));
  io::write_file(folder.path() + "/vocab.json", parts["model"]["vocab"].dump());
  std::filesystem::remove(tokenizer);
  REQUIRE_ERROR(infer::load_model(folder.path()), ErrorKind::io, "no vocab.json with merges.txt");
  io::write_file(folder.path() + "/merges.txt", "#version: 0.2\n");
  Json added;
  for (auto const& token : parts["added_tokens"]) added[std::to_string(token["id"].get<int>())] = token;
  io::write_file(folder.path() + "/tokenizer_config.json",
                 Json{{"tokenizer_class", "GPT2Tokenizer"}, {"added_tokens_decoder", added}}.dump());
  infer::LoadedModel const loaded = infer::load_model(folder.path());
  REQUIRE(loaded.tokenizer.parts() == whole.tokenizer.parts());
  REQUIRE(logits(loaded, {1, 2, 3}) == logits(whole, {1, 2, 3}));
}

TEST_CASE("The frequencies of LLaMA 3.1, of yarn and of long texts are read from config.json") {
  Folder folder(TinyModel{.architecture = "llama"});
  folder.config["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 32}};
  folder.write_config();
  auto const rotation = [&] { return infer::load_model(folder.path()).model.rotation; };
  auto const llama3 = rotation();
  // waves of 2 pi 10000^(2 i / 64): shorter than 32 / 4 stay, longer than 32 are stretched by 8
  CHECK(llama3.frequencies[0] == 1.0);
  CHECK(std::abs(llama3.frequencies[31] - std::pow(10000.0, -62.0 / 64) / 8) < 1e-9);
  double const wave = 2 * 3.141592653589793 * std::pow(10000.0, 6.0 / 64), smooth = (32 / wave - 1) / 3;
  CHECK(std::abs(llama3.frequencies[3] - std::pow(10000.0, -6.0 / 64) * ((1 - smooth) / 8 + smooth)) < 1e-6);
  folder.config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  folder.write_config();
  CHECK(std::abs(rotation().frequencies[0] - 0.25) < 1e-12);
  folder.config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  folder.write_config();
  CHECK(std::abs(rotation().magnitude - (1 + 0.1 * std::log(4.0))) < 1e-6);
  folder.config.erase("rope_scaling");
  folder.config["rope_parameters"] = {{"rope_theta", 500.0}, {"rope_type", "default"}};
  folder.write_config();
  CHECK(std::abs(rotation().frequencies[1] - std::pow(500.0, -2.0 / 64)) < 1e-9);
}

TEST_CASE("Chat templates come from any of their places") {
  Folder const folder(TinyModel{.architecture = "qwen2"});
  CHECK(infer::load_model(folder.path()).chat_template.empty());
  io::write_file(folder.path() + "/tokenizer_config.json",
                 R"({"chat_template": [{"name": "tools", "template": "x"}, {"name": "default", "template": "y"}]})");
  CHECK(infer::load_model(folder.path()).chat_template == "y");
  io::write_file(folder.path() + "/tokenizer_config.json", R"({"chat_template": "z"})");
  CHECK(infer::load_model(folder.path()).chat_template == "z");
  io::write_file(folder.path() + "/chat_template.jinja", "w");
  CHECK(infer::load_model(folder.path()).chat_template == "w");
}

TEST_CASE("Folders that are no usable model are refused with a sentence") {
  Folder folder(TinyModel{.architecture = "llama"});
  Json const good = folder.config;
  auto const refused = [&](char const* key, Json value, char const* why, ErrorKind kind = ErrorKind::format) {
    folder.config = good;
    if (value.is_discarded()) folder.config.erase(key);
    else folder.config[key] = std::move(value);
    folder.write_config();
    REQUIRE_ERROR(infer::load_model(folder.path()), kind, why);
  };
  Json const absent(Json::value_t::discarded);
  refused("model_type", "mamba", "none of gpt2, llama, mistral, qwen2 and phi3");
  refused("num_hidden_layers", absent, "num_hidden_layers is missing");
  refused("num_hidden_layers", 5000, "there may be 1024");
  refused("hidden_size", -256, "hidden_size is missing, or no count");
  refused("hidden_act", "gelu", "hidden_act is 'gelu'");
  refused("attention_bias", true, "attention_bias is true");
  refused("rope_scaling", Json{{"type", "dynamic"}, {"factor", 2.0}}, "scaled by 'dynamic'");
  refused("rope_scaling", "linear", "rope_scaling is no object");
  folder.config = good;
  folder.write_config();
  Folder gpt2(TinyModel{.architecture = "gpt2"});
  for (char const* const key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    Json const usual = gpt2.config;
    gpt2.config[key] = true;
    gpt2.write_config();
    REQUIRE_ERROR(infer::load_model(gpt2.path()), ErrorKind::format, concat("its ", key, " is true"));
    gpt2.config = usual;
  }
  gpt2.config["scale_attn_weights"] = false;
  gpt2.write_config();
  REQUIRE_ERROR(infer::load_model(gpt2.path()), ErrorKind::format, "its scale_attn_weights is false");
  std::filesystem::remove(gpt2.path() + "/model.safetensors");
  io::write_file(gpt2.path() + "/pytorch_model.bin", "x");
  REQUIRE_ERROR(infer::load_model(gpt2.path()), ErrorKind::format, "a pickle of PyTorch");
  std::filesystem::remove(folder.path() + "/model.safetensors");
  REQUIRE_ERROR(infer::load_model(folder.path()), ErrorKind::io, "model.safetensors");
  std::filesystem::remove(folder.path() + "/config.json");
  REQUIRE_ERROR(infer::load_model(folder.path()), ErrorKind::configuration, "has no config.json");
  // layers that are not there, when it is made ready
  Folder short_of_layers(TinyModel{.architecture = "llama"});
  short_of_layers.config["num_hidden_layers"] = 3;
  short_of_layers.write_config();
  REQUIRE_ERROR(logits(infer::load_model(short_of_layers.path()), {1}), ErrorKind::format, "has no tensor 'blk.2");
  // a tensor of an adapter
  Folder other(TinyModel{.architecture = "qwen2"});
  std::filesystem::remove(other.path() + "/model.safetensors");
  float const one = 1;
  std::string const name = "model.layers.0.self_attn.q_proj.lora_A.weight";
  std::vector<io::NamedTensor> const odd{{name, DType::float32, {1, 1}, &one}};
  io::write_safetensors_shards(other.path(), odd);
  REQUIRE_ERROR(infer::load_model(other.path()), ErrorKind::format, "lora_A");
}

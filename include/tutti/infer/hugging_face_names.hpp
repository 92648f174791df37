// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The tensors of models that Hugging Face publishes, by their names there and by those of GGUF files.

#include <tutti/core/concat.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::infer::detail {

struct HuggingFaceName {
  std::string_view theirs, ours;
};
inline constexpr HuggingFaceName hugging_face_gpt2[] = {
    {"wte", "token_embd"},            {"wpe", "position_embd"},
    {"ln_f", "output_norm"},          {"lm_head", "output"},
    {"ln_1", "attn_norm"},            {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},   {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},           {"mlp.c_proj", "ffn_down"}};
inline constexpr HuggingFaceName hugging_face_llama[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},  // both in one: gate's rows come first
    {"mlp.down_proj", "ffn_down"}};

/// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight". Empty for buffers that are no weights; nothing for
/// what no model of its kind has.
inline std::optional<std::string> name_of_hugging_face(std::string_view name, bool gpt2) {
  std::string_view rest = name;
  for (std::string_view const outer : {"transformer.", "model."})
    if (rest.starts_with(outer)) rest.remove_prefix(outer.size());
  std::string block;
  if (std::string_view const layers = gpt2 ? "h." : "layers."; rest.starts_with(layers)) {
    rest.remove_prefix(layers.size());
    std::size_t const digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits > 4 || digits >= rest.size() || rest[digits] != '.') return std::nullopt;
    block = concat("blk.", rest.substr(0, digits), ".");
    rest.remove_prefix(digits + 1);
  }
  for (std::string_view const buffer : {"attn.bias", "attn.masked_bias", "self_attn.rotary_emb.inv_freq"})
    if (rest == buffer) return "";
  std::size_t const dot = rest.rfind('.');
  std::string_view const stem = rest.substr(0, dot == std::string_view::npos ? rest.size() : dot);
  std::string_view const kind = rest.substr(stem.size());
  if (kind == ".weight" || kind == ".bias")
    for (HuggingFaceName const& known : gpt2 ? std::span<HuggingFaceName const>(hugging_face_gpt2)
                                             : std::span<HuggingFaceName const>(hugging_face_llama))
      if (known.theirs == stem) return concat(block, known.ours, kind);
  return std::nullopt;
}

}  // namespace tutti::infer::detail

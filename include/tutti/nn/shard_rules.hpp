// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which parameters of a model are divided among the ranks of the tensor axis, as data: everything else of tensor
/// parallelism follows from the graph (parallel/shard.hpp). A model of your own brings a free function
/// `shard_rules(config)` beside its configuration.

#include <tutti/core/list.hpp>
#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/llama_config.hpp>

#include <cstdint>
#include <string_view>

namespace tutti::nn {

/// Parameters of these names, with '*' for any text, are divided along `axis`, the one of layers not counted. Where
/// several matrices lie side by side along it, `sections` are their lengths in any unit: each is divided by itself.
struct ShardRule {
  std::string_view pattern;
  int axis = 0;
  List<std::int64_t> sections{1};
  bool if_even = false;  ///< whole on every rank where the ranks do not divide it
};
/// Of rules that match one parameter the last one counts; without one it is whole on every rank.
using ShardRules = List<ShardRule>;

/// Whole heads of attention, columns of the feed-forward layer and rows of the vocabulary (Shoeybi et al. 2019, arXiv
/// 1909.08053); positions and norms are whole.
inline ShardRules shard_rules(Gpt2Config const&) {
  return {{"wte", 0, {1}, true},
          {"blocks.qkv.*", 0, {1, 1, 1}},
          {"blocks.proj.weight", 1},
          {"blocks.fc.*", 0},
          {"blocks.out.weight", 1}};
}
/// Likewise: heads of keys and values with the heads of queries that they serve.
inline ShardRules shard_rules(LlamaConfig const& c) {
  ShardRules rules{{"embedding", 0, {1}, true},
                   {"blocks.qkv.*", 0, {c.heads, c.kv_heads, c.kv_heads}},
                   {"blocks.proj.weight", 1},
                   {"blocks.gated.*", 0},
                   {"blocks.down.weight", 1}};
  if (!c.tied) rules.push_back({"head", 0, {1}, true});
  return rules;
}

}  // namespace tutti::nn

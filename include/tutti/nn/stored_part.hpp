// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The part of a stored model that one of several ranks computes with: heads and channels of the feed-forward layers
/// are shared out, and so are the rows of the head.
/// Source  Shoeybi and others, "Megatron-LM", 2019 (arXiv 1909.08053), section 3

#include <tutti/core/block_type.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/nn/stored_model.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::nn {

namespace detail {

/// Takes one rank's part of each tensor.
class StoredParts {
 public:
  StoredParts(StoredModel const& whole, std::int64_t rank, std::int64_t ranks)
      : whole_(whole), rank_(rank), ranks_(ranks) {
    part_.config = whole.config;
    part_.rotation = whole.rotation;
    part_.keep = whole.keep;
    part_.source = whole.source;
    part_.rank = rank;
    part_.ranks = ranks;
  }

  StoredModel take() {
    divides(whole_.heads(), "heads");
    divides(whole_.kv_heads(), "heads of keys and values");
    divides(whole_.hidden(), "channels of the feed-forward layers");
    if (whole_.classes() < ranks_) divides(whole_.classes(), "tokens");
    bool headed = false;
    for (StoredTensor const& tensor : whole_.tensors) {
      if (tensor.tiled) refuse("its weights are in tiles already");
      headed = headed || tensor.name == "output.weight";
      add(tensor);
    }
    if (!headed) head(whole_.at("token_embd.weight", whole_.classes(), whole_.channels()));
    return std::move(part_);
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::configuration, "stored_part",
                concat("'", whole_.source, "' cannot be shared out to ", ranks_, " ranks: ", why,
                       ". Start another number of ranks"));
  }
  void divides(std::int64_t count, char const* of) const {
    if (count % ranks_ != 0) refuse(concat("it has ", count, " ", of));
  }

  /// Rows [first, first + count), where they lie.
  void rows(std::string name, StoredTensor const& of, std::int64_t first, std::int64_t count) {
    part_.tensors.push_back(
        {std::move(name), of.type, count, of.columns, of.data + first * row_bytes(of.type, of.columns)});
  }
  void share_of_rows(StoredTensor const& of) { rows(of.name, of, of.rows / ranks_ * rank_, of.rows / ranks_); }
  /// Columns of every row, copied: whole blocks of them.
  void share_of_columns(StoredTensor const& of) {
    std::int64_t const columns = of.columns / ranks_, block = block_elements(of.type);
    if (columns % block != 0)
      refuse(concat("the ", columns, " columns of a part of ", of.name, " are no whole blocks of ", block,
                    ", in which ", name(of.type), " stores them"));
    auto const bytes = static_cast<std::size_t>(row_bytes(of.type, columns));
    auto const kept = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(of.rows) * bytes);
    for (std::int64_t row = 0; row < of.rows; ++row)
      std::memcpy(kept->data() + static_cast<std::size_t>(row) * bytes,
                  of.data + row * row_bytes(of.type, of.columns) + rank_ * static_cast<std::int64_t>(bytes), bytes);
    part_.tensors.push_back({of.name, of.type, of.rows, columns, kept->data()});
    part_.keep.push_back(kept);
  }
  void own(std::string name, std::vector<float> values) {
    auto const kept = std::make_shared<std::vector<float> const>(std::move(values));
    part_.keep.push_back(kept);
    part_.tensors.push_back({std::move(name), BlockType::f32, 1, static_cast<std::int64_t>(kept->size()),
                             reinterpret_cast<std::byte const*>(kept->data())});
  }
  static std::vector<float> slice(StoredTensor const& of, std::int64_t first, std::int64_t count) {
    auto const* const values = reinterpret_cast<float const*>(of.data) + first;
    return {values, values + count};
  }
  /// Every rank's logits are those of as many tokens; where they do not divide, some are computed twice.
  void head(StoredTensor const& table) {
    std::int64_t const first = whole_.first_class(rank_, ranks_);
    rows("output.weight", table, first, whole_.classes_each(ranks_));
  }

  void add(StoredTensor const& tensor) {
    std::string_view const full = tensor.name;
    auto const is = [&](std::string_view end) { return full.starts_with("blk.") && full.ends_with(end); };
    std::string const block(full.substr(0, full.find('.', 4) + 1));
    std::int64_t const q = whole_.heads() * whole_.head_size(), kv = whole_.kv_heads() * whole_.head_size();
    if (full == "output.weight") {
      head(tensor);
    } else if (is(".attn_qkv.weight")) {
      rows(block + "attn_q.weight", tensor, q / ranks_ * rank_, q / ranks_);
      rows(block + "attn_k.weight", tensor, q + kv / ranks_ * rank_, kv / ranks_);
      rows(block + "attn_v.weight", tensor, q + kv + kv / ranks_ * rank_, kv / ranks_);
    } else if (is(".attn_qkv.bias")) {
      std::vector<float> joined = slice(tensor, q / ranks_ * rank_, q / ranks_);
      for (std::int64_t const from : {q, q + kv}) {
        auto const one = slice(tensor, from + kv / ranks_ * rank_, kv / ranks_);
        joined.insert(joined.end(), one.begin(), one.end());
      }
      own(tensor.name, std::move(joined));
    } else if (is(".attn_q.bias") || is(".attn_k.bias") || is(".attn_v.bias")) {
      // Joined in attn_qkv.bias, which the blocks read.
    } else if (is(".attn_q.weight") || is(".attn_k.weight") || is(".attn_v.weight") || is(".ffn_gate.weight") ||
               is(".ffn_up.weight")) {
      share_of_rows(tensor);
    } else if (is(".ffn_up.bias")) {
      own(tensor.name, slice(tensor, tensor.columns / ranks_ * rank_, tensor.columns / ranks_));
    } else if (is(".attn_output.weight") || is(".ffn_down.weight")) {
      share_of_columns(tensor);
    } else if (rank_ > 0 && (is(".attn_output.bias") || is(".ffn_down.bias"))) {
      own(tensor.name, std::vector<float>(static_cast<std::size_t>(tensor.columns)));  // rank 0 adds it
    } else {
      part_.tensors.push_back(tensor);
    }
  }

  StoredModel const& whole_;
  std::int64_t rank_, ranks_;
  StoredModel part_;
};

}  // namespace detail

/// What rank `rank` of `ranks` needs to decode beside the others: rows of matrices whose outputs are shared out, where
/// they lie; columns of those whose inputs are, copied; embedding and norms whole. One rank's is the model itself.
/// Errors    configuration, in figures: heads, channels or blocks that ranks do not divide
inline StoredModel stored_part(StoredModel const& whole, std::int64_t rank, std::int64_t ranks) {
  if (rank < 0 || rank >= ranks || whole.ranks != 1)
    throw Error(ErrorKind::invalid_argument, "stored_part",
                concat("rank ", rank, " of ", ranks, ", of a model that ", whole.ranks, " ranks share"));
  if (ranks == 1) return whole;
  return detail::StoredParts(whole, rank, ranks).take();
}

}  // namespace tutti::nn

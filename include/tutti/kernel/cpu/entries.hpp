// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The kernels that models call themselves, and that are worth compiling once; see TUTTI_SEPARATE_COMPILATION. Their
/// bodies, where they are compiled here.

#include <tutti/config.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/block_product.hpp>
#include <tutti/kernel/cached_attention.hpp>
#include <tutti/kernel/cpu/packed_right.hpp>
#include <tutti/kernel/cross_entropy.hpp>
#include <tutti/kernel/embedding.hpp>
#include <tutti/kernel/gemm.hpp>
#include <tutti/kernel/layer_norm.hpp>

namespace tutti::kernel::cpu {

// Contracts: the headers of kernel/.
TUTTI_INLINE void attention(exec::Context& context, Attention const& a);
TUTTI_INLINE void attention_gradient(exec::Context& context, AttentionGradient const& a);
TUTTI_INLINE void attention_decode(exec::Context& context, AttentionDecode const& a);
TUTTI_INLINE void block_products(exec::Context& context, BlockProduct const* products, int count);
TUTTI_INLINE void block_product(exec::Context& context, BlockProduct const& product);
TUTTI_INLINE bool tiles_weights(exec::Isa isa, BlockType type);
TUTTI_INLINE void block_swiglu(exec::Context& context, BlockSwiGlu const& p);
TUTTI_INLINE void block_rows(exec::Context& context, BlockRows const& args);
TUTTI_INLINE void cached_attention(exec::Context& context, CachedAttention const& a);
TUTTI_INLINE void cross_entropy(exec::Context& context, CrossEntropy const& args);
TUTTI_INLINE void linear_cross_entropy(exec::Context& context, LinearCrossEntropy const& args);
TUTTI_INLINE void embedding(exec::Context& context, Embedding const& args);
TUTTI_INLINE void embedding_gradient(exec::Context& context, EmbeddingGradient const& args);
TUTTI_INLINE void gemm(exec::Context& context, Gemm const& g);
TUTTI_INLINE void column_sum(exec::Context& context, ColumnSum const& s);
TUTTI_INLINE void layer_norm(exec::Context& context, LayerNorm const& args);
TUTTI_INLINE void layer_norm_gradient(exec::Context& context, LayerNormGradient const& args);

}  // namespace tutti::kernel::cpu

#if TUTTI_BODIES
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/block_product.hpp>
#include <tutti/kernel/cpu/cached_attention.hpp>
#include <tutti/kernel/cpu/cross_entropy.hpp>
#include <tutti/kernel/cpu/embedding.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/layer_norm.hpp>
#endif

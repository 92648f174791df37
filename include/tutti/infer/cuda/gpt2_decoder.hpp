// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Generation with a key/value cache on a GPU: a prompt in one pass, then one captured step for each token.
///
/// What a step of the 124M model costs in bfloat16: it reads 85 million weights of the layers and 39 million of the
/// head, 247 MB, and at 4.3 TB/s (an H200) that is 58 us. It is 62 kernels: the next token with its embedding; for each
/// of 12 layers norm + qkv into the cache, attention, join + proj + residual, norm + fc + GELU, out + residual; norm +
/// head. Each needs the one before it, so at 1.5 us from the end of one to the end of the next the chain alone is 93
/// us. Kernels therefore overlap: while the chain goes on, those that come next have their weights under way (see
/// row_product.hpp). 6,000 tokens a second allow 166 us a token.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/kernel/cuda/attention.hpp>
#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/copy.hpp>
#include <tutti/kernel/cuda/embedding.hpp>
#include <tutti/kernel/cuda/gemm.hpp>
#include <tutti/kernel/cuda/layer_norm.hpp>
#include <tutti/kernel/cuda/next_token.hpp>
#include <tutti/kernel/cuda/row_product.hpp>
#include <tutti/nn/gpt2_weights.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace tutti::infer::cuda {

/// infer::Gpt2Decoder for a GPU, with the same calls. T is float or bfloat16: matrices, embeddings and the cache are of
/// it, and so are activations of a prompt; biases, norms, logits and a step's activations are float.
///
/// Blocking    append, greedy and the constructor wait for their results
/// Cost        memory: weights and cache in T, and once a prompt was read about 9 * channels * tokens of T
/// Determinism the same tokens, the same bits, on devices with as many processors
template <class T>
class Gpt2Decoder {
 public:
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, bfloat16>, "weights on a device: float or bfloat16");

  /// Borrows `blas` and its context; copies the weights. `capacity` tokens at most, 0: as many as the model has
  /// positions. Errors: invalid_argument (capacity; heads that are no multiple of 8 elements up to 128); out_of_memory.
  Gpt2Decoder(kernel::cuda::Blas& blas, nn::Gpt2Weights const& weights, std::int64_t capacity = 0)
      : blas_(blas),
        context_(blas.context()),
        c_(weights.config),
        capacity_(checked(c_, capacity == 0 ? c_.max_tokens : capacity)),
        cut_(context_, c_.heads, capacity_) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) upload(i, weights.data[i]);
    std::int64_t const c = c_.channels;
    cache_ = Array<T>(context_, c_.layers * 2 * c * capacity_);
    x_ = Array<float>(context_, c);
    hidden_ = Array<float>(context_, 4 * c);
    query_ = Array<T>(context_, c);
    parts_ = Array<float>(context_, cut_.size(c_.heads, c_.head_size()));
    logits_ = Array<float>(context_, c_.vocabulary);
    candidates_ = kernel::cuda::row_product_blocks<T>(c_.vocabulary, c);
    likeliest_ = Array<kernel::cuda::Likeliest>(context_, candidates_);
    sequence_ = Array<kernel::cuda::Sequence>(context_, 1);
    text_ = Array<std::int32_t>(context_, capacity_);
    host_logits_ = tutti::cuda::PinnedMemory(static_cast<std::size_t>(c_.vocabulary) * sizeof(float));
    host_text_ = tutti::cuda::PinnedMemory(static_cast<std::size_t>(capacity_) * sizeof(std::int32_t));
    host_sequence_ =
        tutti::cuda::PinnedMemory(static_cast<std::size_t>(capacity_) * sizeof(kernel::cuda::Sequence));
    // Kernels are loaded when they first run, which a capture does not allow. Nothing of this step is ever read.
    set_sequence(0, {0, 0});
    enqueue_step();
    step_ = tutti::cuda::Graph::capture(context_.stream(), [this] { enqueue_step(); });
    context_.stream().wait();
  }
  Gpt2Decoder(Gpt2Decoder const&) = delete;
  Gpt2Decoder& operator=(Gpt2Decoder const&) = delete;

  std::int64_t length() const noexcept { return length_; }
  std::int64_t capacity() const noexcept { return capacity_; }
  void reset() noexcept { length_ = 0; }
  /// Kernels of a step.
  std::size_t kernels() const noexcept { return step_.size(); }

  /// Appends tokens and returns the logits (vocabulary) that follow the last one, in pinned memory; they stay valid
  /// until the next call. Errors: invalid_argument for no token; out_of_range past the capacity or for an unknown
  /// token. Nothing is appended then.
  std::span<float const> append(std::span<std::int32_t const> tokens) {
    auto const count = static_cast<std::int64_t>(tokens.size());
    if (count == 0) throw Error(ErrorKind::invalid_argument, "Gpt2Decoder::append", "there is no token to append");
    check_room("Gpt2Decoder::append", count);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] < 0 || tokens[i] >= c_.vocabulary)
        throw Error(ErrorKind::out_of_range, "Gpt2Decoder::append",
                    concat("token ", tokens[i], " at index ", i, " is outside the vocabulary of ", c_.vocabulary));
    tutti::cuda::Stream const& stream = context_.stream();
    if (length_ == 0 && count > 1) {
      enqueue_prompt(tokens);  // a whole prompt at once: every weight is read once for all of its tokens
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        set_sequence(i, {static_cast<std::int32_t>(length_ + i), tokens[static_cast<std::size_t>(i)]});
        step_.launch(stream);
      }
    }
    tutti::cuda::copy_to_host(stream, host_logits_.data(), logits_.data(), host_logits_.bytes());
    stream.wait();
    length_ += count;
    return {static_cast<float const*>(host_logits_.data()), static_cast<std::size_t>(c_.vocabulary)};
  }

  /// Appends the most likely token `count` times, of equals the one with the lowest id, and returns them, in pinned
  /// memory, valid until the next call. The device goes from token to token by itself. As `append` for each of them,
  /// but without logits. Errors: invalid_argument for less than one token, before the first `append`, and where logits
  /// are not finite (then the decoder is reset); out_of_range past the capacity.
  std::span<std::int32_t const> greedy(std::int64_t count) {
    auto const refuse = [](char const* what) { throw Error(ErrorKind::invalid_argument, "Gpt2Decoder::greedy", what); };
    if (count < 1) refuse("there is no token to append");
    if (length_ == 0) refuse("nothing is there to continue. Append a token first");
    check_room("Gpt2Decoder::greedy", count);
    tutti::cuda::Stream const& stream = context_.stream();
    for (std::int64_t i = 0; i < count; ++i) step_.launch(stream);
    std::span<std::int32_t const> const text{static_cast<std::int32_t const*>(host_text_.data()),
                                             static_cast<std::size_t>(count)};
    tutti::cuda::copy_to_host(stream, host_text_.data(), text_.data() + length_, text.size_bytes());
    stream.wait();
    length_ += count;
    for (std::int32_t const token : text)
      if (token < 0) {
        reset();
        refuse("none of the logits is finite");
      }
    return text;
  }

 private:
  using W = nn::Gpt2Weights;

  template <class Element>
  struct Array {
    tutti::cuda::DeviceMemory memory;

    Array() = default;
    Array(kernel::cuda::Context& context, std::int64_t count)
        : memory(context.stream(), static_cast<std::size_t>(count) * sizeof(Element)) {}
    Element* data() const noexcept { return static_cast<Element*>(memory.data()); }
  };

  static std::int64_t checked(nn::Gpt2Config const& c, std::int64_t capacity) {
    if (capacity < 1 || capacity > c.max_tokens)
      throw Error(ErrorKind::invalid_argument, "Gpt2Decoder",
                  concat("capacity ", capacity, " is outside the model's 1 to ", c.max_tokens, " positions"));
    if (c.head_size() % 8 != 0 || c.head_size() > 128)
      throw Error(ErrorKind::invalid_argument, "Gpt2Decoder",
                  concat("heads of ", c.head_size(),
                         " elements are not among those of CUDA devices: multiples of 8 up to 128"));
    return capacity;
  }
  void check_room(char const* operation, std::int64_t count) const {
    if (count > capacity_ - length_)
      throw Error(ErrorKind::out_of_range, operation,
                  concat(count, " tokens do not fit behind ", length_, " of ", capacity_,
                         ". Reset and append the last ones"));
  }

  /// Matrices and embeddings in T, all others in float.
  void upload(std::size_t index, float const* from) {
    auto const count = static_cast<std::size_t>(nn::gpt2_shape(c_, index).size());
    bool const narrow = nn::gpt2_tensors[index].decays && sizeof(T) != sizeof(float);
    tensors_[index] = tutti::cuda::DeviceMemory(context_.stream(), count * (narrow ? sizeof(T) : sizeof(float)));
    if (narrow) {
      std::vector<T> rounded(count);
      for (std::size_t i = 0; i < count; ++i) rounded[i] = T(from[i]);
      tutti::cuda::copy_to_device(context_.stream(), tensors_[index].data(), rounded.data(), count * sizeof(T));
    } else {
      tutti::cuda::copy_to_device(context_.stream(), tensors_[index].data(), from, count * sizeof(float));
    }
  }
  /// `layer` times `size` elements into a tensor.
  T const* matrix(std::size_t index, std::int64_t layer = 0, std::int64_t size = 0) const {
    return static_cast<T const*>(tensors_[index].data()) + layer * size;
  }
  float const* vector(std::size_t index, std::int64_t layer = 0, std::int64_t size = 0) const {
    return static_cast<float const*>(tensors_[index].data()) + layer * size;
  }
  T* keys(std::int64_t layer) const { return cache_.data() + layer * 2 * c_.channels * capacity_; }
  T* values(std::int64_t layer) const { return keys(layer) + c_.channels * capacity_; }

  /// By way of a place of its own for each of the tokens of one call: what is enqueued still reads the others.
  void set_sequence(std::int64_t place, kernel::cuda::Sequence sequence) {
    auto* const host = static_cast<kernel::cuda::Sequence*>(host_sequence_.data()) + place;
    *host = sequence;
    tutti::cuda::copy_to_device(context_.stream(), sequence_.data(), host, sizeof sequence);
  }

  template <class X>
  void enqueue_head(X const* x) {
    kernel::cuda::row_product(
        context_, c_.vocabulary, c_.channels, matrix(W::index("wte")),
        kernel::cuda::NormedRow<X>{
            .x = x, .gamma = vector(W::index("ln_f.weight")), .beta = vector(W::index("ln_f.bias")), .eps = c_.epsilon},
        kernel::cuda::ToLogits{.logits = logits_.data(), .likeliest = likeliest_.data()}, true);
  }

  /// One position: of the token that the host wants, else of the likeliest one.
  void enqueue_step() {
    using namespace kernel::cuda;
    std::int64_t const c = c_.channels, hs = c_.head_size();
    std::int32_t const* const length = &sequence_.data()->length;
    next_token(context_, NextToken<T>{.channels = c,
                                      .vocabulary = c_.vocabulary,
                                      .candidates = candidates_,
                                      .table = matrix(W::index("wte")),
                                      .positions = matrix(W::index("wpe")),
                                      .likeliest = likeliest_.data(),
                                      .sequence = sequence_.data(),
                                      .text = text_.data(),
                                      .x = x_.data()});
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      auto const normed = [&](std::size_t gamma, std::size_t beta) {
        return NormedRow<float>{.x = x_.data(),
                         .gamma = vector(gamma, layer, c),
                         .beta = vector(beta, layer, c),
                         .eps = c_.epsilon};
      };
      row_product(context_, 3 * c, c, matrix(W::index("blocks.qkv.weight"), layer, 3 * c * c),
                  normed(W::index("blocks.ln_1.weight"), W::index("blocks.ln_1.bias")),
                  ToCache<T>{.bias = vector(W::index("blocks.qkv.bias"), layer, 3 * c),
                             .q = query_.data(),
                             .keys = keys(layer),
                             .values = values(layer),
                             .length = length,
                             .channels = static_cast<int>(c),
                             .head_size = static_cast<int>(hs),
                             .capacity = static_cast<int>(capacity_)},
                  true);
      attention_decode_parts(context_,
                             kernel::AttentionDecodeOf<T>{.batch = 1,
                                                          .capacity = capacity_,
                                                          .heads = c_.heads,
                                                          .head_size = hs,
                                                          .scale = scale(),
                                                          .q = query_.data(),
                                                          .q_stride = c,
                                                          .keys = keys(layer),
                                                          .values = values(layer)},
                             length, cut_, parts_.data());
      row_product(context_, c, c, matrix(W::index("blocks.proj.weight"), layer, c * c),
                  JoinedRow{.parts = parts_.data(),
                            .length = length,
                            .head_size = static_cast<int>(hs),
                            .count = static_cast<int>(cut_.count),
                            .part = static_cast<int>(cut_.length)},
                  ToRow{.y = x_.data(), .bias = vector(W::index("blocks.proj.bias"), layer, c), .residual = x_.data()},
                  true);
      row_product(context_, 4 * c, c, matrix(W::index("blocks.fc.weight"), layer, 4 * c * c),
                  normed(W::index("blocks.ln_2.weight"), W::index("blocks.ln_2.bias")),
                  ToRow{.y = hidden_.data(), .bias = vector(W::index("blocks.fc.bias"), layer, 4 * c), .gelu = true},
                  true);
      row_product(
          context_, c, 4 * c, matrix(W::index("blocks.out.weight"), layer, 4 * c * c), PlainRow{.x = hidden_.data()},
          ToRow{.y = x_.data(), .bias = vector(W::index("blocks.out.bias"), layer, c), .residual = x_.data()}, true);
    }
    enqueue_head(static_cast<float const*>(x_.data()));
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c_.head_size())); }

  /// y (rows, out) = x (rows, in) w^T + b, with what the epilogue adds.
  void linear(std::int64_t in, std::int64_t out, T const* x, T const* w, float const* b, T* y, bool gelu = false,
              T const* residual = nullptr) {
    kernel::Gemm product = kernel::linear_product(prompt_.rows, in, out, x, w, y);
    product.epilogue.bias = b;
    product.epilogue.gelu = gelu;
    product.epilogue.residual = residual;
    kernel::cuda::gemm(blas_, product);
  }
  void norm(T const* x, float const* gamma, float const* beta, T* y) {
    kernel::cuda::layer_norm(context_, kernel::LayerNormOf<T>{.rows = prompt_.rows,
                                                              .channels = c_.channels,
                                                              .eps = c_.epsilon,
                                                              .x = x,
                                                              .gamma = gamma,
                                                              .beta = beta,
                                                              .y = y});
  }

  /// Activations of a prompt.
  struct Prompt {
    std::int64_t rows = 0, room = 0;
    Array<T> x, normed, wide;  ///< (rows, C) twice, (rows, 4 C): Q, K, V and the hidden layer in turn
    Array<std::int32_t> tokens;
  };

  void enqueue_prompt(std::span<std::int32_t const> tokens) {
    std::int64_t const c = c_.channels, hs = c_.head_size();
    Prompt& p = prompt_;
    p.rows = static_cast<std::int64_t>(tokens.size());
    if (p.rows > p.room) {
      p.room = 0;
      p.x = Array<T>(context_, p.rows * c);
      p.normed = Array<T>(context_, p.rows * c);
      p.wide = Array<T>(context_, p.rows * 4 * c);
      p.tokens = Array<std::int32_t>(context_, p.rows);
      p.room = p.rows;
    }
    std::memmove(host_text_.data(), tokens.data(), tokens.size_bytes());  // they may be those of `greedy`
    tutti::cuda::copy_to_device(context_.stream(), p.tokens.data(), host_text_.data(), tokens.size_bytes());
    set_sequence(0, {static_cast<std::int32_t>(p.rows), -1});
    kernel::cuda::embedding(context_, kernel::EmbeddingOf<T, T>{.batch = 1,
                                                                .tokens_per_row = p.rows,
                                                                .channels = c,
                                                                .vocabulary = c_.vocabulary,
                                                                .tokens = p.tokens.data(),
                                                                .table = matrix(W::index("wte")),
                                                                .positions = matrix(W::index("wpe")),
                                                                .out = p.x.data()});
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      norm(p.x.data(), vector(W::index("blocks.ln_1.weight"), layer, c), vector(W::index("blocks.ln_1.bias"), layer, c),
           p.normed.data());
      linear(c, 3 * c, p.normed.data(), matrix(W::index("blocks.qkv.weight"), layer, 3 * c * c),
             vector(W::index("blocks.qkv.bias"), layer, 3 * c), p.wide.data());
      kernel::cuda::strided_copy(context_, {.shape = Shape{2, c_.heads, p.rows, hs},
                                            .element_size = sizeof(T),
                                            .from = p.wide.data() + c,
                                            .from_strides = {c, hs, 3 * c, 1},
                                            .to = keys(layer),
                                            .to_strides = {c * capacity_, capacity_ * hs, hs, 1}});
      kernel::cuda::attention(context_, kernel::AttentionOf<T>{.batch = 1,
                                                               .tokens = p.rows,
                                                               .heads = c_.heads,
                                                               .head_size = hs,
                                                               .scale = scale(),
                                                               .qkv = p.wide.data(),
                                                               .out = p.normed.data()});
      linear(c, c, p.normed.data(), matrix(W::index("blocks.proj.weight"), layer, c * c),
             vector(W::index("blocks.proj.bias"), layer, c), p.x.data(), false, p.x.data());
      norm(p.x.data(), vector(W::index("blocks.ln_2.weight"), layer, c), vector(W::index("blocks.ln_2.bias"), layer, c),
           p.normed.data());
      linear(c, 4 * c, p.normed.data(), matrix(W::index("blocks.fc.weight"), layer, 4 * c * c),
             vector(W::index("blocks.fc.bias"), layer, 4 * c), p.wide.data(), true);
      linear(4 * c, c, p.wide.data(), matrix(W::index("blocks.out.weight"), layer, 4 * c * c),
             vector(W::index("blocks.out.bias"), layer, c), p.x.data(), false, p.x.data());
    }
    enqueue_head(p.x.data() + (p.rows - 1) * c);  // only the last position's logits are wanted
  }

  kernel::cuda::Blas& blas_;
  kernel::cuda::Context& context_;
  nn::Gpt2Config c_;
  std::int64_t capacity_ = 0, length_ = 0;
  kernel::cuda::AttentionParts cut_;
  int candidates_ = 0;
  std::array<tutti::cuda::DeviceMemory, nn::gpt2_tensors.size()> tensors_;
  Array<T> cache_, query_;
  Array<float> x_, hidden_, parts_, logits_;
  Array<kernel::cuda::Likeliest> likeliest_;
  Array<kernel::cuda::Sequence> sequence_;
  Array<std::int32_t> text_;  ///< by position: what steps appended
  tutti::cuda::PinnedMemory host_logits_, host_text_, host_sequence_;
  Prompt prompt_;
  tutti::cuda::Graph step_;
};

}  // namespace tutti::infer::cuda

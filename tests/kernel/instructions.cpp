// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/kernel/cpu.hpp>
/// @file
/// Runs every kernel twice, small and large, inside of `counted`, and prints a line for each: its name and its units of
/// work at both sizes. instructions.py counts the instructions of the two calls.

#include <tutti/exec/context.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/kernel/cpu/adamw.hpp>
#include <tutti/kernel/cpu/attention.hpp>
#include <tutti/kernel/cpu/cross_entropy.hpp>
#include <tutti/kernel/cpu/elementwise.hpp>
#include <tutti/kernel/cpu/embedding.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/layer_norm.hpp>
#include <tutti/kernel/cpu/quantize.hpp>
#include <tutti/kernel/cpu/rms_norm.hpp>
#include <tutti/kernel/cpu/rotary.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace tutti;
using std::int64_t;

extern "C" __attribute__((noinline)) void counted(void (*run)(exec::Context&, int64_t), exec::Context& context,
                                                  int64_t size) {
  run(context, size);
  __asm__ volatile("");  // no tail call: the function ends when the kernel has
}

namespace {

/// Memory that is there before anything is counted; values in [-1, 1) that are not all alike, of the last in [0, 1).
std::array<std::vector<float>, 8> arrays;
void fill() {
  for (auto& array : arrays)
    for (std::size_t i = 0; i < array.size(); ++i) {
      float const value = static_cast<float>((i * 2654435761u >> 8) % 2048) / 2048;
      array[i] = &array == &arrays.back() ? value : 2 * value - 1;
    }
}
float* floats(int number, int64_t count) {
  auto& array = arrays[static_cast<std::size_t>(number)];
  if (static_cast<int64_t>(array.size()) < count) {
    array.resize(static_cast<std::size_t>(count));
    fill();
  }
  return array.data();
}

// ---- Products: sizes are k, units multiply-adds of whole vectors ----

constexpr int64_t rows = 192, columns = 256;
int64_t product_work(int64_t k) { return rows * columns * k; }

enum class Form { nt, nn, tn };
kernel::Gemm product(Form form, int64_t k) {
  kernel::Gemm g;
  g.m = rows, g.n = columns, g.k = k, g.c_row = columns;
  g.a = floats(0, rows * k), g.b = floats(1, columns * k), g.c = floats(2, rows * columns);
  g.a_row = form == Form::tn ? 1 : k, g.a_column = form == Form::tn ? rows : 1;
  g.b_row = form == Form::nt ? 1 : columns, g.b_column = form == Form::nt ? k : 1;
  return g;
}
void gemm_nt(exec::Context& context, int64_t k) { kernel::cpu::gemm(context, product(Form::nt, k)); }
void gemm_nn(exec::Context& context, int64_t k) { kernel::cpu::gemm(context, product(Form::nn, k)); }
void gemm_tn(exec::Context& context, int64_t k) { kernel::cpu::gemm(context, product(Form::tn, k)); }
void gemm_rounded(exec::Context& context, int64_t k) {
  kernel::Gemm g = product(Form::nt, k);
  g.product = kernel::Product::bfloat16;
  kernel::cpu::gemm(context, g);
}
template <class T>
kernel::Gemm product_of(kernel::Product kind, DType dtype, int64_t k) {
  static std::vector<T> a, b, c;
  a.resize(static_cast<std::size_t>(rows * k), T(3)), b.resize(static_cast<std::size_t>(columns * k), T(2));
  kernel::Gemm g = product(Form::nt, k);
  g.a = a.data(), g.b = b.data(), g.a_dtype = g.b_dtype = dtype, g.product = kind;
  if (kind == kernel::Product::float64) {
    c.resize(static_cast<std::size_t>(rows * columns));
    g.c = c.data(), g.c_dtype = dtype;
  }
  return g;
}
void gemm_bfloat16(exec::Context& context, int64_t k) {
  kernel::cpu::gemm(context, product_of<bfloat16>(kernel::Product::bfloat16, DType::bfloat16, k));
}
void gemm_int8(exec::Context& context, int64_t k) {
  kernel::Gemm g = product_of<std::int8_t>(kernel::Product::int8, DType::int8, k);
  g.epilogue.row_scales = floats(3, rows), g.epilogue.column_scales = floats(4, columns);
  kernel::cpu::gemm<kernel::Product::int8>(context, g);
}
void gemm_float64(exec::Context& context, int64_t k) {
  kernel::cpu::gemm<kernel::Product::float64>(
      context, product_of<double>(kernel::Product::float64, DType::float64, k));
}
void gemm_epilogue(exec::Context& context,
                   int64_t k) {  // units are elements of the result: work that k does not change
  kernel::Gemm g = product(Form::nt, 8);
  g.m = k, g.c_row = columns, g.epilogue.bias = floats(3, columns), g.epilogue.gelu = true;
  g.a = floats(0, k * 8), g.c = floats(2, k * columns), g.epilogue.saved = floats(4, k * columns);
  kernel::cpu::gemm(context, g);
}
int64_t columns_of_rows(int64_t size) { return size * columns; }
void gemm_skinny(exec::Context& context, int64_t k) {
  kernel::Gemm g = product(Form::nt, k);
  g.m = 4;
  kernel::cpu::gemm(context, g);
}
int64_t skinny_work(int64_t k) { return 4 * columns * k; }

// ---- Attention: sizes are tokens, units the multiply-adds of half of each product ----

constexpr int64_t heads = 2, head_size = 64;
int64_t attention_work(int64_t tokens) { return 2 * heads * head_size * tokens * (tokens + 1) / 2; }
int64_t attention_gradient_work(int64_t tokens) { return attention_work(tokens) / 2 * 5; }
int64_t per_token(int64_t tokens) { return tokens * heads * head_size; }
template <kernel::Product P>
void attention(exec::Context& context, int64_t tokens) {
  kernel::cpu::attention(context, {.batch = 1,
                                   .tokens = tokens,
                                   .heads = heads,
                                   .head_size = head_size,
                                   .scale = 0.125f,
                                   .qkv = floats(0, 3 * per_token(tokens)),
                                   .out = floats(1, per_token(tokens)),
                                   .lse = floats(2, heads * tokens),
                                   .product = P});
}
template <kernel::Product P>
void attention_gradient(exec::Context& context, int64_t tokens) {
  kernel::cpu::attention_gradient(
      context, {.batch = 1, .tokens = tokens, .heads = heads, .head_size = head_size, .scale = 0.125f,
                .dout = floats(3, per_token(tokens)), .qkv = floats(0, 3 * per_token(tokens)),
                .out = floats(1, per_token(tokens)), .lse = floats(2, heads * tokens),
                .dqkv = floats(4, 3 * per_token(tokens)), .product = P});
}

// ---- Elements: sizes are elements or rows, units elements ----

int64_t elements(int64_t size) { return size; }
kernel::AdamW adamw_arguments(int64_t size) {
  kernel::AdamW args;
  args.size = size, args.parameter = floats(0, size), args.gradient = floats(1, size), args.m = floats(2, size);
  args.v = floats(7, size), args.learning_rate = 1e-3f, args.weight_decay = 0.1f, args.gradient_scale = 0.5f;
  return args;
}
void adamw(exec::Context& context, int64_t size) { kernel::cpu::adamw(context, adamw_arguments(size)); }
void adamw_copy(exec::Context& context, int64_t size) {
  static std::vector<bfloat16> copy(24576);
  kernel::AdamW args = adamw_arguments(size);
  args.copy = copy.data(), args.cleared = floats(1, size);
  kernel::cpu::adamw(context, args);
}
void square_sum(exec::Context& context, int64_t size) {
  double out = 0;
  kernel::cpu::square_sum(context, {.size = size, .x = floats(0, size), .out = &out});
}
void gelu(exec::Context& context, int64_t size) {
  kernel::ElementwiseInput const input{floats(0, size), DType::float32, {1}};
  kernel::ElementwiseInstruction const instruction{graph::Op::gelu, 0};
  kernel::ElementwiseOutput const output{1, floats(1, size), DType::float32};
  kernel::cpu::elementwise<graph::ElementwiseFunctions>(context,
                                                        {Shape{size}, {&input, 1}, {&instruction, 1}, {&output, 1}});
}

constexpr int64_t channels = 768;
int64_t channel_rows(int64_t size) { return size * channels; }
void layer_norm(exec::Context& context, int64_t size) {
  int64_t const n = size * channels;
  kernel::cpu::layer_norm(context, {size, channels, 1e-5f, floats(0, n), floats(1, channels), floats(2, channels),
                                    floats(3, n), floats(4, size), floats(5, size)});
}
void layer_norm_gradient(exec::Context& context, int64_t size) {
  int64_t const n = size * channels;
  kernel::cpu::layer_norm_gradient(
      context, {size, channels, floats(3, n), floats(0, n), floats(1, channels), floats(4, size), floats(5, size),
                nullptr, floats(6, n), floats(2, channels), floats(7, channels)});
}
void rms_norm(exec::Context& context, int64_t size) {
  int64_t const n = size * channels;
  kernel::cpu::rms_norm(context,
                        {size, channels, 1e-5f, floats(0, n), floats(1, channels), floats(3, n), floats(5, size)});
}
void rms_norm_gradient(exec::Context& context, int64_t size) {
  int64_t const n = size * channels;
  kernel::cpu::rms_norm_gradient(context, {size, channels, floats(3, n), floats(0, n), floats(1, channels),
                                           floats(5, size), nullptr, floats(6, n), floats(2, channels)});
}
void swiglu(exec::Context& context, int64_t size) {
  int64_t const n = size * channels;
  kernel::cpu::swiglu(context,
                      {size, channels, floats(0, n), channels, floats(1, n), channels, floats(2, n), channels});
}
void swiglu_gradient(exec::Context& context, int64_t size) {
  int64_t const n = size * channels;
  kernel::cpu::swiglu_gradient(context, {size, channels, floats(3, n), channels, floats(0, n), channels, floats(1, n),
                                         channels, floats(4, n), channels, floats(5, n), channels});
}
void rotary(exec::Context& context, int64_t size) {
  int64_t const n = size * channels, half = head_size / 2;
  kernel::cpu::rotary(context, {.rows = size, .heads = channels / head_size, .head_size = head_size, .tokens = size,
                                .positions = size, .cosine = floats(1, size * half), .sine = floats(2, size * half),
                                .x = floats(0, n), .x_stride = channels, .y = floats(3, n), .y_stride = channels});
}
void column_sum(exec::Context& context, int64_t size) {
  kernel::cpu::column_sum(context, {size, channels, floats(0, size * channels), floats(1, channels)});
}
void embedding_gradient(exec::Context& context, int64_t size) {
  static std::vector<std::int32_t> tokens(64);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 5 % 16);
  kernel::cpu::embedding_gradient(context, {.batch = 1, .tokens_per_row = size, .channels = channels, .vocabulary = 16,
                                            .position_rows = 0, .tokens = tokens.data(),
                                            .dout = floats(0, size * channels), .dtable = floats(1, 16 * channels)});
}
void attention_decode(exec::Context& context, int64_t length) {
  kernel::cpu::attention_decode(context, {.batch = 1, .length = length, .capacity = 240, .heads = heads,
                                          .head_size = head_size, .scale = 0.125f, .q = floats(0, heads * head_size),
                                          .q_stride = heads * head_size, .keys = floats(1, 240 * heads * head_size),
                                          .values = floats(2, 240 * heads * head_size),
                                          .out = floats(3, heads * head_size)});
}
int64_t decode_work(int64_t length) { return 2 * length * heads * head_size; }
void quantize_rows(exec::Context& context, int64_t size) {
  static std::vector<std::int8_t> bytes(static_cast<std::size_t>(64 * channels));
  static std::vector<float> scales(64);
  kernel::cpu::quantize_rows(context, {.m = size, .k = channels, .x = floats(0, size * channels), .x_row = channels,
                                       .q = bytes.data(), .q_row = channels, .scales = scales.data()});
}

constexpr int64_t vocabulary = 1024;
int64_t vocabulary_rows(int64_t size) { return size * vocabulary; }
void cross_entropy(exec::Context& context, int64_t size) {
  static std::vector<std::int32_t> const targets(1024, 5);
  float loss = 0;
  kernel::cpu::cross_entropy(context, {.rows = size,
                                       .vocabulary = vocabulary,
                                       .logits = floats(0, size * vocabulary),
                                       .targets = targets.data(),
                                       .loss = &loss,
                                       .dlogits = floats(1, size * vocabulary)});
}

struct Case {
  char const* name;
  void (*run)(exec::Context&, int64_t);
  int64_t (*work)(int64_t);
  int64_t small, large;
};
constexpr Case cases[] = {
    {"gemm nt", gemm_nt, product_work, 192, 384},
    {"gemm nn", gemm_nn, product_work, 192, 384},
    {"gemm tn", gemm_tn, product_work, 192, 384},
    {"gemm bfloat16", gemm_bfloat16, product_work, 192, 384},
    {"gemm rounded", gemm_rounded, product_work, 192, 384},
    {"gemm int8", gemm_int8, product_work, 192, 384},
    {"gemm float64", gemm_float64, product_work, 192, 384},
    {"gemm epilogue", gemm_epilogue, columns_of_rows, 96, 192},
    {"gemm skinny", gemm_skinny, skinny_work, 192, 384},
    {"attention", attention<kernel::Product::float32>, attention_work, 120, 240},
    {"attention bfloat16", attention<kernel::Product::bfloat16>, attention_work, 120, 240},
    {"attention gradient", attention_gradient<kernel::Product::float32>, attention_gradient_work, 120, 240},
    {"attention gradient bfloat16", attention_gradient<kernel::Product::bfloat16>, attention_gradient_work, 120, 240},
    {"layer norm", layer_norm, channel_rows, 16, 48},
    {"layer norm gradient", layer_norm_gradient, channel_rows, 16, 48},
    {"rms norm", rms_norm, channel_rows, 16, 48},
    {"rms norm gradient", rms_norm_gradient, channel_rows, 16, 48},
    {"swiglu", swiglu, channel_rows, 16, 48},
    {"swiglu gradient", swiglu_gradient, channel_rows, 16, 48},
    {"rotary", rotary, channel_rows, 16, 48},
    {"gelu", gelu, elements, 8192, 24576},
    {"cross-entropy", cross_entropy, vocabulary_rows, 8, 24},
    {"adamw", adamw, elements, 8192, 24576},
    {"adamw + copy + cleared", adamw_copy, elements, 8192, 24576},
    {"square sum", square_sum, elements, 16384, 32768},
    {"column sum", column_sum, channel_rows, 64, 192},
    {"attention decode", attention_decode, decode_work, 120, 240},
    {"embedding gradient", embedding_gradient, channel_rows, 16, 48},
    {"quantize rows", quantize_rows, channel_rows, 16, 48},
};

}  // namespace

int main() {
#ifdef __clang__
  std::printf("compiler clang %d\n", __clang_major__);
#else
  std::printf("compiler gcc %d\n", __GNUC__);
#endif
#ifdef __AVX__
  std::printf("compiled for more than the least processor of this kind\n");
  return 77;
#endif
  for (exec::Isa const isa : {exec::Isa::avx2, exec::Isa::scalar}) {
    if (!exec::available(isa)) {
      std::printf("unavailable %s\n", std::string(exec::name(isa)).c_str());
      continue;
    }
    exec::Context context({.threads = 1, .isa = isa});
    int64_t const lanes = isa == exec::Isa::avx2 ? 8 : 1;
    for (Case const& one : cases) {
      one.run(context, one.large);  // memory is there, working memory has grown
      for (int64_t const size : {one.small, one.large}) {
        fill();  // counts may depend on values
        counted(one.run, context, size);
      }
      std::printf("case %lld %lld %s %s\n", static_cast<long long>(one.work(one.small) / lanes),
                  static_cast<long long>(one.work(one.large) / lanes), std::string(exec::name(isa)).c_str(), one.name);
    }
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step bound to device memory: the launches of its kernels with all arguments, made once. The twin of
/// tutti/graph/calls.hpp; one switch over all kinds of steps, hence its length.

#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/cuda/generic_steps.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cuda/adamw.hpp>
#include <tutti/kernel/cuda/attention.hpp>
#include <tutti/kernel/cuda/blas.hpp>
#include <tutti/kernel/cuda/column_sum.hpp>
#include <tutti/kernel/cuda/copy.hpp>
#include <tutti/kernel/cuda/cross_entropy.hpp>
#include <tutti/kernel/cuda/elementwise.hpp>
#include <tutti/kernel/cuda/embedding.hpp>
#include <tutti/kernel/cuda/gemm.hpp>
#include <tutti/kernel/cuda/layer_norm.hpp>
#include <tutti/kernel/cuda/linear_cross_entropy.hpp>
#include <tutti/kernel/cuda/reduce.hpp>
#include <tutti/kernel/cuda/rms_norm.hpp>
#include <tutti/kernel/cuda/rotary.hpp>
#include <tutti/kernel/cuda/swiglu.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::graph::cuda {

using kernel::cuda::Blas;

/// What one step enqueues at every run. Outlived by the step and its memory.
class Call {
 public:
  virtual ~Call() = default;
  virtual void run(Blas& blas) = 0;
};

/// The operands of a step as pointers to device memory, null where one is absent.
struct Operands {
  Step const& step;
  List<std::byte*> reads, writes;

  template <class T = float>
  T* read(std::size_t i) const noexcept { return i < reads.size() ? reinterpret_cast<T*>(reads[i]) : nullptr; }
  template <class T = float>
  T* write(std::size_t i) const noexcept { return i < writes.size() ? reinterpret_cast<T*>(writes[i]) : nullptr; }
};

namespace detail {

template <class F>
class CallOf final : public Call {
 public:
  explicit CallOf(F&& f) : f_(std::move(f)) {}
  void run(Blas& blas) override { f_(blas); }

 private:
  F f_;
};
template <class F>
Owner<Call> call(F f) {
  return make_owner<CallOf<F>>(std::move(f));
}
/// f(context) for kernels that need no cuBLASLt.
template <class F>
Owner<Call> launch(F f) {
  return call([f = std::move(f)](Blas& blas) { f(blas.context()); });
}

/// f(float) or f(bfloat16), by the type of a value that kernels have in both.
template <class F>
Owner<Call> with_float(DType dtype, F&& f) {
  return dtype == DType::bfloat16 ? f(bfloat16{}) : f(float{});
}

inline bool is_narrow(Ref const& ref) noexcept {
  return !ref || ref.dtype == DType::float32 || ref.dtype == DType::bfloat16;
}
inline bool all_narrow(Step const& step) noexcept {
  for (Ref const& ref : step.reads)
    if (!is_narrow(ref)) return false;
  return is_narrow(step.writes[0]);
}
inline bool all_float32(Step const& step) noexcept {
  for (Ref const& ref : step.reads)
    if (ref && ref.dtype != DType::float32) return false;
  return step.writes[0].dtype == DType::float32;
}

/// Bytes between the products of a batch where they are evenly spaced; -1 where they are not.
inline std::int64_t batch_stride(Ref const& ref, Shape const& shape, int batch) {
  std::int64_t stride = 0, expected = 0;
  bool first = true;
  for (int axis = batch - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    std::int64_t const here = ref.strides[static_cast<std::size_t>(axis)];
    if (first) stride = expected = here;
    else if (here != expected) return -1;
    first = false;
    expected *= shape[axis];
  }
  return stride;
}

inline Owner<Call> bind_gemms(Operands const& call) {
  Step const& step = call.step;
  Ref const &a = step.reads[0], &b = step.reads[1], &c = step.writes[0];
  int const batch = c.shape.rank() - 2;
  auto const row = static_cast<std::size_t>(batch), column = row + 1;
  std::int64_t count = 1;
  for (int axis = 0; axis < batch; ++axis) count *= c.shape[axis];
  auto const bytes = [](Ref const& ref) { return static_cast<std::int64_t>(size_of(ref.dtype)); };
  kernel::Gemm gemm;
  gemm.m = c.shape[batch];
  gemm.n = c.shape[batch + 1];
  gemm.k = a.shape[batch + 1];
  gemm.a_row = a.strides[row];
  gemm.a_column = a.strides[column];
  gemm.b_row = b.strides[row];
  gemm.b_column = b.strides[column];
  gemm.c_row = c.strides[row];
  gemm.alpha = static_cast<float>(step.value);
  gemm.a_dtype = a.dtype, gemm.b_dtype = b.dtype, gemm.c_dtype = c.dtype;
  gemm.product = kernel::product_in(step.product);
  gemm.epilogue.gelu = step.gelu;
  gemm.epilogue.residual_stride = gemm.c_row;
  auto const at = [&](std::int64_t i) {
    std::int64_t rest = i, from_a = 0, from_b = 0, to = 0;
    for (int axis = batch - 1; axis >= 0; --axis) {
      std::int64_t const index = rest % c.shape[axis];
      rest /= c.shape[axis];
      from_a += index * a.strides[static_cast<std::size_t>(axis)];
      from_b += index * b.strides[static_cast<std::size_t>(axis)];
      to += index * c.strides[static_cast<std::size_t>(axis)];
    }
    gemm.a = call.reads[0] + from_a * bytes(a);
    gemm.b = call.reads[1] + from_b * bytes(b);
    gemm.c = call.writes[0] + to * bytes(c);
    gemm.epilogue.bias = call.read(2);
    gemm.epilogue.residual = call.read<void>(3);
    gemm.epilogue.gelu_gradient = call.read<void>(4);
    gemm.epilogue.saved = call.write<void>(1);
    return gemm;
  };
  std::int64_t const a_batch = batch_stride(a, c.shape, batch), b_batch = batch_stride(b, c.shape, batch),
                     c_batch = batch_stride(c, c.shape, batch);
  bool const bare = call.read(2) == nullptr && call.read(3) == nullptr && call.read(4) == nullptr &&
                    call.write(1) == nullptr && !step.gelu;
  bool const one_type =
      a.dtype == b.dtype && step.product == a.dtype && (a.dtype != DType::float32 || c.dtype == a.dtype);
  if (count > 1 && bare && one_type && gemm.k > 0 && a_batch >= 0 && b_batch >= 0 && c_batch >= 0)
    return detail::call([gemm = at(0), forms = kernel::cuda::GemmForms{.batch = count, .a_batch = a_batch,
                                                                      .b_batch = b_batch, .c_batch = c_batch}](
                            Blas& blas) { kernel::cuda::gemm(blas, gemm, forms); });
  List<kernel::Gemm> products;
  for (std::int64_t i = 0; i < count; ++i) products.push_back(at(i));
  return detail::call([products = std::move(products)](Blas& blas) {
    for (kernel::Gemm const& product : products) kernel::cuda::gemm(blas, product);
  });
}

/// One unit stride, and lines that do not overlap: what products take as it lies. Broadcast operands are not.
inline bool is_matrix(Ref const& ref) {
  int const rank = ref.shape.rank();
  std::int64_t const rows = ref.shape[rank - 2], columns = ref.shape[rank - 1];
  std::int64_t const row = ref.strides[static_cast<std::size_t>(rank - 2)],
                     column = ref.strides[static_cast<std::size_t>(rank - 1)];
  return (column == 1 && (row >= columns || rows == 1)) || (row == 1 && (column >= rows || columns == 1));
}

inline Owner<Call> bind_copies(Operands const& call) {
  Step const& step = call.step;
  List<kernel::StridedCopy> copies;
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    copies.push_back({step.writes[i].shape, static_cast<std::int64_t>(size_of(step.writes[i].dtype)), call.reads[i],
                      step.reads[i].strides, call.writes[i], step.writes[i].strides});
  std::byte* const background = step.writes.size() > step.reads.size() ? call.writes.back() : nullptr;
  return detail::launch([&step, background, copies = std::move(copies)](Context& context) {
    if (background != nullptr)
      generic::fill(context, step.writes.back().dtype, background, step.writes.back().shape.size(), step.value);
    for (kernel::StridedCopy const& copy : copies) kernel::cuda::strided_copy(context, copy);
  });
}

inline Owner<Call> bind_elementwise(Operands const& call) {
  Step const& step = call.step;
  List<kernel::ElementwiseOutput> outputs;
  for (std::size_t i = 0; i < step.writes.size(); ++i)
    outputs.push_back({step.sources[i], call.writes[i], step.writes[i].dtype});
  List<kernel::ElementwiseInput> inputs;
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    inputs.push_back({call.reads[i], step.reads[i].dtype, step.reads[i].strides});
  return detail::launch([&step, inputs = std::move(inputs), outputs = std::move(outputs)](Context& context) {
    kernel::Elementwise const chain{step.writes[0].shape, inputs, step.instructions, outputs,
                                    step.registers == DType::float64};
    if (is_integer(step.registers)) generic::integer_elementwise(context, chain, step.registers == DType::uint64);
    else kernel::cuda::elementwise(context, chain);
  });
}

inline Owner<Call> bind_adamw(Operands const& call) {
  Step const& step = call.step;
  List<kernel::AdamW> parts;
  for (std::size_t i = 4; i + 3 < step.reads.size(); i += 4) {
    kernel::AdamW part;
    part.size = step.reads[i].shape.size();
    part.parameter = call.read(i);
    part.gradient = call.read(i + 1);
    part.m = call.read(i + 2);
    part.v = call.read(i + 3);
    part.beta1 = static_cast<float>(step.beta1);
    part.beta2 = static_cast<float>(step.beta2);
    part.eps = static_cast<float>(step.eps);
    part.weight_decay = static_cast<float>(step.weight_decay);
    parts.push_back(part);
  }
  kernel::cuda::AdamWScalars const from{call.read(0), call.read(1), call.read(2), call.read(3)};
  return detail::launch([from, parts = std::move(parts)](Context& context) {
    kernel::cuda::AdamWScalars scalars = from;
    scalars.mistakes = context.error_word();  // nothing is learned from tokens that are none
    kernel::cuda::adamw(context, {parts.data(), parts.size()}, scalars);
  });
}

inline Owner<Call> bind_square_sum(Operands const& call) {
  List<kernel::SquareSum> sums;
  for (std::size_t i = 1; i < call.step.reads.size(); ++i)
    sums.push_back({call.step.reads[i].shape.size(), call.read(i), nullptr, true});
  return detail::launch([base = call.read<double>(0), result = call.write<double>(0),
                         sums = std::move(sums)](Context& context) {
    kernel::cuda::square_sum(context, {sums.data(), sums.size()}, base, result);
  });
}

/// Copies what a step accumulates onto to its result, unless the planner made them one.
inline void start_from(Context& context, std::int64_t bytes, std::byte const* from, std::byte* to) {
  if (from == to || from == nullptr || to == nullptr) return;
  tutti::cuda::copy_on_device(context.stream(), to, from, static_cast<std::size_t>(bytes));
}

}  // namespace detail

/// The call of a step whose memory is known; null for what the executor does itself: collectives and ranks.
inline Owner<Call> bind(Operands const& call) {
  namespace device = kernel::cuda;
  Step const& s = call.step;
  auto shape = [&](std::size_t i) -> Shape const& { return s.reads[i].shape; };
  auto stride = [&](std::size_t i) { return s.reads[i].strides[0]; };
  auto last = [](Ref const& ref) { return ref.shape[ref.shape.rank() - 1]; };
  auto rows = [&](Ref const& ref) {
    return ref.shape.rank() == 0 || last(ref) == 0 ? 0 : ref.shape.size() / last(ref);
  };
  switch (s.kind) {
    case StepKind::elementwise: return detail::bind_elementwise(call);
    case StepKind::copy: return detail::bind_copies(call);
    case StepKind::fill:
      return detail::launch([&s, y = call.writes[0]](Context& context) {
        generic::fill(context, s.writes[0].dtype, y, s.writes[0].shape.size(), s.value);
      });
    case StepKind::gemm:
      if (detail::all_narrow(s) && detail::is_matrix(s.reads[0]) && detail::is_matrix(s.reads[1]))
        return detail::bind_gemms(call);
      return detail::launch([&s, a = call.reads[0], b = call.reads[1], c = call.writes[0]](Context& context) {
        generic::product(context, s.reads[0], a, s.reads[1], b, s.writes[0], c, s.value);
      });
    case StepKind::reduce: {
      if (!detail::all_float32(s))
        return detail::launch([&s, x = call.reads[0], y = call.writes[0]](Context& context) {
          generic::reduce(context, s.reads[0], x, s.axes, s.maximum, s.writes[0].dtype, y);
        });
      kernel::Reduce const r{shape(0), s.reads[0].strides, s.axes, s.maximum, call.read(0), call.write(0)};
      return detail::launch([r](Context& context) { device::reduce(context, r); });
    }
    case StepKind::column_sum:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        device::ColumnSumOf<T> const c{shape(0)[0], shape(0)[1], shape(0)[1], call.read<T>(0), call.write(0), false};
        return detail::launch([c](Context& context) { device::column_sum(context, c); });
      });
    // Rows are float32; what a normalisation gives, and its gradient, may be bfloat16.
    case StepKind::layer_norm:
      return detail::with_float(s.writes[0].dtype, [&]<class Y>(Y) {
        kernel::LayerNormOf<float, Y> const l{rows(s.reads[0]), last(s.reads[0]), static_cast<float>(s.eps),
                                              call.read(0),     call.read(1),     call.read(2),
                                              call.write<Y>(0), call.write(1),    call.write(2)};
        return detail::launch([l](Context& context) { device::layer_norm(context, l); });
      });
    case StepKind::layer_norm_gradient:
      return detail::with_float(s.reads[0].dtype, [&]<class Y>(Y) {
        kernel::LayerNormGradientOf<float, Y> const g{rows(s.reads[0]), last(s.reads[0]), call.read<Y>(0), call.read(1),
                                                      call.read(2),     call.read(3),     call.read(4),    call.read(5),
                                                      call.write(0),    call.write(1),    call.write(2)};
        return detail::launch([g](Context& context) { device::layer_norm_gradient(context, g); });
      });
    case StepKind::rms_norm:
      return detail::with_float(s.writes[0].dtype, [&]<class Y>(Y) {
        kernel::RmsNormOf<float, Y> const n{rows(s.reads[0]), last(s.reads[0]), static_cast<float>(s.eps), call.read(0),
                                            call.read(1),     call.write<Y>(0), call.write(1)};
        return detail::launch([n](Context& context) { device::rms_norm(context, n); });
      });
    case StepKind::rms_norm_gradient:
      return detail::with_float(s.reads[0].dtype, [&]<class Y>(Y) {
        kernel::RmsNormGradientOf<float, Y> const g{rows(s.reads[0]), last(s.reads[0]), call.read<Y>(0),
                                                    call.read(1),     call.read(2),     call.read(3),
                                                    call.read(4),     call.write(0),    call.write(1)};
        return detail::launch([g](Context& context) { device::rms_norm_gradient(context, g); });
      });
    case StepKind::rotary:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        std::int64_t const tokens = shape(1)[0], size = 2 * shape(1)[1], channels = shape(0)[1];
        kernel::RotaryOf<T> const r{shape(0)[0],  channels / size, size,           tokens,           s.pairing,
                                    s.inverse,    tokens,          0,              nullptr,          call.read(1),
                                    call.read(2), call.read<T>(0), stride(0),      call.write<T>(0), channels};
        return detail::launch([r](Context& context) { device::rotary(context, r); });
      });
    case StepKind::swiglu:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        std::int64_t const channels = shape(0)[1];
        kernel::SwiGluOf<T> const g{shape(0)[0],     channels,  call.read<T>(0),  stride(0),
                                    call.read<T>(1), stride(1), call.write<T>(0), channels};
        return detail::launch([g](Context& context) { device::swiglu(context, g); });
      });
    case StepKind::swiglu_gradient:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        std::int64_t const channels = shape(0)[1];
        kernel::SwiGluGradientOf<T> const g{
            shape(0)[0],     channels,  call.read<T>(0),  stride(0), call.read<T>(1),  stride(1),
            call.read<T>(2), stride(2), call.write<T>(0), channels,  call.write<T>(1), channels};
        return detail::launch([g](Context& context) { device::swiglu_gradient(context, g); });
      });
    case StepKind::attention:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        Shape const& qkv = shape(0);
        kernel::AttentionOf<T> const a{qkv[0],
                                       qkv[1],
                                       s.heads,
                                       qkv[2] / (s.heads + 2 * s.kv_heads),
                                       static_cast<float>(s.value),
                                       call.read<T>(0),
                                       call.write<T>(0),
                                       call.write(1),
                                       s.kv_heads,
                                       kernel::product_in(s.product)};
        return detail::launch([a](Context& context) { device::attention(context, a); });
      });
    case StepKind::attention_gradient:
      return detail::with_float(s.reads[1].dtype, [&]<class T>(T) {
        Shape const& qkv = shape(1);
        kernel::AttentionGradientOf<T> const g{qkv[0],
                                               qkv[1],
                                               s.heads,
                                               qkv[2] / (s.heads + 2 * s.kv_heads),
                                               static_cast<float>(s.value),
                                               call.read<T>(0),
                                               call.read<T>(1),
                                               call.read<T>(2),
                                               call.read(3),
                                               call.write<T>(0),
                                               s.kv_heads,
                                               kernel::product_in(s.product)};
        return detail::launch([g](Context& context) { device::attention_gradient(context, g); });
      });
    case StepKind::embedding: {
      Shape const& out = s.writes[0].shape;
      kernel::Embedding const e{
          out[0], out[1], out[2], s.vocabulary, call.read<std::int32_t>(0), call.read(1), call.read(2), call.write(0)};
      return detail::launch([e](Context& context) { device::embedding(context, e); });
    }
    case StepKind::embedding_gradient: {
      Shape const& dout = shape(1);
      kernel::EmbeddingGradient g{
          dout[0],      dout[1],       dout[2],       s.vocabulary, 0, call.read<std::int32_t>(0),
          call.read(1), call.write(0), call.write(1), !s.reads[2]};
      if (s.writes[1]) g.position_rows = s.writes[1].shape[0];
      return detail::launch(
          [g, bytes = s.reads[2].bytes(), from = call.reads[2], to = call.writes[0]](Context& context) {
            detail::start_from(context, bytes, from, to);
            device::embedding_gradient(context, g);
          });
    }
    case StepKind::linear_cross_entropy:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        kernel::LinearCrossEntropyOf<T> l;
        l.rows = shape(2).size();
        l.channels = last(s.reads[0]);
        l.vocabulary = s.vocabulary;
        l.padded_vocabulary = shape(1)[0];
        l.ignored = s.ignored;
        l.scale = static_cast<float>(s.value);
        l.x = call.read<T>(0);
        l.weight = call.read<T>(1);
        l.targets = call.read<std::int32_t>(2);
        l.loss = call.write(0);
        l.dx = call.write<T>(1);
        l.dweight = call.write(2);
        l.row_losses = call.write(3);
        l.workspace = call.write(4);
        l.product = kernel::product_in(s.product);
        std::int64_t const chunk = kernel::linear_cross_entropy_device_chunk(l.rows, l.padded_vocabulary, sizeof(T));
        return detail::call([l, chunk](Blas& blas) { device::linear_cross_entropy(blas, l, chunk); });
      });
    case StepKind::cross_entropy: {
      kernel::CrossEntropy l;
      l.rows = shape(1).size();
      l.vocabulary = last(s.reads[0]);
      l.ignored = s.ignored;
      l.scale = static_cast<float>(s.value);
      l.logits = call.read(0);
      l.targets = call.read<std::int32_t>(1);
      l.loss = call.write(0);
      l.dlogits = call.write(1);
      l.row_losses = call.write(2);
      return detail::launch([l](Context& context) { device::cross_entropy(context, l); });
    }
    case StepKind::square_sum: return detail::bind_square_sum(call);
    case StepKind::adamw: return detail::bind_adamw(call);
    case StepKind::gather:
      return detail::launch([&s, table = call.reads[0], index = call.reads[1], y = call.writes[0]](Context& context) {
        generic::gather(context, s.reads[0], table, s.reads[1], index, y);
      });
    case StepKind::scatter_add:
      return detail::launch([call](Context& context) {
        Step const& step = call.step;
        detail::start_from(context, step.reads[0].bytes(), call.reads[0], call.writes[0]);
        generic::scatter_add(context, step.reads[0], step.reads[1], call.reads[1], call.reads[2], call.writes[0]);
      });
    case StepKind::dynamic_slice:
      return detail::launch([call](Context& context) {
        Ref const &x = call.step.reads[0], &y = call.step.writes[0];
        generic::dynamic_copy(context, {.whole = x, .box = y, .starts = call.step.reads, .first = 1},
                              call.reads, call.reads[0], call.writes[0], false);
      });
    case StepKind::dynamic_update_slice:
      return detail::launch([call](Context& context) {
        Ref const &update = call.step.reads[1], &y = call.step.writes[0];
        detail::start_from(context, call.step.reads[0].bytes(), call.reads[0], call.writes[0]);
        generic::dynamic_copy(context, {.whole = y, .box = update, .starts = call.step.reads, .first = 2},
                              call.reads, call.writes[0], call.reads[1], true);
      });
    case StepKind::iota:
      return detail::launch(
          [&s, y = call.writes[0]](Context& context) { generic::iota(context, s.writes[0], y, s.axis); });
    case StepKind::random_bits: {
      std::uint64_t const *const seed = call.read<std::uint64_t>(0), *const step = call.read<std::uint64_t>(1),
                                 *const stream = call.read<std::uint64_t>(2);
      return detail::launch([&s, y = call.writes[0], seed, step, stream](Context& context) {
        generic::random_bits(context, y, s.writes[0].shape.size(), seed, step, stream);
      });
    }
    default: return nullptr;
  }
}

}  // namespace tutti::graph::cuda

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A step bound to device memory: the launches of its kernels with all arguments, made once. The twin of
/// tutti/graph/calls.hpp.

#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/graph/custom_arguments.hpp>
#include <tutti/graph/cuda/call.hpp>
#include <tutti/graph/cuda/chains.hpp>
#include <tutti/graph/cuda/generic_steps.hpp>
#include <tutti/graph/cuda/product_calls.hpp>
#include <tutti/graph/operands.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cuda/adamw.hpp>
#include <tutti/kernel/cuda/attention.hpp>
#include <tutti/kernel/cuda/column_sum.hpp>
#include <tutti/kernel/cuda/copy.hpp>
#include <tutti/kernel/cuda/cross_entropy.hpp>
#include <tutti/kernel/cuda/dropout.hpp>
#include <tutti/kernel/cuda/embedding.hpp>
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

/// The body on devices of an operation from outside of the library, whose `run` is for processors (graph/custom.hpp).
struct CustomBody {
  CustomOperation const* operation = nullptr;
  void (*run)(Blas&, CustomArguments const&) = nullptr;  ///< enqueues; pointers are to memory of the device
};

namespace detail {

inline Owner<Call> bind_copies(Operands const& call) {
  Step const& step = call.step;
  std::byte* const background = arguments::background(call);
  return detail::launch([&step, background, copies = arguments::copies(call)](Context& context) {
    if (background != nullptr)
      generic::fill(context, step.writes.back().dtype, background, step.writes.back().shape.size(), step.value);
    for (kernel::StridedCopy const& copy : copies) kernel::cuda::strided_copy(context, copy);
  });
}

inline Owner<Call> bind_elementwise(Operands const& call) {
  return detail::launch([chain = arguments::Chain(call)](Context& context) {
    if (is_integer(chain.step.registers)) generic::integer_elementwise(context, chain.view(), chain.step.registers);
    else elementwise(context, chain.view());
  });
}

/// One launch for a run of steps (executor_stretches.hpp): many small parameters would else take one each.
inline Owner<Call> bind_adamw(std::span<Operands const> run) {
  kernel::cuda::AdamWScalars const from{run[0].read(0), run[0].read(1), run[0].read(2), run[0].read(3)};
  List<kernel::AdamW> all;
  for (Operands const& call : run)
    for (kernel::AdamW const& part : arguments::adamw(call)) all.push_back(part);
  return detail::launch([from, parts = std::move(all)](Context& context) {
    kernel::cuda::AdamWScalars scalars = from;
    scalars.mistakes = context.error_word();  // nothing is learned from tokens that are none
    kernel::cuda::adamw(context, {parts.data(), parts.size()}, scalars);
  });
}

inline Owner<Call> bind_square_sum(std::span<Operands const> run) {
  List<kernel::SquareSum> sums;
  for (Operands const& call : run)
    for (std::size_t i = 1; i < call.step.reads.size(); ++i)
      sums.push_back({call.step.reads[i].shape.size(), call.read(i), nullptr, true});
  return detail::launch([base = run[0].read<double>(0), result = run[run.size() - 1].write<double>(0),
                         sums = std::move(sums)](Context& context) {
    kernel::cuda::square_sum(context, {sums.data(), sums.size()}, base, result);
  });
}

}  // namespace detail

/// The call of a step whose memory is known; null for what the executor does itself: collectives and ranks.
inline Owner<Call> bind(Operands const& call, std::span<CustomBody const> bodies = {}) {
  namespace device = kernel::cuda;
  Step const& s = call.step;
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
      if (!all_float32(s))
        return detail::launch([&s, x = call.reads[0], y = call.writes[0]](Context& context) {
          generic::reduce(context, s.reads[0], x, s.axes, s.maximum, s.writes[0].dtype, y);
        });
      kernel::Reduce const r{
          s.reads[0].shape, s.reads[0].strides, s.axes, s.maximum, call.read(0), call.write(0)};
      return detail::launch([r](Context& context) { device::reduce(context, r); });
    }
    case StepKind::column_sum:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        std::int64_t const rows = s.reads[0].shape[0], columns = s.reads[0].shape[1];
        device::ColumnSumOf<T> const c{rows, columns, columns, call.read<T>(0), call.write(0), false};
        return detail::launch([c](Context& context) { device::column_sum(context, c); });
      });
    case StepKind::layer_norm:
      return detail::with_float(s.writes[0].dtype, [&]<class T>(T) {
        return detail::launch(
            [args = arguments::layer_norm<T>(call)](Context& context) { device::layer_norm(context, args); });
      });
    case StepKind::layer_norm_gradient:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        return detail::launch([args = arguments::layer_norm_gradient<T>(call)](Context& context) {
          device::layer_norm_gradient(context, args);
        });
      });
    case StepKind::rms_norm:
      return detail::with_float(s.writes[0].dtype, [&]<class T>(T) {
        return detail::launch(
            [args = arguments::rms_norm<T>(call)](Context& context) { device::rms_norm(context, args); });
      });
    case StepKind::rms_norm_gradient:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        return detail::launch([args = arguments::rms_norm_gradient<T>(call)](Context& context) {
          device::rms_norm_gradient(context, args);
        });
      });
    case StepKind::rotary:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        return detail::launch([args = arguments::rotary<T>(call)](Context& context) { device::rotary(context, args); });
      });
    case StepKind::swiglu:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        return detail::launch([args = arguments::swiglu<T>(call)](Context& context) { device::swiglu(context, args); });
      });
    case StepKind::dropout:
      return detail::launch([args = arguments::dropout(call)](Context& context) { device::dropout(context, args); });
    case StepKind::swiglu_gradient:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        return detail::launch(
            [args = arguments::swiglu_gradient<T>(call)](Context& context) { device::swiglu_gradient(context, args); });
      });
    case StepKind::attention:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        return detail::launch(
            [args = arguments::attention<T>(call)](Context& context) { device::attention(context, args); });
      });
    case StepKind::attention_gradient:
      return detail::with_float(s.reads[1].dtype, [&]<class T>(T) {
        return detail::launch([args = arguments::attention_gradient<T>(call)](Context& context) {
          device::attention_gradient(context, args);
        });
      });
    case StepKind::embedding:
      return detail::launch(
          [args = arguments::embedding(call)](Context& context) { device::embedding(context, args); });
    case StepKind::embedding_gradient:
      return detail::launch([args = arguments::embedding_gradient(call), bytes = s.reads[2].bytes(),
                             from = call.reads[2], to = call.writes[0]](Context& context) {
        detail::start_from(context, bytes, from, to);
        device::embedding_gradient(context, args);
      });
    case StepKind::linear_cross_entropy:
      return detail::with_float(s.reads[0].dtype, [&]<class T>(T) {
        auto const args = arguments::linear_cross_entropy<T>(call);
        std::int64_t const chunk =
            kernel::linear_cross_entropy_device_chunk(args.rows, args.padded_vocabulary, sizeof(T));
        return detail::call([args, chunk](Blas& blas) { device::linear_cross_entropy(blas, args, chunk); });
      });
    case StepKind::cross_entropy:
      return detail::launch(
          [args = arguments::cross_entropy(call)](Context& context) { device::cross_entropy(context, args); });
    case StepKind::square_sum: return detail::bind_square_sum({&call, 1});
    case StepKind::adamw: return detail::bind_adamw({&call, 1});
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
    case StepKind::custom:
      for (CustomBody const& body : bodies)
        if (body.operation == s.custom)
          return detail::call([run = body.run, args = arguments::custom(call)](Blas& blas) { run(blas, args); });
      throw Error(ErrorKind::unavailable, "graph::cuda::Executor",
                  concat(s.custom->name, " has a body for processors alone. Run this program there"));
    case StepKind::iota:
      return detail::launch(
          [&s, y = call.writes[0]](Context& context) { generic::iota(context, s.writes[0], y, s.axis); });
    case StepKind::cumsum:
      return detail::launch([&s, x = call.reads[0], y = call.writes[0]](Context& context) {
        generic::cumsum(context, s.reads[0], x, y, s.axis, s.inverse);
      });
    case StepKind::random_bits: {
      std::uint64_t const *const seed = call.read<std::uint64_t>(0), *const step = call.read<std::uint64_t>(1),
                                 *const stream = call.read<std::uint64_t>(2),
                                 *const first = call.read<std::uint64_t>(3);
      return detail::launch([&s, y = call.writes[0], seed, step, stream, first](Context& context) {
        generic::random_bits(context, y, s.writes[0].shape.size(), seed, step, stream, first);
      });
    }
    default: return nullptr;
  }
}

}  // namespace tutti::graph::cuda

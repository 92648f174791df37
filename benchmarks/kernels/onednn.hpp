// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// oneDNN's matrix product of bfloat16 or int8 operands with a float32 result, on operands as they lie.

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <string>
#include <unordered_map>

extern "C" void omp_set_num_threads(int);  // of the OpenMP that oneDNN was built with

namespace tutti::bench {

class OneDnnProduct {
 public:
  /// (m, k) by (k, n), with the strides of tutti::kernel::Gemm. With a scale the operands are int8, without bfloat16.
  OneDnnProduct(std::int64_t m, std::int64_t n, std::int64_t k, void const* a, std::int64_t a_row,
                std::int64_t a_column, void const* b, std::int64_t b_row, std::int64_t b_column, float* c,
                int threads, float scale = 0)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), threads_(threads) {
    using Type = dnnl::memory::data_type;
    Type const type = scale == 0 ? Type::bf16 : Type::s8;
    dnnl::memory::desc const left({m, k}, type, {a_row, a_column}), right({k, n}, type, {b_row, b_column}),
        result({m, n}, Type::f32, {n, 1});
    omp_set_num_threads(threads_);
    dnnl::primitive_attr attributes;
    if (scale != 0) attributes.set_output_scales(0, {scale});
    product_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(left, right, result), attributes, engine_));
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(left, engine_, const_cast<void*>(a))},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(right, engine_, const_cast<void*>(b))},
                  {DNNL_ARG_DST, dnnl::memory(result, engine_, c)}};
  }
  void operator()() {
    omp_set_num_threads(threads_);
    product_.execute(stream_, arguments_);
    stream_.wait();
  }
  static std::string version() {
    dnnl_version_t const* const v = dnnl_version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  int threads_;
  dnnl::matmul product_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace tutti::bench

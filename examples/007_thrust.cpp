// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Thrust's algorithms on views of device memory, compiled by nvcc: rows, columns and transposed views alike.
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/device.hpp>
#include <tutti/kernel/cuda/iterator.hpp>
#include <tutti/tensor/copy.hpp>
#include <tutti/tensor/tensor.hpp>

#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/transform.h>

#include <cstdio>

struct Twice {
  __host__ __device__ float operator()(float x) const { return 2 * x; }
};

int main() try {
  tutti::Cuda const device(0);
  tutti::Tensor<float> numbers({3, 4});
  for (int i = 0; i < 12; ++i) numbers.data()[i] = static_cast<float>(i);
  tutti::Tensor<float, tutti::Cuda> x({3, 4}, device);
  tutti::copy_from_host(numbers.view(), x.view());

  auto const view = x.view();
  auto const column = view.slice(1, 1, 2);
  std::printf("sum %g\n", double{thrust::reduce(view.begin(), view.end())});
  std::printf("largest of a column %g\n",
              double{thrust::reduce(column.begin(), column.end(), 0.0f, thrust::maximum<float>())});
  thrust::transform(column.begin(), column.end(), column.begin(), Twice{});
  std::printf("sum with that column doubled %g\n", double{thrust::reduce(view.begin(), view.end())});
  return 0;
} catch (tutti::Error const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Tensors and views: elements, loops, parts of a tensor, standard containers, NumPy's files, and other libraries.
///
///     ./008_tensors

#include <tutti/io/npy.hpp>
#include <tutti/tensor/dlpack.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

using tutti::Tensor;
using tutti::TensorView;

namespace {

void print(char const* what, std::vector<float> const& values) {
  std::printf("%s:", what);
  for (float value : values) std::printf(" %g", double(value));
  std::printf("\n");
}

}  // namespace

int main() {
  Tensor<float> x({3, 4});                // elements are indeterminate until written
  std::iota(x.begin(), x.end(), 0.0f);    // row after row
  for (float& element : x) element *= 2;  // a loop over all elements
  x(1, 2) = -1;

  // Parts. Along axis 1, columns 1 and 2 (begin 1, end 3): a view, which writes into x.
  TensorView<float> const columns = x.slice(1, 1, 3);
  columns(0, 0) = 7;
  TensorView<float> const row = x[1];  // of shape (4,)
  std::printf("least element of the row: %g\n", double(*std::min_element(row.begin(), row.end())));

  // Containers: copies in row-major order, of views with gaps too.
  print("row", std::vector<float>(row));
  print("columns", std::vector<float>(columns));
  // A loop wants elements one after another: of a view with gaps, over a copy.
  float sum = 0;
  for (float element : clone(columns)) sum += element;
  std::printf("sum of the columns: %g\n", double(sum));

  // Files of NumPy: numpy.load("columns.npy") reads this one, and read_npy what numpy.save wrote.
  tutti::io::write_npy("columns.npy", columns);
  Tensor<float> const read = tutti::io::read_npy<float>("columns.npy");
  auto const header = tutti::io::read_npy_header("columns.npy");
  std::printf("read: %s of %s\n", to_string(read.shape()).c_str(), header.type.c_str());
  std::remove("columns.npy");

  // Other libraries, without a copy. Who takes a DlpackTensor over calls its deleter; here from_dlpack does.
  tutti::DlpackTensor* const given = to_dlpack(std::move(x));
  Tensor<float> const taken = tutti::from_dlpack<float>(given);
  std::printf("taken back: %s, %g\n", to_string(taken.shape()).c_str(), double(taken(0, 1)));
}

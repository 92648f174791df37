// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// examples/014_summa.cpp in raw MPI.

#include <mpi.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int const n = 96, panel = 8;
  int size = 0, rank = 0, down = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int d = 1; d * d <= size; ++d)
    if (size % d == 0 && n / panel % d == 0 && n / panel % (size / d) == 0) down = d;
  int const across = size / down, row = rank / across, column = rank % across;
  MPI_Comm along_row, along_column;
  MPI_Comm_split(MPI_COMM_WORLD, row, column, &along_row);
  MPI_Comm_split(MPI_COMM_WORLD, column, row, &along_column);
  int const rows = n / down, columns = n / across, top = rows * row, left = columns * column;
  auto const at = [](int i, int width, int j) { return static_cast<std::size_t>(i * width + j); };
  std::vector<double> a(at(rows, columns, 0)), b(a.size()), c(a.size());
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      a[at(i, columns, j)] = 1.0 / (top + i + left + j + 1);
      b[at(i, columns, j)] = (top + i) * (left + j) % 7 - 3;
    }
  std::vector<double> a_panel(at(rows, panel, 0)), b_panel(at(panel, columns, 0));
  for (int k = 0; k < n; k += panel) {
    if (column == k / columns)
      for (int i = 0; i < rows; ++i)
        for (int p = 0; p < panel; ++p) a_panel[at(i, panel, p)] = a[at(i, columns, k - left + p)];
    if (row == k / rows)
      for (int p = 0; p < panel; ++p)
        for (int j = 0; j < columns; ++j) b_panel[at(p, columns, j)] = b[at(k - top + p, columns, j)];
    MPI_Bcast(a_panel.data(), rows * panel, MPI_DOUBLE, k / columns, along_row);
    MPI_Bcast(b_panel.data(), panel * columns, MPI_DOUBLE, k / rows, along_column);
    for (int i = 0; i < rows; ++i)
      for (int p = 0; p < panel; ++p)
        for (int j = 0; j < columns; ++j)
          c[at(i, columns, j)] += a_panel[at(i, panel, p)] * b_panel[at(p, columns, j)];
  }
  for (int const place : {0, n / 2, n - 1}) {
    bool const here = place >= top && place < top + rows && place >= left && place < left + columns;
    double const value = here ? c[at(place - top, columns, place - left)] : -1e300;
    double result = 0;
    MPI_Reduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) std::printf("C(%d, %d) = %.17g\n", place, place, result);
  }
  MPI_Comm_free(&along_row);
  MPI_Comm_free(&along_column);
  MPI_Finalize();
}

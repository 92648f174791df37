// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// examples/012_halo.cpp in raw MPI: the same cells, bit for bit, are its proof.

#include <mpi.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int const side = 48, steps = 200;
  int size = 0, rank = 0, dims[2] = {1, 1}, periods[2] = {0, 0}, at[2];
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int d = 1; d * d <= size; ++d)
    if (size % d == 0 && side % d == 0 && side % (size / d) == 0) dims[0] = d;
  dims[1] = size / dims[0];
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, at);
  int const rows = side / dims[0], columns = side / dims[1], top = rows * at[0], left = columns * at[1];
  int const width = columns + 2;
  std::vector<double> heat(static_cast<std::size_t>((rows + 2) * width)), next(heat.size());
  auto const cell = [&](std::vector<double>& x, int i, int j) -> double& {
    return x[static_cast<std::size_t>(i * width + j)];
  };
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) cell(heat, i + 1, j + 1) = (top + i) * (left + j) % 17;
  MPI_Datatype column;
  MPI_Type_vector(rows, 1, width, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  int above = 0, below = 0, west = 0, east = 0;
  MPI_Cart_shift(grid, 0, 1, &above, &below);
  MPI_Cart_shift(grid, 1, 1, &west, &east);
  for (int step = 0; step < steps; ++step) {
    MPI_Sendrecv(&cell(heat, rows, 1), columns, MPI_DOUBLE, below, 0, &cell(heat, 0, 1), columns, MPI_DOUBLE, above, 0,
                 grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&cell(heat, 1, 1), columns, MPI_DOUBLE, above, 0, &cell(heat, rows + 1, 1), columns, MPI_DOUBLE,
                 below, 0, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&cell(heat, 1, columns), 1, column, east, 0, &cell(heat, 1, 0), 1, column, west, 0, grid,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&cell(heat, 1, 1), 1, column, west, 0, &cell(heat, 1, columns + 1), 1, column, east, 0, grid,
                 MPI_STATUS_IGNORE);
    for (int i = 1; i <= rows; ++i)
      for (int j = 1; j <= columns; ++j)
        cell(next, i, j) = 0.2 * (cell(heat, i, j) + cell(heat, i - 1, j) + cell(heat, i + 1, j) +
                                  cell(heat, i, j - 1) + cell(heat, i, j + 1));
    heat.swap(next);
  }
  for (int const place : {0, 23, 47}) {
    bool const here = place >= top && place < top + rows && place >= left && place < left + columns;
    double const value = here ? cell(heat, place - top + 1, place - left + 1) : 0;
    double result = 0;
    MPI_Reduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, 0, grid);
    if (rank == 0) std::printf("cell (%d, %d): %.17g\n", place, place, result);
  }
  MPI_Type_free(&column);
  MPI_Comm_free(&grid);
  MPI_Finalize();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A product of matrices over a grid of ranks, by SUMMA (van de Geijn and Watts, 1997): each rank has a block of A, B
/// and C. For each panel of columns of A and rows of B, their owners broadcast it along rows and columns of the grid.
///
///     ./014_summa --ranks 4           or with Mpi: mpiexec -n 4 ./014_summa_mpi

#include <tutti/comm.hpp>

#include <tutti/backend/any.hpp>

#include <cstdio>

#if TUTTI_WITH_MPI
using Ranks = tutti::Mpi;
#else
using Ranks = tutti::Threads;
#endif

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    constexpr int n = 96, panel = 8;
    int down = 1;
    for (int d = 1; d * d <= comm.size(); ++d)
      if (comm.size() % d == 0 && n / panel % d == 0 && n / panel % (comm.size() / d) == 0) down = d;
    auto grid = comm.mesh({{"row", down}, {"column", comm.size() / down}});
    int const rows = n / grid.size("row"), columns = n / grid.size("column");
    int const top = rows * grid.coordinate("row"), left = columns * grid.coordinate("column");

    tutti::Tensor<double> a({rows, columns}), b({rows, columns});
    auto c = tutti::zeros<double>({rows, columns});
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        a(i, j) = 1.0 / (top + i + left + j + 1);
        b(i, j) = (top + i) * (left + j) % 7 - 3;
      }

    auto& along_row = grid["column"];  // ranks that share rows
    auto& along_column = grid["row"];
    tutti::Tensor<double> a_panel({rows, panel}), b_panel({panel, columns});
    for (int k = 0; k < n; k += panel) {
      int const a_owner = k / columns, b_owner = k / rows;
      if (along_row.rank() == a_owner) copy(a.slice(1, k - left, k - left + panel), a_panel);
      if (along_column.rank() == b_owner) copy(b.slice(0, k - top, k - top + panel), b_panel);
      along_row.broadcast(a_panel, a_owner);
      along_column.broadcast(b_panel, b_owner);
      for (int i = 0; i < rows; ++i)
        for (int p = 0; p < panel; ++p)
          for (int j = 0; j < columns; ++j) c(i, j) += a_panel(i, p) * b_panel(p, j);
    }

    for (int const place : {0, n / 2, n - 1}) {  // the order of sums is that of one rank
      bool const here = place >= top && place < top + rows && place >= left && place < left + columns;
      double value = here ? c(place - top, place - left) : -1e300;
      comm.reduce(value, tutti::max);
      if (comm.rank() == 0) std::printf("C(%d, %d) = %.17g\n", place, place, value);
    }
  });
}

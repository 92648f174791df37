// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Heat on a plate with cold edges. Ranks form a grid; each has a block of the plate and a halo of one cell around it,
/// which it gets from its four neighbours before every step. At the plate's edges there is none: proc_null.
///
///     ./012_halo --ranks 4            or with Mpi: mpiexec -n 4 ./012_halo_mpi

#include <tutti/comm.hpp>

#include <tutti/backend/any.hpp>

#include <cstdio>
#include <utility>

#if TUTTI_WITH_MPI
using Ranks = tutti::Mpi;
#else
using Ranks = tutti::Threads;
#endif

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    constexpr int side = 48, steps = 200;  // cells along an edge; steps of time
    int down = 1;  // ranks along the first axis: the largest divisor whose square fits
    for (int d = 1; d * d <= comm.size(); ++d)
      if (comm.size() % d == 0 && side % d == 0 && side % (comm.size() / d) == 0) down = d;
    auto grid = comm.mesh({{"row", down}, {"column", comm.size() / down}});
    int const rows = side / grid.size("row"), columns = side / grid.size("column");
    int const top = rows * grid.coordinate("row"), left = columns * grid.coordinate("column");

    auto heat = tutti::zeros<double>({rows + 2, columns + 2});
    auto next = tutti::zeros<double>({rows + 2, columns + 2});
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) heat(i + 1, j + 1) = (top + i) * (left + j) % 17;

    auto& vertical = grid["row"];
    auto& horizontal = grid["column"];
    auto const [above, below] = grid.shift("row");
    auto const [west, east] = grid.shift("column");
    for (int step = 0; step < steps; ++step) {
      auto const row = [&](int i) { return heat.slice(0, i, i + 1).slice(1, 1, columns + 1); };
      auto const column = [&](int j) { return heat.slice(1, j, j + 1).slice(0, 1, rows + 1); };
      vertical.send_recv(row(rows), below, row(0), above);
      vertical.send_recv(row(1), above, row(rows + 1), below);
      horizontal.send_recv(column(columns), east, column(0), west);
      horizontal.send_recv(column(1), west, column(columns + 1), east);
      for (int i = 1; i <= rows; ++i)
        for (int j = 1; j <= columns; ++j)
          next(i, j) = 0.2 * (heat(i, j) + heat(i - 1, j) + heat(i + 1, j) + heat(i, j - 1) + heat(i, j + 1));
      std::swap(heat, next);
    }

    for (int const cell : {0, 23, 47}) {  // the same bits on any grid: each cell is computed by one rank
      bool const here = cell >= top && cell < top + rows && cell >= left && cell < left + columns;
      double value = here ? heat(cell - top + 1, cell - left + 1) : 0;
      comm.reduce(value, tutti::max);
      if (comm.rank() == 0) std::printf("cell (%d, %d): %.17g\n", cell, cell, value);
    }
  });
}

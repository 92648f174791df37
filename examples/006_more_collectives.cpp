// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Blocks of different sizes, scans, structs, places of extremes, grids of ranks, collectives that are repeated, and
/// several messages at once.
///
///     ./006_more_collectives --ranks 4

#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <boost/hana/define_struct.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

using Ranks = tutti::Threads;

struct Particle {
  BOOST_HANA_DEFINE_STRUCT(Particle, (char, kind), (double, energy));  // padding between the two is not sent
};

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    int const rank = comm.rank(), size = comm.size();
    bool const speaks = rank == 0;

    // Rank r has r + 1 rows. The ranks find out who has how many.
    auto const rows = tutti::full<float>({rank + 1, 2}, float(rank));
    auto all = comm.all_gather_v(rows);
    if (speaks) std::printf("%d blocks, %s together\n", all.blocks(), to_string(all.values().shape()).c_str());

    // Where this rank's rows begin among all rows: the sum over the ranks before it. Before rank 0 there is nobody, and
    // its value is left alone.
    std::int64_t first = comm.exscan(std::int64_t{rank + 1}, tutti::sum);
    if (rank == 0) first = 0;
    if (rank == size - 1) comm.send(std::vector<std::int64_t>{first}, 0);
    if (speaks) std::printf("the last rank begins at row %d\n", int(tutti::recv<std::int64_t>(comm, size - 1)(0)));

    // The largest value and the rank that has it.
    auto const best = comm.all_reduce(tutti::Located(rank % 3, rank), tutti::max_location);
    if (speaks) std::printf("largest: %d, of rank %d\n", best.value, int(best.index));

    // Structs travel member by member.
    std::vector<Particle> particles(3, Particle{'a', double(rank)});
    comm.all_reduce(particles, [](Particle const& a, Particle const& b) { return a.energy < b.energy ? b : a; });
    if (speaks) std::printf("greatest energy: %g\n", particles[0].energy);

    // Ranks as a grid; each axis is a communicator.
    int const columns = size % 2 == 0 ? 2 : 1;
    auto grid = comm.mesh({{"data", size / columns}, {"tensor", columns}});
    int const along_data = grid["data"].all_reduce(rank, tutti::sum);
    if (speaks) std::printf("sum along data: %d\n", along_data);

    // Set up once, started often.
    auto x = tutti::tensor<float>(comm, {1024});
    auto plan = comm.all_reduce_plan(x, tutti::avg);
    for (int step = 0; step < 3; ++step) {
      x.fill(float(rank + step));
      plan.start();
      plan.wait();
    }
    if (speaks) std::printf("average in the last step: %g\n", double(x(0)));

    // Several messages under way together, in any order, and one wait.
    std::vector<int> const own(1, rank);
    std::vector<int> from_left(1), from_right(1);
    int const left = (rank + size - 1) % size, right = (rank + 1) % size;
    auto group = comm.group();
    group.recv(from_left, left, 1);
    group.recv(from_right, right, 2);
    group.send(own, right, 1);
    group.send(own, left, 2);
    group.wait();
    if (speaks) std::printf("neighbours: %d and %d\n", from_left[0], from_right[0]);
  });
}

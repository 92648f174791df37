// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What tests/backend/mpi/network.py runs on two nodes of two ranks each, which share no memory and no network but one
/// cable: the ranks see the nodes, collectives on both kinds of memory are right, and a rank that is late at the end
/// does not hang the job.
// Covers: <tutti/backend/mpi/nodes.hpp>

#include <tutti/backend/mpi.hpp>
#include <tutti/comm.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <utility>

namespace {

template <class T, class Comm>
std::int64_t wrong_sums(Comm& comm, tutti::Tensor<T> x) {
  for (std::int64_t i = 0; i < x.size(); ++i) x(i) = static_cast<T>(static_cast<float>(i % 7 + comm.rank()));
  comm.all_reduce(x, tutti::sum);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) wrong += x(i) != static_cast<T>(static_cast<float>(4 * (i % 7) + 6));
  return wrong;
}

template <class Comm>
std::int64_t wrong_movement(Comm& comm, std::int64_t n) {
  int const ranks = comm.size();
  std::int64_t wrong = 0;
  auto const all = comm.all_gather(tutti::full<std::int32_t>({n}, comm.rank()));
  for (std::int64_t i = 0; i < all.size(); ++i) wrong += all.data()[i] != static_cast<int>(i / n);
  auto const block = comm.reduce_scatter(tutti::full<double>({n * ranks}, 1.0 + comm.rank()), tutti::sum);
  for (std::int64_t i = 0; i < n; ++i) wrong += block(i) != 10.0;
  for (int root = 0; root < ranks; ++root) {
    auto x = tutti::tensor<float>(comm, {n});
    x.fill(static_cast<float>(comm.rank()));
    comm.broadcast(x, root);
    for (std::int64_t i = 0; i < n; ++i) wrong += x(i) != static_cast<float>(root);
    x.fill(static_cast<float>(comm.rank() + 1));
    comm.reduce(x, tutti::prod, root);
    for (std::int64_t i = 0; i < n && comm.rank() == root; ++i) wrong += x(i) != 24.0f;
  }
  auto const from_last = comm.send_recv(tutti::full<std::int32_t>({n}, comm.rank()), (comm.rank() + 1) % ranks,
                                        (comm.rank() + ranks - 1) % ranks);
  for (std::int64_t i = 0; i < n; ++i) wrong += from_last(i) != (comm.rank() + ranks - 1) % ranks;
  auto first = comm.all_reduce_async(tutti::full<float>({n}, 1.0f), tutti::sum);
  auto second = comm.all_reduce_async(tutti::full<float>({n}, 2.0f), tutti::max);
  comm.barrier();
  auto const [two, four] = std::pair(second.wait(), first.wait());
  for (std::int64_t i = 0; i < n; ++i) wrong += two(i) != 2.0f || four(i) != 4.0f;
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::launch<tutti::Mpi>(argc, argv, [](auto& comm) {
    bool const placed = comm.size() == 4 && comm.node() == comm.rank() / 2 && comm.local_size() == 2 &&
                        comm.local_rank() == comm.rank() % 2;
    std::int64_t wrong = 0;
    for (std::int64_t const n : {1, 1'001, 300'000}) {
      wrong += wrong_sums<float>(comm, tutti::tensor<float>(comm, {n}));
      wrong += wrong_sums<float>(comm, tutti::Tensor<float>({n}));
      wrong += wrong_sums<tutti::bfloat16>(comm, tutti::tensor<tutti::bfloat16>(comm, {n}));
      wrong += wrong_movement(comm, n);
    }
    std::printf("rank %d of %d: node %d, %d of %d there; %lld wrong\n", comm.rank(), comm.size(), comm.node(),
                comm.local_rank(), comm.local_size(), static_cast<long long>(wrong));
    // Late enough for the others to be in MPI_Finalize, where some libraries serve nobody any more.
    if (comm.rank() == comm.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return placed && wrong == 0 ? 0 : 1;
  });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// What is the backend's own: memory that NCCL knows, order behind the program's stream, groups, calls in flight, what
/// it says of itself.
// Covers: <tutti/comm/enqueued.hpp>

// Covers: <tutti/backend/nccl/calls.hpp> <tutti/backend/nccl/datatype.hpp> <tutti/backend/nccl/memory.hpp>
#include "backend/nccl/harness.hpp"
#include "comm/messages_only.hpp"

#include <tutti/comm/communicator_port.hpp>
#include <tutti/comm/statistics.hpp>
#include <tutti/testing/laws/devices.hpp>

using namespace tutti;
using test::on_ranks;

static_assert(Backend<NcclOn<Threads>>);
template <class B>
concept CancelsReceives = requires(B& b, typename B::Operation& operation) { b.cancel(operation); };
static_assert(CancelsReceives<NcclOn<Threads>>);

TEST_CASE("Nccl reduces in memory that it knows, and memory outlives its communicator") {
  on_ranks([](auto& comm, laws::Report& report) {
    int const ranks = comm.size();
    Tensor<float, Cuda> kept;
    {
      auto copy = comm.duplicate();
      auto x = registered_tensor<float>(copy, {3000});
      auto y = symmetric_tensor<float>(copy, {3000});
      auto const ones = full<float>(Shape{3000}, 1.0f);
      x.device().copy_from_host(x.data(), ones.data(), 12000);
      copy.all_reduce(x, y, sum);
      report.expect(to_host(y)(2999) == static_cast<float>(ranks), "a sum in registered memory");
      kept = std::move(y);
    }
    report.expect(to_host(kept)(0) == static_cast<float>(ranks), "memory without its communicator");
    report.expect(registered_tensor<float>(comm, {0}).size() == 0, "no memory");
  });
}

TEST_CASE("Nccl registers memory while collectives are under way") {
  on_ranks([](auto& comm, laws::Report& report) {
    for (int round = 0; round < 2; ++round) {
      auto x = to_device(full<float>(Shape{1000}, 1.0f), comm.backend().accelerator());
      auto pending = comm.all_reduce_async(std::move(x), sum);
      Tensor<float, Cuda> known =
          round == 0 ? registered_tensor<float>(comm, {1000}) : symmetric_tensor<float>(comm, {1000});
      x = pending.wait();
      report.expect(to_host(x)(999) == static_cast<float>(comm.size()), "a sum beside it");
      comm.all_reduce(x, known, sum);
      report.expect(to_host(known)(0) == static_cast<float>(comm.size() * comm.size()), "a sum in it");
    }
  });
}

TEST_CASE("Nccl begins after what the program's stream holds") {
  on_ranks([](auto& comm, laws::Report& report) {
    Cuda const device = comm.backend().accelerator();
    cuda::Stream const program(device.index());
    comm.backend().begin_after(program);
    auto x = to_device(zeros<std::uint8_t>(Shape{5000}), device);
    for (int round = 1; round < 4; ++round) {
      cuda::fill_bytes(program, x.data(), static_cast<unsigned char>(round), 5000);
      comm.all_reduce(x, sum);
      report.expect(to_host(x)(4999) == round * comm.size(), "a sum of what was being written");
    }
    program.wait();
  });
}

TEST_CASE("Nccl keeps many operations in flight, in groups too") {
  on_ranks([](auto& comm, laws::Report& report) {
    int const rank = comm.rank(), ranks = comm.size();
    Cuda const device = comm.backend().accelerator();
    auto parity = comm.split(rank % 2);
    std::vector<Request<Tensor<float, Cuda>>> pending;
    for (int k = 0; k < 12; ++k) {
      auto x = to_device(full<float>(Shape{k % 3 == 0 ? 5000 : 7}, static_cast<float>(rank + k)), device);
      auto& on = k % 4 == 1 ? parity : comm;
      if (k % 4 == 3) pending.push_back(on.all_gather_async(std::move(x)));
      else pending.push_back(on.all_reduce_async(std::move(x), sum));
    }
    report.expect(comm.all_reduce(1, sum) == ranks, "a number between them");
    auto second = comm.split(0);  // while they are under way
    for (int k = 11; k >= 0; --k) {
      auto const x = to_host(pending[static_cast<std::size_t>(k)].wait());
      float expected = static_cast<float>(k);  // of rank 0
      if (k % 4 != 3) {
        expected = 0;
        for (int r = 0; r < ranks; ++r)
          if (k % 4 != 1 || r % 2 == rank % 2) expected += static_cast<float>(r + k);
      }
      report.expect(x.data()[0] == expected, "operation " + std::to_string(k) + " of many in flight");
    }
    for (int k = 0; k < 3; ++k) {
      auto dropped = second.all_reduce_async(to_device(full<float>(Shape{9}, 1.0f), device), sum);
      static_cast<void>(dropped.test());
    }
  });
}

TEST_CASE("Nccl works through a port on its device") {
  on_ranks([](auto& comm, laws::Report& report) {
    int const ranks = comm.size(), rank = comm.rank();
    Cuda const device = comm.backend().accelerator();
    auto const where = std::source_location::current();
    auto const port = comm::accelerator_port(comm);
    auto* const memory = static_cast<float*>(port->allocate(4000));
    auto const mine = full<float>(Shape{1000}, static_cast<float>(rank + 1));
    device.copy_from_host(memory, mine.data(), 4000);
    auto narrow = to_device(full<bfloat16>(Shape{3000}, bfloat16(2.0f)), device);  // through the host
    auto all = to_device(zeros<std::int32_t>(Shape{2 * ranks}), device);
    auto const own = to_device(full<std::int32_t>(Shape{2}, rank), device);
    auto const a = port->start_all_reduce(memory, 1000, DType::float32, comm::PortOp::sum, where);
    auto const b = port->start_all_reduce(narrow.data(), 3000, DType::bfloat16, comm::PortOp::sum, where);
    auto const c = port->start_all_gather(own.data(), all.data(), 2, DType::int32, where);
    port->barrier(where);
    while (!port->test(c)) {}
    port->wait(b);
    port->wait(a);
    auto sum_here = zeros<float>(Shape{1000});
    device.copy_to_host(sum_here.data(), memory, 4000);
    report.expect(sum_here(999) == static_cast<float>(ranks * (ranks + 1) / 2), "all_reduce through a port");
    report.expect(to_host(narrow)(2999) == bfloat16(static_cast<float>(2 * ranks)), "a part through the host");
    report.expect(to_host(all)(2 * ranks - 1) == ranks - 1, "all_gather through a port");
    report.expect(port->share(64, where) == nullptr, "no block of all ranks on devices");
    port->release(memory);
  });
}

TEST_CASE("Nccl uses NCCL where it can, and counts it") {
  on_ranks([](auto& comm, laws::Report& report) {
    comm.start_statistics();
    auto const x = to_device(full<float>(Shape{1000}, 1.0f), comm.backend().accelerator());
    auto y = clone(x);
    comm.all_reduce(x, y, sum);
    comm.scan(y, sum);
    auto const statistics = comm.statistics();
    auto const by = [&](comm::Algorithm algorithm) {
      std::int64_t operations = 0;
      for (auto const& row : statistics.operations)
        operations += row.wire[static_cast<std::size_t>(algorithm)].operations;
      return operations;
    };
    report.expect(by(comm::Algorithm::library) == 1, "one call by NCCL");
  });
}

TEST_CASE("Nccl stands on a backend that passes messages alone") {
  for (auto const level : {comm::CheckLevel::cheap, comm::CheckLevel::off})
    on_ranks([&](auto& outer, laws::Report& report) {
      using Host = test::MessagesOnly;
      List<int> members;
      for (int r = 0; r < outer.size(); ++r) members.push_back(r);
      Host host(outer.backend().inner().split(0, 0, members), level);
      Communicator<NcclOn<Host>> comm(NcclOn<Host>(std::move(host), outer.backend().accelerator()));
      laws::device_vectors<Cuda, float>(comm, report);
      laws::device_reductions<Cuda, std::int32_t>(comm, report);
      report.expect(comm.all_reduce(1, sum) == comm.size(), "a number");
    });
}

TEST_CASE("Nccl says what it is") {
  auto const info = NcclOn<Threads>::info();
  CHECK(info.name == "nccl");
  CHECK(info.available);
  CHECK(info.priority < Threads::info().priority);
  CHECK(test::contains(info.text, "ranks are GPUs, of which this machine has " + std::to_string(cuda::device_count()) +
                                      ", by way of threads"));
  CHECK(nccl::version_text(2804) == "2.8.4");
  CHECK(nccl::version_text(22809) == "2.28.9");
}

TEST_CASE("auto takes Nccl where a launcher gave each rank a device, and nowhere else") {
  struct Variable {
    char const* name;
    Variable(char const* which, char const* value) : name(which) { ::setenv(name, value, 1); }
    ~Variable() { ::unsetenv(name); }
  };
  using Ranks = NcclOn<Threads>;
  comm::BackendInfo const processes{.name = "mpi", .priority = 20, .processes = true};
  comm::BackendInfo const threads{.name = "threads", .priority = 10};
  CHECK(Ranks::priority(processes, 4) < 0);  // nobody says how many
  Variable const all("PMI_SIZE", "4");
  CHECK(Ranks::priority(processes, 4) > processes.priority);
  CHECK(Ranks::priority(processes, 3) < 0);
  CHECK(Ranks::priority(threads, 4) < 0);
  Variable const here("MPI_LOCALNRANKS", "2");
  CHECK(Ranks::priority(processes, 2) > processes.priority);
  CHECK(Ranks::priority(processes, 1) < 0);
  CHECK(Ranks::priority(processes, 0) < 0);
}

TEST_CASE("launch gives each rank a device") {
  if (cuda::device_count() < 2) return;
  std::vector<char const*> arguments{"program", "--ranks=2"};
  std::vector<int> devices(2, -1);
  int const code = launch<NcclOn<Threads>>(2, const_cast<char**>(arguments.data()), [&](auto& comm) {
    devices[static_cast<std::size_t>(comm.rank())] = comm.backend().accelerator().index();
    auto x = to_device(full<double>(Shape{3}, 1.0), comm.backend().accelerator());
    comm.all_reduce(x, sum);
    return to_host(x)(2) == 2.0 ? 0 : 1;
  });
  CHECK(code == 0);
  CHECK(devices == std::vector<int>{0, 1});
}

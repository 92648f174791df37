// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of a port, the door through which programs of graphs reach a communicator.

#include <tutti/comm/communicator_port.hpp>
#include <tutti/testing/laws/report.hpp>

#include <cstdint>
#include <vector>

namespace tutti::laws {

template <class Comm>
void ports(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto const port = comm::port(comm);
  report.expect(port->rank() == rank && port->size() == ranks, "a port knows its rank and size");
  auto const where = std::source_location::current();
  std::vector<float> x(1001, static_cast<float>(rank + 1));
  std::vector<bfloat16> y(5000, bfloat16(static_cast<float>(rank + 1)));
  std::vector<std::int32_t> all(static_cast<std::size_t>(3 * ranks));
  std::vector<std::int32_t> const mine(3, rank);
  std::vector<double> whole(static_cast<std::size_t>(4 * ranks), 1.0 + rank);
  std::vector<double> part(4);
  std::vector<std::uint8_t> bytes(9, static_cast<std::uint8_t>(rank));
  auto const total = static_cast<float>(ranks * (ranks + 1) / 2);
  auto const a = port->start_all_reduce(x.data(), 1001, DType::float32, comm::PortOp::sum, where);
  auto const b = port->start_all_reduce(y.data(), 5000, DType::bfloat16, comm::PortOp::avg, where);
  auto const c = port->start_all_gather(mine.data(), all.data(), 3, DType::int32, where);
  auto const d = port->start_reduce_scatter(whole.data(), part.data(), 4, DType::float64, comm::PortOp::max, where);
  auto const e = port->start_broadcast(bytes.data(), 9, DType::uint8, ranks - 1, where);
  while (!port->test(e)) {}
  port->wait(b);
  port->wait(a);
  port->wait(d);
  port->wait(c);
  report.expect(x[1000] == total, "all_reduce through a port");
  report.expect(static_cast<float>(y[4999]) == static_cast<float>(bfloat16(total / static_cast<float>(ranks))),
                "avg of bfloat16 through a port");
  bool gathered = true;
  for (int r = 0; r < ranks; ++r) gathered = gathered && all[static_cast<std::size_t>(3 * r)] == r;
  report.expect(gathered, "all_gather through a port");
  report.expect(part[3] == static_cast<double>(ranks), "reduce_scatter through a port");
  report.expect(bytes[8] == ranks - 1, "broadcast through a port");
  // Into this rank's part of the operand, short ones and those that a transport does not copy; several under way.
  for (std::int64_t const count : {0, 3, 20'000}) {
    std::vector<std::vector<float>> operands;
    std::vector<comm::Port::Ticket> tickets;
    for (int i = 0; i < 3; ++i) {
      std::vector<float>& operand = operands.emplace_back(static_cast<std::size_t>(count * ranks));
      for (std::int64_t k = 0; k < count * ranks; ++k)
        operand[static_cast<std::size_t>(k)] = static_cast<float>((rank + 1) * (k % 97 + i));
    }
    for (std::size_t i = 0; i < 3; ++i)
      tickets.push_back(port->start_reduce_scatter(operands[i].data(), operands[i].data() + count * rank, count,
                                                   DType::float32, i == 1 ? comm::PortOp::avg : comm::PortOp::sum,
                                                   where));
    bool right = true;
    for (std::size_t i = 0; i < 3; ++i) {
      port->wait(tickets[i]);
      for (std::int64_t k = count * rank; k < count * (rank + 1); ++k) {
        float const expected = total * static_cast<float>(k % 97 + static_cast<std::int64_t>(i)) /
                               (i == 1 ? static_cast<float>(ranks) : 1.0f);
        float const error = operands[i][static_cast<std::size_t>(k)] - expected;
        right = right && error <= 1e-6f * expected && error >= -1e-6f * expected;
      }
    }
    report.expect(right, "reduce_scatter of " + std::to_string(count) + " into the operand through a port");
  }
  auto* const memory = static_cast<float*>(port->allocate(64));
  memory[0] = 1.0f;
  auto const cancelled = port->start_all_reduce(memory, 16, DType::float32, comm::PortOp::sum, where);
  port->cancel(cancelled);
  bool refused = false;
  try {
    port->wait(cancelled);
  } catch (Error const& error) {
    refused = error.kind() == ErrorKind::invalid_argument;
  }
  report.expect(refused, "a cancelled ticket is refused");
  refused = false;
  bool flag = true;
  try {
    static_cast<void>(port->start_all_reduce(&flag, 1, DType::boolean, comm::PortOp::sum, where));
  } catch (Error const& error) {
    refused = error.kind() == ErrorKind::dtype;
  }
  report.expect(refused, "bool has no sum through a port either");

  // A block of all ranks: each writes its element, after a barrier all see them.
  auto* const block = static_cast<std::int32_t*>(port->share(static_cast<std::size_t>(ranks) * 4 + 1, where));
  double meets = 0;
  auto const barrier = [&] { port->wait(port->start_all_reduce(&meets, 1, DType::float64, comm::PortOp::sum, where)); };
  meets = block == nullptr ? 0 : 1;
  barrier();
  report.expect(meets == 0 || meets == ranks, "all ranks share a block, or none");
  if (block == nullptr) return;
  block[comm.rank()] = comm.rank() + 7;
  barrier();
  bool seen = reinterpret_cast<std::uintptr_t>(block) % 64 == 0;
  for (int r = 0; r < ranks; ++r) seen = seen && block[r] == r + 7;
  report.expect(seen, "a shared block holds what every rank wrote, and begins at a cache line");
  barrier();
  if (comm.rank() == ranks - 1) port->release(block);  // one of them early: the others may go on
  else report.expect(block[ranks - 1] == ranks + 6, "a shared block lives as long as somebody holds it");
  auto* const second = static_cast<std::int32_t*>(port->share(static_cast<std::size_t>(ranks) * 4 + 1, where));
  report.expect(comm.rank() == ranks - 1 || second != block, "a block that is held is not given out again");
  barrier();
  port->release(second);
  if (comm.rank() != ranks - 1) port->release(block);
}

}  // namespace tutti::laws

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A program that makes the mistake named by its first argument; mistakes.py looks at what each rank says of it.
// Covers: <tutti/comm/comparison.hpp>
// Covers: <tutti/comm/verdict.hpp>

#include <tutti/backend/mpi.hpp>
#include <tutti/comm.hpp>

#include <complex>
#include <cstdint>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

using namespace tutti;

namespace {

struct One {
  BOOST_HANA_DEFINE_STRUCT(One, (float, weight), (int, index));
};
struct Other {
  BOOST_HANA_DEFINE_STRUCT(Other, (int, index), (float, weight));
};

}  // namespace

int main(int argc, char** argv) {
  std::string const mistake = argc > 1 ? argv[1] : "";
  return launch<Mpi>(argc, argv, [&](auto& comm) -> int {
    comm.set_deadline_seconds(1.5);
    auto row = comm.split(0);
    std::vector<float> x(8);
    std::vector<float> large(comm.rank() == 1 ? 50'000 : 60'000);
    bool const odd = comm.rank() == 1;
    if (mistake == "count") comm.all_reduce(std::span(x.data(), odd ? 4 : 8), sum);
    if (mistake == "large_count") comm.all_reduce(large, sum);
    if (mistake == "operator") odd ? comm.all_reduce(x, max) : comm.all_reduce(x, sum);
    if (mistake == "root") comm.broadcast(x, odd ? 1 : 0);
    if (mistake == "kind") odd ? comm.broadcast(x) : comm.all_reduce(x, sum);
    if (mistake == "derived_kind") odd ? comm.scan(x, sum) : comm.scan(x, max);
    if (mistake == "type") {
      std::vector<int> integers(8);
      odd ? comm.all_reduce(integers, sum) : comm.all_reduce(x, sum);
    }
    if (mistake == "struct") {
      std::vector<One> ones(3);
      std::vector<Other> others(3);
      odd ? comm.broadcast(others) : comm.broadcast(ones);
    }
    if (mistake == "complex") {
      std::vector<std::complex<float>> numbers(4);
      odd ? comm.all_reduce(numbers, sum) : comm.all_reduce(x, sum);
    }
    if (mistake == "split") {
      if (odd) comm.barrier();
      else comm.split(0);
    }
    if (mistake == "inferred") {
      std::vector<int> integers(8);
      odd ? static_cast<void>(comm.all_gather_v(integers)) : static_cast<void>(comm.all_gather_v(x));
    }
    if (mistake == "inferred_kind") odd ? static_cast<void>(comm.all_gather_v(x)) : comm.all_reduce(x, sum);
    if (mistake == "blocks") {
      std::vector<float> all(12);
      comm.gather_v(std::span(x.data(), odd ? 3 : 4), all, {4, 4, 4}, 2);
    }
    if (mistake == "counts") {
      std::vector<float> all(odd ? 11 : 12);
      comm.all_gather_v(std::span(x.data(), 4), all, {4, 4, odd ? 3 : 4});
    }
    if (mistake == "pairs") {
      std::vector<double> from(6), to(6);
      if (odd) comm.all_to_all_v(from, to, {1, 2, 3}, {2, 2, 2});
      else comm.all_to_all_v(from, to, {2, 2, 2}, {2, 2, 2});
    }
    if (mistake == "communicator") odd ? row.barrier() : comm.barrier();
    if (mistake == "leave_message") {
      if (comm.rank() == 0) static_cast<void>(comm.template recv<float>(1));
      return 0;
    }
    if (mistake == "async") {
      auto first = comm.all_reduce_async(x, sum);
      auto second = odd ? comm.all_reduce_async(large, sum) : comm.all_reduce_async(large, max);
      first.wait();
      second.wait();
    }
    if (mistake == "message") {
      if (odd) comm.barrier();
      else static_cast<void>(comm.template recv<float>(1, 7));
    }
    std::vector<float> long_message(500'000), room(500'000);
    if (mistake == "send_to_each_other" && comm.rank() < 2) {
      comm.send(long_message, 1 - comm.rank(), 3);
      comm.recv(room, 1 - comm.rank(), 3);
    }
    if (mistake == "send_to_oneself" && odd) {
      comm.send(long_message, 1, 3);
      comm.recv(room, 1, 3);
    }
    if (mistake == "other_tag") {
      if (odd) comm.send(x, 0, 5);
      comm.rank() != 0 ? comm.barrier() : static_cast<void>(comm.recv(x, 1, 7, within(0.7)));
    }
    if (mistake == "other_source" && comm.rank() != 1) {
      if (comm.rank() == comm.size() - 1) comm.send(std::span(x.data(), 3), 0, 5);
      if (comm.rank() == 0) static_cast<void>(comm.template recv<float>(1, 5, within(0.7)));
    }
    if (mistake == "message_type") {
      std::vector<std::int32_t> integers(8);
      if (odd) comm.send(x, 0, 5);
      comm.rank() != 0 ? comm.barrier() : static_cast<void>(comm.recv(integers, 1, 5));
    }
    if (mistake == "inferred_type") {
      if (odd) comm.send(long_message, 0, 5);
      comm.rank() != 0 ? comm.barrier() : static_cast<void>(comm.template recv<std::int32_t>(1, 5));
    }
    if (mistake == "probed") {  // seen once, and then something else is wanted
      if (odd) comm.send(x, 0, 5);
      if (comm.rank() == 0) static_cast<void>(comm.probe(1));
      comm.rank() != 0 ? comm.barrier() : static_cast<void>(comm.probe(1, 6, within(0.7)));
    }
    if (mistake == "stall") {
      if (odd) ::sleep(3);
      comm.barrier();
    }
    if (mistake == "leave") {
      if (odd) return 0;
      comm.barrier();
    }
    if (mistake == "throw") {
      if (odd) throw std::runtime_error("no such luck");
      row.barrier();
    }
    if (mistake == "throw_apart") {
      auto group = comm.split(odd ? 1 : 0);
      if (odd) throw std::runtime_error("no such luck");
      group.barrier();
    }
    if (mistake == "throw_number") {
      if (odd) throw 5;
      comm.barrier();
    }
    if (mistake == "operator_throws")
      comm.all_reduce(x, [&](float a, float b) {
        if (odd) throw std::runtime_error("bad operator");
        return a + b;
      });
    if (mistake == "caught") {  // the program goes on, one rank longer than the others
      try {
        odd ? comm.all_reduce(x, max) : comm.all_reduce(x, sum);
      } catch (Error const& error) {
        std::fprintf(stderr, "rank %d: caught %s\n", comm.rank(), error.what());
        if (odd) ::sleep(3);
      }
      try {
        if (odd) row.send_async(Tensor<float>({5'000'000}), 0).wait(within(0.1));  // nobody takes it
      } catch (Error const& error) {
        std::fprintf(stderr, "rank %d: kept a message: %s\n", comm.rank(), error.what());
      }
    }
    if (mistake == "late") {  // to a call that has failed, and then at work for longer than the deadline
      if (odd) ::sleep(2);
      try {
        comm.barrier();
      } catch (Error const& error) {
        std::fprintf(stderr, "rank %d: caught %s\n", comm.rank(), error.what());
      }
      if (odd) ::sleep(4);
    }
    if (mistake == "busy") {  // elsewhere, while one fails: the others never call what it waits for
      auto pair = comm.split(comm.rank() == 0 ? 0 : 1);
      if (comm.rank() != 0) {
        for (int i = 0; i < 50; ++i) {
          if (odd == (i % 2 == 0)) ::usleep(100'000);  // each waits for the other in turn
          pair.barrier();
        }
      } else {
        try {
          comm.barrier();
        } catch (Error const& error) {
          std::fprintf(stderr, "rank %d: caught %s\n", comm.rank(), error.what());
        }
      }
    }
    if (mistake == "stuck") {  // for good, while the others catch the error and end
      if (odd) for (;;) ::sleep(1);
      try {
        comm.barrier();
      } catch (Error const&) {
      }
    }
    if (mistake == "exit") {
      if (odd) std::exit(0);
      comm.barrier();
    }
    if (mistake == "stop") {  // for good; the others catch the error and end
      if (odd) ::raise(SIGSTOP);
      try {
        comm.barrier();
      } catch (Error const& error) {
        std::fprintf(stderr, "rank %d: caught %s\n", comm.rank(), error.what());
      }
    }
    if (mistake == "kill") {
      if (odd) ::raise(SIGKILL);
      comm.barrier();
    }
    return mistake == "code" && odd ? -1 : 0;
  });
}

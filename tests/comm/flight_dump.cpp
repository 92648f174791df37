// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Flight records as files: when they are written, that they are JSON, and what tutti-doctor reads in them.
// Covers: <tutti/comm/flight_dump.hpp>
// Covers: <tutti/comm/flight_json.hpp>
// Covers: <tutti/comm/json_members.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm.hpp>

#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdio>
#include <complex>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <latch>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <vector>

using namespace tutti;
using test::contains;

namespace {

nlohmann::json read_json(std::string const& file) {
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}
void pause_ms(int ms) {
  timespec const time{ms / 1000, (ms % 1000) * 1'000'000L};
  ::nanosleep(&time, nullptr);
}

volatile std::sig_atomic_t former_calls = 0;

/// What the program prints on both streams, and "status N" when it does not leave with 0.
std::string doctor(std::string const& arguments) {
  char const* const program = std::getenv("TUTTI_DOCTOR");
  if (program == nullptr) return "TUTTI_DOCTOR names no program: run this test through meson";
  std::FILE* const pipe = ::popen((std::string(program) + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "no pipe";
  std::string text;
  char part[4096];
  for (std::size_t got = 0; (got = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, got);
  if (int const status = ::pclose(pipe); status != 0) text += "status " + std::to_string(WEXITSTATUS(status));
  return text;
}

/// f on every rank, after two collectives that are right; errors are what is wanted. Gives the doctor's words.
template <class F>
std::string diagnosed(int ranks, F&& f, double deadline_seconds = 20) {
  test::ScratchFolder const folder;
  try {
    threads::run(
        ranks,
        [&](auto& comm) {
          comm.barrier();
          static_cast<void>(comm.all_reduce(1, sum));
          try {
            f(comm);
          } catch (Error const&) {
          }
        },
        {.deadline_seconds = deadline_seconds, .flight_record = folder / "run"});
  } catch (Error const&) {
  }
  std::string const text = doctor(folder / "run.*.json");
  INFO(text);
  CHECK(!contains(text, "status"));
  return text;
}

}  // namespace

TEST_CASE("a recorder as JSON says all that it holds") {
  FlightRecorder recorder({.rank = 2, .size = 4, .communicator = "world-3-0", .world_rank = 3});
  comm::Collective call{.kind = comm::Kind::reduce, .dtype = DType::bfloat16, .root = 1, .count = 5};
  call.reduction.op = Operator::max;
  recorder.complete(recorder.begin(call, 12));
  recorder.begin(FlightRecord::What::recv, -1, any_source, 9, std::source_location::current());
  auto const json = nlohmann::json::parse(comm::to_json(recorder, "a \"quoted\" text,\n a tab\t and \\"));
  CHECK(json.at("rank") == 2);
  CHECK(json.at("size") == 4);
  CHECK(json.at("world_rank") == 3);
  CHECK(json.at("communicator") == "world-3-0");
  CHECK(json.at("reason") == "a \"quoted\" text,\n a tab\t and \\");
  REQUIRE(json.at("records").size() == 2);
  auto const& reduce = json.at("records")[0];
  CHECK(reduce.at("operation") == "reduce");
  CHECK(reduce.at("operator") == "max");
  CHECK(reduce.at("dtype") == "bfloat16");
  CHECK(reduce.at("number") == 12);
  CHECK(reduce.at("root") == 1);
  CHECK(reduce.at("count") == 5);
  CHECK(reduce.at("bytes") == 10);
  CHECK(reduce.at("state") == "completed");
  CHECK(reduce.at("end_ns") >= reduce.at("begin_ns"));
  auto const& recv = json.at("records")[1];
  CHECK(recv.at("operation") == "recv");
  CHECK(recv.at("peer") == -1);
  CHECK(recv.at("tag") == 9);
  CHECK(recv.at("bytes") == -1);
  CHECK(recv.at("state") == "started");
  CHECK(contains(recv.at("file").get<std::string>(), "flight_dump.cpp"));
}

TEST_CASE("the first error of a communicator writes the files of all ranks, and no error writes none") {
  test::ScratchFolder const folder;
  CommunicatorOptions const options{.flight_record = folder / "run"};
  threads::run(2, [](auto& comm) { comm.barrier(); }, options);
  CHECK(folder.names().empty());
  threads::run(
      2,
      [](auto& comm) {
        for (int attempt = 0; attempt < 3; ++attempt) try {
            std::vector<int> x(static_cast<std::size_t>(comm.rank() + 1));
            comm.all_reduce(x, sum);
          } catch (Error const&) {
          }
      },
      options);
  for (int rank : {0, 1}) {
    auto const json = read_json(folder / ("run.rank" + std::to_string(rank) + ".json"));
    CHECK(json.at("rank") == rank);
    CHECK(json.at("records").size() == 1);
    CHECK(json.at("records")[0].at("state") == "failed");
    CHECK(contains(json.at("reason").get<std::string>(), "count"));
  }
}

TEST_CASE("the first collective that fails is dumped also when a message failed before it") {
  test::ScratchFolder const folder;
  threads::run(
      2,
      [](auto& comm) {
        try {
          static_cast<void>(comm.template recv<int>(1 - comm.rank(), 3, within(0.1)));
        } catch (Error const&) {
        }
        try {
          comm.rank() == 0 ? comm.barrier() : static_cast<void>(comm.all_reduce(1, sum));
        } catch (Error const&) {
        }
      },
      {.flight_record = folder / "run"});
  for (int rank : {0, 1}) {
    auto const json = read_json(folder / ("run.rank" + std::to_string(rank) + ".json"));
    CHECK(json.at("records").size() == 2);
    CHECK(contains(json.at("reason").get<std::string>(), "ranks disagree"));
  }
}

TEST_CASE("the environment variable names the files, and groups have their own") {
  test::ScratchFolder const folder;
  std::string const prefix = folder / "job";
  std::string const result = test::in_child({{"TUTTI_FLIGHT_RECORD", prefix.c_str()}}, [] {
    threads::run(2, [](auto& comm) {
      auto pair = comm.split(0, -comm.rank());
      try {
        std::vector<int> x(static_cast<std::size_t>(pair.rank() + 1));
        pair.all_reduce(x, sum);
      } catch (Error const&) {
      }
    });
    return std::string("done");
  });
  CHECK(result == "done");
  auto const json = read_json(folder / "job.world-1-0.rank0.json");
  CHECK(json.at("communicator") == "world-1-0");
  CHECK(json.at("world_rank") == 1);
  CHECK(folder.names().size() == 2);
}

TEST_CASE("a file that cannot be written is told, and the error stays what it was") {
  std::string const result = test::in_child(
      {},
      [] {
        threads::run(
            1,
            [](auto& comm) {
              comm.send(std::vector<int>(1), 0);
              std::vector<int> two(2);
              comm.recv(two, 0);
            },
            {.flight_record = "/nowhere/at/all"});
        return std::string("no error");
      },
      test::Errors::capture);
  CHECK(contains(result, "could not be written to /nowhere/at/all.rank0.json"));
  CHECK(contains(result, "has 4 bytes, the buffer 8"));
}

TEST_CASE("SIGUSR1 dumps all ranks of the process, calls the handler that was there, and the program goes on") {
  test::ScratchFolder const folder;
  std::string const prefix = folder / "job";
  std::string const result = test::in_child({{"TUTTI_FLIGHT_RECORD", prefix.c_str()}}, [] {
    int sum_of_ranks = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { former_calls = former_calls + 1; };
    ::sigaction(SIGUSR1, &action, nullptr);
    comm::dump_on_signal();
    comm::dump_on_signal();
    threads::run(2, [&](auto& comm) {
      comm.barrier();
      if (comm.rank() == 1) ::raise(SIGUSR1);
      comm.barrier();
      int const sum_here = comm.all_reduce(comm.rank(), sum);
      if (comm.rank() == 0) sum_of_ranks = sum_here;
    });
    ::raise(SIGUSR1);  // no recorder is left to read
    return std::to_string(sum_of_ranks) + ", handler called " + std::to_string(former_calls);
  });
  CHECK(result == "1, handler called 2");
  for (int rank : {0, 1}) {
    auto const json = read_json(folder / ("job.rank" + std::to_string(rank) + ".json"));
    CHECK(json.at("reason") == "SIGUSR1");
    CHECK(json.at("records")[0].at("operation") == "barrier");
  }
}

TEST_CASE("SIGTERM dumps and then ends the program as before") {
  test::ScratchFolder const folder;
  std::string const prefix = folder / "job";
  std::string const result = test::in_child({{"TUTTI_FLIGHT_RECORD", prefix.c_str()}}, [] {
    ::signal(SIGTERM, SIG_DFL);  // the test program has a handler
    char program[] = "program";
    char ranks[] = "--ranks=2";
    char* arguments[] = {program, ranks, nullptr};
    launch<Threads>(2, arguments, [](auto& comm) {
      comm.barrier();
      if (comm.rank() == 0) ::raise(SIGTERM);
      comm.barrier();
    });
    return std::string("still there");
  });
  CHECK(result == "status " + std::to_string(SIGTERM));
  CHECK(read_json(folder / "job.rank0.json").at("reason") == "SIGTERM");
  CHECK(read_json(folder / "job.rank1.json").at("reason") == "SIGTERM");
}

TEST_CASE("the doctor names the rank with another count") {
  auto const text = diagnosed(3, [](auto& comm) {
    std::vector<float> x(comm.rank() == 1 ? 4 : 8);
    comm.all_reduce(x, sum);
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 1 makes another call at collective 2: count 4 against 8."));
  CHECK(contains(text, "ranks 0 and 2: all_reduce(sum, float32, count 8) at flight_dump.cpp:"));
}

TEST_CASE("the doctor names the rank with another operator") {
  auto const text = diagnosed(3, [](auto& comm) {
    std::vector<float> x(8);
    if (comm.rank() == 0) comm.all_reduce(x, max);
    else comm.all_reduce(x, sum);
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 0 makes another call at collective 2: operator max against sum."));
}

TEST_CASE("the doctor names the rank with another root") {
  auto const text = diagnosed(3, [](auto& comm) {
    std::vector<double> x(8);
    comm.broadcast(x, comm.rank() == 2 ? 1 : 0);
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 2 makes another call at collective 2: root 1 against 0."));
}

TEST_CASE("the doctor names the rank with another kind of collective") {
  auto const text = diagnosed(3, [](auto& comm) {
    std::vector<double> x(8);
    if (comm.rank() == 1) comm.barrier();
    else comm.all_reduce(x, sum);
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 1 makes another call at collective 2: kind barrier against all_reduce."));
}

TEST_CASE("of two ranks that disagree the doctor names both") {
  auto const text = diagnosed(2, [](auto& comm) {
    std::vector<double> x(comm.rank() == 1 ? 4 : 8);
    comm.all_reduce(x, sum);
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: one of ranks 0 and 1, which disagree at collective 2: count 4 against 8."));
}

TEST_CASE("the doctor names the rank that waits for a message which nobody sends") {
  auto const text = diagnosed(
      3,
      [](auto& comm) {
        std::vector<int> x(1);
        if (comm.rank() == 1) comm.recv(x, 0, 5);
        else comm.barrier();
      },
      0.5);
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 1 is behind: others are at collective 2, barrier() at flight_dump.cpp:"));
  CHECK(contains(text, "rank 1 waits in recv from rank 0, tag 5, 4 bytes at flight_dump.cpp:"));
}

TEST_CASE("the doctor names the rank that comes when the others have given up") {
  auto const text = diagnosed(
      3,
      [](auto& comm) {
        if (comm.rank() == 2) pause_ms(1500);
        comm.barrier();
      },
      0.3);
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 2 came late to collective 2, barrier() at flight_dump.cpp:"));
}

TEST_CASE("the doctor names the rank that left no dump") {
  auto const text = diagnosed(
      3,
      [](auto& comm) {
        if (comm.rank() == 0) pause_ms(1500);
        else comm.barrier();
      },
      0.3);
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: probably rank 0, of which there is no dump"));
}

TEST_CASE("the doctor names the rank that threw an exception of its own") {
  auto const text = diagnosed(3, [](auto& comm) {
    if (comm.rank() == 0) throw std::runtime_error("no such luck");
    comm.barrier();
  });
  CAPTURE(text);
  CHECK(contains(text, "3 dumps"));
  CHECK(contains(text, "CULPRIT: rank 0 failed by itself: no such luck"));
}

TEST_CASE("the doctor names both ranks whose calls differ in what records do not hold") {
  auto const text = diagnosed(3, [](auto& comm) {
    std::vector<float> x(8);
    std::vector<std::complex<float>> z(4);
    if (comm.rank() == 1) comm.all_reduce(z, sum);
    else comm.all_reduce(x, sum);
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: one of ranks 0 and 1, which disagree: ranks disagree: rank 0 calls all_reduce(sum, "
                       "float32, count 8)"));
  CHECK(contains(text, "rank 1 calls all_reduce(sum, complex float32, count 4)"));
}

TEST_CASE("the doctor names the rank whose operator threw") {
  auto const text = diagnosed(3, [](auto& comm) {
    std::vector<int> x(9, 1);
    comm.all_reduce(x, [rank = comm.rank()](int a, int b) {  // so short that every rank reduces all of it
      if (rank == 0) throw std::runtime_error("no such luck");
      return a + b;
    });
  });
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: rank 0 failed by itself: no such luck"));
}

TEST_CASE("what a rank calls after an error that it has caught is no other call") {
  std::latch given_up(3);
  auto const text = diagnosed(
      3,
      [&](auto& comm) {
        std::vector<int> x(1);
        try {
          if (comm.rank() == 1) comm.recv(x, 0, 5);
          else comm.all_reduce(x, sum);
        } catch (Error const&) {
        }
        given_up.arrive_and_wait();  // nobody waits in an all_reduce that the barrier could meet
        if (comm.rank() == 1) comm.barrier();
      },
      0.3);
  CAPTURE(text);
  CHECK(!contains(text, "another call"));
  CHECK(contains(text, "CULPRIT: rank 1 is behind"));
  CHECK(contains(text, "rank 1 waits in recv from rank 0, tag 5"));
}

TEST_CASE("the doctor names both ends of receives that wait for one another") {
  auto const text = diagnosed(
      2,
      [](auto& comm) {
        std::vector<int> x(1);
        comm.recv(x, 1 - comm.rank(), 3);
      },
      0.3);
  CAPTURE(text);
  CHECK(contains(text, "CULPRIT: messages that nobody sends or takes"));
  CHECK(contains(text, "rank 0 waits in recv from rank 1, tag 3"));
  CHECK(contains(text, "rank 1 waits in recv from rank 0, tag 3"));
}

TEST_CASE("the doctor tells that ranks wait on different communicators") {
  test::ScratchFolder const folder;
  try {
    threads::run(
        2,
        [](auto& comm) {
          auto other = comm.duplicate();
          comm.rank() == 0 ? comm.barrier() : other.barrier();
        },
        {.deadline_seconds = 0.4, .flight_record = folder / "run"});
  } catch (Error const&) {
  }
  auto const text = doctor(folder / "run*.json");
  CAPTURE(text);
  CHECK(contains(text, "1 dump\n"));
  CHECK(
      contains(text, "NOTE: ranks wait on different communicators: rank 0 on world in barrier() at flight_dump.cpp:"));
  CHECK(contains(text, "rank 1 on world-1-0 in barrier() at flight_dump.cpp:"));
}

TEST_CASE("of a healthy program the doctor says so") {
  test::ScratchFolder const folder;
  threads::run(2, [&](auto& comm) {
    comm.barrier();
    if (comm.rank() == 0) comm.send(std::vector<int>(1), 1);
    else static_cast<void>(comm.template recv<int>(0));
    std::ofstream(folder / std::to_string(comm.rank())) << comm::to_json(comm.flight_recorder());
  });
  auto const text = doctor((folder / "0") + " " + (folder / "1"));
  CAPTURE(text);
  CHECK(contains(text, "communicator world, 2 ranks, 2 dumps"));
  CHECK(contains(text, "No culprit"));
}

TEST_CASE("the doctor refuses what is no flight record, with the name of the file") {
  test::ScratchFolder const folder;
  std::ofstream(folder / "half") << "{\"tutti_flight_record\": 1, \"ra";
  std::ofstream(folder / "other") << "[1, 2]";
  FlightRecorder const recorder({});
  std::ofstream(folder / "good") << comm::to_json(recorder);
  std::ofstream(folder / "old") << "{\"tutti_flight_record\": 1, \"rank\": 0}";
  for (char const* name : {"half", "other", "missing", "old"}) {
    auto const text = doctor(folder / name);
    CAPTURE(text);
    CHECK(contains(text, folder / name));
    CHECK(contains(text, "status 1"));
    CHECK(!contains(text, "json.exception"));
  }
  CHECK(contains(doctor((folder / "good") + " " + (folder / "good")), "Name one file for each rank"));
  CHECK(contains(doctor(""), "usage: tutti-doctor DUMP..."));
  CHECK(contains(doctor("--help"), "usage: tutti-doctor DUMP..."));
}

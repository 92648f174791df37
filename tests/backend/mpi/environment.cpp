// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// MPI's life in a program of one process, and what the keys of MpiConfig do there. Calls of MPI are counted by
/// defining them, which is MPI's own way to profile a program.
// Covers: <tutti/backend/mpi/process.hpp>

#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/backend/mpi/backend.hpp>
#include <tutti/backend/mpi/environment.hpp>
#include <tutti/comm.hpp>

#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace tutti;
using mpi::Environment;
using test::contains;
using test::in_child;

namespace {

std::atomic<int> initialisations{0};
std::atomic<int> finalisations{0};
std::string profiling_levels;
bool small_tags = false;

std::string flags() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return std::to_string(initialised) + std::to_string(finalised);
}

/// The number behind a control variable of MPICH.
int control_variable(char const* name) {
  int index = 0;
  int count = 0;
  int value = -1;
  MPI_T_cvar_handle handle{};
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return -1;
  MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count);
  MPI_T_cvar_read(handle, &value);
  MPI_T_cvar_handle_free(&handle);
  return value;
}

}  // namespace

extern "C" {
int MPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
  ++initialisations;
  return PMPI_Init_thread(argc, argv, wanted, provided);
}
int MPI_Finalize() {
  ++finalisations;
  return PMPI_Finalize();
}
int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  static int least = 32767;  // what the standard promises
  if (!small_tags || key != MPI_TAG_UB) return PMPI_Comm_get_attr(comm, key, value, found);
  *static_cast<int**>(value) = &least;
  *found = 1;
  return MPI_SUCCESS;
}
int MPI_Pcontrol(int const level, ...) {
  profiling_levels += std::to_string(level) + " ";
  return MPI_SUCCESS;
}
}

TEST_CASE("the first environment initialises MPI, the last one finalises it, and there is no second life") {
  CHECK(in_child({}, [] {
          std::string text = flags();
          auto first = std::make_unique<Environment>();
          text += " " + flags() + (first->owns() ? " owned" : " not owned");
          auto second = std::make_unique<Environment>();
          first.reset();
          text += " " + flags();
          second.reset();
          text += " " + flags() + " " + std::to_string(initialisations) + std::to_string(finalisations) + " ";
          try {
            Environment const third;
          } catch (Error const& error) {
            text += error.message();
          }
          return text;
        }) ==
        "00 10 owned 10 11 11 MPI was finalised before. A process can use MPI once: keep one environment alive");
}

TEST_CASE("threads that construct environments at once share one initialisation and see the granted level") {
  CHECK(in_child({}, [] {
          constexpr int threads = 8;
          std::atomic<int> ready{0};
          std::atomic<int> inside{0};
          std::vector<int> levels(threads, -1);
          std::vector<std::thread> team;
          for (int t = 0; t < threads; ++t)
            team.emplace_back([&, t] {
              ++ready;
              while (ready != threads) std::this_thread::yield();
              Environment const environment;
              levels[static_cast<std::size_t>(t)] = environment.thread_level();
              ++inside;
              while (inside != threads) std::this_thread::yield();
            });
          for (auto& thread : team) thread.join();
          bool same = true;
          for (int level : levels) same = same && level == MPI_THREAD_MULTIPLE;
          return std::to_string(initialisations) + std::to_string(finalisations) + flags() +
                 (same ? " same" : " differ");
        }) == "1111 same");
}

TEST_CASE("environments that come and go in threads inside one that stays initialise and finalise nothing") {
  CHECK(in_child({}, [] {
          std::string text;
          {
            Environment const stays;
            std::vector<std::thread> team;
            for (int t = 0; t < 4; ++t)
              team.emplace_back([] {
                for (int i = 0; i < 100; ++i) Environment const environment;
              });
            for (auto& thread : team) thread.join();
            text = flags();
          }
          return text + flags() + std::to_string(initialisations) + std::to_string(finalisations);
        }) == "101111");
}

TEST_CASE("where the application uses MPI, an environment neither initialises nor finalises, and sees its level") {
  CHECK(in_child({{"TUTTI_MPI_THREAD_LEVEL", "multiple"}}, [] {
          int granted = -1;
          PMPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &granted);
          std::string text;
          {
            Environment const environment;
            text = std::string(environment.owns() ? "owned" : "not owned") +
                   (environment.thread_level() == granted ? " same level " : " other level ");
          }
          text += flags() + std::to_string(initialisations) + std::to_string(finalisations);
          PMPI_Finalize();
          return text;
        }) == "not owned same level 1000");
}

TEST_CASE("calls after the application's MPI_Finalize are errors where no environment is alive") {
  for (int const level : {MPI_THREAD_SINGLE, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE})
    CHECK(contains(in_child({}, [&] {
            int granted = -1;
            PMPI_Init_thread(nullptr, nullptr, level, &granted);
            Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD));
            std::vector<int> x(3);
            auto pending = comm.recv_async(x, 0, 5);  // dropped at the end
            PMPI_Finalize();
            std::string text;
            for (int call = 0; call < 2; ++call) {
              try {
                if (call == 0) comm.barrier();
                else static_cast<void>(comm.split(0));
                text += "went on ";
              } catch (Error const& error) {
                text += contains(error.what(), "MPI was finalised before this call") ? "told " : error.what();
              }
            }
            return text;
          }), "told told"));
}

TEST_CASE("thread_level is what MPI is asked for and grants") {
  for (auto const& [name, level] : {std::pair{"single", MPI_THREAD_SINGLE}, std::pair{"funneled", MPI_THREAD_FUNNELED},
                                    std::pair{"serialized", MPI_THREAD_SERIALIZED},
                                    std::pair{"multiple", MPI_THREAD_MULTIPLE}})
    CHECK(in_child({{"TUTTI_MPI_THREAD_LEVEL", name}}, [] {
            Environment const environment;
            int queried = -1;
            MPI_Query_thread(&queried);
            return std::to_string(queried) + (queried == environment.thread_level() ? " same" : " differs");
          }) == std::to_string(level) + " same");
}

TEST_CASE("profiling is passed to the profiler once, or not at all") {
  auto const called = [] {
    Environment const first;
    Environment const second;
    return profiling_levels;
  };
  CHECK(in_child({}, called) == "");
  CHECK(in_child({{"TUTTI_MPI_PROFILING", "off"}}, called) == "0 ");
  CHECK(in_child({{"TUTTI_MPI_PROFILING", "on"}}, called) == "1 ");
  CHECK(in_child({{"TUTTI_MPI_PROFILING", "detailed"}}, called) == "2 ");
}

TEST_CASE("tuning is in force when MPI runs, and what the user has set stays") {
  bool const mpich = mpi::family == mpi::Family::mpich;
  if (!mpich && mpi::family != mpi::Family::open_mpi) return;
  char const* const variable =
      mpich ? "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM" : "OMPI_MCA_coll_libnbc_iallreduce_algorithm";
  auto const algorithm = [&] {
    Environment const environment;
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    return std::to_string(control_variable(mpich ? variable : variable + std::strlen("OMPI_MCA_")));
  };
  char const* const by_hand = mpich ? "tsp_ring" : "ring";
  std::string const library = in_child({}, algorithm);
  std::string const latency = in_child({{"TUTTI_MPI_TUNING", "latency"}}, algorithm);
  std::string const bandwidth = in_child({{"TUTTI_MPI_TUNING", "bandwidth"}}, algorithm);
  std::string const ring = in_child({{variable, by_hand}}, algorithm);
  INFO(library << " " << latency << " " << bandwidth << " " << ring);
  CHECK(library == in_child({{"TUTTI_MPI_TUNING", "library"}}, algorithm));
  CHECK(latency != library);
  CHECK(bandwidth != library);
  CHECK(latency != bandwidth);
  std::string const list = std::string(variable) + "=" + by_hand;
  CHECK(in_child({{"TUTTI_MPI_TUNING", list.c_str()}}, algorithm) == ring);
  CHECK(ring != latency);
  CHECK(in_child({{"TUTTI_MPI_TUNING", "latency"}, {variable, by_hand}}, algorithm) == ring);
}

TEST_CASE("a tuning that cannot take effect is refused") {
  auto const start = [] {
    Environment const environment;
    return std::string("started");
  };
  if (mpi::family == mpi::Family::mpich) {
    CHECK(contains(in_child({{"TUTTI_MPI_TUNING", "MPIR_CVAR_NO_SUCH_THING=1"}}, start),
                   "tuning sets MPIR_CVAR_NO_SUCH_THING, which MPICH"));
    CHECK(contains(in_child({{"TUTTI_MPI_TUNING", "OMPI_MCA_coll=x"}}, start), "does not read"));
    CHECK(contains(in_child({{"TUTTI_MPI_TUNING", "MPIR_CVAR_IBCAST_INTRA_ALGORITHM=nonsense"}}, start),
                   "tuning has a value that MPICH"));
    CHECK(in_child({},
                   [] {
                     try {
                       Environment const refused(MpiConfig{
                           .tuning = "MPIR_CVAR_IBCAST_INTRA_ALGORITHM=sched_binomial MPIR_CVAR_NO_SUCH_THING=1"});
                     } catch (Error const&) {
                     }
                     bool const stays = std::getenv("MPIR_CVAR_IBCAST_INTRA_ALGORITHM") != nullptr;
                     return std::string(stays ? "stays set" : "nothing stays");
                   }) == "nothing stays");
  }
  CHECK(contains(in_child({{"TUTTI_MPI_TUNING", "latency"}},
                          [&] {
                            PMPI_Init(nullptr, nullptr);
                            return start();
                          }),
                 "tuning is latency, but MPI was initialised by the application"));
  std::string const text = in_child({}, [&] {
    Environment const first(MpiConfig{.tuning = "latency"});
    Environment const same(MpiConfig{.tuning = "latency"});
    Environment const silent;
    Environment const other(MpiConfig{.tuning = "bandwidth"});
    return std::string();
  });
  CHECK(contains(text, "tuning is bandwidth, but MPI was initialised with tuning latency"));
  CHECK(contains(text, "(environment.cpp:"));
}

TEST_CASE("cuda_aware is what the library says unless the user knows better, and off reaches the library") {
  auto const answer = [] {
    Environment const environment;
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    bool const aware = mpi::cuda_aware(environment.config().cuda_aware);
    return std::string(aware ? "yes " : "no ") + std::to_string(control_variable("MPIR_CVAR_ENABLE_GPU"));
  };
  std::string const library = in_child({}, answer);
  std::string const on = in_child({{"TUTTI_MPI_CUDA_AWARE", "on"}}, answer);
  std::string const off = in_child({{"TUTTI_MPI_CUDA_AWARE", "off"}}, answer);
  INFO(library << ", " << on << ", " << off);
  CHECK(contains(on, "yes"));
  CHECK(contains(off, "no"));
  if (mpi::family == mpi::Family::mpich) {
    CHECK(on == "yes 1");
    CHECK(off == "no 0");
  }
#if defined(MPICH_VERSION) && defined(MPIX_GPU_SUPPORT_CUDA)
  CHECK(in_child({}, [] {
          Environment const environment;
          int aware = -1;
          MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &aware);
          return std::to_string(aware == (mpi::cuda_aware(mpi::Switch::automatic) ? 1 : 0));
        }) == "1");
#endif
}

TEST_CASE("the configuration is printed once where it is asked for") {
  auto const start = [] {
    Environment const first;
    Environment const second;
    return std::string("done");
  };
  CHECK(!contains(in_child({}, start, test::Errors::capture), "check_level"));
  std::string const text =
      in_child({{"TUTTI_MPI_PRINT_CONFIG", "1"}, {"TUTTI_MPI_WAIT", "yield"}}, start, test::Errors::capture);
  INFO(text);
  CHECK(contains(text, "tutti on " + mpi::library() + ", 1 rank\n"));
  CHECK(contains(text, "wait = yield (TUTTI_MPI_WAIT)\n"));
  CHECK(contains(text, "thread level granted: multiple\n"));
  CHECK(text.find("check_level") == text.rfind("check_level"));
}

TEST_CASE("a library whose tags hold no types is told of, and they are compared with check_level full alone") {
  auto const receive = [] {
    small_tags = true;
    Environment const environment;
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD));
    std::vector<float> const sent(2, 1.0f);
    std::vector<std::uint32_t> bits(2);
    auto sending = comm.send_async(sent, 0, 32767);
    try {
      comm.recv(bits, 0, 32767);
    } catch (Error const& error) {
      return std::string(error.message());
    }
    sending.wait();
    return std::string(bits[1] == 0x3f800000u ? "delivered" : "damaged");
  };
  CHECK(in_child({{"TUTTI_MPI_NODE_SHARED", "off"}}, receive) == "delivered");
  CHECK(contains(in_child({}, receive), "holds float32, the buffer uint32"));  // on one node types travel along
  CHECK(contains(in_child({{"TUTTI_MPI_CHECK_LEVEL", "full"}}, receive), "holds float32, the buffer uint32"));
  auto const start = [] {
    small_tags = true;
    Environment const environment;
    return std::string("done");
  };
  char const* const told = "element types of messages are compared with check_level full only";
  CHECK(contains(in_child({{"TUTTI_MPI_PRINT_CONFIG", "1"}}, start, test::Errors::capture), told));
  CHECK(!contains(in_child({{"TUTTI_MPI_PRINT_CONFIG", "1"}, {"TUTTI_MPI_CHECK_LEVEL", "full"}}, start,
                           test::Errors::capture),
                  told));
}

TEST_CASE("a communicator without an environment is refused") {
  CHECK(contains(in_child({}, [] { return Mpi(MPI_COMM_WORLD).size() == 1 ? "one" : "several"; }),
                 "MPI is not running: it was not initialised yet, or finalised. Keep an mpi::Environment alive"));
}

TEST_CASE("after a revoke the last environment does not finalise") {
  CHECK(in_child({}, [] {
          {
            Environment const environment;
            Environment::abandoned().store(true);
          }
          return flags() + std::to_string(finalisations);
        }) == "100");
}

TEST_CASE("a null communicator, an intercommunicator and calls after MPI_Finalize are errors of this library") {
  CHECK(contains(in_child({},
                          [] {
                            Environment const environment;
                            return std::to_string(Mpi(MPI_COMM_NULL).size());
                          }),
                 "the communicator is MPI_COMM_NULL"));
  for (char const* shared : {"on", "off"}) {
    std::string const text = in_child({{"TUTTI_MPI_NODE_SHARED", shared}}, [] {
      int granted = 0;
      PMPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted);
      Environment const environment;
      Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD));
      comm.barrier();
      PMPI_Finalize();
      std::string said;
      std::vector<float> x(1000);
      auto const refused = [&](auto&& call) {
        try {
          call();
          said += "nothing ";
        } catch (Error const& error) {
          said += contains(error.what(), "MPI was finalised before this call") ? "refused " : error.what();
        }
      };
      refused([&] { comm.barrier(); });
      refused([&] { comm.all_reduce(x, sum); });
      refused([&] { static_cast<void>(comm.send_async(x, 0)); });
      refused([&] { static_cast<void>(comm.try_probe()); });
      refused([&] { static_cast<void>(comm.duplicate()); });
      try {
        Mpi const late(MPI_COMM_WORLD);
      } catch (Error const& error) {
        said += contains(error.what(), "MPI is not running") ? "none" : error.what();
      }
      return said;
    });
    INFO(shared);
    CHECK(text == "refused refused refused refused refused none");
  }
}

TEST_CASE("threads that MPI does not grant are refused, and those that it grants are not") {
  // One thread looks for a message that never comes, and meanwhile another one calls on a communicator of its own.
  auto const meet_on = [](bool same) {
    Environment const environment;
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD));
    auto duplicate = comm.duplicate();
    auto& second = same ? comm : duplicate;
    std::string said = "nothing";
    std::thread other([&] {
      ::usleep(300'000);
      try {
        second.barrier();
      } catch (Error const& error) {
        said = error.what();
      }
    });
    comm.set_deadline_seconds(1);
    try {
      static_cast<void>(comm.probe(0, 7));
    } catch (Error const&) {
    }
    other.join();
    return said;
  };
  auto const meet = [&] { return meet_on(false); };
  std::string const funneled = in_child({{"TUTTI_MPI_THREAD_LEVEL", "funneled"}}, meet);
  INFO(funneled);
  CHECK(contains(funneled, "MPI grants thread level funneled: only the thread that initialised it may call"));
  CHECK(contains(funneled, "duplicate()"));
  std::string const serialized = in_child({{"TUTTI_MPI_THREAD_LEVEL", "serialized"}}, meet);
  INFO(serialized);
  CHECK(contains(serialized, "another thread is in probe at environment.cpp:"));
  CHECK(contains(serialized, "MPI grants thread level serialized: one thread at a time"));
  CHECK(in_child({}, meet) == "nothing");
  for (char const* level : {"serialized", "multiple"}) {
    std::string const text = in_child({{"TUTTI_MPI_THREAD_LEVEL", level}}, [&] { return meet_on(true); });
    INFO(level << ": " << text);
    CHECK(contains(text, "tutti::barrier [rank 0]: another thread is in probe at environment.cpp:"));
    CHECK(contains(text, "duplicate()"));
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A crew whose ranks are threads of this process, with a `Communicator<Threads>` between them.

#include "binding.hpp"
#include "copies.hpp"
#include "crew.hpp"
#include "naive.hpp"
#include "ours.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tutti::bench {

/// What the ranks share. A rank that fails releases the others from `sync`.
class ThreadTeam {
 public:
  explicit ThreadTeam(int ranks) : ranks_(ranks), places_(static_cast<std::size_t>(ranks)) {
    policy_.spins = ranks > exec::available_processors() ? 0 : 2000;
    policy_.yields = 1 << 30;
  }

  void sync() {
    unsigned const round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    exec::Backoff backoff(policy_);
    while (round_.load(std::memory_order_acquire) == round) {
      if (failed.load(std::memory_order_relaxed)) throw std::runtime_error("another rank has failed");
      backoff.step();
    }
  }
  double max(int rank, double value) {
    place(rank).number = value;
    sync();
    for (Place const& other : places_) value = std::max(value, other.number);
    sync();
    return value;
  }
  std::int64_t sum(int rank, std::int64_t value) {
    place(rank).count = value;
    sync();
    value = 0;
    for (Place const& other : places_) value += other.count;
    sync();
    return value;
  }
  void slowest(int rank, std::vector<double>& values) {
    place(rank).values = &values;
    sync();
    if (rank == 0)
      for (Place const& other : places_)
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], (*other.values)[i]);
    sync();
  }

  std::atomic<bool> failed{false};

 private:
  struct alignas(64) Place {
    double number = 0;
    std::int64_t count = 0;
    std::vector<double>* values = nullptr;
  };
  Place& place(int rank) { return places_[static_cast<std::size_t>(rank)]; }

  int ranks_;
  exec::WaitPolicy policy_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> round_{0};
  std::vector<Place> places_;
};

class ThreadsCrew : public Crew {
 public:
  /// `arena_bytes` for each rank, from the communicator's heap unless `private_memory`.
  ThreadsCrew(int ranks, std::int64_t arena_bytes, bool private_memory)
      : team_(ranks), naive_(ranks), driver_([=, this] {
          unbind();
          try {
            threads::run(ranks, [&](Communicator<Threads>& comm) { serve(comm, arena_bytes, private_memory); });
          } catch (...) {
            std::lock_guard const lock(mutex_);
            failure_ = std::current_exception();
          }
          changed_.notify_all();
        }) {}
  ~ThreadsCrew() override {
    post(Command{});
    driver_.join();
  }
  Result run(Command const& command) override {
    post(command);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == posted_ || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    return result_;
  }

 private:
  void post(Command const& command) {
    {
      std::lock_guard const lock(mutex_);
      command_ = command;
      ++posted_;
    }
    changed_.notify_all();
  }

  void serve(Communicator<Threads>& comm, std::int64_t arena_bytes, bool private_memory) {
    int const rank = comm.rank();
    bind_rank(rank, comm.size());
    struct Ranked {
      ThreadTeam& team;
      int rank;
      void sync() { team.sync(); }
      double max(double value) { return team.max(rank, value); }
      std::int64_t sum(std::int64_t value) { return team.sum(rank, value); }
      void slowest(std::vector<double>& values) { team.slowest(rank, values); }
    } team{team_, rank};
    try {
      Shape const whole{Arena::allocation(arena_bytes)};
      Tensor<std::byte> memory = private_memory ? Tensor<std::byte>(whole) : tensor<std::byte>(comm, whole);
      Arena arena(memory.data(), arena_bytes);
      std::vector<std::byte> scratch;
      Find const find = [&](Contender contender, Case const& c) -> Call {
        switch (contender) {
          case Contender::ours: return ours(comm, c);
          case Contender::naive: return naive_call(naive_, scratch, c, rank);
          case Contender::copy: return memcpy_call(c);
          case Contender::stream: return streamed_copy_call(c);
          case Contender::raw:
          case Contender::raw_sum: break;
        }
        return {};
      };
      for (std::uint64_t seen = 0;;) {
        Command command;
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return posted_ != seen || team_.failed.load(); });
          if (posted_ == seen) return;
          seen = posted_;
          command = command_;
        }
        if (command.action == Action::stop) return;
        Result result = execute(team, rank, arena, find, command);
        if (rank == 0) {
          std::lock_guard const lock(mutex_);
          result_ = std::move(result);
          done_ = seen;
        }
        if (rank == 0) changed_.notify_all();
      }
    } catch (...) {
      team_.failed = true;
      changed_.notify_all();
      throw;
    }
  }

  ThreadTeam team_;
  NaiveGroup naive_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Command command_;
  Result result_;
  std::uint64_t posted_ = 0, done_ = 0;
  std::exception_ptr failure_;
  std::thread driver_;  // last: it uses everything above
};

}  // namespace tutti::bench

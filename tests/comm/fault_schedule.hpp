// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Seeded fault schedules: a program that uses all of the vocabulary and knows every result, the plan of a seed, and
/// what may come of the two together.

#include <tutti/comm/fault_injector.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace tutti::test {

/// The faults of a seed, of every kind alone and together. Where something is lost, everybody waits for a deadline.
inline FaultPlan schedule(std::uint64_t seed) {
  FaultPlan plan;
  plan.seed = seed;
  plan.delay_seconds = 0.0005;
  switch (seed % 6) {
    case 0: plan.delay = 0.1; break;
    case 1: plan.kill = 0.03; break;
    case 2: plan.corrupt = 0.1; break;
    case 3: plan.drop = 0.02; break;
    case 4:
      plan.delay = 0.05;
      plan.kill = 0.01;
      plan.corrupt = 0.02;
      break;
    default:
      plan.delay = 0.05;
      plan.drop = 0.01;
      plan.kill = 0.01;
      plan.corrupt = 0.01;
  }
  return plan;
}

/// What became of a schedule on one rank.
struct Outcome {
  std::string wrong;    ///< results that were handed out as right
  std::string error;    ///< of a tutti::Error
  std::string foreign;  ///< of any other exception
  List<PlannedFault> injected;
};

/// The buffers that one rank's schedules have borrowed to operations. MPI cannot take back what a failed one has begun,
/// so they stay until the end of the program.
class Buffers {
 public:
  Tensor<std::int32_t>& make(std::int64_t size, int value) {
    kept_.push_back(std::make_unique<Tensor<std::int32_t>>(Shape{size}));
    kept_.back()->fill(value);
    return *kept_.back();
  }

 private:
  std::vector<std::unique_ptr<Tensor<std::int32_t>>> kept_;
};

/// Ten steps in an order that the seed chooses, each with another tag; `splits`: also splits.
template <class Comm>
void exercise(Comm& comm, std::uint64_t seed, bool splits, Buffers& buffers, std::string& wrong) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  int const next = (rank + 1) % ranks;
  int const last = (rank + ranks - 1) % ranks;
  int const total = ranks * (ranks + 1) / 2;
  auto const expect = [&](auto const& x, auto&& of, int step, char const* what) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i)
      if (x.data()[i] != of(i)) {
        wrong += std::string(what) + " of step " + std::to_string(step) + ", element " + std::to_string(i) + "; ";
        return;
      }
  };
  for (int step = 0; step < 10; ++step) {
    std::uint64_t const choice = hash_bytes(std::as_bytes(std::span(&step, 1)), seed);
    std::int64_t const n = choice / 16 % 3 == 0 ? 3 : choice / 16 % 3 == 1 ? 501 : 4001;
    Tensor<std::int32_t>& x = buffers.make(n, rank + 1);
    auto const sum_of_all = [&](std::int64_t) { return total; };
    switch (choice % (splits ? 10 : 9)) {
      case 0:
        comm.all_reduce(x, sum);
        expect(x, sum_of_all, step, "all_reduce");
        break;
      case 1:
        comm.broadcast(x, step % ranks);
        expect(x, [&](std::int64_t) { return step % ranks + 1; }, step, "broadcast");
        break;
      case 2:
        expect(comm.all_gather(x), [&](std::int64_t i) { return static_cast<int>(i / n) + 1; }, step, "all_gather");
        break;
      case 3: {
        auto const& whole = buffers.make(n * ranks, rank + 1);
        expect(comm.reduce_scatter(whole, sum), sum_of_all, step, "reduce_scatter");
        break;
      }
      case 4: {
        Tensor<std::int32_t>& in = buffers.make(n, 0);
        comm.send_recv(x, next, in, last, step);
        expect(in, [&](std::int64_t) { return last + 1; }, step, "send_recv");
        break;
      }
      case 5: {
        auto first = comm.all_reduce_async(x.clone(), sum);
        auto second = comm.all_reduce_async(x.clone(), max);
        comm.barrier();
        expect(second.wait(), [&](std::int64_t) { return ranks; }, step, "second of two");
        expect(first.wait(), sum_of_all, step, "first of two");
        break;
      }
      case 6: {
        comm.scan(x, sum);
        expect(x, [&](std::int64_t) { return (rank + 1) * (rank + 2) / 2; }, step, "scan");
        break;
      }
      case 9: {
        auto half = comm.split(rank % 2);
        half.all_reduce(x, sum);
        int sum_of_half = 0;
        for (int r = rank % 2; r < ranks; r += 2) sum_of_half += r + 1;
        expect(x, [&](std::int64_t) { return sum_of_half; }, step, "all_reduce of a half");
        break;
      }
      case 8:
        if (rank == 0) {
          std::int64_t seen = 0;
          for (int r = 1; r < ranks; ++r) {
            auto const message = comm.template recv<std::int32_t>(any_source, step);
            seen += message.size() == n ? message(n - 1) : -1000;
          }
          expect(std::array<std::int64_t, 1>{seen}, [&](std::int64_t) { return total - 1; }, step, "recv from any");
        } else {
          comm.send(x, 0, step);
        }
        break;
      case 7: {
        auto const& exchanged = buffers.make(n * ranks, rank + 1);
        expect(comm.all_to_all(exchanged), [&](std::int64_t i) { return static_cast<int>(i / n) + 1; }, step,
               "all_to_all");
      }
    }
  }
}

/// Whether a text says what went wrong, or who is missing.
inline bool names_a_cause(std::string const& error) {
  for (char const* const cause :
       {"the fault plan has killed rank", "the fault plan has dropped", "missing: ", "no message from",
        "has not received the message", "has left the communicator", "have left the communicator", " failed on rank ",
        " failed during ", "failed: ", "failed with operations in flight", "gave up", "not all have finished",
        "came back changed", "ranks disagree", "bytes", "has not called", "some rank of"})
    if (error.find(cause) != std::string::npos) return true;
  return false;
}

/// Whether a plan loses anything among the first operations of the ranks.
inline bool loses(FaultPlan const& plan, int ranks) {
  for (int r = 0; r < ranks; ++r)
    for (std::int64_t i = 0; i < 300; ++i)
      if (plan.at(r, i) == Fault::drop) return true;
  return false;
}

/// Runs the schedule of a seed on one rank.
template <class Comm>
Outcome run_schedule(Comm& comm, std::uint64_t seed, Buffers& buffers, bool splits = true) {
  Outcome outcome;
  try {
    exercise(comm, seed, splits, buffers, outcome.wrong);
  } catch (Error const& error) {
    outcome.error = error.what();
  } catch (std::exception const& error) {
    outcome.foreign = error.what();
  }
  outcome.injected = comm.backend().injected();
  return outcome;
}

/// What is wrong with what became of a schedule; empty when all is as it should be. Of a `late` one errors are no
/// wonder, whatever was injected until then.
inline std::string judge(std::vector<Outcome> const& outcomes, bool late) {
  bool corrupted = false;
  bool harmed = late;
  for (Outcome const& outcome : outcomes)
    for (PlannedFault const& fault : outcome.injected) {
      corrupted |= fault.fault == Fault::corrupt;
      harmed |= fault.fault != Fault::delay;
    }
  std::string text;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    Outcome const& outcome = outcomes[r];
    std::string const rank = "rank " + std::to_string(r) + ": ";
    bool killed = false;
    for (PlannedFault const& fault : outcome.injected) killed |= fault.fault == Fault::kill;
    if (!outcome.foreign.empty()) text += rank + "not a tutti::Error: " + outcome.foreign + "\n";
    if (!outcome.wrong.empty() && !corrupted) text += rank + "wrong without an error: " + outcome.wrong + "\n";
    if (!outcome.error.empty() && !harmed) text += rank + "an error without a fault: " + outcome.error + "\n";
    if (!outcome.error.empty() && !names_a_cause(outcome.error)) text += rank + "no cause: " + outcome.error + "\n";
    if (killed && outcome.error.empty()) text += rank + "killed, and went on\n";
  }
  return text;
}

}  // namespace tutti::test

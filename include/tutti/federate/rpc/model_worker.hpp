// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A worker's part in a run, alone or with others behind it: what tutti_worker does.

#include <tutti/federate/model_trainer.hpp>
#include <tutti/federate/rpc/command_line.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/signals.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace tutti::federate {

namespace detail {

/// What a relay tells its workers: the shepherd's program, of contributions that are whole, in `bits` if there are any.
inline Facts facts_behind_relay(Facts facts, parallel::OuterBits const* bits) {
  Program program = parse_program(facts.program);
  program.whole = program.fragments > 1;
  if (bits != nullptr) program.bits = *bits;
  facts.bits = program.bits;
  facts.fragments.clear();
  facts.program = to_text(program);
  return facts;
}
inline void say_as_worker(std::string const& what) {
  std::printf("worker: %s\n", what.c_str());
  std::fflush(stdout);
}
/// Takes part until it is told to go, and says so. Returns why.
inline std::string take_part(Worker& worker, WorkerOptions const& options) {
  std::string addresses = Address{options.host, options.port}.text();
  for (Address const& further : options.further) addresses += ", or " + further.text();
  say_as_worker("looks for a shepherd at " + addresses);
  std::string const reason = worker.run();
  say_as_worker(fmt::format("leaves: {}; {} rounds, {} sent, {} received",
                            reason.empty() ? "as it was asked to" : reason, worker.jobs_done(),
                            train::human_bytes(static_cast<double>(worker.bytes_sent())),
                            train::human_bytes(static_cast<double>(worker.bytes_received()))));
  return reason;
}
/// As a worker of the shepherd, and the shepherd of others, among them this program's own `trainer`, unless it is null.
inline void run_relay(WorkerCommand const& command, Trainer* trainer) {
  auto const asked = [] { return train::StopSignals::received() != 0; };
  std::atomic<bool> over{false};
  std::thread own;
  Relay* here = nullptr;
  RelayOptions options = command.relay;
  parallel::OuterBits const bits = command.relay_bits;
  options.facts_for_workers = [&](Facts facts) {
    return facts_behind_relay(std::move(facts), command.has_relay_bits ? &bits : nullptr);
  };
  auto const listening = [&](int port) {
    Address const address{options.at.host, port};
    say_as_worker(fmt::format("relays for workers at {}, and takes part once {} {} ready", address.text(),
                              options.workers, options.workers == 1 ? "is" : "are"));
    if (trainer == nullptr) return;
    own = std::thread([&, address] {
      try {
        WorkerOptions inner = command.at;
        inner.host = address.host, inner.port = address.port;
        inner.further.clear();
        inner.rate_limit = 0;
        Worker worker(inner, *trainer, {.told = {}, .stop = [&] { return over || asked(); }});
        static_cast<void>(worker.run());
      } catch (...) {
        if (!over) here->fail(std::current_exception());
      }
    });
  };
  Relay relay(options, {.listening = listening, .told = say_as_worker});
  here = &relay;
  Worker worker(command.at, relay, {.told = say_as_worker, .stop = asked});
  struct End {
    std::atomic<bool>& over;
    Relay& relay;
    std::thread& own;
    std::string reason = "the relay has lost its shepherd";
    bool again = true;
    ~End() {
      over = true;
      relay.end(reason, again);
      if (own.joinable()) own.join();
    }
  } end{over, relay, own};
  std::string const why = take_part(worker, command.at);
  end.again = why != run_complete;
  end.reason = end.again ? "the relay leaves" : why;
  say_as_worker(fmt::format("sent {} to those behind it, received {}",
                            train::human_bytes(static_cast<double>(relay.bytes_sent())),
                            train::human_bytes(static_cast<double>(relay.bytes_received()))));
}

}  // namespace detail

/// Blocking. Prints what happens. Errors: communication, with why it could not go on; configuration, io.
template <class Device = Cpu>
void run_model_worker(WorkerCommand const& command) {
  train::StopSignals const signals(true);
  if (command.relays && !command.trains) return detail::run_relay(command, nullptr);
  ModelTrainerOn<Device> trainer(command.train);
  if (command.relays) return detail::run_relay(command, &trainer);
  Worker worker(command.at, trainer,
                {.told = detail::say_as_worker, .stop = [] { return train::StopSignals::received() != 0; }});
  static_cast<void>(detail::take_part(worker, command.at));
}

}  // namespace tutti::federate

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/rpc/shepherd.hpp>
// Covers: <tutti/federate/rpc/worker.hpp>
// Covers: <tutti/federate/rpc/relay.hpp>
// Covers: <tutti/federate/rpc/link.hpp>
// Covers: <tutti/federate/rpc/links.hpp>
// Covers: <tutti/federate/run_folder.hpp>
// Covers: <tutti/federate/trainer.hpp>
// Covers: <tutti/federate/bench.hpp>
#include "federate/federation.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/federate/rpc/relay.hpp>
#include <tutti/federate/rpc/shepherd.hpp>
#include <tutti/federate/rpc/worker.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

using namespace tutti;
using namespace tutti::federate;

namespace {

struct Folder : test::ScratchFolder {
  std::string file(char const* name, std::string const& text, bool secret = true) const {
    std::string const path = *this / name;
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms(secret ? 0600 : 0644));
    return path;
  }
};

Facts facts_of(std::int64_t samples) {
  Facts facts = federation::facts_of(samples);
  facts.run = 7;
  facts.program = "a pull towards points";
  return facts;
}
Policy policy_of(std::int64_t workers) {
  Policy policy = federation::policy_of(workers);
  policy.heartbeat = seconds(0.05);
  policy.lost_after = seconds(1);
  return policy;
}

struct Toy final : Trainer {
  double step = 0.002;  // seconds
  std::string prepared;
  double prepare(Facts const& facts) override {
    batch = facts.batch;
    prepared = facts.program;
    return 1 / step;
  }
  Trained train(Job const& job, std::span<float> parameters, JobControl& control) override {
    Trained result;
    std::int64_t const steps = job.steps(batch);
    for (std::int64_t done = 0; done < steps && !control.stop; ++done) {
      for (std::int64_t k = 0; k < batch; ++k) federation::learn(parameters, job.sample(result.samples + k));
      result.samples += batch;
      control.steps = done + 1;
      std::this_thread::sleep_for(seconds(step));
    }
    result.seconds = static_cast<double>(result.samples / batch) * step;
    return result;
  }
  std::int64_t batch = 1;
};

/// A shepherd in a thread of its own. What it throws comes out of `done`.
struct Running {
  federation::Outer model;
  std::promise<int> bound;
  std::vector<RoundReport> reports;
  std::map<WorkerEvent, int> events;
  std::atomic<bool> stop{false};
  std::int64_t sent = 0, received = 0;
  int port = 0;
  std::future<bool> done;

  Running(Folder const& folder, Facts const& facts, Policy const& policy, std::string const& key = "",
          int port_wanted = 0) {
    done = std::async(std::launch::async, [=, this, path = folder / "shepherd"] {
      try {
        Shepherd shepherd({.host = "127.0.0.1", .port = port_wanted, .key = key, .folder = path}, facts, policy, model,
                          {.listening = [this](int at) { bound.set_value(at); },
                           .round = [this](RoundReport const& report) { reports.push_back(report); },
                           .worker = [this](WorkerEvent event, std::uint64_t, std::string const&) { ++events[event]; },
                           .stop = [this] { return stop.load(); }});
        bool const finished = shepherd.run();
        sent = shepherd.bytes_sent(), received = shepherd.bytes_received();
        return finished;
      } catch (...) {
        try {
          bound.set_value(0);
        } catch (std::future_error const&) {  // it had listened before it failed
        }
        throw;
      }
    });
    port = bound.get_future().get();
  }
};
/// Returns why it ended.
std::future<std::string> worker_at(int port, Trainer& toy, std::string const& key = "",
                                   std::atomic<bool>* leave = nullptr, double patience = 20) {
  return std::async(std::launch::async, [=, &toy] {
    Worker worker({.host = "127.0.0.1", .port = port, .key = key, .patience = seconds(patience)}, toy,
                  {.told = {}, .stop = [leave] { return leave != nullptr && leave->load(); }});
    return worker.run();
  });
}
std::string wrong_with(Folder const& folder, Facts const& facts, federation::Outer const& model,
                       std::map<std::uint64_t, std::vector<float>> const& relayed = {}) {
  federation::Disk disk;
  disk.log = io::read_file(folder / "shepherd/log.jsonl");
  disk.snapshots[parse_log(disk.log, "log").history.round()] = {model.at, model.velocity};
  return federation::wrong_with(disk, facts, relayed);
}
/// A relay in a thread of its own, and what its leases came to.
struct Relaying final : Trainer {
  std::promise<int> bound;
  std::atomic<std::int64_t> most{0};  ///< workers behind it
  std::map<std::uint64_t, std::vector<float>> results;
  Relay relay;
  std::atomic<bool> leave{false};
  std::future<std::string> done;

  Relaying(int shepherd, std::string const& key, std::int64_t workers)
      : relay({.at = {.port = 0, .key = key}, .workers = workers, .lost_after = seconds(1)},
              {.listening = [this](int port) { bound.set_value(port); }, .told = {}}) {
    done = worker_at(shepherd, *this, key, &leave);
  }
  std::int64_t workers() const override { return relay.workers(); }
  double prepare(Facts const& facts) override { return relay.prepare(facts); }
  Trained train(Job const& job, std::span<float> parameters, JobControl& control) override {
    most = std::max(most.load(), relay.workers());
    Trained const result = relay.train(job, parameters, control);
    if (result.samples > 0) results[job.lease].assign(parameters.begin(), parameters.end());
    return result;
  }
  void cancel() noexcept override { relay.cancel(); }
};

}  // namespace

TEST_CASE("a relay takes part as one worker, with those that connect to it, and another relay among them") {
  Folder const folder;
  std::string const key = folder.file("key", "0123456789abcdef0123456789abcdef");
  Facts const facts = facts_of(1600);
  Policy policy = policy_of(2);
  policy.norm_limit = 0;
  Running shepherd(folder, facts, policy, key);
  REQUIRE(shepherd.port > 0);
  Toy toys[5];
  Relaying first(shepherd.port, key, 2);
  int const at = first.bound.get_future().get();
  Relaying second(at, key, 2);
  int const beyond = second.bound.get_future().get();
  std::future<std::string> const others[] = {worker_at(shepherd.port, toys[0], key), worker_at(at, toys[1], key),
                                             worker_at(at, toys[2], key), worker_at(beyond, toys[3], key),
                                             worker_at(beyond, toys[4], key)};
  CHECK(first.done.get() == "the run is complete");
  first.relay.end("the run is complete", false);
  CHECK(second.done.get() == "the run is complete");
  second.relay.end("the run is complete", false);
  for (auto const& worker : others) worker.wait();
  CHECK(shepherd.done.get());
  CHECK(wrong_with(folder, facts, shepherd.model, first.results) == "");
  CHECK(first.most == 4);
  CHECK(second.most == 2);
  for (RoundReport const& report : shepherd.reports) CHECK(report.workers <= 2);
  // What comes in is of two workers a round, though five train.
  auto const rounds = static_cast<std::int64_t>(shepherd.reports.size());
  CHECK(shepherd.received < rounds * 2 * 4 * federation::dimensions + (std::int64_t{1} << 20));
}

TEST_CASE("a relay that is left alone with work ends, and says so; its samples go to others") {
  Folder const folder;
  Facts const facts = facts_of(400);
  Running shepherd(folder, facts, policy_of(1));
  Toy slow, quick;
  slow.step = 0.05;
  Relaying relaying(shepherd.port, "", 1);
  std::atomic<bool> leave{false};
  auto const behind = worker_at(relaying.bound.get_future().get(), slow, "", &leave);
  for (int i = 0; i < 1000 && relaying.most == 0; ++i) std::this_thread::sleep_for(seconds(0.01));
  leave = true;
  REQUIRE_ERROR(relaying.done.get(), ErrorKind::communication, "no worker is left behind the relay");
  CHECK(worker_at(shepherd.port, quick).get() == "the run is complete");
  CHECK(shepherd.done.get());
  CHECK(wrong_with(folder, facts, shepherd.model, relaying.results) == "");
}

TEST_CASE("a relay ends while it waits for workers") {
  Folder const folder;
  Running shepherd(folder, facts_of(80), policy_of(1));
  Relaying relaying(shepherd.port, "", 2);
  static_cast<void>(relaying.bound.get_future().get());
  relaying.leave = true;
  CHECK(relaying.done.get() == "");
  Toy toy;
  CHECK(worker_at(shepherd.port, toy).get() == "the run is complete");
  CHECK(shepherd.done.get());
}

TEST_CASE("a shepherd and three workers, over connections, learn from every sample once") {
  Folder const folder;
  std::string const key = folder.file("key", "0123456789abcdef0123456789abcdef");
  Facts const facts = facts_of(600);
  Running shepherd(folder, facts, policy_of(3), key);
  REQUIRE(shepherd.port > 0);
  Toy toys[3];
  std::vector<std::future<std::string>> workers;
  for (Toy& toy : toys) workers.push_back(worker_at(shepherd.port, toy, key));
  for (auto& worker : workers) CHECK(worker.get() == "the run is complete");
  CHECK(shepherd.done.get());
  CHECK(toys[0].prepared == facts.program);
  CHECK(wrong_with(folder, facts, shepherd.model) == "");
  REQUIRE(shepherd.reports.size() >= 10);
  CHECK(shepherd.reports[0].workers == 3);
  // Parameters go out and gradients come in, once for each worker and round, and little else.
  auto const tensors = static_cast<std::int64_t>(shepherd.reports.size()) * 3 * 4 * federation::dimensions;
  CHECK(shepherd.sent > tensors);
  CHECK(shepherd.received > tensors);
}

TEST_CASE("who has another key, or none, is not let in, and told so") {
  Folder const folder;
  std::string const right = folder.file("key", "0123456789abcdef0123456789abcdef");
  std::string const wrong = folder.file("other", "0123456789abcdef0123456789abcdeX");
  Facts const facts = facts_of(80);
  {
    Running shepherd(folder, facts, policy_of(1), right);
    Toy toy;
    for (std::string const& key : {wrong, std::string()})
      REQUIRE_ERROR(worker_at(shepherd.port, toy, key, nullptr, 0.5).get(), ErrorKind::communication,
                    "no shepherd was heard of");
    CHECK(toy.prepared.empty());
    CHECK(shepherd.events.empty());
    CHECK(worker_at(shepherd.port, toy, right).get() == "the run is complete");
    CHECK(shepherd.done.get());
  }
  Folder const open;
  Running shepherd(open, facts, policy_of(1));
  Toy toy;
  REQUIRE_ERROR(worker_at(shepherd.port, toy, right, nullptr, 0.5).get(), ErrorKind::communication,
                "no shepherd was heard of");
  CHECK(worker_at(shepherd.port, toy).get() == "the run is complete");
  CHECK(shepherd.done.get());
}

TEST_CASE("without a key nothing listens to, or connects to, other machines") {
  Folder const folder;
  federation::Outer model;
  REQUIRE_ERROR(Shepherd({.host = "0.0.0.0", .folder = folder.path()}, facts_of(80), policy_of(1), model, {}),
                ErrorKind::configuration, "there is no --key");
  Toy toy;
  REQUIRE_ERROR(Worker({.host = "10.0.0.1"}, toy, {}), ErrorKind::configuration, "there is no --key");
  std::string const loose = folder.file("loose", "0123456789abcdef", false);
  REQUIRE_ERROR(Worker({.key = loose}, toy, {}), ErrorKind::configuration, "chmod 600");
}

TEST_CASE("a shepherd that was stopped goes on from its folder, and its workers come back by themselves") {
  Folder const folder;
  Facts const facts = facts_of(600);
  Toy toys[2];
  std::vector<std::future<std::string>> workers;
  int port = 0;
  std::size_t rounds = 0;
  {
    Running shepherd(folder, facts, policy_of(2));
    port = shepherd.port;
    for (Toy& toy : toys) workers.push_back(worker_at(port, toy));
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    shepherd.stop = true;
    CHECK(!shepherd.done.get());
    rounds = shepherd.reports.size();
  }
  REQUIRE_ERROR(RunFolder(folder / "shepherd", "another program"), ErrorKind::configuration, "other settings");
  Running shepherd(folder, facts, policy_of(2), "", port);
  REQUIRE(shepherd.port == port);
  for (auto& worker : workers) CHECK(worker.get() == "the run is complete");
  CHECK(shepherd.done.get());
  REQUIRE(!shepherd.reports.empty());
  CHECK(shepherd.reports[0].round == static_cast<std::int64_t>(rounds) + 1);
  CHECK(wrong_with(folder, facts, shepherd.model) == "");
  // One that is done says so to whoever comes.
  Running again(folder, facts, policy_of(2), "", 0);
  CHECK(again.done.get());
}

TEST_CASE("a worker that is asked to leave delivers what it has, and the other does the rest") {
  Folder const folder;
  Facts const facts = facts_of(300);
  Running shepherd(folder, facts, policy_of(2));
  Toy toys[2];
  std::atomic<bool> leave{false};
  auto stays = worker_at(shepherd.port, toys[0]);
  auto leaves = worker_at(shepherd.port, toys[1], "", &leave);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  leave = true;
  static_cast<void>(leaves.get());
  CHECK(stays.get() == "the run is complete");
  CHECK(shepherd.done.get());
  CHECK(shepherd.events[WorkerEvent::left] == 1);
  CHECK(wrong_with(folder, facts, shepherd.model) == "");
}

TEST_CASE("a trainer that fails ends its worker with its reason, and nobody else") {
  struct Broken final : Trainer {
    double prepare(Facts const&) override { throw Error(ErrorKind::configuration, "x", "its data are others"); }
    Trained train(Job const&, std::span<float>, JobControl&) override { return {}; }
  };
  Folder const folder;
  Facts const facts = facts_of(80);
  Running shepherd(folder, facts, policy_of(1));
  Broken broken;
  Worker worker({.port = shepherd.port}, broken, {});
  REQUIRE_ERROR(worker.run(), ErrorKind::communication, "its data are others");
  Toy toy;
  CHECK(worker_at(shepherd.port, toy).get() == "the run is complete");
  CHECK(shepherd.done.get());
  CHECK(shepherd.events[WorkerEvent::left] == 1);
}

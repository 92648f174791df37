// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A worker that connects: a WorkerCore with a clock, a connection, and a thread that trains, so that heartbeats go on.

#include <tutti/exec/processors.hpp>
#include <tutti/federate/bench.hpp>
#include <tutti/federate/rpc/links.hpp>
#include <tutti/federate/trainer.hpp>
#include <tutti/federate/worker_core.hpp>
#include <tutti/io/stamp.hpp>
#include <tutti/train/process_use.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti::federate {

struct Address {
  std::string host = "127.0.0.1";
  int port = 8080;

  std::string text() const {
    bool const brackets = host.find(':') != host.npos && !host.starts_with('[');
    return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
  }
};

struct WorkerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
  std::vector<Address> further{};   ///< the next one is tried where one cannot be reached for `turn`
  Instant turn = seconds(10);       ///< or half of `patience`, if that is less
  std::string key = "";             ///< file; empty: none
  std::int64_t rate_limit = 0;      ///< bytes a second of tensors that it sends; 0: no limit
  Instant patience = seconds(600);  ///< without a shepherd
};

/// Called from `run`, between two events.
struct WorkerCallbacks {
  std::function<void(std::string const&)> told;  ///< for people
  std::function<bool()> stop;                    ///< asked several times a second: whether to deliver and leave
};

/// One at a time in a thread.
class Worker final : private WorkerActions {
 public:
  /// Borrows the trainer. Errors: configuration, io: the key.
  Worker(WorkerOptions options, Trainer& trainer, WorkerCallbacks callbacks)
      : options_(std::move(options)),
        trainer_(trainer),
        callbacks_(std::move(callbacks)),
        throttle_(options_.rate_limit) {
    if (!options_.key.empty()) key_.emplace(options_.key);
    addresses_ = {{options_.host, options_.port}};
    addresses_.insert(addresses_.end(), options_.further.begin(), options_.further.end());
    for (Address const& address : addresses_)
      if (!key_ && !is_loopback(address.host))
        throw Error(ErrorKind::configuration, "federate",
                    "--connect " + address.host +
                        " is another machine, and there is no --key. Give the shepherd's: --key FILE");
  }
  ~Worker() noexcept override { give_up(); }

  std::int64_t bytes_sent() const noexcept { return links_ != nullptr ? links_->sent() : sent_; }
  std::int64_t bytes_received() const noexcept { return links_ != nullptr ? links_->received() : received_; }
  std::int64_t jobs_done() const noexcept { return jobs_; }

  /// Blocking: until the run is complete, the shepherd sends it away, or `stop` asked for it and what it has is
  /// delivered. Returns why it ended. Errors: communication, with the reason, where somebody must mend something.
  std::string run() {
    kj::AsyncIoContext io = kj::setupAsyncIo();
    io_ = &io;
    Links links;
    links_ = &links;
    kj::TaskSet tasks(errors_);
    tasks_ = &tasks;
    struct Totals {
      Worker& self;
      ~Totals() {
        self.sent_ = self.links_->sent(), self.received_ = self.links_->received();
        self.links_ = nullptr, self.tasks_ = nullptr, self.io_ = nullptr, self.fulfiller_ = nullptr;
      }
    } const totals{*this};
    core_.emplace(fresh_number(), options_.patience, static_cast<WorkerActions&>(*this), clock_now());
    Instant leaving{0};
    while (!core_->ended() || (!links.empty() && clock_now() < leaving)) {
      Instant const now = clock_now();
      if (callbacks_.stop && callbacks_.stop()) core_->drain(now);
      core_->tick(now);
      if (!core_->ended()) leaving = now + seconds(3);
      Instant const next = std::min(core_->next_tick(now) - now, Instant(seconds(0.1)));
      io.provider->getTimer()
          .afterDelay(std::max<std::int64_t>(next.count(), 1'000'000) * kj::NANOSECONDS)
          .wait(io.waitScope);
    }
    give_up();
    bench_.finish();
    if (core_->failed()) throw Error(ErrorKind::communication, "federate", core_->reason());
    return core_->reason();
  }

 private:
  struct Errors final : kj::TaskSet::ErrorHandler {
    void taskFailed(kj::Exception&& error) override { KJ_LOG(ERROR, error); }
  };
  struct Outcome {
    bool compiled = false, failed = false;
    double speed = 0;
    Trained result;
    std::string why;
  };

  void give_up() noexcept {
    control_.stop = true;
    trainer_.cancel();
  }
  void connect() override {
    std::uint64_t const id = ++connection_;
    opened_ = false;
    Address const& next = addresses_[address_ % addresses_.size()];
    auto& network = io_->provider->getNetwork();
    tasks_->add(network.parseAddress(next.host.c_str(), static_cast<kj::uint>(next.port))
                    .then([](kj::Own<kj::NetworkAddress> address) {
                      auto stream = address->connect();
                      return stream.attach(kj::mv(address));
                    })
                    .then([this, id](kj::Own<kj::AsyncIoStream> stream) { take(id, kj::mv(stream)); },
                          [this, id](kj::Exception&& error) { lost(id, detail::text_of(error)); }));
  }
  void take(std::uint64_t id, kj::Own<kj::AsyncIoStream> stream) {
    if (id != connection_) return;
    Link::Events events{[this, id] {
                          if (id != connection_) return;
                          opened_ = true;
                          core_->connected(clock_now());
                        },
                        [this, id](std::string const& why) {
                          lost(id, why);
                          links_->drop(id);
                        },
                        [this, id](Message const& message) {
                          if (id == connection_) core_->receive(message, clock_now());
                        }};
    links_->put(id,
                kj::heap<Link>(kj::mv(stream), io_->provider->getTimer(), Link::Side::worker, key_ ? &*key_ : nullptr,
                               throttle_, (std::int64_t{1} << 26) + (std::int64_t{1} << 20), std::move(events)));
  }
  void lost(std::uint64_t id, std::string const& why) {
    if (id != connection_) return;
    if (why != told_) told("no connection to the shepherd: " + why);
    told_ = why;
    Instant const now = clock_now();
    if (opened_ || !unreached_) unreached_ = now;
    if (!opened_ && now - *unreached_ >= std::min(options_.turn, options_.patience / 2)) ++address_, unreached_ = now;
    core_->disconnected(now);
  }
  void close() override {
    links_->close(connection_);
    ++connection_;  // what still happens there is no news
  }
  void send(Message const& message) override {
    if (Link* const link = links_->find(connection_)) link->send(message);
  }
  void compile(Facts const& facts) override {
    told_.clear();
    told("compiling");
    work([this, facts] {
      outcome_.compiled = true;
      outcome_.speed = trainer_.prepare(facts);
    });
  }
  void train(Job const& job) override {
    control_.stop = false;
    control_.steps = 0;
    local_.assign(job.parameters.begin(), job.parameters.end());
    work([this, job] {
      outcome_.result = trainer_.train(job, local_, control_);
      outcome_.result.lease = job.lease;
      outcome_.result.parameters = local_;
    });
  }
  void stop_training() override { control_.stop = true; }
  std::int64_t steps_done() const override { return control_.steps; }
  std::string device() const override {
    return io::host_name() + ", " + trainer_.device() + ", " + exec::processor_name();
  }
  WorkerUse use() override { return {use_.processors(), train::ProcessUse::memory(), trainer_.workers()}; }
  void told(std::string const& what) override {
    if (callbacks_.told) callbacks_.told(what);
  }
  /// On the bench's thread; the core asks for one thing after another.
  template <class F>
  void work(F what) {
    auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
    tasks_->add(pair.promise.then([this] {
      if (outcome_.failed) return core_->failed(outcome_.why);
      if (outcome_.compiled) return core_->compiled(outcome_.speed);
      ++jobs_;
      core_->trained(outcome_.result);
    }));
    fulfiller_ = kj::mv(pair.fulfiller);
    bench_.post([this, what = std::move(what)] {
      outcome_ = {};
      try {
        what();
      } catch (Error const& error) {
        outcome_.failed = true;
        outcome_.why = error.message() + (error.native().empty() ? "" : " [" + error.native() + "]");
      } catch (std::exception const& error) {
        outcome_.failed = true;
        outcome_.why = error.what();
      }
      fulfiller_->fulfill();
    });
  }

  WorkerOptions options_;
  Trainer& trainer_;
  WorkerCallbacks callbacks_;
  Throttle throttle_;
  std::optional<Key> key_;
  Errors errors_;
  std::optional<WorkerCore> core_;
  kj::AsyncIoContext* io_ = nullptr;  // while it runs, as the next two
  Links* links_ = nullptr;
  kj::TaskSet* tasks_ = nullptr;
  std::uint64_t connection_ = 0;
  std::vector<Address> addresses_;
  std::size_t address_ = 0;  // of them, counted on
  bool opened_ = false;      // the connection, by its shepherd
  std::optional<Instant> unreached_;  // since when the present address is tried in vain
  std::int64_t sent_ = 0, received_ = 0, jobs_ = 0;
  std::string told_;
  std::vector<float> local_;  // the training thread's while a job is under way
  JobControl control_;
  train::ProcessUse use_;
  Outcome outcome_;  // the bench's until it is fulfilled
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> fulfiller_;
  Bench bench_;  // first to go
};

}  // namespace tutti::federate

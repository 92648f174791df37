// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A shepherd that listens: a ShepherdCore with a clock, connections, and a folder that outlives it.

#include <tutti/federate/rpc/links.hpp>
#include <tutti/federate/run_folder.hpp>
#include <tutti/federate/shepherd_core.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::federate {

struct ShepherdOptions {
  std::string host = "127.0.0.1";
  int port = 8080;              ///< 0: any that is free
  std::string key = "";         ///< file; empty: none, and only workers of this machine are let in
  std::int64_t rate_limit = 0;  ///< bytes a second of tensors that it sends, to all together; 0: no limit
  std::string folder = "";      ///< of its log and snapshots; empty, of a relay: none
  char const *host_flag = "--host", *port_flag = "--port";  ///< what messages call them
};

/// Errors: configuration, where other machines reach the shepherd and there is no key.
inline void require_key(ShepherdOptions const& options) {
  if (options.key.empty() && !is_loopback(options.host))
    throw Error(ErrorKind::configuration, "federate",
                std::string(options.host_flag) + " " + options.host +
                    " can be reached from other machines, and there is no --key: anybody could join. Give --key FILE, "
                    "or " +
                    options.host_flag + " 127.0.0.1");
}

struct LinkUse {
  std::string origin{};
  std::int64_t sent = 0, received = 0;
};

/// Called from `run`, between two events.
struct ShepherdCallbacks {
  std::function<void(int port)> listening;
  std::function<void(RoundReport const&)> round;
  std::function<void(WorkerEvent, std::uint64_t worker, std::string const& why)> worker;
  std::function<bool()> stop;  ///< asked several times a second: whether to end now
};

/// One at a time in a thread.
class Shepherd final : private ShepherdActions {
 public:
  /// Takes the folder, and gives the model what an earlier shepherd left there. A run of number 0 gets one by chance,
  /// or keeps the one that it has there. Borrows the model. Errors: configuration, io, format.
  Shepherd(ShepherdOptions options, Facts const& facts, Policy const& policy, OuterModel& model,
           ShepherdCallbacks callbacks)
      : options_(std::move(options)),
        policy_(policy),
        model_(model),
        callbacks_(std::move(callbacks)),
        key_(key_of(options_)),
        throttle_(options_.rate_limit) {
    History history;
    if (!options_.folder.empty()) {
      folder_.emplace(options_.folder, facts.program);
      folder_->restore(model_);
      history = folder_->history();
    }
    if (policy.relays)
      history = History(Started{facts.run, fresh_number() >> 34, facts.samples, facts.parameters, facts.batch});
    Facts named = facts;
    if (named.run == 0) named.run = history.begun() ? history.begun_with().run : fresh_number();
    core_.emplace(std::move(named), policy, model_, static_cast<ShepherdActions&>(*this), std::move(history),
                  clock_now());
  }

  ShepherdCore const& core() const noexcept { return *core_; }
  /// From within a callback alone, as the next. A worker that is not here is not drained.
  void drain(std::uint64_t worker) {
    guard([&] { core_->drain(worker); });
  }
  void pause(bool paused) {
    guard([&] { core_->pause(paused, clock_now()); });
  }
  /// Of a relay, see ShepherdCore.
  void lend(std::vector<Range> const& ranges, Learned learned) {
    guard([&] { core_->lend(ranges, learned, clock_now()); });
  }
  /// Everybody is told to go. `run` ends when `stop` says so.
  void part(std::string const& reason, bool again) {
    guard([&] { core_->stop(reason, again); });
  }
  /// Of a worker's present connection: where it comes from, bytes out and in. Empty and 0 while there is none.
  LinkUse link_of(Member const& member) {
    LinkUse use;
    if (!member.peer || links_ == nullptr) return use;
    if (auto const at = origins_.find(*member.peer); at != origins_.end()) use.origin = at->second;
    if (Link const* const link = links_->find(*member.peer)) use.sent = link->sent(), use.received = link->received();
    return use;
  }
  /// Over all connections since `run` began.
  std::int64_t bytes_sent() const noexcept { return links_ != nullptr ? links_->sent() : sent_; }
  std::int64_t bytes_received() const noexcept { return links_ != nullptr ? links_->received() : received_; }

  /// Blocking: until all samples are committed, or `stop` said so; true for the former. Workers were told by then.
  /// Errors: io, when it cannot listen; those of the core and of the callbacks. Whatever it throws, the log is in
  /// order.
  bool run() {
    kj::AsyncIoContext io = kj::setupAsyncIo();
    timer_ = &io.provider->getTimer();
    Links links;
    links_ = &links;
    struct Totals {
      Shepherd& self;
      ~Totals() {
        self.sent_ = self.links_->sent(), self.received_ = self.links_->received();
        self.links_ = nullptr;
      }
    } const totals{*this};
    kj::Own<kj::ConnectionReceiver> receiver;
    try {
      receiver = io.provider->getNetwork()
                     .parseAddress(options_.host.c_str(), static_cast<kj::uint>(options_.port))
                     .wait(io.waitScope)
                     ->listen();
    } catch (kj::Exception const& error) {
      throw Error(ErrorKind::io, "federate",
                  "cannot listen on " + options_.host + ":" + std::to_string(options_.port) + ". Choose another " +
                      options_.host_flag + " or " + options_.port_flag)
          .with_native(detail::text_of(error));
    }
    if (callbacks_.listening) callbacks_.listening(static_cast<int>(receiver->getPort()));
    kj::Promise<void> const accepting = accept(*receiver).eagerlyEvaluate([this](kj::Exception&& error) {
      fail(std::make_exception_ptr(
          Error(ErrorKind::io, "federate", "no more connections can be accepted").with_native(detail::text_of(error))));
    });
    std::optional<Instant> leaving;  // when it is over
    Instant hold{0};                 // not before: somebody who was away at the end may come and be told
    bool away = false;
    while (!leaving || ((!links.empty() || clock_now() < hold) && clock_now() < *leaving)) {
      Instant const now = clock_now();
      guard([&] { core_->tick(now); });
      links.drop_strangers(now - policy_.lost_after);
      if (failure_) std::rethrow_exception(failure_);
      if (!core_->finished()) {
        auto const& members = core_->members();
        away = std::any_of(members.begin(), members.end(), [](auto const& m) { return !m.second.peer; });
      }
      if (!leaving && (core_->finished() || (callbacks_.stop && callbacks_.stop()))) {
        if (!core_->finished()) core_->stop("the shepherd was stopped, and may come back", stopped_ = true);
        if (core_->finished() && away) hold = now + policy_.lost_after;
        leaving = std::max(now + seconds(5), hold);
      }
      Instant const next = std::min(core_->next_tick(now) - now, Instant(seconds(policy_.relays ? 0.01 : 0.1)));
      timer_->afterDelay(std::max<std::int64_t>(next.count(), 1'000'000) * kj::NANOSECONDS).wait(io.waitScope);
    }
    return core_->finished();
  }

 private:
  static std::optional<Key> key_of(ShepherdOptions const& options) {
    if (!options.key.empty()) return Key(options.key);
    require_key(options);
    return std::nullopt;
  }
  kj::Promise<void> accept(kj::ConnectionReceiver& receiver) {
    return receiver.accept().then([this, &receiver](kj::Own<kj::AsyncIoStream> stream) {
      take(kj::mv(stream));
      return accept(receiver);
    });
  }
  void take(kj::Own<kj::AsyncIoStream> stream) {
    if (stopped_ || links_->size() >= most_links) return;  // which closes it
    PeerId const peer = ++peers_;
    origins_[peer] = origin_of(*stream);
    Link::Events events{
        [this, peer] { guard([&] { core_->connected(peer, clock_now()); }); },
        [this, peer](std::string const&) {
          guard([&] { core_->disconnected(peer, clock_now()); });
          links_->drop(peer);
          origins_.erase(peer);
        },
        [this, peer](Message const& message) { guard([&] { core_->receive(peer, message, clock_now()); }); }};
    links_->put(peer, kj::heap<Link>(kj::mv(stream), *timer_, Link::Side::shepherd, key_ ? &*key_ : nullptr, throttle_,
                                     policy_.chunk_bytes + (std::int64_t{1} << 20), std::move(events)));
  }
  /// "127.0.0.1:40312"; empty for a connection that has no address.
  static std::string origin_of(kj::AsyncIoStream& stream) {
    struct sockaddr_storage address {};
    kj::uint length = sizeof address;
    char host[INET6_ADDRSTRLEN] = "";
    if (kj::runCatchingExceptions([&] {
          stream.getpeername(reinterpret_cast<struct sockaddr*>(&address), &length);
        }) != nullptr)
      return {};
    if (address.ss_family == AF_INET) {
      auto const& four = reinterpret_cast<struct sockaddr_in const&>(address);
      ::inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
      return std::string(host) + ":" + std::to_string(ntohs(four.sin_port));
    }
    if (address.ss_family != AF_INET6) return {};
    auto const& six = reinterpret_cast<struct sockaddr_in6 const&>(address);
    ::inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(six.sin6_port));
  }
  template <class F>
  void guard(F&& event) {
    if (failure_) return;
    try {
      event();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  void fail(std::exception_ptr failure) {
    if (!failure_) failure_ = std::move(failure);
  }

  void send(PeerId peer, Message const& message) override {
    if (Link* const link = links_ != nullptr ? links_->find(peer) : nullptr) link->send(message);
  }
  void close(PeerId peer) override {
    if (links_ != nullptr) links_->close(peer);
  }
  void append(Record const& record, bool durable) override {
    if (folder_) folder_->append(record, durable);
  }
  void save(std::int64_t rounds) override {
    if (folder_) folder_->save(rounds, model_);
  }
  void closed(RoundReport const& report) override {
    if (callbacks_.round) callbacks_.round(report);
  }
  void told(WorkerEvent event, std::uint64_t worker, std::string const& why) override {
    if (callbacks_.worker) callbacks_.worker(event, worker, why);
  }

  static constexpr std::size_t most_links = 8192;  // twice as many as there can be workers

  ShepherdOptions options_;
  Policy policy_;
  OuterModel& model_;
  ShepherdCallbacks callbacks_;
  std::optional<Key> key_;
  std::optional<RunFolder> folder_;
  Throttle throttle_;
  std::optional<ShepherdCore> core_;
  kj::Timer* timer_ = nullptr;
  Links* links_ = nullptr;  // while it runs
  std::int64_t sent_ = 0, received_ = 0;
  PeerId peers_ = 0;
  std::map<PeerId, std::string> origins_;
  bool stopped_ = false;
  std::exception_ptr failure_;
};

}  // namespace tutti::federate

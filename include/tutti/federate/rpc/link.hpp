// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One connection between a shepherd and a worker: the key is proved, then messages go both ways.

#include <tutti/federate/message.hpp>
#include <tutti/federate/rpc/key.hpp>
#include <tutti/federate/rpc/wire.hpp>
#include <tutti/federate/throttle.hpp>

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/timer.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

namespace tutti::federate {

inline Instant clock_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

namespace detail {

/// What passes, counted.
class CountedStream final : public kj::AsyncIoStream {
 public:
  explicit CountedStream(kj::Own<kj::AsyncIoStream> inner) : inner_(kj::mv(inner)) {}
  kj::Promise<std::size_t> tryRead(void* buffer, std::size_t least, std::size_t most) override {
    return inner_->tryRead(buffer, least, most).then([this](std::size_t count) {
      received += static_cast<std::int64_t>(count);
      return count;
    });
  }
  kj::Promise<void> write(void const* buffer, std::size_t size) override {
    sent += static_cast<std::int64_t>(size);
    return inner_->write(buffer, size);
  }
  kj::Promise<void> write(kj::ArrayPtr<kj::ArrayPtr<kj::byte const> const> pieces) override {
    for (auto const& piece : pieces) sent += static_cast<std::int64_t>(piece.size());
    return inner_->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return inner_->whenWriteDisconnected(); }
  void shutdownWrite() override { inner_->shutdownWrite(); }
  void abortRead() override { inner_->abortRead(); }
  void getsockopt(int level, int option, void* value, kj::uint* length) override {
    inner_->getsockopt(level, option, value, length);
  }
  void setsockopt(int level, int option, void const* value, kj::uint length) override {
    inner_->setsockopt(level, option, value, length);
  }

  std::int64_t sent = 0, received = 0;

 private:
  kj::Own<kj::AsyncIoStream> inner_;
};

inline kj::ArrayPtr<kj::byte const> as_data(std::span<unsigned char const> bytes) {
  return {bytes.data(), bytes.size()};
}
inline std::string text_of(kj::Exception const& error) { return error.getDescription().cStr(); }

}  // namespace detail

/// Lives in its event loop's thread. Who owns it must not destroy it from within one of its calls.
class Link final : private kj::TaskSet::ErrorHandler {
 public:
  /// Each is called from the event loop.
  struct Events {
    std::function<void()> opened;                  ///< both sides have proved the key
    std::function<void(std::string const&)> lost;  ///< and why; at most once, nothing follows
    std::function<void(Message const&)> received;
  };
  enum class Side : unsigned char { shepherd, worker };

  /// `key` may be null: then neither side proves anything. `largest`: bytes of a message that is still taken.
  /// Borrows timer, throttle and key.
  Link(kj::Own<kj::AsyncIoStream> stream, kj::Timer& timer, Side side, Key const* key, Throttle& throttle,
       std::int64_t largest, Events events)
      : timer_(timer),
        key_(key),
        throttle_(throttle),
        events_(std::move(events)),
        stream_(kj::mv(stream)),
        network_(stream_,
                 side == Side::shepherd ? capnp::rpc::twoparty::Side::SERVER : capnp::rpc::twoparty::Side::CLIENT,
                 limits(largest)),
        rpc_(side == Side::shepherd ? capnp::makeRpcServer(network_, wire::Gate::Client(kj::heap<Gate>(*this)))
                                    : capnp::makeRpcClient(network_)),
        tasks_(*this) {
    tasks_.add(network_.onDisconnect().then([this] { lose("the connection was closed"); }));
    if (side == Side::worker) knock();
  }

  bool opened() const noexcept { return mailbox_ != nullptr; }
  Instant since() const noexcept { return since_; }
  std::int64_t sent() const noexcept { return stream_.sent; }
  std::int64_t received() const noexcept { return stream_.received; }

  /// Chunks wait for their turn within the rate limit, and let everything else go first.
  void send(Message const& message) {
    if (lost_ || closing_ || mailbox_ == nullptr) return;
    auto const* chunk = std::get_if<Chunk>(&message);
    auto& mailbox = KJ_ASSERT_NONNULL(mailbox_);
    std::size_t const words = 32 + (chunk != nullptr ? chunk->bytes.size() / 8 + 1 : 64);
    auto request = mailbox.deliverRequest(capnp::MessageSize{words, 0});
    write(message, request.initMessage());
    if (chunk == nullptr) return deliver(kj::mv(request));
    if (waiting_.size() + static_cast<std::size_t>(in_flight_) > 4096)
      return lose("the other side asks for more than it reads");
    waiting_.emplace_back(kj::mv(request), static_cast<std::int64_t>(words * 8));
    pump();
  }
  /// Chunks that wait are dropped. `done` is called once what was sent has arrived, or two seconds have passed.
  void close(std::function<void()> done) {
    closing_ = true;
    waiting_.clear();
    done_ = std::move(done);
    if (in_flight_ == 0 || lost_) return finish();
    tasks_.add(timer_.afterDelay(2 * kj::SECONDS).then([this] { finish(); }));
  }

 private:
  using Vat = capnp::rpc::twoparty::VatId;
  using Request = capnp::Request<wire::Mailbox::DeliverParams, wire::Mailbox::DeliverResults>;

  class Post final : public wire::Mailbox::Server {
   public:
    explicit Post(Link& link) : link_(link) {}
    kj::Promise<void> deliver(DeliverContext context) override {
      if (!link_.lost_ && !link_.closing_) link_.events_.received(read(context.getParams().getMessage()));
      return kj::READY_NOW;
    }

   private:
    Link& link_;
  };
  class Gate final : public wire::Gate::Server {
   public:
    explicit Gate(Link& link) : link_(link) {}
    kj::Promise<void> knock(KnockContext context) override {
      auto const nonce = context.getParams().getNonce();
      if (nonce.size() != link_.worker_.size() || known_) return refused("the greeting makes no sense");
      std::copy(nonce.begin(), nonce.end(), link_.worker_.begin());
      link_.shepherd_ = fresh_nonce();
      known_ = true;
      auto results = context.getResults();
      results.setNonce(detail::as_data(link_.shepherd_));
      if (link_.key_ != nullptr)
        results.setProof(detail::as_data(link_.key_->proof("shepherd", link_.worker_, link_.shepherd_)));
      return kj::READY_NOW;
    }
    kj::Promise<void> enter(EnterContext context) override {
      auto const params = context.getParams();
      if (!known_ || link_.mailbox_ != nullptr) return refused("the greeting makes no sense");
      auto const proof = params.getProof();
      if (link_.key_ != nullptr &&
          !link_.key_->proves({proof.begin(), proof.size()}, "worker", link_.worker_, link_.shepherd_))
        return refused("the worker does not have the shepherd's key. Give both the same file with --key");
      if (link_.key_ == nullptr && proof.size() != 0)
        return refused("the worker has a key, and the shepherd has none. Give both the same file with --key");
      context.getResults().setMailbox(kj::heap<Post>(link_));
      link_.mailbox_ = params.getMailbox();
      link_.events_.opened();
      return kj::READY_NOW;
    }

   private:
    static kj::Promise<void> refused(char const* why) { return KJ_EXCEPTION(FAILED, why); }
    Link& link_;
    bool known_ = false;
  };

  static capnp::ReaderOptions limits(std::int64_t largest) {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = static_cast<std::uint64_t>(largest) / 8;
    options.nestingLimit = 16;
    return options;
  }
  void knock() {
    capnp::MallocMessageBuilder message;
    auto vat = message.initRoot<Vat>();
    vat.setSide(capnp::rpc::twoparty::Side::SERVER);
    auto gate = rpc_.bootstrap(vat).castAs<wire::Gate>();
    worker_ = fresh_nonce();
    auto request = gate.knockRequest();
    request.setNonce(detail::as_data(worker_));
    tasks_.add(request.send().then([this, gate](capnp::Response<wire::Gate::KnockResults> answer) mutable {
      auto const nonce = answer.getNonce();
      auto const proof = answer.getProof();
      if (nonce.size() != shepherd_.size())
        kj::throwFatalException(KJ_EXCEPTION(FAILED, "the shepherd's greeting makes no sense"));
      std::copy(nonce.begin(), nonce.end(), shepherd_.begin());
      bool const proved = key_ == nullptr ? proof.size() == 0
                                          : key_->proves({proof.begin(), proof.size()}, "shepherd", worker_, shepherd_);
      if (!proved)
        kj::throwFatalException(
            KJ_EXCEPTION(FAILED, "shepherd and worker do not have the same key. Give both the same file with --key"));
      auto enter = gate.enterRequest();
      if (key_ != nullptr) enter.setProof(detail::as_data(key_->proof("worker", worker_, shepherd_)));
      enter.setMailbox(kj::heap<Post>(*this));
      return enter.send().then([this](capnp::Response<wire::Gate::EnterResults> entered) {
        mailbox_ = entered.getMailbox();
        events_.opened();
      });
    }));
  }
  void deliver(Request request) {
    ++in_flight_;
    tasks_.add(request.send().ignoreResult().then([this] {
      if (--in_flight_ == 0 && closing_) finish();
    }));
  }
  void pump() {
    while (!pausing_ && !waiting_.empty()) {
      Instant const now = clock_now();
      if (Instant const wait = throttle_.wait(now); wait > Instant(0)) {
        pausing_ = true;
        tasks_.add(timer_.afterDelay(wait.count() * kj::NANOSECONDS).then([this] {
          pausing_ = false;
          pump();
        }));
        return;
      }
      throttle_.sent(waiting_.front().second, now);
      Request request = kj::mv(waiting_.front().first);
      waiting_.pop_front();
      deliver(kj::mv(request));
    }
  }
  void lose(std::string const& why) {
    if (std::exchange(lost_, true)) return;
    waiting_.clear();
    if (closing_) return finish();
    events_.lost(why);
  }
  void finish() {
    if (auto const done = std::exchange(done_, nullptr)) done();
  }
  void taskFailed(kj::Exception&& error) override { lose(detail::text_of(error)); }

  kj::Timer& timer_;
  Key const* key_;
  Throttle& throttle_;
  Events events_;
  std::function<void()> done_;
  Nonce worker_{}, shepherd_{};
  bool lost_ = false, closing_ = false, pausing_ = false;
  std::int64_t in_flight_ = 0;
  Instant since_ = clock_now();
  detail::CountedStream stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<Vat> rpc_;
  kj::Maybe<wire::Mailbox::Client> mailbox_;
  std::deque<std::pair<Request, std::int64_t>> waiting_;  // chunks, with their bytes
  kj::TaskSet tasks_;                                     // first to go
};

}  // namespace tutti::federate

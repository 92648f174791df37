// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What one asks of a service, and the answer on its way.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/completion.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

/// What becomes of an answer that has filled its context: the oldest tokens behind the first `keep` are dropped, and
/// the rest goes through the model again at its new positions, so that any model can go on, whatever its positions are.
/// Cost  a prompt of the tokens that stay
struct ContextShift {
  bool on = false;           ///< off: StopReason::context_full
  std::int64_t keep = 0;     ///< tokens at the beginning that stay
  std::int64_t discard = 0;  ///< tokens dropped; 0: half of those behind `keep`
};

struct Request {
  std::vector<std::int32_t> prompt;
  SamplerOptions sampling{};
  StopOptions stop{};
  SequenceBreakers breakers{};            ///< what ends a repeated run, for DRY
  std::string grammar{};                  ///< GBNF; empty: any text
  int priority = 0;                       ///< larger ones first; equals in the order in which they came
  std::chrono::milliseconds deadline{0};  ///< from `submit` to the end, the wait in the queue included; 0: none
  /// Requests of one session see one another's cache and no other's; those without a name are one session.
  std::string session{};
  std::optional<std::int64_t> likeliest{};  ///< log-probabilities are wanted, with so many of the likeliest tokens each
  std::function<void(std::string_view)> on_text{};  ///< called by the service's thread
  /// Asked before every token, by the service's thread: false pauses the answer, which keeps its slot.
  std::function<bool()> ready{};
  std::function<bool()> abandoned{};  ///< asked likewise: true ends it as cancelled
  std::function<void()> on_end{};     ///< called by it last, when `wait` would not block any more
  bool embed = false;                 ///< no text: Completion::embedding of the prompt is wanted
  Pooling pooling = Pooling::mean;    ///< of the embedding
  std::int64_t norm = 2;              ///< of the embedding, as HiddenMean::normalised has it
  GrammarTriggers triggers{};         ///< what wakes the grammar; none: it rules from the beginning
  ContextShift shift{};
  bool reuse = true;         ///< the session's cache may serve the beginning of the prompt
  bool keep_logits = false;  ///< Completion::logits is wanted
};

namespace detail {
/// Of a context of `capacity` tokens. Errors: invalid_argument (no prompt, a shift that keeps all), out_of_range.
inline void require_possible(Request const& request, std::int64_t capacity, std::int64_t vocabulary) {
  if (request.prompt.empty()) throw Error(ErrorKind::invalid_argument, "Service::submit", "the prompt is empty");
  if (static_cast<std::int64_t>(request.prompt.size()) > capacity)
    throw Error(ErrorKind::out_of_range, "Service::submit",
                concat("the prompt has ", request.prompt.size(), " tokens and the context ", capacity,
                       ". Shorten it, or give the model a longer context"));
  for (std::int32_t const token : request.prompt)
    if (token < 0 || token >= vocabulary)
      throw Error(ErrorKind::out_of_range, "Service::submit",
                  concat("token ", token, " is outside the vocabulary of ", vocabulary));
  if (request.shift.on && request.shift.keep >= capacity - 1)
    throw Error(ErrorKind::invalid_argument, "Service::submit",
                concat("a context of ", capacity, " tokens cannot keep ", request.shift.keep,
                       " of them and go on. Keep fewer"));
  if (request.likeliest && (*request.likeliest < 0 || *request.likeliest > vocabulary))
    throw Error(ErrorKind::out_of_range, "Service::submit",
                concat("the ", *request.likeliest, " likeliest of ", vocabulary, " tokens are asked for"));
}
}  // namespace detail

/// A request on its way. Thread-safe.
class Generation {
 public:
  explicit Generation(Request request)
      : request_(std::move(request)),
        sampler_(request_.sampling, request_.breakers),
        due_(request_.deadline.count() > 0 ? std::optional(Clock::now() + request_.deadline) : std::nullopt) {}

  /// Ends it before the next token, with what there is.
  void cancel() noexcept { cancelled_ = true; }
  Request const& request() const noexcept { return request_; }
  bool done() const {
    std::lock_guard const guard(mutex_);
    return done_;
  }
  /// Blocking, until it has ended. Errors: what its sampler or grammar threw, or that the service ended (unavailable).
  Completion const& wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    if (error_) std::rethrow_exception(error_);
    return result_;
  }

 private:
  friend class Service;
  friend class Slots;
  friend class RequestQueue;
  using Clock = std::chrono::steady_clock;

  void finish(Completion result, std::exception_ptr error = nullptr) {
    settle(std::move(result), std::move(error));
    tell();
  }
  /// What whoever waits gets.
  void settle(Completion result, std::exception_ptr error = nullptr) {
    {
      std::lock_guard const guard(mutex_);
      result_ = std::move(result);
      error_ = std::move(error);
      done_ = true;
    }
    changed_.notify_all();
  }
  /// Not while a lock is held: `on_end` may call whom it likes.
  void tell() noexcept {
    try {
      if (request_.on_end) request_.on_end();
    } catch (...) {  // the answer is there, and others go on
    }
  }
  double age() const { return std::chrono::duration<double>(Clock::now() - submitted_).count(); }
  /// Why it must not go on, if it must not.
  std::optional<StopReason> ended() const {
    if (cancelled_ || (request_.abandoned && request_.abandoned())) return StopReason::cancelled;
    if (due_ && Clock::now() > *due_) return StopReason::time;
    return std::nullopt;
  }

  Request request_;
  Sampler sampler_;
  Clock::time_point submitted_ = Clock::now();
  std::optional<Clock::time_point> due_;
  std::atomic<bool> cancelled_{false};
  std::optional<Grammar> grammar_;
  std::optional<GrammarMatcher> matcher_;
  std::optional<Drawing> drawing_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  Completion result_;
  std::exception_ptr error_;
};

}  // namespace tutti::infer

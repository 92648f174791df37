// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Many requests to one model: a bounded queue with priorities, and all running answers in one batch.

#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/completion.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::infer {

struct ServiceOptions {
  DecoderOptions decoder{.slots = 4};  ///< as many answers run at once as there are slots; `batch` follows from these
  std::size_t queue = 50;              ///< requests that wait at most
  std::int64_t prompt_chunk = 128;     ///< tokens of prompts between two tokens of running answers, at most
};

struct Request {
  std::vector<std::int32_t> prompt;
  SamplerOptions sampling{};
  StopOptions stop{};
  std::string grammar{};                  ///< GBNF; empty: any text
  int priority = 0;                       ///< larger ones first; equals in the order in which they came
  std::chrono::milliseconds deadline{0};  ///< from `submit` to the end, the wait in the queue included; 0: none
  /// Requests of one session see one another's cache and no other's; those without a name are one session.
  std::string session{};
  std::optional<std::int64_t> likeliest{};  ///< log-probabilities are wanted, with so many of the likeliest tokens each
  std::function<void(std::string_view)> on_text{};  ///< called by the service's thread
  bool embed = false;                               ///< no text: Completion::embedding of the prompt is wanted
};

struct ServiceStatus {
  std::size_t waiting = 0, running = 0;
  std::int64_t finished = 0, refused = 0, prompt_tokens = 0, reused_tokens = 0, tokens = 0;
};

/// A request on its way. Thread-safe.
class Generation {
 public:
  explicit Generation(Request request)
      : request_(std::move(request)),
        sampler_(request_.sampling),
        due_(request_.deadline.count() > 0 ? std::optional(Clock::now() + request_.deadline) : std::nullopt) {}

  /// Ends it before the next token, with what there is.
  void cancel() noexcept { cancelled_ = true; }
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
  using Clock = std::chrono::steady_clock;

  void finish(Completion result, std::exception_ptr error = nullptr) {
    {
      std::lock_guard const guard(mutex_);
      result_ = std::move(result);
      error_ = std::move(error);
      done_ = true;
    }
    changed_.notify_all();
  }
  /// Why it must not go on, if it must not.
  std::optional<StopReason> ended() const {
    if (cancelled_) return StopReason::cancelled;
    if (due_ && Clock::now() > *due_) return StopReason::time;
    return std::nullopt;
  }

  Request request_;
  Sampler sampler_;
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

/// Runs in a thread of its own, which alone uses the context.
/// Memory    the decoder's; nothing more for each request but its tokens and text
/// Order     a free slot goes to the waiting request of the highest priority, the oldest of equals. Running answers get
///           a token each in every pass; prompts go in beside them in chunks, so that no answer waits for a long one.
/// Caches    a slot that holds the longest beginning of the prompt from the same session is taken, else the one that
///           has been idle longest, whose cache is then lost.
class Service {
 public:
  /// Borrows all three. Errors: those of Decoder.
  Service(exec::Context& context, nn::StoredModel const& model, data::Tokenizer const& tokenizer,
          ServiceOptions const& options = {})
      : tokenizer_(tokenizer),
        options_(options),
        decoder_(context, model, batched(options)),
        slots_(static_cast<std::size_t>(options.decoder.slots)),
        thread_([this] { work(); }) {}
  Service(Service const&) = delete;
  Service& operator=(Service const&) = delete;
  /// Ends what runs and waits, with Error(unavailable) for those who wait for it.
  ~Service() {
    {
      std::lock_guard const guard(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  std::int64_t capacity() const noexcept { return decoder_.capacity(); }

  /// Puts a request into the queue. Does not block.
  /// Errors    invalid_argument (no prompt, options of sampling, a grammar that is none), out_of_range (a prompt longer
  ///           than the cache, an unknown token), busy (the queue is full)
  std::shared_ptr<Generation> submit(Request request) {
    if (request.prompt.empty()) throw Error(ErrorKind::invalid_argument, "Service::submit", "the prompt is empty");
    if (static_cast<std::int64_t>(request.prompt.size()) > capacity())
      throw Error(ErrorKind::out_of_range, "Service::submit",
                  concat("the prompt has ", request.prompt.size(), " tokens and the context ", capacity(),
                         ". Shorten it, or make the service with more capacity"));
    for (std::int32_t const token : request.prompt)
      if (token < 0 || token >= decoder_.vocabulary())
        throw Error(ErrorKind::out_of_range, "Service::submit",
                    concat("token ", token, " is outside the vocabulary of ", decoder_.vocabulary()));
    if (request.likeliest && (*request.likeliest < 0 || *request.likeliest > decoder_.vocabulary()))
      throw Error(ErrorKind::out_of_range, "Service::submit",
                  concat("the ", *request.likeliest, " likeliest of ", decoder_.vocabulary(), " tokens are asked for"));
    auto generation = std::make_shared<Generation>(std::move(request));
    if (!generation->request_.grammar.empty()) {
      generation->grammar_.emplace(generation->request_.grammar);
      generation->matcher_.emplace(*generation->grammar_, grammar_vocabulary());
    }
    {
      std::lock_guard const guard(mutex_);
      if (waiting_.size() >= options_.queue) {
        ++status_.refused;
        throw Error(ErrorKind::busy, "Service::submit",
                    concat(waiting_.size(), " requests wait already, as many as may. Come again later"));
      }
      // Behind all of its priority.
      auto const place = std::find_if(waiting_.begin(), waiting_.end(), [&](auto const& other) {
        return other->request_.priority < generation->request_.priority;
      });
      waiting_.insert(place, generation);
    }
    wake_.notify_all();
    return generation;
  }

  ServiceStatus status() const {
    std::lock_guard const guard(mutex_);
    ServiceStatus status = status_;
    status.waiting = waiting_.size();
    return status;
  }

 private:
  struct Slot {
    std::shared_ptr<Generation> generation;  ///< null: idle
    std::string session;
    std::vector<std::int32_t> tokens;  ///< in the cache
    std::size_t todo = 0;              ///< of the prompt, from here on
    std::optional<std::int32_t> next;  ///< drawn and not yet appended
    std::int64_t last_used = 0;
    std::vector<double> sum;  ///< of the prompt's hidden states, for an embedding
  };

  /// A pass is one batch: hidden states of all its rows are at hand.
  static DecoderOptions batched(ServiceOptions const& options) {
    if (options.prompt_chunk < 1)
      throw Error(ErrorKind::invalid_argument, "Service", "prompts need chunks of at least one token");
    DecoderOptions decoder = options.decoder;
    decoder.batch = options.prompt_chunk + std::max<std::int64_t>(decoder.slots, 0);
    return decoder;
  }

  GrammarVocabulary const& grammar_vocabulary() {
    std::call_once(vocabulary_made_, [this] { vocabulary_.emplace(token_pieces(tokenizer_), end_tokens(tokenizer_)); });
    return *vocabulary_;
  }

  void work() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return closing_ || !waiting_.empty() || running() > 0; });
        if (closing_) break;
        admit();
        status_.running = running();
      }
      pass();
    }
    auto const gone =
        std::make_exception_ptr(Error(ErrorKind::unavailable, "Service", "the service ended before the answer did"));
    std::vector<std::shared_ptr<Generation>> left;
    {
      std::lock_guard const guard(mutex_);
      left.swap(waiting_);
    }
    for (Slot& slot : slots_)
      if (slot.generation) left.push_back(std::move(slot.generation));
    for (auto const& generation : left) generation->finish({}, gone);
  }
  std::size_t running() const {
    return static_cast<std::size_t>(
        std::count_if(slots_.begin(), slots_.end(), [](Slot const& slot) { return slot.generation != nullptr; }));
  }

  /// Gives free slots to those who wait. Under the mutex.
  void admit() {
    for (std::size_t i = 0; i < waiting_.size();) {
      if (auto const reason = waiting_[i]->ended()) {  // before it began
        Completion nothing;
        nothing.reason = *reason;
        nothing.prompt_tokens = static_cast<std::int64_t>(waiting_[i]->request_.prompt.size());
        ++status_.finished;
        waiting_[i]->finish(std::move(nothing));
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      Slot* const slot = best_slot(waiting_[i]->request_);
      if (slot == nullptr) {
        ++i;
        continue;
      }
      begin(*slot, waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  static std::size_t common(std::vector<std::int32_t> const& a, std::vector<std::int32_t> const& b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }
  Slot* best_slot(Request const& request) {
    Slot *best = nullptr, *oldest = nullptr;
    std::size_t most = 0;
    for (Slot& slot : slots_) {
      if (slot.generation) continue;
      if (oldest == nullptr || slot.last_used < oldest->last_used) oldest = &slot;
      std::size_t const same = slot.session == request.session ? common(slot.tokens, request.prompt) : 0;
      if (same > most) best = &slot, most = same;
    }
    return best != nullptr ? best : oldest;
  }
  void begin(Slot& slot, std::shared_ptr<Generation> generation) {
    Request const& request = generation->request_;
    std::size_t same = slot.session == request.session ? common(slot.tokens, request.prompt) : 0;
    if (request.embed) same = 0;                // every hidden state is needed
    if (same == request.prompt.size()) --same;  // the last token goes in again, for its logits
    slot.sum.assign(request.embed ? static_cast<std::size_t>(decoder_.model().channels()) : 0, 0.0);
    slot.session = request.session;
    slot.tokens.resize(same);
    slot.todo = same;
    slot.next.reset();
    generation->drawing_.emplace(generation->sampler_, tokenizer_, request.prompt, request.stop, request.on_text,
                                 generation->matcher_ ? &*generation->matcher_ : nullptr);
    generation->drawing_->reused(static_cast<std::int64_t>(same));
    if (request.likeliest) generation->drawing_->keep_log_probabilities(*request.likeliest);
    status_.prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
    status_.reused_tokens += static_cast<std::int64_t>(same);
    slot.generation = std::move(generation);
  }

  /// One batch: a token of every running answer, and chunks of prompts.
  void pass() {
    std::vector<NewToken> rows;
    std::vector<Slot*> wanted;
    auto const add = [&](Slot& slot, std::int32_t token, bool last) {
      rows.push_back({token, static_cast<std::int32_t>(&slot - slots_.data()),
                      static_cast<std::int32_t>(slot.tokens.size()), last});
      slot.tokens.push_back(token);
      if (last) wanted.push_back(&slot);
    };
    for (Slot& slot : slots_)
      if (slot.generation)
        if (auto const reason = slot.generation->ended()) {
          slot.generation->drawing_->end(*reason);
          release(slot);
        }
    for (Slot& slot : slots_)
      if (slot.generation && slot.next) add(slot, *std::exchange(slot.next, std::nullopt), true);
    std::int64_t room = options_.prompt_chunk;
    std::vector<Slot*> prompts;
    for (Slot& slot : slots_)
      if (slot.generation && slot.todo < slot.generation->request_.prompt.size()) prompts.push_back(&slot);
    std::stable_sort(prompts.begin(), prompts.end(), [](Slot const* a, Slot const* b) {
      return a->generation->request_.priority > b->generation->request_.priority;
    });
    for (Slot* const slot : prompts)
      for (auto const& prompt = slot->generation->request_.prompt; room > 0 && slot->todo < prompt.size(); --room) {
        std::int32_t const token = prompt[slot->todo++];
        add(*slot, token, slot->todo == prompt.size());
      }
    if (rows.empty()) return;
    std::span<float const> logits;
    try {
      logits = decoder_.append(rows);
    } catch (...) {  // no cache is known any more
      for (Slot& slot : slots_) {
        slot.tokens.clear();
        if (slot.generation) release(slot, std::current_exception());
      }
      return;
    }
    sum_hidden(rows);
    auto const classes = static_cast<std::size_t>(decoder_.vocabulary());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      Slot& slot = *wanted[i];
      if (slot.generation->request_.embed) {
        embed(slot);
        continue;
      }
      try {
        bool const room_left = static_cast<std::int64_t>(slot.tokens.size()) < capacity();
        slot.next = slot.generation->drawing_->draw(logits.subspan(i * classes, classes), room_left);
        if (!slot.next) release(slot);
      } catch (...) {
        release(slot, std::current_exception());
      }
    }
  }
  void sum_hidden(std::vector<NewToken> const& rows) {
    auto const channels = decoder_.model().channels();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<double>& sum = slots_[static_cast<std::size_t>(rows[i].slot)].sum;
      for (std::size_t c = 0; c < sum.size(); ++c)
        sum[c] += double{decoder_.hidden()[i * static_cast<std::size_t>(channels) + c]};
    }
  }
  /// The mean of the hidden states, of length one.
  void embed(Slot& slot) {
    double const square = std::inner_product(slot.sum.begin(), slot.sum.end(), slot.sum.begin(), 0.0);
    for (double const value : std::exchange(slot.sum, {}))
      slot.generation->drawing_->result().embedding.push_back(
          static_cast<float>(square > 0 ? value / std::sqrt(square) : 0));
    slot.generation->drawing_->end(StopReason::end_of_generation);
    release(slot);
  }
  void release(Slot& slot, std::exception_ptr error = nullptr) {
    slot.last_used = ++uses_;
    std::shared_ptr<Generation> const generation = std::move(slot.generation);
    slot.generation.reset();
    slot.next.reset();
    Completion result = std::move(generation->drawing_->result());
    {
      std::lock_guard const guard(mutex_);
      ++status_.finished;
      status_.tokens += static_cast<std::int64_t>(result.tokens.size());
      status_.running = running();
    }
    generation->finish(std::move(result), std::move(error));
  }

  data::Tokenizer const& tokenizer_;
  ServiceOptions options_;
  Decoder decoder_;
  std::vector<Slot> slots_;  // the thread's alone
  std::int64_t uses_ = 0;
  std::once_flag vocabulary_made_;
  std::optional<GrammarVocabulary> vocabulary_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Generation>> waiting_;  // by priority, then age
  ServiceStatus status_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace tutti::infer

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Many requests to one model: a bounded queue with priorities, and all running answers in one batch.

#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/compute_pool.hpp>
#include <tutti/infer/service_options.hpp>
#include <tutti/infer/service_status.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Runs in a thread of its own. It alone uses the context, or takes turns with the pool's other services: a turn is a
/// pass, of the highest priority that one of its answers has.
/// Memory    the decoder's; nothing more for each request but its tokens and text
/// Order     a free slot goes to the waiting request of the highest priority, of equals to one of the session that was
///           served longest ago. Running answers get a token each in every pass; prompts go in beside them in chunks,
///           so that no answer waits for a long one.
/// Drafts    running answers share a pass's first `block_product_few_rows` rows: one alone gets most_drafts behind its
///           token, two get three each, more than four none.
/// Caches    an idle slot that holds most of the prompt from the same session is taken, else an idle one whose cache is
///           then lost, and gets the beginning that another slot holds: CacheOptions say which.
class Service {
 public:
  /// Borrows all three, and the draft model. Errors: those of Decoder and Speculation.
  Service(ComputePool& pool, nn::StoredModel const& model, data::Tokenizer const& tokenizer,
          ServiceOptions const& options = {})
      : Service(pool.context(), model, tokenizer, options, &pool) {}
  Service(exec::Context& context, nn::StoredModel const& model, data::Tokenizer const& tokenizer,
          ServiceOptions const& options = {})
      : Service(context, model, tokenizer, options, nullptr) {}
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
  /// For what it is made of; only the service's thread appends to it.
  Decoder const& decoder() const noexcept { return decoder_; }

  /// Puts a request into the queue. Does not block.
  /// Errors    invalid_argument (no prompt, options of sampling, a grammar that is none), out_of_range (a prompt longer
  ///           than the cache, an unknown token), busy (the queue is full)
  std::shared_ptr<Generation> submit(Request request) {
    detail::require_possible(request, capacity(), decoder_.vocabulary());
    auto generation = std::make_shared<Generation>(std::move(request));
    if (!generation->request_.grammar.empty()) {
      generation->grammar_.emplace(generation->request_.grammar);
      generation->matcher_.emplace(*generation->grammar_, grammar_vocabulary());
    }
    {
      std::lock_guard const guard(mutex_);
      try {
        waiting_.push(generation, most_running() - std::min(most_running(), status_.running));
      } catch (Error const& error) {
        ++status_.refused;
        log_answer(options_, LogLevel::warn, error.message());
        throw;
      }
    }
    wake_.notify_all();
    return generation;
  }

  ServiceStatus status() const {
    std::lock_guard const guard(mutex_);
    ServiceStatus status = status_;
    status.waiting = waiting_.size();
    status.tokens += tokens_on_their_way_;
    status.cache_tokens = decoder_.slots() * capacity();
    return status;
  }

  /// Forgets what is kept for a session that ended; a running answer goes on.
  void forget(std::string session) {
    {
      std::lock_guard const guard(mutex_);
      forgotten_.push_back(std::move(session));
    }
    wake_.notify_all();
  }
  /// Calls work(decoder, slots) in the service's thread while no tokens go through the model; answers wait for it.
  /// Blocking; not for what the thread itself calls. Errors: those of `work`; unavailable (the service ends).
  void between_passes(std::function<void(Decoder&, Slots&)> work) {
    auto const task = std::make_shared<std::packaged_task<void(Decoder&, Slots&)>>(std::move(work));
    std::future<void> done = task->get_future();
    {
      std::lock_guard const guard(mutex_);
      if (closing_) throw Error(ErrorKind::unavailable, "Service", "the service has ended");
      tasks_.push_back(task);
    }
    wake_.notify_all();
    done.get();
  }

 private:
  Service(exec::Context& context, nn::StoredModel const& model, data::Tokenizer const& tokenizer,
          ServiceOptions const& options, ComputePool* pool)
      : pool_(pool),
        tokenizer_(tokenizer),
        options_(options),
        decoder_(context, model, batch_of(options)),
        drafters_(context, model, options.drafts, decoder_.options()),
        slots_(static_cast<std::size_t>(options.decoder.slots), cache_of(options, model)),
        waiting_(options.queue) {
    ended_.reserve(options.queue.most + slots_.all().size() + 1);
    thread_ = std::thread([this] { work(); });
  }
  GrammarVocabulary const& grammar_vocabulary() {
    std::call_once(vocabulary_made_, [this] { vocabulary_.emplace(token_pieces(tokenizer_), end_tokens(tokenizer_)); });
    return *vocabulary_;
  }
  void work() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] {
          return closing_ || !waiting_.empty() || !forgotten_.empty() || !tasks_.empty() || slots_.running() > 0;
        });
        if (closing_) break;
        admit();
        status_.running = slots_.running();
        status_.cached_tokens = slots_.cached();
        status_.busy_seconds = busy_seconds_;
        tokens_on_their_way_ = slots_.drawn();
      }
      for (auto const& generation : ended_) generation->tell();
      ended_.clear();
      run_tasks();
      if (pass()) continue;
      // All pause: looked at again soon, or when something new comes.
      std::unique_lock lock(mutex_);
      if (slots_.running() > 0) wake_.wait_for(lock, std::chrono::milliseconds(2));
    }
    std::exception_ptr const gone = service_ended();
    std::vector<std::shared_ptr<Generation>> left;
    {
      std::lock_guard const guard(mutex_);
      left = waiting_.clear();
    }
    for (auto const& generation : left) generation->finish({}, gone);
    for (Slot& slot : slots_.all())
      if (auto const generation = std::exchange(slot.generation, nullptr)) generation->finish({}, gone);
    run_tasks();
  }
  void run_tasks() {
    std::vector<std::shared_ptr<std::packaged_task<void(Decoder&, Slots&)>>> tasks;
    {
      std::lock_guard const guard(mutex_);
      tasks.swap(tasks_);
    }
    for (auto const& task : tasks) (*task)(decoder_, slots_);
  }

  std::size_t most_running() const noexcept {
    return options_.running > 0 ? std::min(options_.running, slots_.all().size()) : slots_.all().size();
  }
  /// Gives free slots to those who wait. Under the mutex.
  void admit() {
    for (std::string const& session : std::exchange(forgotten_, {})) slots_.forget(session);
    slots_.forget_old();
    auto const give_up = [this](std::shared_ptr<Generation> const& generation, StopReason reason) {
      Completion nothing;
      nothing.reason = reason;
      nothing.prompt_tokens = static_cast<std::int64_t>(generation->request_.prompt.size());
      nothing.queue_seconds = generation->age();
      status_.count(nothing);
      log_answer(options_, LogLevel::info, "", &nothing);
      end(generation, std::move(nothing));
    };
    if (options_.queue.cleanup) waiting_.drop_ended(give_up);
    while (!waiting_.empty() && slots_.running() < most_running()) {
      std::shared_ptr<Generation> generation = waiting_.take();
      if (auto const reason = generation->ended()) {
        give_up(generation, *reason);
        continue;
      }
      Slot* slot = nullptr;
      try {
        slot = slots_.choose(generation->request_);
        begin(*slot, generation);
      } catch (...) {
        if (slot != nullptr && slot->generation) slots_.release(*slot);
        ++status_.finished;
        log_answer(options_, LogLevel::error, "an answer could not begin");
        end(generation, {}, std::current_exception());
      }
    }
  }
  /// Of one that has no slot; told when the lock is given back. There is room for all that may wait.
  void end(std::shared_ptr<Generation> const& generation, Completion result, std::exception_ptr error = nullptr) {
    generation->settle(std::move(result), std::move(error));
    ended_.push_back(generation);
  }
  void begin(Slot& slot, std::shared_ptr<Generation> const& generation) {
    Request const& request = generation->request_;
    CacheReuse const reuse = slots_.reuse(slot, request);
    slot.tokens.resize(reuse.same);  // should what follows fail
    if (reuse.donor != nullptr)
      copy_cached(decoder_, static_cast<std::int32_t>(number(*reuse.donor)), static_cast<std::int32_t>(number(slot)),
                  static_cast<std::int64_t>(reuse.copied));
    if (!reuse.moves.empty()) move_cached(decoder_, static_cast<std::int32_t>(number(slot)), reuse.moves);
    slots_.begin(slot, generation, reuse.tokens);
    slot.mean.reset();
    if (request.embed) slot.mean.emplace(request.pooling);
    generation->drawing_.emplace(generation->sampler_, tokenizer_, request.prompt, request.stop, request.on_text,
                                 generation->matcher_ ? &*generation->matcher_ : nullptr, request.triggers);
    drafters_.begin(number(slot), request);
    generation->drawing_->reused(static_cast<std::int64_t>(slot.todo));
    generation->drawing_->result().queue_seconds = generation->age();
    if (request.likeliest) generation->drawing_->keep_log_probabilities(*request.likeliest);
    status_.prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
    status_.reused_tokens += static_cast<std::int64_t>(slot.todo);
  }
  std::size_t number(Slot const& slot) const noexcept { return static_cast<std::size_t>(&slot - slots_.all().data()); }
  /// A slot whose logits are asked for: those behind its last token, or behind its token and each of its drafts.
  struct Wanted {
    Slot* slot;
    std::span<Proposal const> drafts{};
    std::size_t row = 0;  ///< of the token; of a prompt's end behind all rows
  };

  /// One batch: a token of every running answer with what is foretold, and chunks of prompts. False when there was
  /// nothing to do. What fails ends all running answers.
  bool pass() {
    try {
      return append_and_draw();
    } catch (...) {  // no cache is known any more
      log_answer(options_, LogLevel::error, "tokens could not go through the model: all running answers end");
      for (Slot& slot : slots_.all()) {
        slot.tokens.clear();
        if (slot.generation) release(slot, std::current_exception());
      }
      return true;
    }
  }
  bool append_and_draw() {
    std::vector<NewToken> rows;
    std::vector<Wanted> wanted;
    auto const add = [&](Slot& slot, std::int32_t token, bool last) {
      rows.push_back(
          {token, static_cast<std::int32_t>(number(slot)), static_cast<std::int32_t>(slot.tokens.size()), last});
      slot.tokens.push_back(token);
    };
    for (Slot& slot : slots_.all())
      if (slot.generation)
        if (auto const reason = slot.generation->ended()) {
          slot.generation->drawing_->end(*reason);
          release(slot);
        }
    std::vector<Slot*> answers, prompts;
    for (Slot& slot : slots_.all())
      if (slot.generation && slot.next)
        if (Request const& request = slot.generation->request_; !request.ready || request.ready())
          answers.push_back(&slot);
    for (Slot& slot : slots_.all())
      if (slot.generation && slot.todo < slot.pending.size()) prompts.push_back(&slot);
    if (answers.empty() && prompts.empty()) return false;
    ComputePool::Turn turn(pool_, slots_.highest_priority());
    for (Slot* const slot : answers) {
      std::int64_t const free = capacity() - static_cast<std::int64_t>(slot->tokens.size()) - 1,
                         share = kernel::block_product_few_rows / static_cast<std::int64_t>(answers.size()) - 1;
      std::span<Proposal const> drafts;
      try {
        drafts = drafters_.draft(number(*slot), slot->tokens, *slot->next,
                                 std::min({free, share, slot->generation->drawing_->left() - 1}));
      } catch (...) {
        release(*slot, std::current_exception());
        continue;
      }
      wanted.push_back({slot, drafts, rows.size()});
      add(*slot, *std::exchange(slot->next, std::nullopt), true);
      for (Proposal const& draft : drafts) add(*slot, draft.token, true);
    }
    std::int64_t room = options_.prompt_chunk;
    std::stable_sort(prompts.begin(), prompts.end(), [](Slot const* a, Slot const* b) {
      return a->generation->request_.priority > b->generation->request_.priority;
    });
    for (Slot* const slot : prompts)
      for (; room > 0 && slot->todo < slot->pending.size(); --room) {
        std::int32_t const token = slot->pending[slot->todo++];
        bool const last = slot->todo == slot->pending.size();
        add(*slot, token, last);
        if (last) wanted.push_back({slot, {}, std::numeric_limits<std::size_t>::max()});
      }
    if (rows.empty()) return true;  // every answer failed
    auto const begin = std::chrono::steady_clock::now();
    std::span<float const> logits = decoder_.append(rows);
    turn.end();
    busy_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    slots_.add_hidden(rows, decoder_);
    auto const classes = static_cast<std::size_t>(decoder_.vocabulary());
    for (Wanted const& one : wanted) {
      std::size_t const size = (1 + one.drafts.size()) * classes;
      std::span<float const> const own = logits.first(size);
      logits = logits.subspan(size);
      try {
        if (one.slot->generation->request_.embed) {
          embed(*one.slot);
          continue;
        }
        auto const channels = static_cast<std::size_t>(decoder_.model().channels());
        std::span<float const> hidden;  // what a prompt says does not count for the answer's sentences
        if (one.row < rows.size())
          hidden = decoder_.hidden().subspan(one.row * channels, (1 + one.drafts.size()) * channels);
        draw(*one.slot, own, one.drafts, hidden);
      } catch (...) {
        release(*one.slot, std::current_exception());
      }
    }
    return true;
  }
  void draw(Slot& slot, std::span<float const> logits, std::span<Proposal const> drafts,
            std::span<float const> hidden) {
    Request const& request = slot.generation->request_;
    Drawing& drawing = *slot.generation->drawing_;
    std::size_t const before = slot.tokens.size() - drafts.size(), classes = logits.size() / (drafts.size() + 1);
    std::int64_t const free = capacity() - static_cast<std::int64_t>(before);
    Verified const verified =
        drawing.verify(logits, drafts, request.shift.on ? std::numeric_limits<std::int64_t>::max() : free, hidden);
    drafters_.verified(number(slot), verified.accepted);
    slot.tokens.resize(before + static_cast<std::size_t>(verified.accepted));
    slot.next = verified.next;
    if (!slot.next) {
      auto const last = logits.subspan(static_cast<std::size_t>(verified.accepted) * classes, classes);
      if (request.keep_logits) drawing.result().logits.assign(last.begin(), last.end());
      return release(slot);
    }
    if (static_cast<std::int64_t>(slot.tokens.size()) >= capacity()) {
      ++drawing.result().shifts;
      Slots::shift(slot, request.shift, *slot.next);
    }
  }
  void embed(Slot& slot) {
    slot.generation->drawing_->result().embedding = slot.mean->normalised(slot.generation->request_.norm);
    slot.mean.reset();
    slot.generation->drawing_->end(StopReason::end_of_generation);
    release(slot);
  }
  void release(Slot& slot, std::exception_ptr error = nullptr) {
    std::shared_ptr<Generation> const generation = slots_.release(slot);
    Completion result = std::move(generation->drawing_->result());
    {
      std::lock_guard const guard(mutex_);
      status_.count(result);
      status_.busy_seconds = busy_seconds_;
      status_.running = slots_.running();
      tokens_on_their_way_ = slots_.drawn();
    }
    log_answer(options_, error ? LogLevel::error : LogLevel::info, error ? "an answer failed" : "", &result);
    generation->finish(std::move(result), std::move(error));
  }

  ComputePool* pool_;
  data::Tokenizer const& tokenizer_;
  ServiceOptions options_;
  Decoder decoder_;
  SlotDrafters drafters_;
  Slots slots_;  // the thread's alone
  std::once_flag vocabulary_made_;
  std::optional<GrammarVocabulary> vocabulary_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  RequestQueue waiting_;
  std::vector<std::string> forgotten_;  // sessions
  std::vector<std::shared_ptr<std::packaged_task<void(Decoder&, Slots&)>>> tasks_;
  ServiceStatus status_;
  std::int64_t tokens_on_their_way_ = 0;
  double busy_seconds_ = 0;  // the thread's alone, as the next
  std::vector<std::shared_ptr<Generation>> ended_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace tutti::infer

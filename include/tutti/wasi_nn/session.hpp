// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Conversations: what they remember, whose turn it is, and text on its way to the guest.

#include <tutti/data/chat_template.hpp>
#include <tutti/wasi_nn/document.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/model.hpp>
#include <tutti/wasi_nn/rules.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

/// A loaded model as one instance sees it.
struct Graph {
  std::shared_ptr<Model> model;
  Settings settings;     ///< of backend and model
  Document limits{};     ///< of the host
  std::string device{};  ///< where it runs, of what was found
};

/// What a conversation remembers.
struct Session {
  std::string name;        ///< of the cache: no two instances have the same
  std::mutex mutex;        ///< of all that follows
  bool answering = false;  ///< one answer at a time
  std::vector<data::ChatMessage> messages;
  Pace pace;
  std::chrono::steady_clock::time_point used = std::chrono::steady_clock::now();
  bool gone = false;  ///< given up
};

/// The tokens of a prompt. With a chat template, the conversation so far comes first; where it fills the context and
/// shifting is on, its oldest turns are dropped from `history` until it fills half.
inline std::vector<std::int32_t> encode_conversation(Model const& model, std::optional<data::ChatTemplate> const& chat,
                                                     std::string_view text, Settings const& s,
                                                     std::vector<data::ChatMessage>& history) {
  data::Tokenizer const& tokenizer = model.tokenizer();
  if (!chat) {
    auto ids = tokenizer.encode_complete(text);
    infer::begin_text(ids, tokenizer);  // where the vocabulary has none of its bytes
    return ids;
  }
  auto most = static_cast<std::size_t>(model.settings().n_ctx);
  for (;;) {
    std::vector<data::ChatMessage> messages = history;
    if (!s.system_prompt.empty()) messages.insert(messages.begin(), {"system", s.system_prompt});
    messages.push_back({"user", std::string(text)});
    auto ids = tokenizer.encode_complete(data::render_chat(*chat, messages), data::Marks::as_tokens);
    if (!s.context_shifting || ids.size() < most || history.empty()) return ids;
    most = static_cast<std::size_t>(model.settings().n_ctx) / 2;
    std::size_t const gone = std::min(history.size(), std::max<std::size_t>(1, history.size() / 8) * 2);
    history.erase(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(gone));
  }
}

/// Errors: Failure, invalid_argument (empty), prompt_too_long for more than 64 bytes a token of the context.
inline void check_prompt(Model const& model, std::string_view text) {
  if (text.empty()) throw Failure(Code::invalid_argument, "the prompt is empty");
  auto const context = static_cast<std::size_t>(model.settings().n_ctx);
  if (text.size() > 64 * context)
    throw Failure(Code::prompt_too_long,
                  concat("the prompt has ", text.size(), " bytes, and the context ", context, " tokens"));
}
/// The template of a conversation; none where prompts go in as they are.
inline std::optional<data::ChatTemplate> chat_of(Model const& model, Settings const& s) {
  if (s.chat_template == "none") return std::nullopt;
  if (s.chat_template == "auto") return data::recognise_chat_template(model.chat_template());
  return data::choose_chat_template({}, s.chat_template);
}

/// The right to answer in a session.
class Turn {
 public:
  Turn() = default;
  /// Errors: Failure, busy (another answers), not_found (it was given up).
  explicit Turn(std::shared_ptr<Session> session) {
    std::lock_guard const guard(session->mutex);
    if (session->gone)
      throw Failure(Code::not_found, "the session was given up: it was idle for too long, or there were too many");
    if (session->answering) throw Failure(Code::busy, "another context answers in this session");
    session->answering = true;
    session->used = std::chrono::steady_clock::now();
    session_ = std::move(session);
  }
  Turn(Turn&& other) noexcept : session_(std::move(other.session_)) {}
  Turn& operator=(Turn&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~Turn() {
    if (!session_) return;
    std::lock_guard const guard(session_->mutex);
    session_->answering = false;
  }

 private:
  std::shared_ptr<Session> session_;
};

/// The right to work with a context. Errors: Failure, busy.
class Busy {
 public:
  explicit Busy(std::mutex& working) : lock_(working, std::try_to_lock) {
    if (!lock_) throw Failure(Code::busy, "another call is at work with this context");
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Pieces of text on their way from the service's thread to the guest.
class Pieces {
 public:
  void push(std::string_view piece) {
    std::lock_guard const guard(mutex_);
    waiting_.emplace_back(piece);
    changed_.notify_all();
  }
  /// Whether so many wait for the guest.
  bool holds(std::size_t most) const {
    std::lock_guard const guard(mutex_);
    return waiting_.size() >= most;
  }
  /// Since the guest took the last one.
  std::chrono::steady_clock::duration idle() const {
    std::lock_guard const guard(mutex_);
    return std::chrono::steady_clock::now() - taken_;
  }
  void close() {
    std::lock_guard const guard(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  /// Blocking. Nothing: there are no more.
  std::optional<std::string> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    taken_ = std::chrono::steady_clock::now();
    if (waiting_.empty()) return std::nullopt;
    std::string piece = std::move(waiting_.front());
    waiting_.pop_front();
    return piece;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point taken_ = std::chrono::steady_clock::now();
  std::deque<std::string> waiting_;
  bool closed_ = false;
};

}  // namespace tutti::wasi_nn

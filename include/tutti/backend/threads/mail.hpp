// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages of ranks that are threads, as one rank sees them: what it has in flight, and which receive gets what comes.
/// Small ones travel through the receiver's ring, others as letters, of which large ones are copied once, by the
/// receiver, out of the sender's buffer.

#include <tutti/backend/threads/group.hpp>
#include <tutti/comm/shared/copy.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/core/shared.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::threads {

/// A message in flight, on the side of one rank.
struct MessageState {
  enum Type : std::uint8_t { send, receive };
  Type type = send;
  bool complete = false;
  Shared<Letter> letter;
  void* to = nullptr;
  std::int64_t bytes = 0;
  int peer = 0;
  comm::Channel channel = comm::Channel::user;
  MessageInfo info;
};

/// What is sent, and by whom.
struct Outgoing {
  int source;
  int tag;
  comm::Channel channel;
  DType dtype;
  void const* data;
  std::int64_t bytes;
};

template <class = void>
class BasicMail {
 public:
  using State = MessageState;

  explicit BasicMail(Mailbox& own) noexcept : own_(&own) {}

  /// Whether it could be sent in a slot, and was.
  static bool send_at_once(Mailbox& box, Outgoing const& message) noexcept {
    if (message.bytes > comm::shared::MessageSlot::inline_bytes || box.late_count.load(std::memory_order_acquire) != 0)
      return false;
    std::uint64_t const number = box.ring.claim();
    if (number == comm::shared::MessageRing::full) return false;
    comm::shared::MessageSlot& slot = box.ring.slot(number);
    slot.bytes = message.bytes;
    slot.source = message.source;
    slot.tag = message.tag;
    slot.dtype = message.dtype;
    slot.channel = message.channel;
    comm::shared::copy_shared(slot.contents, message.data, message.bytes);
    box.ring.commit(number);
    return true;
  }
  /// Whether the next message is there, is of this size and type, is for nobody else, and was received.
  bool receive_at_once(void* to, std::int64_t bytes, DType dtype, int from, int tag, MessageInfo& info) noexcept {
    Mailbox& box = *own_;
    if (busy() || !box.waiting.empty()) return false;
    comm::shared::MessageSlot const* const slot = box.ring.next();
    if (slot == nullptr || box.late_count.load(std::memory_order_acquire) != 0 || slot->bytes != bytes ||
        slot->dtype != dtype || !fits(*slot, from, tag, comm::Channel::user))
      return false;
    comm::shared::copy_shared(to, slot->contents, bytes);
    info = info_of(*slot);
    box.ring.pop();
    return true;
  }
  /// Null when the message is on its way, and its memory the sender's again.
  State* send(Mailbox& box, Outgoing const& message) {
    if (send_at_once(box, message)) return nullptr;
    auto letter = make_shared_owner<Letter>();
    letter->source = message.source;
    letter->tag = message.tag;
    letter->channel = message.channel;
    letter->bytes = message.bytes;
    letter->dtype = message.dtype;
    letter->data = message.data;
    bool const eager = message.bytes <= eager_bytes;
    if (eager) letter->keep(message.data);
    {
      Guard const guard(box.mutex);
      box.late.push_back({letter, box.ring.claimed()});
      box.late_count.store(static_cast<std::uint32_t>(box.late.size()), std::memory_order_release);
    }
    if (eager) return nullptr;
    State& state = take(State::send);
    state.letter = std::move(letter);
    return &state;
  }

  State& take(State::Type type) {
    if (free_.empty()) {
      states_.push_back(make_owner<State>());
      free_.push_back(states_.back().get());
      active_.reserve(states_.size());
    }
    State& state = *free_.back();
    free_.pop_back();
    state.type = type;
    state.complete = false;
    active_.push_back(&state);
    return state;
  }
  void recycle(State& state) noexcept {
    state.letter = nullptr;
    free_.push_back(&state);
  }
  /// Of one that may not be complete.
  void give_up(State& state) noexcept {
    active_.erase_if([&](State const* other) { return other == &state; });
    recycle(state);
  }
  bool busy() const noexcept { return !active_.empty(); }

  /// Moves on all messages in flight, in the order in which they were started.
  void progress() {
    look();
    bool changed = false;
    for (State* state : active_) {
      changed |= state->complete;
      if (state->complete || state->letter == nullptr) continue;
      state->complete = state->type == State::send
                            ? state->letter->state.load(std::memory_order_acquire) == Letter::delivered
                            : deliver(*state);
      changed |= state->complete;
    }
    if (changed) active_.erase_if([](State const* state) { return state->complete; });
  }
  /// Of a letter, or of what is in a slot.
  template <class Envelope>
  static MessageInfo info_of(Envelope const& envelope) noexcept {
    return {envelope.source, envelope.tag, envelope.bytes, true, envelope.dtype};
  }
  template <class Envelope>
  static bool fits(Envelope const& envelope, int from, int tag, comm::Channel channel) noexcept {
    return envelope.channel == channel && (from < 0 || envelope.source == from) && (tag < 0 || envelope.tag == tag);
  }
  /// Takes what waits.
  Shared<Letter> find(int from, int tag, comm::Channel channel) {
    List<Shared<Letter>>& letters = own_->waiting;
    Shared<Letter> found;
    for (std::size_t i = 0; i < letters.size();) {
      Letter const& letter = *letters[i];
      bool const withdrawn = letter.state.load(std::memory_order_relaxed) == Letter::withdrawn;
      bool const wanted = !withdrawn && fits(letter, from, tag, channel);
      if (wanted) found = letters[i];
      if (wanted || withdrawn) letters.erase(i);
      else ++i;
      if (wanted) break;
    }
    return found;
  }
  /// The receive that gets a message: of those that fit, the one that was started first; null when there is none.
  template <class Envelope>
  State* receiver_of(Envelope const& envelope) noexcept {
    for (State* state : active_)
      if (state->type == State::receive && !state->complete && state->letter == nullptr &&
          fits(envelope, state->peer, state->info.tag, state->channel))
        return state;
    return nullptr;
  }
  /// Takes in what has come since the last time. False when something is left that cannot be taken yet, because another
  /// rank is about to finish what it wrote before it.
  bool look() {
    Mailbox& box = *own_;
    while (comm::shared::MessageSlot const* const slot = box.ring.next()) {
      if (State* const state = receiver_of(*slot)) {
        comm::shared::copy_shared(state->to, slot->contents, std::min(slot->bytes, state->bytes));
        state->info = info_of(*slot);
        state->complete = true;
      } else {
        set_aside(*slot);
      }
      box.ring.pop();
    }
    return box.late_count.load(std::memory_order_acquire) == 0 || take_late(box);
  }
  void set_aside(comm::shared::MessageSlot const& slot) {
    auto letter = make_shared_owner<Letter>();
    letter->source = slot.source;
    letter->tag = slot.tag;
    letter->channel = slot.channel;
    letter->bytes = slot.bytes;
    letter->dtype = slot.dtype;
    letter->keep(slot.contents);
    own_->waiting.push_back(std::move(letter));
  }
  bool take_late(Mailbox& box) {
    Guard const guard(box.mutex);
    std::size_t taken = 0;
    for (; taken < box.late.size() && box.late[taken].after <= box.ring.taken(); ++taken) {
      Shared<Letter>& letter = box.late[taken].letter;
      if (letter->state.load(std::memory_order_relaxed) == Letter::withdrawn) continue;
      if (State* const state = receiver_of(*letter)) state->letter = std::move(letter);
      else box.waiting.push_back(std::move(letter));
    }
    std::size_t index = 0;
    box.late.erase_if([&](Mailbox::Late const&) { return index++ < taken; });
    box.late_count.store(static_cast<std::uint32_t>(box.late.size()), std::memory_order_release);
    return box.late.empty();
  }
  /// Copies a matched letter. True also for one of another size, which the caller learns from the info.
  bool deliver(State& state) {
    Letter& letter = *state.letter;
    std::uint32_t expected = Letter::posted;
    if (!letter.state.compare_exchange_strong(expected, Letter::copying))
      throw Error(ErrorKind::communication, "recv", concat("rank ", letter.source, " gave up its send"));
    comm::shared::copy_shared(state.to, letter.data, std::min(letter.bytes, state.bytes));
    state.info = info_of(letter);
    letter.state.store(Letter::delivered, std::memory_order_release);
    return true;
  }

  List<MessageInfo> unreceived() const {
    List<MessageInfo> found;
    Mailbox& box = *own_;
    auto const note = [&](Letter const& letter) {
      if (letter.channel == comm::Channel::user && letter.state.load() == Letter::posted)
        found.push_back(info_of(letter));
    };
    for (auto const& letter : box.waiting) note(*letter);
    box.ring.visit([&](comm::shared::MessageSlot const& slot) {
      if (slot.channel == comm::Channel::user) found.push_back(info_of(slot));
    });
    Guard const guard(box.mutex);
    for (auto const& late : box.late) note(*late.letter);
    return found;
  }

 private:
  static constexpr std::int64_t eager_bytes = 4096;

  Mailbox* own_;
  List<Owner<State>> states_;
  List<State*> free_;
  List<State*> active_;
};
using Mail = BasicMail<>;

}  // namespace tutti::threads

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages of ranks that are processes of one node. Small ones travel in their receiver's ring; others in a parcel,
/// memory of the sender that the receiver reaches, and are sent when they are in it. Large ones stay where they are
/// until their receiver has read them there; where the system does not let it, they pass through their parcel. Whatever
/// the way, all of a pair of ranks are received in order.

#include <tutti/comm/shared/board.hpp>
#include <tutti/comm/shared/copy.hpp>
#include <tutti/comm/shared/parcel.hpp>
#include <tutti/comm/shared/parcels.hpp>
#include <tutti/comm/shared/transfer.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tutti::comm::shared {

/// A rank's end. `Memory`: see Parcels, and origin(), of this process for the others. Used by one thread at a time.
template <class Memory>
class Messages {
 public:
  /// `mailboxes`: of all ranks, at the same place of everybody's memory.
  Messages(Memory& memory, Board const& board, Mailbox* mailboxes, int rank)
      : parcels_(memory),
        board_(board),
        mailboxes_(mailboxes),
        rank_(rank),
        own_(mailboxes[rank]),
        origin_(memory.origin()),
        reader_(board.size()) {}
  Messages(Messages const&) = delete;
  Messages& operator=(Messages const&) = delete;
  ~Messages() {
    for (Transfer* transfer : active_) drop(*transfer);
    for (Owner<Letter> const& letter : waiting_)
      if (letter->parcel != nullptr) std::exchange(letter->parcel, nullptr)->forsake();
    own_.ring.visit([&](MessageSlot const& slot) {
      if (slot.bytes > MessageSlot::inline_bytes) parcel_at(Mailbox::place_in(slot)).forsake();
    });
    take_late();
    for (Parcel* parcel : late_) parcel->forsake();
  }

  /// As Engine's.
  void wake_others(bool wakes) noexcept { wakes_ = wakes; }
  /// Whether it could be sent in a slot, and was.
  bool send_at_once(void const* from, std::int64_t bytes, DType dtype, int to, int tag, Channel channel) noexcept {
    return bytes <= MessageSlot::inline_bytes && unposted_ == 0 && put(from, bytes, dtype, to, tag, channel) &&
           tell(to);
  }
  /// Whether the next message is there, fits and is `wanted(slot)`, and was received.
  template <class Wanted>
  bool receive_at_once(void* to, int from, int tag, Channel channel, MessageInfo& info, Wanted&& wanted) noexcept {
    if (!waiting_.empty() || !active_.empty() || !late_.empty()) return false;
    MessageSlot const* const slot = own_.ring.next();
    if (slot == nullptr || own_.has_late() || slot->bytes > MessageSlot::inline_bytes ||
        !fits(*slot, from, tag, channel) || !wanted(*slot))
      return false;
    copy_shared(to, slot->contents, slot->bytes);
    info = info_of(*slot);
    own_.ring.pop();
    return true;
  }
  /// Null when `from` may be used again.
  /// Errors     out_of_memory, where there has never been any for messages that do not fit a slot.
  Transfer* send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, Channel channel) {
    if (send_at_once(from, bytes, dtype, to, tag, channel)) return nullptr;
    Transfer& transfer = make();
    transfer.sends = true;
    transfer.channel = channel;
    transfer.dtype = dtype;
    transfer.from = from;
    transfer.bytes = bytes;
    transfer.peer = to;
    transfer.tag = tag;
    ++unposted_;
    active_.push_back(&transfer);
    try {
      advance(transfer);
    } catch (...) {
      abandon(transfer);
      throw;
    }
    if (!transfer.complete) return &transfer;
    forget(transfer);
    return nullptr;
  }
  /// Null when it has come: then `info` tells of it. A message that is longer than the buffer fills it.
  Transfer* receive(void* to, std::int64_t bytes, int from, int tag, Channel channel, MessageInfo& info) {
    if (receive_at_once(to, from, tag, channel, info, [&](MessageSlot const& slot) { return slot.bytes <= bytes; }))
      return nullptr;
    if (Owner<Letter> letter = take(from, tag, channel)) return receive(std::move(letter), to, bytes);
    Transfer& transfer = make();
    transfer.channel = channel;
    transfer.to = to;
    transfer.bytes = bytes;
    transfer.peer = from;
    transfer.tag = tag;
    active_.push_back(&transfer);
    return &transfer;
  }
  Transfer* receive(Owner<Letter> letter, void* to, std::int64_t bytes) {
    Transfer& transfer = make();
    transfer.channel = letter->channel;
    transfer.to = to;
    transfer.bytes = bytes;
    transfer.peer = letter->source;
    transfer.tag = letter->tag;
    active_.push_back(&transfer);
    transfer.info = info_of(*letter);
    transfer.parcel = letter->parcel;
    letter->parcel = nullptr;
    if (transfer.parcel == nullptr) {
      copy_shared(to, letter->copy.data(), letter->bytes < bytes ? letter->bytes : bytes);
      transfer.complete = true;
    }
    return &transfer;
  }

  /// Takes a message that is there and that no receive waits for. Null when there is none.
  Owner<Letter> match(int from, int tag) {
    look();
    return take(from, tag, Channel::user);
  }

  /// Of a complete one, which is then gone; `info` tells what came.
  /// Errors     communication: the sender gave its message up.
  void finish(Transfer& transfer, MessageInfo& info) {
    bool const refused = transfer.refused;
    if (!transfer.sends) info = transfer.info;
    forget(transfer);
    if (refused)
      throw Error(ErrorKind::communication, "recv", concat("rank ", info.source, " gave up its send"));
  }
  bool busy() const noexcept { return !active_.empty(); }
  /// Moves on all messages under way, in the order in which they were started.
  void progress() {
    look();
    for (Transfer* transfer : active_)
      if (!transfer->complete) advance(*transfer);
  }
  /// Takes in what has come. False when something is left that cannot be taken yet, because another rank is about to
  /// finish what it wrote before it.
  bool look() {
    for (;;) {
      MessageSlot const* const slot = own_.ring.next();
      if (own_.has_late()) take_late();  // what is late of the slot's source came before it, and is here now
      if (!late_.empty())
        late_.erase_if([&](Parcel* parcel) {
          if (parcel->after > own_.ring.taken()) return false;
          accept(*parcel, parcel, nullptr);
          return true;
        });
      if (slot == nullptr) return late_.empty();
      if (slot->bytes <= MessageSlot::inline_bytes) accept(*slot, nullptr, slot->contents);
      else accept(*slot, &parcel_at(Mailbox::place_in(*slot)), nullptr);
      own_.ring.pop();
    }
  }

  /// Of a send: nobody takes the message from now on. Complete where somebody has it.
  void withdraw(Transfer& transfer) noexcept {
    if (transfer.sends && transfer.posted && !transfer.complete && transfer.parcel->is_offered())
      transfer.complete = !transfer.parcel->give_up();
  }
  /// Gives a transfer up: nobody touches its memory any more.
  void abandon(Transfer& transfer) noexcept {
    drop(transfer);
    forget(transfer);
  }
  /// The same of a receive, unless its message has come.
  bool cancel(Transfer& transfer) {
    if (!transfer.complete) progress();
    if (transfer.complete || transfer.parcel != nullptr || transfer.sends) return false;
    abandon(transfer);
    return true;
  }
  /// Whether no receive that was started before this one takes what it takes.
  bool is_first(Transfer const& transfer) const noexcept {
    auto const overlap = [](int a, int b) { return a < 0 || b < 0 || a == b; };
    for (Transfer const* other : active_) {
      if (other == &transfer) break;
      if (!other->sends && !other->complete && other->parcel == nullptr && other->channel == transfer.channel &&
          overlap(other->peer, transfer.peer) && overlap(other->tag, transfer.tag))
        return false;
    }
    return true;
  }
  /// Of a receive whose message has begun to come its source, else the peer.
  static int partner(Transfer const& transfer) noexcept {
    return transfer.parcel != nullptr && !transfer.sends ? transfer.info.source : transfer.peer;
  }

  /// What has come that no receive takes which was started.
  void list(List<MessageInfo>& found) const {
    auto const note = [&](auto const& message) {
      if (message.channel == Channel::user) found.push_back(info_of(message));
    };
    for (Owner<Letter> const& letter : waiting_) note(*letter);
    for (Parcel const* parcel : late_) note(*parcel);
    own_.ring.visit([&](MessageSlot const& slot) { note(slot); });
  }

 private:
  Parcel& parcel_at(std::uint64_t place) const noexcept {
    return *std::launder(reinterpret_cast<Parcel*>(board_.address(place)));
  }
  Transfer& make() {
    if (free_.empty()) {
      transfers_.push_back(make_owner<Transfer>());
      active_.reserve(transfers_.size());
      free_.reserve(transfers_.size());
      free_.push_back(transfers_.back().get());
    }
    Transfer& transfer = *free_.back();
    free_.pop_back();
    transfer = {};
    return transfer;
  }

  void forget(Transfer& transfer) noexcept {
    active_.erase_if([&](Transfer const* other) { return other == &transfer; });
    free_.push_back(&transfer);
  }

  // --- Sending ---

  /// In a slot of the receiver's ring, unless it is full.
  bool put(void const* from, std::int64_t bytes, DType dtype, int to, int tag, Channel channel) noexcept {
    MessageRing& ring = mailboxes_[to].ring;
    std::uint64_t const number = ring.claim();
    if (number == MessageRing::full) return false;
    MessageSlot& slot = ring.slot(number);
    head(slot, bytes, dtype, tag, channel);
    copy_shared(slot.contents, from, bytes);
    ring.commit(number);
    return true;
  }
  /// Wakes a rank that waits for what has just been made visible (Bell). True, for calls that end with it.
  bool tell(int rank) const noexcept { return !wakes_ || wake(rank); }
  [[gnu::noinline]] bool wake(int rank) const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    board_.status(rank).bell.ring_for_message();
    return true;
  }
  template <class Head>
  void head(Head& head, std::int64_t bytes, DType dtype, int tag, Channel channel) const noexcept {
    head.bytes = bytes;
    head.source = rank_;
    head.tag = tag;
    head.dtype = dtype;
    head.channel = channel;
  }
  /// Has the receiver find it. False while there is no memory for it, or while it must come behind another one.
  bool post(Transfer& t) {
    for (Transfer const* other : active_) {
      if (other == &t) break;
      if (other->sends && !other->posted && !other->complete && other->peer == t.peer) return false;
    }
    bool const small = t.bytes <= MessageSlot::inline_bytes;
    if (small && put(t.from, t.bytes, t.dtype, t.peer, t.tag, t.channel)) {
      t.complete = true;
      return tell(t.peer);
    }
    bool const offers = t.bytes > Parcels<Memory>::largest && offers_;
    t.parcel = parcels_.allocate(offers ? 0 : t.bytes);
    if (t.parcel == nullptr) return false;
    t.parcel->begin(offers);
    auto const address = [](void const* p) { return std::uint64_t{reinterpret_cast<std::uintptr_t>(p)}; };
    if (offers) t.parcel->where = {board_.place(t.from), address(t.from), origin_};
    head(*t.parcel, t.bytes, t.dtype, t.tag, t.channel);
    Mailbox& box = mailboxes_[t.peer];
    std::uint64_t const place = board_.place(t.parcel);
    std::uint64_t const number = small ? MessageRing::full : box.ring.claim();
    if (number == MessageRing::full) {
      box.add_late(*t.parcel, place);
      return tell(t.peer);
    }
    MessageSlot& slot = box.ring.slot(number);
    head(slot, t.bytes, t.dtype, t.tag, t.channel);
    Mailbox::tell_place(slot, place);
    box.ring.commit(number);
    return tell(t.peer);
  }

  // --- Receiving ---

  void take_late() {
    std::size_t const first = late_.size();
    for (std::uint64_t place = own_.take_late(); place != 0; place = late_.back()->before)
      late_.push_back(&parcel_at(place));
    for (std::size_t i = first, j = late_.size(); i + 1 < j; ++i) std::swap(late_[i], late_[--j]);
  }
  /// To the first receive that takes it, or among those that wait: a parcel, or contents.
  template <class Head>
  void accept(Head const& head, Parcel* parcel, void const* contents) {
    if (parcel != nullptr && parcel->is_given_up()) return parcel->let_go();
    for (Transfer* t : active_) {
      if (t->sends || t->complete || t->parcel != nullptr || !fits(head, t->peer, t->tag, t->channel)) continue;
      t->info = info_of(head);
      t->parcel = parcel;
      if (contents != nullptr) {
        copy_shared(t->to, contents, head.bytes < t->bytes ? head.bytes : t->bytes);
        t->complete = true;
      }
      return;
    }
    auto letter = make_owner<Letter>();
    letter->bytes = head.bytes;
    letter->source = head.source;
    letter->tag = head.tag;
    letter->dtype = head.dtype;
    letter->channel = head.channel;
    if (contents != nullptr && head.bytes != 0) {
      letter->copy = Array<std::byte>(static_cast<std::size_t>(head.bytes));
      copy_shared(letter->copy.data(), contents, head.bytes);
    }
    letter->parcel = parcel;
    waiting_.push_back(std::move(letter));
  }
  /// Of what waits.
  Owner<Letter> take(int from, int tag, Channel channel) {
    Owner<Letter> found;
    for (std::size_t i = 0; i < waiting_.size();) {
      Letter const& letter = *waiting_[i];
      bool const lost = letter.parcel != nullptr && letter.parcel->is_given_up();
      bool const wanted = !lost && fits(letter, from, tag, channel);
      if (wanted) found = std::move(waiting_[i]);
      if (wanted || lost) waiting_.erase(i);
      else ++i;
      if (wanted) break;
    }
    return found;
  }

  void advance(Transfer& t) {
    if (t.sends) {
      if (!t.posted) {
        if (!post(t)) return;
        t.posted = true;
        --unposted_;
      }
      if (!t.complete && t.parcel->fill(t.from)) {
        t.complete = true;
        tell(t.peer);
      }
      offers_ = offers_ && (t.bytes <= Parcels<Memory>::largest || t.complete || t.parcel->is_offered());
    } else if (t.parcel != nullptr) {
      t.refused = t.parcel->is_given_up();
      t.complete = t.refused ||
                   (t.parcel->is_offered() ? read_offered(t, board_, reader_) : t.parcel->empty(t.to, t.bytes, t.at));
      if (!t.complete) return;
      std::exchange(t.parcel, nullptr)->let_go();
      tell(t.info.source);
    }
  }
  void drop(Transfer& t) noexcept {
    if (t.sends && !t.posted) --unposted_;
    if (t.parcel == nullptr || t.complete) return;
    if (t.sends) static_cast<void>(t.parcel->give_up());
    else t.parcel->let_go();
  }

  Parcels<Memory> parcels_;
  Board board_;
  Mailbox* mailboxes_;
  int rank_;
  Mailbox& own_;
  Origin origin_;
  RemoteReader reader_;
  bool offers_ = true;  // until a receiver cannot read what was offered
  bool wakes_ = false;
  int unposted_ = 0;
  List<Owner<Letter>> waiting_;
  List<Parcel*> late_;  // that the ring must come to first
  List<Owner<Transfer>> transfers_;
  List<Transfer*> free_;
  List<Transfer*> active_;
};

}  // namespace tutti::comm::shared

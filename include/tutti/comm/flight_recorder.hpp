// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `FlightRecorder`: the last operations of a rank on one communicator, always on. Two reads of the processor's counter
/// and one cache line an operation; flight_dump.hpp makes JSON of it.

#include <tutti/core/concat.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/config.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/wait.hpp>

#include <cstdint>
#include <ctime>
#include <source_location>
#include <string>
#include <utility>

namespace tutti {

/// One operation.
struct FlightRecord {
  enum class What : std::uint8_t { collective, send, recv, probe, match };
  enum class State : std::uint8_t { started, completed, failed, refused };  // refused: before it began

  std::int64_t begin = 0;     ///< nanoseconds since 1970
  std::int64_t end = 0;       ///< the same; 0 while it is started
  std::uint64_t number = 0;   ///< of a collective: the same on all ranks; of a message: counted by this rank
  std::int64_t count = 0;     ///< of a collective, see `Collective`; bytes of a message, -1 where only the sender knows
  char const* file = "";      ///< of the call
  std::uint32_t line = 0;
  std::int32_t peer = -1;     ///< root of a collective, partner of a message; -1 where there is none, or any
  std::int32_t tag = -1;      ///< of a message; -1 for any
  std::int32_t element_bytes = 1;
  What what = What::collective;
  comm::Kind kind = comm::Kind::barrier;  ///< of a collective, as are the next two
  DType dtype = DType::byte;
  Operator op = Operator::sum;
  State state = State::started;

  std::int64_t bytes() const noexcept { return count < 0 ? -1 : count * element_bytes; }
};

/// Written by the rank's thread alone, without locks. Anybody may read: what is overwritten meanwhile is left out.
class FlightRecorder {
 public:
  using What = FlightRecord::What;
  using State = FlightRecord::State;
  /// An operation under way; default constructed none.
  using Ticket = std::uint64_t;
  static constexpr Ticket no_ticket = ~Ticket{0};
  static constexpr std::size_t default_slots = 256;

  /// Whose it is, and where a dump goes: PREFIX.rank3.json of the first communicator, PREFIX.world-5-0.rank1.json of
  /// those that come from it. An empty prefix: nowhere.
  struct Identity {
    int rank = 0;
    int size = 1;
    std::string communicator = "world";
    int world_rank = -1;  ///< rank on the first communicator; -1: the same
    std::string prefix = "";
  };

  /// Requires   a number of slots that is a power of two.
  template <class = void>
  explicit FlightRecorder(Identity identity, std::size_t slots = default_slots)
      : identity_(std::move(identity)), records_(slots), mask_(slots - 1), first_(Anchor::now()) {
    if (identity_.world_rank < 0) identity_.world_rank = identity_.rank;
    if (!identity_.prefix.empty())
      path_ = concat(identity_.prefix, identity_.communicator == "world" ? "" : concat(".", identity_.communicator),
                     ".rank", identity_.rank, ".json");
  }
  FlightRecorder(FlightRecorder const&) = delete;
  FlightRecorder& operator=(FlightRecorder const&) = delete;

  /// The time stamp counter runs at one rate whatever the processor does, so two anchors give the rest.
  static std::int64_t ticks_now() noexcept {
#if TUTTI_HAS_X86
    return static_cast<std::int64_t>(__builtin_ia32_rdtsc());
#else
    return exec::now_ns();
#endif
  }
  template <class = void>
  Ticket begin(comm::Collective const& call, std::uint64_t number) noexcept {
    FlightRecord& record = open(What::collective, number, call.count, call.root, call.where);
    put(record.kind, call.kind);
    put(record.dtype, call.dtype);
    put(record.op, call.reduction.op);
    put(record.element_bytes, static_cast<std::int32_t>(call.element_bytes()));
    return publish();
  }
  template <class = void>
  Ticket begin(What what, std::int64_t bytes, int peer, int tag, std::source_location where,
               std::int64_t moment = ticks_now()) noexcept {
    FlightRecord& record = open(what, messages_++, bytes, peer, where, moment);
    put(record.tag, std::int32_t{tag});
    put(record.element_bytes, 1);
    return publish();
  }
  /// Of a message that is complete: begin and end are one moment.
  template <class = void>
  void record(What what, std::int64_t bytes, int peer, int tag, std::source_location where) noexcept {
    std::int64_t const moment = ticks_now();
    close(begin(what, bytes, peer, tag, where, moment), State::completed, moment);
  }
  /// Of an operation that is no longer kept, or has ended before, nothing happens.
  template <class = void>
  void complete(Ticket ticket) noexcept { close(ticket, State::completed); }
  template <class = void>
  void complete_at(Ticket ticket, std::int64_t moment) noexcept {
    close(ticket, State::completed, moment);
  }
  /// Both at one moment.
  template <class = void>
  void complete(Ticket one, Ticket other) noexcept {
    std::int64_t const moment = ticks_now();
    close(one, State::completed, moment);
    close(other, State::completed, moment);
  }
  template <class = void>
  void fail(Ticket ticket) noexcept { close(ticket, State::failed); }
  template <class = void>
  void refuse(Ticket ticket) noexcept { close(ticket, State::refused); }
  /// What a message turned out to hold.
  template <class = void>
  void set_bytes(Ticket ticket, std::int64_t bytes) noexcept {
    if (kept(ticket)) put(at(ticket).count, bytes);
  }

  Identity const& identity() const noexcept { return identity_; }
  /// File of a dump; empty: none was asked for.
  std::string const& path() const noexcept { return path_; }
  /// How many operations are kept: the slots but for one, which is the next operation's.
  std::size_t capacity() const noexcept { return mask_; }
  /// Operations since the communicator was made, kept or not.
  std::uint64_t operations() const noexcept { return __atomic_load_n(&count_, __ATOMIC_ACQUIRE); }

  /// The last operations, oldest first.
  template <class = void>
  List<FlightRecord> records() const {
    List<FlightRecord> result;
    visit([&](FlightRecord const& record) { result.push_back(record); });
    return result;
  }
  /// Calls f(record) for each of them, without locks or memory of its own: also in a signal handler.
  template <class F>
  void visit(F&& f) const {
    Anchor const last = Anchor::now();
    std::uint64_t const end = operations();
    for (Ticket i = end > capacity() ? end - capacity() : 0; i < end; ++i) {
      FlightRecord record = copy(at(i));
      if (operations() - i > capacity()) continue;  // its slot may be another's by now
      record.begin = nanoseconds(record.begin, last);
      if (record.end != 0) record.end = nanoseconds(record.end, last);
      f(record);
    }
  }

 private:
  /// The same moment on the counter, on the clock that never jumps, and on the calendar's.
  struct Anchor {
    std::int64_t ticks, monotonic, calendar;
    static Anchor now() noexcept {
      timespec time{};
      ::clock_gettime(CLOCK_REALTIME, &time);
      return {ticks_now(), exec::now_ns(), std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
    }
  };
  template <class = void>
  std::int64_t nanoseconds(std::int64_t ticks, Anchor const& last) const noexcept {
    double const rate = last.ticks == first_.ticks ? 1
                                                   : static_cast<double>(last.monotonic - first_.monotonic) /
                                                         static_cast<double>(last.ticks - first_.ticks);
    return last.calendar - static_cast<std::int64_t>(static_cast<double>(last.ticks - ticks) * rate);
  }

  // Another thread or a signal handler may watch. In order, so that who sees a part of the operation that takes a slot
  // over also sees that the former one's time is over; on x86 these are plain moves.
  template <class T>
  static void put(T& field, T value) noexcept {
    __atomic_store(&field, &value, __ATOMIC_RELEASE);
  }
  template <class T>
  static T get(T const& field) noexcept {
    T value;
    __atomic_load(&field, &value, __ATOMIC_ACQUIRE);
    return value;
  }
  template <class = void>
  static FlightRecord copy(FlightRecord const& from) noexcept {
    return {get(from.begin), get(from.end),  get(from.number), get(from.count),
            get(from.file),  get(from.line), get(from.peer),   get(from.tag),
            get(from.element_bytes), get(from.what), get(from.kind), get(from.dtype), get(from.op), get(from.state)};
  }

  FlightRecord& at(Ticket ticket) const noexcept { return records_[ticket & mask_]; }
  template <class = void>
  bool kept(Ticket ticket) const noexcept {
    return count_ - ticket <= capacity() && ticket < count_;
  }
  template <class = void>
  FlightRecord& open(What what, std::uint64_t number, std::int64_t count, int peer, std::source_location const& where,
                     std::int64_t moment = ticks_now()) noexcept {
    FlightRecord& record = at(count_);
    put(record.begin, moment);
    put(record.end, std::int64_t{0});
    put(record.number, number);
    put(record.count, count);
    put(record.file, where.file_name());
    put(record.line, std::uint32_t{where.line()});
    put(record.peer, std::int32_t{peer});
    put(record.what, what);
    put(record.state, State::started);
    return record;
  }
  template <class = void>
  Ticket publish() noexcept {
    Ticket const ticket = count_;
    __atomic_store_n(&count_, ticket + 1, __ATOMIC_RELEASE);
    return ticket;
  }
  template <class = void>
  void close(Ticket ticket, State state) noexcept {
    close(ticket, state, ticks_now());
  }
  template <class = void>
  void close(Ticket ticket, State state, std::int64_t moment) noexcept {
    if (!kept(ticket) || at(ticket).state != State::started) return;
    put(at(ticket).end, moment);
    put(at(ticket).state, state);
  }

  Identity identity_;
  std::string path_;
  Array<FlightRecord> records_;
  std::size_t mask_;
  std::uint64_t count_ = 0;
  std::uint64_t messages_ = 0;
  Anchor first_;
};

}  // namespace tutti

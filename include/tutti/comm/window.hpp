// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Window<T, Backend>`: one-sided communication. Every rank offers elements that all ranks read and write without its
/// help, between fences:
///
///     auto histogram = window<std::int64_t>(comm, bins / comm.size());
///     for (auto [owner, at] : hits) histogram.accumulate(1, owner, at);
///     histogram.fence();                                       // all see all
///     use(histogram.part());
///
/// Where the ranks share memory, put and get are copies and a fence is one barrier. Elsewhere what was asked
/// for travels at the fence, in one exchange, and a second one where elements were asked for.

#include <tutti/comm/communicator.hpp>
#include <tutti/comm/window_request.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

namespace tutti {

/// Made by `window<T>(comm, elements)`. Move-only; must not outlive the backend's ranks.
/// Epochs        What is put or added between two fences is there after the second one, on every rank. Inside of an
///               epoch nobody may read or write locally what others write, nor two ranks put into one element: such
///               programs have no defined result, here as in MPI.
/// Determinism   accumulations are made at the fence, in the order of the ranks, each rank's in the order of its calls:
///               the same bits in every run.
/// Ranks         all make windows and fences in one order; put, get and accumulate are local calls.
/// Errors        out_of_range, for elements that the target does not have; invalid_argument, for a rank that does not
///               exist; those of collectives, at the fence.
template <Storable T, Backend B>
class Window {
  static_assert(B::Device::host_accessible, "tutti: a window is memory of the host");
  static_assert(!comm::is_padded<T>, "tutti: elements of a window travel as they are. Order the members of the struct "
                                     "so that there is no padding");

 public:
  using Where = CallSite;

  /// Collective, blocks. This rank offers `elements`, which may differ from rank to rank, zero at first.
  Window(Communicator<B>& ranks, std::int64_t elements, Where where = std::source_location::current())
      : comm_(ranks.duplicate(where)) {
    if (elements < 0)
      throw Error(ErrorKind::shape, "window", concat(elements, " elements. Offer 0 or more"), where)
          .with_rank(comm_.rank());
    auto const sizes = comm_.all_gather(elements, where);
    std::int64_t total = checked_multiply(comm_.size(), sizeof(Counts), where);
    for (std::int64_t const size : sizes) {
      sizes_.push_back(size);
      begins_.push_back(total);
      total = checked_add(total, (checked_multiply(size, sizeof(T), where) + 63) / 64 * 64, where);
    }
    share(static_cast<std::size_t>(total), where);
    if (!shared()) own_ = Tensor<T, Cpu>(Shape{elements});
    auto const mine = part();
    if (mine.size() != 0) std::memset(static_cast<void*>(mine.data()), 0, bytes_of(elements));
    if (shared()) *counts(comm_.rank()) = {};
    requests_.resize(sizes_.size());
    replies_.resize(sizes_.size());
    comm_.barrier(where);  // nobody writes before all is zero
  }
  Window(Window&&) noexcept = default;
  Window& operator=(Window&&) noexcept = default;

  /// This rank's elements, of shape (elements,).
  TensorView<T> part(Where where = std::source_location::current()) const {
    require_here("part", where);
    return {address(comm_.rank()), Shape{sizes_[at(comm_.rank())]}};
  }
  /// How many a rank offers. Errors: invalid_argument.
  std::int64_t size(int rank, Where where = std::source_location::current()) const {
    check_rank("size", rank, where);
    return sizes_[at(rank)];
  }
  /// Whether put and get are copies in memory that the ranks share.
  bool shared() const noexcept { return block_.data() != nullptr; }

  /// Elements [at, at + size of x) of `target` = x, which may be used again at once.
  template <comm::Buffer X>
  void put(X const& x, int target, std::int64_t at = 0, Where where = std::source_location::current()) {
    auto const from = given<X>("put", x, target, at, where);
    if (target == proc_null || from.size() == 0) return;
    if (shared()) std::memcpy(static_cast<void*>(address(target) + at), from.data(), bytes_of(from.size()));
    else ask({Request::put, Operator::none, at, from.size()}, target, from.data());
  }
  void put(T const& value, int target, std::int64_t at = 0, Where where = std::source_location::current()) {
    put(TensorView<T const>(&value, Shape{1}), target, at, where);
  }
  /// x = elements [at, at + size of x) of `target`; there after the fence, until which x is borrowed.
  template <comm::Buffer X>
  void get(X&& x, int target, std::int64_t at = 0, Where where = std::source_location::current()) {
    auto const to = comm::view_of(x);
    static_cast<void>(given<X>("get", to, target, at, where));
    if (target == proc_null || to.size() == 0) return;
    if (shared()) {
      std::memcpy(static_cast<void*>(to.data()), address(target) + at, bytes_of(to.size()));
    } else {
      ask({Request::get, Operator::none, at, to.size()}, target, nullptr);
      answers_.push_back({to.data(), to.size(), target});
    }
  }
  void get(T& value, int target, std::int64_t at = 0, Where where = std::source_location::current()) {
    get(TensorView<T>(&value, Shape{1}), target, at, where);
  }
  /// Elements [at, at + size of x) of `target` = themselves op x, where op is sum, prod, min or max.
  template <comm::Buffer X, class Op = Sum>
  void accumulate(X const& x, int target, std::int64_t at = 0, Op const& = {},
                  Where where = std::source_location::current()) {
    constexpr Operator op = comm::operator_kind<Op>();
    constexpr bool known = op == Operator::sum || op == Operator::prod || op == Operator::min || op == Operator::max;
    static_assert(known, "tutti: windows accumulate by sum, prod, min and max");
    static_assert(comm::reducible<T, Op>(), "tutti: this operator has no meaning for elements of this type");
    auto const from = given<X>("accumulate", x, target, at, where);
    if (target == proc_null || from.size() == 0) return;
    ask({Request::accumulate, op, at, from.size()}, target, from.data());
  }
  template <class Op = Sum>
  void accumulate(T const& value, int target, std::int64_t at = 0, Op const& op = {},
                  Where where = std::source_location::current()) {
    accumulate(TensorView<T const>(&value, Shape{1}), target, at, op, where);
  }

  /// Ends an epoch and begins the next. Collective, blocks.
  void fence(Where where = std::source_location::current()) {
    require_here("fence", where);
    std::int64_t asked[2] = {0, static_cast<std::int64_t>(answers_.size())};  // of all; for elements
    for (auto const& requests : requests_) asked[0] += static_cast<std::int64_t>(requests.size());
    meet(asked, where);
    if (asked[0] == 0) return;
    auto const received = comm::exchange(comm_, requests_, where);
    for (int source = 0; source < received.blocks(); ++source)
      Request::make(received.block(source).elements(), address(comm_.rank()), replies_[at(source)]);
    if (asked[1] != 0) answer(where);
    else comm_.barrier(where);  // nobody reads what is not made yet
    for (auto& requests : requests_) requests.clear();
  }

 private:
  using Request = comm::WindowRequest<T>;
  /// What a rank asks for at a fence, in front of the block; those of the fence before may still be read.
  struct alignas(64) Counts {
    std::int64_t asked[2][2];
  };
  struct Answer {
    T* to;
    std::int64_t count;
    int source;
  };
  static constexpr std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank); }
  static constexpr std::size_t bytes_of(std::int64_t count) noexcept { return Request::bytes_of(count); }
  /// A block for all, made by rank 0; none where the ranks share no memory, or it is full.
  void share([[maybe_unused]] std::size_t bytes, [[maybe_unused]] Where where) {
    if constexpr (comm::SharesBlocks<B>) {
      B& backend = comm_.backend();
      if (!backend.shares_memory()) return;
      struct Made {
        std::uint64_t handle = 0;
        bool there = false;
      } made;
      if (comm_.rank() == 0) {
        block_ = backend.share(bytes, made.handle);
        made.there = block_.data() != nullptr;
      }
      comm_.broadcast(made, 0, where);
      if (made.there && comm_.rank() != 0) block_ = backend.adopt(made.handle, bytes);
    }
  }
  Counts* counts(int rank) const noexcept { return static_cast<Counts*>(const_cast<void*>(block_.data())) + rank; }
  /// Every rank is here, and has the largest of what they ask for.
  void meet(std::int64_t (&asked)[2], Where where) {
    if (!shared()) {
      comm_.all_reduce(asked, max, where);
      return;
    }
    std::size_t const turn = fences_++ % 2;
    std::memcpy(counts(comm_.rank())->asked[turn], asked, sizeof asked);
    comm_.barrier(where);
    for (int rank = 0; rank < comm_.size(); ++rank)
      for (int i = 0; i < 2; ++i) {
        std::int64_t const theirs = counts(rank)->asked[turn][i];
        if (theirs > asked[i]) asked[i] = theirs;
      }
  }
  T* address(int rank) const noexcept {
    if (!shared()) return const_cast<T*>(own_.data());
    return reinterpret_cast<T*>(static_cast<std::byte*>(const_cast<void*>(block_.data())) + begins_[at(rank)]);
  }
  void require_here(char const* operation, Where where) const {
    if (sizes_.empty())
      throw Error(ErrorKind::invalid_argument, operation, "this window was moved from. Use the one that it became",
                  where);
  }
  void check_rank(char const* operation, int rank, Where where) const {
    require_here(operation, where);
    if (rank < 0 || rank >= comm_.size(where))
      throw Error(ErrorKind::invalid_argument, operation,
                  concat("target rank ", comm::rank_text(rank), " does not exist. Ranks are 0 to ", comm_.size() - 1),
                  where)
          .with_rank(comm_.rank());
  }
  /// The elements of a buffer, checked.
  template <class X>
  TensorView<T const> given(char const* operation, auto const& x, int target, std::int64_t begin, Where where) const {
    static_assert(std::is_same_v<comm::ValueOf<X>, T>, "tutti: the buffer has other elements than the window");
    TensorView<T const> const view = comm::view_of(x);
    if (target == proc_null) return view;
    check_rank(operation, target, where);
    std::int64_t const there = sizes_[at(target)];
    if (begin < 0 || begin > there || view.size() > there - begin)
      throw Error(ErrorKind::out_of_range, operation,
                  concat("elements [", begin, ", ", begin + view.size(), ") are outside of the ", there,
                         " that rank ", target, " offers"), where)
          .with_rank(comm_.rank());
    static_cast<void>(view.elements(where));  // contiguous
    return view;
  }
  void ask(Request const& request, int target, T const* elements) { request.append(requests_[at(target)], elements); }
  void answer(Where where) {
    auto const received = comm::exchange(comm_, replies_, where);
    List<std::size_t> read(sizes_.size(), 0);
    for (Answer const& answer : answers_) {
      std::size_t& begin = read[at(answer.source)];
      std::memcpy(static_cast<void*>(answer.to), received.block(answer.source).data() + begin, bytes_of(answer.count));
      begin += bytes_of(answer.count);
    }
    answers_.clear();
    for (auto& reply : replies_) reply.clear();
  }

  Communicator<B> comm_;  // of its own: nobody else's messages come between
  List<std::int64_t> sizes_;   // of each rank's part
  List<std::int64_t> begins_;  // in the block, in bytes
  Storage<Cpu> block_;
  std::uint64_t fences_ = 0;
  Tensor<T, Cpu> own_;
  List<List<std::byte>> requests_;  // for each rank, since the last fence
  List<List<std::byte>> replies_;
  List<Answer> answers_;
};

/// A window of `elements` zeros of this rank, and what the others offer. Collective, blocks.
template <Storable T, Backend B>
Window<T, B> window(Communicator<B>& comm, std::int64_t elements, CallSite where = std::source_location::current()) {
  return Window<T, B>(comm, elements, where);
}

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One collective call as a value: what a backend starts, what a decorator records, what a mismatch message prints.

#include <tutti/comm/fold.hpp>
#include <tutti/comm/message_info.hpp>
#include <tutti/comm/wire.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string_view>

namespace tutti {

/// A count for each rank, in rank order, which somebody else owns: a std::vector, std::array, std::span or List of
/// std::int64_t, or a list in braces as an argument of a call. Not std::span, whose constructors cost every includer.
class PerRank {
 public:
  constexpr PerRank() noexcept = default;
  template <class Counts>
    requires requires(Counts const& counts) {
      static_cast<std::int64_t const*>(counts.data());
      counts.size();
    }
  constexpr PerRank(Counts const& counts) noexcept
      : data_(counts.data()), size_(static_cast<std::int64_t>(counts.size())) {}
  template <std::size_t N>
  constexpr PerRank(std::int64_t const (&counts)[N]) noexcept : data_(counts), size_(N) {}
  constexpr PerRank(std::initializer_list<std::int64_t> counts) noexcept
      : PerRank(counts.begin(), static_cast<std::int64_t>(counts.size())) {}

  constexpr std::int64_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr std::int64_t operator[](int rank) const noexcept { return data_[rank]; }
  constexpr std::int64_t const* begin() const noexcept { return data_; }
  constexpr std::int64_t const* end() const noexcept { return data_ + size_; }

 private:
  constexpr PerRank(std::int64_t const* data, std::int64_t size) noexcept : data_(data), size_(size) {}

  std::int64_t const* data_ = nullptr;
  std::int64_t size_ = 0;
};

namespace comm {

/// The values are part of messages' fingerprints: append only.
enum class Kind : std::uint8_t {
  barrier, broadcast, reduce, all_reduce, gather, all_gather, scatter, reduce_scatter, all_to_all,
  scan, exscan, gather_v, all_gather_v, scatter_v, reduce_scatter_v, all_to_all_v,
  all_reduce_contributions
};
inline constexpr int kind_count = 17;

constexpr std::string_view name(Kind kind) noexcept {
  switch (kind) {
    case Kind::barrier: return "barrier";
    case Kind::broadcast: return "broadcast";
    case Kind::reduce: return "reduce";
    case Kind::all_reduce: return "all_reduce";
    case Kind::gather: return "gather";
    case Kind::all_gather: return "all_gather";
    case Kind::scatter: return "scatter";
    case Kind::reduce_scatter: return "reduce_scatter";
    case Kind::all_to_all: return "all_to_all";
    case Kind::scan: return "scan";
    case Kind::exscan: return "exscan";
    case Kind::gather_v: return "gather_v";
    case Kind::all_gather_v: return "all_gather_v";
    case Kind::scatter_v: return "scatter_v";
    case Kind::reduce_scatter_v: return "reduce_scatter_v";
    case Kind::all_to_all_v: return "all_to_all_v";
    case Kind::all_reduce_contributions: return "all_reduce_contributions";
  }
  return "unknown";
}
constexpr bool reduces(Kind kind) noexcept {
  return kind == Kind::reduce || kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::scan ||
         kind == Kind::exscan || kind == Kind::reduce_scatter_v || kind == Kind::all_reduce_contributions;
}
/// Whether blocks have a size for each rank.
constexpr bool has_counts(Kind kind) noexcept { return kind >= Kind::gather_v && kind <= Kind::all_to_all_v; }
/// Whether a contribution has a block for each rank, all of one size.
constexpr bool gives_blocks(Kind kind) noexcept {
  return kind == Kind::scatter || kind == Kind::reduce_scatter || kind == Kind::all_to_all;
}
/// The same of a result.
constexpr bool takes_blocks(Kind kind) noexcept {
  return kind == Kind::gather || kind == Kind::all_gather || kind == Kind::all_to_all;
}
/// Whether there are blocks whose sizes only the two ranks know that give and get them.
constexpr bool tells_sizes(Kind kind) noexcept {
  return kind == Kind::gather_v || kind == Kind::scatter_v || kind == Kind::all_to_all_v;
}
constexpr bool rooted(Kind kind) noexcept {
  return kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter ||
         kind == Kind::gather_v || kind == Kind::scatter_v;
}

/// How bytes get from rank to rank. What counts as sent and received by each stands in comm/tally.hpp.
enum class Algorithm : std::uint8_t {
  shared_board,     ///< small contributions beside the arrival words
  shared_one_pass,  ///< on the other ranks' buffers
  shared_staged,    ///< through staging memory, in rounds
  library,          ///< the transport's own collective
  messages,         ///< a user's message, or one of a derived collective
  comparison,       ///< messages by which ranks compare a call
  exchange          ///< the same, which carry small contributions too
};
inline constexpr int algorithm_count = 7;

/// What a rank has moved by one algorithm.
struct WireTraffic {
  std::int64_t operations = 0;  ///< collectives; of messages, each that was sent and each that was received
  std::int64_t sent = 0;        ///< bytes, as is the next
  std::int64_t received = 0;

  /// One operation more.
  void add(std::int64_t sent_bytes, std::int64_t received_bytes) noexcept {
    ++operations;
    sent += sent_bytes;
    received += received_bytes;
  }
};

/// What a call is made for.
enum class Purpose : std::uint8_t {
  itself,
  split,  ///< an all_gather
  counts,  ///< of the _v collective that is named as the kind
  reached  ///< itself, on memory of a device where the backend works on it: `B::Accelerator`
};

/// Messages of users and of derived collectives never match each other.
enum class Channel : std::uint8_t { user, internal };

/// `count` is the number of elements of one block:
///   broadcast, reduce, all_reduce,   the whole buffer; exscan does not write `to` of rank 0
///     scan, exscan
///   gather, all_gather               what each rank contributes; `to` holds one block per rank, in rank order
///   scatter, reduce_scatter          what each rank receives; `from` holds one block per rank
///   all_to_all                       what each pair exchanges; both hold one block per rank
///   gather_v, all_gather_v           what this rank contributes; the blocks of `to` have the sizes `to_counts`
///   scatter_v, reduce_scatter_v      what this rank receives; the blocks of `from` have the sizes `from_counts`
///   all_to_all_v                     not used: block r of `from` has from_counts[r] elements, of `to` to_counts[r]
///   all_reduce_contributions         one contribution, and the result; `from` holds `contributions` of them
/// `from` of broadcast and scatter(_v), `to` of reduce and gather(_v) count at the root alone, and so do their counts;
/// broadcast fills `to` elsewhere. Blocks of different sizes lie one after another, in rank order.
/// Aliasing   the buffers are disjoint, or equal (broadcast, reduce, all_reduce, scan, exscan), or the single block is
///            this rank's block of the other buffer (gather, all_gather, scatter and their _v forms; reduce_scatter(_v)
///            where the backend says so).
struct Collective {
  Kind kind = Kind::barrier;
  DType dtype = DType::byte;
  int root = -1;  ///< -1 where the kind has none
  std::int64_t count = 0;
  void const* from = nullptr;
  void* to = nullptr;
  Reduction reduction{};
  std::source_location where{};
  /// Elements of each rank's block, for the _v kinds; empty where they do not count. Owned by whoever started the call.
  PerRank from_counts{};
  PerRank to_counts{};
  std::int64_t contributions = 1;  ///< of each rank, to all_reduce_contributions

  /// `count` of the whole call, where this is a part of one on device memory that passes through the host's; else -1.
  std::int64_t staged_count = -1;

  /// Bytes of an element that is several of `dtype`, which then has no meaning for the call: reductions of structs and
  /// complex numbers, done by the library. 0 for all others.
  std::int64_t compound_bytes = 0;

  /// Of the elements, beyond `dtype`: layout_of<T>().
  std::uint16_t layout = 0;
  Purpose purpose = Purpose::itself;

  /// Whether `from` or `to` is memory that the caller keeps, and not a copy or owned by the operation.
  bool lent = false;

  /// Of a reduce_scatter whose `to` is this rank's block of `from`: whether the other blocks may be written as well.
  bool consumes = false;

  /// Where whoever carries the call out adds what it moves, one for each Algorithm; null: nobody counts.
  WireTraffic* wire = nullptr;

  std::int64_t element_bytes() const noexcept {
    return compound_bytes != 0 ? compound_bytes : static_cast<std::int64_t>(size_of(dtype));
  }
  std::int64_t block_bytes() const noexcept { return count * element_bytes(); }
};

/// Blocks of one size in this rank's buffers; 0 of a buffer that does not count.
inline std::int64_t blocks_of_from(Collective const& call, int ranks) noexcept {
  return call.from == nullptr ? 0 : gives_blocks(call.kind) ? ranks : call.contributions;
}
inline std::int64_t blocks_of_to(Collective const& call, int ranks) noexcept {
  return call.to == nullptr ? 0 : takes_blocks(call.kind) ? ranks : 1;
}

/// Bytes that this rank gives to a call of `ranks` ranks, its own block included: all of `from`, where it counts.
template <class = void>
std::int64_t contributed_bytes(Collective const& call, int ranks) noexcept {
  if (call.kind == Kind::barrier || call.from == nullptr) return 0;
  if (!call.from_counts.empty()) {
    std::int64_t elements = 0;
    for (std::int64_t const count : call.from_counts) elements += count;
    return elements * call.element_bytes();
  }
  return call.block_bytes() * blocks_of_from(call, ranks);
}

/// Bytes that any rank gives to a call of a kind without counts at most, the same number on all ranks.
template <class = void>
std::int64_t most_contributed(Collective const& call, int ranks) noexcept {
  return call.block_bytes() * (gives_blocks(call.kind) ? ranks : call.contributions);
}

/// How calls are compared between the ranks: not at all; while they are under way, so that a result is handed out only
/// when all ranks made the same call (larger blocks than 4 KiB before they start); always before anything is started.
enum class CheckLevel : std::uint8_t { off, cheap, full };

}  // namespace comm
}  // namespace tutti

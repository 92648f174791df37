// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One collective call as a value: what a backend starts, what a decorator records, what a mismatch message prints.

#include <tutti/core/concat.hpp>
#include <tutti/comm/fold.hpp>
#include <tutti/comm/message_info.hpp>
#include <tutti/comm/wire.hpp>
#include <tutti/core/fnv1a.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
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

/// What must be the same on all ranks, beside `compared_count`: kind, whether the call goes in parts because it works
/// on device memory, purpose, operator, type with its layout, and root, of which the first four million differ. In its
/// place stands the number of contributions of the kind that has them, and a part of either is the type of a callable:
/// then the first four thousand differ.
template <class = void>
std::uint64_t facts_of(Collective const& call) noexcept {
  auto const compound = static_cast<std::uint64_t>(call.compound_bytes < 255 ? call.compound_bytes : 255);
  auto const number = static_cast<std::uint32_t>(
      call.kind == Kind::all_reduce_contributions ? call.contributions & 0x3fffff : call.root + 1);
  std::uint32_t const callable = call.reduction.callable;
  return std::uint64_t{static_cast<std::uint8_t>(call.kind)} | (call.staged_count < 0 ? 0u : 1u) << 5 |
         std::uint64_t{static_cast<std::uint8_t>(call.purpose)} << 6 |
         std::uint64_t{static_cast<std::uint8_t>(call.reduction.op)} << 8 |
         std::uint64_t{static_cast<std::uint8_t>(call.dtype)} << 14 | compound << 20 |
         std::uint64_t{call.layout} << 28 |
         std::uint64_t{callable == 0 ? number : (number & 0xfffu) | callable << 12} << 42;
}
/// Bits of the contributions that facts_of has.
constexpr int contribution_bits(Operator op) noexcept { return op == Operator::callable ? 12 : 22; }
static_assert(kind_count <= 32 && operator_count <= 64 && dtype_count <= 64 && layouts == 1 << 14);
/// A number that stands for the counts: of the kinds with a count for each rank a hash, where all ranks must pass all
/// of them, else 0.
template <class = void>
std::int64_t compared_count(Collective const& call) noexcept {
  if (!has_counts(call.kind)) {
    std::int64_t const count = call.staged_count < 0 ? call.count : call.staged_count;
    // So many contributions, of which facts_of has the rest, leave no room for a count of that size.
    if (call.kind != Kind::all_reduce_contributions) return count;
    return count | call.contributions >> contribution_bits(call.reduction.op) << 41;
  }
  if (call.kind != Kind::all_gather_v && call.kind != Kind::reduce_scatter_v) return 0;
  Fnv1a hash;
  for (std::int64_t const count : call.kind == Kind::all_gather_v ? call.to_counts : call.from_counts)
    hash.add(static_cast<std::uint64_t>(count));
  return hash.number();
}
/// The call as far as these two tell.
template <class = void>
Collective call_of(std::uint64_t facts, std::int64_t count) noexcept {
  Collective call;
  call.kind = static_cast<Kind>(facts & 31u);
  call.count = has_counts(call.kind) ? 0 : count;
  call.staged_count = (facts >> 5 & 1u) != 0 ? count : -1;
  call.purpose = static_cast<Purpose>(facts >> 6 & 3u);
  call.reduction.op = static_cast<Operator>(facts >> 8 & 63u);
  call.dtype = static_cast<DType>(facts >> 14 & 63u);
  call.compound_bytes = static_cast<std::int64_t>(facts >> 20 & 255u);
  if (call.compound_bytes == 255) call.compound_bytes = -1;  // or more
  call.layout = static_cast<std::uint16_t>(facts >> 28 & (layouts - 1));
  bool const is_callable = call.reduction.op == Operator::callable;
  auto const number = static_cast<int>(facts >> 42 & (is_callable ? 0xfffu : 0x3fffffu));
  if (is_callable) call.reduction.callable = static_cast<std::uint16_t>(facts >> 54);
  if (call.kind == Kind::all_reduce_contributions) {
    call.contributions = number | count >> 41 << contribution_bits(call.reduction.op);
    call.count &= (std::int64_t{1} << 41) - 1;
    if (call.staged_count >= 0) call.staged_count = call.count;
  } else call.root = number - 1;
  return call;
}

/// "app.cpp" of a path.
inline std::string_view base_name(std::string_view file) noexcept {
  if (auto const slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return file;
}
/// "app.cpp:12"
template <class = void>
std::string place(std::source_location const& where) {
  return concat(base_name(where.file_name()), ":", where.line());
}

/// "3 + 4 + 0"; of more than sixteen ranks the first fifteen, and a number for the others. `parts` of an element are
/// counted as one.
template <class = void>
std::string listed(PerRank counts, std::int64_t parts = 1) {
  std::string text;
  Fnv1a rest;
  for (int r = 0; r < counts.size(); ++r) {
    if (r >= 15 && counts.size() > 16) rest.add(static_cast<std::uint64_t>(counts[r]));
    else text += (r == 0 ? "" : " + ") + std::to_string(counts[r] / parts);
  }
  return counts.size() > 16 ? concat(text, " + ... #", rest.value() % 10000) : text;
}

/// "float32, count 8", "complex float32, count 4", "structs #123, 48 bytes", "... in device memory": which passes
/// through the host's; "... on the device": where it is
template <class = void>
std::string describe_elements(Collective const& call) {
  std::int64_t const count = call.staged_count < 0 ? call.count : call.staged_count;
  bool const counts = !has_counts(call.kind) || call.count != 0;
  bool const compound = call.compound_bytes != 0;
  std::string text;
  if (call.layout > complex_layout && !compound) {
    text = concat("structs #", call.layout);
    if (counts) text += concat(", ", count, " bytes");
  } else {
    if (call.compound_bytes < 0) text = concat("structs #", call.layout);
    else if (call.layout > complex_layout) text = concat(call.compound_bytes, "-byte structs #", call.layout);
    else text = concat(call.layout == complex_layout ? "complex " : "", tutti::name(call.dtype));
    if (counts) text += concat(", count ", call.layout == complex_layout && !compound ? count / 2 : count);
  }
  if (call.purpose == Purpose::reached) return text + " on the device";
  return call.staged_count < 0 ? text : text + " in device memory";
}

/// "all_reduce(sum, float32, count 8) at app.cpp:12", "all_gather_v(float32, count 4, to 3 + 4 + 0) at app.cpp:12".
/// Structs have a number for the types of their members.
template <class = void>
std::string describe_at(Collective const& call, std::string_view file, std::uint_least32_t line) {
  std::string text(call.purpose == Purpose::split ? "split" : name(call.kind));
  text += call.purpose == Purpose::counts ? "_v(" : "(";
  if (call.purpose == Purpose::counts) {
    if (call.root >= 0) text += concat("root ", call.root, ", ");
    text += concat("counts to be found, elements #", call.layout);
  } else if (call.kind != Kind::barrier && call.purpose != Purpose::split) {
    if (reduces(call.kind)) text += tutti::name(call.reduction.op);
    if (call.reduction.callable != 0) text += concat(" #", call.reduction.callable);
    if (reduces(call.kind)) text += ", ";
    if (call.root >= 0) text += concat("root ", call.root, ", ");
    text += describe_elements(call);
    if (call.kind == Kind::all_reduce_contributions)
      text += concat(", ", call.contributions, " contributions");
    std::int64_t const parts = call.layout == complex_layout && call.compound_bytes == 0 ? 2 : 1;
    if (!call.from_counts.empty()) text += concat(", from ", listed(call.from_counts, parts));
    if (!call.to_counts.empty()) text += concat(", to ", listed(call.to_counts, parts));
  }
  text += ") at ";
  text += file;
  return concat(text, ":", line);
}
template <class = void>
std::string describe(Collective const& call) {
  return describe_at(call, base_name(call.where.file_name()), call.where.line());
}

}  // namespace comm
}  // namespace tutti

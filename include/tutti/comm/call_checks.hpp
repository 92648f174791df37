// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What one rank can find wrong with a call alone: ranks and tags that do not exist, shapes that do not fit, counts
/// that do not make their buffer, buffers that overlap. Each has a sentence that says how it is and what to pass.

#include <tutti/comm/call_site.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/comm/collective_text.hpp>
#include <tutti/comm/collective_way.hpp>
#include <tutti/comm/message_info.hpp>
#include <tutti/core/checked.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::comm {

/// Rows of each rank's block in the two buffers of a _v kind.
struct Rows {
  PerRank from{};
  PerRank to{};
};

/// Memory that a call reads or writes, and where in it this rank's single block may be.
struct Extent {
  void const* data;
  std::int64_t bytes;
  std::int64_t own;
};

/// Elements before a rank's block.
inline std::int64_t before(List<std::int64_t> const& blocks, int r) noexcept {
  std::int64_t elements = 0;
  for (int other = 0; other < r; ++other) elements += blocks[static_cast<std::size_t>(other)];
  return elements;
}

/// The checks of one call, on rank `rank` of `size`. For the length of an expression: it refers to the place.
/// Errors   invalid_argument or shape, with the rank and the place, each in a sentence.
class CallChecks {
 public:
  CallChecks(char const* operation, int rank, int size, CallSite const& where) noexcept
      : operation_(operation), rank_(rank), size_(size), where_(where) {}

  template <class = void>
  [[noreturn]] void refuse(std::string message, ErrorKind kind = ErrorKind::invalid_argument) const {
    throw_refusal(operation_, rank_, where_, std::move(message), kind);
  }

  template <class = void>
  void check_rank(char const* what, int r) const {
    if (r < 0 || r >= size_) refuse(concat(what, " ", rank_text(r), " does not exist. Ranks are 0 to ", size_ - 1));
  }
  template <class = void>
  void check_tag(int tag) const {
    if (tag < 0 || tag > 32767) refuse(concat("tag ", tag, " is outside 0 to 32767"));
  }
  template <class = void>
  void check_source(int from, int tag) const {
    if (from != any_source && from != proc_null) check_rank("source rank", from);
    if (tag != any_tag) check_tag(tag);
  }

  /// Of a buffer that counts.
  template <class X>
  void check_here(X const& x) const {
    if (x.moved()) [[unlikely]] throw_moved("tensor", where_);
  }
  /// Of a buffer that is written.
  template <class To>
  void check_target(To const& to) const {
    if constexpr (To::borrows)
      if (to.overlaps_itself())
        refuse(concat("several indices of the receive buffer, a view of shape ", to_string(to.shape()),
                      ", reach one element. Pass a view whose elements are distinct"));
  }
  template <class = void>
  void check_overlap(Extent from, Extent to, bool may_alias) const {
    auto const* const a = static_cast<std::byte const*>(from.data);
    auto const* const b = static_cast<std::byte const*>(to.data);
    bool const aliased = may_alias && a + from.own == b + to.own;
    if (!aliased && a < b + to.bytes && b < a + from.bytes)
      refuse(may_alias ? "the buffers overlap. Pass disjoint ones, or the in-place form: this rank's block of the "
                         "other buffer"
                       : "the buffers overlap. Pass disjoint ones");
  }

  /// The shape of what stacks one buffer of every rank, or of none.
  template <class = void>
  Shape stacked(Shape const& shape, bool all) const {
    if (shape.rank() == Shape::max_rank)
      refuse(
          concat("the result has one axis more than the buffer of shape ", to_string(shape), ", and a tensor at most ",
                 Shape::max_rank, ". Reshape the buffer, or pass a tensor for the result"),
          ErrorKind::shape);
    std::array<std::int64_t, Shape::max_rank + 1> extents{all ? size_ : 0};
    for (int axis = 0; axis < shape.rank(); ++axis) extents[static_cast<std::size_t>(axis) + 1] = shape[axis];
    return Shape::of(extents.data(), shape.rank() + 1);
  }
  /// The shape of one rank's part, the parts being equal.
  template <class = void>
  Shape part(Shape const& shape) const {
    if (shape.rank() == 0 || shape[0] % size_ != 0)
      refuse(concat("the first axis of shape ", to_string(shape), " does not divide by the ", size_, " ranks"),
             ErrorKind::shape);
    return shape.with(0, shape[0] / size_);
  }

  /// Whether the buffers of a kind with blocks of one size fit each other. Sets the counts that only both tell.
  template <Kind kind>
  void check_shapes(Shape const& from, Shape const& to, Collective& call) const {
    constexpr bool grows = kind == Kind::gather || kind == Kind::all_gather;
    constexpr bool shrinks = kind == Kind::scatter || kind == Kind::reduce_scatter;
    std::int64_t const ranks = size_;
    bool fits = from == to;
    char const* rule = ", which must be equal";
    if constexpr (kind == Kind::all_reduce_contributions) {
      call.contributions = from.rank() == 0 ? 0 : from[0];
      if (call.contributions > 0 && to.size() == 0) call.contributions = 1;  // as good as any number of nothing
      fits = call.contributions > 0 && Shape::of(from.begin() + 1, from.rank() - 1) == to;
      rule = "; the first must hold at least one of the second";
    } else if constexpr (grows) {
      fits = to.size() == from.size() * ranks;
      rule = "; the second must hold the first once for each rank";
    } else if constexpr (shrinks) {
      fits = from.size() == to.size() * ranks;
      rule = "; the first must hold the second once for each rank";
    }
    if (!fits)
      refuse(concat("shapes are ", to_string(from), " and ", to_string(to), rule,
                    grows || shrinks ? concat(" (", ranks, " here)") : std::string()),
             ErrorKind::shape);
    if constexpr (kind == Kind::all_to_all) {
      if (from.size() % ranks != 0)
        refuse(concat("shape ", to_string(from), " does not divide into ", ranks, " blocks, one for each rank"),
               ErrorKind::shape);
      call.count = from.size() / ranks;
    }
  }

  /// Elements of one row: of one step along the first axis.
  template <class = void>
  std::int64_t row_size(Shape const& shape) const {
    if (shape.rank() == 0) refuse("a single number has no rows to count. Pass it with shape (1,)", ErrorKind::shape);
    std::int64_t elements = 1;
    for (int axis = 1; axis < shape.rank(); ++axis) elements *= shape[axis];
    return elements;
  }
  /// The sizes of the blocks in elements. There must be a count for each rank, and their sum must be the first extent.
  template <class = void>
  List<std::int64_t> blocks(Shape const& shape, PerRank rows) const {
    std::int64_t const row = row_size(shape);
    if (rows.size() != size_) refuse(concat(rows.size(), " counts for ", size_, " ranks. Pass one for each rank"));
    List<std::int64_t> result;
    std::int64_t total = 0;
    for (std::int64_t const count : rows) {
      if (count < 0) refuse(concat("count ", count, " is negative"));
      total = checked_add(total, count, where_);
      result.push_back(checked_multiply(count, row, where_));
    }
    if (total != shape[0])
      refuse(concat("the counts ", listed(rows), " do not make the ", shape[0], " rows of the buffer of shape ",
                    to_string(shape)),
             ErrorKind::shape);
    return result;
  }
  /// One of the buffers has blocks, and the other is this rank's; or both have, of all_to_all_v.
  template <class = void>
  void check_blocks(Shape const& from, Shape const& to, Rows rows, Counts& counts) const {
    if (row_size(from) != row_size(to))
      refuse(concat("shapes are ", to_string(from), " and ", to_string(to), ", with rows of different sizes"),
             ErrorKind::shape);
    bool const exchange = !rows.from.empty() && !rows.to.empty();
    bool const grows = rows.from.empty();
    if (!grows) counts.from = blocks(from, rows.from);
    if (grows || exchange) counts.to = blocks(to, rows.to);
    auto const own = static_cast<std::size_t>(rank_);
    std::int64_t const sent = grows ? from.size() : counts.from[own];
    std::int64_t const received = grows || exchange ? counts.to[own] : to.size();
    if (sent != received)
      refuse(concat("this rank's own block has ", sent, " elements in the first buffer and ", received,
                    " in the second. They must be equal"),
             ErrorKind::shape);
  }

 private:
  /// Of values: where nothing is wrong, no object of this class is made.
  template <class = void>
  [[noreturn, gnu::noinline, gnu::cold]] static void throw_refusal(char const* operation, int rank,
                                                                   CallSite const& where, std::string message,
                                                                   ErrorKind kind) {
    throw Error(kind, operation, std::move(message), where).with_rank(rank);
  }

  char const* operation_;
  int rank_;
  int size_;
  CallSite const& where_;
};

}  // namespace tutti::comm

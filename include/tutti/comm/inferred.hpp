// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The _v collectives whose counts the ranks find out: shapes travel first, then the result is allocated and filled.

#include <tutti/core/concat.hpp>
#include <tutti/comm/collective_job.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/comm/operand.hpp>
#include <tutti/comm/ragged.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::comm {

/// The second part always goes by messages, under a tag taken when the call was made: other collectives may have been
/// started in between, and a backend's own must start in the same order on every rank.
template <Backend B, Kind kind, class From>
class InferredTask final
    : public Task<std::conditional_t<kind == Kind::scatter_v, Tensor<typename From::Value, typename From::Place>,
                                     Ragged<typename From::Value, typename From::Place>>> {
  using T = typename From::Value;
  using Place = typename From::Place;
  using To = Operand<T, Place, true>;
  static constexpr bool is_staged = passes_host<Place, typename B::Device>;

 public:
  using Result = std::conditional_t<kind == Kind::scatter_v, Tensor<T, Place>, Ragged<T, Place>>;

  /// `sent` are the rows that `from` has for each rank, of the kinds that cut it up.
  InferredTask(Core<B>& core, From from, List<std::int64_t> sent, int root, std::source_location where)
      : Task<Result>(name(kind).data()),
        core_(core),
        from_(on_copies(core, std::move(from), root)),
        sent_(std::move(sent)),
        root_(root),
        where_(where),
        tag_(core.next_tag()),
        exchange_(core, name(kind).data(), [this] { return Call{announcement(), {}}; }) {}

  bool abandon() noexcept override {
    bool const safe = exchange_.give_up();
    return (derived_ == nullptr || derived_->abandon()) && safe;
  }
  bool borrows() const noexcept override { return From::borrows; }
  bool lent() const noexcept override { return from_.lent(); }
  std::string awaiting() const override { return derived_ == nullptr ? exchange_.awaiting() : derived_->awaiting(); }
  bool collective() const noexcept override { return true; }
  Result take() override {
    if constexpr (kind == Kind::scatter_v) return to_->take();
    else if (!receives()) return {};
    else return {to_->take(), std::move(rows_)};
  }

 protected:
  bool advance() override {
    if (derived_ == nullptr) {
      if (!exchange_.poll()) return false;
      allocate();
      derived_ = make_owner<Derived<B>>(core_, call(), tag_);
      derived_->begin();
    }
    if (!derived_->advance()) return false;
    if (to_ != nullptr) to_->store();
    return true;
  }

 private:
  /// Rows of a block, and the shape of one; travels as 64-bit integers.
  struct Header {
    std::int64_t rows = 0;
    std::int64_t rank = 0;
    std::int64_t extents[Shape::max_rank] = {};
  };

  static From on_copies(Core<B>& core, From from, int root) {
    from.detach(capability::copied_bytes(core.backend, false), true);
    if constexpr (is_staged)
      if (kind != Kind::scatter_v || core.backend.rank() == root) from.stage(true);
    return from;
  }
  bool root_here() const noexcept { return core_.backend.rank() == root_; }
  bool receives() const noexcept { return kind != Kind::gather_v || root_here(); }

  Header header(std::int64_t rows) const {
    Header result{rows, from_.shape().rank() - 1, {}};
    for (int axis = 1; axis < from_.shape().rank(); ++axis) result.extents[axis - 1] = from_.shape()[axis];
    return result;
  }
  static Shape row_of(Header const& header) { return Shape::of(header.extents, header.rank); }

  Collective announcement() {
    auto const ranks = static_cast<std::size_t>(core_.backend.size());
    constexpr bool one_block = kind == Kind::gather_v || kind == Kind::all_gather_v;
    if constexpr (one_block) {
      announced_.push_back(header(from_.shape()[0]));
    } else {
      for (std::int64_t const rows : sent_) announced_.push_back(header(rows));
    }
    heard_.resize(kind == Kind::scatter_v ? 1 : receives() ? ranks : 0);
    constexpr Kind carrier = kind == Kind::gather_v       ? Kind::gather
                             : kind == Kind::all_gather_v ? Kind::all_gather
                             : kind == Kind::scatter_v    ? Kind::scatter
                                                          : Kind::all_to_all;
    Collective result;
    result.kind = carrier;
    result.purpose = Purpose::counts;
    // Of the elements that travel afterwards, the type included.
    result.layout = static_cast<std::uint16_t>(
        Fnv1a().add(static_cast<std::uint64_t>(wire_dtype<T>)).add(layout_of<T>()).value() % layouts);
    result.dtype = DType::int64;
    result.root = root_;
    result.count = sizeof(Header) / sizeof(std::int64_t);
    result.from = announced_.empty() ? nullptr : announced_.data();
    result.to = heard_.empty() ? nullptr : heard_.data();
    result.where = where_;
    return result;
  }

  void allocate() {
    if (!receives()) return;
    Header const& model = heard_.front();
    std::int64_t total = 0;
    for (std::size_t r = 0; r < heard_.size(); ++r) {
      if (!(row_of(heard_[r]) == row_of(model)))
        throw Error(ErrorKind::communication, name(kind).data(),
                    concat("rows from rank 0 have shape ", to_string(row_of(model)), ", from rank ", r, " ",
                           to_string(row_of(heard_[r])), ". Pass rows of one shape on every rank"));
      total = checked_add(total, heard_[r].rows);
      rows_.push_back(heard_[r].rows);
    }
    std::int64_t extents[Shape::max_rank] = {total};
    for (std::int64_t axis = 0; axis < model.rank; ++axis) extents[axis + 1] = model.extents[axis];
    Shape const shape = Shape::of(extents, model.rank + 1);
    auto const bytes = static_cast<std::size_t>(checked_multiply(shape.size(), sizeof(T)));
    if constexpr (std::is_same_v<Place, typename B::Device>) {
      to_ = make_owner<To>(Tensor<T, Place>(shape, heap_memory(core_, bytes)));
    } else {
      to_ = make_owner<To>(Tensor<T, Place>(shape, from_.device()));
      if constexpr (is_staged) to_->stage(false);
    }
    if constexpr (kind != Kind::scatter_v) received_ = in_parts(rows_, row_of(model));
  }

  static List<std::int64_t> in_parts(List<std::int64_t> const& rows, Shape const& row) {
    List<std::int64_t> parts;
    for (std::int64_t const count : rows) parts.push_back(count * row.size() * wire_parts<T>);
    return parts;
  }

  Collective call() {
    Collective result;
    result.kind = kind;
    result.dtype = wire_dtype<T>;
    result.root = root_;
    std::int64_t const elements = kind == Kind::scatter_v ? to_->size() : kind == Kind::all_to_all_v ? 0 : from_.size();
    result.count = elements * wire_parts<T>;
    result.from = from_.wire();
    result.to = to_ == nullptr ? nullptr : to_->wire();
    result.where = where_;
    if (!announced_.empty()) blocks_ = in_parts(sent_, row_of(announced_.front()));
    result.from_counts = blocks_;
    result.to_counts = received_;
    return result;
  }

  Core<B>& core_;
  From from_;
  List<std::int64_t> sent_;
  List<std::int64_t> blocks_;
  int root_;
  std::source_location where_;
  int tag_;
  List<Header> announced_;
  List<Header> heard_;
  CollectiveJob<B> exchange_;
  Owner<Derived<B>> derived_;
  Owner<To> to_;
  List<std::int64_t> rows_;
  List<std::int64_t> received_;
};

}  // namespace tutti::comm

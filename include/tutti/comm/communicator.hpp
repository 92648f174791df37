// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Communicator<Backend>`: the vocabulary of collectives and messages, written once over the primitives of a backend.
/// Its parts are `Collectives`, `VectorCollectives`, `PointToPoint` and `Plans`, each in a header of its own.

#include <tutti/comm/collectives.hpp>
#include <tutti/comm/endpoint.hpp>
#include <tutti/comm/mesh.hpp>
#include <tutti/comm/plans.hpp>
#include <tutti/comm/point_to_point.hpp>
#include <tutti/comm/vector_collectives.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti {

namespace comm::detail {

/// What f() returns; its errors are told as those of `operation`, which the user called.
template <class F>
auto told_as(char const* operation, F&& f) {
  try {
    return f();
  } catch (Error const& error) {
    throw error.of(operation);
  }
}

}  // namespace comm::detail

/// A rank's handle on a group of ranks. Move-only.
/// Threads       one at a time: a call that meets another thread's in this communicator is an Error, and the other one
///               goes on. Requests, plans and the communicator itself may be handed to another thread between calls.
///
/// Buffers are tensors, views with any strides, and contiguous host memory (std::span, std::vector, ...) of elements,
/// complex numbers and structs that Boost.Hana describes (`Record`); P is size().
/// One-buffer forms work in place. Two-buffer forms take disjoint buffers, or the in-place form of MPI: this rank's
/// block of the other buffer (`all_gather(x[comm.rank()], x)`), or twice the same buffer for all_to_all.
/// `*_async` returns a `Request`: a tensor that is moved in is owned until `wait` hands it back, everything else is
/// borrowed and must stay alive and untouched until the request is complete.
/// After a failed wait nobody touches borrowed buffers any more; what Mpi does where MPI cannot take an operation back,
/// docs/guides/mpi.md tells.
/// Ranks         all ranks call the same collectives in the same order, with the same counts, types, operators, roots.
/// Determinism   elements are combined in rank order where the library reduces (Threads; 16-bit floats and callables
///               on every backend); repeated runs of one layout are bitwise equal, and so are the results on all ranks.
///               `all_reduce_contributions` gives the same bits for any number of ranks.
/// Progress      what is in flight moves on while this rank waits, on this communicator or on another one that came
///               from the same by split or duplicate, in the thread that started it.
/// Errors        shape, invalid_argument (checked before anything is started); communication (ranks disagree, one has
///               failed or left, the transport reports an error); timeout; revoked.
template <Backend B>
class Communicator : public comm::Endpoint<B>,
                     public comm::Collectives<B>,
                     public comm::VectorCollectives<B>,
                     public comm::PointToPoint<B>,
                     public comm::Plans<B> {
 public:
  using typename comm::Endpoint<B>::Device;
  using typename comm::Endpoint<B>::Where;

  explicit Communicator(B backend, CommunicatorOptions options = {}) : comm::Endpoint<B>(std::move(backend), options) {}
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;
  /// Completes what was dropped, within the deadline.
  ~Communicator() {
    if (this->core_) this->core_->drain();
  }

  /// Completes operations whose requests or plans were dropped. What they had borrowed may be freed or used again from
  /// then on, and not before: other calls that complete say nothing of these. Local; blocks within the deadline.
  /// Errors     of the first that failed.
  void complete_dropped(Where where = std::source_location::current()) { this->held(where).complete_dropped(where); }

  /// Communicator of the ranks that pass the same color, ordered by (key, rank). Collective, blocks.
  /// Errors     invalid_argument, on all ranks, when one passes a negative color.
  Communicator split(int color, int key = 0, Where where = std::source_location::current()) {
    return split_by(color == no_color ? -1 : color, key, where);
  }
  /// The same where ranks may pass no color, `split(std::nullopt)`, and get no communicator. All ranks of the call may
  /// take either form.
  template <class Int = int>
  std::optional<Communicator> split(std::type_identity_t<std::optional<Int>> color, int key = 0,
                                    Where where = std::source_location::current()) {
    Communicator part = split_by(color ? *color : no_color, key, where);
    if (!color) return std::nullopt;
    return std::optional<Communicator>(std::move(part));
  }
  /// Communicator of the same ranks, whose messages and collectives are independent of this one's. Collective, blocks.
  Communicator duplicate(Where where = std::source_location::current()) {
    auto const stay = this->held(where).visit("duplicate", where);
    return comm::detail::told_as("duplicate", [&] { return split(0, this->rank(where), where); });
  }
  /// Ranks as a grid with named axes: `mesh({{"data", 2}, {"tensor", 2}})`. Collective, blocks.
  Mesh<B> mesh(std::initializer_list<MeshAxis> axes, Where where = std::source_location::current()) {
    auto const stay = this->held(where).visit("mesh", where);
    return comm::detail::told_as("mesh", [&] { return Mesh<B>(*this, axes, where); });
  }

 private:
  explicit Communicator(Shared<comm::Core<B>> core) noexcept : comm::Endpoint<B>(std::move(core)) {}

  static constexpr int no_color = std::numeric_limits<int>::min();
  Communicator split_by(int color, int key, Where where) {
    auto const stay = this->held(where).visit("split", where);
    comm::capability::check_can_split(this->core_->backend, where);  // before the others can wait in it
    auto const all = everyones(color, key, where);
    auto const color_of = [&](int r) { return all[static_cast<std::size_t>(2 * r)]; };
    auto const key_of = [&](int r) { return all[static_cast<std::size_t>(2 * r) + 1]; };
    if (color_of(this->rank()) != color || key_of(this->rank()) != key)
      this->refuse("split", "this rank's color and key came back changed. The transport damages what it carries", where,
                   ErrorKind::communication);
    for (int r = 0; r < this->size(); ++r)
      if (color_of(r) < 0 && color_of(r) != no_color)
        this->refuse("split",
                     concat("rank ", r, " passes color ", color_of(r), ", which is negative. Colors count from 0"),
                     where);
    List<int> members;
    for (int r = 0; r < this->size(); ++r)
      if (color_of(r) == color) members.push_back(r);
    members.stable_sort([&](int a, int b) { return key_of(a) < key_of(b); });
    if (color == no_color) {  // these ranks get a communicator that they drop
      color = 0;
      for (int r = 0; r < this->size(); ++r)
        if (color_of(r) == color) ++color, r = -1;
    }
    std::string const group = concat(this->core_->collectives(), "-", color);
    return Communicator(
        make_shared_owner<comm::Core<B>>(this->core_->backend.split(color, key, members), *this->core_, group));
  }

  /// Color and key of each rank.
  List<std::int32_t> everyones(std::int32_t color, std::int32_t key, Where where) {
    List<std::int32_t> all(2 * static_cast<std::size_t>(this->size()));
    List<std::int32_t> mine{color, key};
    comm::Collective call;
    call.kind = comm::Kind::all_gather;
    call.purpose = comm::Purpose::split;
    call.dtype = DType::int32;
    call.count = 2;
    call.from = mine.data();
    call.to = all.data();
    call.where = where;
    comm::CollectiveJob<B> job(*this->core_, "split", [&] { return comm::Call{call, {}}; });
    comm::wait_for(*this->core_, job, mine, all, where);
    return all;
  }
};

/// The same as comm.recv<T>(from, tag), which in a function template whose communicator is `auto&` would have to be
/// written with the keyword `template`.
template <comm::Sendable T, Backend B>
[[nodiscard]] auto recv(Communicator<B>& comm, int from = any_source, int tag = any_tag,
                        CallSite where = std::source_location::current()) {
  return comm.template recv<T>(from, tag, where);
}
template <comm::Sendable T, Backend B>
[[nodiscard]] auto recv(Communicator<B>& comm, Message<B>&& message, CallSite where = std::source_location::current()) {
  return comm.template recv<T>(std::move(message), where);
}
template <comm::Sendable T, Backend B>
auto recv_async(Communicator<B>& comm, int from = any_source, int tag = any_tag,
                CallSite where = std::source_location::current()) {
  return comm.template recv_async<T>(from, tag, where);
}

}  // namespace tutti

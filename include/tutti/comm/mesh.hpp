// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Mesh<Backend>`: ranks as points of a grid with named axes, and a communicator along each of them.

#include <tutti/comm/call_site.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/message_group.hpp>
#include <tutti/comm/operators.hpp>
#include <tutti/core/fnv1a.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti {

template <Backend B>
class Communicator;

struct MeshAxis {
  std::string_view name;
  int size = 0;
  bool periodic = false;  ///< whether its last rank and its first are neighbours
};

/// Made by `Communicator::mesh`. Ranks are numbered along the last axis first: with axes (data, 2), (tensor, 3) rank 4
/// has the coordinates (1, 1), and `mesh["tensor"]` joins ranks 3, 4 and 5. Move-only.
template <Backend B>
class Mesh {
 public:
  using Where = std::source_location;

  /// Collective over `ranks`, blocks. Errors: invalid_argument, unless names differ, the sizes' product is the number
  /// of ranks, and all ranks describe the same mesh.
  Mesh(Communicator<B>& ranks, std::initializer_list<MeshAxis> axes,
       CallSite where = std::source_location::current()) {
    check(ranks, axes, where);
    compare(ranks, axes, where);
    int stride = ranks.size();
    for (MeshAxis const& axis : axes) {
      stride /= axis.size;
      int const coordinate = ranks.rank() / stride % axis.size;
      int const others = ranks.rank() - coordinate * stride;  // the rank at the beginning of this line
      auto line = make_owner<Communicator<B>>(ranks.split(others, coordinate, where));
      axes_.push_back(make_owner<Axis>(axis, coordinate, std::move(line)));
    }
  }

  Mesh(Mesh&& other) noexcept : axes_(std::move(other.axes_)), moved_(other.moved_) { other.moved_ = true; }
  Mesh& operator=(Mesh&& other) noexcept {
    axes_ = std::move(other.axes_);
    moved_ = other.moved_;
    other.moved_ = true;
    return *this;
  }

  // Of a mesh that was moved from, what follows is an error (invalid_argument).
  int axes(Where where = Where::current()) const {
    check_here(where);
    return static_cast<int>(axes_.size());
  }
  /// The ranks that differ from this one in this coordinate alone; its rank there is the coordinate.
  /// Errors: invalid_argument, for a name that no axis has.
  Communicator<B>& axis(std::string_view name, Where where = Where::current()) { return *find(name, where).line; }
  /// The name of an axis, and where it is written: an operator has no argument for that.
  struct Name {
    template <class S>
      requires std::is_convertible_v<S const&, std::string_view>
    Name(S const& name, Where place = Where::current()) : text(name), where(place) {}
    std::string_view text;
    Where where;
  };
  Communicator<B>& operator[](Name name) { return *find(name.text, name.where).line; }
  /// Number of ranks along the axis.
  int size(std::string_view name, Where where = Where::current()) const { return find(name, where).size; }
  int coordinate(std::string_view name, Where where = Where::current()) const { return find(name, where).coordinate; }

  /// Ranks of the axis's communicator: whence something comes that all ranks shift along the axis, and where it goes.
  struct Shift {
    int from = proc_null;
    int to = proc_null;
  };
  /// By any number of steps; proc_null beyond the ends of an axis that is not periodic. As MPI_Cart_shift:
  /// `auto const [left, right] = mesh.shift("x"); mesh["x"].send_recv(last_column, right, halo, left);`
  Shift shift(std::string_view name, int steps = 1, Where where = Where::current()) const {
    Axis const& axis = find(name, where);
    auto const rank_at = [&](std::int64_t place) {
      std::int64_t const wrapped = (place % axis.size + axis.size) % axis.size;
      return axis.periodic || wrapped == place ? static_cast<int>(wrapped) : proc_null;
    };
    return {rank_at(std::int64_t{axis.coordinate} - steps), rank_at(std::int64_t{axis.coordinate} + steps)};
  }
  /// Rank, in the communicator that the mesh was made of, of a coordinate for each axis: wrapped along periodic axes,
  /// proc_null beyond the ends of others. Errors: invalid_argument, unless there is one for each axis.
  int rank_at(std::initializer_list<int> coordinates, Where where = Where::current()) const {
    check_here(where);
    if (coordinates.size() != axes_.size())
      throw Error(ErrorKind::invalid_argument, "mesh",
                  concat(coordinates.size(), " coordinates for ", axes_.size(), " axes. Pass one for each"), where);
    int rank = 0;
    int const* next = coordinates.begin();
    for (auto const& axis : axes_) {
      int const place = *next++;
      int const wrapped = (place % axis->size + axis->size) % axis->size;
      if (wrapped != place && !axis->periodic) return proc_null;
      rank = rank * axis->size + wrapped;
    }
    return rank;
  }

  /// Exchanges a block with each neighbour: with the lower one along the first axis, its upper one, then along the
  /// next axes. What comes from proc_null stays as it was. Collective over the mesh, blocks; borrows both buffers.
  /// Shapes     from and to (2 * axes, ...)
  /// Computes   to[2 a] = from[2 a + 1] of the lower neighbour along axis a, to[2 a + 1] = from[2 a] of the upper one
  /// Messages   with tags 32766 and 32767 on the axes' communicators, where no receive of any tag may be under way
  /// Errors     shape; those of messages.
  template <comm::Buffer From, comm::Buffer To>
  void neighbor_all_to_all(From const& from, To&& to, CallSite where = std::source_location::current()) {
    check_here(where);
    auto const out = comm::view_of(from);
    auto const in = comm::view_of(to);
    auto const blocks = static_cast<std::int64_t>(2 * axes_.size());
    for (Shape const* shape : {&out.shape(), &in.shape()})
      if (shape->rank() == 0 || (*shape)[0] != blocks)
        throw Error(ErrorKind::shape, "neighbor_all_to_all",
                    concat("a buffer of shape ", to_string(*shape), " has no block for each of ", blocks,
                           " neighbours, which are its first axis"), where);
    List<Owner<MessageGroup<B>>> under_way;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      auto const [lower, upper] = shift(axes_[a]->name, 1, where);
      auto const block = static_cast<std::int64_t>(2 * a);
      auto group = make_owner<MessageGroup<B>>(axes_[a]->line->group(where));
      group->recv(in[block], lower, going_up, where);
      group->recv(in[block + 1], upper, going_down, where);
      group->send(out[block], lower, going_down, where);
      group->send(out[block + 1], upper, going_up, where);
      under_way.push_back(std::move(group));
    }
    for (auto const& group : under_way) group->wait(where);
  }

 private:
  static constexpr int going_down = 32766, going_up = 32767;
  struct Axis {
    Axis(MeshAxis const& axis, int c, Owner<Communicator<B>> l)
        : name(axis.name), size(axis.size), periodic(axis.periodic), coordinate(c), line(std::move(l)) {}
    std::string name;
    int size;
    bool periodic;
    int coordinate;
    Owner<Communicator<B>> line;
  };

  static void check(Communicator<B>& ranks, std::initializer_list<MeshAxis> axes, Where where) {
    std::int64_t product = 1;
    std::string text;
    for (MeshAxis const* axis = axes.begin(); axis != axes.end(); ++axis) {
      text += concat(text.empty() ? "" : " x ", axis->name, " ", axis->size);
      if (axis->name.empty()) refuse("an axis of a mesh has no name", ranks, where);
      if (axis->size < 1)
        refuse(concat("axis \"", axis->name, "\" has size ", axis->size, ". The least is 1"),
               ranks, where);
      for (MeshAxis const* before = axes.begin(); before != axis; ++before)
        if (before->name == axis->name) refuse(concat("two axes are named \"", axis->name, "\""), ranks, where);
      product *= axis->size;
      if (product > ranks.size()) break;
    }
    if (product != ranks.size())
      refuse(concat("the mesh ", text.empty() ? "without axes" : text, " does not hold the ", ranks.size(),
                    " ranks. Choose sizes whose product is the number of ranks"),
             ranks, where);
  }
  /// All ranks find the same.
  static void compare(Communicator<B>& ranks, std::initializer_list<MeshAxis> axes, CallSite where) {
    Fnv1a hash;
    for (MeshAxis const& axis : axes)
      hash.add(axis.name).add(static_cast<std::uint64_t>(axis.size) * 2 + axis.periodic + 256);
    std::array<std::int64_t, 2> extremes{hash.number(), -hash.number()};
    ranks.all_reduce(extremes, max, where);
    if (extremes[0] == -extremes[1]) return;
    std::string text;
    for (MeshAxis const& axis : axes)
      text += concat(text.empty() ? "" : " x ", axis.name, " ", axis.size, axis.periodic ? " periodic" : "");
    refuse(concat("the ranks describe different meshes; this one's is ", text, ". Make the same on every rank"), ranks,
           where);
  }
  [[noreturn]] static void refuse(std::string text, Communicator<B>& ranks, Where where) {
    throw Error(ErrorKind::invalid_argument, "mesh", std::move(text), where).with_rank(ranks.rank());
  }
  void check_here(Where where) const {
    if (moved_) comm::throw_moved("mesh", where);
  }
  Axis& find(std::string_view name, Where where) const {
    check_here(where);
    std::string known;
    for (auto const& axis : axes_) {
      if (axis->name == name) return *axis;
      known += (known.empty() ? "" : ", ") + axis->name;
    }
    throw Error(ErrorKind::invalid_argument, "mesh",
                concat("no axis is named \"", name, "\". There are: ", known), where);
  }

  List<Owner<Axis>> axes_;
  bool moved_ = false;
};

}  // namespace tutti

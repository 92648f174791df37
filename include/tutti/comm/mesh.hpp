// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Mesh<Backend>`: ranks as points of a grid with named axes, and a communicator along each of them.

#include <tutti/comm/call_site.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/comm/concepts.hpp>
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
      axes_.push_back(make_owner<Axis>(std::string(axis.name), axis.size, coordinate, std::move(line)));
    }
  }

  Mesh(Mesh&& other) noexcept : axes_(std::move(other.axes_)), moved_(std::exchange(other.moved_, true)) {}
  Mesh& operator=(Mesh&& other) noexcept {
    axes_ = std::move(other.axes_);
    moved_ = std::exchange(other.moved_, true);
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

 private:
  struct Axis {
    Axis(std::string n, int s, int c, Owner<Communicator<B>> l)
        : name(std::move(n)), size(s), coordinate(c), line(std::move(l)) {}
    std::string name;
    int size;
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
    for (MeshAxis const& axis : axes) hash.add(axis.name).add(static_cast<std::uint64_t>(axis.size) + 256);
    std::array<std::int64_t, 2> extremes{hash.number(), -hash.number()};
    ranks.all_reduce(extremes, max, where);
    if (extremes[0] == -extremes[1]) return;
    std::string text;
    for (MeshAxis const& axis : axes) text += concat(text.empty() ? "" : " x ", axis.name, " ", axis.size);
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

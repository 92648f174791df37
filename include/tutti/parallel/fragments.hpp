// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model's parameters as flat vectors, whole or in fragments that are averaged at different times.

#include <tutti/core/error.hpp>
#include <tutti/graph/state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

/// Part of a parameter: `count` elements from `first` on, row-major.
struct Piece {
  std::string field;
  std::int64_t first = 0, count = 0;

  friend bool operator==(Piece const&, Piece const&) = default;
};
/// Pieces in the order in which they lie in the flat vector.
using Fragment = std::vector<Piece>;

inline std::int64_t size(Fragment const& fragment) noexcept {
  std::int64_t total = 0;
  for (Piece const& piece : fragment) total += piece.count;
  return total;
}

/// Divides the parameters of a state into `count` fragments. Layer l of every stacked parameter goes to fragment
/// l % count: strided over the depth (Douillard et al. 2025, arXiv 2501.18512); other parameters, the largest first,
/// go to the fragment that is smallest so far. A function of names, shapes and `count` alone, so it is the same on
/// every rank and worker.
/// Errors  configuration, when there are fewer parts than fragments.
inline std::vector<Fragment> fragments_of(graph::State const& state, int count,
                                          std::source_location where = std::source_location::current()) {
  if (count < 1)
    throw Error(ErrorKind::configuration, "fragments_of",
                std::to_string(count) + " fragments are impossible. Ask for one or more", where);
  std::vector<Fragment> fragments(static_cast<std::size_t>(count));
  std::vector<graph::Field const*> whole;
  for (graph::Field const& field : state.fields()) {
    if (!field.parameter || field.shape.size() == 0) continue;
    if (!field.stacked || count == 1) {
      whole.push_back(&field);
      continue;
    }
    std::int64_t const layers = field.shape[0], of_layer = field.shape.size() / layers;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      fragments[static_cast<std::size_t>(layer % count)].push_back({field.name, layer * of_layer, of_layer});
  }
  if (count > 1)
    std::stable_sort(whole.begin(), whole.end(), [](auto const* a, auto const* b) {
      return a->shape.size() > b->shape.size();
    });
  for (graph::Field const* field : whole) {
    auto const smallest = std::min_element(fragments.begin(), fragments.end(),
                                           [](Fragment const& a, Fragment const& b) { return size(a) < size(b); });
    smallest->push_back({field->name, 0, field->shape.size()});
  }
  for (Fragment const& fragment : fragments)
    if (fragment.empty())
      throw Error(ErrorKind::configuration, "fragments_of",
                  "the model has too few layers and parameters for " + std::to_string(count) +
                      " fragments. Ask for fewer",
                  where);
  return fragments;
}

namespace detail {
/// The elements of `piece` in the state. Errors: shape, where the state has no such elements.
inline std::span<float> elements(graph::State const& state, Piece const& piece) {
  graph::Field const* const field = state.find(piece.field);
  if (field == nullptr || piece.first < 0 || piece.count < 0 || piece.first > field->shape.size() - piece.count)
    throw Error(ErrorKind::shape, "parallel::fragments",
                "the state has no elements " + std::to_string(piece.first) + " to " +
                    std::to_string(piece.first + piece.count) + " of '" + piece.field +
                    "'. Use the fragments of this model");
  return field->view<float>().elements().subspan(static_cast<std::size_t>(piece.first),
                                                 static_cast<std::size_t>(piece.count));
}
/// f(elements in the state, elements in the flat vector) for every piece. Errors: shape.
template <class T, class F>
void for_each_piece(graph::State const& state, Fragment const& fragment, std::span<T> flat, F&& f) {
  if (static_cast<std::int64_t>(flat.size()) != size(fragment))
    throw Error(ErrorKind::shape, "parallel::fragments",
                "a fragment of " + std::to_string(size(fragment)) + " elements and a vector of " +
                    std::to_string(flat.size()) + " do not belong together");
  std::size_t at = 0;
  for (Piece const& piece : fragment) {
    std::span<float> const inside = elements(state, piece);
    f(inside, flat.subspan(at, inside.size()));
    at += inside.size();
  }
}
}  // namespace detail

/// The fragment's elements, one behind another. Errors: shape.
inline void gather(graph::State const& state, Fragment const& fragment, std::span<float> to) {
  detail::for_each_piece(state, fragment, to, [](std::span<float> inside, std::span<float> flat) {
    std::memcpy(flat.data(), inside.data(), inside.size_bytes());
  });
}
/// The reverse of `gather`. Errors: shape.
inline void scatter(std::span<float const> from, Fragment const& fragment, graph::State& state) {
  detail::for_each_piece(state, fragment, from, [](std::span<float> inside, std::span<float const> flat) {
    std::memcpy(inside.data(), flat.data(), inside.size_bytes());
  });
}
/// The fragment's elements change places with those of `with`. Errors: shape.
inline void exchange(graph::State& state, Fragment const& fragment, std::span<float> with) {
  detail::for_each_piece(state, fragment, with, [](std::span<float> inside, std::span<float> flat) {
    std::swap_ranges(inside.begin(), inside.end(), flat.begin());
  });
}

}  // namespace tutti::parallel

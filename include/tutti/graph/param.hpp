// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameters of models: handles inside Hana structs, which give every one its name, and stacks of equal blocks.

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/ops.hpp>
#include <tutti/reflect/members.hpp>

#include <array>
#include <string>
#include <vector>

namespace tutti::graph {

/// A trained tensor: shape and initialisation, and, once bound to a graph, its value there.
struct Param {
  Shape shape;
  Init init;
  Var var{};
  bool absent = false;  ///< the model does without it: a layer without bias

  constexpr operator Var() const { return var; }
};

/// A parameter whose name is known at run time alone. A model holds such as what its member function
/// `named_parameters()` gives: a range of them.
struct NamedParam {
  std::string name;
  Param param;
};

/// `length` blocks of one kind. Their parameters are stored stacked, (length, ...), under the names of the block's
/// members; `repeat` runs them one after another.
template <class Block>
struct Stack {
  using block_type = Block;
  Block block;
  std::int64_t length = 0;
};

namespace detail {
template <class T>
inline constexpr bool is_stack = false;
template <class Block>
inline constexpr bool is_stack<Stack<Block>> = true;
/// Layers of one type with parameters of their own, each traced by itself.
template <class T>
inline constexpr bool is_list = false;
template <class T, class Allocator>
inline constexpr bool is_list<std::vector<T, Allocator>> = true;
template <class T, std::size_t N>
inline constexpr bool is_list<std::array<T, N>> = true;
}  // namespace detail

/// In place of a number of layers: not in a stack.
inline constexpr std::int64_t not_stacked = -1;

/// Calls f(name, param, layers) for every Param of a model that is not absent, in the order of its definition; `layers`
/// is `not_stacked` outside stacks. Members of other types (sizes, configuration) are passed over. A stack's own name
/// stands before those of its block: "blocks.ln_1.gamma"; an element of a std::vector or std::array has its number:
/// "convolutions.0.weight".
template <class Model, class F>
constexpr void for_each_parameter(Model& model, F&& f, std::string_view prefix = {},
                                  std::int64_t layers = not_stacked) {
  using Plain = std::remove_cv_t<Model>;
  if constexpr (std::is_same_v<Plain, Param>) {
    if (!model.absent) f(prefix, model, layers);
  } else if constexpr (detail::is_stack<Plain>) {
    static_assert(reflect::Reflected<typename Plain::block_type>,
                  "the block of a Stack must be a struct defined with BOOST_HANA_DEFINE_STRUCT");
    if (layers != not_stacked)
      refuse(Where::current(), "Stack", ErrorKind::invalid_argument,
             "'" + std::string(prefix) + "' is a Stack inside of a Stack, whose layers would be stored over one "
             "another. Use a std::vector or std::array for one of them");
    for_each_parameter(model.block, f, prefix, model.length);
  } else if constexpr (requires { model.named_parameters(); }) {
    for (auto& [name, param] : model.named_parameters())
      for_each_parameter(param, f, reflect::joined(prefix, name), layers);
  } else if constexpr (detail::is_list<Plain>) {
    int number = 0;
    for (auto& element : model) {
      reflect::Path const path = reflect::joined(prefix, reflect::Path().append(number++));
      for_each_parameter(element, f, path, layers);
    }
  } else if constexpr (reflect::Reflected<Plain>) {
    reflect::for_each_member(model, [&](std::string_view name, auto& member) {
      reflect::Path const path = reflect::joined(prefix, name);
      for_each_parameter(member, f, path, layers);
    });
  }
}

/// Shape of the tensor that holds the parameter.
constexpr Shape stored_shape(Param const& param, std::int64_t layers) {
  return layers == not_stacked ? param.shape : with_first(layers, param.shape);
}

/// The model with every parameter declared in the graph, in the order of the definition.
/// Errors  configuration: a Stack of length 0, whose loop would do nothing
template <class Model>
constexpr Model bind(Builder& builder, Model model, std::source_location where = std::source_location::current()) {
  for_each_parameter(model, [&](std::string_view name, Param& param, std::int64_t layers) {
    if (layers == 0)
      refuse(where, "Stack", ErrorKind::configuration,
             "parameter '" + std::string(name) + "' is in a Stack of length 0, which has no layers. Set the Stack's "
             "length");
    param.var = builder.parameter(name, stored_shape(param, layers), param.init, layers != not_stacked, where);
  });
  return model;
}

/// Number of trained values.
template <class Model>
constexpr std::int64_t parameter_count(Model const& model) {
  std::int64_t count = 0;
  for_each_parameter(model, [&](std::string_view, Param const& param, std::int64_t layers) {
    count += stored_shape(param, layers).size();
  });
  return count;
}

/// The graph of what f(builder, bound model) declares: inputs, outputs, updates.
template <class Model, class F>
constexpr Graph trace(Model const& model, F&& f, std::source_location where = std::source_location::current()) {
  Builder builder;
  f(builder, bind(builder, model, where));
  return canonical(builder.graph());
}

}  // namespace tutti::graph

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a loss reads: inputs by name, type and shape. A loss that says nothing reads tokens and targets.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/builder.hpp>
#include <tutti/reflect/members.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/step_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::train {

/// An input of a loss: while the loss is traced its value, with all that a Var can do. Inputs are members of a struct
/// that lists them with BOOST_HANA_DEFINE_STRUCT, as a model's parameters are; their names are those of the members.
/// Shapes  of one row; the loss and who gives a batch see (rows, extents...). A `whole` input has no rows: its extents
///         are all of it, and it is the same for every row, micro-step and rank
struct Input : graph::Var {
  DType element = DType::float32;
  Shape extents{};
  bool whole = false;
};
/// Numbers, or a tensor of this shape, of every row of a batch.
template <Element T>
constexpr Input row_input(Shape const& shape = {}) {
  return {{}, dtype_of<T>, shape, false};
}
/// A tensor that all rows have together: weights of classes, a temperature.
template <Element T>
constexpr Input whole_input(Shape const& shape = {}) {
  return {{}, dtype_of<T>, shape, true};
}

/// What a loss reads that declares nothing.
struct TokenInputs {
  BOOST_HANA_DEFINE_STRUCT(TokenInputs, (Input, tokens), (Input, targets));
};

/// Whether `Loss` declares what it reads, by a static function inputs(Config const&) or inputs(Config const&, sequence
/// length) that returns a struct of `Input`s.
template <class Loss>
concept DeclaresInputs = requires(typename Loss::Config const& config) { Loss::inputs(config); } ||
                         requires(typename Loss::Config const& config) { Loss::inputs(config, std::int64_t{}); };

template <class Loss>
constexpr auto inputs_of(typename Loss::Config const& config, std::int64_t sequence) {
  if constexpr (requires { Loss::inputs(config, sequence); }) return Loss::inputs(config, sequence);
  else if constexpr (requires { Loss::inputs(config); }) return Loss::inputs(config);
  else return TokenInputs{row_input<std::int32_t>({sequence}), row_input<std::int32_t>({sequence})};
}

/// Whether batches of tokens and targets are what `Loss` reads: the trainer has such.
template <class Loss>
inline constexpr bool reads_tokens =
    std::is_same_v<decltype(inputs_of<Loss>(std::declval<typename Loss::Config const&>(), 1)), TokenInputs>;

namespace detail {

/// Calls f(name, input) for every member.
template <class Inputs, class F>
constexpr void for_each_input(Inputs& inputs, F&& f) {
  static_assert(reflect::Reflected<Inputs>,
                "tutti: the inputs of a loss are a struct that lists them: BOOST_HANA_DEFINE_STRUCT(Name, "
                "(train::Input, x), (train::Input, y))");
  reflect::for_each_member(inputs, [&](std::string_view name, auto& input) {
    constexpr bool is_input = std::is_same_v<std::remove_cvref_t<decltype(input)>, Input>;
    static_assert(is_input, "tutti: every member of a loss's struct of inputs is a train::Input");
    f(name, input);
  });
}
/// Of a batch of so many rows.
constexpr Shape batch_shape(Input const& input, std::int64_t rows) {
  return input.whole ? input.extents : graph::with_first(rows, input.extents);
}

}  // namespace detail

/// Values of one input, which they do not own: `name` and elements live as long as it is used.
struct InputValues {
  std::string_view name;
  DType dtype = DType::float32;
  Shape shape{};
  void const* elements = nullptr;  ///< in row-major order

  /// Errors: shape, unless the view is contiguous.
  template <class T>
    requires Element<std::remove_const_t<T>>
  InputValues(std::string_view input, TensorView<T> values,
              std::source_location where = std::source_location::current())
      : name(input),
        dtype(dtype_of<std::remove_const_t<T>>),
        shape(values.shape()),
        elements(values.elements(where).data()) {}
  template <Element T>
  InputValues(std::string_view input, Tensor<T> const& values,
              std::source_location where = std::source_location::current())
      : InputValues(input, values.view(), where) {}
};

/// Values of all inputs of a loss, in any order: {{"x", x}, {"y", y}}, or a vector made at run time. Owns nothing.
class InputBatch {
 public:
  InputBatch(std::initializer_list<InputValues> values) : values_(values) {}
  InputBatch(std::vector<InputValues> values) : values_(std::move(values)) {}
  /// Tokens and targets.
  InputBatch(TensorView<std::int32_t const> tokens, TensorView<std::int32_t const> targets, std::source_location where)
      : values_{{"tokens", tokens, where}, {"targets", targets, where}} {}

  auto begin() const noexcept { return values_.begin(); }
  auto end() const noexcept { return values_.end(); }

 private:
  std::vector<InputValues> values_;
};

/// The inputs of one loss, for checks and for handing out what a batch gives.
class InputList {
 public:
  struct Entry {
    std::string name;
    Input input;
  };

  InputList() = default;
  template <class Inputs>
  explicit InputList(Inputs const& inputs) {
    detail::for_each_input(inputs, [&](std::string_view name, Input const& input) {
      entries_.push_back({std::string(name), input});
    });
  }

  /// Errors, naming the input and what it must be: invalid_argument, for one that is missing, unknown or given twice;
  /// dtype; shape.
  void require(InputBatch const& batch, std::int64_t rows, char const* who, std::source_location where) const {
    List<bool> given(entries_.size(), false);
    for (InputValues const& values : batch) {
      std::size_t const i = find(values.name);
      if (i == entries_.size())
        throw Error(ErrorKind::invalid_argument, who,
                    concat("the loss reads no input '", values.name, "'. It reads ", text(rows)), where);
      Input const& input = entries_[i].input;
      if (given[i])
        throw Error(ErrorKind::invalid_argument, who, concat("input '", values.name, "' is given twice"), where);
      given[i] = true;
      if (values.dtype != input.element)
        throw Error(ErrorKind::dtype, who,
                    concat("input '", values.name, "' is ", name(values.dtype), " and must be ", name(input.element)),
                    where);
      if (Shape const wanted = detail::batch_shape(input, rows); !(values.shape == wanted))
        throw Error(ErrorKind::shape, who,
                    concat("input '", values.name, "' is of shape ", to_string(values.shape), " and must be ",
                           to_string(wanted), input.whole ? ", the same for all rows" : ": the batch's rows first"),
                    where);
    }
    for (std::size_t i = 0; i < given.size(); ++i)
      if (!given[i])
        throw Error(ErrorKind::invalid_argument, who,
                    concat("input '", entries_[i].name, "' is missing. The loss reads ", text(rows)), where);
  }

  /// Gives `run` what it takes of rows [first, first + rows) of a batch that `require` has seen.
  template <class Run>
  void hand_out(Run& run, InputBatch const& batch, std::int64_t first, std::int64_t rows,
                std::source_location where) const {
    for (InputValues const& values : batch) {
      Input const& input = entries_[find(values.name)].input;
      if (!run.takes(values.name)) continue;  // the loss declares it and does not use it
      std::size_t const row = static_cast<std::size_t>(input.extents.size()) * size_of(input.element);
      auto const* from = static_cast<std::byte const*>(values.elements);
      if (!input.whole && from != nullptr) from += static_cast<std::size_t>(first) * row;
      run.set(values.name, input.element, detail::batch_shape(input, rows), from, where);
    }
  }

 private:
  std::size_t find(std::string_view name) const {
    return static_cast<std::size_t>(
        std::find_if(entries_.begin(), entries_.end(), [&](Entry const& e) { return e.name == name; }) -
        entries_.begin());
  }
  /// "'x', float32 (4, 2), 'y', float32 (4, 1)"
  std::string text(std::int64_t rows) const {
    std::string all;
    for (Entry const& entry : entries_)
      all += concat(all.empty() ? "'" : ", '", entry.name, "' (", name(entry.input.element), " ",
                    to_string(detail::batch_shape(entry.input, rows)), ")");
    return all.empty() ? "none" : all;
  }

  std::vector<Entry> entries_;
};

}  // namespace tutti::train

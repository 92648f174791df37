// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The inputs and outputs of a program by name, in memory of the host: what executors on every device have alike.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/memory.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/tensor/view.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::graph {

/// One block of memory: inputs first, outputs behind them. Inputs keep their values between runs.
class Ports {
 public:
  /// Copies an input in. Errors: invalid_argument (no such input), shape, dtype.
  template <class T>
  void set(std::string_view name, TensorView<T> values, std::source_location where = std::source_location::current()) {
    set(name, dtype_of<std::remove_const_t<T>>, values.shape(), values.elements(where).data(), where);
  }
  /// The same of elements in row-major order whose type is known at run time.
  void set(std::string_view name, DType dtype, Shape const& shape, void const* elements,
           std::source_location where = std::source_location::current()) {
    Entry const& entry = input(name, where);
    if (dtype != entry.dtype)
      throw Error(ErrorKind::dtype, "Executor::set",
                  concat("input '", entry.name, "' is ", tutti::name(entry.dtype), ", and it was given ",
                         tutti::name(dtype)), where);
    if (!(shape == entry.shape))
      throw Error(ErrorKind::shape, "Executor::set",
                  concat("input '", entry.name, "' has shape ", to_string(entry.shape), ", and it was given ",
                         to_string(shape)), where);
    std::byte* const to = given(entry);
    if (shape.size() > 0) std::memcpy(to, elements, static_cast<std::size_t>(shape.size()) * size_of(dtype));
  }
  /// Whether there is such an input.
  bool takes(std::string_view name) const {
    for (Entry const& entry : list_.inputs)
      if (entry.name == name) return true;
    return false;
  }
  /// Sets every element of an input: for scalars. Errors: invalid_argument, dtype (the type has no such number).
  void set(std::string_view name, double value, std::source_location where = std::source_location::current()) {
    Entry const& entry = input(name, where);
    std::byte* const to = checked(entry, holds(entry.dtype, value), value, where);
    for (std::int64_t i = 0; i < entry.shape.size(); ++i) generic::store_number(entry.dtype, to, i, value);
  }
  template <std::integral T>
  void set(std::string_view name, T value, std::source_location where = std::source_location::current()) {
    Entry const& entry = input(name, where);
    if (entry.dtype == DType::float64) return set(name, static_cast<double>(value), where);
    if (is_floating(entry.dtype)) return set(name, double{static_cast<float>(value)}, where);  // rounded once
    bool const held = with_dtype(entry.dtype, [&](auto zero) {
      using E = std::conditional_t<std::is_integral_v<decltype(zero)>, decltype(zero), unsigned char>;
      return std::cmp_equal(+static_cast<E>(value), +value);
    });
    std::byte* const to = checked(entry, held, value, where);
    for (std::int64_t i = 0; i < entry.shape.size(); ++i)
      generic::store_integer(entry.dtype, to, i, static_cast<std::int64_t>(value));
  }

  /// An output of the last run, valid until the next one. Errors: invalid_argument, dtype.
  template <class T>
  TensorView<T const> output(std::string_view name,
                             std::source_location where = std::source_location::current()) const {
    Entry const& entry = output_entry(name, where);
    if (dtype_of<T> != entry.dtype)
      throw Error(ErrorKind::dtype, "Executor::output",
                  "output '" + entry.name + "' is " + std::string(tutti::name(entry.dtype)) + ", not " +
                      std::string(tutti::name(dtype_of<T>)),
                  where);
    return {reinterpret_cast<T const*>(data_of(entry)), entry.shape};
  }
  /// The first element of an output of any type: losses, norms.
  double value(std::string_view name, std::source_location where = std::source_location::current()) const {
    Entry const& entry = output_entry(name, where);
    return entry.shape.size() == 0 ? 0 : generic::number_at(entry.dtype, data_of(entry), 0);
  }

 protected:
  explicit Ports(StepList const& list)
      : list_(list), given_(list.inputs.size(), false), offsets_(list.buffers.size()) {
    std::int64_t bytes = 0;
    for (auto const* entries : {&list.inputs, &list.outputs}) {
      for (Entry const& entry : *entries) {
        offsets_[lowering::at(entry.buffer)] = bytes;
        bytes += align_up(std::max<std::int64_t>(list[entry.buffer].bytes, 1));
      }
      if (entries == &list.inputs) input_bytes_ = bytes;
    }
    memory_ = Memory(std::max<std::int64_t>(bytes, 1));
  }
  ~Ports() = default;

  std::byte* port_data() const noexcept { return memory_.data(); }
  std::int64_t port_bytes() const noexcept { return memory_.bytes(); }
  std::int64_t input_bytes() const noexcept { return input_bytes_; }
  /// Of an input or output in the block.
  std::int64_t port_offset(Entry const& entry) const noexcept { return offsets_[lowering::at(entry.buffer)]; }
  /// Errors: invalid_argument, where one was never set.
  void require_given(std::source_location where) const {
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (!given_[i])
        throw Error(ErrorKind::invalid_argument, "Executor::run",
                    "input '" + list_.inputs[i].name + "' was never set", where);
  }
  /// Errors: invalid_argument (the state lacks it), shape.
  static Field& field_of(State& state, Entry const& entry) {
    Field& field = state.at(entry.name);
    if (field.dtype != entry.dtype || !(field.shape == entry.shape))
      throw Error(ErrorKind::shape, "graph::Executor",
                  "field '" + entry.name + "' has shape " + to_string(field.shape) + " in the state and " +
                      to_string(entry.shape) + " in the program");
    return field;
  }

 private:
  std::byte* data_of(Entry const& entry) const noexcept { return port_data() + port_offset(entry); }
  Entry const& input(std::string_view name, std::source_location where) const {
    int const i = Program::find(list_.inputs, name);
    if (i < 0) fail_name("input", name, list_.inputs, where);
    return list_.inputs[lowering::at(i)];
  }
  /// The memory of an input that is written now.
  std::byte* given(Entry const& entry) {
    given_[static_cast<std::size_t>(&entry - list_.inputs.data())] = true;
    return data_of(entry);
  }
  template <class T>
  std::byte* checked(Entry const& entry, bool holds, T value, std::source_location where) {
    if (holds) return given(entry);
    throw Error(ErrorKind::dtype, "Executor::set",
                concat("input '", entry.name, "' is ", tutti::name(entry.dtype), ", and none is ",
                       std::to_string(value)), where);
  }
  Entry const& output_entry(std::string_view name, std::source_location where) const {
    int const i = Program::find(list_.outputs, name);
    if (i < 0) fail_name("output", name, list_.outputs, where);
    return list_.outputs[lowering::at(i)];
  }
  [[noreturn]] static void fail_name(char const* what, std::string_view name, List<Entry> const& entries,
                                     std::source_location where) {
    std::string known;
    for (Entry const& entry : entries) known += (known.empty() ? "" : ", ") + entry.name;
    throw Error(ErrorKind::invalid_argument, "graph::Executor",
                "the program has no " + std::string(what) + " '" + std::string(name) +
                    "'. It has: " + (known.empty() ? "none" : known),
                where);
  }

  StepList const& list_;
  List<bool> given_;
  List<std::int64_t> offsets_;
  std::int64_t input_bytes_ = 0;
  Memory memory_;
};

}  // namespace tutti::graph

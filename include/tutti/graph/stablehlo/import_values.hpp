// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Values while a module is imported: handles of the graph, and what is known of integers without it. Loops count with
/// them, so that the number of iterations, and what is sliced by the counter, are known before the graph is made.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/graph/stablehlo/literal.hpp>
#include <tutti/graph/stablehlo/text.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph::stablehlo {

/// A value of the module.
struct Item {
  text::TensorType type;
  Var var{};  ///< of no graph where `numbers` say what it is, or nothing is known (a trial of a loop)
  /// Of integers and truth values whose elements are equal: the number; or one for each iteration of `loop`.
  std::shared_ptr<List<double> const> numbers{};
  int loop = 0;
  /// What a loop only hands on: the number of the loop, where `var` lies outside of it; or what the loop fills slice by
  /// slice, before and after that was done.
  int whole_of = 0, hole_of = 0, filled_of = 0;
  std::size_t place = 0;  ///< among what the loop carries

  bool known() const noexcept { return numbers != nullptr; }
  /// The same at all times.
  std::optional<double> constant() const {
    if (numbers != nullptr && loop == 0) return (*numbers)[0];
    if (var.builder != nullptr) return graph::detail::constant_value(var);
    return std::nullopt;
  }
};
using Items = List<Item>;

inline Item known_item(text::TensorType const& type, List<double> numbers, int loop) {
  bool equal = true;
  for (double const x : numbers) equal = equal && x == numbers[0];
  if (equal && numbers.size() > 1) numbers.resize(1);
  Item item;
  item.type = type;
  item.loop = equal ? 0 : loop;
  item.numbers = std::make_shared<List<double> const>(std::move(numbers));
  return item;
}

/// Someone used what a loop fills other than by filling it: the loop is made anew, and carries it.
struct HoleUsed {
  int loop = 0;
};

/// A loop whose body is being made.
struct Loop {
  int number = 0;
  std::int64_t length = 0;
  Scan* scan = nullptr;
  Builder* body = nullptr;
  Builder* outer = nullptr;
  Var ordinal{};                                     ///< int32 (), of iteration i it is i; made where needed
  List<std::pair<std::size_t, Var>> slices{};        ///< by place
};

/// Where operations go: into the innermost loop's body.
class Scope {
 public:
  Scope(Builder& builder, std::string_view file) : outermost_(builder), file_(file) {}

  Builder& builder() const noexcept { return loops_.empty() ? outermost_ : *loops_.back()->body; }
  List<Loop*>& loops() noexcept { return loops_; }
  std::string const& file() const noexcept { return file_; }

  void begin(text::Operation const& operation) {
    operation_ = &operation;
    builder().copy_source(file_, operation.line);
  }
  text::Operation const& operation() const noexcept { return *operation_; }
  text::Operation const* last() const noexcept { return operation_; }  ///< null before the first
  [[noreturn]] void refuse(std::string_view sentence, ErrorKind kind = ErrorKind::unavailable) const {
    text::refuse(file_, operation_->line, operation_->name, kind, sentence);
  }

  /// The handle of a value. Constants are made where they are needed: captured, they would be tensors in memory.
  Var var(Item const& item) {
    if (item.hole_of != 0 || item.filled_of != 0) throw HoleUsed{item.hole_of + item.filled_of};
    if (item.var.builder != nullptr) {
      auto const number = graph::detail::constant_value(item.var);
      if (!number || item.var.builder == &builder()) return item.var;
      return constant(builder(), *number, item.type.shape, item.type.dtype);
    }
    if (!item.known()) refuse("has an operand that is not known here", ErrorKind::internal);
    if (item.loop == 0) return constant(builder(), (*item.numbers)[0], item.type.shape, item.type.dtype);
    for (Loop* loop : loops_)
      if (loop->number == item.loop) return counted(*loop, item);
    refuse("uses a loop's counter outside of it", ErrorKind::internal);
  }
  Var in(Items const& items, std::size_t i) {
    if (i >= items.size()) refuse(concat("needs an operand ", i), ErrorKind::format);
    return var(items[i]);
  }

 private:
  Var counted(Loop& loop, Item const& item) {
    List<double> const& numbers = *item.numbers;
    double const first = numbers[0], step = numbers[1] - first;
    bool regular = true;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      regular = regular && numbers[i] == first + step * static_cast<double>(i);
    Var number;
    if (regular && item.type.dtype != DType::boolean) {
      if (loop.ordinal.builder == nullptr)
        loop.ordinal = loop.scan->slice(iota(*loop.outer, {loop.length}, 0, DType::int32), "ordinal");
      number = graph::convert(loop.ordinal, item.type.dtype);
      if (step != 1) number = Operand(number) * step;
      if (first != 0) number = Operand(number) + first;
    } else {
      number = loop.scan->slice(literal(*loop.outer, numbers, item.type.dtype, {loop.length}), "numbers");
    }
    return item.type.shape.rank() == 0 ? number : broadcast_to(number, item.type.shape);
  }

  Builder& outermost_;
  std::string file_;
  List<Loop*> loops_;
  text::Operation const* operation_ = nullptr;
};

/// Attributes of the operation at hand.
inline std::optional<List<std::int64_t>> find_integers(text::Operation const& operation, std::string_view key,
                                                       std::string_view other = {}) {
  text::Attribute const* const found = operation.find(key, other);
  if (found == nullptr) return std::nullopt;
  List<std::int64_t> numbers;
  using Kind = text::Attribute::Kind;
  for (double const x : found->numbers) numbers.push_back(static_cast<std::int64_t>(x));
  for (text::Attribute const& item : found->items)
    if (item.kind == Kind::integer) numbers.push_back(item.integer);
  if (found->kind == Kind::integer) numbers.push_back(found->integer);
  return numbers;
}
inline List<std::int64_t> integers(Scope const& scope, std::string_view key, std::string_view other = {}) {
  auto const found = find_integers(scope.operation(), key, other);
  if (!found) scope.refuse(concat("has no '", key, "'"), ErrorKind::format);
  return *found;
}
inline std::int64_t integer(Scope const& scope, std::string_view key, std::string_view other = {}) {
  auto const found = integers(scope, key, other);
  if (found.size() != 1) scope.refuse(concat("needs one number as '", key, "'"), ErrorKind::format);
  return found[0];
}
/// A number of the named field of an attribute, as of #stablehlo.gather<...>; what is not said is empty.
inline List<std::int64_t> field(Scope const& scope, std::string_view key, std::string_view name) {
  text::Attribute const* const found = scope.operation().find(key);
  if (found == nullptr) scope.refuse(concat("has no '", key, "'"), ErrorKind::format);
  List<std::int64_t> numbers;
  for (std::size_t i = 0; i < found->keys.size(); ++i)
    if (found->keys[i] == name) {
      if (found->items[i].kind == text::Attribute::Kind::integer) numbers.push_back(found->items[i].integer);
      for (text::Attribute const& item : found->items[i].items) numbers.push_back(item.integer);
    }
  return numbers;
}

}  // namespace tutti::graph::stablehlo

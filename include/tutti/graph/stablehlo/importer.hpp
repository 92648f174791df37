// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs through a module's operations and makes nodes of them: functions are written out where they are called, loops
/// become loops of the graph, reductions with other bodies than sums and maxima halves that are folded.

#include <tutti/graph/stablehlo/import_arrays.hpp>
#include <tutti/graph/stablehlo/import_rows.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph::stablehlo {

/// Operations run through, those of functions at each call and of loops at each trial, and iterations of one loop.
inline constexpr std::int64_t most_operations = 20'000'000, most_iterations = 1 << 20, most_numbers = 1 << 27;

class Importer {
 public:
  Importer(Builder& builder, text::Module const& module) : scope_(builder, module.file), module_(module) {}

  Items call(text::Function const& function, Items arguments) {
    if (++depth_ > 64) refuse("functions call each other too deep");
    if (arguments.size() != function.body.arguments.size())
      refuse(concat("@", function.name, " takes ", function.body.arguments.size(), " arguments, not ",
                    arguments.size()), ErrorKind::format);
    if ((live_ += function.values) > most_operations) refuse("functions that call each other have too many values");
    Frame frame(static_cast<std::size_t>(function.values));
    Items results = run(function.body, frame, std::move(arguments));
    if (results.size() != function.results.size())
      refuse(concat("@", function.name, " returns another number of results than it says"), ErrorKind::format);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (!(results[i].type == function.results[i]))
        text::refuse(module_.file, function.line, "", ErrorKind::format,
                     concat("@", function.name, " says that it returns ", to_string(function.results[i]),
                            ", and returns ", to_string(results[i].type)));
    --depth_;
    live_ -= function.values;
    return results;
  }

  Var var(Item const& item) { return scope_.var(item); }

 private:
  using Frame = Items;  // by value of the function

  [[noreturn]] void refuse(std::string_view sentence, ErrorKind kind = ErrorKind::unavailable) const {
    scope_.refuse(sentence, kind);
  }

  /// What the region returns.
  Items run(text::Region const& region, Frame& frame, Items arguments) {
    if (arguments.size() != region.arguments.size()) refuse("has a region of other arguments", ErrorKind::format);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (lifted_ == nullptr && !(arguments[i].type == region.types[i]))
        refuse(concat("has a region that takes ", to_string(region.types[i]), ", not ", to_string(arguments[i].type)),
               ErrorKind::format);
      frame[static_cast<std::size_t>(region.arguments[i])] = std::move(arguments[i]);
    }
    for (text::Operation const& operation : region.operations) {
      if (++operations_ > most_operations) refuse("the module has too many operations, written out");
      text::Operation const* const outer = scope_.last();
      scope_.begin(operation);
      Items in;
      for (int const value : operation.operands) in.push_back(frame[static_cast<std::size_t>(value)]);
      if (text::is_return(operation.name)) {
        if (outer != nullptr) scope_.begin(*outer);
        return in;
      }
      Items results = evaluated(operation, frame, std::move(in));
      if (results.size() != operation.results.size()) refuse("has another number of results", ErrorKind::format);
      for (std::size_t i = 0; i < results.size(); ++i)
        frame[static_cast<std::size_t>(operation.first_result) + i] = std::move(results[i]);
      if (outer != nullptr) scope_.begin(*outer);
    }
    refuse("has a region that does not return", ErrorKind::format);
  }

  Items evaluated(text::Operation const& operation, Frame& frame, Items in) {
    try {
      Items results = trial_ ? tried(operation, frame, in) : evaluate(operation, frame, in);
      for (std::size_t i = 0; i < results.size() && i < operation.results.size(); ++i)
        check(results[i], operation.results[i]);
      return results;
    } catch (Error const& error) {
      if (error.operation() == "from_stablehlo") throw;
      scope_.begin(operation);
      refuse(error.message(), error.kind());
    }
  }
  /// Results are of the types that the text says.
  void check(Item& item, text::TensorType const& type) const {
    if (item.var.builder == nullptr || item.filled_of != 0) {
      if (item.type.dtype != type.dtype)
        refuse(concat("gives ", to_string(item.type), ", and the text says ", to_string(type)), ErrorKind::format);
      item.type = type;
      return;
    }
    text::TensorType const made{item.var.dtype(), item.var.shape()};
    bool const lifts = lifted_ != nullptr && made.dtype == type.dtype && type.shape.rank() == 0;
    if (!lifts && !(made == type))
      refuse(concat("gives ", to_string(made), ", and the text says ", to_string(type)), ErrorKind::format);
    item.type = type;
  }

  static std::string_view without_dialect(std::string_view name) {
    return name.starts_with("stablehlo.") ? name.substr(10) : name;
  }
  text::Function const& callee(text::Operation const& operation, std::string_view key) const {
    text::Attribute const* const said = operation.find(key);
    text::Function const* const found = said == nullptr ? nullptr : module_.find(said->string);
    if (found == nullptr)
      refuse(concat("there is no function @", said == nullptr ? "" : said->string), ErrorKind::format);
    return *found;
  }

  /// What is known beforehand, without the graph.
  Items tried(text::Operation const& operation, Frame&, Items const& in) {
    std::string_view const name = without_dialect(operation.name);
    if (name == "func.call") return call(callee(operation, "callee"), in);
    Items results;
    for (text::TensorType const& type : operation.results) {
      results.push_back({});
      results.back().type = type;
    }
    if (results.size() == 1 && !is_floating(operation.results[0].dtype))
      if (auto item = whole(name, operation, in)) results[0] = std::move(*item);
    return results;
  }
  /// Integers and truth values that are known.
  std::optional<Item> whole(std::string_view name, text::Operation const& operation, Items const& in) const {
    text::TensorType const& type = operation.results[0];
    if (name == "constant") {
      text::Attribute const* const value = operation.find("value");
      if (value == nullptr || value->numbers.size() != 1) return std::nullopt;
      return known_item(type, {value->numbers[0]}, 0);
    }
    bool const moves = name == "broadcast_in_dim" || name == "reshape" || name == "transpose" || name == "slice";
    if (moves && in.size() == 1 && in[0].known() && in[0].type.dtype == type.dtype) {
      Item item = in[0];
      item.type = type;
      item.var = {};
      return item;
    }
    if (lifted_ == nullptr) return fold(scope_, name, in, type);
    return std::nullopt;
  }

  Items evaluate(text::Operation const& operation, Frame& frame, Items const& in) {
    std::string_view const name = without_dialect(operation.name);
    if (name == "func.call") return call(callee(operation, "callee"), in);
    if (name == "composite") return call(callee(operation, "decomposition"), in);
    if (name == "while") return loop(operation, frame, in);
    if (name == "case" || name == "if") return branches(operation, frame, in, name == "if");
    if (name == "reduce") return reduce(operation, frame, in);
    if (name == "optimization_barrier") return in;
    if (name == "custom_call" && operation.find("call_target_name") != nullptr) {
      std::string const& target = operation.find("call_target_name")->string;
      if (target == "Sharding" && in.size() == 1) return in;
      refuse(concat("calls @", target, ", which is not in the module: it is not supported"));
    }
    if (operation.results.size() != 1) unsupported();
    text::TensorType const& type = operation.results[0];
    if (auto item = whole(name, operation, in)) return {*item};
    if (name == "select" && in.size() == 3 && lifted_ == nullptr)
      if (auto const choice = in[0].constant())
        if (Item const& chosen = in[*choice != 0 ? 1 : 2]; chosen.type == type) return {chosen};
    if (name == "convert" && in.size() == 1 && in[0].type == type) return {in[0]};
    if (name == "dynamic_update_slice") return {imported::dynamic_update_slice(scope_, in, type)};
    Item result;
    result.type = type;
    if (auto const made = function(scope_, name, in, type.dtype)) result.var = *made;
    else if (lifted_ != nullptr && name != "constant")
      refuse("stands in the body of a reduction, where it is not supported");
    else result.var = array(name, operation, frame, in);
    return {result};
  }
  [[noreturn]] void unsupported() const {
    refuse("is not supported. docs/guides/stablehlo.md lists what is");
  }

  Var array(std::string_view name, text::Operation const& operation, Frame&, Items const& in) {
    text::TensorType const& type = operation.results[0];
    if (name == "constant") {
      text::Attribute const* const value = operation.find("value");
      if (value == nullptr || value->kind != text::Attribute::Kind::dense || !(value->type == type))
        refuse("has no numbers of its type", ErrorKind::format);
      if (value->wide != 0) return wide_constant(scope_.builder(), value->wide, type.dtype, type.shape);
      // A body that is written out again has its constants again.
      if ((numbers_ += static_cast<std::int64_t>(value->numbers.size())) > most_numbers)
        refuse("the module has too many numbers, written out");
      return literal(scope_.builder(), value->numbers, type.dtype, type.shape);
    }
    if (name == "iota") {
      std::int64_t const axis = integer(scope_, "dim", "iota_dimension");
      if (axis < 0 || axis >= type.shape.rank()) refuse("counts along an axis that is not there", ErrorKind::format);
      return graph::iota(scope_.builder(), type.shape, static_cast<int>(axis), type.dtype);
    }
    if (name == "reshape") return graph::reshape(scope_.in(in, 0), type.shape);
    if (name == "broadcast_in_dim") {
      auto axes = integers(scope_, "dims", "broadcast_dimensions");
      return broadcast(scope_.in(in, 0), type.shape, std::move(axes));
    }
    if (name == "transpose") return graph::transpose(scope_.in(in, 0), integers(scope_, "dims", "permutation"));
    if (name == "slice") return imported::sliced(scope_, in);
    if (name == "pad") return imported::padded(scope_, in);
    if (name == "reverse") return imported::reversed(scope_, in);
    if (name == "concatenate") {
      List<Var> parts;
      for (std::size_t i = 0; i < in.size(); ++i) parts.push_back(scope_.in(in, i));
      return imported::concatenated(scope_, parts, integer(scope_, "dim", "dimension"));
    }
    if (name == "dot_general" || name == "dot") return imported::product(scope_, in, type.dtype);
    if (name == "dynamic_slice") return imported::dynamic_slice(scope_, in);
    if (name == "gather") return imported::gathered(scope_, in, type.shape);
    if (name == "scatter") return imported::scattered(scope_, in, meeting(operation));
    if (name == "reduce_window")
      return imported::window_sum(scope_, in, operation.regions.size() == 1 && only(operation.regions[0]) == "add");
    if (name == "reduce_precision") return imported::reduced_precision(scope_, in);
    unsupported();
  }
  /// Axes of the operand may come in any order.
  Var broadcast(Var x, Shape const& shape, List<std::int64_t> axes) {
    if (static_cast<int>(axes.size()) != x.rank()) refuse("needs an axis for each of its operand's", ErrorKind::format);
    List<std::int64_t> order = graph::detail::ascending(0, x.rank());
    List<std::int64_t> sorted = axes;
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return axes[static_cast<std::size_t>(a)] < axes[static_cast<std::size_t>(b)];
    });
    std::sort(sorted.begin(), sorted.end());
    return graph::broadcast_in_dim(graph::transpose(x, order), shape, sorted);
  }

  /// The operation that a body of two numbers is, or nothing: %c = NAME %a, %b, and returned.
  static std::string_view only(text::Region const& body) {
    if (body.operations.size() != 2 || body.arguments.size() != 2) return {};
    text::Operation const &folds = body.operations[0], &leaves = body.operations[1];
    int const a = body.arguments[0], b = body.arguments[1];
    bool const both = folds.operands == List<int>{a, b} || folds.operands == List<int>{b, a};
    return both && leaves.operands == List<int>{folds.first_result} ? without_dialect(folds.name) : std::string_view();
  }
  imported::Meeting meeting(text::Operation const& operation) const {
    if (operation.regions.size() != 1) refuse("needs one region", ErrorKind::format);
    text::Region const& body = operation.regions[0];
    if (only(body) == "add") return imported::Meeting::add;
    if (body.arguments.size() == 2 && body.operations.size() == 1 &&
        body.operations[0].operands == List<int>{body.arguments[1]})
      return imported::Meeting::replace;
    refuse("updates by another function than addition. Addition, and replacement at unique indices, are supported");
  }

  Items reduce(text::Operation const& operation, Frame& frame, Items const& in) {
    std::size_t const count = operation.results.size();
    if (operation.regions.size() != 1 || in.size() != 2 * count || count == 0)
      refuse("needs a start for each operand, and one region", ErrorKind::format);
    auto axes = integers(scope_, "dimensions");
    std::sort(axes.begin(), axes.end());
    text::Region const& body = operation.regions[0];
    std::string_view const function = only(body);
    DType const dtype = in[0].type.dtype;
    bool const real = is_floating(dtype), nothing = in[0].type.shape.size() == 0;
    auto const start = in[count].constant();
    Item result;
    if (count == 1 && dtype != DType::boolean && !nothing) {
      if (function == "add") {
        result.var = graph::reduce(Op::reduce_sum, scope_.in(in, 0), axes, Where::current());
        if (start != 0.0) result.var = Operand(result.var) + Operand(scope_.in(in, 1));
        return {result};
      }
      if (function == "maximum" || (function == "minimum" && real)) {
        bool const least = function == "minimum";
        double const end = least ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
        Var x = scope_.in(in, 0);
        x = graph::reduce(Op::reduce_max, least ? -Operand(x) : x, axes, Where::current());
        if (least) x = -Operand(x);
        bool const neutral =
            start && (real ? *start == end : *start == static_cast<double>(generic::lowest_integer(dtype)));
        if (!neutral) x = least ? minimum(x, scope_.in(in, 1)) : maximum(x, scope_.in(in, 1));
        result.var = x;
        return {result};
      }
    }
    return folded(operation, frame, in, axes);
  }

  /// Halves are folded into each other, neighbours first, so that their order is kept.
  Items folded(text::Operation const& operation, Frame& frame, Items const& in, List<std::int64_t> const& axes) {
    if (lifted_ != nullptr) refuse("stands in the body of a reduction, where it is not supported");
    std::size_t const count = operation.results.size();
    Shape const shape = in[0].type.shape, kept = operation.results[0].shape;
    List<std::int64_t> order = axes;
    std::int64_t n = 1;
    for (std::int64_t const axis : axes) {
      if (axis < 0 || axis >= shape.rank()) refuse("reduces an axis that is not there", ErrorKind::format);
      n *= shape[static_cast<int>(axis)];
    }
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (!graph::detail::contains(axes, axis)) order.push_back(axis);
    List<Var> parts;
    for (std::size_t i = 0; i < count; ++i) {
      if (in[i].type.shape != shape) refuse("reduces operands of several shapes", ErrorKind::format);
      parts.push_back(graph::reshape(graph::transpose(scope_.in(in, i), order), with_first(n, kept)));
    }
    auto const rows = [&](Var x, std::int64_t first, std::int64_t limit, std::int64_t step) {
      List<std::int64_t> starts(static_cast<std::size_t>(x.rank()), 0), limits, steps(starts.size(), 1);
      for (int axis = 0; axis < x.rank(); ++axis) limits.push_back(x.shape()[axis]);
      starts[0] = first;
      limits[0] = limit;
      steps[0] = step;
      return graph::slice(x, starts, limits, steps);
    };
    text::Region const& body = operation.regions[0];
    for (; n > 1; n = n / 2 + n % 2) {
      List<Var> left, right;
      for (Var const x : parts) left.push_back(rows(x, 0, n / 2 * 2, 2)), right.push_back(rows(x, 1, n / 2 * 2, 2));
      List<Var> next = applied(body, frame, left, right, with_first(n / 2, kept));
      for (std::size_t i = 0; i < count && n % 2 == 1; ++i)
        next[i] = imported::concatenated(scope_, {next[i], rows(parts[i], n - 1, n, 1)}, 0);
      parts = std::move(next);
    }
    List<Var> starts;
    for (std::size_t i = 0; i < count; ++i) starts.push_back(broadcast_to(scope_.in(in, count + i), kept));
    if (n > 0)
      for (Var& x : parts) x = graph::reshape(x, kept);
    std::string_view const function = only(body);
    auto const start = in[count].constant();
    bool const neutral = (start == 1.0 && (function == "and" || function == "multiply")) ||
                         (start == 0.0 && (function == "or" || function == "add"));
    List<Var> const found = n == 0 ? starts : neutral ? parts : applied(body, frame, starts, parts, kept);
    Items results;
    for (Var const x : found) {
      results.push_back({});
      results.back().var = x;
    }
    return results;
  }
  /// The body on tensors, in the place of numbers.
  List<Var> applied(text::Region const& body, Frame& frame, List<Var> const& left, List<Var> const& right,
                    Shape const& shape) {
    Items arguments;
    for (auto const* list : {&left, &right})
      for (Var const x : *list) {
        arguments.push_back({});
        arguments.back().var = x;
        arguments.back().type = {x.dtype(), {}};
      }
    lifted_ = &shape;
    Items const results = run(body, frame, std::move(arguments));
    lifted_ = nullptr;
    if (results.size() != left.size()) refuse("has a region that returns another number", ErrorKind::format);
    List<Var> found;
    for (std::size_t i = 0; i < results.size(); ++i) {
      found.push_back(broadcast_to(scope_.var(results[i]), shape));
      if (found[i].dtype() != left[i].dtype()) refuse("has a region that returns another type", ErrorKind::format);
    }
    return found;
  }

  /// All branches are computed, unless it is known which is taken: they have no effects.
  Items branches(text::Operation const& operation, Frame& frame, Items const& in, bool truth) {
    std::size_t const count = operation.regions.size();
    if (in.size() != 1 || count == 0 || (truth && count != 2)) refuse("needs a number and branches", ErrorKind::format);
    auto const chosen = [&](double n) {
      if (truth) return n != 0 ? std::size_t{0} : std::size_t{1};
      return n >= 0 && n < static_cast<double>(count) ? static_cast<std::size_t>(n) : count - 1;
    };
    if (auto const n = in[0].constant()) return run(operation.regions[chosen(*n)], frame, {});
    Items results = run(operation.regions[count - 1], frame, {});
    for (std::size_t i = count - 1; i-- > 0;) {
      Items const other = run(operation.regions[i], frame, {});
      if (other.size() != results.size()) refuse("has branches of other results", ErrorKind::format);
      Var const here = truth ? scope_.in(in, 0) : equal(scope_.in(in, 0), static_cast<double>(i));
      for (std::size_t k = 0; k < results.size(); ++k) {
        Item item;
        item.var = select(here, scope_.var(other[k]), scope_.var(results[k]));
        item.type = {item.var.dtype(), item.var.shape()};
        results[k] = std::move(item);
      }
    }
    return results;
  }

  Items loop(text::Operation const& operation, Frame& frame, Items const& in);
  struct Trial;
  Trial try_loop(text::Operation const& operation, Frame const& frame, Items const& in);
  Items make_loop(text::Operation const& operation, Frame& frame, Items const& in, Trial const& trial, bool holes);

  Scope scope_;
  text::Module const& module_;
  Shape const* lifted_ = nullptr;  // the shape of what stands for numbers, in the body of a reduction
  bool trial_ = false;
  int depth_ = 0, loops_ = 0;
  List<int> loops_at_;  // numbers of the loops being made, by depth
  std::int64_t operations_ = 0, live_ = 0, numbers_ = 0, looped_ = 0;
};

}  // namespace tutti::graph::stablehlo

#include <tutti/graph/stablehlo/import_loop.hpp>

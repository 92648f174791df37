// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parses operations of StableHLO, in the form of the dialect and in MLIR's generic one, with their regions.

#include <tutti/graph/stablehlo/cursor.hpp>

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph::stablehlo::text {

inline constexpr int most_values = 4'000'000;
inline constexpr int most_depth = 64;

class OperationParser : protected Cursor {
 protected:
  using Cursor::Cursor;

  /// ^bb0(%a: type, ...):
  /// What locations say of them goes to `said`.
  void block_arguments(Region& region, List<std::string>* said = nullptr) {
    if (!accept("^")) return;
    word();
    if (accept("(")) {
      while (peek() != ')') {
        std::string const argument = name('%');
        expect(":");
        region.types.push_back(tensor());
        region.arguments.push_back(define(argument, region.types.back()));
        std::string located = location();
        if (said != nullptr) said->push_back(std::move(located));
        if (!accept(",")) break;
      }
      expect(")");
    }
    expect(":");
  }
  /// tensor<...> or (tensor<...> {...}, ...)
  List<TensorType> result_types() {
    List<TensorType> types;
    if (!accept("(")) {
      types.push_back(tensor());
      return types;
    }
    while (peek() != ')') {
      types.push_back(tensor());
      if (peek() == '{') fields("{", "}");
      location();
      if (!accept(",")) break;
    }
    expect(")");
    return types;
  }

  int value_count() const noexcept { return static_cast<int>(types_.size()); }
  TensorType const& type_of(int value) const noexcept { return types_[static_cast<std::size_t>(value)]; }
  /// A function begins: its values have names and numbers of their own.
  void forget_all() {
    names_.clear();
    defined_.clear();
    types_.clear();
  }
  int new_value(TensorType const& type) {
    if (++values_ > most_values) fail(concat("there are more than ", most_values, " values"), ErrorKind::unavailable);
    types_.push_back(type);
    return static_cast<int>(types_.size()) - 1;
  }
  int define(std::string const& name, TensorType const& type) {
    int const value = new_value(type);
    bind(name, {value, 1});
    return value;
  }
  void operations(Region& region, int depth) {
    if (depth > most_depth) fail("regions are nested too deep", ErrorKind::unavailable);
    while (peek() != '}') {
      if (ended()) fail("a region is not closed");
      region.operations.push_back(operation(depth));
      if (is_return(region.operations.back().name)) break;
    }
    if (peek() != '}') fail("operations stand behind a return");
  }

 private:
  struct Named {
    int first = 0, count = 0;
  };

  void bind(std::string const& name, Named named) {
    if (!names_.emplace(name, named).second) fail(concat("%", name, " is defined twice"));
    defined_.push_back(name);
  }
  /// Names from here on are forgotten.
  void forget(std::size_t since) {
    while (defined_.size() > since) {
      names_.erase(defined_.back());
      defined_.pop_back();
    }
  }
  int operand() {
    std::string const wanted = name('%');
    std::int64_t const index = accept("#") ? integer() : 0;
    auto const found = names_.find(wanted);
    if (found == names_.end()) fail(concat("%", wanted, " is not defined here"));
    if (index < 0 || index >= found->second.count) fail(concat("%", wanted, " has no result ", index));
    return found->second.first + static_cast<int>(index);
  }
  void operands(Operation& made, std::string_view close) {
    while (peek() == '%') {
      made.operands.push_back(operand());
      if (!accept(",")) break;
    }
    if (!close.empty()) expect(close);
  }

  Region region(int depth, List<std::string> const& arguments = {}, List<TensorType> const& types = {}) {
    Region made;
    std::size_t const since = defined_.size();
    expect("{");
    block_arguments(made);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      made.types.push_back(types[i]);
      made.arguments.push_back(define(arguments[i], types[i]));
    }
    operations(made, depth + 1);
    expect("}");
    forget(since);
    if (made.operations.empty()) fail("a region has no operations");
    return made;
  }

  Operation operation(int depth) {
    struct Left {
      std::string name;
      int count;
    };
    List<Left> left;
    if (peek() == '%') {
      do {
        std::string result = name('%');
        std::int64_t const count = accept(":") ? integer() : 1;
        if (count < 1 || count > 100'000) fail("a number of results is damaged");
        left.push_back({std::move(result), static_cast<int>(count)});
      } while (accept(","));
      expect("=");
    }
    Operation made;
    bool const generic = peek() == '"';
    made.line = line();
    made.name = generic ? string() : std::string(word());
    made.line = line();
    if (made.name.empty()) fail("an operation is missing here");
    if (made.name == "call") made.name = "func.call";
    name_operation(made.name);
    if (generic) generic_operation(made, depth);
    else printed_operation(made, depth);
    location();
    int wanted = 0;
    for (Left const& one : left) wanted += one.count;
    if (is_return(made.name)) made.results.clear();
    if (wanted != static_cast<int>(made.results.size()))
      fail(concat("gives ", made.results.size(), " results, and ", wanted, " are named"));
    made.first_result = static_cast<int>(types_.size());
    for (TensorType const& type : made.results) new_value(type);
    int first = made.first_result;
    for (Left const& one : left) bind(one.name, {std::exchange(first, first + one.count), one.count});
    name_operation({});
    return made;
  }

  void add(Operation& made, std::string_view key, Attribute value) {
    made.keys.push_back(std::string(key));
    made.attributes.push_back(std::move(value));
  }
  void add_fields(Operation& made, Attribute told) {
    for (std::size_t i = 0; i < told.keys.size(); ++i) add(made, told.keys[i], std::move(told.items[i]));
  }
  static Attribute list_of(List<std::int64_t> const& numbers) {
    Attribute list;
    list.kind = Attribute::Kind::list;
    for (std::int64_t const number : numbers) {
      list.items.push_back({});
      list.items.back().kind = Attribute::Kind::integer;
      list.items.back().integer = number;
    }
    return list;
  }

  void generic_operation(Operation& made, int depth) {
    expect("(");
    operands(made, ")");
    if (peek() == '[') fail("successors of blocks are not supported", ErrorKind::unavailable);
    if (accept("<")) {
      add_fields(made, fields("{", "}"));
      expect(">");
    }
    if (accept("(")) {
      do made.regions.push_back(region(depth));
      while (accept(","));
      expect(")");
    }
    if (peek() == '{') add_fields(made, fields("{", "}"));
    expect(":");
    signature(made);
  }
  /// (types) -> types, types -> types, or types alone, of which the last is the result's.
  void signature(Operation& made) {
    List<TensorType> types = result_types();
    while (accept(",")) types.push_back(tensor());
    if (accept("->")) made.results = result_types();
    else if (made.name == "stablehlo.optimization_barrier" || made.name == "stablehlo.while")
      made.results = std::move(types);
    else if (!types.empty()) made.results.push_back(types.back());
  }

  /// A form of the dialect's own: operands, bare words, `key = value`, ranges, in any order.
  void printed_operation(Operation& made, int depth) {
    std::string_view const what = made.name;
    if (is_return(what)) {
      operands(made, {});
      if (accept(":"))
        do tensor();
        while (accept(","));
      return;
    }
    if (what == "stablehlo.while") return printed_while(made, depth);
    if (what == "stablehlo.reduce") return printed_reduce(made, depth);
    if (what == "func.call" || what == "stablehlo.custom_call") {
      Attribute callee;
      callee.kind = Attribute::Kind::string;
      callee.string = name('@');
      add(made, what == "func.call" ? "callee" : "call_target_name", std::move(callee));
      expect("(");
      operands(made, ")");
    }
    if (what == "stablehlo.composite") string();
    while (peek() != ':') {
      char const c = peek();
      if (c == '%') made.operands.push_back(operand());
      else if (c == '[') ranges(made);
      else if (c == '{') add_fields(made, fields("{", "}"));
      else if (what == "stablehlo.constant") {
        add(made, "value", attribute());
        if (made.attributes.back().kind != Attribute::Kind::dense) fail("the numbers of a constant are missing");
        made.results.push_back(made.attributes.back().type);
        return;
      } else {
        std::string const key(word());
        if (key.empty())
          fail("is not supported, or damaged", ErrorKind::unavailable);
        if (accept("=")) {
          add(made, key, attribute(0, false));
          if (accept_word("x")) add(made, key + ".right", attribute(0, false));
        } else made.words.push_back(key);
      }
      accept(",");
    }
    expect(":");
    signature(made);
  }
  /// [0:2, 0:6:2]
  void ranges(Operation& made) {
    List<std::int64_t> starts, limits, strides;
    expect("[");
    while (peek() != ']') {
      starts.push_back(integer());
      expect(":");
      limits.push_back(integer());
      strides.push_back(accept(":") ? integer() : 1);
      if (!accept(",")) break;
    }
    expect("]");
    add(made, "start_indices", list_of(starts));
    add(made, "limit_indices", list_of(limits));
    add(made, "strides", list_of(strides));
  }
  /// (%i = %a, ...) : types cond { ... } do { ... }
  void printed_while(Operation& made, int depth) {
    List<std::string> arguments;
    expect("(");
    while (peek() != ')') {
      arguments.push_back(name('%'));
      expect("=");
      made.operands.push_back(operand());
      if (!accept(",")) break;
    }
    expect(")");
    if (accept(":"))
      do made.results.push_back(tensor());
      while (accept(","));
    if (arguments.size() != made.results.size()) fail("every value of a loop needs a type");
    if (accept_word("attributes")) add_fields(made, fields("{", "}"));
    expect_word("cond");
    made.regions.push_back(region(depth, arguments, made.results));
    expect_word("do");
    made.regions.push_back(region(depth, arguments, made.results));
  }
  /// (%x init: %z), ... applies stablehlo.add across dimensions = [2] : (types) -> type, or with a reducer behind.
  void printed_reduce(Operation& made, int depth) {
    List<int> starts;
    do {
      expect("(");
      made.operands.push_back(operand());
      expect_word("init");
      expect(":");
      starts.push_back(operand());
      expect(")");
    } while (accept(","));
    made.operands.append(starts.begin(), starts.end());
    std::string const applied(accept_word("applies") ? word() : std::string_view());
    expect_word("across");
    expect_word("dimensions");
    expect("=");
    add(made, "dimensions", list_of(integers()));
    if (peek() == '{') add_fields(made, fields("{", "}"));
    expect(":");
    signature(made);
    if (made.results.size() != starts.size()) fail("every operand of a reduction needs a result");
    if (applied.empty()) {
      expect_word("reducer");
      List<std::string> left, right;
      List<TensorType> types;
      for (std::size_t i = 0; i < starts.size(); ++i) {
        expect("(");
        left.push_back(name('%'));
        expect(":");
        types.push_back(tensor());
        location();
        expect(",");
        right.push_back(name('%'));
        expect(":");
        tensor();
        location();
        expect(")");
      }
      left.append(right.begin(), right.end());
      for (std::size_t i = 0; i < starts.size(); ++i) types.push_back(TensorType(types[i]));
      made.regions.push_back(region(depth, left, types));
      return;
    }
    Region body;
    TensorType const scalar{made.results[0].dtype, {}};
    for (int i = 0; i < 2; ++i) {
      body.types.push_back(scalar);
      body.arguments.push_back(new_value(scalar));
    }
    Operation folded;
    folded.name = applied;
    folded.line = made.line;
    folded.operands = body.arguments;
    folded.results = {scalar};
    folded.first_result = new_value(scalar);
    Operation leaves;
    leaves.name = "stablehlo.return";
    leaves.line = made.line;
    leaves.operands = {folded.first_result};
    body.operations.push_back(std::move(folded));
    body.operations.push_back(std::move(leaves));
    made.regions.push_back(std::move(body));
  }

  std::map<std::string, Named> names_;
  List<std::string> defined_;
  List<TensorType> types_;  // of the function's values
  int values_ = 0;
};

}  // namespace tutti::graph::stablehlo::text

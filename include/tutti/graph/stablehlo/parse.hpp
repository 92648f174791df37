// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parses StableHLO text: the form that JAX prints, MLIR's generic form, and what the library itself exports.
///
/// The text may come from anybody: bytes, nesting and numbers of operations and values are bounded, and whatever does
/// not hold together is refused by line.

#include <tutti/graph/stablehlo/parse_operation.hpp>

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph::stablehlo::text {

inline constexpr std::size_t most_bytes = std::size_t{1} << 30;

class Parser : OperationParser {
 public:
  Parser(std::string_view text, std::string_view file) : OperationParser(text, file) {
    if (text.size() > most_bytes) fail("the text is longer than 1 GiB", ErrorKind::unavailable);
  }

  Module module() {
    result_.file = file();
    items(0);
    if (!ended()) fail("behind the module stands something else");
    for (auto& [function, argument, alias] : aliased_)
      if (auto const found = aliases_.find(alias); found != aliases_.end())
        result_.functions[function].argument_names[argument] = found->second;
    return std::move(result_);
  }

 private:
  /// What stands in a module, or beside one.
  void items(int depth) {
    if (depth > 4) fail("modules are nested too deep");
    while (!ended() && peek() != '}') {
      if (peek() == '#') {
        std::string const alias = '#' + name('#');
        expect("=");
        if (!comes_word("loc")) skip_alias();
        else if (std::string said = location(); !said.empty()) aliases_[alias] = std::move(said);
      } else if (accept("\"builtin.module\"")) {
        generic_head();
        expect("(");
        expect("{");
        if (accept("^")) name_block();
        items(depth + 1);
        expect("}");
        expect(")");
        generic_tail();
      } else if (accept("\"func.func\"")) {
        generic_function();
      } else if (accept_word("module")) {
        if (peek() == '@') name('@');
        if (accept_word("attributes")) fields("{", "}");
        expect("{");
        items(depth + 1);
        expect("}");
        location();
      } else if (accept_word("func.func")) {
        function();
      } else {
        std::string const what = peek() == '"' ? string() : std::string(word());
        if (what.empty()) fail("a function or module is missing here");
        name_operation(what);
        fail("is not supported. A module of functions is", ErrorKind::unavailable);
      }
    }
  }
  /// An alias for an attribute goes to the end of its line at least.
  void skip_alias() {
    if (peek() == '<' || peek() == '{' || peek() == '[' || peek() == '(') skip_balanced();
    else attribute();
  }
  void name_block() {
    word();
    if (peek() == '(') skip_balanced();
    expect(":");
  }

  Function& begin_function() {
    if (result_.functions.size() > 100'000) fail("there are too many functions", ErrorKind::unavailable);
    forget_all();
    result_.functions.push_back({});
    result_.functions.back().line = line();
    return result_.functions.back();
  }
  void end_function(Function& made) {
    made.values = value_count();
    if (made.body.operations.empty()) fail(concat("the function @", made.name, " has no body"));
    for (std::size_t i = 0; i + 1 < result_.functions.size(); ++i)
      if (result_.functions[i].name == made.name) fail(concat("two functions have the name @", made.name));
  }
  void name_argument(Function& made, std::string said) {
    if (said.starts_with('#'))
      aliased_.push_back({result_.functions.size() - 1, made.argument_names.size(), said}), said.clear();
    made.argument_names.push_back(std::move(said));
  }
  void function() {
    Function& made = begin_function();
    for (;;) {
      if (accept_word("private")) made.is_private = true;
      else if (!accept_word("public") && !accept_word("nested")) break;
    }
    made.name = name('@');
    expect("(");
    while (peek() != ')') {
      std::string const argument = name('%');
      expect(":");
      made.body.types.push_back(tensor());
      made.body.arguments.push_back(define(argument, made.body.types.back()));
      std::string said;
      if (peek() == '{') {
        Attribute const told = fields("{", "}");
        for (std::size_t i = 0; i < told.keys.size(); ++i)
          if (told.keys[i] == "jax.arg_info" && told.items[i].kind == Attribute::Kind::string)
            said = told.items[i].string;
      }
      std::string const located = location();
      name_argument(made, said.empty() ? located : said);
      if (!accept(",")) break;
    }
    expect(")");
    if (accept("->")) made.results = result_types();
    if (accept_word("attributes")) fields("{", "}");
    if (peek() != '{') fail(concat("the function @", made.name, " has no body"));
    expect("{");
    operations(made.body, 0);
    expect("}");
    location();
    end_function(made);
  }
  void generic_function() {
    Function& made = begin_function();
    Attribute const told = generic_head();
    for (std::size_t i = 0; i < told.keys.size(); ++i) {
      if (told.keys[i] == "sym_name") made.name = told.items[i].string;
      if (told.keys[i] == "sym_visibility") made.is_private = told.items[i].string == "private";
    }
    expect("(");
    expect("{");
    List<std::string> said;
    block_arguments(made.body, &said);
    for (std::string& one : said) name_argument(made, std::move(one));
    operations(made.body, 0);
    expect("}");
    expect(")");
    generic_tail();
    end_function(made);
    Operation const& last = made.body.operations.back();
    for (int const value : last.operands) made.results.push_back(type_of(value));
  }
  /// () <{...}>
  Attribute generic_head() {
    expect("(");
    expect(")");
    Attribute told;
    if (accept("<")) {
      told = fields("{", "}");
      expect(">");
    }
    return told;
  }
  void generic_tail() {
    if (peek() == '{') fields("{", "}");
    expect(":");
    if (peek() == '(') skip_balanced();
    expect("->");
    if (peek() == '(') skip_balanced();
    location();
  }
  struct Aliased {
    std::size_t function = 0, argument = 0;
    std::string alias;
  };
  List<Aliased> aliased_;
  std::map<std::string, std::string> aliases_;
  Module result_;
};

/// Errors  format, unavailable, with file and line
inline Module parse(std::string_view text, std::string_view file) { return Parser(text, file).module(); }

}  // namespace tutti::graph::stablehlo::text

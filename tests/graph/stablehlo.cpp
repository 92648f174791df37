// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// StableHLO text of graphs. What compilers make of it is checked by scripts/check_stablehlo.py, on the same graphs.
// Covers: <tutti/graph/stablehlo/*.hpp>

#include "graph/stablehlo_cases.hpp"
#include "support/catch.hpp"

#include <tutti/graph/custom.hpp>
#include <tutti/graph/stablehlo/export.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/optim/minimise.hpp>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

template <class F>
Graph built(F&& f) {
  Builder builder;
  f(builder);
  return builder.graph();
}

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
int count(std::string_view text, std::string_view part) {
  int number = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++number;
  return number;
}

/// Reads a module again: every value is defined once, where what uses it can see it, and has one type; braces close.
/// A message, or nothing.
class Reading {
 public:
  explicit Reading(std::string const& text) : text_(text) {}

  std::string fault() {
    scopes_.emplace_back();
    for (std::size_t begin = 0; begin < text_.size() && fault_.empty();) {
      std::size_t const end = text_.find('\n', begin);
      line(text_.substr(begin, end - begin));
      begin = end + 1;
    }
    if (fault_.empty() && scopes_.size() != 1) fault_ = "a region is not closed";
    return fault_;
  }

 private:
  using Types = std::map<std::string, std::string>;

  /// Names, each with what stands behind it.
  static std::vector<std::string> names(std::string_view part) {
    std::vector<std::string> found;
    for (std::size_t at = part.find('%'); at != std::string_view::npos; at = part.find('%', at + 1)) {
      std::size_t end = at + 1;
      while (end < part.size() && (std::isalnum(static_cast<unsigned char>(part[end])) || part[end] == '#')) ++end;
      found.emplace_back(part.substr(at, end - at));
    }
    return found;
  }
  /// Types in the last parentheses before `end`, or the one type there.
  static std::vector<std::string> types(std::string_view part) {
    std::vector<std::string> found;
    for (std::size_t at = part.find("tensor<"); at != std::string_view::npos; at = part.find("tensor<", at + 1))
      found.emplace_back(part.substr(at, part.find('>', at) + 1 - at));
    return found;
  }
  void define(std::string const& name, std::string const& type) {
    for (Types const& scope : scopes_)
      if (scope.contains(name)) fault_ = name + " is defined twice";
    scopes_.back()[name] = type;
  }
  void use(std::vector<std::string> const& used, std::vector<std::string> const& as) {
    if (used.size() != as.size()) fault_ = "operands and their types differ in number";
    for (std::size_t i = 0; i < used.size() && fault_.empty(); ++i) {
      std::string const* known = nullptr;
      for (Types const& scope : scopes_)
        if (auto const found = scope.find(used[i]); found != scope.end()) known = &found->second;
      if (known == nullptr) fault_ = used[i] + " is used before it is defined";
      else if (*known != as[i]) fault_ = used[i] + " is " + *known + ", used as " + as[i];
    }
  }
  void define_results(std::string const& name, std::vector<std::string> const& results, bool several) {
    for (std::size_t i = 0; i < results.size(); ++i)
      define(several ? name + "#" + std::to_string(i) : name, results[i]);
  }
  void arguments(std::string_view part) {
    auto const defined = names(part), as = types(part);
    for (std::size_t i = 0; i < defined.size(); ++i) define(defined[i], as[i]);
  }

  void line(std::string_view content) {
    std::size_t const first = content.find_first_not_of(' ');
    if (first == std::string_view::npos) return;
    content.remove_prefix(first);
    std::size_t const arrow = content.rfind(" -> ");
    if (content.starts_with("func.func")) {
      scopes_.emplace_back();
      arguments(content.substr(0, content.find(") -> (")));
      results_ = types(content.substr(content.find(") -> (")));
    } else if (content.starts_with("^bb0(")) {
      arguments(content);
    } else if (content.starts_with("func.return")) {
      std::size_t const colon = content.find(" : ");
      auto const as = types(content);
      if (as != results_) fault_ = "the function returns other types than it says";
      use(names(content.substr(0, colon)), as);
      scopes_.pop_back();
    } else if (content.starts_with("\"stablehlo.return\"")) {
      use(names(content), types(content.substr(0, arrow)));
    } else if (content.starts_with("}, {")) {
      scopes_.pop_back();
      scopes_.emplace_back();
    } else if (content.starts_with("})")) {
      scopes_.pop_back();
      finish(open_.back().first, open_.back().second, content);
      open_.pop_back();
    } else if (content.starts_with('%')) {
      std::size_t const equals = content.find(" = ");
      std::string const left(content.substr(0, equals));
      std::size_t const close = content.find(')');
      auto const used = names(content.substr(equals, close - equals));
      if (content.ends_with("({")) {
        open_.emplace_back(left, used);
        scopes_.emplace_back();
      } else {
        finish(left, used, content);
      }
    } else if (!content.starts_with("module") && content != "}") {
      fault_ = "a line of another kind: " + std::string(content);
    }
    if (!fault_.empty() && !fault_.ends_with('\n')) fault_ += " in\n" + std::string(content) + "\n";
  }
  void finish(std::string left, std::vector<std::string> const& used, std::string_view content) {
    std::size_t const arrow = content.rfind(" -> "), colon = content.rfind(" : (", arrow);
    use(used, types(content.substr(colon, arrow - colon)));
    bool const several = left.find(':') != std::string::npos;
    define_results(left.substr(0, left.find(':')), types(content.substr(arrow)), several);
  }

  std::string text_, fault_;
  std::vector<Types> scopes_;
  std::vector<std::string> results_;
  std::vector<std::pair<std::string, std::vector<std::string>>> open_;
};

struct Doubled : FunctionOf<1> {
  static constexpr std::string_view name = "doubled";
  template <class Real>
  static constexpr Real scalar(Real x) {
    return x + x;
  }
};

}  // namespace

TEST_CASE("every function of elements has a StableHLO form, or a decomposition") {
  test::for_each_function([](Op op, std::string const& name) {
    INFO(name);
    CHECK(stablehlo::exported_functions[static_cast<std::size_t>(op)]);
  });
}

TEST_CASE("the graphs that other compilers run hold every operation, and their text is well-formed") {
  std::set<Op> seen, written;
  std::set<std::string> names;
  for (test::StablehloCase const& made : test::StablehloCases().all()) {
    INFO(made.name);
    CHECK(names.insert(made.name).second);
    test::note_operations(made.graph, seen);
    test::note_operations(decompose(made.graph), written);
    StablehloModule const module =
        to_stablehlo(made.graph, {.narrow_products = made.narrow_products, .ranks = made.ranks, .groups = made.groups});
    CHECK(Reading(module.text).fault() == "");
    CHECK(module.results.size() == made.graph.outputs.size() + made.graph.updates.size());
  }
  for (int number = 0; number < op_count; ++number) {
    auto const op = static_cast<Op>(number);
    INFO(name(op));
    CHECK(seen.contains(op) == (op != Op::custom));
    bool composite = info(op).kind == OpClass::composite;
    if (is_function(op)) with_operation(op, [&]<class Of>() { composite = stablehlo::Decomposed<Of>; });
    CHECK(written.contains(op) == !composite);
  }
}

TEST_CASE("what reads modules in these tests finds faults") {
  std::string const good = to_stablehlo(test::gpt_loss(2)).text;
  REQUIRE(Reading(good).fault() == "");
  auto const changed = [&](std::string const& from, std::string const& to) {
    std::string text = good;
    std::size_t const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  CHECK(holds(Reading(changed("(%arg0, ", "(%arg1, ")).fault(), "used as"));
  CHECK(holds(Reading(changed("%v3 = ", "%v2 = ")).fault(), "defined twice"));
  CHECK(holds(Reading(changed("(%v1", "(%v9999")).fault(), "before it is defined"));
}

TEST_CASE("a small graph as text, line by line") {
  Graph const graph = built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {2, 3}), w = b.parameter("w", {4, 3}, zeros());
    Var const y = dot_general(x, w, {1}, {1});
    b.output("sum", reduce_sum(tanh(y), {1}));
    b.update(w, w - 0.5);
  });
  std::string const axes =
      "lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], "
      "rhs_contracting_dimensions = [1]";
  CHECK(to_stablehlo(graph, {.module = "small", .function = "step"}).text ==
        "module @small attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {\n"
        "  func.func public @step(%arg0: tensor<4x3xf32> {iree.abi.consume, jax.buffer_donor = true}, "
        "%arg1: tensor<2x3xf32>) -> (tensor<4x3xf32>, tensor<2xf32>) {\n"
        "    %v0 = \"stablehlo.constant\"() {value = dense<5.000000000e-01> : tensor<4x3xf32>} : () -> "
        "tensor<4x3xf32>\n"
        "    %v1 = \"stablehlo.subtract\"(%arg0, %v0) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>\n"
        "    %v2 = \"stablehlo.dot_general\"(%arg1, %arg0) {dot_dimension_numbers = #stablehlo.dot<" +
            axes +
            ">, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : "
            "(tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>\n"
            "    %v3 = \"stablehlo.tanh\"(%v2) : (tensor<2x4xf32>) -> tensor<2x4xf32>\n"
            "    %v4 = \"stablehlo.constant\"() {value = dense<0.000000000e+00> : tensor<f32>} : () -> tensor<f32>\n"
            "    %v8 = \"stablehlo.reduce\"(%v3, %v4) ({\n"
            "    ^bb0(%v5: tensor<f32>, %v6: tensor<f32>):\n"
            "      %v7 = \"stablehlo.add\"(%v5, %v6) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
            "      \"stablehlo.return\"(%v7) : (tensor<f32>) -> ()\n"
            "    }) {dimensions = array<i64: 1>} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>\n"
            "    func.return %v1, %v8 : tensor<4x3xf32>, tensor<2xf32>\n"
            "  }\n"
            "}\n");
}

TEST_CASE("arguments and results are listed in order, with their roles") {
  Graph const graph = trace(
      nn::make_parameters(nn::Gpt2Config{
          .layers = 2, .heads = 2, .channels = 8, .vocabulary = 11, .padded_vocabulary = 16, .max_tokens = 6}),
      [](Builder& b, nn::Gpt2 const& model) {
        Var const tokens = b.input("tokens", DType::int32, {2, 4}), targets = b.input("targets", DType::int32, {2, 4});
        optim::minimise(nn::Gpt2Loss{}(model, tokens, targets), optim::Pass::whole, {}, {.clip = 1});
      });
  StablehloModule const module = to_stablehlo(graph);
  std::size_t const parameters = graph.parameters.size();
  REQUIRE(module.arguments.size() == 3 * parameters + 2 + 3);
  REQUIRE(module.results.size() == 3 * parameters + 2);
  CHECK(module.arguments[0].name == "wte");
  CHECK(module.arguments[0].role == StablehloRole::parameter);
  CHECK(module.arguments[parameters].role == StablehloRole::state);
  CHECK(module.arguments[3 * parameters].name == "tokens");
  CHECK(module.arguments[3 * parameters].dtype == DType::int32);
  CHECK(module.arguments[3 * parameters + 2].role == StablehloRole::scalar);
  for (std::size_t i = 0; i < 3 * parameters; ++i) {
    auto const& result = module.results[i];
    CHECK(result.role == StablehloRole::update);
    CHECK(result.argument == static_cast<int>(i));
    CHECK(result.name == module.arguments[i].name);
    CHECK(result.shape == module.arguments[i].shape);
  }
  CHECK(module.results[3 * parameters].name == "loss");
  CHECK(count(module.text, "jax.buffer_donor") == static_cast<int>(3 * parameters));
  CHECK(count(module.text, "\"stablehlo.while\"") == 2);  // layers forward and back
  CHECK(count(to_stablehlo(graph, {.donate = false}).text, "jax.buffer_donor") == 0);
  std::string const json = to_json(module);
  CHECK(holds(json, R"({"name": "tokens", "role": "input", "dtype": "int32", "shape": [2, 4]})"));
  CHECK(holds(json, R"({"name": "wte", "role": "update", "dtype": "float32", "shape": [16, 8], "argument": 0})"));
}

TEST_CASE("an operation from outside the library is refused by its name and line") {
  int line = 0;
  Graph const graph = built([&](Builder& b) {
    Var const x = b.input("x", DType::float32, {3});
    line = __LINE__ + 1;
    b.output("y", custom<Doubled>({x}));
  });
  try {
    to_stablehlo(graph);
    FAIL("not refused");
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::unavailable);
    CHECK(error.operation() == "doubled");
    CHECK(holds(error.message(), "; stablehlo.cpp:" + std::to_string(line)));
  }
}

TEST_CASE("elements, ranks, groups and names that do not fit are refused") {
  auto const kind = [](Graph const& graph, StablehloOptions const& options = {}) {
    try {
      to_stablehlo(graph, options);
    } catch (Error const& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  Graph const bytes = built([](Builder& b) { b.output("y", b.input("x", DType::byte, {3})); });
  CHECK(kind(bytes) == ErrorKind::dtype);
  Graph const gathered =
      built([](Builder& b) { b.output("y", all_gather(b.input("x", DType::float32, {3}, Replication::varying), 2)); });
  CHECK(kind(gathered) == ErrorKind::configuration);
  CHECK(kind(gathered, {.ranks = 3}) == ErrorKind::configuration);
  CHECK(kind(gathered, {.ranks = 0}) == ErrorKind::configuration);
  CHECK(kind(gathered, {.ranks = 2, .groups = {{0, 1}, {2}}}) == ErrorKind::configuration);
  CHECK(kind(gathered, {.ranks = 2, .groups = {{0, 1}, {1, 2}}}) == ErrorKind::configuration);
  CHECK(kind(gathered, {.ranks = 2, .groups = {{0, 4}, {1, 2}}}) == ErrorKind::configuration);
  CHECK(kind(gathered, {.module = "two words", .ranks = 2}) == ErrorKind::invalid_argument);
  CHECK(kind(gathered, {.function = "", .ranks = 2}) == ErrorKind::invalid_argument);
  CHECK(holds(to_stablehlo(gathered, {.ranks = 2, .groups = {{0, 2}, {1, 3}}}).text,
              "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>"));
}

TEST_CASE("messages and locations name the user's line, of composites and in bodies too") {
  int line = 0;
  Graph const graph = built([&](Builder& b) {
    Var const x = b.input("x", DType::float32, {4, 3}, Replication::varying), g = b.input("g", DType::float32, {3});
    Scan body(b, x, 2, Where::current());
    line = __LINE__ + 1;
    Var const y = rms_norm(body.carried(), g);
    b.output("y", all_gather(body.finish(y), 2));
  });
  std::string const text = to_stablehlo(graph, {.locations = true, .ranks = 2}).text;
  std::string const location = " loc(\"stablehlo.cpp\":" + std::to_string(line) + ":1)\n";
  CHECK(holds(text, "-> tensor<4x1xf32>" + location));  // a part of the norm
  CHECK(holds(text, "\"stablehlo.all_gather\""));
  CHECK(Reading(text).fault() == "");
  CHECK_FALSE(holds(to_stablehlo(graph, {.ranks = 2}).text, "loc("));
  try {
    to_stablehlo(graph, {.ranks = 3});
    FAIL("not refused");
  } catch (Error const& error) {
    CHECK(error.operation() == "all_gather");
    CHECK(
        holds(error.message(), "made for 2 ranks, StablehloOptions says 3; stablehlo.cpp:" + std::to_string(line + 1)));
  }
}

TEST_CASE("loops count up, or down for gradients, and draw on stacks and results by the count") {
  Graph const graph = built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {3}), stack = b.input("stack", DType::float32, {5, 3});
    Scan body(b, x, 5, Where::current());
    Var const row = body.slice(stack, "row");
    Var const y = body.finish(tanh(body.carried() * row));
    b.output("gradient", gradients(sum_all(y), {x})[0]);
  });
  std::string const text = to_stablehlo(graph).text;
  std::size_t const back = text.rfind("\"stablehlo.while\"");
  REQUIRE(count(text, "\"stablehlo.while\"") == 2);
  std::string const up = text.substr(0, back), down = text.substr(back);
  CHECK(holds(up, "value = dense<5> : tensor<i32>"));
  CHECK(holds(up, "\"stablehlo.dynamic_update_slice\""));  // what the gradient reads is kept
  CHECK_FALSE(holds(up, "\"stablehlo.subtract\""));
  CHECK(holds(down, "value = dense<4> : tensor<i32>"));
  CHECK(holds(down, "\"stablehlo.subtract\""));  // 4 - i
  CHECK(count(text, "{slice_sizes = array<i64: 1, 3>}") >= 3);
}

TEST_CASE("what differs between compilers is written so that it does not") {
  auto const text = [](auto&& f, StablehloOptions const& options = {}) { return to_stablehlo(built(f), options).text; };
  std::string const sum = text([](Builder& b) { b.output("y", sum_all(b.input("x", DType::bfloat16, {9}))); });
  CHECK(holds(sum, "(tensor<9xf32>, tensor<f32>) -> tensor<f32>"));  // narrow numbers sum in float32
  auto const product = [](Builder& b) {
    Var const x = b.input("x", DType::float32, {4, 4});
    b.output("y", graph::detail::dot_general_of(DType::bfloat16, x, x, {1}, {0}));
  };
  CHECK(holds(text(product), "(tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf32>"));
  CHECK(holds(text(product, {.narrow_products = false}), "exponent_bits = 8 : i32, mantissa_bits = 7 : i32"));
  std::string const moved = text([](Builder& b) {
    Var const x = b.input("x", DType::float32, {9}), i = b.input("i", DType::int64, {});
    b.output("y", dynamic_update_slice(x, slice(x, {0}, {3}), {i}));
  });
  CHECK(count(moved, "optimization_barrier") == 1);
  CHECK(holds(moved, "value = dense<6> : tensor<i64>"));  // the last start
  CHECK(holds(moved, "(tensor<9xf32>, tensor<3xf32>, tensor<i32>) -> tensor<9xf32>"));
  std::string const bits = text([](Builder& b) {
    Var const seed = b.input("seed", DType::int64, {});
    b.output("y", rng_bits({6}, seed, seed, seed));
  });
  CHECK(count(bits, "\"stablehlo.multiply\"") == 20);  // two in each of ten rounds
  CHECK(holds(bits, "dense<3528531795> : tensor<2xui64>"));
}

TEST_CASE("on one rank nothing is sent") {
  Graph const graph = built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {2}, Replication::varying);
    b.output("y", all_reduce(x, comm::PortOp::avg) + broadcast(x, 0));
  });
  std::string const alone = to_stablehlo(graph).text, two = to_stablehlo(graph, {.ranks = 2}).text;
  CHECK(count(alone, "stablehlo.") == 1);  // the sum
  CHECK(count(two, "\"stablehlo.all_reduce\"") == 2);
  CHECK(holds(two, "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"));
  CHECK(holds(two, "mhlo.num_replicas = 2"));
}

TEST_CASE("results of a loop that nothing reads leave no trace") {
  Graph const forward = test::gpt_loss(3);
  std::string const text = to_stablehlo(forward).text;
  CHECK(count(text, "\"stablehlo.while\"") == 1);
  CHECK(count(text, "\"stablehlo.dynamic_update_slice\"") == 0);
}

TEST_CASE("the text is the same every time") {
  for (test::StablehloCase const& made : test::StablehloCases().all())
    if (made.name.starts_with("gpt") || made.name.starts_with("conversions"))
      CHECK(to_stablehlo(made.graph, {.ranks = made.ranks}).text ==
            to_stablehlo(made.graph, {.ranks = made.ranks}).text);
}

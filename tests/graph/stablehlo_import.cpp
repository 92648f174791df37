// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// StableHLO text as graphs: what the library exports comes back, what JAX exports has JAX's loss and gradients, and
/// damaged text is refused.
// Covers: <tutti/graph/stablehlo/*.hpp>

#include "graph/run_graph.hpp"
#include "graph/stablehlo_cases.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"
#include "support/jax_folder.hpp"

#include <tutti/exec/wait.hpp>
#include <tutti/graph/check.hpp>
#include <tutti/graph/stablehlo/export.hpp>
#include <tutti/graph/stablehlo/import.hpp>
#include <tutti/io/safetensors.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

std::string read(std::string const& path) {
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
naive::Values values_of(io::Safetensors const& file, std::string_view name) {
  naive::Values values;
  io::NamedTensor const& tensor = file.at(name);
  if (tensor.dtype == DType::int32) {
    auto const view = file.view<std::int32_t>(name);
    for (std::int64_t i = 0; i < view.size(); ++i) values.push_back(view.data()[i]);
  } else {
    auto const view = file.view<float>(name);
    for (std::int64_t i = 0; i < view.size(); ++i) values.push_back(double{view.data()[i]});
  }
  return values;
}
/// A loss of floating arguments, which are parameters.
Graph loss_of(StablehloProgram const& program) {
  Builder builder;
  List<Var> arguments;
  for (StablehloPort const& port : program.arguments())
    arguments.push_back(is_floating(port.dtype) ? builder.parameter(port.name, port.shape, zeros())
                                                : builder.input(port.name, port.dtype, port.shape));
  builder.output("loss", program(builder, arguments)[0]);
  return canonical(builder.graph());
}
void check_model(std::string const& name) {
  INFO(name);
  StablehloProgram const program(read(test::jax_folder() + "/" + name + ".mlir"), {name + ".mlir"});
  io::Safetensors const file(test::jax_folder() + "/" + name + ".safetensors");
  Graph const graph = grad(loss_of(program));
  Interpreter run(graph);
  for (StablehloPort const& port : program.arguments()) run.set(port.name, values_of(file, port.name));
  run.run();
  double const expected = values_of(file, "loss")[0];
  INFO("loss " << run.output("loss")[0] << ", JAX " << expected);
  CHECK(std::abs(run.output("loss")[0] - expected) <= 1e-5 * std::abs(expected));
  for (StablehloPort const& port : program.arguments()) {
    if (!is_floating(port.dtype)) continue;
    naive::Values const wanted = values_of(file, "gradient." + port.name);
    naive::Values const& found = run.output("gradient." + port.name);
    REQUIRE(found.size() == wanted.size());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      if (exceeds(std::abs(found[i] - wanted[i]), worst)) worst = std::abs(found[i] - wanted[i]);
    }
    INFO(port.name << ": largest " << largest << ", worst error " << worst);
    CHECK(worst <= 1e-5 * std::max(1.0, largest));
  }
}

}  // namespace

/// The leaves of a graph as StablehloModule lists them.
void set_all(Interpreter& from, Interpreter& to, test::StablehloCase const& made, StablehloModule const& module) {
  for (std::size_t i = 0; i < module.arguments.size(); ++i) {
    std::string const& name = module.arguments[i].name;
    Id const id = made.graph.find_leaf(name);
    auto const given = made.values.find(name);
    naive::Values values = given != made.values.end()
                                     ? naive::Values(given->second)
                                     : test::random_values(made.graph, id, static_cast<std::int64_t>(made.limit));
    // As numbers of the type: cases have others too.
    std::vector<std::byte> const bytes = test::as_bytes(made.graph.dtype(id), values);
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = generic::number_at(made.graph.dtype(id), bytes.data(), static_cast<std::int64_t>(k));
    from.set(name, values);
    to.set("argument_" + std::to_string(i), values);
  }
}

TEST_CASE("models that JAX exports have JAX's loss and gradients") {
  check_model("gpt");
  check_model("mixture");
}

TEST_CASE("what is exported comes back: every operation, on the interpreter") {
  for (test::StablehloCase const& made : test::StablehloCases().all()) {
    if (made.ranks > 1) continue;
    INFO(made.name);
    StablehloModule const module = to_stablehlo(made.graph, {.narrow_products = made.narrow_products});
    Graph graph;
    try {
      graph = from_stablehlo(module.text, {made.name});
    } catch (Error const& error) {
      INFO(error.message());
      CHECK((made.name == "random_bits" && error.message().find("shift_right_logical") != std::string::npos));
      continue;
    }
    Interpreter from(made.graph), to(graph);
    set_all(from, to, made, module);
    from.run();
    to.run();
    for (std::size_t i = 0; i < module.results.size(); ++i) {
      StablehloPort const& port = module.results[i];
      naive::Values const& wanted = port.role == StablehloRole::update ? from.get(port.name) : from.output(port.name);
      naive::Values const& found = to.output("result_" + std::to_string(i));
      REQUIRE(found.size() == wanted.size());
      double worst = 0, largest = 1e-3;
      std::size_t at = 0;
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        if (found[k] == wanted[k] || (std::isnan(found[k]) && std::isnan(wanted[k]))) continue;
        if (std::isfinite(wanted[k])) largest = std::max(largest, std::abs(wanted[k]));
        if (exceeds(std::abs(found[k] - wanted[k]), worst)) worst = std::abs(found[k] - wanted[k]), at = k;
      }
      INFO(port.name << " at " << at);
      CHECK(worst <= (is_floating(port.dtype) ? std::max(1e-5, made.tolerance) * largest : 0));
    }
  }
}

TEST_CASE("functions, loops and reductions as JAX prints them") {
  Graph const graph = from_stablehlo(R"(
#loc = loc(unknown)
#layout = array<i64: 1, 2>
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  // A comment.
  func.func public @main(%arg0: tensor<5x3xf32> {jax.arg_info = "x"}, %arg1: tensor<i32>) -> (tensor<3xf32>
      {jax.result_info = "a"}, tensor<f32>, tensor<5xi32>, tensor<2x2xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<f32>
    cond {
      %c_1 = stablehlo.constant dense<5> : tensor<i32>
      %9 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    } do {
      %9 = func.call @row(%arg0, %iterArg) : (tensor<5x3xf32>, tensor<i32>) -> tensor<3xf32>
      %10 = stablehlo.reduce(%9 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>,
          tensor<f32>) -> tensor<f32>
      %11 = stablehlo.convert %iterArg : (tensor<i32>) -> tensor<f32>
      %12 = stablehlo.multiply %10, %11 : tensor<f32>
      %13 = stablehlo.add %iterArg_0, %12 : tensor<f32>
      %c_1 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_1 : tensor<i32>
      stablehlo.return %14, %13 : tensor<i32>, tensor<f32>
    }
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %one) applies stablehlo.multiply across dimensions = [0] : (tensor<5x3xf32>,
        tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.iota dim = 1 : tensor<5x3xi32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %3:2 = stablehlo.reduce(%arg0 init: %low), (%2 init: %c) across dimensions = [1] : (tensor<5x3xf32>,
        tensor<5x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<5xf32>, tensor<5xi32>)
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>)  {
      %9 = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %10 = stablehlo.select %9, %a, %b : tensor<i1>, tensor<f32>
      %11 = stablehlo.select %9, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %10, %11 : tensor<f32>, tensor<i32>
    }
    %4 = "stablehlo.slice"(%arg0) <{limit_indices = array<i64: 4, 3>, start_indices = array<i64: 0, 0>, strides =
        array<i64: 2, 2>}> : (tensor<5x3xf32>) -> tensor<2x2xf32>
    %5 = stablehlo.constant dense<[[1.0, 2.5], [-3.0e0, 0x7F800000]]> : tensor<2x2xf32>
    %6 = stablehlo.minimum %4, %5 : tensor<2x2xf32>
    return %1, %0#1, %3#1, %6 : tensor<3xf32>, tensor<f32>, tensor<5xi32>, tensor<2x2xf32>
  }
  func.func private @row(%arg0: tensor<5x3xf32>, %arg1: tensor<i32>) -> tensor<3xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.compare LT, %arg1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %1 = stablehlo.add %arg1, %c_0 : tensor<i32>
    %2 = stablehlo.select %0, %1, %arg1 : tensor<i1>, tensor<i32>
    %3 = stablehlo.dynamic_slice %arg0, %2, %c, sizes = [1, 3] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) ->
        tensor<1x3xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x3xf32>) -> tensor<3xf32>
    return %4 : tensor<3xf32>
  }
}
)");
  Interpreter run(graph);
  naive::Values x;
  for (int i = 0; i < 15; ++i) x.push_back(std::sin(1 + i * i));
  run.set("x", x);
  run.set("argument_1", {0});
  run.run();
  naive::Values product(3, 1.0), best(5, 0.0);
  double weighted = 0;
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 3; ++j) {
      product[j] *= x[3 * i + j];
      weighted += static_cast<double>(i) * x[3 * i + j];
      if (x[3 * i + j] > x[3 * i + static_cast<std::size_t>(best[i])]) best[i] = static_cast<double>(j);
    }
  for (std::size_t j = 0; j < 3; ++j) CHECK(run.output("result_0")[j] == Approx(product[j]));
  CHECK(run.output("result_1")[0] == Approx(weighted));
  CHECK(run.output("result_2") == best);
  CHECK(run.output("result_3") == naive::Values{std::min(1.0, x[0]), std::min(2.5, x[2]), std::min(-3.0, x[6]), x[8]});
}

TEST_CASE("a loop over stacked layers reads each by its number, and stays a loop") {
  Graph const graph = from_stablehlo(read(test::jax_folder() + "/gpt.mlir"));
  int loops = 0;
  for (Node const& node : graph.nodes) loops += node.op == Op::repeat;
  REQUIRE(loops == 1);
  for (Node const& node : graph.bodies[0].nodes) CHECK(node.op != Op::dynamic_slice);
}

TEST_CASE("what is not supported is refused by name and line") {
  auto const told = [](std::string const& line, std::string const& result = "tensor<4xf32>") {
    try {
      from_stablehlo("func.func @main(%a: tensor<4xf32>, %i: tensor<4xi32>) -> " + result + " {\n  %0 = " + line +
                         "\n  return %0 : " + result + "\n}\n",
                     {"bad.mlir"});
    } catch (Error const& error) {
      return error.message();
    }
    return std::string("nothing");
  };
  auto const refuses = [&](std::string const& line, std::string const& sentence) {
    INFO(line);
    std::string const message = told(line);
    INFO(message);
    CHECK(message.starts_with("bad.mlir:2: "));
    CHECK(message.find(sentence) != std::string::npos);
  };
  CHECK(told("stablehlo.add %a, %a : tensor<4xf32>") == "nothing");
  CHECK(told("\"stablehlo.add\"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>") == "nothing");
  refuses("stablehlo.cholesky %a, lower = true : tensor<4xf32>", "stablehlo.cholesky: is not supported");
  refuses("\"stablehlo.sort\"(%a) ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n%c = stablehlo.compare LT, %x, %y : "
          "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %c : tensor<i1>\n}) : (tensor<4xf32>) -> "
          "tensor<4xf32>", "stablehlo.sort: is not supported");
  refuses("stablehlo.custom_call @lapack(%a) {x = 1 : i32} : (tensor<4xf32>) -> tensor<4xf32>", "calls @lapack");
  refuses("stablehlo.and %i, %i : tensor<4xi32>", "stablehlo.and: is not supported");
  refuses("call @other(%a) : (tensor<4xf32>) -> tensor<4xf32>", "there is no function @other");
  refuses("stablehlo.add %a, %b : tensor<4xf32>", "%b is not defined");
  refuses("stablehlo.add %a, %i : tensor<4xf32>", "differ in dtype");
  refuses("stablehlo.add %a, %a : tensor<5xf32>", "gives float32(4,), and the text says float32(5,)");
  refuses("stablehlo.constant dense<[1.0, 2.0]> : tensor<4xf32>", "2 numbers for a tensor of 4");
  refuses("stablehlo.constant dense<1.0> : tensor<?xf32>", "shapes must be fixed");
  refuses("stablehlo.constant dense<1.0> : tensor<4xf8E4M3>", "'f8E4M3' are not supported");
  refuses("stablehlo.constant dense<one> : tensor<4xf32>", "'one' is no number");
  refuses("stablehlo.transpose %a, dims = [1] : (tensor<4xf32>) -> tensor<4xf32>", "permutation");
  refuses("stablehlo.transpose %a : (tensor<4xf32>) -> tensor<4xf32>", "has no 'dims'");
  refuses("stablehlo.reshape %a : (tensor<4xf32>) -> tensor<5xf32>", "number of elements");
  CHECK(told("stablehlo.constant dense<1.0> : tensor<4xf32>", "tensor<5xf32>") ==
        "bad.mlir:1: @main says that it returns float32(5,), and returns float32(4,)");
  CHECK_THROWS_AS(from_stablehlo(""), Error);
  CHECK_THROWS_AS(from_stablehlo("module {}"), Error);
  CHECK_THROWS_AS(from_stablehlo("func.func private @f(%a: tensor<f32>) -> tensor<f32> {\nreturn %a : tensor<f32>\n}"),
                  Error);
}

TEST_CASE("a loop that runs as often as its data say is refused, as is a function that calls itself") {
  auto const told = [](std::string const& text) {
    try {
      from_stablehlo(text, {"loop.mlir"});
    } catch (Error const& error) {
      return error.message();
    }
    return std::string("nothing");
  };
  CHECK(told("func.func @main(%n: tensor<i32>) -> tensor<i32> {\n"
             "  %r = stablehlo.while(%i = %n) : tensor<i32>\n"
             "  cond {\n    %c = stablehlo.constant dense<5> : tensor<i32>\n"
             "    %p = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
             "    stablehlo.return %p : tensor<i1>\n  } do {\n    stablehlo.return %i : tensor<i32>\n  }\n"
             "  return %r : tensor<i32>\n}\n")
            .starts_with("loop.mlir:2: stablehlo.while: runs as often as its data say"));
  CHECK(told("func.func @main(%n: tensor<i32>) -> tensor<i32> {\n"
             "  %r = call @main(%n) : (tensor<i32>) -> tensor<i32>\n  return %r : tensor<i32>\n}\n")
            .find("call each other too deep") != std::string::npos);
}

TEST_CASE("loops within loops run as often as a step may take, and more is refused before anybody runs it") {
  // `depth` loops of `length` iterations around a sine.
  auto const nested = [](int depth, int length) {
    std::string text =
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  %c = stablehlo.constant dense<0> : tensor<i32>\n";
    std::string value = "%x", ends;
    for (int d = 0; d < depth; ++d) {
      std::string const k = std::to_string(d);
      text += "%r" + k + ":2 = stablehlo.while(%i" + k + " = %c, %a" + k + " = " + value +
              ") : tensor<i32>, tensor<f32>\ncond {\n%m" + k + " = stablehlo.constant dense<" + std::to_string(length) +
              "> : tensor<i32>\n%p" + k + " = stablehlo.compare LT, %i" + k + ", %m" + k +
              ", SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %p" + k +
              " : tensor<i1>\n} do {\n";
      value = "%a" + k;
      std::string const inner = d + 1 == depth ? "%s" : "%r" + std::to_string(d + 1) + "#1";
      ends = "%o" + k + " = stablehlo.constant dense<1> : tensor<i32>\n%n" + k + " = stablehlo.add %i" + k + ", %o" +
             k + " : tensor<i32>\nstablehlo.return %n" + k + ", " + inner + " : tensor<i32>, tensor<f32>\n}\n" + ends;
    }
    return text + "%s = stablehlo.sine " + value + " : tensor<f32>\n" + ends + "return %r0#1 : tensor<f32>\n}\n";
  };
  CHECK(from_stablehlo(nested(3, 100), {"nested.mlir"}).outputs.size() == 1);
  REQUIRE_ERROR(from_stablehlo(nested(3, 1000), {"nested.mlir"}), ErrorKind::unavailable,
                "runs 1000000000 times in the loops around it; all loops may run 268435456 times");
}

TEST_CASE("constants of any numbers: counts, triangles, and others") {
  auto const numbers = [](std::string const& literal, std::string const& type) {
    Graph const graph = from_stablehlo("func.func @main() -> " + type + " {\n  %0 = stablehlo.constant dense<" +
                                       literal + "> : " + type + "\n  return %0 : " + type + "\n}\n");
    Interpreter run(graph);
    run.run();
    return std::pair(naive::Values(run.output("result_0")), graph.op(graph.outputs[0].node));
  };
  auto const is = [&](std::string const& literal, std::string const& type, naive::Values const& wanted, bool held) {
    INFO(literal);
    auto const [found, op] = numbers(literal, type);
    CHECK(found == wanted);
    CHECK((op == Op::custom) == held);
  };
  is("2.5", "tensor<3xf32>", {2.5, 2.5, 2.5}, false);
  is("[4, 3, 2]", "tensor<3xi32>", {4, 3, 2}, false);
  is("[[1, 2], [11, 12]]", "tensor<2x2xi64>", {1, 2, 11, 12}, false);
  is("[[true, false, false], [true, true, false]]", "tensor<2x3xi1>", {1, 0, 0, 1, 1, 0}, false);
  is("[[0, 0, 0], [7, 0, 0], [7, 7, 0]]", "tensor<3x3xi32>", {0, 0, 0, 7, 0, 0, 7, 7, 0}, false);
  is("[0.5, 0.25, 1.0]", "tensor<3xf32>", {0.5, 0.25, 1}, true);
  is("\"0x0000803F000000C0\"", "tensor<2xf32>", {1, -2}, false);
  is("\"0x0100010001\"", "tensor<5xi1>", {1, 0, 1, 0, 1}, true);
  is("\"0x15\"", "tensor<5xi1>", {1, 0, 1, 0, 1}, true);
  is("[0x3C00, -2.0]", "tensor<2xf16>", {1, -2}, true);
  is("", "tensor<0xf32>", {}, false);
}

void survives(std::string const& text) {
  try {
    from_stablehlo(text);
  } catch (Error const& error) {
    CHECK(error.operation() == "from_stablehlo");
  }
}

TEST_CASE("modules cut at every length, and with every byte changed, are refused", "[.exhaustive]") {
  if (std::getenv("TUTTI_FUZZ_SECONDS") != nullptr) return;  // minutes, where seconds were asked for
  for (std::string const name : {"gpt", "mixture"}) {
    std::string const good = read(test::jax_folder() + "/" + name + ".mlir");
    for (std::size_t i = 0; i < good.size(); ++i) {
      survives(good.substr(0, i));
      std::string bad = good;
      bad[i] = static_cast<char>(33 + (i * 7 + static_cast<unsigned char>(bad[i])) % 94);
      survives(bad);
    }
  }
}

TEST_CASE("damaged modules are refused, wherever they are cut or changed; TUTTI_FUZZ_SECONDS tries for longer",
          "[fuzz]") {
  double const seconds = test::fuzz_seconds(0);
  std::string const exported = to_stablehlo(test::gpt_loss(1)).text;
  std::vector<std::string> const all{read(test::jax_folder() + "/gpt.mlir"), read(test::jax_folder() + "/mixture.mlir"),
                                     exported};
  std::mt19937_64 random(test::fuzz_seed(3));
  std::int64_t const began = exec::now_ns();
  for (int tries = 0; tries < 300 || static_cast<double>(exec::now_ns() - began) * 1e-9 < seconds; ++tries) {
    std::string const& good = all[random() % all.size()];
    std::string bad = tries % 5 == 0 ? good.substr(0, random() % good.size()) : good;
    for (std::uint64_t k = random() % 4; k > 0 && !bad.empty(); --k) {
      std::size_t const at = random() % bad.size();
      switch (random() % 4) {
        case 0: bad[at] = static_cast<char>(random()); break;
        case 1: bad.erase(at, 1 + random() % 20); break;
        case 2: bad.insert(at, good.substr(random() % good.size(), random() % 30)); break;
        default:  // another number
          if (std::size_t const digit = bad.find_first_of("0123456789", at); digit != std::string::npos)
            bad.replace(digit, 1, std::to_string(random() >> random() % 64));
      }
    }
    survives(bad);
  }
  std::string const deep = "func.func @main() -> tensor<f32> {\n%0 = \"a.b\"() {x = ";
  for (char const bracket : {'[', '<', '{', '('}) survives(deep + std::string(100'000, bracket));
  for (std::string const again : {"1:", "array<i64: ", "[1:"}) {
    std::string text = deep;
    for (int i = 0; i < 30'000; ++i) text += again;
    survives(text);
  }
}

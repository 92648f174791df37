// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Every operation that a graph may hold, executed, against the interpreter.
// Covers: <tutti/graph/op/*.hpp> <tutti/graph/values.hpp>
// Covers: <tutti/graph/bind.hpp> <tutti/graph/call.hpp>
// Covers: <tutti/graph/calls.hpp> <tutti/graph/elements.hpp> <tutti/graph/generic_steps.hpp> <tutti/graph/operands.hpp>
// Covers: <tutti/graph/step_call.hpp> <tutti/graph/composite_arguments.hpp>
// Covers: <tutti/graph/generic_indexing.hpp>

#include "graph/each_function.hpp"
#include "graph/run_graph.hpp"

#include <tutti/graph/composites.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/kernel/rotary_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

using namespace tutti;
using namespace tutti::graph;
using test::check_graph;

namespace {

std::vector<Shape> const shapes{{}, {1}, {7}, {0}, {3, 5}, {1, 33}, {2, 3, 4}, {17, 1, 9}, {5, 0, 2}, {130, 67}};

template <class F>
Graph built(F&& f) {
  Builder builder;
  f(builder);
  return builder.graph();
}

}  // namespace

TEST_CASE("elementwise operations of every shape") {
  for (Shape const& shape : shapes)
    check_graph(built([&](Builder& b) {
      Var const x = b.input("x", DType::float32, shape), y = b.input("y", DType::float32, shape);
      Var const positive = x * x + 0.5;
      b.output("sum", x + y);
      b.output("difference", x - y);
      b.output("product", x * y);
      b.output("quotient", x / positive);
      b.output("maximum", maximum(x, y));
      b.output("negative", -x);
      b.output("exponential", exp(x));
      b.output("logarithm", log(positive));
      b.output("tanh", tanh(x));
      b.output("logistic", logistic(x));
      b.output("sine", sin(x));
      b.output("cosine", cos(y));
      b.output("root", sqrt(positive));
      b.output("reciprocal_root", rsqrt(positive));
      b.output("power", pow(positive, 1.5));
      b.output("gelu", gelu(x * 3.0));
      b.output("silu", silu(x * 3.0));
      b.output("select", select(less(x, y), x * 2.0, y - 1.0));
      b.output("less_equal", less_equal(x, y));
      b.output("equal", equal(x, maximum(x, y)));
      b.output("not_equal", not_equal(x, maximum(x, y)));
      b.output("constant", constant(b, 2.5, shape, DType::float32));
      b.output("barrier", barrier(x) + stop_gradient(y));
    }));
}

TEST_CASE("every function of elements of the list computes what its reference says, of floating numbers and integers") {
  for (std::int64_t const size : {1, 7, 70})
    check_graph(built([&](Builder& b) {
      Var const x = b.input("x", DType::float32, {size}), y = b.input("y", DType::float32, {size});
      Var const i = b.input("i", DType::int32, {size}), j = b.input("j", DType::int32, {size});
      Var const positive = x * x + 0.5;
      test::for_each_function([&](Op op, std::string const& name) {
        b.output(name + " of positive ones", test::applied_to_any(op, positive, y * y + 0.25));
        if (test::is_total(op)) b.output(name + " of any", test::applied_to_any(op, x * 3.0, y * 3.0));
        if (generic::is_integer_function(op))
          b.output(name + " of integers", test::applied_to_any(op, i - 2.0, j - 1.0));
      });
    }));
}

TEST_CASE("comparisons of any kind, truth values, and functions at their edges") {
  double const infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  auto const results = [](std::vector<double> const& x, std::vector<double> const& y, auto&& f) {
    auto const size = static_cast<std::int64_t>(x.size());
    Graph const graph = built([&](Builder& b) {
      b.output("y", convert(f(b.input("a", DType::float32, {size}), b.input("b", DType::float32, {size})),
                            DType::float32));
    });
    test::RunOptions options;
    options.set = [&](Ports& ports) {
      std::vector<float> const a(x.begin(), x.end()), b(y.begin(), y.end());
      ports.set("a", TensorView<float const>(a.data(), {size}));
      ports.set("b", TensorView<float const>(b.data(), {size}));
    };
    auto const bytes = test::run_executor(graph, options).at("y");
    std::vector<double> values;
    for (std::int64_t i = 0; i < size; ++i) values.push_back(generic::number_at(DType::float32, bytes.data(), i));
    return values;
  };
  using Doubles = std::vector<double>;
  Doubles const a{1, 2, 2, nan, 0}, b{2, 1, 2, 1, nan};
  CHECK(results(a, b, [](Var x, Var y) { return greater(x, y); }) == Doubles{0, 1, 0, 0, 0});
  CHECK(results(a, b, [](Var x, Var y) { return greater_equal(x, y); }) == Doubles{0, 1, 1, 0, 0});
  CHECK(results(a, b, [](Var x, Var y) { return !less(x, y); }) == Doubles{0, 1, 1, 1, 1});
  Doubles const p{0, 0, 1, 1}, q{0, 1, 0, 1};
  auto const truth = [](Var v) { return not_equal(v, 0.0); };
  CHECK(results(p, q, [&](Var x, Var y) { return truth(x) && truth(y); }) == Doubles{0, 0, 0, 1});
  CHECK(results(p, q, [&](Var x, Var y) { return truth(x) || truth(y); }) == Doubles{0, 1, 1, 1});
  Doubles const edges{-infinity, -1.5, -0.5, 0.5, 2, infinity};
  CHECK(results(edges, edges, [](Var x, Var) { return sign(x); }) == Doubles{-1, -1, -1, 1, 1, 1});
  CHECK(results(edges, edges, [](Var x, Var) { return floor(x); }) == Doubles{-infinity, -2, -1, 0, 2, infinity});
  CHECK(results(edges, edges, [](Var x, Var) { return ceil(x); }) == Doubles{-infinity, -1, 0, 1, 2, infinity});
  CHECK(results(edges, edges, [](Var x, Var) { return relu(x); }) == Doubles{0, 0, 0, 0.5, 2, infinity});
  CHECK(results({-infinity, infinity}, {0, 0}, [](Var x, Var) { return exact_gelu(x); }) == Doubles{0, infinity});
  CHECK(results({-infinity, 0, infinity}, {0, 0, 0}, [](Var x, Var) { return erf(x); }) == Doubles{-1, 0, 1});
  CHECK(results({2, 0, 9, 4}, {3, 2, 0.5, -1}, [](Var x, Var y) { return pow(x, y); }) == Doubles{8, 0, 3, 0.25});
  for (double const value : results({nan, nan}, {1, 2}, [](Var x, Var) { return relu(x) + sign(x); }))
    CHECK(std::isnan(value));
}

TEST_CASE("operands of different shapes broadcast") {
  check_graph(built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {4, 1, 5}), y = b.input("y", DType::float32, {3, 1}),
              z = b.input("z", DType::float32, {});
    b.output("all", (x + y) * z - exp(y));
    b.output("column", y + z);
  }));
}

TEST_CASE("conversions between types") {
  check_graph(built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {11, 3}), i = b.input("i", DType::int32, {11, 3}),
              p = b.input("p", DType::boolean, {11, 3});
    b.output("to_int", convert(x * 10.0, DType::int32));
    b.output("to_double", convert(x, DType::float64) * 3.0);
    b.output("back", convert(convert(x, DType::float64) / 3.0, DType::float32));
    b.output("from_int", convert(i, DType::float32) * x);
    b.output("from_bool", select(p, x, convert(p, DType::float32)));
    b.output("to_bool", convert(i, DType::boolean));
    b.output("saturated", convert(x * 1e12, DType::int32));
    b.output("narrowed", convert(convert(x * 1000.0, DType::int32), DType::uint8));
    b.output("narrowed_again", convert(convert(convert(x * 1000.0, DType::int32), DType::int8), DType::float32));
  }));
  // Sixteen bits of the result: what is stored is rounded.
  check_graph(built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {101});
    b.output("bfloat16", convert(convert(x, DType::bfloat16), DType::float32) + x);
    b.output("float16", convert(x, DType::float16));
  }), 0x1p-8);
}

TEST_CASE("integers wrap after every operation") {
  check_graph(built([](Builder& b) {
    Var const i = b.input("i", DType::int32, {37}), j = b.input("j", DType::int8, {37});
    Var const large = (i + 3.0) * 1000003.0 * 1000003.0;
    b.output("quotient", large / 7.0);
    b.output("order", less(large, large + 2000000000.0));
    b.output("sum", reduce_sum(large, {0}));
    b.output("bytes", (j * 100.0 + j) / 3.0);
    b.output("negated", -(j * 100.0));
    b.output("minimum", minimum(j * 100.0, convert(i, DType::int8)));
    b.output("wider", convert(j, DType::int64) * convert(i, DType::int64));
  }));
}

TEST_CASE("integers are exact to 64 bits") {
  Graph const graph = built([](Builder& b) {
    Var const i = b.input("i", DType::int64, {13});
    Var const large = i * 1000003.0 * 1000003.0 + 12345.0;
    b.output("large", large);
    b.output("order", less(large, large + 1.0));
    b.output("equal", equal(large, large + 1.0));
    b.output("maximum", maximum(-i, i - 3.0));
    b.output("quotient", large / 7.0);
  });
  test::RunOptions options;
  options.limit = 900;
  auto const results = test::run_executor(graph, options);
  auto const input = test::random_values(graph, graph.inputs[0], 900);
  for (std::size_t k = 0; k < 13; ++k) {
    std::int64_t const i = static_cast<std::int64_t>(input[k]), large = i * 1000003 * 1000003 + 12345;
    auto const at = [&](char const* name) { return reinterpret_cast<std::int64_t const*>(results.at(name).data())[k]; };
    CHECK(at("large") == large);
    CHECK(at("maximum") == std::max(-i, i - 3));
    CHECK(at("quotient") == large / 7);
    CHECK(results.at("order")[k] == std::byte{1});
    CHECK(results.at("equal")[k] == std::byte{0});
  }
}

TEST_CASE("unsigned integers of 64 bits are unsigned") {
  Graph const graph = built([](Builder& b) {
    Var const i = b.input("i", DType::uint64, {13});
    Var const large = i + 0x1p63;
    b.output("large", large);
    b.output("less", less(large, i));
    b.output("less_equal", less_equal(i, large));
    b.output("maximum", maximum(i, large));
    b.output("minimum", minimum(large, i));
    b.output("quotient", large / 7.0);
    b.output("chosen", select(less(i, large), convert(i, DType::int64) - 5.0, convert(i, DType::int64)));
    b.output("greatest", reduce_max(large, {0}));
    b.output("sum", reduce_sum(large, {0}));
    b.output("single", convert(large, DType::float32));
    b.output("double", convert(large, DType::float64));
    b.output("back", convert(convert(large, DType::float64), DType::uint64));
  });
  test::RunOptions options;
  options.limit = 900;
  auto const results = test::run_executor(graph, options);
  auto const input = test::random_values(graph, graph.inputs[0], 900);
  std::uint64_t const high = std::uint64_t{1} << 63;
  std::uint64_t greatest = 0, sum = 0;
  for (std::size_t k = 0; k < 13; ++k) {
    auto const i = static_cast<std::uint64_t>(input[k]);
    INFO("element " << k << " is " << i);
    auto const word = [&](char const* name) {
      return reinterpret_cast<std::uint64_t const*>(results.at(name).data())[k];
    };
    CHECK(word("large") == i + high);
    CHECK(results.at("less")[k] == std::byte{0});
    CHECK(results.at("less_equal")[k] == std::byte{1});
    CHECK(word("maximum") == i + high);
    CHECK(word("minimum") == i);
    CHECK(word("quotient") == (i + high) / 7);
    CHECK(word("chosen") == i - 5);
    CHECK(reinterpret_cast<float const*>(results.at("single").data())[k] == static_cast<float>(i + high));
    CHECK(reinterpret_cast<double const*>(results.at("double").data())[k] == static_cast<double>(i + high));
    CHECK(word("back") == static_cast<std::uint64_t>(static_cast<double>(i + high)));
    greatest = std::max(greatest, i + high);
    sum += i + high;
  }
  CHECK(*reinterpret_cast<std::uint64_t const*>(results.at("greatest").data()) == greatest);
  CHECK(*reinterpret_cast<std::uint64_t const*>(results.at("sum").data()) == sum);
}

TEST_CASE("an operation runs in the arithmetic of its operands, also between operations of other types") {
  Graph const graph = built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {}), i = b.input("i", DType::int32, {}),
              l = b.input("l", DType::int64, {}), p = b.input("p", DType::boolean, {});
    auto const of = [&](double value, DType dtype) { return constant(b, value, {}, dtype); };
    auto const wide = [](Var v) { return convert(v, DType::float64); };
    b.output("difference", convert(wide(x) + 1e-9 - 1.0, DType::float32));
    b.output("half", convert(convert(i, DType::uint64) / 2.0, DType::int32));
    b.output("long half", convert(convert(l, DType::uint64) / 2.0, DType::int64));
    b.output("unsigned less", less(convert(i, DType::uint64), 5.0));
    b.output("double less", less(wide(x), 1 + 1e-12));
    b.output("double equal", equal(wide(p) * 1e-12 + 1.0, 1.0));
    for (DType const dtype : {DType::float64, DType::int64, DType::uint64})
      b.output("chosen " + std::string(name(dtype)),
               less(select(p, of(0x1p53 - 2, dtype), of(0x1p53 - 1, dtype)), of(0x1p53 - 1, dtype)));
    for (DType const dtype : {DType::int32, DType::int64, DType::uint64}) {
      std::string const end = " " + std::string(name(dtype));
      b.output("product" + end, of(16777217, dtype) * 3.0);
      b.output("one" + end, of(16777217, dtype) - of(16777216, dtype));
      b.output("less" + end, less(of(16777216, dtype), of(16777217, dtype)));
    }
    b.output("wraps", convert(of(200, DType::uint8) + 100.0, DType::int32));
    b.output("third", of(0x1p63, DType::uint64) / 3.0);
    b.output("constants", less(of(1, DType::float64), of(1 + 1e-12, DType::float64)));
    b.output("negative", -of(1, DType::uint32));
  });
  test::RunOptions options;
  options.set = [](Ports& ports) {
    ports.set("x", 1);
    ports.set("i", -1);
    ports.set("l", -1);
    ports.set("p", true);
  };
  auto const results = test::run_executor(graph, options);
  auto const is = [&]<class T>(std::string const& name, T expected) {
    INFO(name);
    T value;
    REQUIRE(results.at(name).size() >= sizeof value);
    std::memcpy(&value, results.at(name).data(), sizeof value);
    CHECK(value == expected);
  };
  is("difference", static_cast<float>(1.0 + 1e-9 - 1.0));
  is("half", std::int32_t{-1});
  is("long half", std::numeric_limits<std::int64_t>::max());
  is("third", (std::uint64_t{1} << 63) / 3);
  is("wraps", std::int32_t{44});
  is("negative", ~std::uint32_t{0});
  for (char const* name : {"unsigned less", "double equal"}) is(name, false);
  for (char const* name : {"double less", "chosen float64", "chosen int64", "chosen uint64", "less int32", "less int64",
                           "less uint64", "constants"})
    is(name, true);
  is("product int32", std::int32_t{50331651});
  is("product int64", std::int64_t{50331651});
  is("product uint64", std::uint64_t{50331651});
  is("one int32", std::int32_t{1});
  is("one int64", std::int64_t{1});
  is("one uint64", std::uint64_t{1});
}

TEST_CASE("starts of a dynamic slice beyond the end are clamped to it, whatever their type") {
  check_graph(built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {7});
    for (double const start : {0.0, 100.0, 0x1p63, 0x1p64 - 2048})
      b.output("from " + std::to_string(start), dynamic_slice(x, {constant(b, start, {}, DType::uint64)}, {3}));
    b.output("before", dynamic_slice(x, {constant(b, -5, {}, DType::int64)}, {3}));
  }));
}

TEST_CASE("the maximum of no integers is the lowest one") {
  check_graph(built([](Builder& b) {
    for (DType const dtype : {DType::int8, DType::uint8, DType::int32, DType::uint32, DType::int64, DType::uint64})
      b.output(std::string(name(dtype)), reduce_max(b.input("of " + std::string(name(dtype)), dtype, {2, 0}), {1}));
  }));
}

TEST_CASE("shapes change without moving elements, or move them right") {
  check_graph(built([](Builder& b) {
    Var const x = b.input("x", DType::float32, {4, 6, 5}), y = b.input("y", DType::float32, {4, 2, 5});
    b.output("reshape", reshape(x, {8, 15}) * 2.0);
    b.output("transpose", transpose(x, {2, 0, 1}));
    b.output("both", reshape(transpose(x, {1, 0, 2}), {24, 5}) + 1.0);
    b.output("again", transpose(reshape(transpose(x, {1, 2, 0}), {30, 4}), {1, 0}));
    b.output("slice", slice(x, {1, 0, 2}, {3, 6, 5}, {1, 2, 1}) - 1.0);
    b.output("empty", slice(x, {1, 0, 2}, {1, 6, 5}));
    b.output("pad", pad(x, {1, 0, 2}, {0, 1, 0}, {0, 2, 1}, -3));
    b.output("concatenate", concatenate({x, y, x}, 1));
    b.output("rows", concatenate({reshape(y, {8, 5}), reshape(x, {24, 5})}, 0));
    b.output("x", x);
    b.output("iota", iota(b, {3, 4, 2}, 1, DType::float32));
    b.output("positions", iota(b, {3, 4}, 0, DType::int32));
  }));
}

TEST_CASE("slices whose place is known only at run time are clamped") {
  for (std::int64_t limit : {1, 4, 100})
    check_graph(built([](Builder& b) {
      Var const x = b.input("x", DType::float32, {6, 7}), u = b.input("u", DType::float32, {2, 3});
      Var const i = b.scalar("i", DType::int32), j = b.scalar("j", DType::int64);
      b.output("slice", dynamic_slice(x, {i, convert(j, DType::int32)}, {3, 2}));
      b.output("update", dynamic_update_slice(x * 2.0, u, {i, convert(j, DType::int32)}));
      b.output("negative", dynamic_slice(x, {-i, convert(j, DType::int32) - 3.0}, {3, 2}));
    }), 2e-5, limit);
}

TEST_CASE("reductions over any axes") {
  for (Shape const& shape : {Shape{3, 4, 5}, Shape{1, 1, 1}, Shape{2, 0, 3}, Shape{129, 3, 17}})
    check_graph(built([&](Builder& b) {
      Var const x = b.input("x", DType::float32, shape), i = b.input("i", DType::int32, shape);
      b.output("leading", reduce_sum(x, {0}));
      b.output("two", reduce_sum(x, {0, 1}));
      b.output("last", reduce_sum(x, {2}));
      b.output("middle", reduce_max(x, {1}));
      b.output("outer", reduce_max(x, {0, 2}));
      b.output("all", reduce_sum(x, {0, 1, 2}));
      b.output("view", reduce_sum(transpose(x, {2, 0, 1}), {1}));
      b.output("double", reduce_sum(convert(x, DType::float64), {0, 2}));
      b.output("integers", reduce_sum(i, {1, 2}));
    }));
}

TEST_CASE("products with any axes contracted, batched or transposed") {
  check_graph(built([](Builder& b) {
    Var const a = b.input("a", DType::float32, {3, 4, 5}), c = b.input("c", DType::float32, {5, 6}),
              d = b.input("d", DType::float32, {3, 5, 2});
    b.output("right", dot_general(a, c, {2}, {0}));
    b.output("batch", dot_general(a, d, {2}, {1}, {0}, {0}));
    b.output("rows", dot_general(a, reshape(b.input("e", DType::float32, {3, 4, 7}), {3, 4, 7}), {0, 1}, {0, 1}));
    b.output("swapped", dot_general(transpose(a, {1, 0, 2}), b.input("f", DType::float32, {4, 3, 2}), {1, 0}, {1, 0}));
    b.output("scattered", dot_general(a, b.input("g", DType::float32, {4, 3, 2, 5}), {0, 2}, {1, 3}));
    b.output("views", dot_general(transpose(c, {1, 0}), transpose(a, {2, 1, 0}), {1}, {0}));
    b.output("outer", dot_general(a, c, {}, {}));
    b.output("inner", dot_general(c, c, {0, 1}, {0, 1}));
    b.output("broadcast", dot_general(broadcast_to(c, {3, 5, 6}), d, {1}, {1}, {0}, {0}));
    b.output("double", dot_general(convert(a, DType::float64), convert(c, DType::float64), {2}, {0}));
    b.output("nothing",
             dot_general(b.input("h", DType::float32, {3, 0}), b.input("i", DType::float32, {0, 4}), {1}, {0}));
  }));
  check_graph(built([](Builder& b) {
    Var const a = b.input("a", DType::float32, {2, 3, 37, 19}), c = b.input("c", DType::float32, {2, 3, 41, 19});
    b.output("scores", dot_general(a, c, {3}, {3}, {0, 1}, {0, 1}));
  }));
}

TEST_CASE("rows are gathered, and added up where indices repeat") {
  for (std::int64_t limit : {1, 6})
    check_graph(built([](Builder& b) {
      Var const table = b.input("table", DType::float32, {6, 3, 2}), i = b.input("i", DType::int32, {4, 5});
      Var const rows = gather(table, i);
      b.output("rows", rows);
      b.output("sum", scatter_add(table * 2.0, i, rows));
      b.output("onto_zeros", scatter_add(constant(b, 0, {6, 3, 2}, DType::float32), i, rows * 0.5));
      b.output("integers", gather(b.input("words", DType::int64, {6}), i));
    }), 2e-5, limit);
  Graph const graph = built([](Builder& b) {
    b.output("rows", gather(b.input("table", DType::float32, {3, 2}), b.input("i", DType::int32, {50})));
  });
  REQUIRE_ERROR(test::run_executor(graph), ErrorKind::out_of_range, "is outside ");
}

TEST_CASE("random bits depend on seed, step, stream and position") {
  check_graph(built([](Builder& b) {
                Var const seed = b.scalar("seed", DType::int64), step = b.scalar("step", DType::int64),
                          stream = b.scalar("stream", DType::int64);
                b.output("bits", rng_bits({5, 7}, seed, step, stream));
                b.output("one", rng_bits({}, seed, step + 1.0, stream));
                b.output("later", rng_bits({3, 7}, seed, step, stream, convert(stream, DType::int32)));
                b.output("uniform", convert(rng_bits({101}, seed, step, stream), DType::float32) * 0x1p-32);
              }),
              2e-5, 1 << 20);
}

TEST_CASE("cumulative sums along any axis, forwards and backwards, of any numbers") {
  for (Shape const& shape : {Shape{1}, Shape{7}, Shape{3, 4, 5}, Shape{2, 0, 3}, Shape{2, 1, 300}})
    for (DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::uint8})
      check_graph(built([&](Builder& b) {
                    Var const x = b.input("x", dtype, shape);
                    for (int axis = 0; axis < shape.rank(); ++axis)
                      for (bool reversed : {false, true}) {
                        std::string const name = std::to_string(axis) + (reversed ? " reversed" : "");
                        Var const y = cumsum(x, axis, reversed);
                        b.output(name, y);
                        if (dtype == DType::float32)
                          b.output("gradient " + name, gradients(sum_all(y * y), {x})[0]);
                      }
                  }),
                  dtype == DType::bfloat16 ? 2e-2 : 2e-5, 3);
  Builder b;
  Var const x = b.input("x", DType::float32, {2, 3});
  CHECK(cumsum(x, -1).id == cumsum(x, 1).id);
  REQUIRE_ERROR(cumsum(x, 2), ErrorKind::shape, "the axis must be below the rank");
  REQUIRE_ERROR(cumsum(less(x, x), 0), ErrorKind::dtype, "truth values have no sum");
}

TEST_CASE("dropout and its gradient have one mask, in a loop of layers too, whose streams differ") {
  auto const dropped = [](Recompute recompute) {
    return built([&](Builder& b) {
      auto const whole = [&](char const* name) { return b.scalar(name, DType::int64); };
      Var const seed = whole("seed"), step = whole("step"), first = whole("first");
      Var const x = b.input("x", DType::float32, {5, 7});
      Var const y = dropout(x, 0.3, {seed, step, whole("stream"), first});
      b.output("y", y);
      b.output("transposed", dropout(transpose(x, {1, 0}), 0.3, {seed, step, first, first}));
      b.output("nothing", dropout(x, 0, {seed, step, first, first}) * 2.0);
      Scan body(b, x, 3, Where::current());
      Var const layer = body.slice(iota(b, {3}, 0, DType::int64), "layer");
      Var const next = body.carried() + dropout(tanh(body.carried()), 0.5, {seed, step, layer + 1.0, first});
      Var const z = body.finish(next);
      b.output("z", z);
      b.output("gradient", gradients(sum_all(y * y) + sum_all(z * x), {x}, 1, recompute)[0]);
    });
  };
  for (Recompute recompute : {Recompute::none, Recompute::pointwise, Recompute::block})
    check_graph(dropped(recompute), 2e-5, 1 << 20);
  Builder b;
  Var const zero = b.scalar("zero", DType::int64), x = b.input("x", DType::float32, {5});
  REQUIRE_ERROR(dropout(x, 1, {zero, zero, zero, zero}), ErrorKind::invalid_argument, "at least 0 and below 1");
  REQUIRE_ERROR(dropout(x, 0.5, {zero, zero, x, zero}), ErrorKind::shape, "must be a scalar");
}

TEST_CASE("composites without a gradient") {
  check_graph(
      built([](Builder& b) {
        Var const x = b.input("x", DType::float32, {2, 9, 8}), w = b.input("w", DType::float32, {96, 8}),
                  bias = b.input("bias", DType::float32, {96});
        Var const h = linear(x, w, bias);
        b.output("linear", linear(x, w));
        b.output("biased", h);
        b.output("attention", attention(h, 4));
        b.output("shared", attention(h, 4, 1));
        b.output("pairs", attention(h, 8, 2));
        b.output("rms_norm", rms_norm(x, b.input("rms_weight", DType::float32, {8})));
        b.output("norm", layer_norm(x, b.input("gamma", DType::float32, {8}), b.input("beta", DType::float32, {8})));
        Var const tokens = b.input("tokens", DType::int32, {2, 9}), table = b.input("table", DType::float32, {5, 8});
        b.output("embedding", embed(table, tokens));
        b.output("positions", embed(table, b.input("p", DType::float32, {11, 8}), tokens));
        auto const losses = cross_entropy_losses(linear(x, table), tokens, 2);
        b.output("mean", losses.mean);
        b.output("tokens", losses.tokens);
        auto const fused = linear_cross_entropy_losses(x, b.input("head", DType::float32, {7, 8}), tokens, 5, 3);
        b.output("fused_mean", fused.mean);
        b.output("fused_tokens", fused.tokens);
        b.output("squares", square_sum(x));
        b.output("onto", square_sum(h, square_sum(x)));
      }),
      1e-4);
}

TEST_CASE("rotary embedding of rows that are contiguous, packed, transposed, and none") {
  for (auto pairing : {kernel::RotaryPairing::half, kernel::RotaryPairing::interleaved})
    for (std::int64_t batch : {0, 1, 3})
      for (std::int64_t tokens : {0, 1, 5})
        check_graph(built([&](Builder& b) {
          Var const x = b.input("x", DType::float32, {batch, tokens, 20}), first = b.scalar("first", DType::int32);
          Rotations const by = rotations(b, tokens, 4), later = rotations(first, tokens, 4, 500.0);
          b.output("whole", rotary(x, by, pairing));
          b.output("part", rotary(slice(x, {0, 0, 8}, {batch, tokens, 16}), later, pairing));
          b.output("every_second", rotary(slice(x, {0, 0, 0}, {batch, tokens, 16}, {1, 1, 2}), by, pairing));
          b.output("transposed", rotary(transpose(b.input("t", DType::float32, {tokens, batch, 8}), {1, 0, 2}), by));
          b.output("half_precision", rotary(convert(x, DType::bfloat16), {convert(by.cosine, DType::bfloat16),
                                                                          convert(by.sine, DType::bfloat16)}));
        }), tokens == 0 || batch == 0 ? 2e-5 : 2e-2);
}

TEST_CASE("rotations of the graph are the rotations of the kernels' table") {
  Graph const graph = built([](Builder& b) {
    Rotations const by = rotations(b, 70, 12, 500000);
    b.output("cosine", by.cosine);
    b.output("sine", by.sine);
  });
  kernel::RotaryTable const table(70, 12, 500000);
  auto const results = test::run_executor(graph);
  for (auto const& [name, expected] : {std::pair{"cosine", table.cosine()}, std::pair{"sine", table.sine()}}) {
    REQUIRE(results.at(name).size() == 70 * 6 * sizeof(float));
    for (std::size_t i = 0; i < 70 * 6; ++i) {
      float value;
      std::memcpy(&value, results.at(name).data() + i * sizeof value, sizeof value);
      REQUIRE(std::abs(value - expected[i]) <= 6e-8f);
    }
  }
}

TEST_CASE("a block of the LLaMA family with its gradient") {
  for (auto pairing : {kernel::RotaryPairing::half, kernel::RotaryPairing::interleaved}) {
    Builder b;
    Var const x = b.input("x", DType::float32, {2, 9, 24});
    auto const weight = [&](char const* name, Shape const& shape) { return b.parameter(name, shape, normal(1)); };
    Var const norm_1 = weight("norm_1", {24}), norm_2 = weight("norm_2", {24}), qkv = weight("qkv", {72, 24}),
              gate = weight("gate", {33, 24}), up = weight("up", {33, 24}), down = weight("down", {24, 33});
    Rotations const by = rotations(b, 9, 8);
    Var const packed = linear(rms_norm(x, norm_1), qkv);
    auto const part = [&](std::int64_t i) { return slice(packed, {0, 0, 24 * i}, {2, 9, 24 * (i + 1)}); };
    Var h = x + attention(concatenate({rotary(part(0), by, pairing), rotary(part(1), by, pairing), part(2)}, 2), 3);
    Var const n = rms_norm(h, norm_2);
    h = h + linear(swiglu(linear(n, gate), linear(n, up)), down);
    Var const both = swiglu(slice(packed, {0, 0, 0}, {2, 9, 24}), slice(packed, {0, 0, 48}, {2, 9, 72}));
    Var const loss = sum_all(h * h) + sum_all(both * both + silu(both) * x);
    List<Var> const g = gradients(loss, {x, norm_1, norm_2, qkv, gate, up, down});
    b.output("h", h);
    for (std::size_t i = 0; i < g.size(); ++i) b.output("gradient_" + std::to_string(i), g[i]);
    check_graph(canonical(b.graph()), 1e-4);
  }
}

TEST_CASE("rotations that are made outside of a loop serve every layer, forwards and backwards") {
  for (std::int64_t length : {1, 3}) {
    Builder builder;
    Var const x = builder.input("x", DType::float32, {2, 5, 12});
    Var const w = builder.parameter("w", {length, 12}, normal(1), true);
    Rotations const by = rotations(builder, 5, 6);
    Scan body(builder, x, length, Where::current());
    Var const y = body.finish(rotary(rms_norm(body.carried(), body.slice(w, "w")), by) + body.carried());
    builder.output("y", y);
    List<Var> const g = gradients(sum_all(y * y), {w, x});
    builder.output("dw", g[0]);
    builder.output("dx", g[1]);
    Graph const graph = canonical(builder.graph());
    Program const program = compile(graph);
    CHECK(std::count_if(program.list.steps.begin(), program.list.steps.end(),
                        [](Step const& s) { return s.kind == StepKind::rotary; }) == 2 * length);
    CHECK(std::count_if(program.list.steps.begin(), program.list.steps.end(),
                        [](Step const& s) { return s.kind == StepKind::iota; }) == 2);
    check_graph(graph, 1e-4);
  }
}

TEST_CASE("the gate of SwiGLU on rows that are contiguous, packed, transposed, and none") {
  for (std::int64_t rows : {0, 1, 7})
    check_graph(built([&](Builder& b) {
      Var const x = b.input("x", DType::float32, {rows, 2, 26}), g = b.input("g", DType::float32, {rows, 2, 13});
      Var const gate = slice(x, {0, 0, 0}, {rows, 2, 13}), up = slice(x, {0, 0, 13}, {rows, 2, 26});
      Var const turned = transpose(b.input("t", DType::float32, {2, rows, 13}), {1, 0, 2});
      b.output("whole", swiglu(g, g));
      b.output("packed", swiglu(gate, up));
      b.output("transposed", swiglu(turned, up));
      b.output("vector", swiglu(b.input("v", DType::float32, {9}), b.input("w", DType::float32, {9})));
      List<Var> const d = gradients(sum_all(swiglu(gate, turned) * g * g), {gate, turned, g});
      b.output("dgate", d[0]);
      b.output("dup", d[1]);
      b.output("dg", d[2]);
    }));
}

TEST_CASE("a loop runs over slices of its stacked operands, and zero times") {
  for (std::int64_t length : {0, 1, 3}) {
    Builder builder;
    Var const x = builder.input("x", DType::float32, {4, 6}), outer = builder.input("outer", DType::float32, {6});
    Var const w = builder.parameter("w", {length, 6, 6}, normal(1), true);
    Scan body(builder, x, length, Where::current());
    Var const slice = body.slice(w, "w");
    Var const y = body.finish(tanh(linear(body.carried(), slice)) + outer);
    builder.output("y", y);
    Var const loss = sum_all(y * y);
    List<Var> const g = gradients(loss, {w, x});
    builder.output("dw", g[0]);
    builder.output("dx", g[1]);
    check_graph(canonical(builder.graph()), 1e-4);
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/custom_arguments.hpp>
// Operations from outside the library do what those inside do: executed, differentiated, repeated, printed, refused.

#include <tutti/graph/custom.hpp>

#include "graph/run_graph.hpp"

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/repeat.hpp>

using namespace tutti;
using namespace tutti::graph;

namespace {

/// x / (1 + |x|)
struct Softsign : FunctionOf<1> {
  static constexpr std::string_view name = "softsign";
  template <class Real>
  static constexpr Real scalar(Real x) {
    return x / (1 + std::abs(x));
  }
  TUTTI_VECTOR_BODY((V x) { return div(x, add(like(x, 1.0f), abs(x))); })
  static constexpr void gradient(auto const& n) { n.give(0, n.g() * pow(abs(n.in(0)) + 1.0, -2)); }
};
/// sqrt(a^2 + b^2), one element at a time in double
struct Length : FunctionOf<2> {
  static constexpr std::string_view name = "length";
  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return std::sqrt(a * a + b * b);
  }
};
/// Running sums of rows: an operation with a loop of its own.
struct RunningSum {
  static constexpr std::string_view name = "running_sum";
  static constexpr Type type(OperandTypes const& in) {
    in.floating(0);
    if (in.shape(0).rank() == 0) refuse(in.where, in.draft.op, "x must have a last axis to sum along", in.shape(0));
    return in[0];
  }
  static naive::Values reference(naive::Call const& call) {
    naive::Values y = call.in(0);
    auto const width = static_cast<std::size_t>(last(call.out()));
    for (std::size_t i = 0; i < y.size(); ++i)
      if (i % width != 0) y[i] += y[i - 1];
    for (double& value : y) value *= call.real();
    return y;
  }
  static void run(exec::Context& context, CustomArguments const& args) {
    float const* const x = args.in<float>(0).data();
    float* const y = args.out<float>().data();
    std::int64_t const width = last(args.result.shape);
    if (args.result.shape.size() == 0) return;
    context.parallel_for(args.result.shape.size() / width, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        float sum = 0;
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
          sum += x[i];
          y[i] = sum * static_cast<float>(args.reals[0]);
        }
      }
    });
  }
};
constexpr Var softsign(Var x) { return custom<Softsign>({x}); }

Graph model(Shape const& shape) {
  Builder b;
  Var const x = b.parameter("x", shape, normal(1)), y = b.input("y", DType::float32, shape);
  b.output("softsign", softsign(x * 4.0 - y));
  b.output("length", custom<Length>({x, y}));
  b.output("transposed", softsign(transpose(x, {1, 0})) * 2.0);
  b.output("running", custom<RunningSum>({x}, {0.5}) + y);
  b.output("loss", sum_all(softsign(x * 2.0) * y));
  return canonical(b.graph());
}

struct Traced {
  constexpr Graph operator()() const {
    Builder b;
    b.output("y", softsign(b.input("x", DType::float32, {4})));
    return canonical(b.graph());
  }
};
static_assert(Traced{}().size() == 2);  // graphs with such operations are made in constant expressions too

}  // namespace

TEST_CASE("operations from outside the library compute what their references say, with gradients") {
  for (Shape const& shape : {Shape{3, 5}, Shape{1, 1}, Shape{0, 4}, Shape{17, 70}}) {
    INFO(to_string(shape));
    test::check_graph(grad(model(shape)));
  }
  CHECK(check_gradients(model({3, 5})).worst < 1e-6);
}

TEST_CASE("operations from outside the library are merged, repeated, written out, compared and printed") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3});
  CHECK(softsign(x).id == softsign(x).id);
  CHECK(custom<RunningSum>({x}, {1}).id != custom<RunningSum>({x}, {2}).id);
  Var const w = b.parameter("w", {4, 3}, normal(1));
  Scan loop(b, x, 4, std::source_location::current());
  Var const row = loop.slice(w, "row");
  b.output("loss", sum_all(loop.finish(softsign(loop.carried() * row))));
  Graph const graph = canonical(b.graph());
  CHECK(check_gradients(graph).worst < 1e-6);
  CHECK(same(graph, decompose(graph)));
  CHECK(test::contains(to_string(graph), " = softsign(%"));
  Builder other;
  other.output("y", custom<Length>({other.input("x", DType::float32, {4}), other.input("z", DType::float32, {4})}));
  CHECK_FALSE(same(Traced{}(), other.graph()));
  CHECK(same(Traced{}(), Traced{}()));
}

TEST_CASE("operations from outside the library are refused with a sentence where they cannot be") {
  Builder b;
  Var const x = b.parameter("x", {3}, normal(1)), whole = b.input("i", DType::int32, {3});
  REQUIRE_ERROR(custom<Softsign>({x, x}), ErrorKind::invalid_argument, "another number of operands");
  REQUIRE_ERROR(custom<RunningSum>({whole}, {1}), ErrorKind::dtype, "must be of a floating type");
  REQUIRE_ERROR(custom<Length>({x, b.input("z", DType::float32, {4})}), ErrorKind::shape, "differ in shape");
  b.output("loss", sum_all(custom<Length>({x, x})));
  REQUIRE_ERROR(grad(canonical(b.graph())), ErrorKind::unavailable, "came without a gradient");
  List<std::uint64_t> const words = words_of(Traced{}());
  REQUIRE_ERROR(thaw({words.data(), words.size()}), ErrorKind::unavailable, "make this graph where it runs");
  float value = 0;
  CustomArguments args;
  args.result = {reinterpret_cast<std::byte*>(&value), DType::float32, {1}};
  CHECK(args.out<float>().data() == &value);
  REQUIRE_ERROR(args.out<double>(), ErrorKind::dtype, "float32, asked for as float64");
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations of one's own: a function of elements, compiled for every instruction set, and one with a loop of its own.

#include <tutti/graph.hpp>
#include <tutti/graph/custom.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>

using namespace tutti;

/// x / (1 + |x|).
struct Softsign : graph::FunctionOf<1> {
  static constexpr std::string_view name = "softsign";
  template <class Real>
  static constexpr Real scalar(Real x) { return x / (1 + std::abs(x)); }
  TUTTI_VECTOR_BODY((V x) { return div(x, add(like(x, 1.0f), abs(x))); })
  static constexpr void gradient(auto const& n) {
    n.give(0, n.g() * pow(abs(n.in(0)) + 1.0, -2));
  }
};

/// The last axis backwards.
struct Reverse {
  static constexpr std::string_view name = "reverse";
  static constexpr graph::Type type(graph::OperandTypes const& in) { return in[0]; }
  static graph::naive::Values reference(graph::naive::Call const& call) {
    auto const width = static_cast<std::size_t>(graph::last(call.out()));
    graph::naive::Values y(call.in(0).size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = call.in(0)[i / width * width + width - 1 - i % width];
    return y;
  }
  static void run(exec::Context& context, graph::CustomArguments const& args) {
    float const* const x = args.in<float>(0).data();
    float* const y = args.out<float>().data();
    std::int64_t const width = graph::last(args.result.shape), size = args.result.shape.size();
    context.parallel_for(size, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = x[i / width * width + width - 1 - i % width];
    });
  }
  static constexpr void gradient(auto const& n) { n.give(0, graph::custom<Reverse>({n.g()})); }
};

int main() {
  graph::Builder builder;
  auto const x = builder.parameter("x", {2, 3}, graph::normal(1));
  auto const y = graph::custom<Reverse>({graph::custom<Softsign>({x * 2.0})});
  builder.output("y", y);
  builder.output("loss", sum_all(y * y * x));
  graph::Graph const model = graph::canonical(builder.graph());
  auto const check = graph::check_gradients(model);
  std::printf("gradients agree with central differences: %s\n", check.worst < 1e-6 ? "yes" : "no");
  exec::Context context;
  graph::Program const program = graph::compile(grad(model));
  graph::State state(model);
  for (int i = 0; float& value : state.at("x").view<float>().elements()) value = static_cast<float>(i++ - 2);
  graph::Executor step(context, program, state);
  step.run();
  for (float const value : step.output<float>("y").elements()) std::printf("%.3f\n", double{value});
}

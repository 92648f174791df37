// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/check.hpp> <tutti/graph/composites.hpp>
// Covers: <tutti/graph/back.hpp> <tutti/graph/vjp_arrays.hpp> <tutti/graph/vjp_composites.hpp>
// Every rule of the table against central differences in double, over random and awkward shapes; linear operations by
// <A x, y> == <x, A^T y>.

#include <tutti/graph/check.hpp>
#include <tutti/graph/composites.hpp>

#include "graph/each_function.hpp"
#include "support/catch.hpp"

#include <functional>

using namespace tutti;
using namespace tutti::graph;

namespace {

constexpr double difference_bound = 1e-6;  // central differences in double: h^2 and 1e-16 / h, at h = 1e-5

/// The sum of f's result times random weights, so that every element has its own cotangent.
Graph weighted(std::function<Var(Builder&)> const& f) {
  Builder b;
  Var const y = f(b);
  Var const w = b.input("weights", y.dtype(), y.shape());
  b.output("loss", convert(sum_all(y * w), DType::float32));
  return canonical(b.graph());
}

void check(std::function<Var(Builder&)> const& f, GradientCheckOptions options = {},
           std::vector<std::pair<std::string, naive::Values>> const& given = {}) {
  options.samples = 12;
  for (std::uint64_t seed : {1u, 2u}) {
    options.seed = seed;
    GradientCheck const result = check_gradients(weighted(f), options, given);
    INFO(result.where);
    CHECK(result.worst < difference_bound);
    CHECK(result.tried > 0);
  }
}

Var param(Builder& b, std::string_view name, Shape const& shape) { return b.parameter(name, shape, zeros()); }

}  // namespace

TEST_CASE("the check of gradients keeps a NaN, whatever stands after it") {
  Builder b;
  Var const a = param(b, "a", {2}), c = param(b, "c", {3});
  b.output("loss", sum_all(sqrt(a - a)) + sum_all(c * c));
  GradientCheck const result = check_gradients(canonical(b.graph()));
  CHECK(std::isnan(result.worst));
  CHECK(test::contains(result.where, "a[0]: gradient "));
  CHECK(result.tried > 2);
}

TEST_CASE("elementwise rules agree with central differences") {
  for (Shape const& shape : {Shape{}, Shape{1}, Shape{3, 5}, Shape{2, 1, 4}}) {
    INFO("shape " << to_string(shape));
    auto const x = [&](Builder& b) { return param(b, "x", shape); };
    auto const y = [&](Builder& b) { return param(b, "y", shape); };
    auto const positive = [&](Builder& b) { return exp(param(b, "x", shape)); };
    check([&](Builder& b) { return x(b) + y(b) * 2; });
    check([&](Builder& b) { return x(b) - y(b) * 3; });
    check([&](Builder& b) { return x(b) * y(b); });
    check([&](Builder& b) { return y(b) / positive(b); });
    check([&](Builder& b) { return -x(b); });
    check([&](Builder& b) { return maximum(x(b), y(b)); });
    check([&](Builder& b) { return minimum(x(b), y(b)); });
    check([&](Builder& b) { return exp(x(b)); });
    check([&](Builder& b) { return log(positive(b) + 0.5); });
    check([&](Builder& b) { return tanh(x(b)); });
    check([&](Builder& b) { return logistic(x(b)); });
    check([&](Builder& b) { return sin(x(b)); });
    check([&](Builder& b) { return cos(x(b)); });
    check([&](Builder& b) { return sqrt(positive(b)); });
    check([&](Builder& b) { return rsqrt(positive(b)); });
    check([&](Builder& b) { return pow(positive(b), 2.5); });
    check([&](Builder& b) { return pow(x(b), 3); });
    check([&](Builder& b) { return gelu(x(b)); });
    check([&](Builder& b) { return silu(x(b)); });
    check([&](Builder& b) {
      Var const a = x(b);
      return barrier(a) * a;
    });
    check([&](Builder& b) { return convert(convert(x(b), DType::float64), DType::float32); });
    check([&](Builder& b) {
      Var const a = x(b), c = y(b);
      return select(less(a, c), a * 2, c * 5);
    });
  }
}

TEST_CASE("the rule of every function of elements of the list agrees with central differences") {
  test::for_each_function([](Op op, std::string const& name) {
    if (info(op).differentiability != Differentiability::rule) return;
    INFO(name);
    auto const x = [](Builder& b) { return param(b, "x", {7}); };
    auto const y = [](Builder& b) { return param(b, "y", {7}); };
    check([&](Builder& b) { return test::applied_to_any(op, exp(x(b)), exp(y(b))); });
    if (test::is_total(op)) check([&](Builder& b) { return test::applied_to_any(op, x(b) * 2.0, y(b) * 2.0); });
  });
}

TEST_CASE("the gradient of a power by its exponent is zero where the base is") {
  Builder b;
  Var const base = param(b, "base", {2}), exponent = param(b, "exponent", {2});
  b.output("loss", sum_all(pow(base, exponent)));
  Interpreter interpreter(grad(canonical(b.graph())));
  interpreter.set("base", {0, 2});
  interpreter.set("exponent", {2, 3});
  interpreter.run();
  CHECK(interpreter.output("gradient.base") == naive::Values{0, 12});
  CHECK(interpreter.output("gradient.exponent")[0] == 0);
  CHECK(std::abs(interpreter.output("gradient.exponent")[1] - 8 * std::log(2.0)) < 1e-12);
}

TEST_CASE("ties of maximum and of reduce_max share the gradient") {
  Builder b;
  Var const x = param(b, "x", {3}), y = param(b, "y", {3});
  b.output("loss", sum_all(maximum(x, y)) + reduce_max(x, {0}) * 6);
  Interpreter run(grad(canonical(b.graph())));
  run.set("x", {1, 1, 0});
  run.set("y", {1, 0, 2});
  run.run();
  CHECK(run.output("gradient.x") == naive::Values{0.5 + 3, 1 + 3, 0});
  CHECK(run.output("gradient.y") == naive::Values{0.5, 0, 1});
}

TEST_CASE("broadcasting, reshaping and slicing rules agree with central differences") {
  for (std::int64_t n : {1, 3}) {
    for (std::int64_t m : {1, 4}) {
      INFO("n " << n << ", m " << m);
      check([&](Builder& b) { return broadcast_in_dim(param(b, "x", {n, 1}), {n, 5, m}, {0, 2}); });
      check([&](Builder& b) { return param(b, "x", {m}) * param(b, "y", {n, 1}) + param(b, "z", {}); });
      check([&](Builder& b) { return reshape(param(b, "x", {n, m}), {m * n}); });
      check([&](Builder& b) { return transpose(param(b, "x", {n, 2, m}), {2, 0, 1}); });
      check([&](Builder& b) { return slice(param(b, "x", {n + 3, m}), {1, 0}, {n + 3, m}, {2, 1}); });
      check([&](Builder& b) { return pad(param(b, "x", {n, m}), {1, 0}, {2, 3}, {2, 1}, 7); });
      check([&](Builder& b) { return concatenate({param(b, "x", {n, m}), param(b, "y", {n, 2})}, 1); });
      check([&](Builder& b) { return reduce_sum(param(b, "x", {n, 3, m}), {0, 2}); });
      check([&](Builder& b) { return reduce_max(param(b, "x", {n, 3, m}), {1}); });
    }
  }
}

TEST_CASE("rules of indexed operations agree with central differences, duplicates and clamped starts included") {
  auto const start = [](Builder& b, double value) { return constant(b, value, {}, DType::int32); };
  for (double at : {0.0, 1.0, 9.0}) {
    check([&](Builder& b) { return dynamic_slice(param(b, "x", {5, 3}), {start(b, at), start(b, 0)}, {2, 3}); });
    check([&](Builder& b) {
      return dynamic_update_slice(param(b, "x", {5, 3}), param(b, "u", {2, 2}), {start(b, at), start(b, 1)});
    });
  }
  check([](Builder& b) { return gather(param(b, "x", {4, 3}), b.input("i", DType::int32, {2, 5})); }, {.integers = 4});
  check([](Builder& b) { return gather(param(b, "x", {4}), b.input("i", DType::int64, {})); }, {.integers = 4});
  check(
      [](Builder& b) {
        return scatter_add(param(b, "x", {4, 3}), b.input("i", DType::int32, {5}), param(b, "r", {5, 3}));
      },
      {.integers = 4});
  check([](Builder& b) {
    Var const x = param(b, "x", {4, 3}), i = b.input("i", DType::int32, {6});
    return gather(x, i) *
           reduce_sum(x, {0});  // the row sums stand first in the sum of cotangents, the scatter is put onto them
  }, {.integers = 4});
}

TEST_CASE("the rule of dot_general holds for any order of batch, free and contracted axes") {
  check([](Builder& b) { return dot_general(param(b, "x", {3, 4}), param(b, "y", {4, 5}), {1}, {0}); });
  check([](Builder& b) { return dot_general(param(b, "x", {4, 3}), param(b, "y", {5, 4}), {0}, {1}); });
  check([](Builder& b) { return dot_general(param(b, "x", {3}), param(b, "y", {3}), {0}, {0}); });
  check([](Builder& b) { return dot_general(param(b, "x", {2}), param(b, "y", {3}), {}, {}); });
  check([](Builder& b) {
    return dot_general(param(b, "x", {2, 3, 4, 5}), param(b, "y", {5, 6, 3, 2}), {1, 3}, {2, 0}, {0}, {3});
  });
  check([](Builder& b) {
    return dot_general(param(b, "x", {4, 2, 3, 1}), param(b, "y", {3, 4, 2}), {2, 0}, {0, 1}, {1}, {2});
  });
  check([](Builder& b) {
    return dot_general(param(b, "x", {2, 3, 2}), param(b, "y", {2, 2, 3}), {1}, {2}, {2, 0}, {0, 1});
  });
}

TEST_CASE("rules of composites agree with central differences") {
  for (int channels : {1, 6}) {
    check([&](Builder& b) {
      return linear(param(b, "x", {2, 3, channels}), param(b, "w", {4, channels}), param(b, "b", {4}));
    });
    check([&](Builder& b) { return linear(param(b, "x", {channels}), param(b, "w", {4, channels})); });
    check(
        [&](Builder& b) {
          return embed(param(b, "e", {5, channels}), param(b, "p", {4, channels}), b.input("t", DType::int32, {2, 3}));
        },
        {.integers = 5});
    check(
        [&](Builder& b) {
          return embed(param(b, "e", {5, channels}), b.input("t", DType::int32, {2, 3}));
        },
        {.integers = 5});
  }
  check([](Builder& b) { return layer_norm(param(b, "x", {2, 3, 5}), param(b, "g", {5}), param(b, "b", {5}), 1e-2); });
  check([](Builder& b) { return layer_norm(param(b, "x", {4}), param(b, "g", {4}), param(b, "b", {4}), 1e-2); });
  check([](Builder& b) { return rms_norm(param(b, "x", {2, 3, 5}), param(b, "w", {5}), 1e-2); });
  check([](Builder& b) { return rms_norm(param(b, "x", {4}), param(b, "w", {4}), 1e-2); });
  check([](Builder& b) { return swiglu(param(b, "gate", {2, 3, 5}), param(b, "up", {2, 3, 5})); });
  check([](Builder& b) { return swiglu(param(b, "gate", {4}), b.input("up", DType::float32, {4})); });
  for (bool reversed : {false, true})
    for (int axis : {0, 1, 2})
      check([&](Builder& b) {
        Var const x = param(b, "x", {3, 2, 4});
        return cumsum(x * x, axis, reversed);
      });
  for (double p : {0.0, 0.3})
    check([&](Builder& b) {
      auto const number = [&](double value) { return constant(b, value, {}, DType::int64); };
      Var const x = param(b, "x", {3, 5});
      return dropout(x * x, p, {number(3), number(2), number(1), number(6)});
    });
  for (auto pairing : {kernel::RotaryPairing::half, kernel::RotaryPairing::interleaved}) {
    check([&](Builder& b) { return rotary(param(b, "x", {2, 3, 12}), rotations(b, 3, 4), pairing); });
    check([&](Builder& b) {  // any number of heads, and rotations that are trained
      return rotary(param(b, "x", {3, 6}), {param(b, "cosine", {3, 3}), param(b, "sine", {3, 3})}, pairing);
    });
    check([&](Builder& b) {  // the gradient is a rotation back, which has a gradient as well
      Var const x = param(b, "x", {2, 3, 4});
      Rotations const by{param(b, "cosine", {3, 2}), param(b, "sine", {3, 2})};
      return gradients(sum_all(pow(rotary(x, by, pairing), 3)), {x})[0];
    });
  }
  for (int heads : {1, 2, 4}) check([&](Builder& b) { return attention(param(b, "x", {2, 5, 24}), heads); });
  check([](Builder& b) { return attention(param(b, "x", {1, 1, 6}), 2); });
  for (int kv_heads : {1, 2, 4})  // shared keys and values
    check([&](Builder& b) { return attention(param(b, "x", {2, 5, 3 * (4 + 2 * kv_heads)}), 4, kv_heads); });
  check([](Builder& b) { return square_sum(param(b, "x", {3, 2}), convert(param(b, "s", {}), DType::float64)); });
}

TEST_CASE("rules of the losses agree with central differences, with ignored targets, padding and any cotangent") {
  naive::Values const targets{0, 3, -1, 2, 3, -1};
  for (int kind : {0, 1, 2}) {
    auto const shaped = [&](Var loss) { return kind == 0 ? loss : kind == 1 ? loss * 0.25 : loss * loss; };
    check(
        [&](Builder& b) {
          return shaped(cross_entropy(param(b, "x", {2, 3, 4}), b.input("t", DType::int32, {2, 3})));
        },
        {}, {{"t", targets}});
    check(
        [&](Builder& b) {
          return shaped(
              linear_cross_entropy(param(b, "x", {6, 3}), param(b, "w", {7, 3}), b.input("t", DType::int32, {6}), 4));
        },
        {}, {{"t", targets}});
    check([&](Builder& b) {  // the same loss twice, with two cotangents
      Var const x = param(b, "x", {6, 3}), w = param(b, "w", {7, 3}), t = b.input("t", DType::int32, {6});
      return shaped(linear_cross_entropy(x, w, t, 4)) + linear_cross_entropy(x * 2, w, t, 4, 3) * 0.5;
    }, {}, {{"t", {0, 3, 1, 2, 3, 2}}});
  }
}

TEST_CASE("stop_gradient, comparisons and integers pass nothing back") {
  Builder b;
  Var const x = param(b, "x", {3});
  b.output("loss", sum_all(stop_gradient(x) + convert(less(x, 0.0), DType::float32) +
                           convert(convert(x, DType::int32), DType::float32)));
  Interpreter run(grad(canonical(b.graph())));
  run.set("x", {1, -2, 3});
  run.run();
  CHECK(run.output("gradient.x") == naive::Values{0, 0, 0});
}

TEST_CASE("collectives: the gradient of the average of all ranks' losses agrees with central differences") {
  using comm::PortOp;
  auto const varying = [](Builder& b, Shape const& shape) {
    return b.input("a", DType::float32, shape, Replication::varying);
  };
  std::function<Var(Builder&)> const models[] = {
      [&](Builder& b) { return param(b, "x", {4}) * varying(b, {4}); },  // data parallel
      [&](Builder& b) {
        return all_reduce(exp(param(b, "x", {4}) * varying(b, {4})), PortOp::avg) * param(b, "x2", {4});
      },
      [&](Builder& b) {  // tensor parallel: the loss adds up over ranks, then is replicated
        Var const own = vary(param(b, "x", {4}), PortOp::sum) * varying(b, {4});
        Var const total = all_reduce(partial(own), PortOp::sum);
        return total * total;
      },
      [&](Builder& b) { return pow(all_gather(vary(param(b, "x", {2}), PortOp::sum) * varying(b, {2}), 3), 3); },
      [&](Builder& b) {
        return pow(all_gather(reduce_scatter(vary(param(b, "x", {6}), PortOp::sum) * varying(b, {6}), 3), 3), 2);
      },
      [&](Builder& b) {
        Var const own = vary(param(b, "x", {6}), PortOp::sum) * varying(b, {6});
        return pow(all_gather(reduce_scatter(own, 3, PortOp::avg), 3), 2);
      },
      [&](Builder& b) { return pow(broadcast(vary(param(b, "x", {2}), PortOp::sum) * varying(b, {2}), 1), 2); },
      [&](Builder& b) {
        Var const a = varying(b, {6});
        return pow(all_to_all(param(b, "x", {6}) * a, 3), 2) * a;
      },
      [&](Builder& b) {
        Var const a = varying(b, {2});
        return pow(send_receive(param(b, "x", {2}) * a, 3, 1), 2) * a;
      },
      [&](Builder& b) {
        Var const a = varying(b, {2});
        return pow(send_receive(param(b, "x", {2}) * a, 3, -2, false) + a, 2);
      },
      [&](Builder& b) { return pow(send_receive(param(b, "x", {2}), 3, 1), 2) * varying(b, {2}); },  // of what all have
  };
  for (auto const& model : models) {
    GradientCheck const result = check_gradients(weighted(model), {.samples = 12}, {}, 3);
    INFO(result.where);
    CHECK(result.worst < difference_bound);
  }
}

TEST_CASE("linear operations are adjoint to their rules: <A x, y> == <x, A^T y>") {
  std::function<Var(Var)> const maps[] = {
      [](Var x) { return broadcast_to(x, {2, 3, 4}); },
      [](Var x) { return transpose(x, {1, 0}); },
      [](Var x) { return slice(x, {0, 1}, {3, 4}, {2, 2}); },
      [](Var x) { return pad(x, {1, 2}, {0, 1}, {1, 0}); },
      [](Var x) { return concatenate({x, x * 2, x}, 0); },
      [](Var x) { return reduce_sum(x, {1}); },
      [](Var x) { return dot_general(x, iota(*x.builder, {4, 5}, 1, DType::float32), {1}, {0}); },
      [](Var x) { return linear(x, iota(*x.builder, {6, 4}, 0, DType::float32)); },
      [](Var x) { return gather(x, iota(*x.builder, {2, 3}, 1)); },
  };
  for (auto const& map : maps) {
    Builder b;
    Var const x = b.parameter("x", {3, 4}, zeros()), y = map(x), w = b.input("w", DType::float32, y.shape());
    b.output("forward", sum_all(y * w));
    b.output("backward", sum_all(gradients(sum_all(y * w), {x})[0] * x));
    Interpreter run(canonical(b.graph()));
    randomise(run, {});
    run.run();
    CHECK(std::abs(run.output("forward")[0] - run.output("backward")[0]) <=
          1e-13 * (1 + std::abs(run.output("forward")[0])));
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Graphs that hold every operation between them, with values for their leaves: what is exported, run elsewhere and
/// compared with the interpreter.

#include "graph/each_function.hpp"
#include "graph/model.hpp"
#include "graph/random_graphs.hpp"

#include <tutti/graph/amp.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/tensor/random.hpp>

#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

/// Adds the operations of a graph and of its bodies.
inline void note_operations(Graph const& graph, std::set<Op>& seen) {
  for (Node const& node : graph.nodes) seen.insert(node.op);
  for (Graph const& body : graph.bodies) note_operations(body, seen);
}

struct StablehloCase {
  std::string name;
  Graph graph;
  double tolerance = 1e-5;  ///< of a floating result's largest magnitude; others are equal
  int ranks = 1;
  std::map<std::string, std::vector<double>> values{};  ///< of leaves; others are random
  double limit = 5;                                     ///< random integers are below
  bool narrow_products = true;
  List<List<std::int64_t>> groups{};  ///< of replicas, where there are several
};

inline constexpr DType integer_types[] = {DType::int8,  DType::uint8,  DType::int16, DType::uint16,
                                          DType::int32, DType::uint32, DType::int64, DType::uint64};
inline constexpr DType floating_types[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

class StablehloCases {
 public:
  std::vector<StablehloCase> all() {
    functions();
    edges();
    conversions();
    shapes();
    reductions();
    products();
    rows();
    random_bits();
    composites();
    loops();
    collectives();
    random_graphs();
    return std::move(cases_);
  }

 private:
  template <class F>
  StablehloCase& add(std::string name, F&& f, double tolerance = 1e-5) {
    Builder builder;
    f(builder);
    cases_.push_back({std::move(name), builder.graph(), tolerance});
    return cases_.back();
  }
  /// Products of operands that are bfloat16, and of ones that are rounded to it.
  void add_rounded(std::string const& name, Graph const& graph, double tolerance) {
    cases_.push_back({name, amp(graph, DType::bfloat16), tolerance});
    cases_.push_back({name + "_wide", amp(graph, DType::bfloat16), tolerance});
    cases_.back().narrow_products = false;
  }
  static std::string named(char const* what, DType dtype) { return what + ("_" + std::string(tutti::name(dtype))); }
  static bool is_half(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }

  /// Every function of the list that takes operands of this type.
  static void apply_all(Builder& b, Var x, Var y, std::string const& suffix, bool total) {
    for_each_function([&](Op op, std::string const& name) {
      if (total && !is_total(op)) return;
      if (info(op).differentiability == Differentiability::first_order && !is_floating(x.dtype())) return;
      try {
        b.output(name + suffix, applied_to_any(op, x, y));
      } catch (Error const& error) {
        if (error.kind() != ErrorKind::internal) throw;  // takes floating numbers alone
      }
    });
  }
  void functions() {
    for (DType dtype : floating_types)
      add(
          named("functions", dtype),
          [&](Builder& b) {
            Var const p = b.input("positive.p", dtype, {37}), q = b.input("positive.q", dtype, {37}),
                      x = b.input("x", dtype, {37}), y = b.input("y", dtype, {37});
            apply_all(b, p, q, " of positive ones", false);
            apply_all(b, x, y, " of any", true);
            for (double exponent : {2.0, 3.0, -1.0, 0.5, 1.7})
              b.output("power " + std::to_string(exponent), pow(p, exponent));
            b.output("minimum", minimum(x, y));
          },
          dtype == DType::bfloat16  ? 0x1p-5
          : dtype == DType::float16 ? 0x1p-8
                                    : 2e-6);
    for (DType dtype : integer_types) {
      StablehloCase& made = add(named("functions", dtype), [&](Builder& b) {
        Var const x = b.input("x", dtype, {61}), y = b.input("y", dtype, {61});
        apply_all(b, x, y, "", false);
        b.output("minimum", minimum(x, y));
        b.output("sum", reduce_sum(x, {0}));
        b.output("maximum of all", reduce_max(x, {0}));
      });
      made.limit = size_of(dtype) == 8 ? 1 << 20 : std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)));
    }
    add(named("functions", DType::boolean), [&](Builder& b) {
      Var const x = b.input("x", DType::boolean, {16}), y = b.input("y", DType::boolean, {16});
      for (Op op : {Op::maximum, Op::less, Op::less_equal, Op::equal, Op::not_equal, Op::logical_and, Op::logical_or,
                    Op::logical_not, Op::select, Op::convert})
        b.output(std::string(name(op)), *applied(op, {x, y, x}));
      b.output("any", reduce_max(x, {0}));
    });
  }

  static std::vector<double> pairs(std::vector<double> const& from, bool first) {
    std::vector<double> all;
    for (double x : from)
      for (double y : from) all.push_back(first ? x : y);
    return all;
  }
  /// What StableHLO leaves open, and NaN.
  void edges() {
    double const infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
    for (DType dtype : floating_types) {
      std::vector<double> const special{nan, infinity, -infinity, 0, -0.0, 0.5, -0.5, 1, -1.5, 2.5, 3, -3, 1000};
      auto const size = static_cast<std::int64_t>(special.size() * special.size());
      StablehloCase& made = add(
          named("edges", dtype),
          [&](Builder& b) {
            Var const x = b.input("x", dtype, {size}), y = b.input("y", dtype, {size});
            for (Op op : {Op::maximum, Op::less, Op::less_equal, Op::equal, Op::not_equal, Op::abs, Op::sign, Op::floor,
                          Op::ceil, Op::relu, Op::negate})
              b.output(std::string(name(op)), *applied(op, {x, y, x}));
            b.output("truth", convert(x, DType::boolean));
            b.output("greatest", reduce_max(reshape(x, {13, 13}), {0}));
            b.output("sum", x + y);
            b.output("quotient", x / y);
          },
          is_half(dtype) ? 0x1p-8 : 1e-6);
      made.values = {{"x", pairs(special, true)}, {"y", pairs(special, false)}};
    }
    for (DType dtype : integer_types) {
      bool const wide = size_of(dtype) == 8, is_signed = stablehlo_signed(dtype);
      double const half = wide ? 0x1p40 : std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)) - 1);
      std::vector<double> const special = is_signed ? std::vector<double>{-half, -7, -1, 0, 1, 2, half - 1}
                                                    : std::vector<double>{0, 1, 2, 7, half, 2 * half - 1};
      auto const size = static_cast<std::int64_t>(special.size() * special.size());
      StablehloCase& made = add(named("edges", dtype), [&](Builder& b) {
        Var const x = b.input("x", dtype, {size}), y = b.input("y", dtype, {size});
        b.output("quotient", x / y);
        if (!wide) b.output("product", x * y);
        b.output("sum", x + y);
        b.output("difference", x - y);
        b.output("negative", -x);
        b.output("absolute", abs(x));
        b.output("sign", sign(x));
        b.output("relu", relu(x));
        b.output("less", less(x, y));
        b.output("maximum", maximum(x, y));
      });
      made.values = {{"x", pairs(special, true)}, {"y", pairs(special, false)}};
      if (wide)  // sums that a double holds, unsigned differences do not wrap
        made.graph.outputs.erase_if([&](Output const& output) {
          auto const text = made.graph.text_of(output.name);
          return !is_signed && (text == "difference" || text == "negative");
        });
    }
  }
  static bool stablehlo_signed(DType dtype) {
    return dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 || dtype == DType::int64;
  }

  /// From every type to every type, numbers that the other one does not hold among them.
  void conversions() {
    std::vector<DType> types{DType::boolean};
    types.insert(types.end(), std::begin(integer_types), std::end(integer_types));
    types.insert(types.end(), std::begin(floating_types), std::end(floating_types));
    for (DType from : types) {
      std::vector<double> numbers;
      for (double x : {0.0,
                       1.0,
                       -1.0,
                       1.5,
                       -1.5,
                       -0.5,
                       100.0,
                       127.0,
                       128.0,
                       -128.0,
                       -129.0,
                       255.0,
                       256.0,
                       300.0,
                       40000.0,
                       -40000.0,
                       65535.0,
                       65536.0,
                       0x1p31,
                       -0x1p31,
                       0x1p32,
                       3e9,
                       -3e9,
                       0x1p52,
                       1e12,
                       1e20,
                       -1e20,
                       5e30,
                       std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity(),
                       std::nan("")})
        if (from == DType::float16 ? !(std::abs(x) > 65504 && std::isfinite(x)) : holds(from, x)) numbers.push_back(x);
      auto const size = static_cast<std::int64_t>(numbers.size());
      StablehloCase& made = add(
          named("conversions", from),
          [&](Builder& b) {
            Var const x = b.input("x", from, {size});
            for (DType to : types) {
              bool const wide = to == DType::int64 || to == DType::uint64;
              if (wide && is_floating(from)) continue;                      // their ends are no doubles
              if (to == DType::uint64 && stablehlo_signed(from)) continue;  // nor is 2^64 - 1
              if (to == DType::float16 && from != DType::float16 && size_of(from) > 1) continue;  // has no such numbers
              b.output(std::string(tutti::name(to)), x.dtype() == to ? barrier(x) : convert(x, to));
            }
          },
          0x1p-8);
      made.values = {{"x", numbers}};
    }
    StablehloCase& wide = add("conversions_to_64_bits", [](Builder& b) {
      for (DType from : floating_types) {
        Var const x = b.input(std::string(tutti::name(from)), from, {9});
        b.output(std::string(tutti::name(from)) + " signed", convert(x, DType::int64));
        b.output(std::string(tutti::name(from)) + " unsigned", convert(x, DType::uint64));
      }
    });
    for (DType from : floating_types)
      wide.values[std::string(tutti::name(from))] = {0, -0.5, 1.75, -1.75, 1000, -0.75, 256.5, std::nan(""), 65504};
  }

  void shapes() {
    for (DType dtype : {DType::float32, DType::int32, DType::boolean, DType::bfloat16})
      add(named("shapes", dtype), [&](Builder& b) {
        Var const x = b.input("x", dtype, {2, 3, 4}), row = b.input("row", dtype, {3, 1}),
                  one = b.input("one", dtype, {});
        b.output("broadcast", broadcast_in_dim(row, {2, 3, 5}, {1, 2}));
        b.output("scalar", broadcast_to(one, {3, 2}));
        b.output("reshape", reshape(x, {4, 6}));
        b.output("flat", reshape(x, {24}));
        b.output("transpose", transpose(x, {2, 0, 1}));
        b.output("slice", slice(x, {0, 1, 0}, {2, 3, 4}, {1, 1, 2}));
        b.output("nothing", slice(x, {0, 1, 2}, {2, 1, 4}));
        b.output("pad", pad(x, {1, 0, 0}, {0, 2, 1}, {0, 1, 2}, dtype == DType::boolean ? 1 : 7));
        b.output("concatenate", concatenate({x, slice(x, {0, 0, 0}, {2, 3, 1}), x}, 2));
        b.output("constant", constant(b, 1, {2, 2}, dtype));
        if (dtype != DType::boolean) b.output("iota", iota(b, {3, 4}, 1, dtype));
        b.output("barrier", barrier(x));
        b.output("stop", stop_gradient(x));
        for (DType starts : {DType::int32, DType::int64, DType::int8, DType::uint8, DType::uint64, DType::uint32}) {
          std::string const of(tutti::name(starts));
          Var const i = b.input("i" + of, starts, {}), j = constant(b, starts == DType::int8 ? -5 : 2, {}, starts);
          b.output("dynamic_slice" + of, dynamic_slice(x, {i, j, constant(b, 1, {}, DType::int32)}, {1, 2, 4}));
          b.output("dynamic_update" + of, dynamic_update_slice(x, slice(x, {0, 0, 0}, {1, 2, 2}), {i, j, i}));
        }
      });
    add("scalars", [](Builder& b) {
      Var const x = b.scalar("x"), y = b.input("y", DType::float32, {});
      b.output("slice", dynamic_slice(x, {}, {}));
      b.output("update", dynamic_update_slice(x, y, {}));
      b.output("reshape", reshape(x * y, {1, 1}));
      b.output("transpose", transpose(x + y, {}));
      b.output("rank", rank_number(b));
    });
    add(
        "constants",
        [&](Builder& b) {
          for (DType dtype : integer_types) {
            double const half = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)) - 1);
            b.output("lowest " + std::string(tutti::name(dtype)),
                     constant(b, stablehlo_signed(dtype) ? -half : 0, {2}, dtype));
            if (size_of(dtype) < 8)
              b.output("largest " + std::string(tutti::name(dtype)),
                       constant(b, (stablehlo_signed(dtype) ? half : 2 * half) - 1, {2}, dtype));
          }
          for (DType dtype : floating_types)
            for (double x : {0.1, -1.5, 3.0, 1e-3, std::numeric_limits<double>::infinity(), std::nan("")})
              b.output(std::to_string(x) + std::string(tutti::name(dtype)), constant(b, x, {2}, dtype));
        },
        0x1p-8);
    add("empty", [](Builder& b) {
      Var const x = b.input("x", DType::float32, {0, 3});
      b.output("exp", exp(x));
      b.output("sum", reduce_sum(x, {0}));
      b.output("greatest", reduce_max(x, {0}));
      b.output("none", reduce_sum(x, {1}));
      b.output("product", dot_general(x, x, {0}, {0}));
      b.output("joined", concatenate({x, b.input("y", DType::float32, {2, 3})}, 0));
    });
  }

  void reductions() {
    for (DType dtype : floating_types)
      add(
          named("reductions", dtype),
          [&](Builder& b) {
            Var const x = b.input("x", dtype, {3, 50, 4});
            b.output("sum of all", sum_all(x));
            b.output("sum 1", reduce_sum(x, {1}));
            b.output("sum 0 2", reduce_sum(x, {0, 2}));
            b.output("max 0", reduce_max(x, {0}));
            b.output("max of all", reduce_max(x, {0, 1, 2}));
            b.output("mean", mean_all(x));
          },
          is_half(dtype) ? 0x1p-7 : 2e-6);
  }

  void products() {
    for (DType dtype : floating_types) {
      Graph const graph = add(
                              named("products", dtype),
                              [&](Builder& b) {
                                Var const a = b.input("a", dtype, {2, 3, 4}), c = b.input("c", dtype, {4, 2, 5}),
                                          d = b.input("d", dtype, {4});
                                b.output("batched", dot_general(a, c, {2}, {0}, {0}, {1}));
                                b.output("free", dot_general(a, c, {2}, {0}));
                                b.output("two", dot_general(a, c, {0, 2}, {1, 0}));
                                b.output("vector", dot_general(a, d, {2}, {0}));
                                b.output("inner", dot_general(d, d, {0}, {0}));
                                b.output("outer", dot_general(d, d, {}, {}));
                                b.output("inner batch", dot_general(a, a, {2}, {2}, {0, 1}, {0, 1}));
                                b.output("linear", linear(a, reshape(transpose(c, {1, 2, 0}), {10, 4})));
                                b.output("bias", linear(a, reshape(transpose(c, {1, 2, 0}), {10, 4}),
                                                        reshape(slice(c, {0, 0, 0}, {1, 2, 5}), {10})));
                              },
                              is_half(dtype) ? 0x1p-6 : 2e-6)
                              .graph;
      if (dtype == DType::float32) add_rounded("products_rounded", graph, 2e-6);
    }
  }

  void rows() {
    for (DType dtype : {DType::float32, DType::float64, DType::int32, DType::bfloat16})
      add(
          named("rows", dtype),
          [&](Builder& b) {
            Var const table = b.input("table", dtype, {5, 3}), column = b.input("column", dtype, {5}),
                      deep = b.input("deep", dtype, {5, 2, 3});
            for (DType type : integer_types) {
              std::string const of(tutti::name(type));
              Var const i = b.input("i" + of, type, {2, 4}), one = b.input("one" + of, type, {});
              b.output("gather" + of, gather(table, i));
              b.output("row" + of, gather(deep, one));
              b.output("column" + of, gather(column, i));
              b.output("scatter" + of, scatter_add(table, i, gather(table, i)));
              b.output("scatter column" + of, scatter_add(column, one, gather(column, one)));
            }
            Var const nothing = b.input("nothing", DType::int32, {0});
            b.output("no rows", gather(table, nothing));
            b.output("no change", scatter_add(table, nothing, gather(table, nothing)));
            Var const k = b.input("k", DType::int32, {7}), rows = b.input("rows", dtype, {7, 2, 3});
            b.output("deep", scatter_add(deep, k, rows));
          },
          dtype == DType::bfloat16 ? 0x1p-4 : 2e-6);
  }

  void random_bits() {
    StablehloCase& made = add("random_bits", [](Builder& b) {
      Var const seed = b.input("seed", DType::int64, {}), step = b.input("step", DType::int64, {}),
                stream = b.input("stream", DType::int64, {});
      for (Shape const& shape : {Shape{}, Shape{4}, Shape{7}, Shape{0}, Shape{3, 43}})
        b.output("bits " + to_string(shape), rng_bits(shape, seed, step, stream));
      b.output("narrow", rng_bits({9}, convert(seed, DType::int32), convert(step, DType::uint8), stream));
      b.output("constant", rng_bits({5}, constant(b, 1234567, {}, DType::int64), step, stream));
      Var const first = b.input("first", DType::int64, {});
      for (Shape const& shape : {Shape{}, Shape{7}, Shape{0}, Shape{3, 43}})
        b.output("from " + to_string(shape), rng_bits(shape, seed, step, stream, first));
      Var const x = constant(b, 3, {4, 9}, DType::float32);
      b.output("dropout", dropout(x, 0.25, {seed, step, stream, first}));
    });
    made.values = {
        {"seed", {-1234567890123.0}}, {"step", {5000000000.0}}, {"stream", {-3}}, {"first", {17179869187.0}}};
  }

  /// Outputs, and gradients of one number made of them, by all floating inputs.
  static void differentiated(Builder& b, std::vector<std::pair<std::string, Var>> const& results,
                             Recompute recompute = Recompute::none) {
    Var loss{};
    int number = 0;
    for (auto const& [name, value] : results) {
      b.output(name, value);
      Var const weight =
          sin(convert(reshape(iota(b, {value.shape().size()}, 0), value.shape()), value.dtype()) + double(++number));
      Var const part = convert(sum_all(weight * value), DType::float32);
      loss = loss.builder == nullptr ? part : loss + part;
    }
    List<Var> wrt;
    for (Id id : b.graph().inputs)
      if (is_floating(b.graph().dtype(id))) wrt.push_back({&b, id});
    for (Parameter const& parameter : b.graph().parameters) wrt.push_back({&b, parameter.node});
    List<Var> const found = gradients(loss, wrt, 1, recompute);
    for (std::size_t i = 0; i < found.size(); ++i)
      b.output("gradient of " + std::string(b.graph().name(wrt[i].id)), found[i]);
  }

  void composites() {
    auto const f32 = DType::float32;
    add("normalisations", [&](Builder& b) {
      Var const x = b.input("x", f32, {2, 3, 8}), g = b.input("g", f32, {8}), c = b.input("c", f32, {8});
      differentiated(b, {{"layer_norm", layer_norm(x, g, c)}, {"rms_norm", rms_norm(x, c, 1e-6)}});
    });
    add("activations", [&](Builder& b) {
      Var const x = b.input("x", f32, {5, 8}), y = b.input("y", f32, {5, 8}), p = b.input("positive", f32, {5, 8});
      differentiated(b, {{"gelu", gelu(x * 3.0)},
                         {"silu", silu(x * 3.0)},
                         {"exact_gelu", exact_gelu(x * 3.0)},
                         {"swiglu", swiglu(x, y)},
                         {"relu", relu(x)},
                         {"maximum", maximum(x, y)},
                         {"abs", abs(x)},
                         {"erf", erf(x)},
                         {"power", pow(p, 1.7)},
                         {"raise", pow(p, y)},
                         {"tanh", tanh(x)},
                         {"logistic", logistic(x)},
                         {"sine", sin(x) * cos(y)},
                         {"root", sqrt(p) * rsqrt(p + 1.0)},
                         {"quotient", log(p) / exp(y)}});
    });
    add("cumulative_sums", [&](Builder& b) {
      Var const x = b.input("x", f32, {2, 5, 3});
      differentiated(b, {{"forwards", cumsum(x, 1)}, {"backwards", cumsum(x, 2, true)}});
      b.output("integers", cumsum(b.input("i", DType::int32, {7}), 0));
    });
    for (auto pairing : {kernel::RotaryPairing::half, kernel::RotaryPairing::interleaved})
      add(pairing == kernel::RotaryPairing::half ? "rotary_half" : "rotary_interleaved", [&](Builder& b) {
        Var const x = b.input("x", f32, {2, 5, 12});
        differentiated(b, {{"rotary", rotary(x, rotations(b, 5, 4), pairing)}});
      });
    for (int kv_heads : {4, 2, 1}) {
      Graph const graph = add(
                              "attention_" + std::to_string(kv_heads),
                              [&](Builder& b) {
                                Var const qkv = b.input("qkv", f32, {2, 5, (4 + 2 * kv_heads) * 3});
                                differentiated(b, {{"attention", attention(qkv, 4, kv_heads)}});
                              },
                              1e-5)
                              .graph;
      add_rounded("attention_rounded_" + std::to_string(kv_heads), graph, 4e-3);
    }
    add("embeddings", [&](Builder& b) {
      Var const tokens = b.input("tokens", DType::int32, {2, 6}), table = b.input("table", f32, {5, 4}),
                positions = b.input("wpe", f32, {8, 4});
      differentiated(b, {{"one", embed(table, tokens)}, {"two", embed(table, positions, tokens)}});
    });
    Graph const losses =
        add("losses", [&](Builder& b) {
          Var const x = b.input("x", f32, {3, 4, 6}), weight = b.input("weight", f32, {9, 6}),
                    logits = b.input("z", f32, {3, 4, 5});
          Var const targets = select(equal(iota(b, {3, 4}, 1), 2.0), -1.0, b.input("targets", DType::int32, {3, 4}));
          Losses const plain = cross_entropy_losses(logits, targets),
                       whole = linear_cross_entropy_losses(x, weight, targets, 7);
          b.output("tokens", plain.tokens);
          b.output("linear tokens", whole.tokens);
          differentiated(
              b, {{"plain", plain.mean}, {"whole", whole.mean}, {"weight twice", dot_general(x, weight, {2}, {1})}});
        }).graph;
    add_rounded("losses_rounded", losses, 4e-3);
    add("optimiser", [&](Builder& b) {
      Var const p = b.parameter("p", {3, 4}, zeros()), m = b.state("m", {3, 4}), v = b.state("positive.v", {3, 4});
      Var const frozen = b.parameter("frozen", {2}, zeros());
      Var const g = b.input("g", f32, {3, 4});
      Var const norm = square_sum(frozen, square_sum(g));
      b.output("squares", norm);
      auto const next = adamw(p, g, m, v, b.scalar("positive.rate"), b.scalar("positive.correction1"),
                              b.scalar("positive.correction2"), convert(rsqrt(norm), f32), {0.9, 0.95, 1e-8, 0.1});
      b.update(m, next.m);
      b.update(p, next.parameter);
      b.update(v, next.v);
      b.output("before", p + m);
    });
  }

  void loops() {
    auto const f32 = DType::float32;
    for (std::int64_t length : {0, 1, 4})
      for (Recompute recompute : {Recompute::none, Recompute::pointwise, Recompute::block}) {
        if (length != 4 && recompute != Recompute::none) continue;
        add("loop_" + std::to_string(length) + "_" + std::string(graph::name(recompute)), [&](Builder& b) {
          Var const x = b.input("x", f32, {3, 5}), stacked = b.input("stack", f32, {length, 3, 5}),
                    bias = b.input("bias", f32, {5});
          Scan body(b, x, length, Where::current());
          Var const w = body.slice(stacked, "w"), h = body.carried();
          Var const y = body.finish(tanh(h * w + bias) + exp(h * 0.1) * x);
          differentiated(b, {{"y", y}}, recompute);
        });
      }
    add("loop_in_loop", [&](Builder& b) {
      Var const x = b.input("x", f32, {4}), outer_stack = b.input("outer", f32, {3, 2, 4});
      Scan body(b, x, 3, Where::current());
      Var const rows = body.slice(outer_stack, "rows");
      Scan inner(*body.carried().builder, body.carried(), 2, Where::current());
      Var const row = inner.slice(rows, "row");
      Var const y = body.finish(inner.finish(sin(inner.carried() * row) + x * 0.5));
      differentiated(b, {{"y", y}});
    });
    add("loop_of_integers", [&](Builder& b) {
      Var const x = b.input("x", DType::int32, {4}), stack = b.input("stack", DType::int32, {5, 4});
      Scan body(b, x, 5, Where::current());
      Var const row = body.slice(stack, "row");
      b.output("y", body.finish(body.carried() * 3.0 + row));
    });
    add("loop_without_stack", [&](Builder& b) {
      Var const x = b.input("x", f32, {});
      Scan body(b, x, 3, Where::current());
      b.output("y", body.finish(body.carried() * 0.5 + 1.0));
    });
    for (Recompute recompute : {Recompute::none, Recompute::block}) {
      StablehloCase made{std::string("gpt_") + std::string(graph::name(recompute)), gpt_loss(3), 2e-5};
      made.graph = with_gradients(made.graph, recompute);
      cases_.push_back(std::move(made));
    }
  }
  static Graph with_gradients(Graph const& graph, Recompute recompute) {
    Builder b;
    b.load(graph);
    Var const loss{&b, graph.find_output("loss")};
    List<Var> wrt;
    for (Parameter const& parameter : graph.parameters) wrt.push_back({&b, parameter.node});
    List<Var> const found = gradients(loss, wrt, 1, recompute);
    for (std::size_t i = 0; i < found.size(); ++i)
      b.output("gradient of " + std::string(b.graph().name(wrt[i].id)), found[i]);
    return canonical(b.graph());
  }

  void collectives() {
    for (int ranks : {1, 2, 4}) add_collectives("collectives_" + std::to_string(ranks), ranks);
    add_collectives("collectives_in_groups", 2).groups = {{3, 0}, {1, 2}};
  }
  StablehloCase& add_collectives(std::string const& name, int ranks) {
    StablehloCase& made = add(name, [&](Builder& b) {
      Var const x = b.input("x", DType::float32, {2, 3}, Replication::varying), own = rank_number(b);
      Var const wide = multiples(x, ranks);
      b.output("rank", own);
      b.output("sum", all_reduce(x));
      b.output("average", all_reduce(x, comm::PortOp::avg));
      b.output("partial", all_reduce(partial(x)));
      b.output("from first", broadcast(x, 0));
      b.output("from last", broadcast(x, ranks - 1));
      b.output("gathered", all_gather(x, ranks));
      b.output("scattered", reduce_scatter(wide, ranks));
      b.output("scattered average", reduce_scatter(wide, ranks, comm::PortOp::avg));
      b.output("turned", all_to_all(wide, ranks));
      b.output("next", send_receive(x, ranks, 1));
      b.output("behind", send_receive(x, ranks, -1, false));
      b.output("far", send_receive(x, ranks, 7, false));
      b.output("integers", all_reduce(own + convert(floor(x * 10.0), DType::int32)));
      Var const w = b.parameter("w", {2, 3}, zeros());
      List<Var> const found = gradients(mean_all(tanh(x * w)), {w});
      b.output("gradient", found[0]);
    });
    made.ranks = ranks;
    return made;
  }
  /// What is sent in loops, between other operations, and through gradients.
  void random_graphs() {
    for (int ranks : {1, 2, 3})
      for (std::uint64_t seed = 1; seed <= 6; ++seed)
        cases_.push_back({"random_" + std::to_string(ranks) + "_" + std::to_string(seed),
                          RandomGraph(seed * 100 + static_cast<std::uint64_t>(ranks), ranks).draw(), 1e-4, ranks});
  }
  /// x and, below it, its multiples: each rank gets rows that differ.
  static Var multiples(Var x, int count) {
    Var all = x;
    for (int i = 1; i < count; ++i) all = concatenate({all, x * (1.0 + i)}, 0);
    return all;
  }

  std::vector<StablehloCase> cases_;
};

}  // namespace tutti::test

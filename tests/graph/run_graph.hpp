// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs one graph through the interpreter in double and through executors of every kind, on the same random values.

#include "support/catch.hpp"

#include <tutti/graph/check.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/ports.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/tensor/random.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

using namespace tutti::graph;
using Values = std::vector<double>;

/// Values of a leaf: floats in [-1, 1), integers in [0, `limit`), a pure function of name and salt.
inline Values random_values(Graph const& graph, Id id, std::int64_t limit, std::uint64_t salt = 0) {
  std::uint64_t stream = salt;
  for (char c : graph.name(id)) stream = stream * 131 + static_cast<unsigned char>(c);
  CounterRandom const random{7, stream};
  Values values(static_cast<std::size_t>(graph.shape(id).size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    DType const dtype = graph.dtype(id);
    if (dtype == DType::boolean) values[i] = random.bits(i) % 2;
    else if (is_integer(dtype)) values[i] = static_cast<double>(random.bits(i) % static_cast<std::uint64_t>(limit));
    else values[i] = double{random.uniform(i)} * 2 - 1;
  }
  return values;
}

inline std::vector<std::byte> as_bytes(DType dtype, Values const& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype) + 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    generic::store_number(dtype, bytes.data(), static_cast<std::int64_t>(i), values[i]);
  return bytes;
}

struct RunOptions {
  CompileOptions compile{};
  int threads = 1;
  exec::Isa isa = exec::best_isa();
  bool poison = true;
  int runs = 1;
  std::int64_t limit = 5;
  comm::Port* port = nullptr;
  std::uint64_t salt = 0;
  std::function<void(Ports&)> set{};  ///< in the place of random inputs
};

/// Everything that a program leaves behind: outputs and fields by name, as bytes.
using Results = std::map<std::string, std::vector<std::byte>>;

inline std::vector<std::byte> bytes_at(void const* data, std::int64_t bytes) {
  std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
  if (bytes > 0) std::memcpy(copy.data(), data, copy.size());
  return copy;
}
/// What a state holds, by field.
inline Results fields_of(State const& state) {
  Results results;
  for (Field const& field : state.fields()) results[field.name] = bytes_at(field.data(), field.bytes());
  return results;
}

/// Compiles, sets random leaves and fields, runs. Defined in executor.cpp, the one test that compiles the kernels; for
/// devices in cuda/run_graph.cpp.
Results run_executor(Graph const& graph, RunOptions const& options = {});

/// Every output and field against the interpreter: within `tolerance` of the largest magnitude of that tensor.
inline void check_against_interpreter(Graph const& graph, Results const& results, RunOptions const& options,
                                      double tolerance, int ranks = 1, int rank = 0) {
  Interpreter oracle(graph, ranks);
  for (auto const* list : {&graph.inputs, &graph.scalars, &graph.states})
    for (Id id : *list)
      for (int r = 0; r < ranks; ++r)
        oracle.set(graph.name(id),
                   random_values(graph, id, options.limit, list == &graph.inputs ? static_cast<std::uint64_t>(r) : 0),
                   r);
  for (Parameter const& parameter : graph.parameters)
    oracle.set(graph.name(parameter.node), random_values(graph, parameter.node, options.limit));
  for (int i = 0; i < options.runs; ++i) oracle.run();
  auto const compare = [&](std::string const& name, DType dtype, Values const& expected,
                           std::vector<std::byte> const& bytes) {
    double largest = 0, worst = 0;
    bool bad = bytes.size() != expected.size() * size_of(dtype);
    std::size_t where = 0;
    for (std::size_t i = 0; i < expected.size() && !bad; ++i) {
      double const value = generic::number_at(dtype, bytes.data(), static_cast<std::int64_t>(i));
      if (value == expected[i] || (std::isnan(value) && std::isnan(expected[i]))) continue;
      if (std::isfinite(expected[i])) largest = std::max(largest, std::abs(expected[i]));
      double const error = std::abs(value - expected[i]);
      if (exceeds(error, worst)) {
        worst = error;
        where = i;
      }
    }
    INFO(name << " at " << where << ": expected " << (expected.empty() ? 0 : expected[where]) << ", got "
              << (expected.empty() || bad ? 0
                                          : generic::number_at(dtype, bytes.data(), static_cast<std::int64_t>(where))));
    CHECK_FALSE(bad);
    CHECK(worst <= tolerance * std::max(largest, 1e-3));
  };
  for (Output const& output : graph.outputs) {
    std::string const name(graph.text_of(output.name));
    compare(name, graph.dtype(output.node), oracle.output(name, rank), results.at(name));
  }
  auto const compare_field = [&](Id id) {
    std::string const name(graph.name(id));
    compare("state " + name, graph.dtype(id), oracle.get(name, rank), results.at("state " + name));
  };
  for (Parameter const& parameter : graph.parameters) compare_field(parameter.node);
  for (Id id : graph.states) compare_field(id);
}

/// The graph on the interpreter, and on executors of every kind that the device has: near the interpreter, and bitwise
/// independent of everything that is said not to matter.
void check_graph(Graph const& graph, double tolerance = 2e-5, std::int64_t limit = 5, int runs = 1);

/// Random values for all inputs.
inline void set_leaves(Graph const& graph, Ports& ports, RunOptions const& options) {
  if (options.set) return options.set(ports);
  for (auto const* list : {&graph.inputs, &graph.scalars})
    for (Id id : *list) {
      std::vector<std::byte> bytes = as_bytes(graph.dtype(id), random_values(graph, id, options.limit, options.salt));
      with_dtype(graph.dtype(id), [&]<class T>(T) {
        ports.set(graph.name(id), TensorView<T const>(reinterpret_cast<T const*>(bytes.data()), graph.shape(id)));
      });
    }
}
inline void set_state(Graph const& graph, State& state, RunOptions const& options) {
  auto const set = [&](Id id) {
    auto const bytes = as_bytes(graph.dtype(id), random_values(graph, id, options.limit));
    Field& field = state.at(graph.name(id));
    std::memcpy(field.data(), bytes.data(), static_cast<std::size_t>(field.bytes()));
  };
  for (Parameter const& parameter : graph.parameters) set(parameter.node);
  for (Id id : graph.states) set(id);
}
inline Results results_of(Program const& program, Ports const& ports, State const& state) {
  Results results;
  for (Entry const& entry : program.list.outputs)
    with_dtype(entry.dtype, [&]<class T>(T) {
      results[entry.name] = bytes_at(ports.output<T>(entry.name).data(), program.list[entry.buffer].bytes);
    });
  for (auto& [name, bytes] : fields_of(state)) results["state " + name] = std::move(bytes);
  return results;
}

}  // namespace tutti::test

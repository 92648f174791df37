// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Writes graphs as StableHLO, their arguments and what is expected of them into a folder, where
/// scripts/check_stablehlo.py has other compilers run them: small graphs with every operation between them, and
/// training steps with the losses of the library's executor.
///   NAME.mlir, NAME.json    the module, and to_json of it
///   NAME.arguments          of every replica, arguments one after another, as their types are in memory
///   NAME.results            of every replica, results one after another, in float64
///   NAME.steps              of training: inputs and scalars of every step and replica
///   cases.json              which there are
///   example_gpt2.mlir       a training step that is only compiled
///   targets.json            what IREE compiles for, and the flags that say so
// Covers: <tutti/graph/stablehlo/export.hpp> <tutti/graph/stablehlo/primitives.hpp>

#include "graph/stablehlo_cases.hpp"

#include <tutti/graph/compile.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/iree/target_device.hpp>
#include <tutti/graph/stablehlo/export.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/optim/minimise.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

using Bytes = std::vector<char>;

struct Folder {
  std::string path;
  std::string index{};

  void write(std::string const& name, char const* data, std::size_t size) const {
    std::ofstream file(path + "/" + name, std::ios::binary);
    file.write(data, static_cast<std::streamsize>(size));
    if (!file) throw Error(ErrorKind::io, "stablehlo_files", path + "/" + name + " cannot be written");
  }
  void write(std::string const& name, std::string const& text) const { write(name, text.data(), text.size()); }
  void write(std::string const& name, Bytes const& bytes) const { write(name, bytes.data(), bytes.size()); }
  void write(std::string const& name, std::vector<double> const& values) const {
    write(name, reinterpret_cast<char const*>(values.data()), values.size() * sizeof(double));
  }
  void add(std::string const& entry) { index += (index.empty() ? "\n  " : ",\n  ") + entry; }
};

/// As the type stores them; `values` become what is stored.
void append(Bytes& bytes, DType dtype, std::vector<double>& values) {
  std::size_t const before = bytes.size();
  bytes.resize(before + values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    generic::store_number(dtype, bytes.data() + before, static_cast<std::int64_t>(i), values[i]);
    values[i] = generic::number_at(dtype, bytes.data() + before, static_cast<std::int64_t>(i));
  }
}

std::vector<double> random_values(test::StablehloCase const& made, Id id, int rank) {
  std::string const name(made.graph.name(id));
  if (auto const found = made.values.find(name); found != made.values.end()) return found->second;
  std::uint64_t stream = made.graph.replication(id) == Replication::varying ? static_cast<std::uint64_t>(rank) : 0;
  for (char c : name) stream = stream * 131 + static_cast<unsigned char>(c);
  CounterRandom const random{11, stream};
  DType const dtype = made.graph.dtype(id);
  double const most = std::min(made.limit, dtype == DType::boolean ? 2.0 : 0x1p32);
  double const low = is_floating(dtype) || !stablehlo::has_sign(dtype) || most < 20 ? 0 : -most / 2;
  std::vector<double> values(static_cast<std::size_t>(made.graph.shape(id).size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double const unit = double{random.uniform(i)};
    if (is_floating(dtype)) values[i] = name.starts_with("positive") ? 0.25 + unit : 4 * unit - 2;
    else values[i] = low + std::floor(unit * most);
  }
  return values;
}

void write_case(Folder& folder, test::StablehloCase const& made) {
  StablehloModule const module = to_stablehlo(made.graph, {.module = "case_" + made.name,
                                                           .narrow_products = made.narrow_products,
                                                           .ranks = made.ranks,
                                                           .groups = made.groups});
  auto const groups = stablehlo::groups_of({.ranks = made.ranks, .groups = made.groups});
  auto const replicas = groups.size() * static_cast<std::size_t>(made.ranks);
  std::vector<Bytes> arguments(replicas);  // by replica
  std::vector<std::vector<double>> results(replicas);
  for (auto const& group : groups) {
    Interpreter oracle(made.graph, made.ranks);
    for (int rank = 0; rank < made.ranks; ++rank) {
      auto const replica = static_cast<std::size_t>(group[static_cast<std::size_t>(rank)]);
      for (StablehloPort const& port : module.arguments) {
        std::vector<double> values = random_values(made, made.graph.find_leaf(port.name), static_cast<int>(replica));
        append(arguments[replica], port.dtype, values);
        oracle.set(port.name, values, rank);
      }
    }
    oracle.run();
    for (int rank = 0; rank < made.ranks; ++rank)
      for (StablehloPort const& port : module.results) {
        auto const& values =
            port.role == StablehloRole::update ? oracle.get(port.name, rank) : oracle.output(port.name, rank);
        auto& to = results[static_cast<std::size_t>(group[static_cast<std::size_t>(rank)])];
        to.insert(to.end(), values.begin(), values.end());
      }
  }
  Bytes all_arguments;
  std::vector<double> all_results;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    all_arguments.insert(all_arguments.end(), arguments[replica].begin(), arguments[replica].end());
    all_results.insert(all_results.end(), results[replica].begin(), results[replica].end());
  }
  folder.write(made.name + ".mlir", module.text);
  folder.write(made.name + ".json", to_json(module));
  folder.write(made.name + ".arguments", all_arguments);
  folder.write(made.name + ".results", all_results);
  char entry[256];
  std::snprintf(entry, sizeof entry, "{\"name\": \"%s\", \"kind\": \"graph\", \"ranks\": %d, \"tolerance\": %g}",
                made.name.c_str(), static_cast<int>(replicas), made.tolerance);
  folder.add(entry);
}

constexpr std::int64_t batch = 4, tokens_per_row = 16, steps = 20, vocabulary = 61;

/// Two batches in turn of rows that count by ones, twos, ...: a model learns them.
std::vector<double> batch_of(std::int64_t step, std::int64_t rank, bool targets) {
  std::vector<double> tokens;
  for (std::int64_t row = rank * batch; row < (rank + 1) * batch; ++row)
    for (std::int64_t t = 0; t < tokens_per_row; ++t)
      tokens.push_back(
          targets && t % 7 == 6 ? -1 : double((7 * (step % 2) + 5 * row + (row + 1) * (t + targets)) % vocabulary));
  return tokens;
}
/// Of an input or scalar at a step; empty for others.
std::vector<double> given(StablehloPort const& port, std::int64_t step, std::int64_t rank) {
  double const count = static_cast<double>(step + 1);
  if (port.name == "tokens") return batch_of(step, rank, false);
  if (port.name == "targets") return batch_of(step, rank, true);
  if (port.name == "learning_rate") return {3e-3};
  if (port.name == "correction1") return {1 - std::pow(0.9, count)};
  if (port.name == "correction2") return {1 - std::pow(0.95, count)};
  return {};
}
/// What parameters and states hold in the beginning, in the order of the module's arguments.
std::vector<std::vector<float>> initial_values(Graph const& graph, StablehloModule const& module) {
  std::vector<std::vector<float>> values;
  for (StablehloPort const& port : module.arguments) {
    if (port.role != StablehloRole::parameter && port.role != StablehloRole::state) continue;
    std::vector<float> tensor(static_cast<std::size_t>(port.shape.size()));
    for (Parameter const& parameter : graph.parameters)
      if (graph.name(parameter.node) == port.name) {
        if (parameter.init.kind == Init::Kind::normal)
          CounterRandom{5, values.size()}.fill_normal(tensor, 0, static_cast<float>(5 * parameter.init.deviation));
        else if (parameter.init.kind == Init::Kind::ones) tensor.assign(tensor.size(), 1);
      }
    values.push_back(std::move(tensor));
  }
  return values;
}

std::string pair_text(std::int64_t step, double loss, double norm) {
  char text[64];
  std::snprintf(text, sizeof text, "%s[%.9g, %.9g]", step == 0 ? "" : ", ", loss, norm);
  return text;
}

struct Training {
  int ranks = 1;
  double tolerance = 1e-4;
  bool narrow_products = true;
  std::string compilers{};  ///< in quotes; empty: all
};

template <class Model, class Loss>
Graph training_step(Model const& model, Loss loss, Recompute recompute, DType products, int ranks = 1) {
  Replication const replication = ranks == 1 ? Replication::replicated : Replication::varying;
  Graph const graph = trace(model, [&](Builder& b, auto const& bound) {
    Var const tokens = b.input("tokens", DType::int32, {batch, tokens_per_row}, replication),
              targets = b.input("targets", DType::int32, {batch, tokens_per_row}, replication);
    optim::minimise(loss(bound, tokens, targets), optim::Pass::whole, {.weight_decay = 0.1},
                    {.clip = 1.0, .reduce = ranks > 1, .recompute = recompute});
  });
  return amp(graph, products);
}

/// Losses and gradient norms of every step as text, and in the end values of what is updated: by the executor.
std::string run_executor(Graph const& graph, StablehloModule const& module, std::vector<double>& finally) {
  exec::Context context({.threads = 1, .ranks_on_node = 1});
  Program const program = compile(graph);
  State state(graph);
  Executor executor(context, program, state);
  auto const initial = initial_values(graph, module);
  for (std::size_t i = 0; i < initial.size(); ++i)
    std::copy(initial[i].begin(), initial[i].end(),
              state.at(module.arguments[i].name).view<float>().elements().begin());
  std::string losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (StablehloPort const& port : module.arguments) {
      std::vector<double> const values = given(port, step, 0);
      if (values.empty()) continue;
      if (port.dtype == DType::int32) {
        std::vector<std::int32_t> const numbers(values.begin(), values.end());
        executor.set(port.name, TensorView<std::int32_t const>(numbers.data(), port.shape));
      } else {
        executor.set(port.name, values[0]);
      }
    }
    executor.run();
    losses += pair_text(step, executor.value("loss"), executor.value("grad_norm"));
  }
  for (StablehloPort const& port : module.results)
    if (port.role == StablehloRole::update)
      for (float value : state.at(port.name).view<float>().elements()) finally.push_back(double{value});
  return losses;
}
/// On several ranks by the interpreter, in float64.
std::string run_interpreter(Graph const& graph, StablehloModule const& module, int ranks,
                            std::vector<double>& finally) {
  Interpreter interpreter(graph, ranks);
  auto const initial = initial_values(graph, module);
  for (std::size_t i = 0; i < initial.size(); ++i)
    interpreter.set(module.arguments[i].name, std::vector<double>(initial[i].begin(), initial[i].end()));
  std::string losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank)
      for (StablehloPort const& port : module.arguments)
        if (auto const values = given(port, step, rank); !values.empty()) interpreter.set(port.name, values, rank);
    interpreter.run();
    losses += pair_text(step, interpreter.output("loss")[0], interpreter.output("grad_norm")[0]);
  }
  for (StablehloPort const& port : module.results)
    if (port.role == StablehloRole::update) {
      auto const& values = interpreter.get(port.name);
      finally.insert(finally.end(), values.begin(), values.end());
    }
  return losses;
}

void write_training(Folder& folder, std::string const& name, Graph const& graph, Training const& how = {}) {
  StablehloModule const module =
      to_stablehlo(graph, {.module = name, .narrow_products = how.narrow_products, .ranks = how.ranks});
  Bytes arguments, inputs;
  for (auto const& tensor : initial_values(graph, module)) {
    auto const* const bytes = reinterpret_cast<char const*>(tensor.data());
    arguments.insert(arguments.end(), bytes, bytes + tensor.size() * sizeof(float));
  }
  for (std::int64_t step = 0; step < steps; ++step)
    for (int rank = 0; rank < how.ranks; ++rank)
      for (StablehloPort const& port : module.arguments) {
        std::vector<double> values = given(port, step, rank);
        if (!values.empty()) append(inputs, port.dtype, values);
      }
  std::vector<double> finally;
  std::string const losses =
      how.ranks == 1 ? run_executor(graph, module, finally) : run_interpreter(graph, module, how.ranks, finally);
  folder.write(name + ".mlir", module.text);
  folder.write(name + ".json", to_json(module));
  folder.write(name + ".arguments", arguments);
  folder.write(name + ".steps", inputs);
  folder.write(name + ".results", finally);
  char facts[128];
  std::snprintf(facts, sizeof facts, "\"ranks\": %d, \"tolerance\": %g, \"steps\": %d, ", how.ranks, how.tolerance,
                static_cast<int>(steps));
  folder.add("{\"name\": \"" + name + "\", \"kind\": \"training\", " + facts +
             (how.compilers.empty() ? "" : "\"for\": [" + how.compilers + "], ") + "\"losses\": [" + losses + "]}");
}

void write_models(Folder& folder) {
  nn::Gpt2 const gpt2 = nn::make_parameters(nn::Gpt2Config{
      .layers = 2, .heads = 2, .channels = 32, .vocabulary = vocabulary, .padded_vocabulary = 64, .max_tokens = 20});
  nn::Llama const llama = nn::make_parameters(nn::LlamaConfig{.layers = 2,
                                                              .heads = 4,
                                                              .kv_heads = 2,
                                                              .channels = 32,
                                                              .head_size = 8,
                                                              .hidden = 48,
                                                              .vocabulary = vocabulary,
                                                              .padded_vocabulary = 64,
                                                              .max_tokens = 20,
                                                              .tied = false});
  auto const f32 = DType::float32;
  nn::Gpt2Loss const gpt2_loss;
  write_training(folder, "train_gpt2", training_step(gpt2, gpt2_loss, Recompute::none, f32));
  write_training(folder, "train_gpt2_recompute", training_step(gpt2, gpt2_loss, Recompute::block, f32));
  write_training(folder, "train_gpt2_on_2_ranks", training_step(gpt2, gpt2_loss, Recompute::none, f32, 2),
                 {.ranks = 2});
  write_training(folder, "train_llama", training_step(llama, nn::LlamaLoss{}, Recompute::none, f32));
  Graph const rounded = training_step(gpt2, gpt2_loss, Recompute::none, DType::bfloat16);
  // A number that rounds to another neighbour is one part in 256 off. XLA has no products of bfloat16 that are float32
  // on processors, but for small ones.
  write_training(folder, "train_gpt2_bfloat16", rounded, {.tolerance = 1e-2, .compilers = "\"IREE\""});
  write_training(folder, "train_gpt2_bfloat16_wide", rounded, {.tolerance = 1e-2, .narrow_products = false});
}

/// The step of docs/guides/stablehlo.md (examples/060_stablehlo.cpp), only to be compiled: compilers for GPUs treat
/// sizes of some dozens otherwise.
void write_example(Folder& folder) {
  nn::Gpt2 const gpt2 = nn::make_parameters(nn::Gpt2Config{
      .layers = 2, .heads = 4, .channels = 64, .vocabulary = 256, .padded_vocabulary = 256, .max_tokens = 64});
  Graph const step = trace(gpt2, [](Builder& b, nn::Gpt2 const& model) {
    Var const tokens = b.input("tokens", DType::int32, {8, 64}), targets = b.input("targets", DType::int32, {8, 64});
    optim::minimise(nn::Gpt2Loss{}(model, tokens, targets), optim::Pass::whole, {.weight_decay = 0.1}, {.clip = 1.0});
  });
  folder.write("example_gpt2.mlir", to_stablehlo(step, {.module = "gpt2"}).text);
}

/// Those that docs/guides/stablehlo.md names.
void write_targets(Folder& folder) {
  std::string rows;
  for (char const* name : {"llvm-cpu", "cuda:sm_80", "cuda:sm_86", "cuda:sm_90", "rocm:gfx908", "rocm:gfx90a",
                           "rocm:gfx942", "vulkan-spirv", "metal-spirv"}) {
    std::string flags;
    for (std::string const& flag : iree::compile_flags(iree::parse_target_device(name)))
      flags += (flags.empty() ? "\"" : ", \"") + flag + "\"";
    rows += (rows.empty() ? "\n  \"" : ",\n  \"") + std::string(name) + "\": [" + flags + "]";
  }
  folder.write("targets.json", "{" + rows + "\n}\n");
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  Folder folder{arguments[1]};
  for (test::StablehloCase const& made : test::StablehloCases().all()) write_case(folder, made);
  write_models(folder);
  write_example(folder);
  write_targets(folder);
  folder.write("cases.json", "[" + folder.index + "\n]\n");
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

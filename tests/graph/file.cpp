// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/form.hpp>
// Covers: <tutti/graph/file_reader.hpp> <tutti/graph/file_writer.hpp>
// Covers: <tutti/graph/form_counts.hpp>
#include "graph/stablehlo_cases.hpp"
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <tutti/exec/wait.hpp>
#include <tutti/graph/custom.hpp>
#include <tutti/graph/file.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/optim/minimise.hpp>

#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

/// A whole training step: gradient, reduction over ranks, clipping, update.
template <class Loss>
Graph training_step(typename Loss::Config const& config) {
  return trace(make_parameters(config), [](Builder& builder, auto const& parameters) {
    Var const tokens = builder.input("tokens", DType::int32, {2, 8}, Replication::varying);
    Var const targets = builder.input("targets", DType::int32, {2, 8}, Replication::varying);
    optim::minimise(Loss{}(parameters, tokens, targets), optim::Pass::whole, {.weight_decay = 0.1},
                    {.clip = 1, .reduce = true});
  });
}
Graph gpt2_step() {
  return training_step<nn::Gpt2Loss>({.layers = 3, .heads = 2, .channels = 8, .vocabulary = 11, .padded_vocabulary = 16,
                                      .max_tokens = 8});
}
std::vector<std::pair<std::string, Graph>> programs() {
  std::vector<std::pair<std::string, Graph>> all;
  for (test::StablehloCase& one : test::StablehloCases().all()) all.emplace_back(one.name, std::move(one.graph));
  all.emplace_back("gpt2", gpt2_step());
  all.emplace_back("llama", training_step<nn::LlamaLoss>({.layers = 2,
                                                          .heads = 4,
                                                          .kv_heads = 2,
                                                          .channels = 16,
                                                          .head_size = 4,
                                                          .hidden = 24,
                                                          .vocabulary = 11,
                                                          .padded_vocabulary = 16,
                                                          .max_tokens = 8}));
  return all;
}

struct Twice {
  static constexpr std::string_view name = "twice";
  static Type type(OperandTypes const& in) { return {in.dtype(0), Replication::replicated, in.shape(0)}; }
  static std::vector<double> reference(naive::Call const& call) { return call.in(0); }
  static void run(exec::Context&, CustomArguments const&) {}
};

/// The error's sentence, or nothing.
std::string refused(std::vector<std::byte> const& bytes) {
  try {
    static_cast<void>(read(bytes));
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::format);
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("Graphs of every operation come back from their bytes the same, and give the same bytes again") {
  std::set<Op> seen;
  for (auto const& [name, graph] : programs()) {
    INFO(name);
    std::vector<std::byte> const bytes = write(graph);
    Graph const back = read(bytes);
    CHECK(same(graph, back));
    CHECK(write(back) == bytes);
    CHECK(program_hash(back) == program_hash(graph));
    CHECK(to_string(back) == to_string(canonical(graph)));
    CHECK(read(write(graph, false)).nodes.size() == back.nodes.size());
    test::note_operations(back, seen);
  }
  for (int op = 0; op < op_count; ++op) {
    INFO(name(static_cast<Op>(op)));
    CHECK((seen.contains(static_cast<Op>(op)) || static_cast<Op>(op) == Op::custom));
  }
}

TEST_CASE("A program's hash is that of what it computes, not of how it was written down") {
  auto const product = [](bool swapped, double factor) {
    Builder b;
    Var const x = b.input("x", DType::float32, {4}), y = b.input("y", DType::float32, {4});
    Var const first = swapped ? y * factor : x + 1.0;
    Var const second = swapped ? x + 1.0 : y * factor;
    b.output("z", swapped ? second - first : first - second);
    return b.graph();
  };
  CHECK(program_hash(product(false, 2)) == program_hash(product(true, 2)));
  CHECK(program_hash(product(false, 2)) != program_hash(product(false, 3)));
}

TEST_CASE("An operation from outside of the library is not written, and says where it stands") {
  Builder b;
  b.output("y", custom<Twice>({b.input("x", DType::float32, {4})}));
  REQUIRE_ERROR(write(b.graph()), ErrorKind::unavailable, "operation 'twice' (file.cpp:");
}

TEST_CASE("Bytes that are no graph get a sentence: cut off anywhere, of another version, with something behind") {
  std::vector<std::byte> const bytes = write(gpt2_step());
  CHECK(test::contains(refused({}), "these bytes are no graph"));
  for (std::size_t size = 8; size < bytes.size(); size += 1 + size / 16)
    CHECK(refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}) != "");
  std::vector<std::byte> changed = bytes;
  changed.push_back({});
  CHECK(test::contains(refused(changed), "behind the graph"));
  changed = bytes;
  changed[8] = std::byte{9};
  CHECK(test::contains(refused(changed), "version 9 is unknown"));
}

TEST_CASE("Changed bytes are refused or are another graph that holds together; TUTTI_FUZZ_SECONDS tries for longer",
          "[fuzz]") {
  std::mt19937_64 draw(test::fuzz_seed(7));
  double const seconds = test::fuzz_seconds(2);
  std::vector<std::vector<std::byte>> from;
  for (auto const& [name, graph] : programs()) from.push_back(write(graph));
  std::int64_t tried = 0, accepted = 0;
  for (auto const end = exec::now_ns() + static_cast<std::int64_t>(seconds * 1e9); exec::now_ns() < end; ++tried) {
    std::vector<std::byte> bytes = from[draw() % from.size()];
    for (std::uint64_t changes = 1 + draw() % 3; changes > 0; --changes) {
      std::size_t const at = draw() % bytes.size();
      switch (draw() % 4) {
        case 0: bytes[at] = static_cast<std::byte>(draw()); break;
        case 1: bytes[at] ^= static_cast<std::byte>(1u << draw() % 8); break;
        case 2: bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at)); break;
        default: {
          std::int64_t const extreme[] = {0, 1, -1, 1 << 20, std::int64_t{1} << 62, INT64_MIN, INT64_MAX};
          std::memcpy(bytes.data() + at, &extreme[draw() % 7], std::min<std::size_t>(8, bytes.size() - at));
        }
      }
      if (bytes.empty()) break;
    }
    try {
      Graph const graph = read(bytes);
      ++accepted;
      CHECK(write(graph) == bytes);
      CHECK(!to_string(graph).empty());
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::format);
    }
  }
  std::printf("%lld changed files, %lld of them graphs\n", static_cast<long long>(tried),
              static_cast<long long>(accepted));
  CHECK(tried > 100);
}

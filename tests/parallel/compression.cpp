// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Codes of gradients, and what averages over ranks make of them from step to step.
// Covers: <tutti/optim/gradient_compressor.hpp> <tutti/parallel/compression.hpp>
// Covers: <tutti/parallel/compression_choice.hpp> <tutti/parallel/gradient_codes.hpp>

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/graph/compile.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/parallel/compression.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::parallel;
using optim::AnyCompressor;

namespace {

std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<double>(seed >> 40) / 16777216.0 - 0.5);
  }
  return values;
}

/// The average of an input "gradient" as output "average".
graph::Graph program(AnyCompressor const& compressor, Shape const& shape, bool stacked, int ranks) {
  graph::Builder b;
  graph::Var const gradient = b.input("gradient", DType::float32, shape, graph::Replication::varying);
  b.output("average", compressor.average({.builder = b,
                                          .gradient = gradient,
                                          .name = "w",
                                          .stacked = stacked,
                                          .ranks = ranks,
                                          .where = std::source_location::current()}));
  return canonical(b.graph());
}

struct Outcome {
  std::vector<float> averages;  ///< of every step
  std::vector<float> unsent;    ///< after the last one
  std::int64_t bytes = 0;       ///< given to collectives, of a step
  std::int64_t ring = 0;        ///< and sent, where these are rings
};
/// `gradients(rank, step)`; by rank.
template <class F>
std::vector<Outcome> averaged(AnyCompressor const& compressor, Shape const& shape, bool stacked, int ranks, int steps,
                              F&& gradients) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1 + communicator.rank() % 2});
    Shared<comm::Port> const port = comm::port(communicator);
    graph::Graph const graph = program(compressor, shape, stacked, ranks);
    graph::Program const compiled = graph::compile(graph);
    graph::State state(graph);
    graph::Executor run(context, compiled, state, {.port = port.get(), .poison = true});
    Outcome& outcome = outcomes[static_cast<std::size_t>(communicator.rank())];
    outcome.bytes = graph::sent_bytes(compiled.list, graph::MeshAxis::data);
    outcome.ring = graph::ring_bytes(compiled.list, graph::MeshAxis::data, ranks);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> const mine = gradients(communicator.rank(), step);
      run.set("gradient", TensorView<float const>(mine.data(), shape));
      run.run();
      auto const average = run.output<float>("average").elements();
      outcome.averages.insert(outcome.averages.end(), average.begin(), average.end());
    }
    if (graph::Field const* const unsent = state.find("compression.unsent.w"))
      for (float const value : unsent->view<float>().elements()) outcome.unsent.push_back(value);
  });
  return outcomes;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}
double length(std::vector<float> const& values) {
  double sum = 0;
  for (float const value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("codes keep what they say: int8 to half a scale, top-k the largest values, in bytes that are known before") {
  for (std::int64_t const count : {0, 1, 127, 128, 4096, 4097, 65536 + 300}) {
    INFO(count << " values");
    std::vector<float> const values = numbers(count, 7);
    auto const there_and_back = [&](auto const& code) {
      using Code = std::remove_cvref_t<decltype(code)>;
      std::vector<std::byte> bytes(static_cast<std::size_t>(parallel::detail::code_bytes(code, count)));
      std::vector<float> back(values.size(), 9.0f);
      std::int64_t const chunks = parallel::detail::chunks_of<Code>(count);
      parallel::detail::encode_chunks(code, 0, chunks, std::span(values), std::span(bytes));
      parallel::detail::decode_chunks(code, 0, chunks, std::span<std::byte const>(bytes), std::span(back));
      return back;
    };
    std::vector<float> const whole = there_and_back(Int8Code{}), few = there_and_back(TopKCode{0.05});
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) worst = std::max(worst, double{std::abs(whole[i] - values[i])});
    CHECK(worst <= 0.5 / 127 / 2 * 1.001);
    for (std::size_t at = 0; at < values.size(); at += TopKCode::chunk) {
      std::size_t const size = std::min<std::size_t>(TopKCode::chunk, values.size() - at);
      float least_kept = 1, most_left = 0;
      std::int64_t kept = 0;
      for (std::size_t i = at; i < at + size; ++i)
        if (few[i] != 0) {
          ++kept;
          least_kept = std::min(least_kept, std::abs(values[i]));
          REQUIRE(std::abs(few[i] - values[i]) <= std::abs(values[i]) / 256);
        } else {
          most_left = std::max(most_left, std::abs(values[i]));
        }
      CHECK(kept == static_cast<std::int64_t>(std::ceil(0.05 * static_cast<double>(size))));
      CHECK(least_kept >= most_left);
    }
  }
}

TEST_CASE("columns of matrices become orthonormal; one that the others span becomes zero") {
  graph::Builder b;
  std::vector<float> values = numbers(2 * 9 * 3, 3);
  for (std::size_t row = 0; row < 9; ++row) values[27 + 3 * row + 2] = 2 * values[27 + 3 * row];  // of the second
  b.output("y", graph::custom<Orthonormal>({b.input("x", DType::float32, {2, 9, 3})}));
  graph::Graph const graph = canonical(b.graph());
  graph::Program const compiled = graph::compile(graph);
  exec::Context context({.threads = 2});
  graph::State state(graph);
  graph::Executor run(context, compiled, state);
  run.set("x", TensorView<float const>(values.data(), {2, 9, 3}));
  run.run();
  auto const y = run.output<float>("y").elements();
  for (std::size_t matrix = 0; matrix < 2; ++matrix)
    for (std::size_t a = 0; a < 3; ++a)
      for (std::size_t c = 0; c < 3; ++c) {
        double dot = 0;
        for (std::size_t row = 0; row < 9; ++row)
          dot += double{y[27 * matrix + 3 * row + a]} * y[27 * matrix + 3 * row + c];
        INFO("matrix " << matrix << ", columns " << a << " and " << c);
        CHECK(std::abs(dot - (a == c && !(matrix == 1 && a == 2) ? 1 : 0)) < 1e-6);
      }
}

TEST_CASE("averages are the same bits on all ranks, and what a step leaves out of them a later one sends") {
  struct Given {
    char const* name;
    double bytes;  ///< of the 4 * size that a gradient has, at most
  };
  for (Given const& given : {Given{"bf16", 0.51}, Given{"int8", 0.27}, Given{"topk:0.02", 0.025},
                             Given{"powersgd:2", 0.12}})
    for (int ranks : {1, 2, 3, 4}) {
      INFO(given.name << ", " << ranks << " ranks");
      Shape const shape{2, 60, 70};
      constexpr int steps = 6;
      auto const gradients = [&](int rank, int step) {
        return numbers(shape.size(), static_cast<std::uint64_t>(100 * rank + step + 1));
      };
      std::vector<Outcome> const outcomes =
          averaged(compressor_of(given.name), shape, true, ranks, steps, gradients);
      CHECK(static_cast<double>(outcomes[0].bytes) <= given.bytes * 4 * static_cast<double>(shape.size()));
      bool const gathers = std::string(given.name) == "int8" || std::string(given.name) == "topk:0.02";
      CHECK(outcomes[0].ring == (ranks - 1) * (gathers ? outcomes[0].bytes : 2 * outcomes[0].bytes / ranks));
      for (Outcome const& outcome : outcomes) CHECK(same_bits(outcome.averages, outcomes[0].averages));
      CHECK(same_bits(averaged(compressor_of(given.name), shape, true, ranks, steps, gradients)[0].averages,
                      outcomes[0].averages));
      // The sum of all averages, and the mean of what is unsent, are the sum of the gradients' means.
      std::vector<float> rest(static_cast<std::size_t>(shape.size()));
      for (int rank = 0; rank < ranks; ++rank)
        for (int step = 0; step < steps; ++step) {
          std::vector<float> const gradient = gradients(rank, step);
          for (std::size_t i = 0; i < rest.size(); ++i) rest[i] += gradient[i] / static_cast<float>(ranks);
        }
      double const all = length(rest);
      for (std::size_t i = 0; i < outcomes[0].averages.size(); ++i)
        rest[i % rest.size()] -= outcomes[0].averages[i];
      for (Outcome const& outcome : outcomes)
        for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= outcome.unsent[i] / static_cast<float>(ranks);
      CHECK(length(rest) < (std::string(given.name) == "bf16" ? 4e-3 : 1e-5) * all);
    }
}

TEST_CASE("PowerSGD finds a gradient of its rank, begins anew where a column has no length, and leaves vectors alone") {
  std::vector<float> const left = numbers(2 * 40, 1), right = numbers(2 * 30, 2);
  auto const product = [&](int rank, int step) {
    std::vector<float> values(40 * 30);
    if (step < 2) return values;  // nothing to find directions in
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t k = 0; k < 2; ++k)
        values[i] += left[2 * (i / 30) + k] * right[2 * (i % 30) + k] * static_cast<float>(1 + rank);
    return values;
  };
  std::vector<Outcome> const found = averaged(PowerSgdCompressor{2}, {40, 30}, false, 2, 5, product);
  std::vector<float> last(found[0].averages.end() - 1200, found[0].averages.end()), wanted = product(0, 4);
  double const all = length(wanted);
  for (std::size_t i = 0; i < last.size(); ++i) last[i] -= 1.5f * wanted[i];
  CHECK(length(last) < 1e-5 * all);
  CHECK(length(found[0].unsent) < 2 * all);  // the ranks' differences from their mean, of some steps

  auto const vectors = [](int rank, int) { return numbers(2 * 33, static_cast<std::uint64_t>(rank)); };
  for (char const* name : {"int8", "topk", "powersgd"}) {
    std::vector<Outcome> const exact = averaged(compressor_of(name), {2, 33}, true, 2, 1, vectors);
    std::vector<float> mean = vectors(0, 0);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + vectors(1, 0)[i]) / 2;
    CHECK(same_bits(exact[0].averages, mean));
    CHECK(exact[0].unsent.empty());
  }
}

TEST_CASE("programs that compress compute what the interpreter does, and values that are not finite stay so") {
  for (char const* name : {"bf16", "int8", "topk:0.1", "powersgd:3"}) {
    INFO(name);
    Shape const shape{50, 64};
    std::vector<float> gradient = numbers(shape.size(), 5);
    auto const given = [&](int, int) { return gradient; };
    std::vector<float> const averages = averaged(compressor_of(name), shape, false, 1, 1, given)[0].averages;
    graph::Graph const graph = program(compressor_of(name), shape, false, 1);
    graph::Interpreter interpreter(graph, 1);
    interpreter.set("gradient", {gradient.begin(), gradient.end()});
    interpreter.run();
    std::vector<double> const& values = interpreter.output("average");
    double worst = 0;
    for (std::size_t i = 0; i < averages.size(); ++i)
      worst = std::max(worst, std::abs(double{averages[i]} - values[i]));
    CHECK(worst < (std::string(name) == "bf16" ? 2e-3 : 1e-4));  // the interpreter rounds nothing to bfloat16
    gradient[77] = std::nanf("");
    std::vector<float> const spoilt = averaged(compressor_of(name), shape, false, 2, 1, given)[0].averages;
    CHECK(std::any_of(spoilt.begin(), spoilt.end(), [](float value) { return std::isnan(value); }));
  }
}

TEST_CASE("compressors by name, and what is none is refused with what there is") {
  CHECK_FALSE(compressor_of(""));
  CHECK_FALSE(compressor_of("none"));
  CHECK(compressor_of("bf16").describe() == "as bfloat16, with error feedback");
  CHECK(compressor_of("topk:0.001").describe() == "the largest 0.1% of every 4096 values, with error feedback");
  CHECK(compressor_of("powersgd").describe() == "by PowerSGD of rank 4, with error feedback");
  for (auto const& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"fp4", "use none, bf16, int8, topk:SHARE or powersgd:RANK"},
           {"int8:4", "only topk and powersgd take a number"},
           {"topk:2", "the share must be above 0 and at most 1"},
           {"topk:", "behind the colon there is no number"},
           {"powersgd:0.5", "the rank must be a whole number"}})
    REQUIRE_ERROR(compressor_of(text), ErrorKind::configuration, why);
}

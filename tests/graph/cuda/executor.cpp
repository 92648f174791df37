// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Programs on a device: whole training steps, captured and replayed, two under way, with ranks.
// Covers: <tutti/graph/cuda/executor.hpp> <tutti/graph/cuda/state.hpp> <tutti/graph/fit_cuda.hpp>
// Covers: <tutti/graph/narrow.hpp> <tutti/graph/narrow_groups.hpp> <tutti/graph/cuda/workspace.hpp>
// Covers: <tutti/graph/cuda/executor_collectives.hpp>
// Covers: <tutti/graph/cuda/executor_stretches.hpp> <tutti/graph/cuda/joined_steps.hpp>
// Covers: <tutti/graph/cuda/generic_kernels.hpp>
// Covers: <tutti/graph/cuda/generic_gather.hpp> <tutti/graph/cuda/generic_threads.hpp>

#include "graph/cuda/run_graph.hpp"
#include "graph/small_gpt.hpp"
#include "support/catch.hpp"

#include <tutti/graph/amp.hpp>
#include <tutti/graph/custom.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::graph;
using test::cuda_blas;
using test::cuda_context;
using test::SmallPass;
using test::SmallSizes;

namespace {

Program compiled(Graph const& graph) {
  CompileOptions options;
  options.target = Target::cuda;
  return compile(graph, options);
}

/// Heads of 8: those that devices have are multiples of it.
SmallSizes device_sizes() {
  SmallSizes sizes;
  sizes.channels = 24;
  return sizes;
}

/// A program on the device, with a state of its own.
struct Job {
  State state;
  graph::cuda::DeviceState device;
  graph::cuda::Executor executor;

  Job(Graph const& graph, Program const& program, graph::cuda::ExecutorOptions const& options = {})
      : state(initialised(graph)), device(cuda_context().stream(), state),
        executor(cuda_blas(), program, device, options) {}

 private:
  static State initialised(Graph const& graph) {
    State state(graph);
    state.initialise(3);
    return state;
  }
};

struct Trained {
  std::vector<double> losses;
  test::Results fields;
  std::size_t captured = 0;
};
Trained trained(Program const& program, Graph const& graph, SmallSizes const& sizes, int steps, bool capture) {
  graph::cuda::ExecutorOptions options;
  options.capture = capture;
  Job job(graph, program, options);
  auto& [state, device, executor] = job;
  Trained result;
  for (int step = 1; step <= steps; ++step) {
    test::set_batch(executor, sizes, static_cast<unsigned>(step % 2), step);
    executor.run();
    result.losses.push_back(executor.value("loss"));
  }
  device.to_host();
  result.fields = test::fields_of(state);
  result.captured = executor.captured();
  return result;
}

}  // namespace

TEST_CASE("loss, gradients and a whole training step of a GPT on a device agree with the interpreter") {
  SmallSizes const sizes = device_sizes();
  for (SmallPass pass : {SmallPass::loss, SmallPass::gradients, SmallPass::whole}) {
    test::RunOptions options;
    options.limit = sizes.vocabulary;
    Graph const graph = test::small_graph(sizes, pass);
    // AdamW divides by the root of v: where the random v is tiny, rounding of the gradient is magnified.
    test::check_against_interpreter(graph, test::run_executor(graph, options), options,
                                    pass == SmallPass::whole ? 2e-3 : 2e-4);
  }
}

TEST_CASE("training on a device lowers the loss; captured, launched and repeated runs are bitwise equal") {
  SmallSizes const sizes = device_sizes();
  Graph const graph = test::small_graph(sizes, SmallPass::whole);
  Program const program = compiled(graph);
  Trained const launched = trained(program, graph, sizes, 8, false), captured = trained(program, graph, sizes, 8, true),
                again = trained(program, graph, sizes, 8, true);
  CHECK(launched.captured == 0);
  CHECK(captured.captured >= program.list.steps.size() / 2);
  CHECK(captured.losses.back() < 0.9 * captured.losses.front());
  CHECK(launched.losses == captured.losses);
  CHECK((launched.fields == captured.fields));
  CHECK(captured.losses == again.losses);
  CHECK((captured.fields == again.fields));
}

TEST_CASE("two runs are under way on a device, and outputs are read one run late") {
  SmallSizes const sizes = device_sizes();
  Graph const graph = test::small_graph(sizes, SmallPass::whole);
  Program const program = compiled(graph);
  Trained const expected = trained(program, graph, sizes, 6, true);
  Job job(graph, program);
  graph::cuda::Executor& executor = job.executor;
  std::vector<double> losses;
  for (int step = 1; step <= 6; ++step) {
    test::set_batch(executor, sizes, static_cast<unsigned>(step % 2), step);
    executor.start();
    if (step == 1) continue;
    executor.finish();
    losses.push_back(executor.value("loss"));
  }
  executor.finish();
  losses.push_back(executor.value("loss"));
  executor.finish();  // nothing is under way
  CHECK(executor.runs() == 6);
  CHECK(losses == expected.losses);
}

TEST_CASE("what the host writes into a state reaches the device, and back") {
  Builder b;
  Var const p = b.parameter("p", {5}, zeros());
  b.output("twice", p * 2.0);
  b.update(p, p + 1.0);
  Graph const graph = b.graph();
  Program const program = compiled(graph);
  Job job(graph, program);
  auto& [state, device, executor] = job;
  executor.run();
  executor.run();
  CHECK(executor.value("twice") == 2);
  device.to_host();
  CHECK(state["p"].data()[4] == 2.0f);
  state["p"].data()[4] = 7;
  device.host_wrote();
  executor.run();
  CHECK(executor.output<float>("twice").data()[4] == 14.0f);
  CHECK(executor.output<float>("twice").data()[0] == 4.0f);
  device.to_host();
  CHECK(state["p"].data()[4] == 8.0f);
}

TEST_CASE("a token outside the vocabulary is an error on a device, and nothing is updated") {
  SmallSizes const sizes = device_sizes();
  Graph const graph = test::small_graph(sizes, SmallPass::whole);
  Program const program = compiled(graph);
  Job job(graph, program);
  auto& [state, device, executor] = job;
  for (int step = 1; step <= 4; ++step) {
    test::set_batch(executor, sizes, 0, step);
    executor.run();
    device.to_host();
    auto const before = test::fields_of(state);
    auto tokens = test::small_tokens(sizes, 0, false);
    tokens[3] = static_cast<std::int32_t>(sizes.padded);
    executor.set("tokens", TensorView<std::int32_t const>(tokens.data(), {sizes.batch, sizes.tokens}));
    REQUIRE_ERROR(executor.run(), ErrorKind::out_of_range, "token 23 at index 3");
    device.to_host();
    CHECK((test::fields_of(state) == before));
  }
}

TEST_CASE("a program captured before working memory moved is captured again") {
  SmallSizes const sizes = device_sizes();
  Graph const graph = test::small_graph(sizes, SmallPass::loss);
  Program const program = compiled(graph);
  Job job(graph, program);
  graph::cuda::Executor& executor = job.executor;
  test::set_batch(executor, sizes, 0, 1);
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {
    executor.run();
    losses.push_back(executor.value("loss"));
  }
  std::uint64_t const version = cuda_context().scratch_version();
  static std::size_t bytes = std::size_t{8} << 20;
  static_cast<void>(cuda_context().scratch(bytes *= 2));
  REQUIRE(cuda_context().scratch_version() != version);
  for (int i = 0; i < 3; ++i) {
    executor.run();
    losses.push_back(executor.value("loss"));
  }
  for (double const loss : losses) CHECK(loss == losses.front());
}

namespace {
struct Same : FunctionOf<1> {
  static constexpr std::string_view name = "same";
  template <class Real>
  static constexpr Real scalar(Real x) {
    return x;
  }
};
}  // namespace

TEST_CASE("programs that a device cannot run are refused") {
  SmallSizes const sizes = device_sizes();
  Graph const graph = test::small_graph(sizes, SmallPass::loss);
  State state(graph);
  graph::cuda::DeviceState device(cuda_context().stream(), state);
  Program const for_processors = compile(graph);
  REQUIRE_ERROR(graph::cuda::Executor(cuda_blas(), for_processors, device), ErrorKind::invalid_argument,
                "compiled for processors");
  Builder custom_builder;
  custom_builder.output("y", custom<Same>({custom_builder.input("x", DType::float32, {4})}));
  State none;
  graph::cuda::DeviceState nothing(cuda_context().stream(), none);
  Program const own = compiled(custom_builder.graph());
  REQUIRE_ERROR(graph::cuda::Executor(cuda_blas(), own, nothing), ErrorKind::unavailable,
                "same has a body for processors alone");
  Program const program = compiled(graph);
  graph::cuda::Executor executor(cuda_blas(), program, device);
  REQUIRE_ERROR(executor.run(), ErrorKind::invalid_argument, "was never set");
  REQUIRE_ERROR(executor.set("nothing", 1.0), ErrorKind::invalid_argument, "has no input 'nothing'");
  State other;
  graph::cuda::DeviceState other_device(cuda_context().stream(), other);
  REQUIRE_ERROR(graph::cuda::Executor(cuda_blas(), program, other_device), ErrorKind::invalid_argument, "no field");
}

TEST_CASE("every step of a program is measured on a device") {
  SmallSizes const sizes = device_sizes();
  Graph const graph = test::small_graph(sizes, SmallPass::whole);
  Program const program = compiled(graph);
  graph::cuda::ExecutorOptions options;
  options.profile = true;
  Job job(graph, program, options);
  graph::cuda::Executor& executor = job.executor;
  for (int step = 1; step <= 3; ++step) {
    test::set_batch(executor, sizes, 0, step);
    executor.run();
  }
  std::string const table = executor.profile().table();
  CHECK(table.find("attention_gradient") != std::string::npos);
  CHECK(table.find("adamw") != std::string::npos);
  CHECK(executor.captured() == 0);
}

TEST_CASE("what products round to bfloat16 is stored so on a device, and nothing else") {
  SmallSizes sizes = device_sizes();
  sizes.batch = 4;
  for (SmallPass const pass : {SmallPass::loss, SmallPass::gradients, SmallPass::whole}) {
    INFO("pass " << static_cast<int>(pass));
    Graph const graph = amp(test::small_graph(sizes, pass), DType::bfloat16);
    CompileOptions options;
    options.target = Target::cuda;
    Program const narrow = compile(graph, options);
    options.narrow = false;
    Program const wide = compile(graph, options);
    CHECK(narrow.plan.arena_bytes < wide.plan.arena_bytes);
    CHECK(narrow.list.copies.size() >= 5);  // the weights, at least
    CHECK(wide.list.copies.empty());
    auto const in_state = [&](Ref const& ref) {
      return narrow.list[narrow.list.home(ref.buffer).root].pool == Pool::state;
    };
    std::size_t copies_written = 0;
    for (Step const& step : narrow.list.steps) {
      INFO(name(step.kind) << " " << step.where);
      if (step.kind == StepKind::gemm)
        for (std::size_t const i : {std::size_t{0}, std::size_t{1}}) CHECK(step.reads[i].dtype == DType::bfloat16);
      if (step.kind == StepKind::attention || step.kind == StepKind::attention_gradient)
        for (Ref const& ref : step.writes)
          CHECK((!ref || ref.shape.rank() < 3 || ref.dtype == DType::bfloat16 || ref.shape[2] == sizes.tokens));
      if (step.kind == StepKind::layer_norm || step.kind == StepKind::layer_norm_gradient)
        CHECK(step.reads[1].dtype == DType::float32);
      if (step.kind == StepKind::layer_norm_gradient)  // of what a product rounded
        CHECK(step.reads[0].dtype == DType::bfloat16);
      if (step.kind == StepKind::adamw || step.kind == StepKind::square_sum)
        for (Ref const& ref : step.reads) CHECK((!ref || ref.dtype != DType::bfloat16));
      if (step.kind == StepKind::elementwise && step.writes[0].dtype == DType::bfloat16)
        for (Ref const& ref : step.reads) CHECK(!in_state(ref));  // no kernel converts weights
      if (step.kind == StepKind::gemm && step.writes[0].dtype == DType::bfloat16 && step.reads[2])
        CHECK(step.reads[2].dtype == DType::bfloat16);
      if (step.kind == StepKind::adamw)
        for (Ref const& ref : step.writes) copies_written += ref && ref.dtype == DType::bfloat16;
    }
    if (pass == SmallPass::whole) CHECK(copies_written >= narrow.list.copies.size());
    auto const losses = [&](Program const& program) { return trained(program, graph, sizes, 6, true).losses; };
    if (pass != SmallPass::whole) continue;
    auto const a = losses(narrow), b = losses(wide);
    CHECK(a == losses(narrow));
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).epsilon(0.01));
  }
  Graph const exact = test::small_graph(sizes, SmallPass::whole);
  CHECK(to_string(compiled(exact)).find("bfloat16") == std::string::npos);
}

TEST_CASE("updates of all parameters, and their norm, are one launch each") {
  Program const program = compiled(test::small_graph(device_sizes(), SmallPass::whole));
  for (StepKind const kind : {StepKind::adamw, StepKind::square_sum}) {
    std::size_t first = 0, count = 0;
    for (std::size_t s = program.list.steps.size(); s-- > 0;)
      if (program.list.steps[s].kind == kind) first = s, ++count;
    INFO(count << " steps of " << name(kind) << " from step " << first << " on");
    CHECK(count > 5);
    CHECK(graph::cuda::detail::joined_steps(program.list, first) == count);
  }
}

TEST_CASE("a sum of squares that is read is one of its own") {
  Builder b;
  Var const x = b.input("x", DType::float32, {7}), first = square_sum(x), second = square_sum(x, first);
  b.output("all", square_sum(x, second));
  b.output("first", first);
  Program const program = compiled(b.graph());
  std::vector<std::size_t> joined;
  for (std::size_t s = 0; s < program.list.steps.size(); ++s)
    if (program.list.steps[s].kind == StepKind::square_sum)
      joined.push_back(graph::cuda::detail::joined_steps(program.list, s));
  CHECK(joined == std::vector<std::size_t>{1, 2, 1});
}

TEST_CASE("gradients of biases come from the products that read the same rows, on devices alone") {
  SmallSizes const sizes = device_sizes();
  for (bool const narrow : {false, true}) {
    INFO("narrow " << narrow);
    Graph const plain = test::small_graph(sizes, SmallPass::gradients);
    Graph const graph = narrow ? amp(plain, DType::bfloat16) : plain;
    auto const sums = [](Program const& program) {
      std::pair<int, int> result;  // steps of their own; of products
      for (Step const& step : program.list.steps) {
        result.first += step.kind == StepKind::column_sum;
        bool const merged = step.kind == StepKind::gemm && step.writes.size() > 2 && step.writes[2];
        result.second += merged;
        if (merged) CHECK(step.writes[2].dtype == DType::float32);
      }
      return result;
    };
    auto const [alone, none] = sums(compile(graph));
    CHECK(alone >= 4);
    CHECK(none == 0);
    auto const [left, merged] = sums(compiled(graph));
    CHECK(left == 0);
    CHECK(merged == alone);
  }
}

TEST_CASE("a field's copy in bfloat16 follows what writes the field: the host, an update, a program without copies") {
  Builder b;
  Var const p = b.parameter("p", {16, 16}, zeros()), x = b.input("x", DType::float32, {8, 16});
  b.output("y", linear(x, p));
  Graph const reads = amp(b.graph(), DType::bfloat16);
  b.update(p, p + 1.0);
  Graph const counts = amp(b.graph(), DType::bfloat16);
  Builder other;
  Var const same = other.parameter("p", {16, 16}, zeros());
  other.update(same, same + 2.0);
  Graph const elsewhere = other.graph();
  Program const reading = compiled(reads), counting = compiled(counts), adding = compiled(elsewhere);
  REQUIRE(reading.list.copies.size() == 1);
  State state(counts);
  state.initialise(3);
  graph::cuda::DeviceState device(cuda_context().stream(), state);
  graph::cuda::Executor adds(cuda_blas(), adding, device), reader(cuda_blas(), reading, device),
      counter(cuda_blas(), counting, device);
  std::vector<float> const ones(8 * 16, 1.0f);
  for (graph::cuda::Executor* executor : {&reader, &counter})
    executor->set("x", TensorView<float const>(ones.data(), {8, 16}));
  auto const sum = [](graph::cuda::Executor& executor) {
    executor.run();
    return executor.output<float>("y").data()[0] / 16;
  };
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    auto const base = static_cast<float>(10 * round);
    for (std::int64_t i = 0; i < 256; ++i) state["p"].data()[i] = base;
    device.host_wrote();
    CHECK(sum(reader) == base);
    CHECK(sum(counter) == base);
    CHECK(sum(counter) == base + 1);
    CHECK(sum(reader) == base + 2);
    adds.run();
    CHECK(sum(reader) == base + 4);
    CHECK(sum(counter) == base + 4);
    device.to_host();
    CHECK(state["p"].data()[255] == base + 5);
  }
}

TEST_CASE("programs of a part of a state read and write the whole's memory, and have fields of their own beside it") {
  State whole;
  Field* const w = whole.add("w", DType::float32, Shape{4, 64});
  for (std::int64_t i = 0; i < 256; ++i) w->view<float>().data()[i] = static_cast<float>(i);
  whole.add("other", DType::float32, Shape{3});
  State part;
  part.refer("w", DType::float32, Shape{2, 64}, w->view<float>().data() + 128);
  part.add("own", DType::float32, Shape{3});
  graph::cuda::DeviceState device(cuda_context().stream(), whole), of_part(part, device);
  CHECK(of_part.data("w") == device.data("w") + 512);
  CHECK(&of_part.twin("w") == &device.twin("w"));
  static_cast<void>(of_part.copied_twin("w"));
  CHECK(of_part.copied("w") == device.copied("w") + 256);
  of_part.to_device();  // what the host wrote into the whole
  CHECK(static_cast<float const*>(device.read("w"))[200] == 200);

  auto const* own = static_cast<float const*>(of_part.read("own"));
  CHECK((own[0] == 0 && own[1] == 0 && own[2] == 0));
  float const given[]{1, 2, 3};
  of_part.write("own", given);
  own = static_cast<float const*>(of_part.read("own"));
  CHECK((own[0] == 1 && own[2] == 3));

  // Added in the part, seen in the whole by the host and in its copy.
  Builder builder;
  Var const p = builder.state("w", Shape{2, 64});
  builder.update(p, p + 1.0);
  Program const adds = compiled(builder.graph());
  graph::cuda::Executor executor(cuda_blas(), adds, of_part);
  device.twin("w").copy_is_old = false;
  executor.run();
  CHECK(device.twin("w").copy_is_old);
  device.to_host();
  CHECK(w->view<float>().data()[127] == 127);
  CHECK(w->view<float>().data()[128] == 129);
  CHECK(w->view<float>().data()[255] == 256);
}

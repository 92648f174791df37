// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Whole training steps: against the interpreter, over ranks, accumulated, without allocation.

// Covers: <tutti/graph/ports.hpp>
#include "graph/run_graph.hpp"
#include "graph/small_gpt.hpp"

#include <tutti/graph/custom.hpp>
#include <tutti/graph/executor.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <thread>

using namespace tutti;
using namespace tutti::graph;
using test::SmallPass;
using test::SmallSizes;

namespace {
std::atomic<std::int64_t> allocations{0};
}
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Working memory of kernels does not come from operator new.
#define TUTTI_TEST_COUNTS_MALLOC 1
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  ++allocations;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? 12 : 0;
}
}
#endif
// Not inlined, or GCC sees malloc paired with delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti::test {

Results run_executor(Graph const& graph, RunOptions const& options) {
  exec::Context context({.threads = options.threads, .ranks_on_node = 1, .isa = options.isa});
  Program const program = compile(graph, options.compile);
  State state(graph);
  ExecutorOptions settings;
  settings.poison = options.poison;
  settings.port = options.port;
  Executor executor(context, program, state, settings);
  set_state(graph, state, options);
  set_leaves(graph, executor, options);
  for (int i = 0; i < options.runs; ++i) executor.run();
  return results_of(program, executor, state);
}

/// With and without fusing and sharing, on 1, 2 and 3 threads, on every instruction set.
void check_graph(Graph const& graph, double tolerance, std::int64_t limit, int runs) {
  INFO(to_string(graph));
  for (exec::Isa isa : exec::all_isas) {
    if (!exec::available(isa)) continue;
    INFO(exec::name(isa));
    RunOptions options;
    options.isa = isa;
    options.limit = limit;
    options.runs = runs;
    Results const results = run_executor(graph, options);
    check_against_interpreter(graph, results, options, tolerance);
    for (int threads : {2, 3}) {
      options.threads = threads;
      CHECK((run_executor(graph, options) == results));
    }
    options.threads = 1;
    options.compile.fuse = false;
    check_against_interpreter(graph, run_executor(graph, options), options, tolerance);
  }
  RunOptions plain;
  plain.compile = {false, false, 1 << 20};
  plain.limit = limit;
  plain.runs = runs;
  plain.poison = false;
  check_against_interpreter(graph, run_executor(graph, plain), plain, tolerance);
}

}  // namespace tutti::test

namespace {

/// Ranks that are threads of this process. A collective is done by whoever finds all ranks' memory, at a test or a
/// wait.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}
  struct Job {
    std::vector<void*> memory;
    int arrived = 0;
    bool done = false;
  };
  int ranks() const { return ranks_; }
  std::uint64_t arrive(int rank, std::uint64_t number, void* data, std::int64_t count, DType dtype, comm::PortOp op) {
    std::lock_guard const lock(mutex_);
    if (jobs_.size() <= number) jobs_.resize(number + 1);
    Job& job = jobs_[number];
    job.memory.resize(static_cast<std::size_t>(ranks_));
    job.memory[static_cast<std::size_t>(rank)] = data;
    if (++job.arrived < ranks_) return number;
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (void* memory : job.memory) sum += generic::number_at(dtype, static_cast<std::byte*>(memory), i);
      if (op == comm::PortOp::avg) sum /= ranks_;
      for (void* memory : job.memory) generic::store_number(dtype, static_cast<std::byte*>(memory), i, sum);
    }
    job.done = true;
    return number;
  }
  bool done(std::uint64_t number) {
    std::lock_guard const lock(mutex_);
    return jobs_[number].done;
  }

 private:
  int ranks_;
  std::mutex mutex_;
  std::deque<Job> jobs_;
};

class MeetingPort final : public comm::Port {
 public:
  MeetingPort(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return meeting_.ranks(); }
  Ticket start_all_reduce(void* data, std::int64_t count, DType dtype, comm::PortOp op, std::source_location) override {
    counts.push_back(count);
    return meeting_.arrive(rank_, next_++, data, count, dtype, op);
  }
  Ticket start_broadcast(void*, std::int64_t, DType, int, std::source_location) override {
    throw Error(ErrorKind::unavailable, "MeetingPort", "broadcast");
  }
  Ticket start_all_gather(void const*, void*, std::int64_t, DType, std::source_location) override {
    throw Error(ErrorKind::unavailable, "MeetingPort", "all_gather");
  }
  Ticket start_reduce_scatter(void const*, void*, std::int64_t, DType, comm::PortOp, std::source_location) override {
    throw Error(ErrorKind::unavailable, "MeetingPort", "reduce_scatter");
  }
  Ticket start_all_to_all(void const*, void*, std::int64_t, DType, std::source_location) override {
    throw Error(ErrorKind::unavailable, "MeetingPort", "all_to_all");
  }
  Ticket start_send(void const*, std::int64_t, int, int, std::source_location) override {
    throw Error(ErrorKind::unavailable, "MeetingPort", "send");
  }
  Ticket start_receive(void*, std::int64_t, int, int, std::source_location) override {
    throw Error(ErrorKind::unavailable, "MeetingPort", "receive");
  }
  bool test(Ticket ticket) override { return meeting_.done(ticket); }
  void wait(Ticket ticket) override {
    while (!meeting_.done(ticket)) std::this_thread::yield();
  }
  void cancel(Ticket) noexcept override { ++cancelled; }
  void* allocate(std::size_t bytes) override {
    allocated += static_cast<std::int64_t>(bytes);
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void release(void* memory) noexcept override { std::free(memory); }

  std::vector<std::int64_t> counts;
  std::int64_t allocated = 0;
  int cancelled = 0;

 private:
  Meeting& meeting_;
  int rank_;
  std::uint64_t next_ = 0;
};

}  // namespace

TEST_CASE("loss, gradients and a whole training step of a GPT agree with the interpreter") {
  for (std::int64_t layers : {1, 2}) {
    SmallSizes sizes;
    sizes.layers = layers;
    for (SmallPass pass : {SmallPass::loss, SmallPass::gradients, SmallPass::whole}) {
      test::RunOptions options;
      options.limit = sizes.vocabulary;
      Graph const graph = test::small_graph(sizes, pass);
      options.threads = 2;
      auto const results = test::run_executor(graph, options);
      // AdamW divides by the root of v: where the random v is tiny, rounding of the gradient is magnified.
      test::check_against_interpreter(graph, results, options, pass == SmallPass::whole ? 2e-3 : 2e-4);
      for (exec::Isa isa : exec::all_isas) {
        if (!exec::available(isa)) continue;
        options.isa = isa;
        options.threads = 1;
        auto const one = test::run_executor(graph, options);
        options.threads = 3;
        CHECK((test::run_executor(graph, options) == one));
        test::check_against_interpreter(graph, one, options, pass == SmallPass::whole ? 2e-3 : 2e-4);
      }
    }
  }
}

TEST_CASE("training lowers the loss, and two runs are bitwise equal") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole);
  Program const program = compile(graph);
  std::vector<std::vector<double>> losses;
  std::vector<test::Results> states;
  for (int threads : {1, 2, 3}) {
    exec::Context context({.threads = threads, .ranks_on_node = 1, .isa = exec::best_isa()});
    State state(graph);
    state.initialise(3);
    Executor executor(context, program, state);
    std::vector<double> all;
    for (int step = 1; step <= 20; ++step) {
      test::set_batch(executor, sizes, 1, step);
      executor.run();
      all.push_back(executor.value("loss"));
    }
    losses.push_back(all);
    states.push_back(test::fields_of(state));
  }
  CHECK(losses[0].back() < 0.7 * losses[0].front());
  CHECK(losses[1] == losses[0]);
  CHECK((states[1] == states[0]));
  CHECK(losses[2] == losses[0]);
  CHECK((states[2] == states[0]));
}

TEST_CASE("a run allocates nothing") {
  SmallSizes sizes;
  for (bool fuse : {true, false}) {
    Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
    Program const program = compile(graph, {fuse, true, 1 << 12});
    for (int threads : {1, 2}) {
      exec::Context context({.threads = threads, .ranks_on_node = 1, .isa = exec::best_isa()});
      State state(graph);
      state.initialise(1);
      Executor executor(context, program, state);
      test::set_batch(executor, sizes, 0, 1);
      executor.run();
      std::int64_t const before = allocations;
      for (int i = 0; i < 3; ++i) executor.run();
      std::int64_t const after = allocations;
      CHECK(after - before == 0);
#ifdef TUTTI_TEST_COUNTS_MALLOC
      std::free(std::aligned_alloc(64, 128));
      CHECK(allocations > after);  // it is seen
#endif
    }
  }
}

TEST_CASE("ranks that average gradients train as the interpreter's ranks do, and stay bitwise equal") {
  SmallSizes sizes;
  for (std::int64_t bucket : {1, 4096, 1 << 22})
    for (bool share : {true, false}) {
      Graph const graph = test::small_graph(sizes, SmallPass::gradients, true);
      Meeting meeting(2);
      std::vector<test::Results> results(2);
      std::vector<std::thread> ranks;
      std::vector<std::vector<std::int64_t>> counts(2);
      for (int rank = 0; rank < 2; ++rank)
        ranks.emplace_back([&, rank] {
          MeetingPort port(meeting, rank);
          test::RunOptions options;
          options.limit = sizes.vocabulary;
          options.port = &port;
          options.salt = static_cast<std::uint64_t>(rank);
          options.compile = {true, share, bucket};
          options.runs = 2;
          options.poison = rank == 0;
          results[static_cast<std::size_t>(rank)] = test::run_executor(graph, options);
          counts[static_cast<std::size_t>(rank)] = port.counts;
        });
      for (std::thread& rank : ranks) rank.join();
      CHECK((results[0] == results[1]));
      CHECK(counts[0] == counts[1]);
      CHECK(counts[0].size() > 0);
      test::RunOptions options;
      options.limit = sizes.vocabulary;
      test::check_against_interpreter(graph, results[0], options, 2e-4, 2, 0);
    }
}

TEST_CASE("without a port a program for many ranks runs alone, and gives what it gives without reductions") {
  SmallSizes sizes;
  test::RunOptions options;
  options.limit = sizes.vocabulary;
  auto const alone = test::run_executor(test::small_graph(sizes, SmallPass::whole), options);
  auto const reduced = test::run_executor(test::small_graph(sizes, SmallPass::whole, true), options);
  CHECK((alone == reduced));
}

TEST_CASE("buckets live in the communicator's memory, and an error in a kernel cancels what is in flight") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
  Program const program = compile(graph, {true, true, 1});
  Meeting meeting(2);
  MeetingPort port(meeting, 0);
  exec::Context context({.threads = 1, .ranks_on_node = 1, .isa = exec::best_isa()});
  State state(graph);
  state.initialise(1);
  ExecutorOptions options;
  options.port = &port;
  Executor executor(context, program, state, options);
  CHECK(port.allocated == program.plan.communicator_bytes);
  test::set_batch(executor, sizes, 0, 1);
  std::vector<std::int32_t> bad(static_cast<std::size_t>(sizes.batch * sizes.tokens), 0);
  bad[3] = static_cast<std::int32_t>(sizes.vocabulary) + 100;
  executor.set("tokens", TensorView<std::int32_t const>(bad.data(), {sizes.batch, sizes.tokens}));
  REQUIRE_ERROR(executor.run(), ErrorKind::out_of_range, "");
  CHECK(port.cancelled == static_cast<int>(port.counts.size()));
}

TEST_CASE("accumulated micro-steps give the gradient of the whole batch, and the first one needs no cleared sums") {
  SmallSizes sizes;
  int const micro = 3;
  Graph const graphs[] = {test::small_graph(sizes, SmallPass::first, false, micro),
                          test::small_graph(sizes, SmallPass::middle, false, micro),
                          test::small_graph(sizes, SmallPass::last, true, micro)};
  Program const programs[] = {compile(graphs[0]), compile(graphs[1]), compile(graphs[2])};
  Program const* const all[] = {&programs[0], &programs[1], &programs[2]};
  auto const train = [&](int threads) {
    exec::Context context({.threads = threads, .ranks_on_node = 1, .isa = exec::best_isa()});
    State state;
    for (Graph const& graph : graphs) state.add(graph);
    state.initialise(5);
    for (Field& field : state.fields())
      if (field.name.rfind("sum.", 0) == 0)
        std::fill_n(static_cast<float*>(field.data()), field.shape.size(), std::nanf(""));
    ExecutorOptions options;
    options.workspace = Workspace::of(all);
    Executor first(context, programs[0], state, options), middle(context, programs[1], state, options),
        last(context, programs[2], state, options);
    for (int step = 1; step <= 2; ++step)
      for (int m = 0; m < micro; ++m) {
        Executor& executor = m == 0 ? first : m + 1 < micro ? middle : last;
        test::set_batch(executor, sizes, static_cast<unsigned>(step * 10 + m), step);
        executor.run();
      }
    return std::pair{test::fields_of(state), last.value("norm")};
  };
  auto const [fields, norm] = train(1);
  auto const again = train(2);
  CHECK((again.first == fields));
  CHECK(again.second == norm);
  CHECK(std::isfinite(norm));
  for (auto const& [name, bytes] : fields)
    for (std::size_t i = 0; i < bytes.size() / 4; ++i) {
      INFO(name);
      REQUIRE(std::isfinite(reinterpret_cast<float const*>(bytes.data())[i]));
    }

  // The same three batches as one, by hand: averaged gradients of three runs.
  Graph const gradients = test::small_graph(sizes, SmallPass::gradients);
  Program const program = compile(gradients);
  exec::Context context({.threads = 1, .ranks_on_node = 1, .isa = exec::best_isa()});
  State state;
  state.add(graphs[0]);
  state.add(gradients);
  state.initialise(5);
  Executor executor(context, program, state), first(context, programs[0], state), middle(context, programs[1], state);
  std::map<std::string, std::vector<double>> sums;
  for (int m = 0; m < micro; ++m) {
    test::set_batch(executor, sizes, static_cast<unsigned>(m), 1);
    executor.run();
    for (Entry const& entry : program.list.outputs) {
      auto const values = executor.output<float>(entry.name).elements();
      auto& sum = sums[entry.name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += double{values[i]} / micro;
    }
    Executor& accumulate = m == 0 ? first : middle;
    test::set_batch(accumulate, sizes, static_cast<unsigned>(m), 1);
    accumulate.run();
  }
  for (Field const& field : state.fields()) {
    if (field.name.rfind("sum.", 0) != 0) continue;
    auto const& expected = sums.at("gradient." + field.name.substr(4));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO(field.name << " " << i);
      REQUIRE(std::abs(static_cast<float const*>(field.data())[i] - expected[i]) <= 1e-5);
    }
  }
}

TEST_CASE("inputs and outputs are checked by name, type and shape") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::loss);
  Program const program = compile(graph);
  exec::Context context({.threads = 1, .ranks_on_node = 1, .isa = exec::best_isa()});
  State state(graph), empty;
  REQUIRE_ERROR(Executor(context, program, empty), ErrorKind::invalid_argument, "wte");
  Executor executor(context, program, state);
  std::vector<float> floats(100);
  std::vector<std::int32_t> words(100);
  REQUIRE_ERROR(executor.run(), ErrorKind::invalid_argument, "never set");
  REQUIRE_ERROR(executor.set("token", 1.0), ErrorKind::invalid_argument, "tokens, targets");
  REQUIRE_ERROR(executor.set("tokens", TensorView<float const>(floats.data(), {2, 7})), ErrorKind::dtype, "int32");
  REQUIRE_ERROR(executor.set("tokens", TensorView<std::int32_t const>(words.data(), {2, 8})), ErrorKind::shape,
                "(2, 7)");
  REQUIRE_ERROR(executor.set("tokens", 0.5), ErrorKind::dtype, "none is 0.5");
  REQUIRE_ERROR(executor.set("tokens", std::int64_t{1} << 31), ErrorKind::dtype, "none is 2147483648");
  REQUIRE_ERROR(executor.set("tokens", ~0u), ErrorKind::dtype, "none is 4294967295");
  REQUIRE_ERROR(executor.run(), ErrorKind::invalid_argument, "'tokens' was never set");  // none of these counts
  REQUIRE_ERROR(executor.value("los"), ErrorKind::invalid_argument, "loss");
  ExecutorOptions options;
  options.workspace = tutti::make_shared_owner<Workspace>(64, 0);
  REQUIRE_ERROR(Executor(context, program, state, options), ErrorKind::invalid_argument, "workspace");
  Program other = compile(graph);
  Program const moved = std::move(other);
  REQUIRE_ERROR(Executor(context, other, state), ErrorKind::invalid_argument, "(executor.cpp:");
  REQUIRE_ERROR(Executor(context, other, state), ErrorKind::invalid_argument, "the program is empty");
}

TEST_CASE("an empty input is set by a number, and whole numbers are rounded once") {
  Builder b;
  b.output("y", b.input("x", DType::float32, {0}) + 1.0);
  b.output("z", b.input("w", DType::float32, {}) + 0.0);
  Graph const graph = b.graph();
  Program const program = compile(graph);
  exec::Context context({.threads = 1, .ranks_on_node = 1, .isa = exec::best_isa()});
  State state(graph);
  Executor executor(context, program, state);
  std::int64_t const large = (std::int64_t{1} << 54) + (1 << 30) + 1;
  executor.set("x", 0.5);
  executor.set("w", large);
  executor.run();
  CHECK(executor.output<float>("y").size() == 0);
  CHECK(executor.value("z") == double{static_cast<float>(large)});
}

TEST_CASE("the profile counts every kind of step") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole);
  Program const program = compile(graph);
  exec::Context context({.threads = 1, .ranks_on_node = 1, .isa = exec::best_isa()});
  State state(graph);
  state.initialise(1);
  ExecutorOptions options;
  options.profile = true;
  Executor executor(context, program, state, options);
  test::set_batch(executor, sizes, 0, 1);
  executor.run();
  CHECK(executor.profile().size() == program.list.steps.size());
  for (char const* part : {"gemm", "attention_gradient", "adamw"})
    CHECK(test::contains(executor.profile().table(), part));
  for (std::size_t s = 0; s < executor.profile().size(); ++s) CHECK(executor.profile().nanoseconds(s) >= 0);
  CHECK_FALSE(Executor(context, program, state).profile().measures());
  CHECK(executor.waited_ns() == 0);
}

namespace {

/// Adds x to a total that it keeps, and gives the total.
struct Accumulate {
  static constexpr std::string_view name = "accumulate";
  static constexpr std::uint32_t updates = 1u << 1;
  static constexpr Type type(OperandTypes const& in) { return in[0]; }
  static naive::Values reference(naive::Call const& call) {
    naive::Values total = call.in(1);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += call.in(0)[i];
    return total;
  }
  static void run(exec::Context&, CustomArguments const& args) {
    auto* const total = reinterpret_cast<float*>(args.operands[1].data);
    for (std::int64_t i = 0; i < args.result.shape.size(); ++i)
      args.out<float>().data()[i] = total[i] += args.in<float>(0).data()[i];
  }
};

}  // namespace

TEST_CASE("an operation changes a state in place, and is refused where something else uses that state") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3}), total = b.state("total", {3});
  b.output("y", custom<Accumulate>({x, total}) * 2.0);
  Graph const graph = canonical(b.graph());
  Program const program = compile(graph);
  State state(graph);
  exec::Context context({.threads = 1});
  Executor executor(context, program, state);
  float const values[] = {1, 2, 3};
  executor.set("x", TensorView<float const>(values, {3}));
  executor.run();
  executor.run();
  CHECK(executor.output<float>("y")(2) == 12.0f);
  CHECK(state["total"](1) == 4.0f);

  REQUIRE_ERROR(custom<Accumulate>({x, x}), ErrorKind::invalid_argument, "must be a state");
  b.output("seen", total + 1.0);
  REQUIRE_ERROR(compile(canonical(b.graph())), ErrorKind::invalid_argument, "state 'total' in place");
  Builder twice;
  Var const z = twice.input("x", DType::float32, {3}), kept = twice.state("total", {3});
  twice.output("y", custom<Accumulate>({z, kept}));
  twice.update(kept, z);
  REQUIRE_ERROR(compile(canonical(twice.graph())), ErrorKind::invalid_argument, "state 'total' in place");
}

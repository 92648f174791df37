// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Says before a run what it will need: memory, traffic, time and tokens a second of a model's layouts on a cluster.
//   tutti_plan --model d48 --compute bfloat16 --cluster h100.json --batch 16 --sequence 1024
//   tutti_plan --backend threads --ranks 2 --measure machine.json --layers 4 --channels 192 --heads 6
//   tutti_plan --cluster machine.json --layout d=2,t=1 --svg step.svg

#include <tutti/backend/any.hpp>
#include <tutti/plan.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/model_choice.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace tutti;

namespace {

struct Arguments {
  train::Options options;
  std::string cluster, times, measure, svg;
  std::vector<std::string> layouts;
  int zero = 1, runs = 10;
  std::size_t rows = 12;
  bool pipelines = false, json = false;
};

void declare(CLI::App& app, Arguments& a) {
  static std::set<std::string> const wanted{
      "model",        "architecture", "layers",   "channels",  "heads",   "vocabulary",        "kv-heads",
      "hidden",       "untied",       "batch",    "sequence",  "optimizer", "momentum", "total-tokens", "clip",
      "compute",      "dropout",      "compress", "recompute", "keep-packed", "threads", "ranks",    "backend",
      "replicas-per-rank", "sequence-parallel"};
  train::for_each_flag(a.options, [&]<class T>(train::Flag const& flag, T& value, auto const& may) {
    if (!wanted.contains(flag.name)) return;
    std::string const names = concat("--", flag.name);
    if constexpr (std::is_same_v<T, bool>) app.add_flag(names, value, flag.help);
    else if constexpr (std::is_same_v<T, std::string>) app.add_option(names, value, flag.help);
    else if constexpr (requires { train::add_setting(app, names, value, may, flag.help); })
      train::add_setting(app, names, value, may, flag.help);
  });
  app.add_option("--cluster", a.cluster,
                 "description of the machines, a JSON file; docs/guides/planning.md has the keys");
  app.add_option("--layout", a.layouts, "d=2,t=4,p=2,zero=1,micro=8: this one alone; may be given several times")
      ->take_all();
  app.add_option("--times", a.times,
                 "measured times of steps: a description of --measure, or the trace of train_gpt2 --profile (default: "
                 "those in --cluster, where it has some)");
  app.add_option("--measure", a.measure, "measure this machine with the ranks that were started, and write FILE");
  app.add_option("--svg", a.svg, "writes the best layout's step, or pipeline, as a picture");
  app.add_flag("--json", a.json, "a JSON object for each layout, a line each, and nothing else");
  app.add_flag("--pipelines", a.pipelines, "also search pipelines, of every schedule");
  train::add_setting(app, "--zero", a.zero, setting::Range<int>{0, 3}, "also search ZeRO's stages up to this one");
  train::add_setting(app, "--runs", a.runs, setting::Range<int>{1, 1000}, "of --measure, of each layout");
}

/// Everything a plan needs of a model, whatever its type.
template <class Config>
struct Model {
  Config const& config;
  plan::Work work;
};

/// The layout with the micro-steps, and the work with the sequences of each, in which the trainer would do
/// --total-tokens; both as they are without it. Errors: configuration, in the trainer's words.
std::pair<plan::Layout, plan::Work> divided(train::Options const& options, plan::Layout layout, plan::Work work) {
  work.options.sequence_parallel = work.options.sequence_parallel && layout.tensor > 1;
  if (options.total_tokens == 0) return {layout, work};
  train::Setup setup;
  setup.options = options;
  setup.options.sync_freq = layout.micro_steps > 1 ? layout.micro_steps : 0;
  train::detail::divide_batch(setup, layout.data);
  layout.micro_steps = setup.micro_steps;
  work.options.batch = work.options.evaluation_batch = setup.rows;
  return {layout, work};
}

/// What train_gpt2 would say against the layout; "": nothing.
std::string refused_by_trainer(train::Options options, plan::Layout const& layout) {
  options.tensor_parallel = layout.tensor, options.pipeline_parallel = layout.pipeline, options.zero = layout.zero;
  options.sequence_parallel = options.sequence_parallel && layout.tensor > 1;
  std::string said;
  train::detail::check_layout(options, [&](std::string_view flag, std::string const& text, std::string const& what) {
    if (said.empty()) said = concat("--", flag, text.empty() ? "" : " ", text, " ", what);
  });
  return said;
}

template <class Loss, class Config>
int plan_of(Arguments const& a, Model<Config> const& model) {
  plan::Cluster const cluster = plan::read_cluster(a.cluster);
  std::optional<plan::MeasuredSteps> measured;
  if (!a.times.empty()) measured = plan::MeasuredSteps::read(a.times);
  else if (io::parse_json(io::read_file(a.cluster), a.cluster).contains("measured"))
    measured = plan::MeasuredSteps::read(a.cluster);
  plan::MeasuredSteps const* const times = measured ? &*measured : nullptr;
  std::vector<plan::Prediction> found;
  static_cast<void>(divided(a.options, {}, model.work));  // --total-tokens can be a step's
  std::int64_t const total = a.options.total_tokens / a.options.sequence;
  std::int64_t const sequences = total > 0 ? total : a.options.batch * cluster.devices();
  for (std::string const& text : a.layouts) {
    plan::Layout const layout = plan::parse_layout(text);
    if (std::string const said = refused_by_trainer(a.options, layout); !said.empty())
      throw Error(ErrorKind::configuration, "tutti_plan", concat("layout '", text, "': ", said));
    auto const [fitted, work] = divided(a.options, layout, model.work);
    found.push_back(plan::predict<Loss>(model.config, work, fitted, cluster, times));
  }
  plan::sort_best_first(found);
  if (a.layouts.empty())
    found = plan::search<Loss>(model.config, model.work, cluster,
                               {.sequences = sequences,
                                .pipelines = a.pipelines,
                                .zero = a.zero,
                                .refuse = [&](plan::Layout const& one) { return refused_by_trainer(a.options, one); }},
                               times);
  if (a.json) {
    for (plan::Prediction const& one : found) std::fputs((plan::to_json(one).dump() + "\n").c_str(), stdout);
    return 0;
  }
  double const peak =
      model.work.options.compute == DType::bfloat16 ? cluster.device.bfloat16 : cluster.device.float32;
  std::set<std::int64_t> of_a_step;
  for (plan::Prediction const& one : found)
    of_a_step.insert(a.layouts.empty() || total > 0 ? sequences : one.batch * one.layout.micro_steps * one.layout.data);
  std::fputs(
      fmt::format("{}: {} nodes of {} devices; {} sequences of {} tokens a step\n\n", cluster.name, cluster.nodes,
                  cluster.devices_per_node, fmt::join(of_a_step, " or "), model.work.options.sequence)
          .c_str(),
      stdout);
  if (found.size() > 1) std::fputs((plan::table(found, a.rows) + "\n").c_str(), stdout);
  if (a.layouts.empty()) std::fputs((plan::explain(found) + "\n").c_str(), stdout);
  if (found.empty() || (found.front().refused.size() > 0 && found.front().seconds == 0)) return 1;
  plan::Prediction const& best = found.front();
  plan::Simulation picture;
  plan::Work work = model.work;
  work.options.batch = work.options.evaluation_batch = best.batch;
  work.options.recompute = best.recompute;
  static_cast<void>(plan::predict<Loss>(model.config, work, best.layout, cluster, times, &picture));
  std::fputs((plan::to_string(plan::rows_of(best, peak)) + "\n" + plan::timeline_text(picture)).c_str(), stdout);
  if (!a.svg.empty()) {
    io::write_file(a.svg, plan::timeline_svg(picture, concat(plan::to_string(best.layout), " on ", cluster.name)));
    std::fputs(concat("picture: ", a.svg, "\n").c_str(), stdout);
  }
  return best.refused.empty() ? 0 : 1;
}

/// Bytes of a rank that train_gpt2 has in memory beside what this program has, measured on Debian 12: its tables once a
/// process, and once on a node its code, that of libraries that only it needs (OpenSSL, behind cpp-httplib) and pages
/// of data. Of ranks that share memory some of it is what measuring sums has left there.
double beside_planner(plan::Place const& place) {
  return place.on_node == 1 ? 8.25e6 : 1e6 / place.of_process + 1.5e6 / place.on_node;
}

/// Ranks: all.
template <class Loss, class Config>
int measure(plan::Place const& place, Arguments const& a, Model<Config> const& model) {
  int const ranks = place.everyone->size();
  exec::Context context({.threads = a.options.threads, .ranks_on_node = place.on_node});
  plan::Cluster cluster = plan::measure_machine(context, place);
  cluster.shared_state = cluster.shared_state && !a.options.replicas_per_rank;
  plan::MeasuredSteps measured;
  std::vector<std::string> layouts = a.layouts;
  if (layouts.empty())
    for (int tensor = 1; tensor <= ranks; ++tensor)
      if (ranks % tensor == 0) layouts.push_back(concat("d=", ranks / tensor, ",t=", tensor));
  for (std::string const& text : layouts) {
    auto const [layout, work] = divided(a.options, plan::parse_layout(text), model.work);
    try {
      plan::Measurement const one =
          plan::measure_steps<Loss>(context, model.config, work, layout, cluster, a.runs, place.of_process,
                                    [&](double x) { return parallel::largest(*place.everyone, x); });
      measured.merge(one.steps);
      cluster.process_memory = std::max(cluster.process_memory, one.beside + beside_planner(place));
    } catch (Error const& error) {
      if (!a.layouts.empty()) throw;
      if (place.everyone->rank() == 0)
        std::fprintf(stderr, "%s is left out: %s\n", text.c_str(), error.message().c_str());
    }
  }
  plan::measure_messages(cluster, place);
  if (place.everyone->rank() != 0) return 0;
  nlohmann::json json = plan::to_json(cluster);
  json["measured"] = measured.to_json();
  io::write_file(a.measure, json.dump(1) + "\n");
  std::fputs(concat(a.measure, ": ", measured.size(), " kinds of steps measured\n").c_str(), stdout);
  return 0;
}

/// Calls f(place) on every rank. Once for all models: each backend is compiled once.
int started(Arguments const& a, char** argv, std::function<int(plan::Place const&)> const& f) {
  std::string ranks = concat("--ranks=", a.options.ranks);
  char* words[] = {argv[0], ranks.data(), nullptr};
  return with_backend(a.options.backend.text(), a.options.ranks > 0 ? 2 : 1, words, [&](auto& communicator) {
    return f(plan::place_of(communicator));
  });
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Memory, traffic, time and tokens a second of a model's layouts on a cluster.", "tutti_plan"};
  declare(app, a);
  if (auto const code = train::parse_flags(app, argc, argv)) return *code;
  bool const speaks = comm::announced_rank() <= 0;
  try {
    for (auto const* option : app.get_options())
      if (option->count() > 0) a.options.given.insert(option->get_lnames().empty() ? "" : option->get_lnames().front());
    a.options.typed = a.options.given;
    if (a.cluster.empty() == a.measure.empty())
      throw Error(ErrorKind::configuration, "tutti_plan",
                  "one of --cluster, the machines of the plan, and --measure is needed");
    train::Setup setup;
    setup.options = a.options;
    setup.rows = a.options.batch;
    train::ModelChoice const choice = train::choose_model(setup);
    return std::visit(
        [&]<class Config>(Config const& config) {
          using Loss = decltype(train::detail::loss_of(config));
          Model<Config> const model{config, plan::work_of(setup)};
          if (!a.measure.empty()) {
            return started(a, argv, [&](plan::Place const& place) { return measure<Loss>(place, a, model); });
          }
          return plan_of<Loss>(a, model);
        },
        choice.config);
  } catch (std::exception const& error) {
    auto const* const known = dynamic_cast<Error const*>(&error);
    if (speaks) std::fprintf(stderr, "tutti_plan: %s\n", known != nullptr ? known->message().c_str() : error.what());
    return 2;
  }
}

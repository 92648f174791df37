// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A run of a model as a shepherd leads it: what tutti_shepherd does.

#include <tutti/federate/global_model.hpp>
#include <tutti/federate/rpc/command_line.hpp>
#include <tutti/train/model_choice.hpp>
#include <tutti/train/optimizer_choice.hpp>
#include <tutti/train/process_use.hpp>
#include <tutti/train/run_outputs.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/signals.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace tutti::federate {

/// One object for one run of `operator()`.
class ModelShepherd {
 public:
  /// Errors: configuration, io, format: what is wrong with the settings, the data or the folder.
  explicit ModelShepherd(ShepherdCommand command)
      : command_(std::move(command)),
        setup_(setup_of(command_, choice_)),
        program_(program_of(command_, setup_, choice_)),
        model_(setup_, program_, choice_.initial) {
    choice_.initial = nullptr;  // and the file that it may read
    Facts facts;
    facts.parameters = static_cast<std::int64_t>(model_.parameters().size());
    facts.bits = program_.bits;
    facts.fragments = model_.fragments();
    facts.mix = command_.mix;
    facts.batch = setup_.options.batch;
    facts.sequence = setup_.options.sequence;
    facts.samples = setup_.steps * setup_.global_rows;
    facts.program = to_text(program_);
    if (facts.program.size() > detail::longest_program)
      throw Error(ErrorKind::configuration, "federate",
                  concat("--model ", setup_.options.model, " is described by ", facts.program.size(),
                         " bytes, and workers take ", detail::longest_program,
                         ". Pass large constants of the module as parameters"));
    clear_finished();  // now that nothing is refused any more
    facts_ = facts;
    shepherd_.emplace(command_.at, facts, command_.policy, model_,
                      ShepherdCallbacks{.listening = [this](int port) { announce(port); },
                                        .round = [this](RoundReport const& report) { tell(report); },
                                        .worker = [this](WorkerEvent event, std::uint64_t worker,
                                                         std::string const& why) { tell(event, worker, why); },
                                        .stop = [this] { return heed(); }});
  }

  /// Blocking. Returns whether the run is complete; else it was stopped, and may go on.
  bool operator()(train::Viewers const& viewers = {}) {
    std::int64_t const done = shepherd_->core().round();
    train::Options const& o = setup_.options;
    outputs_.open({.out = o.out,
                   .resumed = done > 0 ? done : -1,
                   .tensorboard = o.tensorboard,
                   .dashboard = o.dashboard,
                   .dashboard_port = o.dashboard_port},
                  viewers);
    train::StopSignals const signals(!outputs_.drawn());
    began_ = clock_now();
    bool complete = false;
    try {
      complete = shepherd_->run();
      finish(complete);
    } catch (std::exception const& error) {
      try {
        outputs_.record(
            {{"type", "end"}, {"step", shepherd_->core().round()}, {"reason", "error"}, {"error", error.what()}});
      } catch (std::exception const&) {  // a full disk, say: the first failure is the one to tell of
      }
      throw;
    }
    return complete;
  }

 private:
  static train::Setup setup_of(ShepherdCommand const& command, train::ModelChoice& choice) {
    train::Options options = command.train;
    options.backend = train::BackendName::threads;
    options.overwrite = true;  // whose folder it is, clear_finished decides
    options.sync_freq = 0, options.total_tokens = 0, options.ranks = 0;
    int const workers = static_cast<int>(command.policy.workers);
    train::Setup made = train::make_setup(std::move(options), workers, [&](train::Setup& setup) {
      choice = train::choose_model(setup);
    });
    train::require_batch(made, choice, workers);
    if (made.train->sets() > 1)
      throw Error(ErrorKind::unavailable, "federate",
                  "--data " + made.options.data + " is a mixture, and workers read one set. Name one");
    if (made.train->leaves_out_targets())
      throw Error(ErrorKind::unavailable, "federate",
                  "--data " + made.options.data + " leaves out targets, by a mask beside it or by --pack, and workers "
                  "count samples, not targets. Learn from every token, or use ./tutti train");
    return made;
  }
  static Program program_of(ShepherdCommand const& command, train::Setup const& setup,
                                train::ModelChoice const& choice) {
    data::TokenCorpus const& corpus = setup.train->corpus();
    return {.model = choice.config,
            .options = setup.options,
            .steps = setup.steps,
            .samples_per_step = setup.global_rows,
            .data_hash = train::to_hex(hash_corpus(corpus)),
            .tokenizer_hash = setup.tokenizer ? train::detail::hash_text(setup.tokenizer->text) : std::string(),
            .data_tokens = corpus.tokens(),
            .outer_learning_rate = command.outer.learning_rate,
            .outer_momentum = command.outer.momentum,
            .bits = command.bits,
            .fragments = static_cast<int>(command.fragments)};
  }
  /// Another run's checkpoints must not be mixed with this one's.
  void clear_finished() {
    std::string const& out = setup_.options.out;
    bool const began = io::folder_exists(command_.at.folder);
    if (command_.train.overwrite) {
      train::remove_checkpoints(out);
      std::filesystem::remove_all(command_.at.folder);
    } else if (!began && !train::detail::complete_steps(out).empty())
      throw Error(
          ErrorKind::configuration, "federate",
          "--out " + out + " holds checkpoints of another run. Choose another --out, or --overwrite to remove them");
  }

  std::int64_t tokens(std::int64_t samples) const noexcept { return samples * facts_.sequence; }
  /// As the trainer counts: of so many samples as all workers take in a step.
  std::int64_t steps(std::int64_t samples) const noexcept { return samples / setup_.global_rows; }

  void announce(int port) {
    ShepherdCore const& core = shepherd_->core();
    // For who starts workers beside it: the port may have been any.
    io::write_file(command_.at.folder + "/address", command_.at.host + ":" + std::to_string(port) + "\n");
    outputs_.table(
        {{"listening",
          fmt::format("{}:{}, {}", command_.at.host, port,
                      command_.at.key.empty() ? "workers of this machine, without a key" : "workers with the key")},
         {"model", fmt::format("{}: {}, {} parameters", setup_.model.origin, setup_.model.sizes,
                               train::with_commas(facts_.parameters))},
         {"data", fmt::format("{}: {} tokens", setup_.options.data, train::with_commas(program_.data_tokens))},
         {"run", fmt::format("{} samples of {} tokens, {:.2f} passes over the data", train::with_commas(facts_.samples),
                             facts_.sequence, setup_.train->epochs_at(setup_.steps))},
         {"inner",
          fmt::format("{}; {} schedule with peak {:.3g}, batch {} x {}, {} steps a round on average",
                      train::optimizer_of(setup_.options).describe(), setup_.options.schedule.text(),
                      setup_.options.learning_rate, facts_.batch, facts_.sequence, command_.policy.inner_steps)},
         {"outer", fmt::format("Nesterov, rate {}, momentum {}, gradients as {}: {} a worker and round{}",
                               program_.outer_learning_rate, program_.outer_momentum, command_.bits.text(),
                               train::human_bytes(static_cast<double>(facts_.gradient_bytes(0))),
                               facts_.streams() ? fmt::format(", of one of {} fragments, every {} steps",
                                                              facts_.fragment_count(),
                                                              command_.policy.inner_steps / facts_.fragment_count())
                                                : std::string())},
         {"workers", fmt::format("waits for {}", command_.policy.workers)},
         {"out", setup_.options.out}});
    for (std::string const& warning : setup_.warnings) outputs_.line("WARNING: " + warning);
    if (core.round() > 0)
      outputs_.line(fmt::format("goes on after outer step {}, with {} of {} samples", core.round(),
                                core.ledger().committed(), facts_.samples));
    outputs_.record(
        {{"type", "start"},
         {"step", core.round()},
         {"port", port},
         {"parameters", facts_.parameters},
         {"samples", facts_.samples},
         {"workers", command_.policy.workers},
         {"model", setup_.model.json},
         {"seed", setup_.options.seed},
         {"prompt", train::opening_prompt(setup_)}});
    shared_ = core.ledger().committed();
    told_ = clock_now();
    if (setup_.validation && core.round() == 0) model_.begin_validation(0);
  }
  void tell(RoundReport const& r) {
    Instant const now = clock_now();
    double const speed = static_cast<double>(tokens(r.committed - shared_)) / std::max(in_seconds(now - told_), 1e-9);
    shared_ = r.committed, told_ = now;
    std::int64_t const sent = shepherd_->bytes_sent(), received = shepherd_->bytes_received();
    outputs_.line(
        fmt::format("outer step {} ({:.1f} %): loss {:.4f}, {} of {} workers{}{}, {:.0f} tok/s, {} out, {} in", r.round,
                    100.0 * static_cast<double>(r.committed) / static_cast<double>(facts_.samples), r.loss, r.workers,
                    r.members, r.late > 0 ? fmt::format(" ({} late)", r.late) : std::string(),
                    r.trainers > r.members ? fmt::format(", {} train", r.trainers) : std::string(), speed,
                    train::human_bytes(static_cast<double>(sent)), train::human_bytes(static_cast<double>(received))));
    outputs_.record({{"type", "outer_step"},
                     {"step", r.round},
                     {"loss", r.loss},
                     {"workers", r.workers},
                     {"late", r.late},
                     {"members", r.members},
                     {"trainers", r.trainers},
                     {"samples", r.committed},
                     {"seconds", r.seconds},
                     {"training_seconds", r.training},
                     {"tokens_per_second", speed},
                     {"bytes_sent", sent},
                     {"bytes_received", received}});
    if (std::int64_t const every = setup_.options.checkpoint_every;
        every > 0 && r.round % every == 0 && r.committed < facts_.samples)
      save(r.round, r.committed);
    if (std::int64_t const every = setup_.options.validate_every;
        setup_.validation && every > 0 && r.round % every == 0 && r.committed < facts_.samples)
      model_.begin_validation(r.round);  // where the last one is not over, this one is left out
  }
  void tell(std::int64_t round, train::Validation const& found) {
    bool const bits = found.bits_per_byte > 0;
    outputs_.line(fmt::format("validation loss {:.4f}{}, after outer step {}", found.loss,
                              bits ? fmt::format(", {:.4f} bits per byte", found.bits_per_byte) : "", round));
    outputs_.record(
        {{"type", "validation"},
         {"step", round},
         {"loss", found.loss},
         {"bits_per_byte", bits ? train::RunOutputs::Json(found.bits_per_byte) : train::RunOutputs::Json()}});
  }
  void tell(WorkerEvent event, std::uint64_t worker, std::string const& why) {
    outputs_.line(fmt::format("worker {} {}{}{}", short_name(worker), name(event), why.empty() ? "" : ": ", why));
    outputs_.record({{"type", "worker"},
                     {"step", shepherd_->core().round()},
                     {"worker", train::to_hex(worker)},
                     {"event", name(event)},
                     {"why", why}});
  }
  /// Several times a second: does what watchers ask for, and shows how the workers are. Returns whether to stop.
  bool heed() {
    ShepherdCore const& core = shepherd_->core();
    outputs_.poll();
    if (auto const found = model_.validated(false)) tell(found->first, found->second);
    if (outputs_.paused() != paused_) shepherd_->pause(paused_ = outputs_.paused());
    for (std::string const& name : outputs_.take_drains())
      for (auto const& [worker, member] : core.members())
        if (train::to_hex(worker).ends_with(name) && !member.leaving) {
          outputs_.line("worker " + short_name(worker) + " is asked to deliver and leave");
          shepherd_->drain(worker);
        }
    if (outputs_.take_checkpoint() && !core.finished()) {
      if (core.round() > 0) save(core.round(), core.ledger().committed());
      else outputs_.line("no checkpoint: no outer step is done yet");
    }
    if (Instant const now = clock_now(); now - shown_ >= seconds(1)) {
      shown_ = now;
      show_workers();
    }
    return outputs_.stop();
  }
  static std::string short_name(std::uint64_t worker) { return fmt::format("{:04x}", worker & 0xffff); }
  void show_workers() {
    ShepherdCore const& core = shepherd_->core();
    if (std::int64_t const ready = core.ready(); !core.started() && std::exchange(ready_, ready) != ready)
      outputs_.line(fmt::format("{} of {} workers are ready", ready, command_.policy.workers));
    auto const tokens_per_step = static_cast<double>(facts_.batch * facts_.sequence);
    train::RunOutputs::Json list = train::RunOutputs::Json::array();
    bool training = false;
    for (auto const& [worker, member] : core.members()) {
      LinkUse const link = shepherd_->link_of(member);
      Lease const* const lease = member.lease == 0 ? nullptr : core.ledger().find(member.lease);
      training = training || lease != nullptr;
      std::string device = member.device;
      if (member.pace.workers > 1) device = fmt::format("{:.0f} workers: {}", member.pace.workers, device);
      train::RunOutputs::Json row{{"name", short_name(worker)}, {"device", device}, {"link", link.origin}};
      row["state"] = !member.peer ? "away" : member.leaving ? "draining" : name(member.state);
      if (lease != nullptr) row["step"] = member.step, row["steps"] = samples_of(lease->ranges) / facts_.batch;
      if (member.pace.speed > 0) row["tokens_per_second"] = member.pace.speed * tokens_per_step;
      if (member.peer) row["sent"] = link.sent, row["received"] = link.received;
      if (member.cpu >= 0) row["cpu"] = member.cpu;
      if (member.memory > 0) row["memory"] = member.memory;
      if (!member.settled.accepted && member.settled.lease != 0) row["note"] = "refused: " + member.settled.reason;
      list.push_back(std::move(row));
    }
    RoundProgress const round = core.progress();
    train::Registry& registry = outputs_.registry();
    registry.set("workers", std::move(list));
    registry.set("round", {{"delivered", round.delivered}, {"working", round.working}, {"quorum", round.quorum}});
    registry.set("traffic", {{"sent", shepherd_->bytes_sent()}, {"received", shepherd_->bytes_received()}});
    registry.set("machine", {{"cpu", use_.processors()},
                             {"memory", train::ProcessUse::memory()},
                             {"available", exec::available_memory()}});
    outputs_.phase(paused_ && !training ? "paused" : training ? "training" : "waiting for workers");
  }
  void save(std::int64_t round, std::int64_t samples) {
    if (std::exchange(saved_, round) == round) return;
    std::string const path = model_.save(steps(samples));
    outputs_.line("checkpoint " + path);
    outputs_.record({{"type", "checkpoint"}, {"step", round}, {"path", path}});
  }
  void finish(bool complete) {
    ShepherdCore const& core = shepherd_->core();
    std::int64_t const round = core.round();
    if (!complete) model_.stop_validation();
    else if (auto const found = model_.validated(true)) tell(found->first, found->second);
    if (!complete) {
      outputs_.line(fmt::format("stopped after outer step {}; the same command goes on from there", round));
    } else {
      outputs_.line(fmt::format("done: {} outer steps, every one of {} samples once, in {}", round,
                                train::with_commas(facts_.samples),
                                train::human_time(in_seconds(clock_now() - began_))));
      if (setup_.validation) tell(round, model_.validate());
      save(round, facts_.samples);
    }
    outputs_.record({{"type", "end"},
                     {"step", round},
                     {"reason", complete ? "done" : "stopped"},
                     {"seconds", in_seconds(clock_now() - began_)}});
  }

  ShepherdCommand command_;
  train::ModelChoice choice_;
  train::Setup setup_;
  Program program_;
  GlobalModel model_;
  Facts facts_;
  std::optional<Shepherd> shepherd_;
  train::RunOutputs outputs_;
  train::ProcessUse use_;
  Instant began_{0}, told_{0}, shown_{0};
  std::int64_t saved_ = -1;  // the latest round that a checkpoint has
  bool paused_ = false;
  std::int64_t shared_ = 0;  // samples, as last told
  std::int64_t ready_ = 0;   // workers, as last told, before the first have work
};

}  // namespace tutti::federate

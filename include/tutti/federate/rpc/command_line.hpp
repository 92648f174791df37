// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The flags of a shepherd and of a worker: their own, and those of the trainer that make sense for them.

#include <tutti/federate/policy.hpp>
#include <tutti/federate/rpc/relay.hpp>
#include <tutti/federate/rpc/shepherd.hpp>
#include <tutti/federate/rpc/worker.hpp>
#include <tutti/parallel/outer_optimizer.hpp>
#include <tutti/train/command_line.hpp>

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace tutti::federate {

struct ShepherdCommand {
  std::int64_t fragments = 1;
  double mix = 0.5;
  ShepherdOptions at;
  Policy policy;
  parallel::OuterOptions outer;
  setting::Choice<parallel::OuterBits> bits = parallel::OuterBits::float32;
  train::Options train;
};
struct WorkerCommand {
  WorkerOptions at;
  train::Options train;
  bool relays = false, trains = true;
  RelayOptions relay;
  bool has_relay_bits = false;  // else the shepherd's
  setting::Choice<parallel::OuterBits> relay_bits = parallel::OuterBits::float32;
};

/// What parsing came to: a command, or text to print and the exit code to leave with.
template <class Command>
struct ParsedCommand {
  Command command;
  bool leave = false;
  int code = 0;
  std::string text;
};

namespace detail {

/// Splits HOST:PORT; either may be left out. Errors: configuration.
inline void set_address(std::string const& text, std::string& host, int& port) {
  if (text.empty() || text.find_first_of(" \t") != text.npos)
    throw Error(ErrorKind::configuration, "federate",
                "--connect has an address that is empty or has a space in it: give HOST:PORT, or A:1,B:2");
  std::size_t const colon = text.rfind(':');
  bool const address6 = text.starts_with('[') ? text.find("]:") == text.npos : text.find(':') != colon;
  std::string const number = colon == text.npos || address6 ? std::string() : text.substr(colon + 1);
  if (std::string const name = number.empty() && colon != text.size() - 1 ? text : text.substr(0, colon); !name.empty())
    host = name;
  if (number.empty()) return;
  auto const [end, code] = std::from_chars(number.data(), number.data() + number.size(), port);
  if (code != std::errc{} || end != number.data() + number.size() || port < 1 || port > 65535)
    throw Error(ErrorKind::configuration, "federate", "--connect " + text + ": the port must be between 1 and 65535");
}

/// A setting of the trainer that this program has no use for was asked for. Errors: configuration.
inline void refuse_typed(train::Options const& options, std::set<std::string> const& unused, char const* program) {
  for (std::string const& flag : options.typed)
    if (unused.contains(flag))
      throw Error(ErrorKind::configuration, "federate", "--" + flag + " does nothing in " + program + ". Leave it out");
}
inline std::set<std::string> const& unused_by_all() {
  static std::set<std::string> const flags{"resume",
                                           "total-tokens",
                                           "sync-freq",
                                           "ranks",
                                           "backend",
                                           "device",
                                           "sample-every",
                                           "sample-tokens",
                                           "sample-prompt",
                                           "gradient-statistics",
                                           "no-final-checkpoint",
                                           "profile",
                                           "replicas-per-rank",
                                           "keep-packed",
                                           "autotune",
                                           "algorithm",
                                           "outer-overlap",
                                           "outer-mix",
                                           "async-checkpoint",
                                           "bucket-bytes",
                                           "offload-optimizer"};
  return flags;
}

/// Parses the program's own flags, and leaves the rest to the trainer's parser. `declare(app)` adds the own ones.
template <class Command, class Declare>
ParsedCommand<Command> parse_command(int argc, char const* const* argv, char const* name, char const* purpose,
                                     ParsedCommand<Command> parsed, Declare&& declare) {
  CLI::App app{purpose, name};
  app.set_help_flag("--help", "print this and leave");
  app.allow_windows_style_options(false);
  app.allow_extras();
  declare(app, parsed.command);
  for (CLI::Option* option : app.get_options()) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::vector<std::string> rest;
  try {
    std::vector<std::string> words = train::with_empty_values({argv + 1, argv + argc});
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
    rest = app.remaining();
  } catch (CLI::CallForHelp const&) {
    train::Options scratch;
    CLI::App trainer{
        "and of the trainer's flags, those that say what to train and from what; steps of --checkpoint-every and "
        "--validate-every are outer steps:"};
    trainer.set_help_flag();
    train::detail::declare(trainer, scratch);
    parsed.leave = true;
    parsed.text = app.help() + "\n" + trainer.help();
    return parsed;
  } catch (CLI::ParseError const& error) {
    parsed.leave = true;
    parsed.code = 2;
    parsed.text = std::string(name) + ": " + error.what() + "\nSee " + name + " --help for the flags.\n";
    return parsed;
  }
  if constexpr (requires { parsed.command.trains; })
    if (!parsed.command.trains) rest.insert(rest.begin(), {"--data", "none"});  // which the trainer's parser wants
  std::vector<char const*> left{name};
  for (std::string const& word : rest) left.push_back(word.c_str());
  train::Parsed const trained = train::parse(static_cast<int>(left.size()), left.data());
  parsed.command.train = trained.options;
  if (!trained.leave) return parsed;
  parsed.leave = true;
  parsed.code = trained.code;
  parsed.text = trained.text;
  return parsed;
}

inline void declare_connection(CLI::App& app, std::string& key, std::int64_t& rate_limit,
                               char const* sends = "this program sends at most") {
  app.add_option("--key", key,
                 "file with a key that shepherd and workers share; without one, only this machine's workers join");
  train::add_number(app, "--rate-limit", rate_limit,
                    std::string("bytes of tensors a second that ") + sends + "; 0: no limit")
      ->capture_default_str();
}
inline void add_seconds(CLI::App& app, char const* name, Instant& value, char const* help) {
  app.add_option_function<double>(
         name,
         [&value, name](double number) {
           if (!(number >= 0 && number <= 1e9))
             throw Error(ErrorKind::configuration, "federate",
                         std::string(name) + " must be between 0 and 1000000000 seconds");
           value = seconds(number);
         },
         help)
      ->default_str(std::to_string(static_cast<int>(in_seconds(value))));
}

}  // namespace detail

/// Errors: configuration, for values that cannot be.
inline ParsedCommand<ShepherdCommand> parse_shepherd(int argc, char const* const* argv) {
  auto parsed = detail::parse_command<ShepherdCommand>(
      argc, argv, "tutti_shepherd", "Leads workers, which train a model together over slow links.", {},
      [](CLI::App& app, ShepherdCommand& c) {
        using train::add_number;
        Policy& p = c.policy;
        app.add_flag("--shepherd")->description("this program is one");
        app.add_option("--host", c.at.host, "address to listen on")->capture_default_str();
        add_number(app, "--port", c.at.port, "port to listen on; 0: any that is free")->capture_default_str();
        add_number(app, "--workers", p.workers, "to wait for before the first round")->capture_default_str();
        add_number(app, "--inner-steps", p.inner_steps, "of a worker in a round, on average")->capture_default_str();
        c.outer.learning_rate = -1, p.staleness = -1;  // not said
        add_number(app, "--outer-learning-rate", c.outer.learning_rate, "of the outer step")
            ->default_str("0.7, with fragments 0.4");
        add_number(app, "--outer-momentum", c.outer.momentum, "Nesterov's, of the outer step")->capture_default_str();
        train::add_setting(app, "--outer-bits", c.bits, setting::Any{},
                           "of outer gradients on their way: float32, bfloat16, int8 or int4");
        add_number(
            app, "--fragments", c.fragments,
            "into which the parameters are divided; each is averaged at times of its own, while training goes on")
            ->capture_default_str();
        add_number(app, "--outer-mix", c.mix,
                   "with fragments: share of a worker's own parameters when an average arrives, 0 to 1")
            ->capture_default_str();
        add_number(app, "--quorum", p.quorum, "share of a round's workers, from which on the others get a grace window")
            ->capture_default_str();
        add_number(app, "--grace", p.grace, "seconds of that window; 0: half of the time that the quorum took")
            ->capture_default_str();
        add_number(app, "--staleness", p.staleness, "rounds by which a contribution may be late; 0 refuses late ones")
            ->default_str("1, with fragments 0");
        add_number(app, "--discount", p.discount, "weight of a late contribution, for each round")
            ->capture_default_str();
        add_number(app, "--norm-limit", p.norm_limit,
                   "times the median length, beyond which a contribution is refused; 0: none")
            ->capture_default_str();
        add_number(app, "--trim", p.trim, "share of the values of each parameter that is left out at either end")
            ->capture_default_str();
        add_number(app, "--refusals", p.refusals, "in a row until a worker is sent away")->capture_default_str();
        detail::add_seconds(app, "--heartbeat", p.heartbeat, "seconds between two");
        detail::add_seconds(app, "--lost-after", p.lost_after, "seconds without a sign of a worker");
        add_number(app, "--chunk", p.chunk_bytes, "bytes of a part of a tensor on its way")->capture_default_str();
        detail::declare_connection(app, c.at.key, c.at.rate_limit);
      });
  if (parsed.leave) return parsed;
  ShepherdCommand& c = parsed.command;
  auto const refuse = [](std::string const& what) { throw Error(ErrorKind::configuration, "federate", what); };
  if (c.fragments < 1 || c.fragments > c.policy.inner_steps)
    refuse("--fragments " + std::to_string(c.fragments) + ": there may be 1 to as many as --inner-steps, " +
           std::to_string(c.policy.inner_steps));
  bool const streams = c.fragments > 1;
  if (streams && c.policy.staleness > 0)
    refuse("--staleness " + std::to_string(c.policy.staleness) +
           ": with --fragments a late contribution is of another fragment, and is refused. Leave it out");
  if (!(c.mix >= 0 && c.mix <= 1)) refuse("--outer-mix must be from 0 to 1");
  if (c.policy.staleness == -1) c.policy.staleness = streams ? 0 : 1;
  if (c.outer.learning_rate == -1) c.outer.learning_rate = streams ? 0.4 : 0.7;
  validate(c.policy);
  detail::refuse_typed(c.train, detail::unused_by_all(), "a shepherd");
  if (c.at.port < 0 || c.at.port > 65535) refuse("--port must be between 0 and 65535");
  if (c.at.rate_limit < 0) refuse("--rate-limit must not be negative");
  if (!(c.outer.learning_rate > 0 && c.outer.learning_rate <= 100))
    refuse("--outer-learning-rate must be above 0 and at most 100");
  if (!(c.outer.momentum >= 0 && c.outer.momentum < 1)) refuse("--outer-momentum must be at least 0 and below 1");
  if (c.train.out.empty())
    refuse("--out is needed: the folder of the run, from which a shepherd goes on after a crash");
  c.at.folder = c.train.out + "/shepherd";
  return parsed;
}

/// Errors: configuration, for values that cannot be.
inline ParsedCommand<WorkerCommand> parse_worker(int argc, char const* const* argv) {
  std::string connect;
  auto parsed = detail::parse_command<WorkerCommand>(
      argc, argv, "tutti_worker", "Trains a model with others, as a shepherd says.", {},
      [&connect](CLI::App& app, WorkerCommand& c) {
        app.add_flag("--worker")->description("this program is one");
        app.add_option(
               "--connect", connect,
               "HOST:PORT of the shepherd, or of a relay; of several, as in A:1,B:2, the next one is tried where "
               "one cannot be reached for --next-after seconds")
            ->default_str("127.0.0.1:8080");
        detail::add_seconds(app, "--next-after", c.at.turn, "seconds for which an address is tried in vain");
        detail::add_seconds(app, "--patience", c.at.patience, "seconds without a shepherd after which it gives up");
        detail::declare_connection(app, c.at.key, c.at.rate_limit, "it sends to its shepherd at most");
        app.add_option_function<int>(
            "--relay", [&c](int port) { c.relays = true, c.relay.at.port = port; },
            "port for workers of its own, who train as one worker with it; 0: any that is free");
        app.add_option("--relay-host", c.relay.at.host, "address to listen on for them")->capture_default_str();
        train::add_number(app, "--relay-workers", c.relay.workers, "to wait for, itself too, before it takes part")
            ->capture_default_str();
        train::add_number(app, "--relay-rate-limit", c.relay.at.rate_limit,
                          "bytes of tensors a second that it sends to them at most, together; 0: no limit")
            ->capture_default_str();
        train::add_setting(app, "--relay-bits", c.relay_bits, setting::Any{}, "of their outer gradients")
            ->each([&c](std::string const&) { c.has_relay_bits = true; })
            ->default_str("the shepherd's");
        detail::add_seconds(app, "--relay-lost-after", c.relay.lost_after, "seconds without a sign of one of them");
        app.add_flag_callback(
            "--relay-only", [&c] { c.trains = false; }, "trains nothing itself, and needs no data");
      });
  if (parsed.leave) return parsed;
  WorkerCommand& c = parsed.command;
  if (!connect.empty()) {
    std::size_t end = connect.find(',');
    detail::set_address(connect.substr(0, end), c.at.host, c.at.port);
    while (end != connect.npos) {
      std::size_t const first = end + 1;
      end = connect.find(',', first);
      Address& further = c.at.further.emplace_back();
      detail::set_address(connect.substr(first, end - first), further.host, further.port);
    }
  }
  c.relay.at.key = c.at.key;
  c.relay.at.host_flag = "--relay-host", c.relay.at.port_flag = "--relay";
  auto const refuse = [](char const* what) { throw Error(ErrorKind::configuration, "federate", what); };
  if (c.relays && (c.relay.at.port < 0 || c.relay.at.port > 65535)) refuse("--relay must be between 0 and 65535");
  RelayOptions const plain;
  if (!c.relays && (!c.trains || c.has_relay_bits || c.relay.workers != plain.workers || c.relay.at.rate_limit != 0 ||
                    c.relay.at.host != plain.at.host || c.relay.lost_after != plain.lost_after))
    refuse("--relay-only, --relay-host, --relay-workers and the like are of a relay: say --relay PORT too");
  if (c.relays) require_key(c.relay.at);
  if (c.relay.at.rate_limit < 0) refuse("--relay-rate-limit must not be negative");
  if (c.relay.workers < 1 || c.relay.workers > 4096) refuse("--relay-workers must be between 1 and 4096");
  if (!(c.relay.lost_after >= seconds(0.05) && c.relay.lost_after <= seconds(86400)))
    refuse("--relay-lost-after must be between 0.05 and 86400 seconds");
  if (c.at.rate_limit < 0) throw Error(ErrorKind::configuration, "federate", "--rate-limit must not be negative");
  if (c.at.turn < seconds(0) || c.at.turn > seconds(86400))
    throw Error(ErrorKind::configuration, "federate", "--next-after must be between 0 and 86400 seconds");
  if (c.at.patience < seconds(1))
    throw Error(ErrorKind::configuration, "federate", "--patience must be at least 1 second");
  std::set<std::string> unused = detail::unused_by_all();
  unused.erase("device");
  // The shepherd says what is trained, and how.
  train::for_each_flag(c.train, [&](train::Flag const& flag, auto const&, auto const&) {
    std::string const name = flag.name;
    if (name != "data" && name != "tokenizer" && name != "threads" && name != "config" && name != "device")
      unused.insert(name);
  });
  detail::refuse_typed(c.train, unused, "a worker, to whom its shepherd says it");
  return parsed;
}

}  // namespace tutti::federate

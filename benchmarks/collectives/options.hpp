// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The flags: nccl-tests' where they make sense for ranks on processors, and those that say what runs beside what.

#include "case.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti::bench {

struct Options {
  std::int64_t min_bytes = 8, max_bytes = 8 << 20, step_bytes = 0;
  double step_factor = 16;
  int samples = 20, warmup = 5, batch = 0, rounds = 5, root = 0, ranks = 0;
  double limit_seconds = 0.02;
  int check = 1;
  std::vector<Op> ops = {Op::sum};
  std::vector<DType> types = {DType::float32};
  std::vector<Collective> collectives{std::begin(bench::collectives), std::end(bench::collectives)};
  std::string backend = "threads", cache = "both", form = "both", suite = "sweep", json;
  bool private_memory = false;
  std::int64_t memory = std::int64_t{1} << 30;
  std::string other_commands, other_answers;

  bool cold() const { return cache != "warm"; }
  bool warm() const { return cache != "cold"; }
  /// Sizes that are asked for, ascending.
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> result;
    for (std::int64_t size = min_bytes; size <= max_bytes;) {
      result.push_back(size);
      std::int64_t const next =
          step_bytes > 0 ? size + step_bytes : static_cast<std::int64_t>(static_cast<double>(size) * step_factor);
      if (next <= size) break;
      size = next;
    }
    return result;
  }
};

/// Declares every flag on the application. `declare` and the reading of `Words` are apart because CLI11 fills strings.
struct Words {
  std::string ops = "sum", types = "float", collectives = "all";
};
inline void declare(CLI::App& app, Options& o, Words& words) {
  auto const size = CLI::AsSizeValue(false);
  app.add_option("-b,--minbytes", o.min_bytes, "smallest size; 8, 64K, 1M ... are understood")->transform(size);
  app.add_option("-e,--maxbytes", o.max_bytes, "largest size")->transform(size);
  app.add_option("-i,--stepbytes", o.step_bytes, "add so much from size to size (default: multiply)")->transform(size);
  app.add_option("-f,--stepfactor", o.step_factor, "multiply by so much from size to size")
      ->check(CLI::Range(1.001, 1e9));
  app.add_option("-n,--iters", o.samples, "samples in each round, as far as --round-seconds allows")
      ->check(CLI::Range(1, 1000000));
  app.add_option("-w,--warmup_iters", o.warmup, "calls before the first sample")->check(CLI::Range(0, 1000000));
  app.add_option("-m,--agg_iters", o.batch, "calls in one sample; 0: as many as 20 us need")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-c,--check", o.check, "0: do not verify answers before they are timed")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-o,--op", words.ops, "sum, prod, min, max, avg, callable (a lambda, of all_reduce), a list, or all");
  app.add_option("-d,--datatype", words.types,
                 "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, a list, or all");
  app.add_option("-r,--root", o.root, "of rooted collectives");
  app.add_option("-C,--collective", words.collectives,
                 "broadcast, reduce, all_reduce, gather, all_gather, scatter, reduce_scatter, all_to_all, scan, "
                 "exscan, gather_v, all_gather_v, scatter_v, reduce_scatter_v, all_to_all_v, "
                 "all_reduce_contributions, send_recv, ping_pong, put, halo (of float and double; the size is the "
                 "grid's), barrier, a list, or all");
  app.add_option("--backend", o.backend, "whose collectives: mpi or threads")->check(CLI::IsMember({"mpi", "threads"}));
  app.add_option("--ranks", o.ranks, "ranks that are threads (default 2); under mpiexec the launcher says")
      ->check(CLI::Range(1, 1024));
  app.add_option("--cache", o.cache, "warm, cold or both")->check(CLI::IsMember({"warm", "cold", "both"}));
  app.add_option("--form", o.form, "in, out (of place) or both")->check(CLI::IsMember({"in", "out", "both"}));
  app.add_flag("--private", o.private_memory, "ordinary tensors instead of the communicator's heap");
  app.add_option("--memory", o.memory, "limit of what cold buffers rotate through, over all ranks")->transform(size);
  app.add_option("--rounds", o.rounds, "turns of each contender")->check(CLI::Range(1, 1000));
  app.add_option("--round-seconds", o.limit_seconds, "a turn's samples last at most so long, but three are taken")
      ->check(CLI::Range(0.0, 60.0));
  app.add_option("--suite", o.suite,
                 "sweep; goals: all-reduce against the figures that tutti promises; messages: the "
                 "small calls that programs are made of, in ordinary memory")
      ->check(CLI::IsMember({"sweep", "goals", "messages"}));
  app.add_option("--json", o.json, "file for rows {name, bytes, ours, rival, ratio, unit}, one a line");
  app.add_option("--other-commands", o.other_commands, "pipe to another MPI's job (collectives.py sets it)")->group("");
  app.add_option("--other-answers", o.other_answers, "pipe from another MPI's job")->group("");
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() == 1) option->capture_default_str();
}

/// Throws CLI::ValidationError, which names the flag.
template <class Value, class Names>
std::vector<Value> words_of(std::string const& flag, std::string const& text, Names const& names) {
  std::vector<Value> result;
  if (text == "all") {
    for (auto const& [word, value] : names)
      if (result.end() == std::find(result.begin(), result.end(), value)) result.push_back(value);
    return result;
  }
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t const comma = std::min(text.find(',', at), text.size());
    std::string const word = text.substr(at, comma - at);
    auto const found = std::find_if(names.begin(), names.end(), [&](auto const& entry) { return entry.first == word; });
    if (found == names.end()) {
      std::string known;
      for (auto const& [name, value] : names) known += (known.empty() ? "" : ", ") + name;
      throw CLI::ValidationError(flag, "'" + word + "' is none of " + known + ", all");
    }
    result.push_back(found->second);
    at = comma + 1;
  }
  return result;
}
inline void read(Options& o, Words const& words) {
  std::vector<std::pair<std::string, Op>> op_names;
  for (Op op : ops) op_names.emplace_back(name(op), op);
  std::vector<std::pair<std::string, DType>> type_names;
  for (TypeName const& type : types) type_names.emplace_back(type.name, type.dtype);
  type_names.emplace_back("float16", DType::float16);
  type_names.emplace_back("float32", DType::float32);
  type_names.emplace_back("float64", DType::float64);
  std::vector<std::pair<std::string, Collective>> collective_names;
  for (Collective collective : bench::collectives) collective_names.emplace_back(name(collective), collective);
  o.ops = words_of<Op>("--op", words.ops, op_names);
  o.types = words_of<DType>("--datatype", words.types, type_names);
  o.collectives = words_of<Collective>("--collective", words.collectives, collective_names);
  if (o.min_bytes < 1 || o.max_bytes < o.min_bytes)
    throw CLI::ValidationError("--minbytes, --maxbytes", "give 1 <= minbytes <= maxbytes");
  if (o.suite == "messages") o.private_memory = true;  // as their twins in raw MPI have it
  if (o.step_bytes < 0) throw CLI::ValidationError("--stepbytes", "is negative");
}

}  // namespace tutti::bench

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a training run can be told: one table of settings, which flags, `--config` files, checks, checkpoints and
/// docs/configuration.md read. The command line wins over a resumed checkpoint, the checkpoint over the file, the file
/// over the defaults.

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>
#include <tutti/parallel/compression_choice.hpp>
#include <tutti/train/algorithm_checks.hpp>
#include <tutti/train/choices.hpp>
#include <tutti/train/layout_checks.hpp>
#include <tutti/train/value_checks.hpp>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::train {

/// Tokens of a step: far beyond use, and sums and products with them stay in 64 bits.
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

using setting::Choice;

/// Counts are per run unless the name says otherwise; 0 in a `*_every` means never, 0 in a size means "derive it".
struct Options {
  std::string model = "";  ///< d6 ... d48, files of weights to start with, or a StableHLO module
  Choice<Architecture> architecture = Architecture::gpt2;
  std::int64_t layers = 0, channels = 0, heads = 0, vocabulary = 0;
  std::int64_t kv_heads = 0, hidden = 0;  ///< of llama
  bool untied = false;                    ///< of llama
  std::string data, validation_data, tokenizer;
  std::int64_t batch = 4;         ///< sequences per rank and micro-step; at most, where total_tokens is given
  std::int64_t sequence = 64;     ///< tokens per sequence
  Choice<Packing> pack = Packing::none;
  std::int64_t total_tokens = 0;  ///< tokens per step over all ranks and micro-steps
  std::int64_t sync_freq = 0;     ///< micro-steps per step
  std::int64_t steps = 0;         ///< 0: one pass over the training data
  double learning_rate = 3e-4;
  std::int64_t warmup = 0;
  Choice<optim::ScheduleKind> schedule = optim::ScheduleKind::cosine;
  double final_fraction = 0.0;
  Choice<OptimizerName> optimizer = OptimizerName::adamw;
  double momentum = 0.95;  ///< of sgd and muon
  bool nesterov = false;   ///< of sgd
  Choice<MuonScaleName> muon_scale = MuonScaleName::adamw;
  double weight_decay = 0.1;
  std::string groups;  ///< as optim::parse_groups reads them
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double dropout = 0, attention_dropout = 0;   ///< shares; of gpt2
  Choice<Compute> compute = Compute::float32;  ///< of matrix products
  double clip = 1.0;                           ///< global norm; 0 does not clip
  std::string clip_flag = "--clip";            ///< as it was spelled
  Choice<AlgorithmName> algorithm = AlgorithmName::ddp;
  std::string compress;                        ///< as parallel::parse_compression reads it
  std::int64_t inner_steps = 30;
  double outer_learning_rate = 0;  ///< 0: as --outer-learning-rate says
  double outer_momentum = 0.9;
  std::int64_t fragments = 1, outer_overlap = 0;
  Choice<parallel::OuterBits> outer_bits = parallel::OuterBits::float32;
  double outer_mix = 0.5;
  std::int64_t validate_every = 100, validation_batches = 0, sample_every = 0, sample_tokens = 64, checkpoint_every = 0,
               keep = 3, gradient_statistics = 0;
  std::string sample_prompt, resume;  ///< resume: latest, a step, or a path
  std::int64_t seed = 42;
  int threads = 0, ranks = 0;
  Choice<BackendName> backend = BackendName::mpi;
  TrainingDevice device = DeviceName::cpu;
  std::string out;
  bool overwrite = false;  ///< `out` may hold another run's checkpoints, which are removed
  bool no_final_checkpoint = false;
  bool async_checkpoint = false;  ///< see CheckpointWriter
  Choice<graph::Recompute> recompute = graph::Recompute::none;  ///< by the backward pass
  bool profile = false;                                         ///< measure every operation
  bool dry_run = false;                                         ///< plan, and train nothing
  bool keep_packed = false;                                     ///< see TrainStepOptions
  bool autotune = false;                                        ///< of devices; see product_choices.hpp
  bool replicas_per_rank = false;                               ///< see parallel::Replicas
  std::int64_t bucket_bytes = std::int64_t{4} << 20;            ///< of gradients that are reduced together
  std::string offload_optimizer;                                ///< folder; empty: its state is in memory
  int zero = 0;                                                 ///< of ZeRO, as asked for; see zero_stage
  std::string rank_shares = "even";                             ///< of a step's sequences, see RankShares
  int restart_ranks = 0;                                        ///< that may go on with the run; 0: not known
  int data_parallel = 0;                                        ///< ranks that share out a batch; 0: those left
  int tensor_parallel = 1;                                      ///< ranks that share out a model
  bool sequence_parallel = false;                               ///< see TrainStepOptions
  int pipeline_parallel = 1;                                    ///< ranks that have some layers of a model each
  Choice<parallel::PipelineSchedule> pipeline_schedule{};       ///< of their passes
  int virtual_stages = 0;    ///< parts of a model on each; 0: as the schedule wants
  std::string stage_layers;  ///< of each part; empty: equally many
  bool tensorboard = false, dashboard = false;
  int dashboard_port = -1;  ///< -1: no page; 0: any free port
  std::string config;

  /// 1: parallel::Replicas::sharded; 2, 3: TrainStepOptions::state_ranks. A device has no moments in shares alone:
  /// there stage 1 is stage 2, which keeps less.
  int zero_stage() const { return zero == 1 && device == DeviceName::cuda ? 2 : zero; }
  DType compute_dtype() const { return compute == Compute::bfloat16 ? DType::bfloat16 : DType::float32; }

  std::set<std::string> given;    ///< names that the command line or the file set
  std::set<std::string> typed;    ///< names that the command line set
  std::set<std::string> adopted;  ///< names whose values are those of the resumed checkpoint
  std::string checkpoint;         ///< its folder

  /// Where a value stands that the command line did not set, in brackets, for people who wonder; else empty.
  std::string source_of(std::string const& name) const {
    if (typed.contains(name)) return "";
    if (adopted.contains(name)) return " (it stands in the checkpoint " + checkpoint + ")";
    return given.contains(name) ? " (it stands in --config " + config + ")" : "";
  }
};

/// What becomes of a setting when a run is resumed.
enum class Recall : unsigned char {
  checkpoint,  ///< remembered, unless it is said again: what is learned and how, what a run shows and keeps on the way
  model,       ///< a fact of the checkpoint, with which another value would have to agree
  call,        ///< said each time: where a run runs, and what this call alone does
};

/// A row's words. The names of flags have no dashes in front; `alias` is a second one.
struct Flag {
  char const* group;
  char const* name;
  Recall recall;
  char const* help;
  char const* alias = "";
};

/// The table: calls f(flag, value, what it may be) for every setting.
template <class AnyOptions, class F>
void for_each_flag(AnyOptions& o, F&& f) {
  using enum Recall;
  using Whole = setting::Range<std::int64_t>;
  using Real = setting::Range<double>;
  using setting::Any, setting::Text;
  // A size that 31 bits hold multiplies with any other; a token is an int32.
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  constexpr Whole size{0, most}, sequences{1, most}, count{0};
  constexpr Text file{.empty = false};

  f(Flag{"Model", "model", model,
         "size d6, d12, d24, d36, d48; weights: FOLDER (Hugging Face's, a run's), .gguf, .bin (llm.c); a loss: .mlir"},
    o.model, file);
  f(Flag{"Model", "layers", model, "transformer blocks"}, o.layers, size);
  f(Flag{"Model", "channels", model, "width; a multiple of --heads"}, o.channels, size);
  f(Flag{"Model", "heads", model, "attention heads"}, o.heads, size);
  f(Flag{"Model", "vocabulary", model, "tokens known (default: the tokenizer's, else 50257)"}, o.vocabulary,
    Whole{0, most - 127});  // the next multiple of 128 is one as well
  f(Flag{"Model", "architecture", model,
         "gpt2, or llama: RMS norms, rotary positions, SwiGLU, grouped heads of keys and values"},
    o.architecture, Any{});
  f(Flag{"Model", "kv-heads", model, "llama: heads of keys and values; divide --heads (default: as many)"}, o.kv_heads,
    size);
  f(Flag{"Model", "hidden", model,
         "llama: width of feed-forward layers (default: 8/3 of --channels, up to a multiple of 32)"},
    o.hidden, size);
  f(Flag{"Model", "untied", model, "llama: the head has weights of its own"}, o.untied, Any{});

  f(Flag{"Data", "data", checkpoint,
         "training shards: a file, a quoted pattern, a folder of prepare_text, or several by weights: 'a:0.7,b:0.3'"},
    o.data, file);
  f(Flag{"Data", "validation-data", checkpoint, "validation shards, or several sets: 'a,b'"}, o.validation_data, file);
  f(Flag{"Data", "tokenizer", checkpoint,
         "tokenizer.json for samples and bits per byte (default: the checkpoint's, else beside the data)"},
    o.tokenizer, file);
  f(Flag{"Data", "batch", checkpoint, "sequences per rank and micro-step; with --total-tokens, at most"}, o.batch,
    sequences);
  f(Flag{"Data", "sequence", checkpoint, "tokens per sequence"}, o.sequence, sequences);
  f(Flag{"Data", "pack", checkpoint,
         "documents: sequences are whole documents, none of which sees another, not windows of the text"},
    o.pack, Any{});
  f(Flag{"Data", "total-tokens", checkpoint,
         "tokens per step over all ranks (default: batch * sequence * ranks * sync-freq)"},
    o.total_tokens, Whole{0, most_tokens});
  f(Flag{"Data", "sync-freq", model,
         "micro-steps whose gradients are summed before ranks synchronise and update (default: derived); the "
         "micro-batches of a pipeline",
         "micro-batches"},
    o.sync_freq, Whole{o.given.contains("sync-freq") ? 1 : 0, most});
  f(Flag{"Data", "seed", checkpoint, "of initial weights and data order"}, o.seed, count);

  f(Flag{"Optimizer", "steps", checkpoint, "updates (default: one pass over the training data)"}, o.steps,
    Whole{o.given.contains("steps") ? 1 : 0});
  f(Flag{"Optimizer", "learning-rate", checkpoint, "peak"}, o.learning_rate, Real{0, 1e3});
  f(Flag{"Optimizer", "warmup", checkpoint, "steps of linear warm-up"}, o.warmup, count);
  f(Flag{"Optimizer", "schedule", checkpoint,
         "of the learning rate, behind the warm-up; or one of --pipeline-schedule, which it then means"},
    o.schedule, Any{});
  f(Flag{"Optimizer", "final-fraction", checkpoint, "of the peak, at the last step"}, o.final_fraction, Real{0, 1});
  f(Flag{"Optimizer", "optimizer", checkpoint,
         "adamw, sgd, or muon: orthogonal moves of the matrices between hidden layers, adamw for the rest"},
    o.optimizer, Any{});
  f(Flag{"Optimizer", "weight-decay", checkpoint, "on matrices and embeddings"}, o.weight_decay, Real{0, 1e3});
  f(Flag{"Optimizer", "beta1", checkpoint, "adamw, muon"}, o.beta1, Real{0, 1, true});
  f(Flag{"Optimizer", "beta2", checkpoint, "adamw, muon"}, o.beta2, Real{0, 1, true});
  f(Flag{"Optimizer", "epsilon", checkpoint, "adamw, muon"}, o.epsilon, Real{1e-30, 1});
  f(Flag{"Optimizer", "momentum", checkpoint, "sgd, muon"}, o.momentum, Real{0, 1, true});
  f(Flag{"Optimizer", "nesterov", checkpoint, "sgd: Nesterov's momentum, which muon always has"}, o.nesterov, Any{});
  f(Flag{"Optimizer", "muon-scale", checkpoint,
         "muon: adamw moves elements as far as adamw would, for its learning rates; spectral is the published factor, "
         "for learning rates of about 0.02"},
    o.muon_scale, Any{});
  f(Flag{"Optimizer", "groups", checkpoint,
         "parameters that are trained otherwise, as 'PATTERN:decay=0,rate=0.1;PATTERN:frozen', with * for any text; "
         "vector is for muon: as adamw moves it"},
    o.groups, Text{});
  f(Flag{"Optimizer", "clip", checkpoint, "largest global norm of the gradient; 0 does not clip", "gradient-clip"},
    o.clip, Real{0, 1e30});
  f(Flag{"Optimizer", "dropout", checkpoint,
         "gpt2: share of embeddings, and of what blocks add to them, that training sets to zero"},
    o.dropout, Real{0, 1, true});
  f(Flag{"Optimizer", "attention-dropout", checkpoint,
         "gpt2: share of attention's probabilities; keeps them for the backward pass, batch * heads * sequence^2 of a "
         "layer"},
    o.attention_dropout, Real{0, 1, true});
  f(Flag{"Optimizer", "compute", checkpoint,
         "matrix products: float32, or bfloat16 with sums, parameters and all else in float32"},
    o.compute, Any{});

  f(Flag{"Algorithm", "algorithm", checkpoint,
         "of several ranks: ddp averages gradients every step; diloco lets each rank train a replica, and averages "
         "what they found every --inner-steps"},
    o.algorithm, Any{});
  f(Flag{"Algorithm", "compress", checkpoint,
         "ddp: how gradients travel: none, bf16, int8, topk:SHARE of the values, or powersgd:RANK; what a step leaves "
         "out is sent later"},
    o.compress, Text{});
  f(Flag{"Algorithm", "inner-steps", checkpoint, "diloco: steps between two averages"}, o.inner_steps, Whole{1, most});
  f(Flag{"Algorithm", "outer-learning-rate", checkpoint,
         "diloco: of the step that all make together (default: 0.7, with several --fragments 0.4)"},
    o.outer_learning_rate, Real{0, 1e3});
  f(Flag{"Algorithm", "outer-momentum", checkpoint, "diloco: Nesterov's"}, o.outer_momentum, Real{0, 1, true});
  f(Flag{"Algorithm", "fragments", checkpoint, "diloco: parts of the model that are averaged one after another"},
    o.fragments, Whole{1, 1024});
  f(Flag{"Algorithm", "outer-bits", checkpoint,
         "diloco: how averages travel: float32, bfloat16, int8 or int4; what rounding takes is sent later"},
    o.outer_bits, Any{});
  f(Flag{"Algorithm", "outer-overlap", checkpoint, "diloco: steps for which an average travels while replicas go on"},
    o.outer_overlap, count);
  f(Flag{"Algorithm", "outer-mix", checkpoint,
         "diloco with --outer-overlap: share of a replica's own parameters when the average arrives"},
    o.outer_mix, Real{0, 1});

  f(Flag{"Run", "validate-every", checkpoint, "steps; validation also runs before the first and after the last"},
    o.validate_every, count);
  f(Flag{"Run", "validation-batches", checkpoint,
         "measure at most as many sequences as so many steps have, over all ranks and micro-steps, from the beginning "
         "of the validation data (default: all of it)"},
    o.validation_batches, count);
  f(Flag{"Run", "sample-every", checkpoint, "steps"}, o.sample_every, count);
  f(Flag{"Run", "sample-tokens", checkpoint, "length of a sample"}, o.sample_tokens, sequences);
  f(Flag{"Run", "sample-prompt", checkpoint, "beginning of a sample"}, o.sample_prompt, Text{});
  f(Flag{"Run", "checkpoint-every", checkpoint, "steps; the last step is kept too when --out is given"},
    o.checkpoint_every, count);
  f(Flag{"Run", "gradient-statistics", checkpoint,
         "steps; every so many, keep norm and zeros of each parameter's gradient, and find what made a NaN"},
    o.gradient_statistics, count);
  f(Flag{"Run", "no-final-checkpoint", call, "do not keep the last step"}, o.no_final_checkpoint, Any{});
  f(Flag{"Run", "async-checkpoint", call,
         "write checkpoints while training goes on, from a copy: takes memory for parameters and moments once more"},
    o.async_checkpoint, Any{});
  f(Flag{"Run", "keep", checkpoint, "newest checkpoints to keep; 0 keeps all"}, o.keep, count);
  f(Flag{"Run", "resume", call, "latest, a step, or the path of a checkpoint"}, o.resume, file);
  f(Flag{"Run", "out", call, "folder for metrics, logs and checkpoints"}, o.out, Text{.empty = false, .utf8 = false});
  f(Flag{"Run", "overwrite", call, "a new run removes the checkpoints of another run in --out"}, o.overwrite, Any{});
  f(Flag{"Run", "profile", call,
         "print at the end where the steps' time went, and keep the last step as a Chrome trace in --out"},
    o.profile, Any{});
  f(Flag{"Run", "dry-run", call,
         "print what the run will need, memory, traffic, time of a step, and leave; writes nothing"},
    o.dry_run, Any{});
  f(Flag{"Run", "replicas-per-rank", call,
         "every rank keeps and updates parameters and moments of its own (default: a node's ranks share one copy)"},
    o.replicas_per_rank, Any{});
  f(Flag{"Run", "zero", call,
         "of ZeRO, what a rank has a share of: 1: adamw's moments; 2: gradients and parameters between steps too; 3: "
         "parameters are gathered layer by layer (default 0: nothing). With --device cuda 1 is as 2"},
    o.zero, setting::Range<int>{0, 3});
  f(Flag{"Run", "bucket-bytes", call,
         "reduce so many bytes of gradients together, while the backward pass goes on; 0: each parameter's alone. Not "
         "with --zero 2 and 3"},
    o.bucket_bytes, Whole{0, std::int64_t{1} << 40});
  f(Flag{"Run", "offload-optimizer", call,
         "folder: keep the optimizer's moments in files there, of which memory has what it has room for; every rank "
         "then has its own, as with --replicas-per-rank"},
    o.offload_optimizer, file);
  f(Flag{"Run", "data-parallel", call,
         "ranks, or groups of --tensor-parallel ranks, that share out a step's sequences (default: all there are)"},
    o.data_parallel, setting::Range<int>{o.given.contains("data-parallel") ? 1 : 0});
  f(Flag{"Run", "restart-ranks", call,
         "ranks that may have to go on with the run after one has died: other flags that do not fit so many are "
         "refused "
         "at once"},
    o.restart_ranks, setting::Range<int>{o.given.contains("restart-ranks") ? 1 : 0});
  f(Flag{"Run", "rank-shares", checkpoint,
         "even; auto: each rank gets sequences by its measured speed, so that none waits for a slow one; or a number "
         "for each rank, as 2,1,1"},
    o.rank_shares, Text{});
  f(Flag{"Run", "tensor-parallel", call,
         "neighbouring ranks that have one model together: each some heads and columns of every layer",
         "model-parallel"},
    o.tensor_parallel, setting::Range<int>{1});
  f(Flag{"Run", "sequence-parallel", call, "ranks of --tensor-parallel divide the rest of a layer by tokens"},
    o.sequence_parallel, Any{});
  f(Flag{"Run", "pipeline-parallel", call,
         "ranks that have one model together, as stages: each some of its layers, through which micro-batches go"},
    o.pipeline_parallel, setting::Range<int>{1});
  f(Flag{"Run", "pipeline-schedule", call,
         "of stages: 1f1b (forward and backward passes alternate), gpipe (all forward passes first), interleaved (1f1b "
         "over several parts of the model on each stage) or zero-bubble (gradients of weights where 1f1b waits)"},
    o.pipeline_schedule, Any{});
  f(Flag{"Run", "virtual-stages", call,
         "parts of the model on each stage of --pipeline-schedule interleaved (default 2)"},
    o.virtual_stages, setting::Range<int>{o.given.contains("virtual-stages") ? 1 : 0});
  f(Flag{"Run", "stage-layers", call, "of each part of the model: numbers as in 4,4,3, or balanced, as the head needs"},
    o.stage_layers, Text{});
  f(Flag{"Run", "recompute", call,
         "compute again in the backward pass, to save memory: none, pointwise (norms, GELU, elementwise) or block "
         "(all)"},
    o.recompute, Any{});
  f(Flag{"Run", "keep-packed", call, "pack weights for products once a step, not once a micro-step; takes memory"},
    o.keep_packed, Any{});
  f(Flag{"Run", "autotune", call, "on GPUs: choose algorithms of products by their time; --out keeps the choice"},
    o.autotune, Any{});
  f(Flag{"Run", "threads", call, "per rank (default: the processors divided among the node's ranks)"}, o.threads,
    setting::Range<int>{0, 1024});
  f(Flag{"Run", "ranks", call, "with --backend threads; under mpiexec the launcher says"}, o.ranks,
    setting::Range<int>{o.given.contains("ranks") ? 1 : 0});
  f(Flag{"Run", "backend", call,
         "mpi, threads, nccl (between GPUs), or auto: under a launcher mpi, or nccl with a GPU each; else threads"},
    o.backend, Any{});
  f(Flag{"Run", "device", call,
         "cpu; cuda: each rank the GPU of its number on its node; or what IREE compiles for: iree:llvm-cpu, iree:cuda, "
         "iree:rocm:gfx942, iree:vulkan-spirv, iree:metal-spirv"},
    o.device, Any{});
  f(Flag{"Run", "tensorboard", call, "also write event files for TensorBoard, in the folder tensorboard of --out"},
    o.tensorboard, Any{});
  f(Flag{"Run", "dashboard", call,
         "draw the run on this terminal, with keys to pause, keep a checkpoint and stop; plain lines where there is "
         "none"},
    o.dashboard, Any{});
  f(Flag{"Run", "dashboard-port", call,
         "the same as a page on http://127.0.0.1, this port; 0: any free one (default: none)"},
    o.dashboard_port, setting::Range<int>{o.given.contains("dashboard-port") ? 0 : -1, 65535});
  f(Flag{"Run", "config", call, "JSON file with these names as keys, without the dashes"}, o.config, file);
}

/// Calls f(name, value) for every setting that a checkpoint records and a resumed run takes over.
template <class AnyOptions, class F>
void for_each_setting(AnyOptions& o, F&& f) {
  for_each_flag(o, [&](Flag const& flag, auto& value, auto const&) {
    if (flag.recall == Recall::checkpoint) f(flag.name, value);
  });
}

/// Refuses by name what cannot be. Errors: configuration.
inline void validate(Options const& o) {
  for_each_flag(
      o, [&](Flag const& flag, auto const& value, auto const& may) { detail::check_value(o, flag, value, may); });
  auto const refuse = [&](char const* name, std::string const& text, std::string const& what) {
    detail::refuse_value(o, name, text, what);
  };
  if (o.backend == BackendName::nccl && o.device != DeviceName::cuda)
    refuse("backend", "nccl", "is between GPUs. Add --device cuda");
  if (o.device != DeviceName::cuda && o.autotune)
    refuse("autotune", "", "is of GPUs. Add --device cuda, or leave it out");
  if (o.device == DeviceName::iree && o.profile)
    refuse("device", o.device.text(), "does not say where the time of a step went. Leave out --profile");
  if (o.device != DeviceName::cpu && o.keep_packed)
    refuse("device", o.device.text(), "keeps no packed weights. Leave out --keep-packed");
  detail::check_layout(o, refuse);
  detail::check_algorithm(o, refuse);
  bool const sized = o.layers != 0 || o.channels != 0 || o.heads != 0;
  if (!o.model.empty() && sized)
    refuse("model", o.model, "already says --layers, --channels and --heads. Give one or the other");
  if (sized && (o.layers == 0 || o.channels == 0 || o.heads == 0))
    refuse("layers/--channels/--heads", "", "give all three, or --model");
  if (sized && o.channels % o.heads != 0)
    refuse("channels", std::to_string(o.channels), "is not a multiple of --heads " + std::to_string(o.heads));
  if (o.tensorboard && o.out.empty()) refuse("tensorboard", "", "writes into --out. Give that too");
  if (o.data.empty() && o.resume.empty()) refuse("data", "", "is needed: the training shards");
  if (o.resume == "latest" && o.out.empty()) refuse("resume", o.resume, "needs --out, the folder with the checkpoints");
  if (!o.resume.empty() && o.resume.find_first_not_of("0123456789") == std::string::npos && o.out.empty())
    refuse("resume", o.resume, "is a step and needs --out, the folder with the checkpoints");
}

}  // namespace tutti::train

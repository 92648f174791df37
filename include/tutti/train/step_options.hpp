// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a training step takes and gives, and how that is said to people.

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/isa.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/graph/replication.hpp>
#include <tutti/optim/gradient_compressor.hpp>
#include <tutti/optim/parameter_groups.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>
#include <tutti/tensor/view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace tutti::train {

/// One step's tokens. Shapes: tokens, targets (micro-steps * batch, sequence); targets of -1 do not count.
struct Batch {
  std::int64_t step = 0;
  TensorView<std::int32_t const> tokens, targets;
};

struct TrainStepOptions {
  std::int64_t batch = 4, sequence = 64;  ///< of a micro-step on this rank
  std::int64_t evaluation_batch = 0;      ///< of `evaluate`; 0: as `batch`
  std::int64_t micro_steps = 1;
  double weight = 1;                      ///< ranks * batch / batches of all ranks: 1 unless they differ
  double clip = 0;                        ///< largest global norm; 0 does not clip
  DType compute = DType::float32;         ///< of matrix products: float32, or bfloat16 as graph::amp says
  graph::Recompute recompute = graph::Recompute::none;  ///< by the backward pass instead of kept by the forward pass
  bool profile = false;                   ///< measure every step of the programs
  /// Pack the weights of products once a step, not once a micro-step, forward and backward. Costs twice the memory of
  /// these weights (half of it in bfloat16), and saves at most a few percent: see docs/performance.md.
  bool keep_packed = false;
  /// Gradients that are reduced together, as soon as the backward pass has them: a bucket is closed before it would
  /// grow above this; a larger gradient has one of its own. The same on all ranks; sums have the same bits with any.
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  /// On processors: where the optimizer's state, and sums over micro-steps, lie in files instead of memory, each rank's
  /// its own (its node shares no state then); the system keeps in memory what it has room for. Empty: in memory.
  std::string offload_optimizer{};
  /// Names of parameters that are not trained, with '*' for any text ("wte", "blocks.attention.*"): no update, no
  /// weight decay, no moments. The state and its checkpoints hold them as before.
  std::vector<std::string> frozen{};
  List<optim::ParameterGroup> groups{};  ///< parameters that decay, learn or stay otherwise than the rest
  /// Batches have targets of -1: the loss is the mean over all targets of a step that count, over its micro-steps and
  /// ranks, which tell each other how many they have. Else it is the mean of micro-steps' means.
  bool weigh_targets = false;
  /// This rank's stage where ranks have some layers of the model each (parallel/pipeline_cut.hpp): micro-steps are the
  /// micro-batches that go through the stages.
  parallel::PipelineLayout pipeline{};
  int tensor = 1;              ///< ranks of the tensor axis, each with a part of the model (parallel/mesh.hpp)
  /// Norms, residuals and dropout between the products that the ranks of the tensor axis divide: each does, and keeps
  /// for the backward pass, its share of a micro-step's tokens alone. They must divide among these ranks.
  bool sequence_parallel = false;
  /// Ranks of the data axis that have a part of every parameter, gradient and moment each, and gather a layer's
  /// parameters where they are used; 1: whole ones. `gather_again`: given up behind the layer and gathered once more
  /// by the backward pass (ZeRO 3); else kept until then (ZeRO 2).
  int state_ranks = 1;
  bool gather_again = true;
  std::int64_t seed = 0;       ///< of what the loss draws: nn::StepRandom
  std::int64_t first_row = 0;  ///< of this rank's sequences among those of all ranks' step
  /// How gradients travel between ranks; none: as they are. parallel/compression.hpp has some, on one rank as well.
  optim::AnyCompressor compress{};
};

/// Errors: configuration, unavailable, for what no device does.
inline void require_sound(TrainStepOptions const& options, std::source_location where) {
  if (options.compute != DType::float32 && options.compute != DType::bfloat16)
    throw Error(ErrorKind::unavailable, "TrainStep",
                concat("matrix products in ", name(options.compute), " are not there. Use float32 or bfloat16"), where);
  if (options.batch < 1 || options.sequence < 1 || options.micro_steps < 1 || options.evaluation_batch < 1)
    throw Error(ErrorKind::configuration, "TrainStep", "batches, sequence and micro-steps must be at least 1", where);
  if (!(options.weight > 0))
    throw Error(ErrorKind::configuration, "TrainStep", "the weight of a rank must be above 0", where);
  if (options.bucket_bytes < 0)
    throw Error(ErrorKind::configuration, "TrainStep", "bucket_bytes must be at least 0", where);
}

/// What matrix products are made of, and how on this processor.
inline std::string describe_products(DType compute, exec::Isa isa) {
  if (compute == DType::float32) return "fp32";
  if (isa == exec::Isa::avx512_bf16)
    return "bfloat16, summed in fp32; master weights, norms, softmax, loss and updates in fp32";
  return "bfloat16 values, multiplied as fp32: " + std::string(exec::name(isa)) + " has no instruction for bfloat16";
}

/// What the backward pass computes again.
inline std::string describe_recompute(graph::Recompute policy) {
  if (policy == graph::Recompute::none) return "nothing";
  if (policy == graph::Recompute::block) return "every block, from what enters it";
  return "norms, GELU and other elementwise operations";
}

struct StepResult {
  float loss = 0;              ///< mean over all of the step, before the update
  float grad_norm = 0;         ///< global norm before clipping
  double exposed_comm_ms = 0;  ///< time in which this rank only waited for others
  std::array<double, graph::mesh_axes> exposed_axis_ms{};  ///< the same, by axis of the mesh

  void add(graph::MeshAxis axis, std::int64_t ns) noexcept {
    exposed_axis_ms[static_cast<std::size_t>(axis)] += static_cast<double>(ns) / 1e6;
    exposed_comm_ms += static_cast<double>(ns) / 1e6;
  }
  void add(graph::AxisWaits const& waits) noexcept {
    for (std::size_t axis = 0; axis < waits.size(); ++axis) add(static_cast<graph::MeshAxis>(axis), waits[axis]);
  }
};

}  // namespace tutti::train

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Settings of a training run that are one of several words, and how these are spelled.

#include <tutti/core/setting.hpp>
#include <tutti/graph/iree/target_device.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/parallel/outer_gradient.hpp>
#include <tutti/parallel/pipeline_schedule.hpp>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {
namespace train {

enum class Compute : unsigned char { float32, bfloat16 };
enum class BackendName : unsigned char { automatic, mpi, threads, nccl };
enum class DeviceName : unsigned char { cpu, cuda, iree };
enum class Architecture : unsigned char { gpt2, llama };
enum class AlgorithmName : unsigned char { ddp, diloco };
enum class OptimizerName : unsigned char { adamw, sgd, muon };
enum class MuonScaleName : unsigned char { adamw, spectral };
enum class Packing : unsigned char { none, documents };

}  // namespace train

template <>
inline constexpr auto setting::spelling<train::Compute> = std::array<std::string_view, 2>{"float32", "bfloat16"};
template <>
inline constexpr auto setting::spelling<train::BackendName> =
    std::array<std::string_view, 4>{"auto", "mpi", "threads", "nccl"};
template <>
inline constexpr auto setting::spelling<train::DeviceName> =
    std::array<std::string_view, 3>{"cpu", "cuda", "iree:TARGET"};
template <>
inline constexpr auto setting::spelling<train::Architecture> = std::array<std::string_view, 2>{"gpt2", "llama"};
template <>
inline constexpr auto setting::spelling<train::AlgorithmName> = std::array<std::string_view, 2>{"ddp", "diloco"};
template <>
inline constexpr auto setting::spelling<train::OptimizerName> = std::array<std::string_view, 3>{"adamw", "sgd", "muon"};
template <>
inline constexpr auto setting::spelling<train::MuonScaleName> = std::array<std::string_view, 2>{"adamw", "spectral"};
template <>
inline constexpr auto setting::spelling<train::Packing> = std::array<std::string_view, 2>{"none", "documents"};
template <>
inline constexpr auto setting::spelling<graph::Recompute> =
    std::array<std::string_view, 3>{"none", "pointwise", "block"};
template <>
inline constexpr auto setting::spelling<optim::ScheduleKind> = optim::schedule_names;

namespace train {

/// A device as people write it: IREE's says behind its colon what to compile for, as in "iree:rocm:gfx942".
class TrainingDevice : public setting::Choice<DeviceName> {
 public:
  TrainingDevice(DeviceName value = DeviceName::cpu) : Choice(value), written_(Choice::text()) {}
  explicit TrainingDevice(std::string text)
      : Choice(text.starts_with("iree:") ? Choice(DeviceName::iree) : Choice(text)), written_(std::move(text)) {}

  std::string const& text() const noexcept { return written_; }
  /// Of IREE's: "rocm:gfx942".
  std::string target() const { return written_.substr(written_.find(':') + 1); }
  /// Why it is none, or nothing where it is one.
  std::string problem() const {
    if (!known()) return "use " + setting::choices<DeviceName>() + ", as in iree:llvm-cpu";
    return *this == DeviceName::iree ? graph::iree::target_device_problem(target()) : std::string();
  }

 private:
  std::string written_;
};

}  // namespace train

}  // namespace tutti

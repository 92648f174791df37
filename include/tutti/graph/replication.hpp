// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks know of a value, along each axis of the mesh of ranks.

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::graph {

/// Axes of the mesh of ranks, along each of which ranks share out one thing. A graph may have collectives along each.
enum class MeshAxis : std::uint8_t {
  data,      ///< the sequences of a batch
  tensor,    ///< matrices, by rows or columns
  pipeline,  ///< layers
  sequence,  ///< the tokens of a sequence
};
inline constexpr int mesh_axes = 4;
constexpr std::string_view name(MeshAxis axis) noexcept {
  return axis == MeshAxis::data       ? "data"
         : axis == MeshAxis::tensor   ? "tensor"
         : axis == MeshAxis::pipeline ? "pipeline"
                                      : "sequence";
}

/// Nanoseconds in which a rank was blocked, waiting for others along each axis of the mesh.
using AxisWaits = std::array<std::int64_t, mesh_axes>;

/// What the ranks along one axis of the mesh know of a value.
enum class Replication : std::uint8_t {
  replicated,  ///< equal on all ranks
  varying,     ///< each rank's own
  partial,     ///< addend of a sum over ranks that is still to be made
};
constexpr std::string_view name(Replication state) noexcept {
  return state == Replication::replicated ? "replicated" : state == Replication::varying ? "varying" : "partial";
}

/// The same for every axis of the mesh. One state alone is that of the data axis; others are then replicated.
class Replications {
 public:
  constexpr Replications() = default;
  constexpr Replications(Replication data) noexcept : bits_(static_cast<std::uint8_t>(data)) {}
  /// Two bits an axis, the data axis lowest. Requires  `are_bits(bits)`
  static constexpr Replications of_bits(std::uint8_t bits) noexcept {
    Replications result;
    result.bits_ = bits;
    return result;
  }
  static constexpr bool are_bits(std::uint64_t bits) noexcept { return bits < 256 && (bits & bits >> 1 & 0x55) == 0; }

  constexpr std::uint8_t bits() const noexcept { return bits_; }
  constexpr Replication operator[](MeshAxis axis) const noexcept {
    return static_cast<Replication>(bits_ >> 2 * static_cast<int>(axis) & 3);
  }
  constexpr Replications with(MeshAxis axis, Replication state) const noexcept {
    int const shift = 2 * static_cast<int>(axis);
    return of_bits(static_cast<std::uint8_t>((bits_ & ~(3 << shift)) | static_cast<int>(state) << shift));
  }
  /// Whether it is so along any axis.
  constexpr bool any(Replication state) const noexcept {
    for (int axis = 0; axis < mesh_axes; ++axis)
      if ((*this)[static_cast<MeshAxis>(axis)] == state) return true;
    return false;
  }
  friend constexpr bool operator==(Replications const&, Replications const&) = default;

 private:
  std::uint8_t bits_ = 0;
};

}  // namespace tutti::graph

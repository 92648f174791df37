// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Ranks with different configurations would exchange different messages for the same call, so a communicator starts
/// by comparing them. Launchers pass variables on in different ways, which is how they come to differ.

#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/core/fnv1a.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace tutti::mpi {

/// Compares what decides how ranks talk to each other.
/// Ranks      all of `comm`, each with its own `config`.
/// Errors     configuration, on all ranks, naming the first key that differs and two of its values.
inline void check_agreement(MPI_Comm comm, MpiConfig const& config) {
  struct Key {
    char const* name;
    std::int64_t value;
    std::string (*text)(std::int64_t);
  };
  constexpr auto switch_text = [](std::int64_t value) { return detail::text_of(static_cast<Switch>(value)); };
  constexpr auto check_text = [](std::int64_t value) { return detail::text_of(static_cast<CheckLevel>(value)); };
  constexpr auto count_text = [](std::int64_t value) { return std::to_string(value); };
  Key const keys[] = {
      {"check_level", static_cast<std::int64_t>(config.check_level.get()), check_text},
      {"node_shared", static_cast<std::int64_t>(config.node_shared.get()), switch_text},
      {"cuda_aware", static_cast<std::int64_t>(config.cuda_aware.get()), switch_text},
      {"node_ranks", config.node_ranks->count, count_text},
      {"staging_bytes", config.staging_bytes->bytes, count_text},
      {"count_limit", config.count_limit, count_text},
      {"tuning", Fnv1a().add(config.tuning->text()).number(), nullptr},
  };
  constexpr int count = std::size(keys);
  std::int64_t extremes[2 * count];  // the greatest value, and the least with its sign turned
  for (int i = 0; i < count; ++i) {
    extremes[2 * i] = keys[i].value;
    extremes[2 * i + 1] = -keys[i].value;
  }
  check(MPI_Allreduce(MPI_IN_PLACE, extremes, 2 * count, MPI_INT64_T, MPI_MAX, comm), "MPI_Allreduce");
  for (int i = 0; i < count; ++i) {
    std::int64_t const greatest = extremes[2 * i], least = -extremes[2 * i + 1];
    if (least != greatest)
      throw Error(ErrorKind::configuration, "Mpi",
                  std::string(keys[i].name) + " differs between the ranks" +
                      (keys[i].text == nullptr
                           ? std::string()
                           : ": " + keys[i].text(least) + " on one, " + keys[i].text(greatest) + " on another") +
                      ". Give all ranks the same, in code or by " +
                      variable_of(keys[i].name) + " (mpiexec -genv of MPICH, -x of Open MPI)");
  }
}

}  // namespace tutti::mpi

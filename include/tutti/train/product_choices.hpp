// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a run's products are computed where that was chosen by their time: kept beside its checkpoints, a file a rank,
/// so that a run that goes on from one of them computes the same bits. A choice never changes, so one file serves all.

#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <string>

namespace tutti::train {

inline std::string product_choices_file(std::filesystem::path const& run, int rank) {
  return (run / "checkpoints" / fmt::format("products.rank_{:04}.txt", rank)).string();
}

/// Takes what the run of a checkpoint's folder chose. Returns what people should know, or nothing.
/// Errors     io; format, naming the file. Does not communicate.
template <class Machine>
std::string take_product_choices(Machine& machine, std::filesystem::path const& checkpoint, int rank) {
  std::string const file = product_choices_file(checkpoint.parent_path().parent_path(), rank);
  if (!io::file_exists(file)) return {};
  try {
    if (machine.take_product_choices(io::read_file(file))) return {};
  } catch (Error const& error) {
    throw Error(error.kind(), "take_product_choices", file + ": " + error.message());
  }
  return file + " is of another version of cuBLASLt or another device: results differ in their last bits";
}

/// Keeps what this rank has chosen so far. Errors: io. Does not communicate.
template <class Machine>
void keep_product_choices(Machine const& machine, std::filesystem::path const& run, int rank) {
  std::string const text = machine.product_choices();
  if (text.empty()) return;
  io::make_folder((run / "checkpoints").string());
  io::write_file(product_choices_file(run, rank), text);
}

}  // namespace tutti::train

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which checkpoints a run has: names of their folders and files, finding, removing and setting them aside.

#include <tutti/io/file.hpp>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

/// The files of tensors, without what ends their names.
inline constexpr char const* checkpoint_files[] = {"parameters", "optimizer"};

namespace detail {

inline constexpr char const* complete_marker = "COMPLETE";

inline constexpr int checkpoint_version = 2;

inline std::string replica_file(int rank) {
  char text[40];
  std::snprintf(text, sizeof(text), "replica_%05d.safetensors", rank);
  return text;
}

inline std::string step_folder(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof(text), "step_%08" PRId64, step);
  return text;
}

/// The name that a checkpoint has while another of its step takes its place.
inline std::string former_folder(std::int64_t step) { return "." + step_folder(step) + ".former"; }

/// Step of a folder name, or -1.
inline std::int64_t step_of(std::string_view folder) {
  if (folder.starts_with('.') && folder.ends_with(".former"))
    folder = folder.substr(1, folder.rfind('.') - 1);
  if (!folder.starts_with("step_")) return -1;
  std::int64_t step = -1;
  auto const [end, code] = std::from_chars(folder.data() + 5, folder.data() + folder.size(), step);
  bool const whole = code == std::errc{} && end == folder.data() + folder.size();
  return whole && folder == step_folder(step) ? step : -1;  // no others are written
}

/// Steps of the complete checkpoints below `out`, rising.
inline std::vector<std::int64_t> complete_steps(std::filesystem::path const& out) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (auto const& entry : std::filesystem::directory_iterator(out / "checkpoints", ignored)) {
    std::int64_t const step = step_of(entry.path().filename().string());
    if (step >= 0 && std::filesystem::exists(entry.path() / complete_marker)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

/// Where the complete checkpoint of a step lies: under its name, or under the former one when a crash came between.
inline std::filesystem::path complete_folder(std::filesystem::path const& out, std::int64_t step) {
  std::filesystem::path const folder = out / "checkpoints" / step_folder(step);
  return std::filesystem::exists(folder / complete_marker) ? folder : out / "checkpoints" / former_folder(step);
}

/// The name that a folder of checkpoints has while it is written or removed; what a crash leaves of it is cleared with
/// the next checkpoint.
inline std::string partial_folder(std::int64_t step) { return "." + step_folder(step) + ".partial"; }

/// Where ranks put their replicas until the checkpoint takes them.
inline std::string replica_folder(std::int64_t step) { return "." + step_folder(step) + ".replicas"; }

/// The marker goes first: half a folder must not look whole. What cannot be removed stays, unmarked.
inline void remove_folder(std::filesystem::path const& folder) noexcept {
  std::error_code ignored;
  std::filesystem::remove(folder / complete_marker, ignored);
  std::filesystem::remove_all(folder, ignored);
}
inline void remove_checkpoint(std::filesystem::path const& out, std::int64_t step) {
  std::filesystem::path const all = out / "checkpoints", folder = all / step_folder(step);
  remove_folder(all / former_folder(step));
  remove_folder(all / partial_folder(step));
  std::error_code failed;
  std::filesystem::rename(folder, all / partial_folder(step), failed);
  remove_folder(failed ? folder : all / partial_folder(step));
}
/// `step` is the one whose replicas are still needed.
inline void remove_partial_folders(std::filesystem::path const& out, std::int64_t step) {
  std::vector<std::filesystem::path> left;
  std::error_code ignored;
  for (auto const& entry : std::filesystem::directory_iterator(out / "checkpoints", ignored)) {
    std::filesystem::path const name = entry.path().filename(), extension = name.extension();
    if (name.string().starts_with(".step_") && name != replica_folder(step) &&
        (extension == ".partial" || extension == ".replicas"))
      left.push_back(entry.path());
  }
  for (std::filesystem::path const& folder : left) remove_folder(folder);
}

}  // namespace detail

/// Takes the complete checkpoints of the run in `out` that lie beyond `step` out of its history, because it is about to
/// go on from there: they keep their contents under names that no step finds, and a path still does.
/// Errors: io. Returns the names, without the folder.
inline std::vector<std::string> set_checkpoints_aside(std::filesystem::path const& out, std::int64_t step) {
  namespace fs = std::filesystem;
  fs::path const all = out / "checkpoints";
  std::vector<std::string> names;
  for (std::int64_t const later : detail::complete_steps(out)) {
    if (later <= step) continue;
    std::string const stem = "superseded_" + detail::step_folder(later);
    std::string name = stem;
    for (int copy = 2; fs::exists(all / name); ++copy) name = stem + "_" + std::to_string(copy);
    std::error_code code;
    fs::rename(detail::complete_folder(out, later), all / name, code);
    if (code)
      throw Error(ErrorKind::io, "set_checkpoints_aside",
                  (all / detail::step_folder(later)).string() + " cannot be renamed to " + name +
                      ". Make the folder writable or choose another --out")
          .with_native(code.message());
    names.push_back(name);
  }
  if (!names.empty()) io::sync_folder(all.string());
  return names;
}

/// Removes every complete checkpoint below `out`: those of a run that another one replaces.
inline void remove_checkpoints(std::filesystem::path const& out) {
  for (std::int64_t const step : detail::complete_steps(out))
    detail::remove_checkpoint(out, step);
}

/// `wanted` is "latest", a step, or the path of a checkpoint folder.
/// Errors: io or format, saying what is there instead.
inline std::filesystem::path find_checkpoint(std::filesystem::path const& out, std::string const& wanted) {
  namespace fs = std::filesystem;
  auto const refuse = [](std::string const& what) { throw Error(ErrorKind::io, "find_checkpoint", what); };
  bool const is_step = !wanted.empty() && wanted.find_first_not_of("0123456789") == std::string::npos;
  fs::path folder = wanted;
  if (wanted == "latest" || is_step) {
    std::vector<std::int64_t> const steps = detail::complete_steps(out);
    if (steps.empty())
      refuse("there is no complete checkpoint in " + (out / "checkpoints").string() +
             ". A run keeps one every --checkpoint-every steps and after its last");
    std::int64_t step = steps.back();
    if (is_step) {
      auto const [end, code] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), step);
      if (code != std::errc{} || end != wanted.data() + wanted.size() ||
          !std::binary_search(steps.begin(), steps.end(), step)) {
        std::string have;
        for (std::int64_t one : steps) have += (have.empty() ? "" : ", ") + std::to_string(one);
        refuse("step " + wanted + " is not among the complete checkpoints in " + (out / "checkpoints").string() + ": " +
               have);
      }
    }
    folder = detail::complete_folder(out, step);
  }
  auto const has = [&](char const* name) { return io::file_exists((folder / name).string()); };
  if (!io::folder_exists(folder.string()))
    refuse("'" + folder.string() + "' is not the folder of a checkpoint. Give one, a step, or latest");
  if (has(detail::complete_marker)) return folder;
  if (io::folder_exists((folder / "checkpoints").string()))
    refuse("'" + folder.string() + "' is the folder of a run. Give it as --out, and here a step or latest");
  bool const begun = detail::step_of(folder.filename().string()) >= 0 || has("checkpoint.json") ||
                     folder.extension() == ".partial";
  if (!begun)
    refuse("'" + folder.string() +
           "' is not a checkpoint: there is no checkpoint.json in it. Give the folder of one, " +
           "such as DIR/checkpoints/step_00000100");
  refuse(folder.string() + " has no " + detail::complete_marker +
         ": writing it was interrupted. Use an older checkpoint");
  return folder;
}

}  // namespace tutti::train

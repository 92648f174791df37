// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Checkpoints: logical tensors in safetensors and one JSON, in a folder that counts only once its marker is there.
///
///   <out>/checkpoints/step_00000100/parameters.safetensors   parameters by name, layers stacked
///                                   optimizer.safetensors    moments by name
///                                   tokenizer.json           when the run has one
///                                   replica_00000.safetensors  of each rank, where ranks train replicas (DiLoCo)
///                                   checkpoint.json          step, sizes, settings, data cursor, hashes of the others
///                                   COMPLETE                 hash of checkpoint.json, written last
///
/// Nothing in it but replicas depends on how many ranks wrote it.

#include <tutti/core/hash.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

using Json = nlohmann::json;

/// Hash over names, types, shapes and bytes, in the order given.
inline std::uint64_t hash_tensors(std::span<io::NamedTensor const> tensors) {
  std::uint64_t hash = 0;
  for (io::NamedTensor const& tensor : tensors) {
    std::string const head = tensor.name + std::string(name(tensor.dtype)) + to_string(tensor.shape);
    hash = hash_bytes(std::as_bytes(std::span(head)), hash);
    hash = hash_bytes({static_cast<std::byte const*>(tensor.data), tensor.bytes()}, hash);
  }
  return hash;
}

inline std::string to_hex(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash);
  return text;
}

namespace detail {

inline std::string hash_text(std::string_view text) { return to_hex(hash_bytes(std::as_bytes(std::span(text)))); }

inline constexpr char const* complete_marker = "COMPLETE";
inline constexpr int checkpoint_version = 2;

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

inline std::vector<io::NamedTensor> listed(io::Safetensors const& file) {
  std::vector<io::NamedTensor> tensors;
  for (auto const& [name, tensor] : file.tensors()) tensors.push_back(tensor);
  return tensors;
}

inline std::string replica_file(int rank) {
  char text[40];
  std::snprintf(text, sizeof(text), "replica_%05d.safetensors", rank);
  return text;
}

}  // namespace detail

/// Writes what rank `rank` alone knows, before one rank calls `save_checkpoint` for this step with as many `replicas`.
/// Blocking: until the device has the bytes. Errors: io. Returns the hash for CheckpointContents.
inline std::string save_replica(std::filesystem::path const& out, std::int64_t step, int rank,
                                std::span<io::NamedTensor const> tensors) {
  std::filesystem::path const folder = out / "checkpoints" / detail::replica_folder(step);
  io::make_folder(folder.parent_path().string());
  io::make_folder(folder.string());
  io::write_safetensors((folder / detail::replica_file(rank)).string(), tensors);
  return to_hex(hash_tensors(tensors));
}

/// What one rank writes for all. Tensors are borrowed until the call returns.
struct CheckpointContents {
  std::int64_t step = 0;
  std::vector<io::NamedTensor> parameters, optimizer;  ///< each sorted by name
  Json facts;                                          ///< joins checkpoint.json; must not use the keys named there
  std::string tokenizer;                               ///< text of tokenizer.json, or empty
  std::vector<std::string> replicas{};                 ///< hashes of what each rank gave `save_replica`
};

/// Writes aside, marks, syncs, renames, and then removes the oldest so that `keep` remain (0: all).
/// Blocking: until the device has the bytes. Errors: io; an older checkpoint, also one of the same step, is never lost
/// to a newer one that fails or is cut short.
/// Returns the folder.
inline std::filesystem::path save_checkpoint(std::filesystem::path const& out, CheckpointContents const& contents,
                                             std::int64_t keep) {
  namespace fs = std::filesystem;
  fs::path const all = out / "checkpoints";
  io::make_folder(all.string());
  fs::path const target = all / detail::step_folder(contents.step);
  fs::path const aside = all / detail::partial_folder(contents.step);
  fs::path const former = all / detail::former_folder(contents.step);
  std::error_code code;
  auto const must = [&](char const* what) {
    if (code)
      throw Error(ErrorKind::io, "save_checkpoint",
                  target.string() + " " + what + ". Free space or choose another --out")
          .with_native(code.message());
  };
  detail::remove_partial_folders(out, contents.step);  // of a run that was killed: only one at a time has the folder
  fs::remove_all(aside, code);
  must("cannot be prepared");
  struct Leftover {  // of a full disk, say: it must not take the space that the next one needs
    fs::path const& folder;
    bool done = false;
    ~Leftover() {
      if (!done) detail::remove_folder(folder);
    }
  } leftover{aside};
  io::make_folder(aside.string());

  Json json = {{"format", "tutti checkpoint"}, {"version", detail::checkpoint_version}, {"step", contents.step}};
  json["parameters_hash"] = to_hex(hash_tensors(contents.parameters));
  json["optimizer_hash"] = to_hex(hash_tensors(contents.optimizer));
  json["tokenizer_hash"] = detail::hash_text(contents.tokenizer);
  if (!contents.replicas.empty()) json["replica_hashes"] = contents.replicas;
  if (!contents.facts.is_null()) json.update(contents.facts);
  fs::path const replicas = all / detail::replica_folder(contents.step);
  for (std::size_t rank = 0; rank < contents.replicas.size(); ++rank) {
    std::string const name = detail::replica_file(static_cast<int>(rank));
    if (!fs::exists(replicas / name))
      throw Error(ErrorKind::io, "save_checkpoint",
                  (replicas / name).string() + " is not there: the replica of rank " + std::to_string(rank) +
                      " was written elsewhere. Choose an --out that all nodes share");
    fs::rename(replicas / name, aside / name, code);
    must("cannot take the replicas");
  }
  detail::remove_folder(replicas);
  io::write_safetensors((aside / "parameters.safetensors").string(), contents.parameters);
  io::write_safetensors((aside / "optimizer.safetensors").string(), contents.optimizer);
  if (!contents.tokenizer.empty()) io::write_file((aside / "tokenizer.json").string(), contents.tokenizer);
  std::string const description = json.dump(2) + "\n";
  io::write_file((aside / "checkpoint.json").string(), description);
  io::write_file((aside / detail::complete_marker).string(), detail::hash_text(description) + "\n");
  io::sync_folder(aside.string());
  leftover.done = true;

  if (!fs::exists(target)) {
    fs::rename(aside, target, code);
    must("cannot be put in place");
  } else if (io::exchange_names(aside.string(), target.string())) {
    io::sync_folder(all.string());
    detail::remove_folder(aside);
  } else {
    // Until the second rename the former name serves. A former folder from an earlier crash is older than the target.
    if (fs::exists(target / detail::complete_marker)) detail::remove_folder(former);
    fs::rename(target, former, code);
    must("cannot be replaced");
    fs::rename(aside, target, code);
    if (code) {
      std::error_code ignored;
      fs::rename(former, target, ignored);
    }
    must("cannot be put in place");
  }
  io::sync_folder(all.string());
  detail::remove_folder(former);

  if (keep > 0) {
    std::vector<std::int64_t> steps = detail::complete_steps(out);
    std::erase_if(steps, [&](std::int64_t step) { return step >= contents.step; });
    for (std::size_t i = 0; i + static_cast<std::size_t>(keep) <= steps.size(); ++i)
      detail::remove_checkpoint(out, steps[i]);
  }
  return target;
}

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

/// A checkpoint, opened and checked whole.
class Checkpoint {
 public:
  /// Errors: io; format, when the files are damaged, do not belong together, or are of another kind.
  explicit Checkpoint(std::filesystem::path const& folder)
      : folder_(folder),
        description_(io::read_file((folder / "checkpoint.json").string())),
        facts_(io::parse_json(description_, (folder / "checkpoint.json").string(), "Checkpoint")),
        parameters_((folder / "parameters.safetensors").string()),
        optimizer_((folder / "optimizer.safetensors").string()) {
    auto const refuse = [&](std::string const& what) {
      throw Error(ErrorKind::format, "Checkpoint", folder.string() + " " + what + ". Use another checkpoint");
    };
    try {
      if (facts_.at("format") != "tutti checkpoint") refuse("is not a checkpoint of tutti");
      if (facts_.at("version") != detail::checkpoint_version)
        refuse("has version " + facts_.at("version").dump() + ", this program reads " +
               std::to_string(detail::checkpoint_version));
      if (io::read_file((folder / detail::complete_marker).string()) != detail::hash_text(description_) + "\n")
        refuse("is damaged: checkpoint.json is not what was saved");
      step_ = facts_.at("step").get<std::int64_t>();
      if (std::int64_t const named = detail::step_of(folder.filename().string()); named >= 0 && named != step_)
        refuse("holds step " + std::to_string(step_) + ": the folder was renamed");
      if (io::file_exists((folder / "tokenizer.json").string()))
        tokenizer_ = io::read_file((folder / "tokenizer.json").string());
      if (facts_.at("tokenizer_hash") != detail::hash_text(tokenizer_))
        refuse("is damaged: tokenizer.json is not what was saved");
      for (auto const* which : {"parameters", "optimizer"}) {
        io::Safetensors const& file = which[0] == 'p' ? parameters_ : optimizer_;
        if (facts_.at(std::string(which) + "_hash") != to_hex(hash_tensors(detail::listed(file))))
          refuse(std::string("is damaged: ") + which + ".safetensors does not hold what was saved");
      }
    } catch (nlohmann::json::exception const& error) {
      throw Error(
          ErrorKind::format, "Checkpoint",
          (folder / "checkpoint.json").string() + " lacks a fact or has one of another type. Use another checkpoint")
          .with_native(error.what());
    }
    if (step_ < 0) refuse("has a negative step");
  }

  std::filesystem::path const& folder() const noexcept { return folder_; }
  std::int64_t step() const noexcept { return step_; }
  nlohmann::json const& facts() const noexcept { return facts_; }
  /// Text of tokenizer.json; empty when the run had none.
  std::string const& tokenizer() const noexcept { return tokenizer_; }
  /// Of a model that came with one; empty for others.
  std::string chat_template() const { return facts_.value("chat_template", ""); }
  io::Safetensors const& parameters() const noexcept { return parameters_; }
  io::Safetensors const& optimizer() const noexcept { return optimizer_; }
  /// Ranks that kept a replica of their own; 0 where all trained one model.
  int replicas() const noexcept {
    auto const hashes = facts_.find("replica_hashes");
    return hashes == facts_.end() || !hashes->is_array() ? 0 : static_cast<int>(hashes->size());
  }
  /// Errors: io; format, when it is not what was saved.
  io::Safetensors replica(int rank) const {
    io::Safetensors file((folder_ / detail::replica_file(rank)).string());
    if (facts_.at("replica_hashes").at(static_cast<std::size_t>(rank)) != to_hex(hash_tensors(detail::listed(file))))
      throw Error(ErrorKind::format, "Checkpoint",
                  folder_.string() + " is damaged: " + detail::replica_file(rank) +
                      " does not hold what was saved. Use another checkpoint");
    return file;
  }

 private:
  std::filesystem::path folder_;
  std::string description_, tokenizer_;
  nlohmann::json facts_;
  io::Safetensors parameters_, optimizer_;
  std::int64_t step_ = 0;
};

}  // namespace tutti::train

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

#include <tutti/io/file.hpp>
#include <tutti/io/safetensors.hpp>
#include <tutti/train/checkpoint_folders.hpp>
#include <tutti/train/stored_checkpoint.hpp>
#include <tutti/train/tensor_hashes.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

using Json = nlohmann::json;

namespace detail {

inline std::vector<io::NamedTensor> listed(io::Safetensors const& file) {
  std::vector<io::NamedTensor> tensors;
  for (auto const& [name, tensor] : file.tensors()) tensors.push_back(tensor);
  return tensors;
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
  /// Gives the bytes of tensors whose `data` are null, one after the other in the order of the lists; they are read
  /// before the next is asked for.
  std::function<void const*(io::NamedTensor const&)> load{};

  /// Of `checkpoint_files[file]`.
  std::vector<io::NamedTensor> const& tensors(int file) const { return file == 0 ? parameters : optimizer; }
  void const* data_of(io::NamedTensor const& tensor) const { return tensor.data || !load ? tensor.data : load(tensor); }
};

/// A folder aside in which a checkpoint grows; removed unless it is completed. Of one rank.
class UnfinishedCheckpoint {
 public:
  /// Blocking. Errors: io.
  UnfinishedCheckpoint(std::filesystem::path const& out, std::int64_t step)
      : out_(out), all_(out / "checkpoints"), target_(all_ / detail::step_folder(step)), step_(step) {
    io::make_folder(all_.string());
    detail::remove_partial_folders(out, step);  // of a run that was killed: only one at a time has the folder
    std::error_code code;
    std::filesystem::remove_all(folder(), code);
    must(code, "cannot be prepared");
    io::make_folder(folder().string());
  }
  UnfinishedCheckpoint(UnfinishedCheckpoint const&) = delete;
  UnfinishedCheckpoint& operator=(UnfinishedCheckpoint const&) = delete;
  ~UnfinishedCheckpoint() {  // of a full disk, say: it must not take the space that the next one needs
    if (!done_) detail::remove_folder(folder());
  }

  std::filesystem::path folder() const { return all_ / detail::partial_folder(step_); }
  /// A file that is there until the checkpoint is completed, by whose contents ranks know the folder from one that a
  /// killed run left on a disk of theirs. Errors: io.
  void sign(std::string const& token) const { io::write_file((folder() / token_file).string(), token); }
  static constexpr char const* token_file = "token";
  std::string file(int which) const { return (folder() / checkpoint_files[which]).string() + ".safetensors"; }

  /// Once the files of tensors are there, whose hashes these are: adds the others, marks, syncs, renames, and then
  /// removes the oldest so that `keep` remain (0: all). Blocking: until the device has the bytes. Errors: io; an older
  /// checkpoint, also one of the same step, is never lost to a newer one that fails or is cut short.
  /// Returns the folder.
  std::filesystem::path complete(CheckpointContents const& contents, std::uint64_t const (&hashes)[2],
                                 std::int64_t keep) {
    Json json = {{"format", "tutti checkpoint"}, {"version", detail::checkpoint_version}, {"step", step_}};
    json["tokenizer_hash"] = detail::hash_text(contents.tokenizer);
    for (int file = 0; file < 2; ++file) json[std::string(checkpoint_files[file]) + "_hash"] = to_hex(hashes[file]);
    if (!contents.replicas.empty()) json["replica_hashes"] = contents.replicas;
    std::error_code code;
    std::filesystem::remove(folder() / token_file, code);
    must(code, "cannot be completed");
    take_replicas(contents.replicas.size());
    if (!contents.tokenizer.empty()) io::write_file((folder() / "tokenizer.json").string(), contents.tokenizer);
    if (!contents.facts.is_null()) json.update(contents.facts);
    std::string const description = json.dump(2) + "\n";
    io::write_file((folder() / "checkpoint.json").string(), description);
    io::write_file((folder() / detail::complete_marker).string(), detail::hash_text(description) + "\n");
    io::sync_folder(folder().string());
    done_ = true;
    put_in_place();
    if (keep > 0) {
      std::vector<std::int64_t> steps = detail::complete_steps(out_);
      std::erase_if(steps, [&](std::int64_t step) { return step >= step_; });
      for (std::size_t i = 0; i + static_cast<std::size_t>(keep) <= steps.size(); ++i)
        detail::remove_checkpoint(out_, steps[i]);
    }
    return target_;
  }

 private:
  void must(std::error_code const& code, char const* what) const {
    if (code)
      throw Error(ErrorKind::io, "save_checkpoint",
                  target_.string() + " " + what + ". Free space or choose another --out")
          .with_native(code.message());
  }
  void take_replicas(std::size_t count) const {
    std::filesystem::path const replicas = all_ / detail::replica_folder(step_);
    for (std::size_t rank = 0; rank < count; ++rank) {
      std::string const name = detail::replica_file(static_cast<int>(rank));
      if (!std::filesystem::exists(replicas / name))
        throw Error(ErrorKind::io, "save_checkpoint",
                    (replicas / name).string() + " is not there: the replica of rank " + std::to_string(rank) +
                        " was written elsewhere. Choose an --out that all nodes share");
      std::error_code code;
      std::filesystem::rename(replicas / name, folder() / name, code);
      must(code, "cannot take the replicas");
    }
    detail::remove_folder(replicas);
  }
  void put_in_place() const {
    namespace fs = std::filesystem;
    fs::path const former = all_ / detail::former_folder(step_);
    std::error_code code;
    if (!fs::exists(target_)) {
      fs::rename(folder(), target_, code);
      must(code, "cannot be put in place");
    } else if (io::exchange_names(folder().string(), target_.string())) {
      io::sync_folder(all_.string());
      detail::remove_folder(folder());
    } else {
      // Until the second rename the former name serves. A former folder from an earlier crash is older than the target.
      if (fs::exists(target_ / detail::complete_marker)) detail::remove_folder(former);
      fs::rename(target_, former, code);
      must(code, "cannot be replaced");
      fs::rename(folder(), target_, code);
      if (code) {
        std::error_code ignored;
        fs::rename(former, target_, ignored);
      }
      must(code, "cannot be put in place");
    }
    io::sync_folder(all_.string());
    detail::remove_folder(former);
  }

  std::filesystem::path out_, all_, target_;
  std::int64_t step_;
  bool done_ = false;
};

/// All of it by one rank, as UnfinishedCheckpoint::complete says. Errors: io. Returns the folder.
inline std::filesystem::path save_checkpoint(std::filesystem::path const& out, CheckpointContents const& contents,
                                             std::int64_t keep) {
  UnfinishedCheckpoint aside(out, contents.step);
  std::uint64_t hashes[] = {0, 0};
  for (int file = 0; file < 2; ++file) {
    std::uint64_t& hash = hashes[file];
    io::write_safetensors(aside.file(file), contents.tensors(file), [&](io::NamedTensor const& tensor) {
      void const* const data = contents.data_of(tensor);
      hash = hash_tensor(tensor, data, hash);
      return data;
    });
  }
  return aside.complete(contents, hashes, keep);
}

}  // namespace tutti::train

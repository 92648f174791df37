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
#include <tutti/train/checkpoint_folders.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

using Json = nlohmann::json;

/// A hash of tensors goes on with one: its name, type, shape and bytes, which are at `data`.
inline std::uint64_t hash_tensor(io::NamedTensor const& tensor, void const* data, std::uint64_t hash) {
  std::string const head = tensor.name + std::string(name(tensor.dtype)) + to_string(tensor.shape);
  hash = hash_bytes(std::as_bytes(std::span(head)), hash);
  return hash_bytes({static_cast<std::byte const*>(data), tensor.bytes()}, hash);
}
/// Of all of them, in the order given.
inline std::uint64_t hash_tensors(std::span<io::NamedTensor const> tensors) {
  std::uint64_t hash = 0;
  for (io::NamedTensor const& tensor : tensors) hash = hash_tensor(tensor, tensor.data, hash);
  return hash;
}
/// The same of all of a file, of which no more than a tensor is in memory at a time.
inline std::uint64_t hash_file(io::Safetensors const& file) {
  std::uint64_t hash = 0;
  for (auto const& [name, tensor] : file.tensors()) {
    hash = hash_tensor(tensor, tensor.data, hash);
    io::forget_pages(tensor.data, tensor.bytes());
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

inline constexpr int checkpoint_version = 2;

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

/// The files of tensors, without what ends their names.
inline constexpr char const* checkpoint_files[] = {"parameters", "optimizer"};

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
      for (auto const* which : checkpoint_files) {
        io::Safetensors const& file = which[0] == 'p' ? parameters_ : optimizer_;
        if (facts_.at(std::string(which) + "_hash") != to_hex(hash_file(file)))
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
    if (facts_.at("replica_hashes").at(static_cast<std::size_t>(rank)) != to_hex(hash_file(file)))
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

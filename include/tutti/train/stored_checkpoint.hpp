// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A checkpoint that is read.

#include <tutti/core/error.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/safetensors.hpp>
#include <tutti/train/checkpoint_folders.hpp>
#include <tutti/train/tensor_hashes.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tutti::train {

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

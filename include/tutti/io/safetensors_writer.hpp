// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Writes the safetensors of a model into a folder, tensor after tensor in bounded memory.

#include <tutti/io/safetensors_shards.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::io {

/// Tensors' bytes come by `write`, in the order of `tensors()`; then `commit`. It makes model.safetensors, or, of a
/// model with more than `shard_bytes`, shards, over which tensors keep their order, and last their index, without
/// which no reader sees them.
class SafetensorsWriter {
 public:
  /// `plan`: names, types and shapes; its data are not read. Errors: invalid_argument (a name that stands twice).
  SafetensorsWriter(std::string folder, std::vector<NamedTensor> plan, Metadata metadata = {},
                    std::uint64_t shard_bytes = 5'000'000'000,
                    std::source_location where = std::source_location::current())
      : folder_(std::move(folder)), metadata_(std::move(metadata)), where_(where) {
    std::uint64_t used = 0;
    std::vector<NamedTensor> part;
    auto const finish = [&] {
      for (std::size_t const i : detail::safetensors_order(part, where_)) tensors_.push_back(part[i]);
      ends_.push_back(tensors_.size());
      part.clear();
      used = 0;
    };
    for (NamedTensor& tensor : plan) {
      std::uint64_t const bytes = tensor.bytes();
      if (used != 0 && (used >= shard_bytes || bytes > shard_bytes - used)) finish();
      used += bytes;
      part.push_back(std::move(tensor));
    }
    finish();
    static_cast<void>(detail::safetensors_order(tensors_, where_));  // no name twice in different files
  }
  SafetensorsWriter(SafetensorsWriter const&) = delete;
  SafetensorsWriter& operator=(SafetensorsWriter const&) = delete;

  /// In the order in which they are written.
  std::vector<NamedTensor> const& tensors() const noexcept { return tensors_; }

  /// The next bytes, in pieces of any size. Errors: invalid_argument, when they are more than planned; io.
  void write(void const* data, std::size_t bytes) {
    auto const* from = static_cast<char const*>(data);
    skip_finished();
    while (bytes != 0) {
      if (tensor_ == tensors_.size()) refuse(std::to_string(bytes) + " bytes come behind the last tensor");
      std::size_t const part = std::min(bytes, tensors_[tensor_].bytes() - done_);
      file_->write(from, part);
      from += part;
      bytes -= part;
      done_ += part;
      skip_finished();
    }
  }

  /// Blocking: until the device has the bytes. Errors: invalid_argument, when tensors lack bytes; io.
  void commit() {
    skip_finished();
    if (tensor_ != tensors_.size()) refuse("tensor '" + tensors_[tensor_].name + "' lacks bytes");
    if (file_) file_->commit();
    if (ends_.size() == 1) return;
    nlohmann::json map = nlohmann::json::object();
    std::uint64_t total = 0;
    for (std::size_t part = 0, i = 0; part < ends_.size(); ++part)
      for (; i < ends_[part]; ++i) {
        map[tensors_[i].name] = file_name(part);
        total += tensors_[i].bytes();
      }
    nlohmann::json const json = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
    write_file(folder_ + "/" + SafetensorsShards::index_name,
               json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::invalid_argument, "SafetensorsWriter",
                "'" + folder_ + "' is not written: " + why + ". Write what the plan says", where_);
  }
  std::string file_name(std::size_t part) const {
    if (ends_.size() == 1) return "model.safetensors";
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", part + 1, ends_.size());
    return name;
  }
  /// Goes on to the next tensor with bytes, and opens the file in which it stands.
  void skip_finished() {
    for (;;) {
      while (opened_ < ends_.size() && (opened_ == 0 || tensor_ == ends_[opened_ - 1])) {
        std::size_t const begin = opened_ == 0 ? 0 : ends_[opened_ - 1];
        if (file_) file_->commit();
        file_.emplace(folder_ + "/" + file_name(opened_));
        std::vector<NamedTensor const*> listed;
        for (std::size_t i = begin; i < ends_[opened_]; ++i) listed.push_back(&tensors_[i]);
        file_->write(detail::safetensors_header(listed, metadata_));
        ++opened_;
      }
      if (tensor_ == tensors_.size() || done_ != tensors_[tensor_].bytes()) return;
      done_ = 0;
      ++tensor_;
    }
  }

  std::string folder_;
  Metadata metadata_;
  std::source_location where_;
  std::vector<NamedTensor> tensors_;  // in the order of their files
  std::vector<std::size_t> ends_;     // of each file
  std::size_t opened_ = 0, tensor_ = 0, done_ = 0;
  std::optional<AtomicFile> file_;
};

/// The same of tensors that are all in memory.
/// Errors: invalid_argument, when a name stands twice or the folder holds a model already; io.
inline void write_safetensors_shards(std::string const& folder, std::span<NamedTensor const> tensors,
                                     Metadata const& metadata = {}, std::uint64_t shard_bytes = 5'000'000'000,
                                     std::source_location where = std::source_location::current()) {
  std::string const index = folder + "/" + SafetensorsShards::index_name, single = folder + "/model.safetensors";
  if (file_exists(index) || file_exists(single))
    throw Error(ErrorKind::invalid_argument, "write_safetensors_shards",
                "folder '" + folder + "' holds a model already. Choose another, or remove '" +
                    (file_exists(index) ? index : single) + "'",
                where);
  SafetensorsWriter writer(folder, {tensors.begin(), tensors.end()}, metadata, shard_bytes, where);
  for (NamedTensor const& tensor : writer.tensors()) writer.write(tensor.data, tensor.bytes());
  writer.commit();
}

}  // namespace tutti::io

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The safetensors of a model as Hugging Face lays them in a folder: model.safetensors, or shards named by
/// model.safetensors.index.json.

#include <tutti/io/safetensors.hpp>

#include <deque>
#include <map>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::io {

/// A model's tensors, from whichever file each lies in; mapped. Views refer to the mappings: the object must outlive
/// them.
class SafetensorsShards {
 public:
  /// `path` is the folder, an index, or a single file.
  /// Errors: io; format, with the file, what is wrong with it and what to do.
  explicit SafetensorsShards(std::string path) : path_(std::move(path)) {
    if (folder_exists(path_)) {
      std::string const index = path_ + "/" + index_name, single = path_ + "/model.safetensors";
      if (!file_exists(index) && !file_exists(single))
        throw Error(ErrorKind::io, "SafetensorsShards",
                    "folder '" + path_ + "' has neither " + index_name +
                        " nor model.safetensors. Pass the folder of a model");
      path_ = file_exists(index) ? index : single;
    }
    if (path_.ends_with(".json")) open_shards();
    else add(path_);
  }

  /// The index or the single file.
  std::string const& path() const noexcept { return path_; }
  std::map<std::string, NamedTensor, std::less<>> const& tensors() const noexcept { return tensors_; }
  /// Of the single file or the first shard by name.
  Metadata const& metadata() const noexcept { return files_.front().metadata(); }
  std::size_t files() const noexcept { return files_.size(); }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  /// Errors: format, when no file has such a tensor.
  NamedTensor const& at(std::string_view name, std::source_location where = std::source_location::current()) const {
    return home(name, where).at(name, where);
  }
  /// As Safetensors::view and copy.
  template <Element T>
  TensorView<T const> view(std::string_view name, std::source_location where = std::source_location::current()) const {
    return home(name, where).template view<T>(name, where);
  }
  template <Element T>
  Tensor<T> copy(std::string_view name, std::source_location where = std::source_location::current()) const {
    return home(name, where).template copy<T>(name, where);
  }

  static constexpr char const* index_name = "model.safetensors.index.json";

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "SafetensorsShards",
                "'" + path_ + "' is not a usable index: " + why + ". Fetch the index and all shards again");
  }

  void add(std::string const& path) {
    Safetensors const& file = files_.emplace_back(path);
    for (auto const& [name, tensor] : file.tensors()) {
      tensors_.emplace(name, tensor);
      homes_.emplace(name, &file);
    }
  }

  Safetensors const& home(std::string_view name, std::source_location where) const {
    auto const found = homes_.find(name);
    if (found == homes_.end())
      throw Error(ErrorKind::format, "SafetensorsShards::at",
                  "'" + path_ + "' has no tensor '" + std::string(name) + "' among its " +
                      std::to_string(tensors_.size()) + ". Check that the folder belongs to this model",
                  where);
    return *found->second;
  }

  void open_shards() {
    nlohmann::json const json = parse_json(read_file(path_), path_, "SafetensorsShards");
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
      refuse("it has no object 'weight_map'");
    std::map<std::string, std::set<std::string>> shards;  // the names that each must hold
    for (auto const& [name, file] : json["weight_map"].items()) {
      if (!file.is_string()) refuse("it gives tensor " + quote_json(name) + " a file that is not text");
      auto const& shard = file.get_ref<std::string const&>();
      // The index comes from elsewhere: it must not name files outside its folder.
      if (!shard.ends_with(".safetensors") || shard.find('/') != std::string::npos ||
          shard.find('\0') != std::string::npos)
        refuse("it gives tensor " + quote_json(name) + " the file " + quote_json(shard) +
               ", which is not the name of a safetensors file beside it");
      shards[shard].insert(name);
    }
    if (shards.empty()) refuse("its weight_map is empty");
    std::string const folder = detail::folder_of(path_) + "/";
    for (auto const& [shard, names] : shards)
      if (!file_exists(folder + shard)) refuse("shard " + quote_json(shard) + " is not beside it");
    for (auto const& [shard, names] : shards) {
      add(folder + shard);
      Safetensors const& file = files_.back();
      for (std::string const& name : names)
        if (!file.contains(name)) refuse("shard " + quote_json(shard) + " lacks the tensor " + quote_json(name));
      for (auto const& [name, tensor] : file.tensors())
        if (!names.contains(name))
          refuse("shard " + quote_json(shard) + " holds the tensor " + quote_json(name) +
                 ", which the index does not place there");
    }
  }

  std::string path_;
  std::deque<Safetensors> files_;
  std::map<std::string, NamedTensor, std::less<>> tensors_;
  std::map<std::string, Safetensors const*, std::less<>> homes_;
};

}  // namespace tutti::io

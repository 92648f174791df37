// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GGUF models: one file, or parts named NAME-00001-of-00003.gguf and so on.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/gguf_parse.hpp>
#include <tutti/tensor/tensor.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::io {

/// How a file comes into memory.
enum class Loading : unsigned char {
  mapped,  ///< at once, pages when touched; the file must not shrink meanwhile
  read,    ///< whole, in memory of its own
};

namespace detail {

/// NAME-00002-of-00003.gguf, of NAME; parts count from 1.
inline std::string gguf_part_path(std::string const& name, std::uint64_t part, std::uint64_t parts) {
  char suffix[64];
  std::snprintf(suffix, sizeof suffix, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(part),
                static_cast<unsigned long long>(parts));
  return name + suffix;
}

}  // namespace detail

/// A model. Views refer to its memory: the object must outlive them.
class Gguf {
 public:
  /// The path of a whole model or of its first part; the others are found beside it.
  /// Errors: io; out_of_memory; format, with the file, what is wrong with it and what to do.
  explicit Gguf(std::string path, Loading loading = Loading::mapped, GgufLimits const& limits = {})
      : path_(std::move(path)) {
    add(path_, fetch(path_, loading), limits);
    auto const [part, parts] = split_of(path_, first_);
    if (part != 0)
      refuse(path_, "it is part " + std::to_string(part + 1) + " of " + std::to_string(parts), "Pass the first part");
    std::uint64_t const stated = first_.metadata.get_or<std::uint64_t>("split.tensors.count", tensors_.size());
    if (parts > 1) {
      std::string const suffix = detail::gguf_part_path("", 1, parts);
      if (!path_.ends_with(suffix))
        refuse(path_,
               "it is the first of " + std::to_string(parts) + " parts and its name does not end in '" + suffix + "'",
               "Give the parts their names back");
      std::string const name = path_.substr(0, path_.size() - suffix.size());
      for (std::uint64_t i = 1; i < parts; ++i) {
        std::string const next = detail::gguf_part_path(name, i + 1, parts);
        GgufPart const facts = add(next, fetch(next, loading), limits);
        auto const [at, of] = split_of(next, facts);
        if (at != i || of != parts)
          refuse(next, "its metadata says part " + std::to_string(at + 1) + " of " + std::to_string(of) +
                           ", and its name part " + std::to_string(i + 1) + " of " + std::to_string(parts),
                 "Give the parts their names back");
      }
    }
    if (stated != tensors_.size())
      refuse(path_, "split.tensors.count is " + std::to_string(stated) + ", and there are " +
                        std::to_string(tensors_.size()) + " tensors in " + std::to_string(parts) + " parts",
             "Fetch all parts again");
    for (char const* key : {"split.no", "split.count", "split.tensors.count"}) first_.metadata.erase(key);
  }

  /// A whole model in memory, which is copied. `name` stands for the path in messages.
  /// Errors: format, also for the part of a split model; out_of_memory.
  Gguf(std::span<std::byte const> bytes, std::string name, GgufLimits const& limits = {})
      : Gguf(copy_of(bytes), std::move(name), limits) {}
  /// The same in memory that it takes over, aligned as that of a `Storage` is.
  Gguf(Storage<Cpu> bytes, std::string name, GgufLimits const& limits = {}) : path_(std::move(name)) {
    add(path_, std::move(bytes), limits);
    if (split_of(path_, first_).parts > 1) refuse(path_, "it is part of a split model", "Load split models by name");
  }

  std::string const& path() const noexcept { return path_; }
  /// 2 or 3; of the first part.
  std::uint32_t version() const noexcept { return first_.version; }
  /// Of the first part, less what says how the model is split.
  GgufMetadata const& metadata() const noexcept { return first_.metadata; }
  /// In the order of the files.
  std::vector<GgufTensor> const& tensors() const noexcept { return tensors_; }
  bool contains(std::string_view name) const { return places_.find(std::string(name)) != places_.end(); }

  /// Errors: format, when the model has no such tensor.
  GgufTensor const& at(std::string_view name, std::source_location where = std::source_location::current()) const {
    auto const found = places_.find(std::string(name));
    if (found == places_.end())
      throw Error(ErrorKind::format, "Gguf::at",
                  "'" + path_ + "' has no tensor " + detail::quote_gguf(name) + " among its " +
                      std::to_string(tensors_.size()) + ". Check that the file belongs to this model",
                  where);
    return tensors_[found->second];
  }
  /// The numbers of a tensor of any type in memory of their own.
  Tensor<float> floats(std::string_view name, std::source_location where = std::source_location::current()) const {
    GgufTensor const& tensor = at(name, where);
    Tensor<float> result(tensor.shape);
    dequantise(tensor.type, tensor.data, tensor.shape.size(), result.data(), where);
    return result;
  }

 private:
  struct Split {
    std::uint64_t part, parts;
  };

  [[noreturn]] static void refuse(std::string const& path, std::string const& why, char const* advice) {
    throw Error(ErrorKind::format, "Gguf", "'" + path + "' is not a usable GGUF file: " + why + ". " + advice);
  }

  static Storage<Cpu> copy_of(std::span<std::byte const> bytes) {
    Storage<Cpu> storage(Cpu{}, bytes.size());
    if (!bytes.empty()) std::memcpy(storage.data(), bytes.data(), bytes.size());
    return storage;
  }
  static Storage<Cpu> fetch(std::string const& path, Loading loading) {
    return loading == Loading::mapped ? map_file(path) : load_file(path);
  }

  static Split split_of(std::string const& path, GgufPart const& part) {
    auto const count = [&](char const* key, std::uint64_t otherwise) {
      GgufValue const* const value = part.metadata.find(key);
      if (value == nullptr) return otherwise;
      auto const refused = [&] {
        refuse(path, std::string(key) + " is " + type_name(*value) + " and must be a count", "Fetch all parts again");
      };
      return std::visit(
          [&](auto const& held) -> std::uint64_t {
            using Held = std::remove_cvref_t<decltype(held)>;
            if constexpr (std::integral<Held> && !std::same_as<Held, bool>) {
              if (!std::in_range<std::uint64_t>(held)) refused();
              return static_cast<std::uint64_t>(held);
            } else {
              refused();
              return 0;
            }
          },
          *value);
    };
    count("split.tensors.count", 0);
    Split const split{count("split.no", 0), count("split.count", 1)};
    if (split.parts < 1 || split.parts > 65'535)
      refuse(path, "split.count is " + std::to_string(split.parts) + "; it must be from 1 to 65535",
             "Fetch all parts again");
    if (split.part >= split.parts)
      refuse(path, "split.no is " + std::to_string(split.part) + " and split.count " + std::to_string(split.parts),
             "Fetch all parts again");
    return split;
  }

  /// Takes the tensors of a file; gives the rest of it, for the first file to `first_`.
  GgufPart add(std::string const& path, Storage<Cpu> storage, GgufLimits const& limits) {
    GgufPart part =
        parse_gguf(std::span(static_cast<std::byte const*>(storage.data()), storage.bytes()), path, limits);
    for (GgufTensor& tensor : part.tensors) {
      if (!places_.emplace(tensor.name, tensors_.size()).second)
        refuse(path, "tensor " + detail::quote_gguf(tensor.name) + " stands in an earlier part as well",
               "Fetch all parts again");
      tensors_.push_back(std::move(tensor));
    }
    part.tensors.clear();
    storages_.push_back(std::move(storage));
    if (storages_.size() != 1) return part;
    first_ = std::move(part);
    return {};
  }

  std::string path_;
  std::vector<Storage<Cpu>> storages_;
  GgufPart first_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace tutti::io

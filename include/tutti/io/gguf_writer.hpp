// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Writes GGUF models, tensor after tensor in bounded memory; no file appears before all of it is there.

#include <tutti/io/gguf.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti::io {

/// A tensor that will be written. The last axis is contiguous.
struct GgufTensorPlan {
  std::string name;
  BlockType type = BlockType::f32;
  Shape shape;

  std::int64_t bytes() const {
    return checked_multiply(shape.size() / shape[shape.rank() - 1], row_bytes(type, shape[shape.rank() - 1]));
  }
};

struct GgufWriteOptions {
  std::uint32_t version = 3;       ///< or 2
  std::uint64_t part_bytes = 0;    ///< a model with more bytes of tensors than this is split; 0: never
};

/// Writes one model. Tensors' bytes come by `write`, in the order of the plan; then `commit`. Without it, or when
/// anything throws, no file appears and those that were there are untouched. Of a split model the first part, which
/// readers open, appears last.
class GgufWriter {
 public:
  static constexpr std::uint64_t most_parts = 512;  // each is an open file

  /// Errors: invalid_argument, for metadata or a plan that readers would refuse; io.
  GgufWriter(std::string path, GgufMetadata const& metadata, std::vector<GgufTensorPlan> plan,
             GgufWriteOptions const& options = {}, std::source_location where = std::source_location::current())
      : path_(std::move(path)), plan_(std::move(plan)), where_(where) {
    if (options.version != 2 && options.version != 3)
      refuse("the version " + std::to_string(options.version) + " cannot be written", "Choose 2 or 3");
    check_metadata(metadata);
    check_plan();
    divide(options.part_bytes);
    std::size_t const parts = firsts_.size();
    for (std::size_t i = 0; i < parts; ++i) {
      std::size_t const end = i + 1 < parts ? firsts_[i + 1] : plan_.size();
      std::string const header = header_of(i, firsts_[i], end, metadata, options.version);
      files_.emplace_back(paths_[i]).write(header);
    }
  }
  GgufWriter(GgufWriter const&) = delete;
  GgufWriter& operator=(GgufWriter const&) = delete;

  /// The files that will be.
  std::vector<std::string> const& paths() const noexcept { return paths_; }

  /// The next bytes of the tensors, in pieces of any size. Errors: invalid_argument, when they are more than planned;
  /// io.
  void write(void const* data, std::size_t bytes) {
    auto const* from = static_cast<char const*>(data);
    while (bytes != 0) {
      if (tensor_ == plan_.size())
        refuse(std::to_string(bytes) + " bytes come behind the last tensor", "Write what the plan says");
      std::size_t const part = std::min(bytes, sizes_[tensor_] - done_);
      files_[file_].write(from, part);
      from += part;
      bytes -= part;
      done_ += part;
      skip_finished();
    }
  }

  /// Blocking: until the device has the bytes. Errors: invalid_argument, when tensors lack bytes; io.
  void commit() {
    if (tensor_ != plan_.size())
      refuse("tensor '" + plan_[tensor_].name + "' lacks " + std::to_string(sizes_[tensor_] - done_) + " of " +
                 std::to_string(sizes_[tensor_]) + " bytes",
             "Write all tensors of the plan before commit");
    for (auto file = files_.rbegin(); file != files_.rend(); ++file) file->commit();
  }

 private:
  [[noreturn]] void refuse(std::string const& why, char const* advice) const {
    throw Error(ErrorKind::invalid_argument, "GgufWriter", "'" + path_ + "' is not written: " + why + ". " + advice,
                where_);
  }

  void check_metadata(GgufMetadata const& metadata) {
    GgufLimits const limits;
    if (metadata.size() + 3 > limits.keys)
      refuse("there are " + std::to_string(metadata.size()) + " keys", "Leave keys out: a file may have 65536");
    for (auto const& [key, value] : metadata) {
      std::string const who = "key " + detail::quote_gguf(key);
      if (key.empty() || key.size() > detail::gguf_name_bytes ||
          std::any_of(key.begin(), key.end(), [](char c) { return c < ' ' || c > '~'; }))
        refuse(who + " is not ASCII text of 1 to 65535 bytes", "Rename it");
      if (key == "split.no" || key == "split.count" || key == "split.tensors.count")
        refuse(who + " says how a model is split, which is the writer's to say", "Leave it out and set part_bytes");
      auto const* const array = std::get_if<GgufArray>(&value);
      if (array != nullptr && std::holds_alternative<std::monostate>(*array))
        refuse(who + " is a list without a type", "Give it the type of its elements");
    }
    if (GgufValue const* value = metadata.find("general.alignment")) {
      auto const* const alignment = std::get_if<std::uint32_t>(value);
      if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment < 8 || *alignment > 65'536)
        refuse("general.alignment is not a uint32 that is a power of two from 8 to 65536", "Choose 32");
      alignment_ = *alignment;
    }
  }

  void check_plan() {
    if (plan_.size() > GgufLimits().tensors)
      refuse("there are " + std::to_string(plan_.size()) + " tensors", "A model may have 1048576");
    std::unordered_set<std::string_view> names;
    for (GgufTensorPlan const& tensor : plan_) {
      std::string const who = "tensor " + detail::quote_gguf(tensor.name);
      if (tensor.name.empty() || tensor.name.size() > 63)
        refuse(who + " has a name of " + std::to_string(tensor.name.size()) + " bytes",
               "Use 1 to 63: other readers take no more");
      if (!names.insert(tensor.name).second) refuse(who + " stands twice", "Give every tensor a name of its own");
      if (tensor.shape.rank() < 1 || tensor.shape.rank() > 4 || tensor.shape.size() == 0)
        refuse(who + " has the shape " + to_string(tensor.shape), "Use 1 to 4 axes, none of them empty");
      if (tensor.shape[tensor.shape.rank() - 1] % block_elements(tensor.type) != 0)
        refuse(who + " has rows of " + std::to_string(tensor.shape[tensor.shape.rank() - 1]) +
                   ", which are no whole blocks of " + std::string(name(tensor.type)),
               "Choose another type for it, such as F16");
      sizes_.push_back(static_cast<std::size_t>(tensor.bytes()));
    }
  }

  /// The first tensor of each part, and the parts' paths.
  void divide(std::uint64_t part_bytes) {
    firsts_ = {0};
    std::uint64_t used = 0;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      std::uint64_t const size = padded(sizes_[i]);
      if (part_bytes != 0 && used != 0 && size > part_bytes - std::min(used, part_bytes))
        firsts_.push_back(i), used = 0;
      used += size;
    }
    if (firsts_.size() > most_parts)
      refuse("it would have " + std::to_string(firsts_.size()) + " parts",
             "Choose a larger part_bytes: there may be 512");
    if (firsts_.size() == 1) {
      paths_ = {path_};
      return;
    }
    if (!path_.ends_with(".gguf"))
      refuse("a split model needs a path that ends in '.gguf'", "Add it: parts are named NAME-00001-of-00002.gguf");
    std::string const base = path_.substr(0, path_.size() - 5);
    for (std::size_t i = 0; i < firsts_.size(); ++i)
      paths_.push_back(detail::gguf_part_path(base, i + 1, firsts_.size()));
  }

  std::uint64_t padded(std::uint64_t bytes) const noexcept {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }

  template <class T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<char const*>(&value), sizeof value);
  }
  static void put_text(std::string& out, std::string_view text) {
    put(out, std::uint64_t{text.size()});
    out.append(text);
  }
  template <class T>
  static void put_item(std::string& out, T const& value) {
    if constexpr (std::same_as<T, std::string>) put_text(out, value);
    else if constexpr (std::same_as<T, bool>) put(out, static_cast<std::uint8_t>(value ? 1 : 0));
    else put(out, value);
  }
  static void put_entry(std::string& out, std::string const& key, GgufValue const& value) {
    put_text(out, key);
    put(out, static_cast<std::uint32_t>(value.index()));
    std::visit(
        [&](auto const& held) {
          using Held = std::remove_cvref_t<decltype(held)>;
          if constexpr (std::same_as<Held, GgufArray>) {
            put(out, static_cast<std::uint32_t>(held.index()));
            std::visit(
                [&](auto const& items) {
                  if constexpr (!std::same_as<std::remove_cvref_t<decltype(items)>, std::monostate>) {
                    put(out, std::uint64_t{items.size()});
                    for (auto const& item : items)
                      put_item(out, static_cast<typename std::remove_cvref_t<decltype(items)>::value_type>(item));
                  }
                },
                held);
          } else {
            put_item(out, held);
          }
        },
        value);
  }

  /// Everything of a part up to its data. All metadata stands in the first part.
  std::string header_of(std::size_t part, std::size_t begin, std::size_t end, GgufMetadata const& metadata,
                        std::uint32_t version) const {
    GgufMetadata own;
    if (part == 0) own = metadata;
    else if (GgufValue const* alignment = metadata.find("general.alignment")) own.set("general.alignment", *alignment);
    if (firsts_.size() > 1)
      own.set("split.no", static_cast<std::uint16_t>(part))
          .set("split.count", static_cast<std::uint16_t>(firsts_.size()))
          .set("split.tensors.count", static_cast<std::int32_t>(plan_.size()));
    std::string out = "GGUF";
    put(out, version);
    put(out, std::uint64_t{end - begin});
    put(out, std::uint64_t{own.size()});
    for (auto const& [key, value] : own) put_entry(out, key, value);
    if (out.size() > GgufLimits().metadata_bytes)
      refuse("its metadata has " + std::to_string(out.size()) + " bytes", "Leave keys out: a file may have 1 GiB");
    std::uint64_t offset = 0;
    for (std::size_t i = begin; i < end; ++i) {
      put_text(out, plan_[i].name);
      Shape const& shape = plan_[i].shape;
      put(out, static_cast<std::uint32_t>(shape.rank()));
      for (int axis = shape.rank(); axis-- > 0;) put(out, shape[axis]);
      put(out, static_cast<std::uint32_t>(plan_[i].type));
      put(out, offset);
      offset += padded(sizes_[i]);
    }
    out.resize(padded(out.size()), '\0');
    return out;
  }

  /// Pads the tensor when all of it is there, and goes on to the next.
  void skip_finished() {
    if (tensor_ == plan_.size() || done_ != sizes_[tensor_]) return;
    std::string const padding(padded(done_) - done_, '\0');
    files_[file_].write(padding);
    done_ = 0;
    ++tensor_;
    if (file_ + 1 < firsts_.size() && tensor_ == firsts_[file_ + 1]) ++file_;
  }

  std::string path_;
  std::vector<GgufTensorPlan> plan_;
  std::source_location where_;
  std::uint64_t alignment_ = 32;
  std::vector<std::size_t> sizes_;   // bytes of each tensor
  std::vector<std::size_t> firsts_;  // the first tensor of each part
  std::vector<std::string> paths_;
  std::deque<AtomicFile> files_;
  std::size_t file_ = 0, tensor_ = 0, done_ = 0;
};

}  // namespace tutti::io

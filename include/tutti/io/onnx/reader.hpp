// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The weights and the metadata of ONNX models; what the graph of one computes is not read.

#include <tutti/core/concat.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/named_tensor.hpp>
#include <tutti/io/onnx/tensors.hpp>
#include <tutti/io/onnx/wire.hpp>
#include <tutti/tensor/tensor.hpp>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::io {

/// A model. Tensors refer to its memory: the object must outlive them.
class Onnx {
 public:
  /// Weights may lie in other files of the same folder. Errors: io; out_of_memory; format, with the file, what is wrong
  /// with it and what to do.
  explicit Onnx(std::string path, Loading loading = Loading::mapped) : path_(std::move(path)), loading_(loading) {
    storages_.push_back(fetch(path_));
    parse();
  }
  /// A whole model in memory, which is copied. `name` stands for the path in messages.
  /// Errors: format, also for weights in other files; out_of_memory.
  Onnx(std::span<std::byte const> bytes, std::string name) : path_(std::move(name)), in_memory_(true) {
    Storage<Cpu> storage(Cpu{}, bytes.size());
    if (!bytes.empty()) std::memcpy(storage.data(), bytes.data(), bytes.size());
    storages_.push_back(std::move(storage));
    parse();
  }

  std::string const& path() const noexcept { return path_; }
  std::map<std::string, std::string, std::less<>> const& metadata() const noexcept { return metadata_; }
  /// Null where there is none.
  std::string const* find_metadata(std::string_view key) const {
    auto const found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : &found->second;
  }
  /// The graph's initializers. Their memory is aligned as the file has it: not at all.
  std::map<std::string, NamedTensor, std::less<>> const& tensors() const noexcept { return tensors_; }
  std::string const& producer() const noexcept { return producer_; }

 private:
  [[noreturn]] void refuse(std::string const& why, char const* advice = "Fetch or write the file again") const {
    throw Error(ErrorKind::format, "Onnx", concat("'", path_, "' is not a usable ONNX file: ", why, ". ", advice));
  }
  Storage<Cpu> fetch(std::string const& path) const {
    return loading_ == Loading::mapped ? map_file(path) : load_file(path);
  }

  /// Calls f(field) for every field of a message.
  template <class F>
  void for_each_field(std::string_view message, char const* what, F&& f) const {
    WireReader reader(message);
    for (WireField field; reader.next(field);) f(field);
    if (reader.damaged()) refuse(concat(what, " is damaged at byte ", reader.position()));
  }
  /// A key and its text. Numbers of fields are those of io/onnx/onnx.proto.
  std::pair<std::string, std::string> entry_of(std::string_view message) const {
    std::pair<std::string, std::string> entry;
    for_each_field(message, "an entry", [&](WireField const& field) {
      if (field.field == 1) entry.first = field.bytes;
      else if (field.field == 2) entry.second = field.bytes;
    });
    return entry;
  }

  void parse() {
    std::string_view const file(static_cast<char const*>(storages_[0].data()), storages_[0].bytes());
    if (file.empty()) refuse("it is empty");
    std::uint64_t version = 0;
    bool graph = false;
    for_each_field(file, "the file", [&](WireField const& field) {
      if (field.field == 1) version = field.number;
      else if (field.field == 2) producer_ = field.bytes;
      else if (field.field == 14) {
        auto [key, value] = entry_of(field.bytes);
        if (!metadata_.emplace(key, std::move(value)).second)
          refuse("its metadata have the key " + quote_json(key) + " twice");
      } else if (field.field == 7 && field.is_bytes) {
        graph = true;
        for_each_field(field.bytes, "its graph", [&](WireField const& part) {
          if (part.field == 5) add(part.bytes);
        });
      }
    });
    if (!graph || version < 3) refuse("it has no graph, or none of version 3 or later");
  }

  void add(std::string_view message) {
    std::string name;
    std::vector<std::int64_t> extents;
    std::uint64_t type = 0, location = 0;
    std::string_view raw;
    bool numbers = false;
    std::vector<std::pair<std::string, std::string>> place;
    auto const extent = [&](std::uint64_t value) {
      if (extents.size() == std::size_t{Shape::max_rank}) refuse("a tensor has more than 8 axes");
      extents.push_back(static_cast<std::int64_t>(value));
    };
    for_each_field(message, "a tensor", [&](WireField const& field) {
      switch (field.field) {
        case 1: {
          if (!field.is_bytes) return extent(field.number);
          WireReader packed(field.bytes);
          while (!packed.at_end()) extent(packed.varint());
          if (packed.damaged()) refuse("the shape of a tensor is damaged");
          return;
        }
        case 2: type = field.number; return;
        case 8: name = field.bytes; return;
        case 9: raw = field.bytes, numbers = field.is_bytes; return;
        case 13:
          if (place.size() == 16) refuse("a tensor has too many words for its place");
          return place.push_back(entry_of(field.bytes));
        case 14: location = field.number; return;
        default: return;
      }
    });
    std::string const who = "tensor " + quote_json(name);
    auto const dtype = type < 100 ? detail::onnx_dtype(static_cast<int>(type)) : std::nullopt;
    if (!dtype) refuse(concat(who, " has elements of type ", type, ", which tutti does not know"));
    auto bytes = static_cast<std::int64_t>(size_of(*dtype));
    bool fits = true;
    for (std::int64_t const one : extents) {
      fits = fits && one >= 0;
      if (one != 0) fits = fits && !__builtin_mul_overflow(bytes, one, &bytes);  // no zero hides what does not fit
    }
    if (!fits) refuse(who + " has a size that does not fit 64 bits, or a negative one");
    Shape const shape{std::span<std::int64_t const>(extents)};
    if (shape.size() == 0) bytes = 0;
    if (location == 1) raw = outside(place, who), numbers = true;
    if (!numbers && bytes > 0)
      refuse(who + " has no numbers, or has them as a list", "Save it with raw_data, as exporters do by default");
    if (static_cast<std::int64_t>(raw.size()) != bytes)
      refuse(concat(who, " of shape ", to_string(shape), " needs ", bytes, " bytes and has ", raw.size()));
    if (!tensors_.emplace(name, NamedTensor{name, *dtype, shape, raw.data()}).second) refuse(who + " stands twice");
  }

  /// Bytes in another file of the same folder.
  std::string_view outside(std::vector<std::pair<std::string, std::string>> const& place, std::string const& who) {
    if (in_memory_)
      refuse(who + " lies in another file", "Save the model as one file, or load it by a path where the host has it");
    std::string location;
    std::uint64_t offset = 0, length = 0;
    bool whole = true;
    auto const number = [&](std::string const& text, std::uint64_t& to) {
      auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
      if (error != std::errc() || end != text.data() + text.size()) refuse(who + " says no place in its file");
    };
    for (auto const& [key, value] : place) {
      if (key == "location") location = value;
      else if (key == "offset") number(value, offset);
      else if (key == "length") number(value, length), whole = false;
    }
    // A model must not name files elsewhere.
    if (location.empty() || location == ".." || location.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      refuse(who + " lies in " + quote_json(location) + ", which is no file beside the model");
    auto found = others_.find(location);
    if (found == others_.end()) {
      if (others_.size() == 1024) refuse("its weights lie in more than 1024 files");
      storages_.push_back(fetch(path_.substr(0, path_.rfind('/') + 1) + location));
      found = others_.emplace(location, storages_.size() - 1).first;
    }
    Storage<Cpu> const& storage = storages_[found->second];
    if (offset > storage.bytes()) refuse(concat(who, " begins at byte ", offset, " of ", storage.bytes()));
    if (whole) length = storage.bytes() - offset;
    if (length > storage.bytes() - offset)
      refuse(concat(who, " has ", length, " bytes from ", offset, " on, of ", storage.bytes()));
    return {static_cast<char const*>(storage.data()) + offset, static_cast<std::size_t>(length)};
  }

  std::string path_;
  Loading loading_ = Loading::mapped;
  bool in_memory_ = false;
  std::vector<Storage<Cpu>> storages_;
  std::map<std::string, std::size_t> others_;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::map<std::string, NamedTensor, std::less<>> tensors_;
  std::string producer_;
};

}  // namespace tutti::io

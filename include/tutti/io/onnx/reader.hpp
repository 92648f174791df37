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
#include <tutti/tensor/tensor.hpp>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
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
  using Wire = google::protobuf::internal::WireFormatLite;

  [[noreturn]] void refuse(std::string const& why, char const* advice = "Fetch or write the file again") const {
    throw Error(ErrorKind::format, "Onnx", concat("'", path_, "' is not a usable ONNX file: ", why, ". ", advice));
  }
  Storage<Cpu> fetch(std::string const& path) const {
    return loading_ == Loading::mapped ? map_file(path) : load_file(path);
  }

  /// Calls f(number of the field, its bytes, its key and bytes) for every field of bytes in a message, and passes over
  /// numbers, of which f gets no bytes.
  template <class F>
  void for_each_field(std::string_view message, char const* what, F&& f) const {
    google::protobuf::io::CodedInputStream in(reinterpret_cast<std::uint8_t const*>(message.data()),
                                              static_cast<int>(message.size()));
    auto const damaged = [&] { refuse(concat(what, " is damaged at byte ", in.CurrentPosition())); };
    while (static_cast<std::size_t>(in.CurrentPosition()) < message.size()) {
      auto const begin = static_cast<std::size_t>(in.CurrentPosition());
      std::uint32_t const key = in.ReadTag();
      std::uint64_t number = 0;
      std::uint32_t bytes = 0;
      bool good = Wire::GetTagFieldNumber(key) != 0;
      std::string_view content;
      switch (Wire::GetTagWireType(key)) {
        case Wire::WIRETYPE_VARINT: good = good && in.ReadVarint64(&number); break;
        case Wire::WIRETYPE_FIXED32: good = good && in.Skip(4); break;
        case Wire::WIRETYPE_FIXED64: good = good && in.Skip(8); break;
        case Wire::WIRETYPE_LENGTH_DELIMITED: {
          good = good && in.ReadVarint32(&bytes);
          auto const at = static_cast<std::size_t>(in.CurrentPosition());
          good = good && bytes <= message.size() - at;
          if (good) content = message.substr(at, bytes);
          good = good && in.Skip(static_cast<int>(bytes));
          break;
        }
        default: good = false;
      }
      if (!good) damaged();
      f(Wire::GetTagFieldNumber(key), content,
        message.substr(begin, static_cast<std::size_t>(in.CurrentPosition()) - begin));
    }
  }

  void parse() {
    std::string_view const file(static_cast<char const*>(storages_[0].data()), storages_[0].bytes());
    if (file.empty()) refuse("it is empty");
    if (file.size() > 0x7fff'ffff) refuse("it has more than 2 GiB, at which the format ends");
    std::string head;
    bool graph = false;
    for_each_field(file, "the file", [&](int field, std::string_view content, std::string_view all) {
      if (field == onnx_file::ModelProto::kGraphFieldNumber) {
        graph = true;
        for_each_field(content, "its graph", [&](int part, std::string_view tensor, std::string_view) {
          if (part == onnx_file::GraphProto::kInitializerFieldNumber) add(tensor);
        });
      } else if (field == onnx_file::ModelProto::kIrVersionFieldNumber ||
                 field == onnx_file::ModelProto::kProducerNameFieldNumber ||
                 field == onnx_file::ModelProto::kMetadataPropsFieldNumber) {
        head += all;
      }
    });
    onnx_file::ModelProto model;
    if (!model.ParseFromString(head)) refuse("what it says of itself is damaged");
    if (!graph || model.ir_version() < 3) refuse("it has no graph, or none of version 3 or later");
    producer_ = model.producer_name();
    for (auto const& entry : model.metadata_props())
      if (!metadata_.emplace(entry.key(), entry.value()).second)
        refuse("its metadata have the key " + quote_json(entry.key()) + " twice");
  }

  void add(std::string_view message) {
    std::string head;
    std::string_view raw;
    bool numbers = false, other = false;
    for_each_field(message, "a tensor", [&](int field, std::string_view content, std::string_view all) {
      if (field == onnx_file::TensorProto::kRawDataFieldNumber) raw = content, numbers = true;
      else if (field >= 4 && field <= 11 && field != onnx_file::TensorProto::kNameFieldNumber) other = true;
      else head += all;
    });
    onnx_file::TensorProto proto;
    if (!proto.ParseFromString(head)) refuse("a tensor is damaged");
    std::string const who = "tensor " + quote_json(proto.name());
    auto const dtype = detail::onnx_dtype(proto.data_type());
    if (!dtype) refuse(concat(who, " has elements of type ", proto.data_type(), ", which tutti does not know"));
    if (proto.dims_size() > Shape::max_rank) refuse(concat(who, " has ", proto.dims_size(), " axes; there may be 8"));
    std::vector<std::int64_t> extents;
    auto bytes = static_cast<std::int64_t>(size_of(*dtype));
    bool fits = true;
    for (std::int64_t const extent : proto.dims()) {
      fits = fits && extent >= 0;
      // No zero hides what does not fit.
      if (extent != 0) fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
      extents.push_back(extent);
    }
    if (!fits) refuse(who + " has a size that does not fit 64 bits, or a negative one");
    Shape const shape{std::span<std::int64_t const>(extents)};
    if (shape.size() == 0) bytes = 0;
    if (proto.data_location() == 1) raw = outside(proto, who), numbers = true;
    if (!numbers && (other || bytes > 0))
      refuse(who + " has no numbers, or has them as a list", "Save it with raw_data, as exporters do by default");
    if (static_cast<std::int64_t>(raw.size()) != bytes)
      refuse(concat(who, " of shape ", to_string(shape), " needs ", bytes, " bytes and has ", raw.size()));
    NamedTensor tensor{proto.name(), *dtype, shape, raw.data()};
    if (!tensors_.emplace(proto.name(), std::move(tensor)).second) refuse(who + " stands twice");
  }

  /// Bytes in another file of the same folder.
  std::string_view outside(onnx_file::TensorProto const& proto, std::string const& who) {
    if (in_memory_)
      refuse(who + " lies in another file", "Save the model as one file, or load it by a path where the host has it");
    std::string location;
    std::uint64_t offset = 0, length = 0;
    bool whole = true;
    auto const number = [&](std::string const& text, std::uint64_t& to) {
      auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
      if (error != std::errc() || end != text.data() + text.size()) refuse(who + " says no place in its file");
    };
    for (auto const& entry : proto.external_data()) {
      if (entry.key() == "location") location = entry.value();
      else if (entry.key() == "offset") number(entry.value(), offset);
      else if (entry.key() == "length") number(entry.value(), length), whole = false;
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Writes ONNX models, tensor after tensor in bounded memory; no file appears before all of it is there.

#include <tutti/io/file.hpp>
#include <tutti/io/named_tensor.hpp>
#include <tutti/io/onnx/tensors.hpp>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <tutti_onnx.pb.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::io {

struct OnnxWriteOptions {
  /// A model whose weights have more bytes than this gets them in a file beside it, NAME.data: the format ends at
  /// 2 GiB.
  std::int64_t most_bytes = std::int64_t{2'000'000'000};
};

/// Writes one model. Weights' bytes come by `write`, in the order of the plan; then `commit`. Without it, or when
/// anything throws, no file appears and those that were there are untouched.
class OnnxWriter {
 public:
  /// `model` has everything but its initializers. Of the plan's tensors, data are not read.
  /// Errors: invalid_argument, for a name that stands twice or elements that ONNX has not, and for a graph beyond
  /// 2 GiB; io.
  OnnxWriter(std::string path, onnx_file::ModelProto model, std::vector<NamedTensor> plan,
             OnnxWriteOptions const& options = {})
      : path_(std::move(path)), plan_(std::move(plan)) {
    std::set<std::string> names;
    std::int64_t bytes = 0;
    for (NamedTensor const& tensor : plan_) {
      if (!names.insert(tensor.name).second) refuse("the name '" + tensor.name + "' stands twice");
      if (detail::onnx_type(tensor.dtype) == 0)
        refuse("tensor '" + tensor.name + "' has elements of " + std::string(name(tensor.dtype)));
      bytes += static_cast<std::int64_t>(tensor.bytes());
    }
    outside_ = bytes > options.most_bytes;
    onnx_file::GraphProto graph;
    graph.Swap(model.mutable_graph());
    model.clear_graph();
    std::string const head = model.SerializeAsString(), rest = graph.SerializeAsString();
    std::uint64_t graph_bytes = rest.size();
    for (NamedTensor const& tensor : plan_) {
      headers_.push_back(header_of(tensor));
      graph_bytes += headers_.back().size() + (outside_ ? 0 : tensor.bytes());
    }
    std::string start;
    put(start, onnx_file::ModelProto::kGraphFieldNumber, graph_bytes);
    if (head.size() + start.size() + graph_bytes > 0x7fff'ffff) refuse("the model's graph has more than 2 GiB");
    if (outside_) data_.emplace(path_ + ".data");
    file_.emplace(path_);
    file_->write(head);
    file_->write(start);
    file_->write(rest);
    skip_finished();
  }
  OnnxWriter(OnnxWriter const&) = delete;
  OnnxWriter& operator=(OnnxWriter const&) = delete;

  /// Whether weights lie in a file of their own.
  bool outside() const noexcept { return outside_; }

  /// The next bytes of the tensors, in pieces of any size. Errors: invalid_argument, when they are more than planned;
  /// io.
  void write(void const* data, std::size_t bytes) {
    auto const* from = static_cast<char const*>(data);
    while (bytes != 0) {
      if (tensor_ == plan_.size()) refuse(std::to_string(bytes) + " bytes come behind the last tensor");
      std::size_t const part = std::min(bytes, plan_[tensor_].bytes() - done_);
      (outside_ ? *data_ : *file_).write(from, part);
      from += part;
      bytes -= part;
      done_ += part;
      skip_finished();
    }
  }
  /// Blocking: until the device has the bytes. Errors: invalid_argument, when tensors lack bytes; io.
  void commit() {
    if (tensor_ != plan_.size()) refuse("tensor '" + plan_[tensor_].name + "' lacks bytes");
    if (data_) data_->commit();
    file_->commit();
  }

 private:
  static constexpr std::size_t page = 4096;  // readers map the pages of a tensor

  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::invalid_argument, "OnnxWriter", "'" + path_ + "' is not written: " + why);
  }
  /// The key and the length of a field of bytes.
  static void put(std::string& to, int field, std::uint64_t bytes) {
    using google::protobuf::internal::WireFormatLite;
    using google::protobuf::io::CodedOutputStream;
    std::uint8_t buffer[20];
    std::uint8_t* end = CodedOutputStream::WriteVarint32ToArray(
        WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), buffer);
    end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
    to.append(reinterpret_cast<char const*>(buffer), static_cast<std::size_t>(end - buffer));
  }
  /// What stands before the bytes of a tensor: as a field of the graph.
  std::string header_of(NamedTensor const& tensor) {
    onnx_file::TensorProto proto;
    for (std::int64_t const extent : tensor.shape) proto.add_dims(extent);
    proto.set_data_type(detail::onnx_type(tensor.dtype));
    proto.set_name(tensor.name);
    if (outside_) {
      proto.set_data_location(1);
      std::string const file = path_.substr(path_.rfind('/') + 1) + ".data";
      for (auto const& [key, value] : {std::pair<char const*, std::string>{"location", file},
                                       {"offset", std::to_string(offset_)},
                                       {"length", std::to_string(tensor.bytes())}}) {
        auto* const entry = proto.add_external_data();
        entry->set_key(key);
        entry->set_value(value);
      }
      offset_ = (offset_ + tensor.bytes() + page - 1) / page * page;
    }
    std::string content = proto.SerializeAsString(), header;
    if (!outside_) put(content, onnx_file::TensorProto::kRawDataFieldNumber, tensor.bytes());
    put(header, onnx_file::GraphProto::kInitializerFieldNumber, content.size() + (outside_ ? 0 : tensor.bytes()));
    return header + content;
  }
  /// Writes the header of the tensor that is next, and of those without elements before it.
  void skip_finished() {
    for (;; done_ = 0, ++tensor_) {
      if (tensor_ < plan_.size() && !begun_) {
        file_->write(headers_[tensor_]);
        begun_ = true;
      }
      if (tensor_ == plan_.size() || done_ < plan_[tensor_].bytes()) return;
      if (outside_) {
        std::string const hole((page - plan_[tensor_].bytes() % page) % page, '\0');
        data_->write(hole);
      }
      begun_ = false;
    }
  }

  std::string path_;
  std::vector<NamedTensor> plan_;
  std::vector<std::string> headers_;
  std::optional<AtomicFile> file_, data_;
  bool outside_ = false, begun_ = false;
  std::size_t tensor_ = 0, done_ = 0, offset_ = 0;
};

}  // namespace tutti::io

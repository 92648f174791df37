// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// safetensors files: named tensors behind a JSON header. A reader maps the file and checks all of it that is not
/// payload before it gives anything out: lengths, keys, types, shapes, offsets, overlaps, holes.

#include <tutti/io/file.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/named_tensor.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::io {

/// Free text that a safetensors file carries beside its tensors.
using Metadata = std::map<std::string, std::string>;

namespace detail {

/// Element types of the format in the order in which its own writer places tensors, narrow ones first.
struct SafetensorsType {
  std::string_view name;
  DType dtype;
};
inline constexpr SafetensorsType safetensors_types[] = {
    {"BOOL", DType::boolean}, {"U8", DType::uint8},    {"I8", DType::int8},       {"I16", DType::int16},
    {"U16", DType::uint16},   {"F16", DType::float16}, {"BF16", DType::bfloat16}, {"I32", DType::int32},
    {"U32", DType::uint32},   {"F32", DType::float32}, {"F64", DType::float64},   {"I64", DType::int64},
    {"U64", DType::uint64},
};

/// Place of `dtype` in the table; char and byte are stored as U8.
inline std::size_t safetensors_rank(DType dtype) noexcept {
  if (dtype == DType::character || dtype == DType::byte) dtype = DType::uint8;
  std::size_t rank = 0;
  while (safetensors_types[rank].dtype != dtype) ++rank;
  return rank;
}

}  // namespace detail

/// A safetensors file, mapped. Views refer to the mapping: the object must outlive them.
class Safetensors {
 public:
  /// Errors: io; format, with the file, what is wrong with it and what to do.
  explicit Safetensors(std::string path, std::source_location where = std::source_location::current())
      : path_(std::move(path)), storage_(map_file(path_, where)) { parse(); }

  std::string const& path() const noexcept { return path_; }
  /// By name. `data` points into the mapping and may be unaligned in files of other writers.
  std::map<std::string, NamedTensor, std::less<>> const& tensors() const noexcept { return tensors_; }
  Metadata const& metadata() const noexcept { return metadata_; }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  /// Errors: format, when the file has no such tensor.
  NamedTensor const& at(std::string_view name, std::source_location where = std::source_location::current()) const {
    auto const found = tensors_.find(name);
    if (found == tensors_.end())
      throw Error(ErrorKind::format, "Safetensors::at",
                  "'" + path_ + "' has no tensor '" + std::string(name) + "' among its " +
                      std::to_string(tensors_.size()) + ". Check that the file belongs to this model",
                  where);
    return found->second;
  }

  /// The elements where they lie. Errors: dtype, when the file has another type; format, when they are not aligned for
  /// T (then `copy` works) or a bool is neither 0 nor 1.
  template <Element T>
  TensorView<T const> view(std::string_view name, std::source_location where = std::source_location::current()) const {
    NamedTensor const& tensor = typed<T>(name, where);
    if (reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(T) != 0)
      throw Error(ErrorKind::format, "Safetensors::view",
                  "tensor '" + tensor.name + "' of '" + path_ + "' is not aligned for " +
                      std::string(tutti::name(dtype_of<T>)) + ". Use copy instead of view",
                  where);
    return {static_cast<T const*>(tensor.data), tensor.shape};
  }
  /// The elements in memory of their own.
  template <Element T>
  Tensor<T> copy(std::string_view name, std::source_location where = std::source_location::current()) const {
    NamedTensor const& tensor = typed<T>(name, where);
    Tensor<T> result(tensor.shape);
    if (tensor.bytes() != 0) std::memcpy(result.data(), tensor.data, tensor.bytes());
    return result;
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "Safetensors",
                "'" + path_ + "' is not a usable safetensors file: " + why + ". Fetch or write the file again");
  }

  template <Element T>
  NamedTensor const& typed(std::string_view name, std::source_location where) const {
    NamedTensor const& tensor = at(name, where);
    if (detail::safetensors_rank(tensor.dtype) != detail::safetensors_rank(dtype_of<T>))
      throw Error(ErrorKind::dtype, "Safetensors::view",
                  "tensor '" + tensor.name + "' of '" + path_ + "' holds " + std::string(tutti::name(tensor.dtype)) +
                      ", not " + std::string(tutti::name(dtype_of<T>)),
                  where);
    if constexpr (std::same_as<T, bool>) {
      auto const* bytes = static_cast<unsigned char const*>(tensor.data);
      if (std::any_of(bytes, bytes + tensor.bytes(), [](unsigned char byte) { return byte > 1; }))
        throw Error(ErrorKind::format, "Safetensors::view",
                    "tensor '" + tensor.name + "' of '" + path_ + "' has a bool that is neither 0 nor 1", where);
    }
    return tensor;
  }

  void parse() {
    if (storage_.bytes() < 8)
      refuse("it has " + std::to_string(storage_.bytes()) + " bytes, too few for a header length");
    auto const* file = static_cast<char const*>(storage_.data());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file, 8);
    std::uint64_t const behind = storage_.bytes() - 8;
    if (header_bytes > 100'000'000 || header_bytes > behind)
      refuse("its header claims " + std::to_string(header_bytes) + " bytes and " + std::to_string(behind) + " follow");
    std::string_view const header(file + 8, static_cast<std::size_t>(header_bytes));
    if (header.empty() || header.front() != '{') refuse("its header does not begin with '{'");
    nlohmann::json const json = parse_json(header, path_, "Safetensors");
    if (!json.is_object()) refuse("its header is not a JSON object");

    char const* const payload = file + 8 + header_bytes;
    std::uint64_t const payload_bytes = behind - header_bytes;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (auto const& [name, entry] : json.items()) {
      if (name == "__metadata__") {
        if (!entry.is_object()) refuse("__metadata__ is not an object");
        for (auto const& [key, value] : entry.items()) {
          if (!value.is_string()) refuse("__metadata__ holds " + quote_json(key) + ", which is not text");
          metadata_.emplace(key, value.get<std::string>());
        }
        continue;
      }
      auto const [begin, end] = parse_tensor(name, entry, payload, payload_bytes);
      ranges.emplace_back(begin, end);
    }
    std::sort(ranges.begin(), ranges.end());
    std::uint64_t expected = 0;
    for (auto const& [begin, end] : ranges) {
      if (begin != expected)
        refuse("its tensors " + std::string(begin < expected ? "overlap" : "leave a hole") + " at payload byte " +
               std::to_string(std::min(begin, expected)));
      expected = end;
    }
    if (expected != payload_bytes)
      refuse("its tensors end at payload byte " + std::to_string(expected) + " of " + std::to_string(payload_bytes));
  }

  std::pair<std::uint64_t, std::uint64_t> parse_tensor(std::string const& name, nlohmann::json const& entry,
                                                       char const* payload, std::uint64_t payload_bytes) {
    std::string const who = "tensor " + quote_json(name);
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
      refuse(who + " lacks dtype, shape or data_offsets");
    auto const& type_name = entry["dtype"];
    std::optional<DType> dtype;
    if (type_name.is_string())
      for (auto const& type : detail::safetensors_types)
        if (type.name == type_name.get_ref<std::string const&>()) dtype = type.dtype;
    if (!dtype)
      refuse(who + " has the element type " + type_name.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
             ", which tutti does not know");

    auto const& extents_json = entry["shape"];
    if (!extents_json.is_array() || extents_json.size() > std::size_t{Shape::max_rank})
      refuse(who + " has a shape that is not a list of at most 8 extents");
    std::vector<std::int64_t> extents;
    for (auto const& extent : extents_json) {
      if (!extent.is_number_unsigned() ||
          extent.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
        refuse(who + " has an extent that is not a count");
      extents.push_back(extent.get<std::int64_t>());
    }
    // Non-zero extents first, so that a zero cannot hide a product that does not fit.
    std::int64_t bytes = static_cast<std::int64_t>(size_of(*dtype));
    bool fits = true;
    for (std::int64_t extent : extents)
      if (extent != 0) fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
    if (!fits) refuse(who + " has a size that does not fit 64 bits");
    Shape const shape{std::span<std::int64_t const>(extents)};
    if (shape.size() == 0) bytes = 0;

    auto const& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      refuse(who + " has data_offsets that are not two counts");
    auto const begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > payload_bytes)
      refuse(who + " lies at [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " +
             std::to_string(payload_bytes) + " payload bytes");
    if (end - begin != static_cast<std::uint64_t>(bytes))
      refuse(who + " of shape " + to_string(shape) + " needs " + std::to_string(bytes) + " bytes and has " +
             std::to_string(end - begin));
    tensors_.emplace(name, NamedTensor{name, *dtype, shape, payload + begin});
    return {begin, end};
  }

  std::string path_;
  Storage<Cpu> storage_;
  std::map<std::string, NamedTensor, std::less<>> tensors_;
  Metadata metadata_;
};

namespace detail {

/// Places of the tensors in a file: wide element types come first, then names in order. Errors: invalid_argument.
inline std::vector<std::size_t> safetensors_order(std::span<NamedTensor const> tensors, std::source_location where) {
  std::vector<std::size_t> order;
  std::set<std::string_view> names;
  for (NamedTensor const& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
      throw Error(ErrorKind::invalid_argument, "write_safetensors",
                  "the name '" + tensor.name + "' " +
                      (tensor.name == "__metadata__" ? "belongs to the format" : "stands twice") +
                      ". Give every tensor a name of its own",
                  where);
    order.push_back(order.size());
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    auto const left = safetensors_rank(tensors[a].dtype), right = safetensors_rank(tensors[b].dtype);
    return left != right ? left > right : tensors[a].name < tensors[b].name;
  });
  return order;
}

/// All of a file that stands before the payload.
inline std::string safetensors_header(std::span<NamedTensor const* const> tensors, Metadata const& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (auto const& [key, value] : metadata)
      header += (header.back() == '{' ? "" : ",") + quote_json(key) + ":" + quote_json(value);
    header += "}";
  }
  std::size_t offset = 0;
  for (NamedTensor const* tensor : tensors) {
    if (header.size() > 1) header += ",";
    header += quote_json(tensor->name) + ":{\"dtype\":\"" +
              std::string(safetensors_types[safetensors_rank(tensor->dtype)].name) + "\",\"shape\":[";
    for (int axis = 0; axis < tensor->shape.rank(); ++axis)
      header += (axis == 0 ? "" : ",") + std::to_string(tensor->shape[axis]);
    std::size_t const end = offset + tensor->bytes();
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::uint64_t const bytes = header.size();
  return std::string(reinterpret_cast<char const*>(&bytes), sizeof bytes) + header;
}

}  // namespace detail

/// Where tensors stand in the file that `write_safetensors` makes of them.
struct SafetensorsPlaces {
  std::string header;
  std::vector<std::uint64_t> begins;  ///< of each tensor in the order given, in bytes from the beginning of the file
  std::uint64_t bytes = 0;            ///< of the file
};
/// Errors: invalid_argument, when a name stands twice or is the format's own.
inline SafetensorsPlaces safetensors_places(std::span<NamedTensor const> tensors, Metadata const& metadata = {},
                                            std::source_location where = std::source_location::current()) {
  SafetensorsPlaces places;
  places.begins.resize(tensors.size());
  std::vector<NamedTensor const*> order;
  for (std::size_t const i : detail::safetensors_order(tensors, where)) {
    order.push_back(&tensors[i]);
    places.begins[i] = places.bytes;
    places.bytes += tensors[i].bytes();
  }
  places.header = detail::safetensors_header(order, metadata);
  for (std::uint64_t& begin : places.begins) begin += places.header.size();
  places.bytes += places.header.size();
  return places;
}

/// Writes the tensors aside and renames: the file is complete or absent. Wide element types come first, then names in
/// order, so every tensor is aligned for its type and the same tensors always give the same bytes. `data(tensor)` is
/// asked for the bytes of one after the other, in the order given; they need stay only until the next is asked for.
/// Errors: invalid_argument, when a name stands twice or is the format's own; io; those of `data`.
template <class Data>
  requires std::is_invocable_r_v<void const*, Data&, NamedTensor const&>
void write_safetensors(std::string const& path, std::span<NamedTensor const> tensors, Data&& data,
                       Metadata const& metadata = {}, std::source_location where = std::source_location::current()) {
  SafetensorsPlaces const places = safetensors_places(tensors, metadata, where);
  AtomicFile file(path, where);
  file.write(places.header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    void const* const bytes = data(tensors[i]);
    file.seek(places.begins[i]);
    file.write(bytes, tensors[i].bytes());
  }
  file.commit();
}
/// The same of tensors that are all in memory.
inline void write_safetensors(std::string const& path, std::span<NamedTensor const> tensors,
                              Metadata const& metadata = {},
                              std::source_location where = std::source_location::current()) {
  write_safetensors(path, tensors, [](NamedTensor const& tensor) { return tensor.data; }, metadata, where);
}

}  // namespace tutti::io

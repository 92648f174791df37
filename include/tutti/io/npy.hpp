// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// NumPy's files of one array, `.npy` (format versions 1.0 to 3.0,
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): `write_npy("x.npy", x)`,
/// `read_npy<float>("x.npy")`. Arrays in Fortran's order are turned into row-major ones, big-endian ones into
/// little-endian ones. NumPy has no bfloat16: convert it.

#include <tutti/core/checked.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/io/file.hpp>
#include <tutti/tensor/copy.hpp>
#include <tutti/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::io {

/// What an .npy file holds.
struct NpyHeader {
  std::string type;  ///< NumPy's: kind and bytes, as "f4"; its order of bytes apart
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::size_t data_at = 0;  ///< bytes before the elements
};

namespace detail {

/// NumPy's kind and size of an element: "f4", "i8", "b1", "c16".
template <class T>
std::string npy_type() {
  char kind = 'i';
  if constexpr (std::is_same_v<T, bool>) kind = 'b';
  else if constexpr (Complex<T>) kind = 'c';
  else if constexpr (std::is_same_v<T, float16> || std::is_floating_point_v<T>) kind = 'f';
  else if constexpr (std::is_same_v<T, std::byte> || std::is_unsigned_v<T>) kind = 'u';
  return concat(std::string(1, kind), sizeof(T));
}
template <class T>
concept NpyElement = (Element<T> || Complex<T>) && !std::is_same_v<T, bfloat16>;

inline constexpr std::string_view npy_magic = "\x93NUMPY";
inline constexpr std::size_t npy_longest_header = std::size_t{1} << 20;

[[noreturn]] inline void refuse_npy(std::string const& path, std::string const& why, std::source_location where) {
  throw Error(ErrorKind::format, "read_npy", concat("'", path, "' is no .npy file of one array: ", why), where);
}

/// Reads the header's dictionary, which is Python: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class NpyDictionary {
 public:
  NpyDictionary(std::string_view text, std::string const& path, std::source_location where)
      : text_(text), path_(path), where_(where) {}
  NpyHeader parse() {
    NpyHeader header;
    bool type = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      std::string const key = word();
      expect(':');
      if (key == "descr" && !std::exchange(type, true)) read_type(header);
      else if (key == "fortran_order" && !std::exchange(order, true)) header.fortran_order = truth();
      else if (key == "shape" && !std::exchange(shape, true)) header.shape = extents();
      else fail(concat("its header has the key '", key, "' twice or where none is known"));
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (!text_.empty()) fail("something follows its header's dictionary");
    if (!type || !order || !shape) fail("its header lacks descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void fail(std::string const& why) const { refuse_npy(path_, why, where_); }
  void skip() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(concat("its header lacks a '", std::string(1, c), "'"));
  }
  std::string word() {
    skip();
    char const quote = text_.empty() ? '\0' : text_.front();
    std::size_t const end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail("its header holds something else than a dictionary of text, or fields");
    std::string const result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  void read_type(NpyHeader& header) {
    std::string const type = word();
    if (type.size() < 3 || std::string_view("<>|=").find(type[0]) == std::string_view::npos)
      fail(concat("its element type '", type, "' has no order of bytes"));
    header.big_endian = type[0] == '>';
    header.type = type.substr(1);
  }
  bool truth() {
    skip();
    for (auto const& [name, value] : {std::pair("True", true), std::pair("False", false)})
      if (text_.starts_with(name)) {
        text_.remove_prefix(std::string_view(name).size());
        return value;
      }
    fail("fortran_order is neither True nor False");
  }
  Shape extents() {
    std::array<std::int64_t, Shape::max_rank> extents{};
    std::int64_t rank = 0;
    expect('(');
    while (!take(')')) {
      skip();
      std::int64_t extent = -1;
      auto const [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) fail("its shape holds something else than sizes");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      if (rank == Shape::max_rank) fail(concat("it has more axes than the ", Shape::max_rank, " of a tensor"));
      extents[static_cast<std::size_t>(rank++)] = extent;
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return Shape::of(extents.data(), rank, where_);
  }

  std::string_view text_;
  std::string const& path_;
  std::source_location where_;
};

inline NpyHeader parse_npy(std::string_view file, std::string const& path, std::source_location where) {
  if (file.size() < 10 || !file.starts_with(npy_magic)) refuse_npy(path, "it does not begin with \\x93NUMPY", where);
  auto const major = static_cast<unsigned char>(file[6]);
  if (major < 1 || major > 3) refuse_npy(path, concat("its version is ", int{major}, ", and 1 to 3 are known"), where);
  std::size_t const length_bytes = major == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes && 8 + i < file.size(); ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(file[8 + i])) << (8 * i);
  std::size_t const begin = 8 + length_bytes;
  if (length > npy_longest_header || file.size() < begin || length > file.size() - begin)
    refuse_npy(path, concat("its header of ", length, " bytes is not there"), where);
  NpyHeader header = NpyDictionary(file.substr(begin, length), path, where).parse();
  header.data_at = begin + length;
  return header;
}

}  // namespace detail

/// What is in a file, before its type is known to the program. Errors: io; format.
inline NpyHeader read_npy_header(std::string const& path,
                                 std::source_location where = std::source_location::current()) {
  Storage<Cpu> const file = map_file(path, where);
  return detail::parse_npy({static_cast<char const*>(file.data()), file.bytes()}, path, where);
}

/// The array of a file, whose elements must be T. Errors: io; format; dtype, with the file's type.
template <class T>
  requires detail::NpyElement<T>
Tensor<T> read_npy(std::string const& path, std::source_location where = std::source_location::current()) {
  Storage<Cpu> const storage = map_file(path, where);
  std::string_view const file(static_cast<char const*>(storage.data()), storage.bytes());
  NpyHeader const header = detail::parse_npy(file, path, where);
  if (header.type != detail::npy_type<T>())
    throw Error(ErrorKind::dtype, "read_npy",
                concat("'", path, "' holds elements of NumPy's type '", header.type, "', not '",
                       detail::npy_type<T>(), "'. Read it as what it holds"), where);
  auto const bytes = static_cast<std::size_t>(checked_multiply(header.shape.size(), sizeof(T), where));
  if (bytes != file.size() - header.data_at)
    detail::refuse_npy(path, concat("shape ", to_string(header.shape), " needs ", bytes, " bytes, and there are ",
                                    file.size() - header.data_at), where);
  // In Fortran's order the elements are those of the reversed shape in row-major order.
  Shape stored = header.shape;
  if (header.fortran_order)
    for (int axis = 0; axis < stored.rank(); ++axis)
      stored = stored.with(axis, header.shape[stored.rank() - 1 - axis]);
  Tensor<T> elements(stored);
  if (bytes != 0) std::memcpy(static_cast<void*>(elements.data()), file.data() + header.data_at, bytes);
  if (header.big_endian) {
    constexpr std::size_t part = Complex<T> ? sizeof(T) / 2 : sizeof(T);
    auto* const data = reinterpret_cast<std::byte*>(elements.data());
    for (std::size_t at = 0; at < bytes; at += part) std::reverse(data + at, data + at + part);
  }
  return header.fortran_order ? clone(elements.view().transpose()) : std::move(elements);
}

/// Version 1.0, in row-major order, at once or not at all (`AtomicFile`). Errors: io.
template <class T>
  requires detail::NpyElement<std::remove_const_t<T>>
void write_npy(std::string const& path, TensorView<T> values,
               std::source_location where = std::source_location::current()) {
  using Value = std::remove_const_t<T>;
  std::string shape;
  for (std::int64_t const extent : values.shape()) shape += concat(extent, ",");
  std::string dictionary = concat("{'descr': '", sizeof(Value) == 1 ? "|" : "<", detail::npy_type<Value>(),
                                  "', 'fortran_order': False, 'shape': (", shape, "), }");
  while ((10 + dictionary.size() + 1) % 64 != 0) dictionary += ' ';  // so that the elements are aligned
  dictionary += '\n';
  AtomicFile file(path, where);
  file.write(detail::npy_magic);
  char const version_and_length[] = {1, 0, static_cast<char>(dictionary.size() & 0xff),
                                     static_cast<char>(dictionary.size() >> 8)};
  file.write(version_and_length, sizeof version_and_length);
  file.write(dictionary);
  if (values.contiguous()) {
    file.write(values.data(), static_cast<std::size_t>(values.size()) * sizeof(Value));
  } else {
    auto const packed = clone(TensorView<Value const>(values));
    file.write(packed.data(), static_cast<std::size_t>(packed.size()) * sizeof(Value));
  }
  file.commit();
}
template <class T>
void write_npy(std::string const& path, Tensor<T> const& values,
               std::source_location where = std::source_location::current()) {
  write_npy(path, values.view(), where);
}

}  // namespace tutti::io

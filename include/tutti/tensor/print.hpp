// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tensors as text, character for character what `str` of a NumPy 2.4 array gives with its default options: eight
/// digits of fraction at most, 75 columns, three items at each edge above 1000 elements. Types that NumPy lacks follow
/// their nearest relative: bfloat16 prints by float16's rules, char and std::byte as integers.

#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/copy.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti {

namespace detail::print {

inline constexpr std::int64_t threshold = 1000;
inline constexpr std::int64_t edge_items = 3;
inline constexpr std::size_t line_width = 75;
inline constexpr int precision = 8;

template <class Number>
std::string characters(Number value, std::chars_format format, int digits = -1) {
  char buffer[512];
  auto const end = digits < 0 ? std::to_chars(buffer, buffer + sizeof(buffer), value, format)
                              : std::to_chars(buffer, buffer + sizeof(buffer), value, format, digits);
  return std::string(+buffer, static_cast<std::size_t>(end.ptr - buffer));
}

/// The fewest digits that read back as the same value of `dtype`; the value is one of that type.
template <DType dtype, class Real>
std::string shortest(Real value, std::chars_format format) {
  auto const narrow = static_cast<float>(value);
  if constexpr (dtype == DType::float64) return characters(value, format);
  if constexpr (dtype == DType::float32) return characters(narrow, format);
  for (int digits = 0;; ++digits) {
    // A digit string halfway between two is rounded to even first and, if that reads back as a neighbour, up.
    for (Real const nudged : {value, std::nextafter(value, 2 * value)}) {
      auto text = characters(nudged, std::chars_format::scientific, digits);
      Real read = 0;
#if TUTTI_WASM
      read = std::strtod(text.c_str(), nullptr);  // its library has no from_chars of numbers with a point
#else
      std::from_chars(text.data(), text.data() + text.size(), read);
#endif
      auto const back = static_cast<float>(read);
      bool const same = dtype == DType::float16 ? float16(back).bits == float16(narrow).bits
                                                : bfloat16(back).bits == bfloat16(narrow).bits;
      if (!same && digits < 16) continue;
      return format == std::chars_format::scientific ? text : characters(read, std::chars_format::fixed);
    }
  }
}

/// Digits before and after the point, and the exponent with its sign ("" in positional notation).
struct Parts {
  std::string whole, fraction, exponent;
};
template <class Text, class P = Parts>
P split(Text text) {
  P parts;
  if (auto const e = text.find('e'); e != text.npos) {
    parts.exponent = text.substr(e + 1);
    text = text.substr(0, e);
  }
  auto const point = text.find('.');
  parts.whole = text.substr(0, point);
  if (point != text.npos) parts.fraction = text.substr(point + 1);
  return parts;
}
/// At most `precision` digits of fraction, without zeros at the end.
template <DType dtype, class Real, class P = Parts>
P digits_of(Real value, std::chars_format format) {
  P parts = split<std::string_view>(shortest<dtype>(value, format));
  if (parts.fraction.size() > std::size_t{precision})
    parts = split<std::string_view>(characters(value, format, precision));
  while (!parts.fraction.empty() && parts.fraction.back() == '0') parts.fraction.pop_back();
  return parts;
}

/// From here on a type's integers are not all written out.
constexpr double exponent_limit(DType dtype) noexcept {
  return dtype == DType::float64 ? 1e8 : dtype == DType::float32 ? 1e6 : 1e3;
}

template <DType dtype, class Real>
std::string scalar(Real value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  Real const magnitude = std::abs(value);
  double const limit = dtype == DType::float64 ? 1e16 : exponent_limit(dtype);
  bool const positional = magnitude == 0 || (magnitude >= 1e-4 && magnitude < limit);
  if (!positional) return shortest<dtype>(value, std::chars_format::scientific);
  auto const text = shortest<dtype>(value, std::chars_format::fixed);
  return text.find('.') == text.npos ? concat(text, ".0") : text;
}

/// Whether one exponent-free notation would waste or lose digits.
template <DType dtype, class Real>
bool wants_exponents(List<Real> const& values) {
  Real low = 0;
  Real high = 0;
  for (Real value : values) {
    Real const magnitude = std::abs(value);
    if (!std::isfinite(value) || magnitude == 0) continue;
    low = low == 0 ? magnitude : std::min(low, magnitude);
    high = std::max(high, magnitude);
  }
  if (high == 0) return false;
  auto const in_type = [](Real value) -> Real {
    if (dtype == DType::float64) return value;
    auto const narrow = static_cast<float>(value);
    if (dtype == DType::float32) return narrow;
    return dtype == DType::float16 ? float(float16(narrow)) : float(bfloat16(narrow));
  };
  return high >= exponent_limit(dtype) || low < in_type(1e-4) || in_type(high / low) > 1000;
}

template <DType dtype, class Real, class Text = std::string, class P = Parts>
List<Text> words(List<Real> const& values) {
  bool const exponents = wants_exponents<dtype>(values);
  auto const format = exponents ? std::chars_format::scientific : std::chars_format::fixed;
  List<P> parts(values.size());
  std::size_t left = 0;
  std::size_t fraction = 0;
  std::size_t exponent = 0;
  bool all_finite = true;
  bool negative_infinity = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      all_finite = false;
      negative_infinity |= std::isinf(values[i]) && values[i] < 0;
      continue;
    }
    parts[i] = digits_of<dtype>(values[i], format);
    left = std::max(left, parts[i].whole.size());
    fraction = std::max(fraction, parts[i].fraction.size());
    exponent = std::max(exponent, parts[i].exponent.size());
  }
  std::size_t const right = fraction + (exponents ? exponent + 1 : 0);
  if (!all_finite) {
    std::size_t const name_size = negative_infinity ? 4 : 3;
    if (name_size > right + 1) left = std::max(left, name_size - right - 1);
  }
  List<Text> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      result[i] = scalar<dtype>(values[i]);
      if (std::size_t const width = left + right + 1; result[i].size() < width)
        result[i].insert(0, width - result[i].size(), ' ');
      continue;
    }
    P& p = parts[i];
    // With exponents all have equally many digits, and further ones are those of the exact value, not zeros.
    if (exponents && p.fraction.size() < fraction)
      p = split<std::string_view>(characters(values[i], format, static_cast<int>(fraction)));
    result[i] = concat(Text(left - p.whole.size(), ' '), p.whole, ".", p.fraction);
    result[i].append(fraction - p.fraction.size(), ' ');
    if (exponents) {
      p.exponent.insert(1, exponent - p.exponent.size(), '0');
      result[i] += concat("e", p.exponent);
    }
  }
  return result;
}

/// Puts words into brackets and lines. Words are consumed in row-major order of what is shown.
template <class Words>
class Layout {
 public:
  Layout(Shape const& shape, bool summarised, Words const& words)
      : shape_(shape), summarised_(summarised), words_(words) {}

  using Text = std::remove_cvref_t<decltype(std::declval<Words const&>()[0])>;
  Text text() { return nested(0, " ", line_width); }

 private:
  Text nested(int axis, Text const& indent, std::size_t width) {
    if (axis == shape_.rank()) return words_[next_++];
    std::int64_t const extent = shape_[axis];
    bool const cut = summarised_ && extent > 2 * edge_items;
    std::int64_t const shown = cut ? 2 * edge_items : extent;
    Text text;
    if (axis + 1 == shape_.rank()) {
      Text line = indent;
      auto const add = [&](Text const& word) {  // every item leaves a column for a bracket behind it
        if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
          text += concat(line.substr(0, line.find_last_not_of(' ') + 1), "\n");
          line = indent;
        }
        line += word;
      };
      for (std::int64_t i = 0; i < shown; ++i) {
        if (cut && i == edge_items) {
          add("...");
          line += ' ';
        }
        add(words_[next_++]);
        if (i + 1 != shown) line += ' ';
      }
      text += line;
    } else {
      Text const gap(static_cast<std::size_t>(shape_.rank() - axis - 1), '\n');
      for (std::int64_t i = 0; i < shown; ++i) {
        if (cut && i == edge_items) text += concat(indent, "...", gap);
        text += indent + nested(axis + 1, concat(indent, " "), width - 1);
        if (i + 1 != shown) text += gap;
      }
    }
    return concat("[", text.substr(indent.size()), "]");
  }

  Shape shape_;
  bool summarised_;
  Words const& words_;
  std::size_t next_ = 0;
};

/// Copies what is shown of `from` to `to`, whose extents are cut to the edges.
template <class From, class To>
void gather_edges(From from, To to, int axis) {
  if (axis == from.rank()) {
    copy_to_host(from, to);
  } else if (std::int64_t const extent = from.shape()[axis]; extent > to.shape()[axis]) {
    gather_edges(from.slice(axis, 0, edge_items), to.slice(axis, 0, edge_items), axis + 1);
    gather_edges(from.slice(axis, extent - edge_items, extent), to.slice(axis, edge_items, 2 * edge_items), axis + 1);
  } else {
    gather_edges(from, to, axis + 1);
  }
}

/// A tensor of elements.
template <class X>
std::string text(X const& tensor) {
  using T = ValueOf<X>;
  constexpr DType dtype = dtype_of<T>;
  Shape const shape = tensor.shape();
  if (shape.size() == 0) return "[]";
  bool const summarised = shape.size() > threshold;
  Shape edges = shape;
  for (int axis = 0; summarised && axis < shape.rank(); ++axis)
    edges = edges.with(axis, std::min(shape[axis], 2 * edge_items));
  Tensor<T, Cpu> shown(edges);
  gather_edges(detail::as_view(tensor), shown.view(), 0);

  List<std::string> words;
  if constexpr (is_floating(dtype)) {
    List<double> values;
    for (T value : shown.elements()) values.push_back(static_cast<double>(value));
    if (shape.rank() == 0) return scalar<dtype>(values[0]);
    words = print::words<dtype>(values);
  } else {
    std::size_t width = 0;
    for (T value : shown.elements()) {
      if constexpr (dtype == DType::boolean) words.push_back(value ? "True" : "False");
      else
        words.push_back(std::to_string(+static_cast<std::conditional_t<dtype == DType::byte, std::uint8_t, T>>(value)));
      width = std::max(width, words.back().size());
    }
    if (shape.rank() == 0) return words[0];
    if (dtype == DType::boolean) width = 5;
    for (std::string& word : words) word.insert(0, width - word.size(), ' ');
  }
  return Layout(shape, summarised, words).text();
}

}  // namespace detail::print

/// See the file's comment. A tensor of rank 0 prints as its element.
template <TensorLike X>
std::string to_string(X const& tensor) {
  constexpr bool is_printed = Element<ValueOf<X>>;
  static_assert(is_printed, "tutti: complex numbers and structs are not printed. Print their parts");
  if constexpr (is_printed) return detail::print::text(tensor);
  else return {};
}

/// Include <ostream> where it is used.
template <class Traits, TensorLike X>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream, X const& tensor) {
  std::string const text = to_string(tensor);
  return stream.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
}

}  // namespace tutti

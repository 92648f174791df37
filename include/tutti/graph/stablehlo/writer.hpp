// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// StableHLO operations as text, in MLIR's generic form, which tools without the dialect parse too.
/// Source  the StableHLO specification, https://openxla.org/stablehlo/spec; the MLIR language reference

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/core/json_text.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/shape.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tutti::graph::stablehlo {

/// A value of the module by its name in the text.
struct Value {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};
using Values = List<Value>;

constexpr bool has_sign(DType dtype) noexcept {
  return is_floating(dtype) || dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 ||
         dtype == DType::int64;
}

/// Empty for what StableHLO has no element type for.
constexpr std::string_view element_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::boolean: return "i1";
    case DType::int8: return "i8";
    case DType::uint8: return "ui8";
    case DType::int16: return "i16";
    case DType::uint16: return "ui16";
    case DType::int32: return "i32";
    case DType::uint32: return "ui32";
    case DType::int64: return "i64";
    case DType::uint64: return "ui64";
    case DType::bfloat16: return "bf16";
    case DType::float16: return "f16";
    case DType::float32: return "f32";
    case DType::float64: return "f64";
    case DType::character:
    case DType::byte: break;
  }
  return {};
}

inline std::string type_text(DType dtype, Shape const& shape) {
  std::string text = "tensor<";
  for (std::int64_t extent : shape) text += concat(extent, 'x');
  return concat(text, element_type(dtype), '>');
}
inline std::string type_text(Value const& value) { return type_text(value.dtype, value.shape); }
inline std::string type_text(Values const& values) {
  std::string text;
  for (Value const& value : values) text += concat(text.empty() ? "" : ", ", type_text(value));
  return text;
}
inline std::string names_text(Values const& values) {
  std::string text;
  for (Value const& value : values) text += concat(text.empty() ? "" : ", ", value.name);
  return text;
}
inline std::string list_text(std::span<std::int64_t const> numbers) {
  std::string text;
  for (std::int64_t number : numbers) text += concat(text.empty() ? "" : ", ", number);
  return text;
}
/// An attribute.
inline std::string array_text(std::span<std::int64_t const> numbers) {
  return numbers.empty() ? "array<i64>" : concat("array<i64: ", list_text(numbers), '>');
}

/// Digits from which exactly this number is read back; infinities and NaN as bits.
inline std::string number_text(DType dtype, double value) {
  char text[40];
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (!is_floating(dtype))
    return with_dtype(dtype, [&](auto zero) {
      if constexpr (std::is_integral_v<decltype(zero)>) return std::to_string(static_cast<decltype(zero)>(value));
      else return std::string();
    });
  auto const written = [&](double stored, int digits, int hexadecimal, std::uint64_t bits) {
    if (std::isfinite(stored)) std::snprintf(text, sizeof text, "%.*e", digits, stored);
    else std::snprintf(text, sizeof text, "0x%0*llX", hexadecimal, static_cast<unsigned long long>(bits));
    return std::string(text);
  };
  float const single = static_cast<float>(value);
  if (dtype == DType::bfloat16) {
    bfloat16 const x(single);
    return written(double{float(x)}, 9, 4, std::bit_cast<std::uint16_t>(x));
  }
  if (dtype == DType::float16) {
    float16 const x(single);
    return written(double{float(x)}, 9, 4, std::bit_cast<std::uint16_t>(x));
  }
  if (dtype == DType::float32) return written(double{single}, 9, 8, std::bit_cast<std::uint32_t>(single));
  return written(value, 17, 16, std::bit_cast<std::uint64_t>(value));
}

/// Appends operations to a text. Every value has a name of its own, in nested regions too.
class Writer {
 public:
  std::string const& text() const noexcept { return text_; }

  void line(std::string_view content) {
    text_.append(static_cast<std::size_t>(2 * depth_), ' ');
    text_ += concat(content, '\n');
  }
  /// Lines from here on are indented by one level more, or less.
  void indent(int levels) noexcept { depth_ += levels; }
  std::string fresh() { return concat("%v", next_++); }
  /// Operations from here on say that they come from this line; 0: from none.
  void locate(std::string_view file, std::int32_t line) {
    location_ = line == 0 ? std::string() : concat(" loc(\"", json_text(file), "\":", line, ":1)");
  }
  std::string const& location() const noexcept { return location_; }

  /// `name` without a dialect is one of StableHLO. `attributes` is what stands between the braces, `region` what stands
  /// between parentheses.
  Value op(std::string_view name, Values const& operands, DType dtype, Shape const& shape,
           std::string_view attributes = {}, std::string_view region = {}) {
    Value const result{fresh(), dtype, shape};
    bool const dialect = name.find('.') != std::string_view::npos;
    line(concat(result.name, " = \"", dialect ? "" : "stablehlo.", name, "\"(", names_text(operands), ")", region,
                attributes.empty() ? "" : " {", attributes, attributes.empty() ? "" : "}", " : (", type_text(operands),
                ") -> ", type_text(result), location_));
    return result;
  }
  /// Of operands of one shape: the result has the type of the first.
  Value map(std::string_view name, Values const& operands) {
    return op(name, operands, operands[0].dtype, operands[0].shape);
  }
  /// EQ, NE, LT, LE, GT or GE.
  Value compare(std::string_view direction, Value const& a, Value const& b) {
    std::string_view const type = is_floating(a.dtype) ? "FLOAT" : has_sign(a.dtype) ? "SIGNED" : "UNSIGNED";
    return op("compare", {a, b}, DType::boolean, a.shape,
              concat("comparison_direction = #stablehlo<comparison_direction ", direction,
                     ">, compare_type = #stablehlo<comparison_type ", type, ">"));
  }
  Value select(Value const& predicate, Value const& a, Value const& b) {
    return op("select", {predicate, a, b}, a.dtype, a.shape);
  }
  Value convert(Value const& x, DType dtype) { return x.dtype == dtype ? x : op("convert", {x}, dtype, x.shape); }
  Value constant(DType dtype, Shape const& shape, std::string_view literal) {
    return op("constant", {}, dtype, shape, concat("value = dense<", literal, "> : ", type_text(dtype, shape)));
  }
  Value number(DType dtype, Shape const& shape, double value) {
    return constant(dtype, shape, number_text(dtype, value));
  }
  Value number(Value const& like, double value) { return number(like.dtype, like.shape, value); }
  Value reshape(Value const& x, Shape const& shape) {
    return x.shape == shape ? x : op("reshape", {x}, x.dtype, shape);
  }

  /// Two scalars into one by `name`: the region of reductions and scatters.
  std::string folding(std::string_view name, DType dtype) {
    std::string const a = fresh(), b = fresh(), c = fresh(), type = type_text(dtype, {});
    std::string const margin(static_cast<std::size_t>(2 * depth_), ' ');
    return concat(" ({\n", margin, "^bb0(", a, ": ", type, ", ", b, ": ", type, "):\n", margin, "  ", c,
                  " = \"stablehlo.", name, "\"(", a, ", ", b, ") : (", type, ", ", type, ") -> ", type, '\n', margin,
                  "  \"stablehlo.return\"(", c, ") : (", type, ") -> ()\n", margin, "})");
  }

 private:
  std::string text_, location_;
  int next_ = 0, depth_ = 2;
};

}  // namespace tutti::graph::stablehlo

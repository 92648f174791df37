// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A StableHLO module as it was written: functions of operations, whose values are numbers.

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::graph::stablehlo::text {

/// Of a tensor; all extents are fixed.
struct TensorType {
  DType dtype = DType::float32;
  Shape shape;

  friend bool operator==(TensorType const&, TensorType const&) = default;
};
inline std::string to_string(TensorType const& type) {
  return concat(tutti::name(type.dtype), tutti::to_string(type.shape));
}

/// Whether an operation of this name ends a region.
inline bool is_return(std::string_view name) noexcept {
  return name == "return" || name == "func.return" || name == "stablehlo.return";
}

/// What an operation says beside its operands.
struct Attribute {
  enum class Kind : std::uint8_t {
    other,    ///< nothing that operations here need: types, locations
    integer,  ///< a truth value too
    real,
    string,  ///< of quotes, a bare word, a symbol, or what stands between < and >
    list,    ///< items
    fields,  ///< items with keys
    dense,   ///< numbers of a type: one for all elements, or each
  };
  Kind kind = Kind::other;
  std::int64_t integer = 0;
  double real = 0;
  std::string string;
  List<Attribute> items;
  List<std::string> keys;
  TensorType type;
  List<double> numbers;
  /// Of integers beyond 2^53, which doubles do not hold: the one number, modulo 2^64; `numbers` are empty.
  std::uint64_t wide = 0;
};

struct Region;

struct Operation {
  std::string name;  ///< with its dialect: stablehlo.add
  int line = 0;
  List<int> operands;              ///< values of the function
  int first_result = 0;            ///< the value that the first result is; others follow
  List<TensorType> results;
  List<std::string> words;         ///< bare words among the operands, as LT
  List<std::string> keys;          ///< of `attributes`
  List<Attribute> attributes;
  List<Region> regions;

  /// Null where it is not there. Of several names the first that is.
  Attribute const* find(std::string_view key, std::string_view other = {}) const {
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (keys[i] == key) return &attributes[i];
    return other.empty() ? nullptr : find(other);
  }
};

/// Ends in an operation that returns.
struct Region {
  List<int> arguments;
  List<TensorType> types;  ///< of the arguments
  List<Operation> operations;
};

struct Function {
  std::string name;
  int line = 0;
  bool is_private = false;
  int values = 0;  ///< numbers of values are below
  Region body;
  List<TensorType> results;
  List<std::string> argument_names;  ///< what locations or attributes say, or empty
};

struct Module {
  std::string file;  ///< for messages
  List<Function> functions;

  Function const* find(std::string_view name) const {
    for (Function const& function : functions)
      if (function.name == name) return &function;
    return nullptr;
  }
};

/// Errors are of this form: "gpt.mlir:12: stablehlo.sort: ...".
[[noreturn]] inline void refuse(std::string_view file, int line, std::string_view operation, ErrorKind kind,
                                std::string_view sentence) {
  throw Error(kind, "from_stablehlo",
              concat(file, ':', line, ": ", operation, operation.empty() ? "" : ": ", sentence));
}

}  // namespace tutti::graph::stablehlo::text

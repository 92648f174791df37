// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reads a JSON schema, and says of its keywords which are known, and to which type each belongs.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::infer {

/// Of a schema.
inline constexpr std::size_t most_schema_bytes = 64 << 10;

namespace detail {

using SchemaJson = nlohmann::ordered_json;

[[noreturn]] inline void refuse_schema(std::string const& path, std::string const& what) {
  throw Error(ErrorKind::format, "JsonSchema",
              concat("the schema is refused", path.empty() ? "" : " at ", path, ": ", what));
}

/// A schema's text, parsed. Errors: format.
inline SchemaJson parse_schema(std::string const& text) {
  if (text.size() > most_schema_bytes)
    refuse_schema("", concat("it has ", text.size(), " bytes, more than ", most_schema_bytes));
  int depth = 0;  // the visit of a schema recurses
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const c = text[i];
    if (inside && c == '\\') ++i;
    else if (c == '"') inside = !inside;
    else if (!inside) depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (depth > 64) refuse_schema("", "it is more than 64 deep");
  }
  SchemaJson schema = SchemaJson::parse(text, nullptr, false);
  if (schema.is_discarded()) refuse_schema("", "it is not JSON");
  return schema;
}

/// Refuses keywords that would be passed over, by name.
inline void allow_keywords(SchemaJson const& schema, std::string const& path,
                           std::vector<std::string_view> const& known) {
  for (auto const& [key, value] : schema.items()) {
    static constexpr std::string_view notes[] = {"title",       "description", "default",   "examples",
                                                 "$schema",     "$id",         "$comment",  "$defs",
                                                 "definitions", "readOnly",    "writeOnly", "deprecated"};
    auto const is = [&](std::string_view name) { return name == key; };
    if (std::none_of(known.begin(), known.end(), is) && std::none_of(std::begin(notes), std::end(notes), is))
      refuse_schema(path, concat("keyword ", key, " is not supported here. Leave it out, or write a grammar"));
  }
}
/// The schema with the keywords of one of its types.
inline SchemaJson of_one_type(SchemaJson const& schema, std::string const& type) {
  static std::map<std::string, std::string> const owner{
      {"minLength", "string"}, {"maxLength", "string"},  {"items", "array"},     {"minItems", "array"},
      {"maxItems", "array"},   {"properties", "object"}, {"required", "object"}, {"additionalProperties", "object"}};
  SchemaJson own = SchemaJson::object();
  for (auto const& [key, value] : schema.items())
    if (auto const found = owner.find(key); found == owner.end() || found->second == type) own[key] = value;
  return own;
}

/// Whether a value is of the schema's type, where that has one.
inline bool is_of_type(SchemaJson const& value, SchemaJson const& schema) {
  if (!schema.contains("type")) return true;
  auto const is = [&](SchemaJson const& type) {
    return type == value.type_name() || (type == "integer" && value.is_number_integer());
  };
  SchemaJson const& type = schema["type"];
  return type.is_array() ? std::any_of(type.begin(), type.end(), is) : is(type);
}

}  // namespace detail
}  // namespace tutti::infer

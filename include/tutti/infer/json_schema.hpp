// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A JSON schema as a grammar: what a model writes then is JSON of that form.

#include <tutti/core/concat.hpp>
#include <tutti/infer/json_rules.hpp>
#include <tutti/infer/schema_keywords.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

namespace detail {

class SchemaGrammar {
 public:
  explicit SchemaGrammar(std::string const& text) : schema_(parse_schema(text)) {}

  std::string grammar() {
    std::string const root = visit(schema_, "#");
    return rules_.grammar(root);
  }

 private:
  using Json = SchemaJson;

  std::string visit(Json const& schema, std::string const& path) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) refuse_schema(path, "false allows nothing");
      return rules_.base("value");
    }
    if (!schema.is_object()) refuse_schema(path, "a schema is an object, true or false");
    if (schema.contains("$ref")) return reference(schema, path);
    if (schema.contains("const")) {
      allow_keywords(schema, path, {"const", "type"});
      if (!is_of_type(schema["const"], schema)) refuse_schema(path, "const is not of the type beside it");
      return JsonRules::literal(schema["const"].dump());
    }
    if (schema.contains("enum")) {
      allow_keywords(schema, path, {"enum", "type"});
      if (!schema["enum"].is_array() || schema["enum"].empty()) refuse_schema(path, "enum is a list of values");
      std::string text;
      for (Json const& one : schema["enum"])
        if (is_of_type(one, schema)) text += concat(text.empty() ? "" : " | ", JsonRules::literal(one.dump()));
      if (text.empty()) refuse_schema(path, "none of the values of enum is of the type beside it");
      return rules_.add("enum", text);
    }
    for (char const* key : {"anyOf", "oneOf"})
      if (schema.contains(key)) {
        allow_keywords(schema, path, {key, "type"});
        return alternatives(schema[key], schema.contains("type") ? schema["type"] : Json(), concat(path, "/", key));
      }
    if (schema.contains("allOf")) {
      allow_keywords(schema, path, {"allOf"});
      if (!schema["allOf"].is_array() || schema["allOf"].size() != 1)
        refuse_schema(path, "allOf of several schemas is not supported");
      return visit(schema["allOf"][0], path + "/allOf/0");
    }
    if (!schema.contains("type")) {
      if (schema.contains("properties") || schema.contains("required")) return object(schema, path);
      if (schema.contains("items")) return array(schema, path);
      allow_keywords(schema, path, {});
      return rules_.base("value");
    }
    Json const& type = schema["type"];
    if (type.is_string()) return of_type(type.get<std::string>(), schema, path);
    if (!type.is_array() || type.empty()) refuse_schema(path, "type is a name, or a list of names");
    std::string text;
    for (Json const& one : type) {
      if (!one.is_string()) refuse_schema(path, "type is a name, or a list of names");
      // A keyword of one type says nothing of the others.
      text += concat(text.empty() ? "" : " | ",
                     of_type(one.get<std::string>(), of_one_type(schema, one.get<std::string>()), path));
    }
    return rules_.add("type", text);
  }
  std::string of_type(std::string const& type, Json const& schema, std::string const& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type != "number" && type != "integer" && type != "boolean" && type != "null")
      refuse_schema(path, concat("there is no type ", type));
    allow_keywords(schema, path, {"type"});
    return rules_.base(type);
  }
  /// `type`, where it is not null, is that of all of them.
  std::string alternatives(Json const& list, Json const& type, std::string const& path) {
    if (!list.is_array() || list.empty()) refuse_schema(path, "it is a list of schemas");
    std::string text;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Json one = list[i];
      if (!type.is_null() && one.is_object() && !one.contains("type") && !one.contains("$ref")) one["type"] = type;
      if (!type.is_null() && (!one.is_object() || !one.contains("type") || one["type"] != type))
        refuse_schema(concat(path, "/", i), "its type is not the one beside the list. Leave out the latter");
      text += concat(text.empty() ? "" : " | ", visit(one, concat(path, "/", i)));
    }
    return rules_.add("any", text);
  }
  std::string reference(Json const& schema, std::string const& path) {
    allow_keywords(schema, path, {"$ref"});
    if (!schema["$ref"].is_string()) refuse_schema(path, "$ref is text");
    std::string const target = schema["$ref"].get<std::string>();
    if (target.empty() || target[0] != '#') refuse_schema(path, concat("$ref ", target, " leads out of the schema"));
    if (auto const found = references_.find(target); found != references_.end()) return found->second;
    Json const* to = nullptr;
    try {
      to = &schema_.at(Json::json_pointer(target.substr(1)));
    } catch (nlohmann::json::exception const&) {
      refuse_schema(path, concat("$ref ", target, " leads nowhere"));
    }
    std::string const name = rules_.new_name("ref");
    references_.emplace(target, name);  // before what it leads to, which may lead back
    std::string const body = visit(*to, target);
    rules_.define(name, body);
    return name;
  }

  std::string string(Json const& schema, std::string const& path) {
    allow_keywords(schema, path, {"type", "minLength", "maxLength"});
    if (!schema.contains("minLength") && !schema.contains("maxLength")) return rules_.base("string");
    return rules_.add("string",
               concat("\"\\\"\" ", rules_.base("char"), bounds(schema, path, "minLength", "maxLength"), " \"\\\"\""));
  }
  /// "{2,5}".
  std::string bounds(Json const& schema, std::string const& path, char const* low, char const* high) {
    auto const count = [&](char const* key) {
      if (!schema[key].is_number_unsigned() || schema[key].get<std::uint64_t>() > 10'000)
        refuse_schema(path, concat(key, " is a whole number up to 10000"));
      return schema[key].get<std::uint64_t>();
    };
    std::uint64_t const least = schema.contains(low) ? count(low) : 0;
    if (!schema.contains(high)) return concat("{", least, ",}");
    std::uint64_t const most = count(high);
    if (most < least) refuse_schema(path, concat(high, " is less than ", low));
    return concat("{", least, ",", most, "}");
  }
  std::string array(Json const& schema, std::string const& path) {
    allow_keywords(schema, path, {"type", "items", "minItems", "maxItems"});
    std::string const item = schema.contains("items") ? visit(schema["items"], path + "/items") : rules_.base("value");
    std::string const ws = rules_.base("ws");
    std::uint64_t least = 0, most = UINT64_MAX;
    std::string const all = bounds(schema, path, "minItems", "maxItems");  // checks
    if (schema.contains("minItems")) least = schema["minItems"].get<std::uint64_t>();
    if (schema.contains("maxItems")) most = schema["maxItems"].get<std::uint64_t>();
    if (most == 0) return rules_.add("array", concat("\"[\" ", ws, " \"]\""));
    std::string const more = concat("{", least == 0 ? 0 : least - 1, ",",
                                    most == UINT64_MAX ? std::string() : std::to_string(most - 1), "}");
    std::string const items = concat(item, " ", ws, " (\",\" ", ws, " ", item, " ", ws, ")", more);
    return rules_.add("array", concat("\"[\" ", ws, " ", least == 0 ? concat("(", items, ")?") : items, " \"]\""));
  }
  /// Members come in the order of the schema. Beyond those named others may come where additionalProperties says so.
  std::string object(Json const& schema, std::string const& path) {
    allow_keywords(schema, path, {"type", "properties", "required", "additionalProperties"});
    std::string const ws = rules_.base("ws");
    Json const properties = schema.contains("properties") ? schema["properties"] : Json::object();
    Json const required = schema.contains("required") ? schema["required"] : Json::array();
    if (!properties.is_object()) refuse_schema(path, "properties is an object");
    if (!required.is_array()) refuse_schema(path, "required is a list of names");
    std::vector<std::pair<std::string, bool>> members;  // and whether one must be there
    std::set<std::string> names;
    auto const needed = [&](std::string const& name) {
      return std::any_of(required.begin(), required.end(), [&](Json const& one) { return one == name; });
    };
    for (auto const& [name, of] : properties.items()) {
      names.insert(name);
      members.emplace_back(concat(JsonRules::literal(Json(name).dump()), " ", ws, " \":\" ", ws, " ",
                                  visit(of, concat(path, "/properties/", name)), " ", ws),
                           needed(name));
    }
    for (Json const& name : required) {
      if (!name.is_string()) refuse_schema(path, "required is a list of names");
      if (names.insert(name.get<std::string>()).second)
        members.emplace_back(
            concat(JsonRules::literal(name.dump()), " ", ws, " \":\" ", ws, " ", rules_.base("value"), " ", ws), true);
    }
    std::string others;
    if (schema.contains("additionalProperties") ? schema["additionalProperties"] != Json(false) : members.empty()) {
      if (std::any_of(names.begin(), names.end(), [](auto const& name) { return name.size() > 256; }))
        refuse_schema(path, "beside other members it names one in more than 256 bytes");
      std::string const key = names.empty() ? rules_.base("string")
                                            : concat(R"("\"" )", rules_.other_than(names), R"( "\"")");
      std::string const value = schema.contains("additionalProperties")
                                    ? visit(schema["additionalProperties"], path + "/additionalProperties")
                                    : rules_.base("value");
      others = rules_.add("others", concat(key, " ", ws, " \":\" ", ws, " ", value, " ", ws));
    }
    // From the last to the first: what may follow a member, and what may come when none has come yet.
    std::string behind = others.empty() ? "\"\"" : rules_.add("more", concat("(\",\" ", ws, " ", others, ")*"));
    std::string first = others.empty() ? "\"\"" : rules_.add("first", concat("(", others, " ", behind, ")?"));
    for (std::size_t i = members.size(); i-- > 0;) {
      auto const& [member, must] = members[i];
      std::string const with = concat(member, " ", behind);
      std::string const start = rules_.add("first", must ? with : concat(with, " | ", first));
      behind = rules_.add("more", concat("\",\" ", ws, " ", with, must ? std::string() : concat(" | ", behind)));
      first = start;
    }
    return rules_.add("object", concat("\"{\" ", ws, " ", first, " \"}\""));
  }

  Json schema_;
  JsonRules rules_;
  std::map<std::string, std::string> references_;
};

}  // namespace detail

/// The grammar (GBNF, infer/grammar.hpp) of JSON texts that a schema allows: type, properties, required,
/// additionalProperties, items, minItems, maxItems, minLength, maxLength, enum, const, anyOf, oneOf, $ref inside of the
/// schema. Members stand in the schema's order; where members are named others are allowed only if
/// additionalProperties says so. Blanks are short, so that a model cannot write them for ever.
/// Errors: format, with the place in the schema; a keyword that is not supported, by name.
/// Source: JSON Schema, draft 2020-12.
inline std::string grammar_of_schema(std::string const& schema) { return detail::SchemaGrammar(schema).grammar(); }

}  // namespace tutti::infer

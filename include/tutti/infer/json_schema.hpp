// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A JSON schema as a grammar: what a model writes then is JSON of that form.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Of a schema.
inline constexpr std::size_t most_schema_bytes = 64 << 10;

namespace detail {

class SchemaGrammar {
 public:
  explicit SchemaGrammar(std::string const& text) {
    if (text.size() > most_schema_bytes)
      refuse("", concat("it has ", text.size(), " bytes, more than ", most_schema_bytes));
    int depth = 0;  // its visit recurses
    bool inside = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      char const c = text[i];
      if (inside && c == '\\') ++i;
      else if (c == '"') inside = !inside;
      else if (!inside && (depth += (c == '{' || c == '[') - (c == '}' || c == ']')) > 64)
        refuse("", "it is more than 64 deep");
    }
    schema_ = Json::parse(text, nullptr, false);
    if (schema_.is_discarded()) refuse("", "it is not JSON");
  }

  std::string grammar() {
    std::string const root = visit(schema_, "#");
    std::string text = concat("root ::= ", root, "\n");
    for (auto const& [name, body] : rules_) text += concat(name, " ::= ", body, "\n");
    return text;
  }

 private:
  using Json = nlohmann::ordered_json;

  [[noreturn]] static void refuse(std::string const& path, std::string const& what) {
    throw Error(ErrorKind::format, "JsonSchema",
                concat("the schema is refused", path.empty() ? "" : " at ", path, ": ", what));
  }
  /// A rule of the JSON language, which brings those that it needs.
  std::string base(std::string const& name) {
    static std::map<std::string, std::pair<char const*, std::vector<std::string>>> const known{
        {"ws", {R"(" "? | "\n" [ \t]{0,20})", {}}},
        {"boolean", {R"("true" | "false")", {}}},
        {"null", {R"("null")", {}}},
        {"integer", {R"("-"? ("0" | [1-9] [0-9]{0,17}))", {}}},
        {"number", {R"("-"? ("0" | [1-9] [0-9]{0,17}) ("." [0-9]{1,17})? ([eE] [-+]? [0-9]{1,3})?)", {}}},
        {"char", {R"([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))", {}}},
        {"string", {R"("\"" char* "\"")", {"char"}}},
        {"member", {R"(string ws ":" ws value)", {"string", "ws", "value"}}},
        {"object", {R"("{" ws (member ws ("," ws member ws)*)? "}")", {"member", "ws"}}},
        {"array", {R"("[" ws (value ws ("," ws value ws)*)? "]")", {"value", "ws"}}},
        {"value",
         {"object | array | string | number | boolean | null",
          {"object", "array", "string", "number", "boolean", "null"}}}};
    auto const& [body, needs] = known.at(name);
    if (rules_.emplace(name, body).second)
      for (std::string const& other : needs) static_cast<void>(base(other));
    return name;
  }
  std::string add(std::string const& hint, std::string body) {
    std::string const name = concat(hint, "-", ++made_);
    rules_.emplace(name, std::move(body));
    return name;
  }
  static std::string literal(std::string const& text) {
    std::string quoted = "\"";
    for (char const c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      if (c == '\n') quoted += "\\n";
      else if (c == '\r') quoted += "\\r";
      else if (c == '\t') quoted += "\\t";
      else quoted += c;
    }
    return quoted + "\"";
  }

  std::string visit(Json const& schema, std::string const& path) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) refuse(path, "false allows nothing");
      return base("value");
    }
    if (!schema.is_object()) refuse(path, "a schema is an object, true or false");
    if (schema.contains("$ref")) return reference(schema, path);
    if (schema.contains("const")) {
      allow(schema, path, {"const", "type"});
      if (!is_of_type(schema["const"], schema)) refuse(path, "const is not of the type beside it");
      return literal(schema["const"].dump());
    }
    if (schema.contains("enum")) {
      allow(schema, path, {"enum", "type"});
      if (!schema["enum"].is_array() || schema["enum"].empty()) refuse(path, "enum is a list of values");
      std::string text;
      for (Json const& one : schema["enum"])
        if (is_of_type(one, schema)) text += concat(text.empty() ? "" : " | ", literal(one.dump()));
      if (text.empty()) refuse(path, "none of the values of enum is of the type beside it");
      return add("enum", text);
    }
    for (char const* key : {"anyOf", "oneOf"})
      if (schema.contains(key)) {
        allow(schema, path, {key, "type"});
        return alternatives(schema[key], schema.contains("type") ? schema["type"] : Json(), concat(path, "/", key));
      }
    if (schema.contains("allOf")) {
      allow(schema, path, {"allOf"});
      if (!schema["allOf"].is_array() || schema["allOf"].size() != 1)
        refuse(path, "allOf of several schemas is not supported");
      return visit(schema["allOf"][0], path + "/allOf/0");
    }
    if (!schema.contains("type")) {
      if (schema.contains("properties") || schema.contains("required")) return object(schema, path);
      if (schema.contains("items")) return array(schema, path);
      allow(schema, path, {});
      return base("value");
    }
    Json const& type = schema["type"];
    if (type.is_string()) return of_type(type.get<std::string>(), schema, path);
    if (!type.is_array() || type.empty()) refuse(path, "type is a name, or a list of names");
    std::string text;
    for (Json const& one : type) {
      if (!one.is_string()) refuse(path, "type is a name, or a list of names");
      // A keyword of one type says nothing of the others.
      text += concat(text.empty() ? "" : " | ",
                     of_type(one.get<std::string>(), only(schema, one.get<std::string>()), path));
    }
    return add("type", text);
  }
  std::string of_type(std::string const& type, Json const& schema, std::string const& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type != "number" && type != "integer" && type != "boolean" && type != "null")
      refuse(path, concat("there is no type ", type));
    allow(schema, path, {"type"});
    return base(type);
  }
  /// `type`, where it is not null, is that of all of them.
  std::string alternatives(Json const& list, Json const& type, std::string const& path) {
    if (!list.is_array() || list.empty()) refuse(path, "it is a list of schemas");
    std::string text;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Json one = list[i];
      if (!type.is_null() && one.is_object() && !one.contains("type") && !one.contains("$ref")) one["type"] = type;
      if (!type.is_null() && (!one.is_object() || !one.contains("type") || one["type"] != type))
        refuse(concat(path, "/", i), "its type is not the one beside the list. Leave out the latter");
      text += concat(text.empty() ? "" : " | ", visit(one, concat(path, "/", i)));
    }
    return add("any", text);
  }
  /// Whether a value is of the schema's type, where that has one.
  static bool is_of_type(Json const& value, Json const& schema) {
    if (!schema.contains("type")) return true;
    auto const is = [&](Json const& type) {
      return type == value.type_name() || (type == "integer" && value.is_number_integer());
    };
    Json const& type = schema["type"];
    return type.is_array() ? std::any_of(type.begin(), type.end(), is) : is(type);
  }
  std::string reference(Json const& schema, std::string const& path) {
    allow(schema, path, {"$ref"});
    if (!schema["$ref"].is_string()) refuse(path, "$ref is text");
    std::string const target = schema["$ref"].get<std::string>();
    if (target.empty() || target[0] != '#') refuse(path, concat("$ref ", target, " leads out of the schema"));
    if (auto const found = references_.find(target); found != references_.end()) return found->second;
    Json const* to = nullptr;
    try {
      to = &schema_.at(Json::json_pointer(target.substr(1)));
    } catch (nlohmann::json::exception const&) {
      refuse(path, concat("$ref ", target, " leads nowhere"));
    }
    std::string const name = concat("ref-", ++made_);
    references_.emplace(target, name);  // before what it leads to, which may lead back
    std::string const body = visit(*to, target);
    rules_.emplace(name, body);
    return name;
  }

  std::string string(Json const& schema, std::string const& path) {
    allow(schema, path, {"type", "minLength", "maxLength"});
    if (!schema.contains("minLength") && !schema.contains("maxLength")) return base("string");
    return add("string",
               concat("\"\\\"\" ", base("char"), bounds(schema, path, "minLength", "maxLength"), " \"\\\"\""));
  }
  /// "{2,5}".
  std::string bounds(Json const& schema, std::string const& path, char const* low, char const* high) {
    auto const count = [&](char const* key) {
      if (!schema[key].is_number_unsigned() || schema[key].get<std::uint64_t>() > 10'000)
        refuse(path, concat(key, " is a whole number up to 10000"));
      return schema[key].get<std::uint64_t>();
    };
    std::uint64_t const least = schema.contains(low) ? count(low) : 0;
    if (!schema.contains(high)) return concat("{", least, ",}");
    std::uint64_t const most = count(high);
    if (most < least) refuse(path, concat(high, " is less than ", low));
    return concat("{", least, ",", most, "}");
  }
  std::string array(Json const& schema, std::string const& path) {
    allow(schema, path, {"type", "items", "minItems", "maxItems"});
    std::string const item = schema.contains("items") ? visit(schema["items"], path + "/items") : base("value");
    std::string const ws = base("ws");
    std::uint64_t least = 0, most = UINT64_MAX;
    std::string const all = bounds(schema, path, "minItems", "maxItems");  // checks
    if (schema.contains("minItems")) least = schema["minItems"].get<std::uint64_t>();
    if (schema.contains("maxItems")) most = schema["maxItems"].get<std::uint64_t>();
    if (most == 0) return add("array", concat("\"[\" ", ws, " \"]\""));
    std::string const more = concat("{", least == 0 ? 0 : least - 1, ",",
                                    most == UINT64_MAX ? std::string() : std::to_string(most - 1), "}");
    std::string const items = concat(item, " ", ws, " (\",\" ", ws, " ", item, " ", ws, ")", more);
    return add("array", concat("\"[\" ", ws, " ", least == 0 ? concat("(", items, ")?") : items, " \"]\""));
  }
  /// Members come in the order of the schema. Beyond those named others may come where additionalProperties says so.
  std::string object(Json const& schema, std::string const& path) {
    allow(schema, path, {"type", "properties", "required", "additionalProperties"});
    std::string const ws = base("ws");
    Json const properties = schema.contains("properties") ? schema["properties"] : Json::object();
    Json const required = schema.contains("required") ? schema["required"] : Json::array();
    if (!properties.is_object()) refuse(path, "properties is an object");
    if (!required.is_array()) refuse(path, "required is a list of names");
    std::vector<std::pair<std::string, bool>> members;  // and whether one must be there
    std::set<std::string> names;
    auto const needed = [&](std::string const& name) {
      return std::any_of(required.begin(), required.end(), [&](Json const& one) { return one == name; });
    };
    for (auto const& [name, of] : properties.items()) {
      names.insert(name);
      members.emplace_back(concat(literal(Json(name).dump()), " ", ws, " \":\" ", ws, " ",
                                  visit(of, concat(path, "/properties/", name)), " ", ws),
                           needed(name));
    }
    for (Json const& name : required) {
      if (!name.is_string()) refuse(path, "required is a list of names");
      if (names.insert(name.get<std::string>()).second)
        members.emplace_back(concat(literal(name.dump()), " ", ws, " \":\" ", ws, " ", base("value"), " ", ws), true);
    }
    std::string others;
    if (schema.contains("additionalProperties") ? schema["additionalProperties"] != Json(false) : members.empty()) {
      if (std::any_of(names.begin(), names.end(), [](auto const& name) { return name.size() > 256; }))
        refuse(path, "beside other members it names one in more than 256 bytes");
      std::string const key = names.empty() ? base("string") : concat(R"("\"" )", other_than(names), R"( "\"")");
      std::string const value = schema.contains("additionalProperties")
                                    ? visit(schema["additionalProperties"], path + "/additionalProperties")
                                    : base("value");
      others = add("others", concat(key, " ", ws, " \":\" ", ws, " ", value, " ", ws));
    }
    // From the last to the first: what may follow a member, and what may come when none has come yet.
    std::string behind = others.empty() ? "\"\"" : add("more", concat("(\",\" ", ws, " ", others, ")*"));
    std::string first = others.empty() ? "\"\"" : add("first", concat("(", others, " ", behind, ")?"));
    for (std::size_t i = members.size(); i-- > 0;) {
      auto const& [member, must] = members[i];
      std::string const with = concat(member, " ", behind);
      std::string const start = add("first", must ? with : concat(with, " | ", first));
      behind = add("more", concat("\",\" ", ws, " ", with, must ? std::string() : concat(" | ", behind)));
      first = start;
    }
    return add("object", concat("\"{\" ", ws, " ", first, " \"}\""));
  }

  /// What may stand between the quotes of a string that is none of `names`: characters without escapes, by which a name
  /// could be written in another way.
  std::string other_than(std::set<std::string> const& names) {
    std::map<std::string, std::set<std::string>> behind;  // by the first character, of one to four bytes
    for (std::string const& name : names) {
      if (name.empty()) continue;
      std::size_t end = 1;
      while (end < name.size() && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) ++end;
      behind[name.substr(0, end)].insert(name.substr(end));
    }
    std::string firsts, text;
    for (auto const& [first, rest] : behind) {
      if (first.size() == 1 && (first[0] < 0x20 || first[0] == 0x7f || first[0] == '"')) continue;  // only as escapes
      if (first == "\\") continue;
      firsts += first == "]" || first == "-" || first == "^" ? "\\" + first : first;
      text += concat(" | ", literal(first), " ", other_than(rest));
    }
    rules_.emplace("plain", R"([^"\\\x00-\x1F\x7F])");
    return add("other", concat(R"([^"\\\x00-\x1F\x7F)", firsts, "] plain*", text, names.contains("") ? "" : " | \"\""));
  }

  /// Refuses keywords that would be passed over, by name.
  static void allow(Json const& schema, std::string const& path, std::vector<std::string_view> const& known) {
    for (auto const& [key, value] : schema.items()) {
      static constexpr std::string_view notes[] = {"title",       "description", "default",   "examples",
                                                   "$schema",     "$id",         "$comment",  "$defs",
                                                   "definitions", "readOnly",    "writeOnly", "deprecated"};
      auto const is = [&](std::string_view name) { return name == key; };
      if (std::none_of(known.begin(), known.end(), is) && std::none_of(std::begin(notes), std::end(notes), is))
        refuse(path, concat("keyword ", key, " is not supported here. Leave it out, or write a grammar"));
    }
  }
  /// The schema with the keywords of one of its types.
  static Json only(Json const& schema, std::string const& type) {
    static std::map<std::string, std::string> const owner{
        {"minLength", "string"}, {"maxLength", "string"},  {"items", "array"},     {"minItems", "array"},
        {"maxItems", "array"},   {"properties", "object"}, {"required", "object"}, {"additionalProperties", "object"}};
    Json own = Json::object();
    for (auto const& [key, value] : schema.items())
      if (auto const found = owner.find(key); found == owner.end() || found->second == type) own[key] = value;
    return own;
  }

  Json schema_;
  std::map<std::string, std::string> rules_, references_;
  int made_ = 0;
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

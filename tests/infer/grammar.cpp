// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/grammar_matcher.hpp> <tutti/infer/grammar_stacks.hpp> <tutti/infer/grammar_vocabulary.hpp>
// Covers: <tutti/infer/json_schema.hpp> <tutti/infer/json_rules.hpp> <tutti/infer/schema_keywords.hpp>
#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <tutti/infer/grammar_matcher.hpp>
#include <tutti/infer/json_schema.hpp>
#include <tutti/infer/sampler.hpp>

#include <nlohmann/json.hpp>

#include <random>
#include <set>

using namespace tutti;
using namespace tutti::infer;

namespace {

/// Bytes, and pieces of several of them, some of which cut characters. The last two end a text.
struct Words {
  std::vector<std::string> pieces;
  std::vector<std::int32_t> ends;
  explicit Words(std::vector<std::string> const& more = {}) {
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    pieces.insert(pieces.end(), more.begin(), more.end());
    pieces.insert(pieces.end(), {"", "<end>"});
    ends = {static_cast<std::int32_t>(pieces.size()) - 1};
  }
  GrammarVocabulary vocabulary() const { return GrammarVocabulary(pieces, ends); }
};

bool matches(std::string const& grammar, std::string_view text) {
  Grammar const parsed(grammar);
  static Words const words;
  static GrammarVocabulary const vocabulary = words.vocabulary();
  GrammarMatcher matcher(parsed, vocabulary);
  return matcher.accept(text) && matcher.complete();
}

void check(std::string const& grammar, std::vector<std::string> const& in, std::vector<std::string> const& out) {
  for (std::string const& text : in) {
    INFO(grammar << " takes " << text);
    CHECK(matches(grammar, text));
  }
  for (std::string const& text : out) {
    INFO(grammar << " refuses " << text);
    CHECK(!matches(grammar, text));
  }
}

char const* const json = R"(
root   ::= object                       # a document
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
value  ::= object | array | string | number | ("true" | "false" | "null") ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})? ws
ws     ::= | " " | "\n" [ \t]{0,4}
)";

}  // namespace

TEST_CASE("literals, classes, groups, alternatives and repetitions take what they say") {
  check(R"(root ::= "a" "bc")", {"abc"}, {"", "a", "ab", "abcd", "xbc"});
  check(R"(root ::= "abc"* | [0-9]+)", {"", "abc", "abcabc", "7", "123"}, {"ab", "abca", "1a"});
  check(R"(root ::= ("a" | "b")? "c"{2} "d"{1,3} "e"{2,} "f"{0})", {"accdee", "bccddeee", "ccdddee"},
        {"acdee", "accee", "accddddee", "ccde", "ccdeef"});
  check(R"(root ::= [^a-c] [x-] [\]\^] . )", {"dx]q", "é-^日"}, {"ax]q", "dx]", "dy]q"});
  check("root ::= one | two\none ::= \"1\" |\n  \"one\" # a comment\ntwo ::= (\n \"2\"\n | \"two\" )",
        {"1", "one", "2", "two"}, {"3", "onetwo"});
  check(R"(root ::= "\x41\u00e9\U0001F600\n\\\"")", {"Aé😀\n\\\""}, {"A", "Aé😀\n\\"});
  check(R"x(root ::= "(" root ")" | "")x", {"", "()", "((()))"}, {"(", "(()", ")("});
}

TEST_CASE("JSON is taken, and what is no JSON is not") {
  check(json, {"{}", R"({"a": 1})", R"({"a": [1, -2.5e3, "x\n\u00e9", {"b": null}], "c": true})", "{\"é日😀\": \"\"}"},
        {"", "[]", "{", R"({"a"})", R"({"a": 01})", R"({"a": 1,})", "{\"a\": \"\x01\"}", "{\"\xff\": 1}", R"({} x)"});
}

TEST_CASE("a grammar that cannot be is refused with its line and the reason") {
  auto const refuse = [](std::string const& text, char const* part, GrammarLimits limits = {}) {
    INFO(text);
    REQUIRE_ERROR(Grammar(text, limits), ErrorKind::format, part);
  };
  refuse("", "there is no rule root");
  refuse("a ::= \"x\"", "there is no rule root");
  refuse("root ::= b", "rule b is used and not defined");
  refuse("root ::= \"x\"\nroot ::= \"y\"", "line 2: rule root is defined twice");
  refuse("root ::= \"x", "has no end");
  refuse("root ::= [a-", "has no end");
  refuse("root ::= (\"a\"", "')' is expected, not the end");
  refuse("root ::= \"a\" )", "an element is expected, not ')'");
  refuse("root = \"a\"", "':' is expected, not '='");
  refuse("root ::= *", "'*' repeats nothing");
  refuse("root ::= \"a\"{5,0}", "{5,0} ends before it begins");
  refuse("root ::= \"a\"{99999}", "repeated more than 10000 times");
  refuse("root ::= [z-a]", "ends before it begins");
  refuse("root ::= \"\\q\"", "there is no escape \\q");
  refuse("root ::= \"\\xZZ\"", "takes 2 hexadecimal digits");
  refuse("root ::= \"\\UFFFFFFFF\"", "beyond the last character");
  refuse("root ::= \"\xff\"", "not UTF-8");
  refuse("root ::= <word>", "a token is written by its number");
  refuse("root ::= root \"a\"", "rule root begins with itself");
  refuse("root ::= a\na ::= b? c \"x\"\nb ::= \"y\"\nc ::= a", "begins with itself");
  refuse("root ::= (\"a\"?)* root", "begins with itself");
  refuse("root ::= (\"a\"?)*", "begins with itself");  // nothing, again and again
  refuse("root ::= " + std::string(300, '(') + "\"a\"" + std::string(300, ')'), "more than 256 deep");
  std::string const long_one = " \"abcdefgh\"{10000}";
  refuse("root ::=" + long_one + long_one + long_one + long_one, "more than 262144 elements");
  refuse(std::string(70'000, ' '), "more than 65536");
  refuse("root ::= \"abcdef\"", "more than 4 elements", {.elements = 4});
}

TEST_CASE("the tokens allowed are those that a walk byte by byte takes") {
  Words const words({"{\"",  "\": ",     "true",     "tru", "false", ", \"",    "}}",    "é",   "é日", "\xc3", "\xa9x",
                     "日本", "\xe6\x97", "\xf0\x9f", "[[",  "]]",    "\\u00e9", "null}", "1.5", "  ",  "\n  "});
  GrammarVocabulary const vocabulary = words.vocabulary();
  std::mt19937 engine(5);
  for (char const* const text : {json, R"(root ::= [^a] root | "日" "本"{2,3} | "é"+ [\x80-\u00ff]?)",
                                 R"(root ::= ("ab" | "a") ("bc" | "c")* | <[300]> "x")"}) {
    Grammar const grammar(text);
    for (int walk = 0; walk < 8; ++walk) {
      GrammarMatcher matcher(grammar, vocabulary);
      for (int step = 0; step < 30; ++step) {
        std::vector<bool> const mask = matcher.allowed();
        std::vector<std::int32_t> next;
        for (std::size_t id = 0; id < words.pieces.size(); ++id) {
          GrammarMatcher probe = matcher;
          bool takes = probe.accept(static_cast<std::int32_t>(id));
          if (!words.pieces[id].empty() && !vocabulary.is_end(static_cast<std::int32_t>(id)) && takes) {
            // The same in pieces of one byte, unless it is a token of the grammar.
            GrammarMatcher slow = matcher;
            bool all = true;
            for (char const c : words.pieces[id]) all = all && slow.accept(static_cast<unsigned char>(c));
            if (text[8] != '(') REQUIRE(all);
          }
          INFO(text << ": token " << id << " '" << words.pieces[id] << "' at step " << step);
          REQUIRE(mask[id] == takes);
          if (takes && !vocabulary.is_end(static_cast<std::int32_t>(id))) next.push_back(static_cast<std::int32_t>(id));
        }
        if (next.empty()) break;
        REQUIRE(matcher.accept(next[engine() % next.size()]));
      }
    }
  }
}

TEST_CASE("a text may end where the grammar ends, and not inside of a character") {
  Words const words;
  GrammarVocabulary const vocabulary = words.vocabulary();
  Grammar const grammar(R"(root ::= "a" "é"?)");
  GrammarMatcher matcher(grammar, vocabulary);
  std::int32_t const end = words.ends[0];
  CHECK(!matcher.accept(end));
  CHECK(!matcher.allowed()[static_cast<std::size_t>(end)]);
  CHECK(matcher.accept('a'));
  CHECK(matcher.complete());
  CHECK(!matcher.finished());
  CHECK(matcher.accept(end));
  CHECK(matcher.accept(0xc3));
  CHECK(!matcher.complete());
  CHECK(!matcher.accept(end));
  CHECK(!matcher.accept('x'));
  CHECK(matcher.accept(0xa9));
  CHECK(matcher.finished());
  CHECK(!matcher.accept(static_cast<std::int32_t>(words.pieces.size())));
  CHECK(!matcher.accept(-1));
  matcher.reset();
  CHECK(matcher.accept('a'));
}

TEST_CASE("tokens by number are taken as such") {
  Words const words({"<think>", "</think>"});
  GrammarVocabulary const vocabulary = words.vocabulary();
  Grammar const grammar("root ::= <[256]> !<[257]>* <[257]> \"ok\"");
  GrammarMatcher matcher(grammar, vocabulary);
  CHECK(!matcher.accept('<'));
  CHECK(matcher.accept(256));
  for (std::int32_t const token : {97, 98, 256, 0xff}) CHECK(matcher.accept(token));
  CHECK(!matcher.complete());
  CHECK(matcher.accept(257));
  CHECK(!matcher.accept('x'));
  CHECK(matcher.accept('o'));
  CHECK(matcher.accept('k'));
  CHECK(matcher.finished());
}

TEST_CASE("deep and long texts keep memory and time within bounds") {
  Words const words;
  GrammarVocabulary const vocabulary = words.vocabulary();
  Grammar const grammar(R"(root ::= "[" root "]" | "a"*)");
  GrammarMatcher matcher(grammar, vocabulary);
  for (int i = 0; i < 300'000; ++i) REQUIRE(matcher.accept('['));
  for (int i = 0; i < 300'000; ++i) REQUIRE(matcher.accept(']'));
  CHECK(matcher.finished());
  matcher.reset();
  for (int i = 0; i < 100'000; ++i) REQUIRE(matcher.accept('a'));
  CHECK(matcher.complete());
}

TEST_CASE("what is drawn under a grammar is of its language") {
  Words const words({"\": ", "true", "null", ", \"", "}"});
  GrammarVocabulary const vocabulary = words.vocabulary();
  Grammar const grammar(grammar_of_schema(
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"},
          "tags": {"type": "array", "items": {"enum": ["x", "y", 3]}, "maxItems": 3}}, "required": ["name", "age"]})"));
  std::mt19937 engine(2);
  std::uniform_real_distribution<float> draw(-2, 2);
  int complete = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    GrammarMatcher matcher(grammar, vocabulary);
    Sampler sampler({.seed = seed});
    std::string text;
    for (int i = 0; i < 400; ++i) {
      std::vector<float> logits(words.pieces.size());
      for (float& logit : logits) logit = draw(engine);
      std::int32_t const token = sampler(logits, matcher);
      REQUIRE(matcher.accept(token));
      if (vocabulary.is_end(token)) break;
      text += words.pieces[static_cast<std::size_t>(token)];
      if (matcher.finished()) break;
    }
    if (!matcher.complete()) continue;
    ++complete;
    INFO(text);
    nlohmann::json const made = nlohmann::json::parse(text);
    CHECK(made["name"].is_string());
    CHECK(made["age"].is_number_integer());
    if (made.contains("tags")) CHECK(made["tags"].size() <= 3);
  }
  CHECK(complete > 10);
}

TEST_CASE("a schema becomes the grammar of its texts") {
  auto const check_schema = [](char const* schema, std::vector<std::string> const& in,
                               std::vector<std::string> const& out) { check(grammar_of_schema(schema), in, out); };
  check_schema("{}", {"1", "\"x\"", "[]", "{\"a\": [true]}", "null"}, {"", "nil", "[1"});
  check_schema("true", {"1"}, {""});
  check_schema(R"({"type": "boolean"})", {"true", "false"}, {"null"});
  check_schema(R"({"type": ["integer", "null"]})", {"-12", "0", "null"}, {"1.5", "01", "true"});
  check_schema(R"({"type": ["string", "array"], "minLength": 2, "minItems": 1})", {"\"ab\"", "[1]"}, {"\"a\"", "[]"});
  check_schema(R"({"const": {"a": "q\"\n"}})", {R"({"a":"q\"\n"})"}, {R"({"a": 1})"});
  check_schema(R"({"enum": ["red", 7, null]})", {"\"red\"", "7", "null"}, {"red", "8"});
  check_schema(R"({"anyOf": [{"type": "integer"}, {"const": "none"}]})", {"3", "\"none\""}, {"\"some\""});
  check_schema(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
               {"[1, 2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"});
  check_schema(R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"});
  check_schema(R"({"type": "object"})", {"{}", "{\"a\": 1, \"b\": {}}"}, {"[]", "{\"a\"}"});
  char const* const person = R"({"type": "object", "title": "person", "properties": {"a": {"type": "integer"},
      "b": {"type": "integer"}, "c": {"type": "integer"}}, "required": ["b"]})";
  check_schema(person, {R"({"b": 1})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a": 1, "b": 2, "c": 3})"},
               {"{}", R"({"a": 1})", R"({"c":1,"b":2})", R"({"b":1,"d":2})", R"({"b":1,})"});
  check_schema(R"({"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}})",
               {"{}", R"({"a":1})", R"({"a":1,"z":true})", R"({"z":true,"y":false})"}, {R"({"z":1})"});
  // Another member is none of those that are named, however its name is written.
  char const* const open = R"({"properties": {"age": {"type": "integer"}, "ag-": {}, "é]": {}, "q\"": {}},
      "required": ["age"], "additionalProperties": true})";
  check_schema(
      open,
      {R"({"age":20})", R"({"age":20,"a":"x"})", R"({"age":1,"agee":"x","ag":2,"é":3})", R"({"age":1,"":0})",
       R"({"age":1,"q":0})"},
      {R"({"age":"twenty"})", R"({"age":20,"age":"twenty"})", R"({"a":1,"age":"x"})", R"({"age":1,"ag-":1,"ag-":2})",
       R"({"age":1,"é]":1,"é]":2})", R"({"age":1,"q\"":1,"q\"":2})", R"({"age":20,"\u0061ge":"twenty"})"});
  check_schema(R"({"type": "string", "enum": ["a", 1, null]})", {"\"a\""}, {"1", "null"});
  check_schema(R"({"type": ["integer", "null"], "enum": ["a", 1, null]})", {"1", "null"}, {"\"a\""});
  check_schema(R"({"type": "string", "anyOf": [{"minLength": 2}, {"const": "x"}]})", {"\"ab\"", "\"x\""},
               {"\"a\"", "1"});
  check_schema(R"({"required": ["x"]})", {R"({"x": [1]})"}, {"{}"});
  check_schema(R"({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"},
      {"type": "null"}]}}, "required": ["next"]}}, "$ref": "#/$defs/node"})",
               {R"({"next": null})", R"({"next": {"next": null}})"}, {"{}", R"({"next": 1})"});
}

TEST_CASE("a schema that cannot be kept is refused by keyword and place") {
  auto const refuse = [](std::string const& schema, char const* part) {
    INFO(schema);
    REQUIRE_ERROR(grammar_of_schema(schema), ErrorKind::format, part);
  };
  refuse("{", "it is not JSON");
  refuse("3", "at #: a schema is an object");
  refuse(R"({"type": "string", "pattern": "a+"})", "at #: keyword pattern is not supported");
  refuse(R"({"properties": {"x": {"type": "integer", "minimum": 3}}})", "at #/properties/x: keyword minimum");
  refuse(R"({"type": "text"})", "there is no type text");
  refuse(R"({"type": 3})", "type is a name");
  refuse(R"({"enum": []})", "enum is a list");
  refuse(R"({"$ref": "http://example.org/x"})", "leads out of the schema");
  refuse(R"({"$ref": "#/$defs/none"})", "leads nowhere");
  refuse(R"({"allOf": [{}, {}]})", "allOf of several");
  refuse(R"({"type": "array", "minItems": 3, "maxItems": 2})", "maxItems is less than minItems");
  refuse(R"({"type": "array", "minItems": -1})", "minItems is a whole number");
  refuse("false", "false allows nothing");
  refuse(R"({"type": "integer", "const": "x"})", "const is not of the type beside it");
  refuse(R"({"type": "integer", "enum": ["x"]})", "none of the values of enum");
  refuse(R"({"type": "integer", "anyOf": [{"type": "string"}]})",
         "at #/anyOf/0: its type is not the one beside the list");
  refuse(R"({"additionalProperties": true, "properties": {")" + std::string(300, 'x') + R"(": {}}})",
         "more than 256 bytes");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"items":)";
  refuse(deep, "more than 64 deep");
  refuse(std::string(70'000, ' '), "more than 65536");
  // A reference to itself alone has no text.
  REQUIRE_ERROR(Grammar(grammar_of_schema(R"({"$ref": "#"})")), ErrorKind::format, "begins with itself");
}

TEST_CASE("Grammars damaged at random are followed or refused; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  static Words const words({"ab", "\": ", "true", "\xc3\xa9"});
  static GrammarVocabulary const vocabulary = words.vocabulary();
  test::Fuzzer fuzzer(300,
                      {json, R"(root ::= ("a" | [^b-d\n])* <[3]> | !<[97]> . {2,5} # end)",
                       "root ::= one two?\none ::= \"x\" root |\ntwo ::= [\\u00e9-\\U0001F600]{0,3} | ( one ){4}"},
                      {"{0,10000}", "{9999}", "()*", "root", " | ", "::=", "<[999999999999]>", "[^", "\\x", "((((((((",
                       "root ::= root"});
  int refused = 0, followed = 0;
  while (fuzzer.next()) {
    std::string const text = fuzzer.damaged();
    INFO(text);
    try {
      Grammar const grammar(text);
      GrammarMatcher matcher(grammar, vocabulary);
      for (int step = 0; step < 20 && !matcher.finished(); ++step) {
        std::size_t const token = fuzzer.below(words.pieces.size());
        bool const taken = matcher.accept(static_cast<std::int32_t>(token));
        if (!taken) matcher.reset();
      }
      static_cast<void>(matcher.complete());
      ++followed;
    } catch (Error const& error) {
      bool const ambiguous = error.operation() == "GrammarMatcher";  // too much so
      REQUIRE(error.kind() == (ambiguous ? ErrorKind::invalid_argument : ErrorKind::format));
      ++refused;
    }
  }
  CHECK((refused > 50 && followed > 20));
}

TEST_CASE("Schemas damaged at random become grammars or are refused; TUTTI_FUZZ_SECONDS tries for longer", "[fuzz]") {
  test::Fuzzer fuzzer(
      300,
      {R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"},
          "tags": {"type": "array", "items": {"enum": ["x", "y", 3]}, "maxItems": 3}}, "required": ["name", "age"]})",
       R"({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"},
      {"type": "null"}]}}, "required": ["next"]}}, "$ref": "#/$defs/node"})",
       R"({"type": ["string", "array"], "minLength": 2, "minItems": 1,
          "additionalProperties": {"const": {"a": "q\"\n"}}})"},
      {"\"$ref\": \"#\",", "\"allOf\": [{}],", "\"minLength\": 9999,", "\"maxItems\": 100000,", "\"items\": {", "true",
       "\"enum\": [\"\\u0000\"],"});
  int refused = 0, made = 0;
  while (fuzzer.next()) {
    std::string const text = fuzzer.damaged();
    INFO(text);
    try {
      Grammar const grammar(grammar_of_schema(text));
      ++made;
    } catch (Error const& error) {
      REQUIRE(error.kind() == ErrorKind::format);
      ++refused;
    }
  }
  CHECK((refused > 100 && made > 5));
}

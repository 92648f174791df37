// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/print.hpp>

#include <tutti/graph/param.hpp>
#include <tutti/graph/print.hpp>

#include "model.hpp"
#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;

TEST_CASE("parameters are named by their members, stacked under the block's, in the order of the definition") {
  std::string names;
  auto const model = test::gpt(7, 5, 12, 3);
  for_each_parameter(model, [&](std::string_view name, Param const& param, std::int64_t layers) {
    names += std::string(name) + to_string(stored_shape(param, layers)) + " ";
  });
  CHECK(names ==
        "wte(7, 12) wpe(5, 12) blocks.ln_1.gamma(3, 12) blocks.ln_1.beta(3, 12) blocks.qkv.weight(3, 36, 12) "
        "blocks.qkv.bias(3, 36) "
        "blocks.proj.weight(3, 12, 12) blocks.proj.bias(3, 12) blocks.ln_2.gamma(3, 12) blocks.ln_2.beta(3, 12) "
        "blocks.fc.weight(3, 48, 12) blocks.fc.bias(3, 48) blocks.out.weight(3, 12, 48) blocks.out.bias(3, 12) "
        "ln_f.gamma(12,) "
        "ln_f.beta(12,) ");
  CHECK(parameter_count(model) == 7 * 12 + 5 * 12 + 3 * (12 * 12 * 12 + 13 * 12) + 24);
  static_assert(parameter_count(test::gpt(7, 5, 12, 0)) == 7 * 12 + 5 * 12 + 24);
}

TEST_CASE("the graph lists them with their initialisation, and says which are stacked") {
  Graph const graph = test::gpt_loss(3);
  REQUIRE(graph.parameters.size() == 16);
  CHECK(graph.name(graph.parameters[0].node) == "wte");
  CHECK(graph.parameters[0].init == normal(0.02));
  CHECK_FALSE(graph.parameters[0].stacked);
  CHECK(graph.name(graph.parameters[2].node) == "blocks.ln_1.gamma");
  CHECK(graph.parameters[2].init == ones());
  CHECK(graph.parameters[2].stacked);
  CHECK(graph.shape(graph.parameters[2].node) == Shape{3, 12});
}

namespace {
/// Of which the number and the names of parameters are known at run time alone.
struct Found {
  std::vector<NamedParam> list;
  std::vector<NamedParam>& named_parameters() { return list; }
  std::vector<NamedParam> const& named_parameters() const { return list; }
};
}  // namespace

TEST_CASE("parameters may have names that are known at run time alone") {
  Found const model{{{"a.b", {{2}, ones()}}, {"c", {{2}, zeros()}}}};
  CHECK(parameter_count(model) == 4);
  Graph const graph = trace(model, [](Builder& builder, Found const& bound) {
    builder.output("sum", Operand(bound.list[0].param) + Operand(bound.list[1].param));
  });
  REQUIRE(graph.parameters.size() == 2);
  CHECK(graph.name(graph.parameters[0].node) == "a.b");
  CHECK(graph.parameters[0].init == ones());
  CHECK(graph.name(graph.parameters[1].node) == "c");
}

TEST_CASE("an unbound parameter is refused with a sentence") {
  Param const loose{{3}, zeros()};
  REQUIRE_ERROR(loose + loose, ErrorKind::invalid_argument,
                "list their members with BOOST_HANA_DEFINE_STRUCT");
}

TEST_CASE("a printed graph shows operation, operands, attributes, shapes, lines and bodies") {
  std::string const text = to_string(test::gpt_loss(2));
  for (char const* part :
       {"%0 = input \"tokens\"() : int32 (2, 4)", "parameter \"blocks.qkv.weight\"() : float32 (2, 36, 12)",
        "    %0 = input \"x\"()", "attention(%", "{3, 3} <0.5>", "@model.hpp:", "output \"loss\" = %"}) {
    INFO(text);
    CHECK(test::contains(text, part));
  }
}

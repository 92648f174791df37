// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/plan/layout.hpp>

#include "support/catch.hpp"

#include <tutti/plan/cluster.hpp>
#include <tutti/plan/layout.hpp>

#include <string>

using namespace tutti;
using namespace tutti::plan;

namespace {

std::string const whole = R"({"name": "two", "nodes": 2, "devices_per_node": 4, "processors_per_node": 2, "threads": 1,
  "device": {"kind": "cuda", "memory_gbyte": 80, "bfloat16_tflops": 312, "memory_gbyte_s": 2000, "efficiency": 0.5},
  "inside": {"gbyte_s": 300, "latency_us": 3}, "between": {"mbit_s": 100, "latency_us": 50}})";

std::string refused(std::string const& text) {
  try {
    parse_cluster(text, "c.json");
  } catch (Error const& error) {
    return error.message();
  }
  return "";
}
std::string without(std::string text, std::string const& part, std::string const& instead = "") {
  return text.replace(text.find(part), part.size(), instead);
}

}  // namespace

TEST_CASE("a cluster's description is read in its units") {
  Cluster const cluster = parse_cluster(whole, "c.json");
  CHECK(cluster.devices() == 8);
  CHECK(cluster.device.kind == DeviceKind::cuda);
  CHECK(cluster.device.memory == Approx(80e9));
  CHECK(cluster.device.bfloat16 == Approx(312e12));
  CHECK(cluster.between.bandwidth == Approx(12.5e6));
  CHECK(cluster.between.latency == Approx(50e-6));
  CHECK(cluster.inside.bandwidth == Approx(300e9));
  CHECK(cluster.crowding(1) == 1);
  CHECK(cluster.crowding(4) == 2);
}

TEST_CASE("what a description cannot say is refused by its key") {
  auto const says = [](std::string const& text, std::string const& words) {
    INFO(text << "\n" << refused(text));
    CHECK(refused(text).find(words) != std::string::npos);
  };
  says("[]", "the top level must be an object");
  says("{", "damaged");
  says(without(whole, "\"nodes\"", "\"Nodes\""), "there is no key 'Nodes'");
  says(without(whole, "\"kind\": \"cuda\"", "\"kind\": \"tpu\""), "'device.kind' must be \"cpu\" or \"cuda\"");
  says(without(whole, "\"memory_gbyte\": 80, "), "'device.memory_gbyte' is missing");
  says(without(whole, "0.5", "1.5"), "'device.efficiency' must be a number above 0 and at most 1, not 1.5");
  says(without(whole, "\"nodes\": 2", "\"nodes\": 1.5"), "'nodes' must be a whole number");
  says(without(whole, "\"nodes\": 2", "\"nodes\": -2"), "'nodes' must be a number above 0");
  says(without(whole, "\"mbit_s\": 100", "\"mbit_s\": 100, \"gbyte_s\": 1"), "one of 'gbyte_s' and 'mbit_s'");
  says(without(whole, "\"mbit_s\": 100", "\"mbit_s\": 100, \"burden\": 1.5"),
       "'between.burden' must be a number of at least 0 and at most 1, not 1.5");
  says(without(whole, "\"latency_us\": 50", "\"latency_us\": 50, \"shared_memory\": true"), "nodes share no memory");
  says(without(whole, ", \"between\": {\"mbit_s\": 100, \"latency_us\": 50}"), "'between' is missing");
}

TEST_CASE("layouts are read as they are written") {
  for (char const* text :
       {"d=1,t=1", "d=2,t=4,p=2,zero=1,micro=8,schedule=1f1b", "d=1,t=1,p=4,micro=8,schedule=zero-bubble",
        "d=1,t=2,p=2,micro=4,schedule=interleaved,chunks=2"})
    CHECK(to_string(parse_layout(text)) == text);
  CHECK(parse_layout("").ranks() == 1);
  CHECK(parse_layout("p=2,schedule=interleaved").chunks == 2);
  CHECK(parse_layout("p=3,layers=4+4+3").layers == List<std::int64_t>{4, 4, 3});
  CHECK(to_string(parse_layout("p=3,layers=4+4+3")) == "d=1,t=1,p=3,schedule=1f1b,layers=4+4+3");
  REQUIRE_ERROR(parse_layout("p=3,layers=4+"), ErrorKind::configuration, "numbers of layers, as in layers=4+4+3");
  for (char const* text : {"d", "d=0", "d=x", "q=1", "zero=4", "schedule=fast", "chunks=2", "d=1048576,t=1048576",
                           "d=99999999999", "d=2,d=2"})
    CHECK_THROWS_AS(parse_layout(text), Error);
}

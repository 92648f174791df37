// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Two chains of elementwise operations as one.

#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::graph::lowering {

/// What kernels have room for.
inline constexpr std::size_t max_chain_inputs = 16, max_chain_instructions = 64, max_chain_outputs = 8;

/// The step that does what `producer` does, then `consumer`, which reads its results. Of these it writes those that
/// somebody else reads too: `read_elsewhere(ref)`. Nothing where it would be too large.
template <class F>
std::optional<Step> merged_chain(Step const& producer, Step const& consumer, F&& read_elsewhere) {
  Step merged;
  merged.kind = StepKind::elementwise;
  merged.registers = consumer.registers;
  merged.layer = consumer.layer;
  merged.node = consumer.node;
  merged.where = consumer.where.empty() ? producer.where : consumer.where;
  merged.scope = consumer.where.empty() ? producer.scope : consumer.scope;
  auto input_of = [&](Ref const& ref) {
    for (std::size_t i = 0; i < merged.reads.size(); ++i)
      if (merged.reads[i].buffer == ref.buffer && merged.reads[i].offset == ref.offset &&
          merged.reads[i].strides == ref.strides && merged.reads[i].dtype == ref.dtype)
        return i;
    merged.reads.push_back(ref);
    return merged.reads.size() - 1;
  };
  auto produced = [&](Ref const& ref) -> int {
    for (std::size_t i = 0; i < producer.writes.size(); ++i)
      if (producer.writes[i].buffer == ref.buffer) return static_cast<int>(i);
    return -1;
  };
  // Registers of both, translated: inputs first, instructions after all inputs.
  List<std::size_t> producer_inputs, consumer_inputs;
  for (Ref const& ref : producer.reads) producer_inputs.push_back(input_of(ref));
  for (Ref const& ref : consumer.reads) consumer_inputs.push_back(produced(ref) >= 0 ? 0 : input_of(ref));
  std::size_t const inputs = merged.reads.size(), first = producer.instructions.size();
  if (inputs > max_chain_inputs || first + consumer.instructions.size() > max_chain_instructions) return std::nullopt;
  auto of_producer = [&](std::int16_t r) -> std::int16_t {
    if (r < 0) return r;
    std::size_t const k = static_cast<std::size_t>(r);
    return static_cast<std::int16_t>(k < producer.reads.size() ? producer_inputs[k]
                                                               : inputs + k - producer.reads.size());
  };
  auto of_consumer = [&](std::int16_t r) -> std::int16_t {
    if (r < 0) return r;
    std::size_t const k = static_cast<std::size_t>(r);
    if (k >= consumer.reads.size()) return static_cast<std::int16_t>(inputs + first + k - consumer.reads.size());
    int const source = produced(consumer.reads[k]);
    return source >= 0 ? of_producer(producer.sources[static_cast<std::size_t>(source)])
                       : static_cast<std::int16_t>(consumer_inputs[k]);
  };
  for (auto const& i : producer.instructions)
    merged.instructions.push_back({i.op, of_producer(i.a), of_producer(i.b), of_producer(i.c), i.value});
  for (auto const& i : consumer.instructions)
    merged.instructions.push_back({i.op, of_consumer(i.a), of_consumer(i.b), of_consumer(i.c), i.value});
  for (std::size_t i = 0; i < producer.writes.size(); ++i) {
    if (!read_elsewhere(producer.writes[i])) continue;
    merged.writes.push_back(producer.writes[i]);
    merged.sources.push_back(of_producer(producer.sources[i]));
  }
  for (std::size_t i = 0; i < consumer.writes.size(); ++i) {
    merged.writes.push_back(consumer.writes[i]);
    merged.sources.push_back(of_consumer(consumer.sources[i]));
  }
  if (merged.writes.size() > max_chain_outputs) return std::nullopt;
  return merged;
}

}  // namespace tutti::graph::lowering

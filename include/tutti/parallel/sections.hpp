// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Moments of which each rank has the sections that it updates (Rajbhandari et al. 2020, arXiv 1910.02054, stage 1).

#include <tutti/comm/port.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/division.hpp>
#include <tutti/graph/state.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/parallel/data_parallel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <vector>

namespace tutti::parallel {

/// How ranks share out updates. `one_state`: those of a node have one copy of parameters and moments.
inline graph::Division division_of(DataParallel const& ranks, bool one_state) {
  if (one_state) return {ranks.node->rank(), ranks.node->size(), ranks.node->size() == ranks.port->size()};
  if (ranks.sharded) return {ranks.port->rank(), ranks.port->size(), true, true};
  return {};
}

/// Which bytes of a State's moments this rank has: those that a program's updates write. Elsewhere fields hold zeros,
/// in memory that is not taken.
class StateSections {
 public:
  StateSections() = default;
  /// Marks the fields of these names, and clears what others have of them.
  StateSections(std::vector<std::string> const& moments, graph::StepList const& list, graph::State& state) {
    for (std::string const& name : moments) {
      parts_.push_back({name, {}});
      state.at(name).sections = true;
    }
    for (graph::Step const& step : list.steps) {
      if (step.kind != graph::StepKind::adamw) continue;
      for (graph::Ref const& ref : step.writes) {
        auto const home = list.home(ref.buffer);
        std::string const& name = list.fields[static_cast<std::size_t>(list[home.root].entry)].name;
        std::int64_t const begin = home.offset + ref.offset;
        for (Part& part : parts_)
          if (part.field == name) part.mine.push_back({begin, begin + ref.bytes()});
      }
    }
    for (Part& part : parts_) {
      part.mine.stable_sort([](Range const& a, Range const& b) { return a.begin < b.begin; });
      graph::Memory& memory = state.at(part.field).memory;
      memory.prefer_small_pages();
      for (Range const& range : part.mine) memory.prefer_huge_pages(range.begin, range.end - range.begin);
    }
    clear_others(state);
  }

  /// Before ranks are connected. Errors: unavailable, for what does not go with sections of moments.
  void require_possible(DataParallel const& ranks, bool on_processors, std::source_location where) const {
    auto const refuse = [&](char const* why) {
      throw Error(ErrorKind::unavailable, "TrainStep::connect", why, where);
    };
    if (!parts_.empty()) refuse("ranks have sections of moments, of which others know nothing. Make another TrainStep");
    if (ranks.sharded && !on_processors) refuse("moments are shared out on processors alone. Use Replicas::per_rank");
  }
  /// Of moments that others have.
  std::int64_t others_bytes(graph::State const& state) const {
    std::int64_t bytes = 0;
    for (Part const& part : parts_) {
      bytes += state.find(part.field)->bytes();
      for (Range const& range : part.mine) bytes -= range.end - range.begin;
    }
    return bytes;
  }
  /// What this rank does not update becomes zero, and its memory goes back.
  void clear_others(graph::State& state) const {
    for (Part const& part : parts_) clear_others(state.at(part.field));
  }
  /// Of one field, where ranks have sections of it.
  void clear_others(graph::Field& field) const {
    Part const* const part = find(field);
    if (part == nullptr) return;
    std::int64_t at = 0;
    for (Range const& range : part->mine) {
      field.memory.clear(at, range.begin - at);
      at = range.end;
    }
    field.memory.clear(at, field.bytes() - at);
  }
  bool divides(graph::Field const& field) const noexcept { return find(field) != nullptr; }
  /// f(begin, end) for what this rank has of a field of which ranks have sections, in bytes.
  template <class F>
  void each_section(graph::Field const& field, F&& f) const {
    for (Range const& range : find(field)->mine) f(range.begin, range.end);
  }
  /// Ranks that want it have whole moments afterwards, until `clear_others`. Ranks: all. Blocking.
  void gather(comm::Port& port, graph::State& state, bool wanted,
              std::source_location where = std::source_location::current()) const {
    for (Part const& part : parts_) {
      graph::Field& field = state.at(part.field);
      gather(port, field, wanted ? static_cast<std::byte*>(field.data()) : nullptr, where);
    }
  }
  /// The whole of a field of which ranks have sections, to `to` where it is not null. Ranks: all. Blocking.
  void gather(comm::Port& port, graph::Field const& field, std::byte* to,
              std::source_location where = std::source_location::current()) const {
    std::vector<std::byte> block;
    auto const* const data = static_cast<std::byte const*>(field.data());
    for (std::int64_t at = 0; at < field.bytes(); at += most) {
      std::int64_t const bytes = std::min(field.bytes() - at, most);
      block.assign(data + at, data + at + bytes);
      // Others have zeros there: a sum of bits is those of the one that has it.
      port.wait(port.start_all_reduce(block.data(), bytes / 4, DType::int32, comm::PortOp::sum, where));
      if (to != nullptr) std::memcpy(to + at, block.data(), static_cast<std::size_t>(bytes));
    }
  }

 private:
  static constexpr std::int64_t most = std::int64_t{1} << 20;
  struct Range {
    std::int64_t begin = 0, end = 0;  // bytes
  };
  struct Part {
    std::string field;
    List<Range> mine;
  };
  Part const* find(graph::Field const& field) const noexcept {
    for (Part const& part : parts_)
      if (part.field == field.name) return &part;
    return nullptr;
  }
  List<Part> parts_;
};

}  // namespace tutti::parallel

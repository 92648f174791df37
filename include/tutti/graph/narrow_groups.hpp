// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which values must have one type in memory, and which of these become bfloat16 (narrow.hpp): disjoint sets of
/// buffers.

#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>

#include <cstddef>

namespace tutti::graph::lowering {

/// At first every buffer is a group of its own. Absent operands are let through.
class NarrowGroups {
 public:
  NarrowGroups() = default;
  explicit NarrowGroups(std::size_t buffers) : group_(buffers), fixed_(buffers), wanted_(buffers) {
    for (std::size_t id = 0; id < buffers; ++id) group_[id] = static_cast<BufferId>(id);
  }

  /// Both have one type.
  void join(Ref const& a, Ref const& b) {
    if (!a || !b) return;
    BufferId const x = group_of(a.buffer), y = group_of(b.buffer);
    if (x == y) return;
    group_[at(y)] = x;
    fixed_[at(x)] = fixed_[at(x)] || fixed_[at(y)];
    wanted_[at(x)] = wanted_[at(x)] || wanted_[at(y)];
  }
  /// It keeps its type.
  void fix(BufferId id) { fixed_[at(group_of(id))] = true; }
  void fix(Ref const& ref) {
    if (ref) fix(ref.buffer);
  }
  /// It becomes bfloat16, if all of its group can.
  void want(Ref const& ref) {
    if (ref) wanted_[at(group_of(ref.buffer))] = true;
  }
  bool is_narrow(BufferId id) { return wanted_[at(group_of(id))] && !fixed_[at(group_of(id))]; }

 private:
  BufferId group_of(BufferId id) {
    while (group_[at(id)] != id) id = group_[at(id)] = group_[at(group_[at(id)])];
    return id;
  }

  List<BufferId> group_;
  List<bool> fixed_, wanted_;  // of groups
};

}  // namespace tutti::graph::lowering

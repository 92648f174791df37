// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: this buffer lives on another device than the communicator works on
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/testing/recording.hpp>

struct Elsewhere : tutti::Cpu {
  static constexpr std::string_view name = "elsewhere";
  friend bool operator==(Elsewhere, Elsewhere) = default;
};
/// A backend of that device alone.
struct There : tutti::Recording {
  using Device = Elsewhere;
  There split(int color, int key, tutti::List<int> const& members) {
    return There{tutti::Recording::split(color, key, members)};
  }
};

#ifdef TUTTI_BAD
using Place = tutti::Cpu;
#else
using Place = Elsewhere;
#endif

void sum(tutti::Communicator<There>& comm, tutti::Tensor<float, Place>& x) { comm.broadcast(x); }

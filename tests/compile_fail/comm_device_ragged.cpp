// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: this buffer lives on another device than the communicator works on
// Lines: 15
#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

struct Elsewhere : tutti::Cpu {
  static constexpr std::string_view name = "elsewhere";
  friend bool operator==(Elsewhere, Elsewhere) = default;
};

#ifdef TUTTI_BAD
using Place = Elsewhere;
#else
using Place = tutti::Cpu;
#endif

auto rows(tutti::Communicator<tutti::Threads>& comm, tutti::Tensor<float, Place>& x) { return comm.all_gather_v(x); }
